//! An elementwise function. All operands broadcast to the shape of the result.

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
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check;
use crate::ir::tensor::{DType, TensorDesc, broadcast};

/// An elementwise function. All operands broadcast to the shape of the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Elementwise {
    /// Element function.
    pub element: Element,
}

impl Operation for Elementwise {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let types: Vec<DType> = inputs.iter().map(|t| t.dtype).collect();
        let dtype = self.element.check(&types)?;
        let shapes: Vec<&[Dim]> = inputs.iter().map(|t| t.shape.as_slice()).collect();
        Ok(TensorDesc::new(dtype, broadcast(&shapes)?))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Elementwise
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::ImageSlices, PrecisionClass::Other, Exactness::Computes)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::check_arrays(self, inputs, out)?;
        apply(self.element, inputs, out)
    }
}

/// Minimum number of elements that one parallel task of the CPU reference computes.
const GRAIN: usize = 1 << 14;

/// Applies an elementwise function to operands that broadcast to the shape `out`.
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
            // Only the exponent of a power may be of another kind than the base.
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
                _ => return Err(OpError::new("both values of a select must have the same type")),
            }
        }
        _ => return Err(OpError::new(format!("expected {} operands", element.arity()))),
    };
    Ok(typed(dtype, out, data))
}

/// Creates an array of a declared type: floats are rounded to the type's precision, values of a boolean type become true or false.
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

#[cfg(test)]
mod tests {
    use super::{Elementwise, apply};
    use crate::ir::array::Array;
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::element::{BinaryFn, Element, UnaryFn};
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    fn binary(f: BinaryFn, a: &Array, b: &Array) -> Result<Array, crate::error::OpError> {
        run(&Elementwise { element: Element::Binary(f) }, &[a, b], &Bindings::new())
    }

    #[test]
    fn operands_broadcast() {
        let a = Array::f32(&[2, 1], vec![1.0, 2.0]);
        let b = Array::f32(&[3], vec![10.0, 20.0, 30.0]);
        let y = binary(BinaryFn::Add, &a, &b).unwrap();
        assert_eq!(y.shape, [2, 3]);
        assert_eq!(y.floats().unwrap(), [11.0, 21.0, 31.0, 12.0, 22.0, 32.0]);
        assert!(binary(BinaryFn::Add, &b, &Array::f32(&[2], vec![0.0; 2])).is_err());
        let none = binary(BinaryFn::Mul, &Array::f32(&[0], vec![]), &Array::f32(&[1], vec![2.0])).unwrap();
        assert_eq!(none.shape, [0]);
    }

    #[test]
    fn symbols_broadcast() {
        let n = Dim::symbol("n");
        let a = TensorDesc::new(DType::F32, vec![n.clone(), 1usize.into()]);
        let b = TensorDesc::new(DType::F32, vec![4usize.into()]);
        let add = Elementwise { element: Element::Binary(BinaryFn::Add) };
        assert_eq!(add.infer(&[&a, &b]).unwrap().to_string(), "f32[n, 4]");
    }

    #[test]
    fn types_follow_onnx() {
        let infer = |element: Element, types: &[DType]| {
            let tensors: Vec<TensorDesc> = types.iter().map(|t| TensorDesc::from_sizes(*t, &[2])).collect();
            let refs: Vec<&TensorDesc> = tensors.iter().collect();
            Elementwise { element }.infer(&refs).map(|t| t.dtype).ok()
        };
        use DType::{Bool, F16, F32, I32, I64, U8};
        let b = Element::Binary;
        assert_eq!(infer(b(BinaryFn::Add), &[F32, I64]), None);
        assert_eq!(infer(b(BinaryFn::Add), &[I32, I64]), None);
        assert_eq!(infer(b(BinaryFn::Add), &[Bool, Bool]), None);
        assert_eq!(infer(b(BinaryFn::Add), &[F16, F32]), Some(F32));
        assert_eq!(infer(b(BinaryFn::Pow), &[F32, I64]), Some(F32));
        assert_eq!(infer(b(BinaryFn::Pow), &[I32, F32]), Some(I32));
        assert_eq!(infer(b(BinaryFn::Equal), &[Bool, Bool]), Some(Bool));
        assert_eq!(infer(b(BinaryFn::Less), &[I64, I64]), Some(Bool));
        assert_eq!(infer(b(BinaryFn::ShiftLeft), &[U8, U8]), Some(U8));
        assert_eq!(infer(b(BinaryFn::ShiftLeft), &[F32, F32]), None);
        assert_eq!(infer(b(BinaryFn::And), &[I32, I32]), None);
        assert_eq!(infer(Element::Unary(UnaryFn::Exp), &[I32]), None);
        assert_eq!(infer(Element::Unary(UnaryFn::Abs), &[I32]), Some(I32));
        assert_eq!(infer(Element::Unary(UnaryFn::IsNan), &[F16]), Some(Bool));
        assert_eq!(infer(Element::Unary(UnaryFn::Not), &[F16]), None);
        assert_eq!(infer(Element::Select, &[Bool, I64, I64]), Some(I64));
        assert_eq!(infer(Element::Select, &[I64, I64, I64]), None);
        assert_eq!(infer(Element::Select, &[Bool, I64, F32]), None);
        assert_eq!(infer(Element::Cast(F16), &[Bool]), Some(F16));
        assert_eq!(infer(Element::Select, &[Bool]), None);
        assert_eq!(infer(b(BinaryFn::Add), &[]), None);
    }

    #[test]
    fn values_of_each_kind() {
        let i = |v: &[i64]| Array::int(DType::I32, &[v.len()], v.to_vec());
        let f = |v: &[f32]| Array::f32(&[v.len()], v.to_vec());
        let less = binary(BinaryFn::Less, &f(&[1.0, f32::NAN]), &f(&[2.0, 2.0])).unwrap();
        assert_eq!((less.dtype, less.ints().unwrap()), (DType::Bool, &[1, 0][..]));
        assert_eq!(binary(BinaryFn::Pow, &f(&[3.0]), &i(&[2])).unwrap().floats().unwrap(), [9.0]);
        assert_eq!(binary(BinaryFn::Pow, &i(&[4]), &f(&[0.5])).unwrap().ints().unwrap(), [2]);
        let c = Array::int(DType::Bool, &[2], vec![1, 0]);
        let chosen = apply(Element::Select, &[&c, &i(&[7]), &i(&[8])], &[2]).unwrap();
        assert_eq!(chosen.ints().unwrap(), [7, 8]);
        let cast = apply(Element::Cast(DType::I8), &[&f(&[-1.9, 130.0])], &[2]).unwrap();
        assert_eq!(cast.ints().unwrap(), [-1, -126]);
        let half = Array::float(DType::F16, &[1], vec![1.0]);
        let third = apply(Element::Unary(UnaryFn::Affine { scale: 1.0 / 3.0, shift: 0.0 }), &[&half], &[1]);
        assert_eq!(third.unwrap().floats().unwrap(), [half::f16::from_f32(1.0 / 3.0).to_f32()]);
    }
}
