//! `driftc generate`: generates text from a prompt.

use std::path::PathBuf;

use clap::Args;
use drift_runtime::StopReason;
use drift_text::Message;

use crate::failure::{Failure, Result};
use crate::language::{GenerationArgs, LanguageModelArgs, note_speed};
use crate::output::{Out, note};
use crate::token_ids::{read_token_ids, write_token_ids};
use crate::token_printer::TokenPrinter;
use drift_chat::PromptEncoder;

#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    model: LanguageModelArgs,
    /// Generate from this prompt
    #[arg(short, long, value_name = "TEXT", conflicts_with = "ids", required_unless_present = "ids")]
    prompt: Option<String>,
    /// Generate from a prompt of token ids
    #[arg(long, value_name = "IDS.npy")]
    ids: Option<PathBuf>,
    /// Write the generated token ids to this file
    #[arg(long, value_name = "OUT.npy")]
    ids_out: Option<PathBuf>,
    /// Send the prompt as a user message through the model's chat template
    #[arg(long, conflicts_with = "ids")]
    chat: bool,
    /// Start the chat with this system message
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
    #[command(flatten)]
    generation: GenerationArgs,
}

pub(crate) fn run(args: &GenerateArgs, out: &mut Out) -> Result<()> {
    // Report a wrong request before loading the model.
    args.generation.request(&[])?;
    let given = args.ids.as_deref().map(read_token_ids).transpose()?;
    let (mut generator, encoder) = args.model.open_with_optional_encoder()?;
    let prompt = match (given, &encoder) {
        (Some(ids), _) => ids,
        (None, Some(encoder)) => encode_prompt(args, encoder)?,
        (None, None) => {
            return Err(Failure::input("the model has no tokenizer, so it cannot read a text")
                .help("give token ids: --ids IDS.npy --ids-out OUT.npy"));
        }
    };
    let stops = encoder.as_ref().map_or(&[][..], |encoder| encoder.tokenizer().ends());
    let request = args.generation.request(stops)?;
    let mut draft = args.generation.draft(&args.model)?;
    generator.append(&prompt)?;
    let mut printer = encoder.as_ref().map(|encoder| TokenPrinter::new(&encoder.tokenizer(), &prompt, out));
    let done = generator
        .generate(&request, &mut draft, &mut |id| printer.as_mut().is_none_or(|printer| printer.push(id)));
    printer.map(TokenPrinter::finish).transpose()?;
    if let Some(path) = &args.ids_out {
        write_token_ids(path, generator.tokens().get(prompt.len()..).unwrap_or_default())?;
    }
    let report = done?;
    note_speed(&report);
    if report.stop_reason == StopReason::MaxTokens && encoder.is_some() {
        note(&format!("output was cut after {} tokens; --max-tokens raises the limit", report.tokens));
    }
    Ok(())
}

/// Token ids of the prompt.
fn encode_prompt(args: &GenerateArgs, encoder: &PromptEncoder) -> Result<Vec<u32>> {
    let prompt = args.prompt.as_deref().unwrap_or_default();
    if !args.chat {
        return Ok(encoder.encode_text(prompt)?);
    }
    let system = args.system.iter().map(|system| Message::new("system", system));
    let messages: Vec<Message> = system.chain([Message::new("user", prompt)]).collect();
    Ok(encoder.encode_conversation(&messages)?)
}
