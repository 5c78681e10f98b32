//! `driftc`, the command line: compile a model, run a bundle, and inspect both.
//!
//! Every command is one file in `commands/`. A command writes its result to standard output, and notes, progress and
//! errors to standard error. `manual::EXIT_CODES` lists the exit codes.

#![warn(clippy::disallowed_methods)]

mod answer_printer;
mod arrays;
mod audit_report;
mod build;
mod bundle_sizes;
mod bytes_read;
mod cache;
mod calibration;
mod calibration_samples;
mod chat_command;
mod cli_help;
mod commands;
mod compare;
mod constants;
mod divergence;
mod driver_compiler;
mod drivers;
mod environment;
mod estimated_time;
mod examples;
mod expression;
mod failure;
mod file_kind;
mod finish;
mod html_page;
mod import_remedies;
mod interrupt;
mod language;
mod line_input;
mod linked_models;
mod lowering;
mod manual;
mod measure;
mod memory_report;
mod model;
mod model_args;
mod npy;
mod output;
mod output_paths;
mod preflight;
mod progress;
mod prompt_text;
mod reused;
mod roofline;
mod sample_sizes;
mod self_tests;
mod session;
mod shape_args;
mod signing;
mod specialize;
mod target_args;
mod token_ids;
mod tokenizer_notes;
mod trace;
mod trials;
mod tuning;
mod variant_name;
mod verify_case;
mod weight_report;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};

use cli_help::with_grouped_commands;
use commands::Command;
use examples::with_examples;
use output::Out;
use preflight::check_paths;

/// Compile neural networks ahead of time for GPUs and run the compiled bundles
#[derive(Debug, Parser)]
#[command(name = "driftc", version, arg_required_else_help = true, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let parser = with_grouped_commands(with_examples(Cli::command()));
    let matches = parser.clone().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let mut out = Out::stdout();
    let done = check_paths(&parser, &matches)
        .and_then(|()| commands::run(cli.command, parser, &mut out))
        .and_then(|()| Ok(out.finish()?));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Partial output belongs before the error message. An error of this flush would hide the first one.
            let _ = out.finish();
            failure.report()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::CommandFactory;

    use super::Cli;
    use super::cli_help::{
        COMMAND_GROUPS, GENERATION_OPTIONS, IMAGE_OPTIONS, LANGUAGE_MODEL_OPTIONS, SPEECH_OPTIONS,
        with_grouped_commands,
    };
    use super::preflight::{OUTPUT_FILES, OUTPUT_FOLDERS};

    /// Ids of arguments that name a file or folder to read.
    const INPUTS: &[&str] = &[
        "path",
        "models",
        "bundle",
        "a",
        "b",
        "ids",
        "text",
        "calibrate",
        "samples",
        "tuning",
        "prompt_file",
        "system_file",
        "manifest",
        "init",
        "key",
        "sign",
        "image",
        "mask",
        "audio",
        "further",
    ];

    #[test]
    fn every_path_is_an_input_or_an_output() {
        let mut open = vec![Cli::command()];
        while let Some(command) = open.pop() {
            open.extend(command.get_subcommands().cloned());
            for argument in command.get_arguments() {
                let id = argument.get_id().as_str();
                let is_path = argument.get_value_parser().type_id() == std::any::TypeId::of::<PathBuf>();
                let lists =
                    [INPUTS, OUTPUT_FILES, OUTPUT_FOLDERS].iter().filter(|list| list.contains(&id)).count();
                assert!(
                    !is_path || lists == 1,
                    "`{}` has the path `{id}`, which is in {lists} lists",
                    command.get_name()
                );
            }
        }
    }

    #[test]
    fn every_command_appears_exactly_once_in_the_help() {
        let mut parser = with_grouped_commands(Cli::command());
        parser.build();
        let mut commands: Vec<&str> = parser.get_subcommands().map(clap::Command::get_name).collect();
        let mut listed: Vec<&str> = COMMAND_GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        commands.sort_unstable();
        listed.sort_unstable();
        assert_eq!(commands, listed);
        let help = parser.clone().render_help().to_string();
        for command in parser.get_subcommands().filter(|command| command.get_name() != "help") {
            let about = command.get_about().map(ToString::to_string).unwrap();
            assert_eq!(help.matches(&about).count(), 1, "`{about}` in\n{help}");
        }
    }

    /// An option has the same heading in every command. Options of language models stand under a heading of their own,
    /// because the commands also serve other models.
    #[test]
    fn language_model_options_have_their_headings() {
        let groups: [(&str, &[&str]); 2] = [
            (
                LANGUAGE_MODEL_OPTIONS,
                &[
                    "calibrate",
                    "activations",
                    "kv_cache",
                    "batch_invariant",
                    "prompt_tokens",
                    "decode_tokens",
                ],
            ),
            (
                GENERATION_OPTIONS,
                &["temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "stop", "draft"],
            ),
        ];
        let mut found = std::collections::BTreeSet::new();
        for command in Cli::command().get_subcommands() {
            for argument in command.get_arguments() {
                let id = argument.get_id().as_str();
                let Some((heading, _)) = groups.iter().find(|(_, ids)| ids.contains(&id)) else { continue };
                // Pictures and transcripts have seeds, too.
                if [Some(IMAGE_OPTIONS), Some(SPEECH_OPTIONS)].contains(&argument.get_help_heading()) {
                    continue;
                }
                found.insert(id.to_owned());
                let name = command.get_name();
                assert_eq!(argument.get_help_heading(), Some(*heading), "option {id} of {name}");
            }
        }
        let expected: usize = groups.iter().map(|(_, ids)| ids.len()).sum();
        assert_eq!(found.len(), expected, "{found:?}");
    }

    /// The first word of a description is an imperative verb, so it does not end in `s` or `ing`, and the description
    /// is one sentence without a full stop.
    #[test]
    fn descriptions_are_imperative() {
        for command in Cli::command().get_subcommands() {
            let about = command.get_about().map(ToString::to_string).unwrap();
            let verb = about.split_whitespace().next().unwrap();
            assert!(
                verb.starts_with(char::is_uppercase) && !verb.ends_with('s') && !verb.ends_with("ing"),
                "{about}"
            );
            assert!(!about.contains('\n') && !about.ends_with('.'), "{about}");
        }
    }
}
