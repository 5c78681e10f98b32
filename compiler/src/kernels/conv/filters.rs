//! Filters of dense convolutions that are not packed for a kernel: quantized filters, and dequantized filters.

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::Conv;
use crate::ir::storage::Storage;
use crate::kernels::shared::coop::vec8_read;
use crate::kernels::shared::window::axes;
use crate::shader::Shader;
use crate::shader::access::Coordinates;
use crate::shader::pack::quantized_panels::QuantizedPanels;
use crate::shader::problem::{Operand, Placement, Problem};
use crate::shader::quantized::vec8_shares_scale;

/// Kernels read the input channels of unpacked filters in groups of this size.
const CHANNEL_MULTIPLE: i64 = 8;
/// Instructions to dequantize four values: shift, mask, conversion, subtraction and multiplication of a vec4.
const DEQUANTIZE_INSTRUCTIONS: f64 = 5.0;

/// Form of filters that are not packed for a kernel. K counts taps times input channels, tap by tap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnpackedFilters {
    /// Quantized filters: a row of the packed form has all K elements of an output channel.
    Quantized,
    /// Floats that a dispatch has written as a matrix `[K, O]`.
    Rows,
}

impl UnpackedFilters {
    /// Returns the form of the filters of a dense convolution. Returns `None` for filters that are packed for each kernel,
    /// and for filters that only `conv_direct` can read.
    pub(super) fn from_problem(op: &Conv, problem: &Problem<'_>) -> Option<Self> {
        let filters = problem.operands.get(1)?;
        let [outputs, inputs, taps @ ..] = filters.shape.as_slice() else { return None };
        let depth = usize::try_from(inputs.mul(&product(taps)).as_known()?).ok()?;
        let readable = op.group == 1
            && inputs.is_multiple_of(CHANNEL_MULTIPLE)
            && (3..=5).contains(&problem.result.rank())
            && problem.computed.is_float()
            && filters.storage == Storage::Buffer
            && filters.bytes(problem.bounds).unsigned_abs() <= problem.target.limits.max_storage_buffer_range;
        if !readable {
            return None;
        }
        match filters.quantized {
            Some(quantized) => has_whole_rows(&quantized.panels, filters, depth).then_some(Self::Quantized),
            None => {
                let rows = filters.constant.is_none()
                    && outputs.is_multiple_of(CHANNEL_MULTIPLE)
                    && filters.placement == rows_placement(outputs, inputs, taps);
                rows.then_some(Self::Rows)
            }
        }
    }

    /// Returns the vec4 instructions that dequantize the filters of four input channels and four output channels.
    pub(super) fn dequantize_instructions(filters: Option<Self>) -> f64 {
        if filters == Some(Self::Quantized) { 4.0 * DEQUANTIZE_INSTRUCTIONS } else { 0.0 }
    }

    /// Replaces the hook `weights` of the prelude `slice_filters.wgsl`.
    ///
    /// # Errors
    /// If the operand does not have this form.
    pub(super) fn declare_slices(self, shader: &mut Shader<'_>) -> Result<(), OpError> {
        let head = "fn weights(i: u32, column: u32, row: u32) -> mat4x4<f32>";
        let text = match self {
            Self::Quantized => {
                shader.add_dequantize_4x4("dequantize_filters", 1)?;
                format!("{head} {{ return dequantize_filters(column, row); }}\n")
            }
            Self::Rows => {
                let at = self.row_coordinates(shader, "n4")?;
                let function = shader.read_fn("filter_row", "k: u32, n4: u32", "", 1, &at, false);
                // Slices past the last one are computed and never stored.
                let last = outputs(shader)?.floor_div(4).add(&Dim::known(-1));
                let last = shader.dim(&last);
                let vectors = [0, 1, 2, 3].map(|j| format!("filter_row(row * 4u + {j}u, n4)"));
                format!(
                    "{function}{head} {{\n    let n4 = min(column, {last});\n    return mat4x4<f32>({});\n}}\n",
                    vectors.join(", ")
                )
            }
        };
        shader.replace("weights", text);
        Ok(())
    }

    /// Replaces the hook `load_b(batch, k, n8)` of matmuls on matrix units. Returns true if the hook reads elements along K:
    /// elements `8 * n8 ..` of column `k`.
    ///
    /// # Errors
    /// If the operand does not have this form.
    pub(super) fn declare_vec8_load(self, shader: &mut Shader<'_>) -> Result<bool, OpError> {
        let params = "batch: u32, k: u32, n8: u32";
        if self == Self::Quantized {
            shader.add_dequantize_vec8("dequantized_b", 1)?;
            let load =
                format!("fn load_b({params}) -> Vec8 {{ return bitcast<Vec8>(dequantized_b(k, n8)); }}");
            shader.replace("load_b", load);
            return Ok(true);
        }
        let at = self.row_coordinates(shader, "n8")?;
        let function = vec8_read(shader, "load_b", params, "", 1, &at)?;
        shader.replace("load_b", function);
        Ok(false)
    }

    /// Replaces the hook `load_b(batch, k, n4)` of `tiled.wgsl`, which reads four columns of row `k`.
    ///
    /// # Errors
    /// If the operand does not have this form.
    pub(super) fn declare_vec4_load(self, shader: &mut Shader<'_>) -> Result<(), OpError> {
        let params = "batch: u32, k: u32, n4: u32";
        if self == Self::Quantized {
            shader.add_dequantize_vec4("dequantized_b", 1)?;
            let load = format!("fn load_b({params}) -> vec4<f32> {{ return dequantized_b(n4, k); }}");
            shader.replace("load_b", load);
        } else {
            let at = self.row_coordinates(shader, "n4")?;
            shader.read("load_b", params, "", 1, &at);
        }
        Ok(())
    }

    /// Returns the coordinates of output channels of row `k` of filters in the form [`Self::Rows`]. Input channels and taps
    /// are contiguous in memory, so the coordinate of the input channel counts both.
    fn row_coordinates(self, shader: &Shader<'_>, columns: &str) -> Result<Coordinates, OpError> {
        let rank = shader.problem.operands.get(1).map(Operand::rank);
        let rank = rank.ok_or_else(|| OpError::new("a convolution needs filters"))?;
        Ok(Coordinates::vec4(axes(rank, columns, "k", ["0u"; 3]), 0))
    }
}

/// Returns the number of output channels of the filters.
fn outputs(shader: &Shader<'_>) -> Result<Dim, OpError> {
    let outputs = shader.problem.operands.get(1).and_then(|filters| filters.shape.first());
    outputs.cloned().ok_or_else(|| OpError::new("a convolution needs filters"))
}

/// True if a row of a packed form has the K elements of an output channel, and eight adjacent elements share a scale.
fn has_whole_rows(panels: &QuantizedPanels, filters: &Operand<'_>, depth: usize) -> bool {
    let outputs = i64::try_from(panels.rows).unwrap_or(i64::MAX);
    panels.k_stride == 1
        && panels.depth == depth
        && filters.shape.first().is_some_and(|size| size.is(outputs))
        && vec8_shares_scale(panels)
        && filters.placement.is_dense(&filters.shape)
}

/// Returns the placement of filters `[O, I, taps..]` whose elements have the order tap, input channel, output channel.
fn rows_placement(outputs: &Dim, inputs: &Dim, taps: &[Dim]) -> Placement {
    let mut strides = vec![Dim::known(1), outputs.clone()];
    let row = outputs.mul(inputs);
    strides.extend((0..taps.len()).map(|axis| product(&taps[axis + 1..]).mul(&row)));
    Placement::Strided { strides, offset: Dim::known(0) }
}
