//! A tensor as rows along some of its axes, for the kernels that reduce, normalize, scan or sort.
//!
//! Such a kernel uses two flat indices: `row`, and the position `i` in the row. The WGSL generated here turns them into
//! coordinates. Neighboring axes that have one common stride in every tensor are merged first, so that the usual case
//! needs no division.

use super::access::Coordinates;
use super::element_walk::split_index;
use super::hooks::Shader;
use super::problem::{Operand, Placement, Problem};
use crate::ir::dim::{Dim, product};

/// Number and direction of the elements that one access covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// One element.
    One,
    /// Four neighbors in one row, along the axis.
    Along(usize),
    /// One element of each of four neighboring rows, along the axis.
    Across(usize),
}

impl Lanes {
    /// Axis of the four elements.
    pub(crate) fn axis(self) -> Option<usize> {
        match self {
            Self::One => None,
            Self::Along(axis) | Self::Across(axis) => Some(axis),
        }
    }

    /// Number of elements per access.
    pub(crate) fn count(self) -> u32 {
        if self == Self::One { 1 } else { 4 }
    }
}

/// Operand 0 of a problem, seen as rows.
#[derive(Debug, Clone)]
pub(crate) struct RowView {
    /// Sizes of the tensor's axes.
    shape: Vec<Dim>,
    /// Axes along a row, ascending.
    along: Vec<usize>,
    /// Elements per access.
    pub(crate) lanes: Lanes,
    /// Axes that make up the channels, if the tensor is in slices of 4 channels.
    channels: Vec<usize>,
}

impl RowView {
    /// Rows along the given axes. One access covers 4 elements if they are neighbors in memory.
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

    /// Splits axis `channel` into groups and channels per group. A row is one group: its channels and all later axes.
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

    /// Uses single elements instead of 4 neighbors in a row.
    pub(crate) fn without_lanes_along(mut self) -> Self {
        if matches!(self.lanes, Lanes::Along(_)) {
            self.lanes = Lanes::One;
        }
        self
    }

    /// Uses 4 neighbors along the last axis, whatever the layout.
    pub(crate) fn with_vec4_lanes(mut self) -> Self {
        self.lanes = Lanes::Along(self.shape.len().saturating_sub(1));
        self
    }

    /// Uses single elements.
    pub(crate) fn with_scalar_lanes(mut self) -> Self {
        self.lanes = Lanes::One;
        self
    }

    /// Sizes of the axes in accesses.
    fn units(&self) -> Vec<Dim> {
        let mut sizes = self.shape.clone();
        if let Some(axis) = self.lanes.axis() {
            sizes[axis] = sizes[axis].ceil_div(4);
        }
        sizes
    }

    /// Axes along rows (or across them) in memory order, fastest first.
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

    /// Number of rows, in accesses.
    pub(crate) fn rows(&self) -> Dim {
        let units = self.units();
        product(self.order(false).into_iter().map(|axis| &units[axis]))
    }

    /// Length of a row, in accesses.
    pub(crate) fn length(&self) -> Dim {
        let units = self.units();
        product(self.along.iter().map(|axis| &units[*axis]))
    }

    /// True if neighboring positions of a row are neighbors in memory.
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

    /// Returns statements and coordinates for `row`. Axes along the row are 0.
    fn row(&self, shader: &mut Shader<'_>) -> (String, Vec<String>) {
        split_index(shader, &self.units(), &self.order(false), "row")
    }

    /// Returns statements and coordinates for the variable `unit`, if no axis is along a row: each access is one row.
    pub(crate) fn unit(&self, shader: &mut Shader<'_>) -> (String, Coordinates) {
        let (text, axes) = split_index(shader, &self.units(), &self.order(false), "unit");
        (text, Coordinates { axes, lanes: self.lanes.axis(), pixel: None, vec4_index: None })
    }

    /// Returns statements and coordinates for the element at `row` and `i`.
    pub(crate) fn at(&self, shader: &mut Shader<'_>) -> (String, Coordinates) {
        let (mut text, mut axes) = self.row(shader);
        let (along, positions) = split_index(shader, &self.units(), &self.order(true), "i");
        text += &along;
        for axis in &self.along {
            axes[*axis].clone_from(&positions[*axis]);
        }
        (text, Coordinates { axes, lanes: self.lanes.axis(), pixel: None, vec4_index: None })
    }

    /// Returns statements and coordinates of a row's result. Axes along the row have size 1 or are absent.
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

/// A problem whose result has one element for each row of operand 0.
pub(crate) struct ReductionRows<'a> {
    /// The problem, with as few axes as possible.
    pub(crate) problem: Problem<'a>,
    /// Rows of its operand 0.
    pub(crate) rows: RowView,
    /// True if the result has an axis of size 1 for each axis along the rows.
    pub(crate) kept: bool,
}

/// Returns operand 0 as rows along `axes`. In the result these axes have size 1, or are absent without `keepdims`.
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

/// Returns the problem with as few axes as possible and its rows along one axis, for an operator that keeps all axes.
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

/// Gives the result and the epilogue's operands an axis of size 1 for each axis in `reduced`, so that every tensor has
/// the rank of operand 0. Returns `None` if a tensor is not strided.
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

/// Returns the problem with as few axes as possible, and the old axes that each new axis merges.
///
/// Neighboring axes of one class merge if they have one common stride in every tensor. Axes of size 1 are removed.
/// Returns `None` if a tensor is not strided or no axis remains.
pub(crate) fn merge_axes<'a>(
    problem: &Problem<'a>,
    shape: &[Dim],
    class: impl Fn(usize) -> usize,
) -> Option<(Problem<'a>, Vec<Vec<usize>>)> {
    let rank = shape.len();
    let mut strides: Vec<Vec<Dim>> = Vec::with_capacity(problem.operands.len() + 1);
    for operand in problem.operands.iter().chain([&problem.result]) {
        let Placement::Strided { strides: own_strides, .. } = &operand.placement else { return None };
        let skip = rank.checked_sub(operand.rank())?;
        let mut full = vec![Dim::known(0); skip];
        full.extend(
            own_strides
                .iter()
                .zip(&operand.shape)
                .enumerate()
                .map(|(i, (s, d))| if d.is(1) && !shape[skip + i].is(1) { Dim::known(0) } else { s.clone() }),
        );
        strides.push(full);
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
