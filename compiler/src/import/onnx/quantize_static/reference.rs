//! Evaluates an ONNX model on the CPU reference and shows the values of its tensors by name.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Result;
use crate::import::onnx::Options;
use crate::import::onnx::attempts::import_model;
use crate::import::onnx::schema::{ModelProto, ValueInfoProto};
use crate::import::onnx::source::Source;
use crate::ir::array::Array;
use crate::ir::eval::trace;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::tensor::DType;

/// Arrays of the model's inputs by name.
pub type Sample = BTreeMap<String, Array>;

/// An imported model whose tensors have names.
#[derive(Debug)]
pub(super) struct Reference {
    graph: Graph,
    names: BTreeMap<NodeId, Vec<String>>,
    /// Inputs that became constants, because their values decide shapes.
    constants: Vec<String>,
    /// Shapes of the inputs for which the model was imported.
    shapes: Vec<(String, Vec<usize>)>,
}

/// Imports a model for a sample. `wanted` names the tensors that [`evaluate`] shows.
///
/// # Errors
/// If the model cannot be imported with the shapes of the sample.
pub(super) fn import(
    source: &Source,
    mut model: ModelProto,
    wanted: &BTreeSet<String>,
    sample: &Sample,
) -> Result<Reference> {
    if let Some(graph) = &mut model.graph {
        let present: BTreeSet<String> = graph.output.iter().map(|o| o.name().to_string()).collect();
        let info = |name: &String| ValueInfoProto { name: Some(name.clone()), ..ValueInfoProto::default() };
        graph.output.extend(wanted.difference(&present).map(info));
    }
    let options = Options { samples: sample.clone(), ..Options::default() };
    let imported = import_model(source, &model, &options)?;
    let mut graph = imported.graph;
    let mut names: BTreeMap<NodeId, Vec<String>> = BTreeMap::new();
    for output in graph.outputs().iter().filter(|o| wanted.contains(&o.name)) {
        names.entry(output.node).or_default().push(output.name.clone());
    }
    // Without outputs, each value is dropped after its last use.
    graph.clear_outputs();
    Ok(Reference { graph, names, constants: imported.constants, shapes: shapes(sample) })
}

fn shapes(sample: &Sample) -> Vec<(String, Vec<usize>)> {
    sample.iter().map(|(name, array)| (name.clone(), array.shape.clone())).collect()
}

impl Reference {
    /// True if [`evaluate`] accepts the sample.
    pub(super) fn fits(&self, sample: &Sample) -> bool {
        self.constants.is_empty() && self.shapes == shapes(sample)
    }

    /// Returns the numbers of axes of the wanted tensors.
    pub(super) fn ranks(&self) -> BTreeMap<String, usize> {
        let ranks = self.names.iter().map(|(id, names)| (names, self.graph.tensor(*id).shape.len()));
        ranks.flat_map(|(names, rank)| names.iter().map(move |name| (name.clone(), rank))).collect()
    }

    /// Returns the names of the wanted tensors of f32.
    pub(super) fn float_names(&self) -> BTreeSet<String> {
        let floats = self.names.iter().filter(|(id, _)| self.graph.tensor(**id).dtype == DType::F32);
        floats.flat_map(|(_, names)| names).cloned().collect()
    }
}

/// Evaluates a model on a sample, and passes the value of each wanted tensor to `visit`.
///
/// # Errors
/// If an array does not fit its input, or an operator cannot be evaluated.
pub(super) fn evaluate(
    reference: &Reference,
    sample: &Sample,
    visit: &mut dyn FnMut(&str, &Array),
) -> Result<()> {
    let mut inputs = sample.clone();
    inputs.retain(|name, _| !reference.constants.contains(name));
    trace(&reference.graph, &inputs, &mut |id, value| {
        for name in reference.names.get(&id).into_iter().flatten() {
            visit(name, value);
        }
    })?;
    Ok(())
}
