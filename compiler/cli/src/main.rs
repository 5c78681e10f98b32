//! `driftc`, the command line: compile a model, run a bundle, and look into both.
//!
//! Every command is one file in `commands/`. A command writes its result to standard output and everything else
//! (notes, progress, errors) to standard error. The exit code is 0 when it is done, 1 when the input or the device
//! is at fault, and 2 when the request itself makes no sense.

mod arrays;
mod cache;
mod calibration;
mod commands;
mod compare;
mod constants;
mod divergence;
mod failure;
mod finish;
mod language;
mod lowering;
mod measure;
mod model;
mod npy;
mod output;
mod progress;
mod reused;
mod roofline;
mod session;
mod specialize;
mod trace;
mod trials;
mod tuning;

use std::process::ExitCode;

use clap::Parser;

use commands::Command;
use output::Out;

/// Compiles neural networks ahead of time for GPUs, and runs what it compiled.
#[derive(Debug, Parser)]
#[command(name = "driftc", version, arg_required_else_help = true, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = Out::stdout();
    let done = commands::run(cli.command, &mut out).and_then(|()| Ok(out.finish()?));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // What was written before the failure belongs before its message; a second failure would say less.
            let _ = out.finish();
            failure.report()
        }
    }
}
