//! The functions of an instance (`instance`) and of a device, loaded by name.
//!
//! `ash` brings the types and signatures; its own table holds every function of every version, each with a
//! message for the case that it is missing, which would be a tenth of a program that embeds the runtime. This
//! one holds what the backend calls. Methods take what Vulkan takes, less the allocation callbacks; all are
//! unsafe under the same conditions as the functions that they are named for.

pub(super) mod instance;

use crate::error::{Error, Result};
use ash::prelude::VkResult;
use ash::vk;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::null;

/// A device and its functions.
pub(super) struct Device {
    handle: vk::Device,
    functions: Functions,
}

macro_rules! functions {
    ($table:ident: $($field:ident: $signature:ident = $name:literal)*) => {
        struct $table {
            $($field: vk::$signature,)*
        }

        impl $table {
            fn load(find: &dyn Fn(&'static CStr) -> Option<Function>) -> Result<$table> {
                let mut missing = None;
                let mut get = |name| {
                    find(name).unwrap_or_else(|| {
                        missing = Some(name);
                        nothing
                    })
                };
                // SAFETY: the function of this name has this signature.
                let table = unsafe {
                    $table { $($field: std::mem::transmute::<Function, vk::$signature>(get($name)),)* }
                };
                match missing {
                    None => Ok(table),
                    Some(name) => Err(lacking(name)),
                }
            }
        }
    };
}
use functions;

/// A function before its signature is known.
type Function = unsafe extern "system" fn();

functions! {
    Functions:
    destroy_device: PFN_vkDestroyDevice = c"vkDestroyDevice"
    get_device_queue: PFN_vkGetDeviceQueue = c"vkGetDeviceQueue"
    device_wait_idle: PFN_vkDeviceWaitIdle = c"vkDeviceWaitIdle"
    queue_submit: PFN_vkQueueSubmit = c"vkQueueSubmit"
    allocate_memory: PFN_vkAllocateMemory = c"vkAllocateMemory"
    free_memory: PFN_vkFreeMemory = c"vkFreeMemory"
    map_memory: PFN_vkMapMemory = c"vkMapMemory"
    invalidate_memory: PFN_vkInvalidateMappedMemoryRanges = c"vkInvalidateMappedMemoryRanges"
    create_buffer: PFN_vkCreateBuffer = c"vkCreateBuffer"
    destroy_buffer: PFN_vkDestroyBuffer = c"vkDestroyBuffer"
    get_buffer_memory_requirements: PFN_vkGetBufferMemoryRequirements = c"vkGetBufferMemoryRequirements"
    bind_buffer_memory: PFN_vkBindBufferMemory = c"vkBindBufferMemory"
    create_fence: PFN_vkCreateFence = c"vkCreateFence"
    destroy_fence: PFN_vkDestroyFence = c"vkDestroyFence"
    wait_for_fences: PFN_vkWaitForFences = c"vkWaitForFences"
    reset_fences: PFN_vkResetFences = c"vkResetFences"
    create_query_pool: PFN_vkCreateQueryPool = c"vkCreateQueryPool"
    destroy_query_pool: PFN_vkDestroyQueryPool = c"vkDestroyQueryPool"
    get_query_pool_results: PFN_vkGetQueryPoolResults = c"vkGetQueryPoolResults"
    create_shader_module: PFN_vkCreateShaderModule = c"vkCreateShaderModule"
    destroy_shader_module: PFN_vkDestroyShaderModule = c"vkDestroyShaderModule"
    create_pipeline_cache: PFN_vkCreatePipelineCache = c"vkCreatePipelineCache"
    destroy_pipeline_cache: PFN_vkDestroyPipelineCache = c"vkDestroyPipelineCache"
    get_pipeline_cache_data: PFN_vkGetPipelineCacheData = c"vkGetPipelineCacheData"
    create_compute_pipelines: PFN_vkCreateComputePipelines = c"vkCreateComputePipelines"
    destroy_pipeline: PFN_vkDestroyPipeline = c"vkDestroyPipeline"
    create_pipeline_layout: PFN_vkCreatePipelineLayout = c"vkCreatePipelineLayout"
    destroy_pipeline_layout: PFN_vkDestroyPipelineLayout = c"vkDestroyPipelineLayout"
    create_descriptor_set_layout: PFN_vkCreateDescriptorSetLayout = c"vkCreateDescriptorSetLayout"
    destroy_descriptor_set_layout: PFN_vkDestroyDescriptorSetLayout = c"vkDestroyDescriptorSetLayout"
    create_descriptor_pool: PFN_vkCreateDescriptorPool = c"vkCreateDescriptorPool"
    destroy_descriptor_pool: PFN_vkDestroyDescriptorPool = c"vkDestroyDescriptorPool"
    allocate_descriptor_sets: PFN_vkAllocateDescriptorSets = c"vkAllocateDescriptorSets"
    update_descriptor_sets: PFN_vkUpdateDescriptorSets = c"vkUpdateDescriptorSets"
    create_command_pool: PFN_vkCreateCommandPool = c"vkCreateCommandPool"
    destroy_command_pool: PFN_vkDestroyCommandPool = c"vkDestroyCommandPool"
    allocate_command_buffers: PFN_vkAllocateCommandBuffers = c"vkAllocateCommandBuffers"
    free_command_buffers: PFN_vkFreeCommandBuffers = c"vkFreeCommandBuffers"
    begin_command_buffer: PFN_vkBeginCommandBuffer = c"vkBeginCommandBuffer"
    end_command_buffer: PFN_vkEndCommandBuffer = c"vkEndCommandBuffer"
    cmd_bind_pipeline: PFN_vkCmdBindPipeline = c"vkCmdBindPipeline"
    cmd_bind_descriptor_sets: PFN_vkCmdBindDescriptorSets = c"vkCmdBindDescriptorSets"
    cmd_dispatch: PFN_vkCmdDispatch = c"vkCmdDispatch"
    cmd_dispatch_indirect: PFN_vkCmdDispatchIndirect = c"vkCmdDispatchIndirect"
    cmd_copy_buffer: PFN_vkCmdCopyBuffer = c"vkCmdCopyBuffer"
    cmd_fill_buffer: PFN_vkCmdFillBuffer = c"vkCmdFillBuffer"
    cmd_pipeline_barrier: PFN_vkCmdPipelineBarrier = c"vkCmdPipelineBarrier"
    cmd_reset_query_pool: PFN_vkCmdResetQueryPool = c"vkCmdResetQueryPool"
    cmd_write_timestamp: PFN_vkCmdWriteTimestamp = c"vkCmdWriteTimestamp"
}

macro_rules! creators {
    ($($name:ident: $info:ident => $object:ident)*) => {
        impl Device {
            $(pub(super) unsafe fn $name(&self, info: &vk::$info<'_>) -> VkResult<vk::$object> {
                // SAFETY: the caller keeps Vulkan's conditions, here and below.
                made(|object| unsafe { (self.functions.$name)(self.handle, info, null(), object) })
            })*
        }
    };
}

macro_rules! destroyers {
    ($($name:ident: $object:ident)*) => {
        impl Device {
            $(pub(super) unsafe fn $name(&self, object: vk::$object) {
                // SAFETY: as above.
                unsafe { (self.functions.$name)(self.handle, object, null()) };
            })*
        }
    };
}

creators! {
    allocate_memory: MemoryAllocateInfo => DeviceMemory
    create_buffer: BufferCreateInfo => Buffer
    create_fence: FenceCreateInfo => Fence
    create_query_pool: QueryPoolCreateInfo => QueryPool
    create_shader_module: ShaderModuleCreateInfo => ShaderModule
    create_pipeline_cache: PipelineCacheCreateInfo => PipelineCache
    create_pipeline_layout: PipelineLayoutCreateInfo => PipelineLayout
    create_descriptor_set_layout: DescriptorSetLayoutCreateInfo => DescriptorSetLayout
    create_descriptor_pool: DescriptorPoolCreateInfo => DescriptorPool
    create_command_pool: CommandPoolCreateInfo => CommandPool
}

destroyers! {
    free_memory: DeviceMemory
    destroy_buffer: Buffer
    destroy_fence: Fence
    destroy_query_pool: QueryPool
    destroy_shader_module: ShaderModule
    destroy_pipeline_cache: PipelineCache
    destroy_pipeline: Pipeline
    destroy_pipeline_layout: PipelineLayout
    destroy_descriptor_set_layout: DescriptorSetLayout
    destroy_descriptor_pool: DescriptorPool
    destroy_command_pool: CommandPool
}

impl Device {
    /// `handle` is a new device, and `find` gives its functions.
    unsafe fn load(handle: vk::Device, find: &dyn Fn(&'static CStr) -> Option<Function>) -> Result<Device> {
        Ok(Device { handle, functions: Functions::load(find)? })
    }

    pub(super) unsafe fn destroy_device(&self) {
        // SAFETY: as above.
        unsafe { (self.functions.destroy_device)(self.handle, null()) };
    }

    pub(super) unsafe fn get_device_queue(&self, family: u32, index: u32) -> vk::Queue {
        let mut queue = vk::Queue::null();
        // SAFETY: as above.
        unsafe { (self.functions.get_device_queue)(self.handle, family, index, &raw mut queue) };
        queue
    }

    pub(super) unsafe fn device_wait_idle(&self) -> VkResult<()> {
        // SAFETY: as above.
        unsafe { (self.functions.device_wait_idle)(self.handle) }.result()
    }

    pub(super) unsafe fn queue_submit(
        &self,
        queue: vk::Queue,
        submits: &[vk::SubmitInfo<'_>],
        fence: vk::Fence,
    ) -> VkResult<()> {
        // SAFETY: as above.
        unsafe { (self.functions.queue_submit)(queue, count(submits), submits.as_ptr(), fence) }.result()
    }

    pub(super) unsafe fn map_memory(&self, memory: vk::DeviceMemory) -> VkResult<*mut u8> {
        let (all, flags) = (vk::WHOLE_SIZE, vk::MemoryMapFlags::empty());
        // SAFETY: as above.
        made(|pointer| unsafe { (self.functions.map_memory)(self.handle, memory, 0, all, flags, pointer) })
            .map(<*mut std::ffi::c_void>::cast)
    }

    pub(super) unsafe fn invalidate_memory(&self, ranges: &[vk::MappedMemoryRange<'_>]) -> VkResult<()> {
        // SAFETY: as above.
        unsafe { (self.functions.invalidate_memory)(self.handle, count(ranges), ranges.as_ptr()) }.result()
    }

    pub(super) unsafe fn get_buffer_memory_requirements(&self, buffer: vk::Buffer) -> vk::MemoryRequirements {
        let mut requirements = vk::MemoryRequirements::default();
        // SAFETY: as above.
        unsafe {
            (self.functions.get_buffer_memory_requirements)(self.handle, buffer, &raw mut requirements);
        };
        requirements
    }

    pub(super) unsafe fn bind_buffer_memory(
        &self,
        buffer: vk::Buffer,
        memory: vk::DeviceMemory,
    ) -> VkResult<()> {
        // SAFETY: as above.
        unsafe { (self.functions.bind_buffer_memory)(self.handle, buffer, memory, 0) }.result()
    }

    pub(super) unsafe fn wait_for_fence(&self, fence: vk::Fence) -> VkResult<()> {
        // SAFETY: as above.
        unsafe { (self.functions.wait_for_fences)(self.handle, 1, &raw const fence, vk::TRUE, u64::MAX) }
            .result()
    }

    pub(super) unsafe fn reset_fence(&self, fence: vk::Fence) -> VkResult<()> {
        // SAFETY: as above.
        unsafe { (self.functions.reset_fences)(self.handle, 1, &raw const fence) }.result()
    }

    /// Waits for the values of all queries, from the first on.
    pub(super) unsafe fn get_query_pool_results(
        &self,
        pool: vk::QueryPool,
        values: &mut [u64],
    ) -> VkResult<()> {
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        let (n_queries, size, pointer) = (count(values), size_of_val(values), values.as_mut_ptr().cast());
        let get = self.functions.get_query_pool_results;
        // SAFETY: as above.
        unsafe { get(self.handle, pool, 0, n_queries, size, pointer, size_of::<u64>() as u64, flags) }
            .result()
    }

    pub(super) unsafe fn get_pipeline_cache_data(&self, cache: vk::PipelineCache) -> VkResult<Vec<u8>> {
        let get = self.functions.get_pipeline_cache_data;
        let mut size = 0;
        // SAFETY: as above; without a pointer the size is returned.
        unsafe { get(self.handle, cache, &raw mut size, std::ptr::null_mut()) }.result()?;
        let mut data = vec![0u8; size];
        // SAFETY: as above; `size` says how much room there is.
        unsafe { get(self.handle, cache, &raw mut size, data.as_mut_ptr().cast()) }.result()?;
        data.truncate(size);
        Ok(data)
    }

    pub(super) unsafe fn create_compute_pipeline(
        &self,
        cache: vk::PipelineCache,
        info: &vk::ComputePipelineCreateInfo<'_>,
    ) -> VkResult<vk::Pipeline> {
        let create = self.functions.create_compute_pipelines;
        // SAFETY: as above.
        made(|pipeline| unsafe { create(self.handle, cache, 1, info, null(), pipeline) })
    }

    pub(super) unsafe fn allocate_descriptor_set(
        &self,
        pool: vk::DescriptorPool,
        layout: vk::DescriptorSetLayout,
    ) -> VkResult<vk::DescriptorSet> {
        let layouts = [layout];
        let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&layouts);
        // SAFETY: as above.
        made(|set| unsafe { (self.functions.allocate_descriptor_sets)(self.handle, &raw const info, set) })
    }

    pub(super) unsafe fn update_descriptor_sets(&self, writes: &[vk::WriteDescriptorSet<'_>]) {
        let update = self.functions.update_descriptor_sets;
        // SAFETY: as above.
        unsafe { update(self.handle, count(writes), writes.as_ptr(), 0, null()) };
    }

    pub(super) unsafe fn allocate_command_buffer(
        &self,
        pool: vk::CommandPool,
    ) -> VkResult<vk::CommandBuffer> {
        let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
        // SAFETY: as above.
        made(|buffer| unsafe {
            (self.functions.allocate_command_buffers)(self.handle, &raw const info, buffer)
        })
    }

    pub(super) unsafe fn free_command_buffer(&self, pool: vk::CommandPool, buffer: vk::CommandBuffer) {
        // SAFETY: as above.
        unsafe { (self.functions.free_command_buffers)(self.handle, pool, 1, &raw const buffer) };
    }

    pub(super) unsafe fn begin_command_buffer(
        &self,
        buffer: vk::CommandBuffer,
        info: &vk::CommandBufferBeginInfo<'_>,
    ) -> VkResult<()> {
        // SAFETY: as above.
        unsafe { (self.functions.begin_command_buffer)(buffer, info) }.result()
    }

    pub(super) unsafe fn end_command_buffer(&self, buffer: vk::CommandBuffer) -> VkResult<()> {
        // SAFETY: as above.
        unsafe { (self.functions.end_command_buffer)(buffer) }.result()
    }

    pub(super) unsafe fn cmd_bind_pipeline(&self, buffer: vk::CommandBuffer, pipeline: vk::Pipeline) {
        // SAFETY: as above.
        unsafe { (self.functions.cmd_bind_pipeline)(buffer, vk::PipelineBindPoint::COMPUTE, pipeline) };
    }

    pub(super) unsafe fn cmd_bind_descriptor_set(
        &self,
        buffer: vk::CommandBuffer,
        layout: vk::PipelineLayout,
        set: vk::DescriptorSet,
    ) {
        let (point, bind) = (vk::PipelineBindPoint::COMPUTE, self.functions.cmd_bind_descriptor_sets);
        // SAFETY: as above.
        unsafe { bind(buffer, point, layout, 0, 1, &raw const set, 0, null()) };
    }

    pub(super) unsafe fn cmd_dispatch(&self, buffer: vk::CommandBuffer, [x, y, z]: [u32; 3]) {
        // SAFETY: as above.
        unsafe { (self.functions.cmd_dispatch)(buffer, x, y, z) };
    }

    pub(super) unsafe fn cmd_dispatch_indirect(
        &self,
        buffer: vk::CommandBuffer,
        grids: vk::Buffer,
        offset: u64,
    ) {
        // SAFETY: as above.
        unsafe { (self.functions.cmd_dispatch_indirect)(buffer, grids, offset) };
    }

    pub(super) unsafe fn cmd_copy_buffer(
        &self,
        buffer: vk::CommandBuffer,
        from: vk::Buffer,
        to: vk::Buffer,
        copy: vk::BufferCopy,
    ) {
        // SAFETY: as above.
        unsafe { (self.functions.cmd_copy_buffer)(buffer, from, to, 1, &raw const copy) };
    }

    /// Fills a range with zeros.
    pub(super) unsafe fn cmd_zero_buffer(
        &self,
        buffer: vk::CommandBuffer,
        target: vk::Buffer,
        offset: u64,
        size: u64,
    ) {
        // SAFETY: as above.
        unsafe { (self.functions.cmd_fill_buffer)(buffer, target, offset, size, 0) };
    }

    pub(super) unsafe fn cmd_memory_barrier(
        &self,
        buffer: vk::CommandBuffer,
        from: vk::PipelineStageFlags,
        to: vk::PipelineStageFlags,
        barrier: &vk::MemoryBarrier<'_>,
    ) {
        let (flags, place) = (vk::DependencyFlags::empty(), self.functions.cmd_pipeline_barrier);
        // SAFETY: as above.
        unsafe { place(buffer, from, to, flags, 1, barrier, 0, null(), 0, null()) };
    }

    pub(super) unsafe fn cmd_reset_query_pool(
        &self,
        buffer: vk::CommandBuffer,
        pool: vk::QueryPool,
        n_queries: u32,
    ) {
        // SAFETY: as above.
        unsafe { (self.functions.cmd_reset_query_pool)(buffer, pool, 0, n_queries) };
    }

    /// Writes the time at which everything before has ended.
    pub(super) unsafe fn cmd_write_timestamp(
        &self,
        buffer: vk::CommandBuffer,
        pool: vk::QueryPool,
        query: u32,
    ) {
        let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: as above.
        unsafe { (self.functions.cmd_write_timestamp)(buffer, stage, pool, query) };
    }
}

/// Stands for a function that is missing, while the others are looked for; it is never called.
extern "system" fn nothing() {}

/// What a function wrote behind the pointer it was given, if it succeeded.
fn made<T>(call: impl FnOnce(*mut T) -> vk::Result) -> VkResult<T> {
    let mut value = MaybeUninit::uninit();
    call(value.as_mut_ptr()).result()?;
    // SAFETY: a function that succeeds has written its result.
    Ok(unsafe { value.assume_init() })
}

#[inline(never)]
fn lacking(name: &CStr) -> Error {
    Error::Vulkan { call: "loading", code: format!("the driver lacks {name:?}") }
}

fn count<T>(list: &[T]) -> u32 {
    u32::try_from(list.len()).unwrap_or(u32::MAX)
}
