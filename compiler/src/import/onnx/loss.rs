//! Loss operators of training graphs: negative log likelihood and softmax cross entropy.

use super::attention::integer;
use super::lowering::{Call, Lowered, OpEntry, Outputs, Value, op};
use super::refused::Refused;
use crate::ir::dim::Dim;
use crate::ir::element::{BinaryFn, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::op::{Gather, GatherElements, Softmax};
use crate::ir::ops::reduce::ReduceKind;
use crate::ir::tensor::DType;

pub(super) const OPS: &[OpEntry] = &[
    op("NegativeLogLikelihoodLoss", 12, |c| {
        let x = c.node(0)?;
        Ok(negative_log_likelihood(c, x)?.into())
    }),
    op("SoftmaxCrossEntropyLoss", 12, cross_entropy),
];

fn cross_entropy(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let logarithm = call.add(Softmax { axis: 1, log: true }, &[x])?;
    let loss = negative_log_likelihood(call, logarithm)?;
    Ok(Outputs(vec![Value::Node(loss), Value::Node(logarithm)]))
}

/// Adds the negative log likelihood `-x[n, target[n, ..], ..]` to the graph, weighted by class and reduced as the node
/// says. Ignored targets have weight 0.
fn negative_log_likelihood(call: &mut Call<'_>, x: NodeId) -> Lowered<NodeId> {
    let target = call.node(1)?;
    let dtype = call.dtype(x);
    let target = call.b.cast(target, DType::I64)?;
    let shape = call.shape(target);
    let (mut safe, mut kept) = (target, None);
    if let Some(ignored) = call.attributes.int_opt("ignore_index")? {
        let ignored = integer(call, ignored)?;
        let zero = integer(call, 0)?;
        let skip = call.b.binary(BinaryFn::Equal, target, ignored)?;
        safe = call.b.select(skip, zero, target)?;
        let keep = call.b.unary(UnaryFn::Not, skip)?;
        kept = Some(call.b.cast(keep, dtype)?);
    }
    let mut wide = shape.clone();
    wide.insert(1.min(wide.len()), Dim::known(1));
    let index = call.b.reshape(safe, wide)?;
    let target_score = call.add(GatherElements { axis: 1 }, &[x, index])?;
    let target_score = call.b.reshape(target_score, shape.clone())?;
    let mut loss = call.b.unary(UnaryFn::Neg, target_score)?;
    let mut weights = kept;
    if let Some(classes) = call.optional(2)? {
        let weight = call.add(Gather { axis: 0 }, &[classes, safe])?;
        weights = Some(match kept {
            Some(kept) => call.b.binary(BinaryFn::Mul, weight, kept)?,
            None => weight,
        });
    }
    if let Some(weights) = weights {
        loss = call.b.binary(BinaryFn::Mul, loss, weights)?;
    }
    let axes: Vec<usize> = (0..shape.len()).collect();
    match call.attributes.text("reduction", "mean")? {
        "none" => Ok(loss),
        "sum" => Ok(call.b.reduce(ReduceKind::Sum, loss, axes, false)?),
        "mean" => match weights {
            None => Ok(call.b.reduce(ReduceKind::Mean, loss, axes, false)?),
            Some(weights) => {
                let loss = call.b.reduce(ReduceKind::Sum, loss, axes.clone(), false)?;
                let total = call.b.reduce(ReduceKind::Sum, weights, axes, false)?;
                Ok(call.b.binary(BinaryFn::Div, loss, total)?)
            }
        },
        other => Err(Refused::attribute("reduction", other, "`none`, `sum`, `mean`")),
    }
}
