//! Tests of the nodes and tensors of quantized models.

use std::collections::{BTreeMap, BTreeSet};

use drift_tests::onnx::{floats, graph, input, ints, model, node, with};
use driftc::import::onnx::quantize_static::{Activations, Settings};
use driftc::import::onnx::schema::tensor_proto::DataType;
use driftc::import::onnx::schema::{ModelProto, NodeProto, TensorProto};

use crate::models::{conv_net, sample, samples, transformer_block};
use crate::{decibels, quantized};

/// Nodes and initializers of a graph by name.
struct View<'a> {
    producers: BTreeMap<&'a str, &'a NodeProto>,
    tensors: BTreeMap<&'a str, &'a TensorProto>,
    nodes: &'a [NodeProto],
}

impl<'a> View<'a> {
    fn new(model: &'a ModelProto) -> Self {
        let graph = model.graph.as_ref().unwrap();
        let outputs = |n: &'a NodeProto| n.output.iter().map(move |o| (o.as_str(), n));
        Self {
            producers: graph.node.iter().flat_map(outputs).collect(),
            tensors: graph.initializer.iter().map(|t| (t.name(), t)).collect(),
            nodes: &graph.node,
        }
    }

    fn node(&self, name: &str) -> &'a NodeProto {
        self.nodes.iter().find(|n| n.name() == name).unwrap_or_else(|| panic!("no node {name}"))
    }

    fn operator(&self, value: &str) -> &'a str {
        self.producers.get(value).map_or("", |n| n.op_type())
    }

    /// Quantized tensor of an operand that DequantizeLinear computes.
    fn quantized(&self, node: &NodeProto, operand: usize) -> &'a TensorProto {
        let dequantize = self.producers[node.input[operand].as_str()];
        assert_eq!(dequantize.op_type(), "DequantizeLinear");
        self.tensors[dequantize.input[0].as_str()]
    }

    /// Name of the scale with which a value is quantized.
    fn scale(&self, value: &str) -> &'a str {
        let reads = |n: &&NodeProto| n.op_type() == "QuantizeLinear" && n.input[0] == value;
        self.nodes.iter().find(reads).unwrap().input[1].as_str()
    }

    fn count(&self, operator: &str) -> usize {
        self.nodes.iter().filter(|n| n.op_type() == operator).count()
    }
}

#[test]
fn layers_read_dequantized_tensors() {
    for activations in [Activations::U8, Activations::I8] {
        let settings = Settings { activations, ..Settings::default() };
        let result = quantized(&conv_net(17), settings, &samples(&[1, 3, 8, 8], 2));
        let view = View::new(&result);
        assert_eq!(view.count("BatchNormalization"), 0);
        for (name, channels) in [("Conv_c1", 8), ("Conv_c2", 8), ("Conv_c3", 8), ("Gemm_y", 4)] {
            let layer = view.node(name);
            assert_eq!(view.operator(&layer.input[0]), "DequantizeLinear");
            let (weights, bias) = (view.quantized(layer, 1), view.quantized(layer, 2));
            assert_eq!(weights.data_type(), DataType::Int8 as i32);
            assert_eq!((bias.data_type(), bias.dims.as_slice()), (DataType::Int32 as i32, &[channels][..]));
            let dequantize = view.producers[layer.input[1].as_str()];
            assert_eq!(view.tensors[dequantize.input[1].as_str()].dims, [channels]);
            assert_eq!(dequantize.attribute[0].i, Some(0));
        }
        let quantized = if activations == Activations::U8 { DataType::Uint8 } else { DataType::Int8 };
        let scaled = view.nodes.iter().filter(|n| n.op_type() == "QuantizeLinear");
        for node in scaled {
            assert_eq!(view.tensors[node.input[2].as_str()].data_type(), quantized as i32);
        }
        // Relu and Clip are computed before rounding, and moved values keep their scale.
        assert_eq!((view.operator("n1"), view.operator("c2")), ("Conv", "Conv"));
        assert_eq!(view.node("Relu_r1").input, ["n1"]);
        assert_eq!(view.scale("pool"), view.scale("r1"));
        assert_eq!(view.scale("flat"), view.scale("mean1"));
        // The alpha of the Gemm is part of its weights.
        assert!(view.node("Gemm_y").attribute.iter().all(|a| a.name() != "alpha"));
        // The output of the model keeps its name, and no float weights remain.
        assert_eq!(view.operator("y"), "DequantizeLinear");
        assert!(!view.tensors.contains_key("w1") && !view.tensors.contains_key("w3"));
    }
}

#[test]
fn matmuls_take_their_bias_and_concatenations_share_a_scale() {
    let result = quantized(&transformer_block(), Settings::default(), &samples(&[1, 6, 16], 2));
    let view = View::new(&result);
    let add = view.node("Add_q");
    assert_eq!((view.operator("q0"), add.input[1].as_str()), ("MatMul", "q0"));
    let bias = view.quantized(add, 0);
    assert_eq!((bias.data_type(), bias.dims.as_slice()), (DataType::Int32 as i32, &[16][..]));
    let weights = view.producers[view.node("MatMul_q0").input[1].as_str()];
    assert_eq!(weights.attribute[0].i, Some(1));
    // Only the concatenation reads `g`.
    assert_eq!(view.scale("g"), view.scale("c"));
    assert_eq!(view.quantized(view.node("Mul_s"), 1).data_type(), DataType::Uint8 as i32);
}

#[test]
fn left_nodes_stay_in_float() {
    // The output of the first convolution after its batch normalization is `n1`.
    for (name, node) in
        [("Conv_c2", "Conv_c2"), ("c2", "Conv_c2"), ("BatchNormalization_n1", "Conv_c1"), ("c1", "Conv_c1")]
    {
        let settings = Settings { leave: vec![name.to_owned()], ..Settings::default() };
        let model = conv_net(17);
        let result = quantized(&model, settings, &samples(&[1, 3, 8, 8], 2));
        let view = View::new(&result);
        let weights = view.tensors[view.node(node).input[1].as_str()];
        assert_eq!(weights.data_type(), DataType::Float as i32, "{name}");
        assert!(view.count("DequantizeLinear") > 5);
        assert!(decibels(&model, &result, &sample(&[1, 3, 8, 8], 99)) > 18.0);
    }
}

/// Several nodes may read one constant. Names of values and of nodes differ nevertheless.
#[test]
fn names_differ() {
    let mut float = conv_net(17);
    let graph = float.graph.as_mut().unwrap();
    graph.node[6].input = vec!["r2".into(), "w3".into(), "b2".into()];
    let twice = [node("Conv", &["sum", "w3", "b2"], &["c4"]), node("Mul", &["c4", "six"], &["m4"])];
    let last = [node("Mul", &["m4", "six"], &["m5"]), node("GlobalAveragePool", &["m5"], &["mean1"])];
    graph.node.splice(8..9, [twice, last].concat());
    let result = quantized(&float, Settings::default(), &samples(&[1, 3, 8, 8], 2));
    let nodes = &result.graph.as_ref().unwrap().node;
    let names: BTreeSet<&str> = nodes.iter().map(|n| n.name()).collect();
    let values: BTreeSet<&String> = nodes.iter().flat_map(|n| &n.output).collect();
    assert_eq!((names.len(), values.len()), (nodes.len(), nodes.len()));
}

/// A result that only a left node reads is not rounded.
#[test]
fn left_nodes_read_floats() {
    let settings = Settings { leave: vec!["Conv_c3".into()], ..Settings::default() };
    let result = quantized(&conv_net(17), settings, &samples(&[1, 3, 8, 8], 2));
    let view = View::new(&result);
    assert_eq!(view.operator(&view.node("Conv_c3").input[0]), "Clip");
    assert_eq!(view.operator(&view.node("Conv_c2").input[1]), "DequantizeLinear");
}

#[test]
fn older_operator_sets_are_raised_if_that_is_safe() {
    let nodes = vec![
        node("Conv", &["x", "w"], &["c"]),
        with(node("Unsqueeze", &["c"], &["u"]), ints("axes", &[0])),
        with(node("Squeeze", &["u"], &["s"]), ints("axes", &[0])),
        node("Relu", &["s"], &["y"]),
    ];
    let build = |opset: i64, nodes: Vec<NodeProto>| {
        let mut g = graph(vec![input("x", &["1", "2", "3", "3"])], nodes, &["y"]);
        g.initializer = vec![floats("w", &[3, 2, 1, 1], &[0.5, -1.0, 2.0, 0.25, -0.75, 0.125])];
        model(opset, g)
    };
    let float = build(11, nodes.clone());
    let result = quantized(&float, Settings::default(), &samples(&[1, 2, 3, 3], 3));
    assert_eq!(result.opset_import[0].version, Some(13));
    let view = View::new(&result);
    assert_eq!(view.node("Unsqueeze_u").input.len(), 2);
    let scale = |view: &View<'_>| view.producers[view.node("Conv_c").input[1].as_str()].input[1].clone();
    assert_eq!(view.tensors[scale(&view).as_str()].dims, [3]);
    assert!(decibels(&float, &result, &sample(&[1, 2, 3, 3], 9)) > 25.0);
    // A softmax over several axes has another meaning in operator set 13: each weight gets one scale.
    let with_softmax = [&nodes[..3], &[node("Softmax", &["s"], &["y"])]].concat();
    let result = quantized(&build(11, with_softmax), Settings::default(), &samples(&[1, 2, 3, 3], 3));
    assert_eq!(result.opset_import[0].version, Some(11));
    let view = View::new(&result);
    assert!(view.tensors[scale(&view).as_str()].dims.is_empty());
}

/// Constants of nodes and biases that a convolution adds as a separate node become part of the convolution.
#[test]
fn a_scaled_and_shifted_convolution_is_one_layer() {
    let constant = |name: &str, shape: &[i64], values: &[f32]| {
        let mut attribute = ints("value", &[]);
        attribute.r#type = Some(4);
        attribute.t = Some(floats("", shape, values));
        with(node("Constant", &[], &[name]), attribute)
    };
    let g = graph(
        vec![input("x", &["1", "2", "3", "3"])],
        vec![
            constant("w", &[2, 2, 1, 1], &[0.5, -1.0, 2.0, 0.25]),
            constant("factor", &[1, 2, 1, 1], &[3.0, -0.5]),
            constant("offset", &[2, 1, 1], &[0.25, 1.0]),
            node("Conv", &["x", "w"], &["c"]),
            node("Mul", &["c", "factor"], &["m"]),
            node("Add", &["offset", "m"], &["a"]),
            node("Relu", &["a"], &["y"]),
        ],
        &["y"],
    );
    let float = model(17, g);
    let result = quantized(&float, Settings::default(), &samples(&[1, 2, 3, 3], 3));
    let view = View::new(&result);
    assert_eq!((view.count("Mul"), view.count("Add"), view.count("Constant")), (0, 0, 0));
    assert_eq!(view.quantized(view.node("Conv_c"), 2).data_type(), DataType::Int32 as i32);
    let found = decibels(&float, &result, &sample(&[1, 2, 3, 3], 0));
    assert!(found > 25.0, "{found} dB");
}
