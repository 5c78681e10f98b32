//! Layouts of values: row-major, or slices of four channels (the blocked layout NC4HW4, C4 for short), and the kind of
//! memory object that holds them.
//!
//! Only this module selects layouts; decompositions keep the layout of their node. The selection has two steps.
//! [`assign`] is the last pass: from the structure of the graph and the target's preferences alone, it gives every
//! possible value the C4 layout. [`weigh`] moves values back to row-major where the estimated cost of the whole graph
//! is lower.

pub mod assign;
pub mod weigh;

/// Names in reports of the two steps that select layouts. If the steps report different layouts for a value, the later
/// step decides.
pub const STAGES: [&str; 2] = [assign::STAGE, weigh::STAGE];
