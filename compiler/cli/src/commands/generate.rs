//! `driftc generate`: a text, and what a language model goes on with.

use std::path::PathBuf;

use clap::Args;
use drift_runtime::Ended;
use drift_text::Message;

use crate::failure::{Failure, Result};
use crate::language::{ChoiceArgs, LanguageArgs, Printer, Text, ids_of, ids_to, note_speed};
use crate::output::{Out, note};

#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    model: LanguageArgs,
    /// The text to go on with
    #[arg(short, long, value_name = "TEXT", conflicts_with = "ids", required_unless_present = "ids")]
    prompt: Option<String>,
    /// The text to go on with, as ids
    #[arg(long, value_name = "IDS.npy")]
    ids: Option<PathBuf>,
    /// Write the ids that were generated
    #[arg(long, value_name = "OUT.npy")]
    ids_out: Option<PathBuf>,
    /// The prompt is what a user says, and the answer is wanted
    #[arg(long, conflicts_with = "ids")]
    chat: bool,
    /// What the model is told before the user speaks
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
    #[command(flatten)]
    choice: ChoiceArgs,
}

pub(crate) fn run(args: &GenerateArgs, out: &mut Out) -> Result<()> {
    // What is wrong with the request is found before the model is loaded.
    args.choice.request(&[])?;
    let given = args.ids.as_deref().map(ids_of).transpose()?;
    let (mut generator, text) = args.model.open_with_any_text()?;
    let prompt = match (given, &text) {
        (Some(ids), _) => ids,
        (None, Some(text)) => prompt(args, text)?,
        (None, None) => {
            return Err(Failure::input("the model has no tokenizer, so texts mean nothing to it")
                .help("give ids: --ids IDS.npy --ids-out OUT.npy"));
        }
    };
    let request = args.choice.request(text.as_ref().map_or(&[], |text| text.tokenizer.ends()))?;
    let mut draft = args.choice.draft(&args.model)?;
    generator.append(&prompt)?;
    let mut printer = text.as_ref().map(|text| Printer::new(&text.tokenizer, &prompt, out));
    let done = generator
        .generate(&request, &mut draft, &mut |id| printer.as_mut().is_none_or(|printer| printer.push(id)));
    printer.map(Printer::finish).transpose()?;
    if let Some(path) = &args.ids_out {
        ids_to(path, generator.text().get(prompt.len()..).unwrap_or_default())?;
    }
    let report = done?;
    note_speed(&report);
    if report.ended == Ended::Length && text.is_some() {
        note(&format!("the text was cut after {} tokens; --max-tokens allows more", report.tokens));
    }
    Ok(())
}

/// The ids of the prompt.
fn prompt(args: &GenerateArgs, text: &Text) -> Result<Vec<u32>> {
    let prompt = args.prompt.as_deref().unwrap_or_default();
    if !args.chat {
        return text.ids(prompt);
    }
    let system = args.system.iter().map(|system| Message::new("system", system));
    let messages: Vec<Message> = system.chain([Message::new("user", prompt)]).collect();
    text.conversation(&messages)
}
