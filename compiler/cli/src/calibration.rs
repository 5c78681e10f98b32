//! `--calibrate`: a text that the float model reads before its weights are rounded.

use std::path::Path;

use drift_text::Tokenizer;
use driftc::compile::Model;
use driftc::quantise::Weights;
use driftc::quantise::calibration::Calibration;

use crate::failure::{Failure, Result};
use crate::language::ids_of;

/// Most tokens of the text that are read: as much as a CPU computes in a while.
const TOKENS: usize = 512;

/// What a text says about a model's weights, and how the bundle's provenance names it.
pub(crate) fn calibrated(model: &Model, weights: Weights, path: &Path) -> Result<(Calibration, String)> {
    let bytes = std::fs::read(path).map_err(|e| Failure::file(path, &e))?;
    let ids = match path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy")) {
        true => ids_of(path)?,
        false => {
            let text = String::from_utf8(bytes.clone());
            let text = text.map_err(|_| Failure::input(format!("{} is no text in UTF-8", path.display())))?;
            tokens(model, &text)?
        }
    };
    let ids: Vec<i64> = ids.into_iter().take(TOKENS).map(i64::from).collect();
    let (low, high) = lengths(model);
    let pieces: Vec<Vec<i64>> =
        ids.chunks(high).filter(|piece| piece.len() >= low).map(<[i64]>::to_vec).collect();
    if pieces.is_empty() {
        let reason = format!("{} has {} tokens, too few to calibrate with", path.display(), ids.len());
        return Err(
            Failure::input(reason).help("give some hundred words that are like what the model will read")
        );
    }
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let hash = blake3::hash(&bytes).to_hex();
    let flag = format!("--calibrate {name}:{}", hash.get(..16).unwrap_or_default());
    Ok((Calibration::of(&model.graph, weights, &pieces)?, flag))
}

/// How many tokens the graph takes at once.
fn lengths(model: &Model) -> (usize, usize) {
    let graph = &model.graph;
    let input = graph.inputs().first().and_then(|id| graph.input(*id));
    let size = input.and_then(|input| input.shape.last()).map(|size| size.range(&graph.bounds));
    let [low, high] = size.map_or([1, 1], |(low, high)| [low, high].map(|n| usize::try_from(n).unwrap_or(1)));
    (low.max(1), high.max(1))
}

fn tokens(model: &Model, text: &str) -> Result<Vec<u32>> {
    let file = |name| model.attachments.iter().find(|(n, _)| n == name).map(|(_, bytes)| bytes.as_slice());
    let tokenizer = file("tokenizer.json").ok_or_else(|| {
        Failure::input("the model has no tokenizer, so a text means nothing to it")
            .help("give ids: --calibrate IDS.npy")
    })?;
    let tokenizer = Tokenizer::new(tokenizer, file("tokenizer_config.json"), file("generation_config.json"))?;
    Ok(tokenizer.encode(text, true)?)
}
