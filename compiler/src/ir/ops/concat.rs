//! Concatenation of operands along an axis.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, count};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check;
use crate::ir::tensor::TensorDesc;

/// Concatenation of operands along an axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concat {
    /// The axis.
    pub axis: usize,
}

impl Operation for Concat {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [first, rest @ ..] = inputs else {
            return Err(OpError::new("a concatenation needs at least one operand"));
        };
        check::axis(first, self.axis)?;
        if inputs.len() > usize::from(u16::MAX) {
            return Err(OpError::new(format!("{} operands exceed the limit {}", inputs.len(), u16::MAX)));
        }
        let mut result = TensorDesc::new(first.dtype, first.shape.clone());
        for x in rest {
            check::same_type(&[first, x])?;
            if x.rank() != first.rank() {
                return Err(OpError::new(format!("operands {first} and {x} differ in rank")));
            }
            for (axis, (a, b)) in result.shape.iter_mut().zip(&x.shape).enumerate() {
                *a = if axis == self.axis {
                    a.add(b)
                } else {
                    check::equal_sizes(a, b, "sizes of an axis that is not concatenated").map_err(|why| {
                        OpError::new(format!("operands {first} and {x}, at axis {axis}: {why}"))
                    })?
                };
            }
        }
        Ok(result)
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        let layout = if self.axis >= 1 { LayoutClass::ImageSlices } else { LayoutClass::RowMajor };
        Facts::new(layout, PrecisionClass::MovesValues, Exactness::Moves)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        fn go<'a, T: Copy + 'a>(operands: &[(&'a [T], usize)], outer: usize) -> Vec<T> {
            let mut all = Vec::with_capacity(operands.iter().map(|(x, _)| x.len()).sum());
            for i in 0..outer {
                for (x, run) in operands {
                    all.extend_from_slice(&x[i * run..(i + 1) * run]);
                }
            }
            all
        }
        check::check_arrays(self, inputs, out)?;
        let Some(first) = inputs.first() else {
            return Err(OpError::new("a concatenation needs at least one operand"));
        };
        let outer = count(&out[..self.axis]);
        let run = |x: &Array| count(&x.shape[self.axis..]);
        if first.dtype.is_float() {
            let operands: Result<Vec<_>, OpError> =
                inputs.iter().map(|x| Ok((x.floats()?, run(x)))).collect();
            return Ok(Array::float(first.dtype, out, go(&operands?, outer)));
        }
        let operands: Result<Vec<_>, OpError> = inputs.iter().map(|x| Ok((x.ints()?, run(x)))).collect();
        Ok(Array::int(first.dtype, out, go(&operands?, outer)))
    }
}

#[cfg(test)]
mod tests {
    use super::Concat;
    use crate::ir::array::Array;
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn joins_runs() {
        let a = Array::int(DType::I32, &[2, 1], vec![1, 2]);
        let b = Array::int(DType::I32, &[2, 2], vec![3, 4, 5, 6]);
        let empty = Array::int(DType::I32, &[2, 0], vec![]);
        let y = run(&Concat { axis: 1 }, &[&a, &empty, &b], &Bindings::new()).unwrap();
        assert_eq!((y.shape.as_slice(), y.ints().unwrap()), (&[2, 3][..], &[1, 3, 4, 2, 5, 6][..]));
    }

    #[test]
    fn sizes_add_up() {
        let n = Dim::symbol("n");
        let tensor = |dims: Vec<Dim>| TensorDesc::new(DType::F32, dims);
        let a = tensor(vec![n.clone(), n.clone()]);
        let b = tensor(vec![3usize.into(), 4usize.into()]);
        assert_eq!(Concat { axis: 0 }.infer(&[&a, &b]).unwrap().to_string(), "f32[n+3, 4]");
        assert!(Concat { axis: 0 }.infer(&[&b, &tensor(vec![3usize.into(), 5usize.into()])]).is_err());
        assert!(Concat { axis: 0 }.infer(&[&b, &tensor(vec![3usize.into()])]).is_err());
        assert!(Concat { axis: 0 }.infer(&[&b, &TensorDesc::from_sizes(DType::I32, &[3, 4])]).is_err());
        assert!(Concat { axis: 2 }.infer(&[&b]).is_err());
        assert!(Concat { axis: 0 }.infer(&[]).is_err());
    }
}
