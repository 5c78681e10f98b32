//! Float constants of matmuls in panels of columns, in which each row is contiguous. Matrix units read the same panels,
//! so kernels for few and for many rows use the same packed weights.

use super::coop;
use super::dot::ConstantMatrices;
use super::matmul_node::{MatMulNode, select_by_constant};
use super::subgroup_sums;
use super::window::fits;
use crate::ir::tensor::DeviceType;
use crate::shader::Shader;
use crate::shader::pack::Packed;
use crate::shader::pack::presets::PANELS;
use crate::shader::problem::Problem;

/// Columns of a panel if no matrix unit needs another number.
const COLUMNS: u32 = 16;

/// The constants of a matmul, all in the same layout.
#[derive(Debug)]
pub(crate) struct FloatPanels {
    pub(crate) packed: Vec<Packed>,
    /// Columns of a panel.
    pub(crate) columns: u32,
    /// Rows of a panel, including padding.
    pub(crate) padded_k: usize,
    /// Panels of one matrix if each batch has its own matrix; `None` if all batches use the same matrix.
    pub(crate) panels_per_matrix: Option<usize>,
}

impl FloatPanels {
    /// The constants of a matmul. Returns `None` if a second operand is not such a constant, or if the layouts differ.
    pub(crate) fn from_node(node: &MatMulNode<'_>, problem: &Problem<'_>) -> Option<Self> {
        let mut panels = Self::from_operand(node, problem, 1)?;
        for index in 2..=node.matrices() {
            let other = Self::from_operand(node, problem, index)?;
            let same_layout = other.columns == panels.columns
                && other.padded_k == panels.padded_k
                && other.panels_per_matrix == panels.panels_per_matrix;
            panels.packed.extend(same_layout.then_some(other.packed)?);
        }
        Some(panels)
    }

    /// Operand `index` as panels.
    fn from_operand(node: &MatMulNode<'_>, problem: &Problem<'_>, index: usize) -> Option<Self> {
        let ConstantMatrices { constant, axes, per_batch } =
            ConstantMatrices::from_operand(node.matmul, problem, index)?;
        let size = |letter: char| axes.iter().find(|(name, _)| *name == letter).map_or(1, |(_, size)| *size);
        let device = constant.dtype.on_device();
        // Matmuls of many rows read the same bytes on matrix units.
        let (packed, columns, padded_k) =
            match coop::matrix_shape(problem).filter(|_| device == DeviceType::F16) {
                Some(shape) => {
                    let panels = coop::pack_panels(constant, &axes, shape.k as usize, shape.n);
                    (panels.packed, shape.n, panels.padded_k)
                }
                None => {
                    let tiles = [('r', 1), ('n', COLUMNS as usize)];
                    (PANELS.packed(constant, &axes, &tiles, device), COLUMNS, size('K'))
                }
            };
        let panels_per_matrix = per_batch.then(|| size('N').div_ceil(columns as usize));
        let usable = constant.dtype.is_float() && fits(problem, &packed);
        usable.then(|| Self { packed: vec![packed], columns, padded_k, panels_per_matrix })
    }

    /// True if elements are f16.
    pub(crate) fn is_f16(&self) -> bool {
        self.packed.iter().all(|packed| packed.device == DeviceType::F16)
    }

    /// Bytes of all constants.
    pub(crate) fn bytes(&self) -> u64 {
        self.packed.iter().map(|packed| packed.bytes()).sum()
    }

    /// Columns that a load of 16 bytes holds.
    pub(crate) fn columns_per_load(&self) -> u32 {
        if self.is_f16() { 8 } else { 4 }
    }

    /// Loads of 16 bytes that a row of a panel takes.
    pub(crate) fn loads_per_row(&self) -> u32 {
        self.columns / self.columns_per_load()
    }

    /// Returns the subgroup size if a subgroup can add the sums of several rows of a panel.
    pub(crate) fn subgroup_lanes(&self, problem: &Problem<'_>) -> Option<u32> {
        subgroup_sums::subgroup_lanes(problem).filter(|lanes| *lanes >= self.loads_per_row() * 2)
    }

    /// Number of vec4s of columns in a panel.
    pub(crate) fn column_vec4s(&self) -> u32 {
        self.columns / 4
    }

    /// Replaces the hook `load_b(c, at)`, which returns load `at` of constant `c`, for buffers of `load_type`.
    pub(crate) fn declare_loads(self, shader: &mut Shader<'_>, load_type: &str) {
        let loads = self.packed.into_iter().map(|packed| {
            let bound = shader.packed(packed);
            format!("{}[at]", shader.bind(bound, load_type, false))
        });
        let body = select_by_constant(&loads.collect::<Vec<_>>());
        shader.replace("load_b", format!("fn load_b(c: u32, at: u32) -> PanelLoad {{\n{body}\n}}"));
    }
}
