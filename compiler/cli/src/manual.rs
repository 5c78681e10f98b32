//! Sections of the manual pages that clap does not know: examples, exit status and environment.

use std::io::{self, Write};

use clap::Command;
use clap_mangen::Man;

use crate::environment::VARIABLES;
use crate::examples::examples;

/// Exit codes with their meanings. `failure.rs` returns them.
pub(crate) const EXIT_CODES: &[(u8, &str)] = &[
    (0, "Success. Also if the reader of standard output closes the pipe early."),
    (
        1,
        "The model, the bundle, an array, a key or the device is at fault; or the result is negative: verify finds a \
         difference, or check finds that the device cannot run the file, that no trusted key signed it, or that its \
         self-test fails.",
    ),
    (2, "The command line is wrong, or names something that does not exist."),
    (130, "Ctrl-C ended chat while it waited for a line."),
];

/// Writes the manual page of a command. `name` is the name of the command alone, such as `compile`.
pub(crate) fn write_page(command: &Command, name: &str, out: &mut dyn Write) -> io::Result<()> {
    // The page has its own section of examples.
    let command = command.clone().after_help(clap::builder::Resettable::Reset);
    let has_commands = command.has_subcommands();
    let page = Man::new(command);
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    page.render_options_section(out)?;
    if has_commands {
        page.render_subcommands_section(out)?;
    }
    let list = examples(name);
    if !list.is_empty() {
        writeln!(out, ".SH EXAMPLES")?;
        for example in list {
            writeln!(out, ".TP\n{}:\n.nf\n{}\n.fi", roff(example.about), roff(example.line))?;
        }
    }
    writeln!(out, ".SH \"EXIT STATUS\"")?;
    for (code, about) in EXIT_CODES {
        writeln!(out, ".TP\n.B {code}\n{}", roff(about))?;
    }
    writeln!(out, ".SH ENVIRONMENT")?;
    for variable in VARIABLES {
        writeln!(out, ".TP\n.B {}\n{}", roff(variable.name), roff(variable.about))?;
    }
    Ok(())
}

/// Escapes a line for roff: backslashes, hyphens, and a control character at its start.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('-', "\\-");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::roff;

    #[test]
    fn text_is_escaped() {
        assert_eq!(roff(".cache - a\\b"), "\\&.cache \\- a\\\\b");
    }
}
