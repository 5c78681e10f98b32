//! Imports stored models, evaluates them on the host and compares with the stored outputs.
//!
//! `import-check [--symbolic] FOLDER...` prints one line per folder. With `--symbolic` the declared symbols stay
//! symbols, bounded by 1..=4096, and are bound only when the graph is evaluated.

use std::path::Path;
use std::process::ExitCode;

use drift_tests::compare::{Tolerance, compare};
use drift_tests::stored;
use driftc::Error;
use driftc::import::onnx::{self, Options};
use driftc::ir::eval::eval;

fn main() -> ExitCode {
    let mut symbolic = false;
    let mut counts = [0usize; 4];
    for argument in std::env::args().skip(1) {
        if argument == "--symbolic" {
            symbolic = true;
            continue;
        }
        let folder = Path::new(&argument);
        let name = folder.file_name().map_or(argument.clone(), |n| n.to_string_lossy().into_owned());
        let (kind, line) = match check(folder, symbolic) {
            Ok(nodes) => (0, format!("pass {name} ({nodes} nodes)")),
            Err((kind, reason)) => {
                (kind, format!("{} {name}: {}", ["pass", "FAIL", "refused", "skip"][kind], reason))
            }
        };
        counts[kind] += 1;
        println!("{}", line.replace('\n', "\n    "));
    }
    println!("{} pass, {} fail, {} refused, {} skipped", counts[0], counts[1], counts[2], counts[3]);
    if counts[1] == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The number of nodes, or what went wrong: 1 a wrong result, 2 a refusal, 3 a case that cannot be read.
fn check(folder: &Path, symbolic: bool) -> Result<usize, (usize, String)> {
    let case = stored::read(folder).map_err(|e| (3, e))?;
    let mut options = Options { default_range: (1, 4096), ..Options::default() };
    if !symbolic {
        let sizes = |s: &[usize]| s.iter().map(|d| *d as i64).collect();
        options.input_shapes = case.inputs.iter().map(|(n, a)| (n.clone(), sizes(&a.shape))).collect();
    }
    let model = onnx::load(&case.model, &options).map_err(|e| match e {
        Error::Unsupported { .. } => (2, e.to_string()),
        other => (1, other.to_string()),
    })?;
    let results = eval(&model.graph, &case.inputs).map_err(|e| (1, format!("eval: {e}")))?;
    if results.len() != case.outputs.len() {
        return Err((1, format!("{} outputs instead of {}", results.len(), case.outputs.len())));
    }
    for ((_, got), (name, want)) in results.iter().zip(&case.outputs) {
        let tolerance =
            if want.dtype.bytes() == 2 && want.dtype.is_float() { Tolerance::F16 } else { Tolerance::F32 };
        compare(name, got, want, tolerance).map_err(|e| (1, e))?;
    }
    Ok(model.graph.len())
}
