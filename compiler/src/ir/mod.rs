//! The graph: operators, tensors, symbolic sizes, text form, verifier and CPU reference.

pub mod array;
pub mod builder;
pub mod dim;
pub mod element;
pub mod encoding;
pub mod eval;
pub mod graph;
mod movement;
pub mod op;
pub mod ops;
pub mod storage;
pub mod tensor;
pub mod text;
pub mod verify;
