//! Convolutions, and the window attributes that convolutions and pools share.

use super::elementwise::typed_binary;
use super::lowering::{Call, Lowered, OpEntry, microsoft, op};
use super::refused::Refused;
use crate::ir::dim::Dim;
use crate::ir::element::{BinaryFn, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::op::{Conv, ConvTranspose, Pad};
use crate::ir::ops::pad::PadMode;

pub(super) const OPS: &[OpEntry] = &[
    op("Conv", 1, |c| Ok(conv(c)?.into())),
    op("ConvTranspose", 1, conv_transpose),
    microsoft("FusedConv", fused_conv),
];

/// Strides, dilations and padding of windows over the spatial axes.
#[derive(Debug)]
pub(super) struct WindowAttributes {
    pub(super) strides: Vec<usize>,
    pub(super) dilations: Vec<usize>,
    pub(super) begin: Vec<usize>,
    pub(super) end: Vec<usize>,
    /// Padding of symbolic size before and after each spatial axis, in addition to `begin` and `end`; `None` if the
    /// size of all padding is known.
    pub(super) symbolic_padding: Option<[Vec<Dim>; 2]>,
}

impl WindowAttributes {
    /// Pads `x` by the symbolic padding; the added elements are `value`.
    pub(super) fn pad_symbolic(&self, call: &mut Call<'_>, x: NodeId, value: f64) -> Lowered<NodeId> {
        let Some(amounts) = &self.symbolic_padding else { return Ok(x) };
        let others = [Dim::known(0), Dim::known(0)];
        let [before, after] = amounts.clone().map(|list| [&others[..], &list[..]].concat());
        call.add(Pad { mode: PadMode::Constant, before, after, value }, &[x])
    }
}

/// Values of the attribute `auto_pad` of convolutions and pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AutoPad {
    Explicit,
    Valid,
    /// SAME_UPPER or SAME_LOWER: the padding makes the output size `ceil(input / stride)`.
    Same {
        /// True if the end gets the extra element of an odd padding (SAME_UPPER), false if the beginning gets it
        /// (SAME_LOWER).
        upper: bool,
    },
}

fn auto_pad(call: &Call<'_>) -> Lowered<AutoPad> {
    Ok(match call.attributes.text("auto_pad", "NOTSET")? {
        "NOTSET" | "" => AutoPad::Explicit,
        "VALID" => AutoPad::Valid,
        "SAME_UPPER" => AutoPad::Same { upper: true },
        "SAME_LOWER" => AutoPad::Same { upper: false },
        other => {
            return Err(Refused::attribute(
                "auto_pad",
                other,
                "`NOTSET`, `VALID`, `SAME_UPPER`, `SAME_LOWER`",
            ));
        }
    })
}

fn positive(name: &str, values: Vec<usize>) -> Lowered<Vec<usize>> {
    if values.contains(&0) {
        return Err(Refused::new(format!("attribute `{name}` contains 0; every value must be positive")));
    }
    Ok(values)
}

/// Splits a total padding evenly into beginning and end. The extra element of an odd padding goes to the end if
/// `upper`, else to the beginning.
fn split_evenly(total: usize, upper: bool) -> (usize, usize) {
    let small = total / 2;
    if upper { (small, total - small) } else { (total - small, small) }
}

/// Reads strides, dilations and padding of a convolution or pool for an image with the spatial sizes `extents`.
pub(super) fn window(call: &Call<'_>, extents: &[Dim], kernel: &[usize]) -> Lowered<WindowAttributes> {
    let rank = kernel.len();
    let strides = positive("strides", call.attributes.sizes("strides", rank, 1)?)?;
    let dilations = positive("dilations", call.attributes.sizes("dilations", rank, 1)?)?;
    let pads = call.attributes.sizes("pads", 2 * rank, 0)?;
    let (mut begin, mut end) = (pads[..rank].to_vec(), pads[rank..].to_vec());
    let mut symbolic_padding: Option<[Vec<Dim>; 2]> = None;
    match auto_pad(call)? {
        AutoPad::Explicit => {}
        AutoPad::Valid => {
            begin = vec![0; rank];
            end = vec![0; rank];
        }
        AutoPad::Same { upper } => {
            for i in 0..rank {
                let reach = (kernel[i].saturating_sub(1)).saturating_mul(dilations[i]).saturating_add(1);
                let total = same_padding(call, &extents[i], strides[i], reach)?;
                (begin[i], end[i]) = (0, 0);
                match total.as_known() {
                    Some(total) => {
                        (begin[i], end[i]) = split_evenly(usize::try_from(total).unwrap_or(0), upper);
                    }
                    None => {
                        let small = total.floor_div(2);
                        let large = total.sub(&small);
                        let lists = symbolic_padding
                            .get_or_insert_with(|| [(); 2].map(|()| vec![Dim::known(0); rank]));
                        (lists[0][i], lists[1][i]) = if upper { (small, large) } else { (large, small) };
                    }
                }
            }
        }
    }
    Ok(WindowAttributes { strides, dilations, begin, end, symbolic_padding })
}

/// Returns the total padding of one axis for SAME_UPPER and SAME_LOWER: the least padding with which a window of
/// `reach` elements fits at every multiple of `stride` below `extent`.
fn same_padding(call: &Call<'_>, extent: &Dim, stride: usize, reach: usize) -> Lowered<Dim> {
    let (stride, reach) = (Dim::from(stride), Dim::from(reach));
    let (Some(step), Some(extra)) = (stride.as_known(), reach.sub(&stride).as_known()) else {
        return Err(Refused::new("the window or stride is too large for auto_pad"));
    };
    let total = extent.ceil_div(step).scale(step).plus(extra).sub(extent);
    Ok(total.positive_within(call.bounds()))
}

/// Returns the kernel size, checked against the attribute `kernel_shape`, and the spatial sizes of `x`.
fn kernel(call: &Call<'_>, x: NodeId, weights: NodeId) -> Lowered<(Vec<usize>, Vec<Dim>)> {
    let (data, shape) = (call.shape(x), call.shape(weights));
    if data.len() < 3 || data.len() != shape.len() {
        return Err(Refused::new(format!(
            "the input has rank {} and the weights have rank {}; both must have the same rank of at least 3",
            data.len(),
            shape.len()
        )));
    }
    let kernel =
        shape[2..].iter().map(|d| call.known_dim(d, "a kernel size")).collect::<Lowered<Vec<usize>>>()?;
    let kernel = positive("kernel_shape", kernel)?;
    if call.attributes.has("kernel_shape")
        && call.attributes.sizes("kernel_shape", kernel.len(), 1)? != kernel
    {
        return Err(Refused::new(format!(
            "attribute `kernel_shape` differs from the kernel size of the weights, {kernel:?}"
        )));
    }
    Ok((kernel, data[2..].to_vec()))
}

fn group(call: &Call<'_>) -> Lowered<usize> {
    let group = call.attributes.int("group", 1)?;
    usize::try_from(group)
        .ok()
        .filter(|g| *g > 0)
        .ok_or_else(|| Refused::attribute("group", group, "1 or more"))
}

fn conv(call: &mut Call<'_>) -> Lowered<NodeId> {
    let (x, weights) = (call.node(0)?, call.node(1)?);
    let bias = call.optional(2)?;
    convolve(call, x, weights, bias, Some(0))
}

/// Adds a convolution of `x`, minus the zero point, and `weights` with the node's attributes. The zero point of floats is
/// 0. If the zero point is not known (`None`), it is not subtracted, and padding of symbolic size is refused.
pub(super) fn convolve(
    call: &mut Call<'_>,
    x: NodeId,
    weights: NodeId,
    bias: Option<NodeId>,
    zero_point: Option<i64>,
) -> Lowered<NodeId> {
    let (kernel, extents) = kernel(call, x, weights)?;
    let window = window(call, &extents, &kernel)?;
    let x = match (&window.symbolic_padding, zero_point) {
        (None, _) => x,
        (Some(_), Some(value)) => window.pad_symbolic(call, x, value as f64)?,
        (Some(_), None) => {
            return Err(Refused::new(
                "auto_pad with a computed zero point needs known sizes; fix them with --dim",
            ));
        }
    };
    let op = Conv {
        strides: window.strides,
        dilations: window.dilations,
        pads_begin: window.begin,
        pads_end: window.end,
        group: group(call)?,
        zero_point: zero_point.unwrap_or(0),
    };
    let mut operands = vec![x, weights];
    operands.extend(bias);
    call.add(op, &operands)
}

/// Lowers FusedConv: a convolution, plus an optional tensor, then an activation.
fn fused_conv(call: &mut Call<'_>) -> Lowered {
    let mut result = conv(call)?;
    if let Some(z) = call.optional(3)? {
        result = typed_binary(call, BinaryFn::Add, result, z)?;
    }
    let parameters = call.attributes.floats_opt("activation_params")?.unwrap_or(&[]);
    let parameter = |i: usize, default: f32| parameters.get(i).copied().unwrap_or(default);
    let f = match call.attributes.text("activation", "")? {
        "" => return Ok(result.into()),
        "Relu" => UnaryFn::Relu,
        "Tanh" => UnaryFn::Tanh,
        "Sigmoid" => UnaryFn::Sigmoid,
        "LeakyRelu" => UnaryFn::LeakyRelu { alpha: parameter(0, 0.01) },
        "Clip" => UnaryFn::Clip { low: parameter(0, f32::NEG_INFINITY), high: parameter(1, f32::INFINITY) },
        "HardSigmoid" => UnaryFn::HardSigmoid { alpha: parameter(0, 0.2), beta: parameter(1, 0.5) },
        other => {
            return Err(Refused::attribute(
                "activation",
                other,
                "`Relu`, `Tanh`, `Sigmoid`, `LeakyRelu`, `Clip`, `HardSigmoid`",
            ));
        }
    };
    Ok(call.b.unary(f, result)?.into())
}

fn conv_transpose(call: &mut Call<'_>) -> Lowered {
    let (x, weights) = (call.node(0)?, call.node(1)?);
    let (kernel, extents) = kernel(call, x, weights)?;
    let rank = kernel.len();
    let strides = positive("strides", call.attributes.sizes("strides", rank, 1)?)?;
    let dilations = positive("dilations", call.attributes.sizes("dilations", rank, 1)?)?;
    let mut output_padding = call.attributes.sizes("output_padding", rank, 0)?;
    let pads = call.attributes.sizes("pads", 2 * rank, 0)?;
    let (mut begin, mut end) = (pads[..rank].to_vec(), pads[rank..].to_vec());
    let auto = auto_pad(call)?;
    if auto == AutoPad::Valid {
        begin = vec![0; rank];
        end = vec![0; rank];
    }
    // A requested output size is reached by cropping, or by zeros at the end.
    let requested = match call.attributes.ints_opt("output_shape")? {
        Some(_) => {
            let all = call.attributes.sizes("output_shape", rank, 0);
            Some(match all {
                Ok(sizes) => sizes,
                Err(_) => call.attributes.sizes("output_shape", rank + 2, 0)?[2..].to_vec(),
            })
        }
        None => None,
    };
    for i in 0..rank {
        let reach = kernel[i].saturating_sub(1).saturating_mul(dilations[i]).saturating_add(1);
        let upper = auto == AutoPad::Same { upper: true };
        // The full size minus the requested one. For SAME the symbolic part cancels.
        let surplus = match (&requested, auto) {
            (Some(sizes), _) => {
                let extent =
                    call.known_dim(&extents[i], "the input size, which attribute `output_shape` needs,")?;
                let full = extent.saturating_sub(1).saturating_mul(strides[i]).saturating_add(reach);
                i64::try_from(full.saturating_add(output_padding[i])).unwrap_or(i64::MAX)
                    - i64::try_from(sizes[i]).unwrap_or(i64::MAX)
            }
            (None, AutoPad::Same { .. }) => {
                i64::try_from(reach.saturating_add(output_padding[i])).unwrap_or(i64::MAX)
                    - i64::try_from(strides[i]).unwrap_or(i64::MAX)
            }
            (None, _) => continue,
        };
        match usize::try_from(surplus) {
            Ok(total) => (begin[i], end[i]) = split_evenly(total, upper),
            Err(_) => {
                (begin[i], end[i]) = (0, 0);
                let missing = usize::try_from(surplus.unsigned_abs()).unwrap_or(usize::MAX);
                output_padding[i] = output_padding[i].saturating_add(missing);
            }
        }
    }
    let op = ConvTranspose {
        strides,
        dilations,
        pads_begin: begin,
        pads_end: end,
        output_padding,
        group: group(call)?,
    };
    let mut operands = vec![x, weights];
    operands.extend(call.optional(2)?);
    Ok(call.add(op, &operands)?.into())
}
