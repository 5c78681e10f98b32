//! Importers, which read model files and build graphs. Only this module uses protobuf and attributes that are strings.

pub mod gguf;
pub mod listing;
pub mod onnx;
pub mod safetensors;
