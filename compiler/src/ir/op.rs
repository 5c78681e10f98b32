//! The closed set of the graph's operators.
//!
//! One line in `ops!` registers an operator. Its payload, shape rule, facts and CPU reference are in `ops/<op>.rs`.
//! The set stays small: element functions are data ([`Element`]), the importer expands composite ONNX operators, and
//! fused elementwise operators become the epilogue of a node.

use serde::{Deserialize, Serialize};

use super::array::Array;
use super::dim::{Bindings, Dim};
use super::tensor::TensorDesc;
use crate::error::OpError;

pub use super::element::{Arg, BinaryFn, Element, EpilogueStep, UnaryFn};
pub use super::op_facts::{Exactness, Facts, LayoutClass, PrecisionClass};
pub use super::ops::add_norms::AddNorms;
pub use super::ops::arg_reduce::ArgReduce;
pub use super::ops::attention::Attention;
pub use super::ops::concat::Concat;
pub use super::ops::constant::Constant;
pub use super::ops::conv::Conv;
pub use super::ops::conv_transpose::ConvTranspose;
pub use super::ops::cum_sum::CumSum;
pub use super::ops::elementwise::Elementwise;
pub use super::ops::expand::Expand;
pub use super::ops::fused_matmul::FusedMatMul;
pub use super::ops::gather::Gather;
pub use super::ops::gather_elements::GatherElements;
pub use super::ops::gather_matmul::GatherMatMul;
pub use super::ops::gather_nd::GatherNd;
pub use super::ops::grid_sample::GridSample;
pub use super::ops::group_norm::GroupNorm;
pub use super::ops::input::Input;
pub use super::ops::layer_norm::LayerNorm;
pub use super::ops::matmul::MatMul;
pub use super::ops::norm_of_sums::NormOfSums;
pub use super::ops::pad::Pad;
pub use super::ops::pool::Pool;
pub use super::ops::quantize_rows::QuantizeRows;
pub use super::ops::quantized_rows_matmul::QuantizedRowsMatMul;
pub use super::ops::range::Range;
pub use super::ops::recurrent::Recurrent;
pub use super::ops::reduce::Reduce;
pub use super::ops::relayout::Relayout;
pub use super::ops::reshape::Reshape;
pub use super::ops::resize::Resize;
pub use super::ops::scatter_elements::ScatterElements;
pub use super::ops::scatter_nd::ScatterNd;
pub use super::ops::separable_conv::SeparableConv;
pub use super::ops::shape_values::ShapeValues;
pub use super::ops::slice::Slice;
pub use super::ops::softmax::Softmax;
pub use super::ops::state::State;
pub use super::ops::top_k::TopK;
pub use super::ops::transpose::Transpose;
pub use super::ops::update::Update;
pub use super::ops::winograd_input::WinogradInput;
pub use super::ops::winograd_output::WinogradOutput;

/// Fusion class of an operator, as in TVM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fusion {
    /// Each output element depends on the element at the same position of each operand.
    Elementwise,
    /// Each output element depends on one element of each operand, at any position.
    Injective,
    /// Each output element combines many input elements.
    Reduce,
    /// An expensive operator; elementwise consumers become its epilogue.
    Anchor,
    /// Never fused.
    Opaque,
}

/// Behavior that every operator of the graph implements.
pub trait Operation {
    /// Infers the element type and shape of the result, which is row-major. `inputs` are the operator's operands
    /// without the operands of a fused epilogue.
    ///
    /// # Errors
    /// If the operator does not accept the operands.
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError>;

    /// Fusion class.
    fn fusion(&self) -> Fusion;

    /// Facts about the operator that passes depend on. `inputs` are its operands without the operands of a fused
    /// epilogue.
    fn facts(&self, inputs: &[&TensorDesc]) -> Facts;

    /// Returns the symbolic dimensions among the operator's attributes.
    fn sizes_mut(&mut self) -> Vec<&mut Dim>;

    /// CPU reference of the operator: computes the result, which has shape `out`.
    ///
    /// # Errors
    /// If the operands do not match, or a symbol of an attribute has no value.
    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError>;
}

/// Defines the enum [`Op`], the names of its variants in the text form, and the functions that call the code of an
/// operator.
macro_rules! ops {
    ($($op:ident = $name:literal,)*) => {
        /// An operator with its attributes.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Op {
            $(#[doc = concat!("`", $name, "`")] $op($op),)*
        }

        impl Op {
            /// Names of all operators in the text form of graphs, in the order of the variants.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// Returns the operator's name in the text form of graphs.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$op(_) => $name,)* }
            }

            /// Returns the operator's struct as an [`Operation`].
            pub fn operation(&self) -> &dyn Operation {
                match self { $(Self::$op(op) => op,)* }
            }

            /// Returns the operator's struct as a mutable [`Operation`].
            pub fn operation_mut(&mut self) -> &mut dyn Operation {
                match self { $(Self::$op(op) => op,)* }
            }

            /// Returns the attributes as JSON text, with fields in the order of the operator's struct. (A
            /// `serde_json::Value` would widen f32 to f64 and print 0.1 as 0.10000000149011612.)
            pub fn attributes_text(&self) -> String {
                // Serialization fails only for maps with non-string keys, and no payload has one.
                match self { $(Self::$op(op) => serde_json::to_string(op).unwrap_or_default(),)* }
            }

            /// Parses an operator from its text name and JSON attributes; `None` for an unknown name.
            pub fn from_text(name: &str, attributes: serde_json::Value) -> Option<Result<Self, serde_json::Error>> {
                match name {
                    $($name => Some(serde_json::from_value(attributes).map(Self::$op)),)*
                    _ => None,
                }
            }
        }

        $(impl From<$op> for Op {
            fn from(op: $op) -> Self { Self::$op(op) }
        })*
    };
}

ops! {
    Input = "input",
    State = "state",
    Constant = "constant",
    ShapeValues = "shape-values",
    Range = "range",
    Elementwise = "elementwise",
    Reduce = "reduce",
    ArgReduce = "arg-reduce",
    CumSum = "cum-sum",
    TopK = "top-k",
    Recurrent = "recurrent",
    MatMul = "matmul",
    Conv = "conv",
    ConvTranspose = "conv-transpose",
    Pool = "pool",
    LayerNorm = "layer-norm",
    GridSample = "grid-sample",
    GroupNorm = "group-norm",
    Softmax = "softmax",
    Attention = "attention",
    Gather = "gather",
    GatherElements = "gather-elements",
    GatherMatMul = "gather-matmul",
    GatherNd = "gather-nd",
    ScatterElements = "scatter-elements",
    ScatterNd = "scatter-nd",
    Resize = "resize",
    Reshape = "reshape",
    Transpose = "transpose",
    Slice = "slice",
    Concat = "concat",
    Update = "update",
    QuantizeRows = "quantize-rows",
    QuantizedRowsMatMul = "quantized-rows-matmul",
    Pad = "pad",
    Expand = "expand",
    Relayout = "relayout",
    WinogradInput = "winograd-input",
    WinogradOutput = "winograd-output",
    SeparableConv = "separable-conv",
    FusedMatMul = "fused-matmul",
    AddNorms = "add-norms",
    NormOfSums = "norm-of-sums",
}

/// Rule by which a scatter operator combines an update with the existing element.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are ONNX's")]
pub enum Combine {
    #[default]
    Replace,
    Add,
    Mul,
    Max,
    Min,
}
