//! `driftc logits`: what a language model holds of every next token, at every position of a text.

use std::path::PathBuf;

use clap::Args;
use drift_runtime::Array;

use crate::failure::Result;
use crate::language::{LanguageArgs, ids_of};
use crate::npy;
use crate::output::Out;
use crate::progress::Progress;

#[derive(Debug, Args)]
pub(crate) struct LogitsArgs {
    #[command(flatten)]
    model: LanguageArgs,
    /// The text
    #[arg(long, value_name = "IDS.npy")]
    ids: PathBuf,
    /// Where the logits go: f32, a row of the vocabulary's size for each id
    #[arg(short, long, value_name = "LOGITS.npy")]
    output: PathBuf,
}

pub(crate) fn run(args: &LogitsArgs, _: &mut Out) -> Result<()> {
    let ids = ids_of(&args.ids)?;
    let mut generator = args.model.open()?;
    let progress = Progress::steps("computing", ids.len());
    let mut bytes = Vec::with_capacity(ids.len().saturating_mul(generator.vocabulary()).saturating_mul(4));
    generator.logits(&ids, &mut |logits| {
        bytes.extend(logits.iter().flat_map(|logit| logit.to_le_bytes()));
        progress.step();
        Ok(())
    })?;
    let shape = vec![ids.len(), generator.vocabulary()];
    npy::write(&args.output, &Array { dtype: drift_runtime::format::HostType::F32, shape, bytes })
}
