//! Tests of views, slices, packing and the text form of constants.

use super::{Constant, random};
use crate::ir::array::{Array, count};
use crate::ir::dim::Bindings;
use crate::ir::encoding::{BlockKind, ChannelFactors, Encoding, MatrixLayout, QuantScheme, QuantizedOnRead};
use crate::ir::op::{Operation, Transpose};
use crate::ir::random::{RANDOM_PERIOD, random_bytes};
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
    let text = serde_json::json!({"dtype": "f32", "shape": shape, "encoding": kind.name(), "random": 5});
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
                    let order =
                        PANELS.packed(source, &[('N', 24), ('K', elements)], &[('r', 1), ('n', 16)], device);
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
    let mut constants = vec![floats.clone(), encoded(BlockKind::Q4K, &size), encoded(BlockKind::Q8_0, &size)];
    for (bits, group, asymmetric) in [(8, None, false), (4, Some(32), false), (4, Some(64), true)] {
        let scheme = QuantScheme { bits, group, asymmetric };
        let rows = (1..=24).map(|n| n as f32).collect::<Vec<_>>();
        let factors = ChannelFactors { rows: Some(rows.into()), columns: None };
        let layout = MatrixLayout::from_strides(size, [256, 1]);
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
    assert!(text.contains("\"encoding\":\"q4_k\"") && text.contains("\"hash\""), "{text}");
    let refused = |encoding: &str, shape: &[usize]| {
        let text = serde_json::json!({"dtype": "f32", "shape": shape, "encoding": encoding, "random": 1});
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

#[test]
fn concatenated_matrices_have_the_elements_of_all() {
    let a = Constant::from_array(&random(DType::F32, &[3, 5], 1));
    let b = Constant::from_array(&random(DType::F32, &[3, 2], 2));
    let elements = |constant: &Constant| constant.to_array().unwrap().floats().unwrap().to_vec();
    let [from_a, from_b] = [elements(&a), elements(&b)];
    let want: Vec<f32> =
        (0..3).flat_map(|i| [&from_a[i * 5..][..5], &from_b[i * 2..][..2]].concat()).collect();
    let columns = Constant::concat(&[&a, &b], 1).unwrap();
    assert_eq!((columns.shape.as_slice(), elements(&columns)), (&[3, 7][..], want.clone()));
    // The same matrices with the other axis first in memory.
    let turned = |constant: &Constant| constant.transposed(&[1, 0]).unwrap();
    let rows = Constant::concat(&[&turned(&a), &turned(&b)], 0).unwrap();
    assert_eq!((rows.shape.as_slice(), elements(&turned(&rows))), (&[7, 3][..], want.clone()));
    let stored = |array: &Constant| Constant::from_array(&turned(array).to_array().unwrap());
    let rows = Constant::concat(&[&stored(&a), &stored(&b)], 0).unwrap();
    assert_eq!((rows.strides.is_none(), elements(&turned(&rows))), (true, want.clone()));
    let columns = Constant::concat(&[&turned(&stored(&a)), &turned(&stored(&b))], 1).unwrap();
    assert_eq!(elements(&columns), want);
    assert!(Constant::concat(&[&a, &b], 0).is_none());
    assert!(Constant::concat(&[&a, &turned(&stored(&b))], 1).is_none());
}
