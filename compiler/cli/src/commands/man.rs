//! `driftc man`: prints or writes manual pages.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Command};

use crate::failure::Result;
use crate::manual::write_page;
use crate::output::{Out, make_folder, write_file};

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write driftc.1 and one page for each command to this folder
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs, mut parser: Command, out: &mut Out) -> Result<()> {
    parser.build();
    let Some(folder) = &args.output_dir else {
        return Ok(write_page(&parser, "driftc", out)?);
    };
    make_folder(folder)?;
    let commands = parser.get_subcommands().filter(|c| c.get_name() != "help");
    let pages: Vec<(String, &Command)> = commands
        .map(|c| (format!("driftc-{}", c.get_name()), c))
        .chain([("driftc".to_owned(), &parser)])
        .collect();
    for (name, command) in pages {
        let path = folder.join(format!("{name}.1"));
        let short = name.strip_prefix("driftc-").unwrap_or(&name);
        write_file(&path, |file| write_page(command, short, file))?;
        writeln!(out, "{}", path.display())?;
    }
    Ok(())
}
