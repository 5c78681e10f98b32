//! Live ranges of a function's intermediate tensors, reconstructed from the bindings of its dispatches.
//!
//! A bundle names byte ranges of an arena, not tensors. A write starts a new tensor if the range's contents were read
//! before or if the range held something else. The tensor is live until the last dispatch that reads it.

use drift_runtime::format::{BindingKind, Function, SlotKind, Variant};

/// Live range of an intermediate tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiveRange {
    /// Byte offset of the tensor in its arena.
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// Index of the dispatch that writes the tensor first.
    pub(crate) first: usize,
    /// Index of the last dispatch that reads or writes the tensor.
    pub(crate) last: usize,
    /// Index of the arena's slot in the function.
    pub(crate) slot: u32,
    /// True if a dispatch has read the tensor since its first write.
    read: bool,
}

impl LiveRange {
    fn overlaps(&self, slot: u32, offset: u64, size: u64) -> bool {
        let (end, other_end) = (self.offset.saturating_add(self.size), offset.saturating_add(size));
        self.slot == slot && self.offset < other_end && offset < end
    }
}

/// Live ranges of a function's intermediate tensors in the order of their first write.
pub(crate) fn live_ranges(variant: &Variant, function: &Function) -> Vec<LiveRange> {
    let mut all: Vec<LiveRange> = Vec::new();
    // Tensors that no later write has overwritten. There are few if the plan reuses memory well.
    let mut open: Vec<usize> = Vec::new();
    for (at, dispatch) in function.dispatches.iter().enumerate() {
        let kinds = variant.pipelines.get(dispatch.pipeline as usize).map_or(&[][..], |p| &p.bindings);
        let arena = dispatch.bindings.iter().zip(kinds).filter(|(binding, _)| {
            function.slots.get(binding.slot as usize).is_some_and(|s| s.kind == SlotKind::Arena)
        });
        let (writes, reads): (Vec<_>, Vec<_>) =
            arena.partition(|(_, kind)| **kind == BindingKind::StorageReadWrite);
        for (binding, _) in reads {
            for i in &open {
                let tensor = all.get_mut(*i);
                let overlapping = tensor.filter(|t| t.overlaps(binding.slot, binding.offset, binding.size));
                if let Some(tensor) = overlapping {
                    (tensor.last, tensor.read) = (at, true);
                }
            }
        }
        for (binding, _) in writes {
            let same = open.iter().copied().find(|i| {
                all.get(*i).is_some_and(|t| {
                    !t.read && (t.slot, t.offset, t.size) == (binding.slot, binding.offset, binding.size)
                })
            });
            if let Some(tensor) = same.and_then(|i| all.get_mut(i)) {
                tensor.last = at;
                continue;
            }
            open.retain(|i| {
                all.get(*i).is_some_and(|t| !t.overlaps(binding.slot, binding.offset, binding.size))
            });
            open.push(all.len());
            let (slot, offset, size) = (binding.slot, binding.offset, binding.size);
            all.push(LiveRange { offset, size, first: at, last: at, slot, read: false });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::live_ranges;
    use drift_runtime::format::{
        Binding, BindingKind, Dispatch, Expr, Function, Pipeline, Slot, SlotKind, Variant,
    };

    /// A range of an arena: offset and size in bytes.
    type Range = (u64, u64);

    /// Returns (offset, first dispatch, last dispatch) of each tensor. Each dispatch reads some ranges of an arena and
    /// writes one range.
    fn ranges(dispatches: &[(&[Range], Range)]) -> Vec<(u64, usize, usize)> {
        let mut variant = Variant::default();
        let mut function = Function::default();
        function.slots.push(Slot { kind: SlotKind::Arena, size: 1024 });
        for (at, (reads, write)) in dispatches.iter().enumerate() {
            let mut bindings = vec![BindingKind::StorageRead; reads.len()];
            bindings.push(BindingKind::StorageReadWrite);
            variant.pipelines.push(Pipeline {
                name: String::new(),
                artifact: 0,
                entry: String::new(),
                bindings,
                required_subgroup_size: None,
                workgroup_size: [1; 3],
                workgroup_memory: 0,
            });
            let binding = |(offset, size): &(u64, u64)| Binding { slot: 0, offset: *offset, size: *size };
            function.dispatches.push(Dispatch {
                pipeline: at as u32,
                bindings: reads.iter().chain([write]).map(binding).collect(),
                grid: [Expr::constant(1), Expr::constant(1), Expr::constant(1)],
                params: Vec::new(),
                params_offset: 0,
                barrier_before: false,
                label: String::new(),
                flops: Expr::constant(0),
                bytes: Expr::constant(0),
            });
        }
        live_ranges(&variant, &function).iter().map(|t| (t.offset, t.first, t.last)).collect()
    }

    #[test]
    fn a_write_after_a_read_starts_a_new_tensor() {
        let reused = ranges(&[(&[], (0, 64)), (&[(0, 64)], (64, 64)), (&[(64, 64)], (0, 64))]);
        assert_eq!(reused, [(0, 0, 1), (64, 1, 2), (0, 2, 2)]);
    }

    #[test]
    fn two_writers_make_one_tensor_and_a_partial_read_keeps_it_live() {
        let joined = ranges(&[(&[], (0, 64)), (&[], (0, 64)), (&[], (64, 64)), (&[(16, 16)], (128, 16))]);
        assert_eq!(joined, [(0, 0, 3), (64, 2, 2), (128, 3, 3)]);
    }

    #[test]
    fn an_in_place_update_starts_a_new_tensor() {
        assert_eq!(ranges(&[(&[], (0, 64)), (&[(0, 64)], (0, 64))]), [(0, 0, 1), (0, 1, 1)]);
    }
}
