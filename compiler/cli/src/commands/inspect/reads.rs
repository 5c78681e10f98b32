//! Bytes of constants and states that a run of a function reads, at the largest sizes: what bounds a language model's speed.
//!
//! A dispatch reads a constant or a state that it binds once, but no more than it reads and writes in all: of a table of
//! embeddings the rows of the ids, of a stack of experts those in use, of a cache what a window shows.

use std::collections::BTreeMap;
use std::fmt;

use drift_runtime::format::{BindingKind, Dispatch, Function, SlotKind, Variant};
use serde::Serialize;

use crate::output::bytes;

/// Bytes that a run reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Reads {
    /// Of constants; those of two dispatches that read the same one count twice.
    pub(crate) constants: u64,
    /// Of states.
    pub(crate) states: u64,
}

impl Reads {
    /// What a run at the upper bounds of the function's symbols reads.
    pub(crate) fn of(function: &Function, variant: &Variant) -> Self {
        let largest: Vec<i64> = function.symbols.iter().map(|symbol| symbol.max).collect();
        let mut reads = Self::default();
        for dispatch in &function.dispatches {
            let (constants, states) = bound(dispatch, function, variant);
            let most = match dispatch.bytes.eval(&largest) {
                Ok(moved) if moved > 0 => moved.unsigned_abs(),
                // Nobody counted.
                _ => u64::MAX,
            };
            reads.constants += constants.min(most);
            reads.states += states.min(most);
        }
        reads
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of constants", bytes(self.constants))?;
        match self.states {
            0 => Ok(()),
            states => write!(f, " and {} of states at the largest sizes", bytes(states)),
        }
    }
}

/// Bytes of the constants and of the states that a dispatch binds in order to read them.
fn bound(dispatch: &Dispatch, function: &Function, variant: &Variant) -> (u64, u64) {
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
