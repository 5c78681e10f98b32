//! Tests of 8-bit integer matmuls and convolutions, from ONNX to the device, against the definition of the operators. They
//! cover every pair of signed and unsigned types, zero points at the ends of these types, and constant and variable operands.

use std::collections::BTreeMap;

use drift_tests::device;
use drift_tests::onnx::{
    bytes, floats, graph, int, ints, model, node, small_integers, text, typed_input, with,
};
use driftc::compile;
use driftc::import::onnx::schema::tensor_proto::DataType;
use driftc::import::onnx::schema::{GraphProto, NodeProto, OperatorSetIdProto};
use driftc::import::onnx::{Options, load_bytes};
use driftc::ir::array::{Array, unravel};
use driftc::ir::eval::eval;
use driftc::ir::graph_text;
use driftc::ir::ops::constant::random;
use driftc::ir::tensor::DType;
use driftc::target::{TargetProfile, names};

/// Operand of the tested node, with its name and value.
struct Value {
    name: &'static str,
    array: Array,
    /// True if the operand is a constant of the model, not an input.
    constant: bool,
}

fn value(name: &'static str, array: Array, constant: bool) -> Value {
    Value { name, array, constant }
}

/// Returns an ONNX graph of one node, and the values of its inputs.
fn single(node: NodeProto, values: &[Value]) -> (GraphProto, BTreeMap<String, Array>) {
    let kind = |array: &Array| match array.dtype {
        DType::U8 => DataType::Uint8,
        DType::I8 => DataType::Int8,
        DType::I32 => DataType::Int32,
        _ => DataType::Float,
    };
    let mut given = BTreeMap::new();
    let (mut inputs, mut constants) = (Vec::new(), Vec::new());
    for Value { name, array, constant } in values {
        let sizes: Vec<i64> = array.shape.iter().map(|d| *d as i64).collect();
        if !*constant {
            let sizes: Vec<String> = sizes.iter().map(i64::to_string).collect();
            let sizes: Vec<&str> = sizes.iter().map(String::as_str).collect();
            inputs.push(typed_input(name, kind(array), &sizes));
            given.insert((*name).to_string(), array.clone());
        } else if array.dtype.is_float() {
            constants.push(floats(name, &sizes, array.floats().unwrap()));
        } else {
            constants.push(small_integers(name, kind(array), &sizes, array.ints().unwrap()));
        }
    }
    let mut graph = graph(inputs, vec![node], &["y"]);
    graph.initializer = constants;
    (graph, given)
}

/// Evaluates a node on the CPU reference and on the device; both must give the expected integers.
fn check(node: NodeProto, values: &[Value], expected: &[i64], what: &str) {
    let (graph, inputs) = single(node, values);
    let mut model = model(21, graph);
    model.opset_import.push(OperatorSetIdProto { domain: Some("com.microsoft".into()), version: Some(1) });
    let imported = load_bytes(bytes(&model), &Options::default()).expect(what);
    let evaluated = eval(&imported.graph, &inputs).expect(what).remove(0).1;
    assert_eq!(evaluated.ints().unwrap(), expected, "{what}, the reference");
    let got = device::run(&imported.graph, &compile::Options::default(), &inputs).expect(what);
    assert_eq!(got[0].1.ints().unwrap(), expected, "{what}, on the device");
}

/// Returns zero points to test: none, the lowest and the highest value of a type, and a vector of `each` zero points,
/// one for each row or column.
fn zero_points(dtype: DType, each: usize) -> Vec<Option<Array>> {
    let (low, high) = if dtype == DType::U8 { (0, 255) } else { (-128, 127) };
    let one = |value| Some(Array::int(dtype, &[], vec![value]));
    let many = (0..each).map(|i| if i % 2 == 0 { high } else { low + i as i64 }).collect();
    vec![None, one(low), one(high), Some(Array::int(dtype, &[each], many))]
}

/// Returns the zero point of row or column `i`: 0 if there is none, the only one, or element `i` of a vector.
fn point(zero: Option<&Array>, i: usize) -> i64 {
    let Some(values) = zero.map(|z| z.ints().unwrap()) else { return 0 };
    *values.get(i).unwrap_or(&values[0])
}

const TYPES: [DType; 2] = [DType::U8, DType::I8];

#[test]
fn matrix_products() {
    let (batch, m, k, n) = (2, 5, 39, 6);
    for (types, constant) in TYPES.iter().flat_map(|a| TYPES.map(|b| [*a, b])).zip([true, false, false, true])
    {
        let [a, b] = [random(types[0], &[batch, m, k], 1), random(types[1], &[k, n], 2)];
        let (xs, ws) = (a.ints().unwrap(), b.ints().unwrap());
        for zero_a in zero_points(types[0], m) {
            for zero_b in zero_points(types[1], n) {
                let element = |at: usize| {
                    let (row, column) = (at / n, at % n);
                    let (p, q) = (point(zero_a.as_ref(), row % m), point(zero_b.as_ref(), column));
                    (0..k).map(|l| (xs[row * k + l] - p) * (ws[l * n + column] - q)).sum::<i64>()
                };
                let expected: Vec<i64> = (0..batch * m * n).map(element).collect();
                let mut values = vec![value("a", a.clone(), false), value("b", b.clone(), constant)];
                let names =
                    ["a", "b", zero_a.as_ref().map_or("", |_| "p"), zero_b.as_ref().map_or("", |_| "q")];
                values.extend(zero_a.clone().map(|zero| value("p", zero, !constant)));
                values.extend(zero_b.clone().map(|zero| value("q", zero, constant)));
                let what = format!("MatMulInteger of {types:?}, zero points {zero_a:?} and {zero_b:?}");
                check(node("MatMulInteger", &names, &["y"]), &values, &expected, &what);
            }
        }
    }
}

/// `ConvInteger` with two groups, stride 2 and padding. Padded values equal the input's zero point, so they add nothing to a sum.
#[test]
fn convolutions() {
    let (sizes, filters, group) = ([2usize, 6, 7, 5], [4usize, 3, 3, 2], 2usize);
    let out = [2usize, 4, 4, 5];
    let [top, left] = [1i64, 1];
    for (types, constant) in TYPES.iter().flat_map(|a| TYPES.map(|b| [*a, b])).zip([true, false, true, true])
    {
        let [x, w] = [random(types[0], &sizes, 3), random(types[1], &filters, 4)];
        let (xs, ws) = (x.ints().unwrap(), w.ints().unwrap());
        for zero_x in zero_points(types[0], 1).into_iter().take(3) {
            for (case, zero_w) in zero_points(types[1], filters[0]).into_iter().enumerate() {
                let element = |at: usize| {
                    let mut to = [0; 4];
                    unravel(at, &out, &mut to);
                    let (p, q) = (point(zero_x.as_ref(), 0), point(zero_w.as_ref(), to[1]));
                    let mut sum = 0;
                    for tap in 0..filters[1..].iter().product() {
                        let mut from = [0; 3];
                        unravel(tap, &filters[1..], &mut from);
                        let (row, column) =
                            ((2 * to[2] + from[1]) as i64 - top, (to[3] + from[2]) as i64 - left);
                        let inside = (0..7).contains(&row) && (0..5).contains(&column);
                        let channel = to[1] / (filters[0] / group) * filters[1] + from[0];
                        let place = ((to[0] * 6 + channel) as i64 * 7 + row) * 5 + column;
                        let pixel = if inside { xs[place as usize] } else { p };
                        sum += (pixel - p) * (ws[to[1] * 18 + tap] - q);
                    }
                    sum
                };
                let expected: Vec<i64> = (0..out.iter().product()).map(element).collect();
                let mut values = vec![value("x", x.clone(), false), value("w", w.clone(), constant)];
                let names =
                    ["x", "w", zero_x.as_ref().map_or("", |_| "p"), zero_w.as_ref().map_or("", |_| "q")];
                values.extend(zero_x.clone().map(|zero| value("p", zero, case % 2 == 0)));
                values.extend(zero_w.clone().map(|zero| value("q", zero, constant)));
                let node = with(node("ConvInteger", &names, &["y"]), ints("pads", &[1, 1, 1, 0]));
                let node = with(with(node, ints("strides", &[2, 1])), int("group", group as i64));
                let what = format!("ConvInteger of {types:?}, zero points {zero_x:?} and {zero_w:?}");
                check(node, &values, &expected, &what);
            }
        }
    }
}

/// On every built-in profile, 8-bit convolutions and matmuls compile to integer kernels, and no decomposition of float
/// convolutions applies to them.
#[test]
fn every_profile_takes_them() {
    let ones = |name, sizes: &[usize]| {
        value(name, Array::int(DType::I8, sizes, vec![1; sizes.iter().product()]), true)
    };
    let conv = |names: [&str; 2], to: &str, pads: i64, groups: i64| {
        let node = with(node("ConvInteger", &names, &[to]), ints("pads", &[pads; 4]));
        with(node, int("group", groups))
    };
    let image = random(DType::I8, &[1, 64, 16, 64], 7);
    let values = [
        value("x", image, false),
        ones("w", &[64, 64, 3, 3]),
        ones("d", &[64, 1, 3, 3]),
        ones("p", &[64, 64, 1, 1]),
        ones("m", &[64, 64]),
    ];
    let (mut graph, _) = single(conv(["x", "w"], "c", 1, 1), &values);
    let narrow = |from: &str, to: &str| with(node("Cast", &[from], &[to]), int("to", DataType::Int8 as i64));
    graph.node.extend([
        narrow("c", "c8"),
        conv(["c8", "d"], "e", 1, 64),
        narrow("e", "e8"),
        conv(["e8", "p"], "f", 0, 1),
        narrow("f", "f8"),
        node("MatMulInteger", &["f8", "m"], &["y"]),
    ]);
    let imported = load_bytes(bytes(&model(21, graph)), &Options::default()).unwrap();
    for name in names() {
        let target = TargetProfile::load(name).unwrap();
        let lowered = compile::lower(&imported.graph, &target, &compile::Options::default());
        let kernels: Vec<&str> = lowered
            .unwrap_or_else(|e| panic!("{name}: {e}"))
            .plan
            .dispatches
            .iter()
            .map(|step| step.launch.kernel)
            // Without integer dot instructions, the input becomes floats first.
            .filter(|kernel| *kernel != "map")
            .collect();
        let [first, depthwise, second, product] = kernels[..] else { panic!("{name}: {kernels:?}") };
        let on_words = |kernel: &str| kernel.ends_with("_dot") || kernel.ends_with("_coop");
        for kernel in [first, second, product] {
            assert_eq!(on_words(kernel), target.features.int_dot_product, "{name}: {kernels:?}");
        }
        assert!(!on_words(depthwise), "{name}: {kernels:?}");
    }
}

/// `QLinearConv` with a scale per channel, a bias and saturation gives the integers that its definition gives.
#[test]
fn quantized_convolution() {
    let x = random(DType::U8, &[1, 3, 4, 4], 5);
    let w = random(DType::I8, &[2, 3, 1, 1], 6);
    let (xs, ws) = (x.ints().unwrap(), w.ints().unwrap());
    let (bias, scales) = ([300, -700], [0.5f32, 0.0625]);
    let element = |at: usize| {
        let (filter, pixel) = (at / 16, at % 16);
        let sum: i64 = (0..3).map(|c| (xs[c * 16 + pixel] - 255) * ws[filter * 3 + c]).sum();
        let real = (sum + bias[filter]) as f32 * (0.25 * scales[filter] / 2.0);
        (real.round_ties_even() + 7.0).clamp(-128.0, 127.0) as i64
    };
    let expected: Vec<i64> = (0..32).map(element).collect();
    let one = |v: f32| Array::f32(&[], vec![v]);
    let values = [
        value("x", x.clone(), false),
        value("sx", one(0.25), true),
        value("px", Array::int(DType::U8, &[], vec![255]), true),
        value("w", w.clone(), true),
        value("sw", Array::f32(&[2], scales.to_vec()), true),
        value("pw", Array::int(DType::I8, &[2], vec![0, 0]), true),
        value("sy", one(2.0), true),
        value("py", Array::int(DType::I8, &[], vec![7]), true),
        value("bias", Array::int(DType::I32, &[2], bias.to_vec()), true),
    ];
    let names: Vec<&str> = values.iter().map(|v| v.name).collect();
    check(node("QLinearConv", &names, &["y"]), &values, &expected, "a quantized convolution");
}

fn microsoft(operator: &str, values: &[Value]) -> NodeProto {
    let names: Vec<&str> = values.iter().map(|v| v.name).collect();
    NodeProto { domain: Some("com.microsoft".into()), ..node(operator, &names, &["y"]) }
}

fn number(name: &'static str, value_: f32) -> Value {
    value(name, Array::f32(&[], vec![value_]), true)
}

fn zero_point(name: &'static str, dtype: DType, point: i64) -> Value {
    value(name, Array::int(dtype, &[], vec![point]), true)
}

#[test]
fn quantized_sum() {
    let [a, b] = [random(DType::U8, &[3, 5], 8), random(DType::U8, &[3, 5], 9)];
    let pairs = a.ints().unwrap().iter().zip(b.ints().unwrap());
    let sum = |(a, b): (&i64, &i64)| {
        let real = (a - 255) as f32 * 0.5 + *b as f32 * 0.25;
        ((real / 0.75).round_ties_even() + 200.0).clamp(0.0, 255.0) as i64
    };
    let expected: Vec<i64> = pairs.map(sum).collect();
    let values = [
        value("a", a.clone(), false),
        number("sa", 0.5),
        zero_point("pa", DType::U8, 255),
        value("b", b.clone(), false),
        number("sb", 0.25),
        zero_point("pb", DType::U8, 0),
        number("sy", 0.75),
        zero_point("py", DType::U8, 200),
    ];
    check(microsoft("QLinearAdd", &values), &values, &expected, "a quantized sum");
}

#[test]
fn quantized_gemm() {
    let (m, n, k) = (4, 7, 21);
    let [a, b] = [random(DType::U8, &[m, k], 10), random(DType::I8, &[n, k], 11)];
    let (xs, ws) = (a.ints().unwrap(), b.ints().unwrap());
    let bias: Vec<i64> = (0..n as i64).map(|i| 500 * i - 1500).collect();
    let element = |at: usize| {
        let (row, column) = (at / n, at % n);
        let sum: i64 = (0..k).map(|l| (xs[row * k + l] - 255) * (ws[column * k + l] + 128)).sum();
        let real = (sum + bias[column]) as f32 * (0.25 * 0.125);
        ((real / 32.0).round_ties_even() + 127.0).clamp(-128.0, 127.0) as i64
    };
    let expected: Vec<i64> = (0..m * n).map(element).collect();
    let values = [
        value("a", a.clone(), false),
        number("sa", 0.25),
        zero_point("pa", DType::U8, 255),
        value("b", b.clone(), true),
        number("sb", 0.125),
        zero_point("pb", DType::I8, -128),
        value("bias", Array::int(DType::I32, &[n], bias.clone()), true),
        number("sy", 32.0),
        zero_point("py", DType::I8, 127),
    ];
    let node = with(microsoft("QGemm", &values), int("transB", 1));
    check(node, &values, &expected, "a quantized matmul");
}

/// Small-M matmuls with quantized weights give the same sums, to the last bit, for any number of rows.
#[test]
fn rows_with_quantized_weights_have_equal_sums() {
    for (encoding, k) in [("u8 in groups of 640", 640), ("u4 in groups of 32 with zeros", 640), ("q6_k", 768)]
    {
        let graph = |rows: usize| {
            let text = format!(
                "%0 = input {{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[{rows},{k}]}}
%1 = constant {{\"dtype\":\"f32\",\"shape\":[70,{k}],\"encoding\":\"{encoding}\",\"random\":3}}
%2 = matmul %0 %1 {{\"trans_a\":false,\"trans_b\":true}}
output \"y\" %2
"
            );
            graph_text::parse(&text).unwrap()
        };
        let threads = |rows: usize, target: &TargetProfile| {
            let plan = compile::lower(&graph(rows), target, &compile::Options::default()).unwrap().plan;
            let choice = &plan.decisions.iter().find(|d| d.what.starts_with("matmul")).unwrap().choices[0];
            assert_eq!(
                choice.kernel.name, "matvec_quantized",
                "for {}, a matmul of {rows} rows with {encoding} weights must use `matvec_quantized`",
                target.name
            );
            choice.candidate.knobs.get("THREADS").unwrap()
        };
        for target in names().map(|name| TargetProfile::load(name).unwrap()) {
            let one = threads(1, &target);
            assert!(
                [2, 4, 7, 16].iter().all(|rows| threads(*rows, &target) == one),
                "{encoding} for {}",
                target.name
            );
        }
        let x = random(DType::F32, &[16, k], 1);
        let run = |rows: usize| {
            let first = Array::f32(&[rows, k], x.floats().unwrap()[..rows * k].to_vec());
            let inputs = BTreeMap::from([("x".to_string(), first)]);
            device::run(&graph(rows), &compile::Options::default(), &inputs).unwrap().remove(0).1
        };
        let all = run(16);
        for rows in [1, 3] {
            let few = run(rows);
            assert_eq!(
                few.floats().unwrap(),
                &all.floats().unwrap()[..rows * 70],
                "{encoding} in {rows} rows"
            );
        }
    }
}

/// The expected values come from ONNX Runtime 1.32.
#[test]
fn quantized_softmax() {
    let softmax = |axis: i64, opset: i64, values: &[Value]| {
        with(with(microsoft("QLinearSoftmax", values), int("axis", axis)), int("opset", opset))
    };
    let x = [10, 200, 255, 130, 0, 7, 7, 7, 9, 3].to_vec();
    let values = [
        value("x", Array::int(DType::U8, &[2, 5], x), false),
        number("sx", 0.05),
        zero_point("px", DType::U8, 100),
        number("sy", 1.0 / 256.0),
        zero_point("py", DType::U8, 0),
    ];
    let expected = [0, 15, 240, 0, 0, 52, 52, 52, 57, 43];
    check(softmax(-1, 13, &values), &values, &expected, "the softmax of opset 13");
    // Before opset 13 the axes from `axis` on are flattened.
    let values = [
        value("x", Array::int(DType::I8, &[2, 2, 2], vec![-100, 20, 90, 127, 0, -5, 5, 1]), false),
        number("sx", 0.1),
        zero_point("px", DType::I8, 3),
        number("sy", 1.0 / 128.0),
        zero_point("py", DType::I8, -10),
    ];
    let expected = [-10, -10, -7, 115, 19, 8, 38, 22];
    check(softmax(1, 12, &values), &values, &expected, "the softmax of opset 12");
}

/// The expected values come from ONNX Runtime 1.32, which also quantizes the inputs and states of each step. Its results
/// differ by up to 0.0011 from the results of a float LSTM.
#[test]
fn dynamically_quantized_lstm() {
    let (hidden, inputs, directions, steps) = (2usize, 3usize, 2usize, 4usize);
    let gates = 4 * hidden;
    let integers = |n: usize, factor: i64, shift: i64| -> Vec<i64> {
        (0..n as i64).map(|i| (i * factor + shift) % 121 - 60).collect()
    };
    let small = |n: usize, factor: usize, shift: usize, modulus: usize, scale: f32| -> Vec<f32> {
        let middle = (modulus / 2) as f32;
        (0..n).map(|i| (((i * factor + shift) % modulus) as f32 - middle) * scale).collect()
    };
    let scales = (0..directions * gates).map(|i| 0.008 + 0.001 * (i % gates) as f32).collect();
    let w = integers(directions * inputs * gates, 37, 11);
    let r = integers(directions * hidden * gates, 53, 29);
    let bias = small(directions * 2 * gates, 1, 0, 7, 0.1);
    let values = [
        value("x", Array::f32(&[steps, 1, inputs], small(steps * inputs, 5, 2, 9, 0.25)), false),
        value("w", Array::int(DType::I8, &[directions, inputs, gates], w), true),
        value("r", Array::int(DType::I8, &[directions, hidden, gates], r), true),
        value("b", Array::f32(&[directions, 2 * gates], bias), true),
        value("sw", Array::f32(&[directions, gates], scales), true),
        value("pw", Array::int(DType::I8, &[directions, gates], vec![0; directions * gates]), true),
        value("sr", Array::f32(&[directions], vec![0.012, 0.01]), true),
        value("pr", Array::int(DType::I8, &[directions], vec![0; directions]), true),
    ];
    let names = ["x", "w", "r", "b", "", "", "", "", "sw", "pw", "sr", "pr"];
    let lstm =
        NodeProto { domain: Some("com.microsoft".into()), ..node("DynamicQuantizeLSTM", &names, &["y"]) };
    let lstm = with(with(lstm, int("hidden_size", hidden as i64)), text("direction", "bidirectional"));
    let (graph, inputs) = single(lstm, &values);
    let mut model = model(21, graph);
    model.opset_import.push(OperatorSetIdProto { domain: Some("com.microsoft".into()), version: Some(1) });
    let imported = load_bytes(bytes(&model), &Options::default()).expect("the model imports");
    let expected = [
        -0.082728, 0.046256, 0.05684, -0.160484, -0.058344, -0.014348, -0.054754, 0.087224, 0.097828,
        -0.17105, -0.088102, 0.072285, -0.026951, -0.064233, 0.103128, -0.198872,
    ];
    let evaluated = eval(&imported.graph, &inputs).expect("the graph evaluates").remove(0).1;
    let got = device::run(&imported.graph, &compile::Options::default(), &inputs).expect("it runs");
    for y in [&evaluated, &got[0].1] {
        assert_eq!(y.shape, [steps, directions, 1, hidden]);
        for (a, b) in y.floats().unwrap().iter().zip(expected) {
            assert!((a - b).abs() < 0.002, "{a} is not {b}");
        }
    }
}

/// The largest integer belongs to the largest value only if the scale is positive. A scale of the caller may be negative.
#[test]
fn max_pool_of_dequantized_values() {
    let integers = Array::int(DType::U8, &[1, 1, 2, 4], vec![3, 9, 0, 200, 7, 1, 255, 8]);
    for (scale, constant, expected) in
        [(0.5, true, [4.5, 127.5]), (-0.5, true, [-0.5, 0.0]), (-0.5, false, [-0.5, 0.0])]
    {
        let what = format!("scale {scale}, constant: {constant}");
        let pool = with(node("MaxPool", &["x"], &["y"]), ints("kernel_shape", &[2, 2]));
        let values =
            [value("q", integers.clone(), false), value("scale", Array::f32(&[], vec![scale]), constant)];
        let (mut graph, inputs) = single(with(pool, ints("strides", &[2, 2])), &values);
        graph.node.insert(0, node("DequantizeLinear", &["q", "scale"], &["x"]));
        let imported = load_bytes(bytes(&model(21, graph)), &Options::default()).expect(&what);
        let evaluated = eval(&imported.graph, &inputs).expect(&what).remove(0).1;
        assert_eq!(evaluated.floats().unwrap(), expected, "{what}, the reference");
        let got = device::run(&imported.graph, &compile::Options::default(), &inputs).expect(&what);
        assert_eq!(got[0].1.floats().unwrap(), expected, "{what}, on the device");
    }
}
