//! What the compiler emits, as text and as hashes of it: every candidate of a kernel with its shaders, and the plan of a
//! model.
//!
//! A change that is not meant to change what is emitted is shown not to: the hashes stay. They leave out what is only
//! for people, such as the reasons of candidates, and the elements of constants.

use std::fmt::{self, Write};
use std::path::{Path, PathBuf};

use driftc::compile::{Lowered, Options, lower};
use driftc::functions::lower_all;
use driftc::import::onnx;
use driftc::ir::graph::Graph;
use driftc::ir::text;
use driftc::kernels::Kernel;
use driftc::passes::Precision;
use driftc::plan::choice::Choice;
use driftc::plan::tuning::plain_way;
use driftc::plan::{Home, build_visiting};
use driftc::shader::{Binding, Bound, Launch};
use driftc::target::TargetProfile;
use rayon::prelude::*;

/// The models of `tests/corpus`.
pub const MODELS: [&str; 5] =
    ["distilbert_cls", "gpt2", "mobilenet_v1", "selfie_seg_like", "whisper_encoder"];

/// What hashes text that is written to it.
#[derive(Default)]
struct Hasher(blake3::Hasher);

impl Write for Hasher {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

/// The first eight digits of the hash of what `write` writes; `-` where that is nothing.
fn hash(write: impl FnOnce(&mut dyn Write) -> Result<(), String>) -> Result<String, String> {
    let mut hasher = Hasher::default();
    write(&mut hasher)?;
    if hasher.0.count() == 0 {
        return Ok("-".into());
    }
    Ok(hasher.0.finalize().to_hex().chars().take(8).collect())
}

/// Writes every candidate of a kernel for its own cases on a target, with its launches. In f16 the hooks change only, so
/// that one candidate shows as much as all.
///
/// # Errors
/// A case that cannot be planned.
fn kernel(kernel: &Kernel, target: &TargetProfile, out: &mut dyn Write) -> Result<(), String> {
    for (i, case) in kernel.cases.iter().enumerate() {
        let graph = text::parse(case).map_err(|e| e.to_string())?;
        for precision in [Precision::F32, Precision::F16] {
            let mut options = Options { precision, ..Options::default() };
            options.plan.prefer_kernel = Some(kernel.name.into());
            let at = |e: driftc::Error| format!("{}/{i}/{precision} for {}: {e}", kernel.name, target.name);
            let lowered = lower(&graph, target, &options).map_err(at)?;
            let mut written = Ok(());
            let mut visit = |_: &str, problem: &driftc::shader::problem::Problem<'_>, choices: &[Choice]| {
                let own = choices.iter().filter(|choice| choice.kernel.name == kernel.name);
                let shown = if precision == Precision::F32 { usize::MAX } else { 1 };
                for choice in own.take(shown) {
                    let launches = (kernel.launches)(problem, &choice.candidate);
                    written = std::mem::replace(&mut written, Ok(())).and_then(|()| {
                        let title =
                            format!("{i} {precision} {} {:.4e}", plain_way(choice), choice.candidate.cost);
                        writeln!(out, "{title}").map_err(|e| e.to_string())?;
                        launches
                            .map_err(|e| format!("{title}: {e}"))?
                            .iter()
                            .try_for_each(|launch| write_launch(launch, out).map_err(|e| e.to_string()))
                    });
                }
            };
            build_visiting(&lowered.graph, target, &options.plan, &mut visit).map_err(at)?;
            written?;
        }
    }
    Ok(())
}

/// Writes the plans of a model's functions for a target: dispatches with their shaders, and the place of every tensor.
///
/// # Errors
/// A model that does not compile for the target.
fn model(
    graph: &Graph,
    target: &TargetProfile,
    precision: Precision,
    out: &mut dyn Write,
) -> Result<(), String> {
    let options = Options { precision, ..Options::default() };
    let functions = lower_all(graph, target, &options).map_err(|e| e.to_string())?;
    functions.iter().try_for_each(|function| write_plan(function, out)).map_err(|e| e.to_string())
}

/// The models of some paths: ONNX files, and folders with a `model.onnx` or with folders of models.
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

/// A model's graph with its sizes as symbols.
///
/// # Errors
/// A model that the importer refuses.
pub fn import(path: &Path) -> Result<Graph, String> {
    Ok(onnx::load(path, &onnx::Options::default()).map_err(|e| e.to_string())?.graph)
}

/// What is hashed.
#[derive(Debug)]
pub enum Subject {
    /// A kernel's candidates for its cases.
    Kernel(&'static Kernel),
    /// A model's plan.
    Model(Graph, Precision),
}

/// Writes what a subject emits for a target.
///
/// # Errors
/// As [`kernel`] and [`model`].
pub fn write(subject: &Subject, target: &TargetProfile, out: &mut dyn Write) -> Result<(), String> {
    match subject {
        Subject::Kernel(subject) => kernel(subject, target, out),
        Subject::Model(graph, precision) => model(graph, target, *precision, out),
    }
}

/// A table of hashes: one row for each subject, one column for each target, `failed` where there is nothing to hash;
/// and the reason of each failure.
pub fn table(subjects: &[(String, Subject)], targets: &[TargetProfile]) -> (String, Vec<String>) {
    let cells: Vec<(&String, &Subject, &TargetProfile)> =
        subjects.iter().flat_map(|(name, subject)| targets.iter().map(move |t| (name, subject, t))).collect();
    let hashes: Vec<Result<String, String>> =
        cells.par_iter().map(|(_, subject, target)| hash(|out| write(subject, target, out))).collect();
    let mut failures = Vec::new();
    let mut text = row("", targets.iter().map(|target| (target.name.clone(), target)));
    for ((name, _), hashes) in subjects.iter().zip(hashes.chunks(targets.len().max(1))) {
        let mut cells = Vec::new();
        for (hash, target) in hashes.iter().zip(targets) {
            if let Err(e) = hash {
                failures.push(format!("{name} for {}: {e}", target.name));
            }
            cells.push((hash.clone().unwrap_or_else(|_| "failed".into()), target));
        }
        text += &row(name, cells.into_iter());
    }
    (text, failures)
}

fn row<'a>(name: &str, cells: impl Iterator<Item = (String, &'a TargetProfile)>) -> String {
    let cells = cells.map(|(cell, target)| format!(" {cell:width$}", width = target.name.len().max(8)));
    format!("{}\n", format!("{name:22}{}", cells.collect::<String>()).trim_end())
}

fn write_plan(function: &Lowered, out: &mut dyn Write) -> fmt::Result {
    let plan = &function.plan;
    writeln!(out, "function {:?}", plan.bounds)?;
    for port in plan.inputs.iter().chain(&plan.outputs) {
        writeln!(out, "port {} {:?} {}", port.name, port.dtype, list(&port.shape))?;
    }
    for (step, number) in plan.steps.iter().zip(1..) {
        let homes: Vec<String> = step.homes.iter().map(|home| home_text(*home)).collect();
        let (barrier, homes) = (u32::from(step.barrier), homes.join(" "));
        writeln!(out, "step {number} `{}` barrier={barrier} bytes={} homes {homes}", step.label, step.bytes)?;
        write_launch(&step.launch, out)?;
    }
    for packed in &plan.weights {
        write_packed(packed, out)?;
    }
    writeln!(out, "tensors {:?} at {:?}", plan.tensors, plan.memory.offsets)?;
    writeln!(out, "images at {:?}", plan.images.places)?;
    writeln!(out, "{:?}", plan.footprint())
}

fn write_packed(packed: &driftc::shader::pack::Packed, out: &mut dyn Write) -> fmt::Result {
    let source = &packed.source;
    writeln!(out, "packed {packed} {:?} of {:?} {:?}", packed.device, source.dtype, source.shape)
}

fn write_launch(launch: &Launch, out: &mut dyn Write) -> fmt::Result {
    let Launch { kernel, wgsl, bindings, params, grid, workgroup, workgroup_memory, iterations, .. } = launch;
    let Launch { packed, scratch, flops, subgroup_size, partial_texels, matrix, outside, .. } = launch;
    writeln!(out, "launch {kernel} {} of {workgroup:?}, flops {flops}", list(grid))?;
    writeln!(out, "memory {workgroup_memory}, iterations {iterations}, subgroup {subgroup_size:?}")?;
    writeln!(out, "texels {partial_texels}, {outside:?}, {matrix:?}")?;
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

fn home_text(home: Home) -> String {
    match home {
        Home::Arena(i) => format!("arena-{i}"),
        Home::Image(i) => format!("image-{i}"),
        Home::Input(i) => format!("input-{i}"),
        Home::Output(i) => format!("output-{i}"),
        Home::Weight(i) => format!("weight-{i}"),
        Home::Params => "params".into(),
    }
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    format!("[{}]", items.join(", "))
}
