//! What a bundle of a language model offers: its functions, the size of its vocabulary and of its context.

use crate::error::{Error, Result};
use crate::format::{Expr, Function, HostType, Port, Variant};

/// The name of the function that draws.
pub(super) const SAMPLE: &str = "sample";

/// The functions that step through a text.
pub(super) struct Model {
    pub(super) prefill_long: Option<TokenFunction>,
    pub(super) prefill: Option<TokenFunction>,
    pub(super) verify: Option<TokenFunction>,
    pub(super) decode: TokenFunction,
    /// Whether function `sample` draws from the logits of the functions that give one row of them.
    pub(super) samples: bool,
    pub(super) vocabulary: usize,
    /// The most tokens in the caches.
    pub(super) context: usize,
}

/// A function that adds tokens to the caches.
#[derive(Clone, Copy)]
pub(super) struct TokenFunction {
    pub(super) name: &'static str,
    /// How many ids it takes.
    pub(super) chunk: usize,
    /// The type of the ids.
    pub(super) ids: HostType,
    /// The most tokens that may be in the caches before it.
    past: usize,
    /// Whether it is told the number of ids that count.
    pub(super) counts: bool,
    /// Where it is told the length of the text that its ids are a part of: the longest of the texts that are computed as
    /// all shorter ones are.
    pub(super) turn: Option<usize>,
    /// Whether there are logits for every id.
    pub(super) rows: bool,
}

impl TokenFunction {
    /// Whether some of its ids may be padding.
    fn pads(&self) -> bool {
        self.counts || self.rows
    }

    /// Whether the context has room for its ids behind so many tokens.
    pub(super) fn fits(&self, past: usize) -> bool {
        past <= self.past
    }
}

impl Model {
    /// Reads the functions of a variant.
    pub(super) fn of(variant: &Variant) -> Result<Model> {
        let step = |name, rows| {
            let function = variant.functions.iter().find(|function| function.name == name);
            function.map(|function| read(name, rows, function)).transpose()
        };
        let (long, prefill) = (step("prefill_long", false)?, step("prefill", false)?);
        let (verify, decode) = (step("verify", true)?, step("decode", false)?);
        let Some((decode, vocabulary)) = decode else {
            let known: Vec<&str> = variant.functions.iter().map(|function| function.name.as_str()).collect();
            return Err(refused(format!("no function `decode`; there are: {}", known.join(", "))));
        };
        if decode.chunk != 1 {
            return Err(refused(format!("`decode` takes {} ids, not 1", decode.chunk)));
        }
        let mut context = decode.past.saturating_add(1);
        for (step, size) in [long, prefill, verify].into_iter().flatten() {
            if size != vocabulary {
                return Err(refused(format!("`{}` has {size} logits, `decode` {vocabulary}", step.name)));
            }
            context = context.min(step.past.saturating_add(step.chunk));
        }
        let step = |found: Option<(TokenFunction, usize)>| found.map(|(step, _)| step);
        let samples = variant.functions.iter().any(|function| function.name == SAMPLE);
        let (prefill_long, prefill, verify) = (step(long), step(prefill), step(verify));
        Ok(Model { prefill_long, prefill, verify, decode, samples, vocabulary, context })
    }

    /// Which function takes the next ids of `rest`, of which there is at least one, and how many of them; none where the
    /// context has no room.
    ///
    /// Chunks that are mostly padding cost more than runs for a few ids do: up to a quarter of a chunk goes to `verify`. A
    /// long chunk saves less over shorter ones: up to three quarters of it go to `prefill`.
    pub(super) fn step(&self, past: usize, rest: usize) -> Option<(TokenFunction, usize)> {
        let fits = |step: Option<TokenFunction>| step.filter(|step| step.fits(past));
        let (long, prefill, verify) = (fits(self.prefill_long), fits(self.prefill), fits(self.verify));
        // A function takes ids that fill it, and more than a few that do not.
        let takes = |step: Option<TokenFunction>, few: &dyn Fn(usize) -> usize| {
            step.filter(|step| rest >= step.chunk || (step.pads() && rest > few(step.chunk).max(1)))
        };
        let for_verify = |chunk: usize| if verify.is_some() { chunk / 4 } else { 1 };
        let for_prefill = |chunk: usize| match prefill {
            Some(prefill) => prefill.chunk.max(chunk - chunk / 4),
            None => for_verify(chunk),
        };
        let chosen = takes(long, &for_prefill)
            .or_else(|| takes(prefill, &for_verify))
            .or_else(|| verify.filter(|verify| rest > 1 && verify.pads()));
        let step = chosen.or_else(|| fits(Some(self.decode)))?;
        Some((step, rest.min(step.chunk)))
    }
}

/// Checks a function's ports, and returns the number of its logits, too.
fn read(name: &'static str, rows: bool, function: &Function) -> Result<(TokenFunction, usize)> {
    let lacks = |what: &str| refused(format!("function `{name}` has no {what}"));
    let port = |ports: &[Port], wanted: &str| ports.iter().find(|port| port.name == wanted).cloned();
    let symbol = |wanted: &str| function.symbols.iter().find(|symbol| symbol.name == wanted);
    let ids = port(&function.inputs, "ids").ok_or_else(|| lacks("input `ids`"))?;
    let chunk = match (sizes(&ids, None).as_deref(), ids.host_type) {
        (Some([1, chunk]), HostType::I32 | HostType::I64) if *chunk > 0 => *chunk,
        _ => return Err(lacks("input `ids` of shape [1, C], i32 or i64")),
    };
    if let Some(other) = function.inputs.iter().find(|port| port.name != "ids") {
        return Err(refused(format!("function `{name}` has another input, `{}`", other.name)));
    }
    let n_rows = if rows { chunk } else { 1 };
    let count = function.symbols.iter().position(|symbol| symbol.name == "count");
    let counted = count.and_then(|index| u32::try_from(index).ok()).map(|index| (index, chunk));
    let next = port(&function.outputs, "next").ok_or_else(|| lacks("output `next`"))?;
    let numbers = matches!(next.host_type, HostType::I32 | HostType::I64);
    if !numbers || sizes(&next, counted).as_deref() != Some(&[n_rows]) {
        return Err(lacks(&format!("output `next` of shape [{n_rows}], i32 or i64")));
    }
    let logits = port(&function.outputs, "logits").ok_or_else(|| lacks("output `logits`"))?;
    let vocabulary = match (sizes(&logits, counted).as_deref(), logits.host_type) {
        (Some([n, vocabulary]), HostType::F32) if *n == n_rows && *vocabulary > 0 => *vocabulary,
        _ => return Err(lacks(&format!("output `logits` of shape [{n_rows}, vocabulary], f32"))),
    };
    let past = symbol("past").ok_or_else(|| lacks("symbol `past`"))?;
    // What takes one id alone need not be told so.
    let takes_all = |most: i64| most > 1 && usize::try_from(most).is_ok_and(|most| most >= chunk);
    let counts = symbol("count").is_some_and(|count| count.min <= 1 && takes_all(count.max));
    let past = usize::try_from(past.max).unwrap_or(usize::MAX);
    let turn = symbol("length").map(|length| usize::try_from(length.min).unwrap_or(0));
    Ok((TokenFunction { name, chunk, ids: ids.host_type, past, counts, turn, rows }, vocabulary))
}

/// The sizes of a port, where none depends on a symbol but the given one, of the given upper bound.
fn sizes(port: &Port, counted: Option<(u32, usize)>) -> Option<Vec<usize>> {
    let size = |dim: &Expr| match (dim.as_symbol(), counted) {
        (Some(symbol), Some((count, most))) if symbol == count => Some(most),
        _ => usize::try_from(dim.as_constant()?).ok(),
    };
    port.shape.iter().map(size).collect()
}

fn refused(reason: String) -> Error {
    Error::NotALanguageModel { reason }
}

#[cfg(test)]
mod tests {
    use super::{Model, TokenFunction};
    use crate::format::HostType;

    fn step(name: &'static str, chunk: usize) -> TokenFunction {
        let (ids, past, counts) = (HostType::I32, 100 - chunk, chunk > 1);
        TokenFunction { name, chunk, ids, past, counts, turn: None, rows: chunk == 4 }
    }

    /// Cuts `rest` ids behind `past` tokens.
    fn runs(model: &Model, past: usize, rest: usize) -> Vec<(&'static str, usize)> {
        let (mut past, mut rest, mut runs) = (past, rest, Vec::new());
        while rest > 0 {
            let Some((step, count)) = model.step(past, rest) else { break };
            runs.push((step.name, count));
            (past, rest) = (past + count, rest - count);
        }
        runs
    }

    #[test]
    fn long_prompts_take_long_chunks() {
        let mut model = Model {
            prefill_long: Some(step("long", 32)),
            prefill: Some(step("prefill", 8)),
            verify: Some(step("verify", 4)),
            decode: step("decode", 1),
            samples: false,
            vocabulary: 10,
            context: 100,
        };
        assert_eq!(runs(&model, 0, 24), [("prefill", 8); 3]);
        assert_eq!(runs(&model, 0, 25), [("long", 25)]);
        assert_eq!(runs(&model, 0, 34), [("long", 32), ("verify", 2)]);
        assert_eq!(runs(&model, 0, 44), [("long", 32), ("prefill", 8), ("prefill", 4)]);
        assert_eq!(runs(&model, 0, 60), [("long", 32), ("long", 28)]);
        // Where the context has no room for a long chunk, shorter ones go on.
        assert_eq!(runs(&model, 68, 32), [("long", 32)]);
        let mut short = vec![("prefill", 8); 3];
        short.extend([("verify", 4), ("decode", 1), ("decode", 1), ("decode", 1)]);
        assert_eq!(runs(&model, 69, 31), short);
        // A chunk that is hardly longer takes nothing that one of the others holds.
        model.prefill = Some(step("prefill", 30));
        assert_eq!(runs(&model, 0, 30), [("prefill", 30)]);
        assert_eq!(runs(&model, 0, 31), [("long", 31)]);
        // By itself it is what the other would be.
        model.prefill = None;
        assert_eq!(runs(&model, 0, 8), [("verify", 4); 2]);
        assert_eq!(runs(&model, 0, 9), [("long", 9)]);
    }

    #[test]
    fn a_prompt_is_cut_into_runs() {
        let mut model = Model {
            prefill_long: None,
            prefill: Some(step("prefill", 32)),
            verify: Some(step("verify", 4)),
            decode: step("decode", 1),
            samples: false,
            vocabulary: 10,
            context: 100,
        };
        assert_eq!(runs(&model, 0, 1), [("decode", 1)]);
        assert_eq!(runs(&model, 0, 6), [("verify", 4), ("verify", 2)]);
        assert_eq!(runs(&model, 0, 9), [("prefill", 9)]);
        assert_eq!(runs(&model, 0, 33), [("prefill", 32), ("decode", 1)]);
        assert_eq!(runs(&model, 60, 40), [("prefill", 32), ("verify", 4), ("verify", 4)]);
        assert_eq!(runs(&model, 80, 20), [("verify", 4); 5]);
        assert_eq!(runs(&model, 97, 4), [("decode", 1); 3]);
        model.verify = None;
        assert_eq!(runs(&model, 0, 2), [("prefill", 2)]);
        assert_eq!(runs(&model, 68, 2), [("prefill", 2)]);
        assert_eq!(runs(&model, 69, 2), [("decode", 1); 2]);
        model.prefill = None;
        assert_eq!(runs(&model, 0, 3), [("decode", 1); 3]);
    }
}
