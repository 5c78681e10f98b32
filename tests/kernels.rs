//! Every kernel on the device against the CPU reference, over all cases that it offers a candidate for, in f32 and in f16 storage: with the
//! layouts that the passes choose, and with every tensor that can be in one kind of memory object or another.
//!
//! A software driver takes hours to compile them all. On it a number of trials for each kernel runs, evenly spread over its
//! cases, precisions and kinds of memory objects, each with the cheapest candidate and two others, which are others in the
//! next case; with DRIFT_EVERY_CANDIDATE set, all run. For the matrix units that a driver lists there are fewer trials of each
//! kernel, or all of them with DRIFT_MATRIX_ALL set.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Arc;

use drift_runtime::Session;
use drift_tests::compare::{Tolerance, compare, quantizes_rows};
use drift_tests::device;
use drift_tests::emission::after_passes;
use driftc::compile::{Lowered, Options};
use driftc::functions::MAIN;
use driftc::ir::dim::Bindings;
use driftc::ir::element::{Arg, BinaryFn, Element, EpilogueStep};
use driftc::ir::graph::{Graph, NodeId, Replacement};
use driftc::ir::op::{Input, Op, Relayout};
use driftc::ir::storage::Storage;
use driftc::ir::tensor::{DType, Layout};
use driftc::ir::{array::Array, eval, text, verify};
use driftc::kernels::cases::CASES;
use driftc::kernels::{InPlace, KERNELS, Kernel};
use driftc::passes::Precision;
use driftc::plan::estimate::offering;
use driftc::plan::tuning::configuration;
use driftc::plan::{self, Decision, Dispatch, Location, views};
use driftc::shader::{Bound, Outside};
use driftc::target::{Fragments, MatrixScope, MatrixShape, MatrixType, TargetProfile, WeightStorage, names};
use libtest_mimic::{Arguments, Trial};
use rayon::prelude::*;

/// Trials of a kernel that run where not all do.
const TRIALS: usize = 24;
/// The same on the matrix units of a software driver.
const MATRIX_TRIALS: usize = 3;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, trials()).exit_code()
}

/// The trials of all kernels.
fn trials() -> Vec<Trial> {
    let target = Arc::new(device::target());
    let matrix_target = device::matrix_target().map(Arc::new);
    // Where no device has matrix units the trials of kernels on them are listed as ignored.
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
        let mut own = Vec::new();
        // Matrix units take no f32.
        for precision in [Precision::F32, Precision::F16].into_iter().skip(usize::from(scope.is_some())) {
            let found = cases.par_iter().map(|(name, case)| of_case(name, case, precision, &target, scope));
            let found: Vec<Vec<Trial>> = found.collect();
            own.extend(found.into_iter().flatten().map(|trial| trial.with_ignored_flag(ignored)));
        }
        trials.extend(spread(own, most_trials(&target, scope)));
    }
    for kernel in KERNELS {
        let own = |trial: &&Trial| trial.name().starts_with(&format!("{} ", kernel.name));
        assert!(trials.iter().any(|trial| own(&trial)), "no case runs on `{}`", kernel.name);
    }
    trials
}

/// At most so many trials of each kernel, evenly spread over all of its own.
fn spread(mut trials: Vec<Trial>, most: Option<usize>) -> Vec<Trial> {
    let Some(most) = most else { return trials };
    let kernel = |trial: &Trial| trial.name().split(' ').next().unwrap_or_default().to_string();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    trials.iter().for_each(|trial| *counts.entry(kernel(trial)).or_default() += 1);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    trials.retain(|trial| {
        let nth = seen.entry(kernel(trial)).or_default();
        *nth += 1;
        let (nth, count) = (*nth - 1, counts[&kernel(trial)].max(most));
        nth * most / count != (nth + 1) * most / count
    });
    trials
}

/// The target with fragments of matrices that need no matrix units.
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

/// What a trial does on a target.
type Run = Box<dyn FnOnce(&TargetProfile) -> Result<(), String> + Send>;

/// The trials of a case at a precision, for every kernel that offers a candidate for it and holds matrices so.
fn of_case(
    name: &str,
    case: &'static str,
    precision: Precision,
    target: &Arc<TargetProfile>,
    scope: Option<MatrixScope>,
) -> Vec<Trial> {
    let parsed = text::parse(case).unwrap_or_else(|e| panic!("{name}: {e}"));
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
        // Where integers are slow to become floats, codes are multiplied in one way with floats and in another with halves.
        if precision == Precision::F32 || coded(case) {
            add("/wide", Box::new(move |target| run(kernel, case, precision, &wide(target), Some(target))));
        }
        let buffers = stored.first().is_some_and(|(_, offered)| offered.contains(kernel.name));
        let first = precision == Precision::F32 || scope.is_some();
        if kernel.in_place != InPlace::Nothing && first && buffers {
            add("/in-place", Box::new(move |target| run_in_place(kernel, case, precision, target)));
        }
        for (nth, (storage, offered)) in stored.iter().enumerate() {
            // Precisions take turns from storage to storage and from case to case.
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

/// Keeps every value of a graph in a storage that can hold it, as kernels that hold matrices so want them.
fn prepare(
    graph: &mut Graph,
    storage: Storage,
    target: &TargetProfile,
    scope: Option<MatrixScope>,
) -> Result<(), String> {
    keep_in(graph, storage, target).map_err(|e| e.to_string())?;
    if scope == Some(MatrixScope::Workgroup) {
        factors_in_rows(graph).map_err(|e| e.to_string())?;
    }
    verify::verify(graph, "kernels").map_err(|e| e.to_string())
}

/// The target as if it kept many more invocations in flight, and converted integers slowly: kernels then offer candidates that
/// share work among more, and make floats of codes in another configuration.
fn wide(target: &TargetProfile) -> TargetProfile {
    let mut wide = target.clone();
    wide.machine.compute_units = 64;
    wide.machine.invocations_per_unit = 2048;
    wide.machine.peak.int_to_float = Some(wide.machine.peak.f32 / 16.0);
    wide
}

/// Whether a case has constants of codes.
fn coded(case: &str) -> bool {
    case.contains("\"stored\"")
}

/// Inputs of a case and its outputs.
type Expected = (BTreeMap<String, Array>, Vec<(String, Array)>);

/// Runs the candidates of a case; with `known`, those that are not offered there, or are where codes become floats otherwise.
fn run(
    owner: &Kernel,
    case: &str,
    precision: Precision,
    target: &TargetProfile,
    known: Option<&TargetProfile>,
) -> Result<(), String> {
    let kernel = owner.name;
    let graph = text::parse(case).map_err(|e| e.to_string())?;
    let mut options = Options { precision, ..Options::default() };
    options.plan.prefer_kernel = Some(kernel.to_string());
    let lower =
        |options: &Options| driftc::compile::lower(&graph, target, options).map_err(|e| e.to_string());
    let lowered = lower(&options)?;
    let tried: BTreeSet<String> = match known {
        None => BTreeSet::new(),
        Some(_) if coded(case) => BTreeSet::new(),
        Some(known) => {
            let plan = driftc::compile::lower(&graph, known, &options).map_err(|e| e.to_string())?.plan;
            plan.decisions.iter().flat_map(|d| &d.choices).map(configuration).collect()
        }
    };
    let used = lowered.plan.dispatches.iter().any(|s| s.launch.kernel == kernel);
    if !used {
        return Err(format!("kernel {kernel} takes no part in the case"));
    }
    let own =
        lowered.plan.decisions.iter().filter(|d| d.choices.first().is_some_and(|c| c.kernel.name == kernel));
    // Storage changes the hooks only, so that every candidate runs in one precision.
    let every = precision == Precision::F32 || owner.matrices.is_some() || known.is_some();
    let candidates = if every { own.map(|d| d.choices.len()).max().unwrap_or(1) } else { 1 };
    let tolerance = if precision == Precision::F32 { Tolerance::F32 } else { Tolerance::F16 };
    let mut pairs: Vec<Expected> = Vec::new();
    for symbols in device::sizes(&graph) {
        let inputs = device::random_inputs(&graph, &symbols)?;
        let want = eval::eval(&graph, &inputs).map_err(|e| e.to_string())?;
        pairs.push((inputs, want));
    }
    let mut failures = Vec::new();
    for candidate in taken(candidates, case, most(target, owner.matrices)) {
        let own = lowered.plan.decisions.iter().filter_map(|d| d.choices.get(candidate));
        let configurations: Vec<String> = own.map(configuration).collect();
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

/// Most candidates that run in one case, beside the cheapest.
fn most(target: &TargetProfile, scope: Option<MatrixScope>) -> usize {
    match every() {
        true => usize::MAX,
        false if few(target, scope) => 1,
        false => 2,
    }
}

/// Most trials of a kernel, if not all run: on the software driver, fewer on its matrix units or all.
fn most_trials(target: &TargetProfile, scope: Option<MatrixScope>) -> Option<usize> {
    match on_matrix_units(target, scope) {
        true => few(target, scope).then_some(MATRIX_TRIALS),
        false => (software() && !every()).then_some(TRIALS),
    }
}

/// Whether all trials run, with every candidate.
fn every() -> bool {
    std::env::var_os("DRIFT_EVERY_CANDIDATE").is_some()
}

/// Whether the tests run on the software driver.
fn software() -> bool {
    std::env::var_os("DRIFT_TEST_DEVICE").is_none()
}

/// Whether a target runs kernels that hold matrices so on matrix units; without those it emulates fragments.
fn on_matrix_units(target: &TargetProfile, scope: Option<MatrixScope>) -> bool {
    scope.is_some() && target.features.cooperative_matrix
}

/// Whether few of the trials run: on the matrix units of the software driver.
fn few(target: &TargetProfile, scope: Option<MatrixScope>) -> bool {
    software() && on_matrix_units(target, scope) && std::env::var_os("DRIFT_MATRIX_ALL").is_none()
}

/// The candidates that run in a case: the cheapest one, and of the others every so many, from the next one on in each case of an
/// operator, so that as many cases as candidates lie between two that run in one run them all.
fn taken(candidates: usize, case: &str, most: usize) -> impl Iterator<Item = usize> {
    let apart = candidates.div_ceil(most).max(1);
    let numbered = CASES.iter().flat_map(|cases| cases.graphs().enumerate());
    let first = numbered.filter(|(_, graph)| *graph == case).map(|(i, _)| i).next().unwrap_or(0) % apart;
    (0..candidates).filter(move |candidate| *candidate == 0 || candidate % apart == first)
}

/// Compares what a session gives for inputs with the values of a case's outputs.
fn agrees(session: &mut Session, (inputs, want): &Expected, tolerance: Tolerance) -> Result<(), String> {
    let got = device::run_session(session, inputs)?;
    want.iter().zip(&got).try_for_each(|((name, want), (_, got))| compare(name, got, want, tolerance))
}

/// Runs a case with all of its values in slices of four in one kind of memory object. How a kernel computes does not
/// depend on that, so one candidate and one size of each symbol show as much as all. Kernels that count on zeros
/// outside of textures run once more for a device that does not promise them.
fn run_in(
    kernel: &str,
    case: &str,
    precision: Precision,
    storage: Storage,
    target: &TargetProfile,
) -> Result<(), String> {
    let mut target = target.clone();
    // Weights have fewer forms: each is tested with one of these at least.
    target.prefer.storage.weights = match storage {
        Storage::Buffer | Storage::TexelBuffer => WeightStorage::Buffer,
        Storage::Texture2d => WeightStorage::Texture2d,
        Storage::TextureArray | Storage::Texture3d => WeightStorage::FourTextures2d,
    };
    target.prefer.storage.recurrent_weights = target.prefer.storage.weights;
    let own = (target.features.robust_image_access, target.features.robust_image_access2);
    let mut outside = run_once_in(kernel, case, precision, storage, &target)?;
    for less in [(true, false), (false, false)] {
        let kept = (own.0 && less.0, own.1 && less.1);
        (target.features.robust_image_access, target.features.robust_image_access2) = kept;
        if kept != own && outside > Outside::Nothing {
            outside = run_once_in(kernel, case, precision, storage, &target)?;
            let promised = if kept.0 { Outside::ThreeZeros } else { Outside::Nothing };
            if outside > promised {
                return Err("a kernel counts on zeros that the device does not promise".into());
            }
        }
    }
    Ok(())
}

/// What kernels count on outside of textures, if the results are right.
fn run_once_in(
    kernel: &str,
    case: &str,
    precision: Precision,
    storage: Storage,
    target: &TargetProfile,
) -> Result<Outside, String> {
    let mut graph = text::parse(case).map_err(|e| e.to_string())?;
    let symbols: Bindings =
        graph.bounds.iter().map(|(name, (low, high))| (name.clone(), (low + high) / 2)).collect();
    let inputs = device::random_inputs(&graph, &symbols)?;
    let want = eval::eval(&graph, &inputs).map_err(|e| e.to_string())?;
    let mut options = Options { precision, ..Options::default() };
    options.plan.prefer_kernel = Some(kernel.to_string());
    graph = after_passes(case, target, precision)?;
    prepare(&mut graph, storage, target, KERNELS.iter().find(|k| k.name == kernel).and_then(|k| k.matrices))?;
    let plan = plan::build(&graph, target, &options.plan).map_err(|e| e.to_string())?;
    let own = || plan.dispatches.iter().filter(|s| s.launch.kernel == kernel);
    if own().next().is_none() {
        return Err(format!("kernel {kernel} takes no part in the case"));
    }
    let outside = plan.dispatches.iter().map(|s| s.launch.outside).max().unwrap_or(Outside::Nothing);
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

/// Runs a case with a result that lies where an operand does: one more operand that the epilogue adds, and the first one
/// where the kernel says that its result may overwrite that too.
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
    let own = |d: &&Decision| d.choices.first().is_some_and(|c| c.kernel.name == kernel.name);
    let id = plan.decisions.iter().rfind(own).ok_or("the kernel computes no node")?.node;
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
        // The launch that stores the result is the last one of the node's, which may be of another kernel.
        let own = plan.dispatches.iter().filter(|dispatch| dispatch.launch.kernel == kernel.name);
        let nodes: BTreeSet<&str> = own.map(|dispatch| dispatch.label.as_str()).collect();
        let over = plan.dispatches.iter().filter(|d| nodes.contains(d.label.as_str())).any(|dispatch| {
            let results = place(dispatch, |bound| bound == Bound::Result);
            !results.is_disjoint(&place(dispatch, |bound| matches!(bound, Bound::Operand(_))))
        });
        if !over {
            return Err("no result lies where an operand does".into());
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

/// Whether the first operand of a node is a copy that nothing else uses, and like its result.
fn overwrites_the_first(graph: &Graph, id: NodeId) -> bool {
    let Some(first) = graph.operands(id).first().copied() else { return false };
    let like = graph.tensor(first) == graph.tensor(id) && !graph.is_output(id);
    like && matches!(graph.op(first), Op::Relayout(_)) && graph.use_count(first) == 1
}

/// The graph with one more operand for a node, which its epilogue adds and nothing else uses; its result is no output.
fn with_one_more_operand(graph: &Graph, id: NodeId) -> driftc::error::Result<Graph> {
    let mut graph = graph.clone();
    let (tensor, node) = (graph.tensor(id).clone(), graph.node(id).clone());
    let input = Input { name: "beside".into(), dtype: tensor.dtype, shape: tensor.shape.clone() };
    let input = graph.add(input, &[], "beside")?;
    let copy = graph.add(Relayout { layout: tensor.layout }, &[input], "beside")?;
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

/// Keeps every value in a storage that can hold it: inputs and results of the graph are copied, constants and views stay.
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

/// Copies the factors of matrix products to rows, which the matrices of a workgroup are loaded from.
fn factors_in_rows(graph: &mut Graph) -> driftc::error::Result<()> {
    for id in graph.topological() {
        let own = graph.node(id).arity;
        if let Op::MatMul(_) = graph.op(id) {
            for factor in graph.operands(id).into_iter().take(own) {
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
