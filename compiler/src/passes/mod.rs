//! The graph passes: a list, and the loop that runs it.
//!
//! [`PIPELINE`] is the order, and the order is part of the design: constants and canonical forms first, so that
//! every later pass meets few shapes of the same thing; patterns before anything is fused; layouts last, which have a
//! folder of their own.
//! After each pass dead nodes are swept and the graph is verified, so that a broken rule is reported under the
//! name of the pass that broke it. A pass sees the graph and the target's facts, never a kernel.

pub mod fold_batch_norm;
pub mod fold_constants;
pub mod fold_strides;
pub mod fold_transposes;
pub mod link_elementwise;
pub mod lower_precision;
mod matching;
pub mod merge_duplicates;
pub mod merge_padding;
pub mod recognize_activations;
pub mod recognize_attention;
pub mod recognize_gelu;
pub mod recognize_group_norm;
pub mod recognize_layer_norm;
pub mod recognize_softmax;
pub mod simplify;
pub mod split_weights;

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::verify::verify;
use crate::layouts::assign;
use crate::target::TargetProfile;

/// Every pass, in the order in which they run; a pass that appears twice finds new work the second time.
pub const PIPELINE: &[Pass] = &[
    Pass { name: "fold-constants", run: fold_constants::run },
    Pass { name: "simplify", run: simplify::run },
    Pass { name: "merge-duplicates", run: merge_duplicates::run },
    Pass { name: "recognize-activations", run: recognize_activations::run },
    Pass { name: "recognize-gelu", run: recognize_gelu::run },
    Pass { name: "recognize-softmax", run: recognize_softmax::run },
    Pass { name: "recognize-layer-norm", run: recognize_layer_norm::run },
    Pass { name: "recognize-group-norm", run: recognize_group_norm::run },
    Pass { name: "recognize-attention", run: recognize_attention::run },
    Pass { name: "fold-transposes", run: fold_transposes::run },
    Pass { name: "merge-padding", run: merge_padding::run },
    Pass { name: "fold-batch-norm", run: fold_batch_norm::run },
    Pass { name: "fold-strides", run: fold_strides::run },
    Pass { name: "fold-constants", run: fold_constants::run },
    Pass { name: "simplify", run: simplify::run },
    Pass { name: "merge-duplicates", run: merge_duplicates::run },
    Pass { name: "split-weights", run: split_weights::run },
    Pass { name: "link-elementwise", run: link_elementwise::run },
    Pass { name: "lower-precision", run: lower_precision::run },
    Pass { name: assign::STAGE, run: assign::run },
];

/// A rewrite of the whole graph.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// The name in `--stop-after`, in reports and of its test file.
    pub name: &'static str,
    /// The rewrite.
    pub run: fn(&mut Graph, &Context<'_>) -> Result<Changes>,
}

/// What a pass may know besides the graph.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The device.
    pub target: &'a TargetProfile,
    /// How floats are stored.
    pub precision: Precision,
}

/// How float values between inputs and results are stored; arithmetic is f32 in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Precision {
    /// As the model says.
    #[default]
    F32,
    /// In f16.
    F16,
    /// Products and what moves them in f16, sensitive values in f32.
    Mixed,
}

impl Precision {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Mixed => "mixed",
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

/// What a pass did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Number of rewrites.
    pub count: usize,
    /// The nodes concerned, each with what happened to it.
    pub notes: Vec<Note>,
}

/// A node that a pass changed or decided about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The node's name in the model.
    pub node: String,
    /// What was done, and why when there was a choice.
    pub what: String,
}

impl Changes {
    /// Counts a rewrite of a node.
    pub fn note(&mut self, graph: &Graph, id: NodeId, what: impl Into<String>) {
        self.count += 1;
        self.notes.push(Note { node: graph.node(id).name.clone(), what: what.into() });
    }
}

/// Which part of the pipeline runs, and what is recorded.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// Stop after the first pass of this name.
    pub stop_after: Option<&'a str>,
    /// Measure each pass.
    pub timings: bool,
}

/// What one pass of the pipeline did.
#[derive(Debug, Clone)]
pub struct PassReport {
    /// The pass.
    pub pass: &'static str,
    /// What it did.
    pub changes: Changes,
    /// Dead nodes removed after it.
    pub swept: usize,
    /// Nodes left.
    pub nodes: usize,
    /// Its time with sweeping and verifying, when asked for.
    pub time: Option<Duration>,
}

/// Runs the passes in order.
///
/// # Errors
/// When `stop_after` names no pass, or a pass breaks the graph: an internal error that names the pass.
pub fn run_pipeline(
    graph: &mut Graph,
    context: &Context<'_>,
    options: Options<'_>,
) -> Result<Vec<PassReport>> {
    let end = match options.stop_after {
        None => PIPELINE.len(),
        Some(name) => PIPELINE.iter().position(|p| p.name == name).map(|i| i + 1).ok_or_else(|| {
            let mut names: Vec<&str> = Vec::new();
            for pass in PIPELINE {
                if !names.contains(&pass.name) {
                    names.push(pass.name);
                }
            }
            Error::request(
                format!("there is no pass `{name}`"),
                format!("the passes are {}", names.join(", ")),
            )
        })?,
    };
    graph.sweep();
    PIPELINE.iter().take(end).map(|pass| run_pass(graph, pass, context, options.timings)).collect()
}

/// Runs one pass, sweeps dead nodes and verifies the graph.
///
/// # Errors
/// When the pass fails or leaves a broken graph; the error names the pass.
pub fn run_pass(graph: &mut Graph, pass: &Pass, context: &Context<'_>, timings: bool) -> Result<PassReport> {
    let stage = format!("pass `{}`", pass.name);
    let start = timings.then(Instant::now);
    let changes = (pass.run)(graph, context).map_err(|e| Error::internal(stage.as_str(), e.to_string()))?;
    let swept = graph.sweep();
    verify(graph, &stage)?;
    Ok(PassReport { pass: pass.name, changes, swept, nodes: graph.len(), time: start.map(|s| s.elapsed()) })
}
