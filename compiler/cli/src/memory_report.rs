//! Memory of a function's intermediate tensors, as `compile` and `estimate` report it.

use driftc::compile::Lowered;
use serde::Serialize;

/// Memory of intermediate tensors in bytes, in arenas and in textures, as in the bundle's memory report.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Memory {
    pub(crate) peak: u64,
    pub(crate) lower_bound: u64,
    pub(crate) naive: u64,
    /// Bytes of each arena. Empty if the target needs only one arena.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) arenas: Vec<u64>,
    /// Bytes that a single arena for all tensors of `arenas` would take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) single_arena: Option<u64>,
    pub(crate) strategy: &'static str,
}

impl Memory {
    /// Returns the memory of a function's intermediate tensors.
    pub(crate) fn from_lowered(function: &Lowered) -> Self {
        let (footprint, placement) = (function.plan.footprint(), &function.plan.memory);
        Self {
            arenas: placement.arenas.clone(),
            single_arena: (!placement.arenas.is_empty()).then_some(placement.single_arena_peak),
            peak: footprint.peak,
            lower_bound: footprint.lower_bound,
            naive: footprint.naive,
            strategy: placement.strategy,
        }
    }
}
