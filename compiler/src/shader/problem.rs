//! What a kernel sees of the graph: one operator with its operands' shapes, types and placements. Nothing else.

use super::codes::Coded;
use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bounds, Dim, product};
use crate::ir::element::EpilogueStep;
use crate::ir::op::{Attention, Constant, Op};
use crate::ir::ops::gather_matmul::PICKS;
use crate::ir::storage::Storage;
use crate::ir::tensor::{DType, Layout};
use crate::target::TargetProfile;

/// Where the elements of a tensor lie in its storage object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Element `[i0, i1, ..]` is at `offset + i0 * strides[0] + i1 * strides[1] + ..`, in elements.
    /// Views (reshape, transpose, slice, expand) of a dense tensor are of this kind.
    Strided {
        /// Per axis; 0 repeats, negative runs backwards.
        strides: Vec<Dim>,
        /// First element.
        offset: Dim,
    },
    /// [`Layout::Slices4`], in whatever storage.
    Slices4,
}

impl Placement {
    /// The placement of a dense row-major tensor.
    pub fn dense(shape: &[Dim]) -> Self {
        Self::Strided { strides: dense_strides(shape), offset: Dim::known(0) }
    }

    /// The placement of a freshly computed tensor.
    pub fn of(layout: Layout, shape: &[Dim]) -> Self {
        match layout {
            Layout::RowMajor => Self::dense(shape),
            Layout::Slices4(_) => Self::Slices4,
        }
    }

    /// Whether the tensor is dense and row-major from the start of its storage; axes of size 1 do not count.
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
    /// Element type in the graph; `dtype.on_device()` is what lies in memory.
    pub dtype: DType,
    /// Logical sizes.
    pub shape: Vec<Dim>,
    /// Where elements lie.
    pub placement: Placement,
    /// In which kind of memory object; a buffer unless they lie in slices of four.
    pub storage: Storage,
    /// The elements, when the operand is a constant; a kernel may ask for them in another arrangement.
    pub constant: Option<&'a Constant>,
    /// How they lie where the operand is a constant of few bits, or a view of one; its placement then says which element
    /// is where by their numbers.
    pub codes: Option<Coded<'a>>,
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

    /// The size of an axis counted from the end, 1 for the last; 1 where there is none.
    pub fn size_from_end(&self, back: usize) -> Dim {
        self.rank().checked_sub(back).map_or(Dim::known(1), |i| self.shape[i].clone())
    }

    /// Whether the tensor lies in a texture.
    pub fn in_texture(&self) -> bool {
        self.is_slices4() && self.storage.is_texture()
    }

    /// Whether the tensor lies in slices of four channels.
    pub fn is_slices4(&self) -> bool {
        self.placement == Placement::Slices4
    }

    /// Bytes on the device at the upper bounds of the symbols.
    pub fn bytes(&self, bounds: &Bounds) -> i64 {
        if let Some(codes) = &self.codes {
            return i64::try_from(codes.form.bytes()).unwrap_or(i64::MAX);
        }
        storage_elements(&self.shape, &self.placement)
            .range(bounds)
            .1
            .saturating_mul(self.dtype.on_device().bytes())
    }

    /// The constant as a host array.
    ///
    /// # Errors
    /// When the operand is not a constant.
    pub fn array(&self) -> Result<Array, OpError> {
        self.constant.ok_or_else(|| OpError::new("a constant operand is needed"))?.to_array()
    }
}

/// Elements of storage that a freshly computed tensor takes.
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

/// Bytes that a tensor takes as elements.
fn stored_bytes(operand: &Operand<'_>) -> Dim {
    storage_elements(&operand.shape, &operand.placement).scale(operand.dtype.on_device().bytes())
}

/// One node to be computed on the device.
#[derive(Debug, Clone)]
pub struct Problem<'a> {
    /// The operator.
    pub op: &'a Op,
    /// All operands; the first `own` belong to the operator, the others to the epilogue.
    pub operands: Vec<Operand<'a>>,
    /// How many operands belong to the operator.
    pub arity: usize,
    /// Element functions applied to the operator's result before it is stored.
    pub epilogue: &'a [EpilogueStep],
    /// The element type of the operator's result before the epilogue.
    pub computed: DType,
    /// What is stored.
    pub result: Operand<'a>,
    /// Bounds of the symbols.
    pub bounds: &'a Bounds,
    /// Facts about the device.
    pub target: &'a TargetProfile,
}

impl<'a> Problem<'a> {
    /// Invocations of a workgroup of a kernel that has no reason of its own for another number.
    pub fn threads(&self) -> u32 {
        self.target.prefer.workgroup_invocations.min(256)
    }

    /// The largest value of a size.
    pub fn max(&self, dim: &Dim) -> i64 {
        dim.range(self.bounds).1
    }

    /// Bytes read and written, each operand once; of tables the rows that are picked, of keys and values those in a window.
    pub fn traffic_dim(&self) -> Dim {
        let read = self.operands.iter().enumerate().map(|(i, o)| {
            let part = self.picked(i).or_else(|| self.row_picks(i)).or_else(|| self.in_window(i));
            match (o.codes, part) {
                (_, Some((axis, picks))) => picks.scale(self.slice_bytes(o, axis)),
                (Some(_), None) => Dim::known(o.bytes(self.bounds)),
                (None, None) => stored_bytes(o),
            }
        });
        read.fold(stored_bytes(&self.result), |a, b| a.add(&b))
    }

    /// Of a stack of matrices, the axis that counts them and how many are read at most.
    fn picked(&self, index: usize) -> Option<(usize, Dim)> {
        let Op::GatherMatMul(_) = self.op else { return None };
        let matrices = self.operands.get(1).filter(|_| index == 1)?;
        let picks = self.max(&self.operands.get(PICKS)?.elements());
        let all = self.max(matrices.shape.first()?).max(1);
        Some((0, Dim::known(picks.clamp(1, all))))
    }

    /// Of a table, the axis of its rows and how many are read, where that is fewer than it has.
    fn row_picks(&self, index: usize) -> Option<(usize, Dim)> {
        let Op::Gather(gather) = self.op else { return None };
        let (table, indices) = (self.operands.first().filter(|_| index == 0)?, self.operands.get(1)?);
        let picks = indices.elements();
        (self.max(&picks) < self.max(table.shape.get(gather.axis)?)).then_some((gather.axis, picks))
    }

    /// Of keys and values, their axis and how many any query sees, where a window hides the others.
    fn in_window(&self, index: usize) -> Option<(usize, Dim)> {
        const KEYS: usize = 2;
        let Op::Attention(Attention { window: Some(window), .. }) = self.op else { return None };
        let keys = self.operands.get(index).filter(|_| matches!(index, 1 | 2))?;
        let rows = self.max(self.operands.first()?.shape.get(KEYS)?);
        let seen = i64::from(*window).saturating_add(rows - 1);
        (seen < self.max(keys.shape.get(KEYS)?)).then_some((KEYS, Dim::known(seen)))
    }

    /// Bytes at one place of an axis, at the upper bounds.
    fn slice_bytes(&self, operand: &Operand<'_>, axis: usize) -> i64 {
        let size = operand.shape.get(axis).map_or(1, |size| self.max(size));
        operand.bytes(self.bounds) / size.max(1)
    }

    /// Bytes of an operand that are read at the upper bounds.
    pub fn read_bytes(&self, index: usize) -> i64 {
        let Some(operand) = self.operands.get(index) else { return 0 };
        match self.picked(index) {
            Some((axis, picks)) => self.slice_bytes(operand, axis) * self.max(&picks),
            None => operand.bytes(self.bounds),
        }
    }

    /// The same with every tensor in a buffer.
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
