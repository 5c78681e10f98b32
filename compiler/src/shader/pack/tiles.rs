//! Mapping of a packed constant's elements to the elements of its source, one tile at a time.
//!
//! A tile is a range of packed elements. All tiles that are inside the constant have equal offsets between their source
//! elements, so the offsets are computed once. The offsets are sorted by source element, so that packing a transposed
//! matrix reads whole cache lines. Only tiles at the edges are computed element by element.

use std::ops::Range;

use super::arrangement::Interleave;

/// Maximum number of elements per tile.
const TILE: usize = 1 << 11;
/// Maximum number of elements per tile if neighbors in the tile are not neighbors in the source.
const SCATTERED_TILE: usize = 1 << 8;
/// Number of packed elements that a thread writes in one task.
const RUN: usize = 1 << 16;
/// Number of packed elements that a thread writes in one task, if consecutive tiles read from equal cache lines.
const SCATTERED_RUN: usize = 1 << 20;

/// Order of packed elements, and its division into tiles.
#[derive(Debug)]
pub(super) struct Tiles {
    groups: Vec<Group>,
    axes: Vec<Axis>,
    /// Index of the source element at position 0 of every axis.
    first: usize,
    /// Number of elements of the packed constant, with padding.
    elements: usize,
    /// Number of elements of the packed constant in a tile, with padding.
    tile: usize,
    /// Period of the tiles: number of packed elements after which the pattern of tiles repeats. The last tile of a
    /// period may be shorter.
    period: usize,
    /// Table of the elements of a tile, `(place in the tile, offset in the source)`, sorted by source element.
    table: Vec<(u32, u32)>,
    /// Highest position that a tile reaches on each axis, relative to the tile's first position.
    reach: Vec<usize>,
    run: usize,
}

/// An axis group of a packing order: consecutive positions of an axis.
#[derive(Debug, Clone, Copy)]
struct Group {
    extent: usize,
    axis: usize,
    /// Number of positions along the axis between two consecutive positions of the group.
    advance: usize,
}

/// A logical axis of the packed constant.
#[derive(Debug, Clone, Copy)]
struct Axis {
    size: usize,
    /// Distance between neighbors along the axis in the source, in elements.
    stride: usize,
}

/// Source elements from which a tile is packed, in one of three forms.
pub(super) enum Sources<'a> {
    /// Consecutive source elements from this index on.
    Consecutive(usize),
    /// Index of the first source element, and `(place in the tile, offset from the first)` of every element.
    Table(usize, &'a [(u32, u32)]),
    /// Index of the tile's first packed element. [`Tiles::source`] returns the source of each element.
    Single(usize),
}

impl Tiles {
    /// Creates the tiles of a constant whose packed elements are in the source order.
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

    /// Creates `count` tiles of `length` elements, for packed elements that do not map to single source elements.
    pub(super) fn uniform(count: usize, length: usize) -> Self {
        let length = length.max(1);
        Self { tile: length, period: length, run: RUN.min(length), ..Self::dense(count * length) }
    }

    /// Creates the tiles for an order of axis groups, given as `(extent, axis)`, slowest first, over a constant with a shape and
    /// strides. With `interleave`, only every n-th position of an axis is packed.
    pub(super) fn new(
        shape: &[usize],
        strides: &[usize],
        extents: &[(usize, usize)],
        interleave: Option<Interleave>,
    ) -> Self {
        let mut axes: Vec<Axis> =
            shape.iter().zip(strides).map(|(size, stride)| Axis { size: *size, stride: *stride }).collect();
        let mut first = 0;
        if let Some(interleave) = interleave
            && let Some(axis) = axes.get_mut(interleave.axis)
        {
            first = interleave.index * axis.stride;
            let size = axis.size.saturating_sub(interleave.index).div_ceil(interleave.count.max(1));
            *axis = Axis { size, stride: axis.stride * interleave.count };
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
        let neighbors = tiles.shape_tile(TILE);
        if !neighbors {
            tiles.shape_tile(SCATTERED_TILE);
            tiles.run = SCATTERED_RUN;
        }
        tiles.tabulate();
        tiles
    }

    /// Sets the tile size (at most `most` elements) and the period of the tiles. Returns true if neighbors in a tile
    /// are neighbors in the source.
    fn shape_tile(&mut self, most: usize) -> bool {
        let (mut tile, mut neighbors) = (1usize, false);
        for group in self.groups.iter().rev() {
            let extent = group.extent.min(most / tile);
            let stride = self.axes.get(group.axis).map_or(1, |a| a.stride) * group.advance;
            neighbors |= stride == 1 && extent > 3;
            self.period = tile * group.extent;
            tile *= extent.max(1);
            if extent < group.extent {
                break;
            }
        }
        self.tile = tile.max(1);
        self.period = self.period.max(1);
        neighbors
    }

    /// Fills the table of the elements of a tile from the first tile, which starts at position 0 of each axis.
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
            // An offset exceeds 32 bits, so the source of each element is computed.
            self.table.clear();
        }
    }

    /// Computes the position of a packed element on each axis.
    fn position(&self, mut at: usize, position: &mut [usize]) {
        position.fill(0);
        for group in self.groups.iter().rev() {
            if let Some(p) = position.get_mut(group.axis) {
                *p += (at % group.extent) * group.advance;
            }
            at /= group.extent;
        }
    }

    /// Returns the index of the source element, given its position on each axis.
    fn offset(&self, position: &[usize]) -> usize {
        self.first + position.iter().zip(&self.axes).map(|(p, axis)| p * axis.stride).sum::<usize>()
    }

    /// Returns the index of the source element of packed element `at`, or `None` for padding.
    pub(super) fn source(&self, at: usize) -> Option<usize> {
        let mut position = [0usize; 16];
        let position = position.get_mut(..self.axes.len())?;
        self.position(at, position);
        let inside = position.iter().zip(&self.axes).all(|(p, axis)| *p < axis.size);
        (inside && at < self.elements).then(|| self.offset(position))
    }

    /// Returns the number of tiles.
    pub(super) fn count(&self) -> usize {
        (self.elements / self.period) * self.in_period() + (self.elements % self.period).div_ceil(self.tile)
    }

    fn in_period(&self) -> usize {
        self.period.div_ceil(self.tile)
    }

    /// Returns the number of packed elements in the longest tile.
    pub(super) fn max_tile_elements(&self) -> usize {
        self.tile.min(self.period)
    }

    /// Returns the number of packed elements that a thread writes in one task.
    pub(super) fn run_elements(&self) -> usize {
        self.run
    }

    /// Returns the index of a tile's first packed element. For the tile after the last one, returns the number of elements.
    pub(super) fn start(&self, tile: usize) -> usize {
        let (period, place) = (tile / self.in_period(), tile % self.in_period());
        (period * self.period + place * self.tile).min(self.elements)
    }

    /// Returns the tiles of a run, sorted by source element: for each tile, its range of packed elements and their
    /// source elements.
    pub(super) fn run_sources(&self, run: Range<usize>) -> Vec<(Range<usize>, Sources<'_>)> {
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
