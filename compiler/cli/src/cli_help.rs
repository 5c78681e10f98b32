//! Layout of `driftc --help`: commands grouped under headings, and the headings of options.

use clap::Command;

/// Heading of options that describe a model's inputs and its quantization.
pub(crate) const MODEL_OPTIONS: &str = "Model options";
/// Heading of options that apply only to language models.
pub(crate) const LANGUAGE_MODEL_OPTIONS: &str = "Language model options";
/// Heading of options for sampling and speculative decoding.
pub(crate) const GENERATION_OPTIONS: &str = "Generation options";
/// Heading of options for making pictures.
pub(crate) const IMAGE_OPTIONS: &str = "Picture options";
/// Heading of options for speech recognition.
pub(crate) const SPEECH_OPTIONS: &str = "Speech options";
/// Heading of options for the server.
pub(crate) const SERVER_OPTIONS: &str = "Server options";
/// Heading of options that select a device and caches.
pub(crate) const DEVICE_OPTIONS: &str = "Device options";

/// Headings of the command list, each with its commands in order.
pub(crate) const COMMAND_GROUPS: &[(&str, &[&str])] = &[
    ("Compile and run", &["compile", "build", "quantize", "run", "check", "verify", "sign", "keygen"]),
    ("Language models", &["generate", "chat", "serve", "perplexity", "logits"]),
    ("Pictures and speech", &["imagine", "transcribe"]),
    ("Inspect", &["inspect", "diff", "dump", "explain", "estimate", "bench", "audit"]),
    ("Tune", &["tune", "calibrate"]),
    ("Targets", &["targets"]),
    ("Other", &["ops", "completions", "man", "help"]),
];

/// Description of the `help` command. clap adds that command only when it parses the arguments.
const HELP_ABOUT: &str = "Print this help or the help of a command";

/// Replaces the flat command list of the help text with [`COMMAND_GROUPS`], because clap has no groups of commands.
pub(crate) fn with_grouped_commands(command: Command) -> Command {
    let (header, literal) = (*command.get_styles().get_header(), *command.get_styles().get_literal());
    let names = COMMAND_GROUPS.iter().flat_map(|(_, names)| *names);
    let width = names.map(|name| name.len()).max().unwrap_or(0);
    let mut template = "{before-help}{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, names) in COMMAND_GROUPS {
        template.push_str(&format!("\n{header}{heading}:{header:#}\n"));
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map_or_else(|| HELP_ABOUT.to_owned(), ToString::to_string);
            template.push_str(&format!("  {literal}{name:width$}{literal:#}  {about}\n"));
        }
    }
    template.push_str(&format!("\n{header}Options:{header:#}\n{{options}}{{after-help}}"));
    command.help_template(template)
}
