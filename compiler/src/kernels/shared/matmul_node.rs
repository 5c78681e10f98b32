//! Common view of the three matmul operators for kernels that stream constants. The operators are a plain matmul, a
//! fused matmul (RMSNorm of the rows, a second matmul, RoPE of the columns), and a matmul with matrices that are
//! selected by index.

use super::coop;
use super::matmul_sizes::batch_axes;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{FusedMatMul, MatMul, Op};
use crate::ir::ops::fused_matmul::Rotary;
use crate::ir::ops::gather_matmul::EXPERT_INDICES;
use crate::shader::Shader;
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;

/// Number of elements that a kernel reads at once from a row of a matmul's first operand, and from the scale of its
/// norm. Eight elements are four f16 pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VectorWidth {
    Scalar,
    Vec4,
    Vec8,
}

impl VectorWidth {
    /// Returns the WGSL function `hook`, which reads elements of a norm's scale. The scale has shape `[K]` and is
    /// operand `operand`.
    ///
    /// # Errors
    /// If the operand is missing (a defect of the graph).
    pub(crate) fn scale_function(
        self,
        shader: &mut Shader<'_>,
        hook: &str,
        operand: usize,
    ) -> Result<String, OpError> {
        let rank = shader.problem.operands.get(operand).map_or(1, |scale| scale.shape.len());
        let last = rank.saturating_sub(1);
        let mut axes = vec!["0u".to_string(); last];
        let name = match self {
            Self::Scalar => "k",
            Self::Vec4 => "k4",
            Self::Vec8 => "k8",
        };
        axes.push(name.to_string());
        let params = format!("{name}: u32");
        match self {
            Self::Scalar => {
                Ok(shader.read_fn(hook, &params, "", operand, &Coordinates::element(axes), false))
            }
            Self::Vec4 => {
                Ok(shader.read_fn(hook, &params, "", operand, &Coordinates::vec4(axes, last), false))
            }
            Self::Vec8 => coop::vec8_read(shader, hook, &params, "", operand, &Coordinates::vec4(axes, last)),
        }
    }
}

/// A residual that a fused matmul adds to its rows, after these are normalized (inner norm) and before the sum is
/// normalized again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Residual {
    /// Index of the residual operand. The operand after it is the scale of the inner norm, which normalizes the rows
    /// before the residual is added.
    pub(crate) operand: usize,
    /// Epsilon of the inner norm, which normalizes the rows before the residual is added.
    pub(crate) epsilon: f32,
}

/// A matmul with its fused operations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatMulNode<'a> {
    pub(crate) matmul: &'a MatMul,
    fused: Option<&'a FusedMatMul>,
    /// True if each batch selects one of several matrices by index (`GatherMatMul`).
    gathered: bool,
}

impl<'a> MatMulNode<'a> {
    /// Returns the matmul of a problem with its fused operations, or `None` if the operator is not a matmul.
    pub(crate) fn from_problem(problem: &Problem<'a>) -> Option<Self> {
        match problem.op {
            Op::MatMul(matmul) => Some(Self { matmul, fused: None, gathered: false }),
            Op::FusedMatMul(fused) => {
                Some(Self { matmul: &fused.matmul, fused: Some(fused), gathered: false })
            }
            Op::GatherMatMul(gather) => Some(Self { matmul: &gather.matmul, fused: None, gathered: true }),
            _ => None,
        }
    }

    /// Returns the number of weight matrices that the rows are multiplied with. They are the operands from 1 on.
    pub(crate) fn matrices(&self) -> usize {
        self.fused.map_or(1, FusedMatMul::matrices)
    }

    /// True if the matmul has no fused operations.
    pub(crate) fn is_plain(&self) -> bool {
        self.fused.is_none()
    }

    /// Returns the number of batches that the estimate counts as parallel, and the number of further rounds of such
    /// batches, which follow one after the other. For a gathered matmul only the last batch axis is parallel. The
    /// selected candidate therefore does not depend on the number of tokens, and a token has equal sums in every run.
    pub(crate) fn parallel_and_serial_batches(&self, problem: &Problem<'_>, batch: &[Dim]) -> [f64; 2] {
        let all = problem.max(&product(batch)) as f64;
        let parallel = match batch.last().filter(|_| self.gathered) {
            Some(last) => problem.max(last).max(1) as f64,
            None => all,
        };
        [parallel, (all / parallel.max(1.0) - 1.0).max(0.0)]
    }

    /// Replaces the hook `first_panel(batch)`, which returns the index of the first panel of a batch's matrix. A matrix
    /// has `panels_per_matrix` panels.
    pub(crate) fn declare_first_panel(&self, shader: &mut Shader<'_>, panels_per_matrix: usize) {
        let mut function = String::new();
        let mut index = "batch".to_string();
        if self.gathered {
            let problem = shader.problem;
            let shape = &problem.result.shape;
            let (prelude, axes) = batch_axes(shader, &shape[..shape.len() - 2]);
            function = matrix_index_function(shader, "batch", &prelude, &axes);
            index = "matrix_index(batch)".to_string();
        }
        function +=
            &format!("fn first_panel(batch: u32) -> u32 {{ return {index} * {panels_per_matrix}u; }}");
        shader.replace("first_panel", function);
    }

    /// True if a workgroup that computes `panels` panels of `columns` columns holds both elements of every pair that
    /// RoPE rotates. True without RoPE.
    pub(crate) fn supports_panels(&self, panels: u32, columns: u32) -> bool {
        match self.rotary() {
            None => true,
            Some(Rotary { half, interleaved: true }) => half.is_multiple_of(2),
            Some(Rotary { half, interleaved: false }) => panels == 2 && half.is_multiple_of(columns as usize),
        }
    }

    /// True if a workgroup must compute two panels, because RoPE rotates columns half a head apart.
    pub(crate) fn needs_panel_pairs(&self) -> bool {
        self.rotary().is_some_and(|rotary| !rotary.interleaved)
    }

    fn rotary(&self) -> Option<Rotary> {
        self.fused.and_then(|fused| fused.rotary)
    }

    /// If RoPE is fused, replaces the constants `ROTATED` and `HALF_PANELS`, and the hook `rotate(row, n4, v, paired)`,
    /// which rotates four columns. A panel has `columns` columns.
    pub(crate) fn declare_rotation(&self, shader: &mut Shader<'_>, columns: u32) {
        let Some((angles, rotary)) = self.fused.and_then(FusedMatMul::rotary_operand).zip(self.rotary())
        else {
            return;
        };
        let Rotary { half, interleaved } = rotary;
        let read = |shader: &mut Shader<'_>, name: &str, operand: usize| {
            let axes = |third: &str, fourth: &str| ["row", "0u", third, fourth].map(str::to_string).to_vec();
            let (params, at) = if interleaved {
                ("row: u32, j: u32", Coordinates::element(axes("j", "0u")))
            } else {
                ("row: u32, j4: u32", Coordinates::vec4(axes("0u", "j4"), 3))
            };
            shader.read_fn(name, params, "", operand, &at, false)
        };
        let reads = [("cosines", angles), ("sines", angles + 1)]
            .map(|(name, operand)| read(shader, name, operand))
            .concat();
        let body = if interleaved {
            format!(
                "    let j = n4 % {0}u * 2u;
    let c = vec2<f32>(cosines(row, j), cosines(row, j + 1u));
    let s = vec2<f32>(sines(row, j), sines(row, j + 1u));
    return v * c.xxyy + paired * vec4<f32>(-s.x, s.x, -s.y, s.y);",
                half / 2
            )
        } else {
            format!(
                "    let at = n4 % {0}u;
    let s = sines(row, at % {1}u);
    return v * cosines(row, at % {1}u) + paired * select(s, -s, at < {1}u);",
                half / 2,
                half / 4
            )
        };
        let head = "fn rotate(row: u32, n4: u32, v: vec4<f32>, paired: vec4<f32>) -> vec4<f32>";
        shader.replace("rotate", format!("{reads}{head} {{\n{body}\n}}"));
        shader.constant("ROTATED", if interleaved { "1u" } else { "2u" });
        shader.knob("HALF_PANELS", (half as u32 / columns).max(1));
    }

    /// True if the rows are normalized before the matmul.
    pub(crate) fn has_norm(&self) -> bool {
        self.fused.is_some_and(|fused| fused.epsilon.is_some())
    }

    /// Returns the residual that is added to the rows before their norm, if there is one.
    pub(crate) fn residual(&self) -> Option<Residual> {
        let (operand, epsilon) = self.fused.and_then(|fused| fused.residual_operand().zip(fused.residual))?;
        Some(Residual { operand, epsilon })
    }

    /// Returns the number of norms that are applied to the rows: 0, 1, or 2 with a residual.
    pub(crate) fn norm_count(&self) -> u32 {
        u32::from(self.has_norm()) + u32::from(self.residual().is_some())
    }

    /// Returns the workgroup memory for the inner norm's factors of `rows` rows, in bytes; 0 without a residual.
    pub(crate) fn inner_factor_bytes(&self, rows: u32) -> u32 {
        if self.residual().is_some() { rows * 4 } else { 0 }
    }

    /// Replaces the WGSL constants `MATRICES` and `NORMALIZED` and the hooks of fused operations: `epsilon` (of the
    /// norm), `load_scale` (reads `width` elements of the norm's scale) and `combine(first, second)` (combines the
    /// results of two matrices).
    ///
    /// # Errors
    /// If the operands do not fit the operator (a defect of the graph).
    pub(crate) fn declare_fusions(&self, shader: &mut Shader<'_>, width: VectorWidth) -> Result<(), OpError> {
        shader.constant("MATRICES", format_args!("{}u", self.matrices()));
        shader.constant("NORMALIZED", self.has_norm());
        let scale = self.fused.and_then(|fused| fused.scale_operand().zip(fused.epsilon));
        if let Some((operand, epsilon)) = scale {
            let function = width.scale_function(shader, "load_scale", operand)?;
            shader.replace("load_scale", function);
            shader.number("epsilon", epsilon);
        }
        let (steps, value) = match self.fused.filter(|fused| !fused.gate.is_empty()) {
            Some(fused) => shader.combine_statements(&fused.gate, "first", "second")?,
            None => (String::new(), "first".to_string()),
        };
        let head = "fn combine(first: vec4<f32>, second: vec4<f32>) -> vec4<f32>";
        shader.replace("combine", format!("{head} {{\n{steps}    return {value};\n}}"));
        Ok(())
    }
}

/// Returns the WGSL body of a hook that returns expression `values[c]` for weight matrix `c`.
pub(crate) fn select_by_constant(values: &[String]) -> String {
    match values {
        [first, second] if first != second => {
            format!("    if (c == 0u) {{ return {first}; }}\n    return {second};")
        }
        values => values.first().map_or(String::new(), |value| format!("    return {value};")),
    }
}

/// Returns the WGSL function `matrix_index(name: u32) -> u32`: the index of the matrix that a batch of a gathered
/// matmul selects. `axes` are the coordinates along the batch axes, which the statements in `prelude` compute. Negative
/// indices count from the end; indices out of range are clamped.
pub(crate) fn matrix_index_function(
    shader: &mut Shader<'_>,
    name: &str,
    prelude: &str,
    axes: &[String],
) -> String {
    let problem = shader.problem;
    let indices = problem.operands.get(EXPERT_INDICES);
    let index_rank = indices.map_or(0, |indices| indices.rank());
    let last = axes.iter().skip(axes.len().saturating_sub(index_rank));
    let sizes = indices.into_iter().flat_map(|indices| &indices.shape);
    let at = last.zip(sizes).map(|(axis, size)| if size.is(1) { "0u".to_string() } else { axis.clone() });
    let at = Coordinates::element(at.collect());
    let read = shader.read_fn("load_index", &format!("{name}: u32"), prelude, EXPERT_INDICES, &at, false);
    let count = problem.operands.get(1).and_then(|matrices| matrices.shape.first()).cloned();
    let count = shader.dim(&count.unwrap_or(Dim::known(1)));
    format!(
        "{read}fn matrix_index({name}: u32) -> u32 {{
    let index = i32(load_index({name}));
    let count = i32({count});
    return u32(clamp(select(index, index + count, index < 0), 0, count - 1));
}}
"
    )
}
