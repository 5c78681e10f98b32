//! Quantizes the first operands of matmuls to 8 bits at run time, with a scale for each row, in functions of many rows.
//!
//! ```text
//! %2 = matmul %0 %1 (u8 [N, K])                  %3 = quantize-rows %0
//!                                        ->      %2 = quantized-rows-matmul %3 %1 (u8 [N, K])
//! ```
//!
//! With many rows, multiplying takes longer than reading the weights, and integers are multiplied faster than floats.
//! With few rows, as in `decode` and `verify`, reading the weights takes longer, so these matmuls keep their floats. Only
//! weights with one scale per column are multiplied in integers. Matmuls of one operand share its quantized rows.
//!
//! The `down` matmuls of a language model keep their floats. Each element of their inputs multiplies two activations, so
//! single elements of a row have up to 39 times its root mean square. One scale per row then rounds the others coarsely.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{
    Constant, Element, Elementwise, MatMul, Op, QuantizeRows, QuantizedRowsMatMul, Transpose,
};
use crate::shader::pack::quantized_panels::QuantizedPanels;

/// Minimum number of rows of a matmul whose first operand is quantized.
const MIN_ROWS: i64 = 32;
/// The number of elements of a row must be a multiple of this number, so that kernels load 8 quantized values at a time.
const DEPTH_MULTIPLE: usize = 8;

/// Quantizes activations in the functions of a model, and returns the number of matmuls that multiply integers.
///
/// # Errors
/// If no matmul can multiply integers.
pub fn run<'a>(graphs: impl IntoIterator<Item = &'a mut Graph>) -> Result<usize> {
    let mut count = 0;
    for graph in graphs {
        count += quantize_graph(graph)?;
    }
    if count > 0 {
        return Ok(count);
    }
    Err(Error::request(
        format!("no function multiplies {MIN_ROWS} or more rows by weights with one scale per output"),
        "give --weights q8 or --weights q844 with --activations q8, for a model with float weights and a --dim chunk of at least 32",
    ))
}

fn quantize_graph(graph: &mut Graph) -> Result<usize> {
    let mut quantized: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    let mut count = 0;
    // The choice depends on all readers of a value, so it precedes the changes.
    let found = graph.topological().into_iter().filter_map(|id| Some((id, quantizable(graph, id)?)));
    let found: Vec<_> = found.collect();
    for (id, (op, [x, weights])) in found {
        let rows = match quantized.get(&x) {
            Some(rows) => *rows,
            None => {
                let name = format!("{} (quantized)", graph.node(x).name);
                let rows = graph.add(QuantizeRows { aligned: true }, &[x], &name)?;
                quantized.insert(x, rows);
                rows
            }
        };
        let dtype = graph.tensor(id).dtype;
        let (operands, epilogue) = (vec![rows, weights], Vec::new());
        graph.set_op(id, Replacement { op: op.into(), operands, arity: 2, epilogue })?;
        graph.set_storage_type(id, dtype);
        count += 1;
    }
    graph.sweep();
    Ok(count)
}

/// Returns the matmul of quantized rows that replaces a node, and the operands of the node. Returns `None` if the node is
/// not a matmul of many rows by weights with one scale per column.
fn quantizable(graph: &Graph, id: NodeId) -> Option<(QuantizedRowsMatMul, [NodeId; 2])> {
    let node = graph.node(id);
    let Op::MatMul(MatMul { trans_a: false, trans_b }) = node.op else { return None };
    let [x, second] = <[NodeId; 2]>::try_from(graph.operands(id)).ok()?;
    let (constant, trans_b) = matrix(graph, second, trans_b)?;
    let (rows, weights) = (graph.tensor(x), graph.constant(constant)?);
    let many = rows.shape.iter().rev().nth(1)?.range(&graph.bounds).0 >= MIN_ROWS;
    let floats = rows.dtype.is_float() && graph.constant(x).is_none() && node.epilogue.is_empty();
    (many && floats && has_column_scales(weights, trans_b) && !is_narrowed(graph, x))
        .then_some((QuantizedRowsMatMul { trans_b }, [x, constant]))
}

/// True if a value is the input of a `down` matmul: an elementwise function computes the value, and the matmuls that read
/// it have fewer columns in total than the value.
pub(super) fn is_narrowed(graph: &Graph, x: NodeId) -> bool {
    let mut value = x;
    while let Op::Elementwise(Elementwise { element: Element::Cast(_) }) = graph.op(value) {
        let Some(operand) = graph.operands(value).first().copied() else { return false };
        value = operand;
    }
    let is_elementwise = matches!(graph.op(value), Op::Elementwise(_));
    let width = |id| graph.tensor(id).shape.last().and_then(Dim::as_known).unwrap_or(0);
    let columns: i64 = graph.users(x).into_iter().map(width).sum();
    is_elementwise && columns < width(x)
}

/// Rounds a row to 8 bits as [`QuantizeRows`] does, and returns the dequantized values.
pub(super) fn round_row(row: &[f32]) -> impl Iterator<Item = f32> {
    let largest = row.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    let scale = if largest > 0.0 { largest / 127.0 } else { 1.0 };
    row.iter().map(move |x| (x / scale + 0.5).floor() * scale)
}

/// Returns the constant behind casts and transposes of a matmul's second operand, and whether the matmul reads it
/// transposed. Returns `None` for other operands.
fn matrix(graph: &Graph, mut id: NodeId, mut transposed: bool) -> Option<(NodeId, bool)> {
    loop {
        let node = graph.node(id);
        match &node.op {
            Op::Constant(_) => return Some((id, transposed)),
            Op::Transpose(Transpose { perm }) if perm[..] == [1, 0] => transposed = !transposed,
            Op::Elementwise(Elementwise { element: Element::Cast(to) })
                if to.is_float() && node.epilogue.is_empty() => {}
            _ => return None,
        }
        id = *graph.operands(id).first()?;
    }
}

/// True if a constant is a matrix of symmetric quantized values with one scale per column.
fn has_column_scales(weights: &Constant, trans_b: bool) -> bool {
    let (Some(panels), [first, last]) = (QuantizedPanels::from_constant(weights), &weights.shape[..]) else {
        return false;
    };
    panels.has_column_scales([*first, *last], trans_b) && panels.depth.is_multiple_of(DEPTH_MULTIPLE)
}

#[cfg(test)]
mod tests {
    use super::run;
    use crate::ir::builder::Builder;
    use crate::ir::graph_text::{parse, print};
    use crate::ir::op::UnaryFn;

    const GRAPH: &str = r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,40,64]}
%1 = constant {"dtype":"f32","shape":[48,64],"encoding":"u8 in groups of 64","random":1}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":true}
%3 = constant {"dtype":"f32","shape":[64,64],"encoding":"u4 in groups of 64","random":2}
%4 = transpose %3 {"perm":[1,0]}
%5 = matmul %0 %4 {"trans_a":false,"trans_b":false}
%6 = constant {"dtype":"f32","shape":[32,64],"encoding":"u8 in groups of 32","random":3}
%7 = matmul %0 %6 {"trans_a":false,"trans_b":true}
%8 = constant {"dtype":"f32","shape":[64,32],"random":4}
%9 = matmul %5 %8 {"trans_a":false,"trans_b":false}
output "a" %2
output "b" %5
output "c" %7
output "d" %9
"#;

    #[test]
    fn matmuls_of_one_operand_share_its_quantized_rows() {
        let mut graph = parse(GRAPH).unwrap();
        assert_eq!(run([&mut graph]).unwrap(), 2);
        crate::ir::verify::verify(&graph, "activations").unwrap();
        let text = print(&graph);
        assert_eq!(text.matches("= quantize-rows").count(), 1, "{text}");
        assert_eq!(text.matches("= quantized-rows-matmul").count(), 2, "{text}");
        assert_eq!(text.matches("= matmul").count(), 2, "{text}");
    }

    /// An elementwise function may compute the input of several matmuls, such as a norm in single operators. The input of
    /// `down` is wider than its result.
    #[test]
    fn down_matmuls_keep_their_floats() {
        let quantized = |readers: usize| {
            let mut graph = parse(GRAPH).unwrap();
            let matmuls: Vec<_> = graph.outputs().iter().take(readers).map(|output| output.node).collect();
            let x = graph.inputs()[0];
            let y = Builder::new(&mut graph, "y").unary(UnaryFn::Sigmoid, x).unwrap();
            for matmul in matmuls {
                graph.replace_operand(matmul, x, y);
            }
            run([&mut graph]).unwrap()
        };
        // The first matmul has 48 columns, the second has 64. Both read 64 elements.
        assert_eq!(quantized(0), 2);
        assert_eq!(quantized(1), 1);
        assert_eq!(quantized(2), 2);
    }

    #[test]
    fn few_rows_are_not_quantized() {
        let mut graph = parse(&GRAPH.replace("[1,40,64]", "[1,16,64]")).unwrap();
        let error = run([&mut graph]).unwrap_err().to_string();
        assert!(error.contains("32 or more rows"), "{error}");
    }
}
