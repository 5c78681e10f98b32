//! Weights of few bits: what files hold is described as an encoding of a constant, and the operators become plain ones.
//!
//! ```text
//! MatMulNBits(a, codes, scales, zeros)           ->  matmul a (constant f32[N, K], u4 in groups of 32)
//! GatherBlockQuantized(codes, i, scales, zeros)  ->  gather (constant f32[V, K], u4 in groups of 32) i
//! DequantizeLinear(codes of 4 bits, scales)      ->  constant f32[K, N], u4 in groups of 32
//! ```

use std::sync::Arc;

use super::lowering::{Call, Lowered, OpEntry, Refused, Value, microsoft};
use super::tensors::Nibbles;
use crate::ir::element::BinaryFn;
use crate::ir::encoding::{CodeOrder, Codes, Groups, Scales, Stored, Zeros};
use crate::ir::graph::NodeId;
use crate::ir::op::{Constant, Gather, MatMul, Op};
use crate::ir::tensor::{DType, normalize_axis};

pub(super) const OPS: &[OpEntry] =
    &[microsoft("MatMulNBits", matmul), microsoft("GatherBlockQuantized", gather)];

/// `a [.., K] * weight [N, K]^T + bias`.
fn matmul(call: &mut Call<'_>) -> Lowered {
    // How precise sums may be: they are f32.
    call.attributes.ignore(&["accuracy_level"]);
    let a = call.node(0)?;
    let (k, n) = (size(call, "K", None)?, size(call, "N", None)?);
    let (bits, block) = (bits(call)?, size(call, "block_size", None)?);
    if call.attributes.int("weight_prepacked", 0)? != 0 {
        return Err(Refused::new(
            "its weights are packed for a device; export it without `weight_prepacked`",
        ));
    }
    let blocks = k.div_ceil(block);
    let codes = constant(call, 1, "the weights")?;
    let scales = constant(call, 2, "the scales")?;
    if codes.dtype != DType::U8 || codes.strides.is_some() {
        return Err(Refused::new(format!("its weights are {}, not u8", codes.dtype.name())));
    }
    let pitch = block.checked_mul(blocks).ok_or_else(|| Refused::new("K is too large"))?;
    let zeros = match optional_constant(call, 3, "the zero points")? {
        None => Zeros::Same(1 << (bits - 1)),
        Some(zeros) if zeros.dtype.is_float() => Zeros::Floats(factors(&zeros, [blocks, 1])?),
        Some(zeros) if zeros.dtype == DType::U8 => {
            // Every row of zero points begins with a byte.
            let pitch = (blocks * bits).div_ceil(8) * 8 / bits;
            let order = CodeOrder::Rows(pitch);
            Zeros::Codes(Codes { bits, rows: n, columns: blocks, order, signed: false }, zeros.bytes, 0)
        }
        Some(zeros) => return Err(Refused::new(format!("its zero points are {}", zeros.dtype.name()))),
    };
    let index = match optional_constant(call, 4, "the groups")? {
        None => None,
        Some(index) => {
            let index = index.to_array()?;
            let index =
                index.ints()?.iter().map(|g| u32::try_from(*g).ok().filter(|g| (*g as usize) < blocks));
            let index: Option<Vec<u32>> = index.collect();
            Some(index.ok_or_else(|| Refused::new(format!("a group of it is none of {blocks}")))?)
        }
    };
    let groups = Groups {
        codes: Codes { bits, rows: n, columns: k, order: CodeOrder::Rows(pitch), signed: false },
        size: block,
        index,
        scales: factors(&scales, [blocks, 1])?,
        zeros,
    };
    let weights = Constant::encoded(vec![n, k], Stored::Groups(Arc::new(groups)), codes.bytes)?;
    let weights = call.add(weights, &[])?;
    let weights = call.b.cast(weights, call.dtype(a))?;
    let mut y = call.add(MatMul { trans_a: false, trans_b: true }, &[a, weights])?;
    if let Some(bias) = call.optional(5)? {
        y = call.b.binary(BinaryFn::Add, y, bias)?;
    }
    Ok(y.into())
}

/// Rows of a table `[.., K]`, picked along its first axis.
fn gather(call: &mut Call<'_>) -> Lowered {
    let bits = bits(call)?;
    let block = size(call, "block_size", Some(128))?;
    let (table, packed) = match call.operand(0) {
        Some(Value::Nibbles(nibbles)) => (nibbles.clone(), false),
        _ => {
            let codes = constant(call, 0, "the table")?;
            if codes.dtype != DType::U8 || codes.strides.is_some() {
                return Err(Refused::new(format!("its table is {}, not of 4 or 8 bits", codes.dtype.name())));
            }
            let mut shape = codes.shape.clone();
            if let Some(last) = shape.last_mut() {
                *last = last.saturating_mul(8 / bits);
            }
            (Nibbles { shape, signed: false, bytes: codes.bytes }, true)
        }
    };
    let bits = if packed { bits } else { 4 };
    let rank = table.shape.len();
    let gathered = call.axis_of("gather_axis", 0, rank)?;
    let quantised = call.axis_of("quantize_axis", 1, rank)?;
    if gathered != 0 || quantised + 1 != rank || rank < 2 {
        return Err(Refused::new(
            "tables are supported that are gathered along their first axis and quantised along their last one",
        ));
    }
    let scales = constant(call, 2, "the scales")?;
    let columns = table.shape.last().copied().unwrap_or(0);
    let rows: usize = table.shape.iter().rev().skip(1).product();
    let blocks = columns.div_ceil(block);
    let middle = 1u8 << (bits - 1);
    let zeros = match call.operand(3) {
        // Numbers with a sign, and of types of 4 bits, count from zero.
        None | Some(Value::Absent) if packed || table.signed => Zeros::Same(middle),
        None | Some(Value::Absent) => Zeros::Same(0),
        Some(Value::Nibbles(zeros)) => {
            let order = CodeOrder::Rows(blocks);
            let codes = Codes { bits: 4, rows, columns: blocks, order, signed: zeros.signed };
            Zeros::Codes(codes, zeros.bytes.clone(), 0)
        }
        Some(_) => {
            let zeros = constant(call, 3, "the zero points")?;
            let pitch = (blocks * bits).div_ceil(8) * 8 / bits;
            let codes = Codes { bits, rows, columns: blocks, order: CodeOrder::Rows(pitch), signed: false };
            Zeros::Codes(codes, zeros.bytes, 0)
        }
    };
    let groups = Groups {
        codes: Codes { bits, rows, columns, order: CodeOrder::Rows(columns), signed: table.signed },
        size: block,
        index: None,
        scales: factors(&scales, [blocks, 1])?,
        zeros,
    };
    let dtype = scales.dtype;
    let table = Constant::encoded(table.shape, Stored::Groups(Arc::new(groups)), table.bytes)?;
    let table = call.add(table, &[])?;
    let table = call.b.cast(table, dtype)?;
    let indices = call.node(1)?;
    Ok(call.add(Gather { axis: 0 }, &[table, indices])?.into())
}

/// `DequantizeLinear` of a matrix of 4 bits, with a scale for the whole, for a row or column, or for each block of one.
pub(super) fn dequantize(call: &mut Call<'_>, x: &Nibbles) -> Lowered<NodeId> {
    let [first, second] = x.shape[..] else {
        return Err(Refused::new(format!(
            "numbers of 4 bits are supported in matrices, not in {:?}",
            x.shape
        )));
    };
    let axis = normalize_axis(call.attributes.int("axis", 1)?, 2)?;
    let block = call.attributes.int("block_size", 0)?;
    let scales = constant(call, 1, "the scale")?;
    // Along which axis blocks lie; the other one counts rows.
    let (rows, columns, order) = match (block > 0, axis) {
        (true, 0) | (false, 1) => (second, first, CodeOrder::Columns(second)),
        _ => (first, second, CodeOrder::Rows(second)),
    };
    let turned = matches!(order, CodeOrder::Columns(_));
    let size = if block > 0 { usize::try_from(block).unwrap_or(columns) } else { columns.max(1) };
    let blocks = columns.div_ceil(size.max(1));
    let strides = match (scales.elements(), block > 0) {
        (1, false) => [0, 0],
        (_, true) if turned => [1, rows],
        (_, true) => [blocks, 1],
        (_, false) => [1, 0],
    };
    let zeros = match call.operand(2) {
        None | Some(Value::Absent) if x.signed => Zeros::Same(8),
        None | Some(Value::Absent) => Zeros::Same(0),
        Some(Value::Nibbles(zeros)) if zeros.signed == x.signed => {
            let order = match strides {
                [0, 0] => {
                    return Err(Refused::new("a zero point of 4 bits for a whole matrix is not supported"));
                }
                [1, _] => CodeOrder::Columns(rows),
                _ => CodeOrder::Rows(blocks),
            };
            Zeros::Codes(
                Codes { bits: 4, rows, columns: blocks, order, signed: x.signed },
                zeros.bytes.clone(),
                0,
            )
        }
        Some(_) => return Err(Refused::new("its zero points are no constants of the type of its weights")),
    };
    let groups = Groups {
        codes: Codes { bits: 4, rows, columns, order, signed: x.signed },
        size,
        index: None,
        scales: factors(&scales, strides)?,
        zeros,
    };
    let weights = Constant::encoded(vec![rows, columns], Stored::Groups(Arc::new(groups)), x.bytes.clone())?;
    let weights = if turned { weights.transposed(&[1, 0]).unwrap_or(weights) } else { weights };
    let to = super::quantize::output_dtype(call)?.unwrap_or(scales.dtype);
    let weights = call.add(weights, &[])?;
    Ok(call.b.cast(weights, to)?)
}

fn size(call: &Call<'_>, name: &str, default: Option<i64>) -> Lowered<usize> {
    let value = match default {
        Some(default) => call.attributes.int(name, default)?,
        None => call.attributes.int_opt(name)?.unwrap_or(0),
    };
    let size = usize::try_from(value).ok().filter(|n| (1..=1 << 30).contains(n));
    size.ok_or_else(|| Refused::new(format!("attribute `{name}` is {value}")))
}

fn bits(call: &Call<'_>) -> Lowered<usize> {
    match call.attributes.int("bits", 4)? {
        2 => Ok(2),
        4 => Ok(4),
        8 => Ok(8),
        bits => Err(Refused::new(format!("weights of {bits} bits are not supported; 2, 4 and 8 are"))),
    }
}

/// Scales or zero points of the file.
fn factors(constant: &Constant, strides: [usize; 2]) -> Lowered<Scales> {
    match (constant.stored.plain(), &constant.strides) {
        (Some(dtype), None) => Ok(Scales { dtype, bytes: constant.bytes.clone(), strides }),
        _ => Err(Refused::new("its scales are not as a file has them")),
    }
}

fn constant(call: &mut Call<'_>, index: usize, what: &str) -> Lowered<Constant> {
    let constant = optional_constant(call, index, what)?;
    constant.ok_or_else(|| Refused::new(format!("{what} are missing")))
}

/// An operand that must be constant; one constant may serve several nodes in several shapes.
fn optional_constant(call: &mut Call<'_>, index: usize, what: &str) -> Lowered<Option<Constant>> {
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
    found.map(Some).ok_or_else(|| Refused::new(format!("{what} are computed at run time")))
}

impl Call<'_> {
    /// An axis that an attribute names.
    fn axis_of(&self, name: &str, default: i64, rank: usize) -> Lowered<usize> {
        Ok(normalize_axis(self.attributes.int(name, default)?, rank)?)
    }
}
