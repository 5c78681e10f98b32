//! Kernel `quantized_rows_dot`: matmuls of quantized rows with packed dot instructions, by `tiled_dot.wgsl`.

use crate::error::OpError;
use crate::ir::dim::product;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::dot::Signs;
use crate::kernels::shared::quantized_rows::QuantizedRowsProblem;
use crate::kernels::shared::tiled_dot;
use crate::shader::problem::Problem;
use crate::shader::{LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "quantized_rows_dot",
    wgsl: tiled_dot::WGSL,
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<tiled_dot::Params>()],
    in_place: InPlace::Epilogue,
};

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some(QuantizedRowsProblem { sizes, .. }) = QuantizedRowsProblem::from_problem(problem) else {
        return Vec::new();
    };
    let signs = Signs::signed(problem);
    let batch = problem.max(&product(&sizes.batch));
    let sizes = [&sizes.m, &sizes.n, &sizes.k].map(|d| problem.max(d));
    tiled_dot::tile_candidates(problem, signs, batch, sizes, true)
}

fn launches(problem: &Problem<'_>, config: tiled_dot::Config) -> Result<Vec<LaunchDraft>, OpError> {
    let matmul = QuantizedRowsProblem::from_problem(problem)
        .ok_or_else(|| OpError::new("the operator is not a matmul of quantized rows"))?;
    let signs = Signs::signed(problem);
    let mut shader = Shader::new(problem);
    let word = QuantizedRowsProblem::word_function(&mut shader, "row_word");
    let flipped = signs.flipped_word(0, "row_word(batch, row, k4)");
    let params = "batch: u32, row: u32, k4: u32";
    shader.replace("load_a", format!("{word}fn load_a({params}) -> u32 {{ return {flipped}; }}\n"));
    let weights = matmul.bind_weights(&mut shader)?;
    let head = "load_b(batch: u32, k4: u32, n4: u32) -> vec4<u32>";
    let load_b = matmul.function(head, ("n4", 4), |i, n4| {
        signs.flipped_vec4(&format!("({})", matmul.vec4_of_words(i, &weights[i], n4)))
    });
    shader.replace("load_b", load_b);
    let row_scale = format!("bitcast<f32>(row_word(batch, row, {}u))", matmul.depth / 4);
    matmul.declare_store(&mut shader, &row_scale)?;
    let sizes = &matmul.sizes;
    let batch = product(&sizes.batch);
    let flops = sizes.m.mul(&sizes.n).mul(&sizes.k).mul(&batch).scale(2);
    let grid = tiled_dot::declare_matmul(&mut shader, config, signs, &batch, [&sizes.m, &sizes.n, &sizes.k]);
    Ok(vec![shader.finish(KERNEL.name, KERNEL.wgsl, grid, flops)])
}
