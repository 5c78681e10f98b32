//! Writes the quantized model of a calibration, and measures its noise on samples.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;

use super::calibrate::Calibration;
use super::noise::{Noise, OperatorNoise};
use super::operators::{Kind, shown_name};
use super::placement::Unit;
use super::prepare::FloatModel;
use super::reference::{Reference, Sample, evaluate, import};
use super::rewrite::{Form, Plan, Rewritten, rewrite};
use crate::error::{OpError, Result};
use crate::import::onnx::schema::{GraphProto, ModelProto};

/// Maximum number of bytes of an ONNX file, a limit of protobuf.
const MAX_BYTES: usize = i32::MAX as usize;

/// A quantized model.
#[derive(Debug)]
pub struct QuantizedModel {
    float: FloatModel,
    whole: Rewritten,
    alone: Rewritten,
    /// Names of the outputs of the measured units.
    outputs: Vec<String>,
    operators: Vec<OperatorNoise>,
    /// The imported models: alone and whole.
    references: Option<(Reference, Reference)>,
}

/// Writes the quantized model for the ranges of the samples.
///
/// # Errors
/// If a constant of the model is malformed.
pub fn finish(calibration: Calibration) -> Result<QuantizedModel> {
    let scales = calibration.scales();
    let plan = Plan {
        graph: &calibration.float.graph,
        constants: &calibration.constants,
        placement: &calibration.placement,
        scales: &scales,
        activations: calibration.settings.activations,
        per_channel: calibration.float.per_channel,
    };
    let rewritten = |form| {
        rewrite(&plan, form).map_err(|OpError(reason)| {
            calibration.float.fault("a constant", reason, "check the file with `onnx.checker`")
        })
    };
    let (whole, alone) = (rewritten(Form::Whole)?, rewritten(Form::Alone)?);
    let measured: Vec<&Unit> = calibration.placement.units.iter().filter(|u| u.kind != Kind::Same).collect();
    let operators = measured.iter().filter_map(|unit| operator(&calibration.float.graph, unit)).collect();
    let outputs = measured.iter().map(|unit| unit.output.clone()).collect();
    Ok(QuantizedModel { float: calibration.float, whole, alone, outputs, operators, references: None })
}

/// Returns an operator without noise.
fn operator(graph: &GraphProto, unit: &Unit) -> Option<OperatorNoise> {
    let node = graph.node.get(*unit.nodes.first()?)?;
    Some(OperatorNoise {
        node: shown_name(node).to_string(),
        operator: node.op_type().to_string(),
        has_weights: matches!(unit.kind, Kind::Layer(_)),
        alone: Noise::default(),
        model: Noise::default(),
    })
}

impl QuantizedModel {
    /// Noise of each quantized operator on the samples that were measured, in the order of the model. Operators that only
    /// move values are not listed.
    pub fn operators(&self) -> &[OperatorNoise] {
        &self.operators
    }

    /// Returns the bytes of the ONNX file.
    ///
    /// # Errors
    /// If the file would have 2 GiB or more, which protobuf does not allow.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let model = self.float.with_graph(self.whole.graph.clone());
        if model.encoded_len() > MAX_BYTES {
            let reason = format!(
                "the quantized model has {} bytes; an ONNX file has less than 2 GiB",
                model.encoded_len()
            );
            return Err(self.float.fault(
                "the file",
                reason,
                "leave fewer operators in float, or split the model",
            ));
        }
        Ok(model.encode_to_vec())
    }
}

/// Adds the noise on a sample: compares the quantized model with the float model.
///
/// # Errors
/// If the sample does not fit the model.
pub fn measure(model: &mut QuantizedModel, sample: &Sample) -> Result<()> {
    let fits = |(alone, whole): &(Reference, Reference)| alone.fits(sample) && whole.fits(sample);
    let (alone, whole) = match model.references.take().filter(fits) {
        Some(references) => references,
        None => import_both(model, sample)?,
    };
    let QuantizedModel { outputs, operators, .. } = model;
    let positions: BTreeMap<&str, usize> =
        outputs.iter().enumerate().map(|(i, name)| (name.as_str(), i)).collect();
    let by_result = |rewritten: &Rewritten| -> BTreeMap<String, usize> {
        let position =
            |(name, result): (&String, &String)| Some((result.clone(), *positions.get(name.as_str())?));
        rewritten.results.iter().filter_map(position).collect()
    };
    let (results_alone, results_whole) = (by_result(&model.alone), by_result(&model.whole));
    let mut floats: BTreeMap<usize, Vec<f32>> = BTreeMap::new();
    evaluate(&alone, sample, &mut |name, value| {
        if let (Some(i), Ok(values)) = (positions.get(name), value.floats()) {
            floats.insert(*i, values.to_vec());
        }
        if let Some((operator, float)) = found(&results_alone, name, operators, &floats) {
            operator.alone.add(float, value);
        }
    })?;
    evaluate(&whole, sample, &mut |name, value| {
        if let Some((operator, float)) = found(&results_whole, name, operators, &floats) {
            operator.model.add(float, value);
        }
    })?;
    model.references = Some((alone, whole));
    Ok(())
}

/// Returns the operator with the given result, and the float values of its output.
fn found<'a>(
    results: &BTreeMap<String, usize>,
    name: &str,
    operators: &'a mut [OperatorNoise],
    floats: &'a BTreeMap<usize, Vec<f32>>,
) -> Option<(&'a mut OperatorNoise, &'a [f32])> {
    let i = results.get(name)?;
    Some((operators.get_mut(*i)?, floats.get(i)?))
}

/// Imports the models of both forms for a sample.
fn import_both(model: &QuantizedModel, sample: &Sample) -> Result<(Reference, Reference)> {
    let float = &model.float;
    let file = |rewritten: &Rewritten| -> ModelProto { float.with_graph(rewritten.graph.clone()) };
    let results = |rewritten: &Rewritten| rewritten.results.values().cloned().collect::<BTreeSet<String>>();
    let mut wanted = results(&model.alone);
    wanted.extend(model.outputs.iter().cloned());
    let alone = import(&float.source, file(&model.alone), &wanted, sample)?;
    let whole = import(&float.source, file(&model.whole), &results(&model.whole), sample)?;
    Ok((alone, whole))
}
