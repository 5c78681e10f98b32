//! com.microsoft.GroupQueryAttention: attention with a KV cache, RoPE and a sliding window in one node.
//!
//! A KV cache without free rows grows by concatenation: `present = past ++ new`. If the cache is a buffer with free
//! rows, or if the sequences of a batch have different lengths, the new rows are scattered to the end of each sequence.

use super::attention::{Scores, additive, attend, integer, joined, merge_heads, split_heads};
use super::generate::iota;
use super::lowering::{Call, Lowered, OpEntry, Outputs, Value, microsoft};
use super::refused::Refused;
use super::rotary::rotate;
use super::symbolic_ints::compare;
use crate::ir::dim::Dim;
use crate::ir::element::BinaryFn;
use crate::ir::graph::NodeId;
use crate::ir::op::{Combine, Concat, Gather, ScatterElements};
use crate::ir::tensor::DType;

pub(super) const OPS: &[OpEntry] = &[microsoft("GroupQueryAttention", grouped_query)];

fn grouped_query(call: &mut Call<'_>) -> Lowered {
    let count = |name: &str| -> Lowered<i64> {
        let value = call.attributes.int(name, 0)?;
        if value > 0 { Ok(value) } else { Err(Refused::attribute(name, value, "1 or more")) }
    };
    let (heads, kv_heads) = (count("num_heads")?, count("kv_num_heads")?);
    if call.attributes.flag("smooth_softmax", false)? && call.attributes.int("smooth_softmax", 0)? > 0 {
        return Err(Refused::new("attribute `smooth_softmax` is not supported"));
    }
    if call.has(11) {
        return Err(Refused::new("attention sinks (operand 11) are not supported"));
    }
    let [q, k, v] = projections(call, heads, kv_heads)?;
    let (s, b) = (call.shape(q)[2].clone(), call.shape(q)[0].clone());
    let past = match call.optional(3)? {
        Some(past) => call.shape(past).get(2).cloned().unwrap_or_default(),
        None => Dim::known(0),
    };
    let append = CacheAppend::from_operands(call, &b, &past, &s)?;
    let (mut q, mut k, mut v) = (q, k, v);
    if call.attributes.flag("do_rotary", false)? {
        let interleaved = call.attributes.flag("rotary_interleaved", false)?;
        let [cos, sin] = cos_sin_rows(call, &append, &s)?;
        let width = call.shape(cos).get(2).cloned().unwrap_or_default();
        let width = 2 * i64::try_from(call.known_dim(&width, "the width of the cos cache")?).unwrap_or(0);
        q = rotate(call, q, cos, sin, width, interleaved)?;
        k = rotate(call, k, cos, sin, width, interleaved)?;
    }
    call.attributes.ignore(&["rotary_interleaved"]);
    if let (Some(past_key), Some(past_value)) = (call.optional(3)?, call.optional(4)?)
        && !past.is(0)
    {
        k = append.concat(call, past_key, k)?;
        v = append.concat(call, past_value, v)?;
    }
    let depth = call.shape(q)[3].clone();
    let scale = match call.attributes.float("scale", 0.0)? {
        0.0 => 1.0 / (call.known_dim(&depth, "the head size")? as f32).sqrt(),
        scale => scale,
    };
    let softcap = call.attributes.float("softcap", 0.0)?;
    // Query i attends only to keys j with `i - j < window`.
    let window = match call.attributes.int("local_window_size", -1)? {
        ..0 => None,
        0 => return Err(Refused::attribute("local_window_size", 0, "1 or more, or -1 for no window")),
        window => u32::try_from(window).ok(),
    };
    let dtype = call.dtype(q);
    let mut mask = call.optional(10)?.map(|bias| call.b.cast(bias, dtype)).transpose()?;
    let causal = matches!(append, CacheAppend::Concat(_));
    if let CacheAppend::Scatter { starts, length } = &append {
        let visible = visible_keys(call, *starts, &s, length, window)?;
        let bias = additive(call, visible, dtype)?;
        mask = joined(call, mask, Some(bias))?;
    }
    let scores = Scores { scale, causal, window: window.filter(|_| causal), softcap, scores_output: None };
    let (result, _) = attend(call, [q, k, v], mask, &past, scores)?;
    let result = merge_heads(call, result)?;
    Ok(Outputs(vec![Value::Node(result), Value::Node(k), Value::Node(v)]))
}

/// Returns queries, keys and values `[B, heads, S, D]`. A model may give all three packed in operand 0.
fn projections(call: &mut Call<'_>, heads: i64, kv_heads: i64) -> Lowered<[NodeId; 3]> {
    let query = call.node(0)?;
    let (mut q, k, v) = (query, call.optional(1)?, call.optional(2)?);
    let (k, v) = match (k, v) {
        (Some(k), Some(v)) => (k, v),
        _ => {
            let all = call.shape(query).get(2).cloned().unwrap_or_default();
            let size = all
                .div_exact(&Dim::known(heads.saturating_add(kv_heads.saturating_mul(2))))
                .ok_or_else(|| {
                    Refused::new(format!(
                        "the packed size {all} is not a multiple of num_heads + 2 * kv_num_heads"
                    ))
                })?;
            let (wide, narrow) = (size.scale(heads), size.scale(kv_heads));
            q = call.b.slice(query, 2, Dim::known(0), wide.clone())?;
            let k = call.b.slice(query, 2, wide.clone(), narrow.clone())?;
            let v = call.b.slice(query, 2, wide.add(&narrow), narrow)?;
            (k, v)
        }
    };
    Ok([
        split_heads(call, q, Some(heads))?,
        split_heads(call, k, Some(kv_heads))?,
        split_heads(call, v, Some(kv_heads))?,
    ])
}

/// Method of adding the rows of new tokens to the KV cache.
enum CacheAppend {
    /// The new rows are concatenated to a cache with this number of rows, none of them free.
    Concat(Dim),
    /// The new rows are scattered into a cache of `length` rows, from the positions `starts` (i64 `[B, 1]`) on.
    Scatter { starts: NodeId, length: Dim },
}

impl CacheAppend {
    /// Chooses the method of adding rows from the batch size, the length `past` of the cache and the number `s` of new
    /// tokens.
    fn from_operands(call: &mut Call<'_>, batch: &Dim, past: &Dim, s: &Dim) -> Lowered<Self> {
        let concatenated = past.add(s);
        // If the total number of tokens is not known, the cache is assumed to have no free rows.
        let total =
            call.ints(6).and_then(|t| t.values.first().cloned()).unwrap_or_else(|| concatenated.clone());
        let differs = compare(&total, &concatenated, call.bounds(), |d| d == 0) == Some(false);
        let lengths = call.optional(5)?;
        if !differs && (batch.is(1) || past.is(0)) {
            return Ok(Self::Concat(past.clone()));
        }
        let length = past.larger(&total, call.bounds());
        // A prompt fills the cache from position 0 on in every sequence.
        let starts = match (compare(&total, s, call.bounds(), |d| d == 0), lengths) {
            (Some(true), _) => {
                let zero = integer(call, 0)?;
                call.b.expand(zero, vec![batch.clone(), Dim::known(1)])?
            }
            (_, Some(lengths)) => {
                let last = call.b.cast(lengths, DType::I64)?;
                let last = call.b.reshape(last, vec![batch.clone(), Dim::known(1)])?;
                let offset = iota(call, DType::I64, Dim::known(1).sub(s), Dim::known(1))?;
                call.b.binary(BinaryFn::Add, last, offset)?
            }
            (_, None) => {
                return Err(Refused::new(
                    "operand 5 (seqlens_k) is missing, but the sequences may have different lengths",
                ));
            }
        };
        Ok(Self::Scatter { starts, length })
    }

    /// Adds the rows of new tokens to the KV cache `[B, heads, past, size]`.
    fn concat(&self, call: &mut Call<'_>, past: NodeId, new: NodeId) -> Lowered<NodeId> {
        let Self::Scatter { starts, length } = self else {
            return call.add(Concat { axis: 2 }, &[past, new]);
        };
        let (cache_shape, shape) = (call.shape(past), call.shape(new));
        let ([_, _, have, _], [batch, _, s, _]) = (cache_shape.as_slice(), shape.as_slice()) else {
            return Err(Refused::new("keys and values must have rank 4"));
        };
        let mut whole = past;
        let missing = length.sub(have);
        if !missing.is(0) {
            let mut free_rows = cache_shape.clone();
            free_rows[2] = missing;
            let dtype = call.dtype(past);
            let zero = call.b.scalar(dtype, 0.0)?;
            let zeros = call.b.expand(zero, free_rows)?;
            whole = call.add(Concat { axis: 2 }, &[past, zeros])?;
        }
        let one = Dim::known(1);
        let positions = positions(call, *starts, s)?;
        let positions = call.b.reshape(positions, vec![batch.clone(), one.clone(), s.clone(), one])?;
        let positions = call.b.expand(positions, shape)?;
        call.add(ScatterElements { axis: 2, combine: Combine::Replace }, &[whole, positions, new])
    }
}

/// Computes the positions `[B, S]` of the new tokens in their sequences.
fn positions(call: &mut Call<'_>, starts: NodeId, s: &Dim) -> Lowered<NodeId> {
    let steps = iota(call, DType::I64, Dim::known(0), s.clone())?;
    Ok(call.b.binary(BinaryFn::Add, starts, steps)?)
}

/// Gathers the rows of the cos and sin caches for the new tokens, `[B, S, D / 2]`.
fn cos_sin_rows(call: &mut Call<'_>, append: &CacheAppend, s: &Dim) -> Lowered<[NodeId; 2]> {
    let tables = [call.node(7)?, call.node(8)?];
    let given = call.optional(9)?;
    let mut rows = |table: NodeId| match (given, append) {
        (Some(positions), _) => call.add(Gather { axis: 0 }, &[table, positions]),
        (None, CacheAppend::Concat(past)) => {
            let rows = call.b.slice(table, 0, past.clone(), s.clone())?;
            let mut shape = call.shape(rows);
            shape.insert(0, Dim::known(1));
            Ok(call.b.reshape(rows, shape)?)
        }
        (None, CacheAppend::Scatter { starts, .. }) => {
            let positions = positions(call, *starts, s)?;
            call.add(Gather { axis: 0 }, &[table, positions])
        }
    };
    Ok([rows(tables[0])?, rows(tables[1])?])
}

/// Computes a bool mask `[B, 1, S, T]` that is true where a query attends to a key.
fn visible_keys(
    call: &mut Call<'_>,
    starts: NodeId,
    s: &Dim,
    length: &Dim,
    window: Option<u32>,
) -> Lowered<NodeId> {
    let batch = call.shape(starts).first().cloned().unwrap_or_default();
    let one = Dim::known(1);
    let rows = positions(call, starts, s)?;
    let rows = call.b.reshape(rows, vec![batch, one.clone(), s.clone(), one])?;
    let columns = iota(call, DType::I64, Dim::known(0), length.clone())?;
    let visible = call.b.binary(BinaryFn::LessEqual, columns, rows)?;
    let Some(window) = window else { return Ok(visible) };
    let window = integer(call, -i64::from(window))?;
    let first = call.b.binary(BinaryFn::Add, rows, window)?;
    let late = call.b.binary(BinaryFn::Greater, columns, first)?;
    Ok(call.b.binary(BinaryFn::And, visible, late)?)
}
