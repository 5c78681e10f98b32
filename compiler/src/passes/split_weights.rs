//! Splits weight matrices that are larger than a buffer that the target can bind, and the matmuls and gathers that read
//! them.
//!
//! ```text
//! %2 = gather %table %ids                ->      %3 = gather %table[0..64] (clamp %ids)
//!                                                %4 = gather %table[64..100] (clamp (%ids - 64))
//!                                                %2 = select (%ids >= 64) %4 %3
//! %6 = matmul %5 %table^T                ->      %6 = concat (matmul %5 %table[0..64]^T) (matmul %5 %table[64..100]^T)
//! ```
//!
//! The embedding tables of language models are such matrices where a target binds at most 128 MiB, as many phones and
//! WebGPU do. A tied table is split once for both uses.

use super::matching::plain;
use super::{Changes, Context, Precision};
use crate::error::Result;
use crate::ir::array::Array;
use crate::ir::builder::Builder;
use crate::ir::dim::Dim;
use crate::ir::element::BinaryFn;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Concat, Constant, Gather, MatMul, Op};

/// A block fills at most `1 - 1 / HEADROOM` of the binding limit, because kernels pad its rows and columns to whole tiles and
/// store scales with quantized weights.
const HEADROOM: usize = 8;

/// Divisor of block sizes: the rows or columns of every block but the last are a multiple of this number, so that kernels read
/// whole vec4s.
const ALIGNMENT: usize = 4;

/// A block of rows or columns of a weight matrix that is split.
struct Block {
    /// Index of the first row or column of the block in the split matrix.
    start: usize,
    /// Number of rows or columns of the block.
    size: usize,
    /// The constant.
    node: NodeId,
}

/// Returns the maximum bytes on the device of weights that are not split.
pub(super) fn max_bytes(context: &Context<'_>) -> usize {
    let limit = usize::try_from(context.target.limits.max_storage_buffer_range).unwrap_or(usize::MAX);
    (limit - limit / HEADROOM).max(1)
}

/// Splits weights.
pub fn run(graph: &mut Graph, context: &Context<'_>) -> Result<Changes> {
    let max_bytes = max_bytes(context);
    let mut changes = Changes::default();
    for id in graph.ids() {
        let Some(constant) = graph.constant(id) else { continue };
        let n_blocks = device_bytes(constant, context.precision).div_ceil(max_bytes);
        if n_blocks < 2 {
            continue;
        }
        let Some(axis) = split_axis(graph, id) else { continue };
        let Some(blocks) = split(graph, id, axis, n_blocks)? else { continue };
        for user in graph.users(id) {
            let new = match graph.op(user).clone() {
                Op::Gather(_) => split_gather(graph, user, &blocks)?,
                Op::MatMul(op) => split_matmul(graph, user, &op, &blocks)?,
                _ => continue,
            };
            graph.replace_uses(user, new);
        }
        let note = format!(
            "weight matrix split into {} blocks that fit the buffer limit of {}",
            blocks.len(),
            context.target.name
        );
        changes.note(graph, id, note);
    }
    Ok(changes)
}

/// Estimates the bytes that a constant takes on the device.
pub(super) fn device_bytes(constant: &Constant, precision: Precision) -> usize {
    let elements = constant.elements();
    match constant.encoding.quant_format() {
        Some(quant_format) => {
            let scales =
                quant_format.scale_dtype.bytes() + quant_format.bias_dtype.map_or(0, |bias| bias.bytes());
            (elements * quant_format.bits).div_ceil(8)
                + elements.div_ceil(quant_format.group_size.max(1)) * scales
        }
        None if constant.dtype.is_float() && precision != Precision::F32 => elements * 2,
        None => elements * constant.dtype.bytes(),
    }
}

/// Returns the axis along which every user can read blocks of the matrix; `None` if a user cannot.
fn split_axis(graph: &Graph, id: NodeId) -> Option<usize> {
    let mut axis = None;
    for user in graph.users(id) {
        let (op, operands) = plain(graph, user)?;
        let user_axis = match (op, operands.as_slice()) {
            (Op::MatMul(op), [a, b]) if *b == id && *a != id => usize::from(!op.trans_b),
            (Op::Gather(Gather { axis: 0 }), [table, ids]) if *table == id && *ids != id => 0,
            _ => return None,
        };
        if axis.replace(user_axis).is_some_and(|axis| axis != user_axis) {
            return None;
        }
    }
    axis.filter(|_| !graph.is_output(id))
}

/// Adds the blocks of a matrix to the graph. Returns `None` if the matrix's bytes cannot be split between blocks.
fn split(graph: &mut Graph, id: NodeId, axis: usize, n_blocks: usize) -> Result<Option<Vec<Block>>> {
    let Some(constant) = graph.constant(id).cloned() else { return Ok(None) };
    let [rows, columns] = constant.shape[..] else { return Ok(None) };
    let size = if axis == 0 { rows } else { columns };
    let step = size.div_ceil(n_blocks).next_multiple_of(ALIGNMENT);
    if step >= size {
        return Ok(None);
    }
    let ranges = (0..size).step_by(step).map(|start| start..(start + step).min(size));
    let Some(constants) =
        ranges.map(|range| Some((constant.slice(axis, range.clone())?, range))).collect::<Option<Vec<_>>>()
    else {
        return Ok(None);
    };
    let name = graph.node(id).name.clone();
    let mut blocks = Vec::with_capacity(constants.len());
    for (constant, range) in constants {
        let node = graph.add(constant, &[], &format!("{name}[{}..{}]", range.start, range.end))?;
        blocks.push(Block { start: range.start, size: range.len(), node });
    }
    Ok(Some(blocks))
}

fn split_matmul(graph: &mut Graph, id: NodeId, op: &MatMul, blocks: &[Block]) -> Result<NodeId> {
    let (name, axis) = (graph.node(id).name.clone(), graph.tensor(id).rank() - 1);
    let Some(a) = graph.operands(id).first().copied() else { return Ok(id) };
    let results = blocks.iter().map(|block| graph.add(op.clone(), &[a, block.node], &name));
    let results = results.collect::<Result<Vec<_>>>()?;
    graph.add(Concat { axis }, &results, &name)
}

fn split_gather(graph: &mut Graph, id: NodeId, blocks: &[Block]) -> Result<NodeId> {
    let name = graph.node(id).name.clone();
    let (Some(ids), Some(last)) = (graph.operands(id).get(1).copied(), blocks.last()) else { return Ok(id) };
    let mut b = Builder::new(graph, &name);
    let dtype = b.tensor(ids).dtype;
    let number = |b: &mut Builder<'_>, n: usize| {
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        b.constant(&Array::int(dtype, &[], vec![n]))
    };
    // Negative indices count from the end.
    let (zero, rows) = (number(&mut b, 0)?, number(&mut b, last.start + last.size)?);
    let (negative, from_end) = (b.binary(BinaryFn::Less, ids, zero)?, b.binary(BinaryFn::Add, ids, rows)?);
    let ids = b.select(negative, from_end, ids)?;
    let mut found = None;
    for block in blocks {
        let (start, end) = (number(&mut b, block.start)?, number(&mut b, block.size - 1)?);
        let index = b.binary(BinaryFn::Sub, ids, start)?;
        let index = b.binary(BinaryFn::Max, index, zero)?;
        let index = b.binary(BinaryFn::Min, index, end)?;
        let row = b.add(Gather { axis: 0 }, &[block.node, index])?;
        found = Some(match found {
            None => row,
            Some(before) => {
                let here = b.binary(BinaryFn::GreaterEqual, ids, start)?;
                let shape = b.tensor(here).shape.iter().cloned().chain([Dim::known(1)]).collect();
                let here = b.reshape(here, shape)?;
                b.select(here, row, before)?
            }
        });
    }
    Ok(found.unwrap_or(id))
}
