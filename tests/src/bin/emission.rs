//! Hashes of what is emitted for models outside of the repository, and the text behind any hash.
//!
//! `emission FOLDER... [--target NAME]... [--f16]` prints a table as `tests/emission.txt` is one, for ONNX files, folders
//! with a `model.onnx`, and folders of such. `emission --text NAME PROFILE [--f16]` prints what is hashed for a kernel's
//! cases or for one such model.

use std::path::PathBuf;
use std::process::ExitCode;

use drift_tests::emission::{candidates_of_cases, import, model, model_hash, models, table};
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

/// Whether everything could be hashed.
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
            let (_, path) = found.ok_or_else(|| format!("`{name}` is no kernel and no model"))?;
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
    for (row, (name, path)) in models(&paths).into_iter().enumerate() {
        // One model at a time: some are large.
        let mut failures = Vec::new();
        let text = match import(&path) {
            Ok(graph) => {
                let hashes: Vec<Result<String, String>> =
                    targets.par_iter().map(|target| model_hash(&graph, target, precision)).collect();
                failures.extend(hashes.iter().filter_map(|hash| hash.as_ref().err().cloned()));
                table([name.as_str()], &targets, |_, i| hashes[i].clone().unwrap_or_else(|_| "failed".into()))
            }
            Err(e) => {
                failures.push(e);
                String::new()
            }
        };
        let skipped = usize::from(row > 0);
        text.lines().skip(skipped).for_each(|line| println!("{line}"));
        for failure in &failures {
            whole = false;
            println!("{name}: {}", failure.lines().next().unwrap_or_default());
        }
    }
    Ok(whole)
}
