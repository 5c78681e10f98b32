//! `matvec_quantized.wgsl`: small-M matmuls with a quantized constant, whose packed words are streamed once.

use serde::Deserialize;

use super::eligibility::is_eligible;
use super::quantized_matmul::{KWordSplit, KWords, QuantizedMatMul, multiplies_f16_pairs, row_sums};
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::kernels::cost::{Estimate, Overlap, Parameters, stays_cached};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::kernels::shared::matmul_node::VectorWidth;
use crate::kernels::shared::matmul_sizes::{MatMulSizes, batch_axes, matmul_sizes};
use crate::kernels::shared::panel_tile::{PanelTile, TileMemory};
use crate::kernels::shared::quantized::{QuantizedColumns, declare_constant_loads};
use crate::kernels::shared::residual_rows::declare_row_loads;
use crate::kernels::shared::subgroup_sums;
use crate::shader::access::Coordinates;
use crate::shader::pack::quantized_panels::ROWS as COLUMNS;
use crate::shader::packed_f16;
use crate::shader::problem::Problem;
use crate::shader::quantized::dequantizes_by_f16_bits;
use crate::shader::{Grid, LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matvec_quantized",
    wgsl: include_str!("matvec_quantized.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration of the kernel `matvec_quantized`.
    struct Config {
        /// Invocations per workgroup.
        THREADS => threads: u32,
        /// Number of rows that a workgroup computes.
        ROWS => rows: u32,
        /// Number of panels (blocks of 16 columns) of each weight matrix that a workgroup computes.
        PANELS => panels: u32,
    }
}

/// Maximum numbers of rows that a workgroup computes. Fewer rows dequantize the weights more often, but need fewer registers.
const MAX_GROUP_ROWS: [i64; 2] = [8, 4];
/// Factor by which elements of a row with a fused norm are multiplied before they become f16. The norm is applied
/// later, so without the factor elements could exceed 65504, the maximum of f16.
const X_SCALE: &str = "0.015625";
/// Number of quads (four invocations) whose sums one invocation adds, on devices where the kernel does not add sums by
/// subgroup operations.
const PARTIAL_QUADS: u32 = 16;

/// Cost parameters of the kernel `matvec_quantized`. All are positive; fields named `.._latencies` are multiples of the
/// memory latency.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Weight with which the shorter of two times (reading the weights, computing) is added to the longer one. 0 if the
    /// two times overlap completely.
    shorter_time_weight: f64,
    /// Time of a step along K if the weights stay in the cache, in memory latencies.
    cached_step_latencies: f64,
    /// Floating-point operations to dequantize one value to f32, in addition to its multiply-adds.
    dequantize_operations: f64,
    /// Fixed time before the first load and after the last load, in memory latencies.
    fixed_latencies: f64,
    /// Time of a step along K if the weights come from memory, in memory latencies.
    uncached_step_latencies: f64,
    /// Time of a floating-point operation of an invocation that runs alone, in memory latencies.
    operation_latencies: f64,
    /// Floating-point operations to dequantize one value as part of an f16 pair, in addition to its multiply-adds.
    f16_dequantize_operations: f64,
    /// Time per element of a row that an invocation normalizes (fused RMSNorm), in memory latencies.
    norm_element_latencies: f64,
    /// Fraction of the peak FLOP/s that dequantizing and multiplying reach; 0 to 1.
    peak_fraction: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matvec_quantized";
}

/// Returns the number of quads (four invocations) whose sums are added in the first step of the reduction: the quads of
/// a subgroup where possible.
fn partial_quads(subgroup_lanes: Option<u32>) -> u32 {
    subgroup_lanes.map_or(PARTIAL_QUADS, |lanes| lanes / 4)
}

/// Returns the workgroup memory that a tile needs for sums and for normalized rows, or `None` if the target has too little.
fn memory(
    problem: &Problem<'_>,
    matmul: &QuantizedMatMul<'_>,
    tile: PanelTile,
    subgroup_lanes: Option<u32>,
) -> Option<TileMemory> {
    let partials = tile.threads / 4 / partial_quads(subgroup_lanes);
    let has_norm = matmul.node.has_norm();
    let invocations = if subgroup_lanes.is_some() { 0 } else { tile.threads };
    let sums = (invocations + partials * 4) * 16
        + if has_norm { (invocations + partials * tile.rows * row_sums(problem, matmul)) * 4 } else { 0 }
        + matmul.node.inner_factor_bytes(tile.rows);
    let panels = &matmul.columns.panels;
    let k_words = u32::try_from(panels.words_per_row()).ok()?.checked_mul(tile.rows)?;
    let sum_bytes = if panels.groups_per_row() > 1 { 8 } else { 0 };
    let x_bytes = if multiplies_f16_pairs(problem, panels) {
        16
    } else {
        u32::try_from(panels.values_per_word()).ok()?.checked_mul(4)?
    };
    let word_bytes = x_bytes.checked_add(sum_bytes)?;
    TileMemory::choose(problem, sums, has_norm.then_some(k_words), word_bytes)
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let (Some(matmul), Some(p)) = (QuantizedMatMul::from_problem(problem), Params::from_problem(problem))
    else {
        return Vec::new();
    };
    let QuantizedMatMul { node, columns } = &matmul;
    let (Some(sizes), Some(k_words)) = (matmul_sizes(node.matmul, problem), KWords::from_columns(columns))
    else {
        return Vec::new();
    };
    if !is_eligible(KERNEL.name, problem) {
        return Vec::new();
    }
    let m = problem.max(&sizes.m);
    let mut all_rows = MAX_GROUP_ROWS.map(|most| m.clamp(1, most) as u32).to_vec();
    all_rows.dedup();
    let work = |rows| Work::new(&p, problem, &matmul, &sizes, &k_words, rows);
    all_rows
        .into_iter()
        .flat_map(|rows| candidates_for_rows(&work(rows), problem.max(&sizes.n), rows))
        .collect()
}

/// Returns the candidates whose workgroups compute `rows` rows of `n` columns.
fn candidates_for_rows(work: &Work<'_>, n: i64, rows: u32) -> Vec<Candidate> {
    let Work { problem, k_words, subgroup_lanes, m, .. } = *work;
    let QuantizedMatMul { node, columns } = work.matmul;
    let limits = &problem.target.limits;
    let panel_count = (n as f64 / COLUMNS as f64).ceil();
    let is_useful = |panel_threads: u32| panel_threads as usize / 4 <= k_words.count;
    let tiles = PanelTile::enumerate(problem, node, rows, subgroup_lanes, is_useful, |tile| {
        memory(problem, work.matmul, tile, subgroup_lanes)
    });
    let mut out = Vec::new();
    for (tile, TileMemory { stored_items, .. }) in tiles {
        let PanelTile { threads, panels, .. } = tile;
        let panel_threads = tile.panel_threads(node);
        let groups = (panel_count / f64::from(panels)).ceil();
        let fits = groups * work.row_blocks <= f64::from(limits.max_workgroup_count[0])
            && work.batch <= f64::from(limits.max_workgroup_count[2])
            && (panels == 1 || f64::from(panels) <= panel_count)
            && node.supports_panels(panels, COLUMNS as u32);
        let Some(split) = k_words.split(panel_threads as usize, node.has_norm()).filter(|_| fits) else {
            continue;
        };
        let reason = format!(
            "{m} rows in blocks of {rows}{}: {panel_threads} invocations per panel of {COLUMNS} columns of {}-bit weights; blocks of {} packed words along K, each computed by {} invocations with {} loads in flight",
            if stored_items > 0 { " in workgroup memory" } else { "" },
            columns.panels.bits,
            split.block_words,
            split.block_quads * 4,
            split.loads_in_flight()
        );
        let config = Config { threads, rows, panels };
        let candidate = Candidate::new(&config, work.estimate(tile, groups, &split), reason);
        // The tile must not depend on the rows, so that each row has the same sums for every M.
        out.push(candidate.with_facts_by("ROWS"));
    }
    out
}

/// Work of a matmul that does not depend on the tile, as input of the estimate.
struct Work<'a> {
    p: &'a Params,
    problem: &'a Problem<'a>,
    matmul: &'a QuantizedMatMul<'a>,
    k_words: &'a KWords,
    /// Number of invocations of a subgroup that add their partial sums by subgroup operations; `None` if the kernel uses no
    /// subgroup operations.
    subgroup_lanes: Option<u32>,
    /// Maximum M.
    m: i64,
    /// Maximum K.
    k: i64,
    /// Number of blocks of rows; a workgroup computes one block.
    row_blocks: f64,
    /// Number of positions along the batch axes of the matmul, which the device computes concurrently.
    batch: f64,
    /// Floating-point operations to multiply one value and add the product.
    multiply_operations: f64,
    /// Floating-point operations to dequantize one value.
    dequantize_operations: f64,
    /// Nanoseconds of a step along K.
    step_ns: f64,
    /// Nanoseconds to read the weights of the first batch from memory.
    streaming_ns: f64,
    /// Nanoseconds of the work whose time increases with the number of rows or batches.
    row_ns: f64,
}

impl<'a> Work<'a> {
    /// Returns the work of a matmul whose workgroups compute `rows` rows each.
    fn new(
        p: &'a Params,
        problem: &'a Problem<'a>,
        matmul: &'a QuantizedMatMul<'a>,
        sizes: &MatMulSizes,
        k_words: &'a KWords,
        rows: u32,
    ) -> Self {
        let machine = &problem.target.machine;
        let QuantizedMatMul { node, columns } = matmul;
        let matrices = node.matrices() as f64;
        let (m, n, k) = (problem.max(&sizes.m), problem.max(&sizes.n), problem.max(&sizes.k));
        let [batch, serial_batches] = node.parallel_and_serial_batches(problem, &sizes.batch);
        let row_blocks = (m as f64 / f64::from(rows)).ceil();
        let bytes = problem.read_bytes(1) as f64 * matrices;
        let bandwidth = machine.bandwidth_gb_s.max(1e-3);
        let streaming_ns = bytes / bandwidth;
        let cached = stays_cached(problem, bytes);
        let step_latencies = if cached { p.cached_step_latencies } else { p.uncached_step_latencies };
        // The costs that grow with the rows must not depend on the tile, and the tile must not depend on the rows. Then
        // each row has the same sums for every M. Blocks of rows that read the same panel run concurrently, so all but
        // one of them read it from the cache.
        let repeated_reads = bytes * (row_blocks - 1.0) / machine.cache_bandwidth_gb_s.max(1e-3);
        let (multiply_operations, dequantize_operations) = if multiplies_f16_pairs(problem, &columns.panels) {
            (1.0, p.f16_dequantize_operations)
        } else {
            (2.0, p.dequantize_operations)
        };
        let operations = (n * k) as f64
            * matrices
            * batch
            * (multiply_operations * m as f64 + dequantize_operations * row_blocks);
        let computing = operations / (machine.peak.f32 * p.peak_fraction).max(1e-3);
        let other_traffic = (problem.traffic() as f64 - bytes).max(0.0) / bandwidth;
        let row_ns = other_traffic
            + p.shorter_time_weight * computing
            + (repeated_reads + computing - streaming_ns).max(0.0)
            + serial_batches * streaming_ns;
        let step_ns = step_latencies * machine.memory_latency_ns;
        Self {
            p,
            problem,
            matmul,
            k_words,
            subgroup_lanes: subgroup_sums::subgroup_lanes(problem),
            m,
            k,
            row_blocks,
            batch,
            multiply_operations,
            dequantize_operations,
            step_ns,
            streaming_ns,
            row_ns,
        }
    }

    /// Returns the estimated time of a tile, if `groups` workgroups compute each block of rows.
    fn estimate(&self, tile: PanelTile, groups: f64, split: &KWordSplit) -> Estimate {
        let Self { p, problem, k_words, .. } = self;
        let QuantizedMatMul { node, columns } = self.matmul;
        let machine = &problem.target.machine;
        let latency = machine.memory_latency_ns;
        let quads = tile.panel_threads(node) as usize / 4 / split.block_quads * split.block_quads;
        let room = machine.invocations();
        let threads = f64::from(tile.threads);
        let rounds = (groups * self.batch * threads / room).ceil();
        let steps = (k_words.count as f64 / (quads * split.loads_in_flight()) as f64).ceil();
        let values = (k_words.count * 4 * columns.panels.values_per_word()) as f64 / quads as f64;
        let operations = self.multiply_operations + self.dequantize_operations;
        let alone = values * operations * p.operation_latencies * latency;
        let norm_elements = f64::from(node.norm_count()) * (self.k as f64 / threads).ceil();
        let normalizing = norm_elements * p.norm_element_latencies;
        // Four sums of each invocation, or of one invocation per subgroup, are written to workgroup memory and read
        // again.
        let lanes_per_sum = self.subgroup_lanes.map_or(1, |lanes| lanes / 4);
        let sum_bytes = groups * self.batch * threads * 32.0 / f64::from(lanes_per_sum);
        Estimate {
            memory: self.streaming_ns,
            latency: rounds * (steps * self.step_ns + alone + normalizing * latency),
            overlap: Overlap::PartialReads { shorter_weight: p.shorter_time_weight },
            serial: sum_bytes / machine.cache_bandwidth_gb_s.max(1e-3) + self.row_ns,
            fixed: p.fixed_latencies * latency,
            ..Estimate::for_dispatches(problem, 1.0)
        }
    }
}

/// Declares the WGSL constants of the weights' packed format and of the split of K.
fn declare_constants(
    shader: &mut Shader<'_>,
    matmul: &QuantizedMatMul<'_>,
    k_words: &KWords,
    split: &KWordSplit,
) {
    let (problem, panels) = (shader.problem, &matmul.columns.panels);
    let KWordSplit { block_words, block_quads, blocks_in_flight, whole_steps, .. } = *split;
    let whole_steps = whole_steps && panels.depth.is_multiple_of(panels.values_per_word());
    let constants = [
        ("BITS", panels.bits),
        ("BLOCK_WORDS", block_words),
        ("BLOCK_QUADS", block_quads),
        ("BLOCKS_IN_FLIGHT", blocks_in_flight),
    ];
    for (name, value) in constants {
        shader.constant(name, format_args!("{value}u"));
    }
    shader.constant("GROUPED", k_words.block.is_some());
    shader.constant("BIASED", panels.bias_type.is_some());
    shader.constant("GUARD_K", !whole_steps);
    shader.constant("VIA_F16", dequantizes_by_f16_bits(problem.target));
    shader.constant("ZERO_POINT", format_args!("{}.0", panels.zero_point));
    let f16_pairs = multiplies_f16_pairs(problem, panels);
    let x_vec4s = if f16_pairs { 1 } else { panels.values_per_word() as u32 / 4 };
    shader.constant("F16_PAIRS", f16_pairs);
    shader.knob("X_VEC4S", x_vec4s);
    if f16_pairs {
        shader.add_f16_pair_functions(panels);
        for (name, function) in packed_f16::f16_matvec_hooks() {
            shader.replace(name, function);
        }
        shader.constant("SUM_FACTOR", format_args!("{}.0", packed_f16::quantized_to_f16_ratio(panels)));
        shader.constant("X_SCALE", if matmul.node.has_norm() { X_SCALE } else { "1.0" });
    }
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let unsupported =
        || OpError::new("the operator is not a small-M matmul with constants that are quantized along K");
    let matmul = QuantizedMatMul::from_problem(problem).ok_or_else(unsupported)?;
    let QuantizedMatMul { node, columns } = matmul;
    let op = node.matmul;
    let MatMulSizes { batch, m, k, n } = matmul_sizes(op, problem)
        .ok_or_else(|| OpError::new("a matmul needs operands with at least two axes"))?;
    let k_words = KWords::from_columns(&columns).ok_or_else(unsupported)?;
    let QuantizedColumns { panels, columns_per_matrix } = columns;
    let mut shader = Shader::new(problem);
    config.declare(&mut shader);
    let Config { threads, rows, panels: group_panels } = config;
    let tile = PanelTile { threads, panels: group_panels, rows };
    let panel_threads = threads as usize / node.matrices() / group_panels as usize;
    let split = k_words.split(panel_threads, node.has_norm()).ok_or_else(unsupported)?;
    let KWordSplit { block_words, k_blocks, .. } = split;
    let subgroup_lanes = subgroup_sums::subgroup_lanes(problem);
    let TileMemory { bytes, stored_items } = memory(problem, &matmul, tile, subgroup_lanes)
        .ok_or_else(|| OpError::new("the tile needs more workgroup memory than the target has"))?;
    declare_constants(&mut shader, &matmul, &k_words, &split);
    shader.size("size_m", &m);
    shader.size("size_n", &n);
    shader.size("size_k", &k);
    shader.size("row_blocks", &m.ceil_div(i64::from(rows)));
    let panels_per_matrix = columns_per_matrix.map_or(0, |columns| columns / COLUMNS);
    let blocks_per_group = (k_words.per_group / block_words).max(1);
    let sizes = [
        ("panel_vec4s", panels.panel_vec4s()),
        ("k_blocks", k_blocks),
        ("blocks_per_group", blocks_per_group),
    ];
    for (name, size) in sizes {
        shader.replace(name, format!("fn {name}() -> u32 {{ return {size}u; }}"));
    }
    node.declare_first_panel(&mut shader, panels_per_matrix);
    shader.workgroup_memory(bytes);
    shader.size("last_panel", &n.plus(-1).floor_div(COLUMNS as i64));
    shader.constant("K_WORDS", format_args!("{}u", k_words.count));
    shader.constant("STORED", stored_items > 0);
    shader.knob("STORED_WORDS", stored_items.max(1));
    shader.knob("PARTIAL_QUADS", partial_quads(subgroup_lanes));
    shader.knob("ROW_SUMS", row_sums(problem, &matmul));
    if let Some(lanes) = subgroup_lanes {
        subgroup_sums::declare_subgroup_sums(&mut shader, lanes, 4, false);
    }

    declare_row_loads(&node, &mut shader, VectorWidth::Vec4)?;
    declare_constant_loads(&mut shader, node.matrices(), |shader, name, index| {
        shader.add_scale_functions(name, index)
    })?;
    node.declare_fusions(&mut shader, VectorWidth::Vec4)?;
    node.declare_rotation(&mut shader, COLUMNS as u32);
    let (prelude, mut axes) = batch_axes(&mut shader, &batch);
    axes.extend(["row".to_string(), "n4".to_string()]);
    let lane = axes.len() - 1;
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &Coordinates::vec4(axes, lane))?;

    let batch = product(&batch);
    let flops = m.mul(&n).mul(&k).mul(&batch).scale(2 * node.matrices() as i64);
    let panel_groups = n.ceil_div(COLUMNS as i64 * i64::from(group_panels));
    let groups = [panel_groups.mul(&m.ceil_div(i64::from(rows))), Dim::known(1), batch];
    let grid = Grid { groups, workgroup: [threads, 1, 1] };
    let mut launch = shader.finish("matvec_quantized", KERNEL.wgsl, grid, flops);
    launch.subgroup_size = subgroup_lanes;
    Ok(vec![launch])
}
