//! Matrix multiplications whose matrices are selected from a stack by index, as in a mixture of experts.
//!
//! Operands: `x [.., M, K]`, a stack of matrices `[E, K, N]` (or `[E, N, K]` if transposed), and expert indices, whose
//! shape broadcasts with the leading axes of `x`. The result is `[.., M, N]`. Negative indices count from the end. For
//! an index out of range the device uses the nearest valid one; the CPU reference returns an error.
//!
//! The operator exists because the time of a small-M matmul is the time to read its matrix. This operator reads only
//! the matrices of the experts that a token uses. A matmul after a gather would read and write copies of these matrices
//! first.

use serde::{Deserialize, Serialize};

use super::check;
use super::gather::Gather;
use super::matmul::MatMul;
use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::{TensorDesc, broadcast};

/// Matrix multiplications whose matrices are selected from a stack by index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatherMatMul {
    /// Transposed operands.
    pub matmul: MatMul,
}

/// Index of the operand that holds the expert indices.
pub const EXPERT_INDICES: usize = 2;

impl Operation for GatherMatMul {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x, matrices, indices] = check::exact_operands(inputs)?;
        check::float(x, "the first operand")?;
        check::indices(indices)?;
        let [_, rows, columns] = matrices.shape.as_slice() else {
            return Err(OpError::new(format!(
                "the second operand must be a stack of matrices, not {matrices}"
            )));
        };
        let matrix = TensorDesc::new(matrices.dtype, vec![rows.clone(), columns.clone()]);
        let result = self.matmul.infer(&[x, &matrix])?;
        let (batch, sizes) = result.shape.split_at(result.rank().saturating_sub(2));
        let mut shape = broadcast(&[batch, &indices.shape])?;
        shape.extend_from_slice(sizes);
        Ok(TensorDesc::new(result.dtype, shape))
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
        let [x, matrices, indices] = inputs else { return Err(OpError::new("expected three operands")) };
        let shape: Vec<usize> = indices.shape.iter().chain(matrices.shape.iter().skip(1)).copied().collect();
        let selected = Gather { axis: 0 }.eval(&[matrices, indices], &shape, symbols)?;
        self.matmul.eval(&[x, &selected], out, symbols)
    }
}

#[cfg(test)]
mod tests {
    use super::GatherMatMul;
    use crate::ir::array::Array;
    use crate::ir::dim::Bindings;
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::ops::matmul::MatMul;
    use crate::ir::tensor::{DType, TensorDesc};

    const OP: GatherMatMul = GatherMatMul { matmul: MatMul { trans_a: false, trans_b: true } };

    #[test]
    fn each_matmul_has_its_own_matrix() {
        // Two tokens of one row each, two experts per token, matrices [3, 1, 2].
        let x = Array::f32(&[2, 1, 1, 2], vec![1.0, 2.0, 3.0, 4.0]);
        let matrices = Array::f32(&[3, 1, 2], vec![1.0, 0.0, 0.0, 1.0, 10.0, 10.0]);
        let indices = Array::int(DType::I64, &[2, 2], vec![0, 2, 1, -1]);
        let y = run(&OP, &[&x, &matrices, &indices], &Bindings::new()).unwrap();
        assert_eq!(
            (y.shape.as_slice(), y.floats().unwrap()),
            (&[2, 2, 1, 1][..], &[1.0, 30.0, 4.0, 70.0][..])
        );
        let none = run(&OP, &[&x, &matrices, &Array::int(DType::I64, &[2, 0], vec![])], &Bindings::new());
        assert_eq!(none.unwrap().shape, [2, 0, 1, 1]);
        assert!(
            run(&OP, &[&x, &matrices, &Array::int(DType::I64, &[1], vec![3])], &Bindings::new()).is_err()
        );
    }

    #[test]
    fn refusals() {
        let tensor = |shape: &[usize]| TensorDesc::from_sizes(DType::F16, shape);
        let (x, matrices) = (tensor(&[4, 1, 8]), tensor(&[3, 6, 8]));
        let indices = |shape: &[usize]| TensorDesc::from_sizes(DType::I32, shape);
        assert_eq!(OP.infer(&[&x, &matrices, &indices(&[4])]).unwrap().to_string(), "f16[4, 1, 6]");
        assert_eq!(OP.infer(&[&x, &matrices, &indices(&[5, 1])]).unwrap().to_string(), "f16[5, 4, 1, 6]");
        assert!(OP.infer(&[&x, &matrices, &indices(&[3])]).is_err());
        assert!(OP.infer(&[&x, &tensor(&[6, 8]), &indices(&[4])]).is_err());
        assert!(OP.infer(&[&x, &tensor(&[3, 6, 7]), &indices(&[4])]).is_err());
        assert!(OP.infer(&[&x, &matrices, &tensor(&[4])]).is_err());
    }
}
