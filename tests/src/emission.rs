//! Emitted shaders and plans, as text and as hashes: every candidate of a kernel with its shaders, and the plan of a model.
//!
//! Equal hashes before and after a change of the compiler show that the change does not affect its output. The hashes leave out
//! the reasons of candidates, which only people read, and the elements of constants.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::path::{Path, PathBuf};

use driftc::compile::{Lowered, Options};
use driftc::emit::{self, Code, Language};
use driftc::import::onnx;
use driftc::ir::graph::Graph;
use driftc::ir::graph_text;
use driftc::kernels::cases::CASES;
use driftc::lowering::lower_all;
use driftc::passes::{self, Context, Precision};
use driftc::plan::Location;
use driftc::plan::choice::Choice;
use driftc::plan::estimate::problem;
use driftc::plan::select::candidates;
use driftc::plan::tuning::configuration;
use driftc::shader::problem::Problem;
use driftc::shader::{Binding, Bound, Launch};
use driftc::target::TargetProfile;

/// Names of the models of `tests/corpus` whose plans are hashed.
pub const MODELS: [&str; 5] =
    ["distilbert_cls", "gpt2", "mobilenet_v1", "selfie_seg_like", "whisper_encoder"];

/// Writer that computes the hash of the text that is written to it.
#[derive(Default)]
struct Hasher(blake3::Hasher);

impl Write for Hasher {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

impl Hasher {
    /// Returns the first eight hexadecimal digits of the hash.
    fn finish(&self) -> String {
        self.0.finalize().to_hex().chars().take(8).collect()
    }
}

/// Calls `take` for every candidate of every kernel, for the test cases of all operators on a target, with the kernel's
/// name and the candidate's launches as text. In f16 only the hooks of the shaders differ from f32, so one candidate of
/// each kernel suffices.
///
/// # Errors
/// If the passes fail on a case, or a candidate gives no launches.
pub fn candidates_of_cases(
    target: &TargetProfile,
    take: &mut dyn FnMut(&'static str, &str),
) -> Result<(), String> {
    for cases in CASES {
        for (i, case) in cases.graphs().enumerate() {
            for precision in [Precision::F32, Precision::F16] {
                let name = format!("{}/{i} {precision}", cases.operator);
                let graph = after_passes(case, target, precision).map_err(|e| format!("{name}: {e}"))?;
                for problem in graph.topological().into_iter().filter_map(|id| problem(&graph, id, target)) {
                    let mut seen = BTreeSet::new();
                    for choice in candidates(&problem, None, None) {
                        let first = seen.insert(choice.kernel.name);
                        if precision == Precision::F32 || first {
                            let text = candidate(&name, &problem, &choice)?;
                            take(choice.kernel.name, &text);
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

fn candidate(name: &str, problem: &Problem<'_>, choice: &Choice) -> Result<String, String> {
    let mut text = format!("{name} {} {:.4e}\n", configuration(choice), choice.candidate.cost);
    let launches = choice.kernel.specialized(problem, &choice.candidate).map_err(|e| format!("{text}{e}"))?;
    for launch in &launches {
        write_launch(launch, &mut text).map_err(|e| e.to_string())?;
        text += &written(launch, problem.target).map_err(|e| format!("{name}: {}: {e}", launch.kernel))?;
    }
    Ok(text)
}

/// Returns the shader of a launch in the target's shader language if that is MSL or HLSL, or else an empty text.
fn written(launch: &Launch, target: &TargetProfile) -> Result<String, String> {
    let language = Language::from(target.api.name);
    match language {
        Language::Spirv | Language::Wgsl => Ok(String::new()),
        Language::Msl | Language::Hlsl => {
            match emit::emit(&launch.wgsl, language, emit::spirv::Options::default())?.code {
                Code::Msl(text) | Code::Hlsl(text) => Ok(text),
                Code::Spirv(_) | Code::Wgsl(_) => {
                    Err("the shader was emitted in another language than the target's".into())
                }
            }
        }
    }
}

/// Returns a hash of the shaders of each kernel, for the test cases of all operators on a target.
///
/// # Errors
/// If the passes fail on a case, or a candidate gives no launches.
pub fn kernels(target: &TargetProfile) -> Result<BTreeMap<&'static str, String>, String> {
    let mut hashers: BTreeMap<&str, Hasher> = BTreeMap::new();
    candidates_of_cases(target, &mut |kernel, text| {
        hashers.entry(kernel).or_default().0.update(text.as_bytes());
    })?;
    Ok(hashers.into_iter().map(|(kernel, hasher)| (kernel, hasher.finish())).collect())
}

/// Parses a test case and runs all passes on its graph.
///
/// # Errors
/// If the text is not a valid graph, or a pass fails.
pub fn after_passes(case: &str, target: &TargetProfile, precision: Precision) -> Result<Graph, String> {
    let mut graph = graph_text::parse(case).map_err(|e| e.to_string())?;
    let context = Context { target, precision };
    passes::run_pipeline(&mut graph, &context, passes::Options::default()).map_err(|e| e.to_string())?;
    Ok(graph)
}

/// Writes the plans of a model's functions for a target as text: dispatches with their shaders, and the location of every tensor.
///
/// # Errors
/// If the model does not compile for the target.
pub fn model(
    graph: &Graph,
    target: &TargetProfile,
    precision: Precision,
    out: &mut dyn Write,
) -> Result<(), String> {
    let options = Options { precision, ..Options::default() };
    let functions = lower_all(graph, target, &options).map_err(|e| e.to_string())?;
    functions.iter().try_for_each(|function| write_plan(function, out)).map_err(|e| e.to_string())
}

/// Lists the ONNX models of some paths, with names. A path is a file, a folder with a `model.onnx`, or a folder of such folders.
pub fn models(paths: &[PathBuf]) -> Vec<(String, PathBuf)> {
    let mut out = Vec::new();
    for path in paths {
        let inside = path.join("model.onnx");
        if path.is_file() || inside.is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            out.push((name, if path.is_file() { path.clone() } else { inside }));
        } else if let Ok(entries) = std::fs::read_dir(path) {
            let mut below: Vec<PathBuf> =
                entries.flatten().map(|e| e.path()).filter(|p| p.is_dir()).collect();
            below.sort();
            below.retain(|p| p.join("model.onnx").is_file());
            out.extend(models(&below));
        }
    }
    out
}

/// Imports an ONNX model; its unknown sizes become symbols.
///
/// # Errors
/// If the importer refuses the model.
pub fn import(path: &Path) -> Result<Graph, String> {
    Ok(onnx::load(path, &onnx::Options::default()).map_err(|e| e.to_string())?.graph)
}

/// Returns the hash of a model's plans for a target.
///
/// # Errors
/// If the model does not compile for the target.
pub fn model_hash(graph: &Graph, target: &TargetProfile, precision: Precision) -> Result<String, String> {
    let mut hasher = Hasher::default();
    model(graph, target, precision, &mut hasher)?;
    Ok(hasher.finish())
}

/// Returns the text of `emission.txt`: a line `name target hash` for each pair of a name and a target for which `cell`
/// returns a hash, in the order of the names, then of the targets.
pub fn lines<'a>(
    names: impl IntoIterator<Item = &'a str>,
    targets: &[TargetProfile],
    cell: impl Fn(usize, usize) -> Option<String>,
) -> String {
    let mut text = String::new();
    for (row, name) in names.into_iter().enumerate() {
        for (column, target) in targets.iter().enumerate() {
            if let Some(hash) = cell(row, column) {
                text += &format!("{name} {} {hash}\n", target.name);
            }
        }
    }
    text
}

fn write_plan(function: &Lowered, out: &mut dyn Write) -> fmt::Result {
    let plan = &function.plan;
    writeln!(out, "function {:?}", plan.bounds)?;
    for port in plan.inputs.iter().chain(&plan.outputs) {
        writeln!(out, "port {} {:?} {}", port.name, port.dtype, list(&port.shape))?;
    }
    for (step, number) in plan.dispatches.iter().zip(1..) {
        let locations: Vec<String> = step.locations.iter().map(|location| location_text(*location)).collect();
        let (barrier, locations) = (u32::from(step.barrier), locations.join(" "));
        writeln!(
            out,
            "step {number} `{}` barrier={barrier} bytes={} homes {locations}",
            step.label, step.bytes
        )?;
        write_launch(&step.launch, out)?;
    }
    for packed in &plan.weights {
        write_packed(packed, out)?;
    }
    writeln!(out, "tensors {:?} at {:?}", plan.tensors, plan.memory.offsets)?;
    writeln!(out, "images at {:?}", plan.images.texture_of)?;
    writeln!(out, "{:?}", plan.footprint())
}

fn write_packed(packed: &driftc::shader::pack::Packed, out: &mut dyn Write) -> fmt::Result {
    let source = &packed.source;
    writeln!(out, "packed {packed} {:?} of {:?} {:?}", packed.device, source.dtype, source.shape)
}

fn write_launch(launch: &Launch, out: &mut dyn Write) -> fmt::Result {
    let Launch { kernel, wgsl, bindings, params, grid, workgroup, workgroup_memory, iterations, .. } = launch;
    let Launch { packed, scratch, flops, subgroup_size, partial_texels, matrix, outside, needs, .. } = launch;
    writeln!(out, "launch {kernel} {} of {workgroup:?}, flops {flops}", list(grid))?;
    writeln!(out, "memory {workgroup_memory}, iterations {iterations}, subgroup {subgroup_size:?}")?;
    writeln!(out, "texels {partial_texels}, {outside:?}, {matrix:?}, needs {needs:?}")?;
    if launch.stores_halves || launch.keeps_loops {
        writeln!(out, "stores halves {}, keeps loops {}", launch.stores_halves, launch.keeps_loops)?;
    }
    writeln!(out, "params {}, scratch {}", list(params), list(scratch))?;
    for Binding { bound, resource, writable } in bindings {
        let bound = match bound {
            Bound::Operand(i) => format!("operand {i}"),
            Bound::Packed(i) => format!("packed {i}"),
            Bound::Result => "result".into(),
            Bound::Scratch(i) => format!("scratch {i}"),
            Bound::Params => "params".into(),
        };
        writeln!(out, "binding {bound} {} writable={writable}", resource.name())?;
    }
    packed.iter().try_for_each(|packed| write_packed(packed, out))?;
    writeln!(out, "{wgsl}")
}

fn location_text(location: Location) -> String {
    match location {
        Location::Arena(i) => format!("arena-{i}"),
        Location::Image(i) => format!("image-{i}"),
        Location::Input(i) => format!("input-{i}"),
        Location::Output(i) => format!("output-{i}"),
        Location::State(i) => format!("state-{i}"),
        Location::Weight(i) => format!("weight-{i}"),
        Location::Params => "params".into(),
    }
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    format!("[{}]", items.join(", "))
}
