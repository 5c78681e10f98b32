//! Host tensors, which the CPU reference computes on, and their conversion from and to the bytes of a model.
//!
//! The reference holds every float as f32 and every integer or bool as i64. The declared type determines wrapping,
//! rounding and the bytes written. The code favors clarity over speed.

use half::{bf16, f16};

use super::tensor::DType;
use crate::error::OpError;

/// Elements of an [`Array`].
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// Elements of any float type.
    Float(Vec<f32>),
    /// Elements of any integer type, or bools as 0 and 1.
    Int(Vec<i64>),
}

/// A dense row-major host tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// Declared element type.
    pub dtype: DType,
    /// Shape, outermost axis first.
    pub shape: Vec<usize>,
    /// Elements.
    pub data: Data,
}

impl Array {
    /// Creates a float array; `dtype` must be a float type.
    pub fn float(dtype: DType, shape: &[usize], values: Vec<f32>) -> Self {
        debug_assert!(dtype.is_float() && values.len() == count(shape));
        Self { dtype, shape: shape.to_vec(), data: Data::Float(values) }
    }

    /// Creates an f32 array.
    pub fn f32(shape: &[usize], values: Vec<f32>) -> Self {
        Self::float(DType::F32, shape, values)
    }

    /// Creates an integer or bool array; values wrap to `dtype`.
    pub fn int(dtype: DType, shape: &[usize], mut values: Vec<i64>) -> Self {
        debug_assert!(!dtype.is_float() && values.len() == count(shape));
        for v in &mut values {
            *v = wrap(dtype, *v);
        }
        Self { dtype, shape: shape.to_vec(), data: Data::Int(values) }
    }

    /// Creates a vector of i64.
    pub fn i64s(values: &[i64]) -> Self {
        Self::int(DType::I64, &[values.len()], values.to_vec())
    }

    /// Creates an array of zeros.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Self {
        if dtype.is_float() {
            Self::float(dtype, shape, vec![0.0; count(shape)])
        } else {
            Self::int(dtype, shape, vec![0; count(shape)])
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        count(&self.shape)
    }

    /// True if the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the elements of a float array; fails for other types.
    pub fn floats(&self) -> Result<&[f32], OpError> {
        match &self.data {
            Data::Float(v) => Ok(v),
            Data::Int(_) => {
                Err(OpError::new(format!("expected a float tensor, found {}", self.dtype.name())))
            }
        }
    }

    /// Returns the elements of an integer or bool array; fails for floats.
    pub fn ints(&self) -> Result<&[i64], OpError> {
        match &self.data {
            Data::Int(v) => Ok(v),
            Data::Float(_) => {
                Err(OpError::new(format!("expected an integer tensor, found {}", self.dtype.name())))
            }
        }
    }

    /// Returns the elements of an array of any type, converted to f32.
    pub fn to_floats(&self) -> Vec<f32> {
        match &self.data {
            Data::Float(v) => v.clone(),
            Data::Int(v) if self.dtype == DType::U64 => v.iter().map(|x| *x as u64 as f32).collect(),
            Data::Int(v) => v.iter().map(|x| *x as f32).collect(),
        }
    }

    /// Converts the array to another element type, like ONNX Cast: floats truncate towards zero, bool is `x != 0`.
    pub fn cast(&self, dtype: DType) -> Self {
        if dtype.is_float() {
            let mut values = self.to_floats();
            round_floats(dtype, &mut values);
            return Self::float(dtype, &self.shape, values);
        }
        let values = match (&self.data, dtype) {
            (Data::Float(v), DType::Bool) => v.iter().map(|x| i64::from(*x != 0.0)).collect(),
            (Data::Int(v), DType::Bool) => v.iter().map(|x| i64::from(*x != 0)).collect(),
            (Data::Float(v), _) => v.iter().map(|x| *x as i64).collect(),
            (Data::Int(v), _) => v.clone(),
        };
        Self::int(dtype, &self.shape, values)
    }

    /// Creates an array from the little-endian bytes of its elements. Fails if the number of bytes does not match the
    /// shape.
    pub fn from_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Self, OpError> {
        let n = count(shape);
        if n.checked_mul(dtype.bytes()) != Some(bytes.len()) {
            return Err(OpError::new(format!(
                "{} bytes do not hold {n} elements of {}",
                bytes.len(),
                dtype.name()
            )));
        }
        let data = match dtype {
            DType::F32 => Data::Float(chunks(bytes, f32::from_le_bytes)),
            DType::F16 => Data::Float(chunks(bytes, |b| f16::from_le_bytes(b).to_f32())),
            DType::Bf16 => Data::Float(chunks(bytes, |b| bf16::from_le_bytes(b).to_f32())),
            DType::F64 => Data::Float(chunks(bytes, |b| f64::from_le_bytes(b) as f32)),
            DType::I8 => Data::Int(chunks(bytes, |b| i8::from_le_bytes(b).into())),
            DType::I16 => Data::Int(chunks(bytes, |b| i16::from_le_bytes(b).into())),
            DType::I32 => Data::Int(chunks(bytes, |b| i32::from_le_bytes(b).into())),
            DType::I64 => Data::Int(chunks(bytes, i64::from_le_bytes)),
            DType::U8 => Data::Int(chunks(bytes, |b| u8::from_le_bytes(b).into())),
            DType::Bool => Data::Int(chunks(bytes, |b: [u8; 1]| i64::from(b != [0]))),
            DType::U16 => Data::Int(chunks(bytes, |b| u16::from_le_bytes(b).into())),
            DType::U32 => Data::Int(chunks(bytes, |b| u32::from_le_bytes(b).into())),
            DType::U64 => Data::Int(chunks(bytes, |b| u64::from_le_bytes(b) as i64)),
        };
        Ok(Self { dtype, shape: shape.to_vec(), data })
    }

    /// Returns the elements as little-endian bytes, in the declared type.
    pub fn to_bytes(&self) -> Vec<u8> {
        match (&self.data, self.dtype) {
            (Data::Float(v), DType::F16) => flatten(v, |x| f16::from_f32(x).to_le_bytes()),
            (Data::Float(v), DType::Bf16) => flatten(v, |x| bf16::from_f32(x).to_le_bytes()),
            (Data::Float(v), DType::F64) => flatten(v, |x| f64::from(x).to_le_bytes()),
            (Data::Float(v), _) => flatten(v, f32::to_le_bytes),
            (Data::Int(v), t) => match t.bytes() {
                1 => flatten(v, |x| [x.to_le_bytes()[0]]),
                2 => flatten(v, |x| (x as i16).to_le_bytes()),
                4 => flatten(v, |x| (x as i32).to_le_bytes()),
                _ => flatten(v, i64::to_le_bytes),
            },
        }
    }
}

/// Returns the number of elements of a shape; saturates on overflow.
pub fn count(shape: &[usize]) -> usize {
    shape.iter().fold(1usize, |a, b| a.saturating_mul(*b))
}

/// Returns the row-major strides of a shape, in elements.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut out = vec![1usize; shape.len()];
    for i in (0..shape.len().saturating_sub(1)).rev() {
        out[i] = out[i + 1].saturating_mul(shape[i + 1]);
    }
    out
}

/// Writes the coordinates of a flat row-major index to `coords`.
pub fn unravel(mut index: usize, shape: &[usize], coords: &mut [usize]) {
    for (c, d) in coords.iter_mut().zip(shape).rev() {
        *c = index % d;
        index /= d;
    }
}

/// Rounds values in place to the precision of a float type.
pub fn round_floats(dtype: DType, values: &mut [f32]) {
    match dtype {
        DType::F16 => values.iter_mut().for_each(|v| *v = f16::from_f32(*v).to_f32()),
        DType::Bf16 => values.iter_mut().for_each(|v| *v = bf16::from_f32(*v).to_f32()),
        _ => {}
    }
}

/// Wraps an integer to the width of a type, in two's complement.
pub fn wrap(dtype: DType, value: i64) -> i64 {
    match dtype {
        DType::I8 => i64::from(value as i8),
        DType::I16 => i64::from(value as i16),
        DType::I32 => i64::from(value as i32),
        DType::U8 => i64::from(value as u8),
        DType::U16 => i64::from(value as u16),
        DType::U32 => i64::from(value as u32),
        DType::Bool => i64::from(value != 0),
        DType::I64 | DType::U64 | DType::F32 | DType::F16 | DType::Bf16 | DType::F64 => value,
    }
}

fn chunks<const N: usize, T>(bytes: &[u8], decode: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|c| decode(*c)).collect()
}

fn flatten<const N: usize, T: Copy>(values: &[T], encode: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * N];
    for (to, value) in bytes.chunks_exact_mut(N).zip(values) {
        to.copy_from_slice(&encode(*value));
    }
    bytes
}
