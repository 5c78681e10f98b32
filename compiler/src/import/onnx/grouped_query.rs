//! com.microsoft.GroupQueryAttention: attention with a cache, rotary embedding and a sliding window in one node.
//!
//! The cache grows by concatenation: `present = past ++ new`. A buffer that is longer than its contents, and
//! batches whose sequences differ in length, are refused.

use super::attention::{Scores, additive, attend, merge_heads, split_heads};
use super::elementwise::typed_binary;
use super::generate::iota;
use super::lowering::{Call, Lowered, OpEntry, Outputs, Refused, Value, microsoft};
use super::rotary::rotate;
use crate::ir::dim::Dim;
use crate::ir::element::BinaryFn;
use crate::ir::graph::NodeId;
use crate::ir::op::{Concat, Gather};
use crate::ir::tensor::DType;

pub(super) const OPS: &[OpEntry] = &[microsoft("GroupQueryAttention", grouped_query)];

fn grouped_query(call: &mut Call<'_>) -> Lowered {
    let count = |name: &str| -> Lowered<i64> {
        let value = call.attributes.int(name, 0)?;
        if value > 0 { Ok(value) } else { Err(Refused::new(format!("attribute `{name}` is {value}"))) }
    };
    let (heads, kv_heads) = (count("num_heads")?, count("kv_num_heads")?);
    if call.attributes.flag("smooth_softmax", false)? && call.attributes.int("smooth_softmax", 0)? > 0 {
        return Err(Refused::new("smooth softmax is not supported"));
    }
    if call.has(11) {
        return Err(Refused::new("attention sinks are not supported"));
    }
    // The length of a batch's only sequence follows from the sizes.
    call.ignore(&[5]);
    let [q, k, v] = projections(call, heads, kv_heads)?;
    let (s, b) = (call.shape(q)[2].clone(), call.shape(q)[0].clone());
    let past = match call.optional(3)? {
        Some(past) => call.shape(past).get(2).cloned().unwrap_or_default(),
        None => Dim::known(0),
    };
    let total = past.add(&s);
    if let Some(given) = call.ints(6).and_then(|t| t.values.first().cloned())
        && super::ints::compare(&given, &total, call.bounds(), |d| d == 0) == Some(false)
    {
        return Err(Refused::new(format!(
            "{given} tokens with a cache of {past} and {s} new ones need a shared cache buffer, \
             which is not supported"
        )));
    }
    if !b.is(1) && !past.is(0) {
        return Err(Refused::new(format!(
            "sequences of a batch of {b} may differ in length; fix the batch to 1 with --dim"
        )));
    }
    let (mut q, mut k) = (q, k);
    if call.attributes.flag("do_rotary", false)? {
        let interleaved = call.attributes.flag("rotary_interleaved", false)?;
        let (cos, sin) = (angles(call, 7, &past, &s)?, angles(call, 8, &past, &s)?);
        let width = call.shape(cos).get(2).cloned().unwrap_or_default();
        let width = 2 * i64::try_from(call.known_dim(&width, "the rotated size")?).unwrap_or(0);
        q = rotate(call, q, cos, sin, width, interleaved)?;
        k = rotate(call, k, cos, sin, width, interleaved)?;
    }
    call.attributes.ignore(&["rotary_interleaved"]);
    let mut v = v;
    if let (Some(past_key), Some(past_value)) = (call.optional(3)?, call.optional(4)?)
        && !past.is(0)
    {
        k = call.add(Concat { axis: 2 }, &[past_key, k])?;
        v = call.add(Concat { axis: 2 }, &[past_value, v])?;
    }
    let depth = call.shape(q)[3].clone();
    let scale = match call.attributes.float("scale", 0.0)? {
        0.0 => 1.0 / (call.known_dim(&depth, "the head size")? as f32).sqrt(),
        scale => scale,
    };
    let softcap = call.attributes.float("softcap", 0.0)?;
    let mut mask = window(call, &past, &s, &total, q)?;
    if let Some(bias) = call.optional(10)? {
        mask = Some(match mask {
            Some(mask) => typed_binary(call, BinaryFn::Add, mask, bias)?,
            None => bias,
        });
    }
    let scores = Scores { scale, causal: true, softcap, shown: None };
    let (result, _) = attend(call, [q, k, v], mask, &past, scores)?;
    let result = merge_heads(call, result)?;
    Ok(Outputs(vec![Value::Node(result), Value::Node(k), Value::Node(v)]))
}

/// Queries, keys and values `[B, heads, S, D]`, which may come packed in the first operand.
fn projections(call: &mut Call<'_>, heads: i64, kv_heads: i64) -> Lowered<[NodeId; 3]> {
    let query = call.node(0)?;
    let (mut q, k, v) = (query, call.optional(1)?, call.optional(2)?);
    let (k, v) = match (k, v) {
        (Some(k), Some(v)) => (k, v),
        _ => {
            let all = call.shape(query).get(2).cloned().unwrap_or_default();
            let size = all
                .div_exact(&Dim::known(heads.saturating_add(kv_heads.saturating_mul(2))))
                .ok_or_else(|| Refused::new(format!("size {all} does not divide into the heads")))?;
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

/// The cache's rows for the new tokens, `[B, S, D / 2]`.
fn angles(call: &mut Call<'_>, index: usize, past: &Dim, s: &Dim) -> Lowered<NodeId> {
    let cache = call.node(index)?;
    if let Some(positions) = call.optional(9)? {
        return call.add(Gather { axis: 0 }, &[cache, positions]);
    }
    let rows = call.b.slice(cache, 0, past.clone(), s.clone())?;
    let mut shape = call.shape(rows);
    shape.insert(0, Dim::known(1));
    Ok(call.b.reshape(rows, shape)?)
}

/// With a sliding window of w, query i sees only keys j with `i - j < w`.
fn window(call: &mut Call<'_>, past: &Dim, s: &Dim, total: &Dim, q: NodeId) -> Lowered<Option<NodeId>> {
    let window = call.attributes.int("local_window_size", -1)?;
    if window < 0 {
        return Ok(None);
    }
    let rows = iota(call, DType::I64, past.plus(window.saturating_neg()), s.clone())?;
    let rows = call.b.reshape(rows, vec![s.clone(), Dim::known(1)])?;
    let columns = iota(call, DType::I64, Dim::known(0), total.clone())?;
    let seen = call.b.binary(BinaryFn::Greater, columns, rows)?;
    let dtype = call.dtype(q);
    Ok(Some(additive(call, seen, dtype)?))
}
