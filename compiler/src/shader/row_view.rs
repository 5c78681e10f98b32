//! View of a tensor as rows along some of its axes, for the kernels that reduce, normalize, scan or sort.
//!
//! Such a kernel uses two flat indices: the number `row` of a row, and the position `i` in the row. The WGSL that this
//! module generates turns them into coordinates. Neighboring axes that have one common stride in every tensor are
//! merged first, so that the usual case needs no division.

use super::access::Coordinates;
use super::element_walk::split_index;
use super::hooks::Shader;
use super::problem::{Operand, Placement, Problem};
use crate::ir::dim::{Dim, product};

/// Elements that one access of a row kernel covers: one, or four along or across rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// One access covers one element.
    One,
    /// One access covers four neighbors in one row, along this axis.
    Along(usize),
    /// One access covers one element of each of four neighboring rows, along this axis.
    Across(usize),
}

impl Lanes {
    /// Returns the axis along which the four elements of an access are neighbors, or `None` for one element.
    pub(crate) fn axis(self) -> Option<usize> {
        match self {
            Self::One => None,
            Self::Along(axis) | Self::Across(axis) => Some(axis),
        }
    }

    /// Returns the number of elements per access.
    pub(crate) fn count(self) -> u32 {
        if self == Self::One { 1 } else { 4 }
    }
}

/// A tensor seen as rows: usually operand 0 of a problem.
#[derive(Debug, Clone)]
pub(crate) struct RowView {
    /// Sizes of the axes of the tensor.
    shape: Vec<Dim>,
    /// Axes that a row extends along, in ascending order.
    along: Vec<usize>,
    /// Elements per access.
    pub(crate) lanes: Lanes,
    /// Axes into which the channel axis is split, if the tensor is in slices of 4 channels.
    channels: Vec<usize>,
}

impl RowView {
    /// Views a tensor as rows along the given axes. One access covers 4 elements if they are neighbors in memory.
    pub(crate) fn new(tensor: &Operand<'_>, along: &[usize]) -> Self {
        let last = tensor.rank().saturating_sub(1);
        let wide = |axis: usize| tensor.shape[axis].is_multiple_of(4) && !tensor.shape[axis].is(0);
        let lanes = match &tensor.placement {
            Placement::Slices4 if !along.contains(&1) => Lanes::Across(1),
            Placement::Slices4 if wide(1) => Lanes::Along(1),
            Placement::Strided { strides, .. } if tensor.rank() > 0 && strides[last].is(1) && wide(last) => {
                if along.contains(&last) {
                    Lanes::Along(last)
                } else {
                    Lanes::Across(last)
                }
            }
            _ => Lanes::One,
        };
        let channels = if tensor.is_slices4() { vec![1] } else { Vec::new() };
        Self { shape: tensor.shape.clone(), along: along.to_vec(), lanes, channels }
    }

    /// Views a tensor as the rows of a GroupNorm. Axis `channel` is split into groups and channels per group. A row is
    /// one group: its channels and all later axes.
    pub(crate) fn grouped(tensor: &Operand<'_>, channel: usize, groups: i64) -> Self {
        let mut shape = tensor.shape.clone();
        let per_group = shape[channel].floor_div(groups);
        shape.splice(channel..=channel, [Dim::known(groups), per_group.clone()]);
        let along: Vec<usize> = (channel + 1..shape.len()).collect();
        let Placement::Strided { strides, .. } = &tensor.placement else {
            let lanes = match per_group.as_known() {
                Some(1) => Lanes::Across(channel),
                _ if per_group.is_multiple_of(4) => Lanes::Along(channel + 1),
                _ => Lanes::One,
            };
            return Self { shape, along, lanes, channels: vec![channel, channel + 1] };
        };
        let last = shape.len() - 1;
        let wide = strides.last().is_some_and(|s| s.is(1)) && shape[last].is_multiple_of(4);
        let lanes = if wide { Lanes::Along(last) } else { Lanes::One };
        Self { shape, along, lanes, channels: Vec::new() }
    }

    /// Returns the view with accesses to single elements where an access covered 4 neighbors in a row.
    pub(crate) fn without_lanes_along(mut self) -> Self {
        if matches!(self.lanes, Lanes::Along(_)) {
            self.lanes = Lanes::One;
        }
        self
    }

    /// Returns the view with accesses to 4 neighbors along the last axis, whatever the layout.
    pub(crate) fn with_vec4_lanes(mut self) -> Self {
        self.lanes = Lanes::Along(self.shape.len().saturating_sub(1));
        self
    }

    /// Returns the view with accesses to single elements.
    pub(crate) fn with_scalar_lanes(mut self) -> Self {
        self.lanes = Lanes::One;
        self
    }

    /// Returns the sizes of the axes. The axis along which an access covers 4 elements is counted in accesses.
    fn units(&self) -> Vec<Dim> {
        let mut sizes = self.shape.clone();
        if let Some(axis) = self.lanes.axis() {
            sizes[axis] = sizes[axis].ceil_div(4);
        }
        sizes
    }

    /// Returns the axes along rows, or across rows if `along` is false, in memory order, fastest first.
    fn order(&self, along: bool) -> Vec<usize> {
        let rank = self.shape.len();
        let all: Vec<usize> = if self.channels.is_empty() {
            (0..rank).rev().collect()
        } else {
            let spatial = (1..rank).rev().filter(|axis| !self.channels.contains(axis));
            [0].into_iter().chain(spatial).chain(self.channels.iter().rev().copied()).collect()
        };
        all.into_iter().filter(|axis| self.along.contains(axis) == along).collect()
    }

    /// Returns the number of rows. Four rows that one access covers count as one.
    pub(crate) fn rows(&self) -> Dim {
        let units = self.units();
        product(self.order(false).into_iter().map(|axis| &units[axis]))
    }

    /// Returns the length of a row, counted in accesses.
    pub(crate) fn length(&self) -> Dim {
        let units = self.units();
        product(self.along.iter().map(|axis| &units[*axis]))
    }

    /// True if neighboring positions of a row are neighbors in memory, false if neighboring rows are.
    pub(crate) fn contiguous(&self) -> bool {
        let fastest =
            [true, false].map(|along| self.order(along).into_iter().find(|axis| !self.shape[*axis].is(1)));
        match fastest {
            [Some(along), Some(across)] if self.channels.is_empty() => along > across,
            // In slices of 4, the spatial axes are faster than the channels.
            [Some(along), Some(across)] => self.channels.contains(&across) || !self.channels.contains(&along),
            [along, _] => along.is_some(),
        }
    }

    /// Returns WGSL statements that compute the coordinates of the first element of row `row`, and these coordinates.
    fn row(&self, shader: &mut Shader<'_>) -> (String, Vec<String>) {
        split_index(shader, &self.units(), &self.order(false), "row")
    }

    /// Returns WGSL statements that compute the coordinates of the access with index `unit`, and the WGSL expressions of these
    /// coordinates. Every row of the view must be one access long.
    pub(crate) fn unit(&self, shader: &mut Shader<'_>) -> (String, Coordinates) {
        let (text, axes) = split_index(shader, &self.units(), &self.order(false), "unit");
        (text, Coordinates { axes, lanes: self.lanes.axis(), pixel: None, vec4_index: None })
    }

    /// Returns WGSL statements that compute the coordinates of the element at position `i` of row `row`, and these coordinates.
    pub(crate) fn at(&self, shader: &mut Shader<'_>) -> (String, Coordinates) {
        let (mut text, mut axes) = self.row(shader);
        let (along, positions) = split_index(shader, &self.units(), &self.order(true), "i");
        text += &along;
        for axis in &self.along {
            axes[*axis].clone_from(&positions[*axis]);
        }
        (text, Coordinates { axes, lanes: self.lanes.axis(), pixel: None, vec4_index: None })
    }

    /// Returns WGSL statements that compute the coordinates of the result element of row `row`, and these coordinates. In the
    /// result, the axes along the row have size 1, or are absent without `keepdims`.
    pub(crate) fn result(&self, shader: &mut Shader<'_>, keepdims: bool) -> (String, Coordinates) {
        let (text, mut axes) = self.row(shader);
        let mut lanes = match self.lanes {
            Lanes::Across(axis) => Some(axis),
            _ => None,
        };
        if !keepdims {
            for axis in self.along.iter().rev() {
                axes.remove(*axis);
                lanes = lanes.map(|l| if l > *axis { l - 1 } else { l });
            }
        }
        (text, Coordinates { axes, lanes, pixel: None, vec4_index: None })
    }
}

/// A reduction problem, whose result has one element for each row of operand 0.
pub(crate) struct ReductionRows<'a> {
    /// The problem with axes merged where possible.
    pub(crate) problem: Problem<'a>,
    /// Operand 0 of the problem, seen as rows.
    pub(crate) rows: RowView,
    /// True if the result has an axis of size 1 for each reduced axis.
    pub(crate) kept: bool,
}

/// Returns a reduction problem with merged axes, and its operand 0 as rows along `axes`. In the result these axes have
/// size 1, or are absent without `keepdims`.
pub(crate) fn reduction_rows<'a>(problem: &Problem<'a>, axes: &[usize], keepdims: bool) -> ReductionRows<'a> {
    let x = &problem.operands[0];
    let class = |a| usize::from(axes.contains(&a));
    let lost = if keepdims { &[] } else { axes };
    match keep_axes(problem, lost).and_then(|kept| merge_axes(&kept, &x.shape, class)) {
        Some((problem, groups)) => {
            let along: Vec<usize> = (0..groups.len()).filter(|g| class(groups[*g][0]) == 1).collect();
            let rows = RowView::new(&problem.operands[0], &along);
            ReductionRows { problem, rows, kept: true }
        }
        None => ReductionRows { problem: problem.clone(), rows: RowView::new(x, axes), kept: keepdims },
    }
}

/// Returns the problem with merged axes, and its operand 0 as rows along `axis`, for an operator that keeps all axes.
pub(crate) fn rows_along_axis<'a>(problem: &Problem<'a>, axis: usize) -> (Problem<'a>, RowView) {
    let x = &problem.operands[0];
    match merge_axes(problem, &x.shape, |a| usize::from(a > axis) + 2 * usize::from(a == axis)) {
        Some((merged, groups)) => {
            let along: Vec<usize> = (0..groups.len()).filter(|g| groups[*g].contains(&axis)).collect();
            let rows = RowView::new(&merged.operands[0], &along);
            (merged, rows)
        }
        None => (problem.clone(), RowView::new(x, &[axis])),
    }
}

/// Returns a reduction problem in which the result and the epilogue's operands have an axis of size 1 for each axis in
/// `reduced`, so that every tensor has the rank of operand 0. Returns `None` if a tensor is not strided.
fn keep_axes<'a>(problem: &Problem<'a>, reduced: &[usize]) -> Option<Problem<'a>> {
    let mut out = problem.clone();
    let rank = problem.result.rank();
    let arity = problem.arity;
    for operand in out.operands.iter_mut().skip(arity).chain([&mut out.result]) {
        let skip = rank.checked_sub(operand.rank())?;
        let Placement::Strided { strides, .. } = &mut operand.placement else { return None };
        operand.shape.splice(0..0, vec![Dim::known(1); skip]);
        strides.splice(0..0, vec![Dim::known(0); skip]);
        for axis in reduced {
            operand.shape.insert(*axis, Dim::known(1));
            strides.insert(*axis, Dim::known(0));
        }
    }
    Some(out)
}

/// Returns the strides of a tensor along the axes of a shape to which it broadcasts: 0 along the axes that it lacks and the
/// axes where only the tensor has size 1. Returns `None` if the tensor has more axes than the shape.
pub(super) fn broadcast_strides(strides: &[Dim], sizes: &[Dim], shape: &[Dim]) -> Option<Vec<Dim>> {
    let skip = shape.len().checked_sub(sizes.len())?;
    let mut full = vec![Dim::known(0); skip];
    full.extend(strides.iter().zip(sizes).zip(&shape[skip..]).map(|((stride, size), whole)| {
        if size.is(1) && !whole.is(1) { Dim::known(0) } else { stride.clone() }
    }));
    Some(full)
}

/// Returns the problem with axes merged where possible, and for each new axis the old axes that it merges.
///
/// Neighboring axes merge if `class` returns equal numbers for them and if they have one common stride in every tensor.
/// Axes of size 1 are removed. Returns `None` if a tensor is not strided or no axis remains.
pub(crate) fn merge_axes<'a>(
    problem: &Problem<'a>,
    shape: &[Dim],
    class: impl Fn(usize) -> usize,
) -> Option<(Problem<'a>, Vec<Vec<usize>>)> {
    let rank = shape.len();
    let mut strides: Vec<Vec<Dim>> = Vec::with_capacity(problem.operands.len() + 1);
    for operand in problem.operands.iter().chain([&problem.result]) {
        let Placement::Strided { strides: own_strides, .. } = &operand.placement else { return None };
        strides.push(broadcast_strides(own_strides, &operand.shape, shape)?);
    }
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for axis in (0..rank).filter(|i| !shape[*i].is(1)) {
        let merges = groups.last().and_then(|g| g.last()).is_some_and(|before| {
            class(*before) == class(axis) && strides.iter().all(|s| s[*before] == s[axis].mul(&shape[axis]))
        });
        match groups.last_mut() {
            Some(group) if merges => group.push(axis),
            _ => groups.push(vec![axis]),
        }
    }
    if groups.is_empty() {
        return None;
    }
    let mut out = problem.clone();
    for (operand, strides) in out.operands.iter_mut().chain([&mut out.result]).zip(&strides) {
        let skip = rank - operand.rank();
        // An operand that is broadcast along a whole group has size 1 there.
        let size = |group: &Vec<usize>| {
            let sizes =
                group.iter().map(|a| a.checked_sub(skip).map_or(Dim::known(1), |a| operand.shape[a].clone()));
            product(&sizes.collect::<Vec<Dim>>())
        };
        let sizes: Vec<Dim> = groups.iter().map(size).collect();
        if let Placement::Strided { strides: own_strides, .. } = &mut operand.placement {
            *own_strides = groups.iter().filter_map(|g| g.last()).map(|a| strides[*a].clone()).collect();
        }
        operand.shape = sizes;
    }
    Some((out, groups))
}
