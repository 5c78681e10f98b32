//! `quantize_rows.wgsl`: quantizes rows of floats to 8 bits, with one scale per row.

use super::row_tiling::{Params, RowTiling};
use crate::error::OpError;
use crate::ir::op::Op;
use crate::kernels::cost::named;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::row_view::{RowView, rows_along_axis};
use crate::shader::{LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "quantize_rows",
    wgsl: concat!(include_str!("../shared/preludes/rows.wgsl"), include_str!("quantize_rows.wgsl")),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::named::<Params>("quantize_rows")],
    in_place: InPlace::Nothing,
};

/// Maximum loads that an invocation has in flight. It is also the maximum number of vec4s of a row that an invocation
/// keeps in registers.
const LOADS: u32 = 4;

/// Hook `store` of rows that end with padding. The word after the last word of quantized values is the scale, and zeros
/// follow it until the row has a multiple of 4 words.
const STORE_ALIGNED: &str = "fn store(row: u32, i: u32, v: u32) {
    store_word(row, i, v);
    if (i < length()) { return; }
    for (var zero = i + 1u; zero % 4u != 0u; zero++) { store_word(row, zero, 0u); }
}
";

fn rows<'a>(problem: &Problem<'a>) -> Option<(Problem<'a>, RowView)> {
    let Op::QuantizeRows(_) = problem.op else { return None };
    let last = problem.operands.first()?.rank().checked_sub(1)?;
    let (merged, rows) = rows_along_axis(problem, last);
    Some((merged, rows.with_vec4_lanes()))
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some((merged, rows)) = rows(problem) else { return Vec::new() };
    let Some(p) = named::<Params>(problem, KERNEL.name) else { return Vec::new() };
    RowTiling::configurations(&merged, &rows, 4)
        .iter()
        .map(|s| s.candidate(&p, &merged, &rows, 2.0, LOADS))
        .collect()
}

fn launches(problem: &Problem<'_>, tiling: RowTiling) -> Result<Vec<LaunchDraft>, OpError> {
    let (problem, rows) = rows(problem).ok_or_else(|| OpError::new("the operator does not quantize rows"))?;
    let problem = &problem;
    let mut shader = Shader::new(problem);
    tiling.declare_cached_rows(&mut shader, problem, &rows, LOADS);
    shader.workgroup_memory(tiling.threads() * 4);
    let (prelude, at) = rows.at(&mut shader);
    shader.read("load", "row: u32, i: u32", &prelude, 0, &at);
    // A vec4 of elements becomes one word. The word after the last one is the scale.
    let mut axes = at.axes;
    if let Some(last) = axes.last_mut() {
        *last = "i".into();
    }
    let aligned = matches!(problem.op, Op::QuantizeRows(op) if op.aligned);
    let hook = if aligned { "store_word" } else { "store" };
    let params = "row: u32, i: u32";
    let store = shader.write_fn(hook, params, &prelude, &Coordinates::element(axes), false)?;
    shader.replace("store", if aligned { format!("{store}{STORE_ALIGNED}") } else { store });
    let flops = problem.operands[0].elements().scale(4);
    let grid = tiling.grid(problem, &rows.rows());
    Ok(vec![shader.finish("quantize_rows", KERNEL.wgsl, grid, flops)])
}
