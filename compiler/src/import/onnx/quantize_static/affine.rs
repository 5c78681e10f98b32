//! Folds operators that scale and shift each channel into the filters and the bias of the convolution before them: batch
//! normalizations, and Mul and Add with a constant for each channel.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{Readers, collect_names, free_name};
use super::operators::shown_name;
use super::tensors::{Constants, float_attribute, float_tensor, int_attribute};
use crate::error::OpError;
use crate::import::onnx::schema::{GraphProto, NodeProto, TensorProto};
use crate::ir::array::{Array, Data};

/// An operator that computes `x * factor + shift` with a factor and a shift for each channel.
struct Affine {
    factors: Vec<f64>,
    shifts: Vec<f64>,
}

/// Filters and bias of a convolution that includes the operator after it.
struct Folded {
    filters: Array,
    bias: Vec<f32>,
}

/// Folds operators into the convolutions that compute their inputs, where nothing else reads these inputs. Returns the
/// output of the convolution for each name that vanished: the operator and its former input.
///
/// # Errors
/// If a constant is malformed.
pub(super) fn fold_affine(graph: &mut GraphProto) -> Result<BTreeMap<String, String>, OpError> {
    let mut renamed = BTreeMap::new();
    // Each round folds one operator into each convolution.
    while fold_round(graph, &mut renamed)? {}
    remove_unused(graph);
    Ok(renamed)
}

/// Folds at most one operator into each convolution. Returns true if one was folded.
fn fold_round(graph: &mut GraphProto, renamed: &mut BTreeMap<String, String>) -> Result<bool, OpError> {
    let constants = Constants::collect(graph);
    let readers = Readers::collect(graph);
    let mut taken = BTreeSet::new();
    collect_names(graph, &mut taken);
    let mut removed = BTreeSet::new();
    for i in 0..graph.node.len() {
        let Some(conv) = graph.node.get(i) else { continue };
        let Some(between) = conv.output.first() else { continue };
        let Some(at) = readers.sole(between) else { continue };
        let Some(next) = graph.node.get(at) else { continue };
        let Some(folded) = fold(conv, next, &constants)? else { continue };
        let output = next.output.first().cloned().unwrap_or_default();
        for place in renamed.values_mut().filter(|place| *place == between) {
            place.clone_from(&output);
        }
        renamed.insert(between.clone(), output.clone());
        renamed.insert(shown_name(next).to_string(), output.clone());
        let base = conv.input.get(1).cloned().unwrap_or_default();
        let base = base.strip_suffix("_folded").unwrap_or(&base).to_string();
        let filters = free_name(&mut taken, &format!("{base}_folded"));
        let bias = free_name(&mut taken, &format!("{base}_folded_bias"));
        graph.initializer.push(float_tensor(&filters, &folded.filters.shape, folded.filters.floats()?));
        graph.initializer.push(float_tensor(&bias, &[folded.bias.len()], &folded.bias));
        removed.insert(at);
        if let Some(conv) = graph.node.get_mut(i) {
            conv.input.truncate(1);
            conv.input.extend([filters, bias]);
            conv.output = vec![output];
        }
    }
    let mut index = 0..;
    graph.node.retain(|_| index.next().is_none_or(|i| !removed.contains(&i)));
    Ok(!removed.is_empty())
}

/// Returns the filters and the bias of `conv` followed by `next`; `None` if `next` cannot be folded into `conv`.
fn fold(conv: &NodeProto, next: &NodeProto, constants: &Constants) -> Result<Option<Folded>, OpError> {
    if !matches!(conv.op_type(), "Conv" | "ConvTranspose") || !conv.domain().is_empty() {
        return Ok(None);
    }
    let constant = |i: usize| match conv.input.get(i) {
        Some(name) => constants.floats(name),
        None => Ok(None),
    };
    let (Some(mut filters), bias) = (constant(1)?, constant(2)?) else { return Ok(None) };
    let Some(channels) = output_channels(conv, &filters) else { return Ok(None) };
    let Some(affine) = affine(conv, next, (channels, filters.shape.len()), constants)? else {
        return Ok(None);
    };
    let old: Vec<f32> = match &bias {
        Some(bias) if bias.shape == [channels] => bias.floats()?.to_vec(),
        None if conv.input.get(2).is_none_or(String::is_empty) => vec![0.0; channels],
        Some(_) | None => return Ok(None),
    };
    scale_filters(&mut filters, &affine.factors, conv);
    let bias = old.iter().zip(&affine.factors).zip(&affine.shifts);
    let bias = bias.map(|((b, factor), shift)| (f64::from(*b) * factor + shift) as f32).collect();
    Ok(Some(Folded { filters, bias }))
}

/// Number of output channels of a convolution; `None` if its filters are malformed.
fn output_channels(conv: &NodeProto, filters: &Array) -> Option<usize> {
    let group = usize::try_from(int_attribute(conv, "group", 1)).ok().filter(|group| *group > 0)?;
    let (outer, second) = (*filters.shape.first()?, *filters.shape.get(1)?);
    if outer == 0 || second == 0 || outer % group != 0 {
        return None;
    }
    if conv.op_type() == "ConvTranspose" { second.checked_mul(group) } else { Some(outer) }
}

/// Returns the factors and shifts with which a node computes its result from the result of `conv`. The arguments are the
/// numbers of channels and of axes. Returns `None` if the node computes something else.
fn affine(
    conv: &NodeProto,
    node: &NodeProto,
    (channels, rank): (usize, usize),
    constants: &Constants,
) -> Result<Option<Affine>, OpError> {
    if !node.domain().is_empty() {
        return Ok(None);
    }
    match node.op_type() {
        "BatchNormalization" => batch_norm(node, channels, constants),
        operator @ ("Mul" | "Add") => {
            let other = node.input.iter().find(|input| Some(*input) != conv.output.first());
            let Some(constant) = other.map(|name| constants.floats(name)).transpose()?.flatten() else {
                return Ok(None);
            };
            let Some(values) = channel_values(&constant, channels, rank)? else { return Ok(None) };
            Ok(Some(match operator {
                "Mul" => Affine { factors: values, shifts: vec![0.0; channels] },
                _ => Affine { factors: vec![1.0; channels], shifts: values },
            }))
        }
        _ => Ok(None),
    }
}

/// Returns the factors and shifts of a batch normalization that does not train.
fn batch_norm(node: &NodeProto, channels: usize, constants: &Constants) -> Result<Option<Affine>, OpError> {
    let later_outputs = node.output.iter().skip(1).any(|o| !o.is_empty());
    if int_attribute(node, "training_mode", 0) != 0 || later_outputs {
        return Ok(None);
    }
    let constant = |i: usize| match node.input.get(i) {
        Some(name) => constants.floats(name),
        None => Ok(None),
    };
    let parameters = [constant(1)?, constant(2)?, constant(3)?, constant(4)?];
    let [Some(scale), Some(shift), Some(mean), Some(variance)] = parameters else { return Ok(None) };
    if [&scale, &shift, &mean, &variance].iter().any(|v| v.shape != [channels]) {
        return Ok(None);
    }
    let epsilon = f64::from(float_attribute(node, "epsilon", 1e-5));
    let factors = scale.floats()?.iter().zip(variance.floats()?);
    let factors: Vec<f64> =
        factors.map(|(s, v)| f64::from(*s) / libm::sqrt(f64::from(*v) + epsilon)).collect();
    let shifts = shift.floats()?.iter().zip(mean.floats()?).zip(&factors);
    let shifts = shifts.map(|((s, m), f)| f64::from(*s) - f64::from(*m) * f).collect();
    Ok(Some(Affine { factors, shifts }))
}

/// Returns the value of a constant for each channel of an image; `None` if it varies along other axes, or adds axes.
fn channel_values(constant: &Array, channels: usize, rank: usize) -> Result<Option<Vec<f64>>, OpError> {
    let values = constant.floats()?.iter().map(|v| f64::from(*v));
    if constant.shape.len() > rank {
        return Ok(None);
    }
    if constant.len() == 1 {
        return Ok(Some(values.cycle().take(channels).collect()));
    }
    let mut expected = vec![1; rank.saturating_sub(1)];
    if let Some(first) = expected.first_mut() {
        *first = channels;
    }
    let shape = constant.shape.strip_prefix(&[1]).filter(|shape| shape.len() == expected.len());
    let matches = shape.unwrap_or(&constant.shape) == expected;
    Ok(matches.then(|| values.collect()))
}

/// Multiplies the filters of each output channel by its factor.
fn scale_filters(filters: &mut Array, factors: &[f64], conv: &NodeProto) {
    let (outer, second) = (filters.shape.first().copied(), filters.shape.get(1).copied());
    let (outer, second) = (outer.unwrap_or(1), second.unwrap_or(1).max(1));
    let taps = filters.shape.iter().skip(2).product::<usize>().max(1);
    let group = usize::try_from(int_attribute(conv, "group", 1)).unwrap_or(1).max(1);
    let transposed = conv.op_type() == "ConvTranspose";
    let Data::Float(values) = &mut filters.data else { return };
    for (i, v) in values.iter_mut().enumerate() {
        let (first, inner) = (i / taps / second, i / taps % second);
        let per_group = (outer / group).max(1);
        let channel = if transposed { first / per_group * second + inner } else { first };
        *v = (f64::from(*v) * factors.get(channel).copied().unwrap_or(1.0)) as f32;
    }
}

/// Removes the initializers that nothing reads, and the types of values that no node computes.
pub(super) fn remove_unused(graph: &mut GraphProto) {
    let readers = Readers::collect(graph);
    let unread = |tensor: &TensorProto| !readers.is_read(tensor.name());
    let unused: BTreeSet<String> =
        graph.initializer.iter().filter(|t| unread(t)).map(|t| t.name().to_string()).collect();
    graph.initializer.retain(|tensor| !unused.contains(tensor.name()));
    // Before IR version 4, initializers are also inputs.
    graph.input.retain(|input| !unused.contains(input.name()));
    let mut names = BTreeSet::new();
    collect_names(graph, &mut names);
    graph.value_info.retain(|info| names.contains(info.name()));
}
