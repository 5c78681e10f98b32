//! Removes what does nothing and brings equal computations into one form.
//!
//! ```text
//! %1 = reshape {"shape": [4, 6]} %0
//! %2 = reshape {"shape": [24]} %1            ->      %2 = reshape {"shape": [24]} %0
//!
//! %2 = binary mul %0 %1   (%1 = 0.5)         ->      %2 = unary affine {"scale": 0.5, "shift": 0} %0
//! ```
//!
//! Arithmetic with a scalar constant becomes `affine`, powers become products or roots, bounds become `clip`:
//! what follows matches these forms alone, and an epilogue needs no buffer for the constant.
//! Rules never move a rounding that a model could rely on: see [`arithmetic`].

mod arithmetic;
pub(super) mod views;

use super::matching::{Rule, rewrite};
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::graph::Graph;

/// Every rule, with the note it leaves.
const RULES: &[(&str, Rule)] = &[
    ("does nothing", views::identity),
    ("two reshapes are one", views::reshape_of_reshape),
    ("two transposes are one", views::transpose_of_transpose),
    ("two slices are one", views::slice_of_slice),
    ("two expansions are one", views::expand_of_expand),
    ("the user broadcasts by itself", views::expand_before_broadcast),
    ("the expansion moves behind it", views::expand_behind_elementwise),
    ("does nothing", arithmetic::neutral),
    ("two casts are one", arithmetic::cast_of_cast),
    ("a select whose condition is known", arithmetic::known_select),
    ("a power is a product or a root", arithmetic::power),
    ("arithmetic with a scalar is affine", arithmetic::scalar),
    ("two affine maps are one", arithmetic::affine_of_affine),
    ("the inverse of its operand", arithmetic::involution),
    ("a bound is a clip", arithmetic::bound),
    ("two clips are one", arithmetic::clip_of_clip),
    ("a reciprocal", arithmetic::reciprocal),
];

/// Simplifies until no rule matches.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(graph, RULES)
}
