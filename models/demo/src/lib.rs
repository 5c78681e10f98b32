//! ONNX files written in code: small ones for tests of the importer, and the ResNet-50 that the demo compiles.

pub mod onnx;
pub mod resnet50;
