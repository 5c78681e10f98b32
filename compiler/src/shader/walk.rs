//! What the kernels that move elements share: walking over a tensor four elements at a time where they stay
//! neighbours, and reading a source whose coordinates are written in terms of the result's.

use super::access::Coordinates;
use super::class::Class;
use super::hooks::Shader;
use super::problem::{Operand, Placement};
use crate::ir::dim::{Dim, product};

/// A walk over a tensor: one unit per invocation.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    /// How many units there are.
    pub(crate) units: Dim,
    /// Statements that turn `unit` into coordinates.
    pub(crate) prelude: String,
    /// The coordinates of the unit in the tensor walked over.
    pub(crate) at: Coordinates,
    /// Whether the four elements of a unit come from places of their own in the source.
    pub(crate) apart: bool,
}

impl Walk {
    /// Elements per unit.
    pub(crate) fn lanes(&self) -> u32 {
        if self.at.lanes.is_some() { 4 } else { 1 }
    }
}

/// A walk over a tensor whose elements keep their places along the axes for which `keeps` holds.
pub(crate) fn walk(shader: &mut Shader<'_>, tensor: &Operand<'_>, keeps: impl Fn(usize) -> bool) -> Walk {
    let (lanes, apart) = match tensor.placement {
        Placement::Slices4 => (Some(1), !keeps(1)),
        Placement::Strided { .. } => {
            let (last, sizes) = (tensor.rank().checked_sub(1), &tensor.shape);
            (last.filter(|l| keeps(*l) && sizes[*l].is_multiple_of(4) && !sizes[*l].is(0)), false)
        }
    };
    Walk { apart, ..walk_along(shader, tensor, lanes) }
}

/// A walk over a tensor in units of four elements along an axis, or of one.
pub(crate) fn walk_along(shader: &mut Shader<'_>, tensor: &Operand<'_>, lanes: Option<usize>) -> Walk {
    let mut sizes = tensor.shape.clone();
    if let Some(lane) = lanes {
        sizes[lane] = sizes[lane].ceil_div(4);
    }
    let (prelude, axes) = decompose(shader, &sizes, &order(tensor), "unit");
    let unit = (tensor.placement == Placement::Slices4).then(|| "unit".to_string());
    Walk { units: product(&sizes), prelude, at: Coordinates { axes, lanes, pixel: None, unit }, apart: false }
}

/// The axes of a tensor as its elements lie, fastest first: for slices of four the batch, the spatial axes, then the slices.
pub(crate) fn order(tensor: &Operand<'_>) -> Vec<usize> {
    match tensor.placement {
        Placement::Slices4 => [0].into_iter().chain((2..tensor.rank()).rev()).chain([1]).collect(),
        Placement::Strided { .. } => (0..tensor.rank()).rev().collect(),
    }
}

/// The text of `fn name(unit: u32, extra) -> value(s)` that reads operand `index` for a unit of a walk over `tensor`.
///
/// `place` gets the unit's coordinates and returns statements and the operand's coordinates; the statements run
/// in a function that returns one value, or four where the walk's elements stay neighbours.
pub(crate) fn gather(
    shader: &mut Shader<'_>,
    walk: &Walk,
    tensor: &Operand<'_>,
    name: &str,
    extra: &str,
    index: usize,
    place: impl Fn(&mut Shader<'_>, &[String]) -> (String, Vec<String>),
) -> String {
    let comma = if extra.is_empty() { "" } else { ", " };
    if !walk.apart {
        let (statements, axes) = place(shader, &walk.at.axes);
        let at = Coordinates { axes, lanes: walk.at.lanes, pixel: None, unit: None };
        let params = format!("unit: u32{comma}{extra}");
        return shader.read_fn(name, &params, &format!("{}{statements}", walk.prelude), index, &at, false);
    }
    // Lanes past the last channel repeat it; they are stored as zero.
    let lane_axis = walk.at.lanes.unwrap_or(0);
    let last = shader.dim(&tensor.shape[lane_axis].plus(-1));
    let mut axes = walk.at.axes.clone();
    axes[lane_axis] = format!("min(({}) * 4u + lane, {last})", axes[lane_axis]);
    let (statements, axes) = place(shader, &axes);
    let params = format!("unit: u32, lane: u32{comma}{extra}");
    let lane_name = format!("{name}_lane");
    let prelude = format!("{}{statements}", walk.prelude);
    let read = shader.read_fn(&lane_name, &params, &prelude, index, &Coordinates::element(axes), false);
    let ty = Class::of(shader.problem.operands[index].dtype).wgsl(4);
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

/// Statements that split the flat index `from`, a variable, into one coordinate per axis, the first of `order`
/// fastest; axes that are not in it are 0.
pub(crate) fn decompose(
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
