//! What kernels that stream constants take in beside their product: the normalisation of its rows, a second product, and the
//! rotation of columns.

use super::coop;
use super::product::batch_axes;
use super::residual::Residual;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{FusedMatMul, MatMul, Op};
use crate::ir::ops::fused_matmul::Rotary;
use crate::ir::ops::gather_matmul::PICKS;
use crate::shader::Shader;
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;

/// How many elements of rows that are normalised, and of their scales, a kernel reads at once; eight as pairs of f16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    One,
    Four,
    Eight,
}

impl Reads {
    /// The text of a function that reads as many elements of a scale `[K]`, which is the operand of a place.
    ///
    /// # Errors
    /// When the operand is missing (a defect of the graph).
    pub(crate) fn scale(self, shader: &mut Shader<'_>, hook: &str, place: usize) -> Result<String, OpError> {
        let rank = shader.problem.operands.get(place).map_or(1, |scale| scale.shape.len());
        let last = rank.saturating_sub(1);
        let mut axes = vec!["0u".to_string(); last];
        let name = match self {
            Self::One => "k",
            Self::Four => "k4",
            Self::Eight => "k8",
        };
        axes.push(name.to_string());
        let params = format!("{name}: u32");
        match self {
            Self::One => Ok(shader.read_fn(hook, &params, "", place, &Coordinates::element(axes), false)),
            Self::Four => Ok(shader.read_fn(hook, &params, "", place, &Coordinates::four(axes, last), false)),
            Self::Eight => coop::eight(shader, hook, &params, "", place, &Coordinates::four(axes, last)),
        }
    }
}

/// A product, with what is fused to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fused<'a> {
    pub(crate) product: &'a MatMul,
    fused: Option<&'a FusedMatMul>,
    /// Whether each product picks one of several matrices.
    picks: bool,
}

impl<'a> Fused<'a> {
    /// None where the operator is no matrix product.
    pub(crate) fn of(problem: &Problem<'a>) -> Option<Self> {
        match problem.op {
            Op::MatMul(product) => Some(Self { product, fused: None, picks: false }),
            Op::FusedMatMul(fused) => {
                Some(Self { product: &fused.product, fused: Some(fused), picks: false })
            }
            Op::GatherMatMul(gather) => Some(Self { product: &gather.product, fused: None, picks: true }),
            _ => None,
        }
    }

    /// Matrices that rows are multiplied with: operands from 1 on.
    pub(crate) fn matrices(&self) -> usize {
        self.fused.map_or(1, FusedMatMul::matrices)
    }

    /// Whether it is a product and nothing else.
    pub(crate) fn alone(&self) -> bool {
        self.fused.is_none()
    }

    /// Products that the estimate takes for side by side, and how often as many come after each other: the work of the former
    /// is shared in a way that does not follow from the number of tokens, so that each has the same sums whatever comes with
    /// it.
    pub(crate) fn batches(&self, problem: &Problem<'_>, batch: &[Dim]) -> [f64; 2] {
        let all = problem.max(&product(batch)) as f64;
        let one = match batch.last().filter(|_| self.picks) {
            Some(last) => problem.max(last).max(1) as f64,
            None => all,
        };
        [one, (all / one.max(1.0) - 1.0).max(0.0)]
    }

    /// Replaces `first_panel(batch)`, where matrices are so many panels apart.
    pub(crate) fn first_panel(&self, shader: &mut Shader<'_>, apart: usize) {
        let mut text = String::new();
        let mut number = "batch".to_string();
        if self.picks {
            let problem = shader.problem;
            let shape = &problem.result.shape;
            let (prelude, axes) = batch_axes(shader, &shape[..shape.len() - 2]);
            text = picked(shader, "batch", &prelude, &axes);
            number = "picked(batch)".to_string();
        }
        text += &format!("fn first_panel(batch: u32) -> u32 {{ return {number} * {apart}u; }}");
        shader.replace("first_panel", text);
    }

    /// Whether a workgroup that takes so many panels of `columns` columns has both elements of every pair that is rotated.
    pub(crate) fn takes(&self, panels: u32, columns: u32) -> bool {
        match self.rotary() {
            None => true,
            Some(Rotary { half, interleaved: true }) => half.is_multiple_of(2),
            Some(Rotary { half, interleaved: false }) => panels == 2 && half.is_multiple_of(columns as usize),
        }
    }

    /// Whether a workgroup must take several panels.
    pub(crate) fn pairs_panels(&self) -> bool {
        self.rotary().is_some_and(|rotary| !rotary.interleaved)
    }

    fn rotary(&self) -> Option<Rotary> {
        self.fused.and_then(|fused| fused.rotary)
    }

    /// Replaces `ROTATED`, `HALF_PANELS`, and `turned(row, n4, own, other)`, where panels are of so many columns.
    pub(crate) fn declare_rotation(&self, shader: &mut Shader<'_>, columns: u32) {
        let Some((place, rotary)) = self.fused.and_then(FusedMatMul::angles).zip(self.rotary()) else {
            return;
        };
        let Rotary { half, interleaved } = rotary;
        let read = |shader: &mut Shader<'_>, name: &str, place: usize| {
            let axes = |third: &str, fourth: &str| ["row", "0u", third, fourth].map(str::to_string).to_vec();
            let (params, at) = if interleaved {
                ("row: u32, j: u32", Coordinates::element(axes("j", "0u")))
            } else {
                ("row: u32, j4: u32", Coordinates::four(axes("0u", "j4"), 3))
            };
            shader.read_fn(name, params, "", place, &at, false)
        };
        let reads = [("cosines", place), ("sines", place + 1)]
            .map(|(name, place)| read(shader, name, place))
            .concat();
        let body = if interleaved {
            format!(
                "    let j = n4 % {0}u * 2u;
    let c = vec2<f32>(cosines(row, j), cosines(row, j + 1u));
    let s = vec2<f32>(sines(row, j), sines(row, j + 1u));
    return own * c.xxyy + other * vec4<f32>(-s.x, s.x, -s.y, s.y);",
                half / 2
            )
        } else {
            format!(
                "    let at = n4 % {0}u;
    let s = sines(row, at % {1}u);
    return own * cosines(row, at % {1}u) + other * select(s, -s, at < {1}u);",
                half / 2,
                half / 4
            )
        };
        let head = "fn turned(row: u32, n4: u32, own: vec4<f32>, other: vec4<f32>) -> vec4<f32>";
        shader.replace("turned", format!("{reads}{head} {{\n{body}\n}}"));
        shader.constant("ROTATED", if interleaved { "1u" } else { "2u" });
        shader.knob("HALF_PANELS", (half as u32 / columns).max(1));
    }

    /// Whether rows are normalised first.
    pub(crate) fn normalised(&self) -> bool {
        self.fused.is_some_and(|fused| fused.epsilon.is_some())
    }

    /// The residual that rows are added to before that.
    pub(crate) fn residual(&self) -> Option<Residual> {
        let (place, epsilon) = self.fused.and_then(|fused| fused.residual().zip(fused.residual))?;
        Some(Residual { place, epsilon })
    }

    /// How often rows are normalised.
    pub(crate) fn normalisations(&self) -> u32 {
        u32::from(self.normalised()) + u32::from(self.residual().is_some())
    }

    /// Bytes of workgroup memory that factors of so many rows take, which their first of two normalisations leaves.
    pub(crate) fn factors(&self, rows: u32) -> u32 {
        if self.residual().is_some() { rows * 4 } else { 0 }
    }

    /// Replaces `MATRICES`, `NORMALISED`, `epsilon`, `join(first, second)`, and `load_scale` of as many elements of the scale.
    ///
    /// # Errors
    /// When the operands do not fit (a defect of the graph).
    pub(crate) fn declare(&self, shader: &mut Shader<'_>, reads: Reads) -> Result<(), OpError> {
        shader.constant("MATRICES", format_args!("{}u", self.matrices()));
        shader.constant("NORMALISED", self.normalised());
        let scale = self.fused.and_then(|fused| fused.scale().zip(fused.epsilon));
        if let Some((place, epsilon)) = scale {
            let text = reads.scale(shader, "load_scale", place)?;
            shader.replace("load_scale", text);
            shader.number("epsilon", epsilon);
        }
        let (steps, value) = match self.fused.filter(|fused| !fused.join.is_empty()) {
            Some(fused) => shader.pair_text(&fused.join, "first", "second")?,
            None => (String::new(), "first".to_string()),
        };
        let head = "fn join(first: vec4<f32>, second: vec4<f32>) -> vec4<f32>";
        shader.replace("join", format!("{head} {{\n{steps}    return {value};\n}}"));
        Ok(())
    }
}

/// The body of a hook that returns what there is for constant `c`, of the values for each of them.
pub(crate) fn of_constant(values: &[String]) -> String {
    match values {
        [first, second] if first != second => {
            format!("    if (c == 0u) {{ return {first}; }}\n    return {second};")
        }
        values => values.first().map_or(String::new(), |value| format!("    return {value};")),
    }
}

/// The text of `fn picked(name: u32) -> u32`, the number of the matrix that a product picks whose batch axes are `axes` after
/// the statements in `prelude`.
pub(crate) fn picked(shader: &mut Shader<'_>, name: &str, prelude: &str, axes: &[String]) -> String {
    let problem = shader.problem;
    let picks = problem.operands.get(PICKS);
    let own = picks.map_or(0, |picks| picks.rank());
    let last = axes.iter().skip(axes.len().saturating_sub(own));
    let sizes = picks.into_iter().flat_map(|picks| &picks.shape);
    let at = last.zip(sizes).map(|(axis, size)| if size.is(1) { "0u".to_string() } else { axis.clone() });
    let at = Coordinates::element(at.collect());
    let read = shader.read_fn("pick", &format!("{name}: u32"), prelude, PICKS, &at, false);
    let count = problem.operands.get(1).and_then(|matrices| matrices.shape.first()).cloned();
    let count = shader.dim(&count.unwrap_or(Dim::known(1)));
    format!(
        "{read}fn picked({name}: u32) -> u32 {{
    let number = i32(pick({name}));
    let count = i32({count});
    return u32(clamp(select(number, number + count, number < 0), 0, count - 1));
}}
"
    )
}
