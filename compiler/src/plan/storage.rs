//! The arena while a plan grows: pieces of storage, which of them lie inside another, and until when each is used.
//!
//! Two things let values share a piece. A result may overwrite an operand that nobody uses any more ([`in_place`]),
//! and an operand of a concatenation may be written straight into its part of the result ([`super::parts`]).
//!
//! Where a device takes buffers for reading or for writing only, what is overwritten is read through the binding that it
//! is written by, and pieces that one dispatch reads and writes otherwise lie in different arenas.
//!
//! [`in_place`]: Storage::in_place

use std::collections::BTreeMap;

use super::barriers::{Region, barriers};
use super::images::Images;
use super::memory::{self, MemoryPlan, Record};
use super::views::is_view;
use super::{Home, Step};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::storage::Storage as Kind;
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
            let view = is_view(&node.op) && node.chain.is_empty();
            if view { at.max(lives.get(&user).copied().unwrap_or(usize::MAX)) } else { at }
        };
        let own = place.get(id).copied().unwrap_or(0);
        let last = graph.users(*id).into_iter().map(through).max().unwrap_or(own);
        lives.insert(*id, if graph.is_output(*id) { usize::MAX } else { last });
    }
    lives
}

/// A piece of storage.
#[derive(Debug, Clone, Copy)]
struct Piece {
    bytes: u64,
    /// The piece it lies in, and where.
    within: Option<(usize, u64)>,
    /// The last node, by its place in the order of computation, that uses a value in it.
    until: usize,
}

/// All pieces of storage.
#[derive(Debug, Default)]
pub(super) struct Storage {
    pieces: Vec<Piece>,
    /// Bytes of the values that need no piece of their own.
    saved: u64,
    /// Whether no dispatch may read and write one arena.
    separate: bool,
}

impl Storage {
    /// None yet; with `separate` no dispatch reads and writes one arena.
    pub(super) fn new(separate: bool) -> Self {
        Self { separate, ..Self::default() }
    }

    /// Adds a piece that is used until a node.
    pub(super) fn add(&mut self, bytes: u64, until: usize) -> usize {
        self.pieces.push(Piece { bytes, within: None, until });
        self.pieces.len() - 1
    }

    /// Adds a part of a piece. `shared` says that a value is computed there which would need its own otherwise.
    pub(super) fn add_part(&mut self, whole: usize, offset: u64, bytes: u64, shared: bool) -> usize {
        let until = self.pieces[whole].until;
        self.pieces.push(Piece { bytes, within: Some((whole, offset)), until });
        self.saved += if shared { bytes } else { 0 };
        self.pieces.len() - 1
    }

    /// The piece that a piece lies in, or itself.
    pub(super) fn root(&self, piece: usize) -> usize {
        self.pieces[piece].within.map_or(piece, |(whole, _)| whole)
    }

    /// The piece of an operand that the result of a launch may overwrite: one that is used by no later node, has the
    /// result's placement and type, and is read only where the result is stored. The piece then lives on `until`.
    ///
    /// `homes` are the operands' pieces in the arena, `now` is the node's place.
    pub(super) fn in_place(
        &mut self,
        (in_place, launches): (InPlace, &[Launch]),
        (operands, own): (&[Operand<'_>], usize),
        homes: &[Option<usize>],
        result: &Operand<'_>,
        (now, until): (usize, usize),
    ) -> Option<usize> {
        // Launches before the last one must leave the result alone, as those that only collect do.
        let (launch, before) = launches.split_last()?;
        let collects = |l: &Launch| {
            l.kernel == launch.kernel && l.bindings.iter().all(|b| !matches!(b.bound, Bound::Result))
        };
        if !before.iter().all(collects) {
            return None;
        }
        let alike = |o: &Operand<'_>| {
            o.shape == result.shape
                && o.storage == Kind::Buffer
                && o.storage == result.storage
                && o.placement == result.placement
                && o.dtype.on_device() == result.dtype.on_device()
        };
        let fits = |piece: usize| {
            let whole = self.pieces[piece].within.is_none() && self.pieces[piece].until <= now;
            whole
                && operands.iter().zip(homes).enumerate().all(|(k, (operand, home))| match *home {
                    Some(p) if self.root(p) == piece => {
                        p == piece
                            && alike(operand)
                            && in_place.overwrites(k, own)
                            && (!self.separate || merged(launch, homes, piece).is_some())
                    }
                    _ => true,
                })
        };
        let found = homes.iter().flatten().copied().find(|p| fits(*p))?;
        self.saved += self.pieces[found].bytes;
        self.pieces[found].until = until;
        Some(found)
    }

    /// Places every piece in the arena and finds the barriers: sizes of the pieces, records of those that lie in no
    /// other, and the offsets of all.
    pub(super) fn place(
        self,
        steps: &mut [Step],
        alignment: u64,
        images: &Images,
    ) -> (Vec<u64>, Vec<Record>, MemoryPlan) {
        let mut records: Vec<Record> = Vec::new();
        let mut record_of: Vec<usize> = Vec::with_capacity(self.pieces.len());
        // A part is added after what it lies in.
        for piece in &self.pieces {
            record_of.push(match piece.within {
                Some((whole, _)) => record_of[whole],
                None => {
                    let size = piece.bytes.next_multiple_of(alignment);
                    records.push(Record { size, first: usize::MAX, last: 0 });
                    records.len() - 1
                }
            });
        }
        for (at, step) in steps.iter().enumerate() {
            for home in &step.homes {
                if let Home::Arena(i) = home {
                    let record = &mut records[record_of[*i]];
                    record.first = record.first.min(at);
                    record.last = at;
                }
            }
        }
        for record in records.iter_mut().filter(|r| r.first == usize::MAX) {
            (record.first, record.size) = (0, 0);
        }
        let mut memory = match self.separate {
            false => memory::plan(&records),
            true => memory::plan_apart(&records, &apart(steps, &record_of)),
        };
        memory.naive += self.saved;
        memory.offsets = self
            .pieces
            .iter()
            .zip(&record_of)
            .map(|(piece, record)| memory.offsets[*record] + piece.within.map_or(0, |(_, offset)| offset))
            .collect();
        memory.arena_of = record_of.iter().map(|record| memory.arena(*record)).collect();
        let touched: Vec<(Vec<Region>, Vec<Region>)> = steps
            .iter()
            .map(|step| {
                let (mut reads, mut writes) = (Vec::new(), Vec::new());
                for (home, binding) in step.homes.iter().zip(&step.launch.bindings) {
                    let region = match *home {
                        Home::Arena(i) => Region {
                            buffer: Home::Arena(memory.arena(i)),
                            start: memory.offsets[i],
                            end: memory.offsets[i] + self.pieces[i].bytes,
                        },
                        Home::Image(i) => {
                            let object = images.places.get(i).copied().unwrap_or(i);
                            Region { buffer: Home::Image(object), start: 0, end: u64::MAX }
                        }
                        Home::Output(_) | Home::Input(_) | Home::State(_) => {
                            Region { buffer: *home, start: 0, end: u64::MAX }
                        }
                        Home::Weight(_) | Home::Params => continue,
                    };
                    if binding.writable { writes.push(region) } else { reads.push(region) }
                }
                (reads, writes)
            })
            .collect();
        for (step, barrier) in steps.iter_mut().zip(barriers(&touched)) {
            step.barrier = barrier;
        }
        (self.pieces.iter().map(|p| p.bytes).collect(), records, memory)
    }
}

/// A launch whose result lies in a piece, with one binding for it and for the operands there.
pub(super) fn merged(launch: &Launch, homes: &[Option<usize>], piece: usize) -> Option<Launch> {
    let there = |bound: Bound| matches!(bound, Bound::Operand(k) if homes.get(k) == Some(&Some(piece)));
    let bound = launch.bindings.iter().enumerate().filter(|(_, b)| there(b.bound));
    let operands: Vec<usize> = bound.map(|(index, _)| index).collect();
    if operands.is_empty() { Some(launch.clone()) } else { merge::with_result(launch, &operands) }
}

/// Records of which a dispatch writes one and reads the other.
fn apart(steps: &[Step], record_of: &[usize]) -> Vec<(usize, usize)> {
    let side = |step: &Step, writable: bool| -> Vec<usize> {
        let bound = step.homes.iter().zip(&step.launch.bindings).filter(|(_, b)| b.writable == writable);
        bound
            .filter_map(|(home, _)| if let Home::Arena(i) = home { Some(record_of[*i]) } else { None })
            .collect()
    };
    let of_step = |step: &Step| {
        let (written, read) = (side(step, true), side(step, false));
        written.into_iter().flat_map(move |w| read.clone().into_iter().map(move |r| (w, r)))
    };
    let mut pairs: Vec<(usize, usize)> = steps.iter().flat_map(of_step).filter(|(w, r)| w != r).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}
