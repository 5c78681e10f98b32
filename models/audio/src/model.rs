//! Functions, sizes and files of a Whisper model in a bundle.

use drift_runtime::Session;
use drift_runtime::format::{Function, Port};
use drift_text::Tokenizer;

use crate::windows::{HOP, WindowSize};
use crate::{DecodingSettings, Error, Result};

/// Function that evaluates tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenFunction {
    pub(crate) name: &'static str,
    /// Maximum number of tokens of a run.
    pub(crate) chunk: usize,
    /// Maximum number of tokens in the KV caches before a run.
    max_past: usize,
    /// True if the function has the symbol `count`, the number of tokens that are not padding.
    pub(crate) has_count: bool,
}

/// Sizes of a Whisper model.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) window: WindowSize,
    /// Functions that evaluate tokens, in the order of their numbers of tokens. The first one evaluates one token.
    functions: Vec<TokenFunction>,
    /// Number of ids that the function `align` reads, and number of its heads. `None` without alignment heads.
    pub(crate) align: Option<(usize, usize)>,
    /// Number of frames of the encoder.
    pub(crate) encoder_frames: usize,
}

impl Model {
    /// Reads the functions of a bundle.
    ///
    /// # Errors
    /// If the bundle has no Whisper model.
    pub(crate) fn new(session: &Session) -> Result<Self> {
        let features = function(session, "features")?;
        let samples = features.inputs.iter().find(|port| port.name == "samples").map(shape);
        let [samples, output] = [samples, features.outputs.first().map(shape)].map(Option::unwrap_or_default);
        let (&[1, samples], &[1, _, frames]) = (samples.as_slice(), output.as_slice()) else {
            return Err(not("the function `features` has other shapes"));
        };
        let margin = samples.checked_sub(frames * HOP).filter(|both| both % 2 == 0).map(|both| both / 2);
        let margin = margin.ok_or_else(|| not("the function `features` has other sizes"))?;
        let mut functions = Vec::new();
        for name in ["decode", "verify", "prefill"] {
            match session.function(name) {
                Ok(function) => functions.push(token_function(name, function)?),
                Err(_) if name == "decode" => return Err(not("it has no function `decode`")),
                Err(_) => {}
            }
        }
        let align = session.function("align").ok().map(|align| {
            let size = |port: Option<&Port>, axis: usize| {
                port.and_then(|port| shape(port).get(axis).copied()).unwrap_or(0)
            };
            (size(align.inputs.first(), 1), size(align.outputs.first(), 0))
        });
        let hidden = function(session, "encode")?.outputs.first().map(shape).unwrap_or_default();
        let encoder_frames = hidden.get(1).copied().unwrap_or(0);
        Ok(Self { window: WindowSize { frames, margin }, functions, align, encoder_frames })
    }

    /// Returns the function that evaluates the next of `left` tokens after `past` tokens, and the number of tokens that it
    /// evaluates.
    pub(crate) fn select(&self, past: usize, left: usize) -> Option<(TokenFunction, usize)> {
        let fitting = || self.functions.iter().filter(|function| past <= function.max_past);
        let whole = fitting().find(|function| function.chunk >= left);
        whole.or_else(|| fitting().next_back()).map(|function| (*function, function.chunk.min(left)))
    }
}

/// Returns the error for a bundle that has no Whisper model.
fn not(reason: &str) -> Error {
    Error::NotASpeechModel { reason: reason.to_owned() }
}

fn function<'a>(session: &'a Session, name: &str) -> Result<&'a Function> {
    session.function(name).map_err(|_| not(&format!("it has no function `{name}`")))
}

/// Returns the sizes of a port. A size that is not fixed is 0.
fn shape(port: &Port) -> Vec<usize> {
    let size = |size: &drift_runtime::format::Expr| {
        size.as_constant().and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
    };
    port.shape.iter().map(size).collect()
}

fn token_function(name: &'static str, function: &Function) -> Result<TokenFunction> {
    let ids = function.inputs.iter().find(|port| port.name == "ids").map(shape).unwrap_or_default();
    let &[1, chunk] = ids.as_slice() else {
        return Err(not(&format!("the function `{name}` has no input `ids` of one row")));
    };
    let symbol = |name: &str| function.symbols.iter().find(|symbol| symbol.name == name);
    let max_past = symbol("past").map_or(0, |past| usize::try_from(past.max).unwrap_or(0));
    Ok(TokenFunction { name, chunk, max_past, has_count: symbol("count").is_some() })
}

/// Reads the tokenizer of a bundle. Returns `None` if it has none.
///
/// # Errors
/// If the tokenizer is malformed.
pub(crate) fn tokenizer(session: &Session) -> Result<Option<Tokenizer>> {
    let file = |name: &str| session.bundle().attachment(name);
    let Some(json) = file("tokenizer.json")? else { return Ok(None) };
    let (config, generation) = (file("tokenizer_config.json")?, file("generation_config.json")?);
    Ok(Some(Tokenizer::new(json, config, generation)?))
}

/// Reads the settings of decoding of a bundle.
///
/// # Errors
/// If a file is malformed or lacks a setting.
pub(crate) fn settings(session: &Session, tokenizer: Option<&Tokenizer>) -> Result<DecodingSettings> {
    let file = |name: &str| session.bundle().attachment(name);
    DecodingSettings::from_json(file("generation_config.json")?, file("config.json")?, tokenizer)
}
