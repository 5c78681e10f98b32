//! Recognizes activation functions that a model spells out.
//!
//! ```text
//! %1 = sigmoid %0
//! %2 = mul %0 %1                             ->      %2 = swish %0 {"alpha":1.0}
//!
//! %1 = affine %0 {"scale":1.0,"shift":3.0}
//! %2 = clip %1 {"low":0.0,"high":6.0}
//! %3 = mul %0 %2
//! %4 = affine %3 {"scale":0.16666667}        ->      %4 = hard-swish %0
//! ```
//!
//! Recognizes sigmoid, swish (SiLU), hard sigmoid, hard swish, softplus, mish, softsign and leaky ReLU. Matches the
//! forms that `simplify` leaves: scalars are `affine`, bounds are `clip`, `1 / x` is `reciprocal`.

use super::matching::{
    Rule, add_affine, add_unary, affine, binary_of, both_orders, factors, name, nearly_equal, rewrite, unary,
    unary_of,
};
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{BinaryFn, UnaryFn};

const RULES: &[(&str, Rule)] = &[
    ("recognized as sigmoid", sigmoid),
    ("recognized as swish", swish),
    ("recognized as hard swish", hard_swish),
    ("recognized as hard sigmoid", hard_sigmoid),
    ("recognized as softplus", softplus),
    ("recognized as mish", mish),
    ("recognized as softsign", softsign),
    ("recognized as leaky ReLU", leaky_relu),
];

/// Recognizes activations.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(graph, RULES)
}

/// Returns `(a, b, x)` of a node `1 + exp(-(a x + b))`.
fn one_plus_exp_of_minus(graph: &Graph, id: NodeId) -> Option<(f32, f32, NodeId)> {
    let Some((1.0, 1.0, exp)) = affine(graph, id) else { return None };
    let arg = unary_of(graph, exp, UnaryFn::Exp)?;
    match (unary_of(graph, arg, UnaryFn::Neg), affine(graph, arg)) {
        (Some(x), _) => Some((1.0, 0.0, x)),
        (_, Some((scale, shift, x))) => Some((-scale, -shift, x)),
        _ => None,
    }
}

/// Recognizes sigmoid: `1 / (1 + exp(-x))`.
fn sigmoid(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let inner = unary_of(graph, id, UnaryFn::Reciprocal).and_then(|d| one_plus_exp_of_minus(graph, d));
    let Some((scale, shift, x)) = inner else { return Ok(None) };
    let name = name(graph, id);
    let x = add_affine(graph, scale, shift, x, &name)?;
    add_unary(graph, UnaryFn::Sigmoid, x, &name).map(Some)
}

/// Recognizes swish (SiLU): `x * sigmoid(a x)`, or `x / (1 + exp(-a x))`.
fn swish(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let product = both_orders(graph, id, BinaryFn::Mul).into_iter().find_map(|(x, s)| {
        let arg = unary_of(graph, s, UnaryFn::Sigmoid)?;
        match affine(graph, arg) {
            _ if arg == x => Some((x, 1.0)),
            Some((alpha, 0.0, inner)) if inner == x => Some((x, alpha)),
            _ => None,
        }
    });
    let quotient = || {
        let (x, d) = binary_of(graph, id, BinaryFn::Div)?;
        let (alpha, shift, inner) = one_plus_exp_of_minus(graph, d)?;
        (inner == x && shift == 0.0).then_some((x, alpha))
    };
    let Some((x, alpha)) = product.or_else(quotient) else { return Ok(None) };
    add_unary(graph, UnaryFn::Swish { alpha }, x, &name(graph, id)).map(Some)
}

/// Returns `(h, a / h, b / h, x)` of `clip(a x + b, 0, h)`, a hard sigmoid that reaches `h`.
fn ramp(graph: &Graph, id: NodeId) -> Option<(f64, f64, f64, NodeId)> {
    match unary(graph, id)? {
        (UnaryFn::Clip { low: 0.0, high }, inner) if high > 0.0 && high.is_finite() => {
            let (scale, shift, x) = affine(graph, inner)?;
            let h = f64::from(high);
            Some((h, f64::from(scale) / h, f64::from(shift) / h, x))
        }
        (UnaryFn::HardSigmoid { alpha, beta }, x) => Some((1.0, f64::from(alpha), f64::from(beta), x)),
        _ => None,
    }
}

/// Recognizes hard swish: `x * clip(x + 3, 0, 6) / 6`, with the factors in any order.
fn hard_swish(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let (_, all_factors) = factors(graph, id, &[]);
    for clipped in all_factors {
        let Some((high, slope, offset, x)) = ramp(graph, clipped) else { continue };
        let (coefficient, mut rest) = factors(graph, id, &[x, clipped]);
        rest.sort_unstable();
        let mut wanted = [x, clipped];
        wanted.sort_unstable();
        if rest == wanted
            && nearly_equal(coefficient * high, 1.0)
            && nearly_equal(slope, 1.0 / 6.0)
            && nearly_equal(offset, 0.5)
        {
            return add_unary(graph, UnaryFn::HardSwish, x, &name(graph, id)).map(Some);
        }
    }
    Ok(None)
}

/// Recognizes hard sigmoid: `clip(a x + b, 0, 1)`, or a clip to another upper bound that is scaled to 1 afterwards.
fn hard_sigmoid(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let found = match affine(graph, id) {
        Some((scale, 0.0, inner)) => {
            ramp(graph, inner).filter(|(h, ..)| nearly_equal(h * f64::from(scale), 1.0))
        }
        _ => ramp(graph, id).filter(|(h, ..)| *h == 1.0),
    };
    let Some((_, slope, offset, x)) = found else { return Ok(None) };
    let f = UnaryFn::HardSigmoid { alpha: slope as f32, beta: offset as f32 };
    if unary_of(graph, id, f).is_some() {
        return Ok(None);
    }
    add_unary(graph, f, x, &name(graph, id)).map(Some)
}

/// Recognizes softplus: `log(1 + exp(x))`.
fn softplus(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let x = unary_of(graph, id, UnaryFn::Log).and_then(|sum| match affine(graph, sum) {
        Some((1.0, 1.0, exp)) => unary_of(graph, exp, UnaryFn::Exp),
        _ => None,
    });
    let Some(x) = x else { return Ok(None) };
    add_unary(graph, UnaryFn::Softplus, x, &name(graph, id)).map(Some)
}

/// Recognizes mish: `x * tanh(softplus(x))`.
fn mish(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let x = both_orders(graph, id, BinaryFn::Mul).into_iter().find_map(|(x, t)| {
        let inner = unary_of(graph, unary_of(graph, t, UnaryFn::Tanh)?, UnaryFn::Softplus)?;
        (inner == x).then_some(x)
    });
    let Some(x) = x else { return Ok(None) };
    add_unary(graph, UnaryFn::Mish, x, &name(graph, id)).map(Some)
}

/// Recognizes softsign: `x / (1 + |x|)`.
fn softsign(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let x = binary_of(graph, id, BinaryFn::Div).and_then(|(x, d)| match affine(graph, d) {
        Some((1.0, 1.0, abs)) => (unary_of(graph, abs, UnaryFn::Abs)? == x).then_some(x),
        _ => None,
    });
    let Some(x) = x else { return Ok(None) };
    add_unary(graph, UnaryFn::Softsign, x, &name(graph, id)).map(Some)
}

/// Recognizes leaky ReLU: `max(x, a x)` with `0 <= a <= 1`.
fn leaky_relu(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let found = both_orders(graph, id, BinaryFn::Max).into_iter().find_map(|(x, s)| match affine(graph, s) {
        Some((alpha, 0.0, inner)) if inner == x && (0.0..=1.0).contains(&alpha) => Some((x, alpha)),
        _ => None,
    });
    let Some((x, alpha)) = found else { return Ok(None) };
    add_unary(graph, UnaryFn::LeakyRelu { alpha }, x, &name(graph, id)).map(Some)
}
