//! Coordinate translation: WGSL for the place of a logical element in its storage.
//!
//! A kernel speaks of logical coordinates; the text generated here turns them into addresses for the layout at hand,
//! so that every kernel works with every layout. Formulas for slices of four: the BUFFER row of ML Drift's table,
//! `((s*H + y)*W + x)*B + b`.

use super::problem::Placement;
use super::shader::Words;
use crate::ir::dim::Dim;

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
    /// `buffer[index]` of a buffer of vectors of four.
    Vector {
        /// Index of the vector.
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

/// Works out an access. `whole_groups` says that the caller never needs a group to be cut (the tensor is dense, the
/// storage is padded, and lanes past the end are ignored).
pub fn access(
    words: &mut Words,
    shape: &[Dim],
    placement: &Placement,
    at: &Coordinates,
    whole_groups: bool,
) -> Access {
    match placement {
        Placement::Strided { strides, offset } => strided(words, shape, strides, offset, at, whole_groups),
        Placement::Slices4 => slices4(words, shape, at),
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

fn slices4(words: &mut Words, shape: &[Dim], at: &Coordinates) -> Access {
    if let Some(unit) = &at.unit {
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
        let pixel = pixel(words, axes);
        if shape[1].range(&words.bounds).1 <= 4 {
            return pixel;
        }
        linear(words, &Dim::known(0), [(slice, pixels.clone()), (pixel, Dim::known(1))])
    };
    match at.lanes {
        Some(1) => Access::Vector { index: unit(words, at.axes[1].clone(), &at.axes) },
        None => {
            let channel = &at.axes[1];
            let index = unit(words, format!("(({channel}) / 4u)"), &at.axes);
            Access::Scalar { index, lane: Some(format!("({channel}) % 4u")) }
        }
        Some(lane) => {
            let channel = at.axes[1].clone();
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
