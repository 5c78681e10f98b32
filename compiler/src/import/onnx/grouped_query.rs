//! com.microsoft.GroupQueryAttention: attention with a cache, rotary embedding and a sliding window in one node.
//!
//! The cache of one sequence grows by concatenation: `present = past ++ new`. Where it is a buffer that is longer than its
//! contents, or where the sequences of a batch differ in length, what is new is scattered to where each sequence ends.

use super::attention::{Scores, additive, attend, integer, joined, merge_heads, split_heads};
use super::generate::iota;
use super::ints::compare;
use super::lowering::{Call, Lowered, OpEntry, Outputs, Refused, Value, microsoft};
use super::rotary::rotate;
use crate::ir::dim::Dim;
use crate::ir::element::BinaryFn;
use crate::ir::graph::NodeId;
use crate::ir::op::{Combine, Concat, Gather, ScatterElements};
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
    let [q, k, v] = projections(call, heads, kv_heads)?;
    let (s, b) = (call.shape(q)[2].clone(), call.shape(q)[0].clone());
    let past = match call.optional(3)? {
        Some(past) => call.shape(past).get(2).cloned().unwrap_or_default(),
        None => Dim::known(0),
    };
    let place = Place::of(call, &b, &past, &s)?;
    let (mut q, mut k, mut v) = (q, k, v);
    if call.attributes.flag("do_rotary", false)? {
        let interleaved = call.attributes.flag("rotary_interleaved", false)?;
        let [cos, sin] = angles(call, &place, &s)?;
        let width = call.shape(cos).get(2).cloned().unwrap_or_default();
        let width = 2 * i64::try_from(call.known_dim(&width, "the rotated size")?).unwrap_or(0);
        q = rotate(call, q, cos, sin, width, interleaved)?;
        k = rotate(call, k, cos, sin, width, interleaved)?;
    }
    call.attributes.ignore(&["rotary_interleaved"]);
    if let (Some(past_key), Some(past_value)) = (call.optional(3)?, call.optional(4)?)
        && !past.is(0)
    {
        k = place.join(call, past_key, k)?;
        v = place.join(call, past_value, v)?;
    }
    let depth = call.shape(q)[3].clone();
    let scale = match call.attributes.float("scale", 0.0)? {
        0.0 => 1.0 / (call.known_dim(&depth, "the head size")? as f32).sqrt(),
        scale => scale,
    };
    let softcap = call.attributes.float("softcap", 0.0)?;
    // Query i sees only keys j with `i - j < window`.
    let window = match call.attributes.int("local_window_size", -1)? {
        ..0 => None,
        0 => return Err(Refused::new("attribute `local_window_size` is 0")),
        window => u32::try_from(window).ok(),
    };
    let dtype = call.dtype(q);
    let mut mask = call.optional(10)?.map(|bias| call.b.cast(bias, dtype)).transpose()?;
    let causal = matches!(place, Place::Behind(_));
    if let Place::At { starts, length } = &place {
        let seen = seen(call, *starts, &s, length, window)?;
        let bias = additive(call, seen, dtype)?;
        mask = joined(call, mask, Some(bias))?;
    }
    let scores = Scores { scale, causal, window: window.filter(|_| causal), softcap, shown: None };
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

/// Where the new tokens stand.
enum Place {
    /// Behind a cache of this length, which has no gaps.
    Behind(Dim),
    /// In a cache of some length, from these positions `[B, 1]` on, i64.
    At { starts: NodeId, length: Dim },
}

impl Place {
    /// From the batch, the cache's length and the number of new tokens.
    fn of(call: &mut Call<'_>, batch: &Dim, past: &Dim, s: &Dim) -> Lowered<Self> {
        let behind = past.add(s);
        // A number of tokens that is not known is taken to be that of a cache without room.
        let total = call.ints(6).and_then(|t| t.values.first().cloned()).unwrap_or_else(|| behind.clone());
        let differs = compare(&total, &behind, call.bounds(), |d| d == 0) == Some(false);
        let lengths = call.optional(5)?;
        if !differs && (batch.is(1) || past.is(0)) {
            return Ok(Self::Behind(past.clone()));
        }
        let length = past.larger(&total, call.bounds());
        // A prompt fills the cache from its start on, however long each sequence is.
        let starts = match (compare(&total, s, call.bounds(), |d| d == 0), lengths) {
            (Some(true), _) => {
                let zero = integer(call, 0)?;
                call.b.expand(zero, vec![batch.clone(), Dim::known(1)])?
            }
            (_, Some(lengths)) => {
                let last = call.b.cast(lengths, DType::I64)?;
                let last = call.b.reshape(last, vec![batch.clone(), Dim::known(1)])?;
                let back = iota(call, DType::I64, Dim::known(1).sub(s), Dim::known(1))?;
                call.b.binary(BinaryFn::Add, last, back)?
            }
            (_, None) => return Err(Refused::new("the lengths of the sequences are missing")),
        };
        Ok(Self::At { starts, length })
    }

    /// The cache `[B, heads, past, size]` with what is new in its place.
    fn join(&self, call: &mut Call<'_>, past: NodeId, new: NodeId) -> Lowered<NodeId> {
        let Self::At { starts, length } = self else {
            return call.add(Concat { axis: 2 }, &[past, new]);
        };
        let (held, shape) = (call.shape(past), call.shape(new));
        let ([_, _, have, _], [batch, _, s, _]) = (held.as_slice(), shape.as_slice()) else {
            return Err(Refused::new("keys and values are not of rank 4"));
        };
        let mut whole = past;
        let missing = length.sub(have);
        if !missing.is(0) {
            let mut room = held.clone();
            room[2] = missing;
            let dtype = call.dtype(past);
            let zero = call.b.scalar(dtype, 0.0)?;
            let zeros = call.b.expand(zero, room)?;
            whole = call.add(Concat { axis: 2 }, &[past, zeros])?;
        }
        let one = Dim::known(1);
        let positions = positions(call, *starts, s)?;
        let positions = call.b.reshape(positions, vec![batch.clone(), one.clone(), s.clone(), one])?;
        let positions = call.b.expand(positions, shape)?;
        call.add(ScatterElements { axis: 2, combine: Combine::Replace }, &[whole, positions, new])
    }
}

/// The positions `[B, S]` of new tokens.
fn positions(call: &mut Call<'_>, starts: NodeId, s: &Dim) -> Lowered<NodeId> {
    let steps = iota(call, DType::I64, Dim::known(0), s.clone())?;
    Ok(call.b.binary(BinaryFn::Add, starts, steps)?)
}

/// The rows of the tables of cosines and sines for the new tokens, `[B, S, D / 2]`.
fn angles(call: &mut Call<'_>, place: &Place, s: &Dim) -> Lowered<[NodeId; 2]> {
    let tables = [call.node(7)?, call.node(8)?];
    let given = call.optional(9)?;
    let mut rows = |table: NodeId| match (given, place) {
        (Some(positions), _) => call.add(Gather { axis: 0 }, &[table, positions]),
        (None, Place::Behind(past)) => {
            let rows = call.b.slice(table, 0, past.clone(), s.clone())?;
            let mut shape = call.shape(rows);
            shape.insert(0, Dim::known(1));
            Ok(call.b.reshape(rows, shape)?)
        }
        (None, Place::At { starts, .. }) => {
            let positions = positions(call, *starts, s)?;
            call.add(Gather { axis: 0 }, &[table, positions])
        }
    };
    Ok([rows(tables[0])?, rows(tables[1])?])
}

/// `[B, 1, S, T]`: whether a query sees a key.
fn seen(call: &mut Call<'_>, starts: NodeId, s: &Dim, length: &Dim, window: Option<u32>) -> Lowered<NodeId> {
    let batch = call.shape(starts).first().cloned().unwrap_or_default();
    let one = Dim::known(1);
    let rows = positions(call, starts, s)?;
    let rows = call.b.reshape(rows, vec![batch, one.clone(), s.clone(), one])?;
    let columns = iota(call, DType::I64, Dim::known(0), length.clone())?;
    let seen = call.b.binary(BinaryFn::LessEqual, columns, rows)?;
    let Some(window) = window else { return Ok(seen) };
    let window = integer(call, -i64::from(window))?;
    let first = call.b.binary(BinaryFn::Add, rows, window)?;
    let late = call.b.binary(BinaryFn::Greater, columns, first)?;
    Ok(call.b.binary(BinaryFn::And, seen, late)?)
}
