//! Convolutions as implicit GEMM with one row per pixel: the pixel that belongs to a row, and the image as the first operand.

use super::window::Windows;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::Conv;
use crate::shader::Shader;
use crate::shader::access::Coordinates;
use crate::shader::element_walk::split_index;
use crate::shader::problem::Problem;

/// Rows of an implicit GEMM. One matmul computes the pixels of all images, in the order of the layout in channel
/// slices, or each image has its own matmul.
pub(crate) struct PixelRows {
    /// True if one matmul computes the pixels of all images, false if each image has its own matmul.
    pub(crate) all_images: bool,
    pub(crate) batch: Dim,
    pub(crate) m: Dim,
}

/// Returns the rows of a convolution as implicit GEMM.
pub(crate) fn pixel_rows(problem: &Problem<'_>) -> PixelRows {
    let result = &problem.result;
    let images = result.shape[0].clone();
    let pixels = product(&result.shape[2..]);
    let all_images = result.is_slices4() || problem.operands[0].is_slices4();
    if all_images {
        PixelRows { all_images, batch: Dim::known(1), m: pixels.mul(&images) }
    } else {
        PixelRows { all_images, batch: images, m: pixels }
    }
}

/// Returns WGSL statements that turn `batch` and `row` of an implicit GEMM into coordinates of the convolution's
/// result, and the names of these coordinates. The channel coordinate is only a placeholder.
pub(crate) fn row_coordinates(shader: &mut Shader<'_>, rows: &PixelRows) -> (String, Vec<String>) {
    let mut sizes = shader.problem.result.shape.clone();
    let rank = sizes.len();
    sizes[1] = Dim::known(1);
    let spatial = (2..rank).rev();
    if rows.all_images {
        let order: Vec<usize> = [0].into_iter().chain(spatial).collect();
        return split_index(shader, &sizes, &order, "row");
    }
    sizes[0] = Dim::known(1);
    let order: Vec<usize> = spatial.collect();
    let (prelude, mut axes) = split_index(shader, &sizes, &order, "row");
    axes[0] = "batch".into();
    (prelude, axes)
}

/// The image of a convolution as the first operand of an implicit GEMM.
pub(crate) struct Image<'s> {
    pub(crate) op: &'s Conv,
    pub(crate) windows: &'s Windows,
    pub(crate) rows: &'s PixelRows,
    /// Number of channel groups of a tap. A channel group consists of the channels that one read loads.
    pub(crate) groups: usize,
    /// WGSL type of a channel group, the channels that one read loads.
    pub(crate) group_type: &'static str,
}

impl Image<'_> {
    /// Returns WGSL of a function, if one is needed, and the expression of a channel group outside the image. Its
    /// elements are the zero point of the image.
    fn outside(&self) -> (String, String) {
        let (ty, byte) = (self.group_type, self.op.zero_point as u8);
        let word = u32::from_le_bytes([byte; 4]);
        match (self.op.zero_point, ty) {
            (0, _) => (String::new(), format!("{ty}()")),
            (_, "u32") => (String::new(), format!("{word:#010x}u")),
            // A variable, because a constant expression must not be a float that is no number.
            _ => (
                format!(
                    "fn outside() -> {ty} {{\n    var words = vec2<u32>({word:#010x}u);\n    return bitcast<{ty}>(words);\n}}\n"
                ),
                "outside()".to_string(),
            ),
        }
    }
}

/// Returns the WGSL function `name(batch, row, k)`, which reads the image for an implicit GEMM. `row` is the index of a
/// pixel; `k` is the tap times the number of channel groups, plus the channel group. The function returns the zero point
/// of the image outside the image. The tuple holds the result of [`row_coordinates`]: statements, and the coordinates of
/// a row. `read` creates a reading function from a name, parameters, statements and coordinates.
pub(crate) fn load_image(
    shader: &mut Shader<'_>,
    image: &Image<'_>,
    name: &str,
    (prelude, row_axes): (&str, &[String]),
    read: impl Fn(&mut Shader<'_>, &str, &str, &str, &Coordinates) -> Result<String, OpError>,
) -> Result<String, OpError> {
    let Image { op, windows, rows, groups, group_type } = image;
    let (outside_function, outside) = image.outside();
    let rank = shader.problem.result.rank();
    let first = 5 - rank;
    let padded = windows.begin != [0; 3] || windows.end != [0; 3];
    let single_pixel = windows.taps() == 1 && op.strides.iter().all(|s| *s == 1) && !padded;
    let params = "batch: u32, row: u32, k: u32";
    if single_pixel {
        let mut axes = row_axes.to_vec();
        axes[1] = "k".into();
        let pixel = rows.all_images.then(|| "row".to_string());
        let at = Coordinates { axes, lanes: Some(1), pixel, vec4_index: None };
        return read(shader, name, params, prelude, &at);
    }
    let names = ["z", "y", "x"];
    let mut axes = vec!["b".to_string(), "c".to_string()];
    axes.extend(names[first..].iter().map(|n| (*n).to_string()));
    let source = format!("{}: u32", axes.join(": u32, "));
    let load_pixel = read(shader, "load_pixel", &source, "", &Coordinates::vec4(axes, 1))?;
    let mut body = format!("    let c = k % {groups}u;\n    var tap = k / {groups}u;\n");
    let mut inside = Vec::new();
    let guards = shader.guards(0, windows.padded());
    for axis in (first..3).rev() {
        let name = names[axis];
        let place = &row_axes[2 + axis - first];
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
    let call = format!("load_pixel({}, c, {})", row_axes[0], names[first..].join(", "));
    let result = if inside.is_empty() {
        format!("    return {call};\n")
    } else {
        // A tap outside the image reads some pixel inside, and the value is ignored. Without a branch, loads overlap.
        let clamped: String =
            names[first..].iter().map(|n| format!("    {n} = select(0u, {n}, inside);\n")).collect();
        format!(
            "    let inside = {};\n{clamped}    return select({outside}, {call}, inside);\n",
            inside.join(" && ")
        )
    };
    Ok(format!(
        "{load_pixel}{outside_function}fn {name}({params}) -> {group_type} {{\n{prelude}{body}{result}}}\n"
    ))
}
