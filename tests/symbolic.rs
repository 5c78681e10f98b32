//! Tests that models with symbolic sizes give the results of the same models with fixed sizes, and that the importer narrows
//! bounds to the sizes that all nodes accept.

use std::collections::BTreeMap;

use drift_tests::onnx::{bytes, floats, graph, input, int, integers, ints, model, node, text, with};
use driftc::import::onnx::schema::{ModelProto, NodeProto};
use driftc::import::onnx::{DimSpec, Options, load_bytes};
use driftc::ir::array::Array;
use driftc::ir::eval::eval;
use driftc::ir::graph::Graph;

/// Returns an array of varied numbers between -1 and 1 that repeat only after 101 elements.
fn numbers(shape: &[i64]) -> Array {
    let shape: Vec<usize> = shape.iter().map(|d| usize::try_from(*d).unwrap()).collect();
    let n = shape.iter().product::<usize>();
    Array::f32(&shape, (0..n).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect())
}

/// Imports a model with symbolic sizes, each between its given lower bound and 64.
fn symbolic(m: &ModelProto, symbols: &[(&str, i64)]) -> Graph {
    let dims = symbols.iter().map(|(name, low)| ((*name).to_string(), DimSpec::Range(*low, 64))).collect();
    load_bytes(bytes(m), &Options { dims, ..Options::default() }).expect("it imports with symbols").graph
}

/// Imports a model once with symbolic sizes, and once for each of the fixed shapes of input `x`. For each shape, the
/// symbolic and the fixed graph must give equal results.
fn same(m: &ModelProto, symbols: &[(&str, i64)], shapes: &[&[i64]]) {
    let symbolic = symbolic(m, symbols);
    for shape in shapes {
        let input_shapes = BTreeMap::from([("x".to_string(), shape.to_vec())]);
        let options = Options { input_shapes, ..Options::default() };
        let known = load_bytes(bytes(m), &options).expect("it imports with sizes").graph;
        let inputs = BTreeMap::from([("x".to_string(), numbers(shape))]);
        let [a, b] = [&symbolic, &known].map(|g| eval(g, &inputs).expect("it evaluates"));
        assert_eq!(a, b, "{shape:?}");
    }
}

fn spatial(operator: &str, attributes: &[(&str, &[i64])], pad: &str) -> ModelProto {
    let mut operands = vec!["x"];
    if operator == "Conv" {
        operands.push("w");
    }
    let mut n = with(node(operator, &operands, &["y"]), text("auto_pad", pad));
    for (name, values) in attributes {
        n = with(n, ints(name, values));
    }
    let mut g = graph(vec![input("x", &["1", "2", "h", "w"])], vec![n], &["y"]);
    if operator == "Conv" {
        let filters: Vec<f32> = (0..36).map(|i| i as f32 / 16.0 - 1.0).collect();
        g.initializer = vec![floats("w", &[2, 2, 3, 3], &filters)];
    }
    model(17, g)
}

#[test]
fn auto_pad_follows_the_sizes() {
    let shapes: [&[i64]; 4] = [&[1, 2, 6, 7], &[1, 2, 7, 8], &[1, 2, 3, 3], &[1, 2, 10, 5]];
    for pad in ["SAME_UPPER", "SAME_LOWER", "VALID"] {
        same(
            &spatial("Conv", &[("strides", &[2, 1]), ("dilations", &[1, 1])], pad),
            &[("h", 3), ("w", 3)],
            &shapes,
        );
        let window: [(&str, &[i64]); 2] = [("kernel_shape", &[3, 3]), ("strides", &[2, 3])];
        same(&spatial("MaxPool", &window, pad), &[("h", 3), ("w", 3)], &shapes);
        // Windows that skip some positions are padded at some sizes only.
        let sparse: [(&str, &[i64]); 2] = [("kernel_shape", &[2, 1]), ("strides", &[2, 5])];
        same(&spatial("MaxPool", &sparse, pad), &[("h", 3), ("w", 3)], &shapes);
        same(&spatial("LpPool", &window, pad), &[("h", 3), ("w", 3)], &shapes);
    }
    // A mean that includes padding is divided by the fraction of the window inside the image: equal up to rounding.
    let m = spatial("AveragePool", &[("kernel_shape", &[3, 2]), ("strides", &[2, 2])], "SAME_LOWER");
    let symbolic = symbolic(&m, &[("h", 3), ("w", 3)]);
    for shape in shapes {
        let input_shapes = BTreeMap::from([("x".to_string(), shape.to_vec())]);
        let known = load_bytes(bytes(&m), &Options { input_shapes, ..Options::default() }).unwrap().graph;
        let inputs = BTreeMap::from([("x".to_string(), numbers(shape))]);
        let [a, b] = [&symbolic, &known].map(|g| eval(g, &inputs).unwrap().remove(0).1);
        assert_eq!(a.shape, b.shape);
        let pairs = a.floats().unwrap().iter().zip(b.floats().unwrap());
        assert!(pairs.clone().all(|(a, b)| (a - b).abs() < 1e-6), "{a:?} {b:?}");
    }
}

/// Returns nodes that compute the size `n` of axis 1 of input `x`, as a vector of one element.
fn length() -> Vec<NodeProto> {
    vec![node("Shape", &["x"], &["shape"]), with(node("Gather", &["shape", "one"], &["n"]), int("axis", 0))]
}

#[test]
fn padding_follows_the_sizes() {
    for mode in ["constant", "reflect", "edge"] {
        // Up to the next multiple of eight.
        let mut nodes = length();
        nodes.extend([
            node("Add", &["n", "seven"], &["more"]),
            node("Div", &["more", "eight"], &["blocks"]),
            node("Mul", &["blocks", "eight"], &["full"]),
            node("Sub", &["full", "n"], &["missing"]),
            with(node("Concat", &["zeros", "missing"], &["pads"]), int("axis", 0)),
            with(node("Pad", &["x", "pads"], &["y"]), text("mode", mode)),
        ]);
        let mut g = graph(vec![input("x", &["2", "n"])], nodes, &["y"]);
        let one = |name: &str, value: i64| integers(name, &[1], &[value]);
        g.initializer =
            vec![one("one", 1), one("seven", 7), one("eight", 8), integers("zeros", &[3], &[0, 0, 0])];
        same(&model(17, g), &[("n", 1)], &[&[2, 5], &[2, 8], &[2, 17]]);
    }
}

#[test]
fn ranges_follow_the_sizes() {
    // n - 5, which may be negative, in integers and in floats.
    for kind in [7, 1] {
        let mut nodes = length();
        nodes.extend([
            node("Sub", &["n", "five"], &["limit"]),
            node("Squeeze", &["limit", "axis"], &["scalar"]),
            with(node("Cast", &["scalar"], &["end"]), int("to", kind)),
            with(node("Cast", &["zero"], &["start"]), int("to", kind)),
            with(node("Cast", &["two"], &["step"]), int("to", kind)),
            node("Range", &["start", "end", "step"], &["y"]),
        ]);
        let mut g = graph(vec![input("x", &["1", "n"])], nodes, &["y"]);
        g.initializer = vec![
            integers("one", &[1], &[1]),
            integers("five", &[1], &[5]),
            integers("axis", &[1], &[0]),
            integers("zero", &[], &[0]),
            integers("two", &[], &[2]),
        ];
        same(&model(17, g), &[("n", 1)], &[&[1, 3], &[1, 5], &[1, 6], &[1, 12]]);
    }
}

#[test]
fn slices_clamp_at_symbolic_ends() {
    let ends =
        [(0, 5, 1), (-5, i64::MAX, 1), (3, -1, 1), (-9, 7, 2), (-1, -6, -1), (6, i64::MIN, -2), (-3, 4, -1)];
    for (start, end, step) in ends {
        let slice = node("Slice", &["x", "a", "b", "zero", "step"], &["y"]);
        let mut g = graph(vec![input("x", &["n"])], vec![slice], &["y"]);
        let one = |name: &str, value: i64| integers(name, &[1], &[value]);
        g.initializer = vec![one("a", start), one("b", end), one("zero", 0), one("step", step)];
        same(&model(17, g), &[("n", 1)], &[&[1], &[4], &[5], &[9], &[20]]);
    }
}

#[test]
fn recurrences_take_any_length() {
    let numbers = |name: &str, shape: &[i64]| {
        let array = numbers(shape);
        floats(name, shape, array.floats().unwrap())
    };
    for (operator, gates) in [("RNN", 1), ("GRU", 3), ("LSTM", 4)] {
        for linear in [0, 1] {
            let mut n = node(operator, &["x", "w", "r", "b"], &["y", "last"]);
            n = with(with(n, int("hidden_size", 3)), text("direction", "bidirectional"));
            if operator == "GRU" {
                n = with(n, int("linear_before_reset", linear));
            }
            let mut g = graph(vec![input("x", &["steps", "batch", "4"])], vec![n], &["y", "last"]);
            g.initializer = vec![
                numbers("w", &[2, gates * 3, 4]),
                numbers("r", &[2, gates * 3, 3]),
                numbers("b", &[2, gates * 6]),
            ];
            same(&model(14, g), &[("steps", 1), ("batch", 1)], &[&[1, 1, 4], &[7, 2, 4], &[64, 3, 4]]);
        }
    }
}

/// Imports a model twice: without bounds for a symbol, and with the bounds `asked`. Returns the bounds that the
/// importer assumes and its notes about them, and the error of the second import.
fn narrowed(m: &ModelProto, symbol: &str, asked: (i64, i64)) -> ((i64, i64), String, String) {
    let assumed = load_bytes(bytes(m), &Options::default()).expect("it imports");
    let dims = BTreeMap::from([(symbol.to_string(), DimSpec::Range(asked.0, asked.1))]);
    let refusal = load_bytes(bytes(m), &Options { dims, ..Options::default() }).expect_err("it is refused");
    (assumed.graph.bounds[symbol], assumed.notes.join("\n"), refusal.to_string())
}

#[test]
fn windows_raise_lower_bounds() {
    let pool = with(node("MaxPool", &["x"], &["y"]), ints("kernel_shape", &[7]));
    let m = model(17, graph(vec![input("x", &["1", "1", "n"])], vec![pool], &["y"]));
    let (bounds, notes, refusal) = narrowed(&m, "n", (2, 40));
    assert_eq!(bounds.0, 7);
    assert!(notes.contains("`n` is 7..") && notes.contains("because `MaxPool_y`"), "{notes}");
    assert!(refusal.contains("only be computed for `n` from 7 to 40"), "{refusal}");
    for (kernel, stride, advice) in [(99, 1, "set higher bounds with --dim"), (65, 2, "but for n=65")] {
        let pool = with(node("MaxPool", &["x"], &["y"]), ints("kernel_shape", &[kernel]));
        let pool = with(pool, ints("strides", &[stride]));
        let m = model(17, graph(vec![input("x", &["1", "1", "n"])], vec![pool], &["y"]));
        let dims = BTreeMap::from([("n".to_string(), DimSpec::Range(1, 64))]);
        let refusal =
            load_bytes(bytes(&m), &Options { dims, ..Options::default() }).expect_err("it is refused");
        assert!(refusal.to_string().contains(advice), "{refusal}");
    }
}

/// Returns a MaxPool node that keeps every 32nd row of an image `x`, so that an image of up to 32 rows gives one row.
fn rows() -> NodeProto {
    with(with(node("MaxPool", &["x"], &["p"]), ints("kernel_shape", &[1, 1])), ints("strides", &[32, 1]))
}

#[test]
fn joined_and_multiplied_sizes_are_equal() {
    // One row of constants is concatenated to the rows of an image.
    let mut g = graph(
        vec![input("x", &["1", "3", "h", "2"])],
        vec![rows(), with(node("Concat", &["p", "c"], &["y"]), int("axis", 1))],
        &["y"],
    );
    g.initializer = vec![floats("c", &[1, 1, 1, 2], &[0.5; 2])];
    let (bounds, notes, refusal) = narrowed(&model(17, g), "h", (1, 48));
    assert_eq!(bounds.1, 32);
    assert!(notes.contains("..32, because `Concat_y`"), "{notes}");
    assert!(refusal.contains("only be computed for `h` from 1 to 32"), "{refusal}");
    // Position embeddings are added to the tokens, and multiplied by as long a weight.
    for (op, shape) in [("Add", vec![1, 9, 1]), ("MatMul", vec![1, 4, 9])] {
        let nodes = vec![node(op, if op == "Add" { &["x", "c"] } else { &["c", "x"] }, &["y"])];
        let mut g = graph(vec![input("x", &["1", "tokens", "4"])], nodes, &["y"]);
        g.initializer = vec![floats("c", &shape, &vec![0.5; shape.iter().product::<i64>() as usize])];
        let (bounds, notes, refusal) = narrowed(&model(17, g), "tokens", (2, 40));
        assert_eq!(bounds, (9, 9), "{op}");
        assert!(
            notes.contains("the assumed bounds; --dim tokens=9 sets them")
                && refusal.contains("only be computed for `tokens` from 9 to 9"),
            "{notes} {refusal}"
        );
    }
}

#[test]
fn an_equation_of_several_sizes_may_hold_for_one_size_whatever_the_others() {
    let mut g = graph(
        vec![input("x", &["1", "3", "h", "w"])],
        vec![
            rows(),
            node("Shape", &["p"], &["s"]),
            node("Gather", &["s", "last"], &["w1"]),
            with(node("Concat", &["one", "three", "one", "w1"], &["target"]), int("axis", 0)),
            node("Reshape", &["p", "target"], &["y"]),
        ],
        &["y"],
    );
    g.initializer =
        vec![integers("last", &[1], &[3]), integers("one", &[1], &[1]), integers("three", &[1], &[3])];
    let (bounds, _, refusal) = narrowed(&model(17, g), "h", (1, 48));
    assert_eq!(bounds.1, 32);
    assert!(refusal.contains("only be computed for `h` from 1 to 32"), "{refusal}");
}

#[test]
fn squeezed_axes_have_one_element() {
    // Up to 32 rows of an image become one.
    let mut g = graph(
        vec![input("x", &["1", "3", "h", "w"])],
        vec![rows(), node("Squeeze", &["p", "axes"], &["y"])],
        &["y"],
    );
    g.initializer = vec![integers("axes", &[1], &[2])];
    let (bounds, notes, refusal) = narrowed(&model(17, g), "h", (1, 48));
    assert_eq!(bounds.1, 32);
    assert!(notes.contains("..32, because `Squeeze_y`"), "{notes}");
    assert!(refusal.contains("only be computed for `h` from 1 to 32"), "{refusal}");
    // Without axes the rank would depend on the size.
    let m = model(17, graph(vec![input("x", &["n", "3"])], vec![node("Squeeze", &["x"], &["y"])], &["y"]));
    let refusal = load_bytes(bytes(&m), &Options::default()).expect_err("it is refused").to_string();
    assert!(refusal.contains("axis 0 is removed only if its symbolic size n is 1"), "{refusal}");
    let dims = BTreeMap::from([("n".to_string(), DimSpec::Range(2, 9))]);
    let graph = load_bytes(bytes(&m), &Options { dims, ..Options::default() }).unwrap().graph;
    assert_eq!(graph.tensor(graph.outputs()[0].node).rank(), 2);
}
