//! `model.onnx | config.json + *.safetensors -> import -> Graph -> passes -> Graph' -> layouts -> decompose -> plan -> Plan -> specialize -> WGSL -> emit (naga, spirv-tools) -> Artifacts -> bundle`
//!
//! The ahead-of-time compiler of driftc. A model goes in, a bundle for one or more named GPUs comes out; no GPU
//! is needed, and the same input gives the same bytes.

pub mod bundle;
pub mod compile;
pub mod content;
pub mod decompose;
pub mod emit;
pub mod error;
pub mod functions;
pub mod fusion;
pub mod import;
pub mod ir;
pub mod kernels;
pub mod language;
pub mod layouts;
pub mod passes;
pub mod plan;
pub mod quantise;
pub mod shader;
pub mod standing;
pub mod target;

pub use error::{Error, Result};
