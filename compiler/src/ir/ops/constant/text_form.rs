//! Text form of a constant: values of small constants, hashes of large ones, reproducible random elements.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Constant;
use crate::ir::array::{Array, Data, count};
use crate::ir::encoding::{BlockKind, Encoding, GroupQuantized};
use crate::ir::random::random_bytes;
use crate::ir::tensor::DType;

/// Maximum number of elements of a constant that the text form prints as values; larger constants are printed as a
/// hash.
const PRINTED_ELEMENTS: usize = 64;

/// Attributes of a constant in the graph's text form: values of small constants, a hash of large ones. `random` makes
/// the parser generate reproducible elements.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text<'a> {
    dtype: DType,
    shape: Cow<'a, [usize]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
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
            encoding: self.encoding.plain_dtype().is_none().then(|| self.encoding.to_string()),
            values: None,
            hash: None,
            random: None,
        };
        if self.elements() <= PRINTED_ELEMENTS
            && let Ok(array) = self.to_array()
        {
            text.values = Some(numbers(&array));
        } else {
            let computed = self.encoding != Encoding::Plain(self.dtype) || self.strides.is_some();
            let hash = match self.to_array() {
                Ok(array) if computed => blake3::hash(&array.to_bytes()),
                _ => blake3::hash(&self.bytes),
            };
            text.hash = Some(hash.to_hex()[..16].to_string());
        }
        text.serialize(serializer)
    }
}

/// Returns the elements as JSON numbers, or strings if they are not finite.
fn numbers(array: &Array) -> Vec<serde_json::Value> {
    match &array.data {
        Data::Int(v) => v.iter().map(|x| (*x).into()).collect(),
        Data::Float(v) => v.iter().map(|x| number(*x)).collect(),
    }
}

fn number(value: f32) -> serde_json::Value {
    // The shortest text that parses to the same f32, so that 0.1 prints as 0.1.
    let finite = value.to_string().parse().ok().and_then(serde_json::Number::from_f64);
    match finite {
        Some(number) => number.into(),
        None if value.is_nan() => "nan".into(),
        None => if value > 0.0 { "inf" } else { "-inf" }.into(),
    }
}

/// Parses a number as [`number`] writes it: a JSON number, or one of the strings `inf`, `-inf` and `nan`.
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
        if let Some(encoding) = text.encoding {
            return random_encoded(&shape, &encoding, text.random).map_err(de::Error::custom);
        }
        let n = count(&shape);
        if n > 1 << 26 {
            return Err(de::Error::custom("a constant in the text form may have at most 2^26 elements"));
        }
        let array = match (text.values, text.random) {
            (Some(values), _) if values.len() == n => {
                let wrong = |v: &serde_json::Value| {
                    de::Error::custom(format!("`{v}` is not a value of type {}", text.dtype.name()))
                };
                if text.dtype.is_float() {
                    let values = values.iter().map(|v| parse_number(v).ok_or_else(|| wrong(v)));
                    Array::float(text.dtype, &shape, values.collect::<Result<_, _>>()?)
                } else {
                    let values = values.iter().map(|v| v.as_i64().ok_or_else(|| wrong(v)));
                    Array::int(text.dtype, &shape, values.collect::<Result<_, _>>()?)
                }
            }
            (None, Some(seed)) => {
                let bytes = random_bytes(text.dtype, n, seed);
                return Self::new(text.dtype, shape, bytes).map_err(|e| de::Error::custom(e.0));
            }
            _ => return Err(de::Error::custom(format!("a constant needs {n} values or a random seed"))),
        };
        Ok(Self::from_array(&array))
    }
}

/// Returns a random constant of an encoding that is named as in the graph's text form. The largest elements have a
/// magnitude of about 1. A shape of more than two axes stands for convolution filters `[O, I, taps..]`.
fn random_encoded(shape: &[usize], encoding: &str, seed: Option<u64>) -> Result<Constant, String> {
    let kind = BlockKind::ALL.into_iter().find(|kind| kind.name() == encoding);
    let (kind, seed) = match (kind, seed, shape) {
        (Some(kind), Some(seed), _) => (kind, seed),
        (None, Some(seed), [rows, _, ..]) if count(shape) <= 1 << 26 => {
            let size = [*rows, count(&shape[1..])];
            return match GroupQuantized::random(encoding, size, seed) {
                Some((matrix, bytes)) => {
                    let encoding = Encoding::GroupQuantized(matrix.into());
                    let matrix = Constant::encoded(size.to_vec(), encoding, bytes).map_err(|e| e.0)?;
                    matrix.as_filters(shape).ok_or_else(|| format!("{shape:?} are not the sizes of filters"))
                }
                None => Err(format!("unknown encoding `{encoding}`")),
            };
        }
        _ => {
            return Err(format!(
                "encoding `{encoding}` cannot be read: the text form has GGUF blocks, and matrices and filters such as `u4 in groups of 32`, both with a random seed"
            ));
        }
    };
    let blocks =
        shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).unwrap_or(usize::MAX) / kind.elements();
    if blocks > 1 << 20 {
        return Err("a constant in the text form may have at most 2^20 quantized blocks".into());
    }
    let mut bytes = random_bytes(DType::U8, blocks * kind.bytes(), seed);
    for block in bytes.chunks_mut(kind.bytes()) {
        for at in kind.scale_offsets() {
            // An f16 scale of 2^-7 to 2^-6, so that the largest elements of a block have a magnitude of about 1.
            if let Some(high) = block.get_mut(at + 1) {
                *high = 0x20 | *high & 3;
            }
        }
    }
    Constant::encoded(shape.to_vec(), Encoding::Blocks(kind), bytes).map_err(|e| e.0)
}
