//! From graph to dispatches: views resolved, kernels chosen, memory placed, barriers found.
//!
//! A [`Plan`] is everything a bundle variant needs, before shaders are emitted and constants are packed.

mod allocations;
pub mod barriers;
mod build;
pub mod choice;
pub mod estimate;
pub mod faults;
pub mod fit;
pub mod images;
pub(crate) mod limits;
pub mod memory;
mod parts;
mod schedule;
pub mod select;
mod start;
pub mod trial;
pub mod tuning;
pub mod views;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ir::dim::{Bounds, Dim};
use crate::ir::graph::NodeId;
use crate::ir::tensor::{DType, DeviceType};
use crate::shader::Launch;
use crate::shader::pack::{Identity, Packed};
use choice::Choice;
use images::Images;
use memory::{LiveRange, MemoryPlan};
use tuning::Database;

pub use build::{Visit, build, build_visiting};

/// What a binding of a dispatch refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// An intermediate tensor, by index into [`Plan::tensors`].
    Arena(usize),
    /// An intermediate tensor in a texture, by index into [`Images::places`].
    Image(usize),
    /// A graph input.
    Input(usize),
    /// A graph output.
    Output(usize),
    /// A state, by index into [`Plan::states`].
    State(usize),
    /// A constant, by index into [`Plan::weights`].
    Weight(usize),
    /// The dispatch's own block of symbolic sizes.
    Params,
}

/// One dispatch.
#[derive(Debug, Clone)]
pub struct Dispatch {
    /// Shader, grid and parameters.
    pub launch: Launch,
    /// What each of the launch's bindings refers to.
    pub locations: Vec<Location>,
    /// Whether earlier writes must be visible, or earlier reads done, before it starts.
    pub barrier: bool,
    /// Name of the source node.
    pub label: String,
    /// Bytes read and written, each operand once.
    pub bytes: Dim,
}

/// A named input or output; dense and row-major on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Name in the model.
    pub name: String,
    /// Element type in the model.
    pub dtype: DType,
    /// Element type in memory.
    pub device: DeviceType,
    /// Sizes.
    pub shape: Vec<Dim>,
}

/// A state that the function reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSize {
    /// Its name, by which functions share it.
    pub name: String,
    /// Bytes that it takes.
    pub bytes: u64,
}

/// How a node came to be computed.
#[derive(Debug, Clone)]
pub struct Decision {
    /// The node.
    pub node: NodeId,
    /// Its name in the model.
    pub name: String,
    /// Its operator, with the types and shapes of operands and result.
    pub what: String,
    /// Every candidate, cheapest first; the first is the pick. Empty for a view.
    pub choices: Vec<Choice>,
}

/// The dispatches of one function and everything they refer to.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Symbols with their bounds.
    pub bounds: Bounds,
    /// Inputs in the model's order.
    pub inputs: Vec<Port>,
    /// Outputs in the model's order.
    pub outputs: Vec<Port>,
    /// Sizes of the intermediate tensors in bytes, at the upper bounds of the symbols.
    pub tensors: Vec<u64>,
    /// Intermediate tensors in textures.
    pub images: Images,
    /// Memory that is kept between runs.
    pub states: Vec<StateSize>,
    /// Constants in the form the kernels want.
    pub weights: Vec<Packed>,
    /// Dispatches in order.
    pub dispatches: Vec<Dispatch>,
    /// Size and live range of each piece of storage in the arena.
    pub records: Vec<LiveRange>,
    /// Where intermediate tensors lie, by index into `tensors`; they may lie inside one another.
    pub memory: MemoryPlan,
    /// Why each kernel was chosen.
    pub decisions: Vec<Decision>,
}

/// Bytes that intermediate tensors take, in the arena and in textures together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// As they are placed.
    pub peak: u64,
    /// The least that any placement takes.
    pub lower_bound: u64,
    /// When nothing is shared.
    pub naive: u64,
}

impl Plan {
    /// What its intermediate tensors take.
    pub fn footprint(&self) -> Footprint {
        Footprint {
            peak: self.memory.peak + self.images.bytes(),
            lower_bound: self.memory.lower_bound + self.images.lower_bound,
            naive: self.memory.naive + self.images.naive,
        }
    }
}

/// Whether nodes are replaced by alternatives of another number of dispatches (`decompose`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Alternatives {
    /// Where one costs less.
    #[default]
    Cheaper,
    /// Never; for tests and benches.
    Never,
    /// The one of this name wherever it can, in this configuration by number, else the first; for tests and benches.
    Always(String, Option<u32>),
}

/// What steers planning.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Considers only the kernel of this name where it has a candidate; for tests and benches.
    pub prefer_kernel: Option<String>,
    /// Which of that kernel's candidates is picked, cheapest first; the last one where there are fewer.
    pub prefer_candidate: usize,
    /// Whether nodes may be computed as several, or several as one.
    pub alternatives: Alternatives,
    /// Measured times, which override the estimates of those problems that they cover.
    pub tuning: Option<Arc<Database>>,
    /// Packed constants of another function, which are taken where that costs little.
    pub packed: Option<Arc<BTreeSet<Identity>>>,
    /// Whether the function does what another one does, only faster: it is worth no copies of constants of its own unless
    /// they make it much faster.
    pub spare: bool,
}
