//! Program that compiles stored ONNX models with random changes, and reports defects of the compiler.
//!
//! `fuzz-models [--seeds A..B] [--jobs N] [--keep DIR] [--unchanged] [--all] FOLDER...` takes the models from subfolders of
//! FOLDER. A seed determines one changed model, one profile and one precision. With `--unchanged` each model is compiled
//! unchanged, for every profile at every precision. Child processes compile the models; a process that takes far too long or
//! too much memory is ended. Models that take more than 10 s of processor time or 2 GiB of memory are reported. Models that
//! reveal a defect are written to DIR; `--all` lists every model.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use drift_tests::random_model::Pool;
use drift_tests::random_model::outcome::{self, Class, PRECISIONS};
use prost::Message;

/// Processor time in seconds above which a model is reported as slow.
const SECONDS: f64 = 10.0;
/// Bytes of memory above which a model is reported as large.
const BYTES: u64 = 2 << 30;
/// Wall-clock time for one model after which its process is ended. It allows for other work on the machine.
const HANG: Duration = Duration::from_secs(120);
/// Bytes of memory above which a process is ended.
const MOST_BYTES: u64 = 5 << 30;
/// Maximum number of models that one process compiles before a new process replaces it.
const BATCH: u64 = 500;

#[derive(Debug, Clone, Default)]
struct Arguments {
    seeds: (u64, u64),
    jobs: usize,
    keep: Option<PathBuf>,
    unchanged: bool,
    all: bool,
    worker: bool,
    folders: Vec<PathBuf>,
}

fn arguments() -> Result<Arguments, String> {
    let mut out = Arguments { seeds: (0, 1000), jobs: 2, ..Arguments::default() };
    let mut list = std::env::args().skip(1);
    while let Some(argument) = list.next() {
        let mut value = || list.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--seeds" => {
                let text = value()?;
                let (a, b) = text.split_once("..").ok_or("write --seeds A..B")?;
                let number = |t: &str| t.parse().map_err(|_| format!("`{t}` is no seed"));
                out.seeds = (number(a)?, number(b)?);
            }
            "--jobs" => out.jobs = value()?.parse().map_err(|_| "--jobs needs a number")?,
            "--keep" => out.keep = Some(value()?.into()),
            "--unchanged" => out.unchanged = true,
            "--all" => out.all = true,
            "--worker" => out.worker = true,
            folder => out.folders.push(folder.into()),
        }
    }
    Ok(out)
}

fn main() -> ExitCode {
    let mut arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::from(2);
        }
    };
    let pool = Pool::new(&arguments.folders);
    if pool.is_empty() {
        eprintln!("no subfolder of the given folders contains a model.onnx");
        return ExitCode::from(2);
    }
    if arguments.unchanged {
        arguments.seeds = (0, pool.len() as u64);
    }
    let done = if arguments.worker { work(&arguments, &pool) } else { supervise(&arguments) };
    match done {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::from(2)
        }
    }
}

/// Compiles the models of the seeds that it reads from standard input, and prints a line of tab-separated fields for each seed.
fn work(arguments: &Arguments, pool: &Pool) -> Result<usize, String> {
    let profiles = outcome::profiles().map_err(|e| e.to_string())?;
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    for line in std::io::stdin().lines() {
        let seed: u64 = line.ok().and_then(|l| l.parse().ok()).ok_or("a seed is no number")?;
        let made = if arguments.unchanged { pool.unchanged(seed as usize) } else { pool.model(seed) };
        let Some((story, model)) = made else {
            println!("skipped\t0\t0\tthe stored file is not a model");
            continue;
        };
        let bytes = model.encode_to_vec();
        let wanted: Vec<_> = match arguments.unchanged {
            true => profiles.iter().flat_map(|p| PRECISIONS.map(|precision| (p, precision))).collect(),
            false => vec![outcome::drawn(&profiles, seed)],
        };
        // A peak is the process's own, so it is forgotten first.
        let _ = fs::write("/proc/self/clear_refs", "5");
        let before = processor_seconds();
        let (class, message) = outcome::compiled(&bytes, &wanted, folder.path());
        let seconds = processor_seconds() - before;
        if let Some(keep) = arguments.keep.as_ref().filter(|_| class.is_defect()) {
            fs::create_dir_all(keep)
                .and_then(|()| fs::write(keep.join(format!("{seed}.onnx")), &bytes))
                .map_err(|e| format!("{}: {e}", keep.display()))?;
        }
        let message = message.replace(['\n', '\t'], " ");
        println!("{}\t{seconds:.2}\t{}\t{story}: {message}", class.name(), peak_bytes("self", "VmHWM:"));
    }
    Ok(0)
}

/// Returns the processor time of this process so far in seconds. Linux counts it in hundredths of a second.
fn processor_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn peak_bytes(process: &str, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(field)).unwrap_or_default();
    line.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Child process that compiles the model of one seed at a time.
struct Worker {
    child: Child,
    lines: Receiver<String>,
}

impl Worker {
    fn start(arguments: &Arguments) -> Result<Self, String> {
        let fail = |e: std::io::Error| e.to_string();
        let mut command = Command::new(std::env::current_exe().map_err(fail)?);
        command.arg("--worker").args(&arguments.folders);
        if let Some(keep) = &arguments.keep {
            command.arg("--keep").arg(keep);
        }
        if arguments.unchanged {
            command.arg("--unchanged");
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(fail)?;
        let output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let _ = output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line));
        });
        Ok(Self { child, lines })
    }

    /// Sends a seed to the process. Returns the result line, or the reason why there is none: `died`, `hung` or `bloated`.
    fn ask(&mut self, seed: u64, patience: Duration) -> Result<String, &'static str> {
        let input = self.child.stdin.as_mut().ok_or("no pipe")?;
        writeln!(input, "{seed}").map_err(|_| "died")?;
        let start = Instant::now();
        let process = self.child.id().to_string();
        loop {
            match self.lines.recv_timeout(Duration::from_millis(200)) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => return Err("died"),
                Err(RecvTimeoutError::Timeout) if start.elapsed() > patience => return Err("hung"),
                Err(RecvTimeoutError::Timeout) if peak_bytes(&process, "VmRSS:") > MOST_BYTES => {
                    return Err("bloated");
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug, Default)]
struct Report {
    next: u64,
    counts: BTreeMap<String, u64>,
    bad: usize,
}

/// Distributes the seeds over child processes and counts the results. Returns the number of models with a defect.
fn supervise(arguments: &Arguments) -> Result<usize, String> {
    let report = Mutex::new(Report { next: arguments.seeds.0, ..Report::default() });
    std::thread::scope(|scope| {
        let jobs: Vec<_> =
            (0..arguments.jobs.max(1)).map(|_| scope.spawn(|| serve(arguments, &report))).collect();
        jobs.into_iter().try_for_each(|job| job.join().unwrap_or_else(|_| Err("a job panicked".into())))
    })?;
    let report = report.into_inner().map_err(|e| e.to_string())?;
    let counts: Vec<String> = report.counts.iter().map(|(class, n)| format!("{n} {class}")).collect();
    println!("seeds {}..{}: {}", arguments.seeds.0, arguments.seeds.1, counts.join(", "));
    Ok(report.bad)
}

fn serve(arguments: &Arguments, report: &Mutex<Report>) -> Result<(), String> {
    let lock = || report.lock().map_err(|e| e.to_string());
    let patience = HANG * if arguments.unchanged { 10 } else { 1 };
    loop {
        let mut worker = Worker::start(arguments)?;
        for _ in 0..BATCH {
            let seed = {
                let mut report = lock()?;
                report.next += 1;
                report.next - 1
            };
            if seed >= arguments.seeds.1 {
                return Ok(());
            }
            let answer = worker.ask(seed, patience);
            let line = answer.clone().unwrap_or_else(|why| format!("{why}\t0\t0\t"));
            let mut fields = line.splitn(4, '\t');
            let mut field = || fields.next().unwrap_or_default();
            let (mut class, seconds, bytes, message) = (field(), field(), field(), field());
            let known = Class::ALL.into_iter().find(|c| c.name() == class);
            let mut bad = class != "skipped" && known.is_none_or(Class::is_defect);
            if !bad && !arguments.unchanged && seconds.parse().unwrap_or(0.0) > SECONDS {
                (class, bad) = ("slow", true);
            } else if !bad && bytes.parse().unwrap_or(0) > BYTES {
                (class, bad) = ("large", true);
            }
            let mut report = lock()?;
            *report.counts.entry(class.to_string()).or_default() += 1;
            report.bad += usize::from(bad);
            if bad || arguments.all {
                println!(
                    "seed {seed}: {class} ({seconds} s, {} MiB) {message}",
                    bytes.parse().unwrap_or(0u64) >> 20
                );
            }
            drop(report);
            if answer.is_err() {
                break;
            }
        }
    }
}
