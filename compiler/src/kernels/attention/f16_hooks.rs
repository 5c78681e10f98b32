//! Hooks that `attention_coop` and `attention_fragments` share: they read f16 in groups of eight elements.

use super::attention::{HeadCoordinates, QuantizedRows, Sizes, axes, declare_sizes, declare_softcap};
use crate::error::OpError;
use crate::ir::op::Attention;
use crate::kernels::shared::coop;
use crate::shader::Shader;
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;

/// True if scores have no mask and no soft cap, so that the factor of the scores can be a factor of the exponents.
pub(super) fn is_plain(problem: &Problem<'_>, op: &Attention) -> bool {
    problem.arity == 3 && op.softcap.is_none()
}

/// Declares whether there is a mask, and whether a query row may be unable to see some keys of a tile of `key_tile` keys.
pub(super) fn declare_visibility(shader: &mut Shader<'_>, sizes: &Sizes, op: &Attention, key_tile: u32) {
    shader.constant("MASKED", shader.problem.arity > 3);
    let whole_tiles = sizes.keys.is_multiple_of(i64::from(key_tile));
    shader.constant("CHECK_VISIBLE", op.causal || op.window.is_some() || !whole_tiles);
}

/// True if the operands of an attention have a form that the hooks of [`declare_loads`] can read.
pub(super) fn has_readable_operands(problem: &Problem<'_>, sizes: &Sizes) -> bool {
    let sized = (1..=512).contains(&sizes.d) && (1..=512).contains(&sizes.e);
    let scalar_mask = problem.arity > 3 && problem.operands.get(3).is_none_or(|mask| mask.rank() == 0);
    sized && !scalar_mask
}

/// Declares the sizes, the soft cap, and the hooks that read queries, keys, values and the mask. Returns the WGSL
/// statements that compute the coordinates of a query.
///
/// # Errors
/// If an operand has a layout whose vectors of eight elements cannot be read (a defect of the candidates).
pub(super) fn declare_loads(
    shader: &mut Shader<'_>,
    sizes: &Sizes,
    op: &Attention,
) -> Result<String, OpError> {
    let problem = shader.problem;
    declare_softcap(shader, op, "vec4<f32>");
    let HeadCoordinates { key, query } = declare_sizes(shader, sizes, op);
    for (index, name, params, prelude, coordinates) in [
        (0, "load_q", "head: u32, row: u32, d8: u32", &query, ["b", "h", "s", "d8"]),
        (1, "load_k", "head: u32, key: u32, d8: u32", &key, ["b", "hk", "key", "d8"]),
        (2, "load_v", "head: u32, key: u32, e8: u32", &key, ["b", "hk", "key", "e8"]),
    ] {
        if let Some(quantized) = QuantizedRows::from_operand(shader, index, prelude) {
            shader.replace(name, quantized.f16_vec8_function(name, coordinates[3]));
            continue;
        }
        let at = Coordinates::vec4(axes(coordinates), 3);
        let load = coop::vec8_read(shader, name, params, prelude, index, &at)?;
        shader.replace(name, load);
    }
    if problem.arity > 3 {
        let rank = problem.operands[3].rank();
        let at = Coordinates::vec4(axes(["b", "h", "s", "key4"]).split_off(4 - rank), rank - 1);
        shader.read("mask", "head: u32, row: u32, key4: u32", &query, 3, &at);
    }
    Ok(query)
}
