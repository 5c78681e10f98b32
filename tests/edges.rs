//! Tests that models with extreme attributes and sizes compile for every built-in profile in every precision.

use drift_runtime::format::Feature;
use drift_tests::compare::{Tolerance, compare};
use drift_tests::onnx::{
    bytes, float, floats, graph, input, int, integers, model, node, small_integers, typed_input, with,
};
use drift_tests::random_model::outcome::{Class, PRECISIONS, compiled, profiles};
use drift_tests::{device, random_graph};
use driftc::compile::{Options, lower};
use driftc::import::onnx::schema::tensor_proto::DataType;
use driftc::import::onnx::schema::{GraphProto, TensorProto};
use driftc::ir::array::Array;
use driftc::ir::eval::eval;
use driftc::ir::graph_text::parse;
use driftc::ir::tensor::DType;
use driftc::passes::Precision;
use driftc::target::TargetProfile;

#[track_caller]
fn compiles(opset: i64, mut graph: GraphProto, constants: Vec<TensorProto>) {
    graph.initializer = constants;
    let profiles = profiles().unwrap();
    let wanted: Vec<_> = profiles.iter().flat_map(|p| PRECISIONS.map(|precision| (p, precision))).collect();
    let folder = tempfile::tempdir().unwrap();
    let (class, message) = compiled(&bytes(&model(opset, graph)), &wanted, folder.path());
    assert_eq!(class, Class::Compiled, "{message}");
}

const STRANGE: [f32; 3] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];

fn ones(name: &str, shape: &[i64]) -> TensorProto {
    floats(name, shape, &vec![1.0; usize::try_from(shape.iter().product::<i64>()).unwrap()])
}

#[test]
fn numbers_that_are_not_finite() {
    let x = || input("x", &["2", "8", "5"]);
    for value in STRANGE {
        let norm = with(node("LayerNormalization", &["x", "s"], &["y"]), float("epsilon", value));
        compiles(17, graph(vec![x()], vec![norm], &["y"]), vec![ones("s", &[5])]);
        let norm = with(node("InstanceNormalization", &["x", "s", "s"], &["y"]), float("epsilon", value));
        compiles(17, graph(vec![x()], vec![norm], &["y"]), vec![ones("s", &[8])]);
        let attention = with(node("Attention", &["q", "q", "q"], &["y"]), float("scale", value));
        compiles(23, graph(vec![input("q", &["1", "2", "9", "16"])], vec![attention], &["y"]), vec![]);
    }
}

#[test]
fn filters_without_elements() {
    let x = || input("x", &["1", "8", "6", "7"]);
    let last = |deep: &[&str]| graph(vec![x()], vec![node("Conv", deep, &["y"])], &["y"]);
    compiles(17, last(&["x", "w"]), vec![ones("w", &[0, 8, 3, 3])]);
    let deep = with(node("Conv", &["x", "d"], &["t"]), int("group", 8));
    let nodes = vec![deep, node("Conv", &["t", "w"], &["y"])];
    let constants = vec![ones("d", &[8, 1, 3, 3]), ones("w", &[0, 8, 1, 1])];
    compiles(17, graph(vec![x()], nodes, &["y"]), constants);
    compiles(17, last(&["z", "w"]), vec![ones("z", &[1, 0, 4, 4]), ones("w", &[8, 0, 3, 3])]);
}

/// Two nodes with the same shader module need separate pipelines if one node reads textures of f16 and the other one textures of
/// f32.
#[test]
fn equal_modules_over_textures_of_two_types() {
    let norm = |x: &str, y: &str| node("InstanceNormalization", &[x, "s", "s"], &[y]);
    // The sum is not fused into a convolution, so it is stored in the model's type.
    let nodes = vec![
        node("Conv", &["x", "w"], &["a"]),
        norm("a", "b"),
        node("Conv", &["b", "w"], &["c"]),
        norm("c", "d"),
        node("Add", &["a", "c"], &["e"]),
        norm("e", "f"),
        node("Conv", &["f", "w"], &["y"]),
        node("Conv", &["d", "w"], &["z"]),
    ];
    let x = input("x", &["1", "16", "8", "8"]);
    compiles(17, graph(vec![x], nodes, &["y", "z"]), vec![ones("w", &[16, 16, 1, 1]), ones("s", &[16])]);
}

#[test]
fn results_of_other_float_types() {
    for kind in [DataType::Bfloat16, DataType::Double, DataType::Float16] {
        let x = typed_input("x", kind, &["8", "8"]);
        let cast = with(node("Cast", &["w"], &["v"]), int("to", kind as i64));
        let nodes = vec![cast, node("MatMul", &["v", "x"], &["y"]), node("MatMul", &["x", "v"], &["z"])];
        compiles(17, graph(vec![x], nodes, &["y", "z"]), vec![ones("w", &[8, 8])]);
    }
}

#[test]
fn casts_of_integers_to_halves() {
    for kind in [DataType::Int32, DataType::Int64, DataType::Uint8, DataType::Bool] {
        let x = typed_input("x", kind, &["3", "8"]);
        let cast = with(node("Cast", &["x"], &["h"]), int("to", DataType::Float16 as i64));
        let scaled = node("Mul", &["h", "h"], &["y"]);
        compiles(17, graph(vec![x], vec![cast, scaled], &["y"]), vec![]);
    }
}

/// A symbolic size whose expression is too long for the bundle format is refused; the error suggests `--dim`.
#[test]
fn sizes_that_are_too_long() {
    let symbols = ["a", "b", "c", "d", "e", "f"];
    let mut terms = Vec::new();
    for (i, first) in symbols.iter().enumerate() {
        for (j, second) in symbols.iter().enumerate().skip(i) {
            terms.extend(symbols[j..].iter().map(|third| format!("{first}*{second}*{third}")));
        }
    }
    let model =
        model(17, graph(vec![input("x", &[&terms.join("+")])], vec![node("Neg", &["x"], &["y"])], &["y"]));
    let target = &profiles().unwrap()[0];
    let folder = tempfile::tempdir().unwrap();
    let (class, message) = compiled(&bytes(&model), &[(target, PRECISIONS[0])], folder.path());
    assert_eq!(class, Class::Refused, "{message}");
    assert!(message.contains("too long for a bundle") && message.contains("--dim"), "{message}");
}

#[test]
fn results_without_elements() {
    let x = || input("x", &["0", "8"]);
    compiles(
        17,
        graph(vec![x()], vec![node("MatMul", &["x", "w"], &["y"])], &["y"]),
        vec![ones("w", &[8, 4])],
    );
    compiles(17, graph(vec![x()], vec![node("Softmax", &["x"], &["y"])], &["y"]), vec![]);
    let sum = node("ReduceSum", &["x", "axes"], &["y"]);
    compiles(17, graph(vec![x()], vec![sum], &["y"]), vec![integers("axes", &[1], &[0])]);
    let quantized = typed_input("x", DataType::Uint8, &["1", "0", "4", "4"]);
    let conv = node("ConvInteger", &["x", "w"], &["y"]);
    let w = small_integers("w", DataType::Uint8, &[3, 0, 1, 1], &[]);
    compiles(17, graph(vec![quantized], vec![conv], &["y"]), vec![w]);
}

/// A model with f16 inputs and outputs gives the same results on a device without f16.
#[test]
fn a_model_of_f16_runs_where_there_is_none() {
    let text = r#"
%0 = input {"name":"x","dtype":"f16","shape":["n",24]}
%1 = constant {"dtype":"f16","shape":[24,40],"random":1}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%3 = softmax %2 {"axis":1,"log":false}
%4 = cast %3 {"to":"f32"}
%5 = state {"name":"s","dtype":"f16","shape":[1,4]}
output "p" %3
output "wide" %4
output "same" %0
output "held" %5
"#;
    let graph = parse(&format!("symbol n 1..8\n{text}")).unwrap();
    let inputs = random_graph::inputs(&graph, 3);
    let want = eval(&graph, &inputs).unwrap();
    let baseline = TargetProfile::load("vulkan-baseline").unwrap();
    for precision in [Precision::F32, Precision::F16] {
        let options = Options { precision, ..Options::default() };
        let lowered = lower(&graph, &baseline, &options).unwrap();
        assert!(lowered.plan.dispatches.iter().all(|step| !step.launch.wgsl.contains("f16")));
        let mut session = device::load(&baseline, lowered, &options).unwrap();
        assert!(!session.variant().requirements.features.contains(Feature::ShaderF16));
        let got = device::run_session(&mut session, &inputs).unwrap();
        for ((name, want), (_, got)) in want.iter().zip(&got) {
            compare(name, got, want, Tolerance::of_operator(DType::F16)).unwrap();
        }
    }
}

/// Weights larger than the target's largest storage buffer binding are split, and the result does not change.
#[test]
fn weights_beyond_what_is_bound_at_once() {
    for (encoding, negative) in
        [("", false), (r#","encoding":"q8_0""#, true), (r#","encoding":"q4_k""#, false)]
    {
        let text = format!(
            r#"
symbol n 1..7
%0 = input {{"name":"ids","dtype":"i64","shape":[2,"n"]}}
%1 = constant {{"dtype":"f32","shape":[300,256]{encoding},"random":1}} "embed_tokens.weight"
%2 = gather %1 %0 {{"axis":0}}
%3 = tanh %2
%4 = matmul %3 %1 {{"trans_a":false,"trans_b":true}}
output "y" %4
"#
        );
        let graph = parse(&text).unwrap();
        let mut target = device::target();
        target.limits.max_storage_buffer_range = 1 << 15;
        let ids: Vec<i64> = (0..14).map(|i| i * 67 % 300 - if negative { 300 } else { 0 }).collect();
        let inputs = [("ids".to_string(), Array::int(DType::I64, &[2, 7], ids))].into();
        let want = eval(&graph, &inputs).unwrap();
        let options = Options::default();
        let lowered = lower(&graph, &target, &options).unwrap();
        let split = lowered.passes.iter().find(|report| report.pass == "split-weights").unwrap();
        assert_eq!(split.changes.count, 1, "{encoding}");
        let got = device::run_lowered(&target, lowered, &options, &inputs).unwrap();
        compare("y", &got[0].1, &want[0].1, Tolerance { relative: 1e-4, absolute: 1e-3 }).unwrap();
    }
}
