//! An element function over operands that broadcast to the result.

use std::borrow::Cow;

use rayon::prelude::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};
use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, Data, round_floats};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::element::{
    BinaryFn, Element, eval_binary, eval_binary_int, eval_pow_int_float, eval_unary, eval_unary_int,
};
use crate::ir::movement;
use crate::ir::op::{Fusion, Operation};
use crate::ir::ops::check;
use crate::ir::tensor::{DType, TensorDesc, broadcast};

/// An element function over operands that broadcast to the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Elementwise {
    /// What is applied.
    pub element: Element,
}

impl Operation for Elementwise {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let types: Vec<DType> = inputs.iter().map(|t| t.dtype).collect();
        let dtype = self.element.check(&types)?;
        let shapes: Vec<&[Dim]> = inputs.iter().map(|t| t.shape.as_slice()).collect();
        Ok(TensorDesc::new(dtype, broadcast(&shapes)?))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Elementwise
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::concrete(self, inputs, out)?;
        apply(self.element, inputs, out)
    }
}

/// Elements below which one thread is faster than several.
const GRAIN: usize = 1 << 14;

/// Applies an element function to operands that broadcast to the shape `out`.
pub fn apply(element: Element, inputs: &[&Array], out: &[usize]) -> Result<Array, OpError> {
    let types: Vec<DType> = inputs.iter().map(|x| x.dtype).collect();
    let dtype = element.check(&types)?;
    let operands: Result<Vec<Cow<'_, Array>>, OpError> = inputs.iter().map(|x| expanded(x, out)).collect();
    let operands = operands?;
    let data = match (element, operands.as_slice()) {
        (Element::Cast(to), [x]) => return Ok(x.cast(to)),
        (Element::Unary(f), [x]) => match &x.data {
            Data::Float(x) => Data::Float(map(x, |x| eval_unary(f, x))),
            Data::Int(v) => Data::Int(map(v, |v| eval_unary_int(f, x.dtype, v))),
        },
        (Element::Binary(f), [a, b]) => match (&a.data, &b.data) {
            (Data::Float(a), Data::Float(b)) => Data::Float(zip(a, b, |a, b| eval_binary(f, a, b))),
            (Data::Int(x), Data::Int(y)) => Data::Int(zip(x, y, |x, y| eval_binary_int(f, a.dtype, x, y))),
            // Only the exponent may be of another kind than the base.
            (Data::Float(a), Data::Int(b)) => {
                Data::Float(zip(a, b, |a, b| eval_binary(BinaryFn::Pow, a, b as f32)))
            }
            (Data::Int(x), Data::Float(y)) => Data::Int(zip(x, y, |x, y| eval_pow_int_float(a.dtype, x, y))),
        },
        (Element::Select, [c, a, b]) => {
            let c = c.ints()?;
            match (&a.data, &b.data) {
                (Data::Float(a), Data::Float(b)) => Data::Float(choose(c, a, b)),
                (Data::Int(a), Data::Int(b)) => Data::Int(choose(c, a, b)),
                _ => return Err(OpError::new("both choices must have one type")),
            }
        }
        _ => return Err(OpError::new(format!("{} operands are needed", element.arity()))),
    };
    Ok(typed(dtype, out, data))
}

/// Elements under a declared type: rounded to its precision, or a test's 0 and 1 as bool.
fn typed(dtype: DType, shape: &[usize], data: Data) -> Array {
    let data = match data {
        Data::Float(mut v) if dtype.is_float() => {
            round_floats(dtype, &mut v);
            Data::Float(v)
        }
        Data::Float(v) => Data::Int(map(&v, |x| i64::from(x != 0.0))),
        Data::Int(v) => Data::Int(v),
    };
    Array { dtype, shape: shape.to_vec(), data }
}

fn expanded<'a>(x: &'a Array, out: &[usize]) -> Result<Cow<'a, Array>, OpError> {
    if x.shape == out {
        return Ok(Cow::Borrowed(x));
    }
    movement::expand(x, out).map(Cow::Owned)
}

fn map<A: Copy + Sync, R: Send>(a: &[A], f: impl Fn(A) -> R + Sync + Send) -> Vec<R> {
    a.par_iter().with_min_len(GRAIN).map(|a| f(*a)).collect()
}

fn zip<A: Copy + Sync, B: Copy + Sync, R: Send>(
    a: &[A],
    b: &[B],
    f: impl Fn(A, B) -> R + Sync + Send,
) -> Vec<R> {
    a.par_iter().with_min_len(GRAIN).zip(b).map(|(a, b)| f(*a, *b)).collect()
}

fn choose<T: Copy>(condition: &[i64], a: &[T], b: &[T]) -> Vec<T> {
    condition.iter().zip(a.iter().zip(b)).map(|(c, (a, b))| if *c != 0 { *a } else { *b }).collect()
}
