//! Post-training static quantization: writes a QDQ model, with QuantizeLinear and DequantizeLinear around quantized
//! tensors, from a float model and samples of its inputs.
//!
//! `float model -> prepare -> place -> observe samples -> select ranges -> rewrite -> measure samples`

mod affine;
mod calibrate;
mod emitter;
mod finish;
mod histogram;
mod layer;
mod names;
mod noise;
mod operators;
mod opset;
mod placement;
mod prepare;
mod range;
mod reference;
mod rewrite;
mod scale;
mod settings;
mod tensors;

pub use calibrate::{Calibration, begin, observe};
pub use finish::{QuantizedModel, finish, measure};
pub use noise::{Noise, OperatorNoise, worth_leaving};
pub use reference::Sample;
pub use settings::{Activations, Method, Settings};
