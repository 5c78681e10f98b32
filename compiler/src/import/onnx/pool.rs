//! Lowers pooling over windows and over whole images.

use super::conv::window;
use super::lowering::{Call, Lowered, OpEntry, Outputs, Value, op};
use super::refused::Refused;
use crate::ir::dim::Dim;
use crate::ir::element::{BinaryFn, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::op::Pool;
use crate::ir::ops::pool::PoolKind;
use crate::ir::ops::reduce::ReduceKind;
use crate::ir::tensor::DType;

pub(super) const OPS: &[OpEntry] = &[
    op("MaxPool", 1, max_pool),
    op("AveragePool", 1, average_pool),
    op("LpPool", 1, lp_pool),
    op("GlobalMaxPool", 1, |c| global(c, ReduceKind::Max)),
    op("GlobalAveragePool", 1, |c| global(c, ReduceKind::Mean)),
    op("GlobalLpPool", 1, global_lp),
];

fn pool(call: &mut Call<'_>, x: NodeId, kind: PoolKind) -> Lowered<NodeId> {
    let shape = call.shape(x);
    if shape.len() < 3 {
        return Err(Refused::new(format!(
            "operand 0 has rank {}; at least 3 is needed for a spatial axis",
            shape.len()
        )));
    }
    let rank = shape.len() - 2;
    if !call.attributes.has("kernel_shape") {
        return Err(Refused::new("attribute `kernel_shape` is missing"));
    }
    let kernel = call.attributes.sizes("kernel_shape", rank, 1)?;
    if kernel.contains(&0) {
        return Err(Refused::new("attribute `kernel_shape` contains 0; every value must be positive"));
    }
    let window = window(call, &shape[2..], &kernel)?;
    let x = match kind {
        _ if window.symbolic_padding.is_none() => x,
        PoolKind::Max => {
            let lowest = match call.dtype(x) {
                dtype if dtype.is_float() => f64::NEG_INFINITY,
                dtype => smallest_integer(dtype),
            };
            window.pad_symbolic(call, x, lowest)?
        }
        PoolKind::Average { .. } | PoolKind::Lp { .. } => window.pad_symbolic(call, x, 0.0)?,
        PoolKind::MaxIndex { .. } => {
            return Err(Refused::new(
                "the result Indices of MaxPool with auto_pad needs known sizes; fix them with --dim",
            ));
        }
    };
    let padded_before = window.symbolic_padding.is_some();
    let op = Pool {
        kind,
        kernel,
        strides: window.strides.clone(),
        dilations: window.dilations.clone(),
        pads_begin: window.begin.clone(),
        pads_end: window.end.clone(),
        ceil: call.attributes.flag("ceil_mode", false)?,
    };
    if kind != (PoolKind::Average { count_include_pad: false }) || !padded_before {
        return call.add(op, &[x]);
    }
    // Mean over the zero-padded image, divided by the fraction of the window that lies in the image.
    let all = Pool { kind: PoolKind::Average { count_include_pad: true }, ..op };
    let mean = call.add(all.clone(), &[x])?;
    let one = call.b.scalar(call.dtype(x), 1.0)?;
    let image = [&[Dim::known(1), Dim::known(1)], &shape[2..]].concat();
    let ones = call.b.expand(one, image)?;
    let ones = window.pad_symbolic(call, ones, 0.0)?;
    let fraction = call.add(all, &[ones])?;
    Ok(call.b.binary(BinaryFn::Div, mean, fraction)?)
}

/// Returns the smallest number of an integer type.
fn smallest_integer(dtype: DType) -> f64 {
    let bits = u32::try_from(dtype.bytes() * 8).unwrap_or(64);
    if dtype.is_unsigned() { 0.0 } else { -(2f64.powi(i32::try_from(bits).unwrap_or(64) - 1)) }
}

fn max_pool(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let column_major = call.attributes.flag("storage_order", false)?;
    let values = pool(call, x, PoolKind::Max)?;
    let mut outputs = Outputs::from(values);
    if call.wants(1) {
        outputs.0.push(Value::Node(pool(call, x, PoolKind::MaxIndex { column_major })?));
    }
    Ok(outputs)
}

fn average_pool(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let count_include_pad = call.attributes.flag("count_include_pad", false)?;
    Ok(pool(call, x, PoolKind::Average { count_include_pad })?.into())
}

/// Returns the attribute `p` of an Lp norm, which is a float in opset 1.
fn norm_order(call: &Call<'_>) -> Lowered<i64> {
    if call.opset >= 2 {
        return call.attributes.int("p", 2);
    }
    let p = call.attributes.float("p", 2.0)?;
    if p.fract() == 0.0 { Ok(p as i64) } else { Err(Refused::attribute("p", p, "integers")) }
}

fn lp_pool(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let p = norm_order(call)?;
    let p =
        u32::try_from(p).ok().filter(|p| *p > 0).ok_or_else(|| Refused::attribute("p", p, "1 or more"))?;
    Ok(pool(call, x, PoolKind::Lp { p })?.into())
}

fn spatial(call: &Call<'_>, x: NodeId) -> Vec<usize> {
    (2..call.rank(x)).collect()
}

fn global(call: &mut Call<'_>, kind: ReduceKind) -> Lowered {
    let x = call.node(0)?;
    let axes = spatial(call, x);
    Ok(call.b.reduce(kind, x, axes, true)?.into())
}

fn global_lp(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let p = norm_order(call)?;
    let axes = spatial(call, x);
    Ok(lp_norm(call, x, p, axes)?.into())
}

/// Computes `(sum |x|^p)^(1/p)` along axes, which the result keeps with size 1.
pub(super) fn lp_norm(call: &mut Call<'_>, x: NodeId, p: i64, axes: Vec<usize>) -> Lowered<NodeId> {
    match p {
        1 => Ok(call.b.reduce(ReduceKind::L1, x, axes, true)?),
        2 => Ok(call.b.reduce(ReduceKind::L2, x, axes, true)?),
        p if p > 0 => {
            let dtype = call.dtype(x);
            let exponent = call.b.scalar(dtype, p as f32)?;
            let root = call.b.scalar(dtype, 1.0 / p as f32)?;
            let x = call.b.unary(UnaryFn::Abs, x)?;
            let powers = call.b.binary(BinaryFn::Pow, x, exponent)?;
            let sum = call.b.reduce(ReduceKind::Sum, powers, axes, true)?;
            Ok(call.b.binary(BinaryFn::Pow, sum, root)?)
        }
        p => Err(Refused::attribute("p", p, "1 or more")),
    }
}
