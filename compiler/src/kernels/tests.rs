//! Tests that the candidates of all kernels give valid shaders for all layouts, element types and symbolic dimensions.
//! Other tests run the shaders on a device and check the results.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use rayon::prelude::*;

use super::KERNELS;
use crate::compile::{self, lower};
use crate::emit::spirv::{Options, emit};
use crate::ir::dim::{Bounds, Dim};
use crate::ir::element::{Arg, Element, EpilogueStep, UnaryFn};
use crate::ir::graph_text::parse;
use crate::ir::op::{Constant, Op};
use crate::ir::ops::constant::random;
use crate::ir::storage::Storage;
use crate::ir::tensor::{DType, Layout, TensorDesc};
use crate::plan::faults::uses_subgroups;
use crate::shader::problem::{Operand, Placement, Problem};
use crate::shader::{Need, OutsideReads};
use crate::target::TargetProfile;

fn dims(shape: &str) -> Vec<Dim> {
    shape.split(',').map(|d| Dim::parse(d.trim()).unwrap()).collect()
}

/// Returns the device features that the capabilities of a SPIR-V module need.
pub(super) fn needs_of(words: &[u32]) -> BTreeSet<Need> {
    let mut found = BTreeSet::new();
    let mut rest = &words[5..];
    while let [first, operand, ..] = rest {
        let (length, instruction) = (*first >> 16, *first & 0xffff);
        if instruction == CAPABILITY {
            found.extend(CAPABILITIES.iter().filter(|(number, _)| number == operand).map(|(_, need)| *need));
        }
        rest = &rest[(length as usize).max(1)..];
    }
    found
}

/// Opcode of `OpCapability`.
const CAPABILITY: u32 = 17;
/// SPIR-V capabilities by number, with the device features that they need.
const CAPABILITIES: [(u32, Need); 5] = [
    (9, Need::F16),
    (61, Need::Subgroups),
    (62, Need::SubgroupVote),
    (65, Need::SubgroupShuffle),
    (6019, Need::IntDotProduct),
];

/// Target profile for which these tests emit shaders.
static TARGET: LazyLock<TargetProfile> = LazyLock::new(|| TargetProfile::load("lavapipe").unwrap());

/// Pairs of layouts that are tested: layout of the operands, and layout of the result.
const LAYOUTS: [(Layout, Layout); 7] = [
    (Layout::RowMajor, Layout::RowMajor),
    (Layout::SLICES4, Layout::SLICES4),
    (Layout::RowMajor, Layout::SLICES4),
    (Layout::SLICES4, Layout::RowMajor),
    (Layout::Slices4(Storage::Texture2d), Layout::Slices4(Storage::Texture3d)),
    (Layout::Slices4(Storage::TexelBuffer), Layout::Slices4(Storage::TextureArray)),
    (Layout::Slices4(Storage::Texture3d), Layout::RowMajor),
];

/// Emits the shaders of an operator in f32 and f16. Operands are given as shapes; `=` marks constants and `#` marks
/// indices. Returns the names of the kernels that can compute the operator.
fn emit_all(op: &str, attributes: serde_json::Value, operands: &[&str]) -> Vec<&'static str> {
    emit_types(op, attributes, operands, &[DType::F32, DType::F16])
}

fn emit_types(
    op: &str,
    attributes: serde_json::Value,
    operands: &[&str],
    types: &[DType],
) -> Vec<&'static str> {
    let op = Op::from_text(op, attributes).unwrap().unwrap();
    let all: Vec<(DType, usize)> =
        types.iter().flat_map(|dtype| (0..LAYOUTS.len()).map(|nth| (*dtype, nth))).collect();
    let found = all.into_par_iter().map(|(dtype, nth)| emit_with_layout(&op, operands, dtype, nth));
    let found = found.reduce(BTreeSet::new, |a, b| &a | &b);
    KERNELS.iter().map(|kernel| kernel.name).filter(|name| found.contains(name)).collect()
}

/// Emits the shaders of an operator, as [`emit_types`] does, for one element type and for the pair of layouts
/// `LAYOUTS[nth]`.
fn emit_with_layout(op: &Op, operands: &[&str], dtype: DType, nth: usize) -> BTreeSet<&'static str> {
    let bounds = Bounds::from(["n", "h", "w"].map(|symbol| (symbol.into(), (1, 64))));
    let (layout, result_layout) = LAYOUTS[nth];
    let mut found = BTreeSet::new();
    let shapes: Vec<Vec<Dim>> = operands.iter().map(|s| dims(s.trim_start_matches(['=', '#']))).collect();
    let constants: Vec<Option<Constant>> = operands
        .iter()
        .zip(&shapes)
        .map(|(text, shape)| {
            let shape: Option<Vec<usize>> =
                shape.iter().map(|d| usize::try_from(d.as_known()?).ok()).collect();
            text.starts_with('=').then(|| Constant::from_array(&random(dtype, &shape.unwrap(), 1)))
        })
        .collect();
    let descs: Vec<TensorDesc> = operands
        .iter()
        .zip(&shapes)
        .map(|(text, s)| TensorDesc::new(if text.starts_with('#') { DType::I64 } else { dtype }, s.clone()))
        .collect();
    let computed = op.operation().infer(&descs.iter().collect::<Vec<_>>()).unwrap();
    let placement = |shape: &[Dim], layout: Layout| {
        let layout = if layout.holds(shape) { layout } else { Layout::RowMajor };
        Placement::from_layout(layout, shape)
    };
    let mut operands: Vec<Operand<'_>> = descs
        .iter()
        .zip(&constants)
        .map(|(d, c)| Operand {
            dtype: d.dtype,
            shape: d.shape.clone(),
            placement: placement(&d.shape, if c.is_some() { Layout::RowMajor } else { layout }),
            storage: layout.storage(),
            constant: c.as_ref(),
            quantized: None,
        })
        .collect();
    let arity = operands.len();
    let result = Operand {
        dtype: computed.dtype,
        shape: computed.shape.clone(),
        placement: placement(&computed.shape, result_layout),
        storage: result_layout.storage(),
        constant: None,
        quantized: None,
    };
    let float = computed.dtype.is_float();
    // An epilogue with an operand of the result's shape.
    let mut epilogue = Vec::new();
    if float {
        let add = Element::Binary(crate::ir::element::BinaryFn::Add);
        epilogue.push(EpilogueStep { element: Element::Unary(UnaryFn::Gelu), args: vec![Arg::Step(0)] });
        epilogue.push(EpilogueStep { element: add, args: vec![Arg::Step(1), Arg::Input(arity as u32)] });
        operands.push(Operand { constant: None, ..result.clone() });
    }
    let problem = Problem {
        op,
        operands,
        arity,
        epilogue: &epilogue,
        computed: computed.dtype,
        result,
        bounds: &bounds,
        target: &TARGET,
    };
    for kernel in KERNELS {
        let candidates = (kernel.candidates)(&problem);
        for (number, candidate) in candidates.into_iter().enumerate() {
            // Layouts and f16 change only the hooks. The cheapest candidate is emitted with all layouts and types, each
            // other candidate in f32 with one layout.
            let is_emitted = dtype != DType::F16 && number % LAYOUTS.len() == nth;
            if number > 0 && !is_emitted {
                continue;
            }
            assert!(candidate.cost.is_finite() && candidate.cost > 0.0, "{candidate:?}");
            let checked = Options { finish: Some(drift_spirv_tools::validate), ..Options::default() };
            for launch in kernel.specialized(&problem, &candidate).unwrap() {
                let words = emit(&launch.wgsl, checked)
                    .unwrap_or_else(|e| panic!("{} {candidate:?} {op:?}: {e}\n{}", kernel.name, launch.wgsl));
                assert_eq!(launch.needs, needs_of(&words), "{} {candidate:?}", kernel.name);
                // Launches must be valid for drivers with faults in subgroup operations.
                let safe = launch.workgroup[1..] == [1, 1] && launch.subgroup_size.is_some();
                assert!(safe || !uses_subgroups(&launch), "{} {candidate:?}", kernel.name);
            }
            found.insert(kernel.name);
        }
    }
    found
}

fn window(stride: usize, pads: usize, group: usize, axes: usize) -> serde_json::Value {
    serde_json::json!({
        "strides": vec![stride; axes], "dilations": vec![1; axes], "pads_begin": vec![pads; axes],
        "pads_end": vec![pads; axes], "group": group,
    })
}

#[test]
fn int8_matmuls() {
    for (trans_a, trans_b, operands) in [
        (false, false, ["2,3,5,7", "=2,3,7,9"]),
        (false, false, ["n,8,w,8", "8,8,8"]),
        (true, true, ["2,3,7,5", "=2,3,9,7"]),
        (false, true, ["3,h", "10,h"]),
    ] {
        let attributes = serde_json::json!({ "trans_a": trans_a, "trans_b": trans_b });
        let found = emit_types("matmul", attributes, &operands, &[DType::I8, DType::U8]);
        assert!(found.contains(&"matmul_dot"), "{operands:?}: {found:?}");
        assert_eq!(found.contains(&"matvec_dot"), !operands[0].contains('w'), "{operands:?}: {found:?}");
    }
}

#[test]
fn int8_convolutions() {
    let conv = |a, operands: &[&str]| emit_types("conv", a, operands, &[DType::I8, DType::U8]);
    assert!(conv(window(2, 1, 1, 2), &["2,3,13,11", "=10,3,3,3"]).contains(&"conv_dot"));
    assert!(conv(window(1, 0, 1, 1), &["n,6,w", "=11,6,1"]).contains(&"conv_dot"));
    assert!(conv(window(1, 1, 1, 3), &["1,5,4,5,6", "=6,5,2,3,1"]).contains(&"conv_dot"));
    assert_eq!(conv(window(1, 1, 2, 2), &["n,16,h,w", "=24,8,3,3"]), ["conv_direct"]);
}

#[test]
fn convolutions() {
    let conv = |a, operands: &[&str]| emit_all("conv", a, operands);
    assert!(conv(window(2, 1, 1, 2), &["2,3,13,11", "=10,3,3,3", "=10"]).contains(&"conv"));
    assert!(conv(window(1, 1, 2, 2), &["n,16,h,w", "=24,8,3,3"]).contains(&"conv"));
    assert!(conv(window(1, 2, 1, 1), &["1,6,19", "=5,6,4", "=5"]).contains(&"conv"));
    assert!(conv(window(1, 0, 1, 2), &["2,37,5,7", "=42,37,1,1", "=42"]).contains(&"conv_1x1"));
    assert!(conv(window(2, 0, 1, 2), &["n,37,h,w", "42,37,1,1", "42"]).contains(&"conv_1x1"));
    assert!(conv(window(1, 0, 1, 1), &["n,6,w", "=11,6,1"]).contains(&"conv_1x1"));
    assert!(conv(window(1, 1, 10, 2), &["2,10,9,11", "=10,1,3,3", "=10"]).contains(&"depthwise"));
    assert!(conv(window(2, 1, 8, 1), &["n,8,w", "=8,1,4"]).contains(&"depthwise"));
    assert!(conv(window(2, 1, 3, 2), &["2,6,h,w", "9,2,3,2", "9"]).contains(&"conv_direct"));
    assert!(conv(window(1, 1, 1, 3), &["n,5,4,5,6", "=6,5,2,3,1"]).contains(&"conv_direct"));
}

#[test]
fn transposed_convolutions() {
    let conv = |stride, pads, group, axes: usize, operands: &[&str]| {
        let mut a = window(stride, pads, group, axes);
        a["output_padding"] = vec![stride - 1; axes].into();
        emit_all("conv-transpose", a, operands)
    };
    assert!(conv(2, 1, 2, 2, &["2,4,5,3", "4,3,3,4", "6"]).contains(&"conv_direct"));
    assert!(conv(2, 0, 4, 1, &["n,4,w", "=4,1,3"]).contains(&"conv_direct"));
    assert!(conv(2, 1, 1, 2, &["2,6,5,7", "=6,10,4,4", "=10"]).contains(&"conv_transpose"));
    assert!(conv(3, 1, 2, 2, &["n,8,h,w", "=8,12,3,2"]).contains(&"conv_transpose"));
    assert!(conv(2, 1, 1, 1, &["n,9,w", "=9,13,5"]).contains(&"conv_transpose"));
}

#[test]
fn pools() {
    let kinds = [
        serde_json::json!("max"),
        serde_json::json!({"max-index": {"column_major": false}}),
        serde_json::json!({"max-index": {"column_major": true}}),
        serde_json::json!({"average": {"count_include_pad": true}}),
        serde_json::json!({"average": {"count_include_pad": false}}),
        serde_json::json!({"lp": {"p": 1}}),
        serde_json::json!({"lp": {"p": 3}}),
    ];
    for kind in kinds {
        for (axes, shape) in [(1, "n,3,w"), (2, "2,6,9,h"), (3, "1,5,4,5,6")] {
            let mut a = window(2, 1, 1, axes);
            a.as_object_mut().unwrap().remove("group");
            a["kernel"] = vec![3; axes].into();
            a["kind"] = kind.clone();
            a["ceil"] = true.into();
            assert_eq!(emit_all("pool", a.clone(), &[shape]), ["pool"]);
            if kind.to_string().contains("max") {
                assert_eq!(emit_types("pool", a, &[shape], &INTEGERS), ["pool"]);
            }
        }
    }
}

const INTEGERS: [DType; 3] = [DType::I8, DType::I64, DType::U8];

#[test]
fn pads_and_concats() {
    for mode in ["constant", "reflect", "edge", "wrap"] {
        for (shape, before, after) in
            [("2,3,5,4", [0, 1, 2, 0], [1, 0, 3, 4]), ("n,8,h,4", [0, 0, 2, 0], [0, 0, 0, 0])]
        {
            let a = serde_json::json!({"mode": mode, "before": before, "after": after, "value": -1.5});
            assert_eq!(emit_all("pad", a.clone(), &[shape]), ["pad"]);
            assert_eq!(emit_types("pad", a, &[shape], &INTEGERS), ["pad"]);
        }
    }
    for (axis, operands) in [
        (1, ["2,4,3,5", "2,7,3,5", "2,2,3,5"]),
        (1, ["2,4,3,8", "2,8,3,8", "2,3,3,8"]),
        (2, ["n,4,h,5", "n,4,w,5", "n,4,3,5"]),
        (3, ["n,6,h,8", "n,6,h,4", "n,6,h,3"]),
    ] {
        let a = serde_json::json!({"axis": axis});
        assert_eq!(emit_all("concat", a.clone(), &operands), ["concat"]);
        assert_eq!(emit_types("concat", a, &operands, &[DType::I32, DType::Bool]), ["concat"]);
    }
}

#[test]
fn resizes() {
    let filters = [
        serde_json::json!({"nearest": "floor"}),
        serde_json::json!({"nearest": "round-prefer-ceil"}),
        serde_json::json!("linear"),
        serde_json::json!({"cubic": {"a": -0.75}}),
    ];
    let coordinates = [
        "half-pixel",
        "half-pixel-symmetric",
        "pytorch-half-pixel",
        "align-corners",
        "asymmetric",
        "tf-half-pixel-for-nn",
    ];
    for filter in &filters {
        for (i, coordinates) in coordinates.iter().chain(&["tf-crop-and-resize"]).enumerate() {
            let mut a = serde_json::json!({
                "filter": filter, "coordinates": coordinates, "extrapolation": 2.0, "roi": [],
                "antialias": i % 2 == 0 && filter["nearest"].is_null(), "exclude_outside": i % 3 == 0,
                "scales": [1.0, 1.0, 2.0, 0.5], "sizes": [2, 6, "2*h", "w"],
            });
            if *coordinates == "tf-crop-and-resize" {
                a["roi"] = serde_json::json!([0.0, 0.0, -0.1, 0.2, 1.0, 1.0, 0.8, 1.1]);
            }
            assert_eq!(emit_all("resize", a.clone(), &["2,6,h,2*w"]), ["resize"]);
            a["scales"] = serde_json::json!([1.0, 1.5, 1.0, 1.25]);
            a["sizes"] = serde_json::json!([2, 9, 5, 5]);
            assert_eq!(emit_all("resize", a.clone(), &["2,6,5,4"]), ["resize"]);
            assert_eq!(emit_types("resize", a, &["2,6,5,4"], &INTEGERS), ["resize"]);
        }
    }
}

#[test]
fn gather_matmuls() {
    for trans_b in [false, true] {
        let a = serde_json::json!({"matmul": {"trans_a": false, "trans_b": trans_b}});
        let matrices = if trans_b { "5,24,40" } else { "5,40,24" };
        let found = emit_all("gather-matmul", a.clone(), &["n,1,1,40", &format!("={matrices}"), "#n,2"]);
        assert!(found.contains(&"matvec_panels") && found.contains(&"matmul_direct"), "{found:?}");
        assert_eq!(emit_all("gather-matmul", a, &["n,2,3,40", matrices, "#2"]), ["matmul_direct"]);
    }
}

#[test]
fn grid_samples() {
    for mode in ["nearest", "linear", "cubic"] {
        for (i, padding) in ["zeros", "border", "reflection"].into_iter().enumerate() {
            let a = serde_json::json!({"mode": mode, "padding": padding, "align_corners": i == 1});
            for (x, grid) in [("n,6,9", "n,w,1"), ("2,6,h,8", "2,4,w,2"), ("n,3,4,5,6", "n,2,h,4,3")] {
                assert_eq!(emit_all("grid-sample", a.clone(), &[x, grid]), ["grid_sample"]);
            }
        }
    }
}

#[test]
fn row_kernels() {
    let shapes = ["2,6,5,8", "3,1,1,7", "n,8,h,4", "2,h,w,5"];
    let kinds = ["sum", "mean", "max", "min", "prod", "l1", "l2", "log-sum", "log-sum-exp", "sum-square"];
    for shape in shapes {
        for axis in 0..4 {
            let a = serde_json::json!({"axis": axis, "log": axis == 1});
            assert_eq!(emit_all("softmax", a, &[shape]), ["softmax"]);
            let a = serde_json::json!({"axis": axis, "exclusive": axis == 1, "reverse": axis == 2});
            assert_eq!(emit_types("cum-sum", a, &[shape], &[DType::F16, DType::I8]), ["cum_sum"]);
            let a = serde_json::json!({"axis": axis, "largest": axis == 1, "last": axis == 2, "keepdims": axis == 3});
            assert_eq!(emit_types("arg-reduce", a, &[shape], &[DType::F16, DType::U8]), ["arg_reduce"]);
        }
        for kind in kinds {
            for (axes, keepdims) in [(&[1][..], true), (&[2, 3], true), (&[0, 3], false), (&[], false)] {
                let a = serde_json::json!({"kind": kind, "axes": axes, "keepdims": keepdims});
                assert_eq!(
                    emit_types("reduce", a, &[shape], &[DType::F16, DType::I16, DType::U64]),
                    ["reduce"]
                );
            }
        }
        for (axis, rms) in [(1, false), (2, true), (3, false)] {
            let a = serde_json::json!({"axis": axis, "epsilon": 1e-5, "rms": rms});
            assert_eq!(emit_all("layer-norm", a, &[shape, "1", "1,1,1"]), ["normalize"]);
        }
        let a = serde_json::json!({"epsilons": [1e-5, 1e-3]});
        assert_eq!(emit_all("add-norms", a, &[shape, "1", shape, "1,1,1"]), ["add_norms"]);
    }
    for (terms, shape) in [("3,37,100", "37,100"), ("2,n,36", "n,36")] {
        let norm = serde_json::json!({"axis": 1, "epsilon": 1e-5, "rms": false});
        let add = serde_json::json!({"element": {"binary": "add"}, "args": [{"step": 0}, {"input": 2}]});
        let a = serde_json::json!({"norm": norm, "bias": false, "steps": [add]});
        assert_eq!(emit_all("norm-of-sums", a, &[terms, "1", shape]), ["normalize"]);
    }
    for (groups, shape, channels) in [(2, "n,16,h,5", "16"), (6, "2,6,8", "6"), (3, "2,6,h,w", "6")] {
        let a = serde_json::json!({"groups": groups, "epsilon": 1e-5});
        assert_eq!(emit_all("group-norm", a, &[shape, channels, channels]), ["normalize"]);
    }
    for shape in ["2,6,5,8", "n,8,h,4", "2,12", "h,w,36"] {
        assert_eq!(emit_all("quantize-rows", serde_json::json!({}), &[shape]), ["quantize_rows"]);
    }
    for (axis, k) in [(3, 3), (1, 6), (0, 1)] {
        let a = serde_json::json!({"axis": axis, "k": k, "largest": k == 3, "indices": k == 6});
        let found = emit_types("top-k", a, &["3,6,h,5"], &[DType::F16, DType::I64]);
        assert_eq!(found, ["top_k", "top_k_rank"]);
    }
}

#[test]
fn matmuls_and_attention() {
    for (trans_a, trans_b, operands) in [
        (false, false, ["2,3,4,10", "3,10,6"]),
        (false, true, ["n,1,37", "41,37"]),
        (true, false, ["2,1,8,3", "h,8,8"]),
        (true, true, ["16,2", "w,16"]),
    ] {
        let a = serde_json::json!({"trans_a": trans_a, "trans_b": trans_b});
        let found = emit_all("matmul", a.clone(), &operands);
        for kernel in ["matmul", "matvec", "matmul_direct"] {
            assert!(found.contains(&kernel), "{found:?}");
        }
        assert!(emit_types("matmul", a, &operands, &INTEGERS).contains(&"matmul_direct"));
    }
    for (causal, operands) in [
        (true, &["1,4,h,24", "1,2,w,24", "1,2,w,10"][..]),
        (false, &["n,2,5,64", "n,2,h,64", "n,2,h,64", "n,1,1,h"]),
        (true, &["2,3,1,7", "2,3,9,7", "2,3,9,256", "9"]),
    ] {
        let a = serde_json::json!({"scale": 0.125, "causal": causal});
        let found = emit_all("attention", a, operands);
        assert!(found == ["attention"] || found == ["attention", "attention_kv_split"], "{found:?}");
    }
}

#[test]
fn gathers_scatters_and_fills() {
    let types = [DType::F16, DType::I64, DType::Bool];
    let axis = |axis: usize| serde_json::json!({"axis": axis});
    assert_eq!(emit_types("gather", axis(1), &["n,6,h,8", "#2,3"], &types), ["gather"]);
    assert_eq!(emit_types("gather", axis(3), &["2,6,3,4", "#1"], &types), ["gather"]);
    assert_eq!(emit_types("gather-elements", axis(2), &["2,6,h,4", "#2,5,9,4"], &types), ["gather"]);
    for (batch, operands) in [(0, ["3,6,h,4", "#2,3,2"]), (1, ["n,6,5,4", "#n,7,1"])] {
        let a = serde_json::json!({"batch_dims": batch});
        assert_eq!(emit_types("gather-nd", a, &operands, &types), ["gather"]);
    }
    for combine in ["replace", "add", "mul", "max", "min"] {
        let types = if combine == "replace" { &types[..] } else { &types[..2] };
        let a = serde_json::json!({"axis": 2, "combine": combine});
        let operands = ["2,6,h,4", "#1,6,3,4", "1,6,3,4"];
        assert_eq!(emit_types("scatter-elements", a, &operands, types), ["scatter", "scatter_list"]);
        let a = serde_json::json!({"combine": combine});
        assert_eq!(
            emit_types("scatter-nd", a.clone(), &["n,6,h,4", "#3,1", "3,6,h,4"], types),
            ["scatter", "scatter_list"]
        );
        assert_eq!(
            emit_types("scatter-nd", a, &["2,6,5", "#3,2,3", "3,2"], types),
            ["scatter", "scatter_list"]
        );
    }
    let a = serde_json::json!({"dtype": "i64", "start": "n-3", "step": -2, "length": "n"});
    assert_eq!(emit_types("range", a, &[], &[DType::I64]), ["fill"]);
    let a = serde_json::json!({"dtype": "i32", "shape": [2], "values": ["n*h", -1]});
    assert_eq!(emit_types("shape-values", a, &[], &[DType::I32]), ["fill"]);
}

/// Returns the shader of a convolution that reads a texture, and the behavior of reads outside the texture that its
/// launch requires. The arguments say if the device has the features `robust_image_access` and `robust_image_access2`.
fn texture_convolution(access: bool, access2: bool) -> (String, OutsideReads) {
    let mut target = TargetProfile::load("lavapipe").unwrap();
    target.prefer.storage.activations = Storage::Texture2d;
    (target.features.robust_image_access, target.features.robust_image_access2) = (access, access2);
    let text = r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,8,9,7]}
%1 = relayout %0 {"layout":"texture-2d"}
%2 = constant {"dtype":"f32","shape":[8,8,3,3],"random":1}
%3 = conv %1 %2 {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
output "y" %3
"#;
    let mut options = compile::Options::default();
    options.plan.prefer_kernel = Some("conv".into());
    let plan = lower(&parse(text).unwrap(), &target, &options).unwrap().plan;
    let launch = plan.dispatches.into_iter().map(|s| s.launch).find(|l| l.kernel == "conv").unwrap();
    (launch.wgsl, launch.outside)
}

#[test]
fn reads_outside_a_texture_are_masked_unless_the_device_guarantees_zero() {
    let (masked, outside) = texture_convolution(false, false);
    assert_eq!(outside, OutsideReads::Unused);
    assert!(masked.contains("const GUARD_X = true;") && masked.contains("const GUARD_Y = true;"), "{masked}");
    let (last, outside) = texture_convolution(true, false);
    assert_eq!(outside, OutsideReads::ZeroRgb);
    assert!(last.contains("const GUARD_X = false;") && last.contains("const GUARD_Y = false;"), "{last}");
    assert!(last.contains("let inside = (y) < 9u && (x) < 7u;"), "{last}");
    assert!(last.contains("return vec4<f32>(read.xyz, select(0.0, read.w, inside));"), "{last}");
    let (none, outside) = texture_convolution(true, true);
    assert_eq!(outside, OutsideReads::Zero);
    assert!(none.contains("const GUARD_X = false;") && !none.contains("read.w"), "{none}");
}
