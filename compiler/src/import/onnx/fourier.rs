//! Lowers DFT and STFT to matmuls with constant matrices of cosines and sines.
//!
//! A transform whose matrix would be large is computed in two steps (Cooley-Tukey): with n = n1 * n2, a matmul over n1
//! elements, a multiplication by twiddle factors, and a matmul over n2 elements. Complex numbers are pairs in the last
//! axis, so one real matmul computes the real and imaginary parts.

use super::fourier_matrix::{MAX_DIRECT, Transform, two_factors};
use super::lowering::{Call, Lowered, OpEntry, op};
use super::refused::Refused;
use crate::ir::array::Array;
use crate::ir::dim::{Dim, product};
use crate::ir::element::{BinaryFn, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::op::{Concat, Gather, Pad};
use crate::ir::ops::pad::PadMode;
use crate::ir::ops::reduce::ReduceKind;
use crate::ir::tensor::{DType, normalize_axis};

pub(super) const OPS: &[OpEntry] = &[op("DFT", 17, dft), op("STFT", 17, stft)];

/// Maximum number of slices that a frame of an STFT is joined from. Frames that overlap more are gathered.
const MAX_FRAME_SLICES: usize = 8;

/// Returns the number of components of the elements of a signal, 1 (real) or 2 (complex): the size of its last axis.
fn components(call: &Call<'_>, shape: &[Dim]) -> Lowered<usize> {
    let last = shape.last().ok_or_else(|| Refused::new("the signal is a scalar"))?;
    match call.known_dim(last, "the last axis of the signal")? {
        n @ (1 | 2) => Ok(n),
        n => Err(Refused::new(format!(
            "the last axis of the signal has size {n}; it must be 1 (real) or 2 (complex)"
        ))),
    }
}

/// Returns a length as a positive number that fits the matrices of the transform.
fn positive(length: i64, name: &str) -> Lowered<usize> {
    usize::try_from(length)
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| Refused::new(format!("{name} is {length}; it must be positive")))
}

fn dft(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    // From opset 20 on, the axis is an operand.
    let axis = match call.opset {
        ..20 => call.attributes.int("axis", 1)?,
        _ => call.known_scalar(2, "the axis")?.unwrap_or(-2),
    };
    let shape = call.shape(x);
    let (inverse, onesided) =
        (call.attributes.flag("inverse", false)?, call.attributes.flag("onesided", false)?);
    let components = components(call, &shape)?;
    let axis = normalize_axis(axis, shape.len())?;
    if axis + 1 == shape.len() {
        return Err(Refused::new("the axis of the transform is the last axis, which holds the components"));
    }
    let length = match call.known_scalar(1, "the length of the transform")? {
        Some(length) => length,
        None => {
            let rows = call.known_dim(&shape[axis], "the length of the transform")?;
            let rows = i64::try_from(rows).unwrap_or(i64::MAX);
            if inverse && onesided { rows.saturating_sub(1).saturating_mul(2) } else { rows }
        }
    };
    let length = positive(length, "the length of the transform")?;
    let transform = Transform { length, inverse, onesided, components };
    // The transformed axis becomes the last but one.
    let mut perm: Vec<usize> = (0..shape.len()).collect();
    perm[axis..shape.len() - 1].rotate_left(1);
    let rows = call.b.transpose(x, perm)?;
    let spectrum = apply(call, rows, transform, None)?;
    let mut back: Vec<usize> = (0..shape.len()).collect();
    back[axis..shape.len() - 1].rotate_right(1);
    Ok(call.b.transpose(spectrum, back)?.into())
}

/// Applies a transform to `x [.., rows, components]`. Missing rows are zero and surplus rows are ignored. `window`
/// multiplies the rows, if given; its length is the number of rows.
fn apply(call: &mut Call<'_>, x: NodeId, transform: Transform, window: Option<NodeId>) -> Lowered<NodeId> {
    let shape = call.shape(x);
    let (axis, dtype) = (shape.len() - 2, call.dtype(x));
    let wanted = transform.input_rows();
    let (mut x, mut rows) = (x, wanted);
    match shape[axis].as_known().and_then(|n| usize::try_from(n).ok()) {
        Some(n) if n > wanted => x = call.b.slice(x, axis, Dim::known(0), Dim::from(wanted))?,
        Some(n) => rows = n,
        None => x = resize(call, x, axis, &Dim::from(wanted))?,
    }
    let direct = transform.elements(rows) <= MAX_DIRECT;
    let factors = two_factors(transform.length).filter(|_| !direct);
    let mut weights = None;
    if let Some(window) = window {
        match call.constant(window).filter(|_| factors.is_none()) {
            Some(array) => weights = Some(array.to_floats()),
            None => {
                let window = call.b.reshape(window, vec![Dim::from(rows), Dim::known(1)])?;
                x = call.b.binary(BinaryFn::Mul, x, window)?;
            }
        }
    }
    if let Some(factors) = factors {
        x = resize(call, x, axis, &Dim::from(wanted))?;
        return two_steps(call, x, transform, factors);
    }
    let matrix = transform.matrix(rows, weights.as_deref()).map_err(Refused::new)?;
    multiply(call, x, &matrix.cast(dtype), &[transform.output_rows(), transform.output_components()])
}

/// Pads or crops an axis at its end to a size.
fn resize(call: &mut Call<'_>, x: NodeId, axis: usize, size: &Dim) -> Lowered<NodeId> {
    let shape = call.shape(x);
    let added = size.sub(&shape[axis]);
    if added.is(0) {
        return Ok(x);
    }
    let before = vec![Dim::known(0); shape.len()];
    let mut after = before.clone();
    after[axis] = added;
    call.add(Pad { mode: PadMode::Constant, before, after, value: 0.0 }, &[x])
}

/// Multiplies the last two axes of `x`, joined to one, by a matrix. The columns of the result get the shape `columns`.
fn multiply(call: &mut Call<'_>, x: NodeId, matrix: &Array, columns: &[usize]) -> Lowered<NodeId> {
    let shape = call.shape(x);
    let (outer, inner) = shape.split_at(shape.len() - 2);
    let flat = call.b.reshape(x, vec![product(outer), product(inner)])?;
    let matrix = call.b.constant(matrix)?;
    let result = call.b.matmul(flat, matrix)?;
    let columns = columns.iter().map(|n| Dim::from(*n));
    Ok(call.b.reshape(result, outer.iter().cloned().chain(columns).collect())?)
}

/// Applies a transform of n = n1 * n2 elements in two steps. Row j of the operand is `n2 * j1 + j2`, row k of the result
/// is `k1 + n1 * k2`.
fn two_steps(call: &mut Call<'_>, x: NodeId, transform: Transform, [n1, n2]: [usize; 2]) -> Lowered<NodeId> {
    let (shape, dtype) = (call.shape(x), call.dtype(x));
    let outer = &shape[..shape.len() - 2];
    let dims = |list: &[usize]| list.iter().map(|n| Dim::from(*n)).collect::<Vec<_>>();
    let mut x = x;
    if transform.real_output() {
        // The spectrum is completed by zeros; its inner rows count twice, because only the real part is kept.
        let rows = transform.input_rows();
        let weights = Array::f32(&[rows, 1], transform.one_sided_weights()).cast(dtype);
        let weights = call.b.constant(&weights)?;
        x = call.b.binary(BinaryFn::Mul, x, weights)?;
        x = resize(call, x, shape.len() - 2, &Dim::from(transform.length))?;
    }
    let flat = call.b.reshape(x, [vec![product(outer)], dims(&[n1, n2, transform.components])].concat())?;
    let columns = call.b.transpose(flat, vec![0, 2, 1, 3])?;
    // Each complex result comes twice: as it is, and multiplied by i.
    let first = transform.step(n1, transform.components).with_rotated();
    let partial = multiply(call, columns, &first.cast(dtype), &[n1, 2, 2])?;
    let twiddles = call.b.constant(&transform.twiddles(n1, n2).cast(dtype))?;
    let turned = call.b.binary(BinaryFn::Mul, partial, twiddles)?;
    let turned = call.b.reduce(ReduceKind::Sum, turned, vec![3], false)?;
    let rows = call.b.transpose(turned, vec![0, 2, 1, 3])?;
    let second = transform.step(n2, 2).plain();
    let result = multiply(call, rows, &second.cast(dtype), &[n2, 2])?;
    let result = call.b.transpose(result, vec![0, 2, 1, 3])?;
    let mut result = call.b.reshape(result, [outer.to_vec(), dims(&[transform.length, 2])].concat())?;
    let (rows, parts) = (transform.output_rows(), transform.output_components());
    result = call.b.slice(result, shape.len() - 2, Dim::known(0), Dim::from(rows))?;
    result = call.b.slice(result, shape.len() - 1, Dim::known(0), Dim::from(parts))?;
    if transform.inverse {
        let scale = 1.0 / transform.length as f32;
        result = call.b.unary(UnaryFn::Affine { scale, shift: 0.0 }, result)?;
    }
    Ok(result)
}

fn stft(call: &mut Call<'_>) -> Lowered {
    let mut x = call.node(0)?;
    let mut shape = call.shape(x);
    if shape.len() == 2 {
        shape.push(Dim::known(1));
        x = call.b.reshape(x, shape.clone())?;
    }
    let [_, samples, _] = shape.as_slice() else {
        return Err(Refused::new(format!("the signal has rank {}; rank 3 is needed", shape.len())));
    };
    let components = components(call, &shape)?;
    let step = call.known_scalar(1, "the step between frames")?;
    let step =
        positive(step.ok_or_else(|| Refused::new("operand 1 (frame_step) is missing"))?, "frame_step")?;
    let window = call.optional(2)?;
    let width = match window {
        Some(window) => match call.shape(window).as_slice() {
            [n] => Some(call.known_dim(n, "the length of the window")?),
            other => {
                return Err(Refused::new(format!("the window has rank {}; rank 1 is needed", other.len())));
            }
        },
        None => None,
    };
    let length = match (call.known_scalar(3, "the frame length")?, width) {
        (Some(length), _) => positive(length, "frame_length")?,
        (None, Some(width)) => width,
        (None, None) => call.known_dim(samples, "the frame length")?,
    };
    let rows = width.unwrap_or(length);
    if rows == 0 || rows > length {
        return Err(Refused::new(format!("the window has {rows} elements; a frame has {length}")));
    }
    let onesided = call.attributes.flag("onesided", true)?;
    let frames = samples.sub(&Dim::from(length)).floor_div(i64::try_from(step).unwrap_or(i64::MAX)).plus(1);
    if frames.as_known().is_some_and(|n| n < 1) {
        return Err(Refused::new(format!("the signal has {samples} samples; a frame has {length}")));
    }
    let frames = self::frames(call, x, rows, step, &frames)?;
    Ok(apply(call, frames, Transform { length, inverse: false, onesided, components }, window)?.into())
}

/// Returns the frames `[B, frames, rows, C]` of a signal `[B, samples, C]`. Frame i has the samples from `step * i` on.
fn frames(call: &mut Call<'_>, x: NodeId, rows: usize, step: usize, frames: &Dim) -> Lowered<NodeId> {
    let shape = call.shape(x);
    let [batch, _, components] = shape.as_slice() else {
        return Err(Refused::new("the signal has no rank 3"));
    };
    let per_frame = [batch.clone(), frames.clone(), Dim::from(rows), components.clone()];
    let slices = rows.div_ceil(step);
    if slices > MAX_FRAME_SLICES {
        let starts = super::generate::iota(call, DType::I64, Dim::known(0), frames.clone())?;
        let scale = call.b.constant(&Array::i64s(&[i64::try_from(step).unwrap_or(i64::MAX)]))?;
        let starts = call.b.binary(BinaryFn::Mul, starts, scale)?;
        let starts = call.b.reshape(starts, vec![frames.clone(), Dim::known(1)])?;
        let offsets = super::generate::iota(call, DType::I64, Dim::known(0), Dim::from(rows))?;
        let indices = call.b.binary(BinaryFn::Add, starts, offsets)?;
        return call.add(Gather { axis: 1 }, &[x, indices]);
    }
    // Blocks of `step` samples; a frame consists of whole blocks and the start of one more.
    let blocks = frames.plus(i64::try_from(slices).unwrap_or(i64::MAX).saturating_sub(1));
    let whole = resize(call, x, 1, &blocks.mul(&Dim::from(step)))?;
    let block = Dim::from(step).mul(components);
    let whole = call.b.reshape(whole, vec![batch.clone(), blocks, block.clone()])?;
    let mut parts = Vec::with_capacity(slices);
    for i in 0..slices {
        let part = call.b.slice(whole, 1, Dim::from(i), frames.clone())?;
        let width = Dim::from((rows - i * step).min(step)).mul(components);
        parts.push(if width == block { part } else { call.b.slice(part, 2, Dim::known(0), width)? });
    }
    let joined = match parts.as_slice() {
        [one] => *one,
        all => call.add(Concat { axis: 2 }, all)?,
    };
    Ok(call.b.reshape(joined, per_frame.to_vec())?)
}
