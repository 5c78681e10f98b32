//! Tests of matrices that are quantized while they are read.

use super::{ChannelFactors, MatrixLayout, QuantScheme, QuantizedOnRead};
use crate::content::Content;
use crate::ir::array::Array;
use crate::ir::encoding::Encoding;
use crate::ir::op::Constant;
use crate::ir::ops::constant::random;
use crate::ir::tensor::DType;
use std::sync::Arc;

#[test]
fn elements_are_rounded_to_the_nearest_quantized_value() {
    let array = random(DType::F32, &[6, 40], 5);
    let floats = array.floats().unwrap();
    let bytes: Content = array.to_bytes().into();
    for (bits, group, asymmetric) in
        [(8, None, false), (4, Some(16), false), (4, Some(16), true), (8, None, true)]
    {
        let scheme = QuantScheme { bits, group, asymmetric };
        for (size, strides) in [([6, 40], [40, 1]), ([40, 6], [1, 40])] {
            let matrix = QuantizedOnRead::new(DType::F32, &bytes, size, strides, scheme).unwrap();
            let encoding = Encoding::QuantizedOnRead(matrix.clone().into());
            let constant = Constant::encoded(size.to_vec(), encoding, bytes.clone()).unwrap();
            let got = constant.to_array().unwrap();
            for (i, got) in got.floats().unwrap().iter().enumerate() {
                let want = floats[i / size[1] * strides[0] + i % size[1] * strides[1]];
                let [scale, bias] = matrix.scale_and_bias(i);
                let low = if asymmetric { bias } else { -want.abs() };
                assert!(
                    low - scale <= *got && (got - want).abs() <= 0.51 * scale + 2e-3 * want.abs(),
                    "{scheme:?}: {got}, {want}"
                );
            }
        }
    }
}

/// Compares values that are quantized in chunks with values that are quantized one by one, for all types and
/// strides.
#[test]
fn chunks_are_rounded_to_even() {
    let (rows, columns) = (3, 700);
    let random = random(DType::F16, &[rows, columns], 7);
    let mut floats = random.floats().unwrap().to_vec();
    // Ties, NaN and infinities; the second row is all zeros.
    floats[..9].copy_from_slice(&[63.5, -63.5, 0.25, -0.25, 0.75, -0.75, f32::NAN, f32::INFINITY, -0.0]);
    floats[9] = f32::NEG_INFINITY;
    floats[columns..2 * columns].fill(0.0);
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        let stored = Array::f32(&[rows, columns], floats.clone()).cast(dtype);
        let bytes: Content = stored.to_bytes().into();
        let floats = stored.floats().unwrap();
        for (bits, group, asymmetric) in [(8, None, false), (4, Some(300), true), (8, Some(7), true)] {
            let scheme = QuantScheme { bits, group, asymmetric };
            let (min, max) = (f32::from(u8::from(!asymmetric)), ((1u32 << bits) - 1) as f32);
            for (size, strides) in [([rows, columns], [columns, 1]), ([columns, rows], [1, columns])] {
                let matrix = QuantizedOnRead::new(dtype, &bytes, size, strides, scheme).unwrap();
                for row in 0..size[0] {
                    let mut quantized = vec![0; size[1]];
                    matrix.quantized_values(&bytes, row * size[1], &mut quantized);
                    for (column, got) in quantized.iter().enumerate() {
                        let value = floats[row * strides[0] + column * strides[1]];
                        let [scale, bias] = matrix.scale_and_bias(row * size[1] + column);
                        let steps = if scale > 0.0 { (value - bias) / scale } else { 0.0 };
                        let steps = if steps.is_nan() { 0.0 } else { steps };
                        let zero_point =
                            if asymmetric { 0.0 } else { f32::from(matrix.symmetric_zero_point()) };
                        let want = (steps.round_ties_even() + zero_point).clamp(min, max) as u8;
                        assert_eq!(
                            *got, want,
                            "{scheme:?} {dtype:?}: {value} at row {row}, column {column} is quantized wrongly"
                        );
                    }
                }
            }
        }
    }
}

/// Elements are multiplied by the factors before they are quantized.
#[test]
fn factors_come_before_rounding() {
    let floats = random(DType::F32, &[6, 40], 5);
    let bytes: Content = floats.to_bytes().into();
    let rows: Vec<f32> = (0..6).map(|i| 0.5 + i as f32).collect();
    let columns: Vec<f32> = (0..40).map(|i| 3.0 - i as f32 / 20.0).collect();
    let scheme = QuantScheme { bits: 4, group: Some(16), asymmetric: true };
    let scaled = |i: usize, v: f32| v * rows[i / 40] * columns[i % 40];
    let values = floats.floats().unwrap().iter().enumerate().map(|(i, v)| scaled(i, *v)).collect();
    let multiplied: Content = Array::f32(&[6, 40], values).to_bytes().into();
    let factors = ChannelFactors { rows: Some(rows.clone().into()), columns: Some(columns.clone().into()) };
    let quantize = |bytes: &Content, factors| {
        let layout = MatrixLayout::from_strides([6, 40], [40, 1]);
        QuantizedOnRead::with_factors(DType::F32, bytes, layout, scheme, factors)
    };
    let array = |matrix, bytes: &Content| {
        let encoding = Encoding::QuantizedOnRead(Arc::new(matrix));
        Constant::encoded(vec![6, 40], encoding, bytes.clone()).unwrap().to_array().unwrap()
    };
    let got = array(quantize(&bytes, factors.clone()).unwrap(), &bytes);
    let want = array(quantize(&multiplied, ChannelFactors::default()).unwrap(), &multiplied);
    let apart = got.floats().unwrap().iter().zip(want.floats().unwrap()).map(|(a, b)| (a - b).abs());
    assert!(apart.fold(0.0, f32::max) < 1e-5);
    let short = ChannelFactors { rows: factors.columns, columns: None };
    assert!(quantize(&bytes, short).is_err());
}

#[test]
fn rows_of_zeros_or_nan_become_zeros() {
    let floats = [0.0f32, 0.0, f32::NAN, f32::NAN, 1.0, f32::INFINITY];
    let bytes: Vec<u8> = floats.iter().flat_map(|v| v.to_le_bytes()).collect();
    let bytes: Content = bytes.into();
    let scheme = QuantScheme { bits: 8, group: None, asymmetric: false };
    let matrix = QuantizedOnRead::new(DType::F32, &bytes, [3, 2], [2, 1], scheme).unwrap();
    let constant = Constant::encoded(vec![3, 2], Encoding::QuantizedOnRead(matrix.into()), bytes).unwrap();
    let got = constant.to_array().unwrap();
    assert_eq!(got.floats().unwrap(), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
    let wrong = |size| QuantizedOnRead::new(DType::F32, &Content::from(vec![0u8; 24]), size, [2, 1], scheme);
    assert!(wrong([4, 2]).is_err() && wrong([usize::MAX, 2]).is_err());
}

/// Filters that get channel factors equal filters that are multiplied by these factors before quantization. Each element is at
/// the position of its tap and channel.
#[test]
fn filters_are_rows_of_taps_and_channels() {
    let shape = [6, 8, 3, 2];
    let floats = random(DType::F32, &shape, 5);
    let scheme = QuantScheme { bits: 8, group: None, asymmetric: false };
    let quantized = |array: &Array| {
        let bytes: Content = array.to_bytes().into();
        let layout = MatrixLayout::from_filters(&shape, &[48, 6, 2, 1]).unwrap();
        let matrix =
            QuantizedOnRead::with_factors(DType::F32, &bytes, layout, scheme, ChannelFactors::default());
        let encoding = Encoding::QuantizedOnRead(matrix.unwrap().into());
        Constant::encoded(vec![6, 48], encoding, bytes).unwrap().as_filters(&shape).unwrap()
    };
    let filters = quantized(&floats);
    let got = filters.to_array().unwrap();
    let largest = floats.floats().unwrap().iter().fold(0f32, |a, v| a.max(v.abs()));
    let pairs = got.floats().unwrap().iter().zip(floats.floats().unwrap());
    assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() <= 0.51 * largest / 127.0));
    for (axis, length) in [(0, 6), (1, 8)] {
        let factors: Vec<f32> = (0..length).map(|i| 0.5 + i as f32).collect();
        let factor = |i: usize| factors[if axis == 0 { i / 48 } else { i / 6 % 8 }];
        let values = floats.floats().unwrap().iter().enumerate().map(|(i, v)| v * factor(i)).collect();
        let want = quantized(&Array::f32(&shape, values)).to_array().unwrap();
        assert_eq!(filters.scaled_filters(&factors, axis).unwrap().to_array().unwrap(), want);
        assert!(filters.scaled_filters(&factors[1..], axis).is_none());
    }
    assert!(MatrixLayout::from_filters(&shape, &[48, 6, 1, 3]).is_none());
}
