//! `driftc compile`: compiles a model into a bundle.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use drift_runtime::Bundle;
use drift_runtime::codec::Summary;
use driftc::compile::{Lowered, Model, write};
use driftc::emit::{Language, wgsl};
use driftc::entry_points::function_label;
use driftc::ir::graph::Graph;
use driftc::link::LinkPattern;
use driftc::self_test::References;
use driftc::target::TargetProfile;
use serde::Serialize;

use crate::bundle_sizes::{own_and_shared_weights, undeduplicated_weights};
use crate::cli_help::MODEL_OPTIONS;
use crate::estimated_time::{Estimate, estimates};
use crate::failure::{Failure, Result};
use crate::finish::check_optimize;
use crate::linked_models::load_linked;
use crate::lowering::{distinct_shaders, f16_widening_note, lower_all};
use crate::memory_report::Memory;
use crate::model::Loaded;
use crate::model_args::ModelArgs;
use crate::output::{Out, bytes, file_name, make_folder, milliseconds, show_notes, time, write_file};
use crate::progress::Progress;
use crate::self_tests::with_self_test;
use crate::signing::{read_signer, sign_bundle};
use crate::specialize::SpecializeArgs;
use crate::target_args::load_targets;
use crate::tokenizer_notes::tokenizer_notes;
use crate::tuning::{TuningArgs, count_measured_nodes};

#[derive(Debug, Clone, Args)]
pub(crate) struct CompileArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Compile these ONNX models too, each as a function with the name of its file
    #[arg(value_name = "ONNX")]
    further: Vec<PathBuf>,
    /// Keep an output of a function on the device, as an input of a function (repeatable; `*` matches any part)
    #[arg(long = "link", value_name = "FUNCTION.OUTPUT=FUNCTION.INPUT", help_heading = MODEL_OPTIONS)]
    links: Vec<LinkPattern>,
    /// Compile for this target profile: a name from `driftc targets list` or a TOML file (repeatable)
    #[arg(short, long = "target", value_name = "TARGET", required = true)]
    pub(crate) targets: Vec<String>,
    /// Write the bundle to this file
    #[arg(short, long, value_name = "OUT.drift")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    tuning: TuningArgs,
    #[command(flatten)]
    specialize: SpecializeArgs,
    /// Sign the bundle with this secret key of `driftc keygen` or minisign
    #[arg(long, value_name = "SECRET")]
    sign: Option<PathBuf>,
    /// Store N self-test vectors, for `driftc check --self-test` (default: 1 if the CPU reference is quick, else 0)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=64))]
    self_test: Option<u16>,
    /// Optimize every SPIR-V shader with spirv-opt
    #[arg(long)]
    optimize: bool,
    /// Write the WGSL source of every shader to this folder
    #[arg(long, value_name = "DIR")]
    emit_dir: Option<PathBuf>,
    /// Compile with N threads, with identical results for any number (default: one per processor)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    model: String,
    bundle: PathBuf,
    /// Id of the key that signed the bundle.
    signer: Option<String>,
    /// Number of self-test vectors.
    self_test_vectors: usize,
    precision: &'static str,
    pub(crate) notes: Vec<String>,
    pub(crate) bytes: Sections,
    /// Bytes that the weights of all targets would take without deduplication. The file stores only `bytes.chunks`
    /// bytes of weights.
    undeduplicated_weight_bytes: u64,
    pub(crate) targets: Vec<Target>,
    times_ms: Times,
}

#[derive(Debug, Serialize)]
pub(crate) struct Sections {
    pub(crate) file: u64,
    chunks: u64,
    artifacts: u64,
    manifest: u64,
    padding: u64,
    signature: u64,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Target {
    pub(crate) target: String,
    nodes_before: usize,
    nodes_after: usize,
    dispatches: usize,
    pipelines: usize,
    /// Number of nodes whose kernel was selected by a measured time.
    measured_nodes: usize,
    weight_bytes: u64,
    /// Bytes of stored weights that only this target uses.
    own_weight_bytes: u64,
    /// Bytes of stored weights that another target also uses.
    shared_weight_bytes: u64,
    memory: Memory,
    /// Estimated times at the largest sizes, of functions without specializations.
    pub(crate) estimates: Vec<Estimate>,
    /// Specializations: copies of a function that are compiled for narrower bounds of its symbols.
    specialized: Vec<Specialized>,
    passes: Vec<Pass>,
    passes_ms: f64,
    plan_ms: f64,
}

#[derive(Debug, Serialize)]
struct Specialized {
    function: String,
    dispatches: usize,
    memory: Memory,
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
    start_threads(args.threads)?;
    let targets = load_targets(&args.targets)?;
    if args.optimize {
        check_optimize(&targets)?;
    }
    // Asks for the password, so it comes before the work.
    let signer = args.sign.as_deref().map(read_signer).transpose()?;
    let progress = Progress::start("importing");
    let loaded = args.load()?;
    let imported = start.elapsed();
    let mut report =
        compile(args, &targets, &loaded, &References::default(), &|stage| progress.stage(stage))?;
    if let Some(signer) = &signer {
        report.bytes.signature = sign_bundle(&Bundle::open(&args.output)?, signer, &args.output)?;
        report.bytes.file += report.bytes.signature;
        report.signer = Some(signer.id.to_string());
    }
    drop(progress);
    show_notes(&report.notes);
    report.times_ms.import = milliseconds(imported);
    report.times_ms.total = milliseconds(start.elapsed());
    if args.json { out.json(&report) } else { print(&report, out) }
}

/// Compiles an imported model and writes the bundle. `references` has self-test results of earlier calls for the
/// model. `stage` shows what is being done. The times of the report have no import.
///
/// # Errors
/// If the model cannot be compiled for a target, or a file cannot be written.
pub(crate) fn compile(
    args: &CompileArgs,
    targets: &[TargetProfile],
    loaded: &Loaded,
    references: &References,
    stage: &dyn Fn(&str),
) -> Result<Report> {
    let start = Instant::now();
    let model = &loaded.model;
    let mut notes = loaded.notes.clone();
    notes.extend(tokenizer_notes(model));
    let mut options = loaded.compile_options(&args.model.options, args.optimize)?;
    args.tuning.apply(&mut options, targets)?;
    args.specialize.apply(&mut options)?;
    options.flags.extend(args.self_test.map(|n| format!("--self-test {n}")));
    let mut lowered = Vec::with_capacity(targets.len());
    let mut reports = Vec::with_capacity(targets.len());
    for target in targets {
        stage(&format!("planning for {}", target.name));
        let start = Instant::now();
        let functions = lower_all(&args.model, loaded, target, &options)?;
        reports.push(describe(target, nodes(model), &functions, start.elapsed()));
        notes.extend(f16_widening_note(target, options.precision, &functions));
        lowered.push(functions);
    }
    let planned = Instant::now();
    stage("computing the self-test");
    let functions: Vec<&[Lowered]> = lowered.iter().map(Vec::as_slice).collect();
    let (described, self_test_vectors) =
        with_self_test(model, &functions, &options, args.self_test, references)?;
    stage("writing shaders and weights");
    let summary = write(&described, targets, &functions, &options, &args.output)?;
    let written = Bundle::open(&args.output)?;
    let manifest = written.manifest();
    for (report, variant) in reports.iter_mut().zip(&manifest.variants) {
        (report.own_weight_bytes, report.shared_weight_bytes) = own_and_shared_weights(variant, manifest);
    }
    if let Some(folder) = &args.emit_dir {
        write_shaders(folder, targets, &functions)?;
    }
    Ok(Report {
        model: model.name.clone(),
        bundle: args.output.clone(),
        signer: None,
        self_test_vectors,
        precision: args.model.options.precision().name(),
        notes,
        bytes: sections(&summary),
        undeduplicated_weight_bytes: undeduplicated_weights(manifest),
        targets: reports,
        times_ms: Times {
            import: 0.0,
            lower: milliseconds(planned - start),
            write: milliseconds(planned.elapsed()),
            total: milliseconds(start.elapsed()),
        },
    })
}

fn start_threads(n_threads: Option<u16>) -> Result<()> {
    let Some(n) = n_threads else { return Ok(()) };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n.into()).build_global();
    pool.map_err(|e| Failure::input(format!("cannot start {n} threads: {e}")))
}

impl CompileArgs {
    /// Loads the model, or all models.
    pub(crate) fn load(&self) -> Result<Loaded> {
        if self.further.is_empty() && self.links.is_empty() {
            return self.model.load();
        }
        let paths: Vec<&PathBuf> = self.paths().collect();
        load_linked(&self.model.options, &paths, &self.links)
    }

    /// Paths of the model, or of all models.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.model.path].into_iter().chain(&self.further)
    }

    /// Returns these arguments with another output file.
    pub(crate) fn writing_to(&self, output: &Path) -> Self {
        Self { output: output.to_owned(), ..self.clone() }
    }
}

/// Number of nodes of the first function before the passes.
fn nodes(model: &Model) -> usize {
    let first = model.entry_points.first().map(|entry| &entry.graph);
    if model.graph.is_empty() { first.map_or(0, Graph::len) } else { model.graph.len() }
}

/// Report of the functions compiled for a target. The first function is the general one, for all sizes; the others are
/// specializations.
fn describe(target: &TargetProfile, nodes_before: usize, functions: &[Lowered], total: Duration) -> Target {
    let Some((general, specialized)) = functions.split_first() else { return Target::default() };
    let in_passes: Duration = general.passes.iter().filter_map(|p| p.time).sum();
    let packed = functions.iter().flat_map(|f| &f.plan.weights);
    let packed: BTreeMap<_, u64> = packed.map(|p| (p.identity(), p.bytes())).collect();
    Target {
        target: target.name.clone(),
        nodes_before,
        nodes_after: general.graph.len(),
        dispatches: general.plan.dispatches.len(),
        pipelines: distinct_shaders(functions).len(),
        measured_nodes: count_measured_nodes(general).0,
        weight_bytes: packed.into_values().sum(),
        own_weight_bytes: 0,
        shared_weight_bytes: 0,
        memory: Memory::from_lowered(general),
        estimates: estimates(functions, target),
        specialized: specialized
            .iter()
            .map(|f| Specialized {
                function: function_label(&f.name, &f.plan.bounds),
                dispatches: f.plan.dispatches.len(),
                memory: Memory::from_lowered(f),
            })
            .collect(),
        passes: general
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

fn sections(summary: &Summary) -> Sections {
    Sections {
        file: summary.file_size,
        chunks: summary.chunk_bytes,
        artifacts: summary.artifact_bytes,
        manifest: summary.manifest_bytes,
        padding: summary.padding_bytes,
        signature: 0,
    }
}

/// Writes the WGSL source of every shader to `folder`, in one subfolder per target if there are several targets.
fn write_shaders(folder: &Path, targets: &[TargetProfile], functions: &[&[Lowered]]) -> Result<()> {
    for (target, functions) in targets.iter().zip(functions) {
        let folder = if targets.len() > 1 { folder.join(file_name(&target.name)) } else { folder.to_owned() };
        make_folder(&folder)?;
        for (index, (kernel, wgsl)) in distinct_shaders(functions).into_iter().enumerate() {
            let source = match Language::from(target.api.name) {
                Language::Wgsl => {
                    wgsl::emit(wgsl).map_err(|e| Failure::input(format!("kernel {kernel}: {e}")))?
                }
                Language::Spirv | Language::Msl | Language::Hlsl => wgsl.to_owned(),
            };
            let path = folder.join(format!("{index:03}_{kernel}.wgsl"));
            write_file(&path, |file| file.write_all(source.as_bytes()))?;
        }
    }
    Ok(())
}

fn print(report: &Report, out: &mut Out) -> Result<()> {
    writeln!(out, "{} -> {} ({})", report.model, report.bundle.display(), bytes(report.bytes.file))?;
    if let Some(id) = &report.signer {
        writeln!(out, "signed by key {id}")?;
    }
    for t in &report.targets {
        writeln!(out, "target {} at {}", t.target, report.precision)?;
        writeln!(out, "  nodes       {} -> {}", t.nodes_before, t.nodes_after)?;
        writeln!(out, "  dispatches  {} with {} pipelines", t.dispatches, t.pipelines)?;
        if t.measured_nodes > 0 {
            writeln!(out, "  measured    kernels of {} nodes selected by measured times", t.measured_nodes)?;
        }
        let (own, shared) = (bytes(t.own_weight_bytes), bytes(t.shared_weight_bytes));
        match report.targets.len() {
            1 => writeln!(out, "  weights     {}", bytes(t.weight_bytes))?,
            _ => writeln!(
                out,
                "  weights     {}: {own} only for this target, {shared} shared with other targets",
                bytes(t.weight_bytes)
            )?,
        }
        let m = &t.memory;
        let (peak, bound, naive) = (bytes(m.peak), bytes(m.lower_bound), bytes(m.naive));
        writeln!(out, "  memory      {peak} peak, lower bound {bound}, {naive} without reuse")?;
        if m.arenas.len() > 1 {
            let (sum, single) = (bytes(m.arenas.iter().sum()), bytes(m.single_arena.unwrap_or(0)));
            writeln!(
                out,
                "  arenas      {} with {sum} in total; a single arena would take {single}",
                m.arenas.len()
            )?;
        }
        for specialized in &t.specialized {
            let (function, n) = (&specialized.function, specialized.dispatches);
            let peak = bytes(specialized.memory.peak);
            writeln!(out, "  function    {function}: {n} dispatches, {peak} peak")?;
        }
    }
    if report.targets.len() > 1 {
        let (stored, all) = (bytes(report.bytes.chunks), bytes(report.undeduplicated_weight_bytes));
        let n = report.targets.len();
        writeln!(out, "{n} targets store {stored} of weights; without deduplication {all}")?;
    }
    let ms = |ms: f64| time(Duration::from_secs_f64(ms / 1e3));
    let passes: f64 = report.targets.iter().map(|t| t.passes_ms).sum();
    let plan: f64 = report.targets.iter().map(|t| t.plan_ms).sum();
    let times = &report.times_ms;
    writeln!(
        out,
        "times  import {}, passes {}, plan {}, shaders and weights {}, total {}",
        ms(times.import),
        ms(passes),
        ms(plan),
        ms(times.write),
        ms(times.total)
    )?;
    Ok(())
}
