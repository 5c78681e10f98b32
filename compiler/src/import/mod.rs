//! Importers: model files to a graph. Only this module uses protobuf or string attributes.

pub mod gguf;
pub mod onnx;
pub mod safetensors;
