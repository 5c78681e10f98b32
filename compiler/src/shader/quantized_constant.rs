//! A quantized constant as an operand of a kernel: the constant and its packed form.

use super::pack::quantized_panels::QuantizedPanels;
use crate::ir::op::Constant;

/// A constant operand that is quantized on the device.
#[derive(Debug, Clone, Copy)]
pub struct QuantizedConstant<'a> {
    /// The constant, possibly seen through views.
    pub source: &'a Constant,
    /// Packed form on the device.
    pub panels: QuantizedPanels,
}

impl<'a> QuantizedConstant<'a> {
    /// Returns the packed form of a constant, or `None` if the constant is not packed as quantized values.
    pub fn from_constant(source: &'a Constant) -> Option<Self> {
        QuantizedPanels::from_constant(source).map(|panels| Self { source, panels })
    }
}
