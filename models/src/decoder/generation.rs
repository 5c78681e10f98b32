//! Entry points of a language model: the whole graph, and functions that generate text.
//!
//! The whole graph has the input `input_ids [batch, seq]` and the output `logits [batch, seq, vocab]` with causal
//! attention. Functions compute some tokens after the tokens that the KV caches already hold ([`driftc::language`]). If
//! RoPE angles depend on the text's length, the functions have the symbol `length`.

use std::rc::Rc;

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::{Bounds, Dim};
use driftc::ir::graph::{Graph, NodeId};
use driftc::ir::op::{State, Update};
use driftc::ir::tensor::DType;
use driftc::language::{DEFAULT_CONTEXT, GenerationSizes, LanguageFunction, PAST, sample};

use crate::folder::Folder;
use crate::weights::Tensors;

/// Default upper bound of the sequence length of the whole graph.
const DEFAULT_MAX_SEQ: i64 = 256;

/// Language model with entry points for generation.
pub(crate) trait LanguageModel {
    /// Number of positions that the model supports.
    fn max_positions(&self) -> i64;

    /// Maximum text length that the compiler need not know.
    fn max_static_length(&self) -> i64 {
        i64::MAX
    }

    /// Text length at which the RoPE factors switch: texts up to this length share one set of factors, and longer texts
    /// another. Returns `None` if all texts within the bounds share one set.
    fn switch_length(&self, _lengths: (i64, i64)) -> Option<i64> {
        None
    }

    /// Checks that texts with lengths within the bounds can be computed.
    ///
    /// # Errors
    /// With the reason.
    fn check(&self, _lengths: (i64, i64)) -> std::result::Result<(), String> {
        Ok(())
    }

    /// Logits `[batch, seq, vocab]` of `ids [batch, seq]`. With `only`, logits of that position.
    ///
    /// # Errors
    /// If the checkpoint does not match the configuration.
    fn logits(
        &self,
        g: &mut Builder<'_>,
        weights: &dyn Tensors,
        ids: NodeId,
        sequence: &Sequence,
        only: Option<Dim>,
    ) -> Result<NodeId>;
}

/// Positions of a run: `seq` positions after `past` positions in the caches.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    pub(crate) past: Dim,
    pub(crate) seq: Dim,
    /// Length of the whole text, as far as it is known.
    pub(crate) length: Dim,
    /// Positions that a KV cache holds. `None` for a graph without caches.
    pub(crate) context: Option<usize>,
}

impl Sequence {
    /// Number of keys that the last position sees.
    pub(crate) fn keys(&self) -> Dim {
        self.past.add(&self.seq)
    }

    /// Appends keys or values `[batch, seq, heads, size]` to the cache `name`, and returns the keys or values of all
    /// positions so far, `[batch, keys, heads, size]`.
    pub(crate) fn cached(&self, g: &mut Builder<'_>, name: &str, new: NodeId) -> Result<NodeId> {
        let (Some(context), [1, heads, size]) = (self.context, sizes(g, new)) else { return Ok(new) };
        g.name = name.to_string();
        let state = State {
            name: name.to_string(),
            dtype: g.tensor(new).dtype,
            shape: vec![1, context, heads, size],
        };
        let state = g.add(state, &[])?;
        let updated = g.add(Update { axis: 1, start: self.past.clone() }, &[state, new])?;
        g.graph.add_store(name, updated);
        g.slice(updated, 1, Dim::known(0), self.keys())
    }
}

/// Known sizes of `[batch, seq, heads, size]` except `seq`. An unknown size is 0.
fn sizes(g: &Builder<'_>, x: NodeId) -> [usize; 3] {
    let shape = &g.tensor(x).shape;
    [0, 2, 3].map(|axis| shape.get(axis).and_then(|d| usize::try_from(d.as_known()?).ok()).unwrap_or(0))
}

/// Builds the whole graph and, unless `batch` or `seq` is given, the functions.
pub(crate) fn build(folder: &mut Folder, model: &dyn LanguageModel) -> Result<()> {
    let whole_graph_only = folder.dims.contains_key("batch") || folder.dims.contains_key("seq");
    let notes = folder.notes.len();
    let batch = folder.dim("batch", (1, 1))?;
    let seq =
        folder.positions("seq", model.max_positions(), DEFAULT_MAX_SEQ.min(model.max_static_length()))?;
    let weights = Rc::clone(&folder.weights);
    let sequence = Sequence { past: Dim::known(0), seq: seq.clone(), length: seq.clone(), context: None };
    check(folder, model, sequence.keys().range(&folder.graph.bounds))?;
    let mut g = Builder::new(&mut folder.graph, "embedding");
    let ids = g.input("input_ids", DType::I64, vec![batch, seq])?;
    let logits = model.logits(&mut g, &*weights, ids, &sequence, None)?;
    g.graph.add_output("logits", logits);
    if whole_graph_only {
        return Ok(());
    }
    folder.notes.truncate(notes);
    functions(folder, model)
}

fn check(folder: &Folder, model: &dyn LanguageModel, lengths: (i64, i64)) -> Result<()> {
    model.check(lengths).map_err(|reason| folder.error("config.json", reason))
}

fn functions(folder: &mut Folder, model: &dyn LanguageModel) -> Result<()> {
    let max_positions = model.max_positions();
    let default_context = DEFAULT_CONTEXT.min(model.max_static_length());
    let sizes =
        GenerationSizes::from_bounds(|name| folder.dims.get(name).copied(), max_positions, default_context)?;
    if !folder.dims.contains_key("context") && sizes.context < max_positions {
        folder.notes.push(format!(
            "the context length is {} of the model's {max_positions} tokens; change it with --dim context=N",
            sizes.context
        ));
    }
    check(folder, model, (1, sizes.context))?;
    let weights = Rc::clone(&folder.weights);
    for entry in sizes.functions() {
        let graph = function(model, &*weights, &entry)?;
        folder.entry_points.push(entry.entry_point(graph));
    }
    folder.entry_points.extend(sample::sample_entry_point(&folder.entry_points)?);
    Ok(())
}

/// Builds the graph of an entry point.
fn function(model: &dyn LanguageModel, weights: &dyn Tensors, entry: &LanguageFunction) -> Result<Graph> {
    let mut graph = Graph::default();
    graph.bounds = Bounds::from([(PAST.to_string(), entry.past_bounds())]);
    let mut g = Builder::new(&mut graph, "ids");
    let ids = entry.add_ids(&mut g)?;
    let (past, seq) = (Dim::symbol(PAST), entry.seq());
    let mut length = entry.keys();
    if let Some(switch_length) = model.switch_length((1, entry.context)) {
        g.graph.bounds.insert("length".to_string(), (switch_length, entry.context));
        length = Dim::symbol("length");
    }
    let context = Some(usize::try_from(entry.context).unwrap_or(0));
    let sequence = Sequence { past, seq, length, context };
    let logits = model.logits(&mut g, weights, ids, &sequence, entry.logits_position())?;
    entry.add_outputs(&mut g, logits)?;
    Ok(graph)
}
