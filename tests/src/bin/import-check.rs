//! Imports stored models, evaluates them on the host and compares with the stored outputs.
//!
//! `import-check [--symbolic | --load] FOLDER...` prints one line per folder. With `--symbolic` the declared symbols
//! stay symbols, within the default bounds, and are bound only when the graph is evaluated; `--same=A=B` makes one
//! equal another. With `--load` the model is only imported.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use drift_tests::compare::{Tolerance, compare};
use drift_tests::stored;
use driftc::Error;
use driftc::import::onnx::{self, DimSpec, Options};
use driftc::ir::eval::eval;

fn main() -> ExitCode {
    let mut mode = Mode::Concrete;
    let mut dims = BTreeMap::new();
    let mut counts = [0usize; 4];
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--symbolic" => mode = Mode::Symbolic,
            "--load" => mode = Mode::Load,
            _ => {}
        }
        if let Some((a, b)) = argument.strip_prefix("--same=").and_then(|a| a.split_once('=')) {
            dims.insert(a.to_string(), DimSpec::Same(b.to_string()));
        }
        if argument.starts_with("--") {
            continue;
        }
        let folder = Path::new(&argument);
        let name = folder.file_name().map_or(argument.clone(), |n| n.to_string_lossy().into_owned());
        let (kind, line) = match check(folder, mode, &dims) {
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Concrete,
    Symbolic,
    Load,
}

/// The number of nodes, or what went wrong: 1 a wrong result, 2 a refusal, 3 a case that cannot be read.
fn check(folder: &Path, mode: Mode, dims: &BTreeMap<String, DimSpec>) -> Result<usize, (usize, String)> {
    if mode == Mode::Load {
        let model = onnx::load(&folder.join("model.onnx"), &Options::default());
        return model.map(|m| m.graph.len()).map_err(|e| match e {
            Error::Unsupported { .. } => (2, e.to_string()),
            other => (1, other.to_string()),
        });
    }
    let case = stored::read(folder).map_err(|e| (3, e))?;
    let mut options = Options { dims: dims.clone(), ..Options::default() };
    if mode == Mode::Concrete {
        let sizes = |s: &[usize]| s.iter().map(|d| *d as i64).collect();
        options.input_shapes = case.inputs.iter().map(|(n, a)| (n.clone(), sizes(&a.shape))).collect();
    }
    let mut attempt = onnx::load(&case.model, &options);
    // Axes, shapes and the like are operands in ONNX; what the model cannot be compiled without becomes constant.
    for first in [1, 0] {
        if matches!(attempt, Err(Error::Unsupported { .. })) && mode == Mode::Concrete {
            let small = case.order.iter().skip(first).filter_map(|n| case.inputs.get_key_value(n));
            options.constants = small
                .filter(|(_, a)| a.shape.len() <= 1 && a.len() <= 64)
                .map(|(n, a)| (n.clone(), a.clone()))
                .collect();
            options.input_shapes.retain(|n, _| !options.constants.contains_key(n));
            if let Ok(model) = onnx::load(&case.model, &options) {
                attempt = Ok(model);
            }
        }
    }
    let model = attempt.map_err(|e| match e {
        Error::Unsupported { .. } => (2, e.to_string()),
        other => (1, other.to_string()),
    })?;
    let mut inputs = case.inputs;
    inputs.retain(|n, _| !options.constants.contains_key(n));
    let results = eval(&model.graph, &inputs).map_err(|e| (1, format!("eval: {e}")))?;
    if results.len() != case.outputs.len() {
        return Err((1, format!("{} outputs instead of {}", results.len(), case.outputs.len())));
    }
    for ((_, got), (name, want)) in results.iter().zip(&case.outputs) {
        let half = folder.to_string_lossy().contains("fp16") || want.dtype.bytes() == 2;
        let tolerance = if half { Tolerance::F16 } else { Tolerance::F32 };
        compare(name, got, want, tolerance).map_err(|e| (1, e))?;
    }
    Ok(model.graph.len())
}
