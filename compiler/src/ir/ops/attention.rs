//! Scaled dot-product attention: `softmax(q k^T * scale + mask) v`.
//!
//! Operands: `q [B, H, S, D]`, `k [B, Hk, T, D]`, `v [B, Hk, T, E]` with H a multiple of Hk, and an optional additive float mask that broadcasts to `[B, H, S, T]`. Result `[B, H, S, E]`. Scores and sums are f32.

use serde::{Deserialize, Serialize};

use super::check;
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
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let q = check::operands(inputs, 3..=4)?;
        check::float(q, "the query")?;
        check::same_type(inputs)?;
        let (k, v) = (inputs[1], inputs[2]);
        let ([b, h, s, d], [bk, hk, t, dk], [bv, hv, tv, e]) =
            (q.shape.as_slice(), k.shape.as_slice(), v.shape.as_slice())
        else {
            return Err(OpError::new(format!("operands of rank four are needed, not {q}, {k} and {v}")));
        };
        check::equal(b, bk, "batch sizes of query and key")?;
        check::equal(bk, bv, "batch sizes of key and value")?;
        check::equal(hk, hv, "heads of key and value")?;
        check::equal(d, dk, "head sizes of query and key")?;
        check::equal(t, tv, "lengths of key and value")?;
        if let (Some(h), Some(hk)) = (h.as_known(), hk.as_known())
            && h.checked_rem(hk) != Some(0)
        {
            return Err(OpError::new(format!("{h} query heads are not a multiple of {hk} key heads")));
        }
        if let Some(mask) = inputs.get(3) {
            check::broadcasts_to(mask, &[b.clone(), h.clone(), s.clone(), t.clone()], "the mask")?;
        }
        Ok(TensorDesc::new(q.dtype, vec![b.clone(), h.clone(), s.clone(), e.clone()]))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Anchor
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
