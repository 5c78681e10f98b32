//! Lowers ONNX's Attention, and adds attention for other operators that contain it.
//!
//! Attention becomes one operator of the graph. If a model reads the scores as an output, attention is expanded to
//! matmuls and a softmax. In both forms the result of a query that attends to no key is zero.

use super::generate::iota;
use super::lowering::{Call, Lowered, OpEntry, Outputs, Value, op};
use super::refused::Refused;
use crate::ir::array::Array;
use crate::ir::dim::Dim;
use crate::ir::element::{BinaryFn, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::op::{Attention, Concat, MatMul, Pad};
use crate::ir::ops::pad::PadMode;
use crate::ir::ops::reduce::ReduceKind;
use crate::ir::tensor::DType;

pub(super) const OPS: &[OpEntry] = &[op("Attention", 23, attention)];

/// Parameters of attention over queries, keys and values `[B, H, S, D]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scores {
    /// Factor by which the scores, the dot products of queries and keys, are multiplied.
    pub(super) scale: f32,
    /// True if query i attends only to keys up to `i + past`, where `past` is the number of keys before the first
    /// query.
    pub(super) causal: bool,
    /// Sliding window: query i attends at most to this number of keys; the last one is key `i + past`. Used only
    /// if `causal`.
    pub(super) window: Option<u32>,
    /// The cap in `cap * tanh(score / cap)`, which limits scores; 0 for no cap.
    pub(super) softcap: f32,
    /// Stage at which the scores become a second result: 0 raw, 1 capped, 2 masked, 3 after softmax. `None` if the
    /// scores are not a result.
    pub(super) scores_output: Option<i64>,
}

/// Splits the heads of an attention operand: `[B, S, H * D]` becomes `[B, H, S, D]`. A tensor of rank 4 is returned
/// unchanged.
pub(super) fn split_heads(call: &mut Call<'_>, x: NodeId, heads: Option<i64>) -> Lowered<NodeId> {
    let shape = call.shape(x);
    match (shape.as_slice(), heads) {
        ([_, _, _, _], _) => Ok(x),
        ([b, s, d], Some(heads)) if heads > 0 => {
            let size = d.div_exact(&Dim::known(heads)).ok_or_else(|| {
                Refused::new(format!(
                    "the size {d} of an operand is not a multiple of the number of heads, {heads}"
                ))
            })?;
            let x = call.b.reshape(x, vec![b.clone(), s.clone(), Dim::known(heads), size])?;
            Ok(call.b.transpose(x, vec![0, 2, 1, 3])?)
        }
        _ => Err(Refused::new(format!(
            "an operand has rank {}; rank 3 with a number of heads, or rank 4, is needed",
            shape.len()
        ))),
    }
}

/// Merges the heads of an attention result: `[B, H, S, D]` becomes `[B, S, H * D]`.
pub(super) fn merge_heads(call: &mut Call<'_>, x: NodeId) -> Lowered<NodeId> {
    let shape = call.shape(x);
    let [b, h, s, d] = shape.as_slice() else {
        return Err(Refused::new("the attention heads cannot be merged: the result does not have rank 4"));
    };
    let x = call.b.transpose(x, vec![0, 2, 1, 3])?;
    Ok(call.b.reshape(x, vec![b.clone(), s.clone(), h.mul(d)])?)
}

fn head_count(call: &Call<'_>, name: &str) -> Lowered<Option<i64>> {
    call.attributes.int_opt(name)
}

fn attention(call: &mut Call<'_>) -> Lowered {
    // Softmax always computes in f32 or wider.
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
        _ => return Err(Refused::new("only one of past_key and past_value is given; give both or none")),
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
        scores_output: call.wants(3).then_some(mode),
    };
    let (queries, keys) = (sequence_length(call, q), sequence_length(call, k));
    let dtype = call.dtype(q);
    let mut mask = match call.optional(3)? {
        Some(mask) => {
            let mask = additive(call, mask, dtype)?;
            Some(lengthened(call, mask, &keys)?)
        }
        None => None,
    };
    // Operand 6 (nonpad_kv_seqlen) exists from opset 24 on.
    let lengths = if call.opset < 24 { None } else { call.optional(6)? };
    let conditions = conditions(call, lengths, &past, [&queries, &keys], &mut scores)?;
    if let Some((first, rest)) = conditions.split_first() {
        let mut all = *first;
        for condition in rest {
            all = call.b.binary(BinaryFn::And, all, *condition)?;
        }
        let bias = additive(call, all, dtype)?;
        mask = joined(call, mask, Some(bias))?;
    }
    let (mut result, scores_output) = attend(call, [q, k, v], mask, &past, scores)?;
    if flat {
        result = merge_heads(call, result)?;
    }
    let scores_output = scores_output.map_or(Value::Absent, Value::Node);
    Ok(Outputs(vec![Value::Node(result), Value::Node(k), Value::Node(v), scores_output]))
}

/// Returns bool masks that are true where a query may attend to a key: one for the sequences' lengths `lengths` if they
/// are given, and one each for the attributes `left_window_size` and `right_window_size` if they limit the window. If
/// `lengths` is given and `scores.causal` is true, the causal mask is returned too, and `scores.causal` becomes false.
fn conditions(
    call: &mut Call<'_>,
    lengths: Option<NodeId>,
    past: &Dim,
    [queries, keys]: [&Dim; 2],
    scores: &mut Scores,
) -> Lowered<Vec<NodeId>> {
    let mut offset = Offset::Same(past.clone());
    let mut conditions = Vec::new();
    if let Some(lengths) = lengths {
        if call.has(4) {
            return Err(Refused::new("past_key and nonpad_kv_seqlen are both given; only one is possible"));
        }
        let lengths = per_batch(call, lengths)?;
        let columns = iota(call, DType::I64, Dim::known(0), keys.clone())?;
        conditions.push(call.b.binary(BinaryFn::Less, columns, lengths)?);
        offset = Offset::Ends(lengths);
        if scores.causal {
            conditions.push(window(call, &offset, queries, keys, BinaryFn::LessEqual, 0)?);
            scores.causal = false;
        }
    }
    for (name, side, sign) in
        [("left_window_size", BinaryFn::GreaterEqual, -1), ("right_window_size", BinaryFn::LessEqual, 1)]
    {
        match call.attributes.int(name, -1)? {
            -1 => {}
            size if size >= 0 => {
                conditions.push(window(call, &offset, queries, keys, side, size.saturating_mul(sign))?);
            }
            size => {
                return Err(Refused::attribute(name, size, "window sizes of 0 or more, or -1 for no limit"));
            }
        }
    }
    Ok(conditions)
}

/// Returns the sequence length S of a tensor `[B, H, S, D]`.
fn sequence_length(call: &Call<'_>, x: NodeId) -> Dim {
    call.shape(x).get(2).cloned().unwrap_or_default()
}

/// Position of the first query in its sequence of keys: the number of keys before it.
enum Offset {
    /// The first query has this position in all sequences of the batch.
    Same(Dim),
    /// The last query is at the last key of its sequence. The field is the graph node of the sequences' lengths, `[B,
    /// 1, 1, 1]`.
    Ends(NodeId),
}

/// Converts a tensor with one number per sequence to i64 `[B, 1, 1, 1]`.
fn per_batch(call: &mut Call<'_>, x: NodeId) -> Lowered<NodeId> {
    let n = call.tensor(x).elements();
    let x = call.b.cast(x, DType::I64)?;
    let one = Dim::known(1);
    Ok(call.b.reshape(x, vec![n, one.clone(), one.clone(), one])?)
}

/// Returns a bool mask `[S, T]` or `[B, 1, S, T]` with the element `compare(t, s + distance)` for each query and key: `t`
/// is the position of the key, `s` the position of the query.
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

/// Returns the sum of two optional additive masks.
pub(super) fn joined(call: &mut Call<'_>, a: Option<NodeId>, b: Option<NodeId>) -> Lowered<Option<NodeId>> {
    Ok(match (a, b) {
        (Some(a), Some(b)) => Some(call.b.binary(BinaryFn::Add, a, b)?),
        (one, other) => one.or(other),
    })
}

/// Converts a mask to one that is added to the scores: a bool mask becomes 0 where true and minus infinity elsewhere.
pub(super) fn additive(call: &mut Call<'_>, mask: NodeId, dtype: DType) -> Lowered<NodeId> {
    if call.dtype(mask) != DType::Bool {
        return Ok(call.b.cast(mask, dtype)?);
    }
    let zero = call.b.scalar(dtype, 0.0)?;
    let excluded = call.b.scalar(dtype, f32::NEG_INFINITY)?;
    Ok(call.b.select(mask, zero, excluded)?)
}

/// Extends an additive mask to `length` keys. The added keys are masked out.
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

/// Adds attention to the graph. Returns the result, and the scores if `scores.scores_output` requests them.
pub(super) fn attend(
    call: &mut Call<'_>,
    [q, k, v]: [NodeId; 3],
    mut mask: Option<NodeId>,
    past: &Dim,
    scores: Scores,
) -> Lowered<(NodeId, Option<NodeId>)> {
    let (queries, keys) = (call.shape(q), call.shape(k));
    let ([_, heads, s, _], [_, kv_heads, t, _]) = (queries.as_slice(), keys.as_slice()) else {
        return Err(Refused::new("queries and keys must have rank 4"));
    };
    let (heads, kv_heads, s, t) = (heads.clone(), kv_heads.clone(), s.clone(), t.clone());
    let dtype = call.dtype(q);
    let plain = scores.scores_output.is_none();
    let causal = scores.causal && plain && t.sub(&s) == *past;
    if scores.causal && !causal {
        let offset = Offset::Same(past.clone());
        let mut visible = window(call, &offset, &s, &t, BinaryFn::LessEqual, 0)?;
        if let Some(size) = scores.window {
            let late = window(call, &offset, &s, &t, BinaryFn::Greater, -i64::from(size))?;
            visible = call.b.binary(BinaryFn::And, visible, late)?;
        }
        let bias = additive(call, visible, dtype)?;
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
    let matmul = call.add(MatMul { trans_a: false, trans_b: true }, &[q, k])?;
    let raw = call.b.unary(UnaryFn::Affine { scale: scores.scale, shift: 0.0 }, matmul)?;
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
        weights = zero_masked_rows(call, weights, mask)?;
    }
    let result = call.b.matmul(weights, v)?;
    let scores_output = match scores.scores_output {
        None => None,
        Some(0) => Some(raw),
        Some(1) => Some(capped),
        Some(2) => Some(masked),
        Some(3) => Some(weights),
        Some(mode) => return Err(Refused::attribute("qk_matmul_output_mode", mode, "0 to 3")),
    };
    Ok((result, scores_output))
}

/// Sets the attention weights to zero for queries whose mask is minus infinity for all keys.
fn zero_masked_rows(call: &mut Call<'_>, weights: NodeId, mask: NodeId) -> Lowered<NodeId> {
    let Some(last) = call.rank(mask).checked_sub(1) else { return Ok(weights) };
    let dtype = call.dtype(mask);
    let best = call.b.reduce(ReduceKind::Max, mask, vec![last], true)?;
    let excluded = call.b.scalar(dtype, f32::NEG_INFINITY)?;
    let masked = call.b.binary(BinaryFn::Equal, best, excluded)?;
    let zero = call.b.scalar(dtype, 0.0)?;
    Ok(call.b.select(masked, zero, weights)?)
}

fn softcapped(call: &mut Call<'_>, x: NodeId, cap: f32) -> Lowered<NodeId> {
    let x = call.b.unary(UnaryFn::Affine { scale: 1.0 / cap, shift: 0.0 }, x)?;
    let x = call.b.unary(UnaryFn::Tanh, x)?;
    Ok(call.b.unary(UnaryFn::Affine { scale: cap, shift: 0.0 }, x)?)
}

/// Repeats each key or value head for the query heads of its group (GQA).
fn repeat_heads(call: &mut Call<'_>, x: NodeId, heads: &Dim, kv_heads: &Dim) -> Lowered<NodeId> {
    if heads == kv_heads {
        return Ok(x);
    }
    let times = heads.div_exact(kv_heads).ok_or_else(|| {
        Refused::new(format!("the {heads} query heads are not a multiple of the {kv_heads} key heads"))
    })?;
    let shape = call.shape(x);
    let [b, h, t, d] = shape.as_slice() else {
        return Err(Refused::new(
            "the key or value heads cannot be repeated: the operand does not have rank 4",
        ));
    };
    let x = call.b.reshape(x, vec![b.clone(), h.clone(), Dim::known(1), t.clone(), d.clone()])?;
    let x = call.b.expand(x, vec![b.clone(), h.clone(), times, t.clone(), d.clone()])?;
    Ok(call.b.reshape(x, vec![b.clone(), heads.clone(), t.clone(), d.clone()])?)
}

/// Adds an i64 scalar constant to the graph.
pub(super) fn integer(call: &mut Call<'_>, value: i64) -> Lowered<NodeId> {
    Ok(call.b.constant(&Array::int(DType::I64, &[], vec![value]))?)
}
