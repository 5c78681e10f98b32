//! Computes the limits that a variant needs from its contents.
//!
//! The compiler declares these limits, the validator compares the declaration with the contents, and the runtime
//! compares the declaration with the device. Sums that overflow become the largest `u64`, which exceeds the limits of
//! every device.

use super::validate::symbol_extremes;
use super::{BindingKind, Function, Limits, SlotKind, Variant};

impl Variant {
    /// Returns the lowest limits with which this variant can run. Alignments are copied from the declared limits.
    pub fn needed_limits(&self) -> Limits {
        let declared = &self.requirements.limits;
        let mut limits = Limits {
            storage_alignment: declared.storage_alignment,
            uniform_alignment: declared.uniform_alignment,
            device_memory: self.device_memory(),
            ..Limits::default()
        };
        for pipeline in &self.pipelines {
            let invocations = pipeline
                .workgroup_size
                .iter()
                .fold(1u32, |invocations, size| invocations.saturating_mul(*size));
            raise(&mut limits.max_workgroup_invocations, invocations);
            for (limit, size) in limits.max_workgroup_size.iter_mut().zip(pipeline.workgroup_size) {
                raise(limit, size);
            }
            raise(&mut limits.max_workgroup_memory, pipeline.workgroup_memory);
            let n_uniform = pipeline.bindings.iter().filter(|kind| **kind == BindingKind::Uniform).count();
            let n_storage = pipeline.bindings.iter().filter(|kind| kind.is_storage()).count();
            raise(&mut limits.max_uniform_buffers, count(n_uniform));
            raise(&mut limits.max_storage_buffers, count(n_storage));
        }
        let sizes = self.weights.iter().map(|slot| slot.size).chain(self.states.iter().map(|slot| slot.size));
        sizes.for_each(|size| raise(&mut limits.max_buffer_size, size));
        for function in &self.functions {
            self.raise_for_function(&mut limits, function);
        }
        limits
    }

    fn raise_for_function(&self, limits: &mut Limits, function: &Function) {
        for slot in &function.slots {
            if !matches!(slot.kind, SlotKind::Image(_)) {
                raise(&mut limits.max_buffer_size, slot.size);
            }
        }
        let symbol_extremes = symbol_extremes(function);
        for dispatch in &function.dispatches {
            for symbols in &symbol_extremes {
                for (limit, size) in limits.max_grid.iter_mut().zip(&dispatch.grid) {
                    // The validator or the runtime reports a grid that cannot be evaluated.
                    let size = size.eval(symbols).unwrap_or(0).clamp(0, i64::from(u32::MAX));
                    raise(limit, u32::try_from(size).unwrap_or(u32::MAX));
                }
            }
            let pipeline =
                usize::try_from(dispatch.pipeline).ok().and_then(|index| self.pipelines.get(index));
            let kinds = pipeline.map_or(&[][..], |pipeline| &pipeline.bindings);
            for (binding, kind) in dispatch.bindings.iter().zip(kinds) {
                match kind {
                    BindingKind::Uniform => raise(&mut limits.max_uniform_buffer_range, binding.size),
                    kind if kind.is_storage() => {
                        raise(&mut limits.max_storage_buffer_range, binding.size);
                    }
                    // Limits of images and texel buffers are compared with the device directly.
                    _ => {}
                }
            }
        }
    }

    /// Byte size of all buffers and images that loading this variant allocates, without staging buffers.
    pub fn device_memory(&self) -> u64 {
        let weights = self.weights.iter().map(|slot| slot.size);
        let states = self.states.iter().map(|slot| slot.size);
        let functions = self.functions.iter().enumerate();
        let ports_and_params = functions.flat_map(|(index, function)| {
            let specialization = self.is_specialization(index);
            function.slots.iter().filter(move |slot| match slot.kind {
                SlotKind::Input(_) | SlotKind::Output(_) => !specialization,
                kind => kind == SlotKind::Params,
            })
        });
        let ports_and_params = ports_and_params.map(|slot| slot.size);
        let images = self.images().0.into_iter().map(|image| image.size().unwrap_or(u64::MAX));
        weights
            .chain(states)
            .chain(self.arena_sizes())
            .chain(ports_and_params)
            .chain(images)
            .fold(0, u64::saturating_add)
    }

    /// Sizes of the arena buffers. The n-th arena slots of all functions use one buffer, of their maximum size.
    pub fn arena_sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = Vec::new();
        for function in &self.functions {
            let arenas = function.slots.iter().filter(|slot| slot.kind == SlotKind::Arena);
            for (index, slot) in arenas.enumerate() {
                match sizes.get_mut(index) {
                    Some(size) => raise(size, slot.size),
                    None => sizes.push(slot.size),
                }
            }
        }
        sizes
    }
}

impl BindingKind {
    /// True if the binding is a storage buffer.
    fn is_storage(self) -> bool {
        matches!(self, BindingKind::StorageRead | BindingKind::StorageReadWrite)
    }
}

fn raise<T: PartialOrd>(limit: &mut T, value: T) {
    if value > *limit {
        *limit = value;
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
