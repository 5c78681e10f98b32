//! `driftc man`: manual pages.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_mangen::Man;

use crate::Cli;
use crate::failure::Result;
use crate::output::{Out, make_folder, write_file};

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write driftc.1 and one page for each command there, instead of printing driftc.1
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs, out: &mut Out) -> Result<()> {
    let mut command = Cli::command();
    command.build();
    let Some(folder) = &args.output_dir else {
        return Ok(Man::new(command).render(out)?);
    };
    make_folder(folder)?;
    let pages: Vec<(String, Man)> = command
        .get_subcommands()
        .filter(|c| c.get_name() != "help")
        .map(|c| (format!("driftc-{}", c.get_name()), Man::new(c.clone())))
        .collect();
    for (name, page) in pages.into_iter().chain([("driftc".to_owned(), Man::new(command))]) {
        let path = folder.join(format!("{name}.1"));
        write_file(&path, |file| page.render(&mut &mut *file))?;
        writeln!(out, "{}", path.display())?;
    }
    Ok(())
}
