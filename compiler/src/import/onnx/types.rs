//! Operands that must be of one element type.
//!
//! The graph's own operators take floats of any types together, because passes choose how each is stored; a model has no
//! such choice, and what mixes types is malformed.

use super::lowering::{Lowered, Refused};
use crate::ir::tensor::DType;

/// Operands of an operator of ai.onnx that share a type.
enum Shared {
    /// Every one.
    All,
    /// Those of each group.
    Groups(&'static [&'static [usize]]),
}

use Shared::{All, Groups};

/// By operator. `BatchNormalization` has types of its own for scales and statistics since opset 14.
const SHARED: &[(&str, Shared)] = &[
    ("Add", All),
    ("And", All),
    ("Attention", Groups(&[&[0, 1]])),
    ("BatchNormalization", Groups(&[&[1, 2], &[3, 4]])),
    ("BitwiseAnd", All),
    ("BitwiseOr", All),
    ("BitwiseXor", All),
    ("Clip", All),
    ("Concat", All),
    ("Conv", All),
    ("ConvTranspose", All),
    ("Div", All),
    ("Einsum", All),
    ("Equal", All),
    ("GRU", Groups(&[&[0, 1, 2, 3, 5]])),
    ("Gemm", All),
    ("Greater", All),
    ("GreaterOrEqual", All),
    ("GroupNormalization", All),
    ("InstanceNormalization", All),
    ("LSTM", Groups(&[&[0, 1, 2, 3, 5, 6, 7]])),
    ("LayerNormalization", All),
    ("Less", All),
    ("LessOrEqual", All),
    ("MatMul", All),
    ("Max", All),
    ("Mean", All),
    ("Min", All),
    ("Mod", All),
    ("Mul", All),
    ("Or", All),
    ("PRelu", All),
    ("Pad", Groups(&[&[0, 2]])),
    ("RNN", Groups(&[&[0, 1, 2, 3, 5]])),
    ("Range", All),
    ("ScatterElements", Groups(&[&[0, 2]])),
    ("ScatterND", Groups(&[&[0, 2]])),
    ("Sub", All),
    ("Sum", All),
    ("Where", Groups(&[&[1, 2]])),
    ("Xor", All),
];

/// Fails where operands that must be of one type are not; `types` are those of the operands, as far as they are given.
pub(super) fn check(operator: &str, types: &[Option<DType>]) -> Lowered<()> {
    match SHARED.iter().find(|(name, _)| *name == operator) {
        None => Ok(()),
        Some((_, All)) => one_type(0..types.len(), types),
        Some((_, Groups(groups))) => groups.iter().try_for_each(|g| one_type(g.iter().copied(), types)),
    }
}

fn one_type(operands: impl Iterator<Item = usize>, types: &[Option<DType>]) -> Lowered<()> {
    let mut first: Option<(usize, DType)> = None;
    for (i, dtype) in operands.filter_map(|i| Some((i, (*types.get(i)?)?))) {
        let (other, wanted) = *first.get_or_insert((i, dtype));
        if wanted != dtype {
            return Err(Refused::new(format!(
                "operand {i} is of type {} and operand {other} of type {}, which must be the same; \
                 a Cast makes them so",
                dtype.name(),
                wanted.name()
            )));
        }
    }
    Ok(())
}
