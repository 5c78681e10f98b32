//! A temporary folder with a small model and its bundle, and helpers that run the program `driftc` on them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use drift_tests::settings;
use driftc::import::onnx::schema::tensor_shape_proto::{Dimension, dimension};
use driftc::import::onnx::schema::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto, TypeProto, ValueInfoProto,
    type_proto,
};
use prost::Message;

/// Temporary folder with the model `add.onnx` (y = a + b and `y:0` = -a, each of shape `[n, 3]`), its bundle, and arrays.
pub(crate) static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("add.onnx"), model(&[("Add", &["a", "b"], "y"), ("Neg", &["a"], "y:0")])).unwrap();
    npy(&path("a.npy"), "<f4", "(2, 3)", &floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    npy(&path("b.npy"), "<f4", "(2, 3)", &floats(&[10.0; 6]));
    npy(&path("y.npy"), "<f4", "(2, 3)", &floats(&[11.0, 12.0, 13.0, 14.0, 15.0, 16.0]));
    npy(&path("wrong.npy"), "<f4", "(2, 3)", &floats(&[11.0, 12.0, 13.5, 14.0, 15.0, 16.0]));
    npy(&path("ints.npy"), "<i4", "(2, 3)", &[0; 24]);
    npy(&path("narrow.npy"), "<f4", "(2, 2)", &[0; 16]);
    npy(&path("long.npy"), "<f4", "(9, 3)", &[0; 108]);
    // Fortran order, big-endian: the same array as a.npy.
    let big: Vec<u8> = [1f32, 4.0, 2.0, 5.0, 3.0, 6.0].iter().flat_map(|v| v.to_be_bytes()).collect();
    let header = "{'descr': '>f4', 'fortran_order': True, 'shape': (2, 3), }";
    std::fs::write(path("big.npy"), npy_bytes(header, &big)).unwrap();
    let add = path("add.onnx");
    let add = add.to_str().unwrap();
    let bundle = path("add.drift");
    let compiled =
        driftc(&["compile", add, "-t", &target(), "-o", bundle.to_str().unwrap(), "--dim", "n=1..8"]);
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    folder
});

#[track_caller]
pub(crate) fn refused(args: &[&str], code: i32, says: &str) {
    let output = driftc(args);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{errors}");
    assert!(errors.contains(says), "{args:?}: `{says}` in\n{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    assert!(!Path::new("x.drift").exists() && !Path::new("x").exists(), "{args:?} left something behind");
}

pub(crate) fn driftc(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_driftc")).args(args).output().unwrap()
}

pub(crate) fn target() -> String {
    settings::target_name()
}

pub(crate) fn file(name: &str) -> String {
    FOLDER.path().join(name).to_str().unwrap().to_owned()
}

/// Returns a command-line argument `NAME=FILE` for an array of the test folder.
pub(crate) fn given(name: &str, array: &str) -> String {
    format!("{name}={}", file(&format!("{array}.npy")))
}

pub(crate) fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}\n{}", text(&output.stdout)))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub(crate) fn read(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", PathBuf::from(path).display()));
    npyz::NpyFile::new(&bytes[..]).unwrap().into_vec().unwrap()
}

pub(crate) fn npy(path: &Path, descr: &str, shape: &str, data: &[u8]) {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    std::fs::write(path, npy_bytes(&header, data)).unwrap();
}

fn npy_bytes(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// Returns an ONNX model with inputs `a` and `b` of shape `[n, 3]` and one output for each node.
pub(crate) fn model(nodes: &[(&str, &[&str], &str)]) -> Vec<u8> {
    let dim = |value| Dimension { value: Some(value), ..Dimension::default() };
    let shape = vec![dim(dimension::Value::DimParam("n".into())), dim(dimension::Value::DimValue(3))];
    let tensor = type_proto::Tensor { elem_type: Some(1), shape: Some(TensorShapeProto { dim: shape }) };
    let value = |name: &str| ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto {
            value: Some(type_proto::Value::TensorType(tensor.clone())),
            ..TypeProto::default()
        }),
        ..ValueInfoProto::default()
    };
    let node = |(i, (op, inputs, output)): (usize, &(&str, &[&str], &str))| NodeProto {
        name: Some(format!("node {i}")),
        op_type: Some((*op).to_owned()),
        input: inputs.iter().map(|i| (*i).to_owned()).collect(),
        output: vec![(*output).to_owned()],
        ..NodeProto::default()
    };
    let graph = GraphProto {
        name: Some("test".into()),
        node: nodes.iter().enumerate().map(node).collect(),
        input: vec![value("a"), value("b")],
        output: nodes.iter().map(|(_, _, output)| value(output)).collect(),
        ..GraphProto::default()
    };
    let model = ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(17) }],
        graph: Some(graph),
        ..ModelProto::default()
    };
    model.encode_to_vec()
}
