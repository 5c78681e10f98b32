//! Reports of a driver about compiled pipelines: time to compile, registers, spills, instructions.
//!
//! Vulkan drivers report statistics through the extension `VK_KHR_pipeline_executable_properties`. Names and units of the
//! statistics are the driver's own. Nothing is executed on the device.

pub use crate::device::vulkan::PipelineCompiler;

/// Report of a driver about a compiled pipeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PipelineStatistics {
    /// Time of `vkCreateComputePipelines`, in milliseconds.
    pub compile_ms: f64,
    /// Programs that the driver compiled the pipeline to: usually one. Empty if the driver reports none.
    pub executables: Vec<Executable>,
}

/// A program that a driver compiled a pipeline to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Executable {
    pub name: String,
    /// Number of invocations per subgroup; 0 if the driver does not report it.
    pub subgroup_size: u32,
    /// Statistics under the driver's names, in the driver's order. A boolean is 0 or 1.
    pub statistics: Vec<(String, f64)>,
    /// Names and texts of internal representations, such as the instructions. Empty unless requested.
    pub texts: Vec<(String, String)>,
}
