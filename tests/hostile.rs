//! Tests with malformed ONNX models. The importer must refuse each model with an error, quickly and in little memory,
//! without a panic.

use drift_tests::onnx::{
    bytes, floats, graph, input, int, integers, ints, model, node, small_integers, subgraph, typed_input,
    with,
};
use driftc::import::onnx::schema::tensor_proto::DataType;
use driftc::import::onnx::schema::{
    FunctionProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
};
use driftc::import::onnx::{Options, load, load_bytes};

fn refused(model: &ModelProto, part: &str) {
    let error = load_bytes(bytes(model), &Options::default()).expect_err("it is refused").to_string();
    assert!(error.contains(part), "the error does not contain `{part}`: {error}");
}

/// Returns an ONNX model of one node that reads the input `x: f32[2, 8]` and constants.
fn one(node: NodeProto, constants: Vec<TensorProto>) -> ModelProto {
    let mut g = graph(vec![input("x", &["2", "8"])], vec![node], &["y"]);
    g.initializer = constants;
    model(17, g)
}

#[test]
fn bytes_that_are_no_model() {
    for (raw, part) in [
        (&b""[..], "contains no graph"),
        (&b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x3f"[..], "not a valid ONNX model"),
        (&[0x0b; 5000][..], "not a valid ONNX model"),
    ] {
        let error = load_bytes(raw.to_vec().into(), &Options::default()).expect_err("refused").to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn constants_that_lie_about_their_size() {
    let add = || node("Add", &["x", "w"], &["y"]);
    let with_dims = |dims: &[i64]| one(add(), vec![floats("w", dims, &[1.0; 16])]);
    refused(&with_dims(&[-2, -8]), "is negative");
    refused(&with_dims(&[1 << 32, 1 << 32]), "elements");
    refused(&with_dims(&[2, 9]), "do not hold");
    refused(&with_dims(&[1; 5000]), "the tensor's rank is 5000");
    let mut raw = floats("w", &[2, 8], &[]);
    raw.raw_data = Some(vec![0; 65].into());
    refused(&one(add(), vec![raw]), "65 bytes do not hold 16 elements of f32");
    let mut none = floats("w", &[2, 8], &[1.0; 16]);
    none.data_type = Some(DataType::Undefined as i32);
    refused(&one(add(), vec![none]), "no element type");
}

#[test]
fn results_too_large_to_exist() {
    let bomb = |op: &str, values: &[i64]| {
        let shape = integers("s", &[values.len() as i64], values);
        one(node(op, &["x", "s"], &["y"]), vec![shape])
    };
    refused(&bomb("Expand", &[1 << 20, 1 << 20, 2, 8]), "more than");
    refused(&bomb("Tile", &[1 << 40, 1 << 40]), "more than");
    refused(&bomb("Pad", &[1 << 40, 0, 0, 0]), "more than");
    refused(
        &one(node("ConstantOfShape", &["s"], &["y"]), vec![integers("s", &[2], &[1 << 31, 1 << 31])]),
        "more than",
    );
    let ends = vec![integers("a", &[], &[0]), integers("b", &[], &[1 << 60]), integers("c", &[], &[1])];
    refused(&one(node("Range", &["a", "b", "c"], &["y"]), ends), "more than");
    let ends = vec![integers("a", &[], &[0]), integers("b", &[], &[8]), integers("c", &[], &[0])];
    refused(&one(node("Range", &["a", "b", "c"], &["y"]), ends), "the step is 0");
}

#[test]
fn attributes_out_of_range() {
    let weights = || vec![floats("w", &[4, 8, 1, 1], &[0.0; 32])];
    let conv = |name: &str, values: &[i64]| {
        let mut g = graph(
            vec![input("x", &["1", "8", "4", "4"])],
            vec![with(node("Conv", &["x", "w"], &["y"]), ints(name, values))],
            &["y"],
        );
        g.initializer = weights();
        model(17, g)
    };
    refused(&conv("strides", &[0, 1]), "contains 0");
    refused(&conv("strides", &[1, 1, 1]), "has 3 values; 2");
    refused(&conv("pads", &[-20, 0, 0, 0]), "negative");
    refused(
        &conv("kernel_shape", &[3, 3]),
        "attribute `kernel_shape` differs from the kernel size of the weights",
    );
    refused(&conv("dilations", &[i64::MAX, i64::MAX]), "Conv");
    refused(&one(with(node("Softmax", &["x"], &["y"]), int("axis", i64::MIN)), vec![]), "axis");
    refused(&one(node("Reshape", &["x", "s"], &["y"]), vec![integers("s", &[2], &[-1, -1])]), "-1 twice");
    refused(&one(node("Reshape", &["x", "s"], &["y"]), vec![integers("s", &[2], &[0, 5])]), "reshape");
    refused(&one(node("MatMul", &["x", ""], &["y"]), vec![]), "operand 1 is missing");
    let bytes = |name: &str, shape: &[i64]| small_integers(name, DataType::Uint8, shape, &[1; 4]);
    let conv = node("ConvInteger", &["v", "w", "", "z"], &["y"]);
    let constants = vec![bytes("v", &[4]), bytes("w", &[4]), bytes("z", &[4])];
    refused(&one(conv, constants), "ConvInteger");
}

/// Models are refused if a value has another type than its declaration, or if operands that need equal types have different
/// types.
#[test]
fn types_that_differ() {
    let two = |operator: &str, a: DataType, b: DataType| {
        let inputs = vec![typed_input("a", a, &["2", "2"]), typed_input("b", b, &["2", "2"])];
        model(17, graph(inputs, vec![node(operator, &["a", "b"], &["y"])], &["y"]))
    };
    for operator in ["Add", "Concat", "MatMul", "Conv", "Max", "Equal", "LayerNormalization"] {
        refused(&two(operator, DataType::Float, DataType::Float16), "must have the same type");
        refused(&two(operator, DataType::Int64, DataType::Int32), operator);
    }
    let mut declared = one(node("Neg", &["x"], &["y"]), vec![]);
    let outputs = &mut declared.graph.as_mut().expect("a graph").output;
    *outputs = vec![typed_input("y", DataType::Int64, &["2", "8"])];
    refused(&declared, "output `y`: the value is declared with type i64, but has type f32");
    let mut both = one(node("Add", &["x", "w"], &["y"]), vec![floats("w", &[8], &[1.0; 8])]);
    both.graph.as_mut().expect("a graph").input.push(typed_input("w", DataType::Int64, &["8"]));
    refused(&both, "input `w`: the value is declared with type i64, but has type f32");
    let vector = |name: &str| floats(name, &[2], &[0.0, 1.0]);
    refused(
        &one(node("Clip", &["x", "low"], &["y"]), vec![vector("low")]),
        "operand 1, a bound, must have one element, but is f32[2]",
    );
    let three = vec![integers("d", &[], &[3]), floats("v", &[3], &[0.0; 3])];
    refused(&one(node("OneHot", &["x", "d", "v"], &["y"]), three), "two values (off and on) are needed");
}

#[test]
fn types_that_an_operator_does_not_take() {
    let shape = || small_integers("s", DataType::Int32, &[2], &[4, 4]);
    refused(&one(node("Reshape", &["x", "s"], &["y"]), vec![shape()]), "type i32, but ONNX allows i64");
    let indices = small_integers("s", DataType::Uint8, &[1], &[1]);
    refused(&one(node("Gather", &["x", "s"], &["y"]), vec![indices]), "type u8, but ONNX allows i32, i64");
    let dequantize = node("DequantizeLinear", &["x", "w"], &["y"]);
    refused(&one(dequantize, vec![floats("w", &[], &[1.0])]), "operand 0 has type f32");
    let unsigned =
        graph(vec![typed_input("x", DataType::Uint8, &["4"])], vec![node("Neg", &["x"], &["y"])], &["y"]);
    refused(&model(17, unsigned), "operand 0 has type u8");
}

#[test]
fn initializers_unlike_their_declaration() {
    for (sizes, fits) in [(&["8"][..], true), (&["n"], true), (&["7"], false), (&["1", "8"], false)] {
        let inputs = vec![input("x", &["2", "8"]), input("w", sizes)];
        let mut g = graph(inputs, vec![node("Add", &["x", "w"], &["y"])], &["y"]);
        g.initializer = vec![floats("w", &[8], &[1.0; 8])];
        if fits {
            load_bytes(bytes(&model(17, g)), &Options::default()).unwrap();
        } else {
            refused(&model(17, g), "but its initializer has shape [8]");
        }
    }
}

#[test]
fn graphs_that_are_none() {
    let nodes = vec![node("Neg", &["b"], &["a"]), node("Neg", &["a"], &["b"])];
    refused(&model(17, graph(vec![], nodes, &["a"])), "operands depend on its own result");
    let nodes = vec![node("Neg", &["x"], &["y"]), node("Abs", &["x"], &["y"])];
    refused(&model(17, graph(vec![input("x", &["1"])], nodes, &["y"])), "already defined");
    refused(&model(17, graph(vec![input("x", &["1"])], vec![], &["y"])), "no node computes it");
    refused(&one(node("Neg", &["nothing"], &["y"]), vec![]), "`nothing` is not defined");
    refused(&model(17, graph(vec![input("x", &["1"])], vec![], &[])), "declares no output");
    refused(&model(0, graph(vec![input("x", &["1"])], vec![], &["x"])), "imports version 0");
    let twice = graph(vec![input("x", &["1"]), input("x", &["2"])], vec![], &["x"]);
    refused(&model(17, twice), "declared twice");
}

/// Nodes with more operands than their operator accepts are refused, whether or not the operands' values are known at import.
#[test]
fn operands_too_many() {
    let extra = |op: &str, inputs: &[&str]| one(node(op, inputs, &["y"]), vec![integers("n", &[1], &[2])]);
    for (model, operand) in [
        (extra("Relu", &["x", "x"]), 1),
        (extra("Sub", &["x", "x", "x"]), 2),
        (extra("Identity", &["x", "x"]), 1),
        (extra("Identity", &["n", "n"]), 1),
        (extra("Shape", &["x", "n"]), 1),
        (extra("Add", &["n", "n", "n"]), 2),
        (extra("Sqrt", &["x", "", "x"]), 2),
        (extra("ReduceMean", &["x", "n"]), 1),
    ] {
        refused(&model, &format!("operand {operand} is not supported"));
    }
    refused(&extra("Add", &["n"]), "operand 1 is missing");
}

/// A constant index must lie within its axis. Negative indices count from the end.
#[test]
fn constant_indices_outside_of_their_table() {
    let at = |op: &str, index: i64, shape: &[i64]| {
        let update = floats("u", &[1, 1], &[0.0]);
        let operands: &[&str] = if op.starts_with("Scatter") { &["x", "i", "u"] } else { &["x", "i"] };
        one(node(op, operands, &["y"]), vec![integers("i", shape, &[index]), update])
    };
    for (op, shape, size) in [
        ("Gather", &[1][..], 2),
        ("GatherElements", &[1, 1], 2),
        ("GatherND", &[1, 1], 2),
        ("ScatterElements", &[1, 1], 2),
    ] {
        for index in [2, 1 << 40, -3, i64::MIN] {
            let part = format!("the constant index {index} is out of range for the size {size}");
            refused(&at(op, index, shape), &part);
        }
        for index in [1, -2] {
            load_bytes(bytes(&at(op, index, shape)), &Options::default()).expect("the index is within");
        }
    }
    let kept = vec![small_integers("c", DataType::Bool, &[3], &[0, 0, 1])];
    refused(
        &one(with(node("Compress", &["x", "c"], &["y"]), int("axis", 0)), kept),
        "the constant index 2 is out of range",
    );
}

/// A zero point must have the type of the quantized values from which it is subtracted.
#[test]
fn zero_points_of_another_type() {
    let constants = || {
        vec![
            floats("s", &[], &[0.5]),
            small_integers("q", DataType::Uint8, &[8, 2], &[1; 16]),
            small_integers("unsigned", DataType::Uint8, &[], &[3]),
            small_integers("signed", DataType::Int8, &[], &[3]),
            small_integers("wide", DataType::Int16, &[], &[3]),
        ]
    };
    for zero in ["signed", "wide"] {
        let refuses = |operator: &str, operands: &[&str], place: usize| {
            let part = format!("operand {place} has type");
            refused(&one(node(operator, operands, &["y"]), constants()), &part);
        };
        refuses("DequantizeLinear", &["q", "s", zero], 2);
        refuses("MatMulInteger", &["q", "q", "unsigned", zero], 3);
        refuses("QLinearMatMul", &["q", "s", zero, "q", "s", "unsigned", "s", "unsigned"], 2);
    }
    let quantize = with(node("QuantizeLinear", &["x", "s", "unsigned"], &["y"]), int("output_dtype", 3));
    refused(&one(quantize, constants()), "but the quantized tensor has type i8");
}

/// The importer refuses functions that call themselves, functions whose expansion doubles at every level, and deeply nested
/// branches.
#[test]
fn expansion_is_bounded() {
    let call = |name: &str, from: &str, to: &str| NodeProto {
        domain: Some("f".to_string()),
        ..node(name, &[from], &[to])
    };
    let function = |name: &str, nodes: Vec<NodeProto>| FunctionProto {
        name: Some(name.to_string()),
        domain: Some("f".to_string()),
        input: vec!["a".to_string()],
        output: vec!["c".to_string()],
        node: nodes,
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(17) }],
        ..FunctionProto::default()
    };
    let mut m = one(call("F", "x", "y"), vec![]);
    m.functions = vec![function("F", vec![call("F", "a", "c")])];
    refused(&m, "calls itself");

    let mut m = one(call("F0", "x", "y"), vec![]);
    for i in 0..40 {
        let next = format!("F{}", i + 1);
        m.functions.push(function(&format!("F{i}"), vec![call(&next, "a", "b"), call(&next, "b", "c")]));
    }
    m.functions.push(function("F40", vec![node("Neg", &["a"], &["c"])]));
    refused(&m, "more than");

    let mut inner = graph(vec![], vec![node("Neg", &["x"], &["r"])], &["r"]);
    for _ in 0..200 {
        let branch = with(node("If", &["c"], &["r"]), subgraph("then_branch", inner));
        inner = graph(vec![], vec![branch], &["r"]);
    }
    let m =
        one(with(node("If", &["c"], &["y"]), subgraph("then_branch", inner)), vec![integers("c", &[], &[1])]);
    refused(&m, "recursion limit");
}

#[test]
fn external_data_stays_in_the_folder() {
    let outer = tempfile::tempdir().expect("a folder");
    let folder = outer.path().join("model");
    std::fs::create_dir_all(folder.join("sub")).expect("a folder");
    std::fs::write(outer.path().join("secret"), [0; 64]).expect("a file");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("../secret", folder.join("link")).expect("a link");
        std::os::unix::fs::symlink("/dev/zero", folder.join("zero")).expect("a link");
    }
    let absolute = outer.path().join("secret");
    let absolute = absolute.to_string_lossy().into_owned();
    for location in [
        "../secret",
        "sub/../../secret",
        "..\\secret",
        "",
        "sub",
        "link",
        "zero",
        "missing",
        absolute.as_str(),
    ] {
        let mut w = floats("w", &[2, 8], &[]);
        w.data_location = Some(1);
        w.external_data = vec![StringStringEntryProto {
            key: Some("location".to_string()),
            value: Some(location.to_string()),
        }];
        let path = folder.join("model.onnx");
        std::fs::write(&path, bytes(&one(node("Add", &["x", "w"], &["y"]), vec![w]))).expect("the model");
        let error = load(&path, &Options::default()).expect_err("it is refused").to_string();
        assert!(error.contains(&format!("external data `{location}` is refused")), "{error}");
    }
}
