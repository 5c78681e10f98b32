//! Fused operators that onnxruntime's optimizer writes (domain com.microsoft), expanded to standard operators.

use super::attention::{Scores, attend, joined, merge_heads, split_heads};
use super::elementwise::typed_binary;
use super::lowering::{Call, Lowered, OpEntry, Outputs, Value, microsoft};
use super::refused::Refused;
use crate::ir::dim::Dim;
use crate::ir::element::{BinaryFn, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::op::{Gather, GroupNorm, LayerNorm};
use crate::ir::tensor::DType;

pub(super) const OPS: &[OpEntry] = &[
    microsoft("SkipLayerNormalization", |c| skip_norm(c, false)),
    microsoft("SkipSimplifiedLayerNormalization", |c| skip_norm(c, true)),
    microsoft("EmbedLayerNormalization", embed_norm),
    microsoft("GroupNorm", group_norm),
    microsoft("SkipGroupNorm", skip_group_norm),
    microsoft("NhwcConv", nhwc_conv),
    microsoft("Attention", attention),
    microsoft("MultiHeadAttention", multi_head_attention),
];

/// Lowers SkipLayerNormalization, or its RMSNorm variant: normalizes `x + skip (+ bias)`. The sum is the fourth result.
fn skip_norm(call: &mut Call<'_>, rms: bool) -> Lowered {
    let (x, skip, gamma) = (call.node(0)?, call.node(1)?, call.node(2)?);
    let epsilon = call.attributes.float("epsilon", if rms { 1e-6 } else { 1e-12 })?;
    let (beta, bias) = if rms { (None, call.optional(3)?) } else { (call.optional(3)?, call.optional(4)?) };
    let mut sum = typed_binary(call, BinaryFn::Add, x, skip)?;
    if let Some(bias) = bias {
        sum = typed_binary(call, BinaryFn::Add, sum, bias)?;
    }
    let axis = call.rank(sum).saturating_sub(1);
    let mut operands = vec![sum, gamma];
    operands.extend(beta);
    let result = call.add(LayerNorm { axis, epsilon, rms }, &operands)?;
    if call.wants(1) || call.wants(2) {
        return Err(Refused::new("the results mean and inv_std_var are not supported"));
    }
    Ok(Outputs(vec![Value::Node(result), Value::Absent, Value::Absent, Value::Node(sum)]))
}

/// Lowers EmbedLayerNormalization: adds word, position and segment embeddings, and normalizes the sum. The second
/// result is the number of unmasked tokens.
fn embed_norm(call: &mut Call<'_>) -> Lowered {
    call.attributes.ignore(&["mask_index_type"]);
    let ids = call.node(0)?;
    let epsilon = call.attributes.float("epsilon", 1e-12)?;
    let words = call.node(2)?;
    let positions = call.node(3)?;
    let mut sum = call.add(Gather { axis: 0 }, &[words, ids])?;
    let length = call.shape(ids).get(1).cloned().unwrap_or_default();
    let position = match call.optional(8)? {
        Some(index) => call.add(Gather { axis: 0 }, &[positions, index])?,
        None => call.b.slice(positions, 0, Dim::known(0), length)?,
    };
    sum = typed_binary(call, BinaryFn::Add, sum, position)?;
    if let (Some(segments), Some(table)) = (call.optional(1)?, call.optional(4)?) {
        let segment = call.add(Gather { axis: 0 }, &[table, segments])?;
        sum = typed_binary(call, BinaryFn::Add, sum, segment)?;
    }
    let (gamma, beta) = (call.node(5)?, call.node(6)?);
    let axis = call.rank(sum).saturating_sub(1);
    let result = call.add(LayerNorm { axis, epsilon, rms: false }, &[sum, gamma, beta])?;
    let counts = match call.optional(7)? {
        Some(mask) if call.wants(1) => {
            let mask = call.b.cast(mask, DType::I32)?;
            Value::Node(call.b.reduce(crate::ir::ops::reduce::ReduceKind::Sum, mask, vec![1], false)?)
        }
        None if call.wants(1) => {
            let zero = call.b.scalar(DType::I32, 0.0)?;
            let batch = call.shape(ids).first().cloned().unwrap_or_default();
            Value::Node(call.b.expand(zero, vec![batch])?)
        }
        _ => Value::Absent,
    };
    Ok(Outputs(vec![Value::Node(result), counts, Value::Node(sum)]))
}

/// Transposes an image from channels-last to channels-first order, or back.
fn move_channels(call: &mut Call<'_>, x: NodeId, to_first: bool) -> Lowered<NodeId> {
    let rank = call.rank(x);
    if rank < 3 {
        return Err(Refused::new(format!(
            "an operand has rank {rank}; at least 3 is needed for a spatial axis"
        )));
    }
    let mut perm: Vec<usize> = (0..rank).collect();
    if to_first {
        perm[1..].rotate_right(1);
    } else {
        perm[1..].rotate_left(1);
    }
    Ok(call.b.transpose(x, perm)?)
}

fn normalize_groups(call: &mut Call<'_>, x: NodeId) -> Lowered<NodeId> {
    let (gamma, beta) = (call.node(1)?, call.node(2)?);
    let dtype = call.dtype(x);
    let gamma = call.b.cast(gamma, dtype)?;
    let beta = call.b.cast(beta, dtype)?;
    let epsilon = call.attributes.float("epsilon", 1e-5)?;
    let groups = call.attributes.int("groups", 0)?;
    let groups = usize::try_from(groups)
        .ok()
        .filter(|g| *g > 0)
        .ok_or_else(|| Refused::attribute("groups", groups, "1 or more"))?;
    let last = call.attributes.flag("channels_last", true)?;
    let silu = match call.attributes.int("activation", 0)? {
        0 => false,
        1 => true,
        other => return Err(Refused::attribute("activation", other, "0 (none), 1 (SiLU)")),
    };
    let mut x = if last { move_channels(call, x, true)? } else { x };
    x = call.add(GroupNorm { groups, epsilon }, &[x, gamma, beta])?;
    if silu {
        x = call.b.unary(UnaryFn::Swish { alpha: 1.0 }, x)?;
    }
    if last { move_channels(call, x, false) } else { Ok(x) }
}

fn group_norm(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    Ok(normalize_groups(call, x)?.into())
}

fn skip_group_norm(call: &mut Call<'_>) -> Lowered {
    let (x, mut skip) = (call.node(0)?, call.node(3)?);
    // A skip of `[N, C]` is broadcast over the pixels.
    if call.rank(skip) == 2 {
        let shape = call.shape(skip);
        if let [n, c] = shape.as_slice() {
            let one = Dim::known(1);
            skip = call.b.reshape(skip, vec![n.clone(), one.clone(), one, c.clone()])?;
        }
    }
    let mut sum = typed_binary(call, BinaryFn::Add, x, skip)?;
    if let Some(bias) = call.optional(4)? {
        sum = typed_binary(call, BinaryFn::Add, sum, bias)?;
    }
    let result = normalize_groups(call, sum)?;
    Ok(vec![result, sum].into())
}

/// Lowers NhwcConv: a convolution over `[N, spatial.., C]` with weights `[O, kernel.., I]`.
fn nhwc_conv(call: &mut Call<'_>) -> Lowered {
    let (x, weights) = (call.node(0)?, call.node(1)?);
    let x = move_channels(call, x, true)?;
    let weights = move_channels(call, weights, true)?;
    let bias = call.optional(2)?;
    let result = super::conv::convolve(call, x, weights, bias, Some(0))?;
    Ok(move_channels(call, result, false)?.into())
}

fn heads(call: &Call<'_>) -> Lowered<i64> {
    call.attributes.int_opt("num_heads")?.ok_or_else(|| Refused::new("attribute `num_heads` is missing"))
}

fn default_scale(call: &Call<'_>, q: NodeId) -> Lowered<f32> {
    match call.attributes.float_opt("scale")? {
        Some(scale) if scale != 0.0 => Ok(scale),
        _ => {
            let depth = call.shape(q).get(3).cloned().unwrap_or_default();
            Ok(1.0 / (call.known_dim(&depth, "the head size")? as f32).sqrt())
        }
    }
}

/// Converts a key padding mask to a mask that is added to the scores. The padding mask is `[B]` lengths, `[B, T]`, `[B,
/// S, T]` or `[B, 1, S, T]`.
fn key_padding_mask(call: &mut Call<'_>, mask: NodeId, keys: &Dim, dtype: DType) -> Lowered<NodeId> {
    let filter = call.attributes.float("mask_filter_value", -10000.0)?;
    let shape = call.shape(mask);
    let one = || Dim::known(1);
    let valid = match shape.as_slice() {
        [b] => {
            let lengths = call.b.cast(mask, DType::I64)?;
            let lengths = call.b.reshape(lengths, vec![b.clone(), one(), one(), one()])?;
            let positions = super::generate::iota(call, DType::I64, Dim::known(0), keys.clone())?;
            call.b.binary(BinaryFn::Less, positions, lengths)?
        }
        [b, t] => {
            let mask = call.b.reshape(mask, vec![b.clone(), one(), one(), t.clone()])?;
            call.b.cast(mask, DType::Bool)?
        }
        [b, s, t] => {
            let mask = call.b.reshape(mask, vec![b.clone(), one(), s.clone(), t.clone()])?;
            call.b.cast(mask, DType::Bool)?
        }
        [_, _, _, _] => call.b.cast(mask, DType::Bool)?,
        _ => {
            return Err(Refused::new(format!(
                "the mask has rank {}; ranks 1 to 4 are supported",
                shape.len()
            )));
        }
    };
    let zero = call.b.scalar(dtype, 0.0)?;
    let filter = call.b.scalar(dtype, filter)?;
    Ok(call.b.select(valid, zero, filter)?)
}

/// Lowers com.microsoft.Attention: projects `x [B, S, I]` with packed weights `[I, 3 * N]` and a bias, then attends.
fn attention(call: &mut Call<'_>) -> Lowered {
    call.attributes.ignore(&["past_present_share_buffer"]);
    if call.has(4) || call.wants(1) || call.attributes.flag("do_rotary", false)? {
        return Err(Refused::new(
            "a KV cache or rotary embedding in com.microsoft.Attention is not supported",
        ));
    }
    let (x, weights) = (call.node(0)?, call.node(1)?);
    let heads = heads(call)?;
    let mut packed = call.b.matmul(x, weights)?;
    if let Some(bias) = call.optional(2)? {
        packed = typed_binary(call, BinaryFn::Add, packed, bias)?;
    }
    let total = call.shape(packed).get(2).cloned().unwrap_or_default();
    let total = i64::try_from(call.known_dim(&total, "the sum of the sizes of queries, keys and values")?)
        .unwrap_or(i64::MAX);
    let sizes = match call.attributes.ints_opt("qkv_hidden_sizes")? {
        Some([q, k, v]) => [*q, *k, *v],
        Some(_) => return Err(Refused::new("attribute `qkv_hidden_sizes` must have three values")),
        None => [total / 3; 3],
    };
    let mut projections = [packed; 3];
    let mut start = 0;
    for (projection, size) in projections.iter_mut().zip(sizes) {
        let slice = call.b.slice(packed, 2, Dim::known(start), Dim::known(size))?;
        *projection = split_heads(call, slice, Some(heads))?;
        start = start.saturating_add(size);
    }
    let [q, k, v] = projections;
    let (dtype, keys) = (call.dtype(q), call.shape(k)[2].clone());
    let mask = match call.optional(3)? {
        Some(mask) => Some(key_padding_mask(call, mask, &keys, dtype)?),
        None => None,
    };
    let bias = call.optional(5)?;
    let mask = joined(call, mask, bias)?;
    let scores = Scores {
        scale: default_scale(call, q)?,
        causal: call.attributes.flag("unidirectional", false)?,
        window: None,
        softcap: 0.0,
        scores_output: None,
    };
    call.attributes.ignore(&["mask_filter_value"]);
    let (result, _) = attend(call, [q, k, v], mask, &Dim::known(0), scores)?;
    Ok(merge_heads(call, result)?.into())
}

fn multi_head_attention(call: &mut Call<'_>) -> Lowered {
    if call.has(8) || call.has(9) {
        return Err(Refused::new("operands 8 and 9 (cache indirection) are not supported"));
    }
    let query = call.node(0)?;
    let heads = heads(call)?;
    if call.rank(query) != 3 || !call.has(1) || !call.has(2) {
        return Err(Refused::new(
            "packed queries, keys and values are not supported; query, key and value must be separate \
             operands of rank 3",
        ));
    }
    let (key, value) = (call.node(1)?, call.node(2)?);
    let mut projections = [query, key, value];
    if let Some(bias) = call.optional(3)? {
        let mut start = Dim::known(0);
        for projection in &mut projections {
            let size = call.shape(*projection).last().cloned().unwrap_or_default();
            let slice = call.b.slice(bias, 0, start.clone(), size.clone())?;
            *projection = typed_binary(call, BinaryFn::Add, *projection, slice)?;
            start = start.add(&size);
        }
    }
    for projection in &mut projections {
        *projection = split_heads(call, *projection, Some(heads))?;
    }
    let [q, mut k, mut v] = projections;
    let mut past = Dim::known(0);
    if let (Some(past_key), Some(past_value)) = (call.optional(6)?, call.optional(7)?) {
        past = call.shape(past_key).get(2).cloned().unwrap_or_default();
        k = call.add(crate::ir::op::Concat { axis: 2 }, &[past_key, k])?;
        v = call.add(crate::ir::op::Concat { axis: 2 }, &[past_value, v])?;
    }
    let (dtype, keys) = (call.dtype(q), call.shape(k)[2].clone());
    let mask = match call.optional(4)? {
        Some(mask) => Some(key_padding_mask(call, mask, &keys, dtype)?),
        None => None,
    };
    let bias = call.optional(5)?;
    let mask = joined(call, mask, bias)?;
    let scores = Scores {
        scale: default_scale(call, q)?,
        causal: call.attributes.flag("unidirectional", false)?,
        window: None,
        softcap: 0.0,
        scores_output: None,
    };
    call.attributes.ignore(&["mask_filter_value"]);
    let (result, _) = attend(call, [q, k, v], mask, &past, scores)?;
    let result = merge_heads(call, result)?;
    Ok(Outputs(vec![Value::Node(result), Value::Node(k), Value::Node(v)]))
}
