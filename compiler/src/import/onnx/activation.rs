//! Activation functions.

use super::elementwise::typed_binary;
use super::lowering::{Call, Lowered, OpEntry, microsoft, op};
use super::refused::Refused;
use crate::ir::element::{BinaryFn, UnaryFn};

pub(super) const OPS: &[OpEntry] = &[
    op("Relu", 1, |c| apply(c, UnaryFn::Relu)),
    op("LeakyRelu", 1, |c| {
        let alpha = c.attributes.float("alpha", 0.01)?;
        apply(c, UnaryFn::LeakyRelu { alpha })
    }),
    op("Elu", 1, |c| {
        let alpha = c.attributes.float("alpha", 1.0)?;
        apply(c, UnaryFn::Elu { alpha })
    }),
    op("Selu", 1, |c| {
        // Opset 6 gave the constants more digits.
        let (alpha, gamma) = if c.opset < 6 { (1.6732, 1.0507) } else { (1.673_263_2, 1.050_701) };
        let alpha = c.attributes.float("alpha", alpha)?;
        let gamma = c.attributes.float("gamma", gamma)?;
        apply(c, UnaryFn::Selu { alpha, gamma })
    }),
    op("Celu", 12, |c| {
        let alpha = c.attributes.float("alpha", 1.0)?;
        apply(c, UnaryFn::Celu { alpha })
    }),
    op("Sigmoid", 1, |c| apply(c, UnaryFn::Sigmoid)),
    op("HardSigmoid", 1, |c| {
        let alpha = c.attributes.float("alpha", 0.2)?;
        let beta = c.attributes.float("beta", 0.5)?;
        apply(c, UnaryFn::HardSigmoid { alpha, beta })
    }),
    op("HardSwish", 14, |c| apply(c, UnaryFn::HardSwish)),
    op("Swish", 24, |c| {
        let alpha = c.attributes.float("alpha", 1.0)?;
        apply(c, UnaryFn::Swish { alpha })
    }),
    op("SwiGLU", 28, swi_glu),
    op("Mish", 18, |c| apply(c, UnaryFn::Mish)),
    op("Softplus", 1, |c| apply(c, UnaryFn::Softplus)),
    op("Softsign", 1, |c| apply(c, UnaryFn::Softsign)),
    op("ThresholdedRelu", 10, |c| {
        let alpha = c.attributes.float("alpha", 1.0)?;
        apply(c, UnaryFn::ThresholdedRelu { alpha })
    }),
    op("Shrink", 9, |c| {
        let bias = c.attributes.float("bias", 0.0)?;
        let lambd = c.attributes.float("lambd", 0.5)?;
        apply(c, UnaryFn::Shrink { bias, lambd })
    }),
    op("Gelu", 20, gelu),
    microsoft("Gelu", |c| apply(c, UnaryFn::Gelu)),
    microsoft("FastGelu", |c| biased(c, UnaryFn::GeluTanh)),
    microsoft("BiasGelu", |c| biased(c, UnaryFn::Gelu)),
    microsoft("QuickGelu", |c| {
        let alpha = c.attributes.float("alpha", 1.702)?;
        apply(c, UnaryFn::Swish { alpha })
    }),
];

fn apply(call: &mut Call<'_>, f: UnaryFn) -> Lowered {
    let x = call.node(0)?;
    Ok(call.b.unary(f, x)?.into())
}

/// Lowers SwiGLU: `swish(operand 0) * operand 1`.
fn swi_glu(call: &mut Call<'_>) -> Lowered {
    let alpha = call.attributes.float("alpha", 1.0)?;
    let (gate, x) = (call.node(0)?, call.node(1)?);
    let gate = call.b.unary(UnaryFn::Swish { alpha }, gate)?;
    Ok(typed_binary(call, BinaryFn::Mul, gate, x)?.into())
}

fn gelu(call: &mut Call<'_>) -> Lowered {
    match call.attributes.text("approximate", "none")? {
        "none" => apply(call, UnaryFn::Gelu),
        "tanh" => apply(call, UnaryFn::GeluTanh),
        other => Err(Refused::attribute("approximate", other, "`none`, `tanh`")),
    }
}

/// Lowers an activation with a bias: applies a function to the sum of operand 0 and the optional bias, operand 1.
fn biased(call: &mut Call<'_>, f: UnaryFn) -> Lowered {
    let mut x = call.node(0)?;
    if let Some(bias) = call.optional(1)? {
        x = typed_binary(call, BinaryFn::Add, x, bias)?;
    }
    Ok(call.b.unary(f, x)?.into())
}
