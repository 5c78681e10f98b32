//! Element types of operands, as ONNX constrains them.
//!
//! The graph's own operators take floats of any types together, because passes choose how each is stored, and integers of
//! any width, because a device has one. A model has no such choice: what is of another type than its operator takes, or
//! mixes types, is malformed. Types that came with a newer operator set are taken in older ones, too.

use super::lowering::{Lowered, Refused};
use crate::ir::tensor::DType;
use crate::ir::tensor::DType::{Bf16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};

/// What an operand may be of.
type Types = &'static [DType];

const ANY: Types = &[F32, F16, Bf16, F64, I8, I16, I32, I64, U8, U16, U32, U64, Bool];
const NUMBER: Types = &[F32, F16, Bf16, F64, I8, I16, I32, I64, U8, U16, U32, U64];
const SIGNED: Types = &[F32, F16, Bf16, F64, I8, I16, I32, I64];
const RANGE: Types = &[F32, F16, Bf16, F64, I16, I32, I64];
const WIDE: Types = &[F32, F16, Bf16, F64, I32, I64, U32, U64];
const BASE: Types = &[F32, F16, Bf16, F64, I32, I64];
const FLOAT: Types = &[F32, F16, Bf16, F64];
const POOLED: Types = &[F32, F16, Bf16, F64, I8, U8];
const INTEGER: Types = &[I8, I16, I32, I64, U8, U16, U32, U64];
const INDEX: Types = &[I32, I64];
const BYTE: Types = &[I8, U8];
const QUANTIZED: Types = &[I8, I16, I32, U8, U16];
const QUANTIZABLE: Types = &[F32, F16, Bf16, I32];
const ONLY_BOOL: Types = &[Bool];
const ONLY_F32: Types = &[F32];
const ONLY_I32: Types = &[I32];
const ONLY_I64: Types = &[I64];

/// An operand: what it may be of, and the letter of the type that it shares with others.
#[derive(Clone, Copy)]
struct Operand {
    types: Types,
    shared: Option<char>,
}

const fn own(types: Types) -> Operand {
    Operand { types, shared: None }
}

const fn t(types: Types) -> Operand {
    Operand { types, shared: Some('T') }
}

const fn u(types: Types) -> Operand {
    Operand { types, shared: Some('U') }
}

const fn v(types: Types) -> Operand {
    Operand { types, shared: Some('V') }
}

/// Operands, and the operators of ai.onnx that take them. Further operands are as the last one.
const SIGNATURES: &[(&[Operand], &str)] = &[
    (
        &[own(FLOAT)],
        "Acos Acosh Asin Asinh Atan Atanh AveragePool Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu \
         GlobalAveragePool GlobalLpPool GlobalMaxPool HardSigmoid HardSwish Hardmax IsInf IsNaN LRN \
         LeakyRelu Log LogSoftmax LpNormalization LpPool MeanVarianceNormalization Mish Reciprocal Round \
         Selu Sigmoid Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu",
    ),
    (
        &[own(ANY), own(ONLY_I64)],
        "Expand GatherND ReduceMax ReduceMin Reshape ReverseSequence Split Squeeze Tile Trilu Unsqueeze",
    ),
    (&[own(ANY)], "Cast DepthToSpace EyeLike Flatten Identity NonZero Shape Size SpaceToDepth Transpose"),
    (&[t(NUMBER), t(NUMBER)], "Add Div Greater GreaterOrEqual Less LessOrEqual Mod Mul Sub"),
    (&[own(WIDE), own(ONLY_I64)], "ReduceL1 ReduceL2 ReduceMean ReduceProd ReduceSum ReduceSumSquare"),
    (&[own(NUMBER)], "Abs ArgMax ArgMin Shrink Sign"),
    (
        &[t(FLOAT), t(FLOAT), t(FLOAT)],
        "Conv ConvTranspose GroupNormalization InstanceNormalization LayerNormalization",
    ),
    (&[t(INTEGER), t(INTEGER)], "BitShift BitwiseAnd BitwiseOr BitwiseXor"),
    (&[t(ONLY_BOOL), t(ONLY_BOOL)], "And Or Xor"),
    (&[own(INDEX)], "BlackmanWindow HammingWindow HannWindow"),
    (&[own(ANY), own(INDEX)], "CenterCropPad Gather GatherElements"),
    (&[t(NUMBER)], "Einsum Max Min"),
    (&[t(BYTE), u(BYTE), t(BYTE), u(BYTE)], "ConvInteger MatMulInteger"),
    (&[t(FLOAT), t(FLOAT), t(FLOAT), t(FLOAT), own(ONLY_I32), t(FLOAT)], "GRU RNN"),
    (&[t(WIDE), t(WIDE)], "MatMul PRelu"),
    (&[t(FLOAT)], "Mean Sum"),
    (&[own(SIGNED)], "Neg Relu"),
    (&[t(FLOAT), own(INDEX), t(FLOAT)], "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss"),
    (&[own(FLOAT), own(ONLY_I64)], "ReduceLogSum ReduceLogSumExp"),
    (&[t(ANY), own(INDEX), t(ANY)], "Scatter ScatterElements"),
    (&[t(FLOAT), t(FLOAT), u(FLOAT), own(ANY), t(FLOAT), u(FLOAT), own(ONLY_I64)], "Attention"),
    (&[own(FLOAT), t(FLOAT), t(FLOAT), u(FLOAT), u(FLOAT)], "BatchNormalization"),
    (&[own(INTEGER)], "BitwiseNot"),
    (&[own(ANY), own(ANY)], "CastLike"),
    (&[t(FLOAT), t(FLOAT), t(FLOAT), t(FLOAT)], "CausalConvWithState"),
    (&[t(NUMBER), t(NUMBER), t(NUMBER)], "Clip"),
    (&[own(ANY), own(ONLY_BOOL)], "Compress"),
    (&[t(ANY)], "Concat"),
    (&[own(ONLY_I64)], "ConstantOfShape"),
    (&[own(WIDE), own(INDEX)], "CumSum"),
    (&[t(QUANTIZED), own(FLOAT), t(QUANTIZED)], "DequantizeLinear"),
    (&[own(FLOAT), own(FLOAT), own(ONLY_BOOL)], "Dropout"),
    (&[own(ONLY_F32)], "DynamicQuantizeLinear"),
    (&[t(ANY), t(ANY)], "Equal"),
    (&[t(WIDE), t(WIDE), t(WIDE)], "Gemm"),
    (&[own(ANY), own(FLOAT)], "GridSample"),
    (&[t(FLOAT), t(FLOAT), t(FLOAT), t(FLOAT), own(ONLY_I32), t(FLOAT), t(FLOAT), t(FLOAT)], "LSTM"),
    (&[t(FLOAT), t(FLOAT), t(FLOAT), own(FLOAT), t(FLOAT), t(FLOAT)], "LinearAttention"),
    (&[own(POOLED)], "MaxPool"),
    (&[own(ONLY_BOOL)], "Not"),
    (&[own(NUMBER), own(NUMBER), own(ANY)], "OneHot"),
    (&[t(ANY), own(ONLY_I64), t(ANY), own(INDEX)], "Pad"),
    (&[own(BASE), own(NUMBER)], "Pow"),
    (
        &[
            t(BYTE),
            own(ONLY_F32),
            t(BYTE),
            u(BYTE),
            own(ONLY_F32),
            u(BYTE),
            own(ONLY_F32),
            own(BYTE),
            own(ONLY_I32),
        ],
        "QLinearConv",
    ),
    (&[t(BYTE), u(FLOAT), t(BYTE), v(BYTE), u(FLOAT), v(BYTE), u(FLOAT), own(BYTE)], "QLinearMatMul"),
    (&[own(QUANTIZABLE), own(QUANTIZABLE), own(QUANTIZED)], "QuantizeLinear"),
    (&[own(FLOAT), own(FLOAT)], "RMSNormalization"),
    (&[t(RANGE), t(RANGE), t(RANGE)], "Range"),
    (&[own(ANY), own(FLOAT), own(ONLY_F32), own(ONLY_I64)], "Resize"),
    (&[t(FLOAT), t(FLOAT), t(FLOAT), own(ONLY_I64)], "RotaryEmbedding"),
    (&[t(ANY), own(ONLY_I64), t(ANY)], "ScatterND"),
    (&[own(ANY), t(INDEX), t(INDEX), t(INDEX), t(INDEX)], "Slice"),
    (&[t(FLOAT), t(FLOAT)], "SwiGLU"),
    (&[t(ANY), t(ANY), own(ONLY_I64)], "TensorScatter"),
    (&[own(NUMBER), own(ONLY_I64)], "TopK"),
    (&[own(ANY), own(ONLY_F32)], "Upsample"),
    (&[own(ONLY_BOOL), t(ANY), t(ANY)], "Where"),
];

/// Fails where an operand is of a type that its operator does not take, or operands that share a type do not; `types` are
/// those of the operands, as far as they are given and known.
pub(super) fn check(operator: &str, types: &[Option<DType>]) -> Lowered<()> {
    let Some((signature, _)) = SIGNATURES.iter().find(|(_, names)| names.split(' ').any(|n| n == operator))
    else {
        return Ok(());
    };
    let mut shared: Vec<(char, usize, DType)> = Vec::new();
    for (i, dtype) in types.iter().enumerate().filter_map(|(i, dtype)| Some((i, (*dtype)?))) {
        let Some(operand) = signature.get(i).or(signature.last()) else { break };
        if !operand.types.contains(&dtype) {
            let names: Vec<&str> = operand.types.iter().map(|d| d.name()).collect();
            return Err(Refused::new(format!(
                "operand {i} is of type {}, where ONNX has {}; a Cast makes it so",
                dtype.name(),
                names.join(", ")
            )));
        }
        let Some(letter) = operand.shared else { continue };
        match shared.iter().find(|(l, ..)| *l == letter) {
            None => shared.push((letter, i, dtype)),
            Some((_, other, wanted)) if *wanted != dtype => {
                return Err(Refused::new(format!(
                    "operand {i} is of type {} and operand {other} of type {}, which must be the same; \
                     a Cast makes them so",
                    dtype.name(),
                    wanted.name()
                )));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{SIGNATURES, check};
    use crate::import::onnx::registry;
    use crate::ir::tensor::DType::{Bool, F16, F32, I32, I64, U8};

    #[test]
    fn every_operator_has_one_signature() {
        let lines = |name: &str| SIGNATURES.iter().filter(|(_, l)| l.split(' ').any(|n| n == name)).count();
        for entry in registry::entries().filter(|e| e.domain.is_empty()) {
            let known = !matches!(entry.name, "Constant" | "SimplifiedLayerNormalization");
            assert_eq!(lines(entry.name), usize::from(known), "{}", entry.name);
        }
    }

    #[test]
    fn types_are_those_of_onnx() {
        let fits = |name: &str, types: &[_]| check(name, types).is_ok();
        assert!(fits("Reshape", &[Some(Bool), Some(I64)]) && !fits("Reshape", &[Some(F32), Some(I32)]));
        assert!(fits("Gather", &[Some(U8), Some(I32)]) && !fits("Gather", &[Some(F32), Some(U8)]));
        assert!(fits("Neg", &[Some(I32)]) && !fits("Neg", &[Some(U8)]));
        assert!(fits("Concat", &[Some(U8); 5]) && !fits("Concat", &[Some(U8), Some(U8), Some(I32)]));
        assert!(fits("Clip", &[Some(F16), None, Some(F16)]) && !fits("Clip", &[Some(F16), None, Some(F32)]));
        assert!(fits("NoSuchOperator", &[Some(Bool)]));
    }
}
