//! Comparison of two arrays within a tolerance.

use driftc::ir::array::{Array, Data, unravel};
use driftc::passes::Precision;
use serde::Serialize;

/// Maximum difference of an element: `relative * |expected| + absolute`. Integers must be equal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Tolerance {
    pub(crate) relative: f64,
    /// Absolute tolerance, as a fraction of the largest expected element unless `fixed` is set.
    pub(crate) absolute: f64,
    /// True if `absolute` is a fixed number, false if it is a fraction of the largest expected element.
    pub(crate) fixed: bool,
}

impl Tolerance {
    /// Default tolerance for a precision.
    pub(crate) fn for_precision(precision: Precision) -> Self {
        let (relative, absolute) = precision.tolerance();
        Self { relative, absolute, fixed: false }
    }
}

/// Result of comparing an array with the expected one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Comparison {
    pub(crate) elements: usize,
    /// Number of elements whose difference exceeds the tolerance.
    pub(crate) wrong: usize,
    /// Largest finite difference.
    pub(crate) max_difference: f64,
    /// Element with the largest difference relative to its tolerance.
    pub(crate) worst: Option<Worst>,
    /// Message if the types or shapes of the arrays differ; their elements are then not compared.
    pub(crate) mismatch: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Worst {
    pub(crate) at: Vec<usize>,
    pub(crate) value: f64,
    pub(crate) expected: f64,
    /// Difference of the element divided by the maximum difference that the tolerance allows.
    pub(crate) off: f64,
}

impl Comparison {
    pub(crate) fn equal(&self) -> bool {
        self.mismatch.is_none() && self.wrong == 0
    }
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(mismatch) = &self.mismatch {
            return f.write_str(mismatch);
        }
        let Some(Worst { at, value, expected, off }) = &self.worst else {
            return f.write_str("no elements");
        };
        if self.wrong == 0 {
            return write!(f, "equal, largest difference {:.2e}", self.max_difference);
        }
        write!(
            f,
            "{} of {} elements differ; worst at {at:?}: {value} instead of {expected}, {off:.1} times the tolerance",
            self.wrong, self.elements
        )
    }
}

/// Compares `got` with the expected array `want`.
pub(crate) fn compare(got: &Array, want: &Array, tolerance: Tolerance) -> Comparison {
    let mut result =
        Comparison { elements: want.len(), wrong: 0, max_difference: 0.0, worst: None, mismatch: None };
    if got.dtype != want.dtype || got.shape != want.shape {
        let (a, b) = (got.dtype.name(), want.dtype.name());
        result.mismatch = Some(format!("got {a}{:?}, expected {b}{:?}", got.shape, want.shape));
        return result;
    }
    let (a, b): (Vec<f64>, Vec<f64>) = match (&got.data, &want.data) {
        (Data::Float(a), Data::Float(b)) => {
            (a.iter().map(|v| f64::from(*v)).collect(), b.iter().map(|v| f64::from(*v)).collect())
        }
        (Data::Int(a), Data::Int(b)) => {
            (a.iter().map(|v| *v as f64).collect(), b.iter().map(|v| *v as f64).collect())
        }
        _ => {
            result.mismatch = Some("one array holds integers and the other floats".into());
            return result;
        }
    };
    let largest = b.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs()));
    let absolute = if tolerance.fixed { tolerance.absolute } else { tolerance.absolute * largest };
    let is_float = want.dtype.is_float();
    let mut worst: Option<(usize, f64)> = None;
    for (i, (a, b)) in a.iter().zip(&b).enumerate() {
        let off = off(*a, *b, if is_float { tolerance.relative * b.abs() + absolute } else { 0.0 });
        let difference = (a - b).abs();
        if difference.is_finite() {
            result.max_difference = result.max_difference.max(difference);
        }
        result.wrong += usize::from(off > 1.0);
        if worst.is_none_or(|(_, most)| off > most) {
            worst = Some((i, off));
        }
    }
    result.worst = worst.and_then(|(i, off)| {
        let mut at = vec![0; want.shape.len()];
        unravel(i, &want.shape, &mut at);
        Some(Worst { at, value: *a.get(i)?, expected: *b.get(i)?, off })
    });
    result
}

/// Difference of `a` and `b` divided by `limit`, the maximum allowed difference. Infinite if only one of `a` and `b` is
/// NaN.
fn off(a: f64, b: f64, limit: f64) -> f64 {
    if a == b || (a.is_nan() && b.is_nan()) {
        return 0.0;
    }
    let off = (a - b).abs() / limit.max(f64::MIN_POSITIVE);
    if off.is_nan() { f64::INFINITY } else { off }
}

#[cfg(test)]
mod tests {
    use super::{Tolerance, compare};
    use driftc::ir::array::Array;
    use driftc::ir::tensor::DType;
    use driftc::passes::Precision;

    #[test]
    fn the_worst_element_is_found() {
        let want = Array::f32(&[2, 2], vec![1.0, 100.0, f32::NAN, f32::INFINITY]);
        let t = Tolerance::for_precision(Precision::F32);
        assert!(compare(&want, &want, t).equal());
        let close = Array::f32(&[2, 2], vec![1.01, 100.05, f32::NAN, f32::INFINITY]);
        assert!(compare(&close, &want, t).equal());
        let wrong = Array::f32(&[2, 2], vec![1.01, 100.5, f32::NAN, f32::INFINITY]);
        let comparison = compare(&wrong, &want, t);
        assert_eq!((comparison.wrong, comparison.worst.unwrap().at), (1, vec![0, 1]));
        let nan = Array::f32(&[2, 2], vec![f32::NAN, 100.0, f32::NAN, f32::INFINITY]);
        assert_eq!(compare(&nan, &want, t).worst.unwrap().off, f64::INFINITY);
    }

    #[test]
    fn integers_and_shapes_must_be_equal() {
        let t = Tolerance::for_precision(Precision::F16);
        let ints = |v: Vec<i64>| Array::int(DType::I32, &[v.len()], v);
        assert!(compare(&ints(vec![5]), &ints(vec![5]), t).equal());
        assert!(!compare(&ints(vec![1000]), &ints(vec![1001]), t).equal());
        assert!(!compare(&ints(vec![1, 2]), &ints(vec![1]), t).equal());
        assert!(!compare(&ints(vec![]), &Array::f32(&[0], vec![]), t).equal());
        assert!(compare(&ints(vec![]), &ints(vec![]), t).equal());
    }
}
