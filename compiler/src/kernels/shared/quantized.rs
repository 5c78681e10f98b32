//! Quantized second operands of matmuls, packed so that kernels read them along the columns.

use super::matmul_node::select_by_constant;
use super::matmul_sizes::has_matrix_per_batch;
use crate::error::OpError;
use crate::ir::op::MatMul;
use crate::shader::Shader;
use crate::shader::pack::quantized_panels::{QuantizedPanels, ROWS};
use crate::shader::problem::Problem;
use crate::shader::quantized::vec8_shares_scale;

/// A quantized second operand whose groups run along K. Its columns are the rows of the packed form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuantizedColumns {
    pub(crate) panels: QuantizedPanels,
    /// Number of columns of one matrix if each batch has its own matrix; `None` if all batches use one matrix.
    pub(crate) columns_per_matrix: Option<usize>,
}

/// Maximum M of a small-M matmul. Up to this M, quantized weights are read by `matvec_quantized`, or on matrix units by
/// `matvec_fragments` and `matvec_coop`, and by no other kernel. If one kernel is selected for 1 row and for 16 rows, a
/// row has equal sums in both matmuls.
pub const MAX_SMALL_M: i64 = 16;

impl QuantizedColumns {
    /// True if no packed word holds values of two quantization groups, as the kernel `matvec_quantized` requires.
    pub(crate) fn has_whole_word_groups(&self) -> bool {
        self.panels.groups_per_row() <= 1
            || self.panels.group_size.is_multiple_of(self.panels.values_per_word())
    }

    /// True if only the small-M kernels may compute a matmul of `rows` rows.
    pub(crate) fn is_small_m_only(&self, problem: &Problem<'_>, rows: i64) -> bool {
        let fits = self.panels.bytes() <= problem.target.limits.max_storage_buffer_range;
        rows <= MAX_SMALL_M && self.has_whole_word_groups() && fits && problem.computed.is_float()
    }

    /// Describes the quantized second operand of a matmul. Returns `None` if it is not quantized along K, or if it is
    /// broadcast over some batch axes but not over all of them.
    pub(crate) fn from_matmul(op: &MatMul, problem: &Problem<'_>) -> Option<Self> {
        Self::from_operand(op, problem, 1)
    }

    /// Describes operand `index` of a matmul, as [`Self::from_matmul`] does for operand 1.
    pub(crate) fn from_operand(op: &MatMul, problem: &Problem<'_>, index: usize) -> Option<Self> {
        let operand = problem.operands.get(index)?;
        let panels = operand.quantized?.panels;
        let [leading @ .., first, last] = operand.constant?.shape.as_slice() else { return None };
        let (depth, columns) = if op.trans_b { (*last, *first) } else { (*first, *last) };
        let batch = problem.result.shape.split_last_chunk::<2>().map(|(batch, _)| batch)?;
        let one_matrix = leading.iter().all(|d| *d == 1);
        let matrix_per_batch = has_matrix_per_batch(problem, leading, batch);
        let inner = if op.trans_b { 1 } else { columns };
        let along_k = panels.depth == depth && panels.k_stride == inner && panels.taps == 1;
        let whole_panels = one_matrix || matrix_per_batch && columns.is_multiple_of(ROWS);
        (along_k && whole_panels)
            .then_some(Self { panels, columns_per_matrix: (!one_matrix).then_some(columns) })
    }

    /// Describes the quantized constants of a matmul with `constants` second operands, which are the operands from 1
    /// on. Returns `None` if one of them is not quantized along K or if their layouts differ.
    pub(crate) fn from_operands(op: &MatMul, problem: &Problem<'_>, constants: usize) -> Option<Self> {
        let columns = Self::from_matmul(op, problem)?;
        let same_layout = |index| {
            Self::from_operand(op, problem, index).is_some_and(|other| {
                other.panels == columns.panels && other.columns_per_matrix == columns.columns_per_matrix
            })
        };
        (2..=constants).all(same_layout).then_some(columns)
    }

    /// Replaces the hook `load_b(batch, k, n4)` by a function that dequantizes four elements of row `k` of the second
    /// operand, from column `4 * n4`.
    ///
    /// # Errors
    /// If the operand is not quantized.
    pub(crate) fn declare_vec4_load(&self, shader: &mut Shader<'_>) -> Result<(), OpError> {
        shader.add_dequantize_vec4("dequantized_b", 1)?;
        let first = self.vec4_offset();
        let params = "batch: u32, k: u32, n4: u32";
        let load = format!("fn load_b({params}) -> vec4<f32> {{ return dequantized_b({first}n4, k); }}");
        shader.replace("load_b", load);
        Ok(())
    }

    /// Replaces the hook `load_b(batch, k, n8)` by a function that dequantizes eight elements of the second operand to
    /// f16. Returns true if the elements run along K, which is so if groups are multiples of 8: they are rows `8 * n8
    /// ..` of column `k`. Otherwise they are columns `8 * n8 ..` of row `k`, and rows past the end repeat the last row.
    ///
    /// # Errors
    /// If the operand is not quantized.
    pub(crate) fn declare_vec8_load(&self, shader: &mut Shader<'_>) -> Result<bool, OpError> {
        let first = self.vec4_offset();
        if vec8_shares_scale(&self.panels) {
            shader.add_dequantize_vec8("dequantized_b", 1)?;
            let first =
                self.columns_per_matrix.map_or(String::new(), |columns| format!("batch * {columns}u + "));
            shader.replace(
                "load_b",
                format!(
                    "fn load_b(batch: u32, k: u32, n8: u32) -> Vec8 {{ return bitcast<Vec8>(dequantized_b({first}k, n8)); }}"
                ),
            );
            return Ok(true);
        }
        shader.add_dequantize_vec4("dequantized_b", 1)?;
        let depth = self.panels.depth;
        let row = if depth.is_multiple_of(8) { "k".to_string() } else { format!("min(k, {}u)", depth - 1) };
        shader.replace(
            "load_b",
            format!(
                "fn load_b(batch: u32, k: u32, n8: u32) -> Vec8 {{
    let low = dequantized_b({first}n8 * 2u, {row});
    let high = dequantized_b({first}n8 * 2u + 1u, {row});
    return bitcast<Vec8>(vec4<u32>(pack2x16float(low.xy), pack2x16float(low.zw), pack2x16float(high.xy), pack2x16float(high.zw)));
}}"
            ),
        );
        Ok(false)
    }

    /// Returns the start of a WGSL index expression: the number of vec4s of columns before the matrix of a batch, and a
    /// plus sign. Empty if all batches use one matrix.
    fn vec4_offset(&self) -> String {
        self.columns_per_matrix.map_or(String::new(), |columns| format!("batch * {}u + ", columns / 4))
    }
}

/// Prefixes of the names of the WGSL functions that read a matmul's first and second weight matrix.
const CONSTANT_NAMES: [&str; 2] = ["first", "second"];

/// Replaces the hooks that read a quantized weight matrix `c`: `load_b(c, at)` loads 16 bytes at index `at`,
/// `group_scale(c, base, g, q)` and `group_bias(c, base, g, q)` load scales and biases of a group. `declare_operand`
/// declares the functions that read one operand, under a name prefix, and returns the name of the operand's buffer.
///
/// # Errors
/// Returns the errors of `declare_operand`.
pub(crate) fn declare_constant_loads<'p>(
    shader: &mut Shader<'p>,
    constants: usize,
    declare_operand: impl Fn(&mut Shader<'p>, &str, usize) -> Result<String, OpError>,
) -> Result<(), OpError> {
    let mut names = Vec::with_capacity(constants);
    for (name, index) in CONSTANT_NAMES.into_iter().zip(1..=constants) {
        names.push((name, declare_operand(shader, name, index)?));
    }
    let by_constant = |value: &dyn Fn(&(&str, String)) -> String| {
        select_by_constant(&names.iter().map(value).collect::<Vec<_>>())
    };
    let body = by_constant(&|(_, buffer)| format!("{buffer}[at]"));
    shader.replace("load_b", format!("fn load_b(c: u32, at: u32) -> vec4<u32> {{\n{body}\n}}"));
    for hook in ["scale", "bias"] {
        let body = by_constant(&|(name, _)| format!("{name}_{hook}(base, g, q)"));
        let head = format!("fn group_{hook}(c: u32, base: u32, g: u32, q: u32) -> vec4<f32>");
        shader.replace(&format!("group_{hook}"), format!("{head} {{\n{body}\n}}"));
    }
    Ok(())
}
