//! Removes operators without effect, and rewrites equivalent computations to one canonical form.
//!
//! ```text
//! %1 = reshape {"shape": [4, 6]} %0
//! %2 = reshape {"shape": [24]} %1            ->      %2 = reshape {"shape": [24]} %0
//!
//! %2 = binary mul %0 %1   (%1 = 0.5)         ->      %2 = unary affine {"scale": 0.5, "shift": 0} %0
//! ```
//!
//! Arithmetic with a scalar constant becomes `affine`, powers become multiplications or roots, bounds become `clip`.
//! Later passes match only these forms, and an epilogue needs no buffer for the constant.
//! No rule changes a rounding that a model may rely on; see [`arithmetic`].

mod arithmetic;
pub(super) mod views;

use super::matching::{Rule, rewrite};
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::graph::Graph;

/// Every rule with its note.
const RULES: &[(&str, Rule)] = &[
    ("removed: has no effect", views::identity),
    ("merged with the reshape of its operand", views::reshape_of_reshape),
    ("merged with the transpose of its operand", views::transpose_of_transpose),
    ("merged with the slice of its operand", views::slice_of_slice),
    ("merged with the expand of its operand", views::expand_of_expand),
    ("reads the unexpanded operand and broadcasts it", views::expand_before_broadcast),
    ("computed before its operand is expanded", views::expand_after_elementwise),
    ("removed: has no effect", arithmetic::neutral),
    ("merged with the cast of its operand", arithmetic::cast_of_cast),
    ("select with a constant condition removed", arithmetic::known_select),
    ("power replaced by a multiplication or root", arithmetic::power),
    ("arithmetic with a scalar replaced by affine", arithmetic::scalar),
    ("merged with the affine function of its operand", arithmetic::affine_of_affine),
    ("removed: inverse of its operand", arithmetic::involution),
    ("minimum or maximum replaced by clip or ReLU", arithmetic::bound),
    ("merged with the clip of its operand", arithmetic::clip_of_clip),
    ("division or root replaced by a reciprocal", arithmetic::reciprocal),
];

/// Simplifies until no rule matches.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(graph, RULES)
}
