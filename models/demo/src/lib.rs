//! ONNX files built in code: small ones for importer tests, and the ResNet-50 of the demo.

pub mod onnx;
pub mod resnet50;
