//! Rows of floats as signed codes of 8 bits with a scale for each row: what caches of keys and values are kept in.
//!
//! `x [.., n]` with n a multiple of four becomes u32 `[.., n / 4 + 1]`: words of four codes, the first one in the lowest byte,
//! and behind them the bits of the row's scale in f32. The scale is the largest magnitude over 127, and a code is the
//! element over the scale, rounded to the nearest integer, upwards between two. A row of zeros has scale and codes zero.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::ops::check::{self, exactly};
use crate::ir::tensor::{DType, TensorDesc};

/// The largest code; the smallest is its negative.
const LARGEST: f32 = 127.0;
/// What a row's largest magnitude is multiplied by for its scale: products are the same on all devices, quotients are not.
const SMALLEST: f32 = 1.0 / 127.0;

/// Rows along the last axis as codes of 8 bits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuantizeRows {}

impl Operation for QuantizeRows {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x] = exactly(inputs)?;
        check::float(x, "what is quantised")?;
        let mut shape = x.shape.clone();
        let whole = |n: i64| n > 0 && n % 4 == 0;
        match shape.last_mut().and_then(|last| Some((last.as_known().filter(|n| whole(*n))?, last))) {
            Some((n, last)) => *last = (n / 4 + 1).into(),
            None => return Err(OpError::new(format!("rows of {x} are not of a multiple of four elements"))),
        }
        Ok(TensorDesc::new(DType::U32, shape))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let [x] = inputs else { return Err(OpError::new("one operand is needed")) };
            let length = x.shape.last().copied().unwrap_or(0);
            Ok(Data::Int(x.floats()?.chunks_exact(length.max(1)).flat_map(quantized).collect()))
        })
    }
}

/// The words of a row.
fn quantized(row: &[f32]) -> Vec<i64> {
    let top = row.iter().fold(0.0f32, |top, x| top.max(x.abs()));
    let factor = if top > 0.0 { LARGEST / top } else { 0.0 };
    let code = |x: &f32| ((x * factor + 0.5).floor().clamp(-LARGEST, LARGEST) as i8).cast_unsigned();
    let word = |four: &[f32]| four.iter().rev().fold(0, |word, x| word << 8 | i64::from(code(x)));
    let scale = i64::from((top * SMALLEST).to_bits());
    row.chunks(4).map(word).chain([scale]).collect()
}

/// The elements that rows of words stand for, `length` words each with the scale.
///
/// # Errors
/// When `words` is no array of integers.
pub(super) fn elements(words: &Array) -> Result<Vec<f32>, OpError> {
    let length = words.shape.last().copied().unwrap_or(0).max(1);
    let mut out = Vec::with_capacity(words.len() * 4);
    for row in words.ints()?.chunks_exact(length) {
        let Some((scale, codes)) = row.split_last() else { continue };
        let scale = f32::from_bits(*scale as u32);
        let bytes = codes.iter().flat_map(|word| (*word as u32).to_le_bytes());
        out.extend(bytes.map(|byte| f32::from(byte.cast_signed()) * scale));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::{QuantizeRows, elements};
    use crate::ir::array::Array;
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::ops::constant::random;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn codes_are_relative_to_the_largest_of_a_row() {
        let x = Array::f32(&[3, 4], vec![1.0, -2.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 254.0, 1.0, -1.0, -254.0]);
        let y = run(&QuantizeRows {}, &[&x], &Bindings::new()).unwrap();
        assert_eq!((y.dtype, y.shape.as_slice()), (DType::U32, [3, 2].as_slice()));
        // 63.5 goes up to 64, 31.75 to 32; 0.5 goes up to 1, and -0.5 to 0.
        let words = [
            0x0020_8140,
            i64::from((2.0f32 / 127.0).to_bits()),
            0,
            0,
            0x8100_017f,
            i64::from(2.0f32.to_bits()),
        ];
        assert_eq!(y.ints().unwrap(), words);
        assert_eq!(elements(&y).unwrap()[8..], [254.0, 2.0, 0.0, -254.0]);
    }

    #[test]
    fn elements_are_within_half_a_step() {
        let x = random(DType::F32, &[5, 3, 64], 7);
        let y = run(&QuantizeRows {}, &[&x], &Bindings::new()).unwrap();
        let back = elements(&y).unwrap();
        for (row, back) in x.floats().unwrap().chunks(64).zip(back.chunks(64)) {
            let top = row.iter().fold(0.0f32, |top, x| top.max(x.abs()));
            assert!(row.iter().zip(back).all(|(a, b)| (a - b).abs() <= top / 127.0 * 0.501));
        }
    }

    #[test]
    fn rows_of_other_lengths_and_types_are_refused() {
        let of = |dtype, shape: &[usize]| TensorDesc::of(dtype, shape);
        assert!(QuantizeRows {}.infer(&[&of(DType::F16, &[2, 8])]).is_ok());
        for x in
            [of(DType::F32, &[2, 6]), of(DType::F32, &[2, 0]), of(DType::F32, &[]), of(DType::I32, &[2, 8])]
        {
            assert!(QuantizeRows {}.infer(&[&x]).is_err());
        }
        let symbolic = TensorDesc::new(DType::F32, vec![Dim::known(2), Dim::symbol("n")]);
        assert!(QuantizeRows {}.infer(&[&symbolic]).is_err());
        let none = TensorDesc::new(DType::F32, vec![Dim::symbol("n"), Dim::known(8)]);
        assert_eq!(QuantizeRows {}.infer(&[&none]).unwrap().shape, [Dim::symbol("n"), Dim::known(3)]);
        let empty = Array::f32(&[0, 8], vec![]);
        assert_eq!(run(&QuantizeRows {}, &[&empty], &Bindings::new()).unwrap().shape, [0, 3]);
    }
}
