//! Scaled dot-product attention: `softmax(cap(q k^T * scale) + mask) v`, where `cap(x) = softcap * tanh(x / softcap)`.
//!
//! Operands: `q [B, H, S, D]`, `k [B, Hk, T, D]`, `v [B, Hk, T, E]` with H a multiple of Hk (GQA), and an optional
//! additive float mask that broadcasts to `[B, H, S, T]`. The result is `[B, H, S, E]`. Query head h reads key head `h
//! / (H / Hk)`. The result of a query that sees no key is zero. Scores and sums are f32.
//!
//! Keys and values may both be quantized rows as [`QuantizeRows`] computes them: u32 `[B, Hk, T, D / 4 + 1]` and
//! `[B, Hk, T, E / 4 + 1]`.
//!
//! [`QuantizeRows`]: crate::ir::op::QuantizeRows

use std::borrow::Cow;

use rayon::prelude::{IndexedParallelIterator, ParallelIterator, ParallelSliceMut};
use serde::{Deserialize, Serialize};

use super::blocked_matmul::{MatMulSize, Matrix, blocked_matmul};
use super::quantize_rows::dequantize_rows;
use super::softmax::softmax;
use super::{check, lanes};
use crate::error::OpError;
use crate::ir::array::{Array, Data, count};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::{DType, TensorDesc};

/// Scaled dot-product attention: `softmax(cap(q k^T * scale) + mask) v`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// Factor by which the dot products of queries and keys are multiplied.
    pub scale: f32,
    /// True if query i sees only keys up to `i + T - S`, for S queries and T keys.
    pub causal: bool,
    /// Sliding window: the maximum number of keys that query i sees. For S queries and T keys, these are the keys from
    /// `i + T - S + 1 - window` to `i + T - S`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Limit of the scores: they become `softcap * tanh(score / softcap)` before the mask is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softcap: Option<f32>,
}

impl Operation for Attention {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        if self.window == Some(0) || self.softcap.is_some_and(|cap| !cap.is_finite() || cap <= 0.0) {
            return Err(OpError::new("the window and the softcap must be positive"));
        }
        let q = check::operands(inputs, 3..=4)?;
        check::float(q, "the query")?;
        let (k, v) = (inputs[1], inputs[2]);
        match is_quantized(k.dtype) && is_quantized(v.dtype) {
            true => check::same_type(&[&[q], &inputs[3..]].concat())?,
            false => check::same_type(inputs)?,
        }
        let ([b, h, s, d], [bk, hk, t, dk], [bv, hv, tv, e]) =
            (q.shape.as_slice(), k.shape.as_slice(), v.shape.as_slice())
        else {
            return Err(OpError::new(format!("the operands must have rank four, found {q}, {k} and {v}")));
        };
        check::equal_sizes(b, bk, "batch sizes of query and key")?;
        check::equal_sizes(bk, bv, "batch sizes of key and value")?;
        check::equal_sizes(hk, hv, "numbers of heads of key and value")?;
        let [dk, e] = [(k, dk), (v, e)].map(|(x, size)| elements_per_row(x.dtype, size));
        check::equal_sizes(d, &dk, "head sizes of query and key")?;
        check::equal_sizes(t, tv, "sequence lengths of key and value")?;
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

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Anchor
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::MatMul, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let (q, k, v) = (inputs[0], inputs[1], inputs[2]);
            let [heads, s, d] = [q.shape[1], q.shape[2], q.shape[3]];
            let [key_heads, t, e] = [k.shape[1], k.shape[2], out[3]];
            let (q, k, v) = (q.floats()?, values(k)?, values(v)?);
            let mask = inputs.get(3).map(|m| Mask::new(m, &[out[0], heads, s, t])).transpose()?;
            // Key head of the i-th query head of the batch.
            let key_head = |i: usize| i / heads * key_heads + i % heads / (heads / key_heads);
            let mut y = vec![0.0; count(out)];
            let step = (MAX_SCORES / s.saturating_mul(t).max(1)).max(1);
            for (first, y) in (0..).step_by(step).zip(y.chunks_mut(step * s * e)) {
                let mut scores = vec![0.0; y.len() / e * t];
                blocked_matmul(
                    &mut scores,
                    MatMulSize { m: s, n: t, k: d },
                    |i| Matrix { values: &q[(first + i) * s * d..], row: d, column: 1 },
                    |i, depth, columns, tile| {
                        let k = &k[key_head(first + i) * t * d..];
                        for (l, row) in depth.zip(tile.chunks_exact_mut(columns.len())) {
                            for (j, value) in columns.clone().zip(row) {
                                *value = k[j * d + l];
                            }
                        }
                    },
                );
                if t > 0 {
                    scores.par_chunks_mut(t).enumerate().for_each(|(row, scores)| {
                        self.probabilities(first * s + row, s, mask.as_ref(), scores);
                    });
                }
                blocked_matmul(
                    y,
                    MatMulSize { m: s, n: e, k: t },
                    |i| Matrix { values: &scores[i * s * t..], row: t, column: 1 },
                    |i, depth, columns, tile| {
                        let v = &v[key_head(first + i) * t * e..];
                        for (l, row) in depth.zip(tile.chunks_exact_mut(columns.len())) {
                            row.copy_from_slice(&v[l * e..][columns.clone()]);
                        }
                    },
                );
            }
            Ok(Data::Float(y))
        })
    }
}

/// True if keys or values of this element type are quantized rows.
pub(crate) fn is_quantized(dtype: DType) -> bool {
    dtype == DType::U32
}

/// Returns the number of elements in a row of keys or values whose last axis has size `size`. For quantized rows,
/// `size` is the number of packed words, four elements each, plus 1 for the scale.
pub(crate) fn elements_per_row(dtype: DType, size: &Dim) -> Dim {
    if is_quantized(dtype) { size.plus(-1).scale(4) } else { size.clone() }
}

/// Returns the elements of keys or values, dequantized if necessary.
fn values(x: &Array) -> Result<Cow<'_, [f32]>, OpError> {
    if is_quantized(x.dtype) { dequantize_rows(x).map(Cow::Owned) } else { x.floats().map(Cow::Borrowed) }
}

/// Maximum number of attention scores that the CPU reference holds in memory at a time.
const MAX_SCORES: usize = 1 << 24;

impl Attention {
    /// Creates attention without causality, window and softcap.
    pub fn plain(scale: f32) -> Self {
        Self { scale, causal: false, window: None, softcap: None }
    }

    /// Turns the dot products of one query with all keys into probabilities.
    fn probabilities(&self, row: usize, queries: usize, mask: Option<&Mask<'_>>, scores: &mut [f32]) {
        let keys = scores.len();
        for score in scores.iter_mut() {
            *score *= self.scale;
            if let Some(cap) = self.softcap {
                *score = cap * libm::tanhf(*score / cap);
            }
        }
        if let Some(mask) = mask {
            for (score, bias) in scores.iter_mut().zip(mask.row(row)) {
                *score += bias;
            }
        }
        let visible = (row % queries + 1 + keys).saturating_sub(queries);
        if self.causal {
            scores[visible.min(keys)..].fill(f32::NEG_INFINITY);
        }
        if let Some(window) = self.window {
            let first = visible.saturating_sub(usize::try_from(window).unwrap_or(usize::MAX));
            scores[..first.min(keys)].fill(f32::NEG_INFINITY);
        }
        if scores.iter().all(|score| *score == f32::NEG_INFINITY) {
            return scores.fill(0.0);
        }
        let logits = scores.to_vec();
        softmax(&logits, false, scores);
    }
}

/// An attention mask, broadcast to one row of biases per query.
struct Mask<'a> {
    values: &'a [f32],
    rows: Vec<usize>,
    step: usize,
    keys: usize,
}

impl<'a> Mask<'a> {
    fn new(mask: &'a Array, shape: &[usize; 4]) -> Result<Self, OpError> {
        let steps = lanes::broadcast_strides(&mask.shape, shape);
        Ok(Self {
            values: mask.floats()?,
            rows: lanes::strided_offsets(&shape[..3], &steps[..3]).collect(),
            step: steps[3],
            keys: shape[3],
        })
    }

    fn row(&self, row: usize) -> impl Iterator<Item = f32> {
        (0..self.keys).map(move |j| self.values[self.rows[row] + j * self.step])
    }
}

#[cfg(test)]
mod tests {
    use super::{Attention, dequantize_rows};
    use crate::ir::array::{Array, count};
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::{Operation, QuantizeRows};
    use crate::ir::ops::check::run;
    use crate::ir::ops::constant::random;
    use crate::ir::tensor::{DType, TensorDesc};

    /// Computes attention by its definition, one query at a time.
    fn naive(op: &Attention, q: &Array, k: &Array, v: &Array, mask: impl Fn([usize; 4]) -> f32) -> Vec<f32> {
        let [batch, heads, s, d] = q.shape[..] else { panic!("rank") };
        let [_, key_heads, t, e] = [v.shape[0], v.shape[1], v.shape[2], v.shape[3]];
        let (q, k, v) = (q.floats().unwrap(), k.floats().unwrap(), v.floats().unwrap());
        let mut y = vec![0.0; batch * heads * s * e];
        for (row, y) in y.chunks_mut(e).enumerate() {
            let (b, h, i) = (row / s / heads, row / s % heads, row % s);
            let keys = (b * key_heads + h / (heads / key_heads)) * t;
            let weight = |j: usize| {
                let dot: f32 = (0..d).map(|c| q[row * d + c] * k[(keys + j) * d + c]).sum();
                let early = op.window.is_some_and(|w| j + s + w as usize <= i + t);
                let hidden = early || op.causal && j + s > i + t;
                let score = dot * op.scale;
                let score = op.softcap.map_or(score, |cap| cap * libm::tanhf(score / cap));
                if hidden { 0.0 } else { libm::expf(score + mask([b, h, i, j])) }
            };
            let sum: f32 = (0..t).map(weight).sum();
            for (c, y) in y.iter_mut().enumerate() {
                *y = (0..t).map(|j| weight(j) * v[(keys + j) * e + c]).sum::<f32>() / sum;
            }
        }
        y
    }

    #[test]
    fn agrees_with_the_definition() {
        let sizes = [(false, 5, 7), (true, 5, 7), (true, 1, 4), (true, 6, 6)];
        let kinds = [(None, None), (Some(3), None), (Some(9), Some(0.5)), (Some(1), Some(2.0))];
        for ((causal, s, t), (window, softcap)) in sizes.into_iter().flat_map(|s| kinds.map(|k| (s, k))) {
            let op = Attention { scale: 0.7, causal, window, softcap };
            let q = random(DType::F32, &[2, 4, s, 3], 1);
            let k = random(DType::F32, &[2, 2, t, 3], 2);
            let v = random(DType::F32, &[2, 2, t, 5], 3);
            let mask = random(DType::F32, &[4, 1, t], 4);
            let m = mask.floats().unwrap();
            let y = op.eval(&[&q, &k, &v, &mask], &[2, 4, s, 5], &Bindings::new()).unwrap();
            let expected = naive(&op, &q, &k, &v, |[_, h, _, j]| m[h * t + j]);
            assert_eq!(y.len(), count(&[2, 4, s, 5]));
            for (y, e) in y.floats().unwrap().iter().zip(&expected) {
                assert!((y - e).abs() < 1e-5, "{y} is not {e}");
            }
        }
    }

    #[test]
    fn keys_and_values_may_be_quantized() {
        let op = Attention { causal: true, ..Attention::plain(0.3) };
        let q = random(DType::F32, &[1, 4, 3, 8], 1);
        let (k, v) = (random(DType::F32, &[1, 2, 9, 8], 2), random(DType::F32, &[1, 2, 9, 12], 3));
        let coded = |x: &Array| run(&QuantizeRows::default(), &[x], &Bindings::new()).unwrap();
        let floats = |x: &Array, last| Array::f32(&[1, 2, 9, last], dequantize_rows(&coded(x)).unwrap());
        let y = run(&op, &[&q, &coded(&k), &coded(&v)], &Bindings::new()).unwrap();
        assert_eq!(y, run(&op, &[&q, &floats(&k, 8), &floats(&v, 12)], &Bindings::new()).unwrap());
        let tensor = |dtype, shape: &[usize]| TensorDesc::from_sizes(dtype, shape);
        let q = tensor(DType::F16, &[1, 4, 3, 8]);
        let k = tensor(DType::U32, &[1, 2, 9, 3]);
        assert_eq!(op.infer(&[&q, &k, &k]).unwrap(), q);
        assert!(op.infer(&[&q, &k, &tensor(DType::F16, &[1, 2, 9, 8])]).is_err());
        assert!(op.infer(&[&q, &tensor(DType::U32, &[1, 2, 9, 4]), &k]).is_err());
        assert!(op.infer(&[&q, &k, &k, &tensor(DType::U32, &[1])]).is_err());
    }

    #[test]
    fn queries_that_see_no_key_give_zeros() {
        let op = Attention { causal: true, ..Attention::plain(1.0) };
        let q = Array::f32(&[1, 1, 2, 1], vec![1.0, 1.0]);
        let k = Array::f32(&[1, 1, 1, 1], vec![1.0]);
        let y = op.eval(&[&q, &k, &k], &[1, 1, 2, 1], &Bindings::new()).unwrap();
        assert_eq!(y.floats().unwrap(), [0.0, 1.0]);
        let none = Array::f32(&[1, 1, 0, 1], vec![]);
        let y = op.eval(&[&q, &none, &none], &[1, 1, 2, 1], &Bindings::new()).unwrap();
        assert_eq!(y.floats().unwrap(), [0.0, 0.0]);
    }

    #[test]
    fn shapes_and_refusals() {
        let op = Attention::plain(1.0);
        let past = Dim::symbol("past").add(&Dim::symbol("seq"));
        let tensor = |heads: i64, length: &Dim, size: i64| {
            let dims = vec![Dim::known(1), Dim::known(heads), length.clone(), Dim::known(size)];
            TensorDesc::new(DType::F16, dims)
        };
        let (q, k, v) = (tensor(8, &Dim::symbol("seq"), 64), tensor(2, &past, 64), tensor(2, &past, 32));
        assert_eq!(op.infer(&[&q, &k, &v]).unwrap().to_string(), "f16[1, 8, seq, 32]");
        let mask = TensorDesc::new(DType::F32, vec![Dim::symbol("seq"), past.clone()]);
        assert!(op.infer(&[&q, &k, &v, &mask]).is_ok());
        let wrong = TensorDesc::from_sizes(DType::F32, &[2, 8, 1, 1]);
        assert!(op.infer(&[&q, &k, &v, &wrong]).is_err());
        assert!(op.infer(&[&q, &k, &v, &TensorDesc::from_sizes(DType::Bool, &[1])]).is_err());
        assert!(op.infer(&[&tensor(7, &past, 64), &k, &v]).is_err());
        assert!(op.infer(&[&q, &tensor(0, &past, 64), &tensor(0, &past, 64)]).is_err());
        assert!(op.infer(&[&q, &tensor(2, &past, 60), &v]).is_err());
        assert!(op.infer(&[&q, &k, &tensor(2, &past.plus(1), 32)]).is_err());
        assert!(op.infer(&[&q, &k]).is_err());
        let op = |window, softcap| Attention { window, softcap, ..Attention::plain(1.0) };
        assert!(op(Some(1), Some(0.5)).infer(&[&q, &k, &v]).is_ok());
        assert!(op(Some(0), None).infer(&[&q, &k, &v]).is_err());
        assert!(op(None, Some(0.0)).infer(&[&q, &k, &v]).is_err());
    }
}
