//! A constant tensor. The constant's bytes are borrowed from the model file until a pass computes new bytes.
//!
//! Casting a float constant to another float type, transposing and reshaping compute nothing. The constant keeps the
//! file's bytes with an element type and strides, and elements are converted and reordered when they are read. A model
//! therefore takes no extra memory. Quantized weights stay quantized in the same way, through the
//! [encoding](crate::ir::encoding) of the constant.

mod concat;
#[cfg(test)]
mod tests;
mod text_form;
mod views;

use crate::content::Content;
use crate::error::OpError;
use crate::ir::array::{Array, Data, count};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::encoding::{Encoding, Stack, StackMember};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::{DType, TensorDesc};

pub use crate::ir::random::random;

/// A constant tensor. By default its elements are little-endian and row-major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    /// Element type of the constant. If `bytes` hold another float type, elements are converted when they are read.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
    /// Encoding of `bytes`.
    pub encoding: Encoding,
    /// Strides in elements; `None` for row-major order. Each stored element belongs to exactly one position of the
    /// tensor.
    pub strides: Option<Vec<usize>>,
    /// Encoded elements of the constant. Their address need not be aligned to the element size.
    pub bytes: Content,
}

impl Constant {
    /// Creates a constant from existing bytes; fails if their number does not match the shape.
    pub fn new(dtype: DType, shape: Vec<usize>, bytes: impl Into<Content>) -> Result<Self, OpError> {
        let bytes = bytes.into();
        let encoding = Encoding::Plain(dtype);
        encoding.check(&shape, bytes.len())?;
        Ok(Self { dtype, shape, encoding, strides: None, bytes })
    }

    /// Creates a constant from encoded bytes; fails if the encoding does not match the bytes and the shape.
    pub fn encoded(
        shape: Vec<usize>,
        encoding: Encoding,
        bytes: impl Into<Content>,
    ) -> Result<Self, OpError> {
        let bytes = bytes.into();
        encoding.check(&shape, bytes.len())?;
        Ok(Self { dtype: encoding.element_type(), shape, encoding, strides: None, bytes })
    }

    /// Stacks constants of one shape into one constant `[members, ..]` without copying; fails if their shapes or types
    /// differ.
    pub fn stack(members: Vec<Self>) -> Result<Self, OpError> {
        let Some(first) = members.first() else {
            return Err(OpError::new("a stack needs at least one constant"));
        };
        let (dtype, bytes) = (first.dtype, first.bytes.clone());
        let shape = [members.len()].into_iter().chain(first.shape.iter().copied()).collect();
        let matches_first =
            |member: &Self| member.shape == first.shape && member.dtype == dtype && member.strides.is_none();
        let stack = if members.iter().all(matches_first) {
            let member_shape = first.shape.clone();
            let member = |Self { encoding, bytes, .. }: Self| StackMember { encoding, bytes };
            Stack::new(dtype, member_shape, members.into_iter().map(member).collect())
        } else {
            None
        };
        let stack =
            stack.ok_or_else(|| OpError::new("stacked constants must be floats of one type and shape"))?;
        Ok(Self { dtype, shape, encoding: Encoding::Stack(stack.into()), strides: None, bytes })
    }

    /// Returns the constants that a stack consists of.
    pub fn unstack(stack: &Stack) -> impl Iterator<Item = Self> {
        stack.members().iter().map(|member| Self {
            dtype: stack.dtype(),
            shape: stack.shape().to_vec(),
            encoding: member.encoding.clone(),
            strides: None,
            bytes: member.bytes.clone(),
        })
    }

    /// Creates a constant from an array.
    pub fn from_array(array: &Array) -> Self {
        let dtype = array.dtype;
        let bytes = array.to_bytes().into();
        Self { dtype, shape: array.shape.clone(), encoding: Encoding::Plain(dtype), strides: None, bytes }
    }

    /// Returns the elements as a host array.
    pub fn to_array(&self) -> Result<Array, OpError> {
        let mut array = self.encoding.array(&self.encoded_shape(), &self.bytes)?;
        array.shape.clone_from(&self.shape);
        if let Some(strides) = &self.strides {
            array.data = match &array.data {
                Data::Float(v) => Data::Float(to_row_major(v, &self.shape, strides)),
                Data::Int(v) => Data::Int(to_row_major(v, &self.shape, strides)),
            };
        }
        Ok(if self.encoding.element_type() == self.dtype { array } else { array.cast(self.dtype) })
    }

    /// Shape that the number of encoded bytes is checked against. Constants of quantized blocks are checked as one row
    /// of all elements, since a reshape may split rows inside a block.
    pub fn encoded_shape(&self) -> Vec<usize> {
        match self.encoding {
            Encoding::Blocks(_) => vec![self.elements()],
            Encoding::Plain(_)
            | Encoding::GroupQuantized(_)
            | Encoding::QuantizedOnRead(_)
            | Encoding::Stack(_) => self.shape.clone(),
        }
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        count(&self.shape)
    }
}

/// Returns the elements of a strided tensor in row-major order.
fn to_row_major<T: Copy>(values: &[T], shape: &[usize], strides: &[usize]) -> Vec<T> {
    let mut out = Vec::with_capacity(values.len());
    let mut position = vec![0usize; shape.len()];
    let mut at = 0;
    for _ in 0..count(shape) {
        out.extend(values.get(at));
        for ((p, size), stride) in position.iter_mut().zip(shape).zip(strides).rev() {
            (*p, at) = (*p + 1, at + stride);
            if *p < *size {
                break;
            }
            at -= stride * size;
            *p = 0;
        }
    }
    out
}

impl Operation for Constant {
    fn infer(&self, _inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        Ok(TensorDesc::from_sizes(self.dtype, &self.shape))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::Constant, Exactness::Independent)
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        self.to_array()
    }
}
