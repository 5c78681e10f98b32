//! A matmul of a transformer with its neighbors: residual add, RMSNorm of the rows, gate (SwiGLU), and RoPE.
//!
//! Operands in order: `x [.., M, K]`; a matrix; with `gate` a second matrix of the same shape; with `epsilon` a norm
//! scale `[K]`; with `residual` a residual `[.., M, K]` and its norm scale `[K]`; with `rotary` the cosines and sines
//! of each row.
//!
//! 1. With `residual`: `x = residual + rms_norm(x) * residual_scale`.
//! 2. With `epsilon`: `x = rms_norm(x) * scale`.
//! 3. `#0 = x * matrix`; with `gate` also `@2 = x * second_matrix`, and the steps of the gate combine both results.
//! 4. With `rotary`: pairs of columns are rotated.
//!
//! The operator exists because a kernel that streams weights computes all of it in one dispatch, without storing
//! intermediate values.

use serde::{Deserialize, Serialize};

use super::check;
use super::layer_norm::rms_norm;
use super::matmul::MatMul;
use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::element::{Arg, EpilogueStep};
use crate::ir::eval::apply_epilogue;
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::TensorDesc;

/// Operand index of the second matrix of a fused matmul. In the steps of `gate`, this index stands for the result of
/// the matmul with the second matrix.
pub const SECOND_MATRIX: u32 = 2;

/// Rotary position embedding of a matmul's result ("RoFormer", arXiv:2104.09864).
///
/// A head has `2 * half` columns. Pair `j` is `(j, j + half)`, or `(2 * j, 2 * j + 1)` if interleaved. A pair `(a, b)`
/// becomes `(a * cos - b * sin, b * cos + a * sin)`. Cosines and sines are `[M, 1, 1, half]`, or `[M, 1, half, 1]` if
/// interleaved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotary {
    /// Number of RoPE pairs per attention head.
    pub half: usize,
    /// True if the two elements of a RoPE pair are adjacent.
    pub interleaved: bool,
}

impl Rotary {
    /// Returns the two columns of RoPE pair `j` in the head that starts at column `head`.
    fn pair(self, head: usize, j: usize) -> [usize; 2] {
        if self.interleaved { [head + 2 * j, head + 2 * j + 1] } else { [head + j, head + j + self.half] }
    }

    /// Applies RoPE to rows of `columns` elements. The cosines and sines repeat after `rows` rows. Returns `None` if
    /// `cos` or `sin` has too few elements.
    fn rotate(self, values: &mut [f32], [rows, columns]: [usize; 2], cos: &[f32], sin: &[f32]) -> Option<()> {
        for (i, row) in values.chunks_mut(columns.max(1)).enumerate() {
            let first = i % rows.max(1) * self.half;
            for head in (0..columns).step_by((2 * self.half).max(1)) {
                for j in 0..self.half {
                    let (c, s) = (*cos.get(first + j)?, *sin.get(first + j)?);
                    let [a, b] = self.pair(head, j);
                    let (x, y) = (*row.get(a)?, *row.get(b)?);
                    *row.get_mut(a)? = x * c - y * s;
                    *row.get_mut(b)? = y * c + x * s;
                }
            }
        }
        Some(())
    }
}

/// A matmul with optional residual add, RMSNorm, gate and RoPE.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FusedMatMul {
    /// Transposed operands.
    pub matmul: MatMul,
    /// Epsilon of the RMSNorm before the matmul; `None` without a norm.
    pub epsilon: Option<f32>,
    /// Epsilon of the RMSNorm whose result is added to the residual; `None` without a residual add. A residual add
    /// requires `epsilon`, because its sum is normalized again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residual: Option<f32>,
    /// Elementwise steps that combine the results of the matmuls with both matrices; empty if there is one matrix.
    pub gate: Vec<EpilogueStep>,
    /// RoPE on the result of the matmul; `None` without RoPE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary: Option<Rotary>,
}

impl From<MatMul> for FusedMatMul {
    /// Returns a fused matmul that consists of the matmul alone.
    fn from(matmul: MatMul) -> Self {
        Self { matmul, epsilon: None, residual: None, gate: Vec::new(), rotary: None }
    }
}

/// Operands of a fused matmul by role.
struct Operands<'a, T> {
    x: &'a T,
    matrix: &'a T,
    second: Option<&'a T>,
    scale: Option<&'a T>,
    /// Residual, and the norm scale of the value that is added to the residual.
    residual: Option<[&'a T; 2]>,
    /// Cosines and sines of RoPE.
    angles: Option<[&'a T; 2]>,
}

impl FusedMatMul {
    /// Number of matrices of a fused matmul: 1, or 2 with a gate.
    pub fn matrices(&self) -> usize {
        if self.gate.is_empty() { 1 } else { 2 }
    }

    /// Operand index of the scale of the RMSNorm before the matmul; `None` without a norm.
    pub fn scale_operand(&self) -> Option<usize> {
        self.epsilon.map(|_| 1 + self.matrices())
    }

    /// Operand index of the residual; the next operand is the scale of its norm. `None` without a residual add.
    pub fn residual_operand(&self) -> Option<usize> {
        self.residual.map(|_| self.first_residual_operand())
    }

    /// Operand index of the cosines of RoPE; the next operand holds the sines. `None` without RoPE.
    pub fn rotary_operand(&self) -> Option<usize> {
        self.rotary.map(|_| self.first_rotary_operand())
    }

    /// Operand index that a residual has, or would have if one were added.
    pub fn first_residual_operand(&self) -> usize {
        1 + self.matrices() + usize::from(self.epsilon.is_some())
    }

    /// Operand index that RoPE's cosines have, or would have if RoPE were added.
    fn first_rotary_operand(&self) -> usize {
        self.first_residual_operand() + if self.residual.is_some() { 2 } else { 0 }
    }

    fn operands<'a, T>(&self, inputs: &[&'a T]) -> Result<Operands<'a, T>, OpError> {
        let wanted = self.first_rotary_operand() + if self.rotary.is_some() { 2 } else { 0 };
        let missing = || OpError::new(format!("expected {wanted} operands, found {}", inputs.len()));
        let [x, matrix, rest @ ..] = inputs else { return Err(missing()) };
        if inputs.len() != wanted {
            return Err(missing());
        }
        let second = (!self.gate.is_empty()).then(|| rest.first().copied()).flatten();
        let scale = self.scale_operand().and_then(|index| inputs.get(index).copied());
        let pair = |index: Option<usize>| match inputs.get(index?..)? {
            [first, second, ..] => Some([*first, *second]),
            _ => None,
        };
        let (residual, angles) = (pair(self.residual_operand()), pair(self.rotary_operand()));
        Ok(Operands { x, matrix, second, scale, residual, angles })
    }
}

/// True if a norm scale has one number for each element of a row of `x`.
pub(crate) fn is_row_scale(scale: &TensorDesc, x: &TensorDesc) -> bool {
    match (scale.shape.as_slice(), x.shape.last()) {
        ([before @ .., last], Some(depth)) => last == depth && before.iter().all(|size| size.is(1)),
        _ => false,
    }
}

impl Operation for FusedMatMul {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let operands = self.operands(inputs)?;
        check::float(operands.x, "the first operand")?;
        if self.matmul.trans_a {
            return Err(OpError::new("the first operand must not be transposed"));
        }
        if self.residual.is_some() && self.epsilon.is_none() {
            return Err(OpError::new("a residual add needs a norm after it (`epsilon`)"));
        }
        let [residual, inner] = operands.residual.map_or([None; 2], |residual| residual.map(Some));
        if let Some(residual) = residual {
            check::float(residual, "the residual")?;
            if residual.shape != operands.x.shape {
                return Err(OpError::new(format!(
                    "the residual {residual} must have the shape of {}",
                    operands.x
                )));
            }
        }
        for scale in operands.scale.into_iter().chain(inner) {
            check::broadcasts_to(scale, &operands.x.shape, "the scale")?;
            if !is_row_scale(scale, operands.x) {
                return Err(OpError::new(format!(
                    "the norm scale {scale} must have one number for each element of a row of {}",
                    operands.x
                )));
            }
        }
        let result = self.matmul.infer(&[operands.x, operands.matrix])?;
        if let Some(second) = operands.second {
            let other = self.matmul.infer(&[operands.x, second])?;
            if other.shape != result.shape {
                return Err(OpError::new(format!(
                    "the results {result} and {other} of the two matmuls must have the same shape"
                )));
            }
        }
        if let (Some(Rotary { half, interleaved }), Some(angles)) = (self.rotary, operands.angles) {
            let [.., rows, columns] = result.shape.as_slice() else {
                return Err(OpError::new("only matrices are rotated"));
            };
            let one = Dim::known(1);
            let last =
                if interleaved { [Dim::from(half), one.clone()] } else { [one.clone(), Dim::from(half)] };
            let [third, fourth] = last;
            let shape = [rows.clone(), one, third, fourth];
            if half == 0 || columns.div_exact(&Dim::from(2 * half)).is_none() {
                return Err(OpError::new(format!(
                    "{columns} columns do not divide into heads of {half} pairs"
                )));
            }
            for angle in angles {
                check::float(angle, "cosines and sines")?;
                if angle.shape != shape {
                    return Err(OpError::new(format!("the RoPE angles {angle} do not match {result}")));
                }
            }
        }
        let steps = self.gate.iter().enumerate();
        for (i, arg) in steps.flat_map(|(i, step)| step.args.iter().map(move |arg| (i, arg))) {
            let known = match *arg {
                Arg::Step(s) => s as usize <= i,
                Arg::Input(k) => k == SECOND_MATRIX,
            };
            if !known {
                return Err(OpError::new(format!(
                    "step {} of the gate must use only results of the two matmuls and of earlier steps",
                    i + 1
                )));
            }
        }
        Ok(result)
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Anchor
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::Other, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let operands = self.operands(inputs)?;
            let mut x = operands.x.clone();
            if let (Some([residual, scale]), Some(epsilon)) = (operands.residual, self.residual) {
                let inner = rms_norm(&x, scale, epsilon, symbols)?;
                let sums = inner.floats()?.iter().zip(residual.floats()?).map(|(a, b)| a + b).collect();
                x = Array { data: Data::Float(sums), ..x };
            }
            if let (Some(scale), Some(epsilon)) = (operands.scale, self.epsilon) {
                x = rms_norm(&x, scale, epsilon, symbols)?;
            }
            let first = self.matmul.eval(&[&x, operands.matrix], out, symbols)?;
            let combined = match operands.second {
                Some(second) => {
                    let second = self.matmul.eval(&[&x, second], out, symbols)?;
                    apply_epilogue(first, &self.gate, &[&x, operands.matrix, &second])?
                }
                None => first,
            };
            let mut values = combined.floats()?.to_vec();
            if let (Some(rotary), Some([cos, sin])) = (self.rotary, operands.angles) {
                let [.., rows, columns] = *out else {
                    return Err(OpError::new("only matrices are rotated"));
                };
                let rotated = rotary.rotate(&mut values, [rows, columns], cos.floats()?, sin.floats()?);
                rotated.ok_or_else(|| OpError::new("angles are missing"))?;
            }
            Ok(Data::Float(values))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{FusedMatMul, Rotary};
    use crate::ir::array::Array;
    use crate::ir::dim::Bindings;
    use crate::ir::element::{Arg, BinaryFn, Element, EpilogueStep, UnaryFn};
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::ops::matmul::MatMul;
    use crate::ir::tensor::{DType, TensorDesc};

    fn op(epsilon: Option<f32>, second: bool) -> FusedMatMul {
        let relu = EpilogueStep { element: Element::Unary(UnaryFn::Relu), args: vec![Arg::Step(0)] };
        let mul =
            EpilogueStep { element: Element::Binary(BinaryFn::Mul), args: vec![Arg::Step(1), Arg::Input(2)] };
        let gate = if second { vec![relu, mul] } else { Vec::new() };
        let matmul = MatMul { trans_a: false, trans_b: true };
        FusedMatMul { epsilon, gate, ..matmul.into() }
    }

    fn with_residual(epsilon: Option<f32>, second: bool) -> FusedMatMul {
        FusedMatMul { residual: Some(0.0), ..op(epsilon, second) }
    }

    #[test]
    fn pairs_are_rotated() {
        let x = Array::f32(&[1, 4], vec![1.0, 2.0, 3.0, 4.0]);
        let identity: Vec<f32> = (0..16).map(|i| if i % 5 == 0 { 1.0 } else { 0.0 }).collect();
        let b = Array::f32(&[4, 4], identity);
        let angles = |last: [usize; 2]| {
            let array = |values: [f32; 2]| Array::f32(&[1, 1, last[0], last[1]], values.to_vec());
            [array([0.0, 1.0]), array([1.0, 0.0])]
        };
        let rotated = |interleaved, last| {
            let op = FusedMatMul { rotary: Some(Rotary { half: 2, interleaved }), ..op(None, false) };
            let [cos, sin] = angles(last);
            run(&op, &[&x, &b, &cos, &sin], &Bindings::new()).unwrap().floats().unwrap().to_vec()
        };
        // The first pair is rotated by a right angle, the second one by zero.
        assert_eq!(rotated(false, [1, 2]), [-3.0, 2.0, 1.0, 4.0]);
        assert_eq!(rotated(true, [2, 1]), [-2.0, 1.0, 3.0, 4.0]);
        let tensor = |shape: &[usize]| TensorDesc::from_sizes(DType::F32, shape);
        let op = FusedMatMul { rotary: Some(Rotary { half: 2, interleaved: false }), ..op(None, false) };
        let infer = |n, angles: &[usize]| {
            op.infer(&[&tensor(&[1, 4]), &tensor(&[n, 4]), &tensor(angles), &tensor(angles)])
        };
        assert!(infer(8, &[1, 1, 1, 2]).is_ok());
        assert!(infer(6, &[1, 1, 1, 2]).is_err() && infer(8, &[1, 1, 2, 1]).is_err());
    }

    #[test]
    fn rows_are_normalized_and_results_gated() {
        let x = Array::f32(&[2, 2], vec![3.0, 4.0, 0.0, -2.0]);
        let (b, c) = (Array::f32(&[1, 2], vec![1.0, 1.0]), Array::f32(&[1, 2], vec![10.0, 0.0]));
        let scale = Array::f32(&[2], vec![5.0, 10.0]);
        let root = 12.5f32.sqrt();
        let y = run(&op(Some(0.0), true), &[&x, &b, &c, &scale], &Bindings::new()).unwrap();
        // Rows are [15, 40] / root and [0, -20] / sqrt(2).
        let want = (55.0 / root) * (150.0 / root);
        assert!((y.floats().unwrap()[0] - want).abs() < 1e-3, "{:?}", y.floats());
        assert_eq!(y.floats().unwrap()[1], 0.0);
        let y = run(&op(None, false), &[&x, &b], &Bindings::new()).unwrap();
        assert_eq!(y.floats().unwrap(), [7.0, -2.0]);
    }

    #[test]
    fn rows_are_sums_with_a_residual() {
        let x = Array::f32(&[1, 2], vec![3.0, 4.0]);
        let (b, c) = (Array::f32(&[1, 2], vec![1.0, 1.0]), Array::f32(&[1, 2], vec![10.0, 0.0]));
        let (scale, inner) = (Array::f32(&[2], vec![1.0, 2.0]), Array::f32(&[2], vec![5.0, 10.0]));
        let residual = Array::f32(&[1, 2], vec![-1.0, 3.0]);
        let inputs = [&x, &b, &c, &scale, &residual, &inner];
        let y = run(&with_residual(Some(0.0), true), &inputs, &Bindings::new()).unwrap();
        let root = 12.5f32.sqrt();
        let sums = [15.0 / root - 1.0, 40.0 / root + 3.0];
        let factor = (sums.iter().map(|v| v * v).sum::<f32>() / 2.0).sqrt();
        let [first, second] = [sums[0] / factor, 2.0 * sums[1] / factor];
        let want = (first + second) * 10.0 * first;
        assert!((y.floats().unwrap()[0] - want).abs() < 1e-4, "{:?}, not {want}", y.floats());
        // Absent options are not in the text form.
        let text = |op: &FusedMatMul| serde_json::to_string(op).unwrap();
        assert!(text(&with_residual(Some(0.0), true)).contains("\"residual\":0.0"));
        assert!(!text(&op(Some(0.0), true)).contains("residual"));
    }

    #[test]
    fn refusals() {
        let tensor = |shape: &[usize]| TensorDesc::from_sizes(DType::F16, shape);
        let (x, b, scale) = (tensor(&[3, 4]), tensor(&[6, 4]), tensor(&[4]));
        let infer = |epsilon, second, inputs: &[&TensorDesc]| op(epsilon, second).infer(inputs);
        assert_eq!(infer(Some(1e-5), true, &[&x, &b, &b, &scale]).unwrap().to_string(), "f16[3, 6]");
        assert!(infer(Some(1e-5), true, &[&x, &b, &scale]).is_err());
        assert!(infer(None, true, &[&x, &b, &tensor(&[5, 4])]).is_err());
        assert!(infer(Some(1e-5), false, &[&x, &b, &tensor(&[6])]).is_err());
        assert!(infer(None, false, &[&x, &b, &b]).is_err());
        assert!(infer(Some(1e-5), false, &[&x, &b, &tensor(&[3, 4])]).is_err());
        assert!(infer(Some(1e-5), false, &[&x, &b, &tensor(&[1])]).is_err());
        let infer = |epsilon, inputs: &[&TensorDesc]| with_residual(epsilon, false).infer(inputs);
        assert_eq!(infer(Some(1e-5), &[&x, &b, &scale, &x, &scale]).unwrap().to_string(), "f16[3, 6]");
        assert!(infer(Some(1e-5), &[&x, &b, &scale, &x]).is_err());
        assert!(infer(Some(1e-5), &[&x, &b, &scale, &scale, &scale]).is_err());
        assert!(infer(Some(1e-5), &[&x, &b, &scale, &x, &x]).is_err());
        assert!(infer(None, &[&x, &b, &x, &scale]).is_err());
    }
}
