//! Weights of a model in fewer bits than its file has them in, before anything is compiled: no device and no data are needed.
//!
//! What is quantised are matrices of floats that products take as second operands, and tables of embeddings. Their
//! constants become encodings of the same bytes ([`Rounded`]), from which codes are computed while the bundle is written, so
//! memory does not grow with the model. Biases, norms, tables of positions and routers of experts stay floats.

pub mod caches;
pub mod calibration;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{Error, OpError, Result};
use crate::ir::array::strides;
use crate::ir::encoding::{Rounded, Scheme, Stored};
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{Constant, Element, Elementwise, Op};
use crate::ir::tensor::DType;
use crate::passes::Changes;
use calibration::Calibration;

/// Columns of a group where nobody says.
const GROUP: usize = 128;

/// How weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    /// Floats of 16 bits.
    F16,
    /// Codes of 8 bits, with a scale for each output.
    Q8,
    /// Codes of 8 bits for attention, of 4 for everything else, with a scale for each output.
    Q844,
    /// Codes of 4 bits, with a scale for each so many inputs, and a zero point where the last says so.
    W4(usize, bool),
}

impl fmt::Display for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F16 => f.write_str("f16"),
            Self::Q8 => f.write_str("q8"),
            Self::Q844 => f.write_str("q844"),
            Self::W4(group, false) => write!(f, "w4:{group}"),
            Self::W4(group, true) => write!(f, "w4:{group}:zeros"),
        }
    }
}

impl FromStr for Weights {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split(':');
        let found = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("f16"), None, ..) => Some(Self::F16),
            (Some("q8"), None, ..) => Some(Self::Q8),
            (Some("q844"), None, ..) => Some(Self::Q844),
            (Some("w4"), group, zeros @ (None | Some("zeros")), None) => {
                let group = group.map_or(Some(GROUP), |group| group.parse().ok());
                group
                    .filter(|group| matches!(group, 32 | 64 | 128))
                    .map(|group| Self::W4(group, zeros.is_some()))
            }
            _ => None,
        };
        found.ok_or_else(|| {
            Error::request(
                format!("`{text}` is no way of storing weights"),
                "write `f16`, `q8`, `q844`, or `w4:128` (groups of 32, 64 or 128; `w4:128:zeros` with zero points)",
            )
        })
    }
}

/// Which axis of a matrix counts what a scale is of: outputs of a product, rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Product(usize),
    Table,
}

/// Roundings by the part of a file that they are of, and by what it is multiplied by.
type Known = BTreeMap<((usize, usize), [usize; 4], usize, [usize; 2]), Stored>;

/// Stores the weights of graphs so, those of one model: the same part of its file is rounded once for all of them. What a
/// calibration found is taken into account.
///
/// # Errors
/// A group that does not divide the inputs of a product.
pub fn run<'a>(
    graphs: impl IntoIterator<Item = &'a mut Graph>,
    weights: Weights,
    calibration: &Calibration,
) -> Result<Changes> {
    let mut known = Known::new();
    let mut all = Changes::default();
    for graph in graphs {
        let changes = one(graph, weights, calibration, &mut known)?;
        if all.count == 0 {
            all = changes;
        }
    }
    Ok(all)
}

fn one(graph: &mut Graph, weights: Weights, calibration: &Calibration, known: &mut Known) -> Result<Changes> {
    let mut changes = Changes::default();
    let matrices: Vec<(NodeId, usize)> =
        graph.ids().into_iter().filter_map(|id| Some((id, outputs(graph, id)?))).collect();
    // Floats stay as they are.
    let factors = if weights == Weights::F16 { BTreeMap::new() } else { calibration.apply(graph)? };
    for (id, axis) in matrices {
        let Some(constant) = graph.constant(id).cloned() else { continue };
        let name = graph.node(id).name.clone();
        if let Weights::F16 = weights {
            if let Some(half) = constant.cast(DType::F16).filter(|c| c.stored.element() != DType::F16) {
                replace(graph, id, half)?;
                // Products take operands of any float type.
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
        if let Stored::Stack(stack) = &constant.stored {
            let parts = stack.parts().iter().map(|part| rounded(part, scheme(weights, &name), &name));
            let stack = Constant::stack(parts.collect::<Result<_>>()?);
            let stack = stack.map_err(|e| Error::internal("quantise", format!("`{name}`: {e}")))?;
            let what = stack.stored.to_string();
            replace(graph, id, stack)?;
            changes.note(graph, id, what);
            continue;
        }
        let own = constant.strides.clone().unwrap_or_else(|| strides(&constant.shape));
        let [(size, stride), (other, step)] = match (&constant.shape[..], &own[..]) {
            ([a, b], [p, q]) if axis == 0 => [(*a, *p), (*b, *q)],
            ([a, b], [p, q]) => [(*b, *q), (*a, *p)],
            _ => continue,
        };
        let scheme = scheme(weights, &name);
        divides(scheme, other, &name)?;
        let factors = factors.get(&id).cloned().unwrap_or_default();
        let place = |list: &Option<Arc<Vec<f32>>>| list.as_ref().map_or(0, |list| Arc::as_ptr(list) as usize);
        let key = (
            (constant.bytes.as_ptr() as usize, constant.bytes.len()),
            [size, other, stride, step],
            scheme.bits,
            [place(&factors.rows), place(&factors.columns)],
        );
        let stored = match known.get(&key) {
            Some(stored) => stored.clone(),
            None => {
                let Some(dtype) = constant.stored.plain() else { continue };
                let lies = ([size, other], [stride, step]);
                let rounded = Rounded::multiplied(dtype, &constant.bytes, lies, scheme, factors);
                let rounded = rounded.map_err(|e| Error::internal("quantise", format!("`{name}`: {e}")))?;
                let stored = Stored::Rounded(rounded.into());
                known.insert(key, stored.clone());
                stored
            }
        };
        let shape = vec![size, other];
        let coded = Constant::encoded(shape, stored, constant.bytes.clone());
        let coded = coded.map_err(|e| Error::internal("quantise", format!("`{name}`: {e}")))?;
        let seen = if axis == 0 { Some(coded) } else { coded.transposed(&[1, 0]) };
        let Some(seen) = seen else { continue };
        let what = seen.stored.to_string();
        replace(graph, id, seen)?;
        changes.note(graph, id, what);
    }
    Ok(changes)
}

fn divides(scheme: Scheme, inputs: usize, name: &str) -> Result<()> {
    match scheme.group.filter(|group| !inputs.is_multiple_of(*group)) {
        None => Ok(()),
        Some(group) => Err(Error::Node {
            node: name.to_string(),
            operator: "constant".into(),
            reason: format!(
                "groups of {group} do not divide the {inputs} inputs of a product; use --weights q8 or a group that does"
            ),
        }),
    }
}

/// A part of a stack, `[outputs, inputs]`, as codes.
fn rounded(part: &Constant, scheme: Scheme, name: &str) -> Result<Constant> {
    let fail = |e: OpError| Error::internal("quantise", format!("`{name}`: {e}"));
    let (Some(dtype), [outputs, inputs]) = (part.stored.plain(), part.shape.as_slice()) else {
        return Ok(part.clone());
    };
    divides(scheme, *inputs, name)?;
    let rounded =
        Rounded::new(dtype, &part.bytes, [*outputs, *inputs], [*inputs, 1], scheme).map_err(fail)?;
    Constant::encoded(part.shape.clone(), Stored::Rounded(rounded.into()), part.bytes.clone()).map_err(fail)
}

fn replace(graph: &mut Graph, id: NodeId, constant: Constant) -> Result<()> {
    graph.set_op(
        id,
        Replacement { op: Op::Constant(constant), operands: Vec::new(), arity: 0, epilogue: Vec::new() },
    )
}

/// The axis of a constant matrix of floats that counts outputs, or rows of a table of embeddings; none where it is no such
/// matrix, or its uses do not agree.
fn outputs(graph: &Graph, id: NodeId) -> Option<usize> {
    let constant = graph.constant(id)?;
    let (stored, axes) = match &constant.stored {
        Stored::Stack(stack) => (&stack.parts().first()?.stored, 3),
        stored => (stored, 2),
    };
    let float = matches!(stored.plain(), Some(DType::F32 | DType::F16 | DType::Bf16));
    if constant.shape.len() != axes || !float || constant.elements() == 0 || is_router(&graph.node(id).name) {
        return None;
    }
    let mut uses = Vec::new();
    collect(graph, id, false, &mut uses)?;
    let axis = uses.iter().find_map(|u| if let Use::Product(axis) = u { Some(*axis) } else { None });
    let table = uses.contains(&Use::Table);
    let axis = axis.or_else(|| (table && is_embedding(&graph.node(id).name)).then_some(0))?;
    let agreed = uses.iter().all(|u| *u == Use::Product(axis) || *u == Use::Table && axis == 0);
    // Matrices of a stack have their outputs first.
    (agreed && (axes == 2 || axis == 0)).then_some(axis)
}

/// The uses of a value that is a constant, transposed if so; none where one of them is no product or table.
fn collect(graph: &Graph, id: NodeId, transposed: bool, uses: &mut Vec<Use>) -> Option<()> {
    if graph.is_output(id) {
        return None;
    }
    for user in graph.users(id) {
        let node = graph.node(user);
        let operands = graph.operands(user);
        let places: Vec<usize> = (0..operands.len()).filter(|i| operands.get(*i) == Some(&id)).collect();
        match &node.op {
            Op::Transpose(t) if t.perm == [1, 0] && node.epilogue.is_empty() => {
                collect(graph, user, !transposed, uses)?;
            }
            Op::Elementwise(Elementwise { element: Element::Cast(to) })
                if to.is_float() && node.epilogue.is_empty() =>
            {
                collect(graph, user, transposed, uses)?;
            }
            Op::MatMul(product) if places == [1] => {
                uses.push(Use::Product(usize::from(product.trans_b == transposed)));
            }
            Op::GatherMatMul(gather) if places == [1] => {
                uses.push(Use::Product(usize::from(gather.product.trans_b == transposed)));
            }
            Op::Gather(gather) if places == [0] && gather.axis == 0 && !transposed => uses.push(Use::Table),
            _ => return None,
        }
    }
    Some(())
}

fn scheme(weights: Weights, name: &str) -> Scheme {
    let whole = |bits| Scheme { bits, group: None, zeros: false };
    match weights {
        Weights::F16 | Weights::Q8 => whole(8),
        Weights::Q844 => whole(if is_attention(name) { 8 } else { 4 }),
        Weights::W4(group, zeros) => Scheme { bits: 4, group: Some(group), zeros },
    }
}

/// Whether a weight is one of attention, by what exporters call them.
fn is_attention(name: &str) -> bool {
    ["attn", "attention", "q_proj", "k_proj", "v_proj", "o_proj", "qkv"]
        .iter()
        .any(|part| name.contains(part))
}

/// Whether a table is one of embeddings, rather than of angles or masks.
fn is_embedding(name: &str) -> bool {
    ["emb", "wte", "wpe"].iter().any(|part| name.contains(part))
}

/// Whether a product chooses experts: a small matrix whose errors change the choice.
fn is_router(name: &str) -> bool {
    let name = name.strip_suffix(".weight").unwrap_or(name);
    name.ends_with(".gate") || name.contains("router") || name.contains("ffn_gate_inp")
}

#[cfg(test)]
mod tests {
    use super::{Calibration, Weights, run};
    use crate::ir::text;

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

    #[test]
    fn weights_become_codes_by_what_they_are() {
        for (text, wanted) in [
            ("q8", ["u8 in groups of 64", "u8 in groups of 64", "u8 in groups of 96"]),
            ("q844", ["u4 in groups of 64", "u8 in groups of 64", "u4 in groups of 96"]),
            ("w4:32", ["u4 in groups of 32", "u4 in groups of 32", "u4 in groups of 32"]),
            ("w4:32:zeros", ["u4 in groups of 32 with zeros"; 3]),
        ] {
            let mut graph = text::parse(GRAPH).unwrap();
            let before: Vec<_> =
                graph.ids().into_iter().filter_map(|id| graph.constant(id).cloned()).collect();
            run([&mut graph], text.parse().unwrap(), &Calibration::default()).unwrap();
            let after: Vec<_> =
                graph.ids().into_iter().filter_map(|id| graph.constant(id).cloned()).collect();
            let stored: Vec<String> = after.iter().map(|c| c.stored.to_string()).collect();
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
    fn what_cannot_be_is_refused() {
        for wrong in ["", "q4", "w4:", "w4:0", "w4:48", "w4:32:sym", "w4:32:zeros:", "f16:1", "q8:32"] {
            let refused = wrong.parse::<Weights>().unwrap_err().to_string();
            assert!(refused.contains("no way of storing weights"), "{refused}");
        }
        let mut graph = text::parse(GRAPH).unwrap();
        let refused = run([&mut graph], "w4:128".parse().unwrap(), &Calibration::default());
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("groups of 128 do not divide"), "{refused}");
        for name in ["f16", "q8", "q844", "w4:64", "w4:32:zeros"] {
            assert_eq!(name.parse::<Weights>().unwrap().to_string(), name);
        }
        assert_eq!("w4".parse::<Weights>().unwrap(), Weights::W4(128, false));
    }
}
