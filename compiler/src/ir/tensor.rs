//! What a value looks like: element type, shape and layout.

use serde::{Deserialize, Serialize};
use std::fmt;

use super::dim::{Bounds, Dim, product};
use super::storage::{Sizes, Storage};
use crate::error::OpError;

/// Most elements that one tensor may have; anything larger is a malformed or hostile model.
pub const MAX_ELEMENTS: i64 = 1 << 36;

/// Most dimensions of a tensor.
pub const MAX_RANK: usize = 16;

/// An element type, by its ONNX name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum DType {
    F32,
    F16,
    Bf16,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
}

impl DType {
    /// Bytes of one element in a model file.
    pub fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// Whether the type is a floating-point one.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16 | Self::F64)
    }

    /// Whether the type is an integer; bool is none.
    pub fn is_integer(self) -> bool {
        !self.is_float() && self != Self::Bool
    }

    /// Whether the type is an unsigned integer.
    pub fn is_unsigned(self) -> bool {
        matches!(self, Self::U8 | Self::U16 | Self::U32 | Self::U64)
    }

    /// The name in the graph's text form.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F64 => "f64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::Bool => "bool",
        }
    }

    /// The type with the given text name.
    pub fn parse(name: &str) -> Option<Self> {
        use DType::{Bf16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
        [F32, F16, Bf16, F64, I8, I16, I32, I64, U8, U16, U32, U64, Bool]
            .into_iter()
            .find(|t| t.name() == name)
    }

    /// The type that holds such elements on the device: floats stay f32 or f16, integers become 32 bits wide.
    pub fn on_device(self) -> DeviceType {
        match self {
            Self::F16 => DeviceType::F16,
            Self::F32 | Self::Bf16 | Self::F64 => DeviceType::F32,
            Self::I8 | Self::I16 | Self::I32 | Self::I64 => DeviceType::I32,
            Self::U8 | Self::U16 | Self::U32 | Self::U64 | Self::Bool => DeviceType::U32,
        }
    }
}

/// An element type in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub enum DeviceType {
    F32,
    F16,
    I32,
    U32,
    /// Integers of 8 bits, which only packed constants hold; shaders see words of four.
    Byte,
}

impl DeviceType {
    /// Bytes of one element.
    pub fn bytes(self) -> i64 {
        match self {
            Self::Byte => 1,
            Self::F16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
        }
    }

    /// The WGSL scalar type.
    pub fn wgsl(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::I32 => "i32",
            Self::U32 | Self::Byte => "u32",
        }
    }
}

/// How a tensor lies in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Layout {
    /// Dense, last dimension fastest, in a buffer.
    #[default]
    RowMajor,
    /// Slices of four channels, zero padded, for a tensor of axes N, C and up to three spatial axes. [`Storage`]
    /// says where each of them is.
    Slices4(Storage),
}

impl Layout {
    /// Slices of four channels in a buffer.
    pub const SLICES4: Layout = Layout::Slices4(Storage::Buffer);

    /// The name in the graph's text form: `slices4` for a buffer, else the storage's.
    pub fn name(self) -> &'static str {
        match self {
            Self::RowMajor => "row-major",
            Self::Slices4(Storage::Buffer) => "slices4",
            Self::Slices4(storage) => storage.name(),
        }
    }

    /// The layout with the given text name.
    pub fn parse(name: &str) -> Option<Self> {
        let sliced = Storage::ALL.into_iter().map(Self::Slices4);
        [Self::RowMajor].into_iter().chain(sliced).find(|layout| layout.name() == name)
    }

    /// The kind of memory object.
    pub fn storage(self) -> Storage {
        match self {
            Self::RowMajor => Storage::Buffer,
            Self::Slices4(storage) => storage,
        }
    }

    /// Whether a tensor of this shape can be laid out so.
    pub fn holds(self, shape: &[Dim]) -> bool {
        self == Self::RowMajor || Sizes::of(shape).is_some()
    }
}

impl TryFrom<String> for Layout {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::parse(&name).ok_or_else(|| format!("`{name}` is not a layout"))
    }
}

impl From<Layout> for String {
    fn from(layout: Layout) -> Self {
        layout.name().to_string()
    }
}

/// Element type, shape and layout of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorDesc {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first; empty for a scalar.
    pub shape: Vec<Dim>,
    /// Arrangement in memory.
    pub layout: Layout,
}

impl TensorDesc {
    /// A row-major tensor.
    pub fn new(dtype: DType, shape: Vec<Dim>) -> Self {
        Self { dtype, shape, layout: Layout::RowMajor }
    }

    /// A row-major tensor of known sizes.
    pub fn of(dtype: DType, shape: &[usize]) -> Self {
        Self::new(dtype, shape.iter().map(|d| Dim::from(*d)).collect())
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn elements(&self) -> Dim {
        product(&self.shape)
    }

    /// The sizes, when all are known.
    pub fn known_shape(&self) -> Option<Vec<usize>> {
        self.shape.iter().map(|d| usize::try_from(d.as_known()?).ok()).collect()
    }

    /// Fails on a negative size, too many dimensions or more than [`MAX_ELEMENTS`] elements.
    pub fn check(&self, bounds: &Bounds) -> Result<(), OpError> {
        if self.rank() > MAX_RANK {
            return Err(OpError::new(format!("rank {} exceeds {MAX_RANK}", self.rank())));
        }
        if let Some(d) = self.shape.iter().find(|d| d.range(bounds).1 < 0) {
            let advice = d.as_known().map_or("; higher bounds are given with --dim", |_| "");
            return Err(OpError::new(format!("size {d} is negative in {self}{advice}")));
        }
        let mut count = 1i64;
        for d in &self.shape {
            count = count.saturating_mul(d.range(bounds).1);
        }
        if count > MAX_ELEMENTS {
            return Err(OpError::new(format!("{self} has more than {MAX_ELEMENTS} elements")));
        }
        Ok(())
    }
}

impl fmt::Display for TensorDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.shape.iter().map(Dim::to_string).collect();
        write!(f, "{}[{}]", self.dtype.name(), dims.join(", "))?;
        match self.layout {
            Layout::RowMajor => Ok(()),
            layout => write!(f, "@{}", layout.name()),
        }
    }
}

/// The shape that operands broadcast to, by ONNX's multidirectional rule.
///
/// A symbolic size against a size other than 1 is taken to be equal to it when they are the same expression;
/// otherwise the known one wins, since a valid run makes them equal.
pub fn broadcast(shapes: &[&[Dim]]) -> Result<Vec<Dim>, OpError> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut out = vec![Dim::known(1); rank];
    for shape in shapes {
        let skip = rank - shape.len();
        for (o, d) in out[skip..].iter_mut().zip(shape.iter()) {
            if d.is(1) || o == d {
                continue;
            }
            if o.is(1) {
                *o = d.clone();
                continue;
            }
            match (o.as_known(), d.as_known()) {
                (Some(a), Some(b)) => {
                    return Err(OpError::new(format!("sizes {a} and {b} do not broadcast")));
                }
                (None, Some(_)) => *o = d.clone(),
                (Some(_) | None, None) => {}
            }
        }
    }
    Ok(out)
}

/// A non-negative axis for a possibly negative one.
pub fn normalize_axis(axis: i64, rank: usize) -> Result<usize, OpError> {
    let signed = i64::try_from(rank).unwrap_or(i64::MAX);
    let at = if axis < 0 { axis.saturating_add(signed) } else { axis };
    usize::try_from(at)
        .ok()
        .filter(|a| *a < rank)
        .ok_or_else(|| OpError::new(format!("axis {axis} is outside a tensor of rank {rank}")))
}
