//! The backend through `wgpu`: bundles for WebGPU on Vulkan, Metal, DirectX 12 or OpenGL, whichever wgpu reaches.
//!
//! `adapter` finds devices and says what they can do, `context` opens one and keeps what goes wrong on it, `memory` makes
//! buffers and textures and fills weights, `pipelines` creates pipelines on threads, `frame` has what a run in flight
//! needs, and `replay` submits. wgpu translates the shaders at load, and encodes each run anew.

mod adapter;
mod context;
mod frame;
mod memory;
mod pipelines;
mod replay;

pub use adapter::adapters;
pub(crate) use context::{Candidate, Context};
pub(crate) use memory::Range;
pub(crate) use replay::Replayer;
