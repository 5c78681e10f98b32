//! A quantized constant as an operand of a kernel: the constant and its packed form.

use super::pack::quantized_panels::QuantizedPanels;
use crate::ir::op::Constant;

/// A constant operand whose elements are stored quantized on the device.
#[derive(Debug, Clone, Copy)]
pub struct QuantizedConstant<'a> {
    /// The constant, or a view of it with another shape and other strides.
    pub source: &'a Constant,
    /// Packed form in which the device stores the constant.
    pub panels: QuantizedPanels,
}

impl<'a> QuantizedConstant<'a> {
    /// Returns a constant with its packed form, or `None` if the device does not store the constant quantized.
    pub fn from_constant(source: &'a Constant) -> Option<Self> {
        QuantizedPanels::from_constant(source).map(|panels| Self { source, panels })
    }
}
