//! One step of a scheduler, as a formula with coefficients that the host computes.
//!
//! With the latent `x`, the output `m` of the UNet after guidance, and the history `h1` to `h4`:
//!
//! ```text
//! h0 = clamp(p x + q m, -limit, limit)
//! y  = c0 x + c1 m + c2 h0 + c3 h1 + c4 h2 + c5 h3 + c6 h4 + c7 noise
//! x' = y + (1 - mask) (a image + b first_noise - y)
//! ```
//!
//! `h0` to `h3` are the next history. The coefficients are one array:
//!
//! | index | coefficient |
//! |---|---|
//! | 0 | scale of the latent before the UNet |
//! | 1 | time step |
//! | 2 | guidance |
//! | 3, 4, 5 | `p`, `q`, `limit` |
//! | 6 to 13 | `c0` to `c7` |
//! | 14, 15 | `a`, `b` |

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::graph::NodeId;
use driftc::ir::op::{BinaryFn, Concat, UnaryFn};
use driftc::ir::tensor::DType;

/// Number of coefficients of a step.
pub(super) const COEFFICIENTS: usize = 16;
/// Number of tensors in the history.
pub(super) const HISTORY: usize = 4;

/// Tensors of a step: the latent, the model's output and the states, each `[1, channels, height, width]`. The history has
/// [`HISTORY`] such tensors, and the mask has one channel.
pub(super) struct Latents {
    pub(super) latent: NodeId,
    pub(super) model_output: NodeId,
    pub(super) history: NodeId,
    pub(super) noise: NodeId,
    pub(super) image: NodeId,
    pub(super) first_noise: NodeId,
    /// Mask of inpainting: 1 where the picture is new, 0 where the image is kept. `None` if the UNet reads the mask.
    pub(super) mask: Option<NodeId>,
}

/// Adds a step. Returns the next latent and the next history.
///
/// # Errors
/// If the shapes do not match.
pub(super) fn next_latent(
    g: &mut Builder<'_>,
    coefficients: NodeId,
    latents: &Latents,
) -> Result<(NodeId, NodeId)> {
    let coefficient = |g: &mut Builder<'_>, index| coefficient(g, coefficients, index);
    let (p, q, limit) = (coefficient(g, 3)?, coefficient(g, 4)?, coefficient(g, 5)?);
    let newest = sum(g, &[(latents.latent, p), (latents.model_output, q)])?;
    let newest = g.binary(BinaryFn::Min, newest, limit)?;
    let lowest = g.unary(UnaryFn::Neg, limit)?;
    let newest = g.binary(BinaryFn::Max, newest, lowest)?;

    let mut terms = vec![latents.latent, latents.model_output, newest];
    for i in 0..HISTORY {
        terms.push(g.slice(latents.history, 0, i.into(), Dim::known(1))?);
    }
    terms.push(latents.noise);
    let mut weighted = Vec::new();
    for (i, term) in terms.into_iter().enumerate() {
        weighted.push((term, coefficient(g, 6 + i)?));
    }
    let next = sum(g, &weighted)?;

    let next = match latents.mask {
        Some(mask) => keep_image(g, next, mask, latents, coefficients)?,
        None => next,
    };
    let older = g.slice(latents.history, 0, Dim::known(0), Dim::from(HISTORY - 1))?;
    let history = g.add(Concat { axis: 0 }, &[newest, older])?;
    Ok((next, history))
}

/// Adds the step of inpainting: the image with noise where the mask is 0.
fn keep_image(
    g: &mut Builder<'_>,
    next: NodeId,
    mask: NodeId,
    latents: &Latents,
    coefficients: NodeId,
) -> Result<NodeId> {
    let (a, b) = (coefficient(g, coefficients, 14)?, coefficient(g, coefficients, 15)?);
    let kept = sum(g, &[(latents.image, a), (latents.first_noise, b)])?;
    let difference = g.binary(BinaryFn::Sub, kept, next)?;
    let keep = g.unary(UnaryFn::Affine { scale: -1.0, shift: 1.0 }, mask)?;
    let difference = g.binary(BinaryFn::Mul, difference, keep)?;
    g.binary(BinaryFn::Add, next, difference)
}

/// Adds an element of an array as a tensor `[1]`.
///
/// # Errors
/// If the array is shorter.
pub(super) fn coefficient(g: &mut Builder<'_>, coefficients: NodeId, index: usize) -> Result<NodeId> {
    g.slice(coefficients, 0, index.into(), Dim::known(1))
}

/// Adds the weighted sum of tensors, with weights `[1]`.
fn sum(g: &mut Builder<'_>, terms: &[(NodeId, NodeId)]) -> Result<NodeId> {
    let mut total = g.scalar(DType::F32, 0.0)?;
    for (index, (tensor, factor)) in terms.iter().enumerate() {
        let product = g.binary(BinaryFn::Mul, *tensor, *factor)?;
        total = if index == 0 { product } else { g.binary(BinaryFn::Add, total, product)? };
    }
    Ok(total)
}
