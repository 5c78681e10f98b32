//! Small-M matmuls on matrix units whose fragments have a known layout in registers: the matmuls that are possible, and
//! their tiles.

use super::coop;
use super::emulated_fragments;
use super::float_panels::FloatPanels;
use super::matmul_node::MatMulNode;
use super::matmul_sizes::{MatMulSizes, matmul_sizes};
use super::quantized::{MAX_SMALL_M, QuantizedColumns};
use crate::ir::dim::product;
use crate::kernels::kernel::config;
use crate::shader::LaunchDraft;
use crate::shader::pack::quantized_panels::ROWS as COLUMNS;
use crate::shader::problem::Problem;
use crate::shader::quantized::vec8_shares_scale;
use crate::target::{Fragments, MatrixShape};

config! {
    /// Configuration of the kernel `matvec_fragments`.
    pub(crate) struct FragmentConfig {
        /// Subgroups per workgroup.
        SUBGROUPS => subgroups: u32,
        /// Number of pairs of panels (blocks of 16 columns) of each weight matrix that a workgroup computes.
        PANEL_PAIRS => panel_pairs: u32,
        /// Number of steps (of 32 K positions) in a block of K, which one subgroup multiplies.
        BLOCK_STEPS => block_steps: u32,
    }
}

/// Number of invocations that hold a matrix fragment.
pub(crate) const LANES: u32 = 32;
/// Number of rows of the first operand in a matrix fragment.
pub(crate) const FRAGMENT_ROWS: u32 = 8;
/// Number of K positions in a step.
pub(crate) const STEP_K: usize = 32;
/// Numbers of subgroups per workgroup from which candidates are built.
const SUBGROUPS: [u32; 3] = [4, 8, 16];
/// Numbers of pairs of panels of each weight matrix per workgroup from which candidates are built.
const PANEL_PAIRS: [u32; 2] = [1, 2];
/// Numbers of steps in a block of K from which candidates are built.
const BLOCK_STEPS: [u32; 3] = [1, 2, 4];
/// Maximum 16-byte loads that an invocation has in flight for two neighboring panels of weights. More would leave
/// too few registers.
const MAX_PAIR_LOADS: u32 = 4;
/// Maximum 16-byte loads that an invocation has in flight for all panels of weights that it reads. More would
/// leave too few registers.
const MAX_LOADS: u32 = 8;

/// Constants of a matmul in a packed layout from which the kernel loads matrix fragments.
pub(crate) enum FragmentWeights {
    Quantized(QuantizedColumns),
    F16(FloatPanels),
}

impl FragmentWeights {
    /// Returns the constants of a matmul. Returns `None` if they are packed in a layout that the kernel cannot read, or
    /// not all in one layout.
    fn from_node(node: &MatMulNode<'_>, problem: &Problem<'_>) -> Option<Self> {
        if let Some(columns) = QuantizedColumns::from_operands(node.matmul, problem, node.matrices()) {
            let panels = &columns.panels;
            let whole_steps = panels.groups_per_row() <= 1 || panels.group_size.is_multiple_of(STEP_K);
            let usable = columns.columns_per_matrix.is_none() && vec8_shares_scale(panels) && whole_steps;
            return usable.then_some(Self::Quantized(columns));
        }
        let panels = FloatPanels::from_node(node, problem)?;
        let usable =
            panels.is_f16() && panels.columns == COLUMNS as u32 && panels.panels_per_matrix.is_none();
        usable.then_some(Self::F16(panels))
    }

    /// Returns the number of bits of a weight.
    pub(crate) fn bits(&self) -> u32 {
        match self {
            Self::Quantized(columns) => columns.panels.bits as u32,
            Self::F16(_) => 16,
        }
    }

    /// Returns the number of 16-byte vectors that hold eight K positions of four columns.
    pub(crate) fn vectors_per_k8(&self) -> u32 {
        self.bits() / 4
    }

    /// Returns the number of loads that read eight K positions of four columns of a weight matrix. A load of quantized
    /// weights reads 16 bytes; a load of f16 weights reads four columns at one K position.
    pub(crate) fn loads_per_k8(&self) -> u32 {
        match self {
            Self::Quantized(_) => self.vectors_per_k8(),
            Self::F16(_) => 8,
        }
    }

    /// Returns the number of vec4 loads with which all invocations of a workgroup together load a panel.
    pub(crate) fn panel_loads(&self) -> usize {
        match self {
            Self::Quantized(columns) => columns.panels.panel_vec4s(),
            Self::F16(panels) => panels.padded_k * COLUMNS / 4,
        }
    }

    /// Returns the number of steps (of 32 K positions) in a quantization group; `None` if each column has a single group.
    pub(crate) fn steps_per_group(&self) -> Option<u32> {
        match self {
            Self::Quantized(columns) if columns.panels.groups_per_row() > 1 => {
                Some(u32::try_from(columns.panels.group_size / STEP_K).unwrap_or(u32::MAX))
            }
            Self::Quantized(_) | Self::F16(_) => None,
        }
    }
}

/// Returns a launch with the subgroup size and the matrix shape that its fragments need. Emulated fragments need neither.
pub(crate) fn with_fragment_requirements(
    mut launch: LaunchDraft,
    shape: &MatrixShape,
    fragments: Fragments,
) -> LaunchDraft {
    if fragments == Fragments::MmaM16N8K16 {
        launch.subgroup_size = Some(LANES);
        launch.matrix = Some(shape.clone());
    }
    launch
}

/// Returns the target's matrix shape whose fragments have a known layout. Returns `None` if the target has none or the
/// matmul is not computed in f16.
pub(crate) fn known_fragments<'a>(problem: &Problem<'a>) -> Option<(&'a MatrixShape, Fragments)> {
    let (shape, fragments) = problem.target.known_fragments()?;
    let supported = match fragments {
        Fragments::MmaM16N8K16 => {
            coop::supports_matrices(problem.target) && problem.target.subgroup.preferred == LANES
        }
        Fragments::Emulated => true,
    };
    (supported && coop::computes_in_f16(problem)).then_some((shape, fragments))
}

/// A matmul that matrix units with a known fragment layout can compute.
pub(crate) struct FragmentMatMul<'a> {
    pub(crate) node: MatMulNode<'a>,
    pub(crate) weights: FragmentWeights,
    pub(crate) sizes: MatMulSizes,
    pub(crate) depth: usize,
    pub(crate) shape: &'a MatrixShape,
    pub(crate) fragments: Fragments,
}

impl<'a> FragmentMatMul<'a> {
    /// Returns the matmul of a problem, or `None` if the kernel cannot compute it. The target's fragment layout must be
    /// known, and the constants must have a layout that the kernel reads. There must be no batch and no residual.
    pub(crate) fn from_problem(problem: &Problem<'a>) -> Option<Self> {
        let (shape, fragments) = known_fragments(problem)?;
        let node = MatMulNode::from_problem(problem).filter(|node| node.residual().is_none())?;
        let weights = FragmentWeights::from_node(&node, problem)?;
        let sizes = matmul_sizes(node.matmul, problem)?;
        let depth = usize::try_from(sizes.k.as_known()?).ok()?;
        let single_matmul = product(&sizes.batch).is(1) && !node.matmul.trans_a;
        let usable = single_matmul && depth.is_multiple_of(8);
        usable.then_some(Self { node, weights, sizes, depth, shape, fragments })
    }

    /// Returns the number of steps of the matmul along K, of 32 K positions each.
    fn steps(&self) -> u32 {
        u32::try_from(self.depth.div_ceil(STEP_K)).unwrap_or(u32::MAX)
    }

    /// Returns the number of matrix fragments that the rows of this matmul fill, for the maximum number of rows.
    pub(crate) fn row_fragments(&self, problem: &Problem<'_>) -> u32 {
        (problem.max(&self.sizes.m).clamp(1, MAX_SMALL_M) as u32).div_ceil(FRAGMENT_ROWS)
    }

    /// Returns all tiles of the matmul within the target's limits. The tiles do not depend on the number of rows, so
    /// that a row has equal sums for every M.
    pub(crate) fn tiles(&self, problem: &Problem<'_>) -> Vec<FragmentTile> {
        let limits = &problem.target.limits;
        let panel_count = (problem.max(&self.sizes.n) as f64 / COLUMNS as f64).ceil();
        let max_row_fragments = MAX_SMALL_M as u32 / FRAGMENT_ROWS;
        let vectors_per_k8 = self.weights.vectors_per_k8();
        let shapes = SUBGROUPS.into_iter().flat_map(|subgroups| PANEL_PAIRS.map(|pairs| [subgroups, pairs]));
        let configs = shapes.flat_map(|[subgroups, panel_pairs]| {
            BLOCK_STEPS.map(|block_steps| FragmentConfig { subgroups, panel_pairs, block_steps })
        });
        let tiles = configs.map(|config| FragmentTile::from_config(self, max_row_fragments, config));
        let fits = |tile: &FragmentTile| {
            let FragmentConfig { subgroups, panel_pairs, block_steps } = tile.config;
            let groups = (panel_count / f64::from(panel_pairs * 2)).ceil();
            let within_group =
                self.weights.steps_per_group().is_none_or(|steps| steps.is_multiple_of(block_steps));
            let fits = tile.loads_in_flight <= MAX_LOADS
                && block_steps * vectors_per_k8 <= MAX_PAIR_LOADS
                && within_group
                && tile.threads() <= limits.max_workgroup_invocations.min(limits.max_workgroup_size[0])
                && subgroups <= limits.max_workgroup_subgroups
                && tile.workgroup_bytes <= limits.max_workgroup_memory
                && groups <= f64::from(limits.max_workgroup_count[0])
                && (panel_pairs == 1 || f64::from(panel_pairs * 2) <= panel_count)
                && self.node.supports_panels(panel_pairs * 2, COLUMNS as u32);
            fits && (subgroups <= SUBGROUPS[0] || subgroups <= tile.k_blocks)
        };
        tiles.filter(fits).collect()
    }
}

/// Tile that a workgroup of `matvec_fragments` computes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FragmentTile {
    pub(crate) config: FragmentConfig,
    /// Number of 16-byte loads that an invocation has in flight.
    pub(crate) loads_in_flight: u32,
    /// Number of blocks of K (groups of steps) of the matmul.
    pub(crate) k_blocks: u32,
    /// Number of rounds of the loop along K. In a round, each subgroup computes one block of K.
    pub(crate) rounds: u32,
    /// Workgroup memory of the tile, in bytes.
    pub(crate) workgroup_bytes: u32,
}

impl FragmentTile {
    /// Returns the tile of a configuration for rows that fill `row_fragments` fragments.
    pub(crate) fn from_config(
        matmul: &FragmentMatMul<'_>,
        row_fragments: u32,
        config: FragmentConfig,
    ) -> Self {
        let FragmentConfig { subgroups, panel_pairs, block_steps } = config;
        let k_blocks = matmul.steps().div_ceil(block_steps);
        let panels = matmul.node.matrices() as u32 * panel_pairs * 2;
        let emulated = if matmul.fragments == Fragments::Emulated {
            emulated_fragments::BYTES_PER_INVOCATION * LANES
        } else {
            0
        };
        let workgroup_bytes =
            subgroups * (row_fragments * FRAGMENT_ROWS * (panels * COLUMNS as u32 * 4 + 4) + emulated);
        Self {
            config,
            loads_in_flight: block_steps * matmul.weights.vectors_per_k8() * panels / 2,
            k_blocks,
            rounds: k_blocks.div_ceil(subgroups),
            workgroup_bytes,
        }
    }

    pub(crate) fn threads(&self) -> u32 {
        self.config.subgroups * LANES
    }
}
