//! Operators that pass a state from one run of a model to the next: causal convolution, linear attention, and updates
//! of a cache.

use super::elementwise::typed_binary;
use super::generate::iota;
use super::lowering::{Call, Lowered, OpEntry, Outputs, op};
use super::refused::Refused;
use crate::ir::array::Array;
use crate::ir::dim::Dim;
use crate::ir::element::{BinaryFn, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::op::{Combine, Concat, Conv, MatMul, ScatterElements};
use crate::ir::tensor::{DType, normalize_axis};

pub(super) const OPS: &[OpEntry] = &[
    op("CausalConvWithState", 27, causal_conv),
    op("LinearAttention", 27, linear_attention),
    op("TensorScatter", 24, tensor_scatter),
];

/// Maximum sequence length of LinearAttention, whose steps are unrolled.
const MAX_STEPS: usize = 1024;

fn zeros(call: &mut Call<'_>, dtype: DType, shape: Vec<Dim>) -> Lowered<NodeId> {
    let zero = call.b.scalar(dtype, 0.0)?;
    Ok(call.b.expand(zero, shape)?)
}

/// Lowers CausalConvWithState: a depthwise convolution of the past inputs and `x [B, C, L]`. The new state holds the
/// last inputs.
fn causal_conv(call: &mut Call<'_>) -> Lowered {
    let (x, weights) = (call.node(0)?, call.node(1)?);
    let (data, kernel) = (call.shape(x), call.shape(weights));
    let ([batch, channels, length], [_, _, reach]) = (data.as_slice(), kernel.as_slice()) else {
        return Err(Refused::new("operands 0 and 1 must have rank 3"));
    };
    let group = call.known_dim(channels, "the number of channels")?;
    let before = call.known_dim(reach, "the kernel size")?.checked_sub(1);
    let before = Dim::from(before.ok_or_else(|| Refused::new("the kernel size is 0"))?);
    let dtype = call.dtype(x);
    let past = match call.optional(3)? {
        Some(past) => past,
        None => zeros(call, dtype, vec![batch.clone(), channels.clone(), before.clone()])?,
    };
    let all = call.add(Concat { axis: 2 }, &[past, x])?;
    let conv = Conv {
        strides: vec![1],
        dilations: vec![1],
        pads_begin: vec![0],
        pads_end: vec![0],
        group,
        zero_point: 0,
    };
    let mut operands = vec![all, weights];
    operands.extend(call.optional(2)?);
    let mut result = call.add(conv, &operands)?;
    match call.attributes.text("activation", "none")? {
        "none" => {}
        "silu" | "swish" => result = call.b.unary(UnaryFn::Swish { alpha: 1.0 }, result)?,
        other => return Err(Refused::attribute("activation", other, "`none`, `silu`, `swish`")),
    }
    let state = call.b.slice(all, 2, length.clone(), before)?;
    Ok(vec![result, state].into())
}

/// Slices time step `t` of a tensor `[B, T, H * D]` and reshapes the slice to `[B, H, rows, columns]`.
fn at_step(call: &mut Call<'_>, x: NodeId, t: usize, shape: &[Dim; 3]) -> Lowered<NodeId> {
    let batch = call.shape(x).first().cloned().unwrap_or_default();
    let step = call.b.slice(x, 1, Dim::from(t), Dim::known(1))?;
    let [heads, rows, columns] = shape.clone();
    Ok(call.b.reshape(step, vec![batch, heads, rows, columns])?)
}

/// Reads the update rule of LinearAttention: whether the state decays, and whether the rule is a delta rule.
fn update_rule(call: &mut Call<'_>) -> Lowered<(bool, bool)> {
    Ok(match call.attributes.text("update_rule", "gated_delta")? {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => {
            return Err(Refused::attribute(
                "update_rule",
                other,
                "`linear`, `gated`, `delta`, `gated_delta`",
            ));
        }
    })
}

/// Returns the sequence length of LinearAttention, whose steps are unrolled. Fails above [`MAX_STEPS`].
fn step_count(call: &Call<'_>, length: &Dim) -> Lowered<usize> {
    let length = call.known_dim(length, "the sequence length")?;
    if length == 0 || length > MAX_STEPS {
        let reason = format!("the sequence length is {length}; 1 to {MAX_STEPS} are supported");
        return Err(Refused::new(reason));
    }
    Ok(length)
}

/// Returns the size of a head of packed keys or values `[B, S, heads * size]`.
fn head_width(call: &Call<'_>, packed: NodeId, heads: i64) -> Result<Dim, Refused> {
    let all = call.shape(packed).get(2).cloned().unwrap_or_default();
    all.div_exact(&Dim::known(heads)).ok_or_else(|| {
        Refused::new(format!(
            "the packed size {all} of keys or values is not a multiple of the {heads} heads"
        ))
    })
}

/// Lowers LinearAttention: unrolls the recurrence over a state `[B, H, K, V]`. Each step decays the state, adds the
/// outer product of key and value (minus the value that the state already has for the key, under a delta rule), and
/// multiplies the query by the state.
fn linear_attention(call: &mut Call<'_>) -> Lowered {
    call.attributes.ignore(&["chunk_size"]);
    let count = |name: &str| match call.attributes.int(name, 0)? {
        n if n > 0 => Ok(n),
        n => Err(Refused::attribute(name, n, "1 or more")),
    };
    let (heads, kv_heads) = (count("q_num_heads")?, count("kv_num_heads")?);
    if heads % kv_heads != 0 {
        return Err(Refused::new(format!(
            "the {heads} query heads are not a multiple of the {kv_heads} key heads"
        )));
    }
    let (gated, delta) = update_rule(call)?;
    let mut operands = [call.node(0)?, call.node(1)?, call.node(2)?];
    let [query, key, value] = operands;
    let to = call.dtype(query);
    let (depth, columns) = (head_width(call, key, kv_heads)?, head_width(call, value, kv_heads)?);
    let shape = call.shape(query);
    let [batch, length, _] = shape.as_slice() else {
        return Err(Refused::new(format!("operand 0 has rank {}; rank 3 is needed", shape.len())));
    };
    let length = step_count(call, length)?;
    let scale = match call.attributes.float("scale", 0.0)? {
        0.0 => 1.0 / (call.known_dim(&depth, "the head size")? as f32).sqrt(),
        scale => scale,
    };
    let (head, one) = (Dim::known(kv_heads), Dim::known(1));
    let mut state = match call.optional(3)? {
        Some(past) => past,
        None => zeros(call, to, vec![batch.clone(), head.clone(), depth.clone(), columns.clone()])?,
    };
    // The state often has a wider type than the operands and the result.
    let wide = call.dtype(state);
    for x in &mut operands {
        *x = call.b.cast(*x, wide)?;
    }
    let [query, key, value] = operands;
    let decay = if gated { Some(call.node(4)?) } else { None };
    let decay = decay.map(|g| call.b.cast(g, wide)).transpose()?;
    let rate = if delta { Some(call.node(5)?) } else { None };
    let rate = rate.map(|b| call.b.cast(b, wide)).transpose()?;
    let matmul = MatMul { trans_a: false, trans_b: false };
    let mut results = Vec::with_capacity(length);
    for t in 0..length {
        if let Some(decay) = decay {
            let per_key = head_width(call, decay, kv_heads)?;
            let g = at_step(call, decay, t, &[head.clone(), per_key, one.clone()])?;
            let g = call.b.unary(UnaryFn::Exp, g)?;
            state = call.b.binary(BinaryFn::Mul, state, g)?;
        }
        let v = at_step(call, value, t, &[head.clone(), one.clone(), columns.clone()])?;
        let mut update = v;
        if let Some(rate) = rate {
            let k = at_step(call, key, t, &[head.clone(), one.clone(), depth.clone()])?;
            let stored_value = call.add(matmul.clone(), &[k, state])?;
            let missing = call.b.binary(BinaryFn::Sub, v, stored_value)?;
            let heads = call.shape(rate).get(2).cloned().unwrap_or_default();
            let b = at_step(call, rate, t, &[heads, one.clone(), one.clone()])?;
            update = call.b.binary(BinaryFn::Mul, missing, b)?;
        }
        let k = at_step(call, key, t, &[head.clone(), depth.clone(), one.clone()])?;
        let outer = call.b.binary(BinaryFn::Mul, k, update)?;
        state = typed_binary(call, BinaryFn::Add, state, outer)?;
        let q = at_step(call, query, t, &[head.clone(), Dim::known(heads / kv_heads), depth.clone()])?;
        let result = call.add(matmul.clone(), &[q, state])?;
        results.push(call.b.reshape(result, vec![batch.clone(), one.clone(), columns.scale(heads)])?);
    }
    let mut result = match results.as_slice() {
        [only] => *only,
        all => call.add(Concat { axis: 1 }, all)?,
    };
    result = call.b.unary(UnaryFn::Affine { scale, shift: 0.0 }, result)?;
    Ok(vec![call.b.cast(result, to)?, state].into())
}

/// Lowers TensorScatter: writes new rows into a cache along an axis, from a start index per batch item on.
fn tensor_scatter(call: &mut Call<'_>) -> Lowered {
    let (cache, update) = (call.node(0)?, call.node(1)?);
    let (shape, rank) = (call.shape(update), call.rank(cache));
    let axis = normalize_axis(call.attributes.int("axis", -2)?, rank)?;
    if axis == 0 || shape.len() != rank {
        return Err(Refused::new(
            "attribute `axis` must not be 0, and operands 0 and 1 must have the same rank",
        ));
    }
    let circular = match call.attributes.text("mode", "linear")? {
        "linear" => false,
        "circular" => true,
        other => return Err(Refused::attribute("mode", other, "`linear`, `circular`")),
    };
    let mut along = vec![Dim::known(1); rank];
    along[axis] = shape[axis].clone();
    let mut indices = iota(call, DType::I64, Dim::known(0), shape[axis].clone())?;
    indices = call.b.reshape(indices, along)?;
    if let Some(first) = call.optional(2)? {
        let mut each = vec![Dim::known(1); rank];
        each[0] = shape[0].clone();
        let first = call.b.reshape(first, each)?;
        indices = typed_binary(call, BinaryFn::Add, indices, first)?;
    }
    if circular {
        let extent = call.shape(cache)[axis].clone();
        let extent = i64::try_from(call.known_dim(&extent, "the cache length")?).unwrap_or(i64::MAX);
        let extent = call.b.constant(&Array::int(DType::I64, &[], vec![extent]))?;
        indices = call.b.binary(BinaryFn::Mod, indices, extent)?;
    }
    let indices = call.b.expand(indices, shape)?;
    Ok(Outputs::from(
        call.add(ScatterElements { axis, combine: Combine::Replace }, &[cache, indices, update])?,
    ))
}
