//! Convolutions as matrix products with a row per pixel: which pixel a row is, and the image as the first operand.

use super::window::Windows;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::Conv;
use crate::shader::Shader;
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::walk::decompose;

/// How pixels become rows: one product of all pixels of all images in the order of slices of four, or one product
/// per image.
pub(crate) struct Rows {
    pub(crate) all: bool,
    pub(crate) batch: Dim,
    pub(crate) m: Dim,
}

pub(crate) fn rows(problem: &Problem<'_>) -> Rows {
    let result = &problem.result;
    let images = result.shape[0].clone();
    let pixels = product(&result.shape[2..]);
    let all = result.is_slices4() || problem.operands[0].is_slices4();
    if all {
        Rows { all, batch: Dim::known(1), m: pixels.mul(&images) }
    } else {
        Rows { all, batch: images, m: pixels }
    }
}

/// Statements that turn `batch` and `row` into the result's coordinates, and those; the channel's place is free.
pub(crate) fn positions(shader: &mut Shader<'_>, rows: &Rows) -> (String, Vec<String>) {
    let mut sizes = shader.problem.result.shape.clone();
    let rank = sizes.len();
    sizes[1] = Dim::known(1);
    let spatial = (2..rank).rev();
    if rows.all {
        let order: Vec<usize> = [0].into_iter().chain(spatial).collect();
        return decompose(shader, &sizes, &order, "row");
    }
    sizes[0] = Dim::known(1);
    let order: Vec<usize> = spatial.collect();
    let (prelude, mut places) = decompose(shader, &sizes, &order, "row");
    places[0] = "batch".into();
    (prelude, places)
}

/// The image of a convolution as the first operand of a matrix product.
pub(crate) struct Image<'s> {
    pub(crate) op: &'s Conv,
    pub(crate) windows: &'s Windows,
    pub(crate) rows: &'s Rows,
    /// Groups of channels of a tap, and their type in WGSL.
    pub(crate) groups: usize,
    pub(crate) group: &'static str,
}

/// The text of `fn name(batch, row, k)`, which gives the group of channels of the tap that `k` stands for at the pixel
/// that `row` is; zeros outside of the image. `positions` are the statements and places of a row, and `read` writes a
/// function of a name, parameters and statements that loads a group at coordinates.
pub(crate) fn load_image(
    shader: &mut Shader<'_>,
    image: &Image<'_>,
    name: &str,
    (prelude, places): (&str, &[String]),
    read: impl Fn(&mut Shader<'_>, &str, &str, &str, &Coordinates) -> Result<String, OpError>,
) -> Result<String, OpError> {
    let Image { op, windows, rows, groups, group } = image;
    let rank = shader.problem.result.rank();
    let first = 5 - rank;
    let padded = windows.begin != [0; 3] || windows.end != [0; 3];
    let unmoved = windows.taps() == 1 && op.strides.iter().all(|s| *s == 1) && !padded;
    let params = "batch: u32, row: u32, k: u32";
    if unmoved {
        let mut axes = places.to_vec();
        axes[1] = "k".into();
        let pixel = rows.all.then(|| "row".to_string());
        let at = Coordinates { axes, lanes: Some(1), pixel, unit: None };
        return read(shader, name, params, prelude, &at);
    }
    let names = ["z", "y", "x"];
    let mut axes = vec!["b".to_string(), "c".to_string()];
    axes.extend(names[first..].iter().map(|n| (*n).to_string()));
    let source = format!("{}: u32", axes.join(": u32, "));
    let text = read(shader, "load_pixel", &source, "", &Coordinates::four(axes, 1))?;
    let mut body = format!("    let c = k % {groups}u;\n    var tap = k / {groups}u;\n");
    let mut inside = Vec::new();
    let guards = shader.guards(0, windows.padded());
    for axis in (first..3).rev() {
        let name = names[axis];
        let place = &places[2 + axis - first];
        let size = shader.problem.operands[0].shape[2 + axis - first].clone();
        let size = shader.dim(&size);
        let (kernel, stride, dilation, begin) =
            (windows.kernel[axis], windows.stride[axis], windows.dilation[axis], windows.begin[axis]);
        body +=
            &format!("    var {name} = {place} * {stride}u + tap % {kernel}u * {dilation}u - {begin}u;\n");
        if axis > first {
            body += &format!("    tap = tap / {kernel}u;\n");
        }
        if guards[axis] {
            inside.push(format!("{name} < {size}"));
        }
    }
    let call = format!("load_pixel({}, c, {})", places[0], names[first..].join(", "));
    let give = if inside.is_empty() {
        format!("    return {call};\n")
    } else {
        // A tap outside reads some pixel inside, which is then ignored: no branch, so that loads overlap.
        let moved: String =
            names[first..].iter().map(|n| format!("    {n} = select(0u, {n}, inside);\n")).collect();
        format!(
            "    let inside = {};\n{moved}    return select({group}(), {call}, inside);\n",
            inside.join(" && ")
        )
    };
    Ok(format!("{text}fn {name}({params}) -> {group} {{\n{prelude}{body}{give}}}\n"))
}
