//! A constant tensor. Its bytes are borrowed from the model file until a pass computes others.
//!
//! Storing a float constant in another float type, and transposing or reshaping one, computes nothing: the constant
//! keeps the file's bytes with the type and the order that they have, and elements are converted and put in place when
//! they are read. So a model does not grow in memory. Weights of few bits keep their codes in the same way: how the bytes
//! say the elements is an [encoding](crate::ir::encoding) of the constant.

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::content::Content;
use crate::error::OpError;
use crate::ir::array::{Array, Data, count, strides};
use crate::ir::dim::Bindings;
use crate::ir::encoding::{BlockKind, Groups, Stack, Stored};
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
    /// How `bytes` say the elements: in `dtype`, or in floats that are converted to it.
    pub stored: Stored,
    /// Elements between neighbours along each axis, where they are not in row-major order; every element is one of
    /// the shape.
    pub strides: Option<Vec<usize>>,
    /// As many bytes as `stored` needs for the shape, not necessarily aligned.
    pub bytes: Content,
}

impl Constant {
    /// A constant over existing bytes; fails when their number does not fit.
    pub fn new(dtype: DType, shape: Vec<usize>, bytes: impl Into<Content>) -> Result<Self, OpError> {
        let bytes = bytes.into();
        let stored = Stored::Plain(dtype);
        stored.check(&shape, bytes.len())?;
        Ok(Self { dtype, shape, stored, strides: None, bytes })
    }

    /// A constant over encoded floats; fails when the encoding does not fit the bytes and the shape.
    pub fn encoded(shape: Vec<usize>, stored: Stored, bytes: impl Into<Content>) -> Result<Self, OpError> {
        let bytes = bytes.into();
        stored.check(&shape, bytes.len())?;
        Ok(Self { dtype: stored.element(), shape, stored, strides: None, bytes })
    }

    /// Constants of one shape as one `[parts, ..]`, which are the same bytes; fails where they are not stored alike.
    pub fn stack(parts: Vec<Self>) -> Result<Self, OpError> {
        let stack = Stack::new(parts)?;
        let Some(first) = stack.parts().first() else { return Err(OpError::new("a stack of nothing")) };
        let shape = [stack.parts().len()].into_iter().chain(first.shape.iter().copied()).collect();
        let (dtype, bytes) = (first.dtype, first.bytes.clone());
        Ok(Self { dtype, shape, stored: Stored::Stack(stack.into()), strides: None, bytes })
    }

    /// The constant with an array's elements.
    pub fn from_array(array: &Array) -> Self {
        let dtype = array.dtype;
        let bytes = array.to_bytes().into();
        Self { dtype, shape: array.shape.clone(), stored: Stored::Plain(dtype), strides: None, bytes }
    }

    /// The elements as a host array.
    pub fn to_array(&self) -> Result<Array, OpError> {
        let mut array = self.stored.array(&self.shape_of_file(), &self.bytes)?;
        array.shape.clone_from(&self.shape);
        if let Some(strides) = &self.strides {
            array.data = match &array.data {
                Data::Float(v) => Data::Float(in_order(v, &self.shape, strides)),
                Data::Int(v) => Data::Int(in_order(v, &self.shape, strides)),
            };
        }
        Ok(if self.stored.element() == self.dtype { array } else { array.cast(self.dtype) })
    }

    /// The constant with its axes permuted, with the same bytes.
    pub fn transposed(&self, perm: &[usize]) -> Option<Self> {
        let old = self.strides.clone().unwrap_or_else(|| strides(&self.shape));
        let pick =
            |list: &[usize]| perm.iter().map(|p| list.get(*p).copied()).collect::<Option<Vec<usize>>>();
        let shape = pick(&self.shape)?;
        let new = Some(pick(&old)?).filter(|new| !same_order(&shape, new));
        (perm.len() == self.shape.len() && self.elements() > 0).then(|| Self {
            shape,
            strides: new,
            ..self.clone()
        })
    }

    /// The constant under another shape of as many elements, with the same bytes; `None` where the order of the
    /// elements cannot be said with one stride for each axis.
    pub fn reshaped(&self, shape: &[usize]) -> Option<Self> {
        let new = self.strides_under(shape)?;
        let new = Some(new).filter(|new| !same_order(shape, new));
        Some(Self { shape: shape.to_vec(), strides: new, ..self.clone() })
    }

    /// Elements between neighbours along each axis of the constant under another shape.
    pub fn strides_under(&self, shape: &[usize]) -> Option<Vec<usize>> {
        if count(shape) != self.elements() {
            return None;
        }
        let Some(old) = &self.strides else { return Some(strides(shape)) };
        let mut axes =
            self.shape.iter().copied().zip(old.iter().copied()).filter(|(size, _)| *size != 1).rev();
        // What is left of the old axis at hand: elements, and the distance between them.
        let mut left = (1usize, 0usize);
        let mut out = Vec::with_capacity(shape.len());
        for size in shape.iter().rev() {
            let mut missing = *size;
            if missing == 1 {
                out.push(0);
                continue;
            }
            if left.0 == 1 {
                left = axes.next()?;
            }
            out.push(left.1);
            while missing > left.0 {
                // Old axes that follow each other without a gap are one.
                let next = axes.next()?;
                if !missing.is_multiple_of(left.0) || next.1 != left.0 * left.1 {
                    return None;
                }
                missing /= left.0;
                left = next;
            }
            if !left.0.is_multiple_of(missing) {
                return None;
            }
            left = (left.0 / missing, left.1 * missing);
        }
        out.reverse();
        Some(out)
    }

    /// A part along an axis. It has a part of the same bytes where those follow each other; elsewhere plain elements in
    /// row-major order are copied. `None` for other parts, for stacks, and for codes whose scales lie elsewhere.
    pub fn part(&self, axis: usize, range: Range<usize>) -> Option<Self> {
        let own = self.strides.clone().unwrap_or_else(|| strides(&self.shape));
        let (size, stride) = (*self.shape.get(axis)?, *own.get(axis)?);
        if range.is_empty() || range.end > size {
            return None;
        }
        // Not outermost in the file.
        if size.checked_mul(stride)? != self.elements() {
            return self.copied_part(axis, range);
        }
        let (start, end) = (range.start * stride, range.end * stride);
        let (stored, bytes) = match &self.stored {
            Stored::Plain(dtype) => (self.stored.clone(), start * dtype.bytes()..end * dtype.bytes()),
            Stored::Blocks(kind) => {
                let whole = |n: usize| {
                    n.is_multiple_of(kind.elements()).then_some(n / kind.elements() * kind.bytes())
                };
                (self.stored.clone(), whole(start)?..whole(end)?)
            }
            Stored::Rounded(rounded) => {
                let (rounded, bytes) = rounded.rows(start..end, self.bytes.len())?;
                (Stored::Rounded(rounded.into()), bytes)
            }
            Stored::Groups(_) | Stored::Stack(_) => return None,
        };
        if bytes.end > self.bytes.len() {
            return None;
        }
        let mut shape = self.shape.clone();
        *shape.get_mut(axis)? = range.len();
        let strides = Some(own).filter(|own| !same_order(&shape, own));
        Some(Self { dtype: self.dtype, shape, stored, strides, bytes: self.bytes.slice(bytes) })
    }

    /// A part along an axis of plain elements in row-major order.
    fn copied_part(&self, axis: usize, range: Range<usize>) -> Option<Self> {
        let width = self.stored.plain().filter(|_| self.strides.is_none())?.bytes();
        let inner = count(self.shape.get(axis + 1..)?) * width;
        let mut shape = self.shape.clone();
        let size = std::mem::replace(shape.get_mut(axis)?, range.len());
        let mut bytes = Vec::with_capacity(count(&shape) * width);
        for outer in self.bytes.chunks_exact((size * inner).max(1)) {
            bytes.extend_from_slice(outer.get(range.start * inner..range.end * inner)?);
        }
        Some(Self { shape, bytes: bytes.into(), ..self.clone() })
    }

    /// The constant in another float type, with the same bytes; `None` when elements have to be computed for that.
    pub fn cast(&self, dtype: DType) -> Option<Self> {
        let stored = self.stored.element();
        let wider = match stored {
            DType::F16 | DType::Bf16 => matches!(self.dtype, DType::F32 | DType::F64),
            DType::F32 => self.dtype == DType::F64,
            _ => false,
        };
        // Rounding twice is not rounding once.
        let exact = self.dtype == stored || wider;
        let floats = self.dtype.is_float() && dtype.is_float();
        (exact && floats).then(|| Self { dtype, ..self.clone() })
    }

    /// The shape under which the bytes were described: rows of blocks are whole there, whatever the constant's shape is.
    pub fn shape_of_file(&self) -> Vec<usize> {
        match self.stored {
            Stored::Blocks(_) => vec![self.elements()],
            Stored::Plain(_) | Stored::Groups(_) | Stored::Rounded(_) | Stored::Stack(_) => {
                self.shape.clone()
            }
        }
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        count(&self.shape)
    }
}

/// Whether strides are those of row-major order, but for axes of one element.
fn same_order(shape: &[usize], new: &[usize]) -> bool {
    strides(shape).iter().zip(new).zip(shape).all(|((a, b), size)| a == b || *size == 1)
}

/// Elements in row-major order, from where strides say they are.
fn in_order<T: Copy>(values: &[T], shape: &[usize], strides: &[usize]) -> Vec<T> {
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
    stored: Option<String>,
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
            stored: self.stored.plain().is_none().then(|| self.stored.to_string()),
            values: None,
            hash: None,
            random: None,
        };
        if self.elements() <= PRINTED_ELEMENTS
            && let Ok(array) = self.to_array()
        {
            text.values = Some(numbers(&array));
        } else {
            let computed = self.stored != Stored::Plain(self.dtype) || self.strides.is_some();
            let hash = match self.to_array() {
                Ok(array) if computed => blake3::hash(&array.to_bytes()),
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
        if let Some(stored) = text.stored {
            return random_encoded(&shape, &stored, text.random).map_err(de::Error::custom);
        }
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
            (None, Some(seed)) => {
                let bytes = random_bytes(text.dtype, n, seed);
                return Self::new(text.dtype, shape, bytes).map_err(|e| de::Error::custom(e.0));
            }
            _ => return Err(de::Error::custom(format!("{n} values or a random seed are needed"))),
        };
        Ok(Self::from_array(&array))
    }
}

/// Reproducible codes of an encoding by its name, with scales of about the size that weights have.
fn random_encoded(shape: &[usize], stored: &str, seed: Option<u64>) -> Result<Constant, String> {
    let kind = BlockKind::ALL.into_iter().find(|kind| kind.name() == stored);
    let (kind, seed) = match (kind, seed, shape) {
        (Some(kind), Some(seed), _) => (kind, seed),
        (None, Some(seed), [rows, columns]) if count(shape) <= 1 << 26 => {
            return match Groups::random(stored, [*rows, *columns], seed) {
                Some((groups, bytes)) => {
                    Constant::encoded(shape.to_vec(), Stored::Groups(groups.into()), bytes).map_err(|e| e.0)
                }
                None => Err(format!("`{stored}` is no encoding that a text can ask for")),
            };
        }
        _ => {
            return Err(format!(
                "`{stored}` is read from text as blocks of GGUF, or as `u4 in groups of 32` of a matrix, with a random seed only"
            ));
        }
    };
    let blocks =
        shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).unwrap_or(usize::MAX) / kind.elements();
    if blocks > 1 << 20 {
        return Err("a constant in text has at most 2^26 elements".into());
    }
    let mut bytes = random_bytes(DType::U8, blocks * kind.bytes(), seed);
    for block in bytes.chunks_mut(kind.bytes()) {
        for at in kind.scales() {
            // An f16 of 2^-7 to 2^-6, so that a block's largest element is of the order of one.
            if let Some(high) = block.get_mut(at + 1) {
                *high = 0x20 | *high & 3;
            }
        }
    }
    Constant::encoded(shape.to_vec(), Stored::Blocks(kind), bytes).map_err(|e| e.0)
}

/// A reproducible tensor: floats in -1..1, 8-bit integers of any value, others in 0..8.
pub fn random(dtype: DType, shape: &[usize], seed: u64) -> Array {
    let n = count(shape);
    if dtype.is_float() {
        Array::float(dtype, shape, (0..n).map(|i| unit(draw(seed, i))).collect())
    } else {
        // 8-bit numbers are quantised floats, of which all occur; others are counts and indices.
        let bits = if matches!(dtype, DType::I8 | DType::U8) { 8 } else { 3 };
        Array::int(dtype, shape, (0..n).map(|i| (draw(seed, i) >> (64 - bits)) as i64).collect())
    }
}

/// Elements that are drawn of a random constant; a larger one repeats them. A prime number, so that no rows are alike.
const DRAWN: usize = 65537;

/// The bytes of a random constant of so many elements.
pub(crate) fn random_bytes(dtype: DType, n: usize, seed: u64) -> Vec<u8> {
    let drawn = random(dtype, &[n.min(DRAWN)], seed).to_bytes();
    let wanted = n * dtype.bytes();
    let mut out = Vec::with_capacity(wanted);
    while out.len() < wanted {
        out.extend_from_slice(drawn.get(..wanted - out.len()).unwrap_or(&drawn));
    }
    out
}

/// The random number of a position (splitmix64 of seed and position).
fn draw(seed: u64, i: usize) -> u64 {
    let mut z =
        seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add((i as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A float in -1..1 of 24 random bits.
fn unit(drawn: u64) -> f32 {
    (drawn >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

#[cfg(test)]
mod tests {
    use super::{Constant, DRAWN, random, random_bytes};
    use crate::ir::array::{Array, count};
    use crate::ir::dim::Bindings;
    use crate::ir::encoding::{BlockKind, Factors, Rounded, Scheme, Stored};
    use crate::ir::op::{Operation, Transpose};
    use crate::ir::tensor::DType;
    use crate::ir::tensor::DeviceType;
    use crate::shader::pack::presets::{CHW_C4, PANELS};
    use crate::shader::pack::{Arrangement, Packed, pack};

    /// A transposed and reshaped array, with elements moved.
    fn moved(array: &Array, perm: &[usize]) -> Array {
        let shape: Vec<usize> = perm.iter().map(|p| array.shape[*p]).collect();
        (Transpose { perm: perm.to_vec() }).eval(&[array], &shape, &Bindings::new()).unwrap()
    }

    #[test]
    fn random_bytes_are_those_of_a_random_tensor() {
        assert_eq!(random_bytes(DType::U8, 1001, 7), random(DType::U8, &[7, 143], 7).to_bytes());
    }

    #[test]
    fn large_random_constants_repeat_what_was_drawn() {
        let text = serde_json::json!({"dtype": "f16", "shape": [3, DRAWN - 1], "random": 5});
        let constant: Constant = serde_json::from_value(text).unwrap();
        let drawn = random(DType::F16, &[DRAWN], 5).to_bytes();
        assert_eq!(constant.elements(), 3 * (DRAWN - 1));
        assert_eq!(constant.bytes[..drawn.len()], drawn);
        assert_eq!(constant.bytes[drawn.len()..2 * drawn.len()], drawn);
        assert_eq!(random_bytes(DType::U8, 2 * DRAWN + 3, 7)[DRAWN..], random_bytes(DType::U8, DRAWN + 3, 7));
    }

    #[test]
    fn seen_in_another_order_elements_are_those_that_were_moved() {
        let array = random(DType::F32, &[6, 1, 10, 4], 3);
        let constant = Constant::from_array(&array);
        let perm = [2, 1, 0, 3];
        let (seen, moved) = (constant.transposed(&perm).unwrap(), moved(&array, &perm));
        assert!(seen.strides.is_some() && seen.bytes == constant.bytes);
        assert_eq!(seen.to_array().unwrap(), moved);
        for shape in [vec![2, 5, 6, 4], vec![10, 2, 3, 1, 4], vec![1, 5, 2, 6, 2, 2]] {
            let seen = seen.reshaped(&shape).unwrap();
            assert_eq!(seen.to_array().unwrap(), Array { shape, ..moved.clone() });
        }
        let last = constant.transposed(&[2, 3, 0, 1]).unwrap();
        let merged = last.reshaped(&[40, 6]).unwrap();
        assert_eq!(merged.to_array().unwrap().data, last.to_array().unwrap().data);
        // An axis across what does not follow each other has no one stride.
        assert!(seen.reshaped(&[60, 4]).is_none() && seen.reshaped(&[10, 24]).is_none());
        assert!(seen.reshaped(&[3]).is_none());
        let back = seen.transposed(&perm).unwrap();
        assert_eq!(back, constant);
        let narrow = seen.cast(DType::F16).unwrap();
        assert_eq!(narrow.to_array().unwrap(), moved.cast(DType::F16));
    }

    /// Random blocks of a kind, as the text form makes them.
    fn encoded(kind: BlockKind, shape: &[usize]) -> Constant {
        let text = serde_json::json!({"dtype": "f32", "shape": shape, "stored": kind.name(), "random": 5});
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn encoded_constants_are_seen_and_packed_like_their_elements() {
        for kind in BlockKind::ALL {
            let codes = encoded(kind, &[24, 256]);
            let array = codes.to_array().unwrap();
            let largest = array.floats().unwrap().iter().fold(0f32, |most, v| most.max(v.abs()));
            assert!(largest > 0.01 && largest < 1000.0, "{kind:?} has {largest}");
            assert_eq!(codes.cast(DType::F16).unwrap().to_array().unwrap(), array.cast(DType::F16));
            assert!(codes.cast(DType::F16).unwrap().cast(DType::F32).is_none());
            let seen = codes.transposed(&[1, 0]).unwrap();
            assert!(seen.bytes == codes.bytes);
            assert_eq!(seen.to_array().unwrap(), moved(&array, &[1, 0]));
            let split = codes.reshaped(&[4, 6, 64, 4]).unwrap().transposed(&[2, 0, 3, 1]).unwrap();
            let plain = Constant::from_array(&array);
            let plain = plain.reshaped(&[4, 6, 64, 4]).unwrap().transposed(&[2, 0, 3, 1]).unwrap();
            assert_eq!(split.to_array().unwrap(), plain.to_array().unwrap());
            for (codes, plain) in [(codes, Constant::from_array(&array)), (split, plain)] {
                for device in [DeviceType::F32, DeviceType::F16] {
                    let packed = |source: &Constant| {
                        let elements = source.elements() / 24;
                        let order =
                            PANELS.of(source, &[('N', 24), ('K', elements)], &[('r', 1), ('n', 16)], device);
                        let source = source.clone();
                        let dense = Packed { source, arrangement: Arrangement::Dense, device };
                        [pack(&order).unwrap(), pack(&dense).unwrap()]
                    };
                    assert!(packed(&codes) == packed(&plain), "{kind:?} in {device:?}");
                }
            }
        }
    }

    #[test]
    fn parts_are_those_of_the_elements() {
        let columns = |array: &Array, range: std::ops::Range<usize>| {
            let [rows, all] = array.shape[..] else { panic!("{:?}", array.shape) };
            let values = array.floats().unwrap();
            (0..rows)
                .flat_map(|r| values[r * all + range.start..r * all + range.end].to_vec())
                .collect::<Vec<_>>()
        };
        let floats = Constant::from_array(&random(DType::F32, &[24, 256], 8));
        let stored = [24, 256];
        let mut constants =
            vec![floats.clone(), encoded(BlockKind::Q4K, &stored), encoded(BlockKind::Q8_0, &stored)];
        for (bits, group, zeros) in [(8, None, false), (4, Some(32), false), (4, Some(64), true)] {
            let scheme = Scheme { bits, group, zeros };
            let factors =
                Factors { rows: Some((1..=24).map(|n| n as f32).collect::<Vec<_>>().into()), columns: None };
            let lies = (stored, [256, 1]);
            let rounded = Rounded::multiplied(DType::F32, &floats.bytes, lies, scheme, factors).unwrap();
            let rounded = Stored::Rounded(rounded.into());
            constants.push(Constant::encoded(stored.to_vec(), rounded, floats.bytes.clone()).unwrap());
        }
        for constant in constants {
            let seen = constant.transposed(&[1, 0]).unwrap();
            let whole = constant.to_array().unwrap();
            for range in [0..7, 7..24, 3..4] {
                let want = whole.floats().unwrap()[range.start * 256..range.end * 256].to_vec();
                let part = constant.part(0, range.clone()).unwrap();
                assert_eq!(part.to_array().unwrap().floats().unwrap(), want, "{}", constant.stored);
                let parts = [seen.part(1, range.clone()).unwrap(), part.transposed(&[1, 0]).unwrap()];
                let [one, other] = parts.map(|part| part.to_array().unwrap());
                assert_eq!(one, other);
                assert_eq!(one.floats().unwrap(), columns(&seen.to_array().unwrap(), range.clone()));
                // The same part of the same constant is known as such, so that it is packed once.
                let again = constant.part(0, range.clone()).unwrap().stored.aside();
                assert_eq!(again, constant.part(0, range).unwrap().stored.aside());
            }
            let across = constant.part(1, 32..70);
            assert_eq!(across.is_some(), constant.stored.plain().is_some());
            if let Some(across) = across {
                assert_eq!(across.to_array().unwrap().floats().unwrap(), columns(&whole, 32..70));
            }
            assert!(constant.part(0, 3..25).is_none());
            assert!(constant.part(0, 3..3).is_none() && constant.part(2, 0..1).is_none());
        }
    }

    #[test]
    fn the_text_form_says_how_elements_are_stored() {
        let codes = encoded(BlockKind::Q4K, &[2, 512]);
        let text = serde_json::to_string(&codes).unwrap();
        assert!(text.contains("\"stored\":\"q4_k\"") && text.contains("\"hash\""), "{text}");
        let refused = |stored: &str, shape: &[usize]| {
            let text = serde_json::json!({"dtype": "f32", "shape": shape, "stored": stored, "random": 1});
            serde_json::from_value::<Constant>(text).unwrap_err().to_string()
        };
        assert!(refused("q9_k", &[256]).contains("`q9_k`"));
        assert!(refused("q4_0", &[3, 48]).contains("no whole blocks"));
        let short = Constant::encoded(vec![2, 32], Stored::Blocks(BlockKind::Q8_0), vec![0; 67]);
        assert!(short.unwrap_err().0.contains("67 bytes"));
    }

    #[test]
    fn constants_in_another_order_are_packed_like_moved_ones() {
        let array = random(DType::F32, &[30, 3, 50], 4);
        let seen = Constant::from_array(&array).transposed(&[1, 0, 2]).unwrap();
        let copy = Constant::from_array(&seen.to_array().unwrap());
        let device = DType::F32.on_device();
        let arrangements: [fn(&Constant, DeviceType) -> Packed; 3] = [
            |source, _| Packed::dense(source),
            |source, device| {
                PANELS.of(source, &[('K', 3), ('N', 30), ('S', 50)], &[('r', 2), ('n', 4)], device)
            },
            // No strides say this, so elements are moved first.
            |source, device| CHW_C4.of(source, &[('C', 90), ('S', 50)], &[], device),
        ];
        for (i, arrangement) in arrangements.into_iter().enumerate() {
            let packed = |source: &Constant| pack(&arrangement(source, device)).unwrap();
            assert!(packed(&seen) == packed(&copy), "{i}");
            assert!(packed(&seen).len() >= 4 * count(&seen.shape));
        }
    }
}
