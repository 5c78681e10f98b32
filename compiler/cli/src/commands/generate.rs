//! `driftc generate`: generates text from a prompt.

use std::path::PathBuf;

use clap::Args;
use drift_chat::{Completion, Finish, PromptEncoder, complete};
use drift_runtime::{Draft, Generator, Report, StopReason};
use drift_text::Message;
use serde::Serialize;

use crate::answer_printer::AnswerPrinter;
use crate::failure::{Failure, Result};
use crate::language::{GenerationArgs, LanguageModelArgs, note_cut, note_speed, tokens_per_second};
use crate::output::{Out, milliseconds};
use crate::prompt_text::{SystemArgs, prompt_text};
use crate::token_ids::{read_token_ids, write_token_ids};

#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    model: LanguageModelArgs,
    /// Generate from this prompt; - reads it from standard input (default: standard input, unless it is a terminal)
    #[arg(short, long, value_name = "TEXT", conflicts_with_all = ["ids", "prompt_file"])]
    prompt: Option<String>,
    /// Generate from the text of this file as the prompt
    #[arg(long, value_name = "FILE.txt", conflicts_with = "ids")]
    prompt_file: Option<PathBuf>,
    /// Generate from a prompt of token ids
    #[arg(long, value_name = "IDS.npy")]
    ids: Option<PathBuf>,
    /// Write the generated token ids to this file
    #[arg(long, value_name = "OUT.npy")]
    ids_out: Option<PathBuf>,
    /// Send the prompt as a user message through the model's chat template
    #[arg(long, conflicts_with = "ids")]
    chat: bool,
    #[command(flatten)]
    system: SystemArgs,
    /// Print one JSON object at the end: the text, its token counts and the speed
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    generation: GenerationArgs,
}

/// Prompt as the user gave it.
enum Prompt {
    Ids(Vec<u32>),
    Text(String),
    Chat(Vec<Message>),
}

/// Generated text and its statistics, for `--json`.
#[derive(Debug, Serialize)]
struct Generated<'a> {
    /// Path of the model, as given.
    model: String,
    /// Generated text. `None` if the model has no tokenizer.
    text: Option<&'a str>,
    /// Generated token ids, if the prompt was given as token ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    ids: Option<&'a [u32]>,
    /// Reason of the end: `end_token`, `stop_string` or `length`.
    finish_reason: &'static str,
    /// Stop string that the text reached.
    stop: Option<&'a str>,
    prompt_tokens: usize,
    /// Number of generated tokens, including an end token.
    generated_tokens: usize,
    prompt_ms: f64,
    decode_ms: f64,
    prompt_tokens_per_second: Option<f64>,
    decode_tokens_per_second: Option<f64>,
    draft_tokens: usize,
    accepted_draft_tokens: usize,
    seed: u64,
}

pub(crate) fn run(args: &GenerateArgs, out: &mut Out) -> Result<()> {
    // Report a wrong request before loading the model.
    args.generation.text_request()?;
    let prompt = read_prompt(args)?;
    let (mut generator, encoder) = args.model.open_with_optional_encoder()?;
    let prompt = encode_prompt(prompt, encoder.as_ref())?;
    let mut draft = args.generation.draft(&args.model)?;
    let done = match &encoder {
        Some(encoder) => generate_text(args, &mut generator, encoder, &prompt, &mut draft, out),
        None => generate_ids(args, &mut generator, &prompt, &mut draft),
    };
    let ids = generator.tokens().get(prompt.len()..).unwrap_or_default();
    if let Some(path) = &args.ids_out {
        write_token_ids(path, ids)?;
    }
    let completion = done?;
    if args.json {
        let text = encoder.is_some().then_some(completion.text.as_str());
        let ids = args.ids.is_some().then_some(ids);
        return out.json(&generated(args, &completion, text, ids));
    }
    note_speed(&completion.report);
    if completion.finish == Finish::Length && encoder.is_some() {
        note_cut(completion.report.tokens);
    }
    Ok(())
}

/// Reads the prompt that the arguments select.
fn read_prompt(args: &GenerateArgs) -> Result<Prompt> {
    let system = args.system.text()?;
    if system.is_some() && !args.chat {
        return Err(Failure::usage("--system and --system-file need --chat"));
    }
    if let Some(path) = &args.ids {
        return Ok(Prompt::Ids(read_token_ids(path)?));
    }
    let text = prompt_text(args.prompt.as_deref(), args.prompt_file.as_deref())?;
    if !args.chat {
        return Ok(Prompt::Text(text));
    }
    let system = system.iter().map(|system| Message::new("system", system));
    Ok(Prompt::Chat(system.chain([Message::new("user", &text)]).collect()))
}

/// Returns the token ids of the prompt.
fn encode_prompt(prompt: Prompt, encoder: Option<&PromptEncoder>) -> Result<Vec<u32>> {
    let encoder = encoder.ok_or_else(|| {
        Failure::input("the model has no tokenizer, so it cannot read a text")
            .help("give token ids: --ids IDS.npy --ids-out OUT.npy")
    });
    match prompt {
        Prompt::Ids(ids) => Ok(ids),
        Prompt::Text(text) => Ok(encoder?.encode_text(&text)?),
        Prompt::Chat(messages) => Ok(encoder?.encode_conversation(&messages)?),
    }
}

/// Generates text. Prints it unless `--json` is given.
fn generate_text(
    args: &GenerateArgs,
    generator: &mut Generator,
    encoder: &PromptEncoder,
    prompt: &[u32],
    draft: &mut Draft,
    out: &mut Out,
) -> Result<Completion> {
    let mut printer = if args.json { AnswerPrinter::silent() } else { AnswerPrinter::new(out) };
    let request = args.generation.text_request()?;
    let done = complete(generator, encoder, prompt, &request, draft, &mut printer);
    printer.finish(done.is_err())?;
    Ok(done?)
}

/// Generates token ids with a model without tokenizer, which has no end tokens.
fn generate_ids(
    args: &GenerateArgs,
    generator: &mut Generator,
    prompt: &[u32],
    draft: &mut Draft,
) -> Result<Completion> {
    generator.append(prompt)?;
    let report = generator.generate(&args.generation.ids_request()?, draft, &mut |_| true)?;
    let finish = match report.stop_reason {
        StopReason::StopToken(_) => Finish::EndToken,
        StopReason::MaxTokens => Finish::Length,
        StopReason::Callback => Finish::Cancelled,
    };
    Ok(Completion { text: String::new(), finish, report })
}

fn generated<'a>(
    args: &GenerateArgs,
    completion: &'a Completion,
    text: Option<&'a str>,
    ids: Option<&'a [u32]>,
) -> Generated<'a> {
    let report: &Report = &completion.report;
    let (finish_reason, stop) = match &completion.finish {
        Finish::EndToken => ("end_token", None),
        Finish::StopString(stop) => ("stop_string", Some(stop.as_str())),
        Finish::Length => ("length", None),
        Finish::Cancelled => ("cancelled", None),
    };
    Generated {
        model: args.model.path().display().to_string(),
        text,
        ids,
        finish_reason,
        stop,
        prompt_tokens: report.prompt_tokens,
        generated_tokens: report.tokens,
        prompt_ms: milliseconds(report.prompt_time),
        decode_ms: milliseconds(report.decode_time),
        prompt_tokens_per_second: tokens_per_second(report.prompt_tokens, report.prompt_time),
        decode_tokens_per_second: tokens_per_second(report.tokens.saturating_sub(1), report.decode_time),
        draft_tokens: report.draft_tokens,
        accepted_draft_tokens: report.accepted.iter().sum(),
        seed: args.generation.seed(),
    }
}
