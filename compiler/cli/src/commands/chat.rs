//! `driftc chat`: a conversation on the terminal.
//!
//! The whole conversation is put into one text each time, of which the caches hold the beginning, so that only what is
//! new is computed.

use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use drift_runtime::Error;
use drift_text::Message;

use crate::failure::{Failure, Result};
use crate::language::{ChoiceArgs, LanguageArgs, Printer, note_speed};
use crate::output::{Out, note};

#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    model: LanguageArgs,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    #[command(flatten)]
    choice: ChoiceArgs,
}

pub(crate) fn run(args: &ChatArgs, out: &mut Out) -> Result<()> {
    args.choice.request(&[])?;
    let (mut generator, text) = args.model.open_with_text()?;
    let mut request = args.choice.request(text.tokenizer.ends())?;
    let mut draft = args.choice.draft(&args.model)?;
    let beginning: Vec<Message> = args.system.iter().map(|system| Message::new("system", system)).collect();
    let mut messages = beginning.clone();
    let interrupt = Interrupt::listen()?;
    let asks = io::stdin().is_terminal();
    if asks {
        note("/reset begins anew, /exit or Ctrl-D ends, Ctrl-C stops an answer");
    }
    let mut lines = io::stdin().lock().lines();
    loop {
        if asks {
            out.write_all(b"> ")?;
            out.flush()?;
        }
        let Some(line) = lines.next() else { break };
        let line = line.map_err(|e| Failure::input(format!("standard input: {e}")))?;
        match line.trim() {
            "" => continue,
            "/exit" => break,
            "/reset" => {
                messages.clone_from(&beginning);
                generator.shorten(0);
                continue;
            }
            command if command.starts_with('/') => {
                note(&format!("there is no command {command}; /reset begins anew, /exit ends"));
                continue;
            }
            said => messages.push(Message::new("user", said)),
        }
        let ids = text.conversation(&messages)?;
        interrupt.answering(true);
        let mut printer = Printer::new(&text.tokenizer, &ids, out);
        let done = generator.set_text(&ids).and_then(|_| {
            generator.generate(&request, &mut draft, &mut |id| printer.push(id) && !interrupt.asked())
        });
        interrupt.answering(false);
        let answer = printer.finish()?;
        match done {
            Ok(report) => {
                messages.push(Message::new("assistant", &answer));
                note_speed(&report);
            }
            // The conversation is not over: what was said last may be shorter, or all of it forgotten.
            Err(full @ Error::ContextFull { .. }) => {
                messages.pop();
                let _ = Failure::from(full).report();
                note("what was said last is forgotten; /reset makes room");
            }
            Err(error) => return Err(error.into()),
        }
        request.sampling.seed = request.sampling.seed.wrapping_add(1);
    }
    Ok(())
}

/// Ctrl-C: stops an answer, or else the program.
struct Interrupt {
    answering: Arc<AtomicBool>,
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    fn listen() -> Result<Self> {
        let (answering, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (is_answering, ask) = (answering.clone(), asked.clone());
        let handler = move || match is_answering.load(Ordering::SeqCst) {
            true => ask.store(true, Ordering::SeqCst),
            false => std::process::exit(130),
        };
        ctrlc::set_handler(handler).map_err(|e| Failure::input(format!("Ctrl-C: {e}")))?;
        Ok(Self { answering, asked })
    }

    fn answering(&self, answering: bool) {
        self.asked.store(false, Ordering::SeqCst);
        self.answering.store(answering, Ordering::SeqCst);
    }

    fn asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
}
