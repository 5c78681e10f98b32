//! Report on `--weights`: weights and bytes that were quantized, and reasons why other weights were not.

use std::collections::BTreeMap;

use driftc::compile::Model;
use driftc::ir::graph::{Graph, NodeId};
use driftc::ir::op::Op;
use driftc::quantize::Weights;

use crate::failure::{Failure, Result};
use crate::output::bytes;

/// Fraction of the bytes of float weights below which a note tells how little was quantized.
const NOTED_FRACTION: f64 = 0.5;

/// Float weights of a model's graphs before quantization: for each graph, the bytes of its constants. Constants that several
/// functions share count for each of them.
pub(crate) struct WeightSizes(Vec<BTreeMap<NodeId, u64>>);

/// Graphs that have the weights of a model: the graph of the whole model, or else all functions.
pub(crate) fn weighted_graphs(model: &Model) -> Vec<&Graph> {
    match model.graph.is_empty() {
        true => model.entry_points.iter().map(|entry| &entry.graph).collect(),
        false => vec![&model.graph],
    }
}

impl WeightSizes {
    /// Lists the constants of graphs that are stored as plain floats, with their bytes.
    pub(crate) fn from_graphs(graphs: &[&Graph]) -> Self {
        let size = |graph: &Graph, id: NodeId| {
            let constant = graph.constant(id)?;
            let dtype = constant.encoding.plain_dtype().filter(|dtype| dtype.is_float())?;
            Some((id, u64::try_from(constant.elements()).ok()? * u64::try_from(dtype.bytes()).ok()?))
        };
        let sizes = |graph: &&Graph| graph.ids().into_iter().filter_map(|id| size(graph, id)).collect();
        Self(graphs.iter().map(sizes).collect())
    }

    /// Compares with the graphs after quantization. Returns a note if only few weights were quantized.
    ///
    /// # Errors
    /// If no weight was quantized.
    pub(crate) fn report(&self, graphs: &[&Graph], weights: Weights) -> Result<Option<String>> {
        let changed = |graph: &Graph, id: NodeId| {
            let encoding = graph.constant(id).map(|constant| &constant.encoding);
            encoding.is_none_or(|encoding| match weights {
                Weights::F16 => encoding.element_type() == driftc::ir::tensor::DType::F16,
                Weights::Q8 | Weights::Q844 | Weights::W4(..) => encoding.plain_dtype().is_none(),
            })
        };
        let (mut count, mut quantized, mut all) = (0usize, 0u64, 0u64);
        let mut filters = 0u64;
        for (graph, sizes) in graphs.iter().zip(&self.0) {
            for (id, size) in sizes {
                all += size;
                if changed(graph, *id) {
                    count += 1;
                    quantized += size;
                } else if is_filter(graph, *id) {
                    filters += size;
                }
            }
        }
        let rest = self.reasons(graphs, filters);
        if count == 0 && weights != Weights::F16 {
            return Err(Failure::input(format!("--weights {weights} quantizes no weight of this model"))
                .because(rest)
                .help("leave out --weights; --precision f16 stores all floats in 2 bytes"));
        }
        if quantized as f64 >= NOTED_FRACTION * all as f64 {
            return Ok(None);
        }
        let n: usize = self.0.iter().map(BTreeMap::len).sum();
        Ok(Some(format!(
            "--weights {weights} changes {count} of {n} float constants: {} of {}; {rest}",
            bytes(quantized),
            bytes(all)
        )))
    }

    /// Reasons why weights are not quantized.
    fn reasons(&self, graphs: &[&Graph], filters: u64) -> String {
        let quantized = |(graph, sizes): (&&Graph, &BTreeMap<NodeId, u64>)| {
            graph.ids().into_iter().any(|id| {
                graph.constant(id).is_some_and(|c| c.encoding.plain_dtype().is_none())
                    && !sizes.contains_key(&id)
            })
        };
        let has_quantized = graphs.iter().zip(&self.0).any(quantized);
        let mut reasons =
            vec!["only weights of matmuls, dense convolutions and embeddings are quantized".to_owned()];
        if filters > 0 {
            reasons.push(format!(
                "grouped filters and filters of few channels ({}) are not quantized",
                bytes(filters)
            ));
        }
        if has_quantized {
            reasons.push("weights that the file stores quantized stay as they are".to_owned());
        }
        reasons.join("; ")
    }
}

/// True if a constant is the filter of a convolution, possibly through views.
fn is_filter(graph: &Graph, id: NodeId) -> bool {
    graph.users(id).into_iter().any(|user| {
        let filter = graph.operands(user).get(1) == Some(&id);
        match graph.op(user) {
            Op::Conv(_) | Op::ConvTranspose(_) => filter,
            Op::Reshape(_) | Op::Transpose(_) => is_filter(graph, user),
            _ => false,
        }
    })
}
