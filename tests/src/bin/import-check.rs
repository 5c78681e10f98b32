//! Program that imports stored ONNX models, evaluates them on the CPU reference and compares the results with the stored outputs.
//!
//! `import-check [--symbolic | --load] FOLDER...` prints one line per folder. With `--symbolic` the declared symbols
//! stay symbols, within the default bounds, and are bound only when the graph is evaluated; `--same=A=B` declares
//! symbol A equal to symbol B. With `--load` the model is only imported, and with `--mutate=N` the model is imported N times with
//! some of its bytes changed, which must not panic.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use drift_tests::compare::{Tolerance, compare};
use drift_tests::stored;
use driftc::Error;
use driftc::import::onnx::schema::tensor_shape_proto::dimension;
use driftc::import::onnx::schema::{ModelProto, type_proto};
use driftc::import::onnx::{self, DimSpec, Options};
use driftc::ir::array::Data;
use driftc::ir::dim::Dim;
use driftc::ir::eval::eval;
use prost::Message;

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
            dims.insert(a.to_string(), DimSpec::Is(Dim::symbol(b)));
        }
        if let Some(n) = argument.strip_prefix("--mutate=").and_then(|n| n.parse().ok()) {
            mode = Mode::Mutate(n);
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
    Mutate(u64),
}

const EXTREMES: [i64; 12] = [0, 1, -1, 2, 3, 7, 64, 1 << 20, 1 << 31, i64::MAX, i64::MIN, -2];

/// Replaces one random integer of the model (in attributes, constants or shapes) by an extreme number.
fn disturb(model: &mut ModelProto, random: &mut dyn FnMut(usize) -> usize) {
    let value = EXTREMES[random(EXTREMES.len())];
    let Some(graph) = &mut model.graph else { return };
    let mut places: Vec<&mut i64> = Vec::new();
    for node in &mut graph.node {
        for attribute in &mut node.attribute {
            places.extend(attribute.ints.iter_mut().chain(attribute.i.as_mut()));
            places.extend(attribute.t.iter_mut().flat_map(|t| t.int64_data.iter_mut().chain(&mut t.dims)));
        }
    }
    for tensor in &mut graph.initializer {
        places.extend(tensor.int64_data.iter_mut().chain(&mut tensor.dims));
    }
    for info in &mut graph.input {
        let tensor = info.r#type.as_mut().and_then(|t| t.value.as_mut());
        if let Some(type_proto::Value::TensorType(tensor)) = tensor {
            let dims = tensor.shape.iter_mut().flat_map(|s| &mut s.dim);
            places.extend(dims.filter_map(|d| match &mut d.value {
                Some(dimension::Value::DimValue(v)) => Some(v),
                _ => None,
            }));
        }
    }
    let n = places.len();
    if n > 0 {
        *places.swap_remove(random(n)) = value;
    }
}

/// Imports a model `n` times, each time with other random changes of its bytes or numbers. Fails if the importer panics or
/// takes more than 5 s.
fn mutate(folder: &Path, n: u64) -> Result<usize, (usize, String)> {
    let original = std::fs::read(folder.join("model.onnx")).map_err(|e| (3, e.to_string()))?;
    let mut small = stored::read(folder).map(|c| c.inputs).unwrap_or_default();
    small.retain(|_, a| a.shape.len() <= 1 && a.len() <= 64);
    for seed in 1..=n {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % (below.max(1) as u64)).unwrap_or(0)
        };
        let mut bytes = original.clone();
        if seed % 2 == 0
            && let Ok(mut model) = ModelProto::decode(original.as_slice())
        {
            disturb(&mut model, &mut random);
            bytes = model.encode_to_vec();
        }
        for _ in 0..if seed % 2 == 0 { 0 } else { 1 + random(4) } {
            let at = random(bytes.len());
            match random(4) {
                0 => bytes[at] ^= 1 << random(8),
                1 => bytes[at] = [0, 1, 2, 127, 128, 255][random(6)],
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, [0, 1, 8, 16, 127, 255][random(6)]),
            }
        }
        let mut options = Options::default();
        if seed % 3 == 0 {
            options.constants = small.clone();
            for array in options.constants.values_mut() {
                if let Data::Int(values) = &mut array.data
                    && !values.is_empty()
                {
                    let at = random(values.len());
                    values[at] = EXTREMES[random(EXTREMES.len())];
                }
            }
        }
        let import = || onnx::load_bytes(bytes.clone().into(), &options).map(|m| m.graph.len());
        let start = std::time::Instant::now();
        if std::panic::catch_unwind(import).is_err() {
            return Err((1, format!("seed {seed} panics")));
        }
        if start.elapsed().as_secs() > 5 {
            return Err((1, format!("seed {seed} takes {:?}", start.elapsed())));
        }
    }
    Ok(0)
}

/// Checks the model in a folder. Returns its number of nodes, or the kind of failure with a message: 1 for a wrong result, 2
/// for a refused model, 3 for an unreadable case.
fn check(folder: &Path, mode: Mode, dims: &BTreeMap<String, DimSpec>) -> Result<usize, (usize, String)> {
    if let Mode::Mutate(n) = mode {
        return mutate(folder, n);
    }
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
    // Axes, shapes and similar inputs are operands in ONNX; inputs that the model needs at compile time become constants.
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
