//! Functions that build ONNX files in Rust code: small models for importer tests, and the ResNet-50 of the demo.

pub mod onnx;
pub mod resnet50;
