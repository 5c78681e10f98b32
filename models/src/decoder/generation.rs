//! Graphs of a language model: one for a whole text (the whole graph), and one for each function that generates text.
//!
//! The whole graph has no KV cache. It has the input `input_ids [batch, seq]` and the output `logits [batch, seq, vocab]` with
//! causal attention. Each function (`prefill`, `decode` and so on) computes some tokens after the tokens that the KV caches
//! already hold ([`driftc::language`]). If RoPE angles depend on the text's length, the functions have the symbol `length`.

use std::rc::Rc;

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::{Bounds, Dim};
use driftc::ir::graph::{Graph, NodeId};
use driftc::ir::op::{State, Update};
use driftc::ir::tensor::DType;
use driftc::language::{DEFAULT_CONTEXT, GENERATION_SIZES, GenerationSizes, LanguageFunction, PAST, sample};

use crate::folder::Folder;
use crate::weights::Tensors;

/// Upper bound of the sequence length of the whole graph if the user gives none.
const DEFAULT_MAX_SEQ: i64 = 256;

/// Language model architecture, from which the whole graph and the functions for text generation are built.
pub(crate) trait LanguageModel {
    /// Maximum number of positions (tokens of a text) that the model supports.
    fn max_positions(&self) -> i64;

    /// Maximum text length up to which RoPE angles do not depend on the text's length, so that the graph serves any shorter text.
    fn max_static_length(&self) -> i64 {
        i64::MAX
    }

    /// Text length at which the RoPE factors switch: texts up to this length use one set of factors, and longer texts use another
    /// set. Returns `None` if all texts within the bounds share one set.
    fn switch_length(&self, _lengths: (i64, i64)) -> Option<i64> {
        None
    }

    /// Checks that one graph can compute all texts with lengths within the bounds.
    ///
    /// # Errors
    /// If one graph cannot. The message gives the reason.
    fn check(&self, _lengths: (i64, i64)) -> std::result::Result<(), String> {
        Ok(())
    }

    /// Adds the model; returns the logits `[batch, seq, vocab]` of `ids [batch, seq]`. With `only`, a position, returns the
    /// logits of only this position.
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

/// Positions that a run computes: `seq` positions after the `past` positions that the KV caches hold.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    pub(crate) past: Dim,
    pub(crate) seq: Dim,
    /// Length of the whole text, or an upper bound of it. RoPE angles may depend on this length.
    pub(crate) length: Dim,
    /// Context length: number of positions that a KV cache holds. `None` for a graph without caches.
    pub(crate) context: Option<usize>,
}

impl Sequence {
    /// Number of keys that the last position of the run can attend to: `past + seq`.
    pub(crate) fn keys(&self) -> Dim {
        self.past.add(&self.seq)
    }

    /// Adds an update that appends keys or values `[batch, seq, heads, size]` to the KV cache `name`, and returns the keys or
    /// values of all positions so far, `[batch, keys, heads, size]`.
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

/// Returns the sizes of the axes batch, heads and size of a tensor `[batch, seq, heads, size]`. An unknown size is 0.
fn sizes(g: &Builder<'_>, x: NodeId) -> [usize; 3] {
    let shape = &g.tensor(x).shape;
    [0, 2, 3].map(|axis| shape.get(axis).and_then(|d| usize::try_from(d.as_known()?).ok()).unwrap_or(0))
}

/// Builds the whole graph. Unless the user gave a size `batch` or `seq`, also builds the functions that generate text.
pub(crate) fn build(folder: &mut Folder, model: &dyn LanguageModel) -> Result<()> {
    let whole_graph_only = folder.dims.contains_key("batch") || folder.dims.contains_key("seq");
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
        folder.notes.push(
            "with --dim batch or --dim seq, the bundle has no functions that generate text, only the function `main`"
                .to_string(),
        );
        return Ok(());
    }
    // The bundle has only the functions that generate text.
    folder.assumed.clear();
    functions(folder, model)?;
    folder.entry_points.extend(sample::sample_entry_point(&folder.entry_points)?);
    Ok(())
}

fn check(folder: &Folder, model: &dyn LanguageModel, lengths: (i64, i64)) -> Result<()> {
    model.check(lengths).map_err(|reason| folder.error("config.json", reason))
}

/// Builds the functions that compute logits of a text: `verify`, `decode`, `prefill` and `prefill_long`.
pub(crate) fn functions(folder: &mut Folder, model: &dyn LanguageModel) -> Result<()> {
    folder.sizes.extend(GENERATION_SIZES.map(str::to_string));
    let max_positions = model.max_positions();
    let default_context = DEFAULT_CONTEXT.min(model.max_static_length());
    let sizes =
        GenerationSizes::from_bounds(|name| folder.dims.get(name).copied(), max_positions, default_context)?;
    if !folder.dims.contains_key("context") && sizes.context < max_positions {
        folder.notes.push(format!(
            "the context length is {} tokens; the model supports up to {max_positions}; change the context length with --dim context=N",
            sizes.context
        ));
    }
    check(folder, model, (1, sizes.context))?;
    let weights = Rc::clone(&folder.weights);
    for entry in sizes.functions() {
        let graph = function(model, &*weights, &entry)?;
        folder.entry_points.push(entry.entry_point(graph));
    }
    Ok(())
}

/// Builds the graph of one function that generates text.
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
