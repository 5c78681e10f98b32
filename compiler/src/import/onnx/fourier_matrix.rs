//! Matrices of discrete Fourier transforms.

use std::f64::consts::TAU;

use crate::ir::array::Array;

/// Maximum number of elements of the matrix of a transform that is computed in one matmul if two steps are possible.
pub(super) const MAX_DIRECT: usize = 1 << 21;

/// Maximum number of elements of the matrix of a transform.
const MAX_ELEMENTS: usize = 1 << 24;

/// A discrete Fourier transform of real or complex elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transform {
    /// Number of elements of the whole signal or spectrum.
    pub(super) length: usize,
    pub(super) inverse: bool,
    /// True if the spectrum (the result, or the operand of an inverse transform) has only its first
    /// `length / 2 + 1` elements.
    pub(super) onesided: bool,
    /// Number of components of an element of the operand: 1 (real) or 2 (complex).
    pub(super) components: usize,
}

/// Cosines and sines of a complex matrix `[rows, columns]`.
pub(super) struct Step {
    rows: usize,
    columns: usize,
    components: usize,
    values: Vec<(f64, f64)>,
}

impl Transform {
    /// Returns the number of elements of a one-sided spectrum.
    fn bins(&self) -> usize {
        self.length / 2 + 1
    }

    /// Returns the number of rows of the operand that the transform reads.
    pub(super) fn input_rows(&self) -> usize {
        if self.real_output() { self.bins() } else { self.length }
    }

    pub(super) fn output_rows(&self) -> usize {
        if self.onesided && !self.inverse { self.bins() } else { self.length }
    }

    /// Returns true if the result has real elements: the inverse transform of a one-sided spectrum.
    pub(super) fn real_output(&self) -> bool {
        self.inverse && self.onesided
    }

    /// Returns the number of components of an element of the result: 1 (real) or 2 (complex).
    pub(super) fn output_components(&self) -> usize {
        if self.real_output() { 1 } else { 2 }
    }

    /// Returns the number of elements of the matrix for `rows` rows of the operand.
    pub(super) fn elements(&self, rows: usize) -> usize {
        let columns = self.output_rows().saturating_mul(self.output_components());
        rows.saturating_mul(self.components).saturating_mul(columns)
    }

    /// Returns the number of times that each row of a one-sided spectrum occurs in the whole spectrum.
    pub(super) fn one_sided_weights(&self) -> Vec<f32> {
        (0..self.bins()).map(|k| if k == 0 || 2 * k == self.length { 1.0 } else { 2.0 }).collect()
    }

    /// Returns cosine and sine of the angle of element `k` of the spectrum and element `j` of the signal, both of
    /// `length` elements. The sine has the sign of the transform.
    fn turn(&self, j: usize, k: usize, length: usize) -> (f64, f64) {
        let product = (j as u128) * (k as u128) % (length.max(1) as u128);
        let angle = TAU * product as f64 / length.max(1) as f64;
        (libm::cos(angle), if self.inverse { libm::sin(angle) } else { -libm::sin(angle) })
    }

    /// Returns the matrix `[rows * components, output rows * output components]`. Row j is multiplied by `window[j]`, if
    /// there is a window.
    ///
    /// # Errors
    /// Fails if the matrix would be too large.
    pub(super) fn matrix(&self, rows: usize, window: Option<&[f32]>) -> Result<Array, String> {
        if self.elements(rows) > MAX_ELEMENTS {
            return Err(format!(
                "a transform of length {} needs a matrix of {} elements; at most {MAX_ELEMENTS} are supported; pad \
                 the signal to a length with smaller factors",
                self.length,
                self.elements(rows)
            ));
        }
        let (columns, parts) = (self.output_rows(), self.output_components());
        let weights = if self.real_output() { self.one_sided_weights() } else { Vec::new() };
        let scale = if self.inverse { 1.0 / self.length as f64 } else { 1.0 };
        let mut values = vec![0.0f32; self.elements(rows)];
        let width = columns * parts;
        for j in 0..rows {
            let factor = |list: Option<&[f32]>| list.and_then(|l| l.get(j)).map_or(1.0, |v| f64::from(*v));
            let scale = scale * factor(window) * factor(Some(&weights));
            for k in 0..columns {
                let (cos, sin) = self.turn(j, k, self.length);
                let at = j * self.components * width + k * parts;
                let (cos, sin) = (scale * cos, scale * sin);
                for c in 0..self.components {
                    // Component 1 is multiplied by i.
                    let complex = if c == 0 { [cos, sin] } else { [-sin, cos] };
                    for (p, value) in complex.into_iter().enumerate().take(parts) {
                        values[at + c * width + p] = value as f32;
                    }
                }
            }
        }
        Ok(Array::f32(&[rows * self.components, width], values))
    }

    /// Returns the square matrix of one of two steps, over `n` elements with `components` components.
    pub(super) fn step(&self, n: usize, components: usize) -> Step {
        let values = (0..n * n).map(|i| self.turn(i / n, i % n, n)).collect();
        Step { rows: n, columns: n, components, values }
    }

    /// Returns the twiddle factors between two steps, `[n2, n1, 2, 1]`: a cosine and a sine for each pair of row and
    /// column.
    pub(super) fn twiddles(&self, n1: usize, n2: usize) -> Array {
        let mut values = Vec::with_capacity(2 * n1 * n2);
        for j in 0..n2 {
            for k in 0..n1 {
                let (cos, sin) = self.turn(j, k, self.length);
                values.extend([cos as f32, sin as f32]);
            }
        }
        Array::f32(&[n2, n1, 2, 1], values)
    }
}

impl Step {
    /// Returns the matrix as real numbers, `[rows * components, columns * 2]`.
    pub(super) fn plain(&self) -> Array {
        self.real(|cos, sin| vec![cos, sin])
    }

    /// Returns the matrix as real numbers, `[rows * components, columns * 4]`: each column, and the column multiplied
    /// by i.
    pub(super) fn with_rotated(&self) -> Array {
        self.real(|cos, sin| vec![cos, sin, -sin, cos])
    }

    fn real(&self, parts: impl Fn(f64, f64) -> Vec<f64>) -> Array {
        let mut values = Vec::new();
        for row in self.values.chunks(self.columns.max(1)) {
            for c in 0..self.components {
                for (cos, sin) in row {
                    let (re, im) = if c == 0 { (*cos, *sin) } else { (-sin, *cos) };
                    values.extend(parts(re, im).into_iter().map(|v| v as f32));
                }
            }
        }
        let rows = self.rows * self.components;
        let width = values.len() / rows.max(1);
        Array::f32(&[rows, width], values)
    }
}

/// Returns the two factors of a length that are closest to its square root; `None` if a factor would be larger than 64
/// times the other one.
pub(super) fn two_factors(length: usize) -> Option<[usize; 2]> {
    let root = length.isqrt();
    let small = (1..=root).rev().find(|f| length.is_multiple_of(*f))?;
    let large = length / small;
    (small > 1 && large <= small.saturating_mul(64)).then_some([small, large])
}

#[cfg(test)]
mod tests {
    use super::two_factors;

    #[test]
    fn factors() {
        assert_eq!(two_factors(4096), Some([64, 64]));
        assert_eq!(two_factors(6000), Some([75, 80]));
        assert_eq!(two_factors(4099), None);
        assert_eq!(two_factors(2 * 4099), None);
    }
}
