//! A kernel's view of the graph: one operator with the shapes, types and placements of its operands.

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
        /// Index of the first element.
        offset: Dim,
    },
    /// [`Layout::Slices4`], in any storage kind.
    Slices4,
}

impl Placement {
    /// The placement of a dense row-major tensor.
    pub fn dense(shape: &[Dim]) -> Self {
        Self::Strided { strides: dense_strides(shape), offset: Dim::known(0) }
    }

    /// Placement of a newly computed tensor.
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

/// Row-major strides in elements.
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
    /// Logical sizes.
    pub shape: Vec<Dim>,
    /// Order of the elements in memory.
    pub placement: Placement,
    /// Kind of memory object. Only tensors in slices of 4 can be in textures.
    pub storage: Storage,
    /// The constant, if the operand is one. A kernel may ask for it in another arrangement.
    pub constant: Option<&'a Constant>,
    /// Packed form of a quantized constant or of a view of one. `placement` then gives element indices of the
    /// constant, not memory addresses.
    pub quantized: Option<QuantizedConstant<'a>>,
}

impl Operand<'_> {
    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn elements(&self) -> Dim {
        product(&self.shape)
    }

    /// Size of an axis counted from the end: 1 is the last axis. Returns 1 if there is no such axis.
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

    /// Bytes on the device at the upper bounds of the symbols.
    pub fn bytes(&self, bounds: &Bounds) -> i64 {
        if let Some(quantized) = &self.quantized {
            return i64::try_from(quantized.panels.bytes()).unwrap_or(i64::MAX);
        }
        storage_elements(&self.shape, &self.placement)
            .range(bounds)
            .1
            .saturating_mul(self.dtype.on_device().bytes())
    }

    /// Returns the constant as a host array.
    ///
    /// # Errors
    /// If the operand is not a constant.
    pub fn array(&self) -> Result<Array, OpError> {
        self.constant.ok_or_else(|| OpError::new("a constant operand is needed"))?.to_array()
    }
}

/// Number of elements of memory that a newly computed tensor takes.
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

/// Bytes of a tensor that is not quantized.
fn stored_bytes(operand: &Operand<'_>) -> Dim {
    storage_elements(&operand.shape, &operand.placement).scale(operand.dtype.on_device().bytes())
}

/// One node to compute on the device.
#[derive(Debug, Clone)]
pub struct Problem<'a> {
    /// The operator.
    pub op: &'a Op,
    /// All operands. The first `arity` belong to the operator, the others to the epilogue.
    pub operands: Vec<Operand<'a>>,
    /// Number of operands of the operator.
    pub arity: usize,
    /// Elementwise functions applied to the operator's result before it is stored.
    pub epilogue: &'a [EpilogueStep],
    /// Element type of the operator's result before the epilogue.
    pub computed: DType,
    /// The stored result.
    pub result: Operand<'a>,
    /// Bounds of the symbols.
    pub bounds: &'a Bounds,
    /// Profile of the target device.
    pub target: &'a TargetProfile,
}

impl<'a> Problem<'a> {
    /// Default number of invocations per workgroup.
    pub fn threads(&self) -> u32 {
        self.target.prefer.workgroup_invocations.min(256)
    }

    /// Maximum value of a size.
    pub fn max(&self, dim: &Dim) -> i64 {
        dim.range(self.bounds).1
    }

    /// Bytes read and written, each operand once. Only the gathered rows of a table and the keys and values of a
    /// sliding window count.
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

    /// For the stacked expert weights of a gathered matmul: the expert axis and the maximum number of experts read.
    fn experts_read(&self, index: usize) -> Option<(usize, Dim)> {
        let Op::GatherMatMul(_) = self.op else { return None };
        let matrices = self.operands.get(1).filter(|_| index == 1)?;
        let count = self.max(&self.operands.get(EXPERT_INDICES)?.elements());
        let all = self.max(matrices.shape.first()?).max(1);
        Some((0, Dim::known(count.clamp(1, all))))
    }

    /// For the table of a gather: its row axis and the number of rows read, if it is less than the table's rows.
    fn gathered_rows(&self, index: usize) -> Option<(usize, Dim)> {
        let Op::Gather(gather) = self.op else { return None };
        let (table, indices) = (self.operands.first().filter(|_| index == 0)?, self.operands.get(1)?);
        let count = indices.elements();
        (self.max(&count) < self.max(table.shape.get(gather.axis)?)).then_some((gather.axis, count))
    }

    /// For keys and values of sliding-window attention: their axis and the maximum number of positions read, if the
    /// window hides some.
    fn window_positions(&self, index: usize) -> Option<(usize, Dim)> {
        const KEYS: usize = 2;
        let Op::Attention(Attention { window: Some(window), .. }) = self.op else { return None };
        let keys = self.operands.get(index).filter(|_| matches!(index, 1 | 2))?;
        let rows = self.max(self.operands.first()?.shape.get(KEYS)?);
        let seen = i64::from(*window).saturating_add(rows - 1);
        (seen < self.max(keys.shape.get(KEYS)?)).then_some((KEYS, Dim::known(seen)))
    }

    /// Bytes per position of an axis, at the upper bounds.
    fn slice_bytes(&self, operand: &Operand<'_>, axis: usize) -> i64 {
        let size = operand.shape.get(axis).map_or(1, |size| self.max(size));
        operand.bytes(self.bounds) / size.max(1)
    }

    /// Bytes read from an operand, at the upper bounds.
    pub fn read_bytes(&self, index: usize) -> i64 {
        let Some(operand) = self.operands.get(index) else { return 0 };
        match self.experts_read(index) {
            Some((axis, count)) => self.slice_bytes(operand, axis) * self.max(&count),
            None => operand.bytes(self.bounds),
        }
    }

    /// Returns the problem with all tensors in buffers.
    pub fn in_buffers(&self) -> Self {
        let mut out = self.clone();
        for operand in out.operands.iter_mut().chain([&mut out.result]) {
            operand.storage = Storage::Buffer;
        }
        out
    }

    /// Bytes read and written at the upper bounds, each operand once.
    pub fn traffic(&self) -> i64 {
        (0..self.operands.len())
            .map(|i| self.read_bytes(i))
            .fold(self.result.bytes(self.bounds), i64::saturating_add)
    }
}
