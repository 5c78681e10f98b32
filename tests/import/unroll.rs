//! Loop and Scan with a known number of steps.

use drift_tests::onnx::{
    floats, graph, input, int, integers, ints, model, node, small_integers, subgraph, typed_input, with,
};
use driftc::import::onnx::schema::tensor_proto::DataType;
use driftc::import::onnx::schema::{GraphProto, ModelProto, NodeProto, TensorProto};
use driftc::ir::array::Array;

use super::{operators, refusal, run};

/// Body of a loop over `[2]` tensors: the state `s` becomes `s + w`, and `s * step` is stacked. The loop continues while
/// `step < limit`.
fn body(condition: Vec<NodeProto>) -> GraphProto {
    let mut nodes = vec![
        node("Add", &["s", "w"], &["s_out"]),
        with(node("Cast", &["step"], &["f"]), int("to", DataType::Float as i64)),
        node("Mul", &["s", "f"], &["scanned"]),
    ];
    nodes.extend(condition);
    let inputs = vec![
        typed_input("step", DataType::Int64, &[]),
        typed_input("go", DataType::Bool, &[]),
        input("s", &["2"]),
    ];
    let mut g = graph(inputs, nodes, &["go_out", "s_out", "scanned"]);
    g.initializer = vec![floats("w", &[2], &[1.0, 10.0])];
    g
}

/// Returns a model of one Loop with the given operands for the trip count and the condition.
fn looped(trips: &str, condition: &str, body: GraphProto, constants: Vec<TensorProto>) -> ModelProto {
    let n = with(node("Loop", &[trips, condition, "x"], &["last", "all"]), subgraph("body", body));
    let mut g = graph(vec![input("x", &["2"])], vec![n], &["all", "last"]);
    g.initializer = constants;
    model(17, g)
}

fn forever() -> Vec<NodeProto> {
    vec![node("Identity", &["go"], &["go_out"])]
}

/// Continues while the number of the step is less than `limit`.
fn limited() -> Vec<NodeProto> {
    vec![node("Less", &["step", "limit"], &["go_out"])]
}

#[test]
fn loops_are_unrolled() {
    let x = || [("x", Array::f32(&[2], vec![1.0, 2.0]))];
    let trips = |n: i64| integers("trips", &[], &[n]);
    let go = |value: i64| small_integers("go_in", DataType::Bool, &[], &[value]);
    let expected = Array::f32(&[3, 2], vec![0.0, 0.0, 2.0, 12.0, 6.0, 44.0]);
    let m = looped("trips", "go_in", body(forever()), vec![trips(3), go(1)]);
    assert_eq!(run(&m, &x()), expected);
    assert!(!operators(&m).contains("cast"), "{}", operators(&m));
    let m = looped("trips", "", body(forever()), vec![trips(3)]);
    assert_eq!(run(&m, &x()), expected);
    // The condition ends the loop after step 2.
    let limit = integers("limit", &[], &[2]);
    let m = looped("", "", body(limited()), vec![limit.clone()]);
    assert_eq!(run(&m, &x()), expected);
    let m = looped("trips", "", body(limited()), vec![limit, trips(2)]);
    assert_eq!(run(&m, &x()), Array::f32(&[2, 2], vec![0.0, 0.0, 2.0, 12.0]));
    // Without steps, the states pass through.
    let n = with(node("Loop", &["trips", "", "x"], &["last", ""]), subgraph("body", body(forever())));
    let mut g = graph(vec![input("x", &["2"])], vec![n], &["last"]);
    g.initializer = vec![trips(0)];
    assert_eq!(run(&model(17, g), &x()), x()[0].1);
}

#[test]
fn loops_without_known_end_are_refused() {
    let trips = |n: i64| vec![integers("trips", &[], &[n])];
    let refused = refusal(&looped("", "", body(forever()), vec![]));
    assert!(refused.contains("its condition holds after 1024 steps"), "{refused}");
    let refused = refusal(&looped("trips", "", body(forever()), trips(1025)));
    assert!(refused.contains("the loop has 1025 steps") && refused.contains("at most 1024"), "{refused}");
    let computed = vec![
        node("ReduceMax", &["s"], &["m"]),
        node("Less", &["m", "bound"], &["g"]),
        node("Squeeze", &["g"], &["go_out"]),
    ];
    let bound = floats("bound", &[], &[7.0]);
    let m = looped("trips", "", body(computed), [trips(3), vec![bound]].concat());
    assert!(refusal(&m).contains("the condition is computed from data at run time"), "{}", refusal(&m));
    let mut m = looped("n", "", body(forever()), vec![]);
    m.graph.as_mut().unwrap().input.push(input("y", &["seq"]));
    m.graph.as_mut().unwrap().node.insert(0, node("Size", &["y"], &["n"]));
    assert!(refusal(&m).contains("fix it with --dim"), "{}", refusal(&m));
    // A refused node of the body is reported once, not once per step.
    let unknown = [forever(), vec![node("NonMaxSuppression", &["s"], &["u"])]].concat();
    let mut body = body(unknown);
    body.output[1].name = Some("u".to_string());
    let refused = refusal(&looped("trips", "", body, trips(5)));
    assert_eq!(refused.matches("NonMaxSuppression").count(), 2, "{refused}");
}

/// A Scan slices its operands and stacks its results along any axis, forward or backward.
#[test]
fn scans_are_unrolled() {
    let nodes = vec![node("Add", &["s", "a"], &["s_out"]), node("Sub", &["s_out", "b"], &["y"])];
    let inputs = vec![input("s", &["2"]), input("a", &["2"]), input("b", &["2"])];
    let body = graph(inputs, nodes, &["s_out", "y"]);
    let mut n = with(node("Scan", &["x", "p", "q"], &["last", "all"]), subgraph("body", body));
    n = with(with(n, int("num_scan_inputs", 2)), ints("scan_input_axes", &[0, -1]));
    n = with(with(n, ints("scan_input_directions", &[0, 1])), ints("scan_output_axes", &[1]));
    n = with(n, ints("scan_output_directions", &[1]));
    let scan = |steps: &str| {
        let inputs = vec![input("x", &["2"]), input("p", &[steps, "2"]), input("q", &["2", "3"])];
        model(17, graph(inputs, vec![n.clone()], &["all", "last"]))
    };
    let x = Array::f32(&[2], vec![100.0, 200.0]);
    let p = Array::f32(&[3, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let q = Array::f32(&[2, 3], vec![10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
    // Steps: s = 101 202, 104 206, 109 212; b = 30 60, 20 50, 10 40.
    let expected = Array::f32(&[2, 3], vec![99.0, 84.0, 71.0, 172.0, 156.0, 142.0]);
    assert_eq!(run(&scan("3"), &[("x", x), ("p", p), ("q", q)]), expected);
    assert!(refusal(&scan("4")).contains("an operand has 4 steps"), "{}", refusal(&scan("4")));
}
