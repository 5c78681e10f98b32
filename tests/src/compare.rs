//! Compares arrays of results with expected arrays. The error names the worst element and how far it is off.

use driftc::ir::array::{Array, Data};
use driftc::ir::graph::Graph;
use driftc::ir::op::Op;
use driftc::ir::tensor::DType;

/// Tolerance of floating-point results: element a may differ from the expected b if `|a - b| <= relative * |b| + absolute *
/// max|b|`. Integers must be equal.
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    /// Allowed difference as a fraction of the expected element's magnitude.
    pub relative: f32,
    /// Allowed additional difference as a fraction of the largest magnitude among the expected elements.
    pub absolute: f32,
}

impl Tolerance {
    /// Tolerance of results that are stored in f32.
    pub const F32: Self = Self { relative: 1e-3, absolute: 1e-4 };
    /// Tolerance of results that are stored in f16.
    pub const F16: Self = Self { relative: 2e-2, absolute: 1e-2 };

    /// Returns the tolerance of a single operator's result of this type. An expected value of a narrow type may have been
    /// rounded twice, so it may be two steps of the type away from the exact result.
    pub fn of_operator(dtype: DType) -> Self {
        match dtype {
            DType::F16 => Self { relative: 2e-3, absolute: 5e-4 },
            DType::Bf16 => Self { relative: 1.6e-2, absolute: 4e-3 },
            _ => Self::F32,
        }
    }
}

/// Compares an array with the expected one. `name` is the name of the tensor in messages.
///
/// # Errors
/// If types or shapes differ, or an element differs by more than the tolerance. The message names the worst element.
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
        _ => Err(format!("{name}: one array holds floats, the other one integers")),
    }
}

/// True if an output of a test case holds quantized rows in packed words. In f16 the scales differ a little, so the words
/// cannot be compared.
pub fn quantizes_rows(graph: &Graph) -> bool {
    graph.outputs().iter().any(|output| matches!(graph.op(output.node), Op::QuantizeRows(_)))
}
