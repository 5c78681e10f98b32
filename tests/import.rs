//! Tests of the ONNX importer with small models: shape computations that fold away, symbolic sizes, scopes of names, operator
//! versions, and the errors of refused models.

#[path = "import/signal.rs"]
mod signal;
#[path = "import/unroll.rs"]
mod unroll;

use std::collections::BTreeMap;

use drift_tests::onnx::{
    bytes, floats, graph, input, int, integers, ints, model, node, reference, subgraph, text, typed_input,
    with,
};
use driftc::Error;
use driftc::import::onnx::schema::tensor_proto::DataType;
use driftc::import::onnx::schema::{
    AttributeProto, FunctionProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
};
use driftc::import::onnx::{DimSpec, Imported, Options, load, load_bytes, supported};
use driftc::ir::array::Array;
use driftc::ir::dim::Dim;
use driftc::ir::eval::eval;
use driftc::ir::graph_text::print;
use driftc::ir::tensor::DType;

fn imported(model: &ModelProto, options: &Options) -> Imported {
    load_bytes(bytes(model), options).expect("the model imports")
}

/// Imports a model and returns the operator names of its graph in order, separated by spaces.
fn operators(model: &ModelProto) -> String {
    let imported = imported(model, &Options::default());
    let text = print(&imported.graph);
    let lines = text.lines().filter_map(|l| l.split_once(" = ")).filter_map(|(_, r)| r.split(' ').next());
    lines.collect::<Vec<_>>().join(" ")
}

fn refusal(model: &ModelProto) -> String {
    load_bytes(bytes(model), &Options::default()).expect_err("the model is refused").to_string()
}

fn run(model: &ModelProto, inputs: &[(&str, Array)]) -> Array {
    let imported = imported(model, &Options::default());
    let inputs = inputs.iter().map(|(n, a)| ((*n).to_string(), a.clone())).collect();
    eval(&imported.graph, &inputs).expect("the graph evaluates").remove(0).1
}

/// Nodes that compute the target shape of a Reshape, such as `concat(shape(x)[0:1], [-1])`, fold away: only one reshape remains.
#[test]
fn computed_shapes_vanish() {
    let mut g = graph(
        vec![input("x", &["batch", "4", "seq"])],
        vec![
            node("Shape", &["x"], &["s"]),
            node("Gather", &["s", "zero"], &["n"]),
            node("Gather", &["s", "two"], &["t"]),
            node("Mul", &["t", "four"], &["m"]),
            node("Unsqueeze", &["n", "axes"], &["n1"]),
            node("Unsqueeze", &["m", "axes"], &["m1"]),
            with(node("Concat", &["n1", "m1"], &["target"]), int("axis", 0)),
            node("Reshape", &["x", "target"], &["y"]),
        ],
        &["y"],
    );
    g.initializer = vec![
        integers("zero", &[], &[0]),
        integers("two", &[], &[2]),
        integers("four", &[], &[4]),
        integers("axes", &[1], &[0]),
    ];
    let m = model(17, g);
    assert_eq!(operators(&m), "input reshape");
    let imported = imported(&m, &Options::default());
    assert!(print(&imported.graph).contains(": f32[batch, 4*seq]"), "{}", print(&imported.graph));
    let [note] = imported.notes.as_slice() else { panic!("{:?}", imported.notes) };
    assert!(
        note.contains("`batch` (batch), `seq` (sequence): assuming --dim batch=1..8 --dim seq=1..256;"),
        "{note}"
    );
}

/// A Shape node whose result is a graph output stays in the graph, so that the output is written at run time.
#[test]
fn a_shape_as_a_result_is_materialized() {
    let g = graph(vec![input("x", &["2", "seq"])], vec![node("Shape", &["x"], &["s"])], &["s"]);
    let m = model(17, g);
    assert_eq!(operators(&m), "input shape-values");
    assert_eq!(run(&m, &[("x", Array::f32(&[2, 3], vec![0.0; 6]))]), Array::i64s(&[2, 3]));
}

#[test]
fn symbols_take_sizes_from_options_and_shapes() {
    let g = || {
        graph(
            vec![input("x", &["batch", "seq"]), input("m", &["batch", "past + seq"]), input("u", &["?"])],
            vec![node("Neg", &["x"], &["y"]), node("Neg", &["m"], &["z"]), node("Neg", &["u"], &["w"])],
            &["y", "z", "w"],
        )
    };
    let m = model(17, g());
    let mut options = Options::default();
    options.dims.insert("batch".to_string(), DimSpec::Fixed(1));
    options.dims.insert("seq".to_string(), DimSpec::Range(1, 512));
    let graph = imported(&m, &options).graph;
    let text = print(&graph);
    assert!(text.contains("f32[1, past+seq]") && text.contains("f32[u_0]"), "{text}");
    assert_eq!(graph.bounds["seq"], (1, 512));
    assert!(!graph.bounds.contains_key("batch"));

    let mut options = Options::default();
    options.input_shapes.insert("x".to_string(), vec![2, 5]);
    options.input_shapes.insert("m".to_string(), vec![2, 9]);
    let text = print(&imported(&m, &options).graph);
    assert!(text.contains("f32[2, 9]"), "{text}");

    options.input_shapes.insert("m".to_string(), vec![3, 9]);
    let error = load_bytes(bytes(&m), &options).expect_err("batches differ").to_string();
    assert!(error.contains("is not batch"), "{error}");

    let dims = BTreeMap::from([("sequence".to_string(), DimSpec::Fixed(1))]);
    let error = load_bytes(bytes(&m), &Options { dims, ..Options::default() }).expect_err("no such symbol");
    assert!(
        error.to_string().contains("the model's symbolic sizes are `batch`, `past`, `seq`, `u_0`"),
        "{error}"
    );
}

/// Exporters may give equal sizes different symbol names. An option declares one symbol equal to another.
#[test]
fn a_symbol_can_equal_another() {
    let mut g = graph(
        vec![input("x", &["s0", "4"]), input("y", &["s1", "4"])],
        vec![
            with(node("Shape", &["x"], &["s"]), int("end", 1)),
            with(node("Concat", &["s", "rest"], &["t"]), int("axis", 0)),
            node("Reshape", &["y", "t"], &["z"]),
        ],
        &["z"],
    );
    g.initializer = vec![integers("rest", &[1], &[-1])];
    let m = model(17, g);
    assert!(refusal(&m).contains("4*s1 elements are not a multiple of s0"));
    let dims = BTreeMap::from([("s1".to_string(), DimSpec::Is(Dim::symbol("s0")))]);
    let graph = imported(&m, &Options { dims, ..Options::default() }).graph;
    assert!(!graph.bounds.contains_key("s1"));
}

/// Bounds that the user gives for a symbol stay, even if the user also gives a shape. The sizes of the shape must lie within
/// the bounds.
#[test]
fn shapes_do_not_narrow_ranges() {
    let g = graph(vec![input("x", &["n", "seq"])], vec![node("Neg", &["x"], &["y"])], &["y"]);
    let m = model(17, g);
    let options = |n| Options {
        dims: BTreeMap::from([("seq".to_string(), DimSpec::Range(2, 8))]),
        input_shapes: BTreeMap::from([("x".to_string(), vec![3, n])]),
        ..Options::default()
    };
    let text = print(&imported(&m, &options(5)).graph);
    assert!(text.contains("f32[3, seq]"), "{text}");
    let error = load_bytes(bytes(&m), &options(9)).expect_err("9 is more than 8").to_string();
    assert!(error.contains("is not seq in 2..8"), "{error}");
}

/// A sample array for an input decides the input's sizes. The input becomes a constant with the sample's value only if the
/// importer needs the value.
#[test]
fn samples_that_decide_become_constants() {
    let inputs = vec![input("x", &["n", "3"]), typed_input("shape", DataType::Int64, &["1"])];
    let decides = model(17, graph(inputs.clone(), vec![node("Reshape", &["x", "shape"], &["y"])], &["y"]));
    let nodes = vec![node("Neg", &["x"], &["y"]), node("Abs", &["shape"], &["z"])];
    let computes = model(17, graph(inputs, nodes, &["y", "z"]));
    let samples = BTreeMap::from([
        ("x".to_string(), Array::f32(&[2, 3], vec![0.0; 6])),
        ("shape".to_string(), Array::i64s(&[-1])),
    ]);
    let options = Options { samples, ..Options::default() };
    let pinned = imported(&decides, &options);
    assert_eq!((pinned.constants.as_slice(), pinned.graph.inputs().len()), (&["shape".to_string()][..], 1));
    let open = imported(&computes, &options);
    assert_eq!((open.constants.len(), open.graph.inputs().len()), (0, 2));
}

/// The importer lowers assumed upper bounds until no tensor exceeds 128 MiB.
#[test]
fn assumed_bounds_stay_small() {
    let matmul = vec![node("MatMul", &["x", "w"], &["y"])];
    let mut g = graph(vec![input("x", &["batch", "seq", "2"])], matmul, &["y"]);
    g.initializer = vec![floats("w", &[2, 40000], &vec![0.0; 80000])];
    let whole = imported(&model(17, g), &Options::default());
    assert_eq!((whole.graph.bounds["batch"], whole.graph.bounds["seq"]), ((1, 2), (1, 256)));
    assert!(whole.notes[0].contains("more than 128 MiB"), "{:?}", whole.notes);
    assert_eq!(whole.assumed.keys().collect::<Vec<_>>(), ["batch", "seq"]);
}

#[test]
fn softmax_flattens_until_opset_12() {
    let m = |opset| {
        let softmax = with(node("Softmax", &["x"], &["y"]), int("axis", 1));
        model(opset, graph(vec![input("x", &["2", "2", "2"])], vec![softmax], &["y"]))
    };
    let x = Array::f32(&[2, 2, 2], vec![0.0; 8]);
    assert_eq!(run(&m(12), &[("x", x.clone())]).data, Array::f32(&[8], vec![0.25; 8]).data);
    assert_eq!(run(&m(13), &[("x", x)]).data, Array::f32(&[8], vec![0.5; 8]).data);
}

#[test]
fn einsum_takes_ellipsis_diagonals_and_implicit_results() {
    let m = |equation: &str, a: &[&str], b: &[&str]| {
        let einsum = with(node("Einsum", &["a", "b"], &["y"]), text("equation", equation));
        model(13, graph(vec![input("a", a), input("b", b)], vec![einsum], &["y"]))
    };
    let a = Array::f32(&[2, 2], vec![1.0, 2.0, 3.0, 4.0]);
    let b = Array::f32(&[2, 2], vec![5.0, 6.0, 7.0, 8.0]);
    let two = ["2", "2"];
    let go = |equation: &str| run(&m(equation, &two, &two), &[("a", a.clone()), ("b", b.clone())]);
    assert_eq!(go("ij,jk"), Array::f32(&[2, 2], vec![19.0, 22.0, 43.0, 50.0]));
    assert_eq!(go("ii,jk->kj"), Array::f32(&[2, 2], vec![25.0, 35.0, 30.0, 40.0]));
    assert_eq!(go("...i,...i->..."), Array::f32(&[2], vec![17.0, 53.0]));
    assert_eq!(go("ij,ij->"), Array::f32(&[], vec![70.0]));
}

/// An `If` with a condition that is known at import is replaced by its branch, which may read values of the outer graph.
#[test]
fn a_decided_if_is_inlined() {
    let then = graph(vec![], vec![node("Neg", &["x"], &["t"])], &["t"]);
    let other = graph(vec![], vec![node("Frobnicate", &["x"], &["e"])], &["e"]);
    let branch =
        with(with(node("If", &["c"], &["y"]), subgraph("then_branch", then)), subgraph("else_branch", other));
    let mut g = graph(
        vec![input("x", &["seq"])],
        vec![node("Size", &["x"], &["n"]), node("Greater", &["n", "zero"], &["c"]), branch],
        &["y"],
    );
    g.initializer = vec![integers("zero", &[], &[0])];
    assert_eq!(operators(&model(17, g)), "input neg");
}

#[test]
fn local_functions_are_inlined_with_their_attributes() {
    let body = with(node("LeakyRelu", &["a"], &["b"]), reference("alpha", "slope"));
    let function = FunctionProto {
        name: Some("Leaky".to_string()),
        domain: Some("my".to_string()),
        input: vec!["a".to_string()],
        output: vec!["b".to_string()],
        attribute: vec!["slope".to_string()],
        node: vec![body],
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(17) }],
        ..FunctionProto::default()
    };
    let mut slope = int("slope", 0);
    slope.r#type = Some(1);
    slope.i = None;
    slope.f = Some(0.5);
    let call = NodeProto { domain: Some("my".to_string()), ..with(node("Leaky", &["x"], &["y"]), slope) };
    let mut m = model(17, graph(vec![input("x", &["2"])], vec![call], &["y"]));
    m.functions = vec![function];
    let y = run(&m, &[("x", Array::f32(&[2], vec![-2.0, 2.0]))]);
    assert_eq!(y, Array::f32(&[2], vec![-1.0, 2.0]));
}

/// Nodes of an ONNX file may be listed after nodes that read their results; the importer sorts them.
#[test]
fn nodes_are_sorted() {
    let nodes = vec![node("Abs", &["t"], &["y"]), node("Neg", &["x"], &["t"])];
    assert_eq!(operators(&model(17, graph(vec![input("x", &["2"])], nodes, &["y"]))), "input neg abs");
}

/// The four statistics of a BatchNormalization fold into one scale and one shift.
#[test]
fn batch_normalization_folds() {
    let mut g = graph(
        vec![input("x", &["1", "2", "2", "2"])],
        vec![node("BatchNormalization", &["x", "s", "b", "m", "v"], &["y"])],
        &["y"],
    );
    g.initializer = vec![
        floats("s", &[2], &[1.0, 2.0]),
        floats("b", &[2], &[0.0, 1.0]),
        floats("m", &[2], &[0.0, 3.0]),
        floats("v", &[2], &[1.0, 4.0]),
    ];
    let m = model(17, g);
    assert_eq!(operators(&m), "input constant constant mul add");
    let y = run(&m, &[("x", Array::f32(&[1, 2, 2, 2], vec![1.0; 8]))]).to_floats();
    assert!((y[0] - 1.0).abs() < 1e-4 && (y[7] - (1.0 - 2.0)).abs() < 1e-4, "{y:?}");
}

#[test]
fn external_data_is_borrowed_from_the_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let values: Vec<u8> = [0.5f32, -1.5].iter().flat_map(|v| v.to_le_bytes()).collect();
    std::fs::write(folder.path().join("w.bin"), [vec![7u8; 3], values].concat()).expect("weights");
    let mut w = floats("w", &[2], &[]);
    let entry = |key: &str, value: &str| StringStringEntryProto {
        key: Some(key.to_string()),
        value: Some(value.to_string()),
    };
    w.data_location = Some(1);
    w.external_data = vec![entry("location", "w.bin"), entry("offset", "3"), entry("length", "8")];
    let mut g = graph(vec![input("x", &["2"])], vec![node("Add", &["x", "w"], &["y"])], &["y"]);
    g.initializer = vec![w];
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, bytes(&model(17, g))).expect("the model");
    let imported = load(&path, &Options::default()).expect("it imports");
    let inputs = BTreeMap::from([("x".to_string(), Array::f32(&[2], vec![1.0, 1.0]))]);
    let y = eval(&imported.graph, &inputs).expect("it evaluates").remove(0).1;
    assert_eq!(y, Array::f32(&[2], vec![1.5, -0.5]));
}

/// The value of an input that decides sizes can be given at import, which makes the input a constant.
#[test]
fn an_input_can_become_a_constant() {
    let inputs = vec![input("x", &["2", "3"]), typed_input("shape", DataType::Int64, &["1"])];
    let m = model(17, graph(inputs, vec![node("Reshape", &["x", "shape"], &["y"])], &["y"]));
    assert!(refusal(&m).contains("the target shape is computed from data at run time"));
    let mut options = Options::default();
    options.constants.insert("shape".to_string(), Array::i64s(&[-1]));
    let graph = imported(&m, &options).graph;
    assert_eq!(graph.inputs().len(), 1);
    assert!(print(&graph).contains("f32[6]"));
}

/// The error of a refused model lists every refused node with operator, opset, types and reason, but no node that only depends
/// on a refused one.
#[test]
fn refusals_are_collected() {
    let m = model(
        17,
        graph(
            vec![input("x", &["2", "seq"])],
            vec![
                node("Frobnicate", &["x"], &["a"]),
                node("Neg", &["a"], &["b"]),
                with(node("Relu", &["x"], &["c"]), int("speed", 3)),
                with(node("Transpose", &["x"], &["d"]), ints("perm", &[0, 7])),
            ],
            &["b", "c", "d"],
        ),
    );
    match load_bytes(bytes(&m), &Options::default()) {
        Err(Error::Unsupported { nodes }) => {
            let names: Vec<&str> = nodes.iter().map(|n| n.node.as_str()).collect();
            assert_eq!(names, ["Frobnicate_a", "Relu_c", "Transpose_d"]);
            assert_eq!((nodes[0].operator.as_str(), nodes[0].opset), ("Frobnicate", 17));
            assert_eq!(nodes[0].types, "f32[2, seq]");
            assert_eq!(nodes[1].reason, "attribute `speed` is not supported");
            assert_eq!(nodes[2].reason, "axis 7 is outside a tensor of rank 2");
        }
        other => panic!("the import must fail with three unsupported nodes, but gives {other:?}"),
    }
}

#[test]
fn the_list_of_operators_has_no_doubles() {
    let list = supported();
    let ranges: Vec<_> =
        list.windows(2).filter(|w| w[0].domain == w[1].domain && w[0].name == w[1].name).collect();
    assert!(ranges.is_empty(), "{ranges:?}");
    assert!(list.len() > 150);
}

/// ONNX files with a newer file format or operator set than the importer knows are read with a note for the user.
#[test]
fn newer_versions_are_notes() {
    let g = || graph(vec![input("x", &["2"])], vec![node("Neg", &["x"], &["y"])], &["y"]);
    let newest = ModelProto { ir_version: Some(14), ..model(28, g()) };
    assert_eq!(imported(&newest, &Options::default()).notes, Vec::<String>::new());
    let newer = ModelProto { ir_version: Some(99), ..model(77, g()) };
    let notes = imported(&newer, &Options::default()).notes;
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].contains("99") && notes[1].contains("opset 77"), "{notes:?}");
}

/// A node whose operator had another meaning in the model's operator set is refused; the error names the supported versions.
#[test]
fn changed_meanings_are_refused() {
    let mut g = graph(vec![input("x", &["2"])], vec![node("Tile", &["x", "n"], &["y"])], &["y"]);
    g.initializer = vec![integers("n", &[1], &[2])];
    assert_eq!(operators(&model(6, g.clone())), "input reshape expand reshape");
    let error = refusal(&model(5, g));
    assert!(error.contains("Tile, opset 5") && error.contains("from opset 6 on"), "{error}");
    let gelu = graph(vec![input("x", &["2"])], vec![node("Gelu", &["x"], &["y"])], &["y"]);
    assert!(refusal(&model(19, gelu)).contains("from opset 20 on"));
}

/// Models of opset 5 are read: the attribute `axis` of `Add` aligns the second operand with axes of the first, and `Cast` names
/// its type by a string.
#[test]
fn the_first_opsets_are_read() {
    let with_axis = |attributes: Vec<AttributeProto>| {
        let sum = attributes.into_iter().fold(node("Add", &["x", "b"], &["s"]), with);
        let cast = with(node("Cast", &["s"], &["y"]), text("to", "INT32"));
        model(5, graph(vec![input("x", &["2", "3"]), input("b", &["2"])], vec![sum, cast], &["y"]))
    };
    let m = with_axis(vec![int("broadcast", 1), int("axis", 0), ints("consumed_inputs", &[0, 0])]);
    let (x, b) = (Array::f32(&[2, 3], vec![0.0; 6]), Array::f32(&[2], vec![1.0, 2.0]));
    let sums = Array::int(DType::I32, &[2, 3], vec![1, 1, 1, 2, 2, 2]);
    // From opset 6 on, types are integers.
    assert!(
        refusal(&ModelProto { opset_import: model(6, Default::default()).opset_import, ..m.clone() })
            .contains("attribute `to`")
    );
    assert_eq!(run(&m, &[("x", x), ("b", b)]), sums);
    let bn = node("Dropout", &["x"], &["y"]);
    let dropout = |node| model(6, graph(vec![input("x", &["2"])], vec![node], &["y"]));
    assert!(refusal(&dropout(bn.clone())).contains("training"));
    assert_eq!(operators(&dropout(with(bn, int("is_test", 1)))), "input");
}

/// A `Cast` to f16 turns finite numbers beyond the range of f16 into infinities.
#[test]
fn casts_to_f16_overflow_to_infinity() {
    let cast = with(node("Cast", &["c"], &["y"]), int("to", DataType::Float16 as i64));
    let mut g = graph(vec![], vec![cast], &["y"]);
    g.initializer = vec![floats("c", &[4], &[65504.0, 65519.0, 65520.0, -1e9])];
    let y = run(&model(17, g), &[]);
    assert_eq!(y.floats(), Ok(&[65504.0, 65504.0, f32::INFINITY, f32::NEG_INFINITY][..]));
}

/// `GridSample` accepts the mode names of the model's opset: names of image filters (such as `bilinear`) up to opset 19, other
/// names (such as `linear`) later.
#[test]
fn grid_samples_have_the_modes_of_their_version() {
    let sampling = |opset: i64, mode: &str, image: DataType, grid: &[&str]| {
        let inputs = vec![typed_input("x", image, &["2", "3", "h", "8"]), input("at", grid)];
        let nodes = vec![with(node("GridSample", &["x", "at"], &["y"]), text("mode", mode))];
        model(opset, graph(inputs, nodes, &["y"]))
    };
    let places = ["2", "4", "5", "2"];
    let line = |opset, mode| {
        let text =
            print(&imported(&sampling(opset, mode, DataType::Float, &places), &Options::default()).graph);
        text.lines().find(|line| line.contains("grid-sample")).unwrap_or_default().to_owned()
    };
    let linear = r#"{"mode":"linear","padding":"zeros","align_corners":false} : f32[2, 3, 4, 5]"#;
    assert!(line(16, "bilinear").contains(linear) && line(20, "linear").contains(linear));
    assert!(line(16, "bicubic").contains(r#""mode":"cubic""#) && line(22, "nearest").contains("nearest"));
    let refused = refusal(&sampling(20, "area", DataType::Float, &places));
    assert!(refused.contains("attribute `mode` is `area`"), "{refused}");
    let refused = refusal(&sampling(20, "linear", DataType::Int32, &places));
    assert!(refused.contains("operand 0 has type i32") && refused.contains("Cast"), "{refused}");
    let refused = refusal(&sampling(20, "linear", DataType::Float, &["2", "4", "5", "3"]));
    assert!(refused.contains("the last of size 2"), "{refused}");
}
