//! Links between entry points: an output of one becomes an input of another without leaving the device.
//!
//! ```text
//! encoder: output "hidden" %7                encoder: %9 = update (state "decoder.hidden") %7
//! decoder: %1 = input hidden        ->       decoder: %1 = slice (state "decoder.hidden")
//! ```
//!
//! Linked outputs and inputs share a state, and the entry points lose them. One axis may vary: the state holds the largest size.
//! An output that is linked to an input of the same entry point, and appends rows to it, is a KV cache, which is updated in
//! place.

mod endpoint;
mod pattern;
mod shared;

pub use endpoint::{Endpoint, Link};
pub use pattern::LinkPattern;

use std::collections::{BTreeMap, BTreeSet};

use crate::entry_points::EntryPoint;
use crate::error::{Error, Result};
use crate::ir::builder::Builder;
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{State, Update};
use crate::language::caches::{CacheSizes, find_cache, make_state, state_order};
use endpoint::input_node;
use shared::SharedState;

/// Outputs and inputs that share a state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Group {
    outputs: BTreeSet<Endpoint>,
    inputs: BTreeSet<Endpoint>,
}

/// Replaces linked outputs and inputs by states.
///
/// # Errors
/// If linked values have different types, or sizes that no state can hold.
pub fn link(entries: &mut [EntryPoint], links: &[Link]) -> Result<()> {
    for group in groups(links) {
        let state = SharedState::new(entries, &group.outputs, &group.inputs)?;
        for input in &group.inputs {
            let Some(entry) = entries.get_mut(input.entry) else { continue };
            let own = group.outputs.iter().filter(|output| output.entry == input.entry);
            let own: Vec<&str> = own.map(|output| output.name.as_str()).collect();
            read(entry, &input.name, &own, &state)?;
        }
        for output in &group.outputs {
            let Some(entry) = entries.get_mut(output.entry) else { continue };
            write(&mut entry.graph, &output.name, &state)?;
        }
    }
    for entry in entries {
        entry.graph.sweep();
    }
    Ok(())
}

/// Groups the ends of links that share a state: all outputs of an input, and all inputs of an output.
fn groups(links: &[Link]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for link in links {
        let shares = |group: &Group| group.outputs.contains(&link.from) || group.inputs.contains(&link.to);
        let (joined, mut rest): (Vec<Group>, Vec<Group>) = groups.into_iter().partition(shares);
        let mut group = Group::default();
        group.outputs.insert(link.from.clone());
        group.inputs.insert(link.to.clone());
        for mut other in joined {
            group.outputs.append(&mut other.outputs);
            group.inputs.append(&mut other.inputs);
        }
        rest.push(group);
        groups = rest;
    }
    groups
}

/// Replaces an input by the contents of a state. `own` has the outputs of the same entry point that the state takes.
fn read(entry: &mut EntryPoint, name: &str, own: &[&str], state: &SharedState) -> Result<()> {
    let Some(input) = input_node(&entry.graph, name) else { return Ok(()) };
    let graph = &mut entry.graph;
    let outputs: BTreeMap<&str, NodeId> =
        graph.outputs().iter().filter_map(|o| Some((*own.iter().find(|n| **n == o.name)?, o.node))).collect();
    if let Some(axis) = state.axis.filter(|_| !outputs.is_empty()) {
        let cache = find_cache(graph, input).filter(|cache| outputs.values().all(|o| *o == cache.present()));
        let Some(cache) = cache else {
            return Err(Error::request(
                format!(
                    "the input `{name}` of `{}` cannot be linked to an output of the same function: the output is not the input with rows appended",
                    entry.name
                ),
                "leave out this link, and pass the array from the host; a KV cache needs a batch of 1 (--dim)",
            ));
        };
        let past = graph.tensor(input).shape.get(axis).cloned().unwrap_or(Dim::known(0));
        let keys = past.add(&cache.added(graph));
        for output in outputs.keys() {
            graph.remove_output(output);
        }
        return make_state(graph, &state.name, cache, &CacheSizes { context: state.size(axis), past, keys });
    }
    let shape = graph.tensor(input).shape.clone();
    let mut g = Builder::new(graph, name);
    let mut value = g.add(state.op(), &[])?;
    if let Some(axis) = state.axis {
        let (_, back) = state_order(shape.len(), axis);
        let place = axis.min(1);
        value = g.slice(value, place, Dim::known(0), shape.get(axis).cloned().unwrap_or(Dim::known(0)))?;
        value = g.transpose(value, back)?;
    }
    graph.replace_uses(input, value);
    graph.remove_input(input);
    Ok(())
}

/// Stores an output in a state instead, unless the state took it already.
fn write(graph: &mut Graph, name: &str, state: &SharedState) -> Result<()> {
    let Some(node) = graph.outputs().iter().find(|o| o.name == name).map(|o| o.node) else { return Ok(()) };
    graph.remove_output(name);
    let mut g = Builder::new(graph, name);
    let rank = g.tensor(node).rank();
    // A value that its own function reads replaces the state as a whole, after the run.
    let stored = if rank == 0 || state.is_read_by_writer {
        node
    } else {
        let (perm, _) = state_order(rank, state.axis.unwrap_or(0));
        let value = g.transpose(node, perm)?;
        let whole = g.add(state.op(), &[])?;
        let axis = state.axis.map_or(usize::from(rank > 1), |axis| axis.min(1));
        g.add(Update { axis, start: Dim::known(0) }, &[whole, value])?
    };
    g.graph.add_store(&state.name, stored);
    Ok(())
}

impl SharedState {
    /// Returns the operator that reads the state.
    fn op(&self) -> State {
        State { name: self.name.clone(), dtype: self.dtype, shape: self.stored_shape() }
    }
}
