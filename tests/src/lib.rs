//! What the tests share.

pub mod compare;
pub mod device;
pub mod emission;
pub mod onnx;
pub mod random_graph;
pub mod random_model;
pub mod resnet50;
pub mod stored;
pub mod web;
