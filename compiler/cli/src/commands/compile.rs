//! `driftc compile`: a model in, a bundle out.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use drift_runtime::Bundle;
use drift_runtime::codec::Summary;
use driftc::compile::{Lowered, write};
use driftc::emit::{Language, wgsl};
use driftc::functions::label;
use driftc::target::TargetProfile;
use serde::Serialize;

use super::inspect::{apart_and_stored, own_and_shared};
use crate::failure::{Failure, Result};
use crate::language;
use crate::lowering::{lower_all, widened};
use crate::model::{ModelArgs, show_notes};
use crate::output::{Out, bytes, file_name, make_folder, milliseconds, time, write_file};
use crate::progress::Progress;
use crate::specialize::SpecializeArgs;
use crate::tuning::{TuningArgs, measured_nodes};

#[derive(Debug, Args)]
pub(crate) struct CompileArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// A target: a profile's name (`driftc targets list`) or the path of its TOML file; several make one bundle
    #[arg(short, long = "target", value_name = "TARGET", required = true)]
    targets: Vec<String>,
    /// The bundle to write
    #[arg(short, long, value_name = "OUT.drift")]
    output: PathBuf,
    #[command(flatten)]
    tuning: TuningArgs,
    #[command(flatten)]
    specialize: SpecializeArgs,
    /// Run spirv-opt over every shader
    #[arg(long)]
    optimize: bool,
    /// Write the WGSL of every kernel there, for WebGPU as the bundle has it
    #[arg(long, value_name = "DIR")]
    emit_dir: Option<PathBuf>,
    /// Threads to use; the result is the same for any number (default: one per processor)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    bundle: PathBuf,
    precision: &'static str,
    notes: Vec<String>,
    bytes: Sections,
    /// Weights of all targets if none were shared; `bytes.chunks` are stored.
    weights_apart: u64,
    targets: Vec<Target>,
    times_ms: Times,
}

#[derive(Debug, Serialize)]
struct Sections {
    file: u64,
    chunks: u64,
    artifacts: u64,
    manifest: u64,
    padding: u64,
}

#[derive(Debug, Default, Serialize)]
struct Target {
    target: String,
    nodes_before: usize,
    nodes_after: usize,
    dispatches: usize,
    pipelines: usize,
    /// Nodes whose kernel a tuning database picked.
    measured_nodes: usize,
    weight_bytes: u64,
    /// Of the stored weights, those that no other target uses and those that another one uses too.
    own_weight_bytes: u64,
    shared_weight_bytes: u64,
    memory: Memory,
    /// Functions for some of the sizes only.
    specialized: Vec<Special>,
    passes: Vec<Pass>,
    passes_ms: f64,
    plan_ms: f64,
}

#[derive(Debug, Serialize)]
struct Special {
    function: String,
    dispatches: usize,
    memory: Memory,
}

/// Of intermediate tensors, in bytes, as the bundle says it too.
#[derive(Debug, Default, Serialize)]
struct Memory {
    peak: u64,
    lower_bound: u64,
    naive: u64,
    /// Bytes of each arena where there are several, and of one for all tensors that lie in them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    arenas: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    together: Option<u64>,
    strategy: &'static str,
}

#[derive(Debug, Serialize)]
struct Pass {
    pass: &'static str,
    changes: usize,
    swept: usize,
    nodes: usize,
    ms: f64,
}

#[derive(Debug, Serialize)]
struct Times {
    import: f64,
    lower: f64,
    write: f64,
    total: f64,
}

pub(crate) fn run(args: &CompileArgs, out: &mut Out) -> Result<()> {
    let start = Instant::now();
    if let Some(n) = args.threads {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n.into()).build_global();
        pool.map_err(|e| Failure::input(format!("{n} threads cannot be started: {e}")))?;
    }
    let targets = load_targets(&args.targets)?;
    let progress = Progress::start("importing");
    let loaded = args.model.load()?;
    let mut notes = loaded.notes.clone();
    notes.extend(language::notes(&loaded.model));
    show_notes(&notes);
    let mut options = loaded.options(&args.model.given, args.optimize)?;
    args.tuning.apply(&mut options, &targets)?;
    args.specialize.apply(&mut options)?;
    let model = &loaded.model;
    let imported = Instant::now();
    let mut lowered = Vec::with_capacity(targets.len());
    let mut reports = Vec::with_capacity(targets.len());
    for target in &targets {
        progress.stage(&format!("planning for {}", target.name));
        let start = Instant::now();
        let one = lower_all(&args.model, &loaded, target, &options)?;
        reports.push(describe(&target.name, model.graph.len(), &one, start.elapsed()));
        if let Some(note) = widened(target, options.precision, &one) {
            show_notes(std::slice::from_ref(&note));
            notes.push(note);
        }
        lowered.push(one);
    }
    let planned = Instant::now();
    progress.stage("writing shaders and weights");
    let functions: Vec<&[Lowered]> = lowered.iter().map(Vec::as_slice).collect();
    let summary = write(model, &targets, &functions, &options, &args.output)?;
    let written = Bundle::open(&args.output)?;
    let manifest = written.manifest();
    for (report, variant) in reports.iter_mut().zip(&manifest.variants) {
        (report.own_weight_bytes, report.shared_weight_bytes) = own_and_shared(variant, manifest);
    }
    if let Some(folder) = &args.emit_dir {
        emit(folder, &targets, &functions)?;
    }
    drop(progress);
    let report = Report {
        model: model.name.clone(),
        bundle: args.output.clone(),
        precision: args.model.given.precision.name(),
        notes,
        bytes: sections(&summary),
        weights_apart: apart_and_stored(manifest).0,
        targets: reports,
        times_ms: Times {
            import: milliseconds(imported - start),
            lower: milliseconds(planned - imported),
            write: milliseconds(planned.elapsed()),
            total: milliseconds(start.elapsed()),
        },
    };
    if args.json { out.json(&report) } else { print(&report, out) }
}

/// The profiles of `-t`, each once.
pub(crate) fn load_targets(names: &[String]) -> Result<Vec<TargetProfile>> {
    let mut targets: Vec<TargetProfile> = Vec::with_capacity(names.len());
    for name in names {
        let target = TargetProfile::load(name)?;
        if targets.iter().any(|t| t.name == target.name) {
            return Err(Failure::usage(format!("target `{}` is given twice", target.name)));
        }
        targets.push(target);
    }
    Ok(targets)
}

/// The distinct shaders of functions in order of first use, with their kernels' names.
pub(crate) fn shaders(functions: &[Lowered]) -> Vec<(&'static str, &str)> {
    let mut seen = BTreeSet::new();
    let launches = functions.iter().flat_map(|f| &f.plan.dispatches).map(|step| &step.launch);
    launches.filter(|l| seen.insert(l.wgsl.as_str())).map(|l| (l.kernel, l.wgsl.as_str())).collect()
}

/// What came of a target, whose first function is the one for all sizes.
fn describe(target: &str, nodes_before: usize, functions: &[Lowered], total: Duration) -> Target {
    let Some((lowered, special)) = functions.split_first() else { return Target::default() };
    let in_passes: Duration = lowered.passes.iter().filter_map(|p| p.time).sum();
    let packed = functions.iter().flat_map(|f| &f.plan.weights);
    let packed: BTreeMap<_, u64> = packed.map(|p| (p.identity(), p.bytes())).collect();
    Target {
        target: target.to_owned(),
        nodes_before,
        nodes_after: lowered.graph.len(),
        dispatches: lowered.plan.dispatches.len(),
        pipelines: shaders(functions).len(),
        measured_nodes: measured_nodes(lowered).0,
        weight_bytes: packed.into_values().sum(),
        own_weight_bytes: 0,
        shared_weight_bytes: 0,
        memory: memory(lowered),
        specialized: special
            .iter()
            .map(|f| Special {
                function: label(&f.name, &f.plan.bounds),
                dispatches: f.plan.dispatches.len(),
                memory: memory(f),
            })
            .collect(),
        passes: lowered
            .passes
            .iter()
            .map(|p| Pass {
                pass: p.pass,
                changes: p.changes.count,
                swept: p.swept,
                nodes: p.nodes,
                ms: p.time.map_or(0.0, milliseconds),
            })
            .collect(),
        passes_ms: milliseconds(in_passes),
        plan_ms: milliseconds(total.saturating_sub(in_passes)),
    }
}

fn memory(function: &Lowered) -> Memory {
    let (memory, placed) = (function.plan.footprint(), &function.plan.memory);
    Memory {
        arenas: placed.arenas.clone(),
        together: (!placed.arenas.is_empty()).then_some(placed.together),
        peak: memory.peak,
        lower_bound: memory.lower_bound,
        naive: memory.naive,
        strategy: placed.strategy,
    }
}

fn sections(summary: &Summary) -> Sections {
    Sections {
        file: summary.file_size,
        chunks: summary.chunk_bytes,
        artifacts: summary.artifact_bytes,
        manifest: summary.manifest_bytes,
        padding: summary.padding_bytes,
    }
}

fn emit(folder: &Path, targets: &[TargetProfile], functions: &[&[Lowered]]) -> Result<()> {
    for (target, functions) in targets.iter().zip(functions) {
        let folder = if targets.len() > 1 { folder.join(file_name(&target.name)) } else { folder.to_owned() };
        make_folder(&folder)?;
        for (index, (kernel, wgsl)) in shaders(functions).into_iter().enumerate() {
            let text = match Language::from(target.api.name) {
                Language::Wgsl => {
                    wgsl::emit(wgsl).map_err(|e| Failure::input(format!("kernel {kernel}: {e}")))?
                }
                Language::Spirv | Language::Msl | Language::Hlsl => wgsl.to_owned(),
            };
            let path = folder.join(format!("{index:03}_{kernel}.wgsl"));
            write_file(&path, |file| file.write_all(text.as_bytes()))?;
        }
    }
    Ok(())
}

fn print(report: &Report, out: &mut Out) -> Result<()> {
    writeln!(out, "{} -> {} ({})", report.model, report.bundle.display(), bytes(report.bytes.file))?;
    for t in &report.targets {
        writeln!(out, "target {} at {}", t.target, report.precision)?;
        writeln!(out, "  nodes       {} -> {}", t.nodes_before, t.nodes_after)?;
        writeln!(out, "  dispatches  {} through {} pipelines", t.dispatches, t.pipelines)?;
        if t.measured_nodes > 0 {
            writeln!(out, "  measured    kernels of {} nodes picked by measured times", t.measured_nodes)?;
        }
        let (own, shared) = (bytes(t.own_weight_bytes), bytes(t.shared_weight_bytes));
        match report.targets.len() {
            1 => writeln!(out, "  weights     {}", bytes(t.weight_bytes))?,
            _ => writeln!(out, "  weights     {}: {own} of its own, {shared} shared", bytes(t.weight_bytes))?,
        }
        let m = &t.memory;
        let (peak, bound, naive) = (bytes(m.peak), bytes(m.lower_bound), bytes(m.naive));
        writeln!(out, "  memory      {peak} peak, lower bound {bound}, unshared {naive}")?;
        if m.arenas.len() > 1 {
            let (own, together) = (bytes(m.arenas.iter().sum()), bytes(m.together.unwrap_or(0)));
            writeln!(out, "  arenas      {} of {own}; one would take {together}", m.arenas.len())?;
        }
        for special in &t.specialized {
            let (what, n, peak) = (&special.function, special.dispatches, bytes(special.memory.peak));
            writeln!(out, "  specialised {what}: {n} dispatches, {peak} peak")?;
        }
    }
    if report.targets.len() > 1 {
        let (stored, apart) = (bytes(report.bytes.chunks), bytes(report.weights_apart));
        writeln!(out, "{} targets store {stored} of weights instead of {apart}", report.targets.len())?;
    }
    let ms = |ms: f64| time(Duration::from_secs_f64(ms / 1e3));
    let passes: f64 = report.targets.iter().map(|t| t.passes_ms).sum();
    let plan: f64 = report.targets.iter().map(|t| t.plan_ms).sum();
    let times = &report.times_ms;
    writeln!(
        out,
        "times  import {}, passes {}, plan {}, shaders and weights {}; {} in all",
        ms(times.import),
        ms(passes),
        ms(plan),
        ms(times.write),
        ms(times.total)
    )?;
    Ok(())
}
