//! The list of graph passes, and the loop that runs them.
//!
//! [`PIPELINE`] is the order. Constants and canonical forms come first, so that later passes match few forms of the
//! same computation. Patterns are recognized before anything is fused. Layouts come last and have their own folder.
//! After each pass, dead nodes are swept and the graph is verified, so an error names the pass that broke a rule.
//! A pass sees the graph and the target's facts, never a kernel.

pub mod avoid_copies;
pub mod fold_batch_norm;
pub mod fold_constants;
pub mod fold_strides;
pub mod fold_transposes;
pub mod link_elementwise;
pub mod lower_precision;
mod matching;
pub mod merge_duplicates;
pub mod merge_matmuls;
pub mod merge_padding;
pub mod recognize_activations;
pub mod recognize_attention;
pub mod recognize_gelu;
pub mod recognize_group_norm;
pub mod recognize_layer_norm;
pub mod recognize_rolls;
pub mod recognize_softmax;
pub mod simplify;
pub mod split_weights;
pub mod widen_integers;

use std::time::Instant;

use crate::error::{Error, Result};
use crate::ir::graph::Graph;
use crate::ir::verify::verify;
use crate::layouts::assign;
pub use crate::pass::{Changes, Context, Note, Pass, PassReport, Precision};

/// Every pass in execution order. A pass that is listed twice finds new work the second time.
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
    Pass { name: "recognize-rolls", run: recognize_rolls::run },
    Pass { name: "widen-integers", run: widen_integers::run },
    Pass { name: "fold-transposes", run: fold_transposes::run },
    Pass { name: "merge-padding", run: merge_padding::run },
    Pass { name: "fold-batch-norm", run: fold_batch_norm::run },
    Pass { name: "fold-strides", run: fold_strides::run },
    Pass { name: "fold-constants", run: fold_constants::run },
    Pass { name: "simplify", run: simplify::run },
    Pass { name: "merge-duplicates", run: merge_duplicates::run },
    Pass { name: "merge-matmuls", run: merge_matmuls::run },
    Pass { name: "split-weights", run: split_weights::run },
    Pass { name: "link-elementwise", run: link_elementwise::run },
    Pass { name: "avoid-copies", run: avoid_copies::run },
    Pass { name: "lower-precision", run: lower_precision::run },
    Pass { name: assign::STAGE, run: assign::run },
];

/// Options of [`run_pipeline`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// Name of the pass to stop after. If the pass is listed twice, its first run counts.
    pub stop_after: Option<&'a str>,
    /// True if each pass is timed.
    pub timings: bool,
}

/// Runs the passes in order.
///
/// # Errors
/// Fails if `stop_after` names no pass. A pass that breaks the graph gives an internal error with the pass's name.
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
/// Fails if the pass fails or leaves an invalid graph. The error names the pass.
pub fn run_pass(graph: &mut Graph, pass: &Pass, context: &Context<'_>, timings: bool) -> Result<PassReport> {
    let stage = format!("pass `{}`", pass.name);
    let start = timings.then(Instant::now);
    let changes = (pass.run)(graph, context).map_err(|e| Error::internal(stage.as_str(), e.to_string()))?;
    let swept = graph.sweep();
    verify(graph, &stage)?;
    Ok(PassReport { pass: pass.name, changes, swept, nodes: graph.len(), time: start.map(|s| s.elapsed()) })
}
