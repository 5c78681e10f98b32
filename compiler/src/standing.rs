//! The standing set: problems whose candidates are measured on a device to fit the parameters of kernels, and with which
//! the fit is judged.
//!
//! It consists of the cases of all operators, whose sizes are small and odd, and of a grid of sizes that networks have.
//! What becomes of a graph here depends on the facts of a profile and on no cost, so that a fit changes no problem.

mod grid;

use crate::content::Content;
use crate::error::{Error, Result};
use crate::ir::graph::Graph;
use crate::ir::op::{Constant, Op};
use crate::ir::text;
use crate::kernels::cases::CASES;
use crate::passes::{self, Context, Precision};
use crate::plan::estimate::problem;
use crate::shader::problem::Problem;
use crate::target::TargetProfile;

/// A graph of the standing set.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Its operator, and its place among the graphs of it.
    pub name: String,
    /// The precision it is compiled in.
    pub precision: Precision,
    text: String,
}

/// Every graph in both precisions, in an order in which each stretch has something of everything.
pub fn graphs() -> Vec<Standing> {
    let cases = CASES.iter().flat_map(|cases| {
        cases.graphs().enumerate().map(|(i, text)| (format!("{} {i}", cases.operator), text.to_string()))
    });
    let all: Vec<(String, String)> = cases.chain(grid::graphs()).collect();
    let mut out: Vec<Standing> = [Precision::F32, Precision::F16]
        .into_iter()
        .flat_map(|precision| {
            all.iter().map(move |(name, text)| Standing { name: name.clone(), precision, text: text.clone() })
        })
        .collect();
    out.sort_by_cached_key(|s| *blake3::hash(format!("{} {}", s.name, s.precision).as_bytes()).as_bytes());
    out
}

impl Standing {
    /// The graph after the passes.
    ///
    /// # Errors
    /// When the graph cannot be compiled for the target (a defect of the set or of a pass).
    pub fn lowered(&self, target: &TargetProfile) -> Result<Graph> {
        let defect = |e: String| Error::internal("standing set", format!("{}: {e}", self.name));
        let mut graph = text::parse(&self.text).map_err(|e| defect(e.to_string()))?;
        let context = Context { target, precision: self.precision };
        passes::run_pipeline(&mut graph, &context, passes::Options::default())?;
        Ok(graph)
    }
}

/// Forgets the elements of large constants: estimates follow from sizes, and a set of graphs fits into memory so.
///
/// # Errors
/// When the graph is broken (a defect).
pub fn forget_elements(graph: &mut Graph) -> Result<()> {
    for id in graph.ids() {
        let large = graph.constant(id).filter(|c| c.bytes.len() > FORGOTTEN).cloned();
        if let Some(constant) = large {
            graph.make_constant(id, Constant { bytes: Content::default(), ..constant })?;
        }
    }
    Ok(())
}

/// Bytes of a constant that is worth forgetting.
const FORGOTTEN: usize = 1 << 12;

/// The problems of a graph after the passes; copies between layouts are not what a graph is there for.
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
        for standing in graphs() {
            // Constants of full size are drawn once, for the precision that changes more.
            if standing.precision == super::Precision::F32 && standing.name.starts_with("grid") {
                continue;
            }
            let graph = standing.lowered(&target).unwrap();
            let offered =
                problems(&graph, &target).iter().any(|problem| !candidates(problem, None, None).is_empty());
            assert!(offered || !standing.name.starts_with("grid"), "{}", standing.name);
        }
    }
}
