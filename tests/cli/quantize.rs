//! Tests of `driftc quantize`: forms of samples, the report, and refusals.

use std::path::Path;

use drift_tests::onnx::{bytes, floats, graph, input, model, node};
use driftc::import::onnx::schema::ModelProto;
use prost::Message;

use crate::fixture::{self, driftc, json, refused, text};

/// Writes the model `y = relu(a w) + b` of two inputs with two columns, and the model `y = a w` of one input.
fn write_models(folder: &Path) {
    let weights = floats("w", &[2, 2], &[0.5, -1.0, 2.0, 0.25]);
    let mut two = graph(
        vec![input("a", &["n", "2"]), input("b", &["n", "2"])],
        vec![
            node("MatMul", &["a", "w"], &["p"]),
            node("Relu", &["p"], &["r"]),
            node("Add", &["r", "b"], &["y"]),
        ],
        &["y"],
    );
    two.initializer = vec![weights.clone()];
    std::fs::write(folder.join("two.onnx"), bytes(&model(17, two))).unwrap();
    let mut one = graph(vec![input("a", &["1", "2"])], vec![node("MatMul", &["a", "w"], &["y"])], &["y"]);
    one.initializer = vec![weights];
    std::fs::write(folder.join("one.onnx"), bytes(&model(17, one))).unwrap();
}

fn npy(path: &Path, shape: &str, values: &[f32]) {
    fixture::npy(path, "<f4", shape, &fixture::floats(values));
}

#[test]
fn samples_are_files_folders_or_serialized_tensors() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    write_models(place.path());
    for folder in ["files", "named/0", "named/1", "pb/test_data_set_0", "empty"] {
        std::fs::create_dir_all(path(folder)).unwrap();
    }
    // An array without the batch axis is a sample, too.
    npy(Path::new(&path("files/0.npy")), "(1, 2)", &[1.0, -2.0]);
    npy(Path::new(&path("files/1.npy")), "(2,)", &[-1.0, 0.5]);
    std::fs::write(path("files/notes.txt"), "no sample").unwrap();
    for (sample, shape, values) in
        [("0", "(1, 2)", &[1.0f32, -2.0][..]), ("1", "(2, 2)", &[0.5, 1.0, -1.5, 0.25])]
    {
        for name in ["a", "b"] {
            npy(Path::new(&path(&format!("named/{sample}/{name}.npy"))), shape, values);
        }
    }
    for i in 0..2 {
        let tensor = floats("", &[1, 2], &[1.0, -2.0]).encode_to_vec();
        std::fs::write(path(&format!("pb/test_data_set_0/input_{i}.pb")), tensor).unwrap();
    }
    for (model, samples, n) in
        [("one", "files", 2), ("two", "named", 2), ("two", "pb", 1), ("two", "pb/test_data_set_0", 1)]
    {
        let (float, out) = (path(&format!("{model}.onnx")), path("out.onnx"));
        let done = driftc(&["quantize", &float, "--calibrate", &path(samples), "-o", &out, "--json"]);
        assert_eq!(done.status.code(), Some(0), "{samples}: {}", text(&done.stderr));
        let report = json(&done);
        assert_eq!(
            (report["samples"].as_u64(), report["operators"][0]["operator"].as_str()),
            (Some(n), Some("MatMul"))
        );
        let quantized = ModelProto::decode(std::fs::read(&out).unwrap().as_slice()).unwrap();
        assert!(quantized.graph.unwrap().node.iter().any(|n| n.op_type() == "QuantizeLinear"));
    }
    let (float, out) = (path("two.onnx"), path("entropy.onnx"));
    let args = ["quantize", &float, "--calibrate", &path("named"), "-o", &out];
    let done =
        driftc(&[&args[..], &["--method", "entropy", "--activations", "i8", "--leave", "Add_y"]].concat());
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let table = text(&done.stdout);
    assert!(table.contains("MatMul_p") && !table.contains("Add_y") && table.contains(" dB"), "{table}");
    assert!(table.contains("1 operators quantized, 1 with weights; 2 samples"), "{table}");
}

#[test]
fn unusable_samples_are_refused_by_name() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    write_models(place.path());
    for folder in ["empty", "one", "shape", "nan", "named/0", "pb/0", "damaged/0"] {
        std::fs::create_dir_all(path(folder)).unwrap();
    }
    npy(Path::new(&path("one/0.npy")), "(1, 2)", &[1.0, 2.0]);
    npy(Path::new(&path("shape/0.npy")), "(1, 3)", &[0.0; 3]);
    npy(Path::new(&path("nan/0.npy")), "(1, 2)", &[0.0, 1.0]);
    npy(Path::new(&path("nan/1.npy")), "(1, 2)", &[0.0, f32::NAN]);
    npy(Path::new(&path("named/0/a.npy")), "(1, 2)", &[0.0, 1.0]);
    std::fs::write(path("pb/0/input_0.pb"), floats("", &[1, 2], &[1.0, 2.0]).encode_to_vec()).unwrap();
    for i in 0..2 {
        std::fs::write(path(&format!("damaged/0/input_{i}.pb")), b"\xff\xff").unwrap();
    }
    let out = path("out.onnx");
    for (model, samples, code, says) in [
        ("one", "missing", 1, "missing"),
        ("one", "empty", 1, "no calibration samples"),
        ("one", "shape", 1, "0.npy does not fit the model"),
        ("one", "nan", 1, "1.npy does not fit the model"),
        ("two", "one", 1, "the model has 2 inputs"),
        ("two", "named", 1, "b.npy: the file does not exist"),
        ("two", "pb", 1, "input_1.pb: the file does not exist"),
        ("two", "damaged", 1, "input_0.pb is not a usable tensor"),
    ] {
        refused(
            &["quantize", &path(&format!("{model}.onnx")), "--calibrate", &path(samples), "-o", &out],
            code,
            says,
        );
    }
    let (float, samples) = (path("one.onnx"), path("one"));
    let args = ["quantize", &float, "--calibrate", &samples, "-o", &out];
    refused(&[&args[..], &["--leave", "MatMul_z"]].concat(), 1, "did you mean `MatMul_y`?");
    refused(&[&args[..], &["--method", "median"]].concat(), 2, "minmax");
    refused(&["quantize", &float, "-o", &out], 2, "--calibrate");
    refused(
        &["quantize", &fixture::file("add.drift"), "--calibrate", &samples, "-o", &out],
        1,
        "is a bundle",
    );
    assert!(!Path::new(&out).exists());
}
