//! `driftc logits`: writes a language model's logits for every position of a token sequence.

use std::path::PathBuf;

use clap::Args;
use drift_runtime::Array;

use crate::failure::Result;
use crate::language::{self, LanguageModelArgs};
use crate::npy;
use crate::output::Out;
use crate::progress::Progress;
use crate::token_ids::read_token_ids;

#[derive(Debug, Args)]
pub(crate) struct LogitsArgs {
    #[command(flatten)]
    model: LanguageModelArgs,
    /// Read the token sequence from this file
    #[arg(long, value_name = "IDS.npy")]
    ids: PathBuf,
    /// Write the logits to this file: f32 of shape [tokens, vocabulary]
    #[arg(short, long, value_name = "LOGITS.npy")]
    output: PathBuf,
    #[command(flatten)]
    function: language::LogitsFunctionArgs,
}

pub(crate) fn run(args: &LogitsArgs, _: &mut Out) -> Result<()> {
    let ids = read_token_ids(&args.ids)?;
    let mut generator = args.model.open()?;
    args.function.note_float_activations(&generator);
    let progress = Progress::steps("computing", ids.len());
    let mut bytes =
        Vec::with_capacity(ids.len().saturating_mul(generator.vocabulary_size()).saturating_mul(4));
    args.function.compute(&mut generator, &ids, &mut |logits| {
        bytes.extend(logits.iter().flat_map(|logit| logit.to_le_bytes()));
        progress.step();
    })?;
    let shape = vec![ids.len(), generator.vocabulary_size()];
    npy::write(&args.output, &Array { dtype: drift_runtime::format::HostType::F32, shape, bytes })
}
