//! Kernel `conv_fragments`: f16 convolutions as implicit GEMM on matrix units with a known fragment layout. M are the
//! pixels, K the taps and input channels, N the output channels. If there are few tiles, several workgroups split K, and a
//! second dispatch, `conv_merge.wgsl`, adds their sums.

use super::conv_coop::{Shape, declare_image, declare_result, depth8, gemm_shape};
use super::conv_merge::PartialSums;
use super::filters::UnpackedFilters;
use super::fragment_tiles::{self, Config, Gemm, Params};
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::Op;
use crate::ir::tensor::DeviceType;
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel};
use crate::kernels::shared::emulated_fragments;
use crate::kernels::shared::fragment_matmul::{known_fragments, with_fragment_requirements};
use crate::kernels::shared::pixels::row_coordinates;
use crate::kernels::shared::window::{constant, fits, with_bias};
use crate::shader::pack::Packed;
use crate::shader::pack::presets::PANELS_OF_COLUMNS;
use crate::shader::problem::Problem;
use crate::shader::{Grid, LaunchDraft, Need, Shader};
use crate::target::{MatrixScope, SubgroupOp};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "conv_fragments",
    wgsl: include_str!("conv_fragments.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: Some(MatrixScope::Subgroup),
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

/// Filters, in a form that the kernel can read.
enum Filters {
    /// f16, in blocks of eight output channels. The input channels of each tap are padded to a multiple of 8.
    F16(Packed),
    /// Quantized constant, which the kernel dequantizes as it loads.
    Quantized,
}

impl Filters {
    /// Returns the filters `[O, I, taps]` of a convolution. Returns `None` if the kernel cannot read them.
    fn from_problem(shape: &Shape, problem: &Problem<'_>) -> Option<Self> {
        if shape.unpacked == Some(UnpackedFilters::Quantized) {
            return Some(Self::Quantized);
        }
        packed(shape, problem).map(Self::F16)
    }

    /// Replaces the hook `load_b`.
    ///
    /// # Errors
    /// If quantized filters have scales that eight adjacent elements do not share (a defect of [`UnpackedFilters`]).
    fn declare(self, shader: &mut Shader<'_>) -> Result<(), OpError> {
        let load = match self {
            Self::F16(packed) => {
                let bound = shader.packed(packed);
                let buffer = shader.bind(bound, "vec4<u32>", false);
                format!("{buffer}[(n8 * size_k8() + k8) * 8u + g]")
            }
            Self::Quantized => {
                shader.add_dequantize_vec8("dequantized_b", 1)?;
                "dequantized_b(n8 * 8u + g, k8)".into()
            }
        };
        shader.replace(
            "load_b",
            format!("fn load_b(n8: u32, k8: u32, g: u32) -> vec4<u32> {{ return {load}; }}"),
        );
        Ok(())
    }
}

/// Packs f16 filters. Returns `None` if they are no constant floats, or exceed a limit of the target.
fn packed(shape: &Shape, problem: &Problem<'_>) -> Option<Packed> {
    let filters = constant(problem, 1)?;
    let [o, i, ..] = filters.shape.as_slice() else { return None };
    let is_float = filters.dtype.is_float() && problem.operands.get(1)?.quantized.is_none();
    let axes = [('N', *o), ('K', *i), ('S', shape.windows.taps())];
    let packed = PANELS_OF_COLUMNS.packed(filters, &axes, &[('n', 8), ('r', 8)], DeviceType::F16);
    (is_float && fits(problem, &packed)).then_some(packed)
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Conv(op) = problem.op else { return Vec::new() };
    let able = [SubgroupOp::Basic, SubgroupOp::Shuffle].iter().all(|op| problem.target.has_subgroup_op(*op));
    if !able || known_fragments(problem).is_none() {
        return Vec::new();
    }
    let Some(shape) = gemm_shape(op, problem) else { return Vec::new() };
    let Some(filters) = Filters::from_problem(&shape, problem) else { return Vec::new() };
    let sizes = [&shape.rows.m, &problem.result.shape[1], &depth8(&shape).scale(8)].map(|d| problem.max(d));
    let quantized = matches!(filters, Filters::Quantized);
    let gemm = Gemm { batch: problem.max(&shape.rows.batch), sizes, quantized };
    fragment_tiles::candidates(problem, gemm)
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Conv(op) = problem.op else { return Err(OpError::new("the operator is not a convolution")) };
    let shape = gemm_shape(op, problem).ok_or_else(|| OpError::new("the filters must be constant"))?;
    let filters = Filters::from_problem(&shape, problem)
        .ok_or_else(|| OpError::new("the filters must be f16 or quantized constants"))?;
    let (matrix, fragments) = known_fragments(problem)
        .ok_or_else(|| OpError::new("the device has no matrix units with a known fragment layout"))?;
    let mut steps = Vec::new();
    let problem = &with_bias(problem, &mut steps);
    let mut shader = Shader::new(problem);
    let pixels = row_coordinates(&mut shader, &shape.rows);
    declare_image(&mut shader, op, &shape, &pixels, "vec4<f32>")?;
    let n = problem.result.shape[1].clone();
    let grid = declare_gemm(&mut shader, config, [&shape.rows.m, &n, &depth8(&shape)]);
    filters.declare(&mut shader)?;
    let partial_sums = if config.group_split > 1 {
        shader.replace("store", "fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) {}".into());
        Some(PartialSums::declare(&mut shader, &shape, &n, config.group_split))
    } else {
        declare_result(&mut shader, &shape, pixels)?;
        None
    };
    let emulated =
        emulated_fragments::declare(&mut shader, fragments, "multiply(group, LOCAL)", config.threads());
    shader.workgroup_memory(config.shared_vec4s() * 16 + emulated);
    shader.needs(&[Need::SubgroupShuffle]);
    let weights = Dim::from(shape.windows.taps() * shape.channels);
    let flops = product(&problem.result.shape).mul(&weights).scale(2);
    let groups = [grid, Dim::known(1), shape.rows.batch.scale(i64::from(config.group_split))];
    let grid = Grid { groups, workgroup: [config.threads(), 1, 1] };
    let launch = shader.finish(KERNEL.name, KERNEL.wgsl, grid, flops);
    let mut launches = vec![with_fragment_requirements(launch, matrix, fragments)];
    if let Some(partial_sums) = partial_sums {
        launches.push(partial_sums.merge(problem, &shape)?);
    }
    Ok(launches)
}

/// Declares the knobs and the sizes of an implicit GEMM, and returns the number of workgroups of a batch.
/// `k8` is the number of groups of eight elements along K.
fn declare_gemm(shader: &mut Shader<'_>, config: Config, [m, n, k8]: [&Dim; 3]) -> Dim {
    config.declare(shader);
    let [tile_m, tile_n] = config.tile().map(i64::from);
    let (groups_m, groups_n) = (m.ceil_div(tile_m), n.ceil_div(tile_n));
    shader.size("size_m", m);
    shader.size("size_n", n);
    shader.size("size_k8", k8);
    shader.size("groups_m", &groups_m);
    shader.size("groups_n", &groups_n);
    shader.constant("GUARD_M", !m.is_multiple_of(tile_m));
    shader.constant("GUARD_N", !n.is_multiple_of(tile_n));
    shader.constant("GUARD_K", !k8.is_multiple_of(i64::from(config.tile_k / 8 * config.k_split)));
    shader.knob("SHARED_VEC4S", config.shared_vec4s());
    groups_m.mul(&groups_n)
}
