//! The entry points of a language model: its whole graph, and functions that generate text.
//!
//! The whole graph has input `input_ids [batch, seq]` and output `logits [batch, seq, vocab]`: every position sees itself
//! and those before it. Functions compute some tokens after those that are in the caches already:
//!
//! | function | ids | logits |
//! |---|---|---|
//! | `decode` | one; -1 is the token that was chosen last | its |
//! | `verify` | up to 16 | of each |
//! | `prefill` | up to a chunk | of the last |
//!
//! Input `ids [1, n]`, outputs `next` (the token with the largest logit) and `logits`, a row for each position. Symbol
//! `past` is the number of tokens in the caches. Where angles depend on how long a text becomes, symbol `length` says so. Ids behind those that are meant, of which there are `count` in `prefill`,
//! are padding: no position before them sees them, and the next tokens overwrite what they leave in the caches.

use std::rc::Rc;

use driftc::error::{Error, Result};
use driftc::ir::builder::Builder;
use driftc::ir::dim::{Bounds, Dim};
use driftc::ir::element::BinaryFn;
use driftc::ir::graph::{Graph, NodeId};
use driftc::ir::op::{ArgReduce, State, Update};
use driftc::ir::tensor::DType;

use crate::folder::Folder;
use crate::weights::Tensors;

/// Longest text that the whole graph is made for unless the user asks for another.
const DEFAULT_SEQ: i64 = 256;
/// Tokens of the caches unless the user asks for another number.
const DEFAULT_CONTEXT: i64 = 4096;
/// Tokens of a chunk of `prefill` unless the user asks for another number.
const DEFAULT_CHUNK: i64 = 256;
/// Most tokens of `verify`: as many as one row of matrix units takes.
const VERIFIED: i64 = 16;

/// What tells language models apart.
pub(crate) trait LanguageModel {
    /// Positions that the model knows.
    fn longest(&self) -> i64;

    /// Lengths up to this need not be known while compiling.
    fn steady(&self) -> i64 {
        i64::MAX
    }

    /// Whether what is computed for a position depends on the length of the text that it is in.
    fn minds_length(&self, _lengths: (i64, i64)) -> bool {
        false
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

/// A size that is one number.
fn number(folder: &mut Folder, name: &str, most: i64, usual: i64) -> Result<i64> {
    let (low, high) = folder.dims.get(name).copied().unwrap_or((usual.min(most), usual.min(most)));
    if low != high || low < 1 || low > most {
        return Err(Error::request(
            format!("`{name}` cannot be {low}..{high}: it is one number of at most {most}"),
            format!("give --dim {name}=N"),
        ));
    }
    Ok(low)
}

fn functions(folder: &mut Folder, model: &dyn LanguageModel) -> Result<()> {
    let known = folder.dims.contains_key("context");
    let context = number(folder, "context", model.longest(), DEFAULT_CONTEXT.min(model.steady()))?;
    let chunk = number(folder, "chunk", context, DEFAULT_CHUNK)?;
    if !known && context < model.longest() {
        let longest = model.longest();
        folder.notes.push(format!(
            "the context has {context} tokens of the {longest} that the model knows; --dim context=N changes that"
        ));
    }
    check(folder, model, (1, context))?;
    let weights = Rc::clone(&folder.weights);
    // The first one decides how weights are packed: for a few rows they lie as both one row and many can read them.
    for (name, tokens, every) in
        [("verify", VERIFIED.min(context), true), ("decode", 1, false), ("prefill", chunk, false)]
    {
        let graph = function(model, &*weights, context, tokens, every)?;
        folder.functions.push((name.to_string(), graph));
    }
    Ok(())
}

/// The function of so many tokens.
fn function(
    model: &dyn LanguageModel,
    weights: &dyn Tensors,
    context: i64,
    tokens: i64,
    every: bool,
) -> Result<Graph> {
    let mut graph = Graph::default();
    graph.bounds = Bounds::from([("past".to_string(), (0, context - tokens))]);
    let mut g = Builder::new(&mut graph, "ids");
    let seq = Dim::known(tokens);
    let mut ids = g.input("ids", DType::I32, vec![Dim::known(1), seq.clone()])?;
    let only = (!every && tokens > 1).then(|| {
        g.graph.bounds.insert("count".to_string(), (1, tokens));
        Dim::symbol("count").plus(-1)
    });
    let token = State { name: "token".to_string(), dtype: DType::I32, shape: vec![1] };
    if tokens == 1 {
        g.name = "token".to_string();
        let last = g.add(token, &[])?;
        let last = g.reshape(last, vec![Dim::known(1); 2])?;
        let zero = g.scalar(DType::I32, 0.0)?;
        let given = g.binary(BinaryFn::GreaterEqual, ids, zero)?;
        ids = g.select(given, ids, last)?;
    }
    let past = Dim::symbol("past");
    let mut length = past.add(&seq);
    if model.minds_length((1, context)) {
        g.graph.bounds.insert("length".to_string(), (1, context));
        length = Dim::symbol("length");
    }
    let sequence = Sequence { past, seq, length, context: Some(usize::try_from(context).unwrap_or(0)) };
    let logits = model.logits(&mut g, weights, ids, &sequence, only)?;
    g.name = "logits".to_string();
    let rows = g.tensor(logits).shape.iter().skip(1).cloned().collect();
    let logits = g.reshape(logits, rows)?;
    let logits = g.cast(logits, DType::F32)?;
    g.graph.add_output("logits", logits);
    g.name = "next".to_string();
    let next = g.add(ArgReduce { axis: 1, largest: true, last: false, keepdims: false }, &[logits])?;
    let next = g.cast(next, DType::I32)?;
    g.graph.add_output("next", next);
    if !every {
        g.graph.add_store("token", next);
    }
    Ok(graph)
}
