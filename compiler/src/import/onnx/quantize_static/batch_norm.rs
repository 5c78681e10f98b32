//! Folds batch normalizations into the filters and the bias of the convolution before them.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{Readers, collect_names, free_name};
use super::operators::shown_name;
use super::tensors::{Constants, float_attribute, float_tensor, int_attribute};
use crate::error::OpError;
use crate::import::onnx::schema::{GraphProto, NodeProto, TensorProto};
use crate::ir::array::Array;

/// Filters and bias of a convolution that includes its batch normalization.
struct Folded {
    filters: Array,
    bias: Vec<f32>,
}

/// Folds each batch normalization whose input only it reads into the convolution that computes this input. Returns the
/// output of the convolution for each name that vanished: the normalization and its former input.
///
/// # Errors
/// If a constant is malformed.
pub(super) fn fold_batch_norms(graph: &mut GraphProto) -> Result<BTreeMap<String, String>, OpError> {
    let constants = Constants::collect(graph);
    let readers = Readers::collect(graph);
    let mut taken = BTreeSet::new();
    collect_names(graph, &mut taken);
    let (mut renamed, mut removed) = (BTreeMap::new(), BTreeSet::new());
    for i in 0..graph.node.len() {
        let Some(conv) = graph.node.get(i) else { continue };
        let Some(between) = conv.output.first() else { continue };
        let Some(at) = readers.sole(between) else { continue };
        let Some(norm) = graph.node.get(at) else { continue };
        let Some(folded) = fold(conv, norm, &constants)? else { continue };
        let output = norm.output.first().cloned().unwrap_or_default();
        renamed.insert(between.clone(), output.clone());
        renamed.insert(shown_name(norm).to_string(), output.clone());
        let base = conv.input.get(1).cloned().unwrap_or_default();
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
    remove_unused(graph);
    Ok(renamed)
}

/// Returns the filters and the bias of `conv` followed by `norm`; `None` if `norm` cannot be folded into `conv`.
fn fold(conv: &NodeProto, norm: &NodeProto, constants: &Constants) -> Result<Option<Folded>, OpError> {
    let is_conv = matches!(conv.op_type(), "Conv" | "ConvTranspose") && conv.domain().is_empty();
    let is_norm = norm.op_type() == "BatchNormalization" && norm.domain().is_empty();
    let later_outputs = norm.output.iter().skip(1).any(|o| !o.is_empty());
    if !is_conv || !is_norm || int_attribute(norm, "training_mode", 0) != 0 || later_outputs {
        return Ok(None);
    }
    let constant = |node: &NodeProto, i: usize| match node.input.get(i) {
        Some(name) => constants.floats(name),
        None => Ok(None),
    };
    let parameters = [constant(norm, 1)?, constant(norm, 2)?, constant(norm, 3)?, constant(norm, 4)?];
    let [Some(scale), Some(shift), Some(mean), Some(variance)] = parameters else { return Ok(None) };
    let Some(mut filters) = constant(conv, 1)? else { return Ok(None) };
    let has_bias = conv.input.get(2).is_some_and(|name| !name.is_empty());
    let bias = constant(conv, 2)?;
    let channels = scale.len();
    let vectors = [&scale, &shift, &mean, &variance].into_iter().chain(&bias);
    if has_bias && bias.is_none() || vectors.clone().any(|v| v.shape != [channels]) {
        return Ok(None);
    }
    let epsilon = f64::from(float_attribute(norm, "epsilon", 1e-5));
    let factors = scale.floats()?.iter().zip(variance.floats()?);
    let factors: Vec<f64> =
        factors.map(|(s, v)| f64::from(*s) / libm::sqrt(f64::from(*v) + epsilon)).collect();
    if !scale_filters(&mut filters, &factors, conv) {
        return Ok(None);
    }
    let old: Vec<f32> = match &bias {
        Some(bias) => bias.floats()?.to_vec(),
        None => vec![0.0; channels],
    };
    let bias = old.iter().zip(mean.floats()?).zip(shift.floats()?).zip(&factors);
    let bias =
        bias.map(|(((b, m), s), f)| ((f64::from(*b) - f64::from(*m)) * f + f64::from(*s)) as f32).collect();
    Ok(Some(Folded { filters, bias }))
}

/// Multiplies the filters of each output channel by its factor. Returns false if the shapes do not match.
fn scale_filters(filters: &mut Array, factors: &[f64], conv: &NodeProto) -> bool {
    let shape = filters.shape.clone();
    let (Some(outer), Some(second)) = (shape.first().copied(), shape.get(1).copied()) else { return false };
    let taps = shape.iter().skip(2).product::<usize>().max(1);
    let group = usize::try_from(int_attribute(conv, "group", 1)).unwrap_or(0);
    let transposed = conv.op_type() == "ConvTranspose";
    let channels = if transposed { second.saturating_mul(group) } else { outer };
    if channels != factors.len() || group == 0 || outer % group != 0 || outer == 0 || second == 0 {
        return false;
    }
    let crate::ir::array::Data::Float(values) = &mut filters.data else { return false };
    for (i, v) in values.iter_mut().enumerate() {
        let (first, inner) = (i / taps / second, i / taps % second);
        let channel = if transposed { first / (outer / group) * second + inner } else { first };
        *v = (f64::from(*v) * factors.get(channel).copied().unwrap_or(1.0)) as f32;
    }
    true
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
