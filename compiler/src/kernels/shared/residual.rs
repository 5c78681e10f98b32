//! Rows that are sums with a residual, which kernels read in place of rows that they normalise:
//! `residual + row / sqrt(mean(row^2) + epsilon) * scale`.
//!
//! A kernel finds the factors of its rows in `prepare_rows`, which it calls with its first units in flight. Sums are made again
//! wherever rows are read.

use super::fused::{Fused, Reads};
use super::product::operand_batch;
use crate::error::OpError;
use crate::shader::access::Coordinates;
use crate::shader::class::literal;
use crate::shader::{Class, Shader};

/// A residual of a product's rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Residual {
    /// Its place among the operands, before that of the scale of what is added to it.
    pub(crate) place: usize,
    /// Added to the mean of squares of a row.
    pub(crate) epsilon: f32,
}

/// Replaces `load_a`, which reads one element or four of a row, and where there is a residual `RESIDUALS` and
/// `prepare_rows(batch, first, local)`: that is called by all THREADS invocations before rows from `first` on are read, of which
/// the workgroup multiplies ROWS. Rows are read by number in the batch: `first` is a multiple of ROWS, so that the rest is a row's
/// number in the workgroup. `share_squares` adds up squares and leaves SQUARES sums of each row.
///
/// # Errors
/// Where the operands do not fit (a defect of the graph), or elements are wanted eight at a time.
pub(crate) fn declare_rows(fused: &Fused<'_>, shader: &mut Shader<'_>, reads: Reads) -> Result<(), OpError> {
    let (name, ty, unit) = match reads {
        Reads::One => ("k", "f32", 1),
        Reads::Four => ("k4", "vec4<f32>", 4),
        Reads::Eight => return Err(OpError::new("rows of eight elements are read otherwise")),
    };
    let params = format!("batch: u32, row: u32, {name}: u32");
    let read = |shader: &mut Shader<'_>, hook: &str, place: usize| {
        let (prelude, mut axes) = operand_batch(shader, place);
        let lane = axes.len() + usize::from(!fused.product.trans_a);
        axes.extend(if fused.product.trans_a { [name, "row"] } else { ["row", name] }.map(str::to_string));
        let at = if unit == 4 { Coordinates::four(axes, lane) } else { Coordinates::element(axes) };
        shader.read_fn(hook, &params, &prelude, place, &at, false)
    };
    let Some(Residual { place, epsilon }) = fused.residual() else {
        let text = read(shader, "load_a", 0);
        shader.replace("load_a", text);
        return Ok(());
    };
    let inner = read(shader, "load_inner", 0);
    let residual = read(shader, "load_residual", place);
    let scale = reads.scale(shader, "load_inner_scale", place + 1)?;
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
    let whole = shader.problem.operands.first().is_some_and(|x| x.size_from_end(1).is_multiple_of(unit));
    let squared = match (reads, whole) {
        (Reads::Four, true) => "dot(x, x)",
        (Reads::Four, false) => {
            "dot(x, select(vec4<f32>(0.0), x, vec4<u32>(at * 4u) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(size_k())))"
        }
        (Reads::One | Reads::Eight, _) => "x * x",
    };
    let epsilon = literal(epsilon.into(), Class::Float, 1);
    shader.knob("RESIDUALS", 1);
    shader.replace(
        "prepare_rows",
        format!(
            "fn prepare_rows(batch: u32, first: u32, local: u32) {{
    for (var r = 0u; r < ROWS; r++) {{
        if (r > 0u) {{ workgroupBarrier(); }}
        let row = min(first + r, size_m() - 1u);
        var square = 0.0;
        for (var at = local; at < (size_k() + {unit}u - 1u) / {unit}u; at += THREADS) {{
            let x = load_inner(batch, row, at);
            square += {squared};
        }}
        share_squares(local, r, square);
    }}
    workgroupBarrier();
    if (local < ROWS) {{
        var sum = 0.0;
        for (var i = 0u; i < SQUARES; i++) {{ sum += square_shares[local * SQUARES + i]; }}
        inner_factors[local] = inverseSqrt(sum / f32(size_k()) + {epsilon});
    }}
    workgroupBarrier();
}}"
        ),
    );
    Ok(())
}
