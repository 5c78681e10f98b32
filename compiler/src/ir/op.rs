//! The closed set of operators.
//!
//! One line in [`ops!`] registers an operator; its payload, shape rule and CPU reference live in
//! `ops/<op>.rs`. The set stays small: element functions are data ([`Element`]), composite ONNX operators are
//! expanded by the importer, and fused results are not operators but epilogues on a node.

use serde::{Deserialize, Serialize};

use super::array::Array;
use super::dim::{Bindings, Dim};
use super::tensor::TensorDesc;
use crate::error::OpError;

pub use super::element::{Arg, BinaryFn, Element, EpilogueStep, UnaryFn};
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
pub use super::ops::pad::Pad;
pub use super::ops::pool::Pool;
pub use super::ops::quantize_rows::QuantizeRows;
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

/// How an operator may take part in fusion (the classes of TVM's operator fusion).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fusion {
    /// One output element from the same element of each operand.
    Elementwise,
    /// One output element from one element of each operand.
    Injective,
    /// Many elements into one.
    Reduce,
    /// Heavy; elementwise epilogues attach behind it.
    Anchor,
    /// Takes part in no fusion.
    Opaque,
}

/// What every operator can do.
pub trait Operation {
    /// The result's element type and shape (always row-major); `inputs` are the operands before any fused epilogue.
    ///
    /// # Errors
    /// When the operator does not fit its operands.
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError>;

    /// How the operator takes part in fusion.
    fn fusion(&self) -> Fusion;

    /// The symbolic sizes among the attributes.
    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    /// The CPU reference: the result for given operands, of shape `out`.
    ///
    /// # Errors
    /// When the operands do not fit, or a symbol of the payload is unbound.
    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError>;
}

/// Makes the enum [`Op`] with its text names and dispatch from one list.
macro_rules! ops {
    ($($op:ident = $name:literal,)*) => {
        /// An operator with its attributes.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Op {
            $(#[doc = concat!("`", $name, "`")] $op($op),)*
        }

        impl Op {
            /// Every operator's name in the text form, in the order of the list.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// The name in the text form.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$op(_) => $name,)* }
            }

            /// The payload as an [`Operation`].
            pub fn operation(&self) -> &dyn Operation {
                match self { $(Self::$op(op) => op,)* }
            }

            /// The payload as an [`Operation`] that can be changed.
            pub fn operation_mut(&mut self) -> &mut dyn Operation {
                match self { $(Self::$op(op) => op,)* }
            }

            /// The attributes as JSON text, fields in the payload's order. (A JSON value would widen f32 to f64
            /// and print 0.1 as 0.10000000149011612.)
            pub fn attributes_text(&self) -> String {
                // Payloads have no map with other keys than strings, the one thing that fails.
                match self { $(Self::$op(op) => serde_json::to_string(op).unwrap_or_default(),)* }
            }

            /// The operator with a text name and JSON attributes; `None` for an unknown name.
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
    Pad = "pad",
    Expand = "expand",
    Relayout = "relayout",
    WinogradInput = "winograd-input",
    WinogradOutput = "winograd-output",
    SeparableConv = "separable-conv",
    FusedMatMul = "fused-matmul",
    AddNorms = "add-norms",
}

/// How a scatter combines an update with what is there.
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
