//! Compares the results of every kernel on the device with the CPU reference.
//!
//! A kernel runs every test case of the operators for which it has a candidate, in f32 and in f16: with the layouts that the
//! passes select, and with all tensors in each storage kind (buffers, texel buffers, textures). One such run is a trial.
//!
//! On a software driver, compiling the shaders of all trials takes hours. In the quick scope this test runs some trials of each
//! kernel, spread evenly over cases, precisions and storage kinds, and lists the others as ignored. A trial runs the cheapest
//! candidate and two others, which change from case to case. Kernels on matrix units run fewer trials. DRIFT_TEST_SCOPE=full
//! runs all trials with all candidates.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Arc;

use drift_runtime::Session;
use drift_tests::compare::{Tolerance, compare, quantizes_rows};
use drift_tests::device;
use drift_tests::emission::after_passes;
use drift_tests::settings::{self, Scope};
use driftc::compile::{Lowered, Options};
use driftc::entry_points::MAIN;
use driftc::ir::dim::Bindings;
use driftc::ir::element::{Arg, BinaryFn, Element, EpilogueStep};
use driftc::ir::graph::{Graph, NodeId, Replacement};
use driftc::ir::op::{Input, Op, Relayout};
use driftc::ir::storage::Storage;
use driftc::ir::tensor::{DType, Layout};
use driftc::ir::{array::Array, eval, graph_text, verify};
use driftc::kernels::cases::CASES;
use driftc::kernels::{InPlace, KERNELS, Kernel};
use driftc::passes::Precision;
use driftc::plan::estimate::offering;
use driftc::plan::tuning::configuration;
use driftc::plan::{self, Decision, Dispatch, Location, views};
use driftc::shader::{Bound, OutsideReads};
use driftc::target::{
    Fragments, IntDotSigns, MatrixScope, MatrixShape, MatrixType, TargetProfile, WeightStorage, names,
};
use libtest_mimic::{Arguments, Trial};
use rayon::prelude::*;

/// Number of trials of one kernel in the quick scope on the software driver.
const QUICK_TRIALS: usize = 24;
/// Number of trials of one kernel that uses matrix units, in the quick scope on the software driver.
const QUICK_MATRIX_TRIALS: usize = 3;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, trials()).exit_code()
}

/// Returns the trials of all kernels.
fn trials() -> Vec<Trial> {
    let target = Arc::new(device::target());
    let matrix_target = device::matrix_target().map(Arc::new);
    // If no device has matrix units, the trials of kernels on them are listed as ignored.
    let listed = |scope: MatrixScope| {
        let able = |target: &Arc<TargetProfile>| target.has_matrices(scope);
        let first = || names().filter_map(|n| TargetProfile::load(n).ok()).map(Arc::new).find(able);
        matrix_target.clone().filter(able).map(|t| (t, false)).or_else(|| Some((first()?, true)))
    };
    let mut places = Vec::new();
    if !target.features.cooperative_matrix {
        places.push((Arc::new(with_fragments(&target)), Some(MatrixScope::Subgroup), false));
    }
    places.push((target, None, false));
    for scope in [MatrixScope::Subgroup, MatrixScope::Workgroup] {
        places.extend(listed(scope).map(|(target, ignored)| (target, Some(scope), ignored)));
    }
    let cases: Vec<(String, &'static str)> = CASES
        .iter()
        .flat_map(|c| c.graphs().enumerate().map(|(i, case)| (format!("{}/{i}", c.operator), case)))
        .collect();
    let mut trials: Vec<Trial> = Vec::new();
    for (target, scope, ignored) in places {
        let mut of_target = Vec::new();
        // Matrix units do not multiply f32.
        for precision in [Precision::F32, Precision::F16].into_iter().skip(usize::from(scope.is_some())) {
            let found =
                cases.par_iter().map(|(name, case)| trials_of_case(name, case, precision, &target, scope));
            let found: Vec<Vec<Trial>> = found.collect();
            of_target.extend(found.into_iter().flatten());
        }
        let limit = if ignored { Some(0) } else { trials_per_kernel(&target, scope) };
        trials.extend(sample(of_target, limit));
    }
    if settings::on_software_driver() {
        let listed = |name: &&str| trials.iter().any(|trial| trial.name() == *name);
        assert!(CRASHES.iter().all(listed), "a name in CRASHES belongs to no trial");
    }
    if Scope::from_environment().is_full() && settings::on_newer_mesa() {
        let mark = |trial: Trial| {
            let crashes = CRASHES.contains(&trial.name()) || trial.has_ignored_flag();
            trial.with_ignored_flag(crashes)
        };
        trials = trials.into_iter().map(mark).collect();
    }
    for kernel in KERNELS {
        let prefix = format!("{} ", kernel.name);
        if trials.iter().any(|trial| trial.name().starts_with(&prefix)) {
            continue;
        }
        assert!(!settings::on_software_driver(), "no case runs on `{}`", kernel.name);
        // The profile of another device may exclude the kernel.
        let name = format!("{} has no case for this target", kernel.name);
        trials.push(Trial::test(name, || Ok(())).with_ignored_flag(true));
    }
    let ran = trials.iter().filter(|trial| !trial.has_ignored_flag()).count();
    settings::report_ran(ran, trials.len(), "trials of kernels");
    trials
}

/// Trials with a candidate whose valid SPIR-V crashes the compiled code of lavapipe in Mesa 26.1. They pass on the system's
/// Mesa (`DRIFT_SYSTEM_DRIVER=1`). The candidate of `conv` is `GROUP_X=8 GROUP_Y=4 BLOCK_X=4 BLOCK_Y=1 SLICES=4`.
/// The quick scope does not run this candidate.
const CRASHES: [&str; 1] = ["conv conv/1/f32"];

/// Selects `limit` trials of each kernel, spread evenly over its trials, and marks all others as ignored.
fn sample(trials: Vec<Trial>, limit: Option<usize>) -> Vec<Trial> {
    let Some(limit) = limit else { return trials };
    let kernel = |trial: &Trial| trial.name().split(' ').next().unwrap_or_default().to_string();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    trials.iter().for_each(|trial| *counts.entry(kernel(trial)).or_default() += 1);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mark = |trial: Trial| {
        let seen = seen.entry(kernel(&trial)).or_default();
        *seen += 1;
        let (index, count) = (*seen - 1, counts[&kernel(&trial)].max(limit));
        let runs = index * limit / count != (index + 1) * limit / count;
        trial.with_ignored_flag(!runs)
    };
    trials.into_iter().map(mark).collect()
}

/// Returns the target with an additional matrix shape. Shaders emulate the fragments of this shape in normal code, so kernels
/// that use fragments run without matrix units.
fn with_fragments(target: &TargetProfile) -> TargetProfile {
    let mut able = target.clone();
    able.matrix.push(MatrixShape {
        m: 16,
        n: 8,
        k: 16,
        a: MatrixType::F16,
        b: MatrixType::F16,
        c: MatrixType::F32,
        scope: MatrixScope::Subgroup,
        invocations: None,
        fragments: Some(Fragments::Emulated),
    });
    able
}

/// Returns the target as a device that accelerates packed dot products of unsigned integers only.
fn unsigned_dot(target: &TargetProfile) -> TargetProfile {
    let mut able = target.clone();
    able.features.int_dot_accelerated = vec![IntDotSigns::Unsigned];
    able
}

/// Function that runs a trial on a target and fails if the results are wrong.
type Run = Box<dyn FnOnce(&TargetProfile) -> Result<(), String> + Send>;

/// Returns the trials of a case at a precision, for every kernel that has a candidate and uses matrices of this scope (subgroup,
/// workgroup, or none).
fn trials_of_case(
    name: &str,
    case: &'static str,
    precision: Precision,
    target: &Arc<TargetProfile>,
    scope: Option<MatrixScope>,
) -> Vec<Trial> {
    let parsed = graph_text::parse(case).unwrap_or_else(|e| panic!("{name}: {e}"));
    if precision == Precision::F16 && quantizes_rows(&parsed) {
        return Vec::new();
    }
    let graph = after_passes(case, target, precision).unwrap_or_else(|e| panic!("{name}: {e}"));
    let offered = offering(&graph, target);
    let kernels: Vec<&'static Kernel> =
        KERNELS.iter().filter(|k| offered.contains(k.name) && k.matrices == scope).collect();
    let stored: Vec<(Storage, BTreeSet<&str>)> = Storage::ALL
        .into_iter()
        .filter(|_| !kernels.is_empty())
        .map(|storage| {
            let mut graph = graph.clone();
            prepare(&mut graph, storage, target, scope).unwrap_or_else(|e| panic!("{name}: {e}"));
            (storage, offering(&graph, target))
        })
        .collect();
    let mut trials = Vec::new();
    for kernel in kernels {
        let title = format!("{} {name}/{precision}", kernel.name);
        let mut add = |kind: &str, run: Run| {
            let target = target.clone();
            trials.push(Trial::test(format!("{title}{kind}"), move || run(&target).map_err(Into::into)));
        };
        add("", Box::new(move |target| run(kernel, case, precision, target, None)));
        // With slow integer conversion, quantized weights are multiplied differently in f32 and in f16.
        if precision == Precision::F32 || has_quantized_constants(case) {
            add("/wide", Box::new(move |target| run(kernel, case, precision, &wide(target), Some(target))));
        }
        // On devices with unsigned dot products only, signed operands become unsigned.
        if precision == Precision::F32 && kernel.wgsl.contains("dot4I8Packed") {
            let unsigned =
                move |target: &TargetProfile| run(kernel, case, precision, &unsigned_dot(target), None);
            add("/unsigned-dot", Box::new(unsigned));
        }
        let buffers = stored.first().is_some_and(|(_, offered)| offered.contains(kernel.name));
        let first = precision == Precision::F32 || scope.is_some();
        if kernel.in_place != InPlace::Nothing && first && buffers {
            add("/in-place", Box::new(move |target| run_in_place(kernel, case, precision, target)));
        }
        for (nth, (storage, offered)) in stored.iter().enumerate() {
            // Precisions alternate from storage to storage and from case to case.
            let turn =
                scope.is_some() || (case.len() + nth).is_multiple_of(2) == (precision == Precision::F32);
            if !turn || !offered.contains(kernel.name) {
                continue;
            }
            let storage = *storage;
            let kind = format!("/{}", storage.name());
            add(&kind, Box::new(move |target| run_in(kernel.name, case, precision, storage, target)));
        }
    }
    trials
}

/// Sets the layout of every value of a graph to channel slices in this storage kind, unless the value does not fit. For
/// kernels with matrices of workgroup scope, operands of matmuls stay row-major.
fn prepare(
    graph: &mut Graph,
    storage: Storage,
    target: &TargetProfile,
    scope: Option<MatrixScope>,
) -> Result<(), String> {
    keep_in(graph, storage, target).map_err(|e| e.to_string())?;
    if scope == Some(MatrixScope::Workgroup) {
        operands_in_rows(graph).map_err(|e| e.to_string())?;
    }
    verify::verify(graph, "kernels").map_err(|e| e.to_string())
}

/// Returns the target as if the device kept many more invocations in flight and converted integers slowly. Kernels then have
/// further candidates, which split work over more invocations and dequantize in another way.
fn wide(target: &TargetProfile) -> TargetProfile {
    let mut wide = target.clone();
    wide.machine.compute_units = 64;
    wide.machine.invocations_per_unit = 2048;
    wide.machine.peak.int_to_float = Some(wide.machine.peak.f32 / 16.0);
    wide
}

/// True if the graph of a test case has quantized constants.
fn has_quantized_constants(case: &str) -> bool {
    case.contains("\"encoding\"")
}

/// Inputs of a test case, and the outputs that the CPU reference expects.
type Expected = (BTreeMap<String, Array>, Vec<(String, Array)>);

/// Runs the candidates of a kernel for a case. If `known` is given, skips the candidates that the target `known` also has,
/// because another trial runs them.
fn run(
    owner: &Kernel,
    case: &str,
    precision: Precision,
    target: &TargetProfile,
    known: Option<&TargetProfile>,
) -> Result<(), String> {
    let kernel = owner.name;
    let graph = graph_text::parse(case).map_err(|e| e.to_string())?;
    let mut options = Options { precision, ..Options::default() };
    options.plan.prefer_kernel = Some(kernel.to_string());
    let lower =
        |options: &Options| driftc::compile::lower(&graph, target, options).map_err(|e| e.to_string());
    let lowered = lower(&options)?;
    let tried: BTreeSet<String> = match known {
        None => BTreeSet::new(),
        Some(_) if has_quantized_constants(case) => BTreeSet::new(),
        Some(known) => {
            let plan = driftc::compile::lower(&graph, known, &options).map_err(|e| e.to_string())?.plan;
            plan.decisions.iter().flat_map(|d| &d.choices).map(configuration).collect()
        }
    };
    let used = lowered.plan.dispatches.iter().any(|s| s.launch.kernel == kernel);
    if !used {
        return Err(format!("the compiled case has no dispatch of kernel {kernel}"));
    }
    let decisions =
        lowered.plan.decisions.iter().filter(|d| d.choices.first().is_some_and(|c| c.kernel.name == kernel));
    // The storage changes only the hooks, so all candidates run in one precision.
    let every = precision == Precision::F32 || owner.matrices.is_some() || known.is_some();
    let candidates = if every { decisions.map(|d| d.choices.len()).max().unwrap_or(1) } else { 1 };
    let tolerance = if precision == Precision::F32 { Tolerance::F32 } else { Tolerance::F16 };
    let mut pairs: Vec<Expected> = Vec::new();
    for symbols in device::sizes(&graph) {
        let inputs = device::random_inputs(&graph, &symbols)?;
        let want = eval::eval(&graph, &inputs).map_err(|e| e.to_string())?;
        pairs.push((inputs, want));
    }
    let mut failures = Vec::new();
    for candidate in sampled_candidates(candidates, case, other_candidates(target, owner.matrices)) {
        let choices = lowered.plan.decisions.iter().filter_map(|d| d.choices.get(candidate));
        let configurations: Vec<String> = choices.map(configuration).collect();
        if configurations.iter().all(|configuration| tried.contains(configuration)) && known.is_some() {
            continue;
        }
        options.plan.prefer_candidate = candidate;
        let outcome = lower(&options)
            .and_then(|lowered| device::load(target, lowered, &options))
            .and_then(|mut session| pairs.iter().try_for_each(|pair| agrees(&mut session, pair, tolerance)));
        if let Err(reason) = outcome {
            failures.push(format!("candidate {candidate} ({}): {reason}", configurations.join(", ")));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Maximum number of candidates that one trial runs besides the cheapest one.
fn other_candidates(target: &TargetProfile, scope: Option<MatrixScope>) -> usize {
    match Scope::from_environment() {
        Scope::Full => usize::MAX,
        Scope::Quick if settings::on_software_driver() && on_matrix_units(target, scope) => 1,
        Scope::Quick => 2,
    }
}

/// Maximum number of trials of each kernel that run in the scope of this test run (quick or full); `None` if all trials run.
fn trials_per_kernel(target: &TargetProfile, scope: Option<MatrixScope>) -> Option<usize> {
    let quick = if on_matrix_units(target, scope) { QUICK_MATRIX_TRIALS } else { QUICK_TRIALS };
    (settings::on_software_driver() && !Scope::from_environment().is_full()).then_some(quick)
}

/// True if kernels with matrices of this scope run on matrix units of the target, false if they use emulated fragments or no
/// matrices.
fn on_matrix_units(target: &TargetProfile, scope: Option<MatrixScope>) -> bool {
    scope.is_some() && target.features.cooperative_matrix
}

/// Returns the indices of the candidates that a trial runs: the cheapest one, and up to `limit` others at equal distances. The
/// first of the others moves by one from case to case, so that neighboring cases together run all candidates.
fn sampled_candidates(candidates: usize, case: &str, limit: usize) -> impl Iterator<Item = usize> {
    let distance = candidates.div_ceil(limit).max(1);
    let numbered = CASES.iter().flat_map(|cases| cases.graphs().enumerate());
    let first = numbered.filter(|(_, graph)| *graph == case).map(|(i, _)| i).next().unwrap_or(0) % distance;
    (0..candidates).filter(move |candidate| *candidate == 0 || candidate % distance == first)
}

/// Compares the outputs of a session with the expected outputs of a case.
fn agrees(session: &mut Session, (inputs, want): &Expected, tolerance: Tolerance) -> Result<(), String> {
    let got = device::run_session(session, inputs)?;
    want.iter().zip(&got).try_for_each(|((name, want), (_, got))| compare(name, got, want, tolerance))
}

/// Runs a case with all values in channel slices in one storage kind. The storage does not change how a kernel computes, so one
/// candidate and one size of each symbol suffice. If the shader relies on zeros outside of textures, the case runs again as for
/// a device that does not promise zeros.
fn run_in(
    kernel: &str,
    case: &str,
    precision: Precision,
    storage: Storage,
    target: &TargetProfile,
) -> Result<(), String> {
    let mut target = target.clone();
    // Weights have fewer storages; each is tested with at least one of these.
    target.prefer.storage.weights = match storage {
        Storage::Buffer | Storage::TexelBuffer => WeightStorage::Buffer,
        Storage::Texture2d => WeightStorage::Texture2d,
        Storage::TextureArray | Storage::Texture3d => WeightStorage::FourTextures2d,
    };
    target.prefer.storage.recurrent_weights = target.prefer.storage.weights;
    let supported = (target.features.robust_image_access, target.features.robust_image_access2);
    let mut outside = run_once_in(kernel, case, precision, storage, &target)?;
    for less in [(true, false), (false, false)] {
        let kept = (supported.0 && less.0, supported.1 && less.1);
        (target.features.robust_image_access, target.features.robust_image_access2) = kept;
        if kept != supported && outside > OutsideReads::Unused {
            outside = run_once_in(kernel, case, precision, storage, &target)?;
            let promised = if kept.0 { OutsideReads::ZeroRgb } else { OutsideReads::Unused };
            if outside > promised {
                return Err(
                    "a shader relies on zeros outside of textures, which the device does not promise".into(),
                );
            }
        }
    }
    Ok(())
}

/// Runs a case once in one storage kind and compares the results. Returns whether the case's shaders rely on zeros from reads
/// outside of textures, and in which channels.
fn run_once_in(
    kernel: &str,
    case: &str,
    precision: Precision,
    storage: Storage,
    target: &TargetProfile,
) -> Result<OutsideReads, String> {
    let mut graph = graph_text::parse(case).map_err(|e| e.to_string())?;
    let symbols: Bindings =
        graph.bounds.iter().map(|(name, (low, high))| (name.clone(), (low + high) / 2)).collect();
    let inputs = device::random_inputs(&graph, &symbols)?;
    let want = eval::eval(&graph, &inputs).map_err(|e| e.to_string())?;
    let mut options = Options { precision, ..Options::default() };
    options.plan.prefer_kernel = Some(kernel.to_string());
    graph = after_passes(case, target, precision)?;
    prepare(&mut graph, storage, target, KERNELS.iter().find(|k| k.name == kernel).and_then(|k| k.matrices))?;
    let plan = plan::build(&graph, target, &options.plan).map_err(|e| e.to_string())?;
    let dispatches = || plan.dispatches.iter().filter(|s| s.launch.kernel == kernel);
    if dispatches().next().is_none() {
        return Err(format!("the compiled case has no dispatch of kernel {kernel}"));
    }
    let outside = plan.dispatches.iter().map(|s| s.launch.outside).max().unwrap_or(OutsideReads::Unused);
    let tolerance = if precision == Precision::F32 { Tolerance::F32 } else { Tolerance::F16 };
    let got = device::run_lowered(
        target,
        Lowered { name: MAIN.to_string(), graph, passes: Vec::new(), plan },
        &options,
        &inputs,
    )?;
    for ((name, want), (_, got)) in want.iter().zip(&got) {
        compare(name, got, want, tolerance)?;
    }
    Ok(outside)
}

/// Runs a case so that the result overwrites an operand that the epilogue adds. If the kernel allows it, runs the case again so
/// that the result overwrites the first operand.
fn run_in_place(
    kernel: &Kernel,
    case: &str,
    precision: Precision,
    target: &TargetProfile,
) -> Result<(), String> {
    let mut graph = after_passes(case, target, precision)?;
    let mut options = Options { precision, ..Options::default() };
    options.plan.prefer_kernel = Some(kernel.name.to_string());
    prepare(&mut graph, Storage::Buffer, target, kernel.matrices)?;
    let plan = plan::build(&graph, target, &options.plan).map_err(|e| e.to_string())?;
    let uses_kernel = |d: &&Decision| d.choices.first().is_some_and(|c| c.kernel.name == kernel.name);
    let id = plan
        .decisions
        .iter()
        .rfind(uses_kernel)
        .ok_or("the kernel is selected for no node of the case")?
        .node;
    let mut graphs = vec![with_one_more_operand(&graph, id).map_err(|e| e.to_string())?];
    if kernel.in_place.overwrites(0, 1) && overwrites_the_first(&graph, id) {
        graphs.push(graph);
    }
    for graph in graphs {
        verify::verify(&graph, "kernels").map_err(|e| e.to_string())?;
        let plan = plan::build(&graph, target, &options.plan).map_err(|e| e.to_string())?;
        let place = |dispatch: &Dispatch, wanted: fn(Bound) -> bool| -> BTreeSet<Location> {
            let bound =
                dispatch.launch.bindings.iter().zip(&dispatch.locations).filter(|(b, _)| wanted(b.bound));
            bound
                .map(|(_, location)| *location)
                .filter(|location| matches!(location, Location::Arena(_)))
                .collect()
        };
        // The last launch of the node stores the result; it may belong to another kernel.
        let dispatches = plan.dispatches.iter().filter(|dispatch| dispatch.launch.kernel == kernel.name);
        let nodes: BTreeSet<&str> = dispatches.map(|dispatch| dispatch.label.as_str()).collect();
        let over = plan.dispatches.iter().filter(|d| nodes.contains(d.label.as_str())).any(|dispatch| {
            let results = place(dispatch, |bound| bound == Bound::Result);
            !results.is_disjoint(&place(dispatch, |bound| matches!(bound, Bound::Operand(_))))
        });
        if !over {
            return Err("the plan puts no result into the memory of an operand".into());
        }
        let symbols: Bindings =
            graph.bounds.iter().map(|(name, (low, high))| (name.clone(), (low + high) / 2)).collect();
        let inputs = device::random_inputs(&graph, &symbols)?;
        let want = eval::eval(&graph, &inputs).map_err(|e| e.to_string())?;
        let tolerance = if precision == Precision::F32 { Tolerance::F32 } else { Tolerance::F16 };
        let got = device::run_lowered(
            target,
            Lowered { name: MAIN.to_string(), graph, passes: Vec::new(), plan },
            &options,
            &inputs,
        )?;
        want.iter().zip(&got).try_for_each(|((name, want), (_, got))| compare(name, got, want, tolerance))?;
    }
    Ok(())
}

/// True if a node's result may overwrite its first operand: this operand is a copy that only the node reads, with the shape and
/// layout of the result.
fn overwrites_the_first(graph: &Graph, id: NodeId) -> bool {
    let Some(first) = graph.operands(id).first().copied() else { return false };
    let like = graph.tensor(first) == graph.tensor(id) && !graph.is_output(id);
    like && matches!(graph.op(first), Op::Relayout(_)) && graph.use_count(first) == 1
}

/// Returns the graph with one more operand for a node. Only the node reads the operand, and its epilogue adds the
/// operand to the result. If the result was a graph output, the output becomes a copy of the new result.
fn with_one_more_operand(graph: &Graph, id: NodeId) -> driftc::error::Result<Graph> {
    let mut graph = graph.clone();
    let (tensor, node) = (graph.tensor(id).clone(), graph.node(id).clone());
    let input = Input { name: "added".into(), dtype: tensor.dtype, shape: tensor.shape.clone() };
    let input = graph.add(input, &[], "added")?;
    let copy = graph.add(Relayout { layout: tensor.layout }, &[input], "added")?;
    graph.set_storage_type(copy, tensor.dtype);
    let mut operands = graph.operands(id);
    let join = if tensor.dtype == DType::Bool { BinaryFn::Xor } else { BinaryFn::Add };
    let args = vec![Arg::Step(node.epilogue.len() as u32), Arg::Input(operands.len() as u32)];
    let mut epilogue = node.epilogue;
    epilogue.push(EpilogueStep { element: Element::Binary(join), args });
    operands.push(copy);
    graph.set_op(id, Replacement { op: node.op, operands, arity: node.arity, epilogue })?;
    graph.set_storage_type(id, tensor.dtype);
    if graph.is_output(id) {
        let rows = graph.add(Relayout { layout: Layout::RowMajor }, &[id], &node.name)?;
        graph.set_storage_type(rows, tensor.dtype);
        graph.replace_output(id, rows);
    }
    Ok(graph)
}

/// Sets the layout of every value to channel slices in this storage kind, unless the value does not fit. Inputs and
/// outputs of the graph are copied; constants and views stay unchanged.
fn keep_in(graph: &mut Graph, storage: Storage, target: &TargetProfile) -> driftc::error::Result<()> {
    let layout = Layout::Slices4(storage);
    for id in graph.topological() {
        let tensor = graph.tensor(id).clone();
        let fits = storage.extent(&tensor.shape, &graph.bounds);
        let fits = fits.is_some_and(|extent| target.limits.holds_texture(storage, extent));
        let holds = layout.holds(&tensor.shape) && (fits || !storage.is_texture());
        let name = graph.node(id).name.clone();
        match graph.op(id) {
            _ if !holds => {}
            Op::Constant(_) => {}
            op if views::is_view(op) && graph.node(id).epilogue.is_empty() => {}
            Op::Input(_) => {
                let users = graph.users(id);
                let copy = graph.add(Relayout { layout }, &[id], &name)?;
                users.into_iter().for_each(|user| graph.replace_operand(user, id, copy));
            }
            op => {
                if let Op::Relayout(_) = op {
                    let what = Replacement {
                        op: Relayout { layout }.into(),
                        operands: graph.operands(id),
                        arity: 1,
                        epilogue: Vec::new(),
                    };
                    graph.set_op(id, what)?;
                    graph.set_storage_type(id, tensor.dtype);
                }
                graph.set_layout(id, layout);
                if graph.is_output(id) {
                    let rows = graph.add(Relayout { layout: Layout::RowMajor }, &[id], &name)?;
                    graph.set_storage_type(rows, tensor.dtype);
                    graph.replace_output(id, rows);
                }
            }
        }
    }
    Ok(())
}

/// Copies the operands of matmuls to row-major tensors, because matrices of workgroup scope are loaded from rows.
fn operands_in_rows(graph: &mut Graph) -> driftc::error::Result<()> {
    for id in graph.topological() {
        let arity = graph.node(id).arity;
        if let Op::MatMul(_) = graph.op(id) {
            for factor in graph.operands(id).into_iter().take(arity) {
                let (tensor, name) = (graph.tensor(factor).clone(), graph.node(factor).name.clone());
                if tensor.layout != Layout::RowMajor {
                    let rows = graph.add(Relayout { layout: Layout::RowMajor }, &[factor], &name)?;
                    graph.set_storage_type(rows, tensor.dtype);
                    graph.replace_operand(id, factor, rows);
                }
            }
        }
    }
    Ok(())
}
