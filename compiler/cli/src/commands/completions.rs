//! `driftc completions`: prints a shell completion script.

use std::io::Write;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::Result;
use crate::output::Out;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell that the completion script is for
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs, mut parser: Command, out: &mut Out) -> Result<()> {
    // The generator panics if its writer fails. Writing to a vector cannot fail.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut parser, "driftc", &mut script);
    Ok(out.write_all(&script)?)
}
