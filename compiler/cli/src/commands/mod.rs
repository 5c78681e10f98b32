//! The commands of the program `driftc`, one file each. The enum [`Command`] lists them.

mod audit;
mod bench;
mod build;
mod calibrate;
mod chat;
mod check;
pub(crate) mod compile;
mod completions;
mod diff;
mod dump;
mod estimate;
mod explain;
mod generate;
mod imagine;
mod inspect;
mod keygen;
mod logits;
mod man;
mod ops;
mod perplexity;
mod quantize;
mod run;
mod serve;
mod sign;
mod targets;
mod transcribe;
mod tune;
mod verify;

use clap::Subcommand;

use crate::failure::Result;
use crate::output::Out;

/// Command to execute.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compile a model into a bundle for one or more targets
    Compile(compile::CompileArgs),
    /// Make the bundles of many models and targets that a manifest lists
    Build(build::BuildArgs),
    /// Quantize an ONNX model to 8 bits with sample inputs
    Quantize(quantize::QuantizeArgs),
    /// Run a bundle or a model on this device with .npy inputs and outputs
    Run(run::RunArgs),
    /// Generate text from a prompt
    Generate(generate::GenerateArgs),
    /// Make a picture from a text with a diffusion model
    Imagine(imagine::ImagineArgs),
    /// Write the text of a recording with a speech recognition model
    Transcribe(transcribe::TranscribeArgs),
    /// Chat with a language model on the terminal
    Chat(chat::ChatArgs),
    /// Serve models over HTTP with the interface of the OpenAI API
    Serve(serve::ServeArgs),
    /// Write a language model's logits for every position of a token sequence
    Logits(logits::LogitsArgs),
    /// Compute a language model's perplexity on a text
    Perplexity(perplexity::PerplexityArgs),
    /// Compare results on this device with the CPU reference and find the first wrong tensor
    Verify(verify::VerifyArgs),
    /// Show the contents of a bundle, or what a model needs
    Inspect(inspect::InspectArgs),
    /// List the selected kernel of each node, or show all candidates with their costs
    Explain(explain::ExplainArgs),
    /// Estimate latency, memory, bundle size and the most expensive nodes for a target
    Estimate(estimate::EstimateArgs),
    /// Check whether this device can run a bundle or a model
    Check(check::CheckArgs),
    /// Sign a bundle with a secret key
    Sign(sign::SignArgs),
    /// Create a key pair to sign bundles
    Keygen(keygen::KeygenArgs),
    /// Measure run and dispatch times, or the tokens per second of a language model
    Bench(bench::BenchArgs),
    /// Compile a bundle's shaders with a GPU's driver, without the GPU, and report spills and refusals
    Audit(audit::AuditArgs),
    /// Compare two bundles, or two reports of an audit
    Diff(diff::DiffArgs),
    /// Measure kernel candidates for a model on this device and write a tuning database
    Tune(tune::TuneArgs),
    /// Measure the kernel calibration suite on this device to fit cost parameters
    Calibrate(calibrate::CalibrateArgs),
    /// Print the graph, the plan or the shaders of a model at a compile stage
    Dump(dump::DumpArgs),
    /// List, show or create target profiles
    Targets(targets::TargetsArgs),
    /// List the supported ONNX operators
    Ops(ops::OpsArgs),
    /// Print a shell completion script
    Completions(completions::CompletionsArgs),
    /// Print the manual page or write one page for each command
    Man(man::ManArgs),
}

/// Executes a command. `parser` describes the whole command line; shell completions and manual pages are made from it.
pub(crate) fn run(command: Command, parser: clap::Command, out: &mut Out) -> Result<()> {
    match command {
        Command::Compile(args) => compile::run(&args, out),
        Command::Build(args) => build::run(&args, out),
        Command::Quantize(args) => quantize::run(&args, out),
        Command::Run(args) => run::run(&args, out),
        Command::Generate(args) => generate::run(&args, out),
        Command::Chat(args) => chat::run(&args, out),
        Command::Serve(args) => serve::run(args, out),
        Command::Logits(args) => logits::run(&args, out),
        Command::Imagine(args) => imagine::run(&args, out),
        Command::Transcribe(args) => transcribe::run(&args, out),
        Command::Perplexity(args) => perplexity::run(&args, out),
        Command::Verify(args) => verify::run(&args, out),
        Command::Inspect(args) => inspect::run(&args, out),
        Command::Explain(args) => explain::run(&args, out),
        Command::Estimate(args) => estimate::run(&args, out),
        Command::Check(args) => check::run(&args, out),
        Command::Sign(args) => sign::run(&args, out),
        Command::Keygen(args) => keygen::run(&args, out),
        Command::Bench(args) => bench::run(&args, out),
        Command::Audit(args) => audit::run(&args, out),
        Command::Diff(args) => diff::run(&args, out),
        Command::Tune(args) => tune::run(&args, out),
        Command::Calibrate(args) => calibrate::run(&args, out),
        Command::Dump(args) => dump::run(&args, out),
        Command::Targets(args) => targets::run(&args, out),
        Command::Ops(args) => ops::run(&args, out),
        Command::Completions(args) => completions::run(&args, parser, out),
        Command::Man(args) => man::run(&args, parser, out),
    }
}
