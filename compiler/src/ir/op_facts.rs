//! Facts about operators that passes depend on. Every operator states all facts: no fact has a default, so an operator
//! that omits a fact does not compile.

/// Facts about one operator, see [`crate::ir::op::Operation::facts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Layouts that the operator allows for its operands and result.
    pub layout: LayoutClass,
    /// Storage type of the result under the precisions `mixed` and `f16`.
    pub precision: PrecisionClass,
    /// Rule by which values stay f32 because f16 cannot hold them.
    pub exactness: Exactness,
}

impl Facts {
    /// Combines all facts.
    pub const fn new(layout: LayoutClass, precision: PrecisionClass, exactness: Exactness) -> Self {
        Self { layout, precision, exactness }
    }
}

/// Class of an operator by the layouts that it allows for its operands and result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutClass {
    /// A convolution: computes an image `[N, C, spatial..]` in channel slices. The layout pass starts from
    /// convolutions.
    Convolution,
    /// The operator can compute an image `[N, C, spatial..]` one channel slice at a time.
    ImageSlices,
    /// The operator needs row-major operands and a row-major result.
    RowMajor,
}

/// Storage type of an operator's float result under the precisions `mixed` and `f16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrecisionClass {
    /// A graph input: its type is never changed.
    Input,
    /// A state: f16 if the graph only changes parts of it in place, as in a KV cache. A state that is replaced as a
    /// whole keeps its type.
    State,
    /// A constant: f16 under `f16`; f16 under `mixed` only if a matmul, a convolution or a row lookup reads it.
    /// Constants of few elements keep their type.
    Constant,
    /// Multiplies matrices or convolves: f16 under both precisions, and so are the constants that it multiplies.
    MatMul,
    /// A view: the type of its operand, because the view and its operand may use the same memory.
    View,
    /// An in-place update: stored in the type of its first operand.
    Update,
    /// Moves or selects values: f16 under `f16`; under `mixed`, f16 if all float operands are f16.
    MovesValues,
    /// Looks up rows: like `MovesValues`, but a constant operand is a table, which `mixed` stores in f16.
    LooksUp,
    /// Samples an image at positions: like `MovesValues`, but only the first operand counts.
    Samples,
    /// Any other operator: f16 under `f16`; keeps its type under `mixed`.
    Other,
}

/// Rule by which an operator's operands and result are exact values, which stay f32 because f16 cannot hold them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exactness {
    /// Adds many values: the result is exact (stays f32). An operand is exact too if it is a product, a power or an
    /// exponential, which may be large.
    Sums,
    /// Computes values: the result is exact (stays f32) if all operands are exact or not floats.
    Computes,
    /// Moves values: the result is exact (stays f32) if all operands are exact or not floats, and the operands of an
    /// exact result are exact too.
    Moves,
    /// Updates a value in place: if the result is exact (stays f32), the operands are exact too.
    Updates,
    /// Samples an operand at positions: the positions, operand 1, are exact (stay f32).
    Samples,
    /// No relation.
    Independent,
}
