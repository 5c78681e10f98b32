//! Which source element each packed element is, a tile at a time.
//!
//! A tile is a stretch of packed elements. Tiles that lie within the constant all look alike: the same differences
//! between source elements, which are computed once. They are listed in the order of the source, so that reading a
//! transposed matrix takes whole cache lines. Only tiles at the edge are computed element by element.

use std::ops::Range;

use super::Share;

/// Elements of a tile, at most.
const TILE: usize = 1 << 11;
/// The same where neighbours in a tile are no neighbours in the source.
const SCATTERED_TILE: usize = 1 << 8;
/// Packed elements that one thread produces at a time.
const RUN: usize = 1 << 16;
/// The same where consecutive tiles read the same cache lines.
const SCATTERED_RUN: usize = 1 << 20;

/// The order of packed elements.
#[derive(Debug)]
pub(super) struct Tiles {
    groups: Vec<Group>,
    axes: Vec<Axis>,
    /// The source element of the first position.
    first: usize,
    /// Packed elements.
    elements: usize,
    /// Elements of a tile.
    tile: usize,
    /// Elements after which the tiles repeat; the last tile before may be shorter.
    period: usize,
    /// Place in the tile and distance in the source of each element, in the order of the source.
    table: Vec<(u32, u32)>,
    /// How far a tile reaches along each axis.
    reach: Vec<usize>,
    run: usize,
}

/// A group of positions of an axis.
#[derive(Debug, Clone, Copy)]
struct Group {
    extent: usize,
    axis: usize,
    /// Positions of the axis that one step of the group advances.
    advance: usize,
}

/// A logical axis.
#[derive(Debug, Clone, Copy)]
struct Axis {
    size: usize,
    /// Source elements between neighbours.
    stride: usize,
}

/// Where the elements of a tile are.
pub(super) enum Sources<'a> {
    /// Consecutive elements from a number on.
    Consecutive(usize),
    /// `(place in the tile, distance from the first source element)` for every element; the first is the number.
    Table(usize, &'a [(u32, u32)]),
    /// The packed elements from a number on, each by [`Tiles::source`].
    Single(usize),
}

impl Tiles {
    /// Elements as they are.
    pub(super) fn dense(elements: usize) -> Self {
        Self {
            groups: Vec::new(),
            axes: Vec::new(),
            first: 0,
            elements,
            tile: TILE,
            period: elements.max(1),
            table: Vec::new(),
            reach: Vec::new(),
            run: RUN,
        }
    }

    /// So many stretches of as many elements each, which are no elements of a source by themselves.
    pub(super) fn runs(count: usize, length: usize) -> Self {
        let length = length.max(1);
        Self { tile: length, period: length, run: RUN.min(length), ..Self::dense(count * length) }
    }

    /// Groups of extent and axis, slowest first, over a constant of a shape with elements at strides, or over a share
    /// of it.
    pub(super) fn new(
        shape: &[usize],
        strides: &[usize],
        extents: &[(usize, usize)],
        share: Option<Share>,
    ) -> Self {
        let mut axes: Vec<Axis> =
            shape.iter().zip(strides).map(|(size, stride)| Axis { size: *size, stride: *stride }).collect();
        let mut first = 0;
        if let Some(share) = share
            && let Some(axis) = axes.get_mut(share.axis)
        {
            first = share.nth * axis.stride;
            let size = axis.size.saturating_sub(share.nth).div_ceil(share.of.max(1));
            *axis = Axis { size, stride: axis.stride * share.of };
        }
        let mut advance = vec![1usize; axes.len()];
        let mut groups: Vec<Group> = Vec::with_capacity(extents.len());
        for (extent, axis) in extents.iter().copied().rev() {
            groups.push(Group { extent, axis, advance: advance[axis] });
            advance[axis] *= extent;
        }
        groups.reverse();
        let elements = groups.iter().map(|g| g.extent).product();
        // A group of extent 0 has no positions.
        if elements == 0 {
            return Self::dense(0);
        }
        let mut tiles = Self { groups, axes, first, run: RUN, ..Self::dense(elements) };
        let neighbours = tiles.shape_tile(TILE);
        if !neighbours {
            tiles.shape_tile(SCATTERED_TILE);
            tiles.run = SCATTERED_RUN;
        }
        tiles.tabulate();
        tiles
    }

    /// Sets tile and period for tiles of at most so many elements; whether a tile has neighbours in the source.
    fn shape_tile(&mut self, most: usize) -> bool {
        let (mut tile, mut neighbours) = (1usize, false);
        for group in self.groups.iter().rev() {
            let part = group.extent.min(most / tile);
            let stride = self.axes.get(group.axis).map_or(1, |a| a.stride) * group.advance;
            neighbours |= stride == 1 && part > 3;
            self.period = tile * group.extent;
            tile *= part.max(1);
            if part < group.extent {
                break;
            }
        }
        self.tile = tile.max(1);
        self.period = self.period.max(1);
        neighbours
    }

    /// Lists the elements of the first tile, which starts at position 0 of every axis.
    fn tabulate(&mut self) {
        self.reach = vec![0; self.axes.len()];
        let mut position = vec![0; self.axes.len()];
        for at in 0..self.tile.min(self.period) {
            self.position(at, &mut position);
            let source = self.offset(&position) - self.first;
            self.table.push((at as u32, u32::try_from(source).unwrap_or(u32::MAX)));
            for (reach, p) in self.reach.iter_mut().zip(&position) {
                *reach = (*reach).max(*p);
            }
        }
        self.table.sort_unstable_by_key(|(at, source)| (*source, *at));
        if self.table.last().is_some_and(|(_, source)| *source == u32::MAX) {
            // Distances beyond 32 bits: every element is computed.
            self.table.clear();
        }
    }

    /// Position on every axis of a packed element.
    fn position(&self, mut at: usize, position: &mut [usize]) {
        position.fill(0);
        for group in self.groups.iter().rev() {
            if let Some(p) = position.get_mut(group.axis) {
                *p += (at % group.extent) * group.advance;
            }
            at /= group.extent;
        }
    }

    /// The source element of a position.
    fn offset(&self, position: &[usize]) -> usize {
        self.first + position.iter().zip(&self.axes).map(|(p, axis)| p * axis.stride).sum::<usize>()
    }

    /// The source element of packed element `at`; `None` for padding.
    pub(super) fn source(&self, at: usize) -> Option<usize> {
        let mut position = [0usize; 16];
        let position = position.get_mut(..self.axes.len())?;
        self.position(at, position);
        let inside = position.iter().zip(&self.axes).all(|(p, axis)| *p < axis.size);
        (inside && at < self.elements).then(|| self.offset(position))
    }

    /// Number of tiles.
    pub(super) fn count(&self) -> usize {
        (self.elements / self.period) * self.in_period() + (self.elements % self.period).div_ceil(self.tile)
    }

    fn in_period(&self) -> usize {
        self.period.div_ceil(self.tile)
    }

    /// Elements of the longest tile.
    pub(super) fn longest(&self) -> usize {
        self.tile.min(self.period)
    }

    /// Elements that are worth a thread.
    pub(super) fn run(&self) -> usize {
        self.run
    }

    /// The first packed element of a tile, or the number of elements after the last.
    pub(super) fn start(&self, tile: usize) -> usize {
        let (period, place) = (tile / self.in_period(), tile % self.in_period());
        (period * self.period + place * self.tile).min(self.elements)
    }

    /// The tiles of a run with the packed elements that each is, in the order of the source.
    pub(super) fn of(&self, run: Range<usize>) -> Vec<(Range<usize>, Sources<'_>)> {
        let mut position = vec![0; self.axes.len()];
        let mut tiles = Vec::with_capacity(run.len());
        for tile in run {
            let range = self.start(tile)..self.start(tile + 1);
            if self.groups.is_empty() {
                tiles.push((range.start, range.clone(), Sources::Consecutive(range.start)));
                continue;
            }
            self.position(range.start, &mut position);
            let first = self.offset(&position);
            let ends = position.iter().zip(&self.reach).map(|(p, r)| p + r);
            let inside = ends.zip(&self.axes).all(|(end, axis)| end < axis.size);
            let whole = inside && range.len() == self.table.len();
            let sources = match whole {
                true => Sources::Table(first, &self.table),
                false => Sources::Single(range.start),
            };
            tiles.push((first, range, sources));
        }
        tiles.sort_by_key(|(first, ..)| *first);
        tiles.into_iter().map(|(_, range, sources)| (range, sources)).collect()
    }
}
