//! Matrix multiplication over the last two axes of operands of rank two or more; leading axes broadcast.
//!
//! `[.., M, K] x [.., K, N] -> [.., M, N]`. A transposed operand has its last two axes swapped. 8-bit integers of any
//! signedness give sums in i32; zero points are separate operators around the matmul.

use serde::{Deserialize, Serialize};

use super::blocked_matmul::{MatMulSize, Matrix, Scalar, blocked_matmul};
use super::{check, lanes};
use crate::error::OpError;
use crate::ir::array::{Array, Data, count};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::{TensorDesc, broadcast};

/// Matrix multiplication over the last two axes of operands of rank two or more; leading axes broadcast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatMul {
    /// True if the first operand is transposed: `[.., K, M]`.
    pub trans_a: bool,
    /// True if the second operand is transposed: `[.., N, K]`.
    pub trans_b: bool,
}

impl Operation for MatMul {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let a = check::operands(inputs, 2..=2)?;
        let b = inputs[1];
        let dtype = check::matmul_type(a, b)?;
        check::numeric(a, "the first operand")?;
        let ([batch_a @ .., a0, a1], [batch_b @ .., b0, b1]) = (a.shape.as_slice(), b.shape.as_slice())
        else {
            return Err(OpError::new(format!("the operands must have rank two or more, found {a} and {b}")));
        };
        let (m, ka) = if self.trans_a { (a1, a0) } else { (a0, a1) };
        let (kb, n) = if self.trans_b { (b1, b0) } else { (b0, b1) };
        check::equal_sizes(ka, kb, "inner sizes")?;
        let mut shape = broadcast(&[batch_a, batch_b])?;
        shape.extend([m.clone(), n.clone()]);
        Ok(TensorDesc::new(dtype, shape))
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

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let (a, b) = (inputs[0], inputs[1]);
            Ok(match (&a.data, &b.data) {
                (Data::Float(x), Data::Float(y)) => {
                    Data::Float(self.multiply((&a.shape, x), (&b.shape, y), out))
                }
                _ => Data::Int(self.multiply((&a.shape, a.ints()?), (&b.shape, b.ints()?), out)),
            })
        })
    }
}

impl MatMul {
    /// Computes the matmul of two tensors, each given by its shape and its elements.
    fn multiply<T: Scalar>(&self, a: (&[usize], &[T]), b: (&[usize], &[T]), out: &[usize]) -> Vec<T> {
        let (batch_a, [a0, a1]) = split(a.0);
        let (batch_b, [b0, b1]) = split(b.0);
        let (batch, [m, n]) = split(out);
        let k = if self.trans_a { a0 } else { a1 };
        let starts_a = lanes::broadcast_offsets(batch_a, batch);
        let starts_b = lanes::broadcast_offsets(batch_b, batch);
        let (row, column) = if self.trans_a { (1, a1) } else { (a1, 1) };
        let mut c = vec![T::default(); count(out)];
        blocked_matmul(
            &mut c,
            MatMulSize { m, n, k },
            |i| Matrix { values: &a.1[starts_a[i] * a0 * a1..], row, column },
            |i, depth, columns, tile| {
                let b = &b.1[starts_b[i] * b0 * b1..];
                for (l, row) in depth.zip(tile.chunks_exact_mut(columns.len())) {
                    if self.trans_b {
                        for (j, t) in columns.clone().zip(row) {
                            *t = b[j * b1 + l];
                        }
                    } else {
                        row.copy_from_slice(&b[l * b1..][columns.clone()]);
                    }
                }
            },
        );
        c
    }
}

/// Splits a shape into the sizes of its leading axes and the sizes of its last two axes.
fn split(shape: &[usize]) -> (&[usize], [usize; 2]) {
    match shape {
        [batch @ .., rows, columns] => (batch, [*rows, *columns]),
        _ => (&[], [1, 1]),
    }
}

#[cfg(test)]
mod tests {
    use super::MatMul;
    use crate::ir::array::{Array, Data};
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::Operation;
    use crate::ir::tensor::{DType, TensorDesc};

    const PLAIN: MatMul = MatMul { trans_a: false, trans_b: false };

    #[test]
    fn shapes() {
        let a =
            TensorDesc::new(DType::F16, vec![Dim::symbol("n"), Dim::known(1), Dim::known(3), Dim::known(4)]);
        let b = TensorDesc::from_sizes(DType::F32, &[5, 4, 6]);
        assert_eq!(PLAIN.infer(&[&a, &b]).unwrap().to_string(), "f16[n, 5, 3, 6]");
        let transposed = MatMul { trans_a: true, trans_b: false };
        assert!(transposed.infer(&[&a, &b]).is_err());
        let int = TensorDesc::from_sizes(DType::I64, &[4, 6]);
        assert_eq!(
            PLAIN.infer(&[&a, &int]).unwrap_err().to_string(),
            "operand types f16 and i64 cannot be combined"
        );
        let bytes = |dtype, shape: &[usize]| TensorDesc::from_sizes(dtype, shape);
        let result = PLAIN.infer(&[&bytes(DType::U8, &[2, 4]), &bytes(DType::I8, &[4, 6])]).unwrap();
        assert_eq!(result.to_string(), "i32[2, 6]");
        assert!(PLAIN.infer(&[&bytes(DType::U8, &[2, 4]), &bytes(DType::I32, &[4, 6])]).is_err());
        assert!(PLAIN.infer(&[&a]).is_err());
        assert!(PLAIN.infer(&[&a, &TensorDesc::from_sizes(DType::F32, &[4])]).is_err());
    }

    #[test]
    fn bytes_are_summed_in_32_bits() {
        let ints = |dtype, shape: &[usize], values: &[i64]| Array::int(dtype, shape, values.to_vec());
        let a = ints(DType::U8, &[1, 3], &[255, 255, 1]);
        let b = ints(DType::I8, &[3, 2], &[-128, 127, -128, 127, 5, -6]);
        let c = PLAIN.eval(&[&a, &b], &[1, 2], &Bindings::new()).unwrap();
        assert_eq!((c.dtype, c.ints().unwrap()), (DType::I32, [-65275, 64764].as_slice()));
    }

    #[test]
    fn transposes_and_broadcasts() {
        let a = Array::f32(&[2, 1, 2, 3], (0..12u8).map(f32::from).collect());
        let b = Array::f32(&[2, 3, 2], (0..12u8).map(f32::from).collect());
        let c = PLAIN.eval(&[&a, &b], &[2, 2, 2, 2], &Bindings::new()).unwrap();
        let expected = [10, 13, 28, 40, 28, 31, 100, 112, 46, 67, 64, 94, 172, 193, 244, 274];
        assert_eq!(c.floats().unwrap(), expected.map(|v: u16| f32::from(v)));
        // a^T and b^T hold the same elements with the last two axes swapped.
        let swap = |x: &Array, shape: &[usize]| {
            let [.., r, c] = x.shape.as_slice() else { panic!("matrix") };
            let v = x.floats().unwrap();
            let at = |i: usize| (i / (r * c)) * r * c + (i % r) * c + i % (r * c) / r;
            Array::f32(shape, (0..v.len()).map(|i| v[at(i)]).collect())
        };
        let both = MatMul { trans_a: true, trans_b: true };
        let d = both.eval(&[&swap(&a, &[2, 1, 3, 2]), &swap(&b, &[2, 2, 3])], &c.shape, &Bindings::new());
        assert_eq!(d.unwrap(), c);
    }

    #[test]
    fn integers_wrap() {
        let a = Array::int(DType::I16, &[1, 2], vec![30000, 30000]);
        let b = Array::int(DType::I16, &[2, 1], vec![1, 1]);
        let c = PLAIN.eval(&[&a, &b], &[1, 1], &Bindings::new()).unwrap();
        assert_eq!(c.data, Data::Int(vec![-5536]));
    }

    #[test]
    fn empty_extents() {
        let c = PLAIN
            .eval(&[&Array::f32(&[2, 0], vec![]), &Array::f32(&[0, 3], vec![])], &[2, 3], &Bindings::new())
            .unwrap();
        assert_eq!(c, Array::zeros(DType::F32, &[2, 3]));
        let none = PLAIN.eval(
            &[&Array::f32(&[0, 2, 2], vec![]), &Array::f32(&[2, 2], vec![1.0; 4])],
            &[0, 2, 2],
            &Bindings::new(),
        );
        assert!(none.unwrap().is_empty());
    }
}
