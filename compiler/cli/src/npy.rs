//! `.npy` files, NumPy's format for one array.
//!
//! The reader accepts all plain number types and bool, both byte orders, and C and Fortran order. The writer uses
//! little-endian bytes and C order. NumPy has no bf16 type: `ml_dtypes` writes bf16 as two untyped bytes (`<V2`), which
//! the reader accepts. The writer stores bf16 arrays as f32, which holds every bf16 value.

use std::path::Path;

use drift_runtime::Array;
use drift_runtime::format::HostType;
use half::bf16;
use npyz::{DType, Endianness, NpyHeader, Order, TypeChar};

use crate::failure::{Failure, Result};
use crate::output::write_file;

/// Maximum length of a `.npy` header in bytes. A usual header has about 120 bytes.
const MAX_HEADER: usize = 16 << 10;
/// Maximum nesting depth of brackets in a `.npy` header.
const MAX_DEPTH: usize = 8;

/// Reads an array.
pub(crate) fn read(path: &Path) -> Result<Array> {
    let bytes = std::fs::read(path).map_err(|e| Failure::file(path, &e))?;
    parse(&bytes).map_err(|reason| {
        Failure::input(format!("{} is not a usable .npy file: {reason}", path.display()))
            .help("write it with numpy.save(path, array), from an array of numbers or bool")
    })
}

/// Writes an array.
pub(crate) fn write(path: &Path, array: &Array) -> Result<()> {
    let widened;
    let (descr, bytes) = match descr(array.dtype) {
        Some(descr) => (descr, &array.bytes),
        None => {
            let pairs = array.bytes.as_chunks::<2>().0.iter();
            widened = pairs.flat_map(|b| bf16::from_le_bytes(*b).to_f32().to_le_bytes()).collect::<Vec<u8>>();
            ("<f4", &widened)
        }
    };
    let dims: String = array.shape.iter().map(|d| format!("{d}, ")).collect();
    let shape = if array.shape.len() == 1 { dims.trim_end() } else { dims.trim_end_matches(", ") };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    // Magic, version and length take 10 bytes; the data starts at a multiple of 64.
    let padded = (10 + header.len() + 1).next_multiple_of(64) - 10;
    while header.len() + 1 < padded {
        header.push(' ');
    }
    header.push('\n');
    let length = u16::try_from(header.len()).map_err(|_| {
        Failure::input(format!("{}: the shape is too long for a .npy header", path.display()))
    })?;
    write_file(path, |out| {
        out.write_all(b"\x93NUMPY\x01\x00")?;
        out.write_all(&length.to_le_bytes())?;
        out.write_all(header.as_bytes())?;
        out.write_all(bytes)?;
        out.flush()
    })
}

fn descr(dtype: HostType) -> Option<&'static str> {
    Some(match dtype {
        HostType::F32 => "<f4",
        HostType::F16 => "<f2",
        HostType::Bf16 => return None,
        HostType::F64 => "<f8",
        HostType::I8 => "|i1",
        HostType::I16 => "<i2",
        HostType::I32 => "<i4",
        HostType::I64 => "<i8",
        HostType::U8 => "|u1",
        HostType::U16 => "<u2",
        HostType::U32 => "<u4",
        HostType::U64 => "<u8",
        HostType::Bool => "|b1",
    })
}

fn parse(file: &[u8]) -> Result<Array, String> {
    check_header(file)?;
    let mut rest = file;
    let header = NpyHeader::from_reader(&mut rest).map_err(|e| e.to_string())?;
    let (dtype, big_endian) = element_type(&header.dtype())?;
    let shape = header
        .shape()
        .iter()
        .map(|d| usize::try_from(*d).map_err(|e| e.to_string()))
        .collect::<Result<Vec<usize>, String>>()?;
    let size = usize::try_from(dtype.size()).map_err(|e| e.to_string())?;
    let count = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
    let expected = count.and_then(|n| n.checked_mul(size)).ok_or("the shape has too many elements")?;
    if rest.len() != expected {
        return Err(format!(
            "the header declares {expected} bytes of elements, but the file has {}",
            rest.len()
        ));
    }
    let mut bytes = rest.to_vec();
    if big_endian {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    if dtype == HostType::Bool {
        bytes.iter_mut().for_each(|b| *b = u8::from(*b != 0));
    }
    if header.order() == Order::Fortran && shape.len() > 1 {
        bytes = from_fortran(&bytes, &shape, size);
    }
    Ok(Array { dtype, shape, bytes })
}

/// Refuses `.npy` headers that would make the crate npyz exhaust memory or stack, or overflow an integer.
fn check_header(file: &[u8]) -> Result<(), String> {
    if !file.starts_with(b"\x93NUMPY") {
        return Err("the file does not start with NumPy's magic bytes".into());
    }
    let truncated = || "the file ends within its header".to_string();
    let (start, length) = match (file.get(6).ok_or_else(truncated)?, file.get(8..12).ok_or_else(truncated)?) {
        (1, [a, b, ..]) => (10, usize::from(u16::from_le_bytes([*a, *b]))),
        (2 | 3, [a, b, c, d]) => (12, u32::from_le_bytes([*a, *b, *c, *d]) as usize),
        (version, _) => return Err(format!("format version {version} is unknown")),
    };
    if length > MAX_HEADER {
        return Err(format!("the header has {length} bytes; the maximum is {MAX_HEADER}"));
    }
    let text = file.get(start..start + length).ok_or_else(truncated)?;
    let (mut depth, mut elements) = (0usize, 1u64);
    for b in text {
        match b {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err("the header is nested too deeply".into());
        }
    }
    // npyz multiplies all sizes without overflow checks. Every number of the header may be a size.
    for digits in text.split(|b| !b.is_ascii_digit()).filter(|d| !d.is_empty()) {
        let number: Option<u64> = std::str::from_utf8(digits).ok().and_then(|d| d.parse().ok());
        elements = number
            .and_then(|n| elements.checked_mul(n.max(1)))
            .filter(|n| *n < 1 << 60)
            .ok_or("the shape has too many elements")?;
    }
    Ok(())
}

fn element_type(dtype: &DType) -> Result<(HostType, bool), String> {
    let refuse = || Err(format!("elements of type {} are not numbers or bool", dtype.descr()));
    let DType::Plain(text) = dtype else { return refuse() };
    let host = match (text.type_char(), text.size_field()) {
        (TypeChar::Bool, 1) => HostType::Bool,
        (TypeChar::Int, 1) => HostType::I8,
        (TypeChar::Int, 2) => HostType::I16,
        (TypeChar::Int, 4) => HostType::I32,
        (TypeChar::Int, 8) => HostType::I64,
        (TypeChar::Uint, 1) => HostType::U8,
        (TypeChar::Uint, 2) => HostType::U16,
        (TypeChar::Uint, 4) => HostType::U32,
        (TypeChar::Uint, 8) => HostType::U64,
        (TypeChar::Float, 2) => HostType::F16,
        (TypeChar::Float, 4) => HostType::F32,
        (TypeChar::Float, 8) => HostType::F64,
        (TypeChar::RawData, 2) => HostType::Bf16,
        _ => return refuse(),
    };
    Ok((host, text.endianness() == Endianness::Big))
}

/// Reorders elements from Fortran order (first index fastest) to C order (last index fastest).
fn from_fortran(bytes: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = 1;
    for d in shape {
        strides.push(stride);
        stride *= d;
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = vec![0usize; shape.len()];
    let mut at = 0;
    while out.len() < bytes.len() {
        out.extend_from_slice(bytes.get(at * size..(at + 1) * size).unwrap_or_default());
        for ((i, d), stride) in index.iter_mut().zip(shape).zip(&strides).rev() {
            *i += 1;
            at += stride;
            if *i < *d {
                break;
            }
            at -= stride * d;
            *i = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{parse, read, write};
    use drift_runtime::Array;
    use drift_runtime::format::HostType;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn every_type_survives_a_round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        for dtype in [
            HostType::F32,
            HostType::F16,
            HostType::F64,
            HostType::I8,
            HostType::I16,
            HostType::I32,
            HostType::I64,
            HostType::U8,
            HostType::U16,
            HostType::U32,
            HostType::U64,
            HostType::Bool,
        ] {
            for shape in [vec![], vec![0], vec![3], vec![2, 3]] {
                let n = shape.iter().product::<usize>() * dtype.size() as usize;
                let bytes = (0..n).map(|i| (i % 2) as u8).collect();
                let array = Array { dtype, shape, bytes };
                write(&path, &array).unwrap();
                assert_eq!(read(&path).unwrap(), array);
                assert_eq!(std::fs::metadata(&path).unwrap().len() as usize % 64, n % 64);
            }
        }
    }

    #[test]
    fn big_endian_and_fortran_order_are_converted() {
        let big = file(
            "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }",
            &[0, 0, 0, 3, 0, 1, 0, 4, 0, 2, 0, 5],
        );
        let array = parse(&big).unwrap();
        assert_eq!(array.to_f64(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    }

    #[test]
    fn two_bytes_without_a_type_are_bf16() {
        for descr in ["<V2", "|V2"] {
            let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (2,), }}");
            let array = parse(&file(&header, &[0x80, 0x3f, 0x00, 0xc0])).unwrap();
            assert_eq!((array.dtype, array.to_f64()), (HostType::Bf16, vec![1.0, -2.0]));
        }
    }

    #[test]
    fn malformed_files_are_refused() {
        let whole = file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", &[0; 8]);
        assert!(parse(&whole).is_ok());
        for end in 0..whole.len() {
            assert!(parse(&whole[..end]).is_err(), "{end}");
        }
        let huge = "9".repeat(19);
        for header in [
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }",
            "{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }",
            "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
            "{'descr': '|V4', 'fortran_order': False, 'shape': (2,), }",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }",
            "{'descr': '<f4', 'shape': (2,), }",
            &format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({huge}, {huge}), }}"),
            &"(".repeat(5000),
            "",
        ] {
            assert!(parse(&file(header, &[0; 8])).is_err(), "{header}");
        }
    }
}
