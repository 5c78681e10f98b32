//! The wgpu backend. It runs bundles for WebGPU on Vulkan, Metal, DirectX 12 or OpenGL.
//!
//! `adapter` finds devices and queries their properties, `context` opens a device and collects its errors, `memory`
//! creates buffers and textures and fills weights, `pipelines` creates pipelines on several threads, `frame` has the
//! resources of a run in flight, and `replay` submits runs. wgpu translates the shaders at load. The commands of each
//! run are encoded anew.

mod adapter;
mod context;
mod frame;
mod memory;
mod pipelines;
mod replay;

pub use adapter::adapters;
pub(crate) use context::{Candidate, Context};
pub(crate) use memory::ErasedRange;
pub(crate) use replay::Replayer;
