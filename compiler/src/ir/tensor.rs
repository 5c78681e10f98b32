//! Type of a value: element type, shape and layout.

use serde::{Deserialize, Serialize};
use std::fmt;

use super::dim::{Bounds, Dim, product};
use super::storage::{SliceSizes, Storage};
use crate::error::OpError;

/// Maximum elements of a tensor. Larger tensors indicate a malformed or hostile model.
pub const MAX_ELEMENTS: i64 = 1 << 36;

/// Maximum rank of a tensor.
pub const MAX_RANK: usize = 16;

/// An element type of a tensor, by its ONNX name.
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
    /// Byte size of an element in a model file.
    pub fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// True for floating-point types.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16 | Self::F64)
    }

    /// True for integer types; bool is not an integer.
    pub fn is_integer(self) -> bool {
        !self.is_float() && self != Self::Bool
    }

    /// True for unsigned integer types.
    pub fn is_unsigned(self) -> bool {
        matches!(self, Self::U8 | Self::U16 | Self::U32 | Self::U64)
    }

    /// Name of the element type in the graph's text form.
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

    /// Parses the name of an element type in the graph's text form.
    pub fn parse(name: &str) -> Option<Self> {
        use DType::{Bf16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
        [F32, F16, Bf16, F64, I8, I16, I32, I64, U8, U16, U32, U64, Bool]
            .into_iter()
            .find(|t| t.name() == name)
    }

    /// Returns the device type for elements of this type: floats become f32 or f16, 8-bit integers keep their width,
    /// other integers and bools become 32 bits wide.
    pub fn on_device(self) -> DeviceType {
        match self {
            Self::F16 => DeviceType::F16,
            Self::F32 | Self::Bf16 | Self::F64 => DeviceType::F32,
            Self::I8 => DeviceType::I8,
            Self::U8 => DeviceType::U8,
            Self::I16 | Self::I32 | Self::I64 => DeviceType::I32,
            Self::U16 | Self::U32 | Self::U64 | Self::Bool => DeviceType::U32,
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
    /// Signed 8-bit integers. A shader reads a buffer of them as words of four.
    I8,
    /// Unsigned 8-bit integers. A shader reads a buffer of them as words of four.
    U8,
}

impl DeviceType {
    /// Byte size of an element in device memory.
    pub fn bytes(self) -> i64 {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
        }
    }

    /// WGSL scalar type of a loaded element.
    pub fn wgsl(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::I32 | Self::I8 => "i32",
            Self::U32 | Self::U8 => "u32",
        }
    }

    /// True for types of 8 bits. A word of 32 bits holds four elements.
    pub fn is_8_bit(self) -> bool {
        matches!(self, Self::I8 | Self::U8)
    }
}

/// Arrangement of a tensor in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Layout {
    /// Row-major order in a buffer: dense, last axis fastest.
    #[default]
    RowMajor,
    /// Slices of 4 channels, zero padded, for a tensor with the axes N, C and up to three spatial axes. [`Storage`]
    /// gives the position of each slice.
    Slices4(Storage),
}

impl Layout {
    /// The layout `slices4` in a buffer: slices of 4 channels.
    pub const SLICES4: Layout = Layout::Slices4(Storage::Buffer);

    /// Name of the layout in the graph's text form: `slices4` for a buffer, else the name of the kind of memory object.
    pub fn name(self) -> &'static str {
        match self {
            Self::RowMajor => "row-major",
            Self::Slices4(Storage::Buffer) => "slices4",
            Self::Slices4(storage) => storage.name(),
        }
    }

    /// Parses the name of a layout in the graph's text form.
    pub fn parse(name: &str) -> Option<Self> {
        let sliced = Storage::ALL.into_iter().map(Self::Slices4);
        [Self::RowMajor].into_iter().chain(sliced).find(|layout| layout.name() == name)
    }

    /// Kind of memory object that holds a tensor of this layout.
    pub fn storage(self) -> Storage {
        match self {
            Self::RowMajor => Storage::Buffer,
            Self::Slices4(storage) => storage,
        }
    }

    /// True if a tensor of the given shape can have the layout.
    pub fn holds(self, shape: &[Dim]) -> bool {
        self == Self::RowMajor || SliceSizes::from_shape(shape).is_some()
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
    /// Shape, outermost axis first; empty for a scalar.
    pub shape: Vec<Dim>,
    /// Arrangement of the tensor in memory.
    pub layout: Layout,
}

impl TensorDesc {
    /// Creates the description of a row-major tensor from its element type and its shape.
    pub fn new(dtype: DType, shape: Vec<Dim>) -> Self {
        Self { dtype, shape, layout: Layout::RowMajor }
    }

    /// Creates the description of a row-major tensor from its element type and known sizes.
    pub fn from_sizes(dtype: DType, shape: &[usize]) -> Self {
        Self::new(dtype, shape.iter().map(|d| Dim::from(*d)).collect())
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn elements(&self) -> Dim {
        product(&self.shape)
    }

    /// Returns the shape if all sizes are known, else `None`.
    pub fn known_shape(&self) -> Option<Vec<usize>> {
        self.shape.iter().map(|d| usize::try_from(d.as_known()?).ok()).collect()
    }

    /// Fails on a size that is negative for all values of the symbols, a rank above [`MAX_RANK`], or more than
    /// [`MAX_ELEMENTS`] elements at the upper bounds of the symbols.
    pub fn check(&self, bounds: &Bounds) -> Result<(), OpError> {
        if self.rank() > MAX_RANK {
            return Err(OpError::new(format!("rank {} exceeds {MAX_RANK}", self.rank())));
        }
        if let Some(d) = self.shape.iter().find(|d| d.range(bounds).1 < 0) {
            let advice = d.as_known().map_or("; set higher bounds with --dim", |_| "");
            return Err(OpError::new(format!("the size {d} of the tensor {self} is negative{advice}")));
        }
        let mut count = 1i64;
        for d in &self.shape {
            count = count.saturating_mul(d.range(bounds).1);
        }
        if count > MAX_ELEMENTS {
            return Err(OpError::new(format!("the tensor {self} has more than {MAX_ELEMENTS} elements")));
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

/// Returns the shape that operands broadcast to, by ONNX's multidirectional rule.
///
/// A symbolic size is assumed to equal any size other than 1 that it meets, because a valid run makes them equal. The
/// result then has the known one of the two sizes.
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
                    return Err(OpError::new(format!("axes of sizes {a} and {b} do not broadcast")));
                }
                (None, Some(_)) => *o = d.clone(),
                (Some(_) | None, None) => {}
            }
        }
    }
    Ok(out)
}

/// Converts a signed axis number to the index of the axis. A negative number counts from the last axis.
pub fn normalize_axis(axis: i64, rank: usize) -> Result<usize, OpError> {
    let signed = i64::try_from(rank).unwrap_or(i64::MAX);
    let at = if axis < 0 { axis.saturating_add(signed) } else { axis };
    usize::try_from(at)
        .ok()
        .filter(|a| *a < rank)
        .ok_or_else(|| OpError::new(format!("axis {axis} is outside a tensor of rank {rank}")))
}
