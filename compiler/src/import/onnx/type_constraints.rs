//! Type constraints of ONNX operators.
//!
//! The graph's operators accept any mix of float types, because passes choose the storage type, and integers of any
//! width. ONNX is stricter: a model whose operand has another type, or whose operands have different types, is
//! malformed. Types that a newer operator set added are also accepted in older ones.

use super::lowering::Lowered;
use super::refused::Refused;
use crate::ir::tensor::DType;
use crate::ir::tensor::DType::{Bf16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};

/// Element types that an operand of an ONNX operator may have.
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

/// Type constraint of an ONNX operand: its allowed types, and the type variable that it shares with other operands.
#[derive(Clone, Copy)]
struct Operand {
    types: Types,
    variable: Option<char>,
}

/// Constraint of an operand whose type does not depend on other operands.
const fn any_of(types: Types) -> Operand {
    Operand { types, variable: None }
}

/// Constraint of an operand whose type is bound to ONNX's type variable T.
const fn t(types: Types) -> Operand {
    Operand { types, variable: Some('T') }
}

/// Constraint of an operand whose type is bound to ONNX's type variable U.
const fn u(types: Types) -> Operand {
    Operand { types, variable: Some('U') }
}

/// Constraint of an operand whose type is bound to ONNX's type variable V.
const fn v(types: Types) -> Operand {
    Operand { types, variable: Some('V') }
}

/// Lists of operand constraints, each with the ai.onnx operators that have these operands. If an operator has more
/// operands than the list, the last constraint holds for them.
const SIGNATURES: &[(&[Operand], &str)] = &[
    (
        &[any_of(FLOAT)],
        "Acos Acosh Asin Asinh Atan Atanh AveragePool Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu \
         GlobalAveragePool GlobalLpPool GlobalMaxPool HardSigmoid HardSwish Hardmax IsInf IsNaN LRN \
         LeakyRelu Log LogSoftmax LpNormalization LpPool MeanVarianceNormalization Mish Reciprocal Round \
         Selu Sigmoid Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu",
    ),
    (
        &[any_of(ANY), any_of(ONLY_I64)],
        "Expand GatherND ReduceMax ReduceMin Reshape ReverseSequence Split Squeeze Tile Trilu Unsqueeze",
    ),
    (&[any_of(ANY)], "Cast DepthToSpace EyeLike Flatten Identity NonZero Shape Size SpaceToDepth Transpose"),
    (&[t(NUMBER), t(NUMBER)], "Add Div Greater GreaterOrEqual Less LessOrEqual Mod Mul Sub"),
    (&[any_of(WIDE), any_of(ONLY_I64)], "ReduceL1 ReduceL2 ReduceMean ReduceProd ReduceSum ReduceSumSquare"),
    (&[any_of(NUMBER)], "Abs ArgMax ArgMin Shrink Sign"),
    (
        &[t(FLOAT), t(FLOAT), t(FLOAT)],
        "Conv ConvTranspose GroupNormalization InstanceNormalization LayerNormalization",
    ),
    (&[t(INTEGER), t(INTEGER)], "BitShift BitwiseAnd BitwiseOr BitwiseXor"),
    (&[t(ONLY_BOOL), t(ONLY_BOOL)], "And Or Xor"),
    (&[any_of(INDEX)], "BlackmanWindow HammingWindow HannWindow"),
    (&[any_of(ANY), any_of(INDEX)], "CenterCropPad Gather GatherElements"),
    (&[t(NUMBER)], "Einsum Max Min"),
    (&[t(BYTE), u(BYTE), t(BYTE), u(BYTE)], "ConvInteger MatMulInteger"),
    (&[t(FLOAT), t(FLOAT), t(FLOAT), t(FLOAT), any_of(ONLY_I32), t(FLOAT)], "GRU RNN"),
    (&[t(WIDE), t(WIDE)], "MatMul PRelu"),
    (&[t(FLOAT)], "Mean Sum"),
    (&[any_of(SIGNED)], "Neg Relu"),
    (&[t(FLOAT), any_of(INDEX), t(FLOAT)], "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss"),
    (&[any_of(FLOAT), any_of(ONLY_I64)], "ReduceLogSum ReduceLogSumExp"),
    (&[t(ANY), any_of(INDEX), t(ANY)], "Scatter ScatterElements"),
    (&[t(FLOAT), t(FLOAT), u(FLOAT), any_of(ANY), t(FLOAT), u(FLOAT), any_of(ONLY_I64)], "Attention"),
    (&[any_of(FLOAT), t(FLOAT), t(FLOAT), u(FLOAT), u(FLOAT)], "BatchNormalization"),
    (&[any_of(INTEGER)], "BitwiseNot"),
    (&[any_of(ANY), any_of(ANY)], "CastLike"),
    (&[t(FLOAT), t(FLOAT), t(FLOAT), t(FLOAT)], "CausalConvWithState"),
    (&[t(NUMBER), t(NUMBER), t(NUMBER)], "Clip"),
    (&[any_of(ANY), any_of(ONLY_BOOL)], "Compress"),
    (&[t(ANY)], "Concat"),
    (&[any_of(ONLY_I64)], "ConstantOfShape"),
    (&[any_of(WIDE), any_of(INDEX)], "CumSum"),
    (&[any_of(FLOAT), any_of(INDEX), any_of(ONLY_I64)], "DFT"),
    (&[t(QUANTIZED), any_of(FLOAT), t(QUANTIZED)], "DequantizeLinear"),
    (&[any_of(FLOAT), any_of(FLOAT), any_of(ONLY_BOOL)], "Dropout"),
    (&[any_of(ONLY_F32)], "DynamicQuantizeLinear"),
    (&[t(ANY), t(ANY)], "Equal"),
    (&[t(WIDE), t(WIDE), t(WIDE)], "Gemm"),
    (&[any_of(ANY), any_of(FLOAT)], "GridSample"),
    (&[t(FLOAT), t(FLOAT), t(FLOAT), t(FLOAT), any_of(ONLY_I32), t(FLOAT), t(FLOAT), t(FLOAT)], "LSTM"),
    (&[t(FLOAT), t(FLOAT), t(FLOAT), any_of(FLOAT), t(FLOAT), t(FLOAT)], "LinearAttention"),
    (&[any_of(POOLED)], "MaxPool"),
    (&[t(INDEX), t(INDEX), t(INDEX), any_of(FLOAT), any_of(FLOAT)], "MelWeightMatrix"),
    (&[any_of(ONLY_BOOL)], "Not"),
    (&[any_of(NUMBER), any_of(NUMBER), any_of(ANY)], "OneHot"),
    (&[t(ANY), any_of(ONLY_I64), t(ANY), any_of(INDEX)], "Pad"),
    (&[any_of(BASE), any_of(NUMBER)], "Pow"),
    (
        &[
            t(BYTE),
            any_of(ONLY_F32),
            t(BYTE),
            u(BYTE),
            any_of(ONLY_F32),
            u(BYTE),
            any_of(ONLY_F32),
            any_of(BYTE),
            any_of(ONLY_I32),
        ],
        "QLinearConv",
    ),
    (&[t(BYTE), u(FLOAT), t(BYTE), v(BYTE), u(FLOAT), v(BYTE), u(FLOAT), any_of(BYTE)], "QLinearMatMul"),
    (&[any_of(QUANTIZABLE), any_of(QUANTIZABLE), any_of(QUANTIZED)], "QuantizeLinear"),
    (&[any_of(FLOAT), any_of(FLOAT)], "RMSNormalization"),
    (&[t(RANGE), t(RANGE), t(RANGE)], "Range"),
    (&[any_of(ANY), any_of(FLOAT), any_of(ONLY_F32), any_of(ONLY_I64)], "Resize"),
    (&[t(FLOAT), t(FLOAT), t(FLOAT), any_of(ONLY_I64)], "RotaryEmbedding"),
    (&[t(ANY), any_of(ONLY_I64), t(ANY)], "ScatterND"),
    (&[any_of(ANY), t(INDEX), t(INDEX), t(INDEX), t(INDEX)], "Slice"),
    (&[t(FLOAT), u(INDEX), t(FLOAT), u(INDEX)], "STFT"),
    (&[t(FLOAT), t(FLOAT)], "SwiGLU"),
    (&[t(ANY), t(ANY), any_of(ONLY_I64)], "TensorScatter"),
    (&[any_of(NUMBER), any_of(ONLY_I64)], "TopK"),
    (&[any_of(ANY), any_of(ONLY_F32)], "Upsample"),
    (&[any_of(ONLY_BOOL), t(ANY), t(ANY)], "Where"),
];

/// Fails if an operand has a type that its operator does not accept, or if operands with the same type variable have
/// different types. `types` are the types of the operands; `None` if absent or unknown.
pub(super) fn check(operator: &str, types: &[Option<DType>]) -> Lowered<()> {
    let Some((signature, _)) = SIGNATURES.iter().find(|(_, names)| names.split(' ').any(|n| n == operator))
    else {
        return Ok(());
    };
    let mut bound: Vec<(char, usize, DType)> = Vec::new();
    for (i, dtype) in types.iter().enumerate().filter_map(|(i, dtype)| Some((i, (*dtype)?))) {
        let Some(operand) = signature.get(i).or(signature.last()) else { break };
        if !operand.types.contains(&dtype) {
            let names: Vec<&str> = operand.types.iter().map(|d| d.name()).collect();
            return Err(Refused::new(format!(
                "operand {i} has type {}, but ONNX allows {}; insert a Cast",
                dtype.name(),
                names.join(", ")
            )));
        }
        let Some(letter) = operand.variable else { continue };
        match bound.iter().find(|(l, ..)| *l == letter) {
            None => bound.push((letter, i, dtype)),
            Some((_, other, wanted)) if *wanted != dtype => {
                return Err(Refused::new(format!(
                    "operand {i} has type {} and operand {other} has type {}, but both must have the \
                     same type; insert a Cast",
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
    fn type_constraints_match_onnx() {
        let accepted = |name: &str, types: &[_]| check(name, types).is_ok();
        assert!(
            accepted("Reshape", &[Some(Bool), Some(I64)]) && !accepted("Reshape", &[Some(F32), Some(I32)])
        );
        assert!(accepted("Gather", &[Some(U8), Some(I32)]) && !accepted("Gather", &[Some(F32), Some(U8)]));
        assert!(accepted("Neg", &[Some(I32)]) && !accepted("Neg", &[Some(U8)]));
        assert!(accepted("Concat", &[Some(U8); 5]) && !accepted("Concat", &[Some(U8), Some(U8), Some(I32)]));
        assert!(
            accepted("Clip", &[Some(F16), None, Some(F16)])
                && !accepted("Clip", &[Some(F16), None, Some(F32)])
        );
        assert!(accepted("NoSuchOperator", &[Some(Bool)]));
    }
}
