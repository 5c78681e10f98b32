//! Small float models, their files, and samples of their inputs.

use std::path::PathBuf;

use drift_tests::onnx::{bytes, float, floats, graph, input, int, integers, ints, model, node, with};
use driftc::import::onnx::quantize_static::Sample;
use driftc::import::onnx::schema::{ModelProto, TensorProto};
use driftc::ir::array::Array;

/// Returns pseudorandom floats of about -1 to 1.
pub(crate) fn random(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| draw()).collect()
}

/// Returns a sample of the input `x`.
pub(crate) fn sample(shape: &[usize], seed: u64) -> Sample {
    Sample::from([("x".to_owned(), Array::f32(shape, random(seed, shape.iter().product())))])
}

pub(crate) fn samples(shape: &[usize], n: u64) -> Vec<Sample> {
    (0..n).map(|seed| sample(shape, seed)).collect()
}

/// Writes a model to a file. The folder is removed when it is dropped.
pub(crate) fn write(model: &ModelProto) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, bytes(model)).unwrap();
    (folder, path)
}

fn weights(name: &str, shape: &[i64], seed: u64, scale: f32) -> TensorProto {
    let n = shape.iter().product::<i64>() as usize;
    floats(name, shape, &random(seed, n).iter().map(|v| v * scale).collect::<Vec<f32>>())
}

/// Replaces the declared shape of the model's first input.
pub(crate) fn declare_input(model: &mut ModelProto, shape: &[&str]) {
    model.graph.as_mut().unwrap().input[0] = input("x", shape);
}

/// Returns a network of convolutions with a batch normalization, a residual sum and a classifier.
pub(crate) fn conv_net(opset: i64) -> ModelProto {
    let pads = || ints("pads", &[1, 1, 1, 1]);
    let mut g = graph(
        vec![input("x", &["1", "3", "8", "8"])],
        vec![
            with(node("Conv", &["x", "w1"], &["c1"]), pads()),
            node("BatchNormalization", &["c1", "gain", "shift", "mean", "variance"], &["n1"]),
            node("Relu", &["n1"], &["r1"]),
            with(node("MaxPool", &["r1"], &["pool"]), ints("kernel_shape", &[2, 2])),
            with(with(node("Conv", &["pool", "w2", "b2"], &["c2"]), pads()), int("group", 8)),
            node("Clip", &["c2", "zero", "six"], &["r2"]),
            node("Conv", &["r2", "w3", "b3"], &["c3"]),
            node("Add", &["c3", "pool"], &["sum"]),
            node("GlobalAveragePool", &["sum"], &["mean1"]),
            node("Flatten", &["mean1"], &["flat"]),
            with(with(node("Gemm", &["flat", "w4", "b4"], &["y"]), int("transB", 1)), float("alpha", 0.5)),
        ],
        &["y"],
    );
    // The node's name is `GlobalAveragePool_mean`.
    g.node[8].name = Some("GlobalAveragePool_mean".into());
    g.initializer = vec![
        weights("w1", &[8, 3, 3, 3], 11, 0.4),
        floats("gain", &[8], &[1.0, 0.5, 2.0, 1.5, 1.0, 0.7, 1.2, 0.9]),
        weights("shift", &[8], 12, 0.3),
        weights("mean", &[8], 13, 0.3),
        floats("variance", &[8], &[1.0, 2.0, 0.5, 1.0, 1.5, 0.8, 1.0, 1.1]),
        weights("w2", &[8, 1, 3, 3], 14, 0.5),
        weights("b2", &[8], 15, 0.5),
        floats("zero", &[], &[0.0]),
        floats("six", &[], &[6.0]),
        weights("w3", &[8, 8, 1, 1], 16, 0.5),
        weights("b3", &[8], 17, 0.5),
        weights("w4", &[4, 8], 18, 0.6),
        weights("b4", &[4], 19, 0.5),
    ];
    model(opset, g)
}

/// Returns a part of a transformer: projections with biases, attention of one head, a residual sum and a concatenation.
pub(crate) fn transformer_block() -> ModelProto {
    let mut g = graph(
        vec![input("x", &["1", "6", "16"])],
        vec![
            node("MatMul", &["x", "wq"], &["q0"]),
            node("Add", &["bq", "q0"], &["q"]),
            node("MatMul", &["x", "wk"], &["k"]),
            with(node("Transpose", &["k"], &["kt"]), ints("perm", &[0, 2, 1])),
            node("MatMul", &["q", "kt"], &["s0"]),
            node("Mul", &["s0", "quarter"], &["s"]),
            with(node("Softmax", &["s"], &["p"]), int("axis", -1)),
            node("MatMul", &["p", "x"], &["o"]),
            node("Add", &["o", "x"], &["r"]),
            node("Sigmoid", &["r"], &["g"]),
            with(node("Concat", &["r", "g"], &["c"]), int("axis", 1)),
            node("Reshape", &["c", "shape"], &["y"]),
        ],
        &["y"],
    );
    g.initializer = vec![
        weights("wq", &[16, 16], 21, 0.4),
        weights("bq", &[16], 22, 0.3),
        weights("wk", &[16, 16], 23, 0.4),
        floats("quarter", &[], &[0.25]),
        integers("shape", &[2], &[12, 16]),
    ];
    model(17, g)
}
