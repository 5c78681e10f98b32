//! Collects the values of the tensors that will be quantized, on samples.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::histogram::Histogram;
use super::names::Readers;
use super::operators::{Kind, kind, shown_name};
use super::placement::{Facts, Placement, candidates, place};
use super::prepare::{FloatModel, prepare};
use super::range::select_range;
use super::reference::{Reference, Sample, evaluate, import};
use super::scale::{Scale, activation_scale};
use super::settings::{Method, Settings};
use super::tensors::Constants;
use crate::error::{Error, OpError, Result};
use crate::ir::array::Data;
use crate::suggest::did_you_mean;

/// Remedy for models with other float types.
const CONVERT: &str = "export the model in f32";
/// Remedy for a model with a malformed constant.
const CHECK: &str = "check the file with `onnx.checker`, or export it again";

/// Model whose tensors are observed on samples.
#[derive(Debug)]
pub struct Calibration {
    pub(super) float: FloatModel,
    pub(super) constants: Constants,
    pub(super) placement: Placement,
    pub(super) settings: Settings,
    reference: Reference,
    histograms: BTreeMap<String, Histogram>,
}

/// Reads a float model and decides which tensors are quantized. The sample gives the types of the tensors; call
/// [`observe`] for it, too.
///
/// # Errors
/// If the model cannot be imported, is quantized already or has no operator that can be quantized, if it has other float
/// types than f32, or if the settings name a node that it does not have.
pub fn begin(path: &Path, settings: Settings, sample: &Sample) -> Result<Calibration> {
    check_sample(sample)?;
    let float = prepare(path, sample)?;
    let constants = Constants::collect(&float.graph);
    let layers = float.graph.node.iter().filter(|node| matches!(kind(node), Some(Kind::Layer(_))));
    for node in layers {
        if node.input.iter().any(|name| constants.is_other_float(name)) {
            let place = format!("node `{}`", shown_name(node));
            return Err(float.fault(&place, "its weights are not f32, which quantization needs", CONVERT));
        }
    }
    let left = left_nodes(&float, &settings.leave)?;
    let names = candidates(&float.graph, &constants);
    let reference = import(&float.source, float.with_graph(float.graph.clone()), &names, sample)?;
    let facts = Facts {
        graph: &float.graph,
        constants: &constants,
        readers: &Readers::collect(&float.graph),
        floats: &reference.float_names(),
        left: &left,
    };
    let placement = place(&facts).map_err(|OpError(reason)| float.fault("a constant", reason, CHECK))?;
    if placement.units.is_empty() {
        let reason = "the model has no operator that can be quantized";
        return Err(float.fault("the file", reason, "quantize a model with Conv, Gemm or MatMul of f32"));
    }
    let mut histograms = BTreeMap::new();
    for name in placement.tensors.keys() {
        let source = placement.scale_source(name);
        let bounded = placement.tensors.get(source).is_some_and(|t| t.bounded);
        let method = if bounded { Method::MinMax } else { settings.method };
        histograms.entry(source.to_string()).or_insert_with(|| Histogram::new(method));
    }
    Ok(Calibration { float, constants, placement, settings, reference, histograms })
}

impl Calibration {
    /// Notes for the user about the model.
    pub fn notes(&self) -> &[String] {
        &self.float.notes
    }

    /// Returns the scales of the tensors that have their own scale.
    pub(super) fn scales(&self) -> BTreeMap<String, Scale> {
        let Settings { method, activations, .. } = self.settings;
        let scale = |(name, histogram): (&String, &Histogram)| {
            let method = if histogram.bins.is_empty() { Method::MinMax } else { method };
            (name.clone(), activation_scale(select_range(histogram, method), activations))
        };
        let scales: Vec<(String, Scale)> = self.histograms.par_iter().map(scale).collect();
        scales.into_iter().collect()
    }
}

/// Adds the values of a sample to the ranges.
///
/// # Errors
/// If the sample does not fit the model, or if a value is infinite or not a number.
pub fn observe(calibration: &mut Calibration, sample: &Sample) -> Result<()> {
    check_sample(sample)?;
    let Calibration { float, reference, histograms, .. } = calibration;
    if !reference.fits(sample) {
        let names: BTreeSet<String> = histograms.keys().cloned().collect();
        *reference = import(&float.source, float.with_graph(float.graph.clone()), &names, sample)?;
    }
    let mut fault = None;
    evaluate(reference, sample, &mut |name, value| {
        let Some(histogram) = histograms.get_mut(name) else { return };
        let added = value.floats().and_then(|values| histogram.add(values));
        if let (Err(error), None) = (added, &fault) {
            fault = Some((name.to_string(), error.0));
        }
    })?;
    match fault {
        None => Ok(()),
        Some((name, reason)) => Err(Error::request(
            format!("the float model computes tensor `{name}`: {reason}"),
            "check that the sample is preprocessed as the model needs, or leave the operator in float with --leave",
        )),
    }
}

/// Fails if an input of a sample has a value that is infinite or not a number.
fn check_sample(sample: &Sample) -> Result<()> {
    for (name, array) in sample {
        let Data::Float(values) = &array.data else { continue };
        if let Some(value) = values.iter().find(|v| !v.is_finite()) {
            return Err(Error::Input {
                input: name.clone(),
                dimension: None,
                reason: format!("the sample has the value {value}; every value must be finite"),
            });
        }
    }
    Ok(())
}

/// Returns the indices of the nodes that stay in float, for the names of nodes or of their outputs.
fn left_nodes(float: &FloatModel, names: &[String]) -> Result<BTreeSet<usize>> {
    let nodes = &float.graph.node;
    let mut left = BTreeSet::new();
    for given in names {
        let name = float.renamed.get(given).unwrap_or(given);
        let is_named = |i: &usize| {
            nodes.get(*i).is_some_and(|node| shown_name(node) == name || node.output.contains(name))
        };
        let found: Vec<usize> = (0..nodes.len()).filter(is_named).collect();
        if found.is_empty() {
            let similar = did_you_mean(given, nodes.iter().map(shown_name));
            return Err(Error::request(
                format!("--leave {given}: the model has no node with this name or output"),
                format!("{similar}the report lists the names of the quantized operators"),
            ));
        }
        left.extend(found);
    }
    Ok(left)
}
