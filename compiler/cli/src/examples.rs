//! Example command lines for the help texts and manual pages.

use clap::Command;

/// Example: a command line and its effect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Example {
    /// Imperative description.
    pub(crate) about: &'static str,
    /// Command line, with double quotes around words that contain spaces.
    pub(crate) line: &'static str,
}

const fn example(about: &'static str, line: &'static str) -> Example {
    Example { about, line }
}

/// Examples of the program itself.
const PROGRAM: &[Example] = &[
    example("See what a model needs", "driftc inspect model.onnx"),
    example("Run a model on this device", "driftc run model.onnx --input image=image.npy"),
    example(
        "Compile a model for other devices",
        "driftc compile model.onnx -t vulkan-baseline -o model.drift",
    ),
];

/// Examples of each command, by the command's name.
pub(crate) const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "compile",
        &[
            example(
                "Compile for any Vulkan device",
                "driftc compile model.onnx -t vulkan-baseline -o model.drift",
            ),
            example(
                "Compile for two targets and sizes from 1 to 512",
                "driftc compile model.onnx -t vulkan-baseline -t ./here.toml --dim seq=1..512 -o model.drift",
            ),
            example(
                "Compile two models that work together into one bundle",
                "driftc compile a.onnx b.onnx -t vulkan-baseline --link a.out=b.in -o both.drift",
            ),
            example(
                "Quantize a language model to 4 bits",
                "driftc compile Qwen3-0.6B -t ./here.toml --weights w4:64 --dim context=8192 -o qwen.drift",
            ),
        ],
    ),
    (
        "build",
        &[
            example("Write a manifest for two models", "driftc build --init detector.onnx classifier.onnx"),
            example("Make all bundles of drift.toml", "driftc build"),
            example(
                "Check in CI that every bundle is as in drift.lock",
                "driftc build --locked --shared-cache s3://bundles/ci",
            ),
        ],
    ),
    (
        "quantize",
        &[
            example(
                "Quantize a model with a folder of sample arrays",
                "driftc quantize model.onnx --calibrate samples -o model.int8.onnx",
            ),
            example(
                "Ignore outliers, and leave a node in float",
                "driftc quantize model.onnx --calibrate samples --method percentile --leave /head/Conv -o model.int8.onnx",
            ),
        ],
    ),
    (
        "run",
        &[
            example(
                "Run a model on an array",
                "driftc run model.onnx --input image=image.npy --output-dir out",
            ),
            example(
                "Fix an input to a number",
                "driftc run model.onnx -i audio=audio.npy --const rate=16000",
            ),
            example("Run a bundle 100 more times", "driftc run model.drift -i 0=image.npy --repeat 100"),
        ],
    ),
    (
        "check",
        &[
            example("Check whether this device can run a bundle", "driftc check model.drift"),
            example(
                "Check whether a model compiles for this device",
                "driftc check model.onnx --dim seq=1..512",
            ),
            example("Check a model against a profile", "driftc check model.onnx -t vulkan-baseline --json"),
            example("Run a bundle's self-test on this device", "driftc check model.drift --self-test"),
            example("Check who signed a bundle", "driftc check model.drift --key driftc.pub"),
        ],
    ),
    ("sign", &[example("Sign a bundle", "driftc sign model.drift --key driftc.key")]),
    (
        "keygen",
        &[
            example("Create a key pair with a password", "driftc keygen -o release.key"),
            example("Create a key pair for a build machine", "driftc keygen -o ci.key --no-password"),
        ],
    ),
    (
        "verify",
        &[
            example(
                "Compare with the CPU reference on random inputs",
                "driftc verify model.onnx -t ./here.toml",
            ),
            example(
                "Compare with an expected output",
                "driftc verify model.onnx -t ./here.toml -i x=x.npy -e y=y.npy --rtol 1e-4",
            ),
        ],
    ),
    (
        "generate",
        &[
            example("Continue a text", "driftc generate Qwen3-0.6B --prompt \"Once upon a time\""),
            example(
                "Ask a question with sampling",
                "driftc generate model.gguf --chat -p \"Why is the sky blue?\" --temperature 0.7 --top-p 0.9",
            ),
        ],
    ),
    (
        "chat",
        &[
            example("Chat with a model", "driftc chat Qwen3-0.6B"),
            example("Set a system message", "driftc chat model.gguf --system \"Answer in one sentence.\""),
        ],
    ),
    (
        "serve",
        &[
            example("Serve a model on this machine", "driftc serve model.gguf"),
            example(
                "Serve two models with four conversations each",
                "driftc serve chat=model.drift embed=minilm --slots 4 --port 8000",
            ),
        ],
    ),
    (
        "imagine",
        &[
            example(
                "Make a picture",
                "driftc imagine stable-diffusion-v1-4 -p \"a lighthouse at dawn\" --precision f16 -o out.png",
            ),
            example(
                "Change an image",
                "driftc imagine sd.drift -p \"in winter\" --image photo.jpg --strength 0.6 --steps 30 -o out.png",
            ),
        ],
    ),
    (
        "transcribe",
        &[
            example("Write the text of a recording", "driftc transcribe whisper-small interview.mp3"),
            example(
                "Write subtitles with the time of each segment",
                "driftc transcribe whisper.drift talk.flac --language de -o talk.srt",
            ),
        ],
    ),
    (
        "perplexity",
        &[example(
            "Measure the loss of quantization",
            "driftc perplexity Qwen3-0.6B --text wiki.txt --weights q8",
        )],
    ),
    (
        "logits",
        &[example(
            "Write the logits of a token sequence",
            "driftc logits model.drift --ids ids.npy -o logits.npy",
        )],
    ),
    (
        "inspect",
        &[
            example("List inputs, open sizes and operators of a model", "driftc inspect model.onnx"),
            example("Show a language model's sizes and quantization", "driftc inspect model.gguf"),
            example("Write the provenance of a bundle", "driftc inspect model.drift --provenance"),
            example(
                "Write the memory plan of a bundle as a page",
                "driftc inspect model.drift --html plan.html",
            ),
        ],
    ),
    (
        "explain",
        &[
            example(
                "List the selected kernels, most expensive first",
                "driftc explain model.onnx -t vulkan-baseline",
            ),
            example(
                "Show all candidates of a node",
                "driftc explain model.onnx -t vulkan-baseline --node /layer1/conv1/Conv",
            ),
        ],
    ),
    (
        "estimate",
        &[example(
            "Compare two targets without a device",
            "driftc estimate model.onnx -t vulkan-baseline -t ./here.toml",
        )],
    ),
    (
        "bench",
        &[
            example("Measure a model on random inputs", "driftc bench model.onnx --dim batch=8"),
            example("Measure a bundle and write a trace", "driftc bench model.drift --trace trace.json"),
            example(
                "Measure prompt and decode speed of a language model",
                "driftc bench model.gguf --prompt-tokens 512,2048 --decode-tokens 128",
            ),
        ],
    ),
    (
        "audit",
        &[
            example(
                "Compile a bundle's shaders with another device's driver",
                "driftc audit model.drift --driver navi31",
            ),
            example(
                "Fail if a shader of a model spills on the target's device",
                "driftc audit model.onnx -t intel-battlemage --max-spills 0 --max-compile-ms 2000",
            ),
        ],
    ),
    (
        "diff",
        &[
            example("Compare two bundles", "driftc diff old.drift new.drift --all"),
            example(
                "Compare what a driver made of two versions of a model, written by `driftc audit --json`",
                "driftc diff old.json new.json",
            ),
        ],
    ),
    (
        "tune",
        &[example(
            "Measure candidates for ten minutes",
            "driftc tune model.onnx -t ./here.toml -o here.txt --budget 600",
        )],
    ),
    (
        "calibrate",
        &[example(
            "Measure the calibration suite for an hour",
            "driftc calibrate -t ./here.toml -o here.txt --limit 60",
        )],
    ),
    ("dump", &[example("Print the memory plan", "driftc dump model.onnx --stage plan -t vulkan-baseline")]),
    (
        "targets",
        &[
            example("List the built-in profiles", "driftc targets list"),
            example("Create a profile of this device", "driftc targets probe -o here.toml"),
        ],
    ),
    ("ops", &[example("List the supported ONNX operators", "driftc ops")]),
    (
        "completions",
        &[example(
            "Print the script for zsh, to be saved as _driftc in a folder of $fpath",
            "driftc completions zsh",
        )],
    ),
    (
        "man",
        &[
            example("Print the manual page", "driftc man"),
            example("Write a page for each command", "driftc man --output-dir man1"),
        ],
    ),
];

/// Examples of a command, by its name; the name of the program gives examples of the program.
pub(crate) fn examples(command: &str) -> &'static [Example] {
    let listed = EXAMPLES.iter().find(|(name, _)| *name == command);
    listed.map_or(if command == "driftc" { PROGRAM } else { &[] }, |(_, examples)| *examples)
}

/// Appends the examples to the help of the program and of each command.
pub(crate) fn with_examples(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|c| c.get_name().to_owned()).collect();
    let command = names.iter().fold(command, |command, name| command.mut_subcommand(name, after_help));
    after_help(command)
}

fn after_help(command: Command) -> Command {
    let list = examples(command.get_name());
    if list.is_empty() {
        return command;
    }
    let (header, literal) = (*command.get_styles().get_header(), *command.get_styles().get_literal());
    let mut text = format!("{header}Examples:{header:#}");
    for Example { about, line } in list {
        text.push_str(&format!("\n  {about}:\n    {literal}{line}{literal:#}"));
    }
    command.after_help(text)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{EXAMPLES, Example, examples};
    use crate::Cli;

    /// Splits a command line at spaces outside of double quotes.
    fn words(line: &str) -> Vec<String> {
        let quoted = line.split('"').enumerate();
        let split = |(i, text): (usize, &str)| match i % 2 {
            0 => text.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
            _ => vec![text.to_owned()],
        };
        quoted.flat_map(split).collect()
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        let parser = super::with_examples(Cli::command());
        for command in parser.get_subcommands() {
            let list = examples(command.get_name());
            assert!(!list.is_empty(), "`{}` has no example; add one to EXAMPLES", command.get_name());
            let help = command.clone().render_help().to_string();
            for Example { about, line } in list {
                assert!(help.contains(about) && help.contains(line), "{line}\n{help}");
            }
        }
        let names = EXAMPLES.iter().map(|(name, _)| *name).chain(["driftc"]);
        for name in names {
            assert!(
                name == "driftc" || parser.find_subcommand(name).is_some(),
                "there is no command `{name}`"
            );
            for Example { line, .. } in examples(name) {
                let words = words(line);
                let command = if name == "driftc" { 0 } else { 1 };
                assert_eq!(words[command], name, "{line}");
                let parsed = parser.clone().try_get_matches_from(&words);
                assert!(parsed.is_ok(), "{line}\n{}", parsed.unwrap_err());
            }
        }
    }
}
