//! Recognizes GELU, exact and with the tanh approximation.
//!
//! ```text
//! %1 = affine %0 {"scale":0.70710677}
//! %2 = erf %1
//! %3 = affine %2 {"scale":1.0,"shift":1.0}
//! %4 = mul %0 %3
//! %5 = affine %4 {"scale":0.5}               ->      %5 = gelu %0
//! ```
//!
//! A model may multiply by x and by 0.5 in any order: the node is split into a coefficient and factors. It may also
//! write the argument of tanh in any form: the argument is evaluated as a polynomial in x.

use super::matching::{
    add_unary, affine, binary, elementwise, factors, name, nearly_equal, rewrite, splat, unary,
};
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{BinaryFn, UnaryFn};

/// Maximum number of nodes between the operand x of GELU and the argument of erf or tanh.
const MAX_DEPTH: usize = 5;
/// `sqrt(2 / pi)`.
const TANH_SLOPE: f64 = 0.797_884_560_802_865_4;
/// Cubic coefficient of GELU's tanh approximation.
const TANH_CUBIC: f64 = 0.044_715;

/// Recognizes GELU.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(graph, &[("recognized as GELU", gelu)])
}

fn gelu(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let (_, all_factors) = factors(graph, id, &[]);
    for gate in all_factors {
        // a * (1 + f(arg))
        let Some((a, b, inner)) = affine(graph, gate) else { continue };
        let Some((f @ (UnaryFn::Erf | UnaryFn::Tanh), arg)) = unary(graph, inner) else { continue };
        if a != b {
            continue;
        }
        for x in candidates(graph, arg) {
            let (coefficient, mut rest) = factors(graph, id, &[x, gate]);
            rest.sort_unstable();
            let mut wanted = [x, gate];
            wanted.sort_unstable();
            if rest != wanted || !nearly_equal(coefficient * f64::from(a), 0.5) {
                continue;
            }
            let Some([zero, slope, square, cubic]) = polynomial(graph, arg, x, MAX_DEPTH) else { continue };
            let odd = zero == 0.0 && square == 0.0;
            let found = match f {
                UnaryFn::Erf
                    if odd && cubic == 0.0 && nearly_equal(slope, std::f64::consts::FRAC_1_SQRT_2) =>
                {
                    UnaryFn::Gelu
                }
                UnaryFn::Tanh
                    if odd
                        && nearly_equal(slope, TANH_SLOPE)
                        && nearly_equal(cubic, TANH_SLOPE * TANH_CUBIC) =>
                {
                    UnaryFn::GeluTanh
                }
                _ => continue,
            };
            return add_unary(graph, found, x, &name(graph, id)).map(Some);
        }
    }
    Ok(None)
}

/// Returns the nodes that may be the operand x of GELU: the argument of erf or tanh, and the values that it is computed
/// from.
fn candidates(graph: &Graph, arg: NodeId) -> Vec<NodeId> {
    let mut found: Vec<NodeId> = vec![arg];
    let mut level = vec![arg];
    for _ in 0..MAX_DEPTH {
        let mut next = Vec::new();
        for operand in level.iter().filter_map(|id| elementwise(graph, *id)).flat_map(|(_, o)| o) {
            if graph.constant(operand).is_none() && !found.contains(&operand) {
                found.push(operand);
                next.push(operand);
            }
        }
        level = next;
    }
    found
}

/// Returns the coefficients of the node as a polynomial in x of at most degree 3, constant term first.
fn polynomial(graph: &Graph, id: NodeId, x: NodeId, depth: usize) -> Option<[f64; 4]> {
    if id == x {
        return Some([0.0, 1.0, 0.0, 0.0]);
    }
    if let Some(c) = splat(graph, id) {
        return Some([c, 0.0, 0.0, 0.0]);
    }
    let depth = depth.checked_sub(1)?;
    if let Some((scale, shift, inner)) = affine(graph, id) {
        let mut p = polynomial(graph, inner, x, depth)?.map(|c| c * f64::from(scale));
        p[0] += f64::from(shift);
        return Some(p);
    }
    let (f, a, b) = binary(graph, id)?;
    let (a, b) = (polynomial(graph, a, x, depth)?, polynomial(graph, b, x, depth)?);
    let mut out = [0.0; 4];
    match f {
        BinaryFn::Add => out.iter_mut().zip(a.iter().zip(b)).for_each(|(o, (a, b))| *o = a + b),
        BinaryFn::Sub => out.iter_mut().zip(a.iter().zip(b)).for_each(|(o, (a, b))| *o = a - b),
        BinaryFn::Mul => {
            for (i, a) in a.iter().enumerate().filter(|(_, a)| **a != 0.0) {
                for (j, b) in b.iter().enumerate().filter(|(_, b)| **b != 0.0) {
                    *out.get_mut(i + j)? += a * b;
                }
            }
        }
        _ => return None,
    }
    Some(out)
}
