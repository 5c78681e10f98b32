//! Dispatches of a plan, and the objects that their bindings refer to.

use crate::ir::dim::Dim;
use crate::shader::Launch;

/// Object that a binding of a dispatch refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// An intermediate tensor in an arena, by index into [`Plan::tensors`](super::Plan::tensors).
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
    /// Shader, grid and parameters of the dispatch.
    pub launch: Launch,
    /// Object that each binding of the launch refers to.
    pub locations: Vec<Location>,
    /// True if the dispatch waits for earlier dispatches: their writes must be visible, or their reads done.
    pub barrier: bool,
    /// Name of the graph's node that the dispatch belongs to.
    pub label: String,
    /// True if the dispatch copies a value to another layout or location, and belongs to no node of the graph.
    pub is_copy: bool,
    /// Bytes that the dispatch reads and writes; each operand counts once.
    pub bytes: Dim,
}
