//! Ctrl-C handler of commands that generate text for a user.

use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Failure, Result};

/// Exit code of a program that Ctrl-C ended.
const EXIT_CODE: i32 = 130;

/// Ctrl-C handler. During an answer, the first Ctrl-C requests its end, and the second one ends the program.
pub(crate) struct Interrupt {
    answering: Arc<AtomicBool>,
    requested: Arc<AtomicBool>,
}

impl Interrupt {
    /// Installs the handler. Between answers, Ctrl-C ends the program if `quits` is true, and has no effect otherwise. A
    /// program can install one handler.
    pub(crate) fn listen(quits: bool) -> Result<Self> {
        let (answering, requested) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (is_answering, request) = (answering.clone(), requested.clone());
        let handler = move || {
            let quits = match is_answering.load(Ordering::SeqCst) {
                true => request.swap(true, Ordering::SeqCst),
                false => quits,
            };
            if quits {
                exit(EXIT_CODE);
            }
        };
        ctrlc::set_handler(handler).map_err(|e| Failure::input(format!("cannot handle Ctrl-C: {e}")))?;
        Ok(Self { answering, requested })
    }

    /// Marks the start or the end of an answer, and clears the request to stop it.
    pub(crate) fn answering(&self, answering: bool) {
        self.requested.store(false, Ordering::SeqCst);
        self.answering.store(answering, Ordering::SeqCst);
    }

    /// True if the user pressed Ctrl-C during the present answer.
    pub(crate) fn requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst)
    }
}
