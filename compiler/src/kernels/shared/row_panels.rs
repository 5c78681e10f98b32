//! Constants of products whose elements are floats, in panels of columns in which a row is together: the form that matrix units
//! take them in, so that kernels of few rows and of many read the same bytes.

use super::coop;
use super::dot::Matrices;
use super::fold;
use super::fused::{Fused, of_constant};
use super::window::fits;
use crate::ir::tensor::DeviceType;
use crate::shader::Shader;
use crate::shader::pack::Packed;
use crate::shader::pack::presets::PANELS;
use crate::shader::problem::Problem;

/// Columns of a panel where no matrix unit wants another number.
const COLUMNS: u32 = 16;

/// The constants of a product, all in the same form.
#[derive(Debug)]
pub(crate) struct RowPanels {
    pub(crate) packed: Vec<Packed>,
    /// Columns of a panel and rows with padding.
    pub(crate) columns: u32,
    pub(crate) rows: usize,
    /// Panels of a matrix where each product of the batch has one of its own.
    pub(crate) apart: Option<usize>,
}

impl RowPanels {
    pub(crate) fn of(fused: &Fused<'_>, problem: &Problem<'_>) -> Option<Self> {
        let mut panels = Self::at(fused, problem, 1)?;
        for index in 2..=fused.matrices() {
            let other = Self::at(fused, problem, index)?;
            let alike =
                other.columns == panels.columns && other.rows == panels.rows && other.apart == panels.apart;
            panels.packed.extend(alike.then_some(other.packed)?);
        }
        Some(panels)
    }

    /// Of operand `index`.
    fn at(fused: &Fused<'_>, problem: &Problem<'_>, index: usize) -> Option<Self> {
        let Matrices { constant, axes, each } = Matrices::at(fused.product, problem, index)?;
        let size = |letter: char| axes.iter().find(|(name, _)| *name == letter).map_or(1, |(_, size)| *size);
        let device = constant.dtype.on_device();
        // The panels of matrix units serve products of many rows from the same bytes.
        let (packed, columns, rows) = match coop::matrices(problem).filter(|_| device == DeviceType::F16) {
            Some(shape) => {
                let panels = coop::pack_panels(constant, &axes, shape.k as usize, shape.n);
                (panels.packed, shape.n, panels.rows)
            }
            None => {
                let tiles = [('r', 1), ('n', COLUMNS as usize)];
                (PANELS.of(constant, &axes, &tiles, device), COLUMNS, size('K'))
            }
        };
        let apart = each.then(|| size('N').div_ceil(columns as usize));
        let known = constant.dtype.is_float() && fits(problem, &packed);
        known.then(|| Self { packed: vec![packed], columns, rows, apart })
    }

    /// Whether elements are of 16 bits.
    pub(crate) fn half(&self) -> bool {
        self.packed.iter().all(|packed| packed.device == DeviceType::F16)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.packed.iter().map(|packed| packed.bytes()).sum()
    }

    /// Columns in a unit of 16 bytes.
    pub(crate) fn unit(&self) -> u32 {
        if self.half() { 8 } else { 4 }
    }

    /// Units in a row of a panel.
    pub(crate) fn parts(&self) -> u32 {
        self.columns / self.unit()
    }

    /// Invocations of a subgroup where it adds up the sums of several rows.
    pub(crate) fn lanes(&self, problem: &Problem<'_>) -> Option<u32> {
        fold::lanes(problem).filter(|lanes| *lanes >= self.parts() * 2)
    }

    /// Vectors of four columns in a row of a panel.
    pub(crate) fn vectors(&self) -> u32 {
        self.columns / 4
    }

    /// Replaces the hook `load_b(c, at)`, unit `at` of constant `c`, where units are of type `unit`.
    pub(crate) fn declare_loads(self, shader: &mut Shader<'_>, unit: &str) {
        let loads = self.packed.into_iter().map(|packed| {
            let bound = shader.packed(packed);
            format!("{}[at]", shader.bind(bound, unit, false))
        });
        let body = of_constant(&loads.collect::<Vec<_>>());
        shader.replace("load_b", format!("fn load_b(c: u32, at: u32) -> Unit {{\n{body}\n}}"));
    }
}
