//! Code that several tests use.

pub use drift_demo::onnx;

pub mod compare;
pub mod device;
pub mod emission;
pub mod golden;
pub mod modules;
pub mod random_graph;
pub mod random_model;
pub mod settings;
pub mod signed;
pub mod stored;
pub mod tested_bundle;
pub mod web;
pub mod word_model;
