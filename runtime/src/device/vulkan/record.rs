//! Command buffers: pools, barriers, descriptor sets, and the recording of a function's dispatches.

use super::context::Context;
use super::failed;
use super::memory::Buffer;
use super::pipelines::{Pipelines, descriptor_type};
use super::texel_format::texel_format;
use crate::device::backend::constant_grid;
use crate::error::{Error, Result};
use crate::format::{BindingKind, Dispatch, Function, Variant};
use crate::order;
use ash::vk;
use std::sync::Arc;

/// A command pool with a fence to wait on.
pub(super) struct Commands {
    context: Arc<Context>,
    pool: vk::CommandPool,
    pub(super) fence: vk::Fence,
}

impl Commands {
    pub(super) fn new(context: &Arc<Context>) -> Result<Commands> {
        let flags = vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER;
        let create = vk::CommandPoolCreateInfo::default().queue_family_index(context.family).flags(flags);
        // SAFETY: the device is live, here and below.
        let pool =
            unsafe { context.device.create_command_pool(&create) }.map_err(failed("vkCreateCommandPool"))?;
        let mut commands = Commands { context: context.clone(), pool, fence: vk::Fence::null() };
        // SAFETY: as above.
        let fence = unsafe { context.device.create_fence(&vk::FenceCreateInfo::default()) };
        commands.fence = fence.map_err(failed("vkCreateFence"))?;
        Ok(commands)
    }

    pub(super) fn allocate(&self) -> Result<vk::CommandBuffer> {
        // SAFETY: the pool is live and used by one thread.
        unsafe { self.context.device.allocate_command_buffer(self.pool) }
            .map_err(failed("vkAllocateCommandBuffers"))
    }

    /// Resets the command buffer and records the commands of `fill`. The buffer must not be pending.
    pub(super) fn record(
        &self,
        command: vk::CommandBuffer,
        usage: vk::CommandBufferUsageFlags,
        fill: impl FnOnce(vk::CommandBuffer),
    ) -> Result<()> {
        let begin = vk::CommandBufferBeginInfo::default().flags(usage);
        // SAFETY: the buffer belongs to this pool and is not pending; beginning resets it.
        unsafe { self.context.device.begin_command_buffer(command, &begin) }
            .map_err(failed("vkBeginCommandBuffer"))?;
        fill(command);
        // SAFETY: recording was begun above.
        unsafe { self.context.device.end_command_buffer(command) }.map_err(failed("vkEndCommandBuffer"))
    }

    /// Records the commands of `fill`, submits them and waits for their completion.
    #[inline(never)]
    pub(super) fn run_once(&self, fill: &mut dyn FnMut(vk::CommandBuffer)) -> Result<()> {
        let command = self.allocate()?;
        self.record(command, vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT, fill)?;
        let done = self.context.submit(&[command], self.fence);
        // SAFETY: the buffer belongs to this pool; nothing is pending, not even after a lost device.
        unsafe { self.context.device.free_command_buffer(self.pool, command) };
        done
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        // SAFETY: the owner has waited for the commands; destroying the pool frees its buffers.
        unsafe {
            self.context.device.destroy_command_pool(self.pool);
            self.context.device.destroy_fence(self.fence);
        }
    }
}

/// A memory dependency: source and destination stages and accesses.
#[derive(Clone, Copy)]
pub(super) struct Dependency {
    from: (vk::PipelineStageFlags, vk::AccessFlags),
    to: (vk::PipelineStageFlags, vk::AccessFlags),
}

/// All memory dependencies of the backend.
pub(super) mod barrier {
    use super::Dependency;
    use ash::vk::{AccessFlags as A, PipelineStageFlags as P};

    const SHADER: A = A::from_raw(A::SHADER_READ.as_raw() | A::SHADER_WRITE.as_raw());
    const TRANSFER: A = A::from_raw(A::TRANSFER_READ.as_raw() | A::TRANSFER_WRITE.as_raw());

    /// Barrier between two dispatches.
    pub(in super::super) const COMPUTE_TO_COMPUTE: Dependency =
        Dependency { from: (P::COMPUTE_SHADER, A::SHADER_WRITE), to: (P::COMPUTE_SHADER, SHADER) };
    /// Barrier at the start of a run: after uploads, and after the previous run. Host writes to parameters and grids
    /// need no barrier, since submission makes them visible.
    pub(in super::super) const START: Dependency = Dependency {
        from: (
            P::from_raw(P::COMPUTE_SHADER.as_raw() | P::TRANSFER.as_raw()),
            A::from_raw(A::SHADER_WRITE.as_raw() | A::TRANSFER_WRITE.as_raw()),
        ),
        to: (P::COMPUTE_SHADER, A::from_raw(SHADER.as_raw() | A::UNIFORM_READ.as_raw())),
    };
    /// Barrier at the end of a run: makes outputs visible to copies and to the host, and states available for copies
    /// and fills.
    pub(in super::super) const END: Dependency = Dependency {
        from: (P::COMPUTE_SHADER, A::SHADER_WRITE),
        to: (
            P::from_raw(P::TRANSFER.as_raw() | P::HOST.as_raw()),
            A::from_raw(TRANSFER.as_raw() | A::HOST_READ.as_raw()),
        ),
    };
    /// Barrier before copies from memory that other devices or processes write.
    pub(in super::super) const OTHERS_TO_TRANSFER: Dependency =
        Dependency { from: (P::ALL_COMMANDS, A::MEMORY_WRITE), to: (P::TRANSFER, TRANSFER) };
    /// Barrier after copies to host memory.
    pub(in super::super) const TRANSFER_TO_HOST: Dependency =
        Dependency { from: (P::TRANSFER, A::TRANSFER_WRITE), to: (P::HOST, A::HOST_READ) };
    /// Barrier after fills and copies of buffers.
    pub(in super::super) const TRANSFER_TO_ALL: Dependency = Dependency {
        from: (P::TRANSFER, A::TRANSFER_WRITE),
        to: (
            P::from_raw(P::TRANSFER.as_raw() | P::COMPUTE_SHADER.as_raw() | P::HOST.as_raw()),
            A::from_raw(TRANSFER.as_raw() | SHADER.as_raw() | A::HOST_READ.as_raw()),
        ),
    };
}

pub(super) fn barrier(context: &Context, command: vk::CommandBuffer, dependency: Dependency) {
    let Dependency { from, to } = dependency;
    let memory = vk::MemoryBarrier::default().src_access_mask(from.1).dst_access_mask(to.1);
    // SAFETY: the command buffer is being recorded.
    unsafe { context.device.cmd_memory_barrier(command, from.0, to.0, &memory) };
}

/// A descriptor set to create: a dispatch, the kinds of its bindings, and their layout.
type NewSet<'a> = (&'a Dispatch, &'a [BindingKind], vk::DescriptorSetLayout);

/// Vulkan resource that a slot of a function stands for.
#[derive(Clone, Copy)]
pub(super) enum Resource {
    Buffer(vk::Buffer),
    Image(vk::ImageView),
}

/// The descriptor sets of a function: one per distinct combination of layout and bindings.
pub(super) struct Sets {
    context: Arc<Context>,
    pool: vk::DescriptorPool,
    /// Views of buffer ranges that are bound as texel buffers.
    views: Vec<vk::BufferView>,
    /// Descriptor set of each dispatch, in execution order.
    pub(super) by_dispatch: Vec<vk::DescriptorSet>,
}

impl Sets {
    /// Creates the descriptor sets. `slots` has the resource of each slot of the function.
    pub(super) fn new(
        context: &Arc<Context>,
        variant: &Variant,
        function: &Function,
        pipelines: &Pipelines,
        slots: &[Resource],
    ) -> Result<Sets> {
        let mut sets = Sets {
            context: context.clone(),
            pool: vk::DescriptorPool::null(),
            views: Vec::new(),
            by_dispatch: Vec::new(),
        };
        let mut keys = Vec::with_capacity(function.dispatches.len());
        let mut new_sets = Vec::with_capacity(function.dispatches.len());
        for dispatch in &function.dispatches {
            let pipeline =
                usize::try_from(dispatch.pipeline).ok().and_then(|index| variant.pipelines.get(index));
            let Some((pipeline, (compiled, layout))) = pipeline.zip(pipelines.get(dispatch.pipeline)) else {
                return Err(Error::invalid(
                    &function.name,
                    "a dispatch names a pipeline that does not exist",
                ));
            };
            let mut key = (compiled.layout as u64).to_le_bytes().to_vec();
            for (binding, kind) in dispatch.bindings.iter().zip(&pipeline.bindings) {
                if let BindingKind::Texels(element) = kind {
                    key.push(*element as u8);
                }
                key.extend(binding.slot.to_le_bytes());
                key.extend(binding.offset.to_le_bytes());
                key.extend(binding.size.to_le_bytes());
            }
            keys.push(order::fingerprint(&key));
            new_sets.push((dispatch, &*pipeline.bindings, layout.set));
        }
        // Sorting makes equal keys adjacent. The first of them gets a set, which the others reuse.
        let mut unique: Vec<NewSet<'_>> = Vec::new();
        let mut indices = vec![0; new_sets.len()];
        let mut n_bindings = 0;
        let mut last = None;
        for index in order::sorted_indices(keys.iter().copied()) {
            let (Some(key), Some(new_set)) = (keys.get(index), new_sets.get(index)) else { continue };
            if last != Some(key) {
                last = Some(key);
                n_bindings += new_set.1.len();
                unique.push(*new_set);
            }
            if let Some(slot) = indices.get_mut(index) {
                *slot = unique.len() - 1;
            }
        }
        if unique.is_empty() {
            return Ok(sets);
        }
        sets.create_pool(unique.len(), n_bindings)?;
        let mut created = Vec::with_capacity(unique.len());
        for (dispatch, kinds, layout) in unique {
            created.push(sets.write(dispatch, kinds, layout, slots)?);
        }
        sets.by_dispatch = indices.into_iter().filter_map(|index| created.get(index).copied()).collect();
        Ok(sets)
    }

    /// Creates the descriptor pool. Reserves descriptors of every type for all bindings, since descriptors are small.
    fn create_pool(&mut self, n_sets: usize, n_bindings: usize) -> Result<()> {
        let descriptor_count = u32::try_from(n_bindings.max(1)).unwrap_or(u32::MAX);
        let sizes = DESCRIPTOR_TYPES.map(|ty| vk::DescriptorPoolSize { ty, descriptor_count });
        let n_sets = u32::try_from(n_sets).unwrap_or(u32::MAX);
        let create = vk::DescriptorPoolCreateInfo::default().max_sets(n_sets).pool_sizes(&sizes);
        // SAFETY: the device is live and `create` outlives the call.
        let pool = unsafe { self.context.device.create_descriptor_pool(&create) };
        self.pool = pool.map_err(failed("vkCreateDescriptorPool"))?;
        Ok(())
    }

    fn write(
        &mut self,
        dispatch: &Dispatch,
        kinds: &[BindingKind],
        layout: vk::DescriptorSetLayout,
        slots: &[Resource],
    ) -> Result<vk::DescriptorSet> {
        let context = self.context.clone();
        let device = &context.device;
        // SAFETY: the pool has room for all sets that are allocated.
        let set = unsafe { device.allocate_descriptor_set(self.pool, layout) };
        let set = set.map_err(failed("vkAllocateDescriptorSets"))?;
        let mut infos = Vec::with_capacity(dispatch.bindings.len());
        for (binding, kind) in dispatch.bindings.iter().zip(kinds) {
            let slot = usize::try_from(binding.slot).ok().and_then(|index| slots.get(index));
            let slot =
                slot.ok_or_else(|| Error::invalid(&dispatch.label, "a binding's slot does not exist"))?;
            let mut info = Descriptor::default();
            match *slot {
                Resource::Image(image_view) => {
                    info.image = vk::DescriptorImageInfo {
                        image_view,
                        image_layout: vk::ImageLayout::GENERAL,
                        ..info.image
                    };
                }
                Resource::Buffer(buffer) => {
                    let (offset, range) = (binding.offset, binding.size);
                    info.buffer = vk::DescriptorBufferInfo { buffer, offset, range };
                    if let BindingKind::Texels(element) = kind {
                        let format = texel_format(*element);
                        let create =
                            vk::BufferViewCreateInfo { buffer, format, offset, range, ..Default::default() };
                        // SAFETY: the buffer is live, and the range was checked to lie in it.
                        info.view = unsafe { device.create_buffer_view(&create) }
                            .map_err(failed("vkCreateBufferView"))?;
                        self.views.push(info.view);
                    }
                }
            }
            infos.push(info);
        }
        let write = |((index, kind), info): ((u32, &BindingKind), &Descriptor)| vk::WriteDescriptorSet {
            dst_set: set,
            dst_binding: index,
            descriptor_count: 1,
            descriptor_type: descriptor_type(*kind),
            p_buffer_info: &raw const info.buffer,
            p_image_info: &raw const info.image,
            p_texel_buffer_view: &raw const info.view,
            ..Default::default()
        };
        let writes: Vec<_> = (0u32..).zip(kinds).zip(&infos).map(write).collect();
        // SAFETY: the set is new; `infos` outlives the call; ranges were checked to lie in their slots.
        unsafe { device.update_descriptor_sets(&writes) };
        Ok(set)
    }
}

/// Contents of the descriptor of one binding. The binding's kind determines which field is used.
#[derive(Default)]
struct Descriptor {
    buffer: vk::DescriptorBufferInfo,
    image: vk::DescriptorImageInfo,
    view: vk::BufferView,
}

/// Descriptor types that the backend uses.
const DESCRIPTOR_TYPES: [vk::DescriptorType; 5] = [
    vk::DescriptorType::STORAGE_BUFFER,
    vk::DescriptorType::UNIFORM_BUFFER,
    vk::DescriptorType::UNIFORM_TEXEL_BUFFER,
    vk::DescriptorType::SAMPLED_IMAGE,
    vk::DescriptorType::STORAGE_IMAGE,
];

impl Drop for Sets {
    fn drop(&mut self) {
        // SAFETY: the owner has waited for all submissions that use the sets; destroying the pool frees them.
        unsafe {
            self.context.device.destroy_descriptor_pool(self.pool);
            for view in &self.views {
                self.context.device.destroy_buffer_view(*view);
            }
        }
    }
}

/// Buffer with the grids of dispatches whose grid depends on symbols.
pub(super) struct Indirect<'a> {
    pub(super) buffer: Option<&'a Buffer>,
    /// Byte offset of the first grid in the buffer; each grid takes 12 bytes.
    pub(super) offset: u64,
}

/// Records all dispatches of a function. After every dispatch, calls `after_each` with the dispatch's index.
pub(super) fn record_function(
    context: &Context,
    command: vk::CommandBuffer,
    function: &Function,
    pipelines: &Pipelines,
    sets: &Sets,
    indirect: &Indirect<'_>,
    mut after_each: impl FnMut(usize),
) {
    let device = &context.device;
    let mut bound_pipeline = vk::Pipeline::null();
    let mut bound_set = (vk::DescriptorSet::null(), usize::MAX);
    let mut n_indirect = 0;
    barrier(context, command, barrier::START);
    for (index, (dispatch, set)) in function.dispatches.iter().zip(&sets.by_dispatch).enumerate() {
        let Some((compiled, layout)) = pipelines.get(dispatch.pipeline) else { continue };
        let grid = constant_grid(dispatch);
        if dispatch.barrier_before && index > 0 {
            barrier(context, command, barrier::COMPUTE_TO_COMPUTE);
        }
        // SAFETY: the command buffer is being recorded, and all handles outlive it. Constant grids were checked
        // against the device's limits; indirect grids are checked before they are written.
        unsafe {
            if bound_pipeline != compiled.raw {
                device.cmd_bind_pipeline(command, compiled.raw);
                bound_pipeline = compiled.raw;
            }
            if bound_set != (*set, compiled.layout) {
                device.cmd_bind_descriptor_set(command, layout.pipeline, *set);
                bound_set = (*set, compiled.layout);
            }
            match (grid, indirect.buffer) {
                (Some(grid), _) if !grid.contains(&0) => device.cmd_dispatch(command, grid),
                (Some(_), _) | (None, None) => {}
                (None, Some(buffer)) => {
                    device.cmd_dispatch_indirect(command, buffer.raw, indirect.offset + 12 * n_indirect);
                    n_indirect += 1;
                }
            }
        }
        after_each(index);
    }
    barrier(context, command, barrier::END);
}
