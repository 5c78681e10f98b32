//! Program that prints hashes of the shaders and plans that the compiler emits, or the text that a hash stands for.
//!
//! `emission FOLDER... [--target NAME]... [--f16]` prints lines in the form of `tests/emission.txt` for the plans of ONNX files
//! and of folders that contain a `model.onnx`. `emission --text NAME PROFILE [--f16]` prints the hashed text of a kernel's
//! cases or of a model.

use std::path::PathBuf;
use std::process::ExitCode;

use drift_tests::emission::{candidates_of_cases, import, lines, model, model_hash, models};
use driftc::kernels::KERNELS;
use driftc::passes::Precision;
use driftc::target::{TargetProfile, names};
use rayon::prelude::*;

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the program with its arguments. Returns true if every model could be compiled and hashed.
fn run(mut arguments: Vec<String>) -> Result<bool, String> {
    let half = arguments.iter().any(|a| a == "--f16");
    arguments.retain(|a| a != "--f16");
    let precision = if half { Precision::F16 } else { Precision::F32 };
    let mut targets: Vec<String> = Vec::new();
    while let Some(at) = arguments.iter().position(|a| a == "--target") {
        targets.extend(arguments.drain(at..arguments.len().min(at + 2)).skip(1));
    }
    let load = |name: &str| TargetProfile::load(name).map_err(|e| e.to_string());
    if let [first, name, profile] = arguments.as_slice()
        && first == "--text"
    {
        let mut text = String::new();
        let target = load(profile)?;
        if KERNELS.iter().any(|kernel| kernel.name == name) {
            candidates_of_cases(&target, &mut |kernel, candidate| {
                if kernel == name {
                    text += candidate;
                }
            })?;
        } else {
            let found = models(&[PathBuf::from(name)]).into_iter().next();
            let (_, path) = found
                .ok_or_else(|| format!("`{name}` is neither the name of a kernel nor the path of a model"))?;
            model(&import(&path)?, &target, precision, &mut text)?;
        }
        print!("{text}");
        return Ok(true);
    }
    if targets.is_empty() {
        targets = names().map(str::to_owned).collect();
    }
    let targets = targets.iter().map(|name| load(name)).collect::<Result<Vec<_>, _>>()?;
    let mut whole = true;
    let paths: Vec<PathBuf> = arguments.iter().map(PathBuf::from).collect();
    for (name, path) in models(&paths) {
        // One model at a time: some are large.
        let mut failures = Vec::new();
        let text = match import(&path) {
            Ok(graph) => {
                let hashes: Vec<Result<String, String>> =
                    targets.par_iter().map(|target| model_hash(&graph, target, precision)).collect();
                failures.extend(hashes.iter().filter_map(|hash| hash.as_ref().err().cloned()));
                let cell = |i: usize| hashes[i].clone().unwrap_or_else(|_| "failed".into());
                lines([name.as_str()], &targets, |_, i| Some(cell(i)))
            }
            Err(e) => {
                failures.push(e);
                String::new()
            }
        };
        print!("{text}");
        for failure in &failures {
            whole = false;
            println!("{name}: {}", failure.lines().next().unwrap_or_default());
        }
    }
    Ok(whole)
}
