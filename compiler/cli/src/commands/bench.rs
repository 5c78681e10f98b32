//! `driftc bench`: measures a bundle or a model on this device with random inputs. A language model's prompt and decode
//! speed is measured unless `--function` names a function.

mod function;
mod function_print;
mod function_report;
mod opened;
mod tokens;

use std::path::PathBuf;

use clap::Args;

use crate::cli_help::{DEVICE_OPTIONS, LANGUAGE_MODEL_OPTIONS};
use crate::failure::{Failure, Result};
use crate::model_args::ModelOptions;
use crate::output::Out;
use crate::session::{CacheArgs, DeviceArgs};

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Bundle or model to measure; driftc compiles a model for the device, and caches the bundle
    #[arg(value_name = "OUT.drift | MODEL")]
    path: PathBuf,
    /// Run this function (default: main; language models: measure tokens per second)
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// Measure N runs (default: about two seconds of runs; language models: 5)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: Option<u32>,
    /// List the N slowest dispatches (default: 30, all with --json)
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Compute rooflines from this profile (default: the profile of the bundle)
    #[arg(long, value_name = "TARGET")]
    profile: Option<String>,
    /// Write the dispatch times of one run for chrome://tracing or ui.perfetto.dev
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,
    /// Measure prompts of N tokens
    #[arg(
        long,
        value_name = "N[,N]",
        value_delimiter = ',',
        default_value = "512",
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = LANGUAGE_MODEL_OPTIONS
    )]
    prompt_tokens: Vec<u32>,
    /// Measure the generation of N tokens, one by one
    #[arg(
        long,
        value_name = "N[,N]",
        value_delimiter = ',',
        default_value = "128",
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = LANGUAGE_MODEL_OPTIONS
    )]
    decode_tokens: Vec<u32>,
    #[command(flatten)]
    options: ModelOptions,
    /// Select the bundle's variant for this target, or compile the model for it (default: best fit for the device)
    #[arg(short, long, value_name = "TARGET", help_heading = DEVICE_OPTIONS)]
    target: Option<String>,
    /// Cache compiled models in this folder (default: driftc in the user's cache folder)
    #[arg(long, value_name = "DIR", help_heading = DEVICE_OPTIONS)]
    cache_dir: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    cache: CacheArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &BenchArgs, out: &mut Out) -> Result<()> {
    let opened = opened::open(args)?;
    if args.function.is_some() || !opened.is_language_model() {
        return function::run(args, opened, out);
    }
    if args.trace.is_some() || args.top.is_some() || args.profile.is_some() {
        return Err(Failure::usage("--trace, --top and --profile need a function of the language model")
            .help("add --function decode, or another function that `driftc inspect` lists"));
    }
    tokens::run(args, opened, out)
}
