//! Blocked matrix multiplication on the host, for matmuls, attention and convolutions.
//!
//! `c[i, j] += sum over l of a[i, l] * b[l, j]`. Matrix b is never stored: a callback fills one tile of it at a time,
//! so a convolution gathers its windows (im2col) and a matmul transposes on the way. Tiles keep the working set in
//! cache. The sum over one tile is added to the total as one number, which bounds the rounding error of long sums.

use std::ops::Range;

use rayon::prelude::{IntoParallelIterator, ParallelIterator};

/// Number of rows of the result matrix c that one task computes.
const ROWS: usize = 64;
/// Number of columns of matrix b in a tile.
const COLUMNS: usize = 256;
/// Number of rows of matrix b in a tile.
const DEPTH: usize = 128;

/// Element type of a matmul: f32, or i64 with wrapping arithmetic.
pub(crate) trait Scalar: Copy + Default + Send + Sync {
    /// Adds two elements.
    fn plus(self, other: Self) -> Self;
    /// Multiplies two elements.
    fn times(self, other: Self) -> Self;
}

impl Scalar for f32 {
    fn plus(self, other: Self) -> Self {
        self + other
    }
    fn times(self, other: Self) -> Self {
        self * other
    }
}

impl Scalar for i64 {
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
}

/// Dimensions of one matmul.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatMulSize {
    /// Number of rows of matrix a and of the result c.
    pub(crate) m: usize,
    /// Number of columns of matrix b and of the result c.
    pub(crate) n: usize,
    /// Number of columns of matrix a, which is the number of rows of matrix b.
    pub(crate) k: usize,
}

/// A strided matrix: element `[i, l]` is at `i * row + l * column`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix<'a, T> {
    pub(crate) values: &'a [T],
    pub(crate) row: usize,
    pub(crate) column: usize,
}

/// A block of rows and columns of one result matrix c of the batch.
struct Block<'c, T> {
    batch: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    /// For each row of the block, its elements in the block's columns.
    row_slices: Vec<&'c mut [T]>,
}

/// Computes a batch of matmuls and adds their results to `c`, which holds the result matrices one after another.
///
/// `fill(batch, depth, columns, tile)` writes `b[depth, columns]` row-major to `tile`.
pub(crate) fn blocked_matmul<'a, T: Scalar + 'a>(
    c: &mut [T],
    size: MatMulSize,
    a: impl Fn(usize) -> Matrix<'a, T> + Sync,
    fill: impl Fn(usize, Range<usize>, Range<usize>, &mut [T]) + Sync,
) {
    if c.is_empty() {
        return;
    }
    blocks(c, size).into_par_iter().for_each(|mut block| {
        let a = a(block.batch);
        let width = block.columns.len();
        let mut tile = vec![T::default(); DEPTH.min(size.k) * width];
        let mut sums = vec![T::default(); width];
        for start in (0..size.k).step_by(DEPTH) {
            let depth = start..size.k.min(start + DEPTH);
            let tile = &mut tile[..depth.len() * width];
            fill(block.batch, depth.clone(), block.columns.clone(), tile);
            for (i, row) in block.rows.clone().zip(&mut block.row_slices) {
                sums.fill(T::default());
                multiply_row(&mut sums, &a, i, depth.clone(), tile);
                for (c, s) in row.iter_mut().zip(&sums) {
                    *c = c.plus(*s);
                }
            }
        }
    });
}

/// Splits the result matrices c into blocks, which are independent tasks.
fn blocks<T>(c: &mut [T], size: MatMulSize) -> Vec<Block<'_, T>> {
    let across = size.n.div_ceil(COLUMNS);
    let mut blocks: Vec<Block<'_, T>> = Vec::new();
    for (batch, matrix) in c.chunks_mut(size.m * size.n).enumerate() {
        for (i, row) in matrix.chunks_mut(size.n).enumerate() {
            if i % ROWS == 0 {
                blocks.extend((0..across).map(|j| Block {
                    batch,
                    rows: i..size.m.min(i + ROWS),
                    columns: j * COLUMNS..size.n.min((j + 1) * COLUMNS),
                    row_slices: Vec::new(),
                }));
            }
            let first = blocks.len() - across;
            for (block, slice) in blocks[first..].iter_mut().zip(row.chunks_mut(COLUMNS)) {
                block.row_slices.push(slice);
            }
        }
    }
    blocks
}

/// Computes `sums[j] += sum over l in depth of a[i, l] * tile[l, j]`, four rows of the tile at a time.
fn multiply_row<T: Scalar>(sums: &mut [T], a: &Matrix<'_, T>, i: usize, depth: Range<usize>, tile: &[T]) {
    let n = sums.len();
    let factor = |l: usize| a.values[i * a.row + l * a.column];
    let mut l = depth.start;
    let mut rows = tile.chunks_exact(4 * n);
    for four_rows in &mut rows {
        let (b0, rest) = four_rows.split_at(n);
        let (b1, rest) = rest.split_at(n);
        let (b2, b3) = rest.split_at(n);
        let f = [factor(l), factor(l + 1), factor(l + 2), factor(l + 3)];
        for ((((s, b0), b1), b2), b3) in sums.iter_mut().zip(b0).zip(b1).zip(b2).zip(b3) {
            let left = f[0].times(*b0).plus(f[1].times(*b1));
            let right = f[2].times(*b2).plus(f[3].times(*b3));
            *s = s.plus(left.plus(right));
        }
        l += 4;
    }
    for b in rows.remainder().chunks_exact(n) {
        let f = factor(l);
        for (s, b) in sums.iter_mut().zip(b) {
            *s = s.plus(f.times(*b));
        }
        l += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{MatMulSize, Matrix, blocked_matmul};

    #[test]
    fn blocks_cover_the_result() {
        for (m, n, k) in [(1, 1, 1), (65, 257, 131), (3, 600, 2), (130, 5, 0), (0, 3, 3)] {
            let a: Vec<i64> = (0..m * k).map(|i| (i * 7 % 13) as i64 - 6).collect();
            let b: Vec<i64> = (0..k * n).map(|i| (i * 5 % 11) as i64 - 5).collect();
            let mut c = vec![1i64; m * n * 2];
            blocked_matmul(
                &mut c,
                MatMulSize { m, n, k },
                |_| Matrix { values: &a, row: k, column: 1 },
                |batch, depth, columns, tile| {
                    for (l, row) in depth.zip(tile.chunks_mut(columns.len())) {
                        for (j, t) in columns.clone().zip(row) {
                            *t = b[l * n + j] * (batch as i64 + 1);
                        }
                    }
                },
            );
            for i in 0..m {
                for j in 0..n {
                    let sum: i64 = (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum();
                    assert_eq!(c[i * n + j], 1 + sum);
                    assert_eq!(c[m * n + i * n + j], 1 + 2 * sum);
                }
            }
        }
    }
}
