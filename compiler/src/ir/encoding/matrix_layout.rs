//! Positions of the elements of a float matrix in a constant's bytes.

use crate::error::OpError;
use crate::ir::tensor::DType;

/// Positions of the elements of a float matrix in memory. The columns of a row form blocks of equal size. A weight
/// matrix has one block. A matrix of convolution filters has one block for each tap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MatrixLayout {
    /// Number of rows (output channels).
    pub rows: usize,
    /// Number of blocks of columns (taps of a filter).
    pub blocks: usize,
    /// Number of columns of a block (input channels).
    pub block_columns: usize,
    /// Distance between adjacent rows, between adjacent blocks of a row, and between adjacent columns of a block, in
    /// elements.
    pub strides: [usize; 3],
}

impl MatrixLayout {
    /// Creates the layout of a matrix of `[rows, columns]` with one block, from the strides of both axes.
    pub fn from_strides([rows, columns]: [usize; 2], [row, column]: [usize; 2]) -> Self {
        Self { rows, blocks: 1, block_columns: columns, strides: [row, 0, column] }
    }

    /// Creates the layout of convolution filters `[O, I, taps..]` as a matrix of O rows and taps * I columns, tap by
    /// tap. Returns `None` if one stride cannot express the order of the taps.
    pub fn from_filters(shape: &[usize], strides: &[usize]) -> Option<Self> {
        let ([rows, block_columns, taps @ ..], [row, column, rest @ ..]) = (shape, strides) else {
            return None;
        };
        let mut axes = taps.iter().zip(rest).filter(|(size, _)| **size > 1).rev();
        let (mut blocks, tap) = axes.next().map_or((1, 0), |(size, stride)| (*size, *stride));
        for (size, stride) in axes {
            if *stride != blocks.checked_mul(tap)? {
                return None;
            }
            blocks = blocks.checked_mul(*size)?;
        }
        Some(Self { rows: *rows, blocks, block_columns: *block_columns, strides: [*row, tap, *column] })
    }

    /// Number of columns of all blocks together.
    pub(super) fn columns(&self) -> usize {
        self.blocks.saturating_mul(self.block_columns)
    }

    /// Returns the position of an element, and the number of columns of its block from this column on.
    pub(super) fn run(&self, row: usize, column: usize) -> (usize, usize) {
        let block_columns = self.block_columns.max(1);
        let (block, column) = (column / block_columns, column % block_columns);
        let [row_stride, block_stride, column_stride] = self.strides;
        (row * row_stride + block * block_stride + column * column_stride, block_columns - column)
    }

    /// Checks that `bytes` bytes of a float type hold the matrix.
    pub(super) fn check(&self, dtype: DType, bytes: usize) -> Result<(), OpError> {
        let sizes = [self.rows, self.blocks, self.block_columns];
        let last = |(size, stride): (usize, usize)| size.saturating_sub(1).checked_mul(stride);
        let mut axes = sizes.into_iter().zip(self.strides);
        let end = axes.try_fold(0usize, |end, axis| end.checked_add(last(axis)?));
        let end = end.and_then(|end| end.checked_add(1)?.checked_mul(dtype.bytes()));
        let columns = self.blocks.checked_mul(self.block_columns);
        let float = matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
        match (end, columns) {
            (Some(end), Some(_)) if float && end <= bytes => Ok(()),
            _ => Err(OpError::new(format!(
                "{bytes} bytes do not hold {} x {} floats of {}",
                self.rows,
                self.columns(),
                dtype.name()
            ))),
        }
    }
}
