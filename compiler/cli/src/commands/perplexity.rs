//! `driftc perplexity`: how well a language model foretells a text.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::language::{LanguageArgs, ids_of};
use crate::output::Out;
use crate::progress::Progress;

#[derive(Debug, Args)]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    model: LanguageArgs,
    /// The text
    #[arg(long, value_name = "FILE.txt", conflicts_with = "ids", required_unless_present = "ids")]
    text: Option<PathBuf>,
    /// The text, as ids
    #[arg(long, value_name = "IDS.npy")]
    ids: Option<PathBuf>,
    /// Cut the text into windows of so many tokens, each by itself (default: what the context holds)
    #[arg(long, value_name = "N")]
    window: Option<usize>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Found {
    tokens: usize,
    /// Tokens that were foretold: all but the first of each window.
    foretold: usize,
    /// The mean of the negative logarithms of their probabilities.
    mean_nll: f64,
    perplexity: f64,
}

pub(crate) fn run(args: &PerplexityArgs, out: &mut Out) -> Result<()> {
    if args.window.is_some_and(|window| window < 2) {
        return Err(Failure::usage("a window of fewer than two tokens foretells nothing"));
    }
    let (mut generator, ids) = match (&args.ids, &args.text) {
        (Some(path), _) => {
            let ids = ids_of(path)?;
            (args.model.open()?, ids)
        }
        (None, path) => {
            let path = path.clone().unwrap_or_default();
            let text = std::fs::read_to_string(&path).map_err(|e| Failure::file(&path, &e))?;
            let (generator, files) = args.model.open_with_text()?;
            (generator, files.ids(&text)?)
        }
    };
    let window = args.window.unwrap_or(usize::MAX).min(generator.context()).max(1);
    let progress = Progress::steps("computing", ids.len());
    let (mut sum, mut foretold) = (0.0, 0usize);
    for part in ids.chunks(window) {
        let mut follows = part.iter().skip(1);
        generator.logits(part, &mut |logits| {
            progress.step();
            if let Some(id) = follows.next() {
                sum += surprise(logits, *id);
                foretold += 1;
            }
            Ok(())
        })?;
    }
    if foretold == 0 {
        return Err(Failure::input("the text has fewer than two tokens, so there is nothing to foretell"));
    }
    let mean_nll = sum / foretold as f64;
    let found = Found { tokens: ids.len(), foretold, mean_nll, perplexity: mean_nll.exp() };
    if args.json {
        return out.json(&found);
    }
    let Found { tokens, perplexity, .. } = found;
    Ok(writeln!(out, "perplexity {perplexity:.4} over {tokens} tokens (mean nll {mean_nll:.5})")?)
}

/// The negative logarithm of a token's probability.
fn surprise(logits: &[f32], id: u32) -> f64 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|logit| f64::from(logit - most).exp()).sum();
    let logit = usize::try_from(id).ok().and_then(|id| logits.get(id)).copied().unwrap_or(f32::NEG_INFINITY);
    total.ln() - f64::from(logit - most)
}

#[cfg(test)]
mod tests {
    use super::surprise;

    #[test]
    fn probabilities_of_a_row_add_up() {
        let logits = [1.0, -2.0, 500.0, 499.0];
        let total: f64 = (0..4).map(|id| (-surprise(&logits, id)).exp()).sum();
        assert!((total - 1.0).abs() < 1e-6, "{total}");
        assert!((surprise(&[0.0; 8], 3) - 8f64.ln()).abs() < 1e-9);
    }
}
