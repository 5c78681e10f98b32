//! Problems, which are all that a kernel sees of the graph: one operator with the shapes, types and placements of its operands.

use super::quantized_constant::QuantizedConstant;
use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bounds, Dim, product};
use crate::ir::element::EpilogueStep;
use crate::ir::op::{Attention, Constant, Op};
use crate::ir::ops::gather_matmul::EXPERT_INDICES;
use crate::ir::storage::Storage;
use crate::ir::tensor::{DType, Layout};
use crate::target::TargetProfile;

/// Order of a tensor's elements in its memory object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Element `[i0, i1, ..]` is at `offset + i0 * strides[0] + i1 * strides[1] + ..`, in elements.
    /// Dense tensors and their views (reshape, transpose, slice, expand) have this placement.
    Strided {
        /// Stride per axis. 0 repeats an element, a negative stride reverses the axis.
        strides: Vec<Dim>,
        /// Index of the tensor's first element in the memory object, in elements.
        offset: Dim,
    },
    /// The layout [`Layout::Slices4`] (slices of four channels), in any storage kind.
    Slices4,
}

impl Placement {
    /// Returns the placement of a dense row-major tensor.
    pub fn dense(shape: &[Dim]) -> Self {
        Self::Strided { strides: dense_strides(shape), offset: Dim::known(0) }
    }

    /// Returns the placement of a newly computed tensor with a given layout.
    pub fn from_layout(layout: Layout, shape: &[Dim]) -> Self {
        match layout {
            Layout::RowMajor => Self::dense(shape),
            Layout::Slices4(_) => Self::Slices4,
        }
    }

    /// True if the tensor is dense and row-major from the start of its storage. Axes of size 1 do not matter.
    pub fn is_dense(&self, shape: &[Dim]) -> bool {
        match self {
            Self::Slices4 => false,
            Self::Strided { strides, offset } => {
                let dense = dense_strides(shape);
                offset.is(0) && strides.iter().zip(&dense).zip(shape).all(|((a, b), d)| d.is(1) || a == b)
            }
        }
    }
}

/// Returns the strides of a dense row-major tensor, in elements.
pub fn dense_strides(shape: &[Dim]) -> Vec<Dim> {
    let mut out = vec![Dim::known(1); shape.len()];
    for i in (0..shape.len().saturating_sub(1)).rev() {
        out[i] = out[i + 1].mul(&shape[i + 1]);
    }
    out
}

/// A tensor as a kernel reads or writes it.
#[derive(Debug, Clone)]
pub struct Operand<'a> {
    /// Element type in the graph. `dtype.on_device()` is the type in memory.
    pub dtype: DType,
    /// Sizes of the axes, without padding.
    pub shape: Vec<Dim>,
    /// Order of the tensor's elements in memory.
    pub placement: Placement,
    /// Kind of memory object that holds the tensor. Only tensors in slices of 4 channels can be in textures.
    pub storage: Storage,
    /// The constant, if the operand is a constant. A kernel may have it packed in another order.
    pub constant: Option<&'a Constant>,
    /// Packed form, if the operand is a quantized constant or a view of one. `placement` then gives indices of the
    /// constant's elements, not memory addresses.
    pub quantized: Option<QuantizedConstant<'a>>,
}

impl Operand<'_> {
    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> Dim {
        product(&self.shape)
    }

    /// Returns the size of an axis that is counted from the end: `back` 1 is the last axis. Returns the size 1 if there is no
    /// such axis.
    pub fn size_from_end(&self, back: usize) -> Dim {
        self.rank().checked_sub(back).map_or(Dim::known(1), |i| self.shape[i].clone())
    }

    /// True if the tensor is in a texture.
    pub fn in_texture(&self) -> bool {
        self.is_slices4() && self.storage.is_texture()
    }

    /// True if the tensor is in slices of 4 channels.
    pub fn is_slices4(&self) -> bool {
        self.placement == Placement::Slices4
    }

    /// Returns the bytes that the tensor takes on the device, with every symbol at its upper bound.
    pub fn bytes(&self, bounds: &Bounds) -> i64 {
        if let Some(quantized) = &self.quantized {
            return i64::try_from(quantized.panels.bytes()).unwrap_or(i64::MAX);
        }
        storage_elements(&self.shape, &self.placement)
            .range(bounds)
            .1
            .saturating_mul(self.dtype.on_device().bytes())
    }

    /// Returns the operand's constant as an array on the host.
    ///
    /// # Errors
    /// If the operand is not a constant.
    pub fn array(&self) -> Result<Array, OpError> {
        self.constant.ok_or_else(|| OpError::new("a constant operand is needed"))?.to_array()
    }
}

/// Returns the number of elements of memory that a newly computed tensor needs, including padding.
pub fn storage_elements(shape: &[Dim], placement: &Placement) -> Dim {
    match placement {
        Placement::Strided { .. } => product(shape),
        Placement::Slices4 => {
            let channels = shape.get(1).map_or(Dim::known(1), |c| c.ceil_div(4).scale(4));
            let rest: Vec<Dim> =
                shape.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, d)| d.clone()).collect();
            channels.mul(&product(&rest))
        }
    }
}

/// Returns the bytes that a tensor takes on the device if it is not quantized.
fn stored_bytes(operand: &Operand<'_>) -> Dim {
    storage_elements(&operand.shape, &operand.placement).scale(operand.dtype.on_device().bytes())
}

/// One node of the graph that a kernel is to compute on the device.
#[derive(Debug, Clone)]
pub struct Problem<'a> {
    /// The operator.
    pub op: &'a Op,
    /// All operands of the node. The first `arity` belong to the operator, the others to the epilogue.
    pub operands: Vec<Operand<'a>>,
    /// Number of operands of the operator.
    pub arity: usize,
    /// Elementwise functions that are applied to the operator's result before it is stored.
    pub epilogue: &'a [EpilogueStep],
    /// Element type of the operator's result before the epilogue.
    pub computed: DType,
    /// The result, after the epilogue, as it is stored.
    pub result: Operand<'a>,
    /// Bounds of the symbols in the sizes.
    pub bounds: &'a Bounds,
    /// Profile of the target device.
    pub target: &'a TargetProfile,
}

impl<'a> Problem<'a> {
    /// Returns the default number of invocations per workgroup on the target.
    pub fn threads(&self) -> u32 {
        self.target.prefer.workgroup_invocations.min(256)
    }

    /// Returns the maximum value of a size: its value with every symbol at its upper bound.
    pub fn max(&self, dim: &Dim) -> i64 {
        dim.range(self.bounds).1
    }

    /// Returns the bytes that the node reads and writes, if it reads each operand once. Only the selected rows of
    /// a gathered table count, and only the keys and values in the sliding window.
    pub fn traffic_dim(&self) -> Dim {
        let read = self.operands.iter().enumerate().map(|(i, o)| {
            let partial =
                self.experts_read(i).or_else(|| self.gathered_rows(i)).or_else(|| self.window_positions(i));
            match (o.quantized, partial) {
                (_, Some((axis, count))) => count.scale(self.slice_bytes(o, axis)),
                (Some(_), None) => Dim::known(o.bytes(self.bounds)),
                (None, None) => stored_bytes(o),
            }
        });
        read.fold(stored_bytes(&self.result), |a, b| a.add(&b))
    }

    /// Returns the expert axis and the maximum number of experts that are read, if operand `index` is the stacked
    /// expert weights of a gathered matmul.
    fn experts_read(&self, index: usize) -> Option<(usize, Dim)> {
        let Op::GatherMatMul(_) = self.op else { return None };
        let matrices = self.operands.get(1).filter(|_| index == 1)?;
        let count = self.max(&self.operands.get(EXPERT_INDICES)?.elements());
        let all = self.max(matrices.shape.first()?).max(1);
        Some((0, Dim::known(count.clamp(1, all))))
    }

    /// Returns the row axis and the number of rows that are read, if operand `index` is the table of a gather that
    /// reads only some rows.
    fn gathered_rows(&self, index: usize) -> Option<(usize, Dim)> {
        let Op::Gather(gather) = self.op else { return None };
        let (table, indices) = (self.operands.first().filter(|_| index == 0)?, self.operands.get(1)?);
        let count = indices.elements();
        (self.max(&count) < self.max(table.shape.get(gather.axis)?)).then_some((gather.axis, count))
    }

    /// Returns the axis of positions and the maximum number of positions that are read, if operand `index` is the keys
    /// or values of an attention whose sliding window hides some positions.
    fn window_positions(&self, index: usize) -> Option<(usize, Dim)> {
        const KEYS: usize = 2;
        let Op::Attention(Attention { window: Some(window), .. }) = self.op else { return None };
        let keys = self.operands.get(index).filter(|_| matches!(index, 1 | 2))?;
        let rows = self.max(self.operands.first()?.shape.get(KEYS)?);
        let seen = i64::from(*window).saturating_add(rows - 1);
        (seen < self.max(keys.shape.get(KEYS)?)).then_some((KEYS, Dim::known(seen)))
    }

    /// Returns the bytes of an operand per position of an axis, with every symbol at its upper bound.
    fn slice_bytes(&self, operand: &Operand<'_>, axis: usize) -> i64 {
        let size = operand.shape.get(axis).map_or(1, |size| self.max(size));
        operand.bytes(self.bounds) / size.max(1)
    }

    /// Returns the bytes that the node reads from operand `index`, with every symbol at its upper bound.
    pub fn read_bytes(&self, index: usize) -> i64 {
        let Some(operand) = self.operands.get(index) else { return 0 };
        match self.experts_read(index) {
            Some((axis, count)) => self.slice_bytes(operand, axis) * self.max(&count),
            None => operand.bytes(self.bounds),
        }
    }

    /// Returns a copy of the problem with all tensors in buffers instead of textures.
    pub fn in_buffers(&self) -> Self {
        let mut out = self.clone();
        for operand in out.operands.iter_mut().chain([&mut out.result]) {
            operand.storage = Storage::Buffer;
        }
        out
    }

    /// Returns the bytes that the node reads and writes, if it reads each operand once, with every symbol at its upper bound.
    pub fn traffic(&self) -> i64 {
        (0..self.operands.len())
            .map(|i| self.read_bytes(i))
            .fold(self.result.bytes(self.bounds), i64::saturating_add)
    }
}
