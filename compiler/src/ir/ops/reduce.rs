//! Reduction of a tensor along axes, such as a sum or a maximum.

use rayon::prelude::{IntoParallelIterator, ParallelIterator};
use serde::{Deserialize, Serialize};

use super::{check, lanes};
use crate::error::OpError;
use crate::ir::array::{Array, Data, strides};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::{DType, TensorDesc};

/// Function of a reduction, by ONNX's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the variants have the names of ONNX's reductions")]
pub enum ReduceKind {
    Sum,
    Mean,
    Max,
    Min,
    Prod,
    L1,
    L2,
    LogSum,
    LogSumExp,
    SumSquare,
}

/// Reduction of a tensor along axes, such as a sum or a maximum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reduce {
    /// Function.
    pub kind: ReduceKind,
    /// Axes to reduce, sorted and distinct. Without axes, each element is reduced alone, so `L1` is the absolute value.
    pub axes: Vec<usize>,
    /// True if reduced axes remain in the result with size 1.
    pub keepdims: bool,
}

impl Reduce {
    /// Returns the sum of the terms that are the first axis of a tensor, such as the partial sums of a matmul.
    pub fn sum_of_terms() -> Self {
        Self { kind: ReduceKind::Sum, axes: vec![0], keepdims: false }
    }
}

impl Operation for Reduce {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 1..=1)?;
        if !matches!(self.kind, ReduceKind::Max | ReduceKind::Min) {
            check::numeric(x, "the input")?;
        }
        if self.axes.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(OpError::new(format!(
                "the axes {:?} of a reduction are not sorted and distinct",
                self.axes
            )));
        }
        for axis in &self.axes {
            check::axis(x, *axis)?;
        }
        let mut shape = Vec::with_capacity(x.rank());
        for (i, d) in x.shape.iter().enumerate() {
            if !self.axes.contains(&i) {
                shape.push(d.clone());
            } else if self.keepdims {
                shape.push(Dim::known(1));
            }
        }
        Ok(TensorDesc::new(x.dtype, shape))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Reduce
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        let keeps_channels = self.keepdims && self.axes.iter().all(|a| *a >= 2);
        let exactness = match self.kind {
            ReduceKind::Max | ReduceKind::Min => Exactness::Independent,
            _ => Exactness::Sums,
        };
        let layout = if keeps_channels { LayoutClass::ImageSlices } else { LayoutClass::RowMajor };
        Facts::new(layout, PrecisionClass::Other, exactness)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let x = inputs[0];
            Ok(match &x.data {
                Data::Float(v) => Data::Float(self.lanes(&x.shape, v, |lane| reduce_floats(self.kind, lane))),
                Data::Int(v) => {
                    Data::Int(self.lanes(&x.shape, v, |lane| reduce_ints(self.kind, x.dtype, lane)))
                }
            })
        })
    }
}

impl Reduce {
    /// For each element of the result, applies `f` to the input elements that are reduced to it.
    fn lanes<T: Copy + Send + Sync>(&self, shape: &[usize], x: &[T], f: impl Fn(&[T]) -> T + Sync) -> Vec<T> {
        let (mut sizes, mut steps) = ([vec![], vec![]], [vec![], vec![]]);
        for (i, (size, stride)) in shape.iter().zip(strides(shape)).enumerate() {
            let reduced = usize::from(self.axes.contains(&i));
            sizes[reduced].push(*size);
            // Strides of an empty tensor may overflow.
            steps[reduced].push(if x.is_empty() { 0 } else { stride });
        }
        let starts: Vec<usize> = lanes::strided_offsets(&sizes[0], &steps[0]).collect();
        starts
            .into_par_iter()
            .map_init(Vec::new, |lane, start| {
                lane.clear();
                lane.extend(lanes::strided_offsets(&sizes[1], &steps[1]).map(|o| x[start + o]));
                f(lane)
            })
            .collect()
    }
}

/// Reduces floats to one value; NaN propagates.
fn reduce_floats(kind: ReduceKind, x: &[f32]) -> f32 {
    let sum = |f: fn(f64) -> f64| x.iter().map(|v| f(f64::from(*v))).sum::<f64>();
    let extreme = |worst: f32, better: fn(f32, f32) -> bool| {
        x.iter().copied().fold(worst, |a, b| if b.is_nan() || better(b, a) { b } else { a })
    };
    let value = match kind {
        ReduceKind::Sum => sum(|v| v),
        ReduceKind::Mean => sum(|v| v) / x.len() as f64,
        ReduceKind::Max => return extreme(f32::NEG_INFINITY, |b, a| b > a),
        ReduceKind::Min => return extreme(f32::INFINITY, |b, a| b < a),
        ReduceKind::Prod => x.iter().map(|v| f64::from(*v)).product(),
        ReduceKind::L1 => sum(f64::abs),
        ReduceKind::L2 => sum(|v| v * v).sqrt(),
        ReduceKind::LogSum => libm::log(sum(|v| v)),
        ReduceKind::LogSumExp => log_sum_exp(x.iter().map(|v| f64::from(*v))),
        ReduceKind::SumSquare => sum(|v| v * v),
    };
    value as f32
}

/// Reduces integers to one value with wrapping arithmetic; fractions are truncated towards zero.
fn reduce_ints(kind: ReduceKind, dtype: DType, x: &[i64]) -> i64 {
    let exact = |v: i64| if dtype == DType::U64 { i128::from(v as u64) } else { i128::from(v) };
    let real = |f: fn(f64) -> f64| x.iter().map(|v| f(exact(*v) as f64)).sum::<f64>();
    let (least, greatest) = lanes::int_range(dtype);
    match kind {
        ReduceKind::Sum => x.iter().fold(0, |a, b| a.wrapping_add(*b)),
        ReduceKind::Mean if x.is_empty() => 0,
        ReduceKind::Mean => (x.iter().map(|v| exact(*v)).sum::<i128>() / x.len() as i128) as i64,
        ReduceKind::Max => {
            x.iter().copied().fold(least, |a, b| if lanes::int_order(dtype, b, a).is_gt() { b } else { a })
        }
        ReduceKind::Min => {
            x.iter().copied().fold(greatest, |a, b| if lanes::int_order(dtype, b, a).is_lt() { b } else { a })
        }
        ReduceKind::Prod => x.iter().fold(1, |a, b| a.wrapping_mul(*b)),
        ReduceKind::L1 if dtype == DType::U64 => x.iter().fold(0, |a, b| a.wrapping_add(*b)),
        ReduceKind::L1 => x.iter().fold(0, |a, b| a.wrapping_add(b.wrapping_abs())),
        ReduceKind::SumSquare => x.iter().fold(0, |a, b| a.wrapping_add(b.wrapping_mul(*b))),
        ReduceKind::L2 => real(|v| v * v).sqrt() as i64,
        ReduceKind::LogSum => libm::log(real(|v| v)) as i64,
        ReduceKind::LogSumExp => log_sum_exp(x.iter().map(|v| exact(*v) as f64)) as i64,
    }
}

/// Returns the logarithm of a sum of exponentials without overflow.
fn log_sum_exp(x: impl Iterator<Item = f64> + Clone) -> f64 {
    let max = x.clone().fold(f64::NEG_INFINITY, |a, b| if b.is_nan() || b > a { b } else { a });
    if max.is_finite() { max + libm::log(x.map(|v| libm::exp(v - max)).sum::<f64>()) } else { max }
}

#[cfg(test)]
mod tests {
    use super::{Reduce, ReduceKind, reduce_floats};
    use crate::ir::array::{Array, Data};
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::Operation;
    use crate::ir::tensor::{DType, TensorDesc};

    fn floats(kind: ReduceKind, axes: &[usize], x: &Array, out: &[usize]) -> Vec<f32> {
        let reduce = Reduce { kind, axes: axes.to_vec(), keepdims: out.len() == x.shape.len() };
        reduce.eval(&[x], out, &Bindings::new()).unwrap().floats().unwrap().to_vec()
    }

    #[test]
    fn every_kind() {
        let x = Array::f32(&[2, 2], vec![3.0, -4.0, 1.0, 2.0]);
        let rows = |kind| floats(kind, &[1], &x, &[2, 1]);
        assert_eq!(rows(ReduceKind::Sum), [-1.0, 3.0]);
        assert_eq!(rows(ReduceKind::Mean), [-0.5, 1.5]);
        assert_eq!(rows(ReduceKind::Max), [3.0, 2.0]);
        assert_eq!(rows(ReduceKind::Min), [-4.0, 1.0]);
        assert_eq!(rows(ReduceKind::Prod), [-12.0, 2.0]);
        assert_eq!(rows(ReduceKind::L1), [7.0, 3.0]);
        assert_eq!(rows(ReduceKind::L2), [5.0, 5.0f32.sqrt()]);
        assert_eq!(rows(ReduceKind::SumSquare), [25.0, 5.0]);
        assert_eq!(rows(ReduceKind::LogSum)[1], libm::logf(3.0));
        let big = Array::f32(&[2], vec![1000.0, 1000.0]);
        assert_eq!(floats(ReduceKind::LogSumExp, &[0], &big, &[]), [1000.0 + libm::logf(2.0)]);
    }

    #[test]
    fn axes_in_and_out() {
        let x = Array::f32(&[2, 3, 2], (0..12u8).map(f32::from).collect());
        assert_eq!(floats(ReduceKind::Sum, &[0, 2], &x, &[3]), [14.0, 22.0, 30.0]);
        assert_eq!(floats(ReduceKind::Sum, &[1], &x, &[2, 2]), [6.0, 9.0, 24.0, 27.0]);
        assert_eq!(floats(ReduceKind::SumSquare, &[], &x, &[2, 3, 2])[3], 9.0);
    }

    #[test]
    fn nothing_to_reduce() {
        let x = Array::f32(&[2, 0], vec![]);
        assert_eq!(floats(ReduceKind::Sum, &[1], &x, &[2]), [0.0, 0.0]);
        assert_eq!(floats(ReduceKind::Prod, &[1], &x, &[2]), [1.0, 1.0]);
        assert_eq!(floats(ReduceKind::Max, &[1], &x, &[2]), [f32::NEG_INFINITY; 2]);
        assert_eq!(floats(ReduceKind::LogSumExp, &[1], &x, &[2]), [f32::NEG_INFINITY; 2]);
        assert!(floats(ReduceKind::Mean, &[1], &x, &[2])[0].is_nan());
        let huge = Array::f32(&[3, usize::MAX / 2, 0, 2], vec![]);
        assert_eq!(floats(ReduceKind::Sum, &[1, 2], &huge, &[3, 2]), [0.0; 6]);
        let ints = Array::int(DType::I8, &[0], vec![]);
        let least = Reduce { kind: ReduceKind::Max, axes: vec![0], keepdims: false };
        assert_eq!(least.eval(&[&ints], &[], &Bindings::new()).unwrap().data, Data::Int(vec![-128]));
    }

    #[test]
    fn special_values() {
        assert!(reduce_floats(ReduceKind::Max, &[f32::NAN, 1.0]).is_nan());
        assert!(reduce_floats(ReduceKind::Min, &[1.0, f32::NAN]).is_nan());
        assert_eq!(reduce_floats(ReduceKind::LogSumExp, &[f32::INFINITY, 0.0]), f32::INFINITY);
    }

    #[test]
    fn integers() {
        let x = Array::int(DType::U64, &[2], vec![1, -1]);
        let reduce = |kind| {
            let op = Reduce { kind, axes: vec![0], keepdims: false };
            op.eval(&[&x], &[], &Bindings::new()).unwrap().ints().unwrap()[0]
        };
        assert_eq!(reduce(ReduceKind::Max), -1);
        assert_eq!(reduce(ReduceKind::Min), 1);
        assert_eq!(reduce(ReduceKind::Sum), 0);
        assert_eq!(reduce(ReduceKind::Mean), i64::MIN);
        let bytes = Array::int(DType::I8, &[3], vec![100, 100, -1]);
        let sum = Reduce { kind: ReduceKind::Sum, axes: vec![0], keepdims: true };
        assert_eq!(sum.eval(&[&bytes], &[1], &Bindings::new()).unwrap().data, Data::Int(vec![-57]));
    }

    #[test]
    fn refuses() {
        let x = TensorDesc::new(DType::F32, vec![Dim::symbol("n"), Dim::known(3)]);
        let infer = |axes: &[usize]| {
            let op = Reduce { kind: ReduceKind::Sum, axes: axes.to_vec(), keepdims: false };
            op.infer(&[&x]).map(|t| t.to_string())
        };
        assert_eq!(infer(&[1]), Ok("f32[n]".to_string()));
        assert!(infer(&[2]).is_err());
        assert!(infer(&[1, 0]).is_err());
        assert!(infer(&[1, 1]).is_err());
        let sum = Reduce { kind: ReduceKind::Sum, axes: vec![], keepdims: false };
        assert!(sum.infer(&[&TensorDesc::from_sizes(DType::Bool, &[3])]).is_err());
    }
}
