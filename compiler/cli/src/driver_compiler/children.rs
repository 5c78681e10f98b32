//! Child processes that compile pipelines: a crash or a hang of a driver costs one pipeline. Several children work on the
//! same list.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::worker::{Answer, Compiled, Device, Request};
use crate::failure::{Failure, Result};

/// Time in which a driver must open the device.
const OPEN_LIMIT: Duration = Duration::from_secs(60);

/// Result of compiling a pipeline.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Compiled(Compiled),
    /// The driver returned an error.
    Refused(String),
    /// The driver ended the process: the signal or exit code, as text.
    Crashed(String),
    /// The driver took longer than this limit.
    TimedOut(Duration),
}

/// Start command, time limit and number of the children.
pub(crate) struct Children<'a> {
    /// Creates the command that starts a child.
    pub(crate) command: &'a (dyn Fn() -> Result<Command> + Sync),
    pub(crate) limit: Duration,
    /// Number of children that run at once.
    pub(crate) count: usize,
}

/// A running child.
struct Running {
    process: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<Answer>,
}

/// Reason why a child gave no answer.
enum Ended {
    Crashed(String),
    TimedOut,
}

/// Compiles pipelines, and returns the device and the result of each pipeline in the order of the requests. `step` is called
/// after each pipeline.
///
/// # Errors
/// If no child can be started, or the device refuses the bundle.
pub(crate) fn compile_all(
    children: &Children<'_>,
    requests: &[Request],
    step: &(dyn Fn() + Sync),
) -> Result<(Device, Vec<Outcome>)> {
    // The first child is opened before the others, so that an error is reported once.
    let (first, device) = start(children)?;
    let next = Mutex::new(0usize);
    let outcomes: Vec<Mutex<Option<Outcome>>> = requests.iter().map(|_| Mutex::new(None)).collect();
    let failure = Mutex::new(None);
    let first = Mutex::new(Some(first));
    let work = || {
        let mut child = lock(&first).take();
        loop {
            let index = {
                let mut next = lock(&next);
                let index = *next;
                *next += 1;
                index
            };
            let Some((request, outcome)) = requests.get(index).zip(outcomes.get(index)) else { break };
            match compile(children, &mut child, *request) {
                Ok(done) => *lock(outcome) = Some(done),
                Err(error) => {
                    lock(&failure).get_or_insert(error);
                    break;
                }
            }
            step();
        }
        if let Some(child) = child {
            child.end();
        }
    };
    thread::scope(|scope| {
        for _ in 1..children.count.min(requests.len()) {
            scope.spawn(work);
        }
        work();
    });
    if let Some(error) = lock(&failure).take() {
        return Err(error);
    }
    let outcomes = outcomes.into_iter().map(|o| o.into_inner().unwrap_or_else(PoisonError::into_inner));
    let outcomes: Option<Vec<Outcome>> = outcomes.collect();
    outcomes.map(|outcomes| (device, outcomes)).ok_or_else(|| Failure::input("a pipeline was not compiled"))
}

/// Compiles one pipeline. If a child that compiled other pipelines before crashes, a fresh child tries again: the crash may
/// come from an earlier pipeline.
fn compile(children: &Children<'_>, child: &mut Option<Running>, request: Request) -> Result<Outcome> {
    let mut fresh = child.is_none();
    loop {
        let running = match child {
            Some(running) => running,
            None => child.insert(start(children)?.0),
        };
        let ended = match running.ask(request, children.limit) {
            Ok(Answer::Compiled(compiled)) => return Ok(Outcome::Compiled(compiled)),
            Ok(Answer::Failed { message } | Answer::Refused { message }) => {
                return Ok(Outcome::Refused(message));
            }
            Ok(Answer::Device(_)) => Ended::Crashed("the child's answers are out of order".to_owned()),
            Err(ended) => ended,
        };
        if let Some(child) = child.take() {
            child.end();
        }
        match ended {
            Ended::TimedOut => return Ok(Outcome::TimedOut(children.limit)),
            Ended::Crashed(how) if fresh => return Ok(Outcome::Crashed(how)),
            Ended::Crashed(_) => fresh = true,
        }
    }
}

/// Starts a child and waits until it has opened the device.
fn start(children: &Children<'_>) -> Result<(Running, Device)> {
    let mut command = (children.command)()?;
    let shown = format!("{}", command.get_program().display());
    let mut process = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| Failure::input(format!("{shown}: {e}")))?;
    let (sender, answers) = channel();
    if let Some(output) = process.stdout.take() {
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
                // Drivers may print to standard output, too. Their lines are no answers.
                let Ok(answer) = serde_json::from_str(&line) else { continue };
                if sender.send(answer).is_err() {
                    break;
                }
            }
        });
    }
    let requests = process.stdin.take();
    let mut running = Running { process, requests, answers };
    match running.answer(OPEN_LIMIT) {
        Ok(Answer::Device(device)) => Ok((running, device)),
        Ok(Answer::Refused { message }) => Err(Failure::input(message)),
        Ok(_) => Err(Failure::input("the child's answers are out of order")),
        Err(ended) => {
            let how = match ended {
                Ended::Crashed(how) => how,
                Ended::TimedOut => format!("no answer after {} s", OPEN_LIMIT.as_secs()),
            };
            running.end();
            Err(Failure::input("the driver did not open its device").because(how))
        }
    }
}

impl Running {
    fn ask(&mut self, request: Request, limit: Duration) -> Result<Answer, Ended> {
        let line = serde_json::to_string(&request).map_err(|e| Ended::Crashed(e.to_string()))?;
        // If the child has ended, writing fails and the missing answer tells how it ended.
        let _ = self.requests.as_mut().map(|requests| writeln!(requests, "{line}"));
        self.answer(limit)
    }

    fn answer(&mut self, limit: Duration) -> Result<Answer, Ended> {
        self.answers.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => Ended::TimedOut,
            RecvTimeoutError::Disconnected => Ended::Crashed(match self.process.wait() {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            }),
        })
    }

    /// Ends the child. Errors are ignored: the child may have ended before.
    fn end(mut self) {
        drop(self.requests.take());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
