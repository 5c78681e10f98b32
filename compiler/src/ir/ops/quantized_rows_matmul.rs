//! Matmul of quantized rows and a float matrix, for activations that are quantized at run time.
//!
//! The first operand has rows as [`QuantizeRows`] computes them: u32 `[.., M, words]`, with K / 4 words of quantized
//! values, the row's scale, and padding. The second operand is a matrix `[K, N]`, or `[N, K]` if transposed. The result
//! is `[.., M, N]`. Further operands are matrices whose columns follow the columns of the matrices before them, so that
//! one matmul multiplies by several matrices without a copy of them. If each matrix is quantized with one scale per
//! column, kernels multiply and add the quantized values in integers and multiply each sum by both scales.
//!
//! [`QuantizeRows`]: crate::ir::op::QuantizeRows

use serde::{Deserialize, Serialize};

use super::check;
use super::concat::Concat;
use super::matmul::MatMul;
use super::quantize_rows::dequantize_rows_of;
use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::{DType, TensorDesc};

/// Matmul of quantized rows and one or more float matrices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuantizedRowsMatMul {
    /// True if the matrices are transposed: `[N, K]`.
    pub trans_b: bool,
}

impl QuantizedRowsMatMul {
    /// Returns the matmul of the dequantized rows.
    fn matmul(&self) -> MatMul {
        MatMul { trans_a: false, trans_b: self.trans_b }
    }

    /// Returns the number of elements of a row (K).
    fn depth<T: Clone>(&self, matrix: &[T]) -> Option<T> {
        matrix.get(usize::from(self.trans_b)).cloned()
    }

    /// Infers the type of the matmul by one matrix.
    fn infer_one(&self, rows: &TensorDesc, matrix: &TensorDesc) -> Result<TensorDesc, OpError> {
        check::float(matrix, "the matrix")?;
        let depth = self.depth(&matrix.shape).and_then(|depth| depth.as_known());
        let depth = depth.filter(|depth| matrix.rank() == 2 && depth % 4 == 0).ok_or_else(|| {
            OpError::new(format!("{matrix} must be a matrix whose rows K are a known multiple of 4"))
        })?;
        let words = rows.shape.last().and_then(Dim::as_known).unwrap_or(0);
        if rows.dtype != DType::U32 || rows.rank() < 2 || words <= depth / 4 {
            return Err(OpError::new(format!("{rows} must be quantized rows of {depth} elements")));
        }
        let mut shape = rows.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = depth.into();
        }
        self.matmul().infer(&[&TensorDesc::new(matrix.dtype, shape), matrix])
    }

    /// Evaluates the matmul by one matrix. `out` is the shape of the result of all matrices.
    fn eval_one(
        &self,
        rows: &Array,
        matrix: &Array,
        out: &[usize],
        symbols: &Bindings,
    ) -> Result<Array, OpError> {
        let depth = self.depth(&matrix.shape).unwrap_or(0);
        let (mut shape, mut out) = (rows.shape.clone(), out.to_vec());
        if let (Some(last), Some(columns)) = (shape.last_mut(), out.last_mut()) {
            *last = depth;
            *columns = matrix.shape.get(usize::from(!self.trans_b)).copied().unwrap_or(0);
        }
        let values = dequantize_rows_of(rows, depth)?;
        let rows = Array { dtype: matrix.dtype, shape, data: Data::Float(values) };
        self.matmul().eval(&[&rows, matrix], &out, symbols)
    }
}

impl Operation for QuantizedRowsMatMul {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        check::operands(inputs, 2..=usize::from(u16::MAX))?;
        let [rows, matrices @ ..] = inputs else { return Err(OpError::new("expected quantized rows")) };
        let results: Vec<TensorDesc> =
            matrices.iter().map(|matrix| self.infer_one(rows, matrix)).collect::<Result<_, _>>()?;
        let results: Vec<&TensorDesc> = results.iter().collect();
        Concat { axis: rows.rank().saturating_sub(1) }.infer(&results)
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Anchor
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::MatMul, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        check::check_arrays(self, inputs, out)?;
        let [rows, matrices @ ..] = inputs else { return Err(OpError::new("expected quantized rows")) };
        let results: Vec<Array> = matrices
            .iter()
            .map(|matrix| self.eval_one(rows, matrix, out, symbols))
            .collect::<Result<_, _>>()?;
        let results: Vec<&Array> = results.iter().collect();
        Concat { axis: out.len().saturating_sub(1) }.eval(&results, out, symbols)
    }
}

#[cfg(test)]
mod tests {
    use super::QuantizedRowsMatMul;
    use crate::ir::array::Array;
    use crate::ir::dim::Bindings;
    use crate::ir::op::{Operation, QuantizeRows};
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    const OP: QuantizedRowsMatMul = QuantizedRowsMatMul { trans_b: true };

    #[test]
    fn rows_are_dequantized() {
        let x = Array::f32(&[2, 4], vec![127.0, -2.0, 0.4, 0.0, 0.0, 254.0, 3.0, 0.0]);
        let matrix = Array::f32(&[3, 4], vec![1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
        for aligned in [false, true] {
            let rows = run(&QuantizeRows { aligned }, &[&x], &Bindings::new()).unwrap();
            let y = run(&OP, &[&rows, &matrix], &Bindings::new()).unwrap();
            assert_eq!((y.dtype, y.shape.as_slice()), (DType::F32, [2, 3].as_slice()));
            // 0.4 is rounded to 0, and 3 with a scale of 2 to 4.
            assert_eq!(y.floats().unwrap(), [127.0, -2.0, 125.0, 0.0, 254.0, 258.0]);
        }
    }

    #[test]
    fn columns_of_several_matrices_follow_each_other() {
        let x = Array::f32(&[2, 4], vec![127.0, -2.0, 0.0, 0.0, 0.0, 127.0, 3.0, 0.0]);
        let first = Array::f32(&[1, 4], vec![1.0; 4]);
        let second = Array::f32(&[2, 4], vec![1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
        let rows = run(&QuantizeRows { aligned: true }, &[&x], &Bindings::new()).unwrap();
        let y = run(&OP, &[&rows, &first, &second], &Bindings::new()).unwrap();
        assert_eq!(y.shape, [2, 3]);
        assert_eq!(y.floats().unwrap(), [125.0, 127.0, -2.0, 130.0, 0.0, 127.0]);
    }

    #[test]
    fn refusals() {
        let tensor = |dtype, shape: &[usize]| TensorDesc::from_sizes(dtype, shape);
        let rows = tensor(DType::U32, &[2, 5, 4]);
        let result = OP.infer(&[&rows, &tensor(DType::F16, &[6, 8])]).unwrap();
        assert_eq!(result.to_string(), "f16[2, 5, 6]");
        for (rows, matrix) in [
            (tensor(DType::U32, &[5, 2]), tensor(DType::F16, &[6, 8])),
            (tensor(DType::I32, &[5, 3]), tensor(DType::F16, &[6, 8])),
            (tensor(DType::U32, &[5, 3]), tensor(DType::I8, &[6, 8])),
            (tensor(DType::U32, &[5, 3]), tensor(DType::F16, &[6, 7])),
            (tensor(DType::U32, &[5, 3]), tensor(DType::F16, &[2, 6, 8])),
            (tensor(DType::U32, &[3]), tensor(DType::F16, &[6, 8])),
        ] {
            assert!(OP.infer(&[&rows, &matrix]).is_err(), "{rows}, {matrix}");
        }
        assert!(OP.infer(&[&rows]).is_err());
        // The second matrix has rows of another length.
        let [first, second] = [tensor(DType::F16, &[6, 8]), tensor(DType::F16, &[6, 12])];
        assert!(OP.infer(&[&rows, &first, &second]).is_ok());
        assert!(OP.infer(&[&rows, &first, &tensor(DType::F16, &[6, 16])]).is_err());
    }
}
