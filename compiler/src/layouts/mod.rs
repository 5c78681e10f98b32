//! How values lie in memory: row-major, or in slices of four channels (the blocked layout
//! NC4HW4, C4 for short), and in which kind of memory object.
//!
//! Nothing else chooses layouts; decompositions take over that of their node. It takes two steps. [`assign`] is the last
//! pass: from the structure of the graph and the target's preferences alone it puts every value into slices that may lie
//! so. [`weigh`] moves values back to rows where the kernels' estimates say that the whole graph costs less.

pub mod assign;
pub mod weigh;

/// The names of both in reports; where they differ about a value, the later one has the last word.
pub const STAGES: [&str; 2] = [assign::STAGE, weigh::STAGE];
