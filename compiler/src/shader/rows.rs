//! Rows: a tensor walked along some of its axes, for the kernels that reduce, normalise, scan or sort.
//!
//! Such a kernel speaks of `row` and of the position `i` along it, both flat numbers; the text generated here turns
//! them into coordinates. Neighbouring axes that every tensor walks with one stride are merged first, so that the
//! usual case needs no division.

use super::access::Coordinates;
use super::hooks::Shader;
use super::problem::{Operand, Placement, Problem};
use super::walk::decompose;
use crate::ir::dim::{Dim, product};

/// How elements are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// One at a time.
    One,
    /// Four neighbours of one row, along the axis.
    Along(usize),
    /// One element of four neighbouring rows, across the axis.
    Across(usize),
}

impl Lanes {
    /// The axis of the four elements.
    pub(crate) fn axis(self) -> Option<usize> {
        match self {
            Self::One => None,
            Self::Along(axis) | Self::Across(axis) => Some(axis),
        }
    }

    /// How many elements are taken at once.
    pub(crate) fn count(self) -> u32 {
        if self == Self::One { 1 } else { 4 }
    }
}

/// Operand 0 of a problem as rows.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    /// Sizes of the tensor's axes.
    shape: Vec<Dim>,
    /// Axes along a row, ascending.
    along: Vec<usize>,
    /// How elements are taken.
    pub(crate) lanes: Lanes,
    /// The axes that make up the channels, when the tensor lies in slices of four of them.
    channels: Vec<usize>,
}

impl Rows {
    /// The tensor as rows along the given axes, taking four elements at once where it lies so.
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

    /// The tensor with its axis `channel` cut in two, groups and channels of a group, as rows along everything
    /// from the channels of a group on.
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

    /// The same rows without taking neighbours along a row at once.
    pub(crate) fn single(mut self) -> Self {
        if matches!(self.lanes, Lanes::Along(_)) {
            self.lanes = Lanes::One;
        }
        self
    }

    /// The same rows, four neighbours along the last axis at a time, however they lie.
    pub(crate) fn fours(mut self) -> Self {
        self.lanes = Lanes::Along(self.shape.len().saturating_sub(1));
        self
    }

    /// The same rows, one element at a time.
    pub(crate) fn scalar(mut self) -> Self {
        self.lanes = Lanes::One;
        self
    }

    /// Sizes in units of what is taken at once.
    fn units(&self) -> Vec<Dim> {
        let mut sizes = self.shape.clone();
        if let Some(axis) = self.lanes.axis() {
            sizes[axis] = sizes[axis].ceil_div(4);
        }
        sizes
    }

    /// Axes by speed of the walk, fastest first.
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

    /// Number of rows, in units.
    pub(crate) fn rows(&self) -> Dim {
        let units = self.units();
        product(self.order(false).into_iter().map(|axis| &units[axis]))
    }

    /// Length of a row, in units.
    pub(crate) fn length(&self) -> Dim {
        let units = self.units();
        product(self.along.iter().map(|axis| &units[*axis]))
    }

    /// Whether neighbouring positions of a row are neighbours in memory.
    pub(crate) fn contiguous(&self) -> bool {
        let fastest =
            [true, false].map(|along| self.order(along).into_iter().find(|axis| !self.shape[*axis].is(1)));
        match fastest {
            [Some(along), Some(across)] if self.channels.is_empty() => along > across,
            // In slices of four the spatial axes are next to each other.
            [Some(along), Some(across)] => self.channels.contains(&across) || !self.channels.contains(&along),
            [along, _] => along.is_some(),
        }
    }

    /// Statements and coordinates for `row`; axes along it are 0.
    fn row(&self, shader: &mut Shader<'_>) -> (String, Vec<String>) {
        decompose(shader, &self.units(), &self.order(false), "row")
    }

    /// Statements and coordinates of the variable `unit`, when no axis is along a row and every unit is one.
    pub(crate) fn unit(&self, shader: &mut Shader<'_>) -> (String, Coordinates) {
        let (text, axes) = decompose(shader, &self.units(), &self.order(false), "unit");
        (text, Coordinates { axes, lanes: self.lanes.axis(), pixel: None, unit: None })
    }

    /// Statements and coordinates of the element at `row` and `i`.
    pub(crate) fn at(&self, shader: &mut Shader<'_>) -> (String, Coordinates) {
        let (mut text, mut axes) = self.row(shader);
        let (along, positions) = decompose(shader, &self.units(), &self.order(true), "i");
        text += &along;
        for axis in &self.along {
            axes[*axis].clone_from(&positions[*axis]);
        }
        (text, Coordinates { axes, lanes: self.lanes.axis(), pixel: None, unit: None })
    }

    /// Statements and coordinates of a row's own result, with the axes along it of size 1 or absent.
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
        (text, Coordinates { axes, lanes, pixel: None, unit: None })
    }
}

/// A problem whose result has one element for each row of operand 0.
pub(crate) struct Reduced<'a> {
    /// The problem, with as few axes as it can have.
    pub(crate) problem: Problem<'a>,
    /// The rows of its operand 0.
    pub(crate) rows: Rows,
    /// Whether its result has an axis of size 1 for each axis along the rows.
    pub(crate) kept: bool,
}

/// Operand 0 as rows along `axes`, which the result has with size 1 or, without `keepdims`, not at all.
pub(crate) fn reduced<'a>(problem: &Problem<'a>, axes: &[usize], keepdims: bool) -> Reduced<'a> {
    let x = &problem.operands[0];
    let class = |a| usize::from(axes.contains(&a));
    let lost = if keepdims { &[] } else { axes };
    match keep_axes(problem, lost).and_then(|kept| merge(&kept, &x.shape, class)) {
        Some((problem, groups)) => {
            let along: Vec<usize> = (0..groups.len()).filter(|g| class(groups[*g][0]) == 1).collect();
            let rows = Rows::new(&problem.operands[0], &along);
            Reduced { problem, rows, kept: true }
        }
        None => Reduced { problem: problem.clone(), rows: Rows::new(x, axes), kept: keepdims },
    }
}

/// The problem with as few axes as possible and its rows along one axis, for an operator that keeps the others.
pub(crate) fn along_axis<'a>(problem: &Problem<'a>, axis: usize) -> (Problem<'a>, Rows) {
    let x = &problem.operands[0];
    match merge(problem, &x.shape, |a| usize::from(a > axis) + 2 * usize::from(a == axis)) {
        Some((merged, groups)) => {
            let along: Vec<usize> = (0..groups.len()).filter(|g| groups[*g].contains(&axis)).collect();
            let rows = Rows::new(&merged.operands[0], &along);
            (merged, rows)
        }
        None => (problem.clone(), Rows::new(x, &[axis])),
    }
}

/// Gives the result and the epilogue's operands an axis of size 1 wherever `reduced` names an axis that the result has
/// lost, so that every tensor has the rank of operand 0. `None` when a tensor is not strided.
fn keep_axes<'a>(problem: &Problem<'a>, reduced: &[usize]) -> Option<Problem<'a>> {
    let mut out = problem.clone();
    let rank = problem.result.rank();
    let own = problem.arity;
    for operand in out.operands.iter_mut().skip(own).chain([&mut out.result]) {
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

/// The same problem with as few axes as possible, when every tensor is strided: neighbouring axes of one class that
/// every tensor walks with one stride become one, and axes of size 1 go. Also the axes that each new axis stands for.
pub(crate) fn merge<'a>(
    problem: &Problem<'a>,
    shape: &[Dim],
    class: impl Fn(usize) -> usize,
) -> Option<(Problem<'a>, Vec<Vec<usize>>)> {
    let rank = shape.len();
    let mut strides: Vec<Vec<Dim>> = Vec::with_capacity(problem.operands.len() + 1);
    for operand in problem.operands.iter().chain([&problem.result]) {
        let Placement::Strided { strides: own, .. } = &operand.placement else { return None };
        let skip = rank.checked_sub(operand.rank())?;
        let mut full = vec![Dim::known(0); skip];
        full.extend(
            own.iter()
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
        // An operand that a whole group is broadcast to has size 1 there.
        let size = |group: &Vec<usize>| {
            let sizes =
                group.iter().map(|a| a.checked_sub(skip).map_or(Dim::known(1), |a| operand.shape[a].clone()));
            product(&sizes.collect::<Vec<Dim>>())
        };
        let sizes: Vec<Dim> = groups.iter().map(size).collect();
        if let Placement::Strided { strides: own, .. } = &mut operand.placement {
            *own = groups.iter().filter_map(|g| g.last()).map(|a| strides[*a].clone()).collect();
        }
        operand.shape = sizes;
    }
    Some((out, groups))
}
