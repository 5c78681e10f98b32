//! What every kernel is written with: the problem it sees, and the hooks through which it reads and writes.
//!
//! A kernel is a complete WGSL module whose declarations may be replaced one by one. [`Shader`] collects what replaces
//! them, with the bindings they need; layouts, storage kinds, fused epilogues and packed weights all enter there. Nothing
//! here knows a kernel.

pub mod access;
mod bind;
pub mod class;
pub mod codes;
mod epilogue;
pub mod functions;
mod guards;
pub(crate) mod halves;
pub mod hooks;
pub mod launch;
pub mod merge;
pub mod outside;
pub mod pack;
pub mod problem;
mod reads;
pub mod resource;
pub(crate) mod rows;
pub mod share;
pub mod specialize;
mod unroll;
pub(crate) mod walk;
pub mod words;
mod writes;

pub use class::Class;
pub use hooks::Shader;
pub use launch::{Binding, Bound, Grid, Launch, Need};
pub use outside::Outside;
