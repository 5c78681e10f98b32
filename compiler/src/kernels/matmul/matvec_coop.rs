//! `matvec_coop.wgsl`: small-M matmuls of several rows with a quantized constant, on matrix units.

use serde::Deserialize;

use super::eligibility::is_eligible;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;
use crate::kernels::cost::{Estimate, Overlap, Parameters};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel, config};
use crate::kernels::shared::coop;
use crate::kernels::shared::matmul_node::{MatMulNode, VectorWidth};
use crate::kernels::shared::matmul_sizes::{MatMulSizes, matmul_sizes, single_matrix_coordinates};
use crate::kernels::shared::quantized::{MAX_SMALL_M, QuantizedColumns, declare_constant_loads};
use crate::shader::pack::quantized_panels::ROWS as COLUMNS;
use crate::shader::problem::Problem;
use crate::shader::quantized::vec8_shares_scale;
use crate::shader::{Bound, Grid, LaunchDraft, Need, Shader};
use crate::target::{MatrixScope, MatrixShape, SubgroupOp};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matvec_coop",
    wgsl: include_str!("matvec_coop.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: Some(MatrixScope::Subgroup),
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration of the kernel `matvec_coop`.
    struct Config {
        /// Subgroups per workgroup.
        SUBGROUPS => subgroups: u32,
        /// Number of panels (blocks of 16 columns) of each constant that a workgroup computes.
        PANELS => panels: u32,
        /// Number of steps along K that a subgroup loads before it multiplies the first.
        STEPS_IN_FLIGHT => steps_in_flight: u32,
    }
}

/// Numbers of subgroups per workgroup that are tried.
const SUBGROUPS: [u32; 3] = [4, 8, 16];
/// Numbers of panels (blocks of 16 columns) of each weight matrix per workgroup that are tried.
const PANELS: [u32; 2] = [1, 2];
/// Maximum number of panels (blocks of 16 columns) per workgroup, over all weight matrices of the matmul. The sums of
/// all panels stay in registers.
const MAX_WORKGROUP_PANELS: u32 = 4;
/// Values that are tried for the number of steps along K that a subgroup loads before it multiplies the first of them.
/// Larger numbers are not tried: the shader repeats its code for each step, and fetching code that runs once takes
/// longer than running it.
const STEPS_IN_FLIGHT: [u32; 2] = [1, 2];

/// Cost parameters of the kernel `matvec_coop`. All are positive; fields named `.._latencies` are multiples of the
/// memory latency.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Weight for three times: streaming the weights, computing, and waiting for loads. The two shorter times,
    /// multiplied by the weight, are added to the longest. 0 if all three overlap completely.
    shorter_time_weight: f64,
    /// Floating-point operations to dequantize one value.
    dequantize_operations: f64,
    /// Fixed time before the first load and after the last load, in memory latencies.
    fixed_latencies: f64,
    /// Time to fetch the instructions for one step along K of one panel (a block of 16 columns), in memory latencies.
    instruction_fetch_latencies: f64,
    /// Time of a round of loads that are in flight together, in memory latencies.
    round_latencies: f64,
    /// Floating-point operations per element of a row that a workgroup reads and copies to workgroup memory.
    row_element_operations: f64,
    /// Fraction of the peak FLOP/s that dequantizing weights and staging rows reach; 0 to 1.
    peak_fraction: f64,
    /// Time of a subgroup for one step along K of one panel (a block of 16 columns), in addition to the time of the
    /// round of loads, in memory latencies.
    step_latencies: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matvec_coop";
}

/// A matmul that the kernel `matvec_coop` can compute: its node, its quantized constants and its sizes.
struct CoopMatMul<'a> {
    node: MatMulNode<'a>,
    columns: QuantizedColumns,
    sizes: MatMulSizes,
}

impl<'a> CoopMatMul<'a> {
    /// Returns the matmul of a problem, or `None` if the kernel cannot compute it. The constants must be quantized
    /// along K, all in one layout that the kernel reads. There must be no batch and no residual.
    fn from_problem(problem: &Problem<'a>) -> Option<Self> {
        let node = MatMulNode::from_problem(problem).filter(|node| node.residual().is_none())?;
        let columns = QuantizedColumns::from_operands(node.matmul, problem, node.matrices())?;
        let sizes = matmul_sizes(node.matmul, problem)?;
        let single_matmul =
            product(&sizes.batch).is(1) && columns.columns_per_matrix.is_none() && !node.matmul.trans_a;
        let whole_k8 = columns.panels.depth.is_multiple_of(8) && vec8_shares_scale(&columns.panels);
        (single_matmul && whole_k8).then_some(Self { node, columns, sizes })
    }

    /// True if the quantization scale is applied to each value when it is dequantized. Otherwise the scale is applied
    /// to the sums.
    fn scales_values(&self) -> bool {
        self.columns.panels.groups_per_row() > 1 || self.columns.panels.bias_type.is_some()
    }

    /// True if matrix fragments of the rows can be loaded from global memory. The maximum number of rows must then be a
    /// multiple of the rows of a fragment.
    fn loads_row_fragments(&self, problem: &Problem<'_>, shape: &MatrixShape) -> bool {
        let Some(rows) = problem.operands.first() else { return false };
        rows.dtype.on_device() == DeviceType::F16
            && rows.storage == Storage::Buffer
            && rows.constant.is_none()
            && rows.placement.is_dense(&rows.shape)
            && !self.node.has_norm()
            && problem.max(&self.sizes.m) % i64::from(shape.m) == 0
            && self.k8s().is_multiple_of(k8s_per_step(problem))
    }

    /// Returns the number of 16-byte vectors that hold the quantized values of eight K positions of four columns.
    fn vectors_per_k8(&self) -> u32 {
        if self.columns.panels.bits == 4 { 1 } else { 2 }
    }

    /// Returns K divided by eight: the number of groups of eight K positions.
    fn k8s(&self) -> u32 {
        u32::try_from(self.columns.panels.depth / 8).unwrap_or(u32::MAX)
    }
}

/// Tile that a workgroup of `matvec_coop` computes.
#[derive(Debug, Clone, Copy)]
struct CoopTile {
    threads: u32,
    /// Number of panels (blocks of 16 columns) that a workgroup computes, over all weight matrices.
    workgroup_panels: u32,
    /// Number of steps along K that a subgroup loads together.
    steps_in_flight: u32,
    /// Number of rounds. In a round, each subgroup loads and multiplies `steps_in_flight` steps.
    rounds: u32,
    /// Workgroup memory of the tile, in bytes.
    workgroup_bytes: u32,
}

impl CoopTile {
    /// Returns the tile that a workgroup computes with a configuration.
    fn from_config(
        matmul: &CoopMatMul<'_>,
        problem: &Problem<'_>,
        shape: &MatrixShape,
        Config { subgroups, panels, steps_in_flight }: Config,
    ) -> Self {
        let lanes = problem.target.subgroup.preferred;
        let row_stride = k8s_per_step(problem) + 1;
        let height = max_rows(problem, &matmul.sizes).next_multiple_of(shape.m);
        let workgroup_panels = matmul.node.matrices() as u32 * panels;
        let subgroup_steps = matmul.k8s().div_ceil(k8s_per_step(problem)).div_ceil(subgroups);
        let rounds = subgroup_steps.div_ceil(steps_in_flight).max(1);
        let staged_rows = if matmul.loads_row_fragments(problem, shape) { 0 } else { height };
        let subgroup_vectors =
            ((staged_rows + COLUMNS as u32) * row_stride).max(workgroup_panels * height * COLUMNS as u32 / 4);
        let workgroup_bytes = subgroups * (subgroup_vectors * 16 + height * 4);
        Self { threads: subgroups * lanes, workgroup_panels, steps_in_flight, rounds, workgroup_bytes }
    }
}

/// Returns the number of groups of eight K positions that a subgroup multiplies in one step.
fn k8s_per_step(problem: &Problem<'_>) -> u32 {
    problem.target.subgroup.preferred / 4
}

/// Returns the maximum number of rows of the matmul.
fn max_rows(problem: &Problem<'_>, sizes: &MatMulSizes) -> u32 {
    problem.max(&sizes.m).clamp(1, MAX_SMALL_M) as u32
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let (Some(matmul), Some(p), Some(shape)) =
        (CoopMatMul::from_problem(problem), Params::from_problem(problem), coop::f16_matrix_shape(problem))
    else {
        return Vec::new();
    };
    let target = problem.target;
    let (machine, limits) = (&target.machine, &target.limits);
    let CoopMatMul { node, columns, sizes } = &matmul;
    let (m, n, k) = (problem.max(&sizes.m), problem.max(&sizes.n), problem.max(&sizes.k));
    let shuffles = [SubgroupOp::Basic, SubgroupOp::Shuffle].iter().all(|op| target.has_subgroup_op(*op));
    let lanes = target.subgroup.preferred;
    let step_k8s = k8s_per_step(problem);
    let divides = lanes.is_multiple_of(4)
        && (COLUMNS as u32).is_multiple_of(shape.n)
        && (step_k8s * 8).is_multiple_of(shape.k);
    if !shuffles || !divides || !is_eligible(KERNEL.name, problem) {
        return Vec::new();
    }
    let matrices = node.matrices() as f64;
    let panel_count = (n as f64 / COLUMNS as f64).ceil();
    let bytes = problem.read_bytes(1) as f64 * matrices;
    let bandwidth = machine.bandwidth_gb_s.max(1e-3);
    let streaming = bytes / bandwidth;
    let other_traffic = (problem.traffic() as f64 - bytes).max(0.0) / bandwidth;
    let peak = (machine.peak.f32 * p.peak_fraction).max(1e-3);
    let room = machine.invocations();
    let steps = matmul.k8s().div_ceil(step_k8s);
    let mut out = Vec::new();
    for panels in PANELS {
        let shapes =
            SUBGROUPS.into_iter().flat_map(|subgroups| STEPS_IN_FLIGHT.map(|steps| [subgroups, steps]));
        for [subgroups, steps_in_flight] in shapes {
            let config = Config { subgroups, panels, steps_in_flight };
            let tile = CoopTile::from_config(&matmul, problem, shape, config);
            let groups = (panel_count / f64::from(panels)).ceil();
            let fits = tile.workgroup_panels <= MAX_WORKGROUP_PANELS
                && tile.threads <= limits.max_workgroup_invocations.min(limits.max_workgroup_size[0])
                && subgroups <= limits.max_workgroup_subgroups
                && tile.workgroup_bytes <= limits.max_workgroup_memory
                && groups <= f64::from(limits.max_workgroup_count[0])
                && (panels == 1 || f64::from(panels) <= panel_count)
                && node.supports_panels(panels, COLUMNS as u32);
            let wasted = subgroups > SUBGROUPS[0] && subgroups > steps
                || steps_in_flight > 1 && subgroups * (steps_in_flight - 1) >= steps;
            if !fits || wasted {
                continue;
            }
            let row_elements = groups * (m * k) as f64;
            let operations =
                (n * k) as f64 * matrices * p.dequantize_operations + row_elements * p.row_element_operations;
            let row_reads = row_elements * 2.0 / machine.cache_bandwidth_gb_s.max(1e-3);
            let waves = (groups * f64::from(tile.threads) / room).ceil();
            let (rounds, round_steps) =
                (f64::from(tile.rounds), f64::from(tile.steps_in_flight * tile.workgroup_panels));
            // The instructions of the first round are fetched before they run.
            let alone = rounds * (p.round_latencies + round_steps * p.step_latencies)
                + round_steps * p.instruction_fetch_latencies;
            let estimate = Estimate {
                memory: streaming,
                compute: (operations / peak).max(row_reads),
                latency: waves * alone * machine.memory_latency_ns,
                overlap: Overlap::Partial { shorter_weight: p.shorter_time_weight },
                serial: other_traffic,
                fixed: p.fixed_latencies * machine.memory_latency_ns,
                ..Estimate::for_dispatches(problem, 1.0)
            };
            let reason = format!(
                "{m} rows on matrix units: a workgroup computes {panels} panels of {COLUMNS} columns of {}-bit weights; its {subgroups} subgroups split K, with {steps_in_flight} steps of {} K positions in flight",
                columns.panels.bits,
                step_k8s * 8
            );
            out.push(Candidate::new(&config, estimate, reason));
        }
    }
    out
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let unsupported =
        || OpError::new("the operator is not a small-M matmul with constants that are quantized along K");
    let matmul = CoopMatMul::from_problem(problem).ok_or_else(unsupported)?;
    let shape = coop::f16_matrix_shape(problem)
        .ok_or_else(|| OpError::new("the target has no f16 matrix units for this matmul"))?;
    let Config { subgroups, panels, steps_in_flight } = config;
    let tile = CoopTile::from_config(&matmul, problem, shape, config);
    let CoopMatMul { node, columns, sizes } = &matmul;
    let packed = columns.panels;
    let mut shader = Shader::new(problem);
    coop::declare_matrix_types(&mut shader, shape);
    shader.knob("SUBGROUPS", subgroups);
    shader.knob("PANELS", panels);
    shader.knob("ROWS", max_rows(problem, sizes));
    shader.knob("VECTORS_PER_K8", matmul.vectors_per_k8());
    shader.knob("STEPS_IN_FLIGHT", steps_in_flight);
    shader.constant("SCALED_VALUES", matmul.scales_values());
    shader.constant("BIASED", packed.bias_type.is_some());
    let padded_k8s = tile.rounds * tile.steps_in_flight * subgroups * k8s_per_step(problem);
    shader.constant("GUARD_K", padded_k8s != matmul.k8s());
    shader.size("size_m", &sizes.m);
    shader.size("size_n", &sizes.n);
    shader.size("last_panel", &sizes.n.plus(-1).floor_div(COLUMNS as i64));
    let numbers = [
        ("size_k8", packed.depth / 8),
        ("rounds", tile.rounds as usize),
        ("panel_vec4s", packed.panel_vec4s()),
        ("k8s_per_group", (packed.group_size / 8).max(1)),
    ];
    for (name, number) in numbers {
        shader.replace(name, format!("fn {name}() -> u32 {{ return {number}u; }}"));
    }
    shader.needs(&[Need::SubgroupShuffle]);
    shader.workgroup_memory(tile.workgroup_bytes);

    let at = single_matrix_coordinates(problem.operands.first().map_or(2, |a| a.rank()), ["row", "k8"]);
    let direct = matmul.loads_row_fragments(problem, shape);
    shader.knob("DIRECT", direct.into());
    shader.constant("SEVERAL_ROUNDS", tile.rounds > 1);
    shader.knob("STAGED_ROWS", if direct { 0 } else { max_rows(problem, sizes).next_multiple_of(shape.m) });
    if direct {
        let rows = shader.bind(Bound::Operand(0), "vec4<f32>", false);
        let k8s = matmul.k8s();
        shader.replace(
            "fragment_a",
            format!(
                "fn fragment_a(row: u32, k8: u32) -> MatrixA {{
    let at = row * {k8s}u + k8;
    return coopLoadT<MatrixA>(&{rows}[at], {k8s}u);
}}"
            ),
        );
        let unused = "fn load_a(row: u32, k8: u32) -> vec4<f32> { return vec4<f32>(); }";
        shader.replace("load_a", unused.to_string());
    } else {
        let load_a = coop::vec8_read(&mut shader, "load_a", "row: u32, k8: u32", "", 0, &at)?;
        shader.replace("load_a", load_a);
    }
    declare_constant_loads(&mut shader, node.matrices(), |shader, name, index| {
        shader.add_dequantize_words(name, index)
    })?;
    let head = "fn dequantize8(first: u32, second: u32, scale: f32, bias: f32) -> vec4<u32>";
    shader
        .replace("dequantize8", format!("{head} {{ return first_from_words(first, second, scale, bias); }}"));
    node.declare_fusions(&mut shader, VectorWidth::Vec4)?;
    node.declare_rotation(&mut shader, COLUMNS as u32);
    let at = single_matrix_coordinates(problem.result.rank(), ["row", "n4"]);
    shader.write("store", "row: u32, n4: u32", "", &at)?;

    let flops = sizes.m.mul(&sizes.n).mul(&sizes.k).scale(2 * node.matrices() as i64);
    let groups = [sizes.n.ceil_div(COLUMNS as i64 * i64::from(panels)), Dim::known(1), Dim::known(1)];
    let grid = Grid { groups, workgroup: [tile.threads, 1, 1] };
    Ok(coop::with_matrix_requirements(shader.finish("matvec_coop", KERNEL.wgsl, grid, flops), problem))
}
