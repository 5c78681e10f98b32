//! Lowers operators with block-quantized weights. The file's bytes are described as an encoding of a constant, and the
//! operators become `matmul` and `gather`.
//!
//! ```text
//! MatMulNBits(a, weights, scales, zeros)          ->  matmul a (constant f32[N, K], u4 in groups of 32)
//! GatherBlockQuantized(table, i, scales, zeros)   ->  gather (constant f32[V, K], u4 in groups of 32) i
//! DequantizeLinear(int4 weights, scales)          ->  constant f32[K, N], u4 in groups of 32
//! ```

use std::sync::Arc;

use super::lowering::{Call, Lowered, OpEntry, Value, microsoft};
use super::refused::Refused;
use super::tensors::Int4Tensor;
use crate::ir::element::BinaryFn;
use crate::ir::encoding::{Encoding, GroupQuantized, PackedValues, PackingOrder, Scales, ZeroPoints};
use crate::ir::graph::NodeId;
use crate::ir::op::{Constant, Gather, MatMul, Op};
use crate::ir::tensor::{DType, normalize_axis};

pub(super) const OPS: &[OpEntry] =
    &[microsoft("MatMulNBits", matmul), microsoft("GatherBlockQuantized", gather)];

/// Lowers MatMulNBits: `a [.., K] * weight [N, K]^T + bias`.
fn matmul(call: &mut Call<'_>) -> Lowered {
    // The minimum accumulation precision; it is always f32.
    call.attributes.ignore(&["accuracy_level"]);
    let a = call.node(0)?;
    let (k, n) = (size(call, "K", None)?, size(call, "N", None)?);
    let (bits, block) = (bits(call)?, size(call, "block_size", None)?);
    if call.attributes.int("weight_prepacked", 0)? != 0 {
        return Err(Refused::new(
            "the weights are packed for another runtime; export the model without `weight_prepacked`",
        ));
    }
    let blocks = k.div_ceil(block);
    let packed = constant(call, 1, "the weights")?;
    let scales = constant(call, 2, "the scales")?;
    if packed.dtype != DType::U8 || packed.strides.is_some() {
        return Err(Refused::new(format!("the weights have type {}; u8 is needed", packed.dtype.name())));
    }
    let pitch = block.checked_mul(blocks).ok_or_else(|| Refused::new("K is too large"))?;
    let zeros = match optional_constant(call, 3, "the zero points")? {
        None => ZeroPoints::Constant(1 << (bits - 1)),
        Some(zeros) if zeros.dtype.is_float() => ZeroPoints::Floats(factors(&zeros, [blocks, 1])?),
        Some(zeros) if zeros.dtype == DType::U8 => {
            // Every row of zero points begins at a byte.
            let pitch = (blocks * bits).div_ceil(8) * 8 / bits;
            let order = PackingOrder::Rows(pitch);
            ZeroPoints::Packed(
                PackedValues { bits, rows: n, columns: blocks, order, signed: false },
                zeros.bytes,
                0,
            )
        }
        Some(zeros) => {
            return Err(Refused::new(format!(
                "the zero points have type {}; a float type or u8 is needed",
                zeros.dtype.name()
            )));
        }
    };
    let index = match optional_constant(call, 4, "the group indices")? {
        None => None,
        Some(index) => {
            let index = index.to_array()?;
            let index =
                index.ints()?.iter().map(|g| u32::try_from(*g).ok().filter(|g| (*g as usize) < blocks));
            let index: Option<Vec<u32>> = index.collect();
            Some(index.ok_or_else(|| {
                Refused::new(format!("operand 4 (g_idx) contains a group outside 0..{blocks}"))
            })?)
        }
    };
    let groups = GroupQuantized {
        values: PackedValues { bits, rows: n, columns: k, order: PackingOrder::Rows(pitch), signed: false },
        group_size: block,
        group_index: index,
        scales: factors(&scales, [blocks, 1])?,
        zero_points: zeros,
    };
    let weights = Constant::encoded(vec![n, k], Encoding::GroupQuantized(Arc::new(groups)), packed.bytes)?;
    let weights = call.add(weights, &[])?;
    let weights = call.b.cast(weights, call.dtype(a))?;
    let mut y = call.add(MatMul { trans_a: false, trans_b: true }, &[a, weights])?;
    if let Some(bias) = call.optional(5)? {
        y = call.b.binary(BinaryFn::Add, y, bias)?;
    }
    Ok(y.into())
}

/// Lowers GatherBlockQuantized: gathers rows of a table `[.., K]` along its first axis.
fn gather(call: &mut Call<'_>) -> Lowered {
    let bits = bits(call)?;
    let block = size(call, "block_size", Some(128))?;
    let (table, is_packed) = match call.operand(0) {
        Some(Value::Int4(table)) => (table.clone(), false),
        _ => {
            let packed = constant(call, 0, "the table")?;
            if packed.dtype != DType::U8 || packed.strides.is_some() {
                return Err(Refused::new(format!(
                    "the table has type {}; a 4-bit type or u8 is needed",
                    packed.dtype.name()
                )));
            }
            let mut shape = packed.shape.clone();
            if let Some(last) = shape.last_mut() {
                *last = last.saturating_mul(8 / bits);
            }
            (Int4Tensor { shape, signed: false, bytes: packed.bytes }, true)
        }
    };
    let bits = if is_packed { bits } else { 4 };
    let rank = table.shape.len();
    let gathered = call.axis_attribute("gather_axis", 0, rank)?;
    let quantized = call.axis_attribute("quantize_axis", 1, rank)?;
    if gathered != 0 || quantized + 1 != rank || rank < 2 {
        return Err(Refused::new(
            "only tables that are gathered along their first axis and quantized along their last axis are \
             supported",
        ));
    }
    let scales = constant(call, 2, "the scales")?;
    let columns = table.shape.last().copied().unwrap_or(0);
    let rows: usize = table.shape.iter().rev().skip(1).product();
    let blocks = columns.div_ceil(block);
    let middle = 1u8 << (bits - 1);
    let zeros = match call.operand(3) {
        // Default zero point: half the range for packed bytes, and for signed values, which are read with this offset.
        // Unsigned 4-bit types have zero point 0.
        None | Some(Value::Absent) if is_packed || table.signed => ZeroPoints::Constant(middle),
        None | Some(Value::Absent) => ZeroPoints::Constant(0),
        Some(Value::Int4(zeros)) => {
            let order = PackingOrder::Rows(blocks);
            let points = PackedValues { bits: 4, rows, columns: blocks, order, signed: zeros.signed };
            ZeroPoints::Packed(points, zeros.bytes.clone(), 0)
        }
        Some(_) => {
            let zeros = constant(call, 3, "the zero points")?;
            let pitch = (blocks * bits).div_ceil(8) * 8 / bits;
            let points =
                PackedValues { bits, rows, columns: blocks, order: PackingOrder::Rows(pitch), signed: false };
            ZeroPoints::Packed(points, zeros.bytes, 0)
        }
    };
    let groups = GroupQuantized {
        values: PackedValues {
            bits,
            rows,
            columns,
            order: PackingOrder::Rows(columns),
            signed: table.signed,
        },
        group_size: block,
        group_index: None,
        scales: factors(&scales, [blocks, 1])?,
        zero_points: zeros,
    };
    let dtype = scales.dtype;
    let table = Constant::encoded(table.shape, Encoding::GroupQuantized(Arc::new(groups)), table.bytes)?;
    let table = call.add(table, &[])?;
    let table = call.b.cast(table, dtype)?;
    let indices = call.node(1)?;
    Ok(call.add(Gather { axis: 0 }, &[table, indices])?.into())
}

/// Lowers DequantizeLinear of a 4-bit matrix, with one scale for the matrix, per row or column, or per block of a row
/// or column.
pub(super) fn dequantize(call: &mut Call<'_>, x: &Int4Tensor) -> Lowered<NodeId> {
    let [first, second] = x.shape[..] else {
        return Err(Refused::new(format!("4-bit tensors must be matrices, but the shape is {:?}", x.shape)));
    };
    let axis = normalize_axis(call.attributes.int("axis", 1)?, 2)?;
    let block = call.attributes.int("block_size", 0)?;
    let scales = constant(call, 1, "the scale")?;
    // Blocks lie along the columns; the other axis counts rows.
    let (rows, columns, order) = match (block > 0, axis) {
        (true, 0) | (false, 1) => (second, first, PackingOrder::Columns(second)),
        _ => (first, second, PackingOrder::Rows(second)),
    };
    let transposed = matches!(order, PackingOrder::Columns(_));
    let size = if block > 0 { usize::try_from(block).unwrap_or(columns) } else { columns.max(1) };
    let blocks = columns.div_ceil(size.max(1));
    let strides = match (scales.elements(), block > 0) {
        (1, false) => [0, 0],
        (_, true) if transposed => [1, rows],
        (_, true) => [blocks, 1],
        (_, false) => [1, 0],
    };
    let zeros = match call.operand(2) {
        None | Some(Value::Absent) if x.signed => ZeroPoints::Constant(8),
        None | Some(Value::Absent) => ZeroPoints::Constant(0),
        Some(Value::Int4(zeros)) if zeros.signed == x.signed => {
            let order = match strides {
                [0, 0] => {
                    return Err(Refused::new(
                        "a 4-bit zero point for a whole matrix is not supported; use one per row, column \
                         or block",
                    ));
                }
                [1, _] => PackingOrder::Columns(rows),
                _ => PackingOrder::Rows(blocks),
            };
            ZeroPoints::Packed(
                PackedValues { bits: 4, rows, columns: blocks, order, signed: x.signed },
                zeros.bytes.clone(),
                0,
            )
        }
        Some(_) => return Err(Refused::new("the zero points must be constants of the type of the weights")),
    };
    let groups = GroupQuantized {
        values: PackedValues { bits: 4, rows, columns, order, signed: x.signed },
        group_size: size,
        group_index: None,
        scales: factors(&scales, strides)?,
        zero_points: zeros,
    };
    let weights =
        Constant::encoded(vec![rows, columns], Encoding::GroupQuantized(Arc::new(groups)), x.bytes.clone())?;
    let weights = if transposed { weights.transposed(&[1, 0]).unwrap_or(weights) } else { weights };
    let to = call.output_dtype()?.unwrap_or(scales.dtype);
    let weights = call.add(weights, &[])?;
    Ok(call.b.cast(weights, to)?)
}

fn size(call: &Call<'_>, name: &str, default: Option<i64>) -> Lowered<usize> {
    let value = match default {
        Some(default) => call.attributes.int(name, default)?,
        None => call.attributes.int_opt(name)?.unwrap_or(0),
    };
    let size = usize::try_from(value).ok().filter(|n| (1..=1 << 30).contains(n));
    size.ok_or_else(|| Refused::attribute(name, value, "1 to 2^30"))
}

fn bits(call: &Call<'_>) -> Lowered<usize> {
    match call.attributes.int("bits", 4)? {
        2 => Ok(2),
        4 => Ok(4),
        8 => Ok(8),
        bits => Err(Refused::attribute("bits", bits, "2, 4, 8")),
    }
}

/// Describes a constant's bytes as scales or zero points. `strides` are the steps between rows and between groups, in
/// elements.
fn factors(constant: &Constant, strides: [usize; 2]) -> Lowered<Scales> {
    match (constant.encoding.plain_dtype(), &constant.strides) {
        (Some(dtype), None) => Ok(Scales { dtype, bytes: constant.bytes.clone(), strides }),
        _ => Err(Refused::new("the scales and zero points must be constants stored in the file")),
    }
}

fn constant(call: &mut Call<'_>, index: usize, name: &str) -> Lowered<Constant> {
    let constant = optional_constant(call, index, name)?;
    constant.ok_or_else(|| Refused::new(format!("{name} are missing")))
}

/// Returns an optional operand that must be constant if it is present. A reshaped constant counts as constant.
fn optional_constant(call: &mut Call<'_>, index: usize, name: &str) -> Lowered<Option<Constant>> {
    let Some(node) = call.optional(index)? else { return Ok(None) };
    let graph = &call.b.graph;
    let found = match (graph.constant(node), graph.op(node), graph.operands(node).as_slice()) {
        (Some(constant), ..) => Some(constant.clone()),
        (None, Op::Reshape(_), [x, ..]) => {
            let shape = graph.tensor(node).known_shape();
            graph.constant(*x).zip(shape).and_then(|(constant, shape)| constant.reshaped(&shape))
        }
        _ => None,
    };
    found
        .map(Some)
        .ok_or_else(|| Refused::new(format!("{name} are computed at run time; they must be constant")))
}

impl Call<'_> {
    /// Returns the axis that the attribute `name` gives for a tensor of rank `rank`.
    fn axis_attribute(&self, name: &str, default: i64, rank: usize) -> Lowered<usize> {
        Ok(normalize_axis(self.attributes.int(name, default)?, rank)?)
    }
}
