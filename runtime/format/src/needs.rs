//! What a variant needs of a device, computed from its contents.
//!
//! The compiler declares it, the validator compares the declaration with the contents, and the runtime compares
//! the declaration with the device. All sums saturate: a manifest that overflows them needs more than there is.

use super::validate::corners;
use super::{BindingKind, Function, Limits, SlotKind, Variant};

impl Variant {
    /// The least limits under which this variant can run; alignments are copied from what it declares.
    pub fn needed_limits(&self) -> Limits {
        let declared = &self.requirements.limits;
        let mut limits = Limits {
            storage_alignment: declared.storage_alignment,
            uniform_alignment: declared.uniform_alignment,
            device_memory: self.device_memory(),
            ..Limits::default()
        };
        for pipeline in &self.pipelines {
            let invocations =
                pipeline.workgroup_size.iter().fold(1u32, |product, size| product.saturating_mul(*size));
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
        let corners = corners(function);
        for dispatch in &function.dispatches {
            for symbols in &corners {
                for (limit, size) in limits.max_grid.iter_mut().zip(&dispatch.grid) {
                    // A grid that cannot be evaluated is reported by the validator or when it is met.
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
                    // Images and texels have limits of their own, which the device is compared with directly.
                    _ => {}
                }
            }
        }
    }

    /// Bytes of all buffers and images that loading this variant allocates, without staging.
    pub fn device_memory(&self) -> u64 {
        let weights = self.weights.iter().map(|slot| slot.size);
        let states = self.states.iter().map(|slot| slot.size);
        let functions = self.functions.iter().enumerate();
        let own = functions.flat_map(|(index, function)| {
            let special = self.is_special(index);
            function.slots.iter().filter(move |slot| match slot.kind {
                SlotKind::Input(_) | SlotKind::Output(_) => !special,
                kind => kind == SlotKind::Params,
            })
        });
        let own = own.map(|slot| slot.size);
        let images = self.images().0.into_iter().map(|image| image.size().unwrap_or(u64::MAX));
        weights.chain(states).chain(self.arena_sizes()).chain(own).chain(images).fold(0, u64::saturating_add)
    }

    /// The sizes of the arena buffers: the n-th arena slots of all functions share one.
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
    /// Whether it is a storage buffer.
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
