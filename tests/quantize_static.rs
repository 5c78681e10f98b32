//! Tests of static quantization of ONNX models: the QDQ model is close to the float model and has the expected structure, and
//! no file or sample makes it panic.

#[path = "quantize_static/integers.rs"]
mod integers;
#[path = "quantize_static/models.rs"]
mod models;
#[path = "quantize_static/refusals.rs"]
mod refusals;
#[path = "quantize_static/structure.rs"]
mod structure;

use std::path::Path;

use driftc::import::onnx::quantize_static::{
    Activations, Method, QuantizedModel, Sample, Settings, begin, finish, measure, observe, worth_leaving,
};
use driftc::import::onnx::schema::ModelProto;
use driftc::import::onnx::{Options, load_bytes};
use driftc::ir::eval::eval;
use models::{conv_net, sample, samples, transformer_block, write};
use prost::Message;

/// Quantizes a model file with samples and measures the noise on them.
fn quantize(path: &Path, settings: Settings, samples: &[Sample]) -> driftc::Result<QuantizedModel> {
    let mut calibration = begin(path, settings, &samples[0])?;
    for sample in samples {
        observe(&mut calibration, sample)?;
    }
    let mut model = finish(calibration)?;
    for sample in samples {
        measure(&mut model, sample)?;
    }
    Ok(model)
}

/// Quantizes a model with samples of its only input `x`, and returns the quantized model.
fn quantized(model: &ModelProto, settings: Settings, samples: &[Sample]) -> ModelProto {
    let (_folder, path) = write(model);
    let result = quantize(&path, settings, samples).unwrap();
    ModelProto::decode(result.encode().unwrap().as_slice()).unwrap()
}

/// Returns the signal-to-noise ratio in decibels of the first output of a quantized model on a sample.
fn decibels(float: &ModelProto, quantized: &ModelProto, sample: &Sample) -> f64 {
    let run = |model: &ModelProto| {
        let options = Options { samples: sample.clone(), ..Options::default() };
        let imported = load_bytes(drift_tests::onnx::bytes(model), &options).unwrap();
        eval(&imported.graph, sample).unwrap().remove(0).1.to_floats()
    };
    let (want, got) = (run(float), run(quantized));
    assert_eq!(want.len(), got.len());
    let signal: f64 = want.iter().map(|a| f64::from(*a).powi(2)).sum();
    let noise: f64 = want.iter().zip(&got).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    10.0 * libm::log10(signal / noise)
}

#[test]
fn quantized_models_are_close_to_float_models() {
    let methods = [Method::MinMax, Method::Percentile, Method::Entropy];
    for (model, shape) in [(conv_net(17), vec![1, 3, 8, 8]), (transformer_block(), vec![1, 6, 16])] {
        for activations in [Activations::U8, Activations::I8] {
            for method in methods {
                let settings = Settings { method, activations, ..Settings::default() };
                let result = quantized(&model, settings, &samples(&shape, 6));
                let found = decibels(&model, &result, &sample(&shape, 99));
                assert!(found > 18.0, "{method:?} {activations:?}: {found} dB");
            }
        }
    }
}

#[test]
fn the_report_lists_operators_in_order_with_their_noise() {
    let model = conv_net(17);
    let (_folder, path) = write(&model);
    let result = quantize(&path, Settings::default(), &samples(&[1, 3, 8, 8], 3)).unwrap();
    let names: Vec<&str> = result.operators().iter().map(|o| o.node.as_str()).collect();
    assert_eq!(names, ["Conv_c1", "Conv_c2", "Conv_c3", "Add_sum", "GlobalAveragePool_mean", "Gemm_y"]);
    for operator in result.operators() {
        let (alone, model) = (operator.alone.decibels(), operator.model.decibels());
        assert!(alone > 25.0 && model > 20.0, "{}: {alone} dB alone, {model} dB in the model", operator.node);
        assert!(operator.alone.signal > 0.0);
        assert_eq!(operator.has_weights, ["Conv", "Gemm"].contains(&operator.operator.as_str()));
    }
    assert!(worth_leaving(result.operators()).is_empty());
}

#[test]
fn equal_inputs_give_equal_bytes() {
    let (_folder, path) = write(&conv_net(17));
    for method in [Method::Percentile, Method::Entropy] {
        let settings = Settings { method, ..Settings::default() };
        let bytes =
            || quantize(&path, settings.clone(), &samples(&[1, 3, 8, 8], 3)).unwrap().encode().unwrap();
        assert_eq!(bytes(), bytes());
    }
}

/// Samples may have different shapes if the model has symbolic sizes.
#[test]
fn samples_may_have_several_shapes() {
    let mut model = conv_net(17);
    models::declare_input(&mut model, &["batch", "3", "side", "side"]);
    let all = [sample(&[1, 3, 8, 8], 1), sample(&[2, 3, 12, 12], 2), sample(&[1, 3, 8, 8], 3)];
    let result = quantized(&model, Settings::default(), &all);
    assert!(decibels(&model, &result, &sample(&[3, 3, 10, 10], 4)) > 18.0);
}
