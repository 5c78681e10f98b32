//! Matmuls that `matvec_quantized` computes: the fused operations, the quantized constants, and how invocations split K.

use crate::ir::tensor::DeviceType;
use crate::kernels::shared::matmul_node::MatMulNode;
use crate::kernels::shared::quantized::QuantizedColumns;
use crate::shader::pack::quantized_panels::QuantizedPanels;
use crate::shader::problem::Problem;
use crate::shader::quantized::dequantizes_in_f16;

/// Maximum 16-byte loads that an invocation has in flight. More loads need more registers, so fewer invocations fit on
/// the device.
const MAX_LOADS_IN_FLIGHT: usize = 8;
/// Maximum 16-byte loads that an invocation has in flight in a matmul with a fused norm, which needs registers too.
const MAX_LOADS_IN_FLIGHT_WITH_NORM: usize = 6;
/// Maximum size of a block of K, in K-words (positions of packed words along K).
const MAX_BLOCK_WORDS: usize = 64;
/// Values that are tried for the number of K-words (positions of packed words along K) that a quad (four invocations)
/// loads of a block. If several values give equal numbers of loads in flight, the kernel uses the last of these values.
const WORDS_PER_QUAD: [usize; 3] = [1, 4, 2];

/// A matmul that the kernel `matvec_quantized` can compute, with its fused operations and its quantized constants.
pub(super) struct QuantizedMatMul<'a> {
    pub(super) node: MatMulNode<'a>,
    pub(super) columns: QuantizedColumns,
}

impl<'a> QuantizedMatMul<'a> {
    /// Returns the matmul of a problem, or `None` if the operator is not a matmul or if its constants are not all
    /// quantized along K in one layout.
    pub(super) fn from_problem(problem: &Problem<'a>) -> Option<Self> {
        let node = MatMulNode::from_problem(problem)?;
        let columns = QuantizedColumns::from_operands(node.matmul, problem, node.matrices())?;
        Some(Self { node, columns })
    }
}

/// Returns the number of sums that the kernel computes per row with a fused norm. The sum of squares is always computed.
/// If each column has a single group, the kernel also computes the sum of offsets (`offset_sum` in the WGSL) unless it
/// multiplies f16 pairs, and the sum of the row's elements if the constants have biases.
pub(super) fn row_sums(problem: &Problem<'_>, matmul: &QuantizedMatMul<'_>) -> u32 {
    let panels = &matmul.columns.panels;
    if panels.groups_per_row() > 1 {
        1
    } else {
        1 + u32::from(!multiplies_f16_pairs(problem, panels)) + u32::from(panels.bias_type.is_some())
    }
}

/// True if the kernel multiplies two f16 at a time: if 4-bit weights are dequantized in f16 and rows are stored in f16.
/// 8-bit weights gain nothing, because reading them takes longer than multiplying.
pub(super) fn multiplies_f16_pairs(problem: &Problem<'_>, panels: &QuantizedPanels) -> bool {
    let f16_rows = problem.operands.first().is_some_and(|rows| rows.dtype.on_device() == DeviceType::F16);
    panels.bits == 4 && f16_rows && dequantizes_in_f16(problem.target)
}

/// Numbers of K-words in a block, in a quantization group and in a whole panel. A K-word is a position along K of the
/// packed words of a panel; it holds one word for each of the 16 columns.
#[derive(Debug, Clone, Copy)]
pub(super) struct KWords {
    /// Number of packed words along K of a block; a block is a quantization group or a part of one. The values of a block
    /// have one scale, which is applied to the sum over the block. `None` if each column has a single group.
    pub(super) block: Option<usize>,
    pub(super) per_group: usize,
    pub(super) count: usize,
}

/// Split of the K-words of a panel (positions along K of packed words) over the invocations of the panel.
#[derive(Debug, Clone, Copy)]
pub(super) struct KWordSplit {
    /// Number of packed words along K of a block; a block is a quantization group or a part of one.
    pub(super) block_words: usize,
    /// Number of quads (four invocations) that compute a block together.
    pub(super) block_quads: usize,
    /// Number of blocks of K whose loads an invocation has in flight.
    pub(super) blocks_in_flight: usize,
    /// Number of blocks of K in a panel.
    pub(super) k_blocks: usize,
    /// True if every step has the full number of K-words, including the last step.
    pub(super) whole_steps: bool,
}

impl KWordSplit {
    /// Returns the number of 16-byte loads that an invocation has in flight.
    pub(super) fn loads_in_flight(&self) -> usize {
        self.blocks_in_flight * self.block_words / self.block_quads
    }
}

impl KWords {
    /// Returns the numbers of K-words of a quantized constant, or `None` if a quantization group ends within a packed
    /// word.
    pub(super) fn from_columns(columns: &QuantizedColumns) -> Option<Self> {
        let panels = &columns.panels;
        let count = panels.words_per_row();
        if panels.groups_per_row() <= 1 {
            return Some(Self { block: None, per_group: count, count });
        }
        let per_group = panels.group_size / panels.values_per_word();
        let block = (1..=MAX_BLOCK_WORDS).rev().find(|words| per_group.is_multiple_of(*words))?;
        columns.has_whole_word_groups().then_some(Self { block: Some(block), per_group, count })
    }

    /// Returns the split of a panel's K-words over `panel_threads` invocations: in whole steps if possible, with the
    /// maximum number of loads in flight.
    pub(super) fn split(&self, panel_threads: usize, has_norm: bool) -> Option<KWordSplit> {
        let max_loads = if has_norm { MAX_LOADS_IN_FLIGHT_WITH_NORM } else { MAX_LOADS_IN_FLIGHT };
        let quads = panel_threads / 4;
        let splits = WORDS_PER_QUAD.into_iter().filter_map(|words_per_quad| {
            let block_words = self.block.unwrap_or(quads * words_per_quad);
            let block_quads = block_words / words_per_quad;
            if !block_words.is_multiple_of(words_per_quad) || block_quads > quads {
                return None;
            }
            let k_blocks = self.count.div_ceil(block_words);
            let rounds = k_blocks.div_ceil(quads / block_quads);
            let limit = (max_loads / words_per_quad).clamp(1, rounds);
            let even = k_blocks.is_multiple_of(quads / block_quads) && quads.is_multiple_of(block_quads);
            let divisor = (1..=limit).rev().find(|blocks| rounds.is_multiple_of(*blocks)).unwrap_or(1);
            let whole_steps = even && self.count.is_multiple_of(block_words);
            let blocks_in_flight = if whole_steps { divisor } else { limit };
            Some(KWordSplit { block_words, block_quads, blocks_in_flight, k_blocks, whole_steps })
        });
        splits.max_by_key(|split| (split.whole_steps, split.loads_in_flight()))
    }
}
