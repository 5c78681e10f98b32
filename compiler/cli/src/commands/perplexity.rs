//! `driftc perplexity`: computes a language model's perplexity on a text.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::language::{LanguageModelArgs, LogitsFunctionArgs};
use crate::output::Out;
use crate::progress::Progress;
use crate::token_ids::read_token_ids;

#[derive(Debug, Args)]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    model: LanguageModelArgs,
    /// Read the text from this file
    #[arg(long, value_name = "FILE.txt", conflicts_with = "ids", required_unless_present = "ids")]
    text: Option<PathBuf>,
    /// Read the text as token ids from this file
    #[arg(long, value_name = "IDS.npy")]
    ids: Option<PathBuf>,
    /// Split the text into independent windows of N tokens (default: the context length)
    #[arg(long, value_name = "N")]
    window: Option<usize>,
    #[command(flatten)]
    logits: LogitsFunctionArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    tokens: usize,
    /// Number of tokens that the model predicts: all tokens except the first of each window.
    predicted_tokens: usize,
    /// Mean negative log-likelihood of the predicted tokens.
    mean_nll: f64,
    perplexity: f64,
}

pub(crate) fn run(args: &PerplexityArgs, out: &mut Out) -> Result<()> {
    if args.window.is_some_and(|window| window < 2) {
        return Err(Failure::usage("--window must be at least 2 tokens"));
    }
    let (mut generator, ids) = match (&args.ids, &args.text) {
        (Some(path), _) => {
            let ids = read_token_ids(path)?;
            (args.model.open()?, ids)
        }
        (None, path) => {
            let path = path.clone().unwrap_or_default();
            let text = std::fs::read_to_string(&path).map_err(|e| Failure::file(&path, &e))?;
            let (generator, encoder) = args.model.open_with_encoder()?;
            (generator, encoder.encode_text(&text)?)
        }
    };
    let window = args.window.unwrap_or(usize::MAX).min(generator.context_length()).max(1);
    args.logits.note_float_activations(&generator);
    let progress = Progress::steps("computing", ids.len());
    let (mut sum, mut predicted_tokens) = (0.0, 0usize);
    for chunk in ids.chunks(window) {
        let mut targets = chunk.iter().skip(1);
        args.logits.compute(&mut generator, chunk, &mut |logits| {
            progress.step();
            if let Some(id) = targets.next() {
                sum += negative_log_likelihood(logits, *id);
                predicted_tokens += 1;
            }
        })?;
    }
    if predicted_tokens == 0 {
        return Err(Failure::input("the text has fewer than two tokens, so no token can be predicted"));
    }
    let mean_nll = sum / predicted_tokens as f64;
    let report = Report { tokens: ids.len(), predicted_tokens, mean_nll, perplexity: libm::exp(mean_nll) };
    if args.json {
        return out.json(&report);
    }
    let Report { tokens, perplexity, .. } = report;
    Ok(writeln!(out, "perplexity {perplexity:.4} over {tokens} tokens (mean nll {mean_nll:.5})")?)
}

/// Negative log-likelihood of token `id` under the softmax of `logits`.
fn negative_log_likelihood(logits: &[f32], id: u32) -> f64 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|logit| libm::exp(f64::from(logit - most))).sum();
    let logit = usize::try_from(id).ok().and_then(|id| logits.get(id)).copied().unwrap_or(f32::NEG_INFINITY);
    libm::log(total) - f64::from(logit - most)
}

#[cfg(test)]
mod tests {
    use super::negative_log_likelihood;

    #[test]
    fn probabilities_of_a_row_add_up_to_one() {
        let logits = [1.0, -2.0, 500.0, 499.0];
        let total: f64 = (0..4).map(|id| libm::exp(-negative_log_likelihood(&logits, id))).sum();
        assert!((total - 1.0).abs() < 1e-6, "{total}");
        assert!((negative_log_likelihood(&[0.0; 8], 3) - libm::log(8.0)).abs() < 1e-9);
    }
}
