//! `driftc verify`: compiles a model, runs it on this device, and compares the outputs with the CPU reference and with
//! given arrays. If outputs differ, the command names the cause: a pass, or the first tensor that the device computes
//! wrongly.

use std::collections::BTreeMap;
use std::io::Write;

use clap::Args;
use driftc::compile::{Lowered, Model, write};
use driftc::ir::array::Array;
use driftc::ir::eval::eval;
use serde::Serialize;

use crate::arrays::{NamedFile, generate_array, named_file, read_named, to_host};
use crate::compare::{Comparison, Tolerance, compare};
use crate::divergence::{BadPass, BadTensor, first_bad_pass, first_bad_tensor};
use crate::failure::{Failure, Result};
use crate::lowering::lower;
use crate::model::Loaded;
use crate::model_args::ModelArgs;
use crate::output::{Out, note, show_notes};
use crate::progress::Progress;
use crate::session::DeviceArgs;
use crate::target_args::load_target;
use crate::tuning::TuningArgs;
use crate::verify_case::{Case, run_bundle};

/// Size of a symbolic dimension that neither an input nor `--dim` fixes, clamped to its bounds.
const DEFAULT_SIZE: i64 = 7;

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Compile for this target profile: a name or a TOML file
    #[arg(short, long, value_name = "TARGET")]
    target: String,
    #[command(flatten)]
    tuning: TuningArgs,
    /// Read an input from a file, by name or by position from 0 (default: random floats, ones for other types)
    #[arg(short, long = "input", value_name = "NAME=FILE.npy", value_parser = named_file)]
    inputs: Vec<NamedFile>,
    /// Compare an output also with the array in this file
    #[arg(short, long = "expect", value_name = "NAME=FILE.npy", value_parser = named_file)]
    expected: Vec<NamedFile>,
    /// Set the relative tolerance (default: 1e-3, or 2e-2 for f16 and mixed)
    #[arg(long, value_name = "R", value_parser = tolerance)]
    rtol: Option<f64>,
    /// Set the absolute tolerance (default: the largest expected element times 1e-4, or times 1e-2 for f16 and mixed)
    #[arg(long, value_name = "A", value_parser = tolerance)]
    atol: Option<f64>,
    /// Optimize every SPIR-V shader with spirv-opt
    #[arg(long)]
    optimize: bool,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    target: String,
    device: String,
    precision: &'static str,
    equal: bool,
    outputs: Vec<OutputReport>,
    /// First pass that changes the result, if any.
    bad_pass: Option<BadPass>,
    /// First tensor that the device computes wrongly, if any.
    first_bad_tensor: Option<BadTensor>,
}

#[derive(Debug, Serialize)]
struct OutputReport {
    name: String,
    reference: Comparison,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<Comparison>,
}

fn tolerance(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number.filter(|n| *n >= 0.0).ok_or_else(|| "write a number such as 1e-3".to_owned())
}

pub(crate) fn run(args: &VerifyArgs, out: &mut Out) -> Result<()> {
    let target = load_target(&args.target, &args.device)?;
    let progress = Progress::start("importing");
    let (loaded, inputs, generated) = load_model(args)?;
    let model = &loaded.model;
    if !generated.is_empty() {
        note(&format!("no --input for {}: using random floats, ones for other types", generated.join(", ")));
    }
    let names: Vec<String> = model.graph.outputs().iter().map(|o| o.name.clone()).collect();
    let expected = read_named(&args.expected, &names, "output")?;
    let mut options = loaded.compile_options(&args.model.options, args.optimize)?;
    args.tuning.apply(&mut options, std::slice::from_ref(&target))?;
    let case = Case {
        target: &target,
        options: &options,
        inputs: &inputs,
        device: &args.device,
        tolerance: tolerances(args),
    };
    progress.stage("computing the reference");
    let reference = eval(&model.graph, &inputs)?;
    progress.stage("compiling");
    let lowered = lower(&args.model, &loaded, &target, &options)?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.drift");
    write(model, std::slice::from_ref(&target), &[std::slice::from_ref(&lowered)], &options, &path)?;
    progress.stage("running");
    let (device, outputs) = run_bundle(&path, &case)?;
    let mut reports = Vec::with_capacity(names.len());
    for (i, ((name, want), got)) in reference.iter().zip(&outputs).enumerate() {
        let file = expected.iter().find(|(position, _)| *position == i);
        let file = file.map(|(_, array)| to_host(array)).transpose()?;
        reports.push(OutputReport {
            name: name.clone(),
            reference: compare(got, want, case.tolerance),
            expected: file.map(|want| compare(got, &want, case.tolerance)),
        });
    }
    let as_reference = reports.iter().all(|r| r.reference.equal());
    let as_expected = reports.iter().all(|r| r.expected.as_ref().is_none_or(Comparison::equal));
    let (mut bad_pass, mut bad_tensor) = (None, None);
    if !as_reference {
        (bad_pass, bad_tensor) = diagnose(model, &lowered, &reference, &case, &progress)?;
    }
    drop(progress);
    let report = Report {
        model: model.name.clone(),
        target: target.name.clone(),
        device,
        precision: args.model.options.precision().name(),
        equal: as_reference && as_expected,
        outputs: reports,
        bad_pass,
        first_bad_tensor: bad_tensor,
    };
    if args.json {
        out.json(&report)?;
    } else {
        print(&report, out)?;
    }
    if report.equal { Ok(()) } else { Err(Failure::reported()) }
}

fn tolerances(args: &VerifyArgs) -> Tolerance {
    let default = Tolerance::for_precision(args.model.options.precision());
    Tolerance {
        relative: args.rtol.unwrap_or(default.relative),
        absolute: args.atol.unwrap_or(default.absolute),
        fixed: args.atol.is_some(),
    }
}

/// Loads the model for the inputs of the command line. Returns the model, the arrays of all inputs, and the names of
/// the inputs whose arrays were generated.
fn load_model(args: &VerifyArgs) -> Result<(Loaded, BTreeMap<String, Array>, Vec<String>)> {
    let names: Vec<String> = args.model.inputs()?.into_iter().map(|input| input.name).collect();
    let mut inputs = BTreeMap::new();
    for (position, array) in read_named(&args.inputs, &names, "input")? {
        let Some(name) = names.get(position) else { continue };
        inputs.insert(name.clone(), to_host(&array)?);
    }
    let loaded = args.model.options.load(&args.model.path, &inputs)?;
    show_notes(&loaded.notes);
    inputs.retain(|name, _| !loaded.constants.contains(name));
    let model = &loaded.model;
    let sizes: driftc::ir::dim::Bindings = model
        .graph
        .bounds
        .iter()
        .map(|(name, (low, high))| (name.clone(), DEFAULT_SIZE.clamp(*low, *high)))
        .collect();
    let mut generated = Vec::new();
    for (i, id) in model.graph.inputs().iter().enumerate() {
        let Some(input) = model.graph.input(*id) else { continue };
        if inputs.contains_key(&input.name) {
            continue;
        }
        let shape = input.shape.iter().map(|d| d.eval(&sizes).and_then(|n| usize::try_from(n).ok()));
        let shape: Vec<usize> = shape.collect::<Option<_>>().ok_or_else(|| {
            Failure::input(format!("the shape of input `{}` is unknown", input.name))
                .help(format!("give it with --input {}=FILE.npy", input.name))
        })?;
        inputs.insert(input.name.clone(), generate_array(input.dtype, &shape, i as u64));
        generated.push(format!("`{}`", input.name));
    }
    Ok((loaded, inputs, generated))
}

/// Finds the cause of a wrong result: the first pass that changes the CPU reference's result, or if there is none, the
/// first tensor that the device computes wrongly.
fn diagnose(
    model: &Model,
    lowered: &Lowered,
    reference: &[(String, Array)],
    case: &Case<'_>,
    progress: &Progress,
) -> Result<(Option<BadPass>, Option<BadTensor>)> {
    progress.stage("looking for a pass that changes the result");
    let after: Vec<(String, Array)> = eval(&lowered.graph, case.inputs)?;
    let same = after.iter().zip(reference).all(|((_, a), (_, b))| compare(a, b, case.tolerance).equal());
    if !same && let Some(bad) = first_bad_pass(&model.graph, reference, case)? {
        return Ok((Some(bad), None));
    }
    progress.stage("looking for the first tensor that differs from the reference");
    Ok((None, first_bad_tensor(lowered, case)?))
}

fn print(report: &Report, out: &mut Out) -> Result<()> {
    writeln!(out, "{} for {} at {} on {}", report.model, report.target, report.precision, report.device)?;
    for output in &report.outputs {
        writeln!(out, "  {}: compared with the reference: {}", output.name, output.reference)?;
        if let Some(expected) = &output.expected {
            writeln!(out, "  {}: compared with the file: {expected}", output.name)?;
        }
    }
    if report.equal {
        return Ok(writeln!(out, "verified")?);
    }
    writeln!(out, "differs")?;
    if let Some(bad) = &report.bad_pass {
        writeln!(out, "  pass `{}` changes output `{}`: {}", bad.pass, bad.output, bad.comparison)?;
    }
    if let Some(s) = &report.first_bad_tensor {
        writeln!(out, "  first wrong tensor: the result of node `{}`", s.node)?;
        writeln!(out, "    {}\n    kernel {}\n    {}", s.what, s.kernel, s.comparison)?;
    }
    let only_files_differ = report.outputs.iter().all(|o| o.reference.equal());
    if only_files_differ {
        let why = "the device agrees with the reference: the expected file belongs to other inputs or weights, \
                   or the importer misreads the model";
        writeln!(out, "  {why}")?;
    } else if report.bad_pass.is_none() && report.first_bad_tensor.is_none() {
        writeln!(
            out,
            "  every tensor is right if no tensor reuses memory: the plan's reuse of memory is wrong"
        )?;
    }
    Ok(())
}
