//! From graph to dispatches: resolves views, selects kernels, places memory, finds barriers.
//!
//! A [`Plan`] is everything that a bundle variant needs, before shaders are emitted and constants are packed.

mod allocations;
pub mod barriers;
pub(crate) mod bound_remedies;
mod build;
pub mod choice;
mod concat_in_place;
pub mod device_limits;
mod dispatch;
pub mod estimate;
pub mod faults;
pub mod images;
pub mod memory;
pub mod params;
mod schedule;
pub mod select;
mod startup;
pub mod trial;
pub mod tuning;
pub mod views;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ir::dim::{Bounds, Dim};
use crate::ir::graph::NodeId;
use crate::ir::tensor::{DType, DeviceType};
use crate::shader::pack::{Identity, Packed};
use choice::Choice;
use images::Images;
use memory::{LiveRange, MemoryPlan};
use tuning::Database;

pub use build::{Visit, build, build_visiting};
pub use dispatch::{Dispatch, Location};

/// A named input or output, dense and row-major on the device.
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

/// A state that a function reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSize {
    /// Name. Functions with the same name share the state.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// Kernel selection for one node.
#[derive(Debug, Clone)]
pub struct Decision {
    /// The node.
    pub node: NodeId,
    /// Name of the node in the model.
    pub name: String,
    /// Operator, with types and shapes of operands and result.
    pub what: String,
    /// All candidates; the first one is selected. Empty for a view.
    pub choices: Vec<Choice>,
}

/// Dispatches of one function, with everything they refer to.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Bounds of symbols.
    pub bounds: Bounds,
    /// Inputs in the model's order.
    pub inputs: Vec<Port>,
    /// Outputs in the model's order.
    pub outputs: Vec<Port>,
    /// Sizes of intermediate tensors in bytes, at the upper bounds of the symbols.
    pub tensors: Vec<u64>,
    /// Intermediate tensors in textures.
    pub images: Images,
    /// Memory that is kept between runs.
    pub states: Vec<StateSize>,
    /// Constants, packed as the kernels read them.
    pub weights: Vec<Packed>,
    /// Dispatches in order.
    pub dispatches: Vec<Dispatch>,
    /// Sizes and live ranges of the allocations in the arena.
    pub live_ranges: Vec<LiveRange>,
    /// Offsets of intermediate tensors, by index into `tensors`. Tensors may overlap.
    pub memory: MemoryPlan,
    /// Kernel selection of every node.
    pub decisions: Vec<Decision>,
}

/// Bytes of intermediate tensors, in the arena and in textures together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of this plan.
    pub peak: u64,
    /// Minimum bytes of any placement.
    pub lower_bound: u64,
    /// Bytes without reuse of memory.
    pub naive: u64,
}

impl Plan {
    /// Returns the memory of intermediate tensors.
    pub fn footprint(&self) -> Footprint {
        Footprint {
            peak: self.memory.peak + self.images.bytes(),
            lower_bound: self.memory.lower_bound + self.images.lower_bound,
            naive: self.memory.naive + self.images.naive,
        }
    }
}

/// Use of decompositions (`decompose`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Alternatives {
    /// Replace nodes where an alternative costs less.
    #[default]
    Cheaper,
    /// Keep all nodes. For tests and benches.
    Never,
    /// Use the decomposition of this name for every node that it applies to: the alternative with this number, or the
    /// first one. For tests and benches.
    Always(String, Option<u32>),
}

/// Options of planning.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Name of the only kernel to consider where it has a candidate. For tests and benches.
    pub prefer_kernel: Option<String>,
    /// Index of the candidate of that kernel, by cost. The last one is used if there are fewer.
    pub prefer_candidate: usize,
    /// Use of decompositions.
    pub alternatives: Alternatives,
    /// Measured times, which replace the estimates of the problems in them.
    pub tuning: Option<Arc<Database>>,
    /// Packed constants of other functions, which are reused where that costs little.
    pub packed: Option<Arc<BTreeSet<Identity>>>,
    /// True if copies of constants in another order are worth it only for a large speedup, because the function only
    /// saves time over another one.
    pub avoid_weight_copies: bool,
}
