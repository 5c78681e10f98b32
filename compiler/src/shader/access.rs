//! Coordinate translation: WGSL for the place of a logical element in its storage.
//!
//! A kernel speaks of logical coordinates; the text generated here turns them into addresses for the layout at hand,
//! so that every kernel works with every layout and every storage. [`crate::ir::storage`] has the formulas.

use super::problem::{Operand, Placement};
use super::words::Words;
use crate::ir::dim::Dim;
use crate::ir::storage::{Sizes, Storage};

/// Logical coordinates as WGSL expressions of type u32.
#[derive(Debug, Clone)]
pub struct Coordinates {
    /// One per axis; on the lane axis it counts groups of four.
    pub axes: Vec<String>,
    /// The axis along which four elements are accessed at once; `None` accesses one element.
    pub lanes: Option<usize>,
    /// For a tensor in slices of four: the position `(y*W + x)*N + n` when it is at hand, instead of the axes.
    pub pixel: Option<String>,
    /// The storage unit itself (a vector of four), when the tensor lies exactly like the one being iterated.
    pub unit: Option<String>,
}

impl Coordinates {
    /// One element.
    pub fn element(axes: Vec<String>) -> Self {
        Self { axes, lanes: None, pixel: None, unit: None }
    }

    /// Four elements along `axis`.
    pub fn four(axes: Vec<String>, axis: usize) -> Self {
        Self { axes, lanes: Some(axis), pixel: None, unit: None }
    }
}

/// How an access is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// `buffer[index]` of a buffer of vectors of four, or a texel.
    Vector {
        /// Index of the vector, or coordinates of the texel; so for the others.
        index: String,
    },
    /// One scalar; `lane` picks a component when the buffer holds vectors.
    Scalar {
        /// Index of the scalar, or of the vector.
        index: String,
        /// Component within the vector.
        lane: Option<String>,
    },
    /// The same scalar in all four lanes.
    Splat {
        /// Index of the scalar.
        index: String,
    },
    /// Four scalars, each at its own index; lane j only when `first + j < limit`.
    Scattered {
        /// Index of each lane's scalar, or of the vector that holds it.
        indices: [String; 4],
        /// Component within the vector, when the buffer holds vectors.
        lane: Option<String>,
        /// First logical index on the lane axis, and the size of that axis, where the last group may be cut.
        guard: Option<(String, String)>,
    },
}

impl Access {
    /// Whether the buffer is declared as an array of vectors.
    pub fn is_vector(&self) -> bool {
        match self {
            Self::Vector { .. } => true,
            Self::Splat { .. } => false,
            Self::Scalar { lane, .. } | Self::Scattered { lane, .. } => lane.is_some(),
        }
    }
}

/// Works out a reading access: as [`access`], but one channel that four are read of is in all lanes, and of codes elements
/// are read one by one.
pub fn reading(words: &mut Words, tensor: &Operand<'_>, at: &Coordinates, whole_groups: bool) -> Access {
    match access(words, tensor, at, whole_groups) {
        Access::Vector { index } if tensor.is_slices4() && tensor.shape[1].is(1) && at.unit.is_none() => {
            Access::Scalar { index, lane: Some("0u".into()) }
        }
        how => match (how, tensor.codes) {
            (Access::Vector { index }, Some(codes)) => {
                let last = (codes.form.rows * codes.form.depth).saturating_sub(1);
                let indices = [0, 1, 2, 3].map(|j| format!("min(({index}) * 4u + {j}u, {last}u)"));
                Access::Scattered { indices, lane: None, guard: None }
            }
            (how, _) => how,
        },
    }
}

/// Works out an access. `whole_groups` says that the caller never needs a group to be cut (the tensor is dense, the
/// storage is padded, and lanes past the end are ignored).
pub fn access(words: &mut Words, tensor: &Operand<'_>, at: &Coordinates, whole_groups: bool) -> Access {
    match &tensor.placement {
        Placement::Strided { strides, offset } => {
            strided(words, &tensor.shape, strides, offset, at, whole_groups)
        }
        Placement::Slices4 => slices4(words, &tensor.shape, tensor.storage, at),
    }
}

fn strided(
    words: &mut Words,
    shape: &[Dim],
    strides: &[Dim],
    offset: &Dim,
    at: &Coordinates,
    whole_groups: bool,
) -> Access {
    // The coordinate of an axis of size 1 is 0 and adds nothing.
    let used = |i: usize| !shape[i].is(1) && !strides[i].is(0) && at.axes[i] != "0u";
    let Some(lane) = at.lanes else {
        let index = linear(
            words,
            offset,
            (0..shape.len()).filter(|i| used(*i)).map(|i| (at.axes[i].clone(), strides[i].clone())),
        );
        return Access::Scalar { index, lane: None };
    };
    let others: Vec<usize> = (0..shape.len()).filter(|i| *i != lane && used(*i)).collect();
    if strides[lane].is(0) || shape[lane].is(1) {
        let index = linear(words, offset, others.iter().map(|i| (at.axes[*i].clone(), strides[*i].clone())));
        return Access::Splat { index };
    }
    let whole = whole_groups || shape[lane].is_multiple_of(4);
    let aligned = offset.is_multiple_of(4) && others.iter().all(|i| strides[*i].is_multiple_of(4));
    if strides[lane].is(1) && whole && aligned {
        let quarter = |d: &Dim| d.floor_div(4);
        let terms = others.iter().map(|i| (at.axes[*i].clone(), quarter(&strides[*i])));
        let index = linear(words, &quarter(offset), terms.chain([(at.axes[lane].clone(), Dim::known(1))]));
        return Access::Vector { index };
    }
    let terms: Vec<(String, Dim)> =
        others.iter().map(|i| (at.axes[*i].clone(), strides[*i].clone())).collect();
    let stride = strides[lane].clone();
    let group = format!("({}) * 4u", at.axes[lane]);
    let base = linear(words, offset, terms.into_iter().chain([(format!("({group})"), stride.clone())]));
    let indices = [0, 1, 2, 3].map(|j| match j {
        0 => base.clone(),
        _ => format!("{base} + {}", words.dim(&stride.scale(j))),
    });
    let guard = (!shape[lane].is_multiple_of(4)).then(|| (group, words.dim(&shape[lane])));
    Access::Scattered { indices, lane: None, guard }
}

fn slices4(words: &mut Words, shape: &[Dim], storage: Storage, at: &Coordinates) -> Access {
    if let Some(unit) = at.unit.as_ref().filter(|_| !storage.is_texture()) {
        return Access::Vector { index: unit.clone() };
    }
    let pixels: Dim =
        shape.iter().enumerate().filter(|(i, _)| *i != 1).fold(Dim::known(1), |p, (_, d)| p.mul(d));
    // Spatial axes row-major, then the batch.
    let pixel = |words: &mut Words, axes: &[String]| match &at.pixel {
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
            linear(words, &Dim::known(0), terms)
        }
    };
    let unit = |words: &mut Words, slice: String, axes: &[String]| {
        if storage.is_texture() {
            return texel(words, shape, storage, &slice, axes);
        }
        let pixel = pixel(words, axes);
        if shape[1].range(&words.bounds).1 <= 4 {
            return pixel;
        }
        linear(words, &Dim::known(0), [(slice, pixels.clone()), (pixel, Dim::known(1))])
    };
    // The coordinate of an axis of size 1 is 0, whatever the result's is that it is broadcast to.
    let channel = if shape[1].is(1) { "0u".to_string() } else { at.axes[1].clone() };
    match at.lanes {
        Some(1) => Access::Vector { index: unit(words, at.axes[1].clone(), &at.axes) },
        lane if lane.is_none_or(|lane| shape[lane].is(1)) => {
            let index = unit(words, format!("(({channel}) / 4u)"), &at.axes);
            Access::Scalar { index, lane: Some(format!("({channel}) % 4u")) }
        }
        lane => {
            let lane = lane.unwrap_or(0);
            let group = format!("({}) * 4u", at.axes[lane]);
            let indices = [0, 1, 2, 3].map(|j| {
                let mut axes = at.axes.clone();
                axes[lane] = format!("({group} + {j}u)");
                unit(words, format!("(({channel}) / 4u)"), &axes)
            });
            let guard = (!shape[lane].is_multiple_of(4)).then(|| (group, words.dim(&shape[lane])));
            Access::Scattered { indices, lane: Some(format!("({channel}) % 4u")), guard }
        }
    }
}

/// The coordinates of the texel that holds a slice at a position.
fn texel(words: &mut Words, shape: &[Dim], storage: Storage, slice: &str, axes: &[String]) -> String {
    let Some(Sizes { images, slices, depth, .. }) = Sizes::of(shape) else { return String::new() };
    let rank = shape.len();
    let slice = if shape[1].range(&words.bounds).1 <= 4 { "0u" } else { slice };
    let place = |axis: usize| if shape[axis].is(1) { "0u".into() } else { axes[axis].clone() };
    let spatial = |back: usize| if rank >= 2 + back { place(rank - back) } else { "0u".into() };
    let (x, y, z) = (spatial(1), spatial(2), spatial(3));
    let one = || Dim::known(1);
    let mut sum = |terms: &[(&str, Dim)]| {
        let used = terms.iter().filter(|(coordinate, _)| *coordinate != "0u");
        linear(
            words,
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

/// `offset + sum of coordinate * stride`, as short as it can be written.
fn linear(words: &mut Words, offset: &Dim, terms: impl IntoIterator<Item = (String, Dim)>) -> String {
    let mut parts = Vec::new();
    for (coordinate, stride) in terms {
        if stride.is(0) {
            continue;
        }
        parts.push(if stride.is(1) {
            format!("({coordinate})")
        } else {
            format!("({coordinate}) * {}", words.dim(&stride))
        });
    }
    if !offset.is(0) || parts.is_empty() {
        parts.push(words.dim(offset));
    }
    parts.join(" + ")
}
