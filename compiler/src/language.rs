//! Entry points of a language model: inputs, outputs, symbols and states.
//!
//! `ids -> logits` with KV caches on the device becomes entry points that share weights and states:
//!
//! | function | ids per run | logits |
//! |---|---|---|
//! | `decode` | 1; -1 stands for the last selected token | for that id |
//! | `verify` | up to 16 | for each id |
//! | `prefill` | up to a chunk | for the last id |
//! | `prefill_long` | up to several chunks | for the last id |
//!
//! `prefill_long` only saves time. Unless the user requests it, `prefill_long` exists only if the context has room for
//! two of its runs, and on targets where it is estimated to save enough time ([`crate::lowering`]). A further entry
//! point, `sample`, draws a token from logits ([`sample`]).
//!
//! Input `ids [1, n]`; outputs `next` (the token with the largest logit) and `logits`, one row per position. Symbol
//! `past` is the number of tokens in the KV caches; symbol `count` is the number of ids that are not padding. Padding
//! follows the other ids. `verify` computes nothing for padding. In the other functions, causality hides padding from
//! earlier positions, and the next tokens overwrite its rows of the caches.

pub mod batch_invariant;
pub mod caches;
pub mod onnx;
pub mod sample;

use crate::entry_points::EntryPoint;
use crate::error::{Error, Result};
use crate::ir::builder::Builder;
use crate::ir::dim::Dim;
use crate::ir::element::BinaryFn;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{ArgReduce, State};
use crate::ir::tensor::DType;

/// Symbol for the number of tokens in the KV caches.
pub const PAST: &str = "past";
/// Names of the sizes of the functions that generate text: the context length, and tokens per run of two functions.
pub const GENERATION_SIZES: [&str; 3] = ["context", "chunk", "long"];
/// Default context length in tokens.
pub const DEFAULT_CONTEXT: i64 = 4096;
/// Default number of tokens that a run of `prefill` reads.
const DEFAULT_CHUNK: i64 = 256;
/// Default number of tokens that a run of `prefill_long` reads.
const DEFAULT_LONG: i64 = 1024;
/// Name of the entry point for one token.
pub(crate) const DECODE: &str = "decode";
/// Name of the entry point for a few tokens, which returns logits for each token.
pub(crate) const VERIFY: &str = "verify";
/// Name of the entry point for prompts.
pub(crate) const PREFILL: &str = "prefill";
/// Name of the entry point for long prompts.
pub(crate) const PREFILL_LONG: &str = "prefill_long";
/// Maximum tokens of `verify`: the rows of one matrix-unit tile.
const MAX_VERIFY_TOKENS: i64 = 16;
/// Symbol for the number of ids that are not padding.
pub const COUNT: &str = "count";
/// Name of the state that holds the last selected token.
const TOKEN: &str = "token";

/// Sizes of a language model's entry points: context length and tokens per run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GenerationSizes {
    /// Context length: maximum number of tokens in the KV caches.
    pub context: i64,
    /// Number of tokens that a run of `prefill` reads.
    pub chunk: i64,
    /// Number of tokens that a run of `prefill_long` reads; `None` without this entry point.
    pub long: Option<LongPrefill>,
}

/// Number of tokens that a run of `prefill_long` reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LongPrefill {
    /// Default number of tokens per run. Targets drop `prefill_long` where it saves little time.
    Default(i64),
    /// The function `prefill_long` exists on every target; the number is its tokens per run, which the user requested.
    Requested(i64),
}

impl GenerationSizes {
    /// Returns the sizes of the entry points from the bounds that the user gave for `context`, `chunk` and `long`.
    /// `longest` is the maximum context length of the model; `usual` is the default context length.
    ///
    /// # Errors
    /// If the user gave a range for a size, or a size is too large.
    pub fn from_bounds(
        bounds: impl Fn(&str) -> Option<(i64, i64)>,
        longest: i64,
        usual: i64,
    ) -> Result<Self> {
        let number = |name: &str, max: i64, usual: i64| {
            let usual = usual.min(max);
            let (low, high) = bounds(name).unwrap_or((usual, usual));
            if low == high && low >= 1 && low <= max {
                return Ok(low);
            }
            Err(Error::request(
                format!("the size `{name}` cannot be {low}..{high}: it must be one number from 1 to {max}"),
                format!("give --dim {name}=N"),
            ))
        };
        let context = number("context", longest, usual)?;
        let chunk = number("chunk", context, DEFAULT_CHUNK)?;
        let long = match bounds("long") {
            None => (chunk < DEFAULT_LONG && context / 2 >= DEFAULT_LONG)
                .then_some(LongPrefill::Default(DEFAULT_LONG)),
            Some((low, high)) if low == high && (low == 0 || low == chunk) => None,
            Some((low, high)) if low == high && (chunk..=context).contains(&low) => {
                Some(LongPrefill::Requested(low))
            }
            Some((low, high)) => {
                return Err(Error::request(
                    format!(
                        "the size `long` cannot be {low}..{high}: it must be one number from `chunk`, {chunk}, to `context`, {context}, or 0"
                    ),
                    "give --dim long=N",
                ));
            }
        };
        Ok(Self { context, chunk, long })
    }

    /// Returns the entry points of a language model with these sizes. Weights are packed for the first entry point,
    /// which has few rows, because kernels for one row and for many rows can also read weights in that form.
    pub fn functions(self) -> Vec<LanguageFunction> {
        let function = |name, tokens| LanguageFunction {
            name,
            tokens,
            all_logits: false,
            reuse_weights: false,
            optional: false,
            context: self.context,
        };
        let mut functions = vec![
            LanguageFunction { all_logits: true, ..function(VERIFY, MAX_VERIFY_TOKENS.min(self.context)) },
            function(DECODE, 1),
            function(PREFILL, self.chunk),
        ];
        functions.extend(self.long.map(|long| {
            let (tokens, optional) = match long {
                LongPrefill::Default(tokens) => (tokens, true),
                LongPrefill::Requested(tokens) => (tokens, false),
            };
            LanguageFunction { reuse_weights: true, optional, ..function(PREFILL_LONG, tokens) }
        }));
        functions
    }
}

/// Description of an entry point of a language model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LanguageFunction {
    /// Name of the entry point.
    pub name: &'static str,
    /// Number of token ids per run, including padding.
    pub tokens: i64,
    /// True if the entry point returns logits for every input token; false if only for the last input token.
    pub all_logits: bool,
    /// True if the entry point should read the weights that other entry points packed.
    pub reuse_weights: bool,
    /// True if targets drop the entry point where it saves little time over `prefill`.
    pub optional: bool,
    /// Context length: maximum number of tokens in the KV caches.
    pub context: i64,
}

impl LanguageFunction {
    /// Returns the entry point that consists of this description and a graph.
    pub fn entry_point(&self, graph: Graph) -> EntryPoint {
        EntryPoint {
            reuse_weights: self.reuse_weights,
            keep_if_faster_than: self.optional.then(|| PREFILL.to_string()),
            ..EntryPoint::new(self.name, graph)
        }
    }

    /// Bounds of the symbol `past` ([`PAST`]), the number of tokens in the KV caches before a run.
    pub fn past_bounds(&self) -> (i64, i64) {
        (0, self.context - self.tokens)
    }

    /// True if the entry point does not compute padding ids. With logits for every id, padding would cost as much as
    /// other ids.
    fn skips_padding(&self) -> bool {
        self.all_logits && self.tokens > 1
    }

    /// Number of token positions that a run computes.
    pub fn seq(&self) -> Dim {
        if self.skips_padding() { Dim::symbol(COUNT) } else { Dim::known(self.tokens) }
    }

    /// Number of tokens in the KV caches after a run.
    pub fn keys(&self) -> Dim {
        Dim::symbol(PAST).add(&self.seq())
    }

    /// Adds the input `ids` to the graph. Returns the ids for which a run computes, as an i32 tensor `[1, n]`.
    ///
    /// # Errors
    /// If the graph has too many nodes.
    pub fn add_ids(&self, g: &mut Builder<'_>) -> Result<NodeId> {
        let ids = g.input("ids", DType::I32, vec![Dim::known(1), Dim::known(self.tokens)])?;
        if self.tokens > 1 {
            g.graph.bounds.insert(COUNT.to_string(), (1, self.tokens));
        }
        if self.skips_padding() {
            return g.slice(ids, 1, Dim::known(0), self.seq());
        }
        if self.tokens != 1 {
            return Ok(ids);
        }
        id_or_last_token(g, ids)
    }

    /// Position of the only id that the entry point returns logits for; `None` if it returns logits for every computed
    /// id.
    pub fn logits_position(&self) -> Option<Dim> {
        (!self.all_logits && self.tokens > 1).then(|| Dim::symbol(COUNT).plus(-1))
    }

    /// Adds the outputs `logits` and `next` to the graph. `logits` has shape `[1, n, vocabulary]`; n is 1 if
    /// [`Self::logits_position`] is not `None`, else the number of computed ids.
    ///
    /// # Errors
    /// If the logits have another shape.
    pub fn add_outputs(&self, g: &mut Builder<'_>, logits: NodeId) -> Result<()> {
        g.name = "logits".to_string();
        let rows = g.tensor(logits).shape.iter().skip(1).cloned().collect();
        let logits = g.reshape(logits, rows)?;
        let logits = g.cast(logits, DType::F32)?;
        g.graph.add_output("logits", logits);
        g.name = "next".to_string();
        let next = g.add(ArgReduce { axis: 1, largest: true, last: false, keepdims: false }, &[logits])?;
        let next = g.cast(next, DType::I32)?;
        g.graph.add_output("next", next);
        if !self.all_logits {
            g.graph.add_store(TOKEN, next);
        }
        Ok(())
    }
}

/// Returns the id that a run of one token computes, as a tensor `[1, 1]`: `given`, or the last selected token if
/// `given` is -1.
fn id_or_last_token(g: &mut Builder<'_>, given: NodeId) -> Result<NodeId> {
    g.name = TOKEN.to_string();
    let last = g.add(State { name: TOKEN.to_string(), dtype: DType::I32, shape: vec![1] }, &[])?;
    let last = g.reshape(last, vec![Dim::known(1); 2])?;
    let zero = g.scalar(DType::I32, 0.0)?;
    let is_given = g.binary(BinaryFn::GreaterEqual, given, zero)?;
    g.select(is_given, given, last)
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT_CONTEXT, GenerationSizes, LongPrefill, PREFILL, PREFILL_LONG};
    use crate::entry_points::{EntryPoint, Model, Options};
    use crate::ir::graph_text;
    use crate::lowering::lower_model;
    use crate::target::TargetProfile;

    fn long_prefill(given: &[(&str, i64)], longest: i64) -> Result<Option<LongPrefill>, String> {
        let bounds =
            |name: &str| given.iter().find(|(symbol, _)| *symbol == name).map(|(_, size)| (*size, *size));
        let sizes =
            GenerationSizes::from_bounds(bounds, longest, DEFAULT_CONTEXT).map_err(|e| e.to_string())?;
        let function = sizes.functions().into_iter().find(|function| function.name == PREFILL_LONG);
        let tokens = sizes.long.map(|long| match long {
            LongPrefill::Default(tokens) => (tokens, true),
            LongPrefill::Requested(tokens) => (tokens, false),
        });
        assert_eq!(function.map(|function| (function.tokens, function.optional)), tokens);
        Ok(sizes.long)
    }

    #[test]
    fn prefill_long_exists_if_the_context_has_room() {
        let default = Ok(Some(LongPrefill::Default(1024)));
        assert_eq!(long_prefill(&[], 100_000), default);
        assert_eq!(long_prefill(&[], 2048), default);
        assert_eq!(long_prefill(&[], 2047), Ok(None));
        assert_eq!(long_prefill(&[("context", 1024)], 100_000), Ok(None));
        assert_eq!(long_prefill(&[("chunk", 512)], 100_000), default);
        assert_eq!(long_prefill(&[("chunk", 1024)], 100_000), Ok(None));
        assert_eq!(long_prefill(&[("long", 0)], 100_000), Ok(None));
        assert_eq!(long_prefill(&[("long", 256)], 100_000), Ok(None));
        assert_eq!(long_prefill(&[("long", 1024)], 100_000), Ok(Some(LongPrefill::Requested(1024))));
        let small = [("long", 50), ("chunk", 7), ("context", 50)];
        assert_eq!(long_prefill(&small, 64), Ok(Some(LongPrefill::Requested(50))));
        for wrong in [128, 4097] {
            let error = long_prefill(&[("long", wrong)], 100_000).unwrap_err();
            assert!(error.contains("from `chunk`, 256, to `context`, 4096, or 0"), "{error}");
        }
    }

    /// Returns the names of the functions that a target keeps of a test model with `prefill` of 256 and `prefill_long`
    /// of 1024 elements. Each function multiplies its elements and then runs the lines `rest` on `%2`. The target has
    /// the given launch overhead and buffer size.
    fn lowered(
        rest: &str,
        launch_us: f64,
        max_buffer_bytes: u64,
        optional: bool,
    ) -> Result<Vec<String>, String> {
        let entry_points = [(PREFILL, 256), (PREFILL_LONG, 1024)].map(|(name, tokens)| {
            let graph = format!(
                r#"
%0 = input {{"name":"ids","dtype":"f32","shape":[{tokens}]}}
%1 = constant {{"dtype":"f32","shape":[{tokens}],"random":1}}
%2 = mul %0 %1
{rest}
"#
            );
            let long = name == PREFILL_LONG;
            EntryPoint {
                reuse_weights: long,
                keep_if_faster_than: (long && optional).then(|| PREFILL.to_string()),
                ..EntryPoint::new(name, graph_text::parse(&graph).unwrap())
            }
        });
        let mut target = TargetProfile::load("vulkan-baseline").unwrap();
        target.machine.launch_us = launch_us;
        target.limits.max_storage_buffer_range = max_buffer_bytes;
        let model = Model { entry_points: entry_points.to_vec(), ..Model::default() };
        let lowered = lower_model(&model, &target, &Options::default()).map_err(|e| e.to_string())?;
        Ok(lowered.into_iter().map(|function| function.name).collect())
    }

    /// In this test, longer chunks only save kernel launches.
    #[test]
    fn optional_functions_are_kept_if_they_save_time() {
        let lowered =
            |launch_us, optional| lowered(r#"output "logits" %2"#, launch_us, 1 << 20, optional).unwrap();
        assert_eq!(lowered(100.0, true), [PREFILL, PREFILL_LONG]);
        assert_eq!(lowered(0.0, true), [PREFILL]);
        assert_eq!(lowered(0.0, false), [PREFILL, PREFILL_LONG]);
    }

    /// In this test, the intermediate tensor takes 1 KiB in `prefill` and 4 KiB in `prefill_long`.
    #[test]
    fn optional_functions_are_kept_if_their_tensors_fit() {
        let rest = "%3 = softmax %2 {\"axis\":0,\"log\":false}\noutput \"logits\" %3";
        assert_eq!(lowered(rest, 100.0, 4096, true).unwrap(), [PREFILL, PREFILL_LONG]);
        assert_eq!(lowered(rest, 100.0, 2048, true).unwrap(), [PREFILL]);
        assert!(lowered(rest, 100.0, 2048, false).is_err());
    }
}
