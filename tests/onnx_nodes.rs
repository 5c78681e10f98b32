//! The ONNX project's own backend tests, compiled and run on the device.
//!
//! `onnx_nodes.txt` lists the tests that pass. A listed test that fails is a failure, and so is a test that passes
//! without being listed, so the list is always true; `DRIFT_BLESS=1` rewrites it. The data come with the Python
//! package `onnx`; `DRIFT_ONNX_NODE_DATA` names the folder `onnx/backend/test/data`.
//!
//! Small integer inputs such as the shape of a Reshape decide sizes, which an ahead-of-time compiler must know; where
//! a model cannot be compiled otherwise they are given at compile time, while the data still come at run time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use drift_tests::compare::{Tolerance, compare};
use drift_tests::device;
use driftc::compile;
use driftc::import::onnx;
use driftc::ir::array::Array;
use driftc::ir::tensor::DType;
use libtest_mimic::{Arguments, Trial};

const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/onnx_nodes.txt");

fn main() {
    let arguments = Arguments::from_args();
    let data = PathBuf::from(std::env::var("DRIFT_ONNX_NODE_DATA").unwrap_or_default());
    let cases = cases(&data);
    if std::env::var_os("DRIFT_BLESS").is_some() && !cases.is_empty() {
        bless(&cases);
    }
    let listed: BTreeSet<String> =
        std::fs::read_to_string(LIST).unwrap_or_default().lines().map(str::to_string).collect();
    let mut trials = vec![Trial::test("data_is_there", {
        let n_cases = cases.len();
        let data = data.clone();
        move || {
            if n_cases == 0 {
                return Err(format!("no tests in `{}`: run `make setup`", data.display()).into());
            }
            Ok(())
        }
    })];
    let (expected, others): (Vec<Case>, Vec<Case>) =
        cases.into_iter().partition(|c| listed.contains(&c.name));
    let known: BTreeSet<&str> = expected.iter().map(|c| c.name.as_str()).collect();
    for gone in listed.iter().filter(|n| !known.contains(n.as_str())) {
        let name = gone.clone();
        trials.push(Trial::test(gone.clone(), move || {
            Err(format!("`{name}` is listed but there is no such test").into())
        }));
    }
    for case in expected {
        trials.push(Trial::test(case.name.clone(), move || run(&case).map_err(Into::into)));
    }
    trials.push(Trial::test("unlisted_tests_do_not_pass", move || {
        let passing: Vec<String> = others.into_iter().filter(|c| run(c).is_ok()).map(|c| c.name).collect();
        if passing.is_empty() {
            return Ok(());
        }
        Err(format!("these pass and must be listed (DRIFT_BLESS=1 does it): {}", passing.join(", ")).into())
    }));
    libtest_mimic::run(&arguments, trials).exit();
}

/// A test: a model with its inputs and outputs.
#[derive(Debug, Clone)]
struct Case {
    name: String,
    model: PathBuf,
    data: Data,
}

/// Where inputs and outputs come from.
#[derive(Debug, Clone)]
enum Data {
    /// Folders of serialized tensors.
    Sets(Vec<PathBuf>),
    /// One output; the input is 0, 1/n, 2/n, ...
    Ramp(PathBuf),
}

fn cases(data: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for folder in children(&data.join("node")) {
        let sets: Vec<PathBuf> = children(&folder)
            .into_iter()
            .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("test_data_set_")))
            .collect();
        cases.push(Case { name: name(&folder), model: folder.join("model.onnx"), data: Data::Sets(sets) });
    }
    for model in children(&data.join("light")) {
        if model.extension().is_some_and(|e| e == "onnx") {
            let name = name(&model).trim_end_matches(".onnx").to_string();
            let output = model.with_file_name(format!("{name}_output_0.pb"));
            cases.push(Case { name, model, data: Data::Ramp(output) });
        }
    }
    cases
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Runs every case on a few threads and writes the list of those that pass.
fn bless(cases: &[Case]) {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(String, Result<(), String>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = run(case);
                    if let Ok(mut results) = results.lock() {
                        results.push((case.name.clone(), result));
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_default();
    results.sort();
    let passing: Vec<&str> = results.iter().filter(|(_, r)| r.is_ok()).map(|(n, _)| n.as_str()).collect();
    let failing: Vec<String> =
        results.iter().filter_map(|(n, r)| Some(format!("{n}: {}", r.as_ref().err()?))).collect();
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("onnx_nodes_failing.txt");
    let written = std::fs::write(LIST, passing.join("\n") + "\n")
        .and_then(|()| std::fs::write(&log, failing.join("\n")));
    if let Err(e) = written {
        panic!("{LIST}: {e}");
    }
    eprintln!("{} of {} pass; reasons of the others are in {}", passing.len(), cases.len(), log.display());
}

fn run(case: &Case) -> Result<(), String> {
    match std::panic::catch_unwind(|| run_case(case)) {
        Ok(result) => result,
        Err(_) => Err("it panics".into()),
    }
}

fn run_case(case: &Case) -> Result<(), String> {
    let bytes = std::fs::read(&case.model).map_err(|e| e.to_string())?;
    let (names, outputs) = names(&bytes)?;
    match &case.data {
        Data::Sets(sets) => {
            for set in sets {
                let inputs = tensors(set, "input", &names)?;
                let wanted = tensors(set, "output", &outputs)?;
                run_set(&bytes, &inputs, &wanted)?;
            }
            Ok(())
        }
        Data::Ramp(output) => {
            let imported = onnx::load_bytes(bytes.clone().into(), &onnx::Options::default())
                .map_err(|e| e.to_string())?;
            let mut inputs = BTreeMap::new();
            for id in imported.graph.inputs() {
                let input = imported.graph.input(*id).ok_or("an input without a payload")?;
                let shape: Option<Vec<usize>> =
                    input.shape.iter().map(|d| Some(d.as_known().map_or(1, |v| v as usize))).collect();
                let shape = shape.ok_or("a size")?;
                let n: usize = shape.iter().product();
                let values = (0..n).map(|i| (i as f64 / n as f64) as f32).collect();
                inputs.insert(input.name.clone(), Array::f32(&shape, values));
            }
            let want = onnx::tensor(std::fs::read(output).map_err(|e| e.to_string())?.into())
                .map_err(|e| e.to_string())?;
            let wanted = BTreeMap::from([(outputs.first().cloned().unwrap_or_default(), want)]);
            run_set(&bytes, &inputs, &wanted)
        }
    }
}

fn run_set(
    model: &[u8],
    inputs: &BTreeMap<String, Array>,
    wanted: &BTreeMap<String, Array>,
) -> Result<(), String> {
    let shapes = |given: &BTreeMap<String, Array>| -> BTreeMap<String, Vec<i64>> {
        given.iter().map(|(n, a)| (n.clone(), a.shape.iter().map(|d| *d as i64).collect())).collect()
    };
    let plain = onnx::Options { input_shapes: shapes(inputs), ..onnx::Options::default() };
    let (imported, inputs) = match onnx::load_bytes(model.to_vec().into(), &plain) {
        Ok(imported) => (imported, inputs.clone()),
        Err(first) => {
            let (constants, rest): (BTreeMap<String, Array>, BTreeMap<String, Array>) =
                inputs.clone().into_iter().partition(|(_, a)| decides_sizes(a));
            if constants.is_empty() || rest.is_empty() {
                return Err(first.to_string());
            }
            let options =
                onnx::Options { input_shapes: shapes(&rest), constants, ..onnx::Options::default() };
            (onnx::load_bytes(model.to_vec().into(), &options).map_err(|e| e.to_string())?, rest)
        }
    };
    let used: BTreeSet<String> = imported
        .graph
        .inputs()
        .iter()
        .filter_map(|id| Some(imported.graph.input(*id)?.name.clone()))
        .collect();
    let inputs: BTreeMap<String, Array> = inputs.into_iter().filter(|(n, _)| used.contains(n)).collect();
    let got = device::run(&imported.graph, &compile::Options::default(), &inputs)?;
    for (name, got) in &got {
        if let Some(want) = wanted.get(name) {
            compare(name, got, want, Tolerance::F32)?;
        }
    }
    if got.len() < wanted.len() {
        return Err("an output is missing".into());
    }
    Ok(())
}

/// Whether a tensor is small and integer, as shapes, axes and counts are, or a few scales.
fn decides_sizes(array: &Array) -> bool {
    array.shape.len() <= 1
        && array.len() <= 16
        && (matches!(array.dtype, DType::I64 | DType::I32) || array.len() <= 8)
}

/// Names of the inputs that are no initializers, and of the outputs.
fn names(bytes: &[u8]) -> Result<(Vec<String>, Vec<String>), String> {
    use prost::Message;
    let model = onnx::schema::ModelProto::decode(bytes).map_err(|e| e.to_string())?;
    let graph = model.graph.ok_or("no graph")?;
    let constants: BTreeSet<&str> = graph.initializer.iter().map(|t| t.name()).collect();
    let inputs =
        graph.input.iter().map(|i| i.name()).filter(|n| !constants.contains(n)).map(str::to_string).collect();
    Ok((inputs, graph.output.iter().map(|o| o.name().to_string()).collect()))
}

/// The serialized tensors `KIND_i.pb` of a folder by the name of the i-th input or output.
fn tensors(folder: &Path, kind: &str, names: &[String]) -> Result<BTreeMap<String, Array>, String> {
    let mut out = BTreeMap::new();
    for (i, name) in names.iter().enumerate() {
        let path = folder.join(format!("{kind}_{i}.pb"));
        if !path.exists() {
            continue;
        }
        let bytes = std::fs::read(&path).map_err(|e| e.to_string())?;
        out.insert(name.clone(), onnx::tensor(bytes.into()).map_err(|e| e.to_string())?);
    }
    Ok(out)
}
