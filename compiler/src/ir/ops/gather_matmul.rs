//! Matrix products of which each has a matrix of its own, picked by a number from a stack of them.
//!
//! Operands: `x [.., M, K]`, matrices `[E, K, N]` (or `[E, N, K]`, transposed), and numbers of matrices, whose shape broadcasts
//! with the leading axes of `x`. The result is `[.., M, N]`. Negative numbers count from the end; the device takes the nearest
//! matrix for a number outside, which the reference refuses.
//!
//! The operator exists because a product with few rows takes as long as reading its matrix: a mixture of experts that
//! computes the experts that a token uses reads those alone, which no product after a gather does.

use serde::{Deserialize, Serialize};

use super::check;
use super::gather::Gather;
use super::matmul::MatMul;
use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::{TensorDesc, broadcast};

/// Matrix products of which each has a matrix of its own, picked by a number from a stack of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatherMatMul {
    /// Which operands are transposed.
    pub product: MatMul,
}

/// The place of the numbers among the operands.
pub const PICKS: usize = 2;

impl Operation for GatherMatMul {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x, matrices, picks] = check::exactly(inputs)?;
        check::float(x, "the first operand")?;
        check::indices(picks)?;
        let [_, rows, columns] = matrices.shape.as_slice() else {
            return Err(OpError::new(format!("a stack of matrices is needed, not {matrices}")));
        };
        let one = TensorDesc::new(matrices.dtype, vec![rows.clone(), columns.clone()]);
        let product = self.product.infer(&[x, &one])?;
        let (batch, sizes) = product.shape.split_at(product.rank().saturating_sub(2));
        let mut shape = broadcast(&[batch, &picks.shape])?;
        shape.extend_from_slice(sizes);
        Ok(TensorDesc::new(product.dtype, shape))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Anchor
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        check::concrete(self, inputs, out)?;
        let [x, matrices, picks] = inputs else { return Err(OpError::new("three operands are needed")) };
        let shape: Vec<usize> = picks.shape.iter().chain(matrices.shape.iter().skip(1)).copied().collect();
        let picked = Gather { axis: 0 }.eval(&[matrices, picks], &shape, symbols)?;
        self.product.eval(&[x, &picked], out, symbols)
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

    const OP: GatherMatMul = GatherMatMul { product: MatMul { trans_a: false, trans_b: true } };

    #[test]
    fn each_product_has_its_matrix() {
        // Two tokens of one row each, two picks a token, matrices [3, 1, 2].
        let x = Array::f32(&[2, 1, 1, 2], vec![1.0, 2.0, 3.0, 4.0]);
        let matrices = Array::f32(&[3, 1, 2], vec![1.0, 0.0, 0.0, 1.0, 10.0, 10.0]);
        let picks = Array::int(DType::I64, &[2, 2], vec![0, 2, 1, -1]);
        let y = run(&OP, &[&x, &matrices, &picks], &Bindings::new()).unwrap();
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
        let of = |shape: &[usize]| TensorDesc::of(DType::F16, shape);
        let (x, matrices) = (of(&[4, 1, 8]), of(&[3, 6, 8]));
        let picks = |shape: &[usize]| TensorDesc::of(DType::I32, shape);
        assert_eq!(OP.infer(&[&x, &matrices, &picks(&[4])]).unwrap().to_string(), "f16[4, 1, 6]");
        assert_eq!(OP.infer(&[&x, &matrices, &picks(&[5, 1])]).unwrap().to_string(), "f16[5, 4, 1, 6]");
        assert!(OP.infer(&[&x, &matrices, &picks(&[3])]).is_err());
        assert!(OP.infer(&[&x, &of(&[6, 8]), &picks(&[4])]).is_err());
        assert!(OP.infer(&[&x, &of(&[3, 6, 7]), &picks(&[4])]).is_err());
        assert!(OP.infer(&[&x, &matrices, &of(&[4])]).is_err());
    }
}
