//! Dispatches of a plan, and the objects that their bindings refer to.

use crate::ir::dim::Dim;
use crate::shader::Launch;

/// Object that a binding of a dispatch refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// An intermediate tensor, by index into [`Plan::tensors`](super::Plan::tensors).
    Arena(usize),
    /// An intermediate tensor in a texture, by index into [`Images::texture_of`](super::images::Images::texture_of).
    Image(usize),
    /// A graph input.
    Input(usize),
    /// A graph output.
    Output(usize),
    /// A state, by index into [`Plan::states`](super::Plan::states).
    State(usize),
    /// A constant, by index into [`Plan::weights`](super::Plan::weights).
    Weight(usize),
    /// The uniform block with the dispatch's symbolic sizes.
    Params,
}

/// One dispatch.
#[derive(Debug, Clone)]
pub struct Dispatch {
    /// Shader, grid and parameters.
    pub launch: Launch,
    /// Object of each of the launch's bindings.
    pub locations: Vec<Location>,
    /// True if it waits for earlier dispatches: their writes must be visible, or their reads done.
    pub barrier: bool,
    /// Name of the source node.
    pub label: String,
    /// True if it copies a value to another layout or location, and belongs to no node of the graph.
    pub is_copy: bool,
    /// Bytes read and written; each operand counts once.
    pub bytes: Dim,
}
