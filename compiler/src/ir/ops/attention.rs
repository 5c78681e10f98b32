//! Scaled dot-product attention: `softmax(q k^T * scale + mask) v`.
//!
//! Operands: `q [B, H, S, D]`, `k [B, Hk, T, D]`, `v [B, Hk, T, E]` with H a multiple of Hk, and an optional additive float mask that broadcasts to `[B, H, S, T]`. Result `[B, H, S, E]`. Scores and sums are f32.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// Scaled dot-product attention: `softmax(q k^T * scale + mask) v`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// Factor of the scores.
    pub scale: f32,
    /// Whether query i sees only keys up to `i + T - S`.
    pub causal: bool,
}

impl Operation for Attention {
    fn infer(&self, _inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        Err(OpError::new("no shape rule yet"))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Anchor
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
