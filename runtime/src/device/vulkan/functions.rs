//! Vulkan functions of an instance (module `instance`) and of a device, loaded by name.
//!
//! The crate `ash` provides types and signatures. The function table of `ash` has every function of every version with
//! a message for its absence, which would be a tenth of a program that embeds the runtime. The table of this module has
//! only the functions that the backend calls. Methods have the parameters of the Vulkan functions without allocation
//! callbacks, and the safety requirements of the Vulkan functions of the same name.

#[cfg(feature = "statistics")]
pub(super) mod executables;
pub(super) mod instance;

use crate::error::{Error, Result};
use ash::prelude::VkResult;
use ash::vk;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::null;

/// A Vulkan device handle and the functions of the device.
pub(super) struct Device {
    handle: vk::Device,
    functions: Functions,
}

macro_rules! functions {
    ($table:ident: $($field:ident: $signature:ident = $name:literal)*) => {
        #[repr(C)]
        struct $table {
            $($field: vk::$signature,)*
        }

        impl $table {
            fn load(find: &dyn Fn(&'static CStr) -> Option<Function>) -> Result<$table> {
                const N: usize = [$($name),*].len();
                let mut found: [Function; N] = [unloaded; N];
                // All names in one string take less space than a pointer to each name.
                load_functions(concat!($($name, "\0"),*), find, &mut found)?;
                // SAFETY: the table consists of N function pointers in the same order, and each function has
                // the signature of its field.
                Ok(unsafe { std::mem::transmute::<[Function; N], $table>(found) })
            }
        }
    };
}
use functions;

/// Pointer to a Vulkan function whose signature is not known yet.
type Function = unsafe extern "system" fn();

functions! {
    Functions:
    destroy_device: PFN_vkDestroyDevice = "vkDestroyDevice"
    get_device_queue: PFN_vkGetDeviceQueue = "vkGetDeviceQueue"
    device_wait_idle: PFN_vkDeviceWaitIdle = "vkDeviceWaitIdle"
    queue_submit: PFN_vkQueueSubmit = "vkQueueSubmit"
    allocate_memory: PFN_vkAllocateMemory = "vkAllocateMemory"
    free_memory: PFN_vkFreeMemory = "vkFreeMemory"
    map_memory: PFN_vkMapMemory = "vkMapMemory"
    invalidate_memory: PFN_vkInvalidateMappedMemoryRanges = "vkInvalidateMappedMemoryRanges"
    create_buffer: PFN_vkCreateBuffer = "vkCreateBuffer"
    destroy_buffer: PFN_vkDestroyBuffer = "vkDestroyBuffer"
    get_buffer_memory_requirements: PFN_vkGetBufferMemoryRequirements = "vkGetBufferMemoryRequirements"
    bind_buffer_memory: PFN_vkBindBufferMemory = "vkBindBufferMemory"
    create_image: PFN_vkCreateImage = "vkCreateImage"
    destroy_image: PFN_vkDestroyImage = "vkDestroyImage"
    get_image_memory_requirements: PFN_vkGetImageMemoryRequirements = "vkGetImageMemoryRequirements"
    bind_image_memory: PFN_vkBindImageMemory = "vkBindImageMemory"
    create_image_view: PFN_vkCreateImageView = "vkCreateImageView"
    destroy_image_view: PFN_vkDestroyImageView = "vkDestroyImageView"
    create_buffer_view: PFN_vkCreateBufferView = "vkCreateBufferView"
    destroy_buffer_view: PFN_vkDestroyBufferView = "vkDestroyBufferView"
    cmd_copy_buffer_to_image: PFN_vkCmdCopyBufferToImage = "vkCmdCopyBufferToImage"
    create_fence: PFN_vkCreateFence = "vkCreateFence"
    destroy_fence: PFN_vkDestroyFence = "vkDestroyFence"
    wait_for_fences: PFN_vkWaitForFences = "vkWaitForFences"
    reset_fences: PFN_vkResetFences = "vkResetFences"
    create_query_pool: PFN_vkCreateQueryPool = "vkCreateQueryPool"
    destroy_query_pool: PFN_vkDestroyQueryPool = "vkDestroyQueryPool"
    get_query_pool_results: PFN_vkGetQueryPoolResults = "vkGetQueryPoolResults"
    create_shader_module: PFN_vkCreateShaderModule = "vkCreateShaderModule"
    destroy_shader_module: PFN_vkDestroyShaderModule = "vkDestroyShaderModule"
    create_pipeline_cache: PFN_vkCreatePipelineCache = "vkCreatePipelineCache"
    destroy_pipeline_cache: PFN_vkDestroyPipelineCache = "vkDestroyPipelineCache"
    get_pipeline_cache_data: PFN_vkGetPipelineCacheData = "vkGetPipelineCacheData"
    create_compute_pipelines: PFN_vkCreateComputePipelines = "vkCreateComputePipelines"
    destroy_pipeline: PFN_vkDestroyPipeline = "vkDestroyPipeline"
    create_pipeline_layout: PFN_vkCreatePipelineLayout = "vkCreatePipelineLayout"
    destroy_pipeline_layout: PFN_vkDestroyPipelineLayout = "vkDestroyPipelineLayout"
    create_descriptor_set_layout: PFN_vkCreateDescriptorSetLayout = "vkCreateDescriptorSetLayout"
    destroy_descriptor_set_layout: PFN_vkDestroyDescriptorSetLayout = "vkDestroyDescriptorSetLayout"
    create_descriptor_pool: PFN_vkCreateDescriptorPool = "vkCreateDescriptorPool"
    destroy_descriptor_pool: PFN_vkDestroyDescriptorPool = "vkDestroyDescriptorPool"
    allocate_descriptor_sets: PFN_vkAllocateDescriptorSets = "vkAllocateDescriptorSets"
    update_descriptor_sets: PFN_vkUpdateDescriptorSets = "vkUpdateDescriptorSets"
    create_command_pool: PFN_vkCreateCommandPool = "vkCreateCommandPool"
    destroy_command_pool: PFN_vkDestroyCommandPool = "vkDestroyCommandPool"
    allocate_command_buffers: PFN_vkAllocateCommandBuffers = "vkAllocateCommandBuffers"
    free_command_buffers: PFN_vkFreeCommandBuffers = "vkFreeCommandBuffers"
    begin_command_buffer: PFN_vkBeginCommandBuffer = "vkBeginCommandBuffer"
    end_command_buffer: PFN_vkEndCommandBuffer = "vkEndCommandBuffer"
    cmd_bind_pipeline: PFN_vkCmdBindPipeline = "vkCmdBindPipeline"
    cmd_bind_descriptor_sets: PFN_vkCmdBindDescriptorSets = "vkCmdBindDescriptorSets"
    cmd_dispatch: PFN_vkCmdDispatch = "vkCmdDispatch"
    cmd_dispatch_indirect: PFN_vkCmdDispatchIndirect = "vkCmdDispatchIndirect"
    cmd_copy_buffer: PFN_vkCmdCopyBuffer = "vkCmdCopyBuffer"
    cmd_fill_buffer: PFN_vkCmdFillBuffer = "vkCmdFillBuffer"
    cmd_pipeline_barrier: PFN_vkCmdPipelineBarrier = "vkCmdPipelineBarrier"
    cmd_reset_query_pool: PFN_vkCmdResetQueryPool = "vkCmdResetQueryPool"
    cmd_write_timestamp: PFN_vkCmdWriteTimestamp = "vkCmdWriteTimestamp"
}

macro_rules! creators {
    ($($name:ident: $info:ident => $object:ident)*) => {
        impl Device {
            $(pub(super) unsafe fn $name(&self, info: &vk::$info<'_>) -> VkResult<vk::$object> {
                // SAFETY: the caller fulfills Vulkan's conditions, here and below.
                call_output(|object| unsafe { (self.functions.$name)(self.handle, info, null(), object) })
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
    create_image: ImageCreateInfo => Image
    create_image_view: ImageViewCreateInfo => ImageView
    create_buffer_view: BufferViewCreateInfo => BufferView
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
    destroy_image: Image
    destroy_image_view: ImageView
    destroy_buffer_view: BufferView
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
    /// Loads the functions of a device. `handle` is a new device, and `find` returns its functions by name.
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
        call_output(|pointer| unsafe {
            (self.functions.map_memory)(self.handle, memory, 0, all, flags, pointer)
        })
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
        offset: u64,
    ) -> VkResult<()> {
        // SAFETY: as above.
        unsafe { (self.functions.bind_buffer_memory)(self.handle, buffer, memory, offset) }.result()
    }

    pub(super) unsafe fn get_image_memory_requirements(&self, image: vk::Image) -> vk::MemoryRequirements {
        let mut requirements = vk::MemoryRequirements::default();
        // SAFETY: as above.
        unsafe {
            (self.functions.get_image_memory_requirements)(self.handle, image, &raw mut requirements);
        };
        requirements
    }

    pub(super) unsafe fn bind_image_memory(
        &self,
        image: vk::Image,
        memory: vk::DeviceMemory,
        offset: u64,
    ) -> VkResult<()> {
        // SAFETY: as above.
        unsafe { (self.functions.bind_image_memory)(self.handle, image, memory, offset) }.result()
    }

    /// Waits for a fence. Polls for one millisecond, which is enough for runs of small models, and then blocks: waking
    /// up from blocking takes tens of microseconds.
    pub(super) unsafe fn wait_for_fence(&self, fence: vk::Fence) -> VkResult<()> {
        let start = std::time::Instant::now();
        loop {
            let timeout_ns = if start.elapsed().as_micros() < 1000 { 0 } else { u64::MAX };
            // SAFETY: as above.
            let result = unsafe {
                (self.functions.wait_for_fences)(self.handle, 1, &raw const fence, vk::TRUE, timeout_ns)
            };
            if result != vk::Result::TIMEOUT {
                return result.result();
            }
        }
    }

    pub(super) unsafe fn reset_fence(&self, fence: vk::Fence) -> VkResult<()> {
        // SAFETY: as above.
        unsafe { (self.functions.reset_fences)(self.handle, 1, &raw const fence) }.result()
    }

    /// Waits for the results of all queries of a pool, and writes them to `values`.
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
        // SAFETY: as above; without a data pointer the size is returned.
        unsafe { get(self.handle, cache, &raw mut size, std::ptr::null_mut()) }.result()?;
        let mut data = vec![0u8; size];
        // SAFETY: as above; `size` is the capacity of `data`.
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
        call_output(|pipeline| unsafe { create(self.handle, cache, 1, info, null(), pipeline) })
    }

    pub(super) unsafe fn allocate_descriptor_set(
        &self,
        pool: vk::DescriptorPool,
        layout: vk::DescriptorSetLayout,
    ) -> VkResult<vk::DescriptorSet> {
        let layouts = [layout];
        let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&layouts);
        // SAFETY: as above.
        call_output(|set| unsafe {
            (self.functions.allocate_descriptor_sets)(self.handle, &raw const info, set)
        })
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
        call_output(|buffer| unsafe {
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

    /// Records a command that fills a range of a buffer with zeros.
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

    /// Records barriers that transition images from an undefined layout to GENERAL, before copies and shaders.
    pub(super) unsafe fn cmd_image_barriers(
        &self,
        buffer: vk::CommandBuffer,
        barriers: &[vk::ImageMemoryBarrier<'_>],
    ) {
        let (flags, place) = (vk::DependencyFlags::empty(), self.functions.cmd_pipeline_barrier);
        let from = vk::PipelineStageFlags::TOP_OF_PIPE;
        let to = vk::PipelineStageFlags::TRANSFER | vk::PipelineStageFlags::COMPUTE_SHADER;
        // SAFETY: as above.
        unsafe {
            place(buffer, from, to, flags, 0, null(), 0, null(), count(barriers), barriers.as_ptr());
        };
    }

    /// Records a copy from a buffer to an image, which has the layout GENERAL.
    pub(super) unsafe fn cmd_copy_buffer_to_image(
        &self,
        buffer: vk::CommandBuffer,
        from: vk::Buffer,
        to: vk::Image,
        copy: vk::BufferImageCopy,
    ) {
        let layout = vk::ImageLayout::GENERAL;
        // SAFETY: as above.
        unsafe { (self.functions.cmd_copy_buffer_to_image)(buffer, from, to, layout, 1, &raw const copy) };
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

    /// Records a command that writes the time at which all earlier commands have completed.
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

/// Finds Vulkan functions by name and stores their pointers in `found`. `names` is a concatenation of zero-terminated
/// names.
fn load_functions(
    names: &'static str,
    find: &dyn Fn(&'static CStr) -> Option<Function>,
    found: &mut [Function],
) -> Result<()> {
    let mut rest = names.as_bytes();
    for slot in found {
        let name = CStr::from_bytes_until_nul(rest).unwrap_or_default();
        *slot = find(name).ok_or_else(|| missing_function(name))?;
        rest = rest.get(name.count_bytes() + 1..).unwrap_or_default();
    }
    Ok(())
}

/// Placeholder for a Vulkan function that is not loaded yet; never called.
extern "system" fn unloaded() {}

/// Calls a Vulkan function and returns the value that the function wrote through its output pointer, if the call
/// succeeded.
fn call_output<T>(call: impl FnOnce(*mut T) -> vk::Result) -> VkResult<T> {
    let mut value = MaybeUninit::uninit();
    call(value.as_mut_ptr()).result()?;
    // SAFETY: a function that succeeds has initialized its result.
    Ok(unsafe { value.assume_init() })
}

#[inline(never)]
fn missing_function(name: &CStr) -> Error {
    Error::Driver { call: "loading", code: format!("the driver lacks {name:?}") }
}

fn count<T>(list: &[T]) -> u32 {
    u32::try_from(list.len()).unwrap_or(u32::MAX)
}
