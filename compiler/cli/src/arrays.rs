//! Arrays on the command line: `NAME=FILE` arguments, generated inputs, and conversions between the array types of the
//! runtime and the reference.

use std::path::PathBuf;

use drift_runtime::format::HostType;
use driftc::ir::array::Array as HostArray;
use driftc::ir::tensor::DType;

use crate::failure::{Failure, Result};
use crate::npy;

/// A `NAME=FILE` or `POSITION=FILE` argument: the name or the position of an input or output, and a file.
#[derive(Debug, Clone)]
pub(crate) struct NamedFile {
    pub(crate) name: String,
    pub(crate) file: PathBuf,
}

/// Parses `NAME=FILE`.
pub(crate) fn named_file(text: &str) -> Result<NamedFile, String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            Ok(NamedFile { name: name.to_owned(), file: file.into() })
        }
        _ => Err("write NAME=FILE.npy or POSITION=FILE.npy; positions start at 0".into()),
    }
}

/// Reads the arrays of an option's files, and sorts them by the position of their input or output in `names`. `kind` is
/// `input` or `output`.
///
/// # Errors
/// If a file cannot be read, a name is unknown, or a name is given twice.
pub(crate) fn read_named(
    files: &[NamedFile],
    names: &[String],
    kind: &str,
) -> Result<Vec<(usize, drift_runtime::Array)>> {
    let arrays = read_all(files, names, kind)?;
    match arrays.windows(2).find(|w| w[0].0 == w[1].0).and_then(|w| names.get(w[0].0)) {
        Some(name) => Err(Failure::usage(format!("{kind} `{name}` is given twice"))),
        None => Ok(arrays),
    }
}

/// Reads the files of an option like [`read_named`], but accepts several files for one input or output.
pub(crate) fn read_all(
    files: &[NamedFile],
    names: &[String],
    kind: &str,
) -> Result<Vec<(usize, drift_runtime::Array)>> {
    let mut arrays: Vec<(usize, drift_runtime::Array)> = Vec::with_capacity(files.len());
    for NamedFile { name, file } in files {
        let by_name = names.iter().position(|n| n == name);
        let position =
            by_name.or_else(|| name.parse().ok().filter(|i| *i < names.len())).ok_or_else(|| {
                Failure::usage(format!("there is no {kind} `{name}`")).help(list_names(names, kind))
            })?;
        arrays.push((position, npy::read(file)?));
    }
    arrays.sort_by_key(|(position, _)| *position);
    Ok(arrays)
}

/// Returns a sentence for error messages that lists the valid names of inputs or outputs.
pub(crate) fn list_names(names: &[String], kind: &str) -> String {
    let list: Vec<String> = names.iter().enumerate().map(|(i, n)| format!("`{n}` ({i})")).collect();
    if list.is_empty() {
        format!("there are no {kind}s")
    } else {
        format!("the {kind}s are {}", list.join(", "))
    }
}

/// Converts an array of the runtime to the array type of the CPU reference.
pub(crate) fn to_host(array: &drift_runtime::Array) -> Result<HostArray> {
    HostArray::from_bytes(dtype(array.dtype), &array.shape, &array.bytes).map_err(|e| Failure::input(e.0))
}

/// Converts an array of the CPU reference to the array type of the runtime.
pub(crate) fn to_runtime(array: &HostArray) -> drift_runtime::Array {
    drift_runtime::Array {
        dtype: host_type(array.dtype),
        shape: array.shape.clone(),
        bytes: array.to_bytes(),
    }
}

/// Generates an array for a missing input: random floats in [-1, 1), or the number 1 for other types. In most models, 1
/// is a valid index, token id, token type and mask value.
pub(crate) fn generate_array(dtype: DType, shape: &[usize], seed: u64) -> HostArray {
    let n = driftc::ir::array::count(shape);
    if !dtype.is_float() {
        return HostArray::int(dtype, shape, vec![1; n]);
    }
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    let mut draw = || {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let bits = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40;
        bits as f32 / (1u64 << 23) as f32 - 1.0
    };
    let mut values: Vec<f32> = (0..n).map(|_| draw()).collect();
    driftc::ir::array::round_floats(dtype, &mut values);
    HostArray::float(dtype, shape, values)
}

const TYPES: [(DType, HostType); 13] = [
    (DType::F32, HostType::F32),
    (DType::F16, HostType::F16),
    (DType::Bf16, HostType::Bf16),
    (DType::F64, HostType::F64),
    (DType::I8, HostType::I8),
    (DType::I16, HostType::I16),
    (DType::I32, HostType::I32),
    (DType::I64, HostType::I64),
    (DType::U8, HostType::U8),
    (DType::U16, HostType::U16),
    (DType::U32, HostType::U32),
    (DType::U64, HostType::U64),
    (DType::Bool, HostType::Bool),
];

/// Converts an element type of the compiler to the runtime's enum.
pub(crate) fn host_type(dtype: DType) -> HostType {
    TYPES.iter().find(|(d, _)| *d == dtype).map_or(HostType::F32, |(_, h)| *h)
}

/// Converts an element type of the runtime to the compiler's enum.
pub(crate) fn dtype(host: HostType) -> DType {
    TYPES.iter().find(|(_, h)| *h == host).map_or(DType::F32, |(d, _)| *d)
}

#[cfg(test)]
mod tests {
    use super::{TYPES, generate_array, named_file};
    use driftc::ir::tensor::DType;

    #[test]
    fn arguments_are_split_at_the_first_equals_sign() {
        let named = named_file("a=b=c.npy").unwrap();
        assert_eq!((named.name.as_str(), named.file.to_str()), ("a", Some("b=c.npy")));
        for bad in ["a", "=b", "a="] {
            assert!(named_file(bad).is_err());
        }
    }

    #[test]
    fn generated_floats_are_spread_and_repeatable() {
        let a = generate_array(DType::F32, &[1000], 3);
        let values = a.floats().unwrap();
        assert!(values.iter().all(|v| (-1.0..1.0).contains(v)));
        let mean = values.iter().sum::<f32>() / 1000.0;
        assert!(mean.abs() < 0.1, "{mean}");
        assert_eq!(a, generate_array(DType::F32, &[1000], 3));
        assert_ne!(a, generate_array(DType::F32, &[1000], 4));
    }

    #[test]
    fn element_types_have_equal_names() {
        assert!(TYPES.iter().all(|(d, h)| d.name() == h.name()));
    }
}
