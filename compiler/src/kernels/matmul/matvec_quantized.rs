//! `matvec_quantized.wgsl`: small-M matmuls with a quantized constant, whose packed words are streamed once.

use serde::Deserialize;

use super::eligibility::is_eligible;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::tensor::DeviceType;
use crate::kernels::cost::{Parameters, stays_cached};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::kernels::shared::matmul_node::{MatMulNode, VectorWidth};
use crate::kernels::shared::matmul_sizes::{MatMulSizes, batch_axes, matmul_sizes};
use crate::kernels::shared::panel_tile::{PanelTile, TileMemory};
use crate::kernels::shared::quantized::{QuantizedColumns, declare_constant_loads};
use crate::kernels::shared::residual_rows::declare_row_loads;
use crate::kernels::shared::subgroup_sums;
use crate::shader::access::Coordinates;
use crate::shader::pack::quantized_panels::{QuantizedPanels, ROWS as COLUMNS};
use crate::shader::packed_f16;
use crate::shader::problem::Problem;
use crate::shader::quantized::{dequantizes_by_f16_bits, dequantizes_in_f16};
use crate::shader::{Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matvec_quantized",
    wgsl: include_str!("matvec_quantized.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration.
    struct Config {
        /// Invocations per workgroup.
        THREADS => threads: u32,
        /// Rows per workgroup.
        ROWS => rows: u32,
        /// Panels of each constant per workgroup.
        PANELS => panels: u32,
    }
}

/// Maximum rows per workgroup.
const MAX_GROUP_ROWS: i64 = 8;
/// Maximum loads of 16 bytes in flight per invocation. More loads leave registers for fewer invocations.
const MAX_LOADS_IN_FLIGHT: usize = 8;
/// Maximum loads in flight if rows are normalized first, which takes registers too.
const MAX_LOADS_IN_FLIGHT_WITH_NORM: usize = 6;
/// Factor of elements of rows that are not normalized yet, before they become f16, whose maximum is 65504.
const X_SCALE: &str = "0.015625";
/// Maximum K-words of a block.
const MAX_BLOCK_WORDS: usize = 64;
/// Numbers of packed words along K that four invocations (a quad) load at a time. If several give the same number of loads in
/// flight, the kernel uses the last one of this list.
const WORDS_PER_QUAD: [usize; 3] = [1, 4, 2];
/// Quads whose sums one invocation adds, without subgroup sums.
const PARTIAL_QUADS: u32 = 16;

/// Cost parameters. All are positive; `latencies` are multiples of the memory latency.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Weight of the shorter of reading and computing, added to the longer of both. 0 if they overlap completely.
    shorter_time_weight: f64,
    /// Memory latencies per step if the weights stay in the cache.
    cached_step_latencies: f64,
    /// Operations per quantized value that is dequantized to f32, in addition to its multiply-adds.
    dequantize_operations: f64,
    /// Memory latencies before the first load and after the last load.
    fixed_latencies: f64,
    /// Memory latencies per step if the weights come from memory.
    uncached_step_latencies: f64,
    /// Memory latencies per operation of one invocation alone.
    operation_latencies: f64,
    /// Operations per quantized value that is dequantized to an f16 pair, in addition to its multiply-adds.
    f16_dequantize_operations: f64,
    /// Memory latencies per element of a row that an invocation normalizes.
    norm_element_latencies: f64,
    /// Fraction of the peak FLOP/s that dequantizing and multiplying reach; 0 to 1.
    peak_fraction: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matvec_quantized";
}

/// A matmul with its fused operations and its quantized constants.
struct QuantizedMatMul<'a> {
    node: MatMulNode<'a>,
    columns: QuantizedColumns,
}

impl<'a> QuantizedMatMul<'a> {
    /// Returns `None` if the operator is not a matmul, or its constants are not quantized along K in the same layout.
    fn from_problem(problem: &Problem<'a>) -> Option<Self> {
        let node = MatMulNode::from_problem(problem)?;
        let columns = QuantizedColumns::from_operands(node.matmul, problem, node.matrices())?;
        Some(Self { node, columns })
    }
}

/// K-words of a panel, see `matvec_quantized.wgsl`.
#[derive(Debug, Clone, Copy)]
struct KWords {
    /// K-words of a block, which have the same scale and are added before it is applied; `None` with a single group.
    block: Option<usize>,
    per_group: usize,
    count: usize,
}

/// Split of a panel's K-words over its invocations.
#[derive(Debug, Clone, Copy)]
struct KWordSplit {
    /// K-words of a block, and quads of invocations that take a block together.
    block_words: usize,
    block_quads: usize,
    /// Blocks that an invocation has in flight.
    blocks_in_flight: usize,
    /// Blocks of a panel.
    k_blocks: usize,
    /// True if the last step has as many K-words as the others.
    whole_steps: bool,
}

impl KWords {
    /// Returns `None` if a group ends within a packed word.
    fn from_columns(columns: &QuantizedColumns) -> Option<Self> {
        let panels = &columns.panels;
        let count = panels.words_per_row();
        if panels.groups_per_row() <= 1 {
            return Some(Self { block: None, per_group: count, count });
        }
        let per_group = panels.group_size / panels.values_per_word();
        let block = (1..=MAX_BLOCK_WORDS).rev().find(|words| per_group.is_multiple_of(*words))?;
        columns.has_whole_word_groups().then_some(Self { block: Some(block), per_group, count })
    }

    /// Returns the split over `panel_threads` invocations: in whole steps if possible, with as many loads in flight as
    /// allowed.
    fn split(&self, panel_threads: usize, has_norm: bool) -> Option<KWordSplit> {
        let max_loads = if has_norm { MAX_LOADS_IN_FLIGHT_WITH_NORM } else { MAX_LOADS_IN_FLIGHT };
        let quads = panel_threads / 4;
        let splits = WORDS_PER_QUAD.into_iter().filter_map(|words_per_quad| {
            let block_words = self.block.unwrap_or(quads * words_per_quad);
            let block_quads = block_words / words_per_quad;
            if !block_words.is_multiple_of(words_per_quad) || block_quads > quads {
                return None;
            }
            let k_blocks = self.count.div_ceil(block_words);
            let rounds = k_blocks.div_ceil(quads / block_quads);
            let limit = (max_loads / words_per_quad).clamp(1, rounds);
            let even = k_blocks.is_multiple_of(quads / block_quads) && quads.is_multiple_of(block_quads);
            let divisor = (1..=limit).rev().find(|blocks| rounds.is_multiple_of(*blocks)).unwrap_or(1);
            let whole_steps = even && self.count.is_multiple_of(block_words);
            let blocks_in_flight = if whole_steps { divisor } else { limit };
            Some(KWordSplit { block_words, block_quads, blocks_in_flight, k_blocks, whole_steps })
        });
        splits.max_by_key(|split| {
            (split.whole_steps, split.blocks_in_flight * split.block_words / split.block_quads)
        })
    }
}

/// Quads whose sums are added in the first step: the quads of a subgroup where possible.
fn partial_quads(subgroup_lanes: Option<u32>) -> u32 {
    subgroup_lanes.map_or(PARTIAL_QUADS, |lanes| lanes / 4)
}

/// Workgroup memory of the sums, and of the K-words of normalized rows.
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

/// Number of sums per row that the norm computes: the sum of squares, and with a single group the offset and the sum of
/// the elements, if they are needed.
fn row_sums(problem: &Problem<'_>, matmul: &QuantizedMatMul<'_>) -> u32 {
    let panels = &matmul.columns.panels;
    if panels.groups_per_row() > 1 {
        1
    } else {
        1 + u32::from(!multiplies_f16_pairs(problem, panels)) + u32::from(panels.bias_type.is_some())
    }
}

/// True if two f16 are multiplied at a time: if values are converted through f16 and rows are stored in f16. 8-bit
/// values gain nothing, because reading them takes longer than multiplying.
fn multiplies_f16_pairs(problem: &Problem<'_>, panels: &QuantizedPanels) -> bool {
    let f16_rows = problem.operands.first().is_some_and(|rows| rows.dtype.on_device() == DeviceType::F16);
    panels.bits == 4 && f16_rows && dequantizes_in_f16(problem.target)
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let (Some(matmul), Some(p)) = (QuantizedMatMul::from_problem(problem), Params::of(problem)) else {
        return Vec::new();
    };
    let QuantizedMatMul { node, columns } = matmul;
    let (Some(sizes), Some(k_words)) = (matmul_sizes(node.matmul, problem), KWords::from_columns(&columns))
    else {
        return Vec::new();
    };
    let (panels, matrices) = (columns.panels, node.matrices() as f64);
    let (m, n, k) = (problem.max(&sizes.m), problem.max(&sizes.n), problem.max(&sizes.k));
    if !is_eligible(KERNEL.name, problem) {
        return Vec::new();
    }
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let [batch, serial_batches] = node.parallel_and_serial_batches(problem, &sizes.batch);
    let rows = m.clamp(1, MAX_GROUP_ROWS);
    let row_blocks = (m as f64 / rows as f64).ceil();
    let panel_count = (n as f64 / COLUMNS as f64).ceil();
    let bytes = problem.read_bytes(1) as f64 * matrices;
    let bandwidth = machine.bandwidth_gb_s.max(1e-3);
    let cached = stays_cached(problem, bytes);
    let wait =
        if cached { p.cached_step_latencies } else { p.uncached_step_latencies } * machine.memory_latency_ns;
    let streaming = bytes / bandwidth;
    // The costs that grow with the rows must not depend on the tile, and the tile must not depend on the rows. Then
    // each row has the same sums for every M. Blocks of rows that read the same panel run concurrently, so all but one
    // of them read it from the cache.
    let repeated_reads = bytes * (row_blocks - 1.0) / machine.cache_bandwidth_gb_s.max(1e-3);
    let (multiply_operations, dequantize_operations) = if multiplies_f16_pairs(problem, &panels) {
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
    let row_time = other_traffic
        + p.shorter_time_weight * computing
        + (repeated_reads + computing - streaming).max(0.0)
        + serial_batches * streaming;
    let subgroup_lanes = subgroup_sums::subgroup_lanes(problem);
    let is_useful = |panel_threads: u32| panel_threads as usize / 4 <= k_words.count;
    let tiles = PanelTile::enumerate(problem, &node, rows as u32, subgroup_lanes, is_useful, |tile| {
        memory(problem, &matmul, tile, subgroup_lanes)
    });
    let mut out = Vec::new();
    for (tile, TileMemory { stored_items, .. }) in tiles {
        let PanelTile { threads, panels: group_panels, .. } = tile;
        let panel_threads = tile.panel_threads(&node);
        let groups = (panel_count / f64::from(group_panels)).ceil();
        let fits = groups * row_blocks <= f64::from(limits.max_workgroup_count[0])
            && batch <= f64::from(limits.max_workgroup_count[2])
            && (group_panels == 1 || f64::from(group_panels) <= panel_count)
            && node.supports_panels(group_panels, COLUMNS as u32);
        let Some(split) = k_words.split(panel_threads as usize, node.has_norm()).filter(|_| fits) else {
            continue;
        };
        let KWordSplit { block_words, block_quads, blocks_in_flight, .. } = split;
        let quads = panel_threads as usize / 4 / block_quads * block_quads;
        let room = f64::from(machine.compute_units) * f64::from(machine.invocations_per_unit);
        let rounds = (groups * batch * f64::from(threads) / room).ceil();
        let loads_in_flight = blocks_in_flight * block_words / block_quads;
        let steps = (k_words.count as f64 / (quads * loads_in_flight) as f64).ceil();
        let values = (k_words.count * 4 * panels.values_per_word()) as f64 / quads as f64;
        let alone = values
            * (multiply_operations + dequantize_operations)
            * p.operation_latencies
            * machine.memory_latency_ns;
        let norm_elements = f64::from(node.norm_count()) * (k as f64 / f64::from(threads)).ceil();
        let normalizing = norm_elements * p.norm_element_latencies;
        let waiting = rounds * (steps * wait + alone + normalizing * machine.memory_latency_ns);
        let reading = streaming.max(waiting) + p.shorter_time_weight * streaming.min(waiting);
        // Four sums of each invocation, or of one invocation per subgroup, are written to workgroup memory and read
        // again.
        let sum_bytes = groups * batch * f64::from(threads) * 32.0
            / f64::from(subgroup_lanes.map_or(1, |lanes| lanes / 4));
        let adding = sum_bytes / machine.cache_bandwidth_gb_s.max(1e-3);
        out.push(Candidate {
            knobs: Config { threads, rows: rows as u32, panels: group_panels }.knobs(),
            cost: reading
                + adding
                + row_time
                + p.fixed_latencies * machine.memory_latency_ns
                + machine.launch_us * 1e3,
            reason: format!(
                "{m} rows{}: {panel_threads} invocations per panel of {COLUMNS} columns of {}-bit weights, blocks of {block_words} packed words by {} invocations, {loads_in_flight} loads in flight",
                if stored_items > 0 { " in workgroup memory" } else { "" },
                panels.bits,
                block_quads * 4
            ),
        });
    }
    out
}

/// Declares the format of the weights and the split of K.
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

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<Launch>, OpError> {
    let unsupported = || OpError::new("not a small-M matmul with constants that are quantized along K");
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
    let mut launch = shader.finish("matvec_quantized", KERNEL.wgsl, grid, flops)?;
    launch.subgroup_size = subgroup_lanes;
    Ok(vec![launch])
}
