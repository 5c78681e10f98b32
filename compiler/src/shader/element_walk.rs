//! Iteration over a result tensor with 4 elements per invocation where possible, and reads of a source at coordinates
//! that are computed from the result's coordinates. Kernels that move elements, such as pad and concat, use this code.

use super::access::Coordinates;
use super::hooks::Shader;
use super::problem::{Operand, Placement};
use super::value_type::ValueType;
use crate::ir::dim::{Dim, product};

/// An iteration over a tensor in which each invocation computes one unit. A unit is 4 neighboring elements or one element.
#[derive(Debug, Clone)]
pub(crate) struct ElementWalk {
    /// Number of units.
    pub(crate) units: Dim,
    /// WGSL statements that turn the index `unit` into coordinates.
    pub(crate) prelude: String,
    /// Coordinates of the unit (4 neighboring elements or one) in the tensor.
    pub(crate) at: Coordinates,
    /// True if the 4 elements of a unit are not neighbors in the source tensor, so that each is read separately.
    pub(crate) lanes_apart: bool,
}

impl ElementWalk {
    /// Elements per unit.
    pub(crate) fn lanes(&self) -> u32 {
        if self.at.lanes.is_some() { 4 } else { 1 }
    }
}

/// Returns the iteration over a result tensor, with 4 elements per unit where possible. `keeps` has one flag per axis, which is
/// true if source and result have equal coordinates along the axis.
pub(crate) fn walk_elements(
    shader: &mut Shader<'_>,
    tensor: &Operand<'_>,
    keeps: impl Fn(usize) -> bool,
) -> ElementWalk {
    let (lanes, lanes_apart) = match tensor.placement {
        Placement::Slices4 => (Some(1), !keeps(1)),
        Placement::Strided { .. } => {
            let (last, sizes) = (tensor.rank().checked_sub(1), &tensor.shape);
            (last.filter(|l| keeps(*l) && sizes[*l].is_multiple_of(4) && !sizes[*l].is(0)), false)
        }
    };
    ElementWalk { lanes_apart, ..walk_along_axis(shader, tensor, lanes) }
}

/// Returns the iteration over a tensor in units of 4 elements along an axis, or of one element.
pub(crate) fn walk_along_axis(
    shader: &mut Shader<'_>,
    tensor: &Operand<'_>,
    lanes: Option<usize>,
) -> ElementWalk {
    let mut sizes = tensor.shape.clone();
    if let Some(lane) = lanes {
        sizes[lane] = sizes[lane].ceil_div(4);
    }
    let (prelude, axes) = split_index(shader, &sizes, &memory_order(tensor), "unit");
    let vec4_index = (tensor.placement == Placement::Slices4).then(|| "unit".to_string());
    ElementWalk {
        units: product(&sizes),
        prelude,
        at: Coordinates { axes, lanes, pixel: None, vec4_index },
        lanes_apart: false,
    }
}

/// Returns a tensor's axes in memory order, fastest first. In a tensor in slices of 4 channels, the batch is the fastest axis
/// after the 4 channels; then come the spatial axes from the last to the first, then the slices.
pub(crate) fn memory_order(tensor: &Operand<'_>) -> Vec<usize> {
    match tensor.placement {
        Placement::Slices4 => [0].into_iter().chain((2..tensor.rank()).rev()).chain([1]).collect(),
        Placement::Strided { .. } => (0..tensor.rank()).rev().collect(),
    }
}

/// Returns the WGSL of `fn name(unit: u32, extra)`, which reads operand `index` for one unit of the iteration over `tensor`.
/// `extra` are further WGSL parameters, or nothing.
///
/// The argument `place` returns, for the coordinates of a unit, WGSL statements and the coordinates to read in the operand. The
/// WGSL function returns a vec4 if a unit has 4 elements. If the 4 elements must be read separately, it calls a second WGSL
/// function `NAME_lane` for each of them.
pub(crate) fn gather_function(
    shader: &mut Shader<'_>,
    walk: &ElementWalk,
    tensor: &Operand<'_>,
    name: &str,
    extra: &str,
    index: usize,
    place: impl Fn(&mut Shader<'_>, &[String]) -> (String, Vec<String>),
) -> String {
    let comma = if extra.is_empty() { "" } else { ", " };
    if !walk.lanes_apart {
        let (statements, axes) = place(shader, &walk.at.axes);
        let at = Coordinates { axes, lanes: walk.at.lanes, pixel: None, vec4_index: None };
        let params = format!("unit: u32{comma}{extra}");
        return shader.read_fn(name, &params, &format!("{}{statements}", walk.prelude), index, &at, false);
    }
    // Lanes past the last channel repeat it. They are stored as zero.
    let lane_axis = walk.at.lanes.unwrap_or(0);
    let last = shader.dim(&tensor.shape[lane_axis].plus(-1));
    let mut axes = walk.at.axes.clone();
    axes[lane_axis] = format!("min(({}) * 4u + lane, {last})", axes[lane_axis]);
    let (statements, axes) = place(shader, &axes);
    let params = format!("unit: u32, lane: u32{comma}{extra}");
    let lane_name = format!("{name}_lane");
    let prelude = format!("{}{statements}", walk.prelude);
    let read = shader.read_fn(&lane_name, &params, &prelude, index, &Coordinates::element(axes), false);
    let ty = ValueType::from_dtype(shader.problem.operands[index].dtype).wgsl(4);
    let passed: String = extra
        .split(',')
        .filter_map(|p| p.split(':').next())
        .map(str::trim)
        .filter(|p| !p.is_empty())
        .map(|p| format!(", {p}"))
        .collect();
    let calls: Vec<String> = (0..4).map(|j| format!("{lane_name}(unit, {j}u{passed})")).collect();
    format!(
        "{read}fn {name}(unit: u32{comma}{extra}) -> {ty} {{\n    return {ty}({});\n}}\n",
        calls.join(", ")
    )
}

/// Returns WGSL statements that split the flat index in variable `from` into one coordinate per axis, and the
/// coordinates. `order` lists the axes, fastest first. Axes that are not listed have coordinate 0.
pub(crate) fn split_index(
    shader: &mut Shader<'_>,
    sizes: &[Dim],
    order: &[usize],
    from: &str,
) -> (String, Vec<String>) {
    let mut axes = vec!["0u".to_string(); sizes.len()];
    let mut text = String::new();
    let used: Vec<usize> = order.iter().copied().filter(|i| !sizes[*i].is(1)).collect();
    let mut rest = from.to_string();
    for (k, axis) in used.iter().enumerate() {
        let name = format!("{from}_{axis}");
        if k + 1 == used.len() {
            text += &format!("    let {name} = {rest};\n");
        } else {
            let size = shader.dim(&sizes[*axis]);
            text += &format!("    let {name} = {rest} % {size};\n    let {name}_rest = {rest} / {size};\n");
            rest = format!("{name}_rest");
        }
        axes[*axis] = name;
    }
    (text, axes)
}
