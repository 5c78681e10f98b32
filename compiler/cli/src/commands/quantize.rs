//! `driftc quantize`: writes an ONNX model that is quantized to 8 bits, with ranges from sample inputs.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use driftc::import::onnx::quantize_static::{
    Activations, Method, OperatorNoise, QuantizedModel, Sample, Settings, begin, finish, measure, observe,
    worth_leaving,
};
use driftc::import::onnx::{Declaration, inputs};
use serde::Serialize;

use crate::calibration_samples::{SampleFiles, list_samples, read_sample};
use crate::failure::{Failure, Result};
use crate::output::{Out, bytes, show_notes, write_file};
use crate::progress::Progress;

#[derive(Debug, Args)]
pub(crate) struct QuantizeArgs {
    /// Float model: an .onnx file
    #[arg(value_name = "MODEL.onnx")]
    path: PathBuf,
    /// Read sample inputs from this folder: .npy files, or a subfolder for each sample
    #[arg(long = "calibrate", value_name = "FOLDER")]
    samples: PathBuf,
    /// Select the ranges of activations with this method
    #[arg(long, value_enum, value_name = "METHOD", default_value = "minmax")]
    method: RangeMethod,
    /// Store activations as this type
    #[arg(long = "activations", value_enum, value_name = "u8|i8", default_value = "u8")]
    activation_type: ActivationType,
    /// Leave a node in float, by its name or the name of an output
    #[arg(long, value_name = "NODE")]
    leave: Vec<String>,
    /// Write the quantized model to this file
    #[arg(short, long, value_name = "OUT.onnx")]
    output: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Value of `--method`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RangeMethod {
    /// Smallest and largest value
    #[value(name = "minmax")]
    MinMax,
    /// Range of 99.99% of the values
    Percentile,
    /// Range with the smallest Kullback-Leibler divergence
    Entropy,
}

/// Value of `--activations`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ActivationType {
    /// 0 to 255 with a zero point
    U8,
    /// -127 to 127, symmetric
    I8,
}

#[derive(Debug, Serialize)]
struct Report {
    output: String,
    bytes: u64,
    samples: usize,
    operators: Vec<OperatorReport>,
    worth_leaving: Vec<String>,
}

#[derive(Debug, Serialize)]
struct OperatorReport {
    node: String,
    operator: String,
    weights: bool,
    /// Signal-to-noise ratio in decibels if only this operator is quantized; null without noise.
    alone_db: Option<f64>,
    /// Signal-to-noise ratio in decibels in the quantized model; null without noise.
    model_db: Option<f64>,
}

pub(crate) fn run(args: &QuantizeArgs, out: &mut Out) -> Result<()> {
    let inputs = inputs(&args.path)?;
    let samples = list_samples(&args.samples, &inputs)?;
    let model = quantize(args, &inputs, &samples)?;
    let encoded = model.encode()?;
    write_file(&args.output, |file| file.write_all(&encoded).and_then(|()| file.flush()))?;
    let operators: Vec<OperatorReport> = model.operators().iter().map(operator_report).collect();
    let noisy = worth_leaving(model.operators());
    let report = Report {
        output: args.output.display().to_string(),
        bytes: encoded.len() as u64,
        samples: samples.len(),
        operators,
        worth_leaving: noisy.iter().map(|operator| operator.node.clone()).collect(),
    };
    if args.json { out.json(&report) } else { print(&report, out) }
}

/// Collects ranges on all samples, quantizes the model, and measures its noise on all samples.
fn quantize(args: &QuantizeArgs, inputs: &[Declaration], samples: &[SampleFiles]) -> Result<QuantizedModel> {
    let settings = Settings {
        method: match args.method {
            RangeMethod::MinMax => Method::MinMax,
            RangeMethod::Percentile => Method::Percentile,
            RangeMethod::Entropy => Method::Entropy,
        },
        activations: match args.activation_type {
            ActivationType::U8 => Activations::U8,
            ActivationType::I8 => Activations::I8,
        },
        leave: args.leave.clone(),
    };
    let progress = Progress::steps("collecting ranges", 2 * samples.len());
    let Some(first) = samples.first() else { return Err(Failure::input("there are no samples")) };
    let sample = read_sample(first, inputs)?;
    let mut calibration = begin(&args.path, settings, &sample).map_err(|e| in_sample(e, first, inputs))?;
    show_notes(calibration.notes());
    for files in samples {
        let sample: Sample = read_sample(files, inputs)?;
        observe(&mut calibration, &sample).map_err(|e| in_sample(e, files, inputs))?;
        progress.step();
    }
    let mut model = finish(calibration)?;
    progress.stage("measuring noise");
    for files in samples {
        let sample: Sample = read_sample(files, inputs)?;
        measure(&mut model, &sample).map_err(|e| in_sample(e, files, inputs))?;
        progress.step();
    }
    Ok(model)
}

/// Names the sample in an error that the sample causes.
fn in_sample(error: driftc::Error, files: &SampleFiles, inputs: &[Declaration]) -> Failure {
    let is_sample = matches!(error, driftc::Error::Input { .. } | driftc::Error::Request { .. });
    let has_help = matches!(error, driftc::Error::Request { .. });
    let failure = Failure::from(error);
    if !is_sample || failure.text().starts_with("--leave") {
        return failure;
    }
    let failure = failure.context(format!("{} does not fit the model", files.path.display()));
    if has_help { failure } else { failure.help(format!("the inputs are {}", list_inputs(inputs))) }
}

/// Lists the inputs of the model with their types and shapes.
fn list_inputs(inputs: &[Declaration]) -> String {
    let input = |input: &Declaration| {
        let dtype = input.dtype.map_or("?", |dtype| dtype.name());
        let sizes = input.shape.iter().flatten().map(ToString::to_string).collect::<Vec<_>>();
        format!("`{}` {dtype}[{}]", input.name, sizes.join(", "))
    };
    inputs.iter().map(input).collect::<Vec<_>>().join(", ")
}

fn operator_report(operator: &OperatorNoise) -> OperatorReport {
    let decibels = |value: f64| value.is_finite().then_some(value);
    OperatorReport {
        node: operator.node.clone(),
        operator: operator.operator.clone(),
        weights: operator.has_weights,
        alone_db: decibels(operator.alone.decibels()),
        model_db: decibels(operator.model.decibels()),
    }
}

fn print(report: &Report, out: &mut Out) -> Result<()> {
    let decibels = |value: Option<f64>| value.map_or_else(|| "exact".to_owned(), |db| format!("{db:.1} dB"));
    let mut rows = vec![["node", "operator", "alone", "in the model"].map(str::to_owned).to_vec()];
    for o in &report.operators {
        rows.push(vec![o.node.clone(), o.operator.clone(), decibels(o.alone_db), decibels(o.model_db)]);
    }
    out.table(&[false, false, true, true], &rows)?;
    let weights = report.operators.iter().filter(|o| o.weights).count();
    writeln!(
        out,
        "{}: {}, {} operators quantized, {weights} with weights; {} samples",
        report.output,
        bytes(report.bytes),
        report.operators.len(),
        report.samples
    )?;
    let options: Vec<String> = report.worth_leaving.iter().map(|node| format!("--leave {node}")).collect();
    match options.as_slice() {
        [] => writeln!(out, "no operator alone has a signal-to-noise ratio below 20 dB")?,
        options => writeln!(out, "operators worth leaving in float: {}", options.join(" "))?,
    }
    Ok(())
}
