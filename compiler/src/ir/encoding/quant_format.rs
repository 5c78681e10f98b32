//! Format of quantized values, the same for all encodings: the facts that packing and kernels need.

use crate::ir::tensor::DType;

/// Format of quantized values. An element is `(value - zero_point) * scale + bias`, with one scale and bias for each
/// group of adjacent elements in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantFormat {
    /// Number of bits of a quantized value, which is unsigned.
    pub bits: usize,
    /// Number of elements per row. `None` if groups do not depend on rows, as in GGUF blocks: any multiple of the group
    /// size may then serve as a row.
    pub row_length: Option<usize>,
    /// Number of adjacent elements of a row that share a scale. The last group of a row may be shorter.
    pub group_size: usize,
    /// Zero point of the quantized values, the same for all groups.
    pub zero_point: u8,
    /// Float type that holds every scale exactly.
    pub scale_dtype: DType,
    /// Float type that holds every bias exactly; `None` if all biases are 0.
    pub bias_dtype: Option<DType>,
}
