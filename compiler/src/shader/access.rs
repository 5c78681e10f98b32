//! Translation of coordinates to addresses: WGSL expressions for the memory address of a tensor element.
//!
//! A kernel uses logical coordinates, one per axis. The WGSL that this module generates turns them into addresses for
//! the tensor's layout, so that every kernel works with every layout and storage kind. [`crate::ir::storage`] has the formulas.

use super::problem::{Operand, Placement};
use super::size_params::SizeParams;
use crate::ir::dim::Dim;
use crate::ir::storage::{SliceSizes, Storage};

/// Logical coordinates of one or four tensor elements, as WGSL expressions of type u32.
#[derive(Debug, Clone)]
pub struct Coordinates {
    /// One coordinate per axis. On the axis named by `lanes`, the coordinate counts groups of 4 elements.
    pub axes: Vec<String>,
    /// Axis along which the access covers 4 neighboring elements. `None` means an access to one element.
    pub lanes: Option<usize>,
    /// Flat position `(y*W + x)*N + n` of a pixel in a tensor in slices of 4 channels. If present, it replaces the
    /// coordinates of the spatial axes.
    pub pixel: Option<String>,
    /// Index of the accessed vec4 in the buffer. Present only if the tensor's layout equals the layout of the tensor
    /// over which the kernel iterates.
    pub vec4_index: Option<String>,
}

impl Coordinates {
    /// Creates the coordinates of one element.
    pub fn element(axes: Vec<String>) -> Self {
        Self { axes, lanes: None, pixel: None, vec4_index: None }
    }

    /// Creates the coordinates of 4 neighboring elements along `axis`.
    pub fn vec4(axes: Vec<String>, axis: usize) -> Self {
        Self { axes, lanes: Some(axis), pixel: None, vec4_index: None }
    }
}

/// Form of an access to one or four elements in a tensor's memory. If the tensor is in a texture, an index is the coordinates of
/// a texel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Access to one vec4 of a buffer of vectors, or to one texel.
    Vector {
        /// Index of the vec4 in the buffer, or coordinates of the texel in the texture.
        index: String,
    },
    /// Access to one scalar. If the buffer holds vectors, `lane` selects the component.
    Scalar {
        /// Index of the scalar in the buffer, or of the vector that holds the scalar.
        index: String,
        /// Component of the vector, if the buffer holds vectors.
        lane: Option<String>,
    },
    /// Read of one scalar that is repeated in all 4 components of a vector.
    Splat {
        /// Index of the scalar in the buffer.
        index: String,
    },
    /// Access to four scalars at separate indices. With a guard `(first, limit)`, scalar j is accessed only if `first +
    /// j < limit`.
    Scattered {
        /// Index of each of the four scalars, or of the vector that holds it.
        indices: [String; 4],
        /// Component of the vector, if the buffer holds vectors.
        lane: Option<String>,
        /// First of the four coordinates along their axis, and the size of that axis. Present if the last group of 4 elements
        /// along the axis may be incomplete.
        guard: Option<(String, String)>,
    },
}

impl Access {
    /// True if the access needs a buffer that is declared as an array of vectors.
    pub fn is_vector(&self) -> bool {
        match self {
            Self::Vector { .. } => true,
            Self::Splat { .. } => false,
            Self::Scalar { lane, .. } | Self::Scattered { lane, .. } => lane.is_some(),
        }
    }
}

/// Returns the form of the access that reads a tensor at given coordinates.
///
/// The result differs from [`tensor_access`] in two cases: a tensor of one channel repeats that channel in all 4
/// components, and a quantized tensor is read one element at a time.
pub fn tensor_read_access(
    sizes: &mut SizeParams,
    tensor: &Operand<'_>,
    at: &Coordinates,
    whole_groups: bool,
) -> Access {
    match tensor_access(sizes, tensor, at, whole_groups) {
        Access::Vector { index }
            if tensor.is_slices4() && tensor.shape[1].is(1) && at.vec4_index.is_none() =>
        {
            Access::Scalar { index, lane: Some("0u".into()) }
        }
        access => match (access, tensor.quantized) {
            (Access::Vector { index }, Some(quantized)) => {
                let last = (quantized.panels.rows * quantized.panels.depth).saturating_sub(1);
                let indices = [0, 1, 2, 3].map(|j| format!("min(({index}) * 4u + {j}u, {last}u)"));
                Access::Scattered { indices, lane: None, guard: None }
            }
            (access, _) => access,
        },
    }
}

/// Returns the form of the access to a tensor at given coordinates. `whole_groups` states that the last group of 4 elements needs
/// no bounds check, because the tensor is dense, its storage is padded, and the caller ignores elements past the end.
pub fn tensor_access(
    sizes: &mut SizeParams,
    tensor: &Operand<'_>,
    at: &Coordinates,
    whole_groups: bool,
) -> Access {
    match &tensor.placement {
        Placement::Strided { strides, offset } => {
            strided(sizes, &tensor.shape, strides, offset, at, whole_groups)
        }
        Placement::Slices4 => slices4(sizes, &tensor.shape, tensor.storage, at),
    }
}

fn strided(
    sizes: &mut SizeParams,
    shape: &[Dim],
    strides: &[Dim],
    offset: &Dim,
    at: &Coordinates,
    whole_groups: bool,
) -> Access {
    // The coordinate of an axis of size 1 is 0.
    let used = |i: usize| !shape[i].is(1) && !strides[i].is(0) && at.axes[i] != "0u";
    let Some(lane) = at.lanes else {
        let index = linear(
            sizes,
            offset,
            (0..shape.len()).filter(|i| used(*i)).map(|i| (at.axes[i].clone(), strides[i].clone())),
        );
        return Access::Scalar { index, lane: None };
    };
    let others: Vec<usize> = (0..shape.len()).filter(|i| *i != lane && used(*i)).collect();
    if strides[lane].is(0) || shape[lane].is(1) {
        let index = linear(sizes, offset, others.iter().map(|i| (at.axes[*i].clone(), strides[*i].clone())));
        return Access::Splat { index };
    }
    let whole = whole_groups || shape[lane].is_multiple_of(4);
    let aligned = offset.is_multiple_of(4) && others.iter().all(|i| strides[*i].is_multiple_of(4));
    if strides[lane].is(1) && whole && aligned {
        let quarter = |d: &Dim| d.floor_div(4);
        let terms = others.iter().map(|i| (at.axes[*i].clone(), quarter(&strides[*i])));
        let index = linear(sizes, &quarter(offset), terms.chain([(at.axes[lane].clone(), Dim::known(1))]));
        return Access::Vector { index };
    }
    let terms: Vec<(String, Dim)> =
        others.iter().map(|i| (at.axes[*i].clone(), strides[*i].clone())).collect();
    let stride = strides[lane].clone();
    let group = format!("({}) * 4u", at.axes[lane]);
    let base = linear(sizes, offset, terms.into_iter().chain([(format!("({group})"), stride.clone())]));
    let indices = [0, 1, 2, 3].map(|j| match j {
        0 => base.clone(),
        _ => format!("{base} + {}", sizes.dim(&stride.scale(j))),
    });
    let guard = (!shape[lane].is_multiple_of(4)).then(|| (group, sizes.dim(&shape[lane])));
    Access::Scattered { indices, lane: None, guard }
}

fn slices4(sizes: &mut SizeParams, shape: &[Dim], storage: Storage, at: &Coordinates) -> Access {
    if let Some(index) = at.vec4_index.as_ref().filter(|_| !storage.is_texture()) {
        return Access::Vector { index: index.clone() };
    }
    let pixels: Dim =
        shape.iter().enumerate().filter(|(i, _)| *i != 1).fold(Dim::known(1), |p, (_, d)| p.mul(d));
    // Order of positions: spatial axes row-major, then the batch.
    let pixel = |sizes: &mut SizeParams, axes: &[String]| match &at.pixel {
        Some(pixel) => pixel.clone(),
        None => {
            let order: Vec<usize> = (2..shape.len()).chain([0]).collect();
            let mut stride = Dim::known(1);
            let mut terms = Vec::new();
            for i in order.into_iter().rev() {
                if !shape[i].is(1) && axes[i] != "0u" {
                    terms.push((axes[i].clone(), stride.clone()));
                }
                stride = stride.mul(&shape[i]);
            }
            linear(sizes, &Dim::known(0), terms)
        }
    };
    let vec4_index = |sizes: &mut SizeParams, slice: String, axes: &[String]| {
        if storage.is_texture() {
            return texel(sizes, shape, storage, &slice, axes);
        }
        let pixel = pixel(sizes, axes);
        if shape[1].range(&sizes.bounds).1 <= 4 {
            return pixel;
        }
        linear(sizes, &Dim::known(0), [(slice, pixels.clone()), (pixel, Dim::known(1))])
    };
    // A broadcast axis has size 1, so its coordinate is 0.
    let channel = if shape[1].is(1) { "0u".to_string() } else { at.axes[1].clone() };
    match at.lanes {
        Some(1) => Access::Vector { index: vec4_index(sizes, at.axes[1].clone(), &at.axes) },
        lane if lane.is_none_or(|lane| shape[lane].is(1)) => {
            let index = vec4_index(sizes, format!("(({channel}) / 4u)"), &at.axes);
            Access::Scalar { index, lane: Some(format!("({channel}) % 4u")) }
        }
        lane => {
            let lane = lane.unwrap_or(0);
            let group = format!("({}) * 4u", at.axes[lane]);
            let indices = [0, 1, 2, 3].map(|j| {
                let mut axes = at.axes.clone();
                axes[lane] = format!("({group} + {j}u)");
                vec4_index(sizes, format!("(({channel}) / 4u)"), &axes)
            });
            let guard = (!shape[lane].is_multiple_of(4)).then(|| (group, sizes.dim(&shape[lane])));
            Access::Scattered { indices, lane: Some(format!("({channel}) % 4u")), guard }
        }
    }
}

/// Returns WGSL for the coordinates of the texel that holds four channels (slice `slice`) at a position of a tensor.
fn texel(sizes: &mut SizeParams, shape: &[Dim], storage: Storage, slice: &str, axes: &[String]) -> String {
    let Some(SliceSizes { images, slices, depth, .. }) = SliceSizes::from_shape(shape) else {
        return String::new();
    };
    let rank = shape.len();
    let slice = if shape[1].range(&sizes.bounds).1 <= 4 { "0u" } else { slice };
    let place = |axis: usize| if shape[axis].is(1) { "0u".into() } else { axes[axis].clone() };
    let spatial = |back: usize| if rank >= 2 + back { place(rank - back) } else { "0u".into() };
    let (x, y, z) = (spatial(1), spatial(2), spatial(3));
    let one = || Dim::known(1);
    let mut sum = |terms: &[(&str, Dim)]| {
        let used = terms.iter().filter(|(coordinate, _)| *coordinate != "0u");
        linear(
            sizes,
            &Dim::known(0),
            used.map(|(coordinate, stride)| ((*coordinate).to_string(), stride.clone())),
        )
    };
    let image = place(0);
    let image = image.as_str();
    match storage {
        Storage::Texture2d => {
            let x = sum(&[(&x, images.mul(&depth)), (image, depth), (&z, one())]);
            let y = sum(&[(&y, slices), (slice, one())]);
            format!("vec2<u32>({x}, {y})")
        }
        Storage::TextureArray => {
            let x = sum(&[(&x, images), (image, one())]);
            let layer = sum(&[(&z, slices), (slice, one())]);
            format!("vec2<u32>({x}, {y}), {layer}")
        }
        _ => {
            let x = sum(&[(&x, images), (image, one())]);
            let layer = sum(&[(&z, slices), (slice, one())]);
            format!("vec3<u32>({x}, {y}, {layer})")
        }
    }
}

/// Returns the WGSL expression of an element's index, `offset` plus the sum of `coordinate * stride`, without terms
/// that are zero.
fn linear(sizes: &mut SizeParams, offset: &Dim, terms: impl IntoIterator<Item = (String, Dim)>) -> String {
    let mut terms_wgsl = Vec::new();
    for (coordinate, stride) in terms {
        if stride.is(0) {
            continue;
        }
        terms_wgsl.push(if stride.is(1) {
            format!("({coordinate})")
        } else {
            format!("({coordinate}) * {}", sizes.dim(&stride))
        });
    }
    if !offset.is(0) || terms_wgsl.is_empty() {
        terms_wgsl.push(sizes.dim(offset));
    }
    terms_wgsl.join(" + ")
}
