//! Allocations in the arena while a plan is built: their sizes, which of them lie inside another, and their last uses.
//!
//! Values share an allocation in two ways. A result may overwrite an operand that has no later user
//! ([`overwrite_operand`]). An operand of a concatenation may be written into its slice of the result
//! ([`super::concat_in_place`]).
//!
//! On devices that bind a buffer either for reading or for writing, an overwritten operand is read through the binding
//! of the result. All other allocations that one dispatch reads and writes are placed in different arenas.
//!
//! [`overwrite_operand`]: Allocations::overwrite_operand

use std::collections::BTreeMap;

use super::barriers::{Region, barriers};
use super::images::Images;
use super::memory::{self, LiveRange, MemoryPlan};
use super::views::is_view;
use super::{Dispatch, Location};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::storage::Storage;
use crate::kernels::InPlace;
use crate::shader::problem::Operand;
use crate::shader::{Bound, Launch, merge_bindings};

/// Last node that uses each value, directly or through views, as an index into the order of computation. Outputs of the
/// graph are used to the end.
pub(super) fn last_uses(graph: &Graph, order: &[NodeId]) -> BTreeMap<NodeId, usize> {
    let index: BTreeMap<NodeId, usize> = order.iter().enumerate().map(|(i, id)| (*id, i)).collect();
    let mut last_uses: BTreeMap<NodeId, usize> = BTreeMap::new();
    for id in order.iter().rev() {
        let last_use_by = |user: NodeId| {
            let node = graph.node(user);
            let at = index.get(&user).copied().unwrap_or(usize::MAX);
            let view = is_view(&node.op) && node.epilogue.is_empty();
            if view { at.max(last_uses.get(&user).copied().unwrap_or(usize::MAX)) } else { at }
        };
        let unused = index.get(id).copied().unwrap_or(0);
        let last = graph.users(*id).into_iter().map(last_use_by).max().unwrap_or(unused);
        last_uses.insert(*id, if graph.is_output(*id) { usize::MAX } else { last });
    }
    last_uses
}

/// A range of bytes in the arena.
#[derive(Debug, Clone, Copy)]
struct Allocation {
    bytes: u64,
    /// The allocation that contains this one, and the byte offset of this one in it.
    within: Option<(usize, u64)>,
    /// Last node that uses a value in the allocation, as an index into the order of computation.
    until: usize,
}

/// All allocations of a plan.
#[derive(Debug, Default)]
pub(super) struct Allocations {
    allocations: Vec<Allocation>,
    /// Bytes of the values that share an allocation with another value. A plan without sharing would need these bytes in
    /// addition.
    saved: u64,
    /// True if no dispatch may both read and write one arena.
    separate: bool,
}

impl Allocations {
    /// Creates an empty list of allocations. With `separate`, no dispatch both reads and writes one arena.
    pub(super) fn new(separate: bool) -> Self {
        Self { separate, ..Self::default() }
    }

    /// Adds an allocation. `until` is the index of the last node that uses it.
    pub(super) fn add(&mut self, bytes: u64, until: usize) -> usize {
        self.allocations.push(Allocation { bytes, within: None, until });
        self.allocations.len() - 1
    }

    /// Adds an allocation that is a slice of another one. `in_place` is true if a value is computed in the slice; a
    /// naive plan would allocate memory for that value.
    pub(super) fn add_slice(&mut self, whole: usize, offset: u64, bytes: u64, in_place: bool) -> usize {
        let until = self.allocations[whole].until;
        self.allocations.push(Allocation { bytes, within: Some((whole, offset)), until });
        self.saved += if in_place { bytes } else { 0 };
        self.allocations.len() - 1
    }

    /// Returns the allocation that contains an allocation, or the allocation itself.
    pub(super) fn root(&self, allocation: usize) -> usize {
        self.allocations[allocation].within.map_or(allocation, |(whole, _)| whole)
    }

    /// Returns the allocation of an operand that the result of a launch may overwrite, and extends its live range to
    /// `until`. The operand must have no later user and the result's placement and type, and the kernel must read it
    /// only where it stores the result. Returns `None` if there is no such operand.
    ///
    /// `locations` are the operands' allocations; `now` is the index of the current node.
    pub(super) fn overwrite_operand(
        &mut self,
        (in_place, launches): (InPlace, &[Launch]),
        (operands, arity): (&[Operand<'_>], usize),
        locations: &[Option<usize>],
        result: &Operand<'_>,
        (now, until): (usize, usize),
    ) -> Option<usize> {
        // Launches before the last one must not write the result. The operand would be overwritten too early.
        let (launch, before) = launches.split_last()?;
        if before.iter().flat_map(|l| &l.bindings).any(|b| matches!(b.bound, Bound::Result)) {
            return None;
        }
        let alike = |o: &Operand<'_>| {
            o.shape == result.shape
                && o.storage == Storage::Buffer
                && o.storage == result.storage
                && o.placement == result.placement
                && o.dtype.on_device() == result.dtype.on_device()
        };
        let fits = |allocation: usize| {
            let whole =
                self.allocations[allocation].within.is_none() && self.allocations[allocation].until <= now;
            whole
                && operands.iter().zip(locations).enumerate().all(
                    |(k, (operand, location))| match *location {
                        Some(p) if self.root(p) == allocation => {
                            p == allocation
                                && alike(operand)
                                && in_place.overwrites(k, arity)
                                && (!self.separate || merge_bindings(launch, locations, allocation).is_some())
                        }
                        _ => true,
                    },
                )
        };
        let found = locations.iter().flatten().copied().find(|p| fits(*p))?;
        self.saved += self.allocations[found].bytes;
        self.allocations[found].until = until;
        Some(found)
    }

    /// Places all allocations in arenas and finds the barriers. Returns the sizes of all allocations, the live ranges of the
    /// allocations that lie inside no other allocation, and the offsets of all allocations.
    pub(super) fn place(
        self,
        dispatches: &mut [Dispatch],
        alignment: u64,
        images: &Images,
    ) -> (Vec<u64>, Vec<LiveRange>, MemoryPlan) {
        let mut ranges: Vec<LiveRange> = Vec::new();
        let mut range_of: Vec<usize> = Vec::with_capacity(self.allocations.len());
        // A slice is added after the allocation that contains it.
        for allocation in &self.allocations {
            range_of.push(match allocation.within {
                Some((whole, _)) => range_of[whole],
                None => {
                    let size = allocation.bytes.next_multiple_of(alignment);
                    ranges.push(LiveRange { size, first: usize::MAX, last: 0 });
                    ranges.len() - 1
                }
            });
        }
        for (at, dispatch) in dispatches.iter().enumerate() {
            for location in &dispatch.locations {
                if let Location::Arena(i) = location {
                    let range = &mut ranges[range_of[*i]];
                    range.first = range.first.min(at);
                    range.last = at;
                }
            }
        }
        for range in ranges.iter_mut().filter(|r| r.first == usize::MAX) {
            (range.first, range.size) = (0, 0);
        }
        let mut memory = match self.separate {
            false => memory::plan(&ranges),
            true => memory::plan_separated(&ranges, &read_write_pairs(dispatches, &range_of)),
        };
        memory.naive += self.saved;
        memory.offsets = self
            .allocations
            .iter()
            .zip(&range_of)
            .map(|(allocation, range)| {
                memory.offsets[*range] + allocation.within.map_or(0, |(_, offset)| offset)
            })
            .collect();
        memory.arena_of = range_of.iter().map(|range| memory.arena(*range)).collect();
        let touched: Vec<(Vec<Region>, Vec<Region>)> = dispatches
            .iter()
            .map(|dispatch| {
                let (mut reads, mut writes) = (Vec::new(), Vec::new());
                for (location, binding) in dispatch.locations.iter().zip(&dispatch.launch.bindings) {
                    let region = match *location {
                        Location::Arena(i) => Region {
                            buffer: Location::Arena(memory.arena(i)),
                            start: memory.offsets[i],
                            end: memory.offsets[i] + self.allocations[i].bytes,
                        },
                        Location::Image(i) => {
                            let texture = images.texture_of.get(i).copied().unwrap_or(i);
                            Region { buffer: Location::Image(texture), start: 0, end: u64::MAX }
                        }
                        Location::Output(_) | Location::Input(_) | Location::State(_) => {
                            Region { buffer: *location, start: 0, end: u64::MAX }
                        }
                        Location::Weight(_) | Location::Params => continue,
                    };
                    if binding.writable { writes.push(region) } else { reads.push(region) }
                }
                (reads, writes)
            })
            .collect();
        for (dispatch, barrier) in dispatches.iter_mut().zip(barriers(&touched)) {
            dispatch.barrier = barrier;
        }
        (self.allocations.iter().map(|p| p.bytes).collect(), ranges, memory)
    }
}

/// Returns a launch with one binding for its result and for all operands in the result's allocation. Returns `None` if
/// the bindings cannot be merged.
pub(super) fn merge_bindings(
    launch: &Launch,
    locations: &[Option<usize>],
    allocation: usize,
) -> Option<Launch> {
    let overwritten =
        |bound: Bound| matches!(bound, Bound::Operand(k) if locations.get(k) == Some(&Some(allocation)));
    let bound = launch.bindings.iter().enumerate().filter(|(_, b)| overwritten(b.bound));
    let operands: Vec<usize> = bound.map(|(index, _)| index).collect();
    if operands.is_empty() {
        Some(launch.clone())
    } else {
        merge_bindings::merge_with_result(launch, &operands)
    }
}

/// Returns pairs of live ranges such that a dispatch writes the first one and reads the second one.
fn read_write_pairs(dispatches: &[Dispatch], range_of: &[usize]) -> Vec<(usize, usize)> {
    let side = |dispatch: &Dispatch, writable: bool| -> Vec<usize> {
        let bound =
            dispatch.locations.iter().zip(&dispatch.launch.bindings).filter(|(_, b)| b.writable == writable);
        bound
            .filter_map(
                |(location, _)| if let Location::Arena(i) = location { Some(range_of[*i]) } else { None },
            )
            .collect()
    };
    let of_dispatch = |dispatch: &Dispatch| {
        let (written, read) = (side(dispatch, true), side(dispatch, false));
        written.into_iter().flat_map(move |w| read.clone().into_iter().map(move |r| (w, r)))
    };
    let mut pairs: Vec<(usize, usize)> =
        dispatches.iter().flat_map(of_dispatch).filter(|(w, r)| w != r).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}
