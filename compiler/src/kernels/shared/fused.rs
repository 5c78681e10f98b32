//! What kernels that stream constants take in beside their product: the normalisation of its rows, and a second product.

use crate::error::OpError;
use crate::ir::op::{FusedMatMul, MatMul, Op};
use crate::shader::Shader;
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;

/// A product, with what is fused to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fused<'a> {
    pub(crate) product: &'a MatMul,
    fused: Option<&'a FusedMatMul>,
}

impl<'a> Fused<'a> {
    /// None where the operator is no matrix product.
    pub(crate) fn of(problem: &Problem<'a>) -> Option<Self> {
        match problem.op {
            Op::MatMul(product) => Some(Self { product, fused: None }),
            Op::FusedMatMul(fused) => Some(Self { product: &fused.product, fused: Some(fused) }),
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

    /// Whether rows are normalised first.
    pub(crate) fn normalised(&self) -> bool {
        self.fused.is_some_and(|fused| fused.epsilon.is_some())
    }

    /// Replaces `MATRICES`, `NORMALISED`, `epsilon`, `join(first, second)`, and `load_scale` of one element of the scale, or of
    /// four with `fours`.
    ///
    /// # Errors
    /// When the operands do not fit (a defect of the graph).
    pub(crate) fn declare(&self, shader: &mut Shader<'_>, fours: bool) -> Result<(), OpError> {
        shader.constant("MATRICES", format_args!("{}u", self.matrices()));
        shader.constant("NORMALISED", self.normalised());
        let scale = self.fused.and_then(|fused| fused.scale().zip(fused.epsilon));
        if let Some((place, epsilon)) = scale {
            let rank = shader.problem.operands.get(place).map_or(1, |scale| scale.shape.len());
            let mut axes = vec!["0u".to_string(); rank.saturating_sub(1)];
            let name = if fours { "k4" } else { "k" };
            axes.push(name.to_string());
            let at = if fours {
                Coordinates::four(axes, rank.saturating_sub(1))
            } else {
                Coordinates::element(axes)
            };
            shader.read("load_scale", &format!("{name}: u32"), "", place, &at);
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
