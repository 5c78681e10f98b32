//! Splits matrices of weights that are larger than what the target binds at once, with the products and the lookups that read
//! them.
//!
//! ```text
//! %2 = gather %table %ids                ->      %3 = gather %table[0..64] (clamp %ids)
//!                                                %4 = gather %table[64..100] (clamp (%ids - 64))
//!                                                %2 = select (%ids >= 64) %4 %3
//! %6 = matmul %5 %table^T                ->      %6 = concat (matmul %5 %table[0..64]^T) (matmul %5 %table[64..100]^T)
//! ```
//!
//! Vocabularies of language models are such matrices where a target binds 128 MiB, as many phones and WebGPU do. Both uses of
//! a tied one share its parts.

use super::matching::plain;
use super::{Changes, Context, Precision};
use crate::error::Result;
use crate::ir::array::Array;
use crate::ir::builder::Builder;
use crate::ir::dim::Dim;
use crate::ir::element::BinaryFn;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Concat, Constant, Gather, MatMul, Op};

/// Kernels round rows and columns up to their tiles, and store scales beside codes: this part of what is bound at once is
/// left for that.
const ROOM: usize = 8;

/// Rows or columns of every part but the last are whole vectors.
const WHOLE: usize = 4;

/// A part of a matrix: its first row or column, how many there are, and the constant.
struct Part {
    start: usize,
    size: usize,
    node: NodeId,
}

/// Splits weights.
pub fn run(graph: &mut Graph, context: &Context<'_>) -> Result<Changes> {
    let limit = usize::try_from(context.target.limits.max_storage_buffer_range).unwrap_or(usize::MAX);
    let most = (limit - limit / ROOM).max(1);
    let mut changes = Changes::default();
    for id in graph.ids() {
        let Some(constant) = graph.constant(id) else { continue };
        let n_parts = bytes(constant, context.precision).div_ceil(most);
        if n_parts < 2 {
            continue;
        }
        let Some(axis) = split_axis(graph, id) else { continue };
        let Some(parts) = split(graph, id, axis, n_parts)? else { continue };
        for user in graph.users(id) {
            let new = match graph.op(user).clone() {
                Op::Gather(_) => lookup(graph, user, &parts)?,
                Op::MatMul(op) => product(graph, user, &op, &parts)?,
                _ => continue,
            };
            graph.replace_uses(user, new);
        }
        let what = format!("split into {} parts, of which {} binds each", parts.len(), context.target.name);
        changes.note(graph, id, what);
    }
    Ok(changes)
}

/// About how many bytes the constant takes on the device.
fn bytes(constant: &Constant, precision: Precision) -> usize {
    let elements = constant.elements();
    match constant.stored.coding() {
        Some(coding) => {
            let scales = coding.scale.bytes() + coding.bias.map_or(0, |bias| bias.bytes());
            (elements * coding.bits).div_ceil(8) + elements.div_ceil(coding.group.max(1)) * scales
        }
        None if constant.dtype.is_float() && precision != Precision::F32 => elements * 2,
        None => elements * constant.dtype.bytes(),
    }
}

/// The axis along which every use of a matrix can be split; none where there is another use.
fn split_axis(graph: &Graph, id: NodeId) -> Option<usize> {
    let mut axis = None;
    for user in graph.users(id) {
        let (op, operands) = plain(graph, user)?;
        let own = match (op, operands.as_slice()) {
            (Op::MatMul(op), [a, b]) if *b == id && *a != id => usize::from(!op.trans_b),
            (Op::Gather(Gather { axis: 0 }), [table, ids]) if *table == id && *ids != id => 0,
            _ => return None,
        };
        if axis.replace(own).is_some_and(|axis| axis != own) {
            return None;
        }
    }
    axis.filter(|_| !graph.is_output(id))
}

/// Adds the parts of a matrix; none where its bytes cannot be taken apart there.
fn split(graph: &mut Graph, id: NodeId, axis: usize, n_parts: usize) -> Result<Option<Vec<Part>>> {
    let Some(constant) = graph.constant(id).cloned() else { return Ok(None) };
    let [rows, columns] = constant.shape[..] else { return Ok(None) };
    let size = if axis == 0 { rows } else { columns };
    let step = size.div_ceil(n_parts).next_multiple_of(WHOLE);
    if step >= size {
        return Ok(None);
    }
    let ranges = (0..size).step_by(step).map(|start| start..(start + step).min(size));
    let Some(cut) =
        ranges.map(|range| Some((constant.part(axis, range.clone())?, range))).collect::<Option<Vec<_>>>()
    else {
        return Ok(None);
    };
    let name = graph.node(id).name.clone();
    let mut parts = Vec::with_capacity(cut.len());
    for (constant, range) in cut {
        let node = graph.add(constant, &[], &format!("{name}[{}..{}]", range.start, range.end))?;
        parts.push(Part { start: range.start, size: range.len(), node });
    }
    Ok(Some(parts))
}

fn product(graph: &mut Graph, id: NodeId, op: &MatMul, parts: &[Part]) -> Result<NodeId> {
    let (name, axis) = (graph.node(id).name.clone(), graph.tensor(id).rank() - 1);
    let Some(a) = graph.operands(id).first().copied() else { return Ok(id) };
    let products = parts.iter().map(|part| graph.add(op.clone(), &[a, part.node], &name));
    let products = products.collect::<Result<Vec<_>>>()?;
    graph.add(Concat { axis }, &products, &name)
}

fn lookup(graph: &mut Graph, id: NodeId, parts: &[Part]) -> Result<NodeId> {
    let name = graph.node(id).name.clone();
    let (Some(ids), Some(last)) = (graph.operands(id).get(1).copied(), parts.last()) else { return Ok(id) };
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
    for part in parts {
        let (start, end) = (number(&mut b, part.start)?, number(&mut b, part.size - 1)?);
        let own = b.binary(BinaryFn::Sub, ids, start)?;
        let own = b.binary(BinaryFn::Max, own, zero)?;
        let own = b.binary(BinaryFn::Min, own, end)?;
        let row = b.add(Gather { axis: 0 }, &[part.node, own])?;
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
