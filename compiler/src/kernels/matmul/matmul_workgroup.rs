//! `matmul_workgroup.wgsl`: large matrix products in f16, whose matrices a whole workgroup holds.
//!
//! No tile is cut at an edge, so M and N must have room for one, and K be whole steps; smaller and odd products are for
//! `coop.wgsl`. Split sums come here as products with a batch.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{MatMul, Op};
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;
use crate::kernels::cost::Parameters;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::coop::octets;
use crate::kernels::shared::product::{Sizes, batch_axes, operand_batch, sizes};
use crate::kernels::shared::window::fits;
use crate::shader::access::{Access, Coordinates, access};
use crate::shader::pack::Packed;
use crate::shader::pack::presets::KN;
use crate::shader::problem::{Operand, Placement, Problem};
use crate::shader::{Bound, Grid, Launch, Shader};
use crate::target::{MatrixScope, MatrixShape, MatrixType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matmul_workgroup",
    wgsl: include_str!("matmul_workgroup.wgsl"),
    candidates,
    launches,
    matrices: Some(MatrixScope::Workgroup),
    params: &[Group::of::<Params>()],
    in_place: InPlace::Nothing,
};

/// Rows, columns and depth of the matrices.
const TILES: [[u32; 3]; 13] = [
    [128, 256, 64],
    [128, 192, 64],
    [128, 160, 64],
    [128, 128, 64],
    [64, 256, 64],
    [64, 160, 64],
    [64, 128, 64],
    [128, 64, 64],
    [64, 64, 64],
    [32, 128, 64],
    [32, 64, 64],
    [64, 64, 32],
    [64, 64, 16],
];

/// Elements of the largest tile, of which a unit of the device holds one.
const LARGEST: u32 = 128 * 256;

/// A multiply-add of matrices that a workgroup holds, f16 into f32: what their sides are multiples of.
fn shape<'a>(problem: &Problem<'a>) -> Option<(&'a MatrixShape, u32)> {
    let target = problem.target;
    let features = &target.features;
    let half = problem.operands.get(1).is_some_and(|o| o.dtype.on_device() == DeviceType::F16);
    if !(features.cooperative_matrix && features.stores_f16() && half && problem.computed.is_float()) {
        return None;
    }
    target.matrix.iter().find_map(|s| {
        let types = (s.a, s.b, s.c) == (MatrixType::F16, MatrixType::F16, MatrixType::F32);
        let invocations = s.invocations?;
        (types && s.scope == MatrixScope::Workgroup).then_some((s, invocations))
    })
}

/// The axis, counted from the end, along which an operand's elements are neighbours in groups of eight.
fn dense_axis(operand: &Operand<'_>) -> Option<usize> {
    let rank = operand.rank();
    [1, 2].into_iter().find(|from_end| {
        rank >= 2 && operand.storage == Storage::Buffer && octets(operand, rank - from_end).is_some()
    })
}

/// A constant second operand as rows of N elements.
fn rows(op: &MatMul, problem: &Problem<'_>) -> Option<Packed> {
    let operand = problem.operands.get(1)?;
    let constant = operand.constant.filter(|_| operand.codes.is_none())?;
    let [rest @ .., before, last] = constant.shape.as_slice() else { return None };
    let names = if op.trans_b { ['N', 'K'] } else { ['K', 'N'] };
    let axes = [('B', rest.iter().product()), (names[0], *before), (names[1], *last)];
    let packed = KN.of(constant, &axes, &[], DeviceType::F16);
    fits(problem, &packed).then_some(packed)
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let (Op::MatMul(op), Some((shape, threads))) = (problem.op, shape(problem)) else { return Vec::new() };
    let Some(Sizes { batch, m, k, n }) = sizes(op, problem) else { return Vec::new() };
    let (Some(k), Some(n)) = (k.as_known(), n.as_known()) else { return Vec::new() };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let a_fits = problem.operands.first().is_some_and(|a| dense_axis(a).is_some());
    let b_fits =
        rows(op, problem).is_some() || problem.operands.get(1).is_some_and(|b| dense_axis(b).is_some());
    if !a_fits || !b_fits || n % 8 != 0 {
        return Vec::new();
    }
    let (least, most) = m.range(problem.bounds);
    let batch = problem.max(&product(&batch));
    TILES
        .iter()
        .zip(p.slowness)
        .filter(|([tm, tn, depth], _)| {
            let aligned = tm % shape.m == 0
                && tn % shape.n == 0
                && depth % shape.k == 0
                && (tm * tn / 4).is_multiple_of(threads);
            let room = i64::from(*tm) <= least && i64::from(*tn) <= n;
            aligned && room && k % i64::from(*depth) == 0
        })
        .filter_map(|(tile, slowness)| {
            candidate(&p, problem, (*tile, slowness), threads, (batch, [most, n, k]))
        })
        .collect()
}

fn candidate(
    p: &Params,
    problem: &Problem<'_>,
    ([tm, tn, depth], slowness): ([u32; 3], f64),
    threads: u32,
    (batch, [m, n, k]): (i64, [i64; 3]),
) -> Option<Candidate> {
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let [rows, columns] = [(m, tm), (n, tn)].map(|(size, tile)| (size as f64 / f64::from(tile)).ceil());
    let fits = threads <= limits.max_workgroup_invocations.min(limits.max_workgroup_size[0])
        && rows * columns <= f64::from(limits.max_workgroup_count[0])
        && batch <= i64::from(limits.max_workgroup_count[2]);
    if !fits {
        return None;
    }
    let steps = if k % i64::from(depth * 2) == 0 && k / i64::from(depth) >= LONG { 2 } else { 1 };
    let units = f64::from(machine.compute_units);
    let groups = rows * columns * batch as f64;
    let rounds = (groups / units).ceil();
    let peak = machine.peak.matrix_f16.unwrap_or(machine.peak.f16) / units;
    let area = f64::from(tm * tn);
    let waiting = machine.memory_latency_ns * p.step * (f64::from(depth) / 64.0).max(0.5);
    let step = slowness * (waiting + 2.0 * area * f64::from(depth) / (peak * p.reached));
    let step = step * if along_k(problem) { p.along_k } else { 1.0 };
    let cache = machine.cache_bandwidth_gb_s.max(1e-3) / units;
    let finish = area * if direct(problem) { p.direct_bytes } else { p.kept_bytes } / cache;
    let looks = if steps == 1 { p.single } else { 1.0 };
    let computing = rounds * (k as f64 / f64::from(depth) * step * looks + finish);
    let traffic = problem.traffic() as f64 / machine.bandwidth_gb_s.max(1e-3);
    Some(Candidate {
        knobs: vec![("TILE_M", tm), ("TILE_N", tn), ("DEPTH", depth), ("STEPS", steps)],
        cost: computing.max(traffic) + p.ends_ns + machine.launch_us * 1e3,
        reason: format!(
            "matrices of a workgroup, {groups} tiles of {tm}x{tn} for {m}x{n}x{k} in {rounds} rounds, {} products of depth {depth} each",
            k / i64::from(depth)
        ),
    })
}

/// Whether the second operand is read as it lies, with neighbours along K.
fn along_k(problem: &Problem<'_>) -> bool {
    let Op::MatMul(op) = problem.op else { return false };
    let axis = problem.operands.get(1).and_then(dense_axis);
    rows(op, problem).is_none() && axis.is_some_and(|from_end| (from_end == 1) == op.trans_b)
}

/// Parameters of the estimate. A workgroup takes the same time for a step however many others run, one to a unit.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Part of the peak that the products of one workgroup reach.
    reached: f64,
    /// What a step takes besides, in latencies of memory.
    step: f64,
    /// How long a step takes in relation to what the sizes suggest, for each of the tiles.
    slowness: [f64; 13],
    /// How much longer steps take whose second operand has its neighbours along K.
    along_k: f64,
    /// How much longer steps take that are not written out two at a time.
    single: f64,
    /// Bytes moved for each sum that is stored as it is.
    direct_bytes: f64,
    /// Bytes moved for each sum that is kept first.
    kept_bytes: f64,
    /// Nanoseconds until the first step and after the last.
    ends_ns: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matmul_workgroup";
}

/// From so many steps on two are written out in the loop, which takes the driver twice as long to compile.
const LONG: i64 = 16;

/// Whether the sums are the result as they stand.
fn direct(problem: &Problem<'_>) -> bool {
    let result = &problem.result;
    problem.epilogue.is_empty()
        && result.dtype.on_device() == DeviceType::F32
        && result.storage == Storage::Buffer
        && result.placement == Placement::dense(&result.shape)
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::MatMul(op) = problem.op else { return Err(OpError::new("not a matrix product")) };
    let Sizes { batch, m, k, n } =
        sizes(op, problem).ok_or_else(|| OpError::new("operands of rank two or more are needed"))?;
    let (shape, threads) = shape(problem).ok_or_else(|| OpError::new("no matrices of a workgroup"))?;
    let mut shader = Shader::new(problem);
    for (name, value) in &candidate.knobs {
        shader.knob(name, *value);
    }
    shader.knob("THREADS", threads);
    let [tm, tn, depth] = ["TILE_M", "TILE_N", "DEPTH"].map(|name| candidate.knob(name));
    let ahead = [8, 4, 2, 1].into_iter().find(|ahead| (tm * tn / 4).is_multiple_of(threads * ahead));
    shader.knob(
        "AHEAD",
        ahead.ok_or_else(|| OpError::new("a tile with less than a vector for each invocation"))?,
    );
    let [groups_m, groups_n] = [(&m, tm), (&n, tn)].map(|(size, tile)| size.ceil_div(i64::from(tile)));
    let sizes =
        [("size_m", &m), ("size_n", &n), ("size_k", &k), ("groups_m", &groups_m), ("groups_n", &groups_n)];
    for (name, size) in sizes {
        shader.size(name, size);
    }
    fragment(
        &mut shader,
        ("fragment_a", "MatrixA", "batch: u32, row: u32, k: u32"),
        0,
        ["row", "k"],
        op.trans_a,
    )?;
    match rows(op, problem) {
        Some(packed) => packed_rows(&mut shader, packed, &n, &k),
        None => {
            let hook = ("fragment_b", "MatrixB", "batch: u32, k: u32, column: u32");
            fragment(&mut shader, hook, 1, ["k", "column"], op.trans_b)?;
        }
    }
    let (prelude, mut axes) = batch_axes(&mut shader, &batch);
    axes.extend(["row".to_string(), "n4".to_string()]);
    let batch = product(&batch);
    let tiles = groups_m.mul(&groups_n);
    let most = problem.max(&tiles);
    let slots = if direct(problem) { most } else { most.min(slots(problem, tm * tn, &batch)) };
    shader.constant("SLOTS", format!("{slots}u"));
    let whole = m.mul(&n);
    let where_kept = "slot: u32, unit: u32, batch: u32, row: u32, n4: u32";
    let (rows, fours) = (shader.dim(&m), shader.dim(&n.floor_div(4)));
    let in_whole = |row: &str, n4: &str| format!("(batch * {rows} + {row}) * {fours} + {n4}");
    if direct(problem) {
        shader.constant("DIRECT", true);
        shader.replace("store", "fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) {}".into());
        shader.replace("kept", format!("fn kept({where_kept}) -> vec4<f32> {{ return vec4<f32>(); }}"));
        keep(&mut shader, Bound::Result, &in_whole("row", "column / 4u"), &fours);
    } else {
        let lanes = axes.len() - 1;
        shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &Coordinates::four(axes, lanes))?;
        // Sums lie as in the result, or one tile of each workgroup behind the other, whichever is less.
        let apart = slots * i64::from(tm * tn);
        let (size, put, got, stride) = if problem.max(&whole) <= apart {
            (whole, in_whole("row", "column / 4u"), in_whole("row", "n4"), fours.as_str())
        } else {
            (Dim::known(apart), "slot * UNITS".into(), "slot * UNITS + unit".into(), "FOURS")
        };
        let scratch = shader.scratch(size.mul(&batch).scale(4));
        let sums = keep(&mut shader, scratch, &put, stride);
        shader.replace("kept", format!("fn kept({where_kept}) -> vec4<f32> {{ return {sums}[{got}]; }}"));
    }
    let across = if slots < most { Dim::known(slots) } else { tiles };
    let grid = Grid { groups: [across, Dim::known(1), batch.clone()], workgroup: [threads, 1, 1] };
    let flops = m.mul(&n).mul(&k).mul(&batch).scale(2);
    let mut launch = shader.finish(KERNEL.name, KERNEL.wgsl, grid, flops)?;
    launch.subgroup_size = Some(problem.target.subgroup.preferred);
    launch.matrix = Some(MatrixShape { m: tm, n: tn, k: depth, ..shape.clone() });
    Ok(vec![launch])
}

/// Workgroups to each product of a batch that need a place for their sums: as many as the device runs at a time.
fn slots(problem: &Problem<'_>, tile: u32, batch: &Dim) -> i64 {
    let abreast = (LARGEST / tile).clamp(1, 4);
    let room = i64::from(problem.target.machine.compute_units * abreast);
    (room / problem.max(batch).max(1)).max(1)
}

/// Replaces the hook that stores the sums of a tile at an index of `bound`, and returns that buffer's name.
fn keep(shader: &mut Shader<'_>, bound: Bound, at: &str, stride: &str) -> String {
    let buffer = shader.bind(bound, "vec4<f32>", true);
    let params = "slot: u32, batch: u32, row: u32, column: u32, tile: MatrixC";
    shader.replace("keep", format!("fn keep({params}) {{ coopStoreT(tile, &{buffer}[{at}], {stride}); }}"));
    buffer
}

/// Writes a hook that loads a matrix of operand `index`, whose last axes but for `transposed` are `names`.
fn fragment(
    shader: &mut Shader<'_>,
    (hook, ty, params): (&str, &str, &str),
    index: usize,
    names: [&str; 2],
    transposed: bool,
) -> Result<(), OpError> {
    let operand = &shader.problem.operands[index];
    let rank = operand.rank();
    let from_end =
        dense_axis(operand).ok_or_else(|| OpError::new("an operand without neighbours of eight"))?;
    let (dense, other) = (rank - from_end, rank + from_end - 3);
    let eights =
        octets(operand, dense).ok_or_else(|| OpError::new("an operand without neighbours of eight"))?;
    let Placement::Strided { strides, .. } = &operand.placement else {
        return Err(OpError::new("an operand in slices"));
    };
    let stride = strides[other].floor_div(8);
    let (prelude, mut axes) = operand_batch(shader, index);
    axes.extend(if transposed { [names[1], names[0]] } else { names }.map(str::to_string));
    axes[dense] = format!("({} / 8u)", axes[dense]);
    let Access::Vector { index: at } =
        access(&mut shader.words, &eights, &Coordinates::four(axes, dense), true)
    else {
        return Err(OpError::new("an operand without neighbours of eight"));
    };
    let stride = shader.dim(&stride);
    let buffer = shader.bind(Bound::Operand(index), "vec4<f32>", false);
    // Neighbours along the second of the matrix's own axes are rows.
    let load = if (from_end == 1) != transposed { "coopLoadT" } else { "coopLoad" };
    shader.replace(
        hook,
        format!(
            "fn {hook}({params}) -> {ty} {{\n{prelude}    return {load}<{ty}>(&{buffer}[{at}], {stride});\n}}"
        ),
    );
    Ok(())
}

/// Writes the hook that loads a matrix of a packed constant.
fn packed_rows(shader: &mut Shader<'_>, packed: Packed, n: &Dim, k: &Dim) {
    let (prelude, axes) = operand_batch(shader, 1);
    let shape = &shader.problem.operands[1].shape;
    let index = axes.iter().zip(shape).fold(String::new(), |text, (axis, size)| match size.as_known() {
        Some(size) if !text.is_empty() => format!("({text} * {size}u + {axis})"),
        _ => axis.clone(),
    });
    let index = if index.is_empty() { "0u".to_string() } else { index };
    let bound = shader.packed(packed);
    let buffer = shader.bind(bound, "vec4<f32>", false);
    let (deep, eights) = (shader.dim(k), shader.dim(&n.floor_div(8)));
    shader.replace(
        "fragment_b",
        format!(
            "fn fragment_b(batch: u32, k: u32, column: u32) -> MatrixB {{
{prelude}    return coopLoadT<MatrixB>(&{buffer}[({index} * {deep} + k) * {eights} + column / 8u], {eights});
}}"
        ),
    );
}
