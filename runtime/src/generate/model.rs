//! The functions of a language model's bundle, its vocabulary size and context length.

use crate::error::{Error, Result};
use crate::format::{Expr, Function, HostType, Port, Variant};

/// Name of the function that samples the next token on the device.
pub(super) const SAMPLE: &str = "sample";

/// The functions of a language model.
pub(super) struct LanguageModel {
    pub(super) prefill_long: Option<TokenFunction>,
    pub(super) prefill: Option<TokenFunction>,
    pub(super) verify: Option<TokenFunction>,
    pub(super) decode: TokenFunction,
    /// True if the bundle has function `sample`, which samples a token from one row of logits on the device.
    pub(super) has_sample: bool,
    pub(super) vocabulary: usize,
    /// Context length: the capacity of the KV caches in tokens.
    pub(super) context: usize,
}

/// A function that evaluates tokens and appends them to the KV caches.
#[derive(Clone, Copy)]
pub(super) struct TokenFunction {
    pub(super) name: &'static str,
    /// Number of token ids in the function's input `ids`.
    pub(super) chunk: usize,
    /// Element type of input `ids` on the host.
    pub(super) ids_type: HostType,
    /// Maximum number of tokens that the KV caches may have before a run of the function.
    max_past: usize,
    /// True if the function has symbol `count`, the number of ids that are not padding.
    pub(super) has_count: bool,
    /// RoPE threshold of functions with symbol `length`: the maximum sequence length that uses the short RoPE
    /// factors.
    pub(super) rope_threshold: Option<usize>,
    /// True if the outputs have a row for every token id of a run, not only for the last id.
    pub(super) row_per_token: bool,
}

impl TokenFunction {
    /// True if some token ids of a run may be padding.
    fn allows_padding(&self) -> bool {
        self.has_count || self.row_per_token
    }

    /// True if the context has room for a run after `past` cached tokens.
    pub(super) fn fits(&self, past: usize) -> bool {
        past <= self.max_past
    }

    /// Returns the number of cached tokens before the run that evaluates the token at `position`. The runs evaluate full
    /// chunks from the first token on. The last run starts earlier if the context has no room for a full chunk.
    pub(super) fn chunk_start(&self, position: usize) -> usize {
        (position - position % self.chunk).min(self.max_past)
    }
}

impl LanguageModel {
    /// Finds and checks the functions of a language model in a variant.
    pub(super) fn from_variant(variant: &Variant) -> Result<LanguageModel> {
        let step = |name, rows| {
            let function = variant.functions.iter().find(|function| function.name == name);
            function.map(|function| check_function(name, rows, function)).transpose()
        };
        let (long, prefill) = (step("prefill_long", false)?, step("prefill", false)?);
        let (verify, decode) = (step("verify", true)?, step("decode", false)?);
        let Some((decode, vocabulary)) = decode else {
            let known: Vec<&str> = variant.functions.iter().map(|function| function.name.as_str()).collect();
            return Err(not_a_language_model(format!(
                "the bundle has no function `decode`, only: {}",
                known.join(", ")
            )));
        };
        if decode.chunk != 1 {
            return Err(not_a_language_model(format!("`decode` takes {} ids, not 1", decode.chunk)));
        }
        let mut context = decode.max_past.saturating_add(1);
        for (step, size) in [long, prefill, verify].into_iter().flatten() {
            if size != vocabulary {
                return Err(not_a_language_model(format!(
                    "function `{}` has {size} logits per token, but `decode` has {vocabulary}",
                    step.name
                )));
            }
            context = context.min(step.max_past.saturating_add(step.chunk));
        }
        let step = |found: Option<(TokenFunction, usize)>| found.map(|(step, _)| step);
        let has_sample = variant.functions.iter().any(|function| function.name == SAMPLE);
        let (prefill_long, prefill, verify) = (step(long), step(prefill), step(verify));
        Ok(LanguageModel { prefill_long, prefill, verify, decode, has_sample, vocabulary, context })
    }

    /// Selects the function for the next run, and the number of token ids that the run evaluates. `past` is the number
    /// of cached tokens, `rest` the number of remaining ids, at least 1. Returns `None` if the context has no room.
    ///
    /// A chunk is the token ids of one run. A chunk that is mostly padding costs more than runs of a function with a
    /// smaller chunk. Ids that fill at most a quarter of a `prefill` chunk are therefore evaluated by `verify`. A
    /// `prefill_long` chunk saves less time over several `prefill` chunks: ids that fill at most three quarters of a
    /// `prefill_long` chunk are evaluated by `prefill`.
    pub(super) fn select_function(&self, past: usize, rest: usize) -> Option<(TokenFunction, usize)> {
        let fits = |step: Option<TokenFunction>| step.filter(|step| step.fits(past));
        let (long, prefill, verify) = (fits(self.prefill_long), fits(self.prefill), fits(self.verify));
        // A function is used for ids that fill its chunk, or for more than `few` ids that do not.
        let usable = |step: Option<TokenFunction>, few: &dyn Fn(usize) -> usize| {
            step.filter(|step| rest >= step.chunk || (step.allows_padding() && rest > few(step.chunk).max(1)))
        };
        let for_verify = |chunk: usize| if verify.is_some() { chunk / 4 } else { 1 };
        let for_prefill = |chunk: usize| match prefill {
            Some(prefill) => prefill.chunk.max(chunk - chunk / 4),
            None => for_verify(chunk),
        };
        let selected = usable(long, &for_prefill)
            .or_else(|| usable(prefill, &for_verify))
            .or_else(|| verify.filter(|verify| rest > 1 && verify.allows_padding()));
        let step = selected.or_else(|| fits(Some(self.decode)))?;
        Some((step, rest.min(step.chunk)))
    }
}

/// Checks the inputs, outputs and symbols of a function. Returns the function with its vocabulary size.
fn check_function(
    name: &'static str,
    row_per_token: bool,
    function: &Function,
) -> Result<(TokenFunction, usize)> {
    let lacks = |what: &str| not_a_language_model(format!("function `{name}` has no {what}"));
    let port = |ports: &[Port], wanted: &str| ports.iter().find(|port| port.name == wanted).cloned();
    let symbol = |wanted: &str| function.symbols.iter().find(|symbol| symbol.name == wanted);
    let ids = port(&function.inputs, "ids").ok_or_else(|| lacks("input `ids`"))?;
    let chunk = match (constant_sizes(&ids, None).as_deref(), ids.host_type) {
        (Some([1, chunk]), HostType::I32 | HostType::I64) if *chunk > 0 => *chunk,
        _ => return Err(lacks("input `ids` of shape [1, C], i32 or i64")),
    };
    if let Some(other) = function.inputs.iter().find(|port| port.name != "ids") {
        return Err(not_a_language_model(format!(
            "function `{name}` has an input besides `ids`: `{}`",
            other.name
        )));
    }
    let n_rows = if row_per_token { chunk } else { 1 };
    let count = function.symbols.iter().position(|symbol| symbol.name == "count");
    let counted = count.and_then(|index| u32::try_from(index).ok()).map(|index| (index, chunk));
    let next = port(&function.outputs, "next").ok_or_else(|| lacks("output `next`"))?;
    let is_integer = matches!(next.host_type, HostType::I32 | HostType::I64);
    if !is_integer || constant_sizes(&next, counted).as_deref() != Some(&[n_rows]) {
        return Err(lacks(&format!("output `next` of shape [{n_rows}], i32 or i64")));
    }
    let logits = port(&function.outputs, "logits").ok_or_else(|| lacks("output `logits`"))?;
    let vocabulary = match (constant_sizes(&logits, counted).as_deref(), logits.host_type) {
        (Some([n, vocabulary]), HostType::F32) if *n == n_rows && *vocabulary > 0 => *vocabulary,
        _ => return Err(lacks(&format!("output `logits` of shape [{n_rows}, vocabulary], f32"))),
    };
    let past = symbol("past").ok_or_else(|| lacks("symbol `past`"))?;
    // A function of one id does not need `count`.
    let takes_all = |max: i64| max > 1 && usize::try_from(max).is_ok_and(|max| max >= chunk);
    let has_count = symbol("count").is_some_and(|count| count.min <= 1 && takes_all(count.max));
    let max_past = usize::try_from(past.max).unwrap_or(usize::MAX);
    let rope_threshold = symbol("length").map(|length| usize::try_from(length.min).unwrap_or(0));
    Ok((
        TokenFunction {
            name,
            chunk,
            ids_type: ids.host_type,
            max_past,
            has_count,
            rope_threshold,
            row_per_token,
        },
        vocabulary,
    ))
}

/// Returns the sizes of a port. A dimension that is the symbol with index `counted.0` counts as the size `counted.1`.
/// Returns `None` if another symbol occurs.
fn constant_sizes(port: &Port, counted: Option<(u32, usize)>) -> Option<Vec<usize>> {
    let size = |dim: &Expr| match (dim.as_symbol(), counted) {
        (Some(symbol), Some((count, max))) if symbol == count => Some(max),
        _ => usize::try_from(dim.as_constant()?).ok(),
    };
    port.shape.iter().map(size).collect()
}

fn not_a_language_model(reason: String) -> Error {
    Error::NotALanguageModel { reason }
}

#[cfg(test)]
mod tests {
    use super::{LanguageModel, TokenFunction};
    use crate::format::HostType;

    fn step(name: &'static str, chunk: usize) -> TokenFunction {
        let (ids_type, max_past, has_count) = (HostType::I32, 100 - chunk, chunk > 1);
        TokenFunction {
            name,
            chunk,
            ids_type,
            max_past,
            has_count,
            rope_threshold: None,
            row_per_token: chunk == 4,
        }
    }

    /// Splits `rest` token ids after `past` cached tokens into runs: names of functions, and numbers of ids.
    fn split_into_runs(model: &LanguageModel, past: usize, rest: usize) -> Vec<(&'static str, usize)> {
        let (mut past, mut rest, mut runs) = (past, rest, Vec::new());
        while rest > 0 {
            let Some((step, count)) = model.select_function(past, rest) else { break };
            runs.push((step.name, count));
            (past, rest) = (past + count, rest - count);
        }
        runs
    }

    #[test]
    fn long_prompts_use_long_chunks() {
        let mut model = LanguageModel {
            prefill_long: Some(step("long", 32)),
            prefill: Some(step("prefill", 8)),
            verify: Some(step("verify", 4)),
            decode: step("decode", 1),
            has_sample: false,
            vocabulary: 10,
            context: 100,
        };
        assert_eq!(split_into_runs(&model, 0, 24), [("prefill", 8); 3]);
        assert_eq!(split_into_runs(&model, 0, 25), [("long", 25)]);
        assert_eq!(split_into_runs(&model, 0, 34), [("long", 32), ("verify", 2)]);
        assert_eq!(split_into_runs(&model, 0, 44), [("long", 32), ("prefill", 8), ("prefill", 4)]);
        assert_eq!(split_into_runs(&model, 0, 60), [("long", 32), ("long", 28)]);
        // Shorter chunks are used where the context has no room for a long chunk.
        assert_eq!(split_into_runs(&model, 68, 32), [("long", 32)]);
        let mut short = vec![("prefill", 8); 3];
        short.extend([("verify", 4), ("decode", 1), ("decode", 1), ("decode", 1)]);
        assert_eq!(split_into_runs(&model, 69, 31), short);
        // A `prefill` chunk that is nearly as long gets everything that fits it.
        model.prefill = Some(step("prefill", 30));
        assert_eq!(split_into_runs(&model, 0, 30), [("prefill", 30)]);
        assert_eq!(split_into_runs(&model, 0, 31), [("long", 31)]);
        // Without `prefill`, only `verify` limits the long chunks.
        model.prefill = None;
        assert_eq!(split_into_runs(&model, 0, 8), [("verify", 4); 2]);
        assert_eq!(split_into_runs(&model, 0, 9), [("long", 9)]);
    }

    #[test]
    fn prompts_are_split_into_runs() {
        let mut model = LanguageModel {
            prefill_long: None,
            prefill: Some(step("prefill", 32)),
            verify: Some(step("verify", 4)),
            decode: step("decode", 1),
            has_sample: false,
            vocabulary: 10,
            context: 100,
        };
        assert_eq!(split_into_runs(&model, 0, 1), [("decode", 1)]);
        assert_eq!(split_into_runs(&model, 0, 6), [("verify", 4), ("verify", 2)]);
        assert_eq!(split_into_runs(&model, 0, 9), [("prefill", 9)]);
        assert_eq!(split_into_runs(&model, 0, 33), [("prefill", 32), ("decode", 1)]);
        assert_eq!(split_into_runs(&model, 60, 40), [("prefill", 32), ("verify", 4), ("verify", 4)]);
        assert_eq!(split_into_runs(&model, 80, 20), [("verify", 4); 5]);
        assert_eq!(split_into_runs(&model, 97, 4), [("decode", 1); 3]);
        model.verify = None;
        assert_eq!(split_into_runs(&model, 0, 2), [("prefill", 2)]);
        assert_eq!(split_into_runs(&model, 68, 2), [("prefill", 2)]);
        assert_eq!(split_into_runs(&model, 69, 2), [("decode", 1); 2]);
        model.prefill = None;
        assert_eq!(split_into_runs(&model, 0, 3), [("decode", 1); 3]);
    }
}
