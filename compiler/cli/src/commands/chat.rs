//! `driftc chat`: a conversation on the terminal.
//!
//! For each answer, the whole conversation is encoded again. The KV cache already holds the earlier tokens, so the
//! model computes only the new ones.

use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use drift_runtime::Error;
use drift_text::Message;

use crate::failure::{Failure, Result};
use crate::language::{GenerationArgs, LanguageModelArgs, note_speed};
use crate::output::{Out, note};
use crate::token_printer::TokenPrinter;

#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    model: LanguageModelArgs,
    /// Start the conversation with this system message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    #[command(flatten)]
    generation: GenerationArgs,
}

pub(crate) fn run(args: &ChatArgs, out: &mut Out) -> Result<()> {
    args.generation.request(&[])?;
    let (mut generator, encoder) = args.model.open_with_encoder()?;
    let mut request = args.generation.request(encoder.tokenizer().ends())?;
    let mut draft = args.generation.draft(&args.model)?;
    let beginning: Vec<Message> = args.system.iter().map(|system| Message::new("system", system)).collect();
    let mut messages = beginning.clone();
    let interrupt = Interrupt::listen()?;
    let interactive = io::stdin().is_terminal();
    if interactive {
        note("/reset starts a new conversation, /exit or Ctrl-D quits, Ctrl-C stops an answer");
    }
    let mut lines = io::stdin().lock().lines();
    loop {
        if interactive {
            out.write_all(b"> ")?;
            out.flush()?;
        }
        let Some(line) = lines.next() else { break };
        let line = line.map_err(|e| Failure::input(format!("cannot read standard input: {e}")))?;
        match line.trim() {
            "" => continue,
            "/exit" => break,
            "/reset" => {
                messages.clone_from(&beginning);
                generator.truncate(0);
                continue;
            }
            command if command.starts_with('/') => {
                note(&format!("there is no command {command}; use /reset or /exit"));
                continue;
            }
            text => messages.push(Message::new("user", text)),
        }
        let ids = encoder.encode_conversation(&messages)?;
        interrupt.answering(true);
        let mut printer = TokenPrinter::new(&encoder.tokenizer(), &ids, out);
        let done = generator.set_tokens(&ids).and_then(|_| {
            generator.generate(&request, &mut draft, &mut |id| printer.push(id) && !interrupt.requested())
        });
        interrupt.answering(false);
        let answer = printer.finish()?;
        match done {
            Ok(report) => {
                messages.push(Message::new("assistant", &answer));
                note_speed(&report);
            }
            // The chat goes on without the last message. The user can send a shorter one or reset.
            Err(full @ Error::ContextFull { .. }) => {
                messages.pop();
                let _ = Failure::from(full).report();
                note("the last message is forgotten; send a shorter one, or start anew with /reset");
            }
            Err(error) => return Err(error.into()),
        }
        request.sampling.seed = request.sampling.seed.wrapping_add(1);
    }
    Ok(())
}

/// Ctrl-C handler: stops an answer, or quits the program between answers.
struct Interrupt {
    answering: Arc<AtomicBool>,
    requested: Arc<AtomicBool>,
}

impl Interrupt {
    fn listen() -> Result<Self> {
        let (answering, requested) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (is_answering, request) = (answering.clone(), requested.clone());
        let handler = move || match is_answering.load(Ordering::SeqCst) {
            true => request.store(true, Ordering::SeqCst),
            false => std::process::exit(130),
        };
        ctrlc::set_handler(handler).map_err(|e| Failure::input(format!("cannot handle Ctrl-C: {e}")))?;
        Ok(Self { answering, requested })
    }

    /// Marks the start or the end of an answer, and clears the request to stop it.
    fn answering(&self, answering: bool) {
        self.requested.store(false, Ordering::SeqCst);
        self.answering.store(answering, Ordering::SeqCst);
    }

    /// True if the user pressed Ctrl-C during the present answer.
    fn requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst)
    }
}
