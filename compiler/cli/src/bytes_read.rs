//! Bytes of constants and states that one run of a function reads at the largest sizes. They bound a language model's
//! speed.
//!
//! A dispatch counts each bound constant or state once, but never more bytes than the dispatch moves in total. So an
//! embedding lookup counts only the rows of its ids, a mixture of experts only the selected experts, and attention only
//! the window of the KV cache.

use std::collections::BTreeMap;
use std::fmt;

use drift_runtime::format::{BindingKind, Dispatch, Function, SlotKind, Variant};
use serde::Serialize;

use crate::output::bytes;

/// Bytes of constants and states that one run of a function reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct BytesRead {
    /// Bytes of constants. A constant that two dispatches read counts twice.
    pub(crate) constants: u64,
    /// Bytes of states.
    pub(crate) states: u64,
}

impl BytesRead {
    /// Computes the bytes that a run reads at the upper bounds of the function's symbols.
    pub(crate) fn from_function(function: &Function, variant: &Variant) -> Self {
        let largest: Vec<i64> = function.symbols.iter().map(|symbol| symbol.max).collect();
        let mut reads = Self::default();
        for dispatch in &function.dispatches {
            let (constants, states) = bound_bytes(dispatch, function, variant);
            let limit = match dispatch.bytes.eval(&largest) {
                Ok(moved) if moved > 0 => moved.unsigned_abs(),
                // The bundle has no count for this dispatch.
                _ => u64::MAX,
            };
            reads.constants += constants.min(limit);
            reads.states += states.min(limit);
        }
        reads
    }
}

impl fmt::Display for BytesRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let constants = bytes(self.constants);
        match self.states {
            0 => write!(f, "{constants} of constants"),
            states => {
                write!(f, "{constants} of constants and {} of states at the largest sizes", bytes(states))
            }
        }
    }
}

/// Returns two sizes in bytes, of the constants and of the states that a dispatch binds for reading.
fn bound_bytes(dispatch: &Dispatch, function: &Function, variant: &Variant) -> (u64, u64) {
    let kinds = variant.pipelines.get(dispatch.pipeline as usize).map_or(&[][..], |p| &p.bindings);
    let (mut constants, mut states) = (BTreeMap::new(), BTreeMap::new());
    for (binding, kind) in dispatch.bindings.iter().zip(kinds) {
        if matches!(kind, BindingKind::StorageReadWrite | BindingKind::ImageWrite(_)) {
            continue;
        }
        let place = (binding.slot, binding.offset);
        match function.slots.get(binding.slot as usize).map(|slot| slot.kind) {
            Some(SlotKind::Weights(_)) => constants.insert(place, binding.size),
            Some(SlotKind::Image(image)) if image.chunk.is_some() => constants.insert(place, binding.size),
            Some(SlotKind::State(_)) => states.insert(place, binding.size),
            _ => None,
        };
    }
    (constants.values().sum(), states.values().sum())
}
