//! Values and bounds of symbolic dimensions from the shapes of sample arrays.

use std::collections::BTreeMap;

use driftc::import::onnx::Declaration;
use driftc::ir::array::Array;
use driftc::ir::graph::Graph;

use crate::failure::{Failure, Result};

/// Widens `bounds` to hold the sizes of an input's samples, for axes whose size is a single symbol.
pub(crate) fn widen_bounds<'a>(
    input: &Declaration,
    samples: impl Iterator<Item = &'a Array>,
    bounds: &mut BTreeMap<String, (i64, i64)>,
) -> Result<()> {
    let name = &input.name;
    let Some(shape) = &input.shape else {
        let reason = format!("input `{name}` has no shape in the model, so several samples give no bounds");
        return Err(Failure::usage(reason).help(format!("give one --like for input `{name}`")));
    };
    for array in samples {
        if shape.len() != array.shape.len() {
            return Err(Failure::usage(rank_mismatch(name, shape.len(), &array.shape)));
        }
        for (dim, size) in shape.iter().zip(&array.shape) {
            let size = i64::try_from(*size).unwrap_or(i64::MAX);
            if let Some(symbol) = dim.as_symbol() {
                let (low, high) = bounds.entry(symbol.to_owned()).or_insert((size, size));
                (*low, *high) = (size.min(*low), size.max(*high));
            } else if dim.as_known().is_some_and(|known| known != size) {
                let reason =
                    format!("input `{name}` has an axis of size {dim}, but a sample has size {size}");
                return Err(Failure::usage(reason));
            }
        }
    }
    Ok(())
}

/// Fixes symbols without bounds to the sizes of the arrays, for axes whose size is a single symbol.
pub(crate) fn fix_unbound_symbols<'a>(
    graph: &Graph,
    arrays: impl Iterator<Item = (&'a String, &'a Array)>,
    dims: &mut BTreeMap<String, (i64, i64)>,
) -> Result<()> {
    for (name, array) in arrays {
        let input = graph.inputs().iter().filter_map(|id| graph.input(*id)).find(|i| i.name == *name);
        let Some(input) = input else { continue };
        if input.shape.len() != array.shape.len() {
            return Err(Failure::usage(rank_mismatch(name, input.shape.len(), &array.shape)));
        }
        for (dim, size) in input.shape.iter().zip(&array.shape) {
            if let Some(symbol) = dim.as_symbol() {
                let size = i64::try_from(*size).unwrap_or(i64::MAX);
                dims.entry(symbol.to_owned()).or_insert((size, size));
            }
        }
    }
    Ok(())
}

fn rank_mismatch(name: &str, axes: usize, got: &[usize]) -> String {
    format!("input `{name}` has {axes} axes, but the given array has shape {got:?}")
}
