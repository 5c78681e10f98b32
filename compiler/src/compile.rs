//! Compiles an imported graph into a bundle on disk.

use std::collections::BTreeMap;
use std::path::Path;

use drift_format::codec::Summary;
use drift_format::{Hash, Provenance};

use crate::bundle::{self, Planned};
use crate::decompose;
use crate::emit::spirv;
use crate::error::Result;
use crate::functions::{self, Specialize};
use crate::fusion;
use crate::ir::dim::Bounds;
use crate::ir::graph::Graph;
use crate::layouts;
use crate::passes::{self, Context, PassReport, Precision};
use crate::plan::estimate::Costs;
use crate::plan::{self, Plan};
use crate::target::TargetProfile;

/// A model as it comes out of an importer.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// What it computes: the function `main`, unless there are `functions`.
    pub graph: Graph,
    /// Entry points that are compiled instead, by name; they share weights and states.
    pub functions: Vec<(String, Graph)>,
    /// Names of those that do what `prefill` does for more tokens, and that targets do without where it saves little time.
    pub spare: Vec<String>,
    /// By name of a function, bounds of sizes at run time where its kernels are chosen for wider ones.
    pub narrowed: BTreeMap<String, Bounds>,
    /// Its name, without folders.
    pub name: String,
    /// Hash of the model's files.
    pub hash: [u8; 32],
    /// Files that travel with the bundle, such as a tokenizer.
    pub attachments: Vec<(String, Vec<u8>)>,
}

/// What steers compiling.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How floats are stored.
    pub precision: Precision,
    /// What every SPIR-V module goes through at the end.
    pub finish: Option<spirv::Finish>,
    /// Planning.
    pub plan: plan::Options,
    /// Which sizes get a function of their own.
    pub specialize: Specialize,
    /// Options that changed the output, for the bundle's provenance.
    pub flags: Vec<String>,
}

/// A function after the passes, with its plan.
#[derive(Debug)]
pub struct Lowered {
    /// Name of the function.
    pub name: String,
    /// The graph that was planned.
    pub graph: Graph,
    /// What each pass did, and which nodes were replaced by alternatives.
    pub passes: Vec<PassReport>,
    /// The dispatches.
    pub plan: Plan,
}

/// Runs the passes, takes alternatives where they are cheaper, and plans, for one target, all sizes within their bounds by one
/// function.
///
/// # Errors
/// When a pass breaks the graph, no kernel computes a node, or a limit of the target is exceeded.
pub fn lower(graph: &Graph, target: &TargetProfile, options: &Options) -> Result<Lowered> {
    let (graph, passes) = run_passes(graph, target, options)?;
    plan_function(functions::MAIN, graph, passes, target, &options.plan)
}

/// The graph after the passes, and what each of them did.
pub(crate) fn run_passes(
    graph: &Graph,
    target: &TargetProfile,
    options: &Options,
) -> Result<(Graph, Vec<PassReport>)> {
    let mut graph = graph.clone();
    let context = Context { target, precision: options.precision };
    let reports =
        passes::run_pipeline(&mut graph, &context, passes::Options { timings: true, ..Default::default() })?;
    Ok((graph, reports))
}

/// Layouts, alternatives and the plan of a graph that went through the passes.
pub(crate) fn plan_function(
    name: &str,
    mut graph: Graph,
    mut passes: Vec<PassReport>,
    target: &TargetProfile,
    options: &plan::Options,
) -> Result<Lowered> {
    let mut costs = Costs::new(target, options.tuning.as_deref());
    passes.push(layouts::weigh::run(&mut graph, &mut costs, options)?);
    passes.push(fusion::run(&mut graph, &mut costs, options)?);
    passes.push(decompose::run(&mut graph, &mut costs, options)?);
    let plan = plan::build(&graph, target, options)?;
    Ok(Lowered { name: name.to_string(), graph, passes, plan })
}

/// What compiling produced.
#[derive(Debug)]
pub struct Report {
    /// Each target's functions, as [`functions::lower_model`] orders them.
    pub lowered: Vec<Vec<Lowered>>,
    /// Bytes written.
    pub summary: Summary,
}

/// Compiles a model for every target into one bundle.
///
/// # Errors
/// As [`lower`]; also a shader that is not valid, or a file that cannot be written.
pub fn compile(model: &Model, targets: &[TargetProfile], options: &Options, path: &Path) -> Result<Report> {
    let lowered = targets
        .iter()
        .map(|target| functions::lower_model(model, target, options))
        .collect::<Result<Vec<Vec<Lowered>>>>()?;
    let functions: Vec<&[Lowered]> = lowered.iter().map(Vec::as_slice).collect();
    let summary = write(model, targets, &functions, options, path)?;
    Ok(Report { lowered, summary })
}

/// Emits the shaders and writes the bundle of a model that was lowered for every target.
///
/// # Errors
/// A shader that is not valid, a limit of a target that is exceeded, or a file that cannot be written.
pub fn write(
    model: &Model,
    targets: &[TargetProfile],
    lowered: &[&[Lowered]],
    options: &Options,
    path: &Path,
) -> Result<Summary> {
    let planned: Vec<Planned<'_>> = targets
        .iter()
        .zip(lowered)
        .map(|(target, functions)| Planned {
            target,
            functions: functions.iter().map(|f| (f.name.clone(), &f.plan)).collect(),
        })
        .collect();
    let provenance = Provenance {
        compiler_version: env!("CARGO_PKG_VERSION").to_string(),
        flags: options.flags.clone(),
        model_name: model.name.clone(),
        model_hash: Hash(model.hash),
        notes: options.plan.tuning.iter().map(|t| ("tuning".to_string(), t.hash())).collect(),
    };
    let emit = spirv::Options { finish: options.finish, matrix: None };
    bundle::write(path, provenance, &planned, &model.attachments, emit)
}
