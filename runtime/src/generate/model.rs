//! What a bundle of a language model offers: its functions, the size of its vocabulary and of its context.

use crate::error::{Error, Result};
use crate::format::{Expr, Function, HostType, Port, Variant};

/// The name of the function that draws.
pub(super) const SAMPLE: &str = "sample";

/// The functions that step through a text.
pub(super) struct Model {
    pub(super) prefill: Option<TokenFunction>,
    pub(super) verify: Option<TokenFunction>,
    pub(super) decode: TokenFunction,
    /// Whether function `sample` draws from the logits of `prefill` and `decode`.
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
        let (prefill, verify, decode) =
            (step("prefill", false)?, step("verify", true)?, step("decode", false)?);
        let Some((decode, vocabulary)) = decode else {
            let known: Vec<&str> = variant.functions.iter().map(|function| function.name.as_str()).collect();
            return Err(refused(format!("no function `decode`; there are: {}", known.join(", "))));
        };
        if decode.chunk != 1 {
            return Err(refused(format!("`decode` takes {} ids, not 1", decode.chunk)));
        }
        let mut context = decode.past.saturating_add(1);
        for (step, size) in [prefill, verify].into_iter().flatten() {
            if size != vocabulary {
                return Err(refused(format!("`{}` has {size} logits, `decode` {vocabulary}", step.name)));
            }
            context = context.min(step.past.saturating_add(step.chunk));
        }
        let step = |found: Option<(TokenFunction, usize)>| found.map(|(step, _)| step);
        let samples = variant.functions.iter().any(|function| function.name == SAMPLE);
        Ok(Model { prefill: step(prefill), verify: step(verify), decode, samples, vocabulary, context })
    }

    /// Which function takes the next ids of `rest`, of which there is at least one, and how many of them; none where the
    /// context has no room.
    ///
    /// Chunks that are mostly padding cost more than runs for a few ids do: up to a quarter of a chunk goes to `verify`.
    pub(super) fn step(&self, past: usize, rest: usize) -> Option<(TokenFunction, usize)> {
        let fits = |step: Option<TokenFunction>| step.filter(|step| step.fits(past));
        let (prefill, verify) = (fits(self.prefill), fits(self.verify));
        let chosen = match (prefill, verify) {
            (Some(prefill), _) if rest >= prefill.chunk => Some(prefill),
            _ if rest == 1 => None,
            (Some(prefill), verify) if prefill.pads() && (verify.is_none() || rest > prefill.chunk / 4) => {
                Some(prefill)
            }
            (_, verify) => verify.filter(|verify| verify.pads()),
        };
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
    let counts = symbol("count")
        .is_some_and(|count| count.min <= 1 && usize::try_from(count.max).is_ok_and(|max| max >= chunk));
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

    #[test]
    fn a_prompt_is_cut_into_runs() {
        let mut model = Model {
            prefill: Some(step("prefill", 32)),
            verify: Some(step("verify", 4)),
            decode: step("decode", 1),
            samples: false,
            vocabulary: 10,
            context: 100,
        };
        let runs = |model: &Model, past: usize, rest: usize| {
            let (mut past, mut rest, mut runs) = (past, rest, Vec::new());
            while rest > 0 {
                let Some((step, count)) = model.step(past, rest) else { break };
                runs.push((step.name, count));
                (past, rest) = (past + count, rest - count);
            }
            runs
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
