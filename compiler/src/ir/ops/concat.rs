//! Operands joined along an axis.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, count};
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::ops::check;
use crate::ir::tensor::TensorDesc;

/// Operands joined along an axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concat {
    /// The axis.
    pub axis: usize,
}

impl Operation for Concat {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [first, rest @ ..] = inputs else {
            return Err(OpError::new("nothing to concatenate"));
        };
        check::axis(first, self.axis)?;
        if inputs.len() > usize::from(u16::MAX) {
            return Err(OpError::new(format!("{} operands are too many", inputs.len())));
        }
        let mut result = TensorDesc::new(first.dtype, first.shape.clone());
        for x in rest {
            check::same_type(&[first, x])?;
            if x.rank() != first.rank() {
                return Err(OpError::new(format!("{first} and {x} differ in rank")));
            }
            for (axis, (a, b)) in result.shape.iter_mut().zip(&x.shape).enumerate() {
                *a = if axis == self.axis {
                    a.add(b)
                } else {
                    check::equal(a, b, "sizes beside the axis")
                        .map_err(|why| OpError::new(format!("{first} and {x} at axis {axis}: {why}")))?
                };
            }
        }
        Ok(result)
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        fn go<'a, T: Copy + 'a>(parts: &[(&'a [T], usize)], outer: usize) -> Vec<T> {
            let mut all = Vec::with_capacity(parts.iter().map(|(x, _)| x.len()).sum());
            for i in 0..outer {
                for (x, run) in parts {
                    all.extend_from_slice(&x[i * run..(i + 1) * run]);
                }
            }
            all
        }
        check::concrete(self, inputs, out)?;
        let Some(first) = inputs.first() else { return Err(OpError::new("nothing to concatenate")) };
        let outer = count(&out[..self.axis]);
        let run = |x: &Array| count(&x.shape[self.axis..]);
        if first.dtype.is_float() {
            let parts: Result<Vec<_>, OpError> = inputs.iter().map(|x| Ok((x.floats()?, run(x)))).collect();
            return Ok(Array::float(first.dtype, out, go(&parts?, outer)));
        }
        let parts: Result<Vec<_>, OpError> = inputs.iter().map(|x| Ok((x.ints()?, run(x)))).collect();
        Ok(Array::int(first.dtype, out, go(&parts?, outer)))
    }
}
