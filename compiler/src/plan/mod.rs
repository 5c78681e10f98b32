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
mod static_facts;
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

/// A named input or output of a function, dense and row-major on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Name of the port in the model.
    pub name: String,
    /// Element type of the port in the model.
    pub dtype: DType,
    /// Element type of the port in device memory.
    pub device: DeviceType,
    /// Sizes.
    pub shape: Vec<Dim>,
}

/// A state that a function reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSize {
    /// Name of the state. Functions that use the same name share the state.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// Result of the kernel selection for one node.
#[derive(Debug, Clone)]
pub struct Decision {
    /// The node.
    pub node: NodeId,
    /// Name of the node in the model.
    pub name: String,
    /// Operator of the node, with types and shapes of operands and result.
    pub what: String,
    /// All candidates for the node; the first one is selected. Empty for a view.
    pub choices: Vec<Choice>,
}

/// Dispatches of one function, with everything they refer to.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Bounds of symbols.
    pub bounds: Bounds,
    /// Inputs of the function in the model's order.
    pub inputs: Vec<Port>,
    /// Outputs of the function in the model's order.
    pub outputs: Vec<Port>,
    /// Size of each intermediate tensor in bytes, at the upper bounds of the symbols.
    pub tensors: Vec<u64>,
    /// Textures for intermediate tensors, and the assignment of tensors to these textures.
    pub images: Images,
    /// States of the function: memory that is kept between runs.
    pub states: Vec<StateSize>,
    /// Constants of the function, packed as the kernels read them.
    pub weights: Vec<Packed>,
    /// Dispatches in order.
    pub dispatches: Vec<Dispatch>,
    /// Sizes and live ranges of the allocations in the arena.
    pub live_ranges: Vec<LiveRange>,
    /// Arena and offset of each intermediate tensor, by index into `tensors`. Tensors that share an allocation, or are never live
    /// together, may overlap.
    pub memory: MemoryPlan,
    /// Kernel selection of every node.
    pub decisions: Vec<Decision>,
}

/// Bytes of intermediate tensors, in the arena and in textures together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of intermediate tensors in this plan.
    pub peak: u64,
    /// Minimum bytes of intermediate tensors in any placement.
    pub lower_bound: u64,
    /// Bytes of intermediate tensors without reuse of memory.
    pub naive: u64,
}

impl Plan {
    /// Creates a plan without tensors and dispatches.
    pub(crate) fn empty() -> Self {
        Self {
            bounds: Bounds::default(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            tensors: Vec::new(),
            images: Images::default(),
            states: Vec::new(),
            weights: Vec::new(),
            dispatches: Vec::new(),
            live_ranges: Vec::new(),
            memory: memory::plan(&[]),
            decisions: Vec::new(),
        }
    }

    /// Returns the memory that intermediate tensors take.
    pub fn footprint(&self) -> Footprint {
        Footprint {
            peak: self.memory.peak + self.images.bytes(),
            lower_bound: self.memory.lower_bound + self.images.lower_bound,
            naive: self.memory.naive + self.images.naive,
        }
    }
}

/// Rule for the use of decompositions (module `decompose`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Alternatives {
    /// Replace nodes by an alternative where the alternative costs less.
    #[default]
    Cheaper,
    /// Keep all nodes, without decompositions. For tests and benches.
    Never,
    /// Replace every node that the named decomposition applies to, whatever the cost: by the alternative with the given number,
    /// or by the first alternative if there is no such number. For tests and benches.
    Always(String, Option<u32>),
}

/// Options of planning.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Name of a kernel that computes every problem for which it has a candidate, whatever other kernels cost. For tests and
    /// benches.
    pub prefer_kernel: Option<String>,
    /// Index of the preferred kernel's candidate to use, in order of cost. If the kernel has fewer candidates, the last one is
    /// used.
    pub prefer_candidate: usize,
    /// Use of decompositions.
    pub alternatives: Alternatives,
    /// Tuning database. Its measured times replace the estimates for the problems that it has.
    pub tuning: Option<Arc<Database>>,
    /// Identity keys of the packed constants of other functions (equal keys mean equal bytes). These constants are reused where
    /// that costs little.
    pub packed: Option<Arc<BTreeSet<Identity>>>,
    /// True if the function may pack a constant in another order than the other functions only for a large speedup. This holds
    /// for functions that only save time over another function, such as specializations.
    pub avoid_weight_copies: bool,
}
