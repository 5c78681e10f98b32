//! Facts about operators that passes depend on. Every operator states all of them: no fact has a default, so an
//! operator that omits one does not compile.

/// Facts about one operator, see [`crate::ir::op::Operation::facts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Layouts of operands and result.
    pub layout: LayoutClass,
    /// Storage type of the result under the precisions `mixed` and `f16`.
    pub precision: PrecisionClass,
    /// Relation to values that f16 cannot hold.
    pub exactness: Exactness,
}

impl Facts {
    /// Combines all facts.
    pub const fn new(layout: LayoutClass, precision: PrecisionClass, exactness: Exactness) -> Self {
        Self { layout, precision, exactness }
    }
}

/// Layout class of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutClass {
    /// A convolution: computes an image `[N, C, spatial..]` in channel slices. The layout pass starts from these.
    Convolution,
    /// Can compute an image `[N, C, spatial..]` one channel slice at a time.
    ImageSlices,
    /// Needs row-major operands and result.
    RowMajor,
}

/// Storage type of an operator's float result under the precisions `mixed` and `f16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrecisionClass {
    /// A graph input: never changed.
    Input,
    /// A state: f16 if every store is an update of it.
    State,
    /// A constant: f16 if a user needs it in f16.
    Constant,
    /// Multiplies matrices or convolves: always f16, with the constants it multiplies.
    MatMul,
    /// A view: the type of its operand, which may use the same memory.
    View,
    /// An in-place update: the type of its first operand.
    Update,
    /// Moves or selects values: f16 under `f16`; under `mixed` f16 if all float operands are.
    MovesValues,
    /// Like `MovesValues`; a constant that it reads is a table, which `mixed` stores in f16.
    LooksUp,
    /// Samples an image at positions: like `MovesValues`, but only the first operand counts.
    Samples,
    /// Any other operator: f16 under `f16`; keeps its type under `mixed`.
    Other,
}

/// Relation of an operator to exact values, which stay f32 because f16 cannot hold them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exactness {
    /// Adds many values: the result is exact, and so are operands that are squares or other large terms.
    Sums,
    /// Computes values: the result is exact if all operands are exact or not floats.
    Computes,
    /// Moves values: like `Computes`, and the operands of an exact result are exact too.
    Moves,
    /// Updates a value in place: the operands of an exact result are exact too.
    Updates,
    /// Samples an operand at positions: the second operand is exact.
    Samples,
    /// No relation.
    Independent,
}
