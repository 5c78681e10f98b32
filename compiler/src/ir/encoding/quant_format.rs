//! Format of quantized values, the same for all encodings: the facts that packing and kernels need.

use crate::ir::tensor::DType;

/// Format of quantized values. An element is `(value - zero_point) * scale + bias`, with one scale and bias for each
/// group of adjacent elements in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantFormat {
    /// Bits of a quantized value, which is unsigned.
    pub bits: usize,
    /// Elements per row. `None` if groups do not depend on rows, so that any multiple of the group size is a row.
    pub row_length: Option<usize>,
    /// Adjacent elements that share a scale, counted from the start of a row. The last group of a row may be shorter.
    pub group_size: usize,
    /// Zero point of all groups.
    pub zero_point: u8,
    /// Float type that holds every scale exactly.
    pub scale_dtype: DType,
    /// Float type that holds every bias exactly; `None` if all biases are 0.
    pub bias_dtype: Option<DType>,
}
