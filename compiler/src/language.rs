//! The functions of a language model: what goes in, what comes out, and how a graph gets there.
//!
//! `ids -> logits` with caches on the device becomes entry points that share weights and states:
//!
//! | function | ids | logits |
//! |---|---|---|
//! | `decode` | one; -1 is the token that was chosen last | its |
//! | `verify` | up to 16 | of each |
//! | `prefill` | up to a chunk | of the last |
//! | `prefill_long` | up to several chunks | of the last |
//!
//! `prefill_long` saves time alone. Unless the user asks for it, it is there where the context has room for two of its runs,
//! and on targets where that saves clearly by the estimates ([`crate::functions`]). One more, `sample`, draws a token from
//! logits ([`sample`]).
//!
//! Input `ids [1, n]`, outputs `next` (the token with the largest logit) and `logits`, a row for each position. Symbol
//! `past` is the number of tokens in the caches, `count` that of the ids that are meant. Those behind them are padding:
//! `verify` computes nothing for them; in the others no position before them sees them, and the next tokens overwrite what
//! they leave in the caches.

pub mod batch_invariant;
pub mod caches;
pub mod onnx;
pub mod sample;

use crate::error::{Error, Result};
use crate::ir::builder::Builder;
use crate::ir::dim::Dim;
use crate::ir::element::BinaryFn;
use crate::ir::graph::NodeId;
use crate::ir::op::{ArgReduce, State};
use crate::ir::tensor::DType;

/// The symbol that counts the tokens in the caches.
pub const PAST: &str = "past";
/// Tokens of the caches unless the user asks for another number.
pub const DEFAULT_CONTEXT: i64 = 4096;
/// Tokens of a chunk of `prefill` unless the user asks for another number.
const DEFAULT_CHUNK: i64 = 256;
/// The same of `prefill_long`.
const DEFAULT_LONG: i64 = 1024;
/// The function that takes one token.
pub(crate) const DECODE: &str = "decode";
/// The function that takes a few tokens, and gives logits for each.
pub(crate) const VERIFY: &str = "verify";
/// The function that reads prompts.
pub(crate) const PREFILL: &str = "prefill";
/// The function that reads long ones.
pub(crate) const PREFILL_LONG: &str = "prefill_long";
/// Most tokens of `verify`: as many as one row of matrix units takes.
const VERIFIED: i64 = 16;
/// The symbol that counts the ids that are no padding.
pub const COUNT: &str = "count";
/// The state that holds the token that was chosen last.
const TOKEN: &str = "token";

/// How many tokens functions take, and how many the caches hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Tokens of the caches.
    pub context: i64,
    /// Tokens of a run of `prefill`.
    pub chunk: i64,
    /// Tokens of a run of `prefill_long`, where there is to be one.
    pub long: Option<Long>,
}

/// Tokens of a run of `prefill_long`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Long {
    /// As many as is usual, on targets where that saves time.
    Usual(i64),
    /// As many as the user asks for.
    Asked(i64),
}

impl Sizes {
    /// From what the user said about `context`, `chunk` and `long`; `longest` is the most tokens of a text, `usual` the context
    /// where nothing is said.
    ///
    /// # Errors
    /// A size that is no single number, or too large.
    pub fn of(bounds: impl Fn(&str) -> Option<(i64, i64)>, longest: i64, usual: i64) -> Result<Self> {
        let number = |name: &str, most: i64, usual: i64| {
            let usual = usual.min(most);
            let (low, high) = bounds(name).unwrap_or((usual, usual));
            if low == high && low >= 1 && low <= most {
                return Ok(low);
            }
            Err(Error::request(
                format!("`{name}` cannot be {low}..{high}: it is one number of at most {most}"),
                format!("give --dim {name}=N"),
            ))
        };
        let context = number("context", longest, usual)?;
        let chunk = number("chunk", context, DEFAULT_CHUNK)?;
        let long = match bounds("long") {
            None => {
                (chunk < DEFAULT_LONG && context / 2 >= DEFAULT_LONG).then_some(Long::Usual(DEFAULT_LONG))
            }
            Some((low, high)) if low == high && (low == 0 || low == chunk) => None,
            Some((low, high)) if low == high && (chunk..=context).contains(&low) => Some(Long::Asked(low)),
            Some((low, high)) => {
                return Err(Error::request(
                    format!(
                        "`long` cannot be {low}..{high}: it is one number from `chunk`, {chunk}, to `context`, {context}, or 0"
                    ),
                    "give --dim long=N",
                ));
            }
        };
        Ok(Self { context, chunk, long })
    }

    /// The entry points. The first one decides how weights are packed: for a few rows they lie as both one row and many
    /// can read them.
    pub fn entries(self) -> Vec<Entry> {
        let entry = |name, tokens, every| Entry { name, tokens, every, spare: false, context: self.context };
        let mut entries = vec![
            entry(VERIFY, VERIFIED.min(self.context), true),
            entry(DECODE, 1, false),
            entry(PREFILL, self.chunk, false),
        ];
        entries.extend(self.long.map(|long| match long {
            Long::Usual(tokens) => Entry { spare: true, ..entry(PREFILL_LONG, tokens, false) },
            Long::Asked(tokens) => entry(PREFILL_LONG, tokens, false),
        }));
        entries
    }
}

/// An entry point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Ids of a run.
    pub tokens: i64,
    /// Whether there are logits for every id.
    pub every: bool,
    /// Whether targets do without it where it saves little time.
    pub spare: bool,
    /// Tokens of the caches.
    pub context: i64,
}

impl Entry {
    /// Bounds of [`PAST`].
    pub fn past(&self) -> (i64, i64) {
        (0, self.context - self.tokens)
    }

    /// Whether it computes rows for the ids that count alone: where each of them has logits, padding would cost as much.
    fn counts_rows(&self) -> bool {
        self.every && self.tokens > 1
    }

    /// Positions that are computed.
    pub fn seq(&self) -> Dim {
        if self.counts_rows() { Dim::symbol(COUNT) } else { Dim::known(self.tokens) }
    }

    /// Tokens in the caches after a run.
    pub fn keys(&self) -> Dim {
        Dim::symbol(PAST).add(&self.seq())
    }

    /// Adds the input; the tokens that are computed, `[1, n]` in i32.
    ///
    /// # Errors
    /// When the graph has no room for them.
    pub fn ids(&self, g: &mut Builder<'_>) -> Result<NodeId> {
        let ids = g.input("ids", DType::I32, vec![Dim::known(1), Dim::known(self.tokens)])?;
        if self.tokens > 1 {
            g.graph.bounds.insert(COUNT.to_string(), (1, self.tokens));
        }
        if self.counts_rows() {
            return g.slice(ids, 1, Dim::known(0), self.seq());
        }
        if self.tokens != 1 {
            return Ok(ids);
        }
        chosen_last(g, ids)
    }

    /// The position whose logits alone are wanted.
    pub fn only(&self) -> Option<Dim> {
        (!self.every && self.tokens > 1).then(|| Dim::symbol(COUNT).plus(-1))
    }

    /// Adds the outputs, of logits `[1, n, vocabulary]`: n is the number of ids, or 1 with [`Self::only`].
    ///
    /// # Errors
    /// When the logits have another form.
    pub fn finish(&self, g: &mut Builder<'_>, logits: NodeId) -> Result<()> {
        g.name = "logits".to_string();
        let rows = g.tensor(logits).shape.iter().skip(1).cloned().collect();
        let logits = g.reshape(logits, rows)?;
        let logits = g.cast(logits, DType::F32)?;
        g.graph.add_output("logits", logits);
        g.name = "next".to_string();
        let next = g.add(ArgReduce { axis: 1, largest: true, last: false, keepdims: false }, &[logits])?;
        let next = g.cast(next, DType::I32)?;
        g.graph.add_output("next", next);
        if !self.every {
            g.graph.add_store(TOKEN, next);
        }
        Ok(())
    }
}

/// The token that a run of one computes: the given one, `[1, 1]`, or where that is -1 the one that was chosen last.
fn chosen_last(g: &mut Builder<'_>, given: NodeId) -> Result<NodeId> {
    g.name = TOKEN.to_string();
    let last = g.add(State { name: TOKEN.to_string(), dtype: DType::I32, shape: vec![1] }, &[])?;
    let last = g.reshape(last, vec![Dim::known(1); 2])?;
    let zero = g.scalar(DType::I32, 0.0)?;
    let is_given = g.binary(BinaryFn::GreaterEqual, given, zero)?;
    g.select(is_given, given, last)
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT_CONTEXT, Long, PREFILL, PREFILL_LONG, Sizes};
    use crate::compile::{Model, Options};
    use crate::functions::lower_model;
    use crate::ir::text;
    use crate::target::TargetProfile;

    fn long(said: &[(&str, i64)], longest: i64) -> Result<Option<Long>, String> {
        let said = |name: &str| said.iter().find(|(own, _)| *own == name).map(|(_, size)| (*size, *size));
        let sizes = Sizes::of(said, longest, DEFAULT_CONTEXT).map_err(|e| e.to_string())?;
        let entry = sizes.entries().into_iter().find(|entry| entry.name == PREFILL_LONG);
        let tokens = sizes.long.map(|long| match long {
            Long::Usual(tokens) => (tokens, true),
            Long::Asked(tokens) => (tokens, false),
        });
        assert_eq!(entry.map(|entry| (entry.tokens, entry.spare)), tokens);
        Ok(sizes.long)
    }

    #[test]
    fn long_prompts_have_a_function_where_there_is_room() {
        let usual = Ok(Some(Long::Usual(1024)));
        assert_eq!(long(&[], 100_000), usual);
        assert_eq!(long(&[], 2048), usual);
        assert_eq!(long(&[], 2047), Ok(None));
        assert_eq!(long(&[("context", 1024)], 100_000), Ok(None));
        assert_eq!(long(&[("chunk", 512)], 100_000), usual);
        assert_eq!(long(&[("chunk", 1024)], 100_000), Ok(None));
        assert_eq!(long(&[("long", 0)], 100_000), Ok(None));
        assert_eq!(long(&[("long", 256)], 100_000), Ok(None));
        assert_eq!(long(&[("long", 1024)], 100_000), Ok(Some(Long::Asked(1024))));
        assert_eq!(long(&[("long", 50), ("chunk", 7), ("context", 50)], 64), Ok(Some(Long::Asked(50))));
        for wrong in [128, 4097] {
            let error = long(&[("long", wrong)], 100_000).unwrap_err();
            assert!(error.contains("from `chunk`, 256, to `context`, 4096, or 0"), "{error}");
        }
    }

    /// The functions that are made of two that multiply 256 and 1024 numbers, and do `rest` with `%2`, on a target whose
    /// launches take so long and whose bindings hold so much. The longer one is spare, or asked for.
    fn made(rest: &str, launch_us: f64, most_bytes: u64, spare: bool) -> Result<Vec<String>, String> {
        let functions = [(PREFILL, 256), (PREFILL_LONG, 1024)].map(|(name, tokens)| {
            let graph = format!(
                r#"
%0 = input {{"name":"ids","dtype":"f32","shape":[{tokens}]}}
%1 = constant {{"dtype":"f32","shape":[{tokens}],"random":1}}
%2 = mul %0 %1
{rest}
"#
            );
            (name.to_string(), text::parse(&graph).unwrap())
        });
        let mut target = TargetProfile::load("vulkan-baseline").unwrap();
        target.machine.launch_us = launch_us;
        target.limits.max_storage_buffer_range = most_bytes;
        let spare = spare.then(|| PREFILL_LONG.to_string()).into_iter().collect();
        let model = Model { functions: functions.to_vec(), spare, ..Model::default() };
        let lowered = lower_model(&model, &target, &Options::default()).map_err(|e| e.to_string())?;
        Ok(lowered.into_iter().map(|function| function.name).collect())
    }

    /// A launch for each chunk is what longer chunks save here.
    #[test]
    fn a_spare_function_is_made_where_it_saves_time() {
        let made = |launch_us, spare| made(r#"output "logits" %2"#, launch_us, 1 << 20, spare).unwrap();
        assert_eq!(made(100.0, true), [PREFILL, PREFILL_LONG]);
        assert_eq!(made(0.0, true), [PREFILL]);
        assert_eq!(made(0.0, false), [PREFILL, PREFILL_LONG]);
    }

    /// What is between the nodes takes 1 KiB in the shorter one and 4 KiB in the longer.
    #[test]
    fn a_spare_function_is_made_where_it_has_room() {
        let rest = "%3 = softmax %2 {\"axis\":0,\"log\":false}\noutput \"logits\" %3";
        assert_eq!(made(rest, 100.0, 4096, true).unwrap(), [PREFILL, PREFILL_LONG]);
        assert_eq!(made(rest, 100.0, 2048, true).unwrap(), [PREFILL]);
        assert!(made(rest, 100.0, 2048, false).is_err());
    }
}
