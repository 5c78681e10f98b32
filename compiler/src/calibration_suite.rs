//! Calibration suite: problems whose candidates are measured on a device. The measurements fit the parameters of the
//! cost model and judge the fit.
//!
//! The suite has the cases of all operators, with small odd sizes, and a grid of sizes that occur in networks. The
//! passes read no cost parameters, so a fit of these parameters does not change the problems.

mod grid;
mod integers;

use crate::content::Content;
use crate::error::{Error, Result};
use crate::ir::graph::Graph;
use crate::ir::graph_text;
use crate::ir::op::{Constant, Op};
use crate::kernels::cases::CASES;
use crate::pass::{Context, Precision};
use crate::passes;
use crate::plan::estimate::problem;
use crate::shader::problem::Problem;
use crate::target::TargetProfile;

/// A graph of the calibration suite.
#[derive(Debug, Clone)]
pub struct SuiteGraph {
    /// Operator or kind of graph, and a number that tells its graphs apart, such as `grid attention 3`.
    pub name: String,
    /// Precision (f32 or f16) in which the graph is compiled.
    pub precision: Precision,
    text: String,
}

/// Returns every graph of the suite in the precisions f32 and f16. The order is pseudo-random, so that any range of the
/// list has graphs of all kinds.
pub fn graphs() -> Vec<SuiteGraph> {
    let cases = CASES.iter().flat_map(|cases| {
        cases.graphs().enumerate().map(|(i, text)| (format!("{} {i}", cases.operator), text.to_string()))
    });
    let all: Vec<(String, String)> = cases.chain(grid::graphs()).collect();
    let mut out: Vec<SuiteGraph> = [Precision::F32, Precision::F16]
        .into_iter()
        .flat_map(|precision| {
            all.iter().map(move |(name, text)| SuiteGraph {
                name: name.clone(),
                precision,
                text: text.clone(),
            })
        })
        .collect();
    out.sort_by_cached_key(|s| *blake3::hash(format!("{} {}", s.name, s.precision).as_bytes()).as_bytes());
    out
}

impl SuiteGraph {
    /// Returns the graph before the passes.
    ///
    /// # Errors
    /// If the graph's text is invalid, which is a defect of the suite.
    pub fn graph(&self) -> Result<Graph> {
        graph_text::parse(&self.text)
            .map_err(|e| Error::internal("calibration suite", format!("{}: {e}", self.name)))
    }

    /// Returns the graph after the passes.
    ///
    /// # Errors
    /// If the graph cannot be compiled for the target, which is a defect of the suite or of a pass.
    pub fn lowered(&self, target: &TargetProfile) -> Result<Graph> {
        let mut graph = self.graph()?;
        let context = Context { target, precision: self.precision };
        passes::run_pipeline(&mut graph, &context, passes::Options::default())?;
        Ok(graph)
    }
}

/// Drops the elements of a graph's large constants, to save memory. Cost estimates depend only on sizes.
///
/// # Errors
/// If the graph is invalid, which is a defect.
pub fn drop_constant_data(graph: &mut Graph) -> Result<()> {
    for id in graph.ids() {
        let large = graph.constant(id).filter(|c| c.bytes.len() > MAX_KEPT_BYTES).cloned();
        if let Some(constant) = large {
            graph.make_constant(id, Constant { bytes: Content::default(), ..constant })?;
        }
    }
    Ok(())
}

/// Maximum bytes of a constant whose elements the calibration suite keeps in memory.
const MAX_KEPT_BYTES: usize = 1 << 12;

/// Returns the problems of a graph after the passes, except copies between layouts.
pub fn problems<'g>(graph: &'g Graph, target: &'g TargetProfile) -> Vec<Problem<'g>> {
    let wanted = |op: &Op| !matches!(op, Op::Relayout(_) | Op::Input(_) | Op::Constant(_) | Op::State(_));
    let nodes = graph.topological().into_iter().filter(|id| wanted(graph.op(*id)));
    nodes.filter_map(|id| problem(graph, id, target)).collect()
}

#[cfg(test)]
mod tests {
    use super::{graphs, problems};
    use crate::plan::select::candidates;
    use crate::target::TargetProfile;

    #[test]
    fn every_graph_of_the_grid_has_a_problem_with_candidates() {
        let target = TargetProfile::load("vulkan-baseline").unwrap();
        for suite_graph in graphs() {
            // Drawing large constants takes time, so only f16 graphs are tested; the passes change them more.
            if suite_graph.precision == super::Precision::F32 && suite_graph.name.starts_with("grid") {
                continue;
            }
            let graph = suite_graph.lowered(&target).unwrap();
            let offered =
                problems(&graph, &target).iter().any(|problem| !candidates(problem, None, None).is_empty());
            assert!(offered || !suite_graph.name.starts_with("grid"), "{}", suite_graph.name);
        }
    }
}
