//! State that linked outputs and inputs share: its type and sizes.

use std::collections::BTreeSet;

use super::endpoint::{Endpoint, input_node};
use crate::entry_points::EntryPoint;
use crate::error::{Error, Result};
use crate::ir::dim::Dim;
use crate::ir::graph::Graph;
use crate::ir::tensor::{DType, TensorDesc};
use crate::language::caches::state_order;

/// State that linked outputs and inputs share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SharedState {
    /// Function and name of the first input.
    pub(super) name: String,
    pub(super) dtype: DType,
    /// Sizes in the order of the values. The axis that varies has its largest size.
    pub(super) shape: Vec<i64>,
    /// Axis whose size varies.
    pub(super) axis: Option<usize>,
    /// True if an entry point reads and writes the state, and no axis varies.
    pub(super) is_read_by_writer: bool,
}

impl SharedState {
    /// Determines the state of linked outputs and inputs.
    ///
    /// # Errors
    /// If the values differ in type or rank, or more than one axis varies.
    pub(super) fn new(
        entries: &[EntryPoint],
        outputs: &BTreeSet<Endpoint>,
        inputs: &BTreeSet<Endpoint>,
    ) -> Result<Self> {
        let label = |end: &Endpoint| {
            let function = entries.get(end.entry).map_or("", |entry| entry.name.as_str());
            format!("{function}.{}", end.name)
        };
        let mut values: Vec<(String, &TensorDesc, &Graph)> = Vec::new();
        for (ends, is_input) in [(inputs, true), (outputs, false)] {
            for end in ends {
                let graph = entries.get(end.entry).map(|entry| &entry.graph);
                let value = graph.and_then(|graph| Some((graph, value(graph, &end.name, is_input)?)));
                let Some((graph, value)) = value else { continue };
                values.push((label(end), value, graph));
            }
        }
        let Some((name, first, _)) = values.first() else {
            return Err(Error::internal("link", "a link has no values"));
        };
        for (other, value, _) in &values {
            if value.dtype != first.dtype || value.rank() != first.rank() {
                return Err(Error::request(
                    format!("`{other}` and `{name}` cannot be linked: {value} and {first}"),
                    "link an output to an input of the same type and number of axes",
                ));
            }
        }
        let mut shape = Vec::new();
        let mut varying = Vec::new();
        for axis in 0..first.rank() {
            let ranges = values.iter().map(|(_, value, graph)| {
                value.shape.get(axis).map_or((0, 0), |size: &Dim| size.range(&graph.bounds))
            });
            let ranges: Vec<(i64, i64)> = ranges.collect();
            let largest = ranges.iter().map(|(_, high)| *high).max().unwrap_or(0);
            if ranges.iter().any(|range| *range != (largest, largest)) {
                varying.push(axis);
            }
            shape.push(largest);
        }
        if varying.len() > 1 || shape.iter().any(|size| *size <= 0) {
            let sizes: Vec<String> =
                values.iter().map(|(name, value, _)| format!("{name}: {value}")).collect();
            return Err(Error::request(
                format!("`{name}` cannot be linked, because {} of its sizes vary", varying.len()),
                format!(
                    "fix all sizes but one with --dim NAME=N; the linked values are {}",
                    sizes.join(", ")
                ),
            ));
        }
        let axis = varying.first().copied();
        let reads = |end: &Endpoint| inputs.iter().any(|input| input.entry == end.entry);
        Ok(Self {
            name: name.clone(),
            dtype: first.dtype,
            shape,
            axis,
            is_read_by_writer: axis.is_none() && outputs.iter().any(reads),
        })
    }

    /// Size along an axis.
    pub(super) fn size(&self, axis: usize) -> i64 {
        self.shape.get(axis).copied().unwrap_or(0)
    }

    /// Sizes in the order in which the state is stored.
    pub(super) fn stored_shape(&self) -> Vec<usize> {
        let (perm, _) = state_order(self.shape.len(), self.axis.unwrap_or(0));
        perm.into_iter().map(|axis| usize::try_from(self.size(axis)).unwrap_or(0)).collect()
    }
}

/// Returns the value of an input or output.
fn value<'a>(graph: &'a Graph, name: &str, is_input: bool) -> Option<&'a TensorDesc> {
    let node = match is_input {
        true => input_node(graph, name)?,
        false => graph.outputs().iter().find(|output| output.name == name)?.node,
    };
    Some(graph.tensor(node))
}
