//! The enum [`Encoding`], which calls the code of each kind of encoding, and stacks of encoded constants.

use std::fmt;
use std::sync::Arc;

use rayon::prelude::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

use super::blocks::BlockKind;
use super::bytes::plain_float;
use super::group_quantized::{GroupQuantized, PackedValues};
use super::quant_format::QuantFormat;
use super::quantized_on_read::QuantizedOnRead;
use crate::content::Content;
use crate::error::OpError;
use crate::ir::array::{Array, Data, count};
use crate::ir::tensor::DType;

/// Representation of a constant's elements by its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encoding {
    /// Unquantized elements of one type.
    Plain(DType),
    /// GGUF blocks of consecutive elements, each with its own scales.
    Blocks(BlockKind),
    /// A quantized matrix; scales and zero points are separate tensors (GPTQ, AWQ, MatMulNBits).
    GroupQuantized(Arc<GroupQuantized>),
    /// A matrix of floats that is quantized while it is read.
    QuantizedOnRead(Arc<QuantizedOnRead>),
    /// Several constants of one shape, stacked along a new axis. The bytes of the whole constant are the bytes of the
    /// first member.
    Stack(Arc<Stack>),
}

impl Encoding {
    /// Element type after dequantization.
    pub fn element_type(&self) -> DType {
        match self {
            Self::Plain(dtype) => *dtype,
            Self::Blocks(_) | Self::GroupQuantized(_) | Self::QuantizedOnRead(_) => DType::F32,
            Self::Stack(stack) => stack.element_type(),
        }
    }

    /// Element type of a plain encoding; `None` for all others.
    pub fn plain_dtype(&self) -> Option<DType> {
        match self {
            Self::Plain(dtype) => Some(*dtype),
            Self::Blocks(_) | Self::GroupQuantized(_) | Self::QuantizedOnRead(_) | Self::Stack(_) => None,
        }
    }

    /// Checks that `bytes` bytes hold the elements of a shape.
    ///
    /// # Errors
    /// If the number of bytes, the shape and the encoding do not match.
    pub fn check(&self, shape: &[usize], bytes: usize) -> Result<(), OpError> {
        let elements = count(shape);
        let needed = match self {
            Self::Plain(dtype) => elements.checked_mul(dtype.bytes()),
            Self::Blocks(kind) => {
                let row = shape.last().copied().unwrap_or(1);
                if row % kind.elements() != 0 {
                    return Err(OpError::new(format!(
                        "rows of {row} elements are not a multiple of the {} elements of a {} block",
                        kind.elements(),
                        kind.name()
                    )));
                }
                (elements / kind.elements()).checked_mul(kind.bytes())
            }
            Self::GroupQuantized(matrix) => {
                if Some(elements) != matrix.values.rows.checked_mul(matrix.values.columns) {
                    let PackedValues { rows, columns, .. } = matrix.values;
                    return Err(OpError::new(format!(
                        "a quantized matrix of {rows} x {columns} does not have {elements} elements"
                    )));
                }
                matrix.check()?;
                matrix.values.byte_size()
            }
            // A row range of a larger matrix: the bytes may continue after its last row.
            Self::QuantizedOnRead(matrix) => {
                matrix.check(bytes)?;
                Some(bytes).filter(|_| matrix.elements() == Some(elements))
            }
            Self::Stack(stack) => {
                let first = stack.members().first().map(|member| member.bytes.len());
                first.filter(|_| stack.elements() == elements)
            }
        };
        if needed == Some(bytes) {
            return Ok(());
        }
        let encoding = match self {
            Self::Plain(dtype) => dtype.name().to_owned(),
            Self::Blocks(_) | Self::GroupQuantized(_) | Self::QuantizedOnRead(_) | Self::Stack(_) => {
                self.to_string()
            }
        };
        Err(OpError::new(format!("{bytes} bytes do not hold {elements} elements of {encoding}")))
    }

    /// Returns the dequantized element at an index in file order. A plain encoding is not read here and gives 0. The
    /// encoding must have passed [`Self::check`].
    pub fn value(&self, bytes: &[u8], index: usize) -> f32 {
        match self {
            Self::Plain(_) => 0.0,
            Self::Blocks(kind) => kind.value(bytes, index),
            Self::GroupQuantized(matrix) => matrix.value(bytes, index),
            Self::QuantizedOnRead(matrix) => {
                let [scale, bias] = matrix.scale_and_bias(index);
                let zero_point = f32::from(matrix.quant_format().zero_point);
                (f32::from(matrix.quantized_value(bytes, index)) - zero_point) * scale + bias
            }
            Self::Stack(stack) => stack.value(index),
        }
    }

    /// Returns all elements in file order.
    ///
    /// # Errors
    /// If the bytes do not match the shape.
    pub fn array(&self, shape: &[usize], bytes: &[u8]) -> Result<Array, OpError> {
        match self {
            Self::Plain(dtype) => Array::from_bytes(*dtype, shape, bytes),
            Self::Blocks(_) | Self::GroupQuantized(_) | Self::QuantizedOnRead(_) | Self::Stack(_) => {
                self.check(shape, bytes.len())?;
                let values = (0..count(shape)).into_par_iter().with_min_len(1 << 12);
                let values = values.map(|i| self.value(bytes, i)).collect();
                Ok(Array { dtype: self.element_type(), shape: shape.to_vec(), data: Data::Float(values) })
            }
        }
    }

    /// Returns the memory address of the scales if they are stored apart from the quantized values. The address
    /// distinguishes constants whose quantized values are the same bytes.
    pub fn scales_address(&self) -> Option<usize> {
        match self {
            Self::Plain(_) | Self::Blocks(_) => None,
            Self::GroupQuantized(matrix) => Some(matrix.scales.bytes.as_ptr() as usize),
            Self::QuantizedOnRead(matrix) => Some(matrix.scales_address()),
            // The first member alone has the same bytes as the stack; the last member tells them apart.
            Self::Stack(stack) => {
                let address = stack
                    .members()
                    .last()
                    .map(|member| member.encoding.scales_address().unwrap_or(member.bytes.as_ptr() as usize));
                Some(address.unwrap_or(0))
            }
        }
    }

    /// Lets the operating system drop the memory pages of the scales (see [`Content::release`]).
    pub fn release(&self) {
        match self {
            Self::GroupQuantized(matrix) => matrix.scales.bytes.release(),
            Self::Stack(stack) => stack.release(),
            Self::Plain(_) | Self::Blocks(_) | Self::QuantizedOnRead(_) => {}
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(dtype) => f.write_str(dtype.name()),
            Self::Blocks(kind) => f.write_str(kind.name()),
            Self::GroupQuantized(matrix) => write!(f, "{matrix}"),
            Self::QuantizedOnRead(matrix) => write!(f, "{matrix}"),
            Self::Stack(stack) => {
                let members = stack.members();
                let first = members.first().map_or_else(String::new, |member| member.encoding.to_string());
                write!(f, "{} of {first}", members.len())
            }
        }
    }
}

impl Encoding {
    /// Returns the format of the quantized values. Returns `None` for floats, and for groups whose elements are not
    /// adjacent.
    pub fn quant_format(&self) -> Option<QuantFormat> {
        match self {
            Self::Plain(_) => None,
            Self::Blocks(kind) => Some(kind.quant_format()),
            Self::GroupQuantized(matrix) => matrix.quant_format(),
            Self::QuantizedOnRead(matrix) => Some(matrix.quant_format()),
            Self::Stack(stack) => stack.quant_format(),
        }
    }

    /// Returns the quantized value at an index in file order; 0 for a plain encoding.
    pub fn quantized_value(&self, bytes: &[u8], index: usize) -> u8 {
        match self {
            Self::Plain(_) => 0,
            Self::Blocks(kind) => kind.quantized_value(bytes, index),
            Self::GroupQuantized(matrix) => matrix.quantized_value(bytes, index),
            Self::QuantizedOnRead(matrix) => matrix.quantized_value(bytes, index),
            Self::Stack(stack) => stack.quantized_value(index),
        }
    }

    /// Writes the quantized values of adjacent elements of a row, starting at an index in file order.
    pub fn quantized_values(&self, bytes: &[u8], index: usize, out: &mut [u8]) {
        match self {
            Self::QuantizedOnRead(matrix) => matrix.quantized_values(bytes, index, out),
            Self::Stack(stack) => stack.quantized_values(index, out),
            Self::Plain(_) | Self::Blocks(_) | Self::GroupQuantized(_) => {
                for (i, value) in (index..).zip(out) {
                    *value = self.quantized_value(bytes, i);
                }
            }
        }
    }

    /// Returns the scale and the bias of the element at an index in file order.
    pub fn scale_and_bias(&self, bytes: &[u8], index: usize) -> [f32; 2] {
        match self {
            Self::Plain(_) => [1.0, 0.0],
            Self::Blocks(kind) => kind.scale_and_bias(bytes, index),
            Self::GroupQuantized(matrix) => matrix.scale_and_bias(index),
            Self::QuantizedOnRead(matrix) => matrix.scale_and_bias(index),
            Self::Stack(stack) => stack.scale_and_bias(index),
        }
    }

    /// Returns an upper bound of the magnitude of the elements, from their scales alone; `None` without a
    /// [`QuantFormat`].
    pub fn max_abs_bound(&self, bytes: &[u8], elements: usize) -> Option<f32> {
        let QuantFormat { bits, row_length, group_size, zero_point, .. } = self.quant_format()?;
        let group_size = group_size.max(1);
        let row_length = row_length.unwrap_or(group_size).max(1);
        let groups = row_length.div_ceil(group_size);
        let zero_point = f32::from(zero_point);
        let steps = zero_point.max(((1u32 << bits) - 1) as f32 - zero_point);
        let largest = |i: usize| {
            let [scale, bias] = self.scale_and_bias(bytes, i / groups * row_length + i % groups * group_size);
            Some(scale.abs() * steps + bias.abs()).filter(|v| !v.is_nan()).unwrap_or(f32::INFINITY)
        };
        let all = (0..elements.div_ceil(row_length) * groups).into_par_iter().with_min_len(1 << 12);
        Some(all.map(largest).reduce(|| 0.0, f32::max))
    }
}

/// Constants of one shape and element type, row-major, stacked along a new outermost axis, such as the expert weights
/// that a file stores one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    dtype: DType,
    shape: Vec<usize>,
    members: Vec<StackMember>,
}

/// Data of one constant of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackMember {
    /// Encoding of `bytes`.
    pub encoding: Encoding,
    /// Encoded bytes of the constant.
    pub bytes: Content,
}

impl Stack {
    /// Creates a stack of constants of a type and shape. Returns `None` if there is no member, or the members are not
    /// floats of one stored element type, or are empty.
    pub(in crate::ir) fn new(dtype: DType, shape: Vec<usize>, members: Vec<StackMember>) -> Option<Self> {
        let element_type = members.first()?.encoding.element_type();
        let matches_first = |member: &StackMember| {
            member.encoding.element_type() == element_type && !matches!(member.encoding, Encoding::Stack(_))
        };
        let floats = matches!(element_type, DType::F32 | DType::F16 | DType::Bf16);
        (members.iter().all(matches_first) && floats && count(&shape) > 0).then_some(Self {
            dtype,
            shape,
            members,
        })
    }

    /// Element type of each constant of the stack. Elements that are stored in another float type are converted to this
    /// type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape of each constant of the stack.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The stacked constants.
    pub fn members(&self) -> &[StackMember] {
        &self.members
    }

    /// Number of elements of one of the stacked constants.
    fn member_elements(&self) -> usize {
        count(&self.shape)
    }

    /// Number of elements of all stacked constants together.
    fn elements(&self) -> usize {
        self.members.len() * self.member_elements()
    }

    /// Element type after dequantization.
    fn element_type(&self) -> DType {
        self.members.first().map_or(DType::F32, |member| member.encoding.element_type())
    }

    /// Returns the member of the stack that contains an element, and the element's index in the member.
    fn member(&self, index: usize) -> Option<(&StackMember, usize)> {
        let size = self.member_elements().max(1);
        Some((self.members.get(index / size)?, index % size))
    }

    fn value(&self, index: usize) -> f32 {
        self.member(index).map_or(0.0, |(member, at)| match member.encoding {
            Encoding::Plain(dtype) => plain_float(&member.bytes, dtype, at),
            _ => member.encoding.value(&member.bytes, at),
        })
    }

    /// Returns the format of the quantized values; `None` if members of the stack have different formats.
    fn quant_format(&self) -> Option<QuantFormat> {
        let mut formats = self.members.iter().map(|member| member.encoding.quant_format());
        let first = formats.next()??;
        formats.all(|format| format == Some(first)).then_some(first)
    }

    fn quantized_value(&self, index: usize) -> u8 {
        self.member(index).map_or(0, |(member, at)| member.encoding.quantized_value(&member.bytes, at))
    }

    fn quantized_values(&self, index: usize, out: &mut [u8]) {
        if let Some((member, at)) = self.member(index) {
            member.encoding.quantized_values(&member.bytes, at, out);
        }
    }

    fn scale_and_bias(&self, index: usize) -> [f32; 2] {
        self.member(index)
            .map_or([1.0, 0.0], |(member, at)| member.encoding.scale_and_bias(&member.bytes, at))
    }

    /// Lets the operating system drop the memory pages of all members of the stack.
    fn release(&self) {
        for member in &self.members {
            member.bytes.release();
            member.encoding.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ir::encoding::BlockKind;
    use crate::ir::graph_text;

    /// Checks that dequantized elements equal `(value - zero_point) * scale + bias`, for every block and group
    /// encoding.
    #[test]
    fn elements_follow_from_quantized_values() {
        let blocks = BlockKind::ALL.map(|kind| kind.name().to_string());
        let groups = [
            "u4 in groups of 32",
            "u8 in groups of 48",
            "u2 in groups of 16 with zeros",
            "u4 in groups of 96 with zeros",
        ];
        for encoding in blocks.into_iter().chain(groups.map(str::to_string)) {
            let graph = format!(
                "%0 = constant {{\"dtype\":\"f32\",\"shape\":[5,768],\"encoding\":\"{encoding}\",\"random\":3}}\noutput \"y\" %0\n"
            );
            let graph = graph_text::parse(&graph).unwrap();
            let constant = graph.constant(graph.outputs()[0].node).unwrap();
            let format = constant.encoding.quant_format().unwrap();
            let array = constant.to_array().unwrap();
            for (i, want) in array.floats().unwrap().iter().enumerate() {
                let value = constant.encoding.quantized_value(&constant.bytes, i);
                let first = i / 768 * 768 + i % 768 / format.group_size * format.group_size;
                let [scale, bias] = constant.encoding.scale_and_bias(&constant.bytes, first);
                assert!(u32::from(value) < 1 << format.bits, "{encoding}: {value}");
                assert!(format.bias_dtype.is_some() || bias == 0.0, "{encoding}");
                let got = (f32::from(value) - f32::from(format.zero_point)) * scale + bias;
                assert!((got - want).abs() <= want.abs() * 1e-6 + 1e-6, "{encoding} at {i}: {got}, {want}");
            }
            let largest = array.floats().unwrap().iter().fold(0.0f32, |a, b| a.max(b.abs()));
            let bound = constant.encoding.max_abs_bound(&constant.bytes, 5 * 768).unwrap();
            assert!(largest <= bound * 1.000_01 && bound < largest * 4.0, "{encoding}: {largest}, {bound}");
        }
    }
}
