//! Compares arrays; the message names the worst element and its error.

use driftc::ir::array::{Array, Data};
use driftc::ir::graph::Graph;
use driftc::ir::op::Op;
use driftc::ir::tensor::DType;

/// Tolerance of an element: `|a - b| <= relative * |b| + absolute * max|b|`. Integers must be equal.
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    /// Factor of the element.
    pub relative: f32,
    /// Factor of the largest expected element.
    pub absolute: f32,
}

impl Tolerance {
    /// For f32 storage.
    pub const F32: Self = Self { relative: 1e-3, absolute: 1e-4 };
    /// For f16 storage.
    pub const F16: Self = Self { relative: 2e-2, absolute: 1e-2 };

    /// For a single operator with a narrow type: the expected value may have been rounded twice, so two steps of the type may
    /// be lost.
    pub fn of_operator(dtype: DType) -> Self {
        match dtype {
            DType::F16 => Self { relative: 2e-3, absolute: 5e-4 },
            DType::Bf16 => Self { relative: 1.6e-2, absolute: 4e-3 },
            _ => Self::F32,
        }
    }
}

/// Fails with the worst element when the arrays differ.
///
/// # Errors
/// Different types, shapes or elements.
pub fn compare(name: &str, got: &Array, want: &Array, tolerance: Tolerance) -> Result<(), String> {
    if got.dtype != want.dtype || got.shape != want.shape {
        return Err(format!(
            "{name}: {}{:?} instead of {}{:?}",
            got.dtype.name(),
            got.shape,
            want.dtype.name(),
            want.shape
        ));
    }
    match (&got.data, &want.data) {
        (Data::Int(a), Data::Int(b)) => {
            let wrong: Vec<usize> = (0..a.len()).filter(|i| a[*i] != b[*i]).collect();
            wrong.first().map_or(Ok(()), |i| {
                let count = format!("{} of {} elements are wrong", wrong.len(), a.len());
                Err(format!("{name}: element {i} is {} instead of {}; {count}", a[*i], b[*i]))
            })
        }
        (Data::Float(a), Data::Float(b)) => {
            let largest = b.iter().filter(|v| v.is_finite()).fold(0f32, |m, v| m.max(v.abs()));
            let excess = |a: f32, b: f32| {
                if a == b || (a.is_nan() && b.is_nan()) {
                    return 0.0;
                }
                let limit = tolerance.relative * b.abs() + tolerance.absolute * largest;
                let off = (a - b).abs() / limit.max(f32::MIN_POSITIVE);
                if off.is_nan() { f32::INFINITY } else { off }
            };
            let worst = (0..a.len()).max_by(|i, j| excess(a[*i], b[*i]).total_cmp(&excess(a[*j], b[*j])));
            match worst.filter(|i| excess(a[*i], b[*i]) > 1.0) {
                Some(i) => Err(format!(
                    "{name}: element {i} of {} is {} instead of {} ({:.1} times the tolerance)",
                    a.len(),
                    a[i],
                    b[i],
                    excess(a[i], b[i])
                )),
                None => Ok(()),
            }
        }
        _ => Err(format!("{name}: a float array against an integer one")),
    }
}

/// True if an output of a case holds rows that were quantized. In f16 the scales differ, so packed words have no tolerance.
pub fn quantizes_rows(graph: &Graph) -> bool {
    graph.outputs().iter().any(|output| matches!(graph.op(output.node), Op::QuantizeRows(_)))
}
