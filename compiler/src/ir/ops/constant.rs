//! A constant tensor. Its bytes are borrowed from the model file until a pass computes others.
//!
//! Storing a float constant in another float type computes nothing: the constant keeps the file's bytes and the type
//! that they have, and elements are converted when they are read. So a model does not grow in memory.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::content::Content;
use crate::error::OpError;
use crate::ir::array::{Array, Data, count};
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::{DType, TensorDesc};

/// Elements above which the text form prints a hash instead of values.
const PRINTED_ELEMENTS: usize = 64;

/// A constant tensor: little-endian row-major elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Type of the elements in `bytes`: `dtype`, or a float type that is converted to it.
    pub stored: DType,
    /// `count(shape) * stored.bytes()` bytes, not necessarily aligned.
    pub bytes: Content,
}

impl Constant {
    /// A constant over existing bytes; fails when their number does not fit.
    pub fn new(dtype: DType, shape: Vec<usize>, bytes: impl Into<Content>) -> Result<Self, OpError> {
        let bytes = bytes.into();
        if count(&shape).checked_mul(dtype.bytes()) != Some(bytes.len()) {
            return Err(OpError::new(format!(
                "{} bytes do not make {} elements of {}",
                bytes.len(),
                count(&shape),
                dtype.name()
            )));
        }
        Ok(Self { dtype, shape, stored: dtype, bytes })
    }

    /// The constant with an array's elements.
    pub fn from_array(array: &Array) -> Self {
        let dtype = array.dtype;
        Self { dtype, shape: array.shape.clone(), stored: dtype, bytes: array.to_bytes().into() }
    }

    /// The elements as a host array.
    pub fn to_array(&self) -> Result<Array, OpError> {
        let array = Array::from_bytes(self.stored, &self.shape, &self.bytes)?;
        Ok(if self.stored == self.dtype { array } else { array.cast(self.dtype) })
    }

    /// The constant in another float type, with the same bytes; `None` when elements have to be computed for that.
    pub fn cast(&self, dtype: DType) -> Option<Self> {
        let wider = match self.stored {
            DType::F16 | DType::Bf16 => matches!(self.dtype, DType::F32 | DType::F64),
            DType::F32 => self.dtype == DType::F64,
            _ => false,
        };
        // Rounding twice is not rounding once.
        let exact = self.dtype == self.stored || wider;
        let floats = self.dtype.is_float() && dtype.is_float();
        (exact && floats).then(|| Self { dtype, ..self.clone() })
    }

    /// The same elements under other sizes; fails when their number differs.
    pub fn reshaped(&self, shape: Vec<usize>) -> Result<Self, OpError> {
        if count(&shape) != self.elements() {
            return Err(OpError::new(format!("{} elements do not fill {shape:?}", self.elements())));
        }
        Ok(Self { shape, ..self.clone() })
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        count(&self.shape)
    }
}

impl Operation for Constant {
    fn infer(&self, _inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        Ok(TensorDesc::of(self.dtype, &self.shape))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        self.to_array()
    }
}

/// The text form: values when few, a hash when many; `random` asks the parser for a reproducible tensor.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text<'a> {
    dtype: DType,
    shape: Cow<'a, [usize]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    values: Option<Vec<serde_json::Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    random: Option<u64>,
}

impl Serialize for Constant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = Text {
            dtype: self.dtype,
            shape: Cow::Borrowed(&self.shape),
            values: None,
            hash: None,
            random: None,
        };
        if self.elements() <= PRINTED_ELEMENTS
            && let Ok(array) = self.to_array()
        {
            text.values = Some(numbers(&array));
        } else {
            let hash = match self.to_array() {
                Ok(array) if self.stored != self.dtype => blake3::hash(&array.to_bytes()),
                _ => blake3::hash(&self.bytes),
            };
            text.hash = Some(hash.to_hex()[..16].to_string());
        }
        text.serialize(serializer)
    }
}

/// The elements as JSON numbers, or text where one is not finite.
fn numbers(array: &Array) -> Vec<serde_json::Value> {
    match &array.data {
        Data::Int(v) => v.iter().map(|x| (*x).into()).collect(),
        Data::Float(v) => v.iter().map(|x| number(*x)).collect(),
    }
}

fn number(value: f32) -> serde_json::Value {
    // The shortest text of the f32 itself, so that 0.1 prints as 0.1.
    let finite = value.to_string().parse().ok().and_then(serde_json::Number::from_f64);
    match finite {
        Some(number) => number.into(),
        None if value.is_nan() => "nan".into(),
        None => if value > 0.0 { "inf" } else { "-inf" }.into(),
    }
}

/// What [`number`] wrote.
fn parse_number(value: &serde_json::Value) -> Option<f32> {
    match value.as_str() {
        Some("inf") => Some(f32::INFINITY),
        Some("-inf") => Some(f32::NEG_INFINITY),
        Some("nan") => Some(f32::NAN),
        Some(_) => None,
        None => value.as_f64().map(|v| v as f32),
    }
}

impl<'de> Deserialize<'de> for Constant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        let shape = text.shape.into_owned();
        let n = count(&shape);
        if n > 1 << 26 {
            return Err(de::Error::custom("a constant in text has at most 2^26 elements"));
        }
        let array = match (text.values, text.random) {
            (Some(values), _) if values.len() == n => {
                let wrong = |v: &serde_json::Value| {
                    de::Error::custom(format!("`{v}` is no {} element", text.dtype.name()))
                };
                if text.dtype.is_float() {
                    let values = values.iter().map(|v| parse_number(v).ok_or_else(|| wrong(v)));
                    Array::float(text.dtype, &shape, values.collect::<Result<_, _>>()?)
                } else {
                    let values = values.iter().map(|v| v.as_i64().ok_or_else(|| wrong(v)));
                    Array::int(text.dtype, &shape, values.collect::<Result<_, _>>()?)
                }
            }
            (None, Some(seed)) => random(text.dtype, &shape, seed),
            _ => return Err(de::Error::custom(format!("{n} values or a random seed are needed"))),
        };
        Ok(Self::from_array(&array))
    }
}

/// A reproducible tensor: floats in -1..1, integers in 0..8 (splitmix64 of seed and position).
pub fn random(dtype: DType, shape: &[usize], seed: u64) -> Array {
    let n = count(shape);
    let draw = |i: usize| {
        let mut z = seed
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add((i as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    if dtype.is_float() {
        Array::float(
            dtype,
            shape,
            (0..n).map(|i| (draw(i) >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect(),
        )
    } else {
        Array::int(dtype, shape, (0..n).map(|i| (draw(i) >> 61) as i64).collect())
    }
}
