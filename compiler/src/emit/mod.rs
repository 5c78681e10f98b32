//! Emitting shaders. The only place that knows naga and spirv-tools.

pub mod spirv;
mod texels;
