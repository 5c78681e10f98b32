//! Tests of models, samples and settings that static quantization refuses.

use drift_tests::onnx::{bytes, floats, graph, input, model, node, small_integers};
use driftc::import::onnx::quantize_static::{Sample, Settings};
use driftc::import::onnx::schema::tensor_proto::DataType;
use driftc::ir::array::Array;

use crate::models::{conv_net, sample, write};
use crate::quantize;

/// Returns the error of quantizing a model with one sample.
fn refusal(model: &driftc::import::onnx::schema::ModelProto, settings: Settings, sample: Sample) -> String {
    let (_folder, path) = write(model);
    quantize(&path, settings, &[sample]).expect_err("the model is refused").to_string()
}

#[test]
fn samples_must_fit_the_model() {
    let shape = [1, 3, 8, 8];
    let plain = || conv_net(17);
    let with = |value: f32| {
        let mut values = vec![0.5; 192];
        values[7] = value;
        Sample::from([("x".to_owned(), Array::f32(&shape, values))])
    };
    let cases = [
        (with(f32::NAN), "every value must be finite"),
        (with(f32::NEG_INFINITY), "every value must be finite"),
        (sample(&[1, 3, 8, 9], 1), "[1, 3, 8, 9]"),
        (sample(&[3, 8, 8], 1), "wrong rank"),
        (Sample::new(), "no array was given"),
        (Sample::from([("z".to_owned(), Array::f32(&shape, vec![0.0; 192]))]), "no input `z`"),
        (Sample::from([("x".to_owned(), Array::i64s(&[1]))]), "rank"),
    ];
    for (sample, says) in cases {
        let error = refusal(&plain(), Settings::default(), sample);
        assert!(error.contains(says), "`{says}` in\n{error}");
    }
    let huge = Sample::from([("x".to_owned(), Array::f32(&shape, vec![3e38; 192]))]);
    let error = refusal(&plain(), Settings::default(), huge);
    assert!(error.contains("computes tensor `") && error.contains("--leave"), "{error}");
}

#[test]
fn models_without_float_layers_are_refused() {
    let one = |operator: &str, inputs: &[&str]| {
        graph(vec![input("x", &["2", "2"])], vec![node(operator, inputs, &["y"])], &["y"])
    };
    let x = || sample(&[2, 2], 1);
    let refused = |opset: i64, g, sample: Sample, says: &str| {
        let error = refusal(&model(opset, g), Settings::default(), sample);
        assert!(error.contains(says), "`{says}` in\n{error}");
    };
    refused(17, one("Neg", &["x"]), x(), "no operator that can be quantized");
    refused(8, one("Neg", &["x"]), x(), "no operator that can be quantized");
    refused(9, one("Dropout", &["x"]), x(), "no operator that can be quantized");
    refused(9, one("Softmax", &["x"]), x(), "no operator that can be quantized");
    refused(9, one("TopK", &["x", "k"]), x(), "operator set 9 has no quantization");
    let mut half = one("MatMul", &["x", "w"]);
    half.initializer = vec![small_integers("w", DataType::Float16, &[2, 2], &[0; 4])];
    refused(17, half, x(), "not f32");
    let mut twice = one("QuantizeLinear", &["x", "s"]);
    twice.initializer = vec![floats("s", &[], &[1.0])];
    refused(17, twice, x(), "quantized already");
    let error = refusal(
        &conv_net(17),
        Settings { leave: vec!["Conv_c9".into()], ..Settings::default() },
        sample(&[1, 3, 8, 8], 1),
    );
    assert!(error.contains("--leave Conv_c9") && error.contains("did you mean"), "{error}");
    let mut cycle = one("Neg", &["y"]);
    cycle.node[0].name = Some("loop".into());
    refused(17, cycle, x(), "own result");
}

#[test]
fn external_data_must_exist() {
    let mut float = conv_net(17);
    let tensor = &mut float.graph.as_mut().unwrap().initializer[0];
    tensor.float_data.clear();
    tensor.data_location = Some(1);
    tensor.external_data = vec![driftc::import::onnx::schema::StringStringEntryProto {
        key: Some("location".into()),
        value: Some("missing.bin".into()),
    }];
    let error = refusal(&float, Settings::default(), sample(&[1, 3, 8, 8], 1));
    assert!(error.contains("missing.bin") && error.contains("w1"), "{error}");
}

/// Damaged files are refused or quantized, but never panic.
#[test]
fn damaged_files_do_not_panic() {
    let whole = bytes(&conv_net(17)).to_vec();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.onnx");
    for at in (0..whole.len()).step_by(13) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&path, &damaged).unwrap();
        if let Ok(result) = quantize(&path, Settings::default(), &[sample(&[1, 3, 8, 8], 1)]) {
            assert!(!result.encode().unwrap().is_empty());
        }
    }
    for end in (0..whole.len()).step_by(97) {
        std::fs::write(&path, &whole[..end]).unwrap();
        let _ = quantize(&path, Settings::default(), &[sample(&[1, 3, 8, 8], 1)]);
    }
}
