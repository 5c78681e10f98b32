//! Attention.
//!
//! Attention is one operator of the graph; the scores as a result need the expanded form. Queries
//! that see no key give zeros in both.

use super::generate::iota;
use super::lowering::{Call, Lowered, OpEntry, Outputs, Refused, Value, op};
use crate::ir::array::Array;
use crate::ir::dim::Dim;
use crate::ir::element::{BinaryFn, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::op::{Attention, Concat, MatMul, Pad};
use crate::ir::ops::pad::PadMode;
use crate::ir::ops::reduce::ReduceKind;
use crate::ir::tensor::DType;

pub(super) const OPS: &[OpEntry] = &[op("Attention", 23, attention)];

/// What is computed from queries, keys and values `[B, H, S, D]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scores {
    pub(super) scale: f32,
    /// Whether query i sees only keys up to `i + past`.
    pub(super) causal: bool,
    /// Where it is causal: how many keys query i sees at most, up to key `i + past`.
    pub(super) window: Option<u32>,
    /// `cap * tanh(score / cap)`, when positive.
    pub(super) softcap: f32,
    /// Whether and where the scores are a second result: raw, capped, masked, after softmax.
    pub(super) shown: Option<i64>,
}

/// `[B, S, H * D]` as `[B, H, S, D]`; a tensor of rank 4 stays.
pub(super) fn split_heads(call: &mut Call<'_>, x: NodeId, heads: Option<i64>) -> Lowered<NodeId> {
    let shape = call.shape(x);
    match (shape.as_slice(), heads) {
        ([_, _, _, _], _) => Ok(x),
        ([b, s, d], Some(heads)) if heads > 0 => {
            let size = d
                .div_exact(&Dim::known(heads))
                .ok_or_else(|| Refused::new(format!("size {d} does not divide into {heads} heads")))?;
            let x = call.b.reshape(x, vec![b.clone(), s.clone(), Dim::known(heads), size])?;
            Ok(call.b.transpose(x, vec![0, 2, 1, 3])?)
        }
        _ => Err(Refused::new(format!("rank {} without a number of heads", shape.len()))),
    }
}

/// `[B, H, S, D]` as `[B, S, H * D]`.
pub(super) fn merge_heads(call: &mut Call<'_>, x: NodeId) -> Lowered<NodeId> {
    let shape = call.shape(x);
    let [b, h, s, d] = shape.as_slice() else {
        return Err(Refused::new("heads cannot be merged"));
    };
    let x = call.b.transpose(x, vec![0, 2, 1, 3])?;
    Ok(call.b.reshape(x, vec![b.clone(), s.clone(), h.mul(d)])?)
}

fn head_count(call: &Call<'_>, name: &str) -> Lowered<Option<i64>> {
    call.attributes.int_opt(name)
}

fn attention(call: &mut Call<'_>) -> Lowered {
    // Softmax is f32 or wider whatever is asked for.
    call.attributes.ignore(&["softmax_precision"]);
    let (query, key, value) = (call.node(0)?, call.node(1)?, call.node(2)?);
    let flat = call.rank(query) == 3;
    let q_heads = head_count(call, "q_num_heads")?;
    let kv_heads = head_count(call, "kv_num_heads")?;
    let q = split_heads(call, query, q_heads)?;
    let mut k = split_heads(call, key, kv_heads)?;
    let mut v = split_heads(call, value, kv_heads)?;
    let mut past = Dim::known(0);
    match (call.optional(4)?, call.optional(5)?) {
        (Some(past_key), Some(past_value)) => {
            past = call.shape(past_key).get(2).cloned().unwrap_or_default();
            k = call.add(Concat { axis: 2 }, &[past_key, k])?;
            v = call.add(Concat { axis: 2 }, &[past_value, v])?;
        }
        (None, None) => {}
        _ => return Err(Refused::new("it has a cache of keys or of values, not of both")),
    }
    let depth = call.shape(q).get(3).cloned().unwrap_or_default();
    let scale = match call.attributes.float_opt("scale")? {
        Some(scale) => scale,
        None => 1.0 / (call.known_dim(&depth, "the head size")? as f32).sqrt(),
    };
    let mode = call.attributes.int("qk_matmul_output_mode", 0)?;
    let mut scores = Scores {
        scale,
        causal: call.attributes.flag("is_causal", false)?,
        window: None,
        softcap: call.attributes.float("softcap", 0.0)?,
        shown: call.wants(3).then_some(mode),
    };
    let (queries, keys) = (axis_2(call, q), axis_2(call, k));
    let dtype = call.dtype(q);
    let mut mask = match call.optional(3)? {
        Some(mask) => {
            let mask = additive(call, mask, dtype)?;
            Some(lengthened(call, mask, &keys)?)
        }
        None => None,
    };
    // Before opset 24 there is no such operand.
    let lengths = if call.opset < 24 { None } else { call.optional(6)? };
    let mut offset = Offset::Same(past.clone());
    let mut seen = Vec::new();
    if let Some(lengths) = lengths {
        if call.has(4) {
            return Err(Refused::new("it has a cache and the lengths of another one"));
        }
        let lengths = per_batch(call, lengths)?;
        let columns = iota(call, DType::I64, Dim::known(0), keys.clone())?;
        seen.push(call.b.binary(BinaryFn::Less, columns, lengths)?);
        offset = Offset::Ends(lengths);
        if scores.causal {
            seen.push(window(call, &offset, &queries, &keys, BinaryFn::LessEqual, 0)?);
            scores.causal = false;
        }
    }
    for (name, side, sign) in
        [("left_window_size", BinaryFn::GreaterEqual, -1), ("right_window_size", BinaryFn::LessEqual, 1)]
    {
        match call.attributes.int(name, -1)? {
            -1 => {}
            size if size >= 0 => {
                seen.push(window(call, &offset, &queries, &keys, side, size.saturating_mul(sign))?);
            }
            size => return Err(Refused::new(format!("attribute `{name}` is {size}"))),
        }
    }
    if let Some((first, rest)) = seen.split_first() {
        let mut all = *first;
        for condition in rest {
            all = call.b.binary(BinaryFn::And, all, *condition)?;
        }
        let bias = additive(call, all, dtype)?;
        mask = joined(call, mask, Some(bias))?;
    }
    let (mut result, shown) = attend(call, [q, k, v], mask, &past, scores)?;
    if flat {
        result = merge_heads(call, result)?;
    }
    let shown = shown.map_or(Value::Absent, Value::Node);
    Ok(Outputs(vec![Value::Node(result), Value::Node(k), Value::Node(v), shown]))
}

/// Sequence length of `[B, H, S, D]`.
fn axis_2(call: &Call<'_>, x: NodeId) -> Dim {
    call.shape(x).get(2).cloned().unwrap_or_default()
}

/// Where among the keys the first query stands.
enum Offset {
    /// At the same place in every sequence.
    Same(Dim),
    /// The last query stands at the last key, which these lengths `[B, 1, 1, 1]` tell.
    Ends(NodeId),
}

/// One number per sequence as i64 `[B, 1, 1, 1]`.
fn per_batch(call: &mut Call<'_>, x: NodeId) -> Lowered<NodeId> {
    let n = call.tensor(x).elements();
    let x = call.b.cast(x, DType::I64)?;
    let one = Dim::known(1);
    Ok(call.b.reshape(x, vec![n, one.clone(), one.clone(), one])?)
}

/// `[S, T]` or `[B, 1, S, T]`: whether key `t` compares so with the place of query `s`, moved by `distance`.
fn window(
    call: &mut Call<'_>,
    offset: &Offset,
    queries: &Dim,
    keys: &Dim,
    compare: BinaryFn,
    distance: i64,
) -> Lowered<NodeId> {
    let start = match offset {
        Offset::Same(past) => past.plus(distance),
        Offset::Ends(_) => Dim::known(distance).sub(queries),
    };
    let mut rows = iota(call, DType::I64, start, queries.clone())?;
    rows = call.b.reshape(rows, vec![queries.clone(), Dim::known(1)])?;
    if let Offset::Ends(lengths) = offset {
        rows = call.b.binary(BinaryFn::Add, rows, *lengths)?;
    }
    let columns = iota(call, DType::I64, Dim::known(0), keys.clone())?;
    Ok(call.b.binary(compare, columns, rows)?)
}

/// The sum of what is added to scores.
pub(super) fn joined(call: &mut Call<'_>, a: Option<NodeId>, b: Option<NodeId>) -> Lowered<Option<NodeId>> {
    Ok(match (a, b) {
        (Some(a), Some(b)) => Some(call.b.binary(BinaryFn::Add, a, b)?),
        (one, other) => one.or(other),
    })
}

/// A mask to add: a bool one becomes 0 where true and minus infinity elsewhere.
pub(super) fn additive(call: &mut Call<'_>, mask: NodeId, dtype: DType) -> Lowered<NodeId> {
    if call.dtype(mask) != DType::Bool {
        return Ok(call.b.cast(mask, dtype)?);
    }
    let zero = call.b.scalar(dtype, 0.0)?;
    let never = call.b.scalar(dtype, f32::NEG_INFINITY)?;
    Ok(call.b.select(mask, zero, never)?)
}

/// The mask with keys beyond its end masked out.
fn lengthened(call: &mut Call<'_>, mask: NodeId, length: &Dim) -> Lowered<NodeId> {
    let shape = call.shape(mask);
    let (Some(have), Some(want)) = (shape.last().and_then(Dim::as_known), length.as_known()) else {
        return Ok(mask);
    };
    if have >= want {
        return Ok(mask);
    }
    let before = vec![Dim::known(0); shape.len()];
    let mut after = before.clone();
    if let Some(last) = after.last_mut() {
        *last = Dim::known(want - have);
    }
    call.add(Pad { mode: PadMode::Constant, before, after, value: f64::NEG_INFINITY }, &[mask])
}

/// The attended values, and the scores where they are asked for.
pub(super) fn attend(
    call: &mut Call<'_>,
    [q, k, v]: [NodeId; 3],
    mut mask: Option<NodeId>,
    past: &Dim,
    scores: Scores,
) -> Lowered<(NodeId, Option<NodeId>)> {
    let (queries, keys) = (call.shape(q), call.shape(k));
    let ([_, heads, s, _], [_, kv_heads, t, _]) = (queries.as_slice(), keys.as_slice()) else {
        return Err(Refused::new("queries and keys are not of rank 4"));
    };
    let (heads, kv_heads, s, t) = (heads.clone(), kv_heads.clone(), s.clone(), t.clone());
    let dtype = call.dtype(q);
    let plain = scores.shown.is_none();
    let causal = scores.causal && plain && t.sub(&s) == *past;
    if scores.causal && !causal {
        let offset = Offset::Same(past.clone());
        let mut seen = window(call, &offset, &s, &t, BinaryFn::LessEqual, 0)?;
        if let Some(size) = scores.window {
            let late = window(call, &offset, &s, &t, BinaryFn::Greater, -i64::from(size))?;
            seen = call.b.binary(BinaryFn::And, seen, late)?;
        }
        let bias = additive(call, seen, dtype)?;
        mask = joined(call, mask, Some(bias))?;
    }
    if plain {
        let mut operands = vec![q, k, v];
        operands.extend(mask);
        let softcap = Some(scores.softcap).filter(|cap| *cap > 0.0);
        let window = scores.window.filter(|_| causal);
        let node = call.add(Attention { scale: scores.scale, causal, window, softcap }, &operands)?;
        return Ok((node, None));
    }
    let k = repeat_heads(call, k, &heads, &kv_heads)?;
    let v = repeat_heads(call, v, &heads, &kv_heads)?;
    let product = call.add(MatMul { trans_a: false, trans_b: true }, &[q, k])?;
    let raw = call.b.unary(UnaryFn::Affine { scale: scores.scale, shift: 0.0 }, product)?;
    let mut capped = raw;
    if scores.softcap > 0.0 {
        capped = softcapped(call, raw, scores.softcap)?;
    }
    let mut masked = capped;
    if let Some(mask) = mask {
        masked = call.b.binary(BinaryFn::Add, masked, mask)?;
    }
    let mut weights = call.b.softmax(masked, 3)?;
    if let Some(mask) = mask {
        weights = unless_blind(call, weights, mask)?;
    }
    let result = call.b.matmul(weights, v)?;
    let shown = match scores.shown {
        None => None,
        Some(0) => Some(raw),
        Some(1) => Some(capped),
        Some(2) => Some(masked),
        Some(3) => Some(weights),
        Some(mode) => return Err(Refused::new(format!("qk_matmul_output_mode {mode} is not known"))),
    };
    Ok((result, shown))
}

/// The weights, zero for queries whose mask is minus infinity throughout.
fn unless_blind(call: &mut Call<'_>, weights: NodeId, mask: NodeId) -> Lowered<NodeId> {
    let Some(last) = call.rank(mask).checked_sub(1) else { return Ok(weights) };
    let dtype = call.dtype(mask);
    let best = call.b.reduce(ReduceKind::Max, mask, vec![last], true)?;
    let never = call.b.scalar(dtype, f32::NEG_INFINITY)?;
    let blind = call.b.binary(BinaryFn::Equal, best, never)?;
    let zero = call.b.scalar(dtype, 0.0)?;
    Ok(call.b.select(blind, zero, weights)?)
}

fn softcapped(call: &mut Call<'_>, x: NodeId, cap: f32) -> Lowered<NodeId> {
    let x = call.b.unary(UnaryFn::Affine { scale: 1.0 / cap, shift: 0.0 }, x)?;
    let x = call.b.unary(UnaryFn::Tanh, x)?;
    Ok(call.b.unary(UnaryFn::Affine { scale: cap, shift: 0.0 }, x)?)
}

/// Each key or value head as often as query heads share it.
fn repeat_heads(call: &mut Call<'_>, x: NodeId, heads: &Dim, kv_heads: &Dim) -> Lowered<NodeId> {
    if heads == kv_heads {
        return Ok(x);
    }
    let times = heads
        .div_exact(kv_heads)
        .ok_or_else(|| Refused::new(format!("{heads} query heads do not share {kv_heads} key heads")))?;
    let shape = call.shape(x);
    let [b, h, t, d] = shape.as_slice() else {
        return Err(Refused::new("heads cannot be repeated"));
    };
    let x = call.b.reshape(x, vec![b.clone(), h.clone(), Dim::known(1), t.clone(), d.clone()])?;
    let x = call.b.expand(x, vec![b.clone(), h.clone(), times, t.clone(), d.clone()])?;
    Ok(call.b.reshape(x, vec![b.clone(), heads.clone(), t.clone(), d.clone()])?)
}

/// A scalar of i64.
pub(super) fn integer(call: &mut Call<'_>, value: i64) -> Lowered<NodeId> {
    Ok(call.b.constant(&Array::int(DType::I64, &[], vec![value]))?)
}
