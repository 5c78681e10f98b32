//! Checks of paths on the command line before any work starts: outputs can be written, and a model or a bundle is what
//! the command takes.
//!
//! The checks read the parsed command line and the definitions of the options, so they hold for every command.

use std::path::PathBuf;

use clap::{ArgMatches, Command};

use crate::failure::Result;
use crate::file_kind::{Expected, check_kind};
use crate::output_paths::{check_output_file, check_output_folder};

/// Ids of options that name a file to write.
pub(crate) const OUTPUT_FILES: &[&str] = &["output", "html", "ids_out", "trace", "latents", "pipeline_cache"];
/// Ids of options that name a folder to write files to.
pub(crate) const OUTPUT_FOLDERS: &[&str] = &["output_dir", "emit_dir", "cache_dir", "output_folder"];

/// Checks the paths of the selected command. `command` describes the whole command line.
///
/// # Errors
/// If an output cannot be written, or a file has another kind than the command takes.
pub(crate) fn check_paths(command: &Command, matches: &ArgMatches) -> Result<()> {
    let Some((name, inner)) = matches.subcommand() else { return Ok(()) };
    let Some(subcommand) = command.find_subcommand(name) else { return Ok(()) };
    check_arguments(subcommand, inner, name)?;
    check_paths(subcommand, inner)
}

fn check_arguments(command: &Command, matches: &ArgMatches, name: &str) -> Result<()> {
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        let Ok(Some(path)) = matches.try_get_one::<PathBuf>(id) else { continue };
        let option = argument.get_long().map_or_else(|| id.to_owned(), |long| format!("--{long}"));
        if OUTPUT_FILES.contains(&id) {
            check_output_file(path, &option)?;
        } else if OUTPUT_FOLDERS.contains(&id) {
            check_output_folder(path, &option)?;
        } else if argument.is_positional()
            && let Some(expected) = argument.get_value_names().and_then(Expected::from_names)
        {
            check_kind(path, expected, name)?;
        }
    }
    Ok(())
}
