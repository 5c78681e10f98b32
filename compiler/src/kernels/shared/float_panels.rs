//! Float constants of matmuls, packed into panels (blocks of columns) in which each row is contiguous. Kernels on
//! matrix units read these panels too, so matmuls of few and of many rows use one copy of the packed weights.

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

/// Number of columns of a panel if no matrix unit needs another number.
const COLUMNS: u32 = 16;

/// Packed float constants (second operands) of a matmul, all in one layout.
#[derive(Debug)]
pub(crate) struct FloatPanels {
    pub(crate) packed: Vec<Packed>,
    /// Number of columns of a panel.
    pub(crate) columns: u32,
    /// Number of rows of a panel, including padding.
    pub(crate) padded_k: usize,
    /// Number of panels of one matrix if each batch has its own matrix; `None` if all batches use one matrix.
    pub(crate) panels_per_matrix: Option<usize>,
}

impl FloatPanels {
    /// Packs the constants of a matmul into panels. Returns `None` if a second operand is not a float constant that can
    /// be packed, or if the layouts of the constants differ.
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

    /// Packs operand `index` into panels. Returns `None` if it is not a float constant that can be packed.
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

    /// True if the elements of all panels are f16.
    pub(crate) fn is_f16(&self) -> bool {
        self.packed.iter().all(|packed| packed.device == DeviceType::F16)
    }

    /// Returns the size of all packed constants, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.packed.iter().map(|packed| packed.bytes()).sum()
    }

    /// Returns the number of columns of a panel row that a 16-byte load reads.
    pub(crate) fn columns_per_load(&self) -> u32 {
        if self.is_f16() { 8 } else { 4 }
    }

    /// Returns the number of 16-byte loads for one row of a panel.
    pub(crate) fn loads_per_row(&self) -> u32 {
        self.columns / self.columns_per_load()
    }

    /// Returns the subgroup size if a subgroup reads several rows of a panel at once and can add their sums by subgroup
    /// operations.
    pub(crate) fn subgroup_lanes(&self, problem: &Problem<'_>) -> Option<u32> {
        subgroup_sums::subgroup_lanes(problem).filter(|lanes| *lanes >= self.loads_per_row() * 2)
    }

    /// Returns the number of columns of a panel, in vec4s.
    pub(crate) fn column_vec4s(&self) -> u32 {
        self.columns / 4
    }

    /// Replaces the hook `load_b(c, at)`, which reads element `at` of the buffer of constant `c`. `load_type` is the
    /// WGSL type of the buffers' elements.
    pub(crate) fn declare_loads(self, shader: &mut Shader<'_>, load_type: &str) {
        let loads = self.packed.into_iter().map(|packed| {
            let bound = shader.packed(packed);
            format!("{}[at]", shader.bind(bound, load_type, false))
        });
        let body = select_by_constant(&loads.collect::<Vec<_>>());
        shader.replace("load_b", format!("fn load_b(c: u32, at: u32) -> PanelLoad {{\n{body}\n}}"));
    }
}
