//! Quantizes the weights of a model before compilation, without a device and without data.
//!
//! This step quantizes float matrices that are second operands of matmuls, filters of dense convolutions, and embedding tables.
//! Each of their constants keeps its bytes and gets an encoding that states how to quantize them ([`QuantizedOnRead`]). Quantized
//! values are computed while the bundle is written, so memory does not grow with the model. Biases, norms, position tables,
//! expert routers and filters of few channels stay floats.

pub mod activations;
pub mod caches;
pub mod calibration;
mod weights;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, OpError, Result};
use crate::ir::array::strides;
use crate::ir::encoding::{ChannelFactors, Encoding, MatrixLayout, QuantScheme, QuantizedOnRead};
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{Constant, Element, Elementwise, Op};
use crate::ir::tensor::DType;
use crate::pass::Changes;
use calibration::Calibration;
use weights::{filter_scheme, is_quantizable_filter, output_axis, scheme};

pub use weights::Weights;

/// Quantized forms of constants, so that a constant is quantized once. The key is the constant's byte range in the file, the
/// layout of its matrix, the number of bits, and the address of its calibration factors.
type QuantizedConstants = BTreeMap<((usize, usize), MatrixLayout, usize, [usize; 2]), Encoding>;

/// Quantizes the weights of all graphs of one model with the factors of a calibration. A constant that several graphs use is
/// quantized once. Returns the changes of only the first graph that has changes, because all graphs have equal weights.
///
/// # Errors
/// If the group size does not divide the number of inputs of a matmul.
pub fn run<'a>(
    graphs: impl IntoIterator<Item = &'a mut Graph>,
    weights: Weights,
    calibration: &Calibration,
) -> Result<Changes> {
    let mut known = QuantizedConstants::new();
    let mut all = Changes::default();
    for graph in graphs {
        let mut changes = quantize_matrices(graph, weights, calibration, &mut known)?;
        // Filters have the type of the image, so f16 applies to them only with `--precision f16`.
        if weights != Weights::F16 {
            quantize_filters(graph, weights, &mut known, &mut changes)?;
        }
        if all.count == 0 {
            all = changes;
        }
    }
    Ok(all)
}

/// Quantizes second operands of matmuls, and embedding tables.
fn quantize_matrices(
    graph: &mut Graph,
    weights: Weights,
    calibration: &Calibration,
    known: &mut QuantizedConstants,
) -> Result<Changes> {
    let mut changes = Changes::default();
    let matrices: Vec<(NodeId, usize)> =
        graph.ids().into_iter().filter_map(|id| Some((id, output_axis(graph, id)?))).collect();
    // Calibration does not apply to f16.
    let factors = if weights == Weights::F16 { BTreeMap::new() } else { calibration.apply(graph)? };
    for (id, axis) in matrices {
        let Some(constant) = graph.constant(id).cloned() else { continue };
        let name = graph.node(id).name.clone();
        if let Weights::F16 = weights {
            if let Some(half) = constant.cast(DType::F16).filter(|c| c.encoding.element_type() != DType::F16)
            {
                replace(graph, id, half)?;
                // Matmuls accept any float type, so casts are not needed.
                for user in graph.users(id) {
                    let node = graph.node(user);
                    let cast = matches!(&node.op, Op::Elementwise(Elementwise { element: Element::Cast(_) }));
                    if cast && node.epilogue.is_empty() {
                        graph.replace_uses(user, id);
                    }
                }
                changes.note(graph, id, "stored in f16");
            }
            continue;
        }
        if let Encoding::Stack(stack) = &constant.encoding {
            let parts =
                Constant::unstack(stack).map(|part| quantized_matrix(&part, scheme(weights, &name), &name));
            let stack = Constant::stack(parts.collect::<Result<_>>()?);
            let stack = stack.map_err(|e| Error::internal("quantize", format!("`{name}`: {e}")))?;
            let what = stack.encoding.to_string();
            replace(graph, id, stack)?;
            changes.note(graph, id, what);
            continue;
        }
        let layout = constant.strides.clone().unwrap_or_else(|| strides(&constant.shape));
        let [(size, stride), (other, step)] = match (&constant.shape[..], &layout[..]) {
            ([a, b], [p, q]) if axis == 0 => [(*a, *p), (*b, *q)],
            ([a, b], [p, q]) => [(*b, *q), (*a, *p)],
            _ => continue,
        };
        let scheme = scheme(weights, &name);
        check_group(scheme, other, &name)?;
        let factors = factors.get(&id).cloned().unwrap_or_default();
        let layout = MatrixLayout::from_strides([size, other], [stride, step]);
        let stored = quantized_once(&constant, layout, scheme, factors, known)
            .map_err(|e| Error::internal("quantize", format!("`{name}`: {e}")))?;
        let Some(stored) = stored else { continue };
        let shape = vec![size, other];
        let quantized = Constant::encoded(shape, stored, constant.bytes.clone());
        let quantized = quantized.map_err(|e| Error::internal("quantize", format!("`{name}`: {e}")))?;
        let view = if axis == 0 { Some(quantized) } else { quantized.transposed(&[1, 0]) };
        let Some(view) = view else { continue };
        let what = view.encoding.to_string();
        replace(graph, id, view)?;
        changes.note(graph, id, what);
    }
    Ok(changes)
}

/// Quantizes the filters of dense convolutions, as matrices with one row per output channel. The columns of a row are in
/// the order tap, input channel, so that kernels read neighboring input channels together.
fn quantize_filters(
    graph: &mut Graph,
    weights: Weights,
    known: &mut QuantizedConstants,
    changes: &mut Changes,
) -> Result<()> {
    for id in graph.ids() {
        let Some(constant) = graph.constant(id).filter(|_| is_quantizable_filter(graph, id)).cloned() else {
            continue;
        };
        let name = graph.node(id).name.clone();
        let fail = |e: OpError| Error::internal("quantize", format!("`{name}`: {e}"));
        let element_strides = constant.strides.clone().unwrap_or_else(|| strides(&constant.shape));
        let Some(layout) = MatrixLayout::from_filters(&constant.shape, &element_strides) else { continue };
        let scheme = filter_scheme(weights, layout.block_columns);
        let factors = ChannelFactors::default();
        let stored = quantized_once(&constant, layout, scheme, factors, known).map_err(fail)?;
        let Some(stored) = stored else { continue };
        let size = vec![layout.rows, layout.blocks * layout.block_columns];
        let matrix = Constant::encoded(size, stored, constant.bytes.clone()).map_err(fail)?;
        let Some(filters) = matrix.as_filters(&constant.shape) else { continue };
        let what = filters.encoding.to_string();
        replace(graph, id, filters)?;
        changes.note(graph, id, what);
    }
    Ok(())
}

/// Returns the quantized form of a constant's matrix, from `known` if the matrix was quantized before. Returns `None` if the
/// constant does not have plain elements.
fn quantized_once(
    constant: &Constant,
    layout: MatrixLayout,
    scheme: QuantScheme,
    factors: ChannelFactors,
    known: &mut QuantizedConstants,
) -> std::result::Result<Option<Encoding>, OpError> {
    let address = |list: &Option<Arc<Vec<f32>>>| list.as_ref().map_or(0, |list| Arc::as_ptr(list) as usize);
    let key = (
        (constant.bytes.as_ptr() as usize, constant.bytes.len()),
        layout,
        scheme.bits,
        [address(&factors.rows), address(&factors.columns)],
    );
    if let Some(stored) = known.get(&key) {
        return Ok(Some(stored.clone()));
    }
    let Some(dtype) = constant.encoding.plain_dtype() else { return Ok(None) };
    let rounded = QuantizedOnRead::with_factors(dtype, &constant.bytes, layout, scheme, factors)?;
    let stored = Encoding::QuantizedOnRead(rounded.into());
    known.insert(key, stored.clone());
    Ok(Some(stored))
}

/// Checks that the group size of a quantization scheme divides the number of inputs of a matmul.
fn check_group(scheme: QuantScheme, inputs: usize, name: &str) -> Result<()> {
    match scheme.group.filter(|group| !inputs.is_multiple_of(*group)) {
        None => Ok(()),
        Some(group) => Err(Error::Node {
            node: name.to_string(),
            operator: "constant".into(),
            reason: format!(
                "groups of {group} do not divide the {inputs} inputs of a matmul; use --weights q8 or another group size"
            ),
        }),
    }
}

/// Quantizes one matrix `[outputs, inputs]` of a constant that is a stack of matrices. Returns the constant unchanged if it is
/// not a plain matrix.
fn quantized_matrix(part: &Constant, scheme: QuantScheme, name: &str) -> Result<Constant> {
    let fail = |e: OpError| Error::internal("quantize", format!("`{name}`: {e}"));
    let (Some(dtype), [outputs, inputs]) = (part.encoding.plain_dtype(), part.shape.as_slice()) else {
        return Ok(part.clone());
    };
    check_group(scheme, *inputs, name)?;
    let rounded =
        QuantizedOnRead::new(dtype, &part.bytes, [*outputs, *inputs], [*inputs, 1], scheme).map_err(fail)?;
    Constant::encoded(part.shape.clone(), Encoding::QuantizedOnRead(rounded.into()), part.bytes.clone())
        .map_err(fail)
}

fn replace(graph: &mut Graph, id: NodeId, constant: Constant) -> Result<()> {
    graph.set_op(
        id,
        Replacement { op: Op::Constant(constant), operands: Vec::new(), arity: 0, epilogue: Vec::new() },
    )
}

#[cfg(test)]
mod tests {
    use super::{Calibration, Constant, Graph, Weights, run};
    use crate::ir::graph_text;

    const GRAPH: &str = r#"
%0 = input {"name":"ids","dtype":"i64","shape":[5]}
%1 = constant {"dtype":"f32","shape":[40,64],"random":1} "embed_tokens.weight"
%2 = gather %1 %0 {"axis":0}
%3 = constant {"dtype":"f32","shape":[96,64],"random":2} "self_attn.q_proj.weight"
%4 = matmul %2 %3 {"trans_a":false,"trans_b":true}
%5 = constant {"dtype":"f32","shape":[96,64],"random":3} "mlp.c_fc.weight"
%6 = matmul %4 %5 {"trans_a":false,"trans_b":false}
%7 = constant {"dtype":"f32","shape":[40,64],"random":4} "cos"
%8 = gather %7 %0 {"axis":0}
%9 = mul %6 %8
%10 = transpose %1 {"perm":[1,0]}
%11 = matmul %9 %10 {"trans_a":false,"trans_b":false}
output "y" %11
"#;

    const FILTERS: &str = r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,64,9,7]}
%1 = constant {"dtype":"f32","shape":[48,64,3,2],"random":1} "dense"
%2 = conv %0 %1 {"strides":[1,1],"dilations":[1,1],"pads_begin":[0,0],"pads_end":[0,0],"group":1}
%3 = constant {"dtype":"f32","shape":[32,48,1,1],"random":2} "pointwise"
%4 = conv %2 %3 {"strides":[1,1],"dilations":[1,1],"pads_begin":[0,0],"pads_end":[0,0],"group":1}
%5 = constant {"dtype":"f32","shape":[32,1,3,3],"random":3} "depthwise"
%6 = conv %4 %5 {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":32}
%7 = constant {"dtype":"f32","shape":[4,32,3,3],"random":4} "few outputs"
%8 = conv %6 %7 {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
%9 = constant {"dtype":"f32","shape":[32,4,3,3],"random":5} "few inputs"
%10 = conv %8 %9 {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
output "y" %10
"#;

    #[test]
    fn filters_of_dense_convolutions_are_quantized() {
        for (text, dense, pointwise) in [
            ("q8", "u8 in groups of 384 from f32", "u8 in groups of 48 from f32"),
            ("q844", "u8 in groups of 384 from f32", "u8 in groups of 48 from f32"),
            ("w4:64", "u4 in groups of 64 from f32", "u8 in groups of 48 from f32"),
            ("f16", "f32", "f32"),
        ] {
            let mut graph = graph_text::parse(FILTERS).unwrap();
            let constants = |graph: &Graph| -> Vec<Constant> {
                graph.ids().into_iter().filter_map(|id| graph.constant(id).cloned()).collect()
            };
            let before = constants(&graph);
            run([&mut graph], text.parse().unwrap(), &Calibration::default()).unwrap();
            let after = constants(&graph);
            let stored: Vec<String> = after.iter().map(|c| c.encoding.to_string()).collect();
            assert_eq!(stored, [dense, pointwise, "f32", "f32", "f32"], "{text}");
            for (a, b) in before.iter().zip(&after) {
                assert_eq!(a.shape, b.shape);
                let (a, b) = (a.to_array().unwrap(), b.to_array().unwrap());
                let step = if text == "w4:64" { 0.5 / 7.0 } else { 0.5 / 127.0 };
                let mut pairs = a.floats().unwrap().iter().zip(b.floats().unwrap());
                assert!(pairs.all(|(a, b)| (a - b).abs() <= step * 1.01), "{text}");
            }
        }
    }

    #[test]
    fn weights_are_quantized_by_their_role() {
        for (text, wanted) in [
            ("q8", ["u8 in groups of 64", "u8 in groups of 64", "u8 in groups of 96"]),
            ("q844", ["u4 in groups of 64", "u8 in groups of 64", "u4 in groups of 96"]),
            ("w4:32", ["u4 in groups of 32", "u4 in groups of 32", "u4 in groups of 32"]),
            ("w4:32:zeros", ["u4 in groups of 32 with zeros"; 3]),
        ] {
            let mut graph = graph_text::parse(GRAPH).unwrap();
            let before: Vec<_> =
                graph.ids().into_iter().filter_map(|id| graph.constant(id).cloned()).collect();
            run([&mut graph], text.parse().unwrap(), &Calibration::default()).unwrap();
            let after: Vec<_> =
                graph.ids().into_iter().filter_map(|id| graph.constant(id).cloned()).collect();
            let stored: Vec<String> = after.iter().map(|c| c.encoding.to_string()).collect();
            let mut all = wanted.map(|w| format!("{w} from f32")).to_vec();
            all.push("f32".into());
            assert_eq!(stored, all, "{text}");
            for (a, b) in before.iter().zip(&after) {
                assert_eq!(a.shape, b.shape);
                let (a, b) = (a.to_array().unwrap(), b.to_array().unwrap());
                let pairs = a.floats().unwrap().iter().zip(b.floats().unwrap());
                let step = if text == "q8" { 0.5 / 127.0 } else { 0.5 / 7.0 };
                assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() <= step * 1.01), "{text}");
            }
        }
    }

    #[test]
    fn invalid_formats_and_group_sizes_are_refused() {
        for wrong in ["", "q4", "w4:", "w4:0", "w4:48", "w4:32:sym", "w4:32:zeros:", "f16:1", "q8:32"] {
            let refused = wrong.parse::<Weights>().unwrap_err().to_string();
            assert!(refused.contains("not a storage format for weights"), "{refused}");
        }
        let mut graph = graph_text::parse(GRAPH).unwrap();
        let refused = run([&mut graph], "w4:128".parse().unwrap(), &Calibration::default());
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("groups of 128 do not divide"), "{refused}");
        for name in ["f16", "q8", "q844", "w4:64", "w4:32:zeros"] {
            assert_eq!(name.parse::<Weights>().unwrap().to_string(), name);
        }
        assert_eq!("w4".parse::<Weights>().unwrap(), Weights::W4(128, false));
    }
}
