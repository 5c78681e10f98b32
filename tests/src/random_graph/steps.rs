//! Steps of random graphs that add one operator or a few.

use driftc::Result;
use driftc::ir::array::{Array, count};
use driftc::ir::dim::{Dim, product};
use driftc::ir::element::{BinaryFn, UnaryFn};
use driftc::ir::graph::NodeId;
use driftc::ir::op::{
    Concat, Conv, CumSum, Gather, GatherMatMul, GridSample, GroupNorm, LayerNorm, MatMul, Pad, Pool, Range,
    Slice, Softmax, State, Update,
};
use driftc::ir::ops::grid_sample::{SampleMode, SamplePadding};
use driftc::ir::ops::pad::PadMode;
use driftc::ir::ops::pool::PoolKind;
use driftc::ir::ops::reduce::ReduceKind;
use driftc::ir::tensor::DType;

use super::integers::integer_matmul;
use super::{Growth, Rng};

/// Function that adds operators to a tensor of a random graph. Returns the result, or `None` if the step does not apply to the
/// tensor.
type GrowthStep = fn(&mut Growth<'_>, NodeId) -> Result<Option<NodeId>>;

const STEPS: &[GrowthStep] = &[
    unary,
    unary,
    unary,
    binary,
    binary,
    with_constant,
    with_constant,
    matmul,
    conv,
    conv,
    pool,
    reduce,
    softmax,
    norm,
    transpose,
    reshape,
    slice,
    concat,
    update,
    pad,
    expand,
    gather,
    gather_matmul,
    grid_sample,
    select,
    cum_sum,
    positions,
    frames,
    integer_matmul,
];

/// Applies a random step to `x`. Returns `None` if the step does not apply to `x`.
pub(super) fn step(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    g.rng.pick(STEPS)(g, x)
}

/// Returns a random element function whose results stay near one for arguments near one.
pub(super) fn smooth(rng: &mut Rng) -> UnaryFn {
    rng.pick(&[
        UnaryFn::Relu,
        UnaryFn::LeakyRelu { alpha: 0.1 },
        UnaryFn::Sigmoid,
        UnaryFn::Tanh,
        UnaryFn::Gelu,
        UnaryFn::GeluTanh,
        UnaryFn::HardSwish,
        UnaryFn::HardSigmoid { alpha: 0.2, beta: 0.5 },
        UnaryFn::Swish { alpha: 1.0 },
        UnaryFn::Mish,
        UnaryFn::Softplus,
        UnaryFn::Softsign,
        UnaryFn::Erf,
        UnaryFn::Sin,
        UnaryFn::Elu { alpha: 1.0 },
        UnaryFn::Clip { low: -0.5, high: 2.0 },
        UnaryFn::Clip { low: 0.0, high: f32::INFINITY },
        UnaryFn::Abs,
        UnaryFn::Neg,
        UnaryFn::Affine { scale: 0.5, shift: -0.25 },
    ])
}

fn unary(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let f = smooth(&mut g.rng);
    g.builder.unary(f, x).map(Some)
}

/// Combines `x` by an element function with another tensor of equal or broadcastable shape.
fn binary(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let y = g.rng.pick(&g.values.clone());
    let (a, b) = (g.shape(x), g.shape(y));
    if !a.iter().rev().zip(b.iter().rev()).all(|(a, b)| a == b || a.is(1) || b.is(1)) {
        return Ok(None);
    }
    use BinaryFn::{Add, Div, Max, Min, Mul, Sub};
    let f = g.rng.pick(&[Add, Add, Sub, Mul, Min, Max, Div]);
    if f == Div {
        let y = g.builder.unary(UnaryFn::Sigmoid, y)?;
        let y = g.builder.unary(UnaryFn::Affine { scale: 1.0, shift: 0.5 }, y)?;
        return g.builder.binary(f, x, y).map(Some);
    }
    let (x, y) = if f == Mul { (tame(g, x)?, y) } else { (x, y) };
    g.builder.binary(f, x, y).map(Some)
}

/// Applies tanh, so that elements lie in -1..1 and later products and sums stay small.
fn tame(g: &mut Growth<'_>, x: NodeId) -> Result<NodeId> {
    g.builder.unary(UnaryFn::Tanh, x)
}

/// Combines `x` by an element function with a constant: a scalar, a vector over the last axis or over channels, or an array of
/// the whole shape.
fn with_constant(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let shape = g.shape(x);
    let known = |d: &Dim| d.as_known().map_or(1, |n| n as usize);
    let mut sizes: Vec<usize> = match g.rng.below(4) {
        0 => vec![],
        1 => shape.last().map(known).into_iter().collect(),
        2 if shape.len() >= 3 => {
            let mut sizes = vec![1; shape.len() - 1];
            sizes[0] = known(&shape[1]);
            sizes
        }
        _ => shape.iter().map(known).collect(),
    };
    if g.rng.once_in(4) {
        sizes = vec![1; sizes.len()];
    }
    let (f, low, high) = g.rng.pick(&[
        (BinaryFn::Add, -1.0, 1.0),
        (BinaryFn::Sub, -1.0, 1.0),
        (BinaryFn::Mul, -1.2, 1.2),
        (BinaryFn::Div, 0.8, 2.0),
        (BinaryFn::Max, -1.0, 0.5),
        (BinaryFn::Min, -0.5, 1.0),
    ]);
    let n = count(&sizes);
    let values = match g.rng.below(6) {
        0 => vec![0.5; n],
        // What does nothing must go, where it may.
        1 if matches!(f, BinaryFn::Add | BinaryFn::Sub) => vec![0.0; n],
        1 if matches!(f, BinaryFn::Mul | BinaryFn::Div) => vec![1.0; n],
        _ => (0..n).map(|_| g.rng.float(low, high)).collect(),
    };
    let c = g.builder.constant(&Array::f32(&sizes, values))?;
    let swap = g.rng.once_in(3) && f != BinaryFn::Div;
    let (a, b) = if swap { (c, x) } else { (x, c) };
    g.builder.binary(f, a, b).map(Some)
}

/// Multiplies `x` by a constant matrix and perhaps adds a bias, or multiplies `x` by its own transpose.
fn matmul(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let shape = g.shape(x);
    if shape.len() < 2 {
        return Ok(None);
    }
    if g.rng.once_in(4) {
        let x = tame(g, x)?;
        let y = g.builder.add(MatMul { trans_a: false, trans_b: true }, &[x, x])?;
        return g.builder.unary(UnaryFn::Affine { scale: 0.25, shift: 0.0 }, y).map(Some);
    }
    let Some(width) = g.width(x) else { return Ok(None) };
    let columns = g.rng.pick(&[1, 3, 4, 6, 8]);
    let trans_b = g.rng.once_in(3);
    let sizes = if trans_b { [columns, width] } else { [width, columns] };
    let w = g.constant(&sizes, 1.5 / (width as f32).sqrt())?;
    let mut y = g.builder.add(MatMul { trans_a: false, trans_b }, &[x, w])?;
    if g.rng.once_in(2) {
        let bias = g.constant(&[columns], 0.5)?;
        y = g.builder.binary(BinaryFn::Add, y, bias)?;
    }
    Ok(Some(y))
}

/// Adds a `gather-matmul`: a matmul of `x` with one matrix of a stack, which a constant index selects.
fn gather_matmul(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let (rank, Some(width)) = (g.shape(x).len(), g.width(x)) else { return Ok(None) };
    if rank < 2 || !g.builder.tensor(x).dtype.is_float() {
        return Ok(None);
    }
    let columns = g.rng.pick(&[1, 4, 6, 16]);
    let trans_b = g.rng.once_in(2);
    let sizes = if trans_b { [3, columns, width] } else { [3, width, columns] };
    let w = g.constant(&sizes, 1.5 / (width as f32).sqrt())?;
    let indices = g.builder.constant(&Array::int(DType::I64, &[1], vec![g.rng.pick(&[0, 1, 2, -1])]))?;
    let op = GatherMatMul { matmul: MatMul { trans_a: false, trans_b } };
    g.builder.add(op, &[x, w, indices]).map(Some)
}

/// Returns the number of channels of an image `[N, C, H, W]`, or `None` for other tensors.
pub(super) fn channels(g: &Growth<'_>, x: NodeId) -> Option<usize> {
    match g.shape(x).as_slice() {
        [_, c, _, _] => c.as_known()?.try_into().ok(),
        _ => None,
    }
}

/// True if a window of `extent` positions fits into all spatial axes of `x`, for all values of the symbols.
fn window_fits(g: &Growth<'_>, x: NodeId, extent: usize) -> bool {
    let bounds = &g.builder.graph.bounds;
    g.shape(x).iter().skip(2).all(|d| d.range(bounds).0 >= extent as i64)
}

/// Adds a strided 1-D convolution of one channel, as speech models use it to divide audio into frames.
fn frames(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let (kernel, stride) = (g.rng.pick(&[2, 3, 4, 8]), g.rng.pick(&[2, 4]));
    let all = product(&g.shape(x));
    let bounds = &g.builder.graph.bounds;
    if all.range(bounds).0 < kernel as i64 || all.range(bounds).1 > 4096 {
        return Ok(None);
    }
    let x = g.builder.reshape(x, vec![Dim::known(1), Dim::known(1), all])?;
    let w = g.constant(&[3, 1, kernel], 1.5 / (kernel as f32).sqrt())?;
    let pad = g.rng.below(2);
    let conv = Conv {
        strides: vec![stride],
        dilations: vec![1],
        pads_begin: vec![pad],
        pads_end: vec![g.rng.below(2)],
        group: 1,
        zero_point: 0,
    };
    g.builder.add(conv, &[x, w]).map(Some)
}

/// Adds a convolution: grouped or not, with or without a bias, with padding as an attribute or by a pad node, and
/// perhaps with a batch norm after it.
pub(super) fn conv(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let Some(c) = channels(g, x) else { return Ok(None) };
    let mut x = x;
    let kernel = g.rng.pick(&[1, 2, 3, 3]);
    let dilation = if kernel == 2 { g.rng.pick(&[1, 2]) } else { 1 };
    if !window_fits(g, x, dilation * (kernel - 1) + 1) {
        return Ok(None);
    }
    let group = if g.rng.once_in(3) { c } else { 1 };
    let out = if group == 1 { g.rng.pick(&[1, 3, 4, 6]) } else { c * g.rng.pick(&[1, 2]) };
    if kernel > 1 && g.rng.once_in(4) {
        let op = Pad {
            mode: PadMode::Constant,
            before: [0i64, 0, 1, 0].map(Dim::from).to_vec(),
            after: [0i64, 0, 1, 2].map(Dim::from).to_vec(),
            value: 0.0,
        };
        x = g.builder.add(op, &[x])?;
    }
    let fan = (c / group * kernel * kernel) as f32;
    let w = g.constant(&[out, c / group, kernel, kernel], 1.5 / fan.sqrt())?;
    let mut operands = vec![x, w];
    if g.rng.once_in(2) {
        operands.push(g.constant(&[out], 0.5)?);
    }
    let pad = g.rng.below(2);
    let conv = Conv {
        strides: vec![g.rng.pick(&[1, 1, 2]), 1],
        dilations: vec![dilation; 2],
        pads_begin: vec![pad, 0],
        pads_end: vec![pad, g.rng.below(2)],
        group,
        zero_point: 0,
    };
    let mut y = g.builder.add(conv, &operands)?;
    if g.rng.once_in(2) {
        let (scale, shift) = (g.constant(&[out, 1, 1], 1.5)?, g.constant(&[1, out, 1, 1], 0.5)?);
        y = g.builder.binary(BinaryFn::Mul, y, scale)?;
        y = g.builder.binary(BinaryFn::Add, y, shift)?;
    }
    if g.rng.once_in(2) {
        let f = smooth(&mut g.rng);
        y = g.builder.unary(f, y)?;
    }
    Ok(Some(y))
}

fn pool(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let kernel = g.rng.pick(&[2, 3]);
    if channels(g, x).is_none() || !window_fits(g, x, kernel) {
        return Ok(None);
    }
    let kind = g.rng.pick(&[
        PoolKind::Max,
        PoolKind::Average { count_include_pad: false },
        PoolKind::Average { count_include_pad: true },
    ]);
    let pad = g.rng.below(2);
    let op = Pool {
        kind,
        kernel: vec![kernel; 2],
        strides: vec![g.rng.pick(&[1, 2]); 2],
        dilations: vec![1; 2],
        pads_begin: vec![pad; 2],
        pads_end: vec![pad; 2],
        ceil: g.rng.once_in(3),
    };
    g.builder.add(op, &[x]).map(Some)
}

fn reduce(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let rank = g.shape(x).len();
    let axes: Vec<usize> = (0..rank).filter(|_| g.rng.once_in(2)).collect();
    let kind =
        g.rng.pick(&[ReduceKind::Mean, ReduceKind::Mean, ReduceKind::Max, ReduceKind::Min, ReduceKind::L2]);
    let keepdims = g.rng.once_in(2);
    g.builder.reduce(kind, x, axes, keepdims).map(Some)
}

fn softmax(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let rank = g.shape(x).len();
    if rank == 0 {
        return Ok(None);
    }
    let op = Softmax { axis: g.rng.below(rank), log: g.rng.once_in(4) };
    g.builder.add(op, &[x]).map(Some)
}

/// Adds a LayerNorm over the last axis, or a group norm of an image.
fn norm(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let rank = g.shape(x).len();
    if let Some(c) = channels(g, x)
        && g.rng.once_in(2)
    {
        let (scale, bias) = (g.constant(&[c], 1.5)?, g.constant(&[c], 0.5)?);
        let groups = if c.is_multiple_of(2) { 2 } else { c };
        return g.builder.add(GroupNorm { groups, epsilon: 0.01 }, &[x, scale, bias]).map(Some);
    }
    let (Some(width), true) = (g.width(x), rank > 0) else { return Ok(None) };
    let mut operands = vec![x, g.constant(&[width], 1.5)?];
    let rms = g.rng.once_in(3);
    if !rms {
        operands.push(g.constant(&[width], 0.5)?);
    }
    g.builder.add(LayerNorm { axis: rank - 1, epsilon: 0.01, rms }, &operands).map(Some)
}

fn transpose(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let mut perm: Vec<usize> = (0..g.shape(x).len()).collect();
    for i in (1..perm.len()).rev() {
        perm.swap(i, g.rng.below(i + 1));
    }
    g.builder.transpose(x, perm).map(Some)
}

/// Adds a reshape that merges two axes, splits an axis, or inserts or removes an axis of size 1.
fn reshape(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let mut shape = g.shape(x);
    let at = g.rng.below(shape.len() + 1);
    match g.rng.below(4) {
        0 => shape.insert(at, Dim::known(1)),
        1 if at < shape.len() && shape[at].is(1) => drop(shape.remove(at)),
        2 if at + 1 < shape.len() => {
            let next = shape.remove(at + 1);
            shape[at] = shape[at].mul(&next);
        }
        _ if at < shape.len() => {
            let factor = g.rng.pick(&[2, 3]);
            let Some(rest) = shape[at].div_exact(&Dim::known(factor)) else { return Ok(None) };
            shape.splice(at..=at, [Dim::known(factor), rest]);
        }
        _ => return Ok(None),
    }
    g.builder.reshape(x, shape).map(Some)
}

/// Adds a slice along one axis of known size, forwards or backwards.
fn slice(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let shape = g.shape(x);
    if shape.is_empty() {
        return Ok(None);
    }
    let axis = g.rng.below(shape.len());
    let Some(n) = shape[axis].as_known() else { return Ok(None) };
    let start = g.rng.below(n as usize) as i64;
    let step = g.rng.pick(&[1i64, 1, 2, -1]);
    let most = if step > 0 { (n - 1 - start) / step + 1 } else { start + 1 };
    let size = 1 + g.rng.below(most as usize) as i64;
    let mut op =
        Slice { starts: vec![Dim::known(0); shape.len()], steps: vec![1; shape.len()], sizes: shape };
    (op.starts[axis], op.steps[axis], op.sizes[axis]) = (Dim::known(start), step, Dim::known(size));
    g.builder.add(op, &[x]).map(Some)
}

/// Rolls `x`, or concatenates it with itself or with another tensor. The shapes differ at most along one axis.
fn concat(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let y = if g.rng.once_in(3) { x } else { g.rng.pick(&g.values.clone()) };
    if x == y && g.rng.once_in(2) {
        return roll(g, x);
    }
    let (a, b) = (g.shape(x), g.shape(y));
    if a.is_empty() || a.len() != b.len() {
        return Ok(None);
    }
    let axis = g.rng.below(a.len());
    if (0..a.len()).any(|i| i != axis && a[i] != b[i]) {
        return Ok(None);
    }
    g.builder.add(Concat { axis }, &[x, y]).map(Some)
}

/// Adds an update: some positions of `x`, or of a state with the shape of `x`, are replaced by the first positions of `x`.
fn update(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let tensor = g.builder.tensor(x).clone();
    let known = (0..tensor.rank()).filter(|axis| tensor.shape[*axis].as_known().is_some_and(|size| size > 1));
    let known: Vec<usize> = known.collect();
    if known.is_empty() || tensor.shape.iter().any(|d| d.is(0)) {
        return Ok(None);
    }
    let axis = g.rng.pick(&known);
    let size = usize::try_from(tensor.shape[axis].as_known().unwrap_or(1)).unwrap_or(1);
    let count = 1 + g.rng.below(size - 1);
    let start = Dim::from(g.rng.below(size - count + 1));
    let part = g.builder.slice(x, axis, Dim::known(0), Dim::from(count))?;
    match tensor.known_shape().filter(|_| g.rng.once_in(2)) {
        None => g.builder.add(Update { axis, start }, &[x, part]).map(Some),
        Some(shape) => {
            let name = format!("state {}", g.builder.graph.stores().len());
            let held = g.builder.add(State { name: name.clone(), dtype: tensor.dtype, shape }, &[])?;
            let updated = g.builder.add(Update { axis, start }, &[held, part])?;
            g.builder.graph.add_store(&name, updated);
            Ok(Some(updated))
        }
    }
}

fn pad(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let rank = g.shape(x).len();
    let mode =
        g.rng.pick(&[PadMode::Constant, PadMode::Constant, PadMode::Reflect, PadMode::Edge, PadMode::Wrap]);
    let mut amounts = || (0..rank).map(|_| Dim::from(g.rng.below(3) / 2)).collect::<Vec<Dim>>();
    let op = Pad { mode, before: amounts(), after: amounts(), value: 0.5 };
    g.builder.add(op, &[x]).map(Some)
}

/// Adds a roll along every axis as exporters express it: the end of an axis, concatenated with its start.
fn roll(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let mut rolled = x;
    for (axis, size) in g.shape(x).iter().enumerate() {
        let Some(size) = size.as_known().filter(|size| *size > 1) else { continue };
        let shift = Dim::from(1 + g.rng.below(usize::try_from(size - 1).unwrap_or(1)));
        let end = g.builder.slice(rolled, axis, shift.clone(), Dim::known(size).sub(&shift))?;
        let start = g.builder.slice(rolled, axis, Dim::known(0), shift)?;
        rolled = g.builder.add(Concat { axis }, &[end, start])?;
    }
    Ok((rolled != x).then_some(rolled))
}

/// Adds an expand, which repeats axes of size 1 and perhaps adds a leading axis.
fn expand(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let mut shape = g.shape(x);
    for d in shape.iter_mut().filter(|d| d.is(1)) {
        *d = Dim::from(g.rng.pick(&[1usize, 3]));
    }
    if g.rng.once_in(2) {
        shape.insert(0, Dim::known(2));
    }
    g.builder.expand(x, shape).map(Some)
}

fn gather(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let shape = g.shape(x);
    if shape.is_empty() {
        return Ok(None);
    }
    let axis = g.rng.below(shape.len());
    let Some(n) = shape[axis].as_known() else { return Ok(None) };
    let sizes = g.rng.pick(&[vec![], vec![1], vec![3], vec![2, 2]]);
    let draw = |_| g.rng.below(2 * n as usize) as i64 - n;
    let values = (0..count(&sizes)).map(draw).collect();
    let indices = g.builder.constant(&Array::int(DType::I64, &sizes, values))?;
    g.builder.add(Gather { axis }, &[x, indices]).map(Some)
}

/// Adds a `grid-sample` that samples an image at constant positions, some of them outside of the image.
fn grid_sample(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let shape = g.shape(x);
    let axes = shape.len().saturating_sub(2);
    if !(1..=3).contains(&axes) {
        return Ok(None);
    }
    let places: Vec<usize> = (0..axes).map(|_| 1 + g.rng.below(4)).collect();
    let sizes: Vec<usize> = [1].into_iter().chain(places.iter().copied()).chain([axes]).collect();
    let grid = g.constant(&sizes, 1.5)?;
    let places = places.into_iter().map(Dim::from);
    let grid = g
        .builder
        .expand(grid, [shape[0].clone()].into_iter().chain(places).chain([Dim::from(axes)]).collect())?;
    let op = GridSample {
        mode: g.rng.pick(&[SampleMode::Nearest, SampleMode::Linear, SampleMode::Linear, SampleMode::Cubic]),
        padding: g.rng.pick(&[SamplePadding::Zeros, SamplePadding::Border, SamplePadding::Reflection]),
        align_corners: g.rng.once_in(2),
    };
    g.builder.add(op, &[x, grid]).map(Some)
}

/// Adds the select `x > c ? x : f(x)`. The step is rare, because a rounding error can change the result of the comparison.
fn select(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let threshold = g.rng.float(-0.5, 0.5);
    let c = g.builder.scalar(DType::F32, threshold)?;
    let condition = g.builder.binary(BinaryFn::Greater, x, c)?;
    let f = smooth(&mut g.rng);
    let other = g.builder.unary(f, x)?;
    g.builder.select(condition, x, other).map(Some)
}

fn cum_sum(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let rank = g.shape(x).len();
    if rank == 0 {
        return Ok(None);
    }
    let x = tame(g, x)?;
    let op = CumSum { axis: g.rng.below(rank), exclusive: g.rng.once_in(2), reverse: g.rng.once_in(2) };
    g.builder.add(op, &[x]).map(Some)
}

/// Adds the numbers `0, 0.125, 0.25, ...` to the elements of `x` along the last axis, whose size may be a symbol.
fn positions(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let Some(length) = g.shape(x).pop() else { return Ok(None) };
    let op = Range { dtype: DType::I64, start: Dim::known(0), step: 1, length };
    let range = g.builder.add(op, &[])?;
    let range = g.builder.cast(range, DType::F32)?;
    let range = g.builder.unary(UnaryFn::Affine { scale: 0.125, shift: 0.0 }, range)?;
    g.builder.binary(BinaryFn::Add, x, range).map(Some)
}
