//! Functions that compile a graph and run it on the test device.

use crate::settings;
use std::collections::BTreeMap;

use drift_runtime::format::HostType;
use drift_runtime::{ArrayRef, Bundle, Session};
use driftc::compile::{self, Lowered, Model};
use driftc::ir::array::Array;
use driftc::ir::dim::Bindings;
use driftc::ir::graph::Graph;
use driftc::ir::ops::constant::random;
use driftc::ir::tensor::DType;
use driftc::target::{MatrixShape, TargetProfile};

/// Returns the target profile for which tests compile: the one that `DRIFT_TEST_TARGET` names, or the software driver's profile.
pub fn target() -> TargetProfile {
    let name = settings::target_name();
    TargetProfile::load(&name).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns the target profile for tests of kernels on matrix units: the profile of the tests if it has cooperative matrices, or
/// else the software driver's profile with matrices if the driver supports them. Returns `None` if no test device has matrix
/// units.
pub fn matrix_target() -> Option<TargetProfile> {
    let target = target();
    if target.features.cooperative_matrix {
        return Some(target);
    }
    let able = TargetProfile::load("lavapipe-matrix").unwrap_or_else(|e| panic!("{e}"));
    let device = drift_runtime::device::probe(None).ok()?;
    let listed = |shape: &MatrixShape| {
        device.matrix_shapes.iter().any(|s| [s.m, s.n, s.k] == [shape.m, shape.n, shape.k])
    };
    let same = target.name == "lavapipe" && able.matrix.first().is_some_and(listed);
    same.then_some(able)
}

/// Compiles a graph for the tests' profile, loads the bundle and runs it once. Returns the outputs in the graph's order.
pub fn run(
    graph: &Graph,
    options: &compile::Options,
    inputs: &BTreeMap<String, Array>,
) -> Result<Vec<(String, Array)>, String> {
    let target = target();
    let lowered = compile::lower(graph, &target, options).map_err(|e| e.to_string())?;
    run_lowered(&target, lowered, options, inputs)
}

/// Writes a lowered graph to a bundle, loads the bundle and runs it once. Returns the outputs.
pub fn run_lowered(
    target: &TargetProfile,
    lowered: Lowered,
    options: &compile::Options,
    inputs: &BTreeMap<String, Array>,
) -> Result<Vec<(String, Array)>, String> {
    run_session(&mut load(target, lowered, options)?, inputs)
}

/// Writes a lowered graph to a bundle and loads the bundle on the test device.
pub fn load(target: &TargetProfile, lowered: Lowered, options: &compile::Options) -> Result<Session, String> {
    let bundle = bundle(target, &[lowered], options)?;
    Session::from_bundle(bundle, &drift_runtime::Options::default()).map_err(|e| e.to_string())
}

/// Returns compile options that let SPIRV-Tools validate every emitted SPIR-V module.
pub fn validated(options: &compile::Options) -> compile::Options {
    compile::Options { finish: Some(drift_spirv_tools::validate), ..options.clone() }
}

/// Writes lowered functions to a bundle for one target, and opens the bundle.
pub fn bundle(
    target: &TargetProfile,
    functions: &[Lowered],
    options: &compile::Options,
) -> Result<Bundle, String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let path = folder.path().join("graph.drift");
    let model = Model { name: "test".into(), ..Model::default() };
    let targets = std::slice::from_ref(target);
    compile::write(&model, targets, &[functions], &validated(options), &path).map_err(|e| e.to_string())?;
    let bytes = std::fs::read(&path).map_err(|e| e.to_string())?;
    Bundle::from_vec(bytes).map_err(|e| e.to_string())
}

/// Returns three sets of values for a graph's symbols: at the lower bounds, in the middle, and at the upper bounds. Returns one
/// empty set if the graph has no symbols.
pub fn sizes(graph: &Graph) -> Vec<Bindings> {
    let at = |pick: usize| {
        let value = |(low, high): &(i64, i64)| [*low, (low + high) / 2, *high][pick];
        graph.bounds.iter().map(|(name, bounds)| (name.clone(), value(bounds))).collect()
    };
    if graph.bounds.is_empty() { vec![Bindings::new()] } else { (0..3).map(at).collect() }
}

/// Returns a random array for every input of a graph, with the sizes that the symbols give.
pub fn random_inputs(graph: &Graph, symbols: &Bindings) -> Result<BTreeMap<String, Array>, String> {
    let mut inputs = BTreeMap::new();
    for (i, id) in graph.inputs().iter().enumerate() {
        let input = graph.input(*id).ok_or("the graph lists an input whose node is not an input")?;
        let shape: Option<Vec<usize>> =
            input.shape.iter().map(|d| usize::try_from(d.eval(symbols)?).ok()).collect();
        let shape = shape.ok_or("a symbol of an input's shape has no value")?;
        inputs.insert(input.name.clone(), random(input.dtype, &shape, 100 + i as u64));
    }
    Ok(inputs)
}

/// Runs the function `main` of a loaded bundle once; returns its outputs.
pub fn run_session(
    session: &mut Session,
    inputs: &BTreeMap<String, Array>,
) -> Result<Vec<(String, Array)>, String> {
    run_function(session, "main", inputs)
}

/// Runs a function of a loaded bundle once; returns its outputs.
pub fn run_function(
    session: &mut Session,
    function: &str,
    inputs: &BTreeMap<String, Array>,
) -> Result<Vec<(String, Array)>, String> {
    let bytes: Vec<(&str, &Array, Vec<u8>)> =
        inputs.iter().map(|(n, a)| (n.as_str(), a, a.to_bytes())).collect();
    let arrays: Vec<(&str, ArrayRef<'_>)> = bytes
        .iter()
        .map(|(n, a, b)| (*n, ArrayRef { dtype: host_type(a.dtype), shape: &a.shape, bytes: b }))
        .collect();
    let names: Vec<String> =
        session.outputs(function).map_err(|e| e.to_string())?.iter().map(|p| p.name.clone()).collect();
    let results = session.run(function, &arrays).map_err(|e| e.to_string())?;
    names
        .into_iter()
        .zip(results)
        .map(|(name, array)| {
            let array = Array::from_bytes(dtype(array.dtype), &array.shape, &array.bytes).map_err(|e| e.0)?;
            Ok((name, array))
        })
        .collect()
}

/// Converts an element type of the compiler to the same type in the runtime's enum.
pub fn host_type(dtype: DType) -> HostType {
    HOST_TYPES.iter().find(|(d, _)| *d == dtype).map_or(HostType::F32, |(_, h)| *h)
}

/// Converts an element type of the runtime to the same type in the compiler's enum.
pub fn dtype(host: HostType) -> DType {
    HOST_TYPES.iter().find(|(_, h)| *h == host).map_or(DType::F32, |(d, _)| *d)
}

const HOST_TYPES: [(DType, HostType); 13] = [
    (DType::F32, HostType::F32),
    (DType::F16, HostType::F16),
    (DType::Bf16, HostType::Bf16),
    (DType::F64, HostType::F64),
    (DType::I8, HostType::I8),
    (DType::I16, HostType::I16),
    (DType::I32, HostType::I32),
    (DType::I64, HostType::I64),
    (DType::U8, HostType::U8),
    (DType::U16, HostType::U16),
    (DType::U32, HostType::U32),
    (DType::U64, HostType::U64),
    (DType::Bool, HostType::Bool),
];
