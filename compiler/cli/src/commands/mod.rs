//! The commands, one file each; [`Command`] is the table.

mod bench;
mod calibrate;
mod chat;
mod check;
mod compile;
mod completions;
mod diff;
mod dump;
mod estimate;
mod explain;
mod generate;
mod inspect;
mod logits;
mod man;
mod ops;
mod perplexity;
mod run;
mod targets;
mod tune;
pub(crate) mod verify;

use clap::Subcommand;

use crate::failure::Result;
use crate::output::Out;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compile a model into a bundle for one or more targets
    Compile(compile::CompileArgs),
    /// Run a bundle or a model on the present device, arrays in and out as .npy files
    Run(run::RunArgs),
    /// Go on with a text, token by token, by a language model's bundle or a model
    Generate(generate::GenerateArgs),
    /// Talk to a language model on the terminal
    Chat(chat::ChatArgs),
    /// Write a language model's logits at every position of a text
    Logits(logits::LogitsArgs),
    /// How well a language model foretells a text
    Perplexity(perplexity::PerplexityArgs),
    /// Compile, run, compare with the CPU reference, and name the first tensor that diverges
    Verify(verify::VerifyArgs),
    /// Show what is in a bundle
    Inspect(inspect::InspectArgs),
    /// Show which kernels were considered for each node, at which cost, the pick and why
    Explain(explain::ExplainArgs),
    /// Tell what a model would take on devices that are not at hand: time, memory, bundle bytes, dearest nodes
    Estimate(estimate::EstimateArgs),
    /// Does this machine meet a bundle's requirements: which variant fits, or every reason why none does
    Check(check::CheckArgs),
    /// Measure loading, inference and every dispatch of a bundle
    Bench(bench::BenchArgs),
    /// What changed between two bundles
    Diff(diff::DiffArgs),
    /// Measure candidates of a model's nodes on the present device, into a database for `compile --tuning`
    Tune(tune::TuneArgs),
    /// Measure the standing set of problems on the present device, to fit the parameters of a profile's kernels
    Calibrate(calibrate::CalibrateArgs),
    /// Print a model at a stage of compiling
    Dump(dump::DumpArgs),
    /// List, show or write target profiles
    Targets(targets::TargetsArgs),
    /// List the ONNX operators that can be compiled
    Ops(ops::OpsArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write one page for each command
    Man(man::ManArgs),
}

/// Does it.
pub(crate) fn run(command: Command, out: &mut Out) -> Result<()> {
    match command {
        Command::Compile(args) => compile::run(&args, out),
        Command::Run(args) => run::run(&args, out),
        Command::Generate(args) => generate::run(&args, out),
        Command::Chat(args) => chat::run(&args, out),
        Command::Logits(args) => logits::run(&args, out),
        Command::Perplexity(args) => perplexity::run(&args, out),
        Command::Verify(args) => verify::run(&args, out),
        Command::Inspect(args) => inspect::run(&args, out),
        Command::Explain(args) => explain::run(&args, out),
        Command::Estimate(args) => estimate::run(&args, out),
        Command::Check(args) => check::run(&args, out),
        Command::Bench(args) => bench::run(&args, out),
        Command::Diff(args) => diff::run(&args, out),
        Command::Tune(args) => tune::run(&args, out),
        Command::Calibrate(args) => calibrate::run(&args, out),
        Command::Dump(args) => dump::run(&args, out),
        Command::Targets(args) => targets::run(&args, out),
        Command::Ops(args) => ops::run(&args, out),
        Command::Completions(args) => completions::run(&args, out),
        Command::Man(args) => man::run(&args, out),
    }
}
