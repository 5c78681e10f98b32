//! `driftc verify`: compile a model, run it on the present device, and compare with the CPU reference and with given
//! outputs. Where they differ, name what is at fault: a pass, or the first tensor that the device gets wrong.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use clap::Args;
use drift_runtime::ArrayRef;
use driftc::compile::{Lowered, Model, Options, write};
use driftc::ir::array::Array;
use driftc::ir::eval::eval;
use driftc::target::TargetProfile;
use serde::Serialize;

use crate::arrays::{NamedFile, made_up, named_file, read_named, to_host, to_runtime};
use crate::compare::{Comparison, Tolerance, compare};
use crate::divergence::{BadPass, Suspect, first_bad_pass, first_bad_tensor};
use crate::failure::{Failure, Result};
use crate::lowering::lower;
use crate::model::{Loaded, ModelArgs, show_notes};
use crate::output::{Out, note};
use crate::progress::Progress;
use crate::session::{CacheArgs, DeviceArgs, load};
use crate::tuning::TuningArgs;

/// The size of a symbolic dimension that neither an input nor `--dim` fixes, where its bounds allow it.
const SIZE: i64 = 7;

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The target: a profile's name or the path of its TOML file
    #[arg(short, long, value_name = "TARGET")]
    target: String,
    #[command(flatten)]
    tuning: TuningArgs,
    /// An input by its name, or by its position counted from 0 (default: random floats, ones elsewhere)
    #[arg(short, long = "input", value_name = "NAME=FILE.npy", value_parser = named_file)]
    inputs: Vec<NamedFile>,
    /// What an output must be, besides what the reference says
    #[arg(short, long = "expect", value_name = "NAME=FILE.npy", value_parser = named_file)]
    expected: Vec<NamedFile>,
    /// Tolerance as a part of the expected element (default: 1e-3, or 2e-2 for f16)
    #[arg(long, value_name = "R", value_parser = tolerance)]
    rtol: Option<f64>,
    /// Absolute tolerance (default: 1e-4, or 1e-2 for f16, of the largest expected element)
    #[arg(long, value_name = "A", value_parser = tolerance)]
    atol: Option<f64>,
    /// Run spirv-opt over every shader
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
    /// The pass that changes the result, where one does.
    bad_pass: Option<BadPass>,
    /// The first tensor that the device gets wrong, where it gets one wrong.
    first_bad_tensor: Option<Suspect>,
}

#[derive(Debug, Serialize)]
struct OutputReport {
    name: String,
    reference: Comparison,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<Comparison>,
}

/// What the compiler and the device make of one set of inputs.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub(crate) target: &'a TargetProfile,
    pub(crate) options: &'a Options,
    pub(crate) inputs: &'a BTreeMap<String, Array>,
    pub(crate) device: &'a DeviceArgs,
    pub(crate) tolerance: Tolerance,
}

fn tolerance(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number.filter(|n| *n >= 0.0).ok_or_else(|| "write a number such as 1e-3".to_owned())
}

pub(crate) fn run(args: &VerifyArgs, out: &mut Out) -> Result<()> {
    let target = TargetProfile::load(&args.target)?;
    let progress = Progress::start("importing");
    let (loaded, inputs, made_up) = load_model(args)?;
    let model = &loaded.model;
    if !made_up.is_empty() {
        note(&format!("no --input for {}: random floats, ones elsewhere", made_up.join(", ")));
    }
    let names: Vec<String> = model.graph.outputs().iter().map(|o| o.name.clone()).collect();
    let expected = read_named(&args.expected, &names, "output")?;
    let mut options = loaded.options(&args.model.given, args.optimize)?;
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
    let (mut bad_pass, mut suspect) = (None, None);
    if !as_reference {
        (bad_pass, suspect) = diagnose(model, &lowered, &reference, &case, &progress)?;
    }
    drop(progress);
    let report = Report {
        model: model.name.clone(),
        target: target.name.clone(),
        device,
        precision: args.model.given.precision.name(),
        equal: as_reference && as_expected,
        outputs: reports,
        bad_pass,
        first_bad_tensor: suspect,
    };
    if args.json {
        out.json(&report)?;
    } else {
        print(&report, out)?;
    }
    if report.equal { Ok(()) } else { Err(Failure::told()) }
}

fn tolerances(args: &VerifyArgs) -> Tolerance {
    let default = Tolerance::of(args.model.given.precision);
    Tolerance {
        relative: args.rtol.unwrap_or(default.relative),
        absolute: args.atol.unwrap_or(default.absolute),
        fixed: args.atol.is_some(),
    }
}

/// The model for the inputs that are given, all its inputs, and the names of those made up.
fn load_model(args: &VerifyArgs) -> Result<(Loaded, BTreeMap<String, Array>, Vec<String>)> {
    let names: Vec<String> = args.model.inputs()?.into_iter().map(|input| input.name).collect();
    let mut inputs = BTreeMap::new();
    for (position, array) in read_named(&args.inputs, &names, "input")? {
        let Some(name) = names.get(position) else { continue };
        inputs.insert(name.clone(), to_host(&array)?);
    }
    let loaded = args.model.given.load(&args.model.path, &inputs)?;
    show_notes(&loaded.notes);
    inputs.retain(|name, _| !loaded.constants.contains(name));
    let model = &loaded.model;
    let open: driftc::ir::dim::Bindings = model
        .graph
        .bounds
        .iter()
        .map(|(name, (low, high))| (name.clone(), SIZE.clamp(*low, *high)))
        .collect();
    let mut made = Vec::new();
    for (i, id) in model.graph.inputs().iter().enumerate() {
        let Some(input) = model.graph.input(*id) else { continue };
        if inputs.contains_key(&input.name) {
            continue;
        }
        let sizes = input.shape.iter().map(|d| d.eval(&open).and_then(|n| usize::try_from(n).ok()));
        let sizes: Vec<usize> = sizes.collect::<Option<_>>().ok_or_else(|| {
            Failure::input(format!("the shape of input `{}` is not known", input.name))
                .help(format!("give it with --input {}=FILE.npy", input.name))
        })?;
        inputs.insert(input.name.clone(), made_up(input.dtype, &sizes, i as u64));
        made.push(format!("`{}`", input.name));
    }
    Ok((loaded, inputs, made))
}

/// Loads a bundle and runs it; the device's name, and the outputs in their order.
pub(crate) fn run_bundle(path: &Path, case: &Case<'_>) -> Result<(String, Vec<Array>)> {
    let mut session = load(path, case.device, Some(&case.target.name), &CacheArgs::default())?;
    let arrays: Vec<(&str, drift_runtime::Array)> =
        case.inputs.iter().map(|(name, array)| (name.as_str(), to_runtime(array))).collect();
    let arrays: Vec<(&str, ArrayRef<'_>)> = arrays.iter().map(|(name, a)| (*name, a.as_ref())).collect();
    let outputs = session.run("main", &arrays)?;
    let outputs = outputs.iter().map(to_host).collect::<Result<Vec<Array>>>()?;
    Ok((session.device().name.clone(), outputs))
}

/// What is at fault: a pass when the reference of the graph after the passes differs, else the device or its kernels.
fn diagnose(
    model: &Model,
    lowered: &Lowered,
    reference: &[(String, Array)],
    case: &Case<'_>,
    progress: &Progress,
) -> Result<(Option<BadPass>, Option<Suspect>)> {
    progress.stage("looking for a pass that changes the result");
    let after: Vec<(String, Array)> = eval(&lowered.graph, case.inputs)?;
    let same = after.iter().zip(reference).all(|((_, a), (_, b))| compare(a, b, case.tolerance).equal());
    if !same && let Some(bad) = first_bad_pass(&model.graph, reference, case)? {
        return Ok((Some(bad), None));
    }
    progress.stage("looking for the first tensor that diverges");
    Ok((None, first_bad_tensor(lowered, case)?))
}

fn print(report: &Report, out: &mut Out) -> Result<()> {
    writeln!(out, "{} for {} at {} on {}", report.model, report.target, report.precision, report.device)?;
    for output in &report.outputs {
        writeln!(out, "  {}: against the reference: {}", output.name, output.reference)?;
        if let Some(expected) = &output.expected {
            writeln!(out, "  {}: against the file: {expected}", output.name)?;
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
        writeln!(out, "  the first tensor that diverges is the result of node `{}`", s.node)?;
        writeln!(out, "    {}\n    kernel {}\n    {}", s.what, s.kernel, s.comparison)?;
    }
    let given_only = report.outputs.iter().all(|o| o.reference.equal());
    if given_only {
        let why = "the device agrees with the reference, so the expected file belongs to other inputs or weights, \
                   or the importer misreads the model";
        writeln!(out, "  {why}")?;
    } else if report.bad_pass.is_none() && report.first_bad_tensor.is_none() {
        writeln!(out, "  every tensor by itself is right: the fault is in how the whole plan shares memory")?;
    }
    Ok(())
}
