//! Quantizes the weights and the bias of a layer.

use super::emitter::{Dequantize, Emitter};
use super::names::free_name;
use super::operators::Layer;
use super::scale::{minimum_weight_scales, quantize_bias, quantize_weights};
use super::tensors::{Constants, byte_tensor, float_attribute, float_tensor, i32_tensor, int_attribute};
use crate::error::OpError;
use crate::import::onnx::schema::NodeProto;
use crate::ir::array::Array;

/// Bias of a layer: its name and its values.
pub(super) type Bias = (String, Vec<f32>);

/// Constants and scales of a layer.
pub(super) struct LayerContext<'a> {
    pub(super) constants: &'a Constants,
    /// Scales of the first and the second operand; the second one is used only if the weights are no constant.
    pub(super) scales: [f32; 2],
    /// True if weights may have a scale for each channel.
    pub(super) per_channel: bool,
    /// Bias that a later node adds.
    pub(super) later_bias: Option<Bias>,
}

/// Replaces the weights and the bias of a layer by dequantized integers. Returns the name of the dequantized bias that a
/// later node adds, if there is one.
///
/// # Errors
/// If a constant is malformed.
pub(super) fn quantize_layer(
    emitter: &mut Emitter,
    node: &mut NodeProto,
    layer: Layer,
    context: &LayerContext<'_>,
) -> Result<Option<String>, OpError> {
    let Some(name) = node.input.get(1).cloned() else { return Ok(None) };
    let weights = context.constants.floats(&name)?;
    let is_constant = weights.is_some();
    let bias = match &context.later_bias {
        Some(bias) => Some(bias.clone()),
        None => own_bias(node, layer, weights.as_ref(), context)?,
    };
    let scales = match weights {
        Some(mut array) => {
            multiply_by_alpha(node, layer, &mut array)?;
            let bias = bias.as_ref().map(|(_, values)| values.as_slice());
            let (input, scales) = emit_weights(emitter, node, layer, (&name, &array), bias, context)?;
            if let Some(operand) = node.input.get_mut(1) {
                *operand = input;
            }
            scales
        }
        None => vec![context.scales[1]],
    };
    let Some((name, values)) = bias else { return Ok(None) };
    let scales: Vec<f32> = scales.iter().map(|scale| scale * context.scales[0]).collect();
    let output = emit_bias(emitter, &name, &values, &scales);
    if context.later_bias.is_some() {
        return Ok(Some(output));
    }
    if layer == Layer::Gemm && is_constant {
        node.attribute.retain(|a| a.name() != "beta");
    }
    if let Some(operand) = node.input.get_mut(2) {
        *operand = output;
    }
    Ok(None)
}

/// Returns the bias of a convolution or Gemm if it is a constant with one element for each output channel.
fn own_bias(
    node: &NodeProto,
    layer: Layer,
    weights: Option<&Array>,
    context: &LayerContext<'_>,
) -> Result<Option<Bias>, OpError> {
    let Some(name) = node.input.get(2).filter(|name| !name.is_empty() && layer != Layer::MatMul) else {
        return Ok(None);
    };
    let Some(bias) = context.constants.floats(name)? else { return Ok(None) };
    let Some(weights) = weights else {
        let plain = layer != Layer::Gemm && bias.shape.len() == 1;
        return plain.then(|| bias.floats().map(|b| (name.clone(), b.to_vec()))).transpose();
    };
    let group = usize::try_from(int_attribute(node, "group", 1)).unwrap_or(1);
    let size = weight_axis(node, layer, weights).and_then(|axis| weights.shape.get(axis));
    let expected = size.map(|n| if layer == Layer::ConvTranspose { n.saturating_mul(group) } else { *n });
    if bias.shape.len() != 1 || bias.shape.first().copied() != expected {
        return Ok(None);
    }
    let factor = if layer == Layer::Gemm { float_attribute(node, "beta", 1.0) } else { 1.0 };
    Ok(Some((name.clone(), bias.floats()?.iter().map(|b| b * factor).collect())))
}

/// Axis of the output channels of a layer's weights; `None` for weights that are a vector.
fn weight_axis(node: &NodeProto, layer: Layer, weights: &Array) -> Option<usize> {
    let axis = match layer {
        Layer::Conv => 0,
        Layer::ConvTranspose => 1,
        Layer::Gemm => usize::from(int_attribute(node, "transB", 0) == 0),
        Layer::MatMul => weights.shape.len() - 1,
    };
    (weights.shape.len() >= 2).then_some(axis)
}

/// Multiplies the weights of a Gemm by its attribute `alpha`, and removes the attribute.
fn multiply_by_alpha(node: &mut NodeProto, layer: Layer, weights: &mut Array) -> Result<(), OpError> {
    let alpha = float_attribute(node, "alpha", 1.0);
    if layer != Layer::Gemm || alpha == 1.0 {
        return Ok(());
    }
    *weights = Array::f32(&weights.shape, weights.floats()?.iter().map(|w| w * alpha).collect());
    node.attribute.retain(|a| a.name() != "alpha");
    Ok(())
}

/// Adds quantized weights. Returns the name of their dequantized value, and their scales.
fn emit_weights(
    emitter: &mut Emitter,
    node: &NodeProto,
    layer: Layer,
    (name, weights): (&str, &Array),
    bias: Option<&[f32]>,
    context: &LayerContext<'_>,
) -> Result<(String, Vec<f32>), OpError> {
    let axis = weight_axis(node, layer, weights).filter(|_| context.per_channel);
    let channels = axis.and_then(|axis| weights.shape.get(axis)).copied().unwrap_or(1);
    let minima = minimum_weight_scales(bias.unwrap_or_default(), context.scales[0], channels);
    let quantized = quantize_weights(weights.floats()?, &weights.shape, axis, &minima);
    let shape: &[usize] = if axis.is_some() { &[quantized.scales.len()] } else { &[] };
    let zeros = vec![0; quantized.scales.len()];
    let values = byte_tensor(&format!("{name}_quantized"), true, &weights.shape, quantized.values);
    let values = emitter.constant(values);
    let scale = float_tensor(&format!("{name}_scale"), shape, &quantized.scales);
    let scale = emitter.constant(scale);
    let zero = emitter.constant(byte_tensor(&format!("{name}_zero_point"), true, shape, zeros));
    let output = free_name(&mut emitter.taken, &format!("{name}_dequantized"));
    let operands = Dequantize { quantized: &values, scale: &scale, zero: Some(&zero), axis };
    emitter.dequantize(name, &output, &operands);
    Ok((output, quantized.scales))
}

/// Adds a quantized bias whose elements have the scales of the sums. Returns the name of its dequantized value.
fn emit_bias(emitter: &mut Emitter, name: &str, bias: &[f32], scales: &[f32]) -> String {
    let values = emitter.constant(i32_tensor(
        &format!("{name}_quantized"),
        &[bias.len()],
        &quantize_bias(bias, scales),
    ));
    let one = scales.len() <= 1;
    // A convolution in groups has several output channels for each scale.
    let repeated: Vec<f32> = scales.iter().cycle().take(bias.len()).copied().collect();
    let (shape, scales): (&[usize], &[f32]) = if one { (&[], scales) } else { (&[bias.len()], &repeated) };
    let scale = emitter.constant(float_tensor(&format!("{name}_scale"), shape, scales));
    let output = free_name(&mut emitter.taken, &format!("{name}_dequantized"));
    let axis = (!one).then_some(0);
    emitter.dequantize(name, &output, &Dequantize { quantized: &values, scale: &scale, zero: None, axis });
    output
}
