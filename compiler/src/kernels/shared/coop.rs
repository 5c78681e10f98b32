//! Matmuls and convolutions on matrix units with `coop.wgsl`: declaration of the knobs and of the second operand.

mod matrix_shapes;
mod tiles;
mod vec8;

use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::Constant;
use crate::ir::tensor::DeviceType;
use crate::kernels::kernel::Configuration;
use crate::shader::pack::Packed;
use crate::shader::pack::presets::{PANELS, PANELS_OF_COLUMNS};
use crate::shader::problem::Problem;
use crate::shader::{Grid, LaunchDraft, Shader};
use crate::target::quirks::Fault;
use crate::target::{MatrixShape, MatrixType};

use matrix_shapes::vec8_bytes;
pub(crate) use matrix_shapes::{computes_in_f16, f16_matrix_shape, matrix_shape, supports_matrices};
use tiles::workgroup_bytes;
pub(crate) use tiles::{Config, Params, tile_candidates};
pub(crate) use vec8::{as_vec8s, vec8_read};

pub(crate) const WGSL: &str = include_str!("coop.wgsl");

/// A constant matrix that is packed into panels: blocks of as many columns as one matrix fragment has.
pub(crate) struct Panels {
    pub(crate) packed: Packed,
    /// Number of rows of a panel, including padding.
    pub(crate) padded_k: usize,
    /// The number of rows of a panel is padded to a multiple of this number. In panels of 8-bit integers, this number
    /// of rows of a column are contiguous in memory.
    k_multiple: usize,
    /// Number of panels of one matrix if each batch has its own matrix; `None` if all batches use one matrix.
    pub(crate) panels_per_matrix: Option<usize>,
}

impl Panels {
    /// True if matrix fragments can be loaded from global memory, because a panel is a sequence of whole fragments.
    pub(crate) fn has_whole_fragments(&self, problem: &Problem<'_>) -> bool {
        let fragment_k = matrix_shape(problem).map_or(0, |shape| shape.k as usize);
        let loads_correctly = self.packed.device == DeviceType::F16
            || !problem.target.has_quirk(Fault::ByteFragmentsFromMemoryWrong);
        loads_correctly && self.padded_k.is_multiple_of(fragment_k)
    }
}

/// Form in which a matmul on matrix units reads its second operand.
pub(crate) enum SecondOperand {
    /// A constant that is packed into panels (blocks of columns).
    Panels(Panels),
    /// An operand that the hook `load_b` reads; the caller must replace the hook. `along_k` is true if the hook reads
    /// eight elements along K, false if along N.
    Loaded { along_k: bool },
}

/// Declares the knobs, the sizes and the second operand of a matmul on matrix units, and returns the dispatch grid.
/// `k8` is the number of groups of eight elements along K.
pub(crate) fn declare_matmul(
    shader: &mut Shader<'_>,
    config: Config,
    [m, n, k8]: [&Dim; 3],
    batch: &Dim,
    second: SecondOperand,
) -> Result<Grid, OpError> {
    let shape = matrix_shape(shader.problem)
        .ok_or_else(|| OpError::new("the target has no matrix units for these operand types"))?
        .clone();
    for (name, value) in config.knobs().iter().filter(|(name, _)| *name != "STAGED_B") {
        shader.knob(name, value);
    }
    let Config { subgroups_m, subgroups_n, k_split, frags_m, frags_n, tile_k, staged_b: staged, .. } = config;
    shader.constant("STAGED_B", staged);
    declare_matrix_types(shader, &shape);
    if shape.a != MatrixType::F16 {
        shader.alias("Vec8", "vec2<f32>");
        shader.alias("Sum", "vec4<i32>");
        shader.knob("PAD", vec8_bytes(&shape)[1]);
        shader.replace("as_sum", "fn as_sum(v: vec4<f32>) -> Sum { return bitcast<vec4<i32>>(v); }".into());
    }
    shader.workgroup_memory(workgroup_bytes(&shape, config));
    let groups_m = m.ceil_div(i64::from(subgroups_m * frags_m * shape.m));
    let groups_n = n.ceil_div(i64::from(subgroups_n * frags_n * shape.n));
    shader.size("size_m", m);
    shader.size("size_n", n);
    shader.size("size_k8", k8);
    shader.size("groups_m", &groups_m);
    shader.size("groups_n", &groups_n);
    shader.knob("BAND", 8);
    let is_multiple = |size: &Dim, of: u32| size.is_multiple_of(i64::from(of));
    shader.constant("GUARD_M", !is_multiple(m, subgroups_m * frags_m * shape.m));
    shader.constant("GUARD_N", !is_multiple(n, subgroups_n * frags_n * shape.n));
    shader.constant("GUARD_K", !is_multiple(k8, tile_k / 8 * k_split));
    let along_k = match second {
        SecondOperand::Panels(panels) => {
            declare_panel_loads(shader, &shape, panels, staged);
            shape.a != MatrixType::F16
        }
        SecondOperand::Loaded { along_k } => along_k,
    };
    if along_k {
        shader.constant("B_ALONG_K", true);
        shader.constant("SIZE_B", "TILE_N * ROW_A");
        shader.replace(
            "staged_fragment_b",
            "fn staged_fragment_b(base: u32, panel: u32, k: u32) -> MatrixB {
    let at = base + panel * SIDE_N * ROW_A + k * (SIDE_K / 8u);
    return coopLoad<MatrixB>(&tile_b[at], ROW_A);
}"
            .into(),
        );
    }
    if !staged {
        shader.replace(
            "staged_fragment_b",
            "fn staged_fragment_b(base: u32, panel: u32, k: u32) -> MatrixB { return MatrixB(); }".into(),
        );
        // Nothing is staged. Drivers count memory that is declared, so the array shrinks to one vector.
        shader.replace("tile_b", "var<workgroup> tile_b: array<Vec8, 1>;".into());
        shader.replace(
            "tile_vec8_b",
            "fn tile_vec8_b(batch: u32, first_panel: u32, k8: u32, i: u32) -> Vec8 { return Vec8(); }".into(),
        );
    }
    let threads = subgroups_m * subgroups_n * k_split * shader.problem.target.subgroup.preferred;
    Ok(Grid { groups: [groups_m.mul(&groups_n), Dim::known(1), batch.clone()], workgroup: [threads, 1, 1] })
}

/// Declares the subgroup size and the types of the cooperative matrices in a shader.
pub(crate) fn declare_matrix_types(shader: &mut Shader<'_>, shape: &MatrixShape) {
    shader.knob("LANES", shader.problem.target.subgroup.preferred);
    shader.knob("SIDE_M", shape.m);
    shader.knob("SIDE_N", shape.n);
    shader.knob("SIDE_K", shape.k);
    if shape.m.max(shape.n).max(shape.k) <= 8 {
        for (name, role) in [("MatrixA", "A"), ("MatrixB", "B"), ("MatrixC", "C")] {
            shader.alias(name, &format!("coop_mat8x8<f32, {role}>"));
        }
    }
}

/// Replaces the hook that reads the second operand from panels: `load_b` if the operand passes through workgroup memory
/// (`staged`), else `global_fragment_b`, which loads a fragment from global memory.
fn declare_panel_loads(shader: &mut Shader<'_>, shape: &MatrixShape, panels: Panels, staged: bool) {
    let Panels { packed, padded_k, k_multiple, panels_per_matrix } = panels;
    let bound = shader.packed(packed);
    let first = panels_per_matrix.map_or(String::new(), |count| format!("batch * {count}u + "));
    let (element, at) = if shape.a == MatrixType::F16 {
        (
            "vec4<f32>",
            format!("(({first}n8 / PANEL_VEC8S) * {padded_k}u + k) * PANEL_VEC8S + n8 % PANEL_VEC8S"),
        )
    } else {
        // With B_ALONG_K, `k` is a column and `n8` counts groups of eight rows.
        let (k_blocks, block_vec8s) = (padded_k / k_multiple, k_multiple / 8);
        let block = format!("({first}k / SIDE_N) * {k_blocks}u + n8 / {block_vec8s}u");
        ("vec2<f32>", format!("(({block}) * SIDE_N + k % SIDE_N) * {block_vec8s}u + n8 % {block_vec8s}u"))
    };
    let buffer = shader.bind(bound, element, false);
    if staged {
        let load = format!("fn load_b(batch: u32, k: u32, n8: u32) -> Vec8 {{ return {buffer}[{at}]; }}");
        shader.replace("load_b", load);
    } else {
        shader.replace(
            "global_fragment_b",
            format!(
                "fn global_fragment_b(batch: u32, panel: u32, k: u32) -> MatrixB {{
    let at = (({first}panel) * {padded_k}u + k * SIDE_K) * PANEL_VEC8S;
    return coopLoadT<MatrixB>(&{buffer}[at], PANEL_VEC8S);
}}"
            ),
        );
    }
}

/// Packs a constant into panels of `side` columns. `axes` name the axes of its elements: `N` columns, `K` rows, `S` an
/// outer axis of rows such as filter taps, and `B` batches, each with its own panels. The size of `K` is padded to a
/// multiple of `k_multiple`. In f16 panels a row is contiguous; in 8-bit panels `k_multiple` rows of a column are
/// contiguous.
pub(crate) fn pack_panels(
    constant: &Constant,
    axes: &[(char, usize)],
    k_multiple: usize,
    side: u32,
) -> Panels {
    let tiles = [('r', k_multiple), ('n', side as usize)];
    let packed = if constant.dtype.is_float() {
        PANELS.packed(constant, axes, &tiles, DeviceType::F16)
    } else {
        PANELS_OF_COLUMNS.packed(constant, axes, &tiles, constant.dtype.on_device())
    };
    let size = |letter: char| axes.iter().find(|(name, _)| *name == letter).map_or(1, |(_, size)| *size);
    let padded_k = size('S') * size('K').next_multiple_of(k_multiple);
    Panels { packed, padded_k, k_multiple, panels_per_matrix: None }
}

/// Adds to a launch the subgroup size and the matrix shape that the device must support.
pub(crate) fn with_matrix_requirements(mut launch: LaunchDraft, problem: &Problem<'_>) -> Vec<LaunchDraft> {
    launch.subgroup_size = Some(problem.target.subgroup.preferred);
    launch.matrix = matrix_shape(problem).cloned();
    vec![launch]
}
