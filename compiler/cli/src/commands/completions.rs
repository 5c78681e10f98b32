//! `driftc completions`: what a shell needs to complete a command line.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Cli;
use crate::failure::Result;
use crate::output::Out;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs, out: &mut Out) -> Result<()> {
    // The generator panics when its writer fails, so it gets one that cannot.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "driftc", &mut script);
    Ok(out.write_all(&script)?)
}
