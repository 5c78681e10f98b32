//! `driftc man`: prints or writes manual pages.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_mangen::Man;

use crate::failure::Result;
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
        return Ok(Man::new(parser).render(out)?);
    };
    make_folder(folder)?;
    let pages: Vec<(String, Man)> = parser
        .get_subcommands()
        .filter(|c| c.get_name() != "help")
        .map(|c| (format!("driftc-{}", c.get_name()), Man::new(c.clone())))
        .collect();
    for (name, page) in pages.into_iter().chain([("driftc".to_owned(), Man::new(parser))]) {
        let path = folder.join(format!("{name}.1"));
        write_file(&path, |file| page.render(&mut &mut *file))?;
        writeln!(out, "{}", path.display())?;
    }
    Ok(())
}
