//! From model files to a graph. Nothing after this module knows protobuf or reads a string attribute.

pub mod gguf;
pub mod onnx;
pub mod safetensors;
