//! A matrix product with what stands beside it in a transformer: the normalisation of its rows before it, the residual sum
//! that is normalised, a second product of the same rows that joins it element by element, and the rotation of queries and
//! keys behind it.
//!
//! Operands: `x [.., M, K]`, a matrix, with `join` a second matrix of the same shape, with `epsilon` a scale `[K]`, with
//! `residual` a residual `[.., M, K]` and another scale `[K]`, and with `rotary` the cosines and sines of each row. With
//! `residual` rows are normalised by their root mean square, multiplied by that other scale and added to the residual first.
//! Then they are normalised and scaled; the result is `#0 = x * matrix`, or what `join` makes of it and of
//! `@2 = x * second matrix`, with its columns rotated in pairs.
//!
//! The operator exists because a kernel that streams constants computes all of it in one dispatch, with nothing stored in
//! between.

use serde::{Deserialize, Serialize};

use super::check;
use super::layer_norm::rms_norm;
use super::matmul::MatMul;
use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::element::{Arg, EpilogueStep};
use crate::ir::eval::chained;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// The place of the second matrix among the operands, by which `join` names the product with it.
pub const SECOND: u32 = 2;

/// Which columns of a product are pairs that are rotated, as rotary position embeddings do ("RoFormer", arXiv:2104.09864).
///
/// A head is `2 * half` columns. Pair `j` of it is `(j, j + half)`, or `(2 * j, 2 * j + 1)` where pairs are interleaved; of
/// `(a, b)` become `(a * cos - b * sin, b * cos + a * sin)`. Cosines and sines are `[M, 1, 1, half]`, or `[M, 1, half, 1]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotary {
    /// Pairs of a head.
    pub half: usize,
    /// Whether the elements of a pair are neighbours.
    pub interleaved: bool,
}

impl Rotary {
    /// The columns of pair `j` of the head that starts at `head`.
    fn pair(self, head: usize, j: usize) -> [usize; 2] {
        if self.interleaved { [head + 2 * j, head + 2 * j + 1] } else { [head + j, head + j + self.half] }
    }

    /// Rotates rows of `columns` elements, of which every `rows` have the same angles as those before.
    fn turn(self, values: &mut [f32], [rows, columns]: [usize; 2], cos: &[f32], sin: &[f32]) -> Option<()> {
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

/// A matrix product, the normalisation before it, a second product that joins it and the rotation behind it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FusedMatMul {
    /// Which operands are transposed.
    pub product: MatMul,
    /// Added to the mean of squares of a row; rows are taken as they are where there is none.
    pub epsilon: Option<f32>,
    /// The same of the normalisation before that, whose result is added to a residual; none where there is none. Rows are
    /// normalised behind it, so that it stands with `epsilon` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residual: Option<f32>,
    /// What makes one value of both products; empty where there is one matrix.
    pub join: Vec<EpilogueStep>,
    /// Which columns are rotated; none where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary: Option<Rotary>,
}

impl From<MatMul> for FusedMatMul {
    /// The product with nothing beside it.
    fn from(product: MatMul) -> Self {
        Self { product, epsilon: None, residual: None, join: Vec::new(), rotary: None }
    }
}

/// The parts that operands have.
struct Parts<'a, T> {
    x: &'a T,
    matrix: &'a T,
    second: Option<&'a T>,
    scale: Option<&'a T>,
    /// The residual and the scale of what is added to it.
    residual: Option<[&'a T; 2]>,
    /// Cosines and sines.
    angles: Option<[&'a T; 2]>,
}

impl FusedMatMul {
    /// Matrices that rows are multiplied with.
    pub fn matrices(&self) -> usize {
        if self.join.is_empty() { 1 } else { 2 }
    }

    /// The place of the scale among the operands.
    pub fn scale(&self) -> Option<usize> {
        self.epsilon.map(|_| 1 + self.matrices())
    }

    /// The place of the residual among the operands, before that of the scale of what is added to it.
    pub fn residual(&self) -> Option<usize> {
        self.residual.map(|_| self.before_residual())
    }

    /// The place of the cosines among the operands, before that of the sines.
    pub fn angles(&self) -> Option<usize> {
        self.rotary.map(|_| self.before_angles())
    }

    /// Operands before a residual.
    pub fn before_residual(&self) -> usize {
        1 + self.matrices() + usize::from(self.epsilon.is_some())
    }

    /// Operands other than cosines and sines.
    fn before_angles(&self) -> usize {
        self.before_residual() + if self.residual.is_some() { 2 } else { 0 }
    }

    fn parts<'a, T>(&self, inputs: &[&'a T]) -> Result<Parts<'a, T>, OpError> {
        let wanted = self.before_angles() + if self.rotary.is_some() { 2 } else { 0 };
        let missing = || OpError::new(format!("{wanted} operands are needed, not {}", inputs.len()));
        let [x, matrix, rest @ ..] = inputs else { return Err(missing()) };
        if inputs.len() != wanted {
            return Err(missing());
        }
        let second = (!self.join.is_empty()).then(|| rest.first().copied()).flatten();
        let scale = self.scale().and_then(|place| inputs.get(place).copied());
        let two = |place: Option<usize>| match inputs.get(place?..)? {
            [first, second, ..] => Some([*first, *second]),
            _ => None,
        };
        Ok(Parts { x, matrix, second, scale, residual: two(self.residual()), angles: two(self.angles()) })
    }
}

/// Whether a scale is one number for each element of a row.
pub(crate) fn is_row(scale: &TensorDesc, x: &TensorDesc) -> bool {
    match (scale.shape.as_slice(), x.shape.last()) {
        ([before @ .., last], Some(depth)) => last == depth && before.iter().all(|size| size.is(1)),
        _ => false,
    }
}

impl Operation for FusedMatMul {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let parts = self.parts(inputs)?;
        check::float(parts.x, "the first operand")?;
        if self.product.trans_a {
            return Err(OpError::new("rows that lie along columns are not normalised"));
        }
        if self.residual.is_some() && self.epsilon.is_none() {
            return Err(OpError::new("what is added to a residual is normalised behind it"));
        }
        let [residual, inner] = parts.residual.map_or([None; 2], |residual| residual.map(Some));
        if let Some(residual) = residual {
            check::float(residual, "the residual")?;
            if residual.shape != parts.x.shape {
                return Err(OpError::new(format!("{residual} is no residual of {}", parts.x)));
            }
        }
        for scale in parts.scale.into_iter().chain(inner) {
            check::broadcasts_to(scale, &parts.x.shape, "the scale")?;
            if !is_row(scale, parts.x) {
                return Err(OpError::new(format!("{scale} is no scale of a row of {}", parts.x)));
            }
        }
        let result = self.product.infer(&[parts.x, parts.matrix])?;
        if let Some(second) = parts.second {
            let joined = self.product.infer(&[parts.x, second])?;
            if joined.shape != result.shape {
                return Err(OpError::new(format!("products {result} and {joined} do not join")));
            }
        }
        if let (Some(Rotary { half, interleaved }), Some(angles)) = (self.rotary, parts.angles) {
            let [.., rows, columns] = result.shape.as_slice() else {
                return Err(OpError::new("rows of columns are rotated"));
            };
            let one = Dim::known(1);
            let last =
                if interleaved { [Dim::from(half), one.clone()] } else { [one.clone(), Dim::from(half)] };
            let [third, fourth] = last;
            let shape = [rows.clone(), one, third, fourth];
            if half == 0 || columns.div_exact(&Dim::from(2 * half)).is_none() {
                return Err(OpError::new(format!("{columns} columns are no heads of {half} pairs")));
            }
            for of in angles {
                check::float(of, "cosines and sines")?;
                if of.shape != shape {
                    return Err(OpError::new(format!("{of} are no angles of {result}")));
                }
            }
        }
        let steps = self.join.iter().enumerate();
        for (i, arg) in steps.flat_map(|(i, step)| step.args.iter().map(move |arg| (i, arg))) {
            let known = match *arg {
                Arg::Step(s) => s as usize <= i,
                Arg::Input(k) => k == SECOND,
            };
            if !known {
                return Err(OpError::new(format!("step {} names neither product", i + 1)));
            }
        }
        Ok(result)
    }

    fn fusion(&self) -> Fusion {
        Fusion::Anchor
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let parts = self.parts(inputs)?;
            let mut x = parts.x.clone();
            if let (Some([residual, scale]), Some(epsilon)) = (parts.residual, self.residual) {
                let inner = rms_norm(&x, scale, epsilon, symbols)?;
                let sums = inner.floats()?.iter().zip(residual.floats()?).map(|(a, b)| a + b).collect();
                x = Array { data: Data::Float(sums), ..x };
            }
            if let (Some(scale), Some(epsilon)) = (parts.scale, self.epsilon) {
                x = rms_norm(&x, scale, epsilon, symbols)?;
            }
            let first = self.product.eval(&[&x, parts.matrix], out, symbols)?;
            let joined = match parts.second {
                Some(second) => {
                    let second = self.product.eval(&[&x, second], out, symbols)?;
                    chained(first, &self.join, &[&x, parts.matrix, &second])?
                }
                None => first,
            };
            let mut values = joined.floats()?.to_vec();
            if let (Some(rotary), Some([cos, sin])) = (self.rotary, parts.angles) {
                let [.., rows, columns] = *out else {
                    return Err(OpError::new("rows of columns are rotated"));
                };
                let turned = rotary.turn(&mut values, [rows, columns], cos.floats()?, sin.floats()?);
                turned.ok_or_else(|| OpError::new("angles are missing"))?;
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
        let join = if second { vec![relu, mul] } else { Vec::new() };
        let product = MatMul { trans_a: false, trans_b: true };
        FusedMatMul { epsilon, join, ..product.into() }
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
            let of = |values: [f32; 2]| Array::f32(&[1, 1, last[0], last[1]], values.to_vec());
            [of([0.0, 1.0]), of([1.0, 0.0])]
        };
        let rotated = |interleaved, last| {
            let op = FusedMatMul { rotary: Some(Rotary { half: 2, interleaved }), ..op(None, false) };
            let [cos, sin] = angles(last);
            run(&op, &[&x, &b, &cos, &sin], &Bindings::new()).unwrap().floats().unwrap().to_vec()
        };
        // The first pair turns by a right angle, the second one stays.
        assert_eq!(rotated(false, [1, 2]), [-3.0, 2.0, 1.0, 4.0]);
        assert_eq!(rotated(true, [2, 1]), [-2.0, 1.0, 3.0, 4.0]);
        let of = |shape: &[usize]| TensorDesc::of(DType::F32, shape);
        let op = FusedMatMul { rotary: Some(Rotary { half: 2, interleaved: false }), ..op(None, false) };
        let infer = |n, angles: &[usize]| op.infer(&[&of(&[1, 4]), &of(&[n, 4]), &of(angles), &of(angles)]);
        assert!(infer(8, &[1, 1, 1, 2]).is_ok());
        assert!(infer(6, &[1, 1, 1, 2]).is_err() && infer(8, &[1, 1, 2, 1]).is_err());
    }

    #[test]
    fn rows_are_normalised_and_products_joined() {
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
        // What is optional and absent is absent in the text form.
        let text = |op: &FusedMatMul| serde_json::to_string(op).unwrap();
        assert!(text(&with_residual(Some(0.0), true)).contains("\"residual\":0.0"));
        assert!(!text(&op(Some(0.0), true)).contains("residual"));
    }

    #[test]
    fn refusals() {
        let of = |shape: &[usize]| TensorDesc::of(DType::F16, shape);
        let (x, b, scale) = (of(&[3, 4]), of(&[6, 4]), of(&[4]));
        let infer = |epsilon, second, inputs: &[&TensorDesc]| op(epsilon, second).infer(inputs);
        assert_eq!(infer(Some(1e-5), true, &[&x, &b, &b, &scale]).unwrap().to_string(), "f16[3, 6]");
        assert!(infer(Some(1e-5), true, &[&x, &b, &scale]).is_err());
        assert!(infer(None, true, &[&x, &b, &of(&[5, 4])]).is_err());
        assert!(infer(Some(1e-5), false, &[&x, &b, &of(&[6])]).is_err());
        assert!(infer(None, false, &[&x, &b, &b]).is_err());
        assert!(infer(Some(1e-5), false, &[&x, &b, &of(&[3, 4])]).is_err());
        assert!(infer(Some(1e-5), false, &[&x, &b, &of(&[1])]).is_err());
        let infer = |epsilon, inputs: &[&TensorDesc]| with_residual(epsilon, false).infer(inputs);
        assert_eq!(infer(Some(1e-5), &[&x, &b, &scale, &x, &scale]).unwrap().to_string(), "f16[3, 6]");
        assert!(infer(Some(1e-5), &[&x, &b, &scale, &x]).is_err());
        assert!(infer(Some(1e-5), &[&x, &b, &scale, &scale, &scale]).is_err());
        assert!(infer(Some(1e-5), &[&x, &b, &scale, &x, &x]).is_err());
        assert!(infer(None, &[&x, &b, &x, &scale]).is_err());
    }
}
