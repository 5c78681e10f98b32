//! The arena while a plan grows: allocations of storage, which of them lie inside another, and until when each is used.
//!
//! Two things let values share a allocation. A result may overwrite an operand that nobody uses any more ([`in_place`]),
//! and an operand of a concatenation may be written straight into its part of the result ([`super::parts`]).
//!
//! Where a device takes buffers for reading or for writing only, what is overwritten is read through the binding that it
//! is written by, and allocations that one dispatch reads and writes otherwise lie in different arenas.
//!
//! [`in_place`]: Allocations::in_place

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
use crate::shader::{Bound, Launch, merge};

/// The last node that uses each value, itself or through views, by its place in the order of computation; results
/// of the graph are used to the end.
pub(super) fn lives(graph: &Graph, order: &[NodeId]) -> BTreeMap<NodeId, usize> {
    let place: BTreeMap<NodeId, usize> = order.iter().enumerate().map(|(i, id)| (*id, i)).collect();
    let mut lives: BTreeMap<NodeId, usize> = BTreeMap::new();
    for id in order.iter().rev() {
        let through = |user: NodeId| {
            let node = graph.node(user);
            let at = place.get(&user).copied().unwrap_or(usize::MAX);
            let view = is_view(&node.op) && node.epilogue.is_empty();
            if view { at.max(lives.get(&user).copied().unwrap_or(usize::MAX)) } else { at }
        };
        let own = place.get(id).copied().unwrap_or(0);
        let last = graph.users(*id).into_iter().map(through).max().unwrap_or(own);
        lives.insert(*id, if graph.is_output(*id) { usize::MAX } else { last });
    }
    lives
}

/// A allocation of storage.
#[derive(Debug, Clone, Copy)]
struct Allocation {
    bytes: u64,
    /// The allocation it lies in, and where.
    within: Option<(usize, u64)>,
    /// The last node, by its place in the order of computation, that uses a value in it.
    until: usize,
}

/// All allocations of storage.
#[derive(Debug, Default)]
pub(super) struct Allocations {
    allocations: Vec<Allocation>,
    /// Bytes of the values that need no allocation of their own.
    saved: u64,
    /// Whether no dispatch may read and write one arena.
    separate: bool,
}

impl Allocations {
    /// None yet; with `separate` no dispatch reads and writes one arena.
    pub(super) fn new(separate: bool) -> Self {
        Self { separate, ..Self::default() }
    }

    /// Adds a allocation that is used until a node.
    pub(super) fn add(&mut self, bytes: u64, until: usize) -> usize {
        self.allocations.push(Allocation { bytes, within: None, until });
        self.allocations.len() - 1
    }

    /// Adds a part of a allocation. `shared` says that a value is computed there which would need its own otherwise.
    pub(super) fn add_part(&mut self, whole: usize, offset: u64, bytes: u64, shared: bool) -> usize {
        let until = self.allocations[whole].until;
        self.allocations.push(Allocation { bytes, within: Some((whole, offset)), until });
        self.saved += if shared { bytes } else { 0 };
        self.allocations.len() - 1
    }

    /// The allocation that a allocation lies in, or itself.
    pub(super) fn root(&self, allocation: usize) -> usize {
        self.allocations[allocation].within.map_or(allocation, |(whole, _)| whole)
    }

    /// The allocation of an operand that the result of a launch may overwrite: one that is used by no later node, has the
    /// result's placement and type, and is read only where the result is stored. The allocation then lives on `until`.
    ///
    /// `locations` are the operands' allocations in the arena, `now` is the node's place.
    pub(super) fn in_place(
        &mut self,
        (in_place, launches): (InPlace, &[Launch]),
        (operands, arity): (&[Operand<'_>], usize),
        locations: &[Option<usize>],
        result: &Operand<'_>,
        (now, until): (usize, usize),
    ) -> Option<usize> {
        // Launches before the last one must leave the result alone, as those that only collect do.
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
                                && (!self.separate || merged(launch, locations, allocation).is_some())
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

    /// Places every allocation in the arena and finds the barriers: sizes of the allocations, ranges of those that lie in no
    /// other, and the offsets of all.
    pub(super) fn place(
        self,
        dispatches: &mut [Dispatch],
        alignment: u64,
        images: &Images,
    ) -> (Vec<u64>, Vec<LiveRange>, MemoryPlan) {
        let mut ranges: Vec<LiveRange> = Vec::new();
        let mut range_of: Vec<usize> = Vec::with_capacity(self.allocations.len());
        // A part is added after what it lies in.
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
            true => memory::plan_apart(&ranges, &apart(dispatches, &range_of)),
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
                            let object = images.places.get(i).copied().unwrap_or(i);
                            Region { buffer: Location::Image(object), start: 0, end: u64::MAX }
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

/// A launch whose result lies in a allocation, with one binding for it and for the operands there.
pub(super) fn merged(launch: &Launch, locations: &[Option<usize>], allocation: usize) -> Option<Launch> {
    let there =
        |bound: Bound| matches!(bound, Bound::Operand(k) if locations.get(k) == Some(&Some(allocation)));
    let bound = launch.bindings.iter().enumerate().filter(|(_, b)| there(b.bound));
    let operands: Vec<usize> = bound.map(|(index, _)| index).collect();
    if operands.is_empty() { Some(launch.clone()) } else { merge::with_result(launch, &operands) }
}

/// Records of which a dispatch writes one and reads the other.
fn apart(dispatches: &[Dispatch], range_of: &[usize]) -> Vec<(usize, usize)> {
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
