//! Types that all graph rewrites share: what a pass may look at, and what it reports.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::ir::graph::{Graph, NodeId};
use crate::target::TargetProfile;

/// A rewrite of the whole graph.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// Name of the pass, for `--stop-after`, for reports and for its test file.
    pub name: &'static str,
    /// Function that rewrites the graph.
    pub run: fn(&mut Graph, &Context<'_>) -> Result<Changes>,
}

/// Facts that a pass may use besides the graph.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Device that the graph is compiled for.
    pub target: &'a TargetProfile,
    /// Storage type of float values.
    pub precision: Precision,
}

/// Storage type of the float values between inputs and results. Arithmetic is always f32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Precision {
    /// Every value has the type that the model declares.
    #[default]
    F32,
    /// f16 for every float value that keeps its meaning in f16.
    F16,
    /// f16 for matmuls, convolutions, attention and data movement; f32 for numerically sensitive values.
    Mixed,
}

impl Precision {
    /// Name of the precision on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Mixed => "mixed",
        }
    }

    /// Returns the tolerances between a device and the CPU reference: relative to an element, and relative to the largest
    /// element of a tensor.
    pub fn tolerance(self) -> (f64, f64) {
        match self {
            Self::F32 => (1e-3, 1e-4),
            Self::F16 | Self::Mixed => (2e-2, 1e-2),
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::F32, Self::F16, Self::Mixed].into_iter().find(|p| p.name() == text).ok_or_else(|| {
            Error::request(format!("`{text}` is not a precision"), "write `f32`, `f16` or `mixed`")
        })
    }
}

/// Changes that a pass made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Number of rewrites that the pass made.
    pub count: usize,
    /// The nodes that a pass changed, each with a description of its change.
    pub notes: Vec<Note>,
}

/// One node that a pass changed or decided about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Name of the node in the model.
    pub node: String,
    /// Description of the change of a node, with the reason where the pass had a choice.
    pub what: String,
}

impl Changes {
    /// Records a rewrite of a node.
    pub fn note(&mut self, graph: &Graph, id: NodeId, what: impl Into<String>) {
        self.count += 1;
        self.notes.push(Note { node: graph.node(id).name.clone(), what: what.into() });
    }
}

/// Report of one pass.
#[derive(Debug, Clone)]
pub struct PassReport {
    /// Name of the pass.
    pub pass: &'static str,
    /// Changes that the pass made.
    pub changes: Changes,
    /// Number of dead nodes removed after the pass.
    pub swept: usize,
    /// Number of nodes in the graph after the pass.
    pub nodes: usize,
    /// Time of the pass, including sweeping and verifying; `None` unless timings were requested.
    pub time: Option<Duration>,
}
