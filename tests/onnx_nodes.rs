//! Runs the official ONNX operator tests: each model is compiled and run on the device.
//!
//! `onnx_nodes.txt` lists the passing tests, `onnx_nodes_refused.txt` the refused tests with their reasons. A test that is
//! missing from its list, or refused for another reason, fails. `DRIFT_BLESS=1` rewrites the lists. A test with a wrong result,
//! a panic or an internal error belongs to no list. `tests/setup.sh` writes the tests to the folder `DRIFT_ONNX_NODE_DATA`.
//!
//! Small integer inputs, such as the shape of a Reshape, decide sizes, which the compiler must know. If a model does not compile
//! otherwise, these inputs become constants at compile time, and only the other inputs are given at run time. The list marks such
//! tests as `pinned`.
//!
//! A test with `_expanded` in its name expresses an operator by several other operators, which have their own tests. By default
//! only the CPU reference evaluates its lowered graph. With DRIFT_TEST_SCOPE=full the device runs it too, which takes a
//! software driver minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use drift_tests::compare::{Tolerance, compare};
use drift_tests::device;
use drift_tests::settings::{self, Scope};
use driftc::Error;
use driftc::compile::{self, Lowered};
use driftc::import::onnx;
use driftc::ir::array::Array;
use driftc::ir::eval;
use driftc::ir::graph::Graph;
use driftc::ir::tensor::DType;
use libtest_mimic::{Arguments, Trial};

const PASSING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/onnx_nodes.txt");
const REFUSED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/onnx_nodes_refused.txt");

/// Outcome of an ONNX operator test.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// The model compiles and its results are right.
    Pass {
        /// True if some inputs had to become constants at compile time.
        pinned: bool,
    },
    /// The compiler refuses the model and says why.
    Refused(String),
    /// A wrong result, a panic or an internal error.
    Wrong(String),
}

impl Outcome {
    /// Returns the line of this outcome in the list of passing or refused tests, or `None` for a wrong outcome.
    fn line(&self, name: &str) -> Option<String> {
        match self {
            Self::Pass { pinned: false } => Some(name.to_string()),
            Self::Pass { pinned: true } => Some(format!("{name} pinned")),
            Self::Refused(reason) => Some(format!("{name}: {reason}")),
            Self::Wrong(_) => None,
        }
    }
}

/// Reads a list of tests; returns its lines by the test name at their start.
fn listed(path: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let name = |line: &str| line.split([' ', ':']).next().unwrap_or_default().to_string();
    text.lines().map(|line| (name(line), line.to_string())).collect()
}

fn main() {
    let arguments = Arguments::from_args();
    let data = settings::onnx_node_data();
    let cases = cases(&data);
    if settings::bless() && !cases.is_empty() {
        bless(&cases);
    }
    let (passing, refused) = (listed(PASSING), listed(REFUSED));
    let mut trials = vec![Trial::test("data_is_there", {
        let n_cases = cases.len();
        let data = data.clone();
        move || {
            if n_cases == 0 {
                return Err(format!(
                    "there are no ONNX operator tests in `{}`: run `make setup`",
                    data.display()
                )
                .into());
            }
            Ok(())
        }
    })];
    let known: BTreeSet<String> = cases.iter().map(|c| c.name.clone()).collect();
    for name in passing.keys().chain(refused.keys()).filter(|n| !known.contains(*n)) {
        let reason = format!("`{name}` is in a list, but there is no ONNX operator test of this name");
        trials.push(Trial::test(name.clone(), move || Err(reason.into())));
    }
    let (expected, others): (Vec<Case>, Vec<Case>) =
        cases.into_iter().partition(|c| passing.contains_key(&c.name));
    for case in expected {
        let line = passing.get(&case.name).cloned().unwrap_or_default();
        trials
            .push(Trial::test(case.name.clone(), move || as_listed(&case, Some(&line)).map_err(Into::into)));
    }
    trials.push(Trial::test("the_others_are_refused_for_the_listed_reasons", move || {
        let check = |case: Case| as_listed(&case, refused.get(&case.name).map(String::as_str)).err();
        let wrong: Vec<String> = others.into_iter().filter_map(check).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
    }));
    libtest_mimic::run(&arguments, trials).exit();
}

/// Runs an operator test and compares its outcome with its line in a list.
fn as_listed(case: &Case, line: Option<&str>) -> Result<(), String> {
    let outcome = run(case);
    match outcome.line(&case.name) {
        Some(now) if line == Some(now.as_str()) => Ok(()),
        Some(now) => Err(format!(
            "the line of this test in the list must be `{now}`, not `{}`; DRIFT_BLESS=1 rewrites the lists",
            line.unwrap_or("")
        )),
        None => Err(format!("{}: {outcome:?}", case.name)),
    }
}

/// ONNX operator test: a model with its inputs and expected outputs.
#[derive(Debug, Clone)]
struct Case {
    name: String,
    model: PathBuf,
    data: Data,
}

/// Source of a test's inputs and expected outputs.
#[derive(Debug, Clone)]
enum Data {
    /// Folders with inputs and outputs as serialized tensors.
    Sets(Vec<PathBuf>),
    /// File of the expected output. The n elements of the input are 0, 1/n, 2/n and so on.
    Ramp(PathBuf),
}

/// Place where the lowered graph of a test runs: the device or the CPU reference.
#[derive(Debug, Clone, Copy)]
enum Place {
    Device,
    Reference,
}

impl Case {
    fn place(&self) -> Place {
        let everywhere = Scope::from_environment().is_full();
        if self.name.contains("_expanded") && !everywhere { Place::Reference } else { Place::Device }
    }
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

/// Runs every operator test on two threads, and rewrites the lists of passing and refused tests.
fn bless(cases: &[Case]) {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(String, Outcome)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run(case);
                    if let Ok(mut results) = results.lock() {
                        results.push((case.name.clone(), outcome));
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_default();
    results.sort_by(|a, b| a.0.cmp(&b.0));
    let lines = |wanted: fn(&Outcome) -> bool| -> Vec<String> {
        results.iter().filter(|(_, o)| wanted(o)).filter_map(|(n, o)| o.line(n)).collect()
    };
    let passing = lines(|o| matches!(o, Outcome::Pass { .. }));
    let refused = lines(|o| matches!(o, Outcome::Refused(_)));
    for (path, list) in [(PASSING, &passing), (REFUSED, &refused)] {
        if let Err(e) = std::fs::write(path, list.join("\n") + "\n") {
            panic!("{path}: {e}");
        }
    }
    let pinned = results.iter().filter(|(_, o)| *o == Outcome::Pass { pinned: true }).count();
    eprintln!(
        "{} of {} operator tests pass, {pinned} of them with some inputs as constants; {} are refused",
        passing.len(),
        cases.len(),
        refused.len()
    );
}

fn run(case: &Case) -> Outcome {
    let outcome = std::panic::catch_unwind(|| run_case(case));
    outcome.unwrap_or_else(|_| Ok(Outcome::Wrong("it panics".into()))).unwrap_or_else(Outcome::Wrong)
}

/// Runs an operator test and returns its outcome. Wrong results are errors.
fn run_case(case: &Case) -> Result<Outcome, String> {
    let bytes = std::fs::read(&case.model).map_err(|e| e.to_string())?;
    let (names, outputs) = names(&bytes)?;
    let first = names.first().map_or("", String::as_str);
    let mut pinned = false;
    match &case.data {
        Data::Sets(sets) => {
            for set in sets {
                let data =
                    tensors(set, "input", &names).and_then(|i| Ok((i, tensors(set, "output", &outputs)?)));
                let (inputs, wanted) = match data {
                    Ok(data) => data,
                    // An array that the test cannot represent belongs to no imported model.
                    Err(reason) => {
                        return match onnx::load_bytes(bytes.into(), &onnx::Options::default()) {
                            Ok(_) => Err(format!("the test's inputs or outputs cannot be read: {reason}")),
                            Err(error) => refused(&error),
                        };
                    }
                };
                match run_set(&bytes, first, &inputs, &wanted, case.place())? {
                    Outcome::Pass { pinned: now } => pinned |= now,
                    other => return Ok(other),
                }
            }
            Ok(Outcome::Pass { pinned })
        }
        Data::Ramp(output) => {
            let imported = match onnx::load_bytes(bytes.clone().into(), &onnx::Options::default()) {
                Ok(imported) => imported,
                Err(error) => return refused(&error),
            };
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
            run_set(&bytes, first, &inputs, &wanted, case.place())
        }
    }
}

/// Returns the outcome of a refused model, with the first line of the error as its reason. Returns an error if the
/// compiler reported an internal error.
fn refused(error: &Error) -> Result<Outcome, String> {
    let reason = match error {
        Error::Unsupported { nodes } => match nodes.first() {
            Some(node) => format!("{}: {}", node.operator, node.reason),
            None => error.to_string(),
        },
        Error::Model { place, reason, .. } => format!("{place}: {reason}"),
        Error::Internal { .. } => return Err(error.to_string()),
        other => other.to_string(),
    };
    Ok(Outcome::Refused(reason.lines().next().unwrap_or_default().to_string()))
}

fn run_set(
    model: &[u8],
    first: &str,
    inputs: &BTreeMap<String, Array>,
    wanted: &BTreeMap<String, Array>,
    place: Place,
) -> Result<Outcome, String> {
    let shapes = |given: &BTreeMap<String, Array>| -> BTreeMap<String, Vec<i64>> {
        given.iter().map(|(n, a)| (n.clone(), a.shape.iter().map(|d| *d as i64).collect())).collect()
    };
    let (mut constants, mut rest): (BTreeMap<String, Array>, BTreeMap<String, Array>) =
        inputs.clone().into_iter().partition(|(_, a)| decides_sizes(a));
    // The first operand stays an input, so that the device computes something.
    if rest.is_empty() && inputs.len() > 1 {
        rest.extend(constants.remove_entry(first));
    }
    let attempts = [
        onnx::Options::default(),
        onnx::Options { input_shapes: shapes(inputs), ..onnx::Options::default() },
        onnx::Options { input_shapes: shapes(&rest), constants, ..onnx::Options::default() },
    ];
    let mut last = Outcome::Refused(String::new());
    for (i, options) in attempts.iter().enumerate() {
        if i > 0 && options.constants.len() == inputs.len() {
            break;
        }
        let compiled = onnx::load_bytes(model.to_vec().into(), options).and_then(|imported| {
            let lowered = compile::lower(&imported.graph, &device::target(), &compile::Options::default())?;
            Ok((imported.graph, lowered))
        });
        match compiled {
            Ok((graph, lowered)) => {
                check(&graph, lowered, inputs, wanted, place)?;
                return Ok(Outcome::Pass { pinned: i > 0 });
            }
            Err(error) => last = refused(&error)?,
        }
    }
    Ok(last)
}

/// Runs the lowered graph of a test and compares its outputs with the expected outputs.
fn check(
    graph: &Graph,
    lowered: Lowered,
    inputs: &BTreeMap<String, Array>,
    wanted: &BTreeMap<String, Array>,
    place: Place,
) -> Result<(), String> {
    let used: BTreeSet<String> =
        graph.inputs().iter().filter_map(|id| Some(graph.input(*id)?.name.clone())).collect();
    let inputs: BTreeMap<String, Array> =
        inputs.iter().filter(|(n, _)| used.contains(*n)).map(|(n, a)| (n.clone(), a.clone())).collect();
    let got = match place {
        Place::Device => {
            device::run_lowered(&device::target(), lowered, &compile::Options::default(), &inputs)?
        }
        Place::Reference => eval::eval(&lowered.graph, &inputs).map_err(|e| e.to_string())?,
    };
    for (name, got) in &got {
        if let Some(want) = wanted.get(name) {
            compare(name, got, want, Tolerance::of_operator(want.dtype))?;
        }
    }
    if got.len() < wanted.len() {
        return Err("an output is missing".into());
    }
    Ok(())
}

/// True if an input may decide sizes: it is a small integer tensor, as shapes, axes and counts are, or a short list of floats,
/// such as the scales of a Resize.
fn decides_sizes(array: &Array) -> bool {
    array.shape.len() <= 1
        && array.len() <= 16
        && (matches!(array.dtype, DType::I64 | DType::I32) || array.len() <= 8)
}

/// Returns the names of a model's inputs that are not initializers, and of its outputs.
fn names(bytes: &[u8]) -> Result<(Vec<String>, Vec<String>), String> {
    use prost::Message;
    let model = onnx::schema::ModelProto::decode(bytes).map_err(|e| e.to_string())?;
    let graph = model.graph.ok_or("no graph")?;
    let constants: BTreeSet<&str> = graph.initializer.iter().map(|t| t.name()).collect();
    let inputs =
        graph.input.iter().map(|i| i.name()).filter(|n| !constants.contains(n)).map(str::to_string).collect();
    Ok((inputs, graph.output.iter().map(|o| o.name().to_string()).collect()))
}

/// Reads the serialized tensors `KIND_i.pb` of a test's folder, where KIND is `input` or `output`. Tensor i belongs to input or
/// output i.
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
