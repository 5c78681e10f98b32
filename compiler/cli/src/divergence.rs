//! Search for the cause of a wrong result: the pass that changes the result, or the first tensor where the device
//! differs from the CPU reference.

use driftc::bundle::{self, Planned};
use driftc::compile::Lowered;
use driftc::emit::spirv;
use driftc::ir::array::Array;
use driftc::ir::eval::{eval, trace};
use driftc::ir::graph::{Graph, NodeId};
use driftc::ir::op::Op;
use driftc::passes::{Context, PIPELINE, run_pass};
use driftc::plan::{self, Plan};
use serde::Serialize;

use crate::compare::{Comparison, compare};
use crate::failure::{Failure, Result};
use crate::verify_case::{Case, run_bundle};

/// Maximum number of intermediate tensors that one debug bundle returns as outputs.
const MAX_TENSORS: usize = 64;
/// Number of elements of its outputs at which a debug bundle is full and runs: 256 MiB of f32 on the host and on the
/// device.
const MAX_ELEMENTS: usize = 64 << 20;

/// A compiler pass after which the CPU reference computes another result.
#[derive(Debug, Serialize)]
pub(crate) struct BadPass {
    pub(crate) pass: &'static str,
    pub(crate) output: String,
    pub(crate) comparison: Comparison,
}

/// A tensor whose values on the device differ from the CPU reference.
#[derive(Debug, Serialize)]
pub(crate) struct BadTensor {
    pub(crate) node: String,
    /// Text of the node: its operator, operands and result.
    pub(crate) what: String,
    pub(crate) kernel: String,
    pub(crate) comparison: Comparison,
}

/// Runs the passes one by one and evaluates the graph after each. Returns the first pass that changes an output.
pub(crate) fn first_bad_pass(
    graph: &Graph,
    reference: &[(String, Array)],
    case: &Case<'_>,
) -> Result<Option<BadPass>> {
    let mut graph = graph.clone();
    graph.sweep();
    let context = Context { target: case.target, precision: case.options.precision };
    for pass in PIPELINE {
        run_pass(&mut graph, pass, &context, false)?;
        let after = eval(&graph, case.inputs)?;
        for ((name, got), (_, want)) in after.iter().zip(reference) {
            let comparison = compare(got, want, case.tolerance);
            if !comparison.equal() {
                return Ok(Some(BadPass { pass: pass.name, output: name.clone(), comparison }));
            }
        }
    }
    Ok(None)
}

/// Compares every tensor of a lowered graph in topological order and returns the first that differs.
///
/// Debug bundles return the values of many nodes at a time as outputs.
pub(crate) fn first_bad_tensor(lowered: &Lowered, case: &Case<'_>) -> Result<Option<BadTensor>> {
    let mut batch = Batch { lowered, case, values: Vec::new(), found: Ok(None) };
    trace(&lowered.graph, case.inputs, &mut |id, value| batch.add(id, value))?;
    batch.run();
    batch.found
}

/// Values of nodes that the CPU reference has computed, until a debug bundle computes them on the device for
/// comparison.
struct Batch<'a> {
    lowered: &'a Lowered,
    case: &'a Case<'a>,
    values: Vec<(NodeId, Array)>,
    found: Result<Option<BadTensor>>,
}

impl Batch<'_> {
    fn add(&mut self, id: NodeId, value: &Array) {
        if !matches!(self.found, Ok(None))
            || matches!(self.lowered.graph.op(id), Op::Input(_) | Op::Constant(_) | Op::State(_))
            || value.is_empty()
        {
            return;
        }
        self.values.push((id, value.clone()));
        let elements: usize = self.values.iter().map(|(_, v)| v.len()).sum();
        if self.values.len() >= MAX_TENSORS || elements >= MAX_ELEMENTS {
            self.run();
        }
    }

    fn run(&mut self) {
        let values = std::mem::take(&mut self.values);
        if matches!(self.found, Ok(None)) && !values.is_empty() {
            self.found = compare_all(self.lowered, self.case, &values);
        }
    }
}

fn compare_all(lowered: &Lowered, case: &Case<'_>, values: &[(NodeId, Array)]) -> Result<Option<BadTensor>> {
    let mut graph = lowered.graph.clone();
    graph.clear_outputs();
    for (i, (id, _)) in values.iter().enumerate() {
        graph.add_output(&format!("tensor {i}"), *id);
    }
    graph.sweep();
    let plan = plan::build(&graph, case.target, &case.options.plan)?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("debug.drift");
    let planned = [Planned { target: case.target, functions: vec![("main".to_owned(), &plan)] }];
    let emit = spirv::Options { finish: case.options.finish, matrix: None };
    bundle::write(&path, Default::default(), &planned, &[], emit)?;
    let (_, outputs) = run_bundle(&path, case)
        .map_err(|e: Failure| e.context("the debug bundle that returns intermediate tensors does not run"))?;
    for ((id, want), got) in values.iter().zip(&outputs) {
        let comparison = compare(got, want, case.tolerance);
        if !comparison.equal() {
            return Ok(Some(bad_tensor(&graph, &plan, *id, comparison)));
        }
    }
    Ok(None)
}

fn bad_tensor(graph: &Graph, plan: &Plan, id: NodeId, comparison: Comparison) -> BadTensor {
    let decision = plan.decisions.iter().find(|d| d.node == id);
    let kernel = decision
        .and_then(|d| d.choices.first())
        .map_or("none (the node is a view of its operand)", |c| c.kernel.name);
    let what = decision.map_or_else(|| graph.node(id).op.name().to_owned(), |d| d.what.clone());
    BadTensor { node: graph.node(id).name.clone(), what, kernel: kernel.to_owned(), comparison }
}
