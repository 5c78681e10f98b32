//! Rotary position embeddings (RoPE): pairs of elements of each head are rotated by angles that grow with the position.

use super::attention::{merge_heads, split_heads};
use super::generate::iota;
use super::lowering::{Call, Lowered, OpEntry, microsoft, op};
use super::refused::Refused;
use crate::ir::dim::Dim;
use crate::ir::element::BinaryFn;
use crate::ir::graph::NodeId;
use crate::ir::op::{Concat, Gather, Slice};

pub(super) const OPS: &[OpEntry] =
    &[op("RotaryEmbedding", 23, rotary), microsoft("RotaryEmbedding", rotary_microsoft)];

fn rotary(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let (mut cos, mut sin) = (call.node(1)?, call.node(2)?);
    if let Some(positions) = call.optional(3)? {
        cos = call.add(Gather { axis: 0 }, &[cos, positions])?;
        sin = call.add(Gather { axis: 0 }, &[sin, positions])?;
    }
    Ok(rotate_call(call, x, cos, sin)?.into())
}

/// Lowers com.microsoft.RotaryEmbedding. The positions are always an operand; if it has one number, this is the
/// position of the first token.
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

/// Applies RoPE with the node's attributes: rotates `[B, H, S, D]` or `[B, S, H * D]` by cos and sin `[B, S, D / 2]`.
fn rotate_call(call: &mut Call<'_>, x: NodeId, cos: NodeId, sin: NodeId) -> Lowered<NodeId> {
    let interleaved = call.attributes.flag("interleaved", false)?;
    let width = call.attributes.int("rotary_embedding_dim", 0)?;
    let mut heads = call.attributes.int_opt("num_heads")?;
    let flat = call.rank(x) == 3;
    if flat && heads.unwrap_or(0) == 0 {
        // Without a number of heads, the width of the cos cache is half the head size.
        let half = call.shape(cos).last().cloned().unwrap_or_default();
        let size = if width > 0 { None } else { Some(half.scale(2)) };
        let all = call.shape(x).last().cloned().unwrap_or_default();
        heads = size.and_then(|s| all.div_exact(&s)).and_then(|d| d.as_known());
    }
    let split = split_heads(call, x, heads)?;
    let rotated = rotate(call, split, cos, sin, width, interleaved)?;
    if flat { merge_heads(call, rotated) } else { Ok(rotated) }
}

/// Applies RoPE to the first `width` elements (0 means all) of each head of `[B, H, S, D]`.
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
        return Err(Refused::new(format!(
            "the rotated width is {width}; it must be even and at most the head size {depth}"
        )));
    }
    let half = width / 2;
    let head = call.b.slice(x, 3, Dim::known(0), Dim::known(width))?;
    let dtype = call.dtype(x);
    let mut angles = [cos, sin];
    for angle in &mut angles {
        let mut sizes = call.shape(*angle);
        if sizes.len() != 3 || !sizes[2].is(half) {
            return Err(Refused::new(format!("the cos and sin caches must have {half} columns")));
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
    let mut slices;
    if interleaved {
        let mut sizes = call.shape(real);
        sizes.push(Dim::known(1));
        real = call.b.reshape(real, sizes.clone())?;
        imaginary = call.b.reshape(imaginary, sizes)?;
        let pairs = call.add(Concat { axis: 4 }, &[real, imaginary])?;
        let mut sizes = call.shape(pairs);
        sizes.truncate(3);
        sizes.push(Dim::known(width));
        slices = vec![call.b.reshape(pairs, sizes)?];
    } else {
        slices = vec![real, imaginary];
    }
    if width < depth {
        slices.push(call.b.slice(x, 3, Dim::known(width), Dim::known(depth - width))?);
    }
    match slices.as_slice() {
        [one] => Ok(*one),
        _ => call.add(Concat { axis: 3 }, &slices),
    }
}
