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
//! No rule changes a rounding that a model may rely on; see module `arithmetic`.

mod arithmetic;
pub(super) mod views;

use super::matching::{Rule, rewrite};
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::graph::Graph;

/// All rewrite rules of `simplify`, each with the note that reports of the compiler print for a node that the rule rewrites.
const RULES: &[(&str, Rule)] = &[
    ("removed: has no effect", views::identity),
    ("merged with the reshape that computes its operand", views::reshape_of_reshape),
    ("merged with the transpose that computes its operand", views::transpose_of_transpose),
    ("merged with the slice that computes its operand", views::slice_of_slice),
    ("merged with the expand that computes its operand", views::expand_of_expand),
    (
        "broadcasts its operand itself, so the expand of the operand is removed",
        views::expand_before_broadcast,
    ),
    ("computed before the expand of its operand instead of after it", views::expand_after_elementwise),
    ("removed: has no effect", arithmetic::neutral),
    ("merged with the cast that computes its operand", arithmetic::cast_of_cast),
    ("select with a constant condition removed", arithmetic::known_select),
    ("power replaced by a multiplication or root", arithmetic::power),
    ("arithmetic with a scalar replaced by affine", arithmetic::scalar),
    ("merged with the scale and shift (`affine`) that computes its operand", arithmetic::affine_of_affine),
    ("removed with the operation before it, which it reverses", arithmetic::involution),
    ("minimum or maximum replaced by clip or ReLU", arithmetic::bound),
    ("merged with the clip that computes its operand", arithmetic::clip_of_clip),
    ("clip before it removed: the quantization saturates at its bounds", arithmetic::clip_before_quantize),
    ("scales of the sums and of the quantization merged", arithmetic::requantize),
    ("division or root replaced by a reciprocal", arithmetic::reciprocal),
];

/// Simplifies the graph until no rule matches.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(graph, RULES)
}
