//! Program that counts how many official ONNX operator tests pass without any option: `driftc compile` on the model file, then
//! `driftc run` with the inputs as `.npy` files.
//!
//! `nodes-cli DRIFTC FOLDER...` runs the program at `DRIFTC` on the model of each folder, two at a time, and prints the outcome
//! of each test and the number of passing tests. No size and no input is given at compile time.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use drift_tests::compare::{Tolerance, compare};
use drift_tests::stored;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(driftc) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: nodes-cli DRIFTC FOLDER...");
        return ExitCode::FAILURE;
    };
    let folders: Vec<String> = arguments.collect();
    let next = AtomicUsize::new(0);
    let lines: Mutex<Vec<(String, Result<(), String>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = run(&driftc, Path::new(folder));
                    if let Ok(mut lines) = lines.lock() {
                        lines.push((folder.clone(), result));
                    }
                }
            });
        }
    });
    let mut lines = lines.into_inner().unwrap_or_default();
    lines.sort();
    for (folder, result) in &lines {
        match result {
            Ok(()) => println!("pass {folder}"),
            Err(reason) => println!("FAIL {folder}: {reason}"),
        }
    }
    let passing = lines.iter().filter(|(_, r)| r.is_ok()).count();
    println!("{passing} of {} pass", folders.len());
    ExitCode::SUCCESS
}

fn run(driftc: &Path, folder: &Path) -> Result<(), String> {
    let case = stored::read(folder)?;
    let scratch = tempfile::tempdir().map_err(|e| e.to_string())?;
    let (bundle, out) = (scratch.path().join("model.drift"), scratch.path().join("out"));
    call(Command::new(driftc).arg("compile").arg(&case.model).args(["-t", "lavapipe", "-o"]).arg(&bundle))?;
    let mut command = Command::new(driftc);
    command.arg("run").arg(&bundle).arg("--positional").arg("--output-dir").arg(&out);
    for (i, name) in case.order.iter().enumerate() {
        let Some(array) = case.inputs.get(name) else { continue };
        let file = scratch.path().join(format!("{i}.npy"));
        stored::write_npy(&file, array)?;
        command.arg("--input").arg(format!("{name}={}", file.display()));
    }
    call(&mut command)?;
    for (i, (name, want)) in case.outputs.iter().enumerate() {
        let got = stored::npy(&out.join(format!("output_{i}.npy")))?;
        // A file has no bf16.
        let got = if got.dtype == want.dtype { got } else { got.cast(want.dtype) };
        compare(name, &got, want, Tolerance::of_operator(want.dtype))?;
    }
    Ok(())
}

/// Runs a command. If it fails, returns the first two lines of its error output as an error.
fn call(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| e.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = text.lines().filter(|l| !l.contains("note:")).take(2).map(str::trim).collect();
    Err(lines.join(" / "))
}
