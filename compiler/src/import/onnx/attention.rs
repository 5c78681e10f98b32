//! Attention and rotary position embeddings.
//!
//! Plain attention is one operator of the graph; soft caps and the scores as a result need the expanded form.

use super::generate::iota;
use super::lowering::{Call, Lowered, OpEntry, Outputs, Refused, Value, microsoft, op};
use crate::ir::array::Array;
use crate::ir::dim::Dim;
use crate::ir::element::{BinaryFn, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::op::{Attention, Concat, Gather, MatMul, Pad, Slice};
use crate::ir::ops::pad::PadMode;
use crate::ir::tensor::DType;

pub(super) const OPS: &[OpEntry] = &[
    op("Attention", 23, attention),
    op("RotaryEmbedding", 23, rotary),
    microsoft("RotaryEmbedding", rotary_microsoft),
];

/// What is computed from queries, keys and values `[B, H, S, D]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scores {
    pub(super) scale: f32,
    /// Whether query i sees only keys up to `i + past`.
    pub(super) causal: bool,
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
    if let Some(past_key) = call.optional(4)? {
        past = call.shape(past_key).get(2).cloned().unwrap_or_default();
        k = call.add(Concat { axis: 2 }, &[past_key, k])?;
    }
    if let Some(past_value) = call.optional(5)? {
        v = call.add(Concat { axis: 2 }, &[past_value, v])?;
    }
    let depth = call.shape(q).get(3).cloned().unwrap_or_default();
    let scale = match call.attributes.float_opt("scale")? {
        Some(scale) => scale,
        None => 1.0 / (call.known_dim(&depth, "the head size")? as f32).sqrt(),
    };
    let mode = call.attributes.int("qk_matmul_output_mode", 0)?;
    let scores = Scores {
        scale,
        causal: call.attributes.flag("is_causal", false)?,
        softcap: call.attributes.float("softcap", 0.0)?,
        shown: call.wants(3).then_some(mode),
    };
    let length = call.shape(k).get(2).cloned().unwrap_or_default();
    let dtype = call.dtype(q);
    let mut mask = match call.optional(3)? {
        Some(mask) => {
            let mask = additive(call, mask, dtype)?;
            Some(lengthened(call, mask, &length)?)
        }
        None => None,
    };
    if let Some(lengths) = call.optional(6)? {
        let valid = valid_keys(call, lengths, &length)?;
        let valid = additive(call, valid, dtype)?;
        mask = Some(match mask {
            Some(mask) => call.b.binary(BinaryFn::Add, mask, valid)?,
            None => valid,
        });
    }
    let (mut result, shown) = attend(call, [q, k, v], mask, &past, scores)?;
    if flat {
        result = merge_heads(call, result)?;
    }
    let shown = shown.map_or(Value::Absent, Value::Node);
    Ok(Outputs(vec![Value::Node(result), Value::Node(k), Value::Node(v), shown]))
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
    if have == 1 || have >= want {
        return Ok(mask);
    }
    let before = vec![Dim::known(0); shape.len()];
    let mut after = before.clone();
    if let Some(last) = after.last_mut() {
        *last = Dim::known(want - have);
    }
    call.add(Pad { mode: PadMode::Constant, before, after, value: f64::NEG_INFINITY }, &[mask])
}

/// `[B, 1, 1, T]`: whether key t is within the batch's length.
fn valid_keys(call: &mut Call<'_>, lengths: NodeId, length: &Dim) -> Lowered<NodeId> {
    let n = call.tensor(lengths).elements();
    let lengths = call.b.cast(lengths, DType::I64)?;
    let one = Dim::known(1);
    let lengths = call.b.reshape(lengths, vec![n, one.clone(), one.clone(), one])?;
    let keys = iota(call, DType::I64, Dim::known(0), length.clone())?;
    Ok(call.b.binary(BinaryFn::Less, keys, lengths)?)
}

/// The attended values, and the scores where they are asked for.
pub(super) fn attend(
    call: &mut Call<'_>,
    [q, k, v]: [NodeId; 3],
    mask: Option<NodeId>,
    past: &Dim,
    scores: Scores,
) -> Lowered<(NodeId, Option<NodeId>)> {
    let (queries, keys) = (call.shape(q), call.shape(k));
    let ([_, heads, s, _], [_, kv_heads, t, _]) = (queries.as_slice(), keys.as_slice()) else {
        return Err(Refused::new("queries and keys are not of rank 4"));
    };
    let (heads, kv_heads, s, t) = (heads.clone(), kv_heads.clone(), s.clone(), t.clone());
    let plain = scores.softcap <= 0.0 && scores.shown.is_none();
    let aligned = !scores.causal || t.sub(&s) == *past;
    if plain && aligned {
        let mut operands = vec![q, k, v];
        operands.extend(mask);
        let node = call.add(Attention { scale: scores.scale, causal: scores.causal }, &operands)?;
        return Ok((node, None));
    }
    let k = repeat_heads(call, k, &heads, &kv_heads)?;
    let v = repeat_heads(call, v, &heads, &kv_heads)?;
    let dtype = call.dtype(q);
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
    if scores.causal {
        let rows = iota(call, DType::I64, past.clone(), s.clone())?;
        let rows = call.b.reshape(rows, vec![s, Dim::known(1)])?;
        let columns = iota(call, DType::I64, Dim::known(0), t)?;
        let seen = call.b.binary(BinaryFn::LessEqual, columns, rows)?;
        let causal = additive(call, seen, dtype)?;
        masked = call.b.binary(BinaryFn::Add, masked, causal)?;
    }
    let weights = call.b.softmax(masked, 3)?;
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

fn rotary(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let (mut cos, mut sin) = (call.node(1)?, call.node(2)?);
    if let Some(positions) = call.optional(3)? {
        cos = call.add(Gather { axis: 0 }, &[cos, positions])?;
        sin = call.add(Gather { axis: 0 }, &[sin, positions])?;
    }
    Ok(rotate_call(call, x, cos, sin)?.into())
}

/// The positions are an operand always, one number meaning the position of the first token.
fn rotary_microsoft(call: &mut Call<'_>) -> Lowered {
    call.attributes.ignore(&["is_packed_batching", "scale"]);
    let (x, mut positions) = (call.node(0)?, call.node(1)?);
    let (cos, sin) = (call.node(2)?, call.node(3)?);
    if call.rank(positions) == 1 {
        let axis = if call.rank(x) == 4 { 2 } else { 1 };
        let length = call.shape(x).get(axis).cloned().unwrap_or_default();
        let dtype = call.dtype(positions);
        let steps = iota(call, dtype, Dim::known(0), length.clone())?;
        positions = call.b.binary(BinaryFn::Add, steps, positions)?;
        positions = call.b.reshape(positions, vec![Dim::known(1), length])?;
    }
    let cos = call.add(Gather { axis: 0 }, &[cos, positions])?;
    let sin = call.add(Gather { axis: 0 }, &[sin, positions])?;
    Ok(rotate_call(call, x, cos, sin)?.into())
}

/// Reads the attributes and rotates `[B, H, S, D]` or `[B, S, H * D]` by `[B, S, D / 2]`.
fn rotate_call(call: &mut Call<'_>, x: NodeId, cos: NodeId, sin: NodeId) -> Lowered<NodeId> {
    let interleaved = call.attributes.flag("interleaved", false)?;
    let width = call.attributes.int("rotary_embedding_dim", 0)?;
    let mut heads = call.attributes.int_opt("num_heads")?;
    let flat = call.rank(x) == 3;
    if flat && heads.unwrap_or(0) == 0 {
        // Without a number of heads the caches' width tells the head's.
        let half = call.shape(cos).last().cloned().unwrap_or_default();
        let size = if width > 0 { None } else { Some(half.scale(2)) };
        let all = call.shape(x).last().cloned().unwrap_or_default();
        heads = size.and_then(|s| all.div_exact(&s)).and_then(|d| d.as_known());
    }
    let split = split_heads(call, x, heads)?;
    let rotated = rotate(call, split, cos, sin, width, interleaved)?;
    if flat { merge_heads(call, rotated) } else { Ok(rotated) }
}

/// Rotates the first `width` (0: all) elements of each head of `[B, H, S, D]`.
pub(super) fn rotate(
    call: &mut Call<'_>,
    x: NodeId,
    cos: NodeId,
    sin: NodeId,
    width: i64,
    interleaved: bool,
) -> Lowered<NodeId> {
    let shape = call.shape(x);
    let depth = shape.get(3).cloned().unwrap_or_default();
    let depth = i64::try_from(call.known_dim(&depth, "the head size")?).unwrap_or(i64::MAX);
    let width = if width == 0 { depth } else { width };
    if width < 0 || width > depth || width % 2 != 0 {
        return Err(Refused::new(format!("{width} of {depth} elements cannot be rotated in pairs")));
    }
    let half = width / 2;
    let head = call.b.slice(x, 3, Dim::known(0), Dim::known(width))?;
    let dtype = call.dtype(x);
    let mut angles = [cos, sin];
    for angle in &mut angles {
        let mut sizes = call.shape(*angle);
        if sizes.len() != 3 || !sizes[2].is(half) {
            return Err(Refused::new(format!("the caches do not hold {half} angles a token")));
        }
        sizes.insert(1, Dim::known(1));
        *angle = call.b.reshape(*angle, sizes)?;
        *angle = call.b.cast(*angle, dtype)?;
    }
    let [cos, sin] = angles;
    let (first, second) = if interleaved {
        let every = |call: &mut Call<'_>, start: i64| {
            let mut sizes = call.shape(head);
            let (mut starts, mut steps) = (vec![Dim::known(0); 4], vec![1; 4]);
            starts[3] = Dim::known(start);
            steps[3] = 2;
            sizes[3] = Dim::known(half);
            call.add(Slice { starts, steps, sizes }, &[head])
        };
        (every(call, 0)?, every(call, 1)?)
    } else {
        (
            call.b.slice(head, 3, Dim::known(0), Dim::known(half))?,
            call.b.slice(head, 3, Dim::known(half), Dim::known(half))?,
        )
    };
    let combine = |call: &mut Call<'_>, a: NodeId, b: NodeId, f: BinaryFn| -> Lowered<NodeId> {
        let left = call.b.binary(BinaryFn::Mul, first, a)?;
        let right = call.b.binary(BinaryFn::Mul, second, b)?;
        Ok(call.b.binary(f, left, right)?)
    };
    let mut real = combine(call, cos, sin, BinaryFn::Sub)?;
    let mut imaginary = combine(call, sin, cos, BinaryFn::Add)?;
    let mut parts;
    if interleaved {
        let mut sizes = call.shape(real);
        sizes.push(Dim::known(1));
        real = call.b.reshape(real, sizes.clone())?;
        imaginary = call.b.reshape(imaginary, sizes)?;
        let pairs = call.add(Concat { axis: 4 }, &[real, imaginary])?;
        let mut sizes = call.shape(pairs);
        sizes.truncate(3);
        sizes.push(Dim::known(width));
        parts = vec![call.b.reshape(pairs, sizes)?];
    } else {
        parts = vec![real, imaginary];
    }
    if width < depth {
        parts.push(call.b.slice(x, 3, Dim::known(width), Dim::known(depth - width))?);
    }
    match parts.as_slice() {
        [one] => Ok(*one),
        _ => call.add(Concat { axis: 3 }, &parts),
    }
}

/// A scalar of i64.
pub(super) fn integer(call: &mut Call<'_>, value: i64) -> Lowered<NodeId> {
    Ok(call.b.constant(&Array::int(DType::I64, &[], vec![value]))?)
}
