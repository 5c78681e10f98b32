//! `quantize_rows.wgsl`: rows of floats as codes of 8 bits with a scale for each row.

use super::shares::{Params, Shares};
use crate::error::OpError;
use crate::ir::op::Op;
use crate::kernels::cost::named;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::rows::{Rows, along_axis};
use crate::shader::{Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "quantize_rows",
    wgsl: include_str!("quantize_rows.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::named::<Params>("quantize_rows")],
    in_place: InPlace::Nothing,
};

/// Registers for the units of a row that an invocation keeps.
const KEEP: u32 = 4;

fn rows<'a>(problem: &Problem<'a>) -> Option<(Problem<'a>, Rows)> {
    let Op::QuantizeRows(_) = problem.op else { return None };
    let last = problem.operands.first()?.rank().checked_sub(1)?;
    let (merged, rows) = along_axis(problem, last);
    Some((merged, rows.fours()))
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some((merged, rows)) = rows(problem) else { return Vec::new() };
    let Some(p) = named::<Params>(problem, KERNEL.name) else { return Vec::new() };
    Shares::all(&merged, &rows, 4).iter().map(|s| s.candidate(&p, &merged, &rows, 2.0, KEEP)).collect()
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let (problem, rows) = rows(problem).ok_or_else(|| OpError::new("not rows to quantise"))?;
    let problem = &problem;
    let mut shader = Shader::new(problem);
    let shares = Shares::of(candidate);
    shares.knobs(&mut shader, problem, &rows, KEEP);
    shader.workgroup_memory(shares.threads() * 4);
    let (prelude, at) = rows.at(&mut shader);
    shader.read("load", "row: u32, i: u32", &prelude, 0, &at);
    // A unit of four elements is a word, and the one behind them the scale.
    let mut axes = at.axes;
    if let Some(last) = axes.last_mut() {
        *last = "i".into();
    }
    shader.write("store", "row: u32, i: u32", &prelude, &Coordinates::element(axes))?;
    let flops = problem.operands[0].elements().scale(4);
    let grid = shares.grid(problem, &rows.rows());
    Ok(vec![shader.finish("quantize_rows", KERNEL.wgsl, grid, flops)?])
}
