//! WGSL generation for kernels: a kernel's problem, and the hooks through which it reads operands and stores results.
//!
//! A kernel is a complete WGSL module. [`Shader`] collects replacements for single declarations of that module, and the
//! bindings that the replacements need. Layouts, storage kinds, fused epilogues and packed weights all enter as
//! replacements. This module knows no kernel.

pub mod access;
mod bind;
pub mod element_functions;
pub(crate) mod element_walk;
mod epilogue;
pub mod hooks;
pub mod launch;
pub mod merge_bindings;
pub mod merge_shaders;
pub(crate) mod merged_rows;
pub mod outside_reads;
pub mod pack;
pub(crate) mod packed_f16;
pub mod problem;
pub mod quantized;
mod quantized_constant;
mod reads;
pub mod resource;
pub(crate) mod row_view;
pub mod size_params;
pub mod specialize;
mod texture_guards;
mod unroll;
pub mod value_type;
pub mod variable;
mod wgsl_syntax;
mod writes;

pub use hooks::Shader;
pub use launch::{Binding, Bound, Grid, Launch, LaunchDraft, Need};
pub use outside_reads::OutsideReads;
pub use value_type::ValueType;
