//! Child processes that compile pipelines: a crash or a hang of a driver costs one pipeline. Several children work on the
//! same list.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::worker::{Answer, Compiled, Device, Request};
use crate::failure::{Failure, Result};

/// Time in which a driver must open the device.
const OPEN_LIMIT: Duration = Duration::from_secs(60);

/// Time between two looks at a child's processor time.
const LOOK: Duration = Duration::from_millis(250);
/// Limit of the wall time, as a multiple of the limit of the processor time: a child may wait for a processor, or for ever.
const MAX_WALL_RATIO: u32 = 8;

/// Result of compiling a pipeline.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Compiled(Compiled),
    /// The driver returned an error.
    Refused(String),
    /// The driver ended the process: the signal or exit code, as text.
    Crashed(String),
    /// The driver took more processor time than this limit.
    TimedOut(Duration),
}

/// Start command, time limit and number of the children.
pub(crate) struct Children<'a> {
    /// Creates the command that starts a child.
    pub(crate) command: &'a (dyn Fn() -> Result<Command> + Sync),
    /// Limit of the processor time for a pipeline: other programs that are running do not count. Where the system does not tell
    /// it, the wall time is limited.
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
        let start = Instant::now();
        let busy_before = processor_time(self.process.id());
        loop {
            match self.answers.recv_timeout(LOOK.min(limit)) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Ended::Crashed(match self.process.wait() {
                        Ok(status) => status.to_string(),
                        Err(error) => error.to_string(),
                    }));
                }
            }
            let (waited, busy_now) = (start.elapsed(), processor_time(self.process.id()));
            let busy = busy_before.zip(busy_now).map_or(waited, |(before, now)| now.saturating_sub(before));
            if busy >= limit || waited >= limit * MAX_WALL_RATIO {
                return Err(Ended::TimedOut);
            }
        }
    }

    /// Ends the child. Errors are ignored: the child may have ended before.
    fn end(mut self) {
        drop(self.requests.take());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the processor time that a process has used. Returns `None` where the system has no `/proc`.
fn processor_time(process: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field, the program's name, is in parentheses and may have spaces.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // The fields 14 and 15 of the file: user and system time. Linux counts in hundredths of a second for programs.
    let ticks = ticks(11)?.saturating_add(ticks(12)?);
    Some(Duration::from_millis(ticks.saturating_mul(10)))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
