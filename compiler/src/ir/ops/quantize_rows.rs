//! Quantization of rows to signed 8-bit integers with one scale per row, for quantized KV caches.
//!
//! `x [.., n]` with n a multiple of 4 becomes u32 `[.., n / 4 + 1]`: packed words of 4 quantized values, the first
//! value in the lowest byte, then the bits of the row's f32 scale. The scale is the maximum magnitude divided by 127. A
//! quantized value is the element divided by the scale, rounded to the nearest integer, ties up. A row of zeros has a
//! scale of 0 and quantized values of 0. With `aligned`, zeros follow the scale until the row has a multiple of 4 words,
//! so that kernels load 16 bytes at a time.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check::{self, exact_operands};
use crate::ir::tensor::{DType, TensorDesc};

/// Largest 8-bit value of a quantized row; the smallest is its negative.
const MAX_QUANTIZED: f32 = 127.0;
/// A row's scale is its maximum magnitude times this factor. The code multiplies instead of dividing by 127, because a
/// multiplication rounds the same way on all devices and a division does not.
const SCALE_FACTOR: f32 = 1.0 / 127.0;

/// Quantization of rows along the last axis to 8 bits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuantizeRows {
    /// True if zeros pad each row to a multiple of 4 words.
    #[serde(default, skip_serializing_if = "is_false")]
    pub aligned: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl QuantizeRows {
    /// Returns the number of words of a quantized row of `length` elements.
    pub fn row_words(&self, length: i64) -> i64 {
        let words = length / 4 + 1;
        if self.aligned { words + (-words).rem_euclid(4) } else { words }
    }
}

impl Operation for QuantizeRows {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x] = exact_operands(inputs)?;
        check::float(x, "the quantized operand")?;
        let mut shape = x.shape.clone();
        let whole = |n: i64| n > 0 && n % 4 == 0;
        match shape.last_mut().and_then(|last| Some((last.as_known().filter(|n| whole(*n))?, last))) {
            Some((n, last)) => *last = self.row_words(n).into(),
            None => {
                return Err(OpError::new(format!("the row length of {x} must be a known multiple of 4")));
            }
        }
        Ok(TensorDesc::new(DType::U32, shape))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::Other, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let [x] = inputs else { return Err(OpError::new("expected one operand")) };
            let length = x.shape.last().copied().unwrap_or(0);
            let words = out.last().copied().unwrap_or(0);
            let quantized = |row| {
                let mut words_of_row = quantize_row(row);
                words_of_row.resize(words, 0);
                words_of_row
            };
            Ok(Data::Int(x.floats()?.chunks_exact(length.max(1)).flat_map(quantized).collect()))
        })
    }
}

/// Quantizes a row; returns its packed words and then the bits of its scale.
fn quantize_row(row: &[f32]) -> Vec<i64> {
    let max = row.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    let factor = if max > 0.0 { MAX_QUANTIZED / max } else { 0.0 };
    let quantize =
        |x: &f32| ((x * factor + 0.5).floor().clamp(-MAX_QUANTIZED, MAX_QUANTIZED) as i8).cast_unsigned();
    let pack = |values: &[f32]| values.iter().rev().fold(0, |word, x| word << 8 | i64::from(quantize(x)));
    let scale = i64::from((max * SCALE_FACTOR).to_bits());
    row.chunks(4).map(pack).chain([scale]).collect()
}

/// Dequantizes rows that are not padded. Each row of `words` consists of packed words, followed by the bits of the row's
/// scale.
///
/// # Errors
/// If `words` is not an array of integers.
pub(super) fn dequantize_rows(words: &Array) -> Result<Vec<f32>, OpError> {
    let length = words.shape.last().copied().unwrap_or(0);
    dequantize_rows_of(words, length.saturating_sub(1) * 4)
}

/// Dequantizes rows of `length` elements. Words after the row's scale are ignored.
///
/// # Errors
/// If `words` is not an array of integers.
pub(super) fn dequantize_rows_of(words: &Array, length: usize) -> Result<Vec<f32>, OpError> {
    let row_words = words.shape.last().copied().unwrap_or(0).max(1);
    let mut out = Vec::with_capacity(words.len() * 4);
    for row in words.ints()?.chunks_exact(row_words) {
        let Some((scale, packed)) = row.get(..=length / 4).and_then(<[i64]>::split_last) else { continue };
        let scale = f32::from_bits(*scale as u32);
        let bytes = packed.iter().flat_map(|word| (*word as u32).to_le_bytes());
        out.extend(bytes.map(|byte| f32::from(byte.cast_signed()) * scale));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::{QuantizeRows, dequantize_rows};
    use crate::ir::array::Array;
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::ops::constant::random;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn values_are_relative_to_the_maximum_of_the_row() {
        let x = Array::f32(&[3, 4], vec![1.0, -2.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 254.0, 1.0, -1.0, -254.0]);
        let y = run(&QuantizeRows::default(), &[&x], &Bindings::new()).unwrap();
        assert_eq!((y.dtype, y.shape.as_slice()), (DType::U32, [3, 2].as_slice()));
        // Ties round up: 63.5 to 64, 0.5 to 1, and -0.5 to 0.
        let words = [
            0x0020_8140,
            i64::from((2.0f32 / 127.0).to_bits()),
            0,
            0,
            0x8100_017f,
            i64::from(2.0f32.to_bits()),
        ];
        assert_eq!(y.ints().unwrap(), words);
        assert_eq!(dequantize_rows(&y).unwrap()[8..], [254.0, 2.0, 0.0, -254.0]);
    }

    #[test]
    fn elements_are_within_half_a_scale() {
        let x = random(DType::F32, &[5, 3, 64], 7);
        let y = run(&QuantizeRows::default(), &[&x], &Bindings::new()).unwrap();
        let back = dequantize_rows(&y).unwrap();
        for (row, back) in x.floats().unwrap().chunks(64).zip(back.chunks(64)) {
            let max = row.iter().fold(0.0f32, |max, x| max.max(x.abs()));
            assert!(row.iter().zip(back).all(|(a, b)| (a - b).abs() <= max / 127.0 * 0.501));
        }
    }

    #[test]
    fn rows_of_other_lengths_and_types_are_refused() {
        let tensor = |dtype, shape: &[usize]| TensorDesc::from_sizes(dtype, shape);
        assert!(QuantizeRows::default().infer(&[&tensor(DType::F16, &[2, 8])]).is_ok());
        for x in [
            tensor(DType::F32, &[2, 6]),
            tensor(DType::F32, &[2, 0]),
            tensor(DType::F32, &[]),
            tensor(DType::I32, &[2, 8]),
        ] {
            assert!(QuantizeRows::default().infer(&[&x]).is_err());
        }
        let symbolic = TensorDesc::new(DType::F32, vec![Dim::known(2), Dim::symbol("n")]);
        assert!(QuantizeRows::default().infer(&[&symbolic]).is_err());
        let none = TensorDesc::new(DType::F32, vec![Dim::symbol("n"), Dim::known(8)]);
        assert_eq!(QuantizeRows::default().infer(&[&none]).unwrap().shape, [Dim::symbol("n"), Dim::known(3)]);
        let aligned = QuantizeRows { aligned: true };
        assert_eq!(aligned.infer(&[&none]).unwrap().shape, [Dim::symbol("n"), Dim::known(4)]);
        let x = run(&aligned, &[&Array::f32(&[1, 8], vec![127.0; 8])], &Bindings::new()).unwrap();
        assert_eq!(x.ints().unwrap(), [0x7f7f_7f7f, 0x7f7f_7f7f, i64::from(1.0f32.to_bits()), 0]);
        let empty = Array::f32(&[0, 8], vec![]);
        assert_eq!(run(&QuantizeRows::default(), &[&empty], &Bindings::new()).unwrap().shape, [0, 3]);
    }
}
