//! What the kernels on matrix units share (`coop.wgsl`): the matrices, the knobs and the second operand.

mod eights;
pub(crate) mod sums;
mod tiles;

use super::dot::Signs;
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::Constant;
use crate::ir::tensor::{DType, DeviceType};
use crate::kernels::kernel::Candidate;
use crate::shader::pack::Packed;
use crate::shader::pack::presets::{PANELS, PANELS_OF_COLUMNS};
use crate::shader::problem::Problem;
use crate::shader::{Grid, Launch, Shader};
use crate::target::quirks::Fault;
use crate::target::{MatrixScope, MatrixShape, MatrixType, TargetProfile};

pub(crate) use eights::{eight, octets};
pub(crate) use tiles::{Params, tiles};
use tiles::{Tile, memory};

pub(crate) const WGSL: &str = include_str!("coop.wgsl");

/// The product of matrices that kernels here are made of: the target's first of f16 into f32 by a subgroup.
pub(crate) fn shape<'a>(problem: &Problem<'a>) -> Option<&'a MatrixShape> {
    let wanted = (MatrixType::F16, MatrixType::F16, MatrixType::F32);
    (in_halves(problem) && able(problem.target)).then(|| listed(problem.target, wanted)).flatten()
}

/// Whether a product of floats is computed in halves.
pub(crate) fn in_halves(problem: &Problem<'_>) -> bool {
    // The second operand tells the precision; the first may be an input of the graph, which is never narrowed. Words of
    // codes have none, and then it is the first one's.
    let teller = usize::from(problem.operands.get(1).is_none_or(|o| o.dtype != DType::U32));
    let half = problem.operands.get(teller).is_some_and(|o| o.dtype.on_device() == DeviceType::F16);
    half && problem.target.features.stores_f16() && problem.computed.is_float()
}

/// The same for numbers of 8 bits into 32, where the kernel can make both operands signed or both unsigned.
fn bytes<'a>(problem: &Problem<'a>) -> Option<&'a MatrixShape> {
    let signs = Signs::of(problem)?;
    // Unsigned numbers of the first operand may become signed, for which the kernel makes up.
    if signs.flips(1) || !problem.target.features.int8 || !able(problem.target) {
        return None;
    }
    let wanted = match signs.unsigned() {
        true => (MatrixType::U8, MatrixType::U8, MatrixType::U32),
        false => (MatrixType::I8, MatrixType::I8, MatrixType::I32),
    };
    listed(problem.target, wanted)
}

/// The product of matrices that a kernel's problem is made of.
pub(crate) fn matrices<'a>(problem: &Problem<'a>) -> Option<&'a MatrixShape> {
    shape(problem).or_else(|| bytes(problem))
}

pub(crate) fn able(target: &TargetProfile) -> bool {
    let sized =
        target.features.subgroup_size_control && target.subgroup.sizes.contains(&target.subgroup.preferred);
    target.features.cooperative_matrix && sized && !target.has_quirk(Fault::CooperativeMatrixSlow)
}

fn listed(target: &TargetProfile, wanted: (MatrixType, MatrixType, MatrixType)) -> Option<&MatrixShape> {
    target.matrix.iter().find(|s| {
        // Eight elements move at a time.
        let sides = s.m % 8 == 0 && s.n % 8 == 0 && s.k % 8 == 0;
        (s.a, s.b, s.c) == wanted && sides && s.scope == MatrixScope::Subgroup
    })
}

/// Bytes of eight elements, and how many of these vectors are 16 bytes.
fn unit(shape: &MatrixShape) -> [u32; 2] {
    if shape.a == MatrixType::F16 { [16, 1] } else { [8, 2] }
}

/// A constant in panels of as many columns as a matrix has.
pub(crate) struct Panels {
    pub(crate) packed: Packed,
    /// Rows of a panel, with those that pad it.
    pub(crate) rows: usize,
    /// Rows that are padded together: of numbers of 8 bits so many of a column are neighbours.
    round: usize,
    /// How many panels each product of the batch has for itself; none where all have the same ones.
    pub(crate) apart: Option<usize>,
}

impl Panels {
    /// Whether fragments may be loaded from global memory: a panel is a number of them one after the other.
    pub(crate) fn in_fragments(&self, problem: &Problem<'_>) -> bool {
        let depth = matrices(problem).map_or(0, |shape| shape.k as usize);
        let right = self.packed.device == DeviceType::F16
            || !problem.target.has_quirk(Fault::ByteFragmentsFromMemoryWrong);
        right && self.rows.is_multiple_of(depth)
    }
}

/// Where the second operand comes from.
pub(crate) enum Second {
    /// A constant.
    Panels(Panels),
    /// `load_b` is replaced by the caller; whether it reads along K.
    Loaded { along_k: bool },
}

/// Sets the knobs, sizes and the second operand, and returns the grid. `k8` is K in groups of eight.
pub(crate) fn declare(
    shader: &mut Shader<'_>,
    candidate: &Candidate,
    [m, n, k8]: [&Dim; 3],
    batch: &Dim,
    second: Second,
) -> Result<Grid, OpError> {
    let shape = matrices(shader.problem).ok_or_else(|| OpError::new("no matrix units"))?.clone();
    for (name, value) in candidate.knobs.iter().filter(|(name, _)| *name != "STAGED_B") {
        shader.knob(name, *value);
    }
    let staged = candidate.knob("STAGED_B") == 1;
    shader.constant("STAGED_B", staged);
    sides(shader, &shape);
    if shape.a != MatrixType::F16 {
        shader.alias("Unit", "vec2<f32>");
        shader.alias("Sum", "vec4<i32>");
        shader.knob("PAD", unit(&shape)[1]);
        shader.replace("sum_of", "fn sum_of(v: vec4<f32>) -> Sum { return bitcast<vec4<i32>>(v); }".into());
    }
    let [subs_m, subs_n, parts, frags_m, frags_n, depth, stages, held] =
        ["SUBS_M", "SUBS_N", "PARTS", "FRAGS_M", "FRAGS_N", "DEPTH", "STAGES", "HELD"]
            .map(|name| candidate.knob(name));
    let tile =
        Tile { subs: [subs_m, subs_n], parts, frags: [frags_m, frags_n], depth: depth / shape.k, stages };
    shader.workgroup_memory(memory(&shape, tile, staged, held));
    let groups_m = m.ceil_div(i64::from(subs_m * frags_m * shape.m));
    let groups_n = n.ceil_div(i64::from(subs_n * frags_n * shape.n));
    shader.size("size_m", m);
    shader.size("size_n", n);
    shader.size("size_k8", k8);
    shader.size("groups_m", &groups_m);
    shader.size("groups_n", &groups_n);
    shader.knob("BAND", 8);
    let multiple = |size: &Dim, of: u32| size.is_multiple_of(i64::from(of));
    shader.constant("GUARD_M", !multiple(m, subs_m * frags_m * shape.m));
    shader.constant("GUARD_N", !multiple(n, subs_n * frags_n * shape.n));
    shader.constant("GUARD_K", !multiple(k8, depth / 8 * parts));
    let along_k = match second {
        Second::Panels(panels) => {
            read_panels(shader, &shape, panels, staged);
            shape.a != MatrixType::F16
        }
        Second::Loaded { along_k } => along_k,
    };
    if along_k {
        shader.constant("B_ALONG_K", true);
        shader.constant("SIZE_B", "TILE_N * ROW_A");
        shader.replace(
            "tiled_b",
            "fn tiled_b(base: u32, panel: u32, k: u32) -> MatrixB {
    let at = base + panel * SIDE_N * ROW_A + k * (SIDE_K / 8u);
    return coopLoad<MatrixB>(&tile_b[at], ROW_A);
}"
            .into(),
        );
    }
    if !staged {
        shader.replace(
            "tiled_b",
            "fn tiled_b(base: u32, panel: u32, k: u32) -> MatrixB { return MatrixB(); }".into(),
        );
        // Nothing is staged, and memory that is declared counts.
        shader.replace("tile_b", "var<workgroup> tile_b: array<Unit, 1>;".into());
        shader.replace(
            "stretch_b",
            "fn stretch_b(batch: u32, first_panel: u32, k8: u32, i: u32) -> Unit { return Unit(); }".into(),
        );
    }
    let threads = subs_m * subs_n * parts * shader.problem.target.subgroup.preferred;
    Ok(Grid { groups: [groups_m.mul(&groups_n), Dim::known(1), batch.clone()], workgroup: [threads, 1, 1] })
}

/// Sets the subgroup's size and the matrix types.
pub(crate) fn sides(shader: &mut Shader<'_>, shape: &MatrixShape) {
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

/// Reads the second operand from panels.
fn read_panels(shader: &mut Shader<'_>, shape: &MatrixShape, panels: Panels, staged: bool) {
    let Panels { packed, rows, round, apart } = panels;
    let bound = shader.packed(packed);
    let first = apart.map_or(String::new(), |count| format!("batch * {count}u + "));
    let (element, at) = if shape.a == MatrixType::F16 {
        ("vec4<f32>", format!("(({first}n8 / S8) * {rows}u + k) * S8 + n8 % S8"))
    } else {
        // `k` is a column and `n8` counts rows, see B_ALONG_K.
        let (stretches, units) = (rows / round, round / 8);
        let stretch = format!("({first}k / SIDE_N) * {stretches}u + n8 / {units}u");
        ("vec2<f32>", format!("(({stretch}) * SIDE_N + k % SIDE_N) * {units}u + n8 % {units}u"))
    };
    let buffer = shader.bind(bound, element, false);
    if staged {
        let text = format!("fn load_b(batch: u32, k: u32, n8: u32) -> Unit {{ return {buffer}[{at}]; }}");
        shader.replace("load_b", text);
    } else {
        shader.replace(
            "fragment_b",
            format!(
                "fn fragment_b(batch: u32, panel: u32, k: u32) -> MatrixB {{
    let at = (({first}panel) * {rows}u + k * SIDE_K) * S8;
    return coopLoadT<MatrixB>(&{buffer}[at], S8);
}}"
            ),
        );
    }
}

/// Panels of a constant, whose axes are those of its elements: `N` that of the columns, `K` that of the rows, whose
/// number is padded to `round`, `S` one around them, and each position along `B` has panels of its own. In f16 a row of a
/// panel is together, of numbers of 8 bits `round` rows of a column are.
pub(crate) fn pack_panels(constant: &Constant, axes: &[(char, usize)], round: usize, side: u32) -> Panels {
    let tiles = [('r', round), ('n', side as usize)];
    let packed = if constant.dtype.is_float() {
        PANELS.of(constant, axes, &tiles, DeviceType::F16)
    } else {
        PANELS_OF_COLUMNS.of(constant, axes, &tiles, DeviceType::Byte)
    };
    let size = |letter: char| axes.iter().find(|(name, _)| *name == letter).map_or(1, |(_, size)| *size);
    Panels { packed, rows: size('S') * size('K').next_multiple_of(round), round, apart: None }
}

/// The launch with what the device must be asked for.
pub(crate) fn launch(mut launch: Launch, problem: &Problem<'_>) -> Vec<Launch> {
    launch.subgroup_size = Some(problem.target.subgroup.preferred);
    launch.matrix = matrices(problem).cloned();
    vec![launch]
}
