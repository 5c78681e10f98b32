//! What the tests share.

pub use drift_demo::onnx;

pub mod compare;
pub mod device;
pub mod emission;
pub mod random_graph;
pub mod random_model;
pub mod stored;
pub mod web;
