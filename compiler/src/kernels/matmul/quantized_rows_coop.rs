//! Kernel `quantized_rows_coop`: matmuls of quantized rows on matrix units with 8-bit inputs, by `coop.wgsl`. Weights are
//! read from the packed form that the small-M kernels read.

use crate::error::OpError;
use crate::ir::dim::product;
use crate::ir::storage::Storage;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::coop::{self, SecondOperand};
use crate::kernels::shared::quantized_rows::QuantizedRowsProblem;
use crate::shader::problem::{Operand, Problem};
use crate::shader::{Bound, LaunchDraft, Shader};
use crate::target::MatrixScope;

pub(crate) const KERNEL: Kernel = Kernel {
    name: "quantized_rows_coop",
    wgsl: coop::WGSL,
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: Some(MatrixScope::Subgroup),
    params: &[Group::from_parameters::<coop::Params>()],
    in_place: InPlace::Epilogue,
};

/// Returns the number of words of a row if rows are contiguous and begin at multiples of 8 bytes.
fn row_words(rows: &Operand<'_>) -> Option<i64> {
    let words = rows.size_from_end(1).as_known().filter(|words| words % 2 == 0)?;
    (rows.storage == Storage::Buffer && rows.placement.is_dense(&rows.shape)).then_some(words)
}

/// Returns the matmul of a problem and the number of words of a row, if the kernel can compute it.
fn matmul(problem: &Problem<'_>) -> Option<(QuantizedRowsProblem, i64)> {
    let matmul = QuantizedRowsProblem::from_problem(problem)?;
    let words = row_words(problem.operands.first()?)?;
    (matmul.depth.is_multiple_of(8) && coop::matrix_shape(problem).is_some()).then_some((matmul, words))
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some((matmul, _)) = matmul(problem) else { return Vec::new() };
    let sizes = &matmul.sizes;
    let batch = problem.max(&product(&sizes.batch));
    coop::tile_candidates(problem, batch, [&sizes.m, &sizes.n, &sizes.k].map(|d| problem.max(d)), false, 1.0)
}

fn launches(problem: &Problem<'_>, config: coop::Config) -> Result<Vec<LaunchDraft>, OpError> {
    let (matmul, words) =
        matmul(problem).ok_or_else(|| OpError::new("the operator is not a matmul of quantized rows"))?;
    let mut shader = Shader::new(problem);
    let rows = shader.bind(Bound::Operand(0), "vec2<f32>", false);
    let m = shader.dim(&matmul.sizes.m);
    let first = format!("(batch * {m} + row) * {}u", words / 2);
    shader.replace(
        "load_a",
        format!("fn load_a(batch: u32, row: u32, k8: u32) -> Vec8 {{ return {rows}[{first} + k8]; }}\n"),
    );
    let weights = matmul.bind_weights(&mut shader)?;
    // With B_ALONG_K, the parameter `n` is a column and `k8` counts groups of eight elements.
    let load_b = matmul.function("load_b(batch: u32, n: u32, k8: u32) -> Vec8", ("n", 1), |i, n| {
        format!("bitcast<vec2<f32>>({})", matmul.two_words(i, &weights[i], n))
    });
    shader.replace("load_b", load_b);
    shader.constant("ROWS_FIRST", false);
    matmul.declare_store(&mut shader, &format!("{rows}[{first} + {}u].x", matmul.depth / 8))?;
    let sizes = &matmul.sizes;
    let batch = product(&sizes.batch);
    let flops = sizes.m.mul(&sizes.n).mul(&sizes.k).mul(&batch).scale(2);
    let second = SecondOperand::Loaded { along_k: true };
    let grid = coop::declare_matmul(
        &mut shader,
        config,
        [&sizes.m, &sizes.n, &sizes.k.ceil_div(8)],
        &batch,
        second,
    )?;
    let draft = shader.finish(KERNEL.name, KERNEL.wgsl, grid, flops);
    Ok(coop::with_matrix_requirements(draft, problem))
}
