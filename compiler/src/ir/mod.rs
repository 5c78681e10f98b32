//! The graph IR: operators, tensors, symbolic dimensions, text form, verifier and CPU reference.

pub mod array;
pub mod builder;
pub mod dim;
pub mod element;
pub mod encoding;
pub mod eval;
pub mod graph;
pub mod graph_text;
mod movement;
pub mod op;
pub mod op_facts;
pub mod ops;
mod random;
pub mod storage;
pub mod tensor;
pub mod verify;
