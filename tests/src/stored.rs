//! Reads ONNX models that are stored with inputs and expected outputs: folders of the official ONNX tests, and folders of
//! `.npy` arrays.
//!
//! A folder holds one case: `model.onnx` and either `test_data_set_0/{input,output}_N.pb`, or `meta.json` with the `.npy` files
//! that it names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use driftc::import::onnx::schema::{ModelProto, TensorProto};
use driftc::import::onnx::tensor;
use driftc::ir::array::Array;
use driftc::ir::tensor::DType;
use prost::Message;

/// Stored ONNX model with its inputs and expected outputs.
#[derive(Debug)]
pub struct Case {
    /// The model file.
    pub model: PathBuf,
    /// Names of the model's inputs, in the model's order.
    pub order: Vec<String>,
    /// Input arrays by the name of the input.
    pub inputs: BTreeMap<String, Array>,
    /// Names of the outputs with the expected arrays, in the model's order.
    pub outputs: Vec<(String, Array)>,
}

/// Reads the model, inputs and expected outputs in a folder.
///
/// # Errors
/// If a file is missing or malformed, or an array has a type that is not supported.
pub fn read(folder: &Path) -> Result<Case, String> {
    let model = folder.join("model.onnx");
    let meta = folder.join("meta.json");
    if meta.exists() { arrays(folder, model, &meta) } else { protobuf(folder, model) }
}

fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn arrays(folder: &Path, model: PathBuf, meta: &Path) -> Result<Case, String> {
    let meta: serde_json::Value = serde_json::from_slice(&bytes(meta)?).map_err(|e| e.to_string())?;
    let list = |key: &str| -> Result<Vec<(String, Array)>, String> {
        let entries = meta[key].as_array().cloned().unwrap_or_default();
        entries
            .iter()
            .map(|e| {
                let name = e["name"].as_str().unwrap_or_default().to_string();
                let file = folder.join(e["file"].as_str().unwrap_or_default());
                Ok((name, npy(&file)?))
            })
            .collect()
    };
    let inputs = list("inputs")?;
    let order = inputs.iter().map(|(n, _)| n.clone()).collect();
    Ok(Case { model, order, inputs: inputs.into_iter().collect(), outputs: list("outputs")? })
}

fn protobuf(folder: &Path, model: PathBuf) -> Result<Case, String> {
    let proto = ModelProto::decode(bytes(&model)?.as_slice()).map_err(|e| e.to_string())?;
    let graph = proto.graph.unwrap_or_default();
    let constants: Vec<&str> = graph.initializer.iter().map(|t| t.name()).collect();
    let given = graph.input.iter().map(|i| i.name()).filter(|n| !constants.contains(n));
    let data = folder.join("test_data_set_0");
    let load = |names: Vec<String>, kind: &str| -> Result<Vec<(String, Array)>, String> {
        let mut list = Vec::new();
        for (i, name) in names.into_iter().enumerate() {
            let raw = bytes(&data.join(format!("{kind}_{i}.pb")))?;
            // The file's own name wins: some folders list inputs in another order.
            let proto = TensorProto::decode(raw.as_slice()).map_err(|e| e.to_string())?;
            let array = tensor(raw.into()).map_err(|e| e.to_string())?;
            list.push((if proto.name().is_empty() { name } else { proto.name().to_string() }, array));
        }
        Ok(list)
    };
    let inputs = load(given.map(str::to_string).collect(), "input")?;
    let outputs = load(graph.output.iter().map(|o| o.name().to_string()).collect(), "output")?;
    let order = inputs.iter().map(|(n, _)| n.clone()).collect();
    Ok(Case { model, order, inputs: inputs.into_iter().collect(), outputs })
}

/// Reads an array from a `.npy` file.
///
/// # Errors
/// If the file is not `.npy`, or its element type is not supported.
pub fn npy(path: &Path) -> Result<Array, String> {
    let raw = bytes(path)?;
    let fail = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let file = npyz::NpyFile::new(raw.as_slice()).map_err(|e| fail(&e))?;
    let shape: Vec<usize> = file.shape().iter().map(|d| *d as usize).collect();
    let name = file.dtype().descr();
    let dtype = match name.trim_matches(['\'', '"', '<', '|']) {
        "f4" => DType::F32,
        "f2" => DType::F16,
        "f8" => DType::F64,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "u1" => DType::U8,
        "u2" => DType::U16,
        "u4" => DType::U32,
        "u8" => DType::U64,
        "b1" => DType::Bool,
        other => return Err(fail(&format!("element type {other}"))),
    };
    let n = shape.iter().product::<usize>() * dtype.bytes();
    let start = raw.len().checked_sub(n).ok_or_else(|| fail(&"too short"))?;
    Array::from_bytes(dtype, &shape, &raw[start..]).map_err(|e| fail(&e))
}

/// Writes an array to a `.npy` file. The type bf16 is written as `<V2`, as the Python package ml_dtypes writes it.
///
/// # Errors
/// If the file cannot be written.
pub fn write_npy(path: &Path, array: &Array) -> Result<(), String> {
    let descr = match array.dtype {
        DType::F32 => "<f4",
        DType::F16 => "<f2",
        DType::Bf16 => "<V2",
        DType::F64 => "<f8",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::Bool => "|b1",
    };
    let sizes: String = array.shape.iter().map(|d| format!("{d},")).collect();
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}), }}");
    // Magic, version and length take 10 bytes; the data starts at a multiple of 64.
    let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend(u16::try_from(length).map_err(|e| e.to_string())?.to_le_bytes());
    file.extend(format!("{text:<width$}\n", width = length - 1).bytes());
    file.extend(array.to_bytes());
    fs::write(path, file).map_err(|e| format!("{}: {e}", path.display()))
}
