//! Norms of sums in the kernel `normalize`: the hook `load` adds the terms of an element and applies the steps to the sum.

use std::fmt::Write as _;

use super::normalize::{NormRows, PARAMS, layer_norm_rows};
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::NormOfSums;
use crate::shader::access::Coordinates;
use crate::shader::problem::{Placement, Problem};
use crate::shader::{Shader, ValueType};

/// Maximum number of terms. The hook `load` has a read for each term.
const MAX_TERMS: i64 = 32;

/// Returns the rows of a norm of sums: the rows of one term. Returns `None` if the terms are not in strided memory, or too
/// many.
pub(super) fn rows<'a>(op: &'a NormOfSums, problem: &Problem<'a>) -> Option<NormRows<'a>> {
    let mut one_term = problem.clone();
    let terms = one_term.operands.first_mut()?;
    let Placement::Strided { strides, .. } = &mut terms.placement else { return None };
    if strides.is_empty() || terms.shape.is_empty() {
        return None;
    }
    let (count, stride) = (terms.shape.remove(0), strides.remove(0));
    if count.as_known().is_none_or(|count| count > MAX_TERMS) {
        return None;
    }
    let mut rows = layer_norm_rows(&op.norm, &one_term);
    let terms = rows.problem.operands.first_mut()?;
    let Placement::Strided { strides, .. } = &mut terms.placement else { return None };
    terms.shape.insert(0, count);
    strides.insert(0, stride);
    (rows.bias, rows.sums) = (op.bias, Some(op));
    Some(rows)
}

/// Declares the hook `load`, which adds the terms and applies the steps.
///
/// # Errors
/// If the steps are malformed or do not return a float.
pub(super) fn declare_load<'p>(
    shader: &mut Shader<'p>,
    rows: &'p NormRows<'p>,
    op: &NormOfSums,
) -> Result<(), OpError> {
    let (prelude, at) = rows.at(shader);
    let lanes = if at.lanes.is_some() { 4 } else { 1 };
    let axes = ["term".to_string()].into_iter().chain(at.axes.iter().cloned()).collect();
    let of_term = Coordinates { axes, lanes: at.lanes.map(|axis| axis + 1), ..at.clone() };
    let load_term =
        shader.read_fn("load_term", &format!("term: u32, {PARAMS}"), &prelude, 0, &of_term, false);
    let terms = rows.problem.operands.first().and_then(|terms| terms.shape.first()).and_then(Dim::as_known);
    let terms = terms.ok_or_else(|| OpError::new("the number of terms is unknown"))?;
    let (first, others) = ("load_term(0u, row, i)", 1..terms);
    let sum = others.fold(first.to_string(), |mut sum, term| {
        // Writing to a string does not fail.
        let _ = write!(sum, " + load_term({term}u, row, i)");
        sum
    });
    let start = Some(("sum".to_string(), ValueType::Float));
    let (statements, value, value_type) = shader.epilogue_statements(&op.steps, start, &at, lanes, false)?;
    if value_type != ValueType::Float {
        return Err(OpError::new("the steps of a norm of sums do not return a float"));
    }
    shader.replace(
        "load",
        format!(
            "{load_term}fn load({PARAMS}) -> V {{\n{prelude}    let sum = {sum};\n{statements}    return {value};\n}}"
        ),
    );
    Ok(())
}
