//! Matrices of Winograd's convolution, and the transform of its filters; used by both tile transforms.
//!
//! A window of 3 x 3 over a tile of `n x n` pixels gives `m x m` results, `n = m + 2`, with `n * n` multiplications
//! instead of `9 * m * m`: `y = A' [ (G g G') * (B' d B) ] A`, with an elementwise product in the middle. The matrices
//! follow from `n - 1` interpolation points and infinity.
//!
//! For 4 x 4 results the points are 0, ±√½ and ±√2, as in TensorFlow Lite's GPU delegate: pairs of reciprocals round
//! far less than the textbook's 0, ±1, ±2. Rows are scaled by powers of two to a length of about one, so the transform
//! does not enlarge the range that f16 must hold. With f16 intermediates and f32 sums, random data of 16 to 512
//! channels has errors of at most 0.3 % of the largest result (0.2 % with f32 after the matmul). The textbook's points
//! give 1.2 %.

use rayon::prelude::{IndexedParallelIterator, ParallelIterator, ParallelSliceMut};

/// Winograd matrices for `outputs x outputs` results per tile, row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrices {
    /// Pixels per side of an input tile of Winograd's convolution.
    pub side: usize,
    /// `B'`, the matrix that transforms input tiles: `side x side`.
    pub input: Vec<f64>,
    /// `G`, the matrix that transforms filters: `side x 3`.
    pub filter: Vec<f64>,
    /// `A'`, the matrix that transforms products to results: `outputs x side`.
    pub output: Vec<f64>,
}

/// Taps per side of a convolution window.
const TAPS: usize = 3;

impl Matrices {
    /// Returns the Winograd matrices for 2 x 2 or 4 x 4 results per tile; `None` for other sizes.
    pub fn new(outputs: usize) -> Option<Self> {
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let points: &[f64] = match outputs {
            2 => &[0.0, 1.0, -1.0],
            4 => &[0.0, half, -half, 2.0 * half, -2.0 * half],
            _ => return None,
        };
        let side = points.len() + 1;
        let [mut input, mut filter] = [Vec::new(), Vec::new()];
        let mut columns = Vec::new();
        for j in 0..side {
            // The point at infinity selects the highest power.
            let point = points.get(j);
            let others: Vec<f64> =
                points.iter().enumerate().filter(|(l, _)| *l != j).map(|(_, p)| *p).collect();
            let divisor: f64 = point.map_or(1.0, |p| others.iter().map(|q| p - q).product());
            let power = |count: usize, i: usize| match point {
                Some(p) => std::iter::repeat_n(*p, i).product(),
                None => f64::from(u8::from(i + 1 == count)),
            };
            let mut row = polynomial_from_roots(&others);
            row.resize(side, 0.0);
            let taps: Vec<f64> = (0..TAPS).map(|i| power(TAPS, i) / divisor).collect();
            let (a, b) = (power_of_two_scale(&row), power_of_two_scale(&taps));
            input.extend(row.iter().map(|v| v * a));
            filter.extend(taps.iter().map(|v| v * b));
            columns.push((0..outputs).map(|i| power(outputs, i) / (a * b)).collect::<Vec<f64>>());
        }
        let output = (0..outputs).flat_map(|i| columns.iter().map(move |c| c[i])).collect();
        Some(Self { side, input, filter, output })
    }
}

/// Returns the coefficients of the polynomial `(x - r0) (x - r1) ..`, lowest power first.
fn polynomial_from_roots(roots: &[f64]) -> Vec<f64> {
    let mut out = vec![1.0];
    for root in roots {
        let mut next = vec![0.0; out.len() + 1];
        for (i, c) in out.iter().enumerate() {
            next[i + 1] += c;
            next[i] -= c * root;
        }
        out = next;
    }
    out
}

/// Returns the power of two that scales a matrix row to a Euclidean length closest to one.
fn power_of_two_scale(row: &[f64]) -> f64 {
    let length = row.iter().map(|v| v * v).sum::<f64>().sqrt();
    libm::exp2((-libm::log2(length)).round())
}

/// Computes `matrix * square * matrix'` for a matrix of `rows x side` and a square of `side x side`.
pub(crate) fn transform_tile(matrix: &[f64], side: usize, square: &[f64]) -> Vec<f64> {
    let rows = matrix.len() / side;
    let mut half = vec![0.0; rows * side];
    for i in 0..rows {
        for j in 0..side {
            half[i * side + j] = (0..side).map(|r| matrix[i * side + r] * square[r * side + j]).sum();
        }
    }
    let mut out = vec![0.0; rows * rows];
    for i in 0..rows {
        for k in 0..rows {
            out[i * rows + k] = (0..side).map(|j| half[i * side + j] * matrix[k * side + j]).sum();
        }
    }
    out
}

/// Computes the Winograd transform of filters `[O, I, 3, 3]`: one matrix `[I, O]` for each of the `side * side`
/// elements of a tile.
pub fn transform_filters(matrices: &Matrices, outputs: usize, inputs: usize, values: &[f32]) -> Vec<f32> {
    let rows: Vec<&[f64]> = matrices.filter.chunks_exact(TAPS).collect();
    let pairs: Vec<(&[f64], &[f64])> = rows.iter().flat_map(|a| rows.iter().map(|b| (*a, *b))).collect();
    let mut out = vec![0.0; pairs.len() * inputs * outputs];
    out.par_chunks_mut((inputs * outputs).max(1)).zip(pairs).for_each(|(matrix, (down, across))| {
        // Weight of each tap in this matrix.
        let taps: Vec<f64> = down.iter().flat_map(|a| across.iter().map(move |b| a * b)).collect();
        for (o, windows) in values.chunks_exact((inputs * taps.len()).max(1)).enumerate() {
            for (i, window) in windows.chunks_exact(taps.len()).enumerate() {
                let sum: f64 = window.iter().zip(&taps).map(|(value, tap)| f64::from(*value) * tap).sum();
                matrix[i * outputs + o] = sum as f32;
            }
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::{Matrices, transform_tile};

    #[test]
    fn convolves_a_tile() {
        for outputs in [2, 4] {
            let m = Matrices::new(outputs).unwrap();
            let n = m.side;
            assert_eq!((n, m.output.len()), (outputs + 2, outputs * n));
            let tile: Vec<f64> = (0..n * n).map(|i| ((i * 7) % 11) as f64 - 4.0).collect();
            let window: Vec<f64> = (0..9).map(|i| ((i * 5) % 7) as f64 - 3.0).collect();
            let (u, v) = (transform_tile(&m.filter, 3, &window), transform_tile(&m.input, n, &tile));
            let products: Vec<f64> = u.iter().zip(&v).map(|(a, b)| a * b).collect();
            let y = transform_tile(&m.output, n, &products);
            for i in 0..outputs {
                for j in 0..outputs {
                    let taps = (0..9).map(|t| tile[(i + t / 3) * n + j + t % 3] * window[t]);
                    let want: f64 = taps.sum();
                    assert!(
                        (y[i * outputs + j] - want).abs() < 1e-10,
                        "{} is not {want}",
                        y[i * outputs + j]
                    );
                }
            }
        }
        assert_eq!(Matrices::new(3), None);
    }
}
