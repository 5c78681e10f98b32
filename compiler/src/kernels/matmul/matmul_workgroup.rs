//! `matmul_workgroup.wgsl`: large f16 matmuls with cooperative matrices of workgroup scope.
//!
//! Tiles always have their full size. M and N must therefore be at least one tile, and K a multiple of the tile's K.
//! Other matmuls on matrix units use `coop.wgsl`. A decomposition turns a split-K matmul into a matmul with a batch
//! before this kernel sees it.

use serde::Deserialize;

use super::eligibility::is_eligible;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{MatMul, Op};
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;
use crate::kernels::cost::{Estimate, Parameters};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::kernels::shared::coop::as_vec8s;
use crate::kernels::shared::matmul_sizes::{MatMulSizes, batch_axes, matmul_sizes, operand_batch};
use crate::kernels::shared::window::fits;
use crate::shader::access::{Access, Coordinates, tensor_access};
use crate::shader::pack::Packed;
use crate::shader::pack::presets::KN;
use crate::shader::problem::{Operand, Placement, Problem};
use crate::shader::{Bound, Grid, LaunchDraft, Shader};
use crate::target::{MatrixScope, MatrixShape, MatrixType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matmul_workgroup",
    wgsl: include_str!("matmul_workgroup.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: Some(MatrixScope::Workgroup),
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Nothing,
};

config! {
    /// Configuration.
    struct Config {
        /// Number of rows of the tile of the result that a workgroup computes.
        TILE_M => tile_m: u32,
        /// Number of columns of the tile of the result that a workgroup computes.
        TILE_N => tile_n: u32,
        /// Length of a K-tile: the range of K that a workgroup multiplies in one step.
        TILE_K => tile_k: u32,
        /// Number of K-tiles per iteration of the loop over K.
        UNROLL => unroll: u32,
    }
}

/// Tiles that are tried: number of rows (M), number of columns (N), and length along K.
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

/// Returns the target's cooperative matrices of workgroup scope with f16 inputs and f32 sums, and the
/// number of invocations of a workgroup. Tile sizes must be multiples of the matrix sizes.
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

/// Returns the axis of an operand along which aligned groups of eight elements are contiguous: 1 for the last axis, 2
/// for the one before it, or `None`.
fn dense_axis(operand: &Operand<'_>) -> Option<usize> {
    let rank = operand.rank();
    [1, 2].into_iter().find(|from_end| {
        rank >= 2 && operand.storage == Storage::Buffer && as_vec8s(operand, rank - from_end).is_some()
    })
}

/// Returns the second operand, packed as K rows of N elements. Returns `None` if the operand is not constant, is
/// quantized, or exceeds a limit of the target.
fn packed_rows(op: &MatMul, problem: &Problem<'_>) -> Option<Packed> {
    let operand = problem.operands.get(1)?;
    let constant = operand.constant.filter(|_| operand.quantized.is_none())?;
    let [leading @ .., before, last] = constant.shape.as_slice() else { return None };
    let names = if op.trans_b { ['N', 'K'] } else { ['K', 'N'] };
    let axes = [('B', leading.iter().product()), (names[0], *before), (names[1], *last)];
    let packed = KN.packed(constant, &axes, &[], DeviceType::F16);
    fits(problem, &packed).then_some(packed)
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let (Op::MatMul(op), Some((shape, threads))) = (problem.op, shape(problem)) else { return Vec::new() };
    let Some(MatMulSizes { batch, m, k, n }) = matmul_sizes(op, problem) else { return Vec::new() };
    let (Some(k), Some(n)) = (k.as_known(), n.as_known()) else { return Vec::new() };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let a_fits = problem.operands.first().is_some_and(|a| dense_axis(a).is_some());
    let b_fits = packed_rows(op, problem).is_some()
        || problem.operands.get(1).is_some_and(|b| dense_axis(b).is_some());
    if !a_fits || !b_fits || n % 8 != 0 || !is_eligible(KERNEL.name, problem) {
        return Vec::new();
    }
    let (min_m, max_m) = m.range(problem.bounds);
    let batch = problem.max(&product(&batch));
    TILES
        .iter()
        .zip(p.tile_step_ratios)
        .filter(|([tm, tn, tk], _)| {
            let aligned = tm % shape.m == 0
                && tn % shape.n == 0
                && tk % shape.k == 0
                && (tm * tn / 4).is_multiple_of(threads);
            let large_enough = i64::from(*tm) <= min_m && i64::from(*tn) <= n;
            aligned && large_enough && k % i64::from(*tk) == 0
        })
        .filter_map(|(tile, step_ratio)| {
            candidate(&p, problem, (*tile, step_ratio), threads, (batch, [max_m, n, k]))
        })
        .collect()
}

fn candidate(
    p: &Params,
    problem: &Problem<'_>,
    ([tm, tn, tk], step_ratio): ([u32; 3], f64),
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
    let steps = k / i64::from(tk);
    let unroll =
        (1..=MAX_UNROLL).rev().find(|u| steps % i64::from(*u) == 0 && steps > i64::from(*u)).unwrap_or(1);
    let units = f64::from(machine.compute_units);
    let groups = rows * columns * batch as f64;
    let rounds = (groups / units).ceil();
    let peak = machine.peak.matrix_f16.unwrap_or(machine.peak.f16) / units;
    let area = f64::from(tm * tn);
    let waiting = machine.memory_latency_ns * p.step_latencies * (f64::from(tk) / 64.0).max(0.5);
    let step = step_ratio * (waiting + 2.0 * area * f64::from(tk) / (peak * p.peak_fraction));
    let step = step * if b_along_k(problem) { p.b_along_k_step_ratio } else { 1.0 };
    let cache = machine.cache_bandwidth_gb_s.max(1e-3) / units;
    let steps_of_epilogue = problem.epilogue.len() as f64;
    let epilogue = area
        * (p.stored_bytes_per_sum / cache
            + steps_of_epilogue * p.epilogue_operations / (machine.peak.f32 / units));
    let loop_ratio = if unroll == 1 { p.rolled_step_ratio } else { 1.0 };
    let estimate = Estimate {
        memory: problem.traffic() as f64 / machine.bandwidth_gb_s.max(1e-3),
        compute: rounds * (k as f64 / f64::from(tk) * step * loop_ratio + epilogue),
        fixed: p.fixed_ns,
        ..Estimate::for_dispatches(problem, 1.0)
    };
    let reason = format!(
        "cooperative matrices of workgroup scope: M x N x K = {m}x{n}x{k} in {groups} tiles of {tm}x{tn}, computed in {rounds} rounds; {} steps of {tk} along K per tile",
        k / i64::from(tk)
    );
    Some(Candidate::new(&Config { tile_m: tm, tile_n: tn, tile_k: tk, unroll }, estimate, reason))
}

/// True if the second operand is not packed and is contiguous along K.
fn b_along_k(problem: &Problem<'_>) -> bool {
    let Op::MatMul(op) = problem.op else { return false };
    let axis = problem.operands.get(1).and_then(dense_axis);
    packed_rows(op, problem).is_none() && axis.is_some_and(|from_end| (from_end == 1) == op.trans_b)
}

/// Cost parameters of the kernel `matmul_workgroup`. All are positive.
///
/// The time of a workgroup's step does not depend on the other workgroups, because a compute unit runs one workgroup.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Step time with a second operand that is contiguous along K, divided by the step time with one that is contiguous along N.
    b_along_k_step_ratio: f64,
    /// Operations per sum and step of the epilogue, including its reads.
    epilogue_operations: f64,
    /// Fixed nanoseconds before the first step and after the last step.
    fixed_ns: f64,
    /// Bytes of cache traffic per sum to store the result.
    stored_bytes_per_sum: f64,
    /// Fraction of the peak FLOP/s that the matrix multiplications of one workgroup reach; 0 to 1.
    peak_fraction: f64,
    /// Ratio of the step time in a loop of single steps to the step time in a loop of several steps per iteration.
    rolled_step_ratio: f64,
    /// Correction of the step time for each entry of `TILES`: ratio of the step time to the time that the formula gives
    /// for the tile's sizes.
    tile_step_ratios: [f64; 13],
    /// Time of a step along K in addition to its matrix multiplications, in memory latencies.
    step_latencies: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matmul_workgroup";
}

/// Maximum number of K-tiles per iteration of the loop over K. A loop that runs only once would be code that the device
/// fetches once, which takes longer than a loop.
const MAX_UNROLL: u32 = 6;

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::MatMul(op) = problem.op else { return Err(OpError::new("not a matmul")) };
    let MatMulSizes { batch, m, k, n } = matmul_sizes(op, problem)
        .ok_or_else(|| OpError::new("a matmul needs operands with at least two axes"))?;
    let (shape, threads) = shape(problem)
        .ok_or_else(|| OpError::new("the target has no cooperative matrices of workgroup scope"))?;
    let mut shader = Shader::new(problem);
    config.declare(&mut shader);
    shader.knob("THREADS", threads);
    let Config { tile_m: tm, tile_n: tn, tile_k: tk, .. } = config;
    let [groups_m, groups_n] = [(&m, tm), (&n, tn)].map(|(size, tile)| size.ceil_div(i64::from(tile)));
    let sizes =
        [("size_m", &m), ("size_n", &n), ("size_k", &k), ("groups_m", &groups_m), ("groups_n", &groups_n)];
    for (name, size) in sizes {
        shader.size(name, size);
    }
    declare_fragment(
        &mut shader,
        ("fragment_a", "MatrixA", "batch: u32, row: u32, k: u32"),
        0,
        ["row", "k"],
        op.trans_a,
    )?;
    match packed_rows(op, problem) {
        Some(packed) => declare_packed_fragment(&mut shader, packed, &n, &k),
        None => {
            let hook = ("fragment_b", "MatrixB", "batch: u32, k: u32, column: u32");
            declare_fragment(&mut shader, hook, 1, ["k", "column"], op.trans_b)?;
        }
    }
    let stores_halves = declare_result(&mut shader, &batch)?;
    let batch = product(&batch);
    let grid =
        Grid { groups: [groups_m.mul(&groups_n), Dim::known(1), batch.clone()], workgroup: [threads, 1, 1] };
    let flops = m.mul(&n).mul(&k).mul(&batch).scale(2);
    let mut launch = shader.finish(KERNEL.name, KERNEL.wgsl, grid, flops);
    launch.subgroup_size = Some(problem.target.subgroup.preferred);
    launch.matrix = Some(MatrixShape { m: tm, n: tn, k: tk, ..shape.clone() });
    launch.stores_halves = stores_halves;
    launch.keeps_loops = true;
    Ok(vec![launch])
}

/// Replaces the hooks that apply the epilogue to elements and store them. Returns true if a matrix of results is stored
/// as f16.
fn declare_result(shader: &mut Shader<'_>, batch: &[Dim]) -> Result<bool, OpError> {
    let params = "row: u32, column: u32, v: f32, batch: u32, first_row: u32, first_column: u32";
    let (prelude, mut axes) = batch_axes(shader, batch);
    axes.extend(["(first_row + row)".to_string(), "(first_column + column)".to_string()]);
    let at = Coordinates::element(axes);
    let device = shader.problem.result.dtype.on_device();
    if declare_store_tile(shader, batch, device) {
        if shader.problem.epilogue.is_empty() && device == DeviceType::F32 {
            shader.constant("MAPPED", false);
        } else {
            let function = shader.element_fn("element", params, &prelude, &at)?;
            shader.replace("element", function);
        }
        return Ok(device == DeviceType::F16);
    }
    shader.constant("STORES_TILE", false);
    shader.replace(
        "store_tile",
        "fn store_tile(batch: u32, row: u32, column: u32, tile: MatrixC) {}".to_string(),
    );
    let function = shader.storing_element_fn("element", params, &prelude, &at)?;
    shader.replace("element", function);
    Ok(false)
}

/// Replaces the hook `store_tile` by a function that stores a matrix of results of type `device`. Returns false if the
/// rows of the result are not contiguous, aligned groups of 16 bytes.
fn declare_store_tile(shader: &mut Shader<'_>, batch: &[Dim], device: DeviceType) -> bool {
    let elements = match device {
        DeviceType::F32 => 4,
        DeviceType::F16 => 8,
        _ => return false,
    };
    let result = &shader.problem.result;
    let Placement::Strided { strides, offset } = &result.placement else { return false };
    let [outer @ .., row, column] = strides.as_slice() else { return false };
    let aligned = outer.iter().chain([row, offset]).all(|stride| stride.is_multiple_of(elements));
    if result.storage != Storage::Buffer || !column.is(1) || !aligned {
        return false;
    }
    let mut in_vectors = |dim: &Dim| shader.dim(&dim.floor_div(elements));
    let outer: Vec<String> = outer.iter().map(&mut in_vectors).collect();
    let [row, offset] = [row, offset].map(in_vectors);
    let (prelude, axes) = batch_axes(shader, batch);
    let mut index = format!("{offset} + row * {row} + column / STORED_ELEMENTS");
    for (axis, stride) in axes.iter().zip(&outer) {
        index += &format!(" + {axis} * {stride}");
    }
    let buffer = shader.bind(Bound::Result, "vec4<f32>", true);
    shader.constant("STORED_ELEMENTS", format!("{elements}u"));
    shader.replace(
        "store_tile",
        format!(
            "fn store_tile(batch: u32, row: u32, column: u32, tile: MatrixC) {{\n{prelude}    coopStoreT(tile, &{buffer}[{index}], {row});\n}}"
        ),
    );
    true
}

/// Replaces a hook that loads a cooperative matrix from operand `index`. `names` are the WGSL coordinates along the
/// operand's last two axes, in the order of the axes if the operand is not transposed.
fn declare_fragment(
    shader: &mut Shader<'_>,
    (hook, ty, params): (&str, &str, &str),
    index: usize,
    names: [&str; 2],
    transposed: bool,
) -> Result<(), OpError> {
    const NOT_CONTIGUOUS: &str = "the operand has no axis with contiguous groups of eight elements";
    let operand = &shader.problem.operands[index];
    let rank = operand.rank();
    let from_end = dense_axis(operand).ok_or_else(|| OpError::new(NOT_CONTIGUOUS))?;
    let (dense, other) = (rank - from_end, rank + from_end - 3);
    let vec8s = as_vec8s(operand, dense).ok_or_else(|| OpError::new(NOT_CONTIGUOUS))?;
    let Placement::Strided { strides, .. } = &operand.placement else {
        return Err(OpError::new("an operand is stored in channel slices, which this kernel cannot read"));
    };
    let stride = strides[other].floor_div(8);
    let (prelude, mut axes) = operand_batch(shader, index);
    axes.extend(if transposed { [names[1], names[0]] } else { names }.map(str::to_string));
    axes[dense] = format!("({} / 8u)", axes[dense]);
    let Access::Vector { index: at } =
        tensor_access(&mut shader.sizes, &vec8s, &Coordinates::vec4(axes, dense), true)
    else {
        return Err(OpError::new(NOT_CONTIGUOUS));
    };
    let stride = shader.dim(&stride);
    let buffer = shader.bind(Bound::Operand(index), "vec4<f32>", false);
    // The matrix is stored by rows if its own second axis is contiguous.
    let load = if (from_end == 1) != transposed { "coopLoadT" } else { "coopLoad" };
    shader.replace(
        hook,
        format!(
            "fn {hook}({params}) -> {ty} {{\n{prelude}    return {load}<{ty}>(&{buffer}[{at}], {stride});\n}}"
        ),
    );
    Ok(())
}

/// Replaces the hook `fragment_b` by a function that loads a cooperative matrix from a packed constant.
fn declare_packed_fragment(shader: &mut Shader<'_>, packed: Packed, n: &Dim, k: &Dim) {
    let (prelude, axes) = operand_batch(shader, 1);
    let shape = &shader.problem.operands[1].shape;
    let index = axes.iter().zip(shape).fold(String::new(), |outer, (axis, size)| match size.as_known() {
        Some(size) if !outer.is_empty() => format!("({outer} * {size}u + {axis})"),
        _ => axis.clone(),
    });
    let index = if index.is_empty() { "0u".to_string() } else { index };
    let bound = shader.packed(packed);
    let buffer = shader.bind(bound, "vec4<f32>", false);
    let (size_k, row_vec8s) = (shader.dim(k), shader.dim(&n.floor_div(8)));
    shader.replace(
        "fragment_b",
        format!(
            "fn fragment_b(batch: u32, k: u32, column: u32) -> MatrixB {{
{prelude}    return coopLoadT<MatrixB>(&{buffer}[({index} * {size_k} + k) * {row_vec8s} + column / 8u], {row_vec8s});
}}"
        ),
    );
}
