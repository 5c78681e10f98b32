//! `matvec_fragments.wgsl`: small-M matmuls with a quantized or an f16 constant, on matrix units whose fragments have a
//! known layout in registers.

use serde::Deserialize;

use super::eligibility::is_eligible;
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::kernels::cost::{Estimate, Overlap, Parameters};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel};
use crate::kernels::shared::fragment_matmul::{
    FRAGMENT_ROWS, FragmentConfig, FragmentMatMul, FragmentTile, FragmentWeights, STEP_K,
    with_fragment_requirements,
};
use crate::kernels::shared::matmul_node::{MatMulNode, VectorWidth};
use crate::kernels::shared::matmul_sizes::single_matrix_coordinates;
use crate::kernels::shared::quantized::{QuantizedColumns, declare_constant_loads};
use crate::kernels::shared::{coop, emulated_fragments};
use crate::shader::pack::quantized_panels::ROWS as COLUMNS;
use crate::shader::packed_f16;
use crate::shader::problem::Problem;
use crate::shader::{Grid, LaunchDraft, Need, Shader};
use crate::target::MatrixScope;

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matvec_fragments",
    wgsl: include_str!("matvec_fragments.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: Some(MatrixScope::Subgroup),
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

/// Cost parameters of the kernel `matvec_fragments`. All are positive; fields named `.._latencies` are multiples of the
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
    /// Time of a round of loads that are in flight together, in memory latencies.
    round_latencies: f64,
    /// Floating-point operations per element of a row that a workgroup reads.
    row_element_operations: f64,
    /// Fraction of the peak FLOP/s that dequantizing weights and reading rows reach; 0 to 1.
    peak_fraction: f64,
    /// Floating-point operations per weight for each fragment of eight rows after the first fragment.
    extra_fragment_operations: f64,
    /// Time of a 16-byte load, in addition to the time of its round of loads, in memory latencies.
    load_latencies: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matvec_fragments";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let (Some(matmul), Some(p)) = (FragmentMatMul::from_problem(problem), Params::from_problem(problem))
    else {
        return Vec::new();
    };
    if !is_eligible(KERNEL.name, problem) {
        return Vec::new();
    }
    let machine = &problem.target.machine;
    let FragmentMatMul { node, weights, sizes, .. } = &matmul;
    let (m, n, k) = (problem.max(&sizes.m), problem.max(&sizes.n), problem.max(&sizes.k));
    let dequantize_operations = match weights {
        FragmentWeights::Quantized(_) => p.dequantize_operations,
        FragmentWeights::F16(_) => 0.0,
    };
    let matrices = node.matrices() as f64;
    let panel_count = (n as f64 / COLUMNS as f64).ceil();
    let bytes = problem.read_bytes(1) as f64 * matrices;
    let bandwidth = machine.bandwidth_gb_s.max(1e-3);
    let streaming = bytes / bandwidth;
    let other_traffic = (problem.traffic() as f64 - bytes).max(0.0) / bandwidth;
    let peak = (machine.peak.f32 * p.peak_fraction).max(1e-3);
    let room = machine.invocations();
    let row_fragments = matmul.row_fragments(problem);
    let row_time =
        f64::from(row_fragments - 1) * p.extra_fragment_operations * (n * k) as f64 * matrices / peak;
    let mut out = Vec::new();
    for tile in matmul.tiles(problem) {
        let FragmentTile { config, loads_in_flight, .. } = tile;
        let FragmentConfig { subgroups, panel_pairs, .. } = config;
        let groups = (panel_count / f64::from(panel_pairs * 2)).ceil();
        let row_elements = groups * k as f64 * f64::from(FRAGMENT_ROWS);
        let operations =
            (n * k) as f64 * matrices * dequantize_operations + row_elements * p.row_element_operations;
        let row_reads = row_elements * 2.0 / machine.cache_bandwidth_gb_s.max(1e-3);
        let waves = (groups * f64::from(tile.threads()) / room).ceil();
        let alone =
            f64::from(tile.rounds) * (p.round_latencies + f64::from(loads_in_flight) * p.load_latencies);
        let estimate = Estimate {
            memory: streaming,
            compute: (operations / peak).max(row_reads),
            latency: waves * alone * machine.memory_latency_ns,
            overlap: Overlap::Partial { shorter_weight: p.shorter_time_weight },
            serial: row_time + other_traffic,
            fixed: p.fixed_latencies * machine.memory_latency_ns,
            ..Estimate::for_dispatches(problem, 1.0)
        };
        let reason = format!(
            "{m} rows on matrix units: a workgroup computes {} panels of {COLUMNS} columns of {}-bit weights; its {subgroups} subgroups split K, with {loads_in_flight} loads in flight",
            panel_pairs * 2,
            weights.bits()
        );
        out.push(Candidate::new(&config, estimate, reason));
    }
    out
}

fn launches(problem: &Problem<'_>, config: FragmentConfig) -> Result<Vec<LaunchDraft>, OpError> {
    let unsupported = || {
        OpError::new(
            "the operator is not a small-M matmul with f16 constants or constants that are quantized along K",
        )
    };
    let matmul = FragmentMatMul::from_problem(problem).ok_or_else(unsupported)?;
    let row_fragments = matmul.row_fragments(problem);
    let tile = FragmentTile::from_config(&matmul, row_fragments, config);
    let FragmentMatMul { node, weights, sizes, depth, shape, fragments } = matmul;
    let mut shader = Shader::new(problem);
    config.declare(&mut shader);
    shader.knob("ROW_FRAGMENTS", row_fragments);
    shader.knob("BITS", weights.bits());
    shader.knob("LOADS_PER_K8", weights.loads_per_k8());
    let padded_k = tile.rounds * config.subgroups * config.block_steps * STEP_K as u32;
    shader.constant("GUARD_K", padded_k != depth as u32);
    shader.size("size_m", &sizes.m);
    shader.size("size_n", &sizes.n);
    shader.size("last_panel", &sizes.n.plus(-1).floor_div(COLUMNS as i64));
    let blocks_per_group = weights.steps_per_group().map_or(1, |steps| (steps / config.block_steps).max(1));
    let numbers = [
        ("size_k8", depth / 8),
        ("rounds", tile.rounds as usize),
        ("k_blocks", tile.k_blocks as usize),
        ("blocks_per_group", blocks_per_group as usize),
        ("panel_loads", weights.panel_loads()),
    ];
    for (name, number) in numbers {
        shader.replace(name, format!("fn {name}() -> u32 {{ return {number}u; }}"));
    }
    shader.workgroup_memory(tile.workgroup_bytes);
    shader.replace("scale_pairs", packed_f16::scale_pairs_hook());
    shader.needs(&[Need::F16]);

    let at = single_matrix_coordinates(problem.operands.first().map_or(2, |a| a.rank()), ["row", "k8"]);
    let load_a = coop::vec8_read(&mut shader, "load_a", "row: u32, k8: u32", "", 0, &at)?;
    shader.replace("load_a", load_a);
    declare_weights(weights, &node, &mut shader)?;
    node.declare_fusions(&mut shader, VectorWidth::Vec8)?;
    node.declare_rotation(&mut shader, COLUMNS as u32);
    let at = single_matrix_coordinates(problem.result.rank(), ["row", "n4"]);
    shader.write("store", "row: u32, n4: u32", "", &at)?;

    emulated_fragments::declare(&mut shader, fragments, "multiply(group.x, LOCAL)", tile.threads());
    let flops = sizes.m.mul(&sizes.n).mul(&sizes.k).scale(2 * node.matrices() as i64);
    let group_columns = COLUMNS as i64 * i64::from(config.panel_pairs * 2);
    let groups = [sizes.n.ceil_div(group_columns), Dim::known(1), Dim::known(1)];
    let grid = Grid { groups, workgroup: [tile.threads(), 1, 1] };
    let launch = shader.finish("matvec_fragments", KERNEL.wgsl, grid, flops);
    Ok(vec![with_fragment_requirements(launch, shape, fragments)])
}

/// Replaces the WGSL declarations that depend on the packed layout of the weight matrices.
fn declare_weights(
    weights: FragmentWeights,
    node: &MatMulNode<'_>,
    shader: &mut Shader<'_>,
) -> Result<(), OpError> {
    match weights {
        FragmentWeights::Quantized(QuantizedColumns { panels, .. }) => {
            shader.constant("GROUPED", panels.groups_per_row() > 1);
            shader.constant("BIASED", panels.bias_type.is_some());
            shader.constant("SUM_FACTOR", format_args!("{}.0", packed_f16::quantized_to_f16_ratio(&panels)));
            shader.add_f16_pair_functions(&panels);
            shader.replace("fragment_columns", packed_f16::quantized_fragment_columns(&panels));
            declare_constant_loads(shader, node.matrices(), |shader, name, index| {
                shader.add_scale_functions(name, index)
            })
        }
        FragmentWeights::F16(panels) => {
            shader.constant("GROUPED", false);
            shader.constant("BIASED", false);
            shader.constant("SUM_FACTOR", "1.0");
            shader.alias("PanelLoad", "vec2<u32>");
            shader.replace("fragment_columns", packed_f16::f16_fragment_columns());
            panels.declare_loads(shader, "vec2<u32>");
            Ok(())
        }
    }
}
