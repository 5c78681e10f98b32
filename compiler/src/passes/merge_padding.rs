//! Merges zero padding of spatial axes into the convolution or average pool that uses it.
//!
//! ```text
//! %1 = pad {"before": [0, 0, 1, 1], "after": [0, 0, 1, 1], "value": 0} %0
//! %2 = conv {"pads_begin": [0, 0], ..} %1 %w         ->      %2 = conv {"pads_begin": [1, 1], ..} %0 %w
//! ```
//!
//! A maximum pool ignores its padding, so only padding with minus infinity merges into it, not zeros.
//! An average pool counts merged padding in its divisor. So the pool must either count its padding or have none.
//! A pool with `ceil` does not merge, because it drops windows that lie entirely in its own padding.

use super::matching::{name, plain, rewrite};
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Op, Pad, Pool};
use crate::ir::ops::pad::PadMode;
use crate::ir::ops::pool::PoolKind;

/// Merges padding.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(graph, &[("merged with the pad operator that computes its operand", merge)])
}

fn merge(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((op, mut operands)) = plain(graph, id) else { return Ok(None) };
    let Some(padded) = operands.first().copied() else { return Ok(None) };
    let Some((Op::Pad(pad), inner)) = plain(graph, padded) else { return Ok(None) };
    let (Some(x), Some((before, after))) = (inner.first().copied(), spatial(pad)) else { return Ok(None) };
    let merged = match op {
        Op::Conv(conv) if pad.value == conv.zero_point as f64 => {
            let mut conv = conv.clone();
            add(&mut conv.pads_begin, &before);
            add(&mut conv.pads_end, &after);
            Op::Conv(conv)
        }
        Op::Pool(pool) if !pool.ceil => match merge_pool(pool, pad, &before, &after) {
            Some(pool) => Op::Pool(pool),
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    operands[0] = x;
    graph.add(merged, &operands, &name(graph, id)).map(Some)
}

/// Returns the padding before and after the spatial axes if it is known and the other axes have none.
fn spatial(pad: &Pad) -> Option<(Vec<usize>, Vec<usize>)> {
    let ([n0, c0, before @ ..], [n1, c1, after @ ..]) = (pad.before.as_slice(), pad.after.as_slice()) else {
        return None;
    };
    let others = [n0, c0, n1, c1].into_iter().all(|n| n.is(0));
    let known =
        |list: &[Dim]| list.iter().map(|n| usize::try_from(n.as_known()?).ok()).collect::<Option<_>>();
    let mergeable = others && pad.mode == PadMode::Constant && !before.is_empty();
    if mergeable { Some((known(before)?, known(after)?)) } else { None }
}

fn merge_pool(pool: &Pool, pad: &Pad, before: &[usize], after: &[usize]) -> Option<Pool> {
    let mut pool = pool.clone();
    let has_padding = pool.pads_begin.iter().chain(&pool.pads_end).any(|n| *n > 0);
    match &mut pool.kind {
        PoolKind::Average { count_include_pad }
            if pad.value == 0.0 && (*count_include_pad || !has_padding) =>
        {
            *count_include_pad = true;
        }
        PoolKind::Max if pad.value == f64::NEG_INFINITY => {}
        _ => return None,
    }
    add(&mut pool.pads_begin, before);
    add(&mut pool.pads_end, after);
    // Every window must overlap the input.
    let extents =
        pool.kernel.iter().zip(&pool.dilations).map(|(k, d)| k.saturating_sub(1).saturating_mul(*d));
    let reach = |pads: &[usize]| pads.iter().zip(extents.clone()).all(|(p, e)| *p <= e);
    (reach(&pool.pads_begin) && reach(&pool.pads_end)).then_some(pool)
}

fn add(pads: &mut [usize], more: &[usize]) {
    for (p, m) in pads.iter_mut().zip(more) {
        *p = p.saturating_add(*m);
    }
}
