//! `model.onnx | config.json + *.safetensors -> import -> Graph -> passes -> Graph' -> layouts -> fusion -> decompose -> plan -> Plan -> specialize -> WGSL -> emit (naga, spirv-tools) -> Artifacts -> bundle`
//!
//! The ahead-of-time compiler of driftc. It compiles a model into a bundle for one or more GPUs. No GPU is needed, and equal
//! inputs give equal bytes.

#![warn(clippy::disallowed_methods)]

pub mod assumed_bounds;
pub mod bundle;
pub mod calibration_suite;
pub mod compile;
pub mod content;
pub mod decompose;
pub mod emit;
pub mod entry_points;
pub mod error;
pub mod fusion;
pub mod import;
pub mod ir;
pub mod kernels;
pub mod language;
pub mod layouts;
pub mod link;
pub mod lowering;
pub mod metadata;
pub mod pass;
pub mod passes;
pub mod plan;
pub mod quantize;
pub mod self_test;
pub mod shader;
pub mod suggest;
pub mod target;

pub use error::{Error, Result};
