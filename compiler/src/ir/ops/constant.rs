//! A constant tensor. Its bytes are borrowed from the model file until a pass computes new ones.
//!
//! Casting a float constant to another float type, transposing and reshaping compute nothing. The constant keeps the
//! file's bytes with an element type and strides, and elements are converted and reordered when they are read. A model
//! therefore takes no extra memory. Quantized weights stay quantized in the same way, through the
//! [encoding](crate::ir::encoding) of the constant.

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::content::Content;
use crate::error::OpError;
use crate::ir::array::{Array, Data, count, strides};
use crate::ir::dim::Bindings;
use crate::ir::encoding::{BlockKind, Encoding, GroupQuantized, Stack, StackMember};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::random::random_bytes;
use crate::ir::tensor::{DType, TensorDesc};

pub use crate::ir::random::random;

/// Maximum elements that the text form prints as values; larger constants are printed as a hash.
const PRINTED_ELEMENTS: usize = 64;

/// A constant tensor. By default its elements are little-endian and row-major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    /// Element type. Elements of another float type in `bytes` are converted to it.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
    /// Encoding of `bytes`.
    pub encoding: Encoding,
    /// Strides in elements; `None` for row-major order. Each element of the file belongs to exactly one position.
    pub strides: Option<Vec<usize>>,
    /// Bytes of the encoding, not necessarily aligned.
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

    /// Stacks constants of one shape into `[members, ..]` without copying; fails if their shapes or types differ.
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

    /// Returns the constants of a stack.
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

    /// Permutes the axes without changing the bytes. Returns `None` for an empty constant or a wrong permutation.
    pub fn transposed(&self, perm: &[usize]) -> Option<Self> {
        let old = self.strides.clone().unwrap_or_else(|| strides(&self.shape));
        let permute =
            |list: &[usize]| perm.iter().map(|p| list.get(*p).copied()).collect::<Option<Vec<usize>>>();
        let shape = permute(&self.shape)?;
        let new = Some(permute(&old)?).filter(|new| !is_row_major(&shape, new));
        (perm.len() == self.shape.len() && self.elements() > 0).then(|| Self {
            shape,
            strides: new,
            ..self.clone()
        })
    }

    /// Changes the shape without changing the bytes. Returns `None` if the number of elements differs, or if one stride
    /// per axis cannot express the order.
    pub fn reshaped(&self, shape: &[usize]) -> Option<Self> {
        let new = self.strides_for_shape(shape)?;
        let new = Some(new).filter(|new| !is_row_major(shape, new));
        Some(Self { shape: shape.to_vec(), strides: new, ..self.clone() })
    }

    /// Returns the strides of the constant under another shape; `None` as for [`Self::reshaped`].
    pub fn strides_for_shape(&self, shape: &[usize]) -> Option<Vec<usize>> {
        if count(shape) != self.elements() {
            return None;
        }
        let Some(old) = &self.strides else { return Some(strides(shape)) };
        let mut axes =
            self.shape.iter().copied().zip(old.iter().copied()).filter(|(size, _)| *size != 1).rev();
        // Elements of the current old axis that no new axis covers yet, and their stride.
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
                // Adjacent old axes without a gap between them count as one axis.
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

    /// Returns the range of positions of an axis. If the axis is the outermost one in the file, the result refers to a
    /// byte range. Otherwise plain row-major elements are copied. Returns `None` for stacks, for separate scales
    /// ([`Encoding::GroupQuantized`]), and for other ranges.
    pub fn slice(&self, axis: usize, range: Range<usize>) -> Option<Self> {
        let old = self.strides.clone().unwrap_or_else(|| strides(&self.shape));
        let (size, stride) = (*self.shape.get(axis)?, *old.get(axis)?);
        if range.is_empty() || range.end > size {
            return None;
        }
        if size.checked_mul(stride)? != self.elements() {
            return self.copy_slice(axis, range);
        }
        let (start, end) = (range.start * stride, range.end * stride);
        let (encoding, bytes) = match &self.encoding {
            Encoding::Plain(dtype) => (self.encoding.clone(), start * dtype.bytes()..end * dtype.bytes()),
            Encoding::Blocks(kind) => {
                let whole = |n: usize| {
                    n.is_multiple_of(kind.elements()).then_some(n / kind.elements() * kind.bytes())
                };
                (self.encoding.clone(), whole(start)?..whole(end)?)
            }
            Encoding::QuantizedOnRead(matrix) => {
                let (rows, bytes) = matrix.row_range(start..end, self.bytes.len())?;
                (Encoding::QuantizedOnRead(rows.into()), bytes)
            }
            Encoding::GroupQuantized(_) | Encoding::Stack(_) => return None,
        };
        if bytes.end > self.bytes.len() {
            return None;
        }
        let mut shape = self.shape.clone();
        *shape.get_mut(axis)? = range.len();
        let strides = Some(old).filter(|strides| !is_row_major(&shape, strides));
        Some(Self { dtype: self.dtype, shape, encoding, strides, bytes: self.bytes.slice(bytes) })
    }

    /// Copies a range of positions of an axis; plain row-major elements only.
    fn copy_slice(&self, axis: usize, range: Range<usize>) -> Option<Self> {
        let width = self.encoding.plain_dtype().filter(|_| self.strides.is_none())?.bytes();
        let inner = count(self.shape.get(axis + 1..)?) * width;
        let mut shape = self.shape.clone();
        let size = std::mem::replace(shape.get_mut(axis)?, range.len());
        let mut bytes = Vec::with_capacity(count(&shape) * width);
        for outer in self.bytes.chunks_exact((size * inner).max(1)) {
            bytes.extend_from_slice(outer.get(range.start * inner..range.end * inner)?);
        }
        Some(Self { shape, bytes: bytes.into(), ..self.clone() })
    }

    /// Casts to another float type without changing the bytes; `None` if elements must be computed.
    pub fn cast(&self, dtype: DType) -> Option<Self> {
        let stored = self.encoding.element_type();
        let wider = match stored {
            DType::F16 | DType::Bf16 => matches!(self.dtype, DType::F32 | DType::F64),
            DType::F32 => self.dtype == DType::F64,
            _ => false,
        };
        // Rounding twice differs from rounding once.
        let exact = self.dtype == stored || wider;
        let floats = self.dtype.is_float() && dtype.is_float();
        (exact && floats).then(|| Self { dtype, ..self.clone() })
    }

    /// Shape that the encoding is checked with. Blocks are checked as one row, since a reshape may split rows of
    /// blocks.
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

/// True if strides are row-major; axes of one element are ignored.
fn is_row_major(shape: &[usize], new: &[usize]) -> bool {
    strides(shape).iter().zip(new).zip(shape).all(|((a, b), size)| a == b || *size == 1)
}

/// Returns strided elements in row-major order.
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

/// Attributes in the text form: values of small constants, a hash of large ones. `random` makes the parser generate
/// reproducible elements.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text<'a> {
    dtype: DType,
    shape: Cow<'a, [usize]>,
    #[serde(default, rename = "stored", skip_serializing_if = "Option::is_none")]
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

/// Parses the output of [`number`].
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
            _ => return Err(de::Error::custom(format!("{n} values or a random seed are needed"))),
        };
        Ok(Self::from_array(&array))
    }
}

/// Returns a random constant of an encoding, by the encoding's text form. Scales have the magnitude of typical weights.
fn random_encoded(shape: &[usize], encoding: &str, seed: Option<u64>) -> Result<Constant, String> {
    let kind = BlockKind::ALL.into_iter().find(|kind| kind.name() == encoding);
    let (kind, seed) = match (kind, seed, shape) {
        (Some(kind), Some(seed), _) => (kind, seed),
        (None, Some(seed), [rows, columns]) if count(shape) <= 1 << 26 => {
            return match GroupQuantized::random(encoding, [*rows, *columns], seed) {
                Some((matrix, bytes)) => {
                    let encoding = Encoding::GroupQuantized(matrix.into());
                    Constant::encoded(shape.to_vec(), encoding, bytes).map_err(|e| e.0)
                }
                None => Err(format!("unknown encoding `{encoding}`")),
            };
        }
        _ => {
            return Err(format!(
                "encoding `{encoding}` cannot be read: the text form has GGUF blocks, and matrices such as `u4 in groups of 32`, both with a random seed"
            ));
        }
    };
    let blocks =
        shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).unwrap_or(usize::MAX) / kind.elements();
    if blocks > 1 << 20 {
        return Err("a constant in the text form may have at most 2^26 elements".into());
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

#[cfg(test)]
mod tests {
    use super::{Constant, random, random_bytes};
    use crate::ir::array::{Array, count};
    use crate::ir::dim::Bindings;
    use crate::ir::encoding::{BlockKind, ChannelFactors, Encoding, QuantScheme, QuantizedOnRead};
    use crate::ir::op::{Operation, Transpose};
    use crate::ir::random::RANDOM_PERIOD;
    use crate::ir::tensor::DType;
    use crate::ir::tensor::DeviceType;
    use crate::shader::pack::presets::{CHW_C4, PANELS};
    use crate::shader::pack::{Arrangement, Packed, pack};

    /// Transposes an array by moving its elements.
    fn moved(array: &Array, perm: &[usize]) -> Array {
        let shape: Vec<usize> = perm.iter().map(|p| array.shape[*p]).collect();
        (Transpose { perm: perm.to_vec() }).eval(&[array], &shape, &Bindings::new()).unwrap()
    }

    #[test]
    fn large_random_constants_repeat() {
        let text = serde_json::json!({"dtype": "f16", "shape": [3, RANDOM_PERIOD - 1], "random": 5});
        let constant: Constant = serde_json::from_value(text).unwrap();
        let period = random(DType::F16, &[RANDOM_PERIOD], 5).to_bytes();
        assert_eq!(constant.elements(), 3 * (RANDOM_PERIOD - 1));
        assert_eq!(constant.bytes[..period.len()], period);
        assert_eq!(constant.bytes[period.len()..2 * period.len()], period);
        let repeated = random_bytes(DType::U8, 2 * RANDOM_PERIOD + 3, 7);
        assert_eq!(repeated[RANDOM_PERIOD..], random_bytes(DType::U8, RANDOM_PERIOD + 3, 7));
    }

    #[test]
    fn strided_constants_equal_arrays_with_moved_elements() {
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
        // An axis across a gap has no single stride.
        assert!(seen.reshaped(&[60, 4]).is_none() && seen.reshaped(&[10, 24]).is_none());
        assert!(seen.reshaped(&[3]).is_none());
        let back = seen.transposed(&perm).unwrap();
        assert_eq!(back, constant);
        let narrow = seen.cast(DType::F16).unwrap();
        assert_eq!(narrow.to_array().unwrap(), moved.cast(DType::F16));
    }

    /// A constant of random blocks, parsed from the text form.
    fn encoded(kind: BlockKind, shape: &[usize]) -> Constant {
        let text = serde_json::json!({"dtype": "f32", "shape": shape, "stored": kind.name(), "random": 5});
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn encoded_constants_are_transposed_and_packed_like_plain_ones() {
        for kind in BlockKind::ALL {
            let quantized = encoded(kind, &[24, 256]);
            let array = quantized.to_array().unwrap();
            let largest = array.floats().unwrap().iter().fold(0f32, |most, v| most.max(v.abs()));
            assert!(largest > 0.01 && largest < 1000.0, "{kind:?} has {largest}");
            assert_eq!(quantized.cast(DType::F16).unwrap().to_array().unwrap(), array.cast(DType::F16));
            assert!(quantized.cast(DType::F16).unwrap().cast(DType::F32).is_none());
            let seen = quantized.transposed(&[1, 0]).unwrap();
            assert!(seen.bytes == quantized.bytes);
            assert_eq!(seen.to_array().unwrap(), moved(&array, &[1, 0]));
            let split = quantized.reshaped(&[4, 6, 64, 4]).unwrap().transposed(&[2, 0, 3, 1]).unwrap();
            let plain = Constant::from_array(&array);
            let plain = plain.reshaped(&[4, 6, 64, 4]).unwrap().transposed(&[2, 0, 3, 1]).unwrap();
            assert_eq!(split.to_array().unwrap(), plain.to_array().unwrap());
            for (quantized, plain) in [(quantized, Constant::from_array(&array)), (split, plain)] {
                for device in [DeviceType::F32, DeviceType::F16] {
                    let packed = |source: &Constant| {
                        let elements = source.elements() / 24;
                        let order = PANELS.packed(
                            source,
                            &[('N', 24), ('K', elements)],
                            &[('r', 1), ('n', 16)],
                            device,
                        );
                        let source = source.clone();
                        let dense = Packed { source, arrangement: Arrangement::Dense, device };
                        [pack(&order).unwrap(), pack(&dense).unwrap()]
                    };
                    assert!(packed(&quantized) == packed(&plain), "{kind:?} in {device:?}");
                }
            }
        }
    }

    #[test]
    fn slices_have_the_elements_of_the_range() {
        let columns = |array: &Array, range: std::ops::Range<usize>| {
            let [rows, all] = array.shape[..] else { panic!("{:?}", array.shape) };
            let values = array.floats().unwrap();
            (0..rows)
                .flat_map(|r| values[r * all + range.start..r * all + range.end].to_vec())
                .collect::<Vec<_>>()
        };
        let floats = Constant::from_array(&random(DType::F32, &[24, 256], 8));
        let size = [24, 256];
        let mut constants =
            vec![floats.clone(), encoded(BlockKind::Q4K, &size), encoded(BlockKind::Q8_0, &size)];
        for (bits, group, asymmetric) in [(8, None, false), (4, Some(32), false), (4, Some(64), true)] {
            let scheme = QuantScheme { bits, group, asymmetric };
            let rows = (1..=24).map(|n| n as f32).collect::<Vec<_>>();
            let factors = ChannelFactors { rows: Some(rows.into()), columns: None };
            let layout = (size, [256, 1]);
            let matrix =
                QuantizedOnRead::with_factors(DType::F32, &floats.bytes, layout, scheme, factors).unwrap();
            let encoding = Encoding::QuantizedOnRead(matrix.into());
            constants.push(Constant::encoded(size.to_vec(), encoding, floats.bytes.clone()).unwrap());
        }
        for constant in constants {
            let seen = constant.transposed(&[1, 0]).unwrap();
            let whole = constant.to_array().unwrap();
            for range in [0..7, 7..24, 3..4] {
                let want = whole.floats().unwrap()[range.start * 256..range.end * 256].to_vec();
                let slice = constant.slice(0, range.clone()).unwrap();
                assert_eq!(slice.to_array().unwrap().floats().unwrap(), want, "{}", constant.encoding);
                let slices = [seen.slice(1, range.clone()).unwrap(), slice.transposed(&[1, 0]).unwrap()];
                let [one, other] = slices.map(|slice| slice.to_array().unwrap());
                assert_eq!(one, other);
                assert_eq!(one.floats().unwrap(), columns(&seen.to_array().unwrap(), range.clone()));
                // Equal slices of one constant have one identity, so that they are packed once.
                let again = constant.slice(0, range.clone()).unwrap().encoding.scales_address();
                assert_eq!(again, constant.slice(0, range).unwrap().encoding.scales_address());
            }
            let across = constant.slice(1, 32..70);
            assert_eq!(across.is_some(), constant.encoding.plain_dtype().is_some());
            if let Some(across) = across {
                assert_eq!(across.to_array().unwrap().floats().unwrap(), columns(&whole, 32..70));
            }
            assert!(constant.slice(0, 3..25).is_none());
            assert!(constant.slice(0, 3..3).is_none() && constant.slice(2, 0..1).is_none());
        }
    }

    #[test]
    fn the_text_form_names_the_encoding() {
        let quantized = encoded(BlockKind::Q4K, &[2, 512]);
        let text = serde_json::to_string(&quantized).unwrap();
        assert!(text.contains("\"stored\":\"q4_k\"") && text.contains("\"hash\""), "{text}");
        let refused = |encoding: &str, shape: &[usize]| {
            let text = serde_json::json!({"dtype": "f32", "shape": shape, "stored": encoding, "random": 1});
            serde_json::from_value::<Constant>(text).unwrap_err().to_string()
        };
        assert!(refused("q9_k", &[256]).contains("`q9_k`"));
        assert!(refused("q4_0", &[3, 48]).contains("not a multiple"));
        let short = Constant::encoded(vec![2, 32], Encoding::Blocks(BlockKind::Q8_0), vec![0; 67]);
        assert!(short.unwrap_err().0.contains("67 bytes"));
    }

    #[test]
    fn strided_constants_are_packed_like_row_major_ones() {
        let array = random(DType::F32, &[30, 3, 50], 4);
        let seen = Constant::from_array(&array).transposed(&[1, 0, 2]).unwrap();
        let copy = Constant::from_array(&seen.to_array().unwrap());
        let device = DType::F32.on_device();
        let arrangements: [fn(&Constant, DeviceType) -> Packed; 3] = [
            |source, _| Packed::dense(source),
            |source, device| {
                PANELS.packed(source, &[('K', 3), ('N', 30), ('S', 50)], &[('r', 2), ('n', 4)], device)
            },
            // No strides express this shape, so elements are reordered first.
            |source, device| CHW_C4.packed(source, &[('C', 90), ('S', 50)], &[], device),
        ];
        for (i, arrangement) in arrangements.into_iter().enumerate() {
            let packed = |source: &Constant| pack(&arrangement(source, device)).unwrap();
            assert!(packed(&seen) == packed(&copy), "{i}");
            assert!(packed(&seen).len() >= 4 * count(&seen.shape));
        }
    }
}
