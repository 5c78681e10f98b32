//! `driftc chat`: a conversation on the terminal.

use std::io::{self, Write};

use clap::Args;
use drift_chat::{Chat, Completion, Error, Finish, TextRequest};

use crate::answer_printer::AnswerPrinter;
use crate::chat_command::{self, ChatCommand};
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::language::{GenerationArgs, LanguageModelArgs, note_cut, note_speed};
use crate::line_input::LineInput;
use crate::output::{Out, note};
use crate::prompt_text::SystemArgs;

#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    model: LanguageModelArgs,
    #[command(flatten)]
    system: SystemArgs,
    /// Leave the history file of earlier inputs alone (default: chat_history in the cache folder)
    #[arg(long)]
    no_history: bool,
    #[command(flatten)]
    generation: GenerationArgs,
}

/// Part of the conversation that an answer replaces or follows.
enum Question<'a> {
    /// A new message of the user.
    Message(&'a str),
    /// The last message, whose answer is generated again.
    Again,
}

pub(crate) fn run(args: &ChatArgs, out: &mut Out) -> Result<()> {
    // Report a wrong request before loading the model.
    let request = args.generation.text_request()?;
    let system = args.system.text()?;
    let (generator, encoder) = args.model.open_with_encoder()?;
    let mut chat = Chat::new(generator, encoder).with_draft(args.generation.draft(&args.model)?);
    chat.set_system(system.as_deref());
    let history = if args.no_history { None } else { args.model.history_path() };
    let mut lines = LineInput::open(history)?;
    let interrupt = Interrupt::listen(!lines.is_terminal())?;
    if lines.is_terminal() {
        note("/help lists the commands, Ctrl-C stops an answer, Ctrl-D quits");
    }
    let mut talk = Talk { chat, request, interrupt };
    while let Some(line) = lines.read()? {
        let done = match ChatCommand::parse(&line) {
            None if line.trim().is_empty() => continue,
            None => talk.answer(&Question::Message(line.trim()), out)?,
            Some(Ok(ChatCommand::Exit)) => break,
            Some(Ok(command)) => talk.execute(command, out)?,
            Some(Err(error)) => {
                note(&error);
                continue;
            }
        };
        // The chat continues with the messages that it had.
        if let Err(error) = done {
            report(error)?;
        }
    }
    Ok(())
}

/// Running chat.
struct Talk {
    chat: Chat,
    request: TextRequest,
    interrupt: Interrupt,
}

impl Talk {
    /// Executes a command. Returns the chat's error, or fails if standard output cannot be written.
    fn execute(&mut self, command: ChatCommand, out: &mut Out) -> Result<drift_chat::Result<()>> {
        match command {
            ChatCommand::Help => io::stderr().lock().write_all(chat_command::help().as_bytes())?,
            ChatCommand::Save(path) => {
                let saved = self.chat.save(&path);
                let count = self.chat.messages().len();
                return Ok(saved.map(|()| note(&format!("saved {count} messages to {}", path.display()))));
            }
            ChatCommand::Load(path) => {
                let loaded = self.chat.load(&path);
                let count = self.chat.messages().len();
                return Ok(loaded.map(|()| note(&format!("loaded {count} messages of {}", path.display()))));
            }
            ChatCommand::Regenerate => return self.answer(&Question::Again, out),
            ChatCommand::System(text) => {
                self.chat.set_system(text.as_deref());
                note(match text {
                    Some(_) => "the system message is set",
                    None => "the conversation has no system message",
                });
            }
            ChatCommand::Reset => self.chat.reset(),
            ChatCommand::Exit => {}
        }
        Ok(Ok(()))
    }

    /// Generates and prints an answer. Returns the chat's error, or fails if standard output cannot be written.
    fn answer(&mut self, question: &Question<'_>, out: &mut Out) -> Result<drift_chat::Result<()>> {
        let mut printer = AnswerPrinter::new(out).interrupted_by(&self.interrupt);
        self.interrupt.answering(true);
        let done = match question {
            Question::Message(text) => self.chat.say(text, &self.request, &mut printer),
            Question::Again => self.chat.regenerate(&self.request, &mut printer),
        };
        self.interrupt.answering(false);
        printer.finish(done.is_err())?;
        // Another answer to the same messages has other random numbers.
        self.request.sampling.seed = self.request.sampling.seed.wrapping_add(1);
        Ok(done.map(|completion| note_end(&completion, question)))
    }
}

/// Prints the speed of an answer, and the reason of an unusual end.
fn note_end(completion: &Completion, question: &Question<'_>) {
    if completion.report.tokens > 0 {
        note_speed(&completion.report);
    }
    match (&completion.finish, question) {
        (Finish::Length, _) => note_cut(completion.report.tokens),
        (Finish::Cancelled, Question::Message(_)) if completion.text.is_empty() => {
            note("stopped before the answer; the last message is forgotten");
        }
        (Finish::Cancelled, Question::Again) if completion.text.is_empty() => {
            note("stopped before the answer; the earlier answer stays");
        }
        (Finish::Cancelled | Finish::EndToken | Finish::StopString(_), _) => {}
    }
}

/// Prints an error after which the chat goes on. Returns an error after which it cannot go on.
fn report(error: Error) -> Result<()> {
    use drift_runtime::Error as R;
    let failure = match error {
        Error::Runtime(full @ R::ContextFull { .. }) => Failure::from(full).help(
            "start a new conversation with /reset, or compile the model with a longer context: --dim context=N",
        ),
        Error::Runtime(_) | Error::NoChatTemplate | Error::Text(drift_text::Error::File { .. }) => {
            return Err(error.into());
        }
        Error::Transcript { .. } | Error::NoAnswer => {
            let _ = Failure::from(error).report();
            return Ok(());
        }
        _ => Failure::from(error),
    };
    let _ = failure.report();
    note("the last message is forgotten");
    Ok(())
}
