//! The entry points of a language model: its whole graph, and functions that generate text.
//!
//! The whole graph has input `input_ids [batch, seq]` and output `logits [batch, seq, vocab]`: every position sees itself
//! and those before it. Functions compute some tokens after those that are in the caches already
//! ([`driftc::language`]). Where angles depend on how long a text becomes, symbol `length` says so.

use std::rc::Rc;

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::{Bounds, Dim};
use driftc::ir::graph::{Graph, NodeId};
use driftc::ir::op::{State, Update};
use driftc::ir::tensor::DType;
use driftc::language::{DEFAULT_CONTEXT, Entry, PAST, Sizes, sample};

use crate::folder::Folder;
use crate::weights::Tensors;

/// Longest text that the whole graph is made for unless the user asks for another.
const DEFAULT_SEQ: i64 = 256;

/// What tells language models apart.
pub(crate) trait LanguageModel {
    /// Positions that the model knows.
    fn longest(&self) -> i64;

    /// Lengths up to this need not be known while compiling.
    fn steady(&self) -> i64 {
        i64::MAX
    }

    /// Where what is computed for a position depends on the length of the text that it is in: the longest of the shorter
    /// texts, which are computed alike, as all longer ones are.
    fn turn(&self, _lengths: (i64, i64)) -> Option<i64> {
        None
    }

    /// The reason why texts whose length lies within bounds cannot be computed.
    fn check(&self, _lengths: (i64, i64)) -> std::result::Result<(), String> {
        Ok(())
    }

    /// The logits of `ids [batch, seq]`, `[batch, seq, vocab]`, or with `only` those of one of the positions.
    ///
    /// # Errors
    /// When the checkpoint does not fit.
    fn logits(
        &self,
        g: &mut Builder<'_>,
        weights: &dyn Tensors,
        ids: NodeId,
        sequence: &Sequence,
        only: Option<Dim>,
    ) -> Result<NodeId>;
}

/// Which positions a run computes: `seq` of them after `past` that were computed before.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    pub(crate) past: Dim,
    pub(crate) seq: Dim,
    /// The whole text's, as far as it is known.
    pub(crate) length: Dim,
    /// Positions of the caches that hold those before; none where there are none before.
    pub(crate) context: Option<usize>,
}

impl Sequence {
    /// Keys that the last position sees.
    pub(crate) fn keys(&self) -> Dim {
        self.past.add(&self.seq)
    }

    /// The keys or values of all positions so far, `[batch, keys, heads, size]`, from those of a run,
    /// `[batch, seq, heads, size]`: the cache `name` with these appended.
    pub(crate) fn cached(&self, g: &mut Builder<'_>, name: &str, new: NodeId) -> Result<NodeId> {
        let (Some(context), [1, heads, size]) = (self.context, sizes(g, new)) else { return Ok(new) };
        g.name = name.to_string();
        let state = State {
            name: name.to_string(),
            dtype: g.tensor(new).dtype,
            shape: vec![1, context, heads, size],
        };
        let state = g.add(state, &[])?;
        let held = g.add(Update { axis: 1, start: self.past.clone() }, &[state, new])?;
        g.graph.add_store(name, held);
        g.slice(held, 1, Dim::known(0), self.keys())
    }
}

/// Known sizes of `[batch, seq, heads, size]` but for the second; zeros where they are not known.
fn sizes(g: &Builder<'_>, x: NodeId) -> [usize; 3] {
    let shape = &g.tensor(x).shape;
    [0, 2, 3].map(|axis| shape.get(axis).and_then(|d| usize::try_from(d.as_known()?).ok()).unwrap_or(0))
}

/// Builds the whole graph and, unless the user gave sizes of it, the functions.
pub(crate) fn build(folder: &mut Folder, model: &dyn LanguageModel) -> Result<()> {
    let asked = folder.dims.contains_key("batch") || folder.dims.contains_key("seq");
    let notes = folder.notes.len();
    let batch = folder.dim("batch", (1, 1))?;
    let seq = folder.positions("seq", model.longest(), DEFAULT_SEQ.min(model.steady()))?;
    let weights = Rc::clone(&folder.weights);
    let sequence = Sequence { past: Dim::known(0), seq: seq.clone(), length: seq.clone(), context: None };
    check(folder, model, sequence.keys().range(&folder.graph.bounds))?;
    let mut g = Builder::new(&mut folder.graph, "embedding");
    let ids = g.input("input_ids", DType::I64, vec![batch, seq])?;
    let logits = model.logits(&mut g, &*weights, ids, &sequence, None)?;
    g.graph.add_output("logits", logits);
    if asked {
        return Ok(());
    }
    folder.notes.truncate(notes);
    functions(folder, model)
}

fn check(folder: &Folder, model: &dyn LanguageModel, lengths: (i64, i64)) -> Result<()> {
    model.check(lengths).map_err(|reason| folder.error("config.json", reason))
}

fn functions(folder: &mut Folder, model: &dyn LanguageModel) -> Result<()> {
    let longest = model.longest();
    let usual = DEFAULT_CONTEXT.min(model.steady());
    let sizes = Sizes::of(|name| folder.dims.get(name).copied(), longest, usual)?;
    if !folder.dims.contains_key("context") && sizes.context < longest {
        folder.notes.push(format!(
            "the context has {} tokens of the {longest} that the model knows; --dim context=N changes that",
            sizes.context
        ));
    }
    check(folder, model, (1, sizes.context))?;
    let weights = Rc::clone(&folder.weights);
    for entry in sizes.entries() {
        let graph = function(model, &*weights, &entry)?;
        folder.functions.push((entry.name.to_string(), graph));
        folder.spare.extend(entry.spare.then(|| entry.name.to_string()));
    }
    folder.functions.extend(sample::of(&folder.functions)?);
    Ok(())
}

/// The graph of an entry point.
fn function(model: &dyn LanguageModel, weights: &dyn Tensors, entry: &Entry) -> Result<Graph> {
    let mut graph = Graph::default();
    graph.bounds = Bounds::from([(PAST.to_string(), entry.past())]);
    let mut g = Builder::new(&mut graph, "ids");
    let ids = entry.ids(&mut g)?;
    let (past, seq) = (Dim::symbol(PAST), entry.seq());
    let mut length = entry.keys();
    if let Some(turn) = model.turn((1, entry.context)) {
        g.graph.bounds.insert("length".to_string(), (turn, entry.context));
        length = Dim::symbol("length");
    }
    let context = Some(usize::try_from(entry.context).unwrap_or(0));
    let sequence = Sequence { past, seq, length, context };
    let logits = model.logits(&mut g, weights, ids, &sequence, entry.only())?;
    entry.finish(&mut g, logits)?;
    Ok(graph)
}
