//! Arrays in caller memory: an element type, a shape, and little-endian row-major bytes.

use crate::convert::element_to_f64;
use crate::format::HostType;

/// A borrowed array, such as an input of [`crate::Session::run`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrayRef<'a> {
    pub dtype: HostType,
    pub shape: &'a [usize],
    pub bytes: &'a [u8],
}

/// An owned array, such as an output of [`crate::Session::run`].
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub dtype: HostType,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Array {
    /// Returns an array of zeros, or `None` if its size exceeds the address space.
    pub fn zeros(dtype: HostType, shape: &[usize]) -> Option<Array> {
        let mut array = Array { dtype, shape: Vec::new(), bytes: Vec::new() };
        array.resize(dtype, shape)?;
        Some(array)
    }

    /// Changes type and shape of the array, and its byte length to match. Keeps the array's memory. Returns `None` if
    /// the size exceeds the address space.
    pub(crate) fn resize(&mut self, dtype: HostType, shape: &[usize]) -> Option<()> {
        let size = usize::try_from(dtype.size()).ok()?;
        let length = shape.iter().try_fold(size, |length, dim| length.checked_mul(*dim))?;
        self.dtype = dtype;
        self.shape.clear();
        self.shape.extend_from_slice(shape);
        self.bytes.resize(length, 0);
        Some(())
    }

    pub fn from_f32(shape: &[usize], values: &[f32]) -> Array {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Array { dtype: HostType::F32, shape: shape.to_vec(), bytes }
    }

    pub fn from_i32(shape: &[usize], values: &[i32]) -> Array {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Array { dtype: HostType::I32, shape: shape.to_vec(), bytes }
    }

    pub fn from_i64(shape: &[usize], values: &[i64]) -> Array {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Array { dtype: HostType::I64, shape: shape.to_vec(), bytes }
    }

    pub fn as_ref(&self) -> ArrayRef<'_> {
        ArrayRef { dtype: self.dtype, shape: &self.shape, bytes: &self.bytes }
    }

    /// Returns the elements converted to f64. Integers beyond 53 bits are rounded.
    pub fn to_f64(&self) -> Vec<f64> {
        let size = usize::try_from(self.dtype.size()).unwrap_or(1);
        self.bytes.chunks_exact(size).map(|element| element_to_f64(self.dtype, element)).collect()
    }
}
