//! Rows of a fused matmul that are `residual + row / sqrt(mean(row^2) + epsilon) * scale`: the matmul that reads a row
//! computes its norm and adds the residual.
//!
//! A kernel computes the norm factors of its rows in the WGSL function `prepare_rows`, which it calls while its first
//! loads are in flight. The sums of normalized row and residual are computed again at every read of a row.

use super::matmul_node::{MatMulNode, Residual, VectorWidth};
use super::matmul_sizes::operand_batch;
use crate::error::OpError;
use crate::shader::access::Coordinates;
use crate::shader::value_type::literal;
use crate::shader::{Shader, ValueType};

/// Replaces the hook `load_a`, which reads one or four elements of a row of the first operand. With a residual, also
/// replaces the constant `RESIDUALS` and the hook `prepare_rows(batch, first, local)`, which computes the norm factors
/// of rows. All THREADS invocations of a workgroup call `prepare_rows` before they read the workgroup's ROWS rows from
/// `first` on. `first` is a multiple of ROWS, so `row % ROWS` is the index of a row in the workgroup. The kernel's
/// function `reduce_squares` adds squares and leaves WORKGROUP_PARTIALS sums per row.
///
/// # Errors
/// If the operands do not fit the operator (a defect of the graph), or `width` is eight elements.
pub(crate) fn declare_row_loads(
    node: &MatMulNode<'_>,
    shader: &mut Shader<'_>,
    width: VectorWidth,
) -> Result<(), OpError> {
    let (name, ty, step) = match width {
        VectorWidth::Scalar => ("k", "f32", 1),
        VectorWidth::Vec4 => ("k4", "vec4<f32>", 4),
        VectorWidth::Vec8 => {
            return Err(OpError::new(
                "rows with a residual are read one or four elements at a time, not eight",
            ));
        }
    };
    let params = format!("batch: u32, row: u32, {name}: u32");
    let read = |shader: &mut Shader<'_>, hook: &str, operand: usize| {
        let (prelude, mut axes) = operand_batch(shader, operand);
        let lane = axes.len() + usize::from(!node.matmul.trans_a);
        axes.extend(if node.matmul.trans_a { [name, "row"] } else { ["row", name] }.map(str::to_string));
        let at = if step == 4 { Coordinates::vec4(axes, lane) } else { Coordinates::element(axes) };
        shader.read_fn(hook, &params, &prelude, operand, &at, false)
    };
    let Some(Residual { operand, epsilon }) = node.residual() else {
        let load_a = read(shader, "load_a", 0);
        shader.replace("load_a", load_a);
        return Ok(());
    };
    let inner = read(shader, "load_inner", 0);
    let residual = read(shader, "load_residual", operand);
    let scale = width.scale_function(shader, "load_inner_scale", operand + 1)?;
    shader.replace(
        "load_a",
        format!(
            "{inner}{residual}{scale}
var<workgroup> inner_factors: array<f32, ROWS>;
fn load_a({params}) -> {ty} {{
    let normal = load_inner(batch, row, {name}) * inner_factors[row % ROWS];
    return normal * load_inner_scale({name}) + load_residual(batch, row, {name});
}}"
        ),
    );
    let whole_vectors =
        shader.problem.operands.first().is_some_and(|x| x.size_from_end(1).is_multiple_of(step));
    let squared = match (width, whole_vectors) {
        (VectorWidth::Vec4, true) => "dot(x, x)",
        (VectorWidth::Vec4, false) => {
            "dot(x, select(vec4<f32>(0.0), x, vec4<u32>(at * 4u) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(size_k())))"
        }
        (VectorWidth::Scalar | VectorWidth::Vec8, _) => "x * x",
    };
    let epsilon = literal(epsilon.into(), ValueType::Float, 1);
    shader.knob("RESIDUALS", 1);
    shader.replace(
        "prepare_rows",
        format!(
            "fn prepare_rows(batch: u32, first: u32, local: u32) {{
    for (var r = 0u; r < ROWS; r++) {{
        if (r > 0u) {{ workgroupBarrier(); }}
        let row = min(first + r, size_m() - 1u);
        var square = 0.0;
        for (var at = local; at < (size_k() + {step}u - 1u) / {step}u; at += THREADS) {{
            let x = load_inner(batch, row, at);
            square += {squared};
        }}
        reduce_squares(local, r, square);
    }}
    workgroupBarrier();
    if (local < ROWS) {{
        var sum = 0.0;
        for (var i = 0u; i < WORKGROUP_PARTIALS; i++) {{ sum += partial_squares[local * WORKGROUP_PARTIALS + i]; }}
        inner_factors[local] = inverseSqrt(sum / f32(size_k()) + {epsilon});
    }}
    workgroupBarrier();
}}"
        ),
    );
    Ok(())
}
