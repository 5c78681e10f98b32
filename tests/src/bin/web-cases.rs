//! Program that writes bundles for tests in browsers, with inputs and expected outputs:
//! `web-cases OUT TARGET [--f16] [--sample N] [MODEL...]`.
//!
//! Without MODEL it writes the test cases of all kernels, or with `--sample` every N-th case. With MODEL it writes these models
//! with their stored outputs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use drift_tests::web::{Candidates, Job, index};
use driftc::passes::Precision;
use driftc::target::TargetProfile;

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(count) => {
            println!("{count} bundles");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut arguments: Vec<String>) -> Result<usize, String> {
    let half = arguments.iter().any(|a| a == "--f16");
    arguments.retain(|a| a != "--f16");
    let mut which = Candidates::All;
    if let Some(at) = arguments.iter().position(|a| a == "--sample") {
        let step = arguments.get(at + 1).and_then(|n| n.parse().ok()).filter(|n| *n > 0);
        which = Candidates::CheapestOf(step.ok_or("--sample takes a number")?);
        arguments.drain(at..at + 2);
    }
    let [out, target, models @ ..] = arguments.as_slice() else {
        return Err("usage: web-cases OUT TARGET [--f16] [--sample N] [MODEL...]".into());
    };
    let out = Path::new(out);
    std::fs::create_dir_all(out).map_err(|e| e.to_string())?;
    let target = TargetProfile::load(target).map_err(|e| e.to_string())?;
    let job = Job { out, target: &target, precision: if half { Precision::F16 } else { Precision::F32 } };
    let models: Vec<PathBuf> = models.iter().map(PathBuf::from).collect();
    let entries = if models.is_empty() { job.kernels(which)? } else { job.models(&models)? };
    index(out, &entries)?;
    Ok(entries.len())
}
