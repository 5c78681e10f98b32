//! `--calibrate`: runs the float model on sample text to collect statistics for weight quantization.

use std::path::Path;

use drift_text::Tokenizer;
use driftc::compile::Model;
use driftc::quantize::Weights;
use driftc::quantize::calibration::{Calibration, calibrated_input};

use crate::failure::{Failure, Result};
use crate::token_ids::read_token_ids;

/// Maximum number of tokens of the calibration text. The CPU evaluates the model on these tokens.
const MAX_TOKENS: usize = 512;

/// Returns the calibration statistics of a sample text, and the `--calibrate` option with the text's hash, which the
/// bundle's provenance records.
pub(crate) fn calibrate_weights(
    model: &Model,
    weights: Weights,
    rounds_activations: bool,
    path: &Path,
) -> Result<(Calibration, String)> {
    calibrated_input(&model.graph, weights)?;
    let bytes = std::fs::read(path).map_err(|e| Failure::file(path, &e))?;
    let ids = match path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy")) {
        true => read_token_ids(path)?,
        false => {
            let text = String::from_utf8(bytes.clone());
            let text = text.map_err(|_| Failure::input(format!("{} is not UTF-8 text", path.display())))?;
            tokens(model, &text)?
        }
    };
    let ids: Vec<i64> = ids.into_iter().take(MAX_TOKENS).map(i64::from).collect();
    let (low, high) = sequence_lengths(model);
    let sequences: Vec<Vec<i64>> =
        ids.chunks(high).filter(|chunk| chunk.len() >= low).map(<[i64]>::to_vec).collect();
    if sequences.is_empty() {
        let reason = format!("{} has {} tokens, too few for calibration", path.display(), ids.len());
        return Err(Failure::input(reason)
            .help("use a text of a few hundred words that resembles the model's real input"));
    }
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let hash = blake3::hash(&bytes).to_hex();
    let flag = format!("--calibrate {name}:{}", hash.get(..16).unwrap_or_default());
    Ok((Calibration::from_text(&model.graph, weights, rounds_activations, &sequences)?, flag))
}

/// Minimum and maximum number of tokens in one run of the model's graph.
fn sequence_lengths(model: &Model) -> (usize, usize) {
    let graph = &model.graph;
    let input = graph.inputs().first().and_then(|id| graph.input(*id));
    let size = input.and_then(|input| input.shape.last()).map(|size| size.range(&graph.bounds));
    let [low, high] = size.map_or([1, 1], |(low, high)| [low, high].map(|n| usize::try_from(n).unwrap_or(1)));
    (low.max(1), high.max(1))
}

fn tokens(model: &Model, text: &str) -> Result<Vec<u32>> {
    let file = |name| model.attachments.iter().find(|(n, _)| n == name).map(|(_, bytes)| bytes.as_slice());
    let tokenizer = file("tokenizer.json").ok_or_else(|| {
        Failure::input("the model has no tokenizer, so it cannot read a text")
            .help("give token ids: --calibrate IDS.npy")
    })?;
    let tokenizer = Tokenizer::new(tokenizer, file("tokenizer_config.json"), file("generation_config.json"))?;
    Ok(tokenizer.encode(text, true)?)
}
