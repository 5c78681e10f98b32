//! ONNX language models as functions: decoders that take and give their caches.
//!
//! Exporters agree on the names (`input_ids`, `attention_mask`, `position_ids`, `past..` in, `logits` and the new caches
//! out), not on those of the sizes: what a size counts follows from the input that it belongs to. The model is imported
//! for each function with that function's sizes; the mask and the positions follow from them, and caches become states
//! ([`super::caches`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::caches::{self, Cache};
use super::{DECODE, DEFAULT_CONTEXT, Entry, PAST, Sizes, sample};
use crate::error::Result;
use crate::import::onnx::{self, Declaration, DimSpec, Imported, Options};
use crate::ir::array::Array;
use crate::ir::builder::Builder;
use crate::ir::dim::Dim;
use crate::ir::element::Element;
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{Elementwise, MatMul, Op, Range};
use crate::ir::tensor::DType;

/// Bounds of sizes by name, inclusive.
type Dims = BTreeMap<String, (i64, i64)>;

/// The symbol of the ids in the whole graph.
const SEQ: &str = "seq";
/// Most ids of the whole graph.
const MOST: i64 = 256;

/// A language model.
#[derive(Debug)]
pub struct Language {
    /// The model as it is in the file, with the symbols `past` and `seq` and a batch of 1.
    pub whole: Imported,
    /// Its functions, by name.
    pub functions: Vec<(String, Graph)>,
    /// Names of those that targets do without where they save little time.
    pub spare: Vec<String>,
    /// What was assumed, for the user to read.
    pub notes: Vec<String>,
}

/// What an input is to a language model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The tokens.
    Ids,
    /// Which keys are tokens: all are.
    Mask,
    /// Where the tokens stand.
    Positions,
    /// Whether there are caches: there are.
    Branch,
    /// A cache, with the axis of its positions.
    Cache(usize),
}

/// The model of a file as functions; `None` where it is no decoder that takes and gives caches, or where `dims` speaks of
/// its own sizes, so that it is wanted as it is. `longest` is the most tokens of a text, where that is known.
///
/// # Errors
/// When the file cannot be imported, or a size of the functions is wrong.
pub fn load(path: &Path, dims: &Dims, longest: Option<i64>) -> Result<Option<Language>> {
    let Some(model) = Model::of(onnx::inputs(path)?, dims) else { return Ok(None) };
    let usual = longest.unwrap_or(i64::MAX).min(DEFAULT_CONTEXT);
    let said = |name: &str| dims.get(name).copied();
    let known = model.known(path, dims)?;
    let probe = Sizes::of(said, i64::MAX, usual)?;
    let seq = MOST.min(probe.context);
    let whole = model.import(
        path,
        &known,
        &Dim::symbol(SEQ),
        DimSpec::Range(0, probe.context - seq),
        Some((SEQ, (1, seq))),
    )?;
    let rows = model.rows(&whole.graph);
    let longest = rows.into_iter().chain(longest).min();
    let sizes = Sizes::of(said, longest.unwrap_or(i64::MAX), usual)?;
    let (mut functions, mut spare) = (Vec::new(), Vec::new());
    for entry in sizes.entries() {
        if model.seq.is_some_and(|seq| seq != entry.tokens) {
            continue;
        }
        let tokens = entry.seq();
        let (low, high) = entry.past();
        let seq = tokens.as_symbol().map(|name| (name, (1, entry.tokens)));
        let mut graph = model.import(path, &known, &tokens, DimSpec::Range(low, high), seq)?.graph;
        match model.function(&mut graph, &entry)? {
            Built::Whole => {
                functions.push((entry.name.to_string(), graph));
                spare.extend(entry.spare.then(|| entry.name.to_string()));
            }
            Built::LastOnly => {}
            Built::NoCaches => return Ok(None),
        }
    }
    if functions.iter().all(|(name, _)| name != DECODE) {
        return Ok(None);
    }
    functions.extend(sample::of(&functions)?);
    let mut notes = vec![
        "the caches stay on the device (functions `decode`, `verify`, `prefill`, ..); --dim with sizes of the model compiles it as it is".to_string(),
    ];
    if !dims.contains_key("context") && longest != Some(sizes.context) {
        let of = longest.map_or_else(String::new, |n| format!(" of the {n} that the model knows"));
        notes.push(format!("the context has {} tokens{of}; --dim context=N changes that", sizes.context));
    }
    Ok(Some(Language { whole, functions, spare, notes }))
}

/// What became of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Built {
    /// It has what it needs.
    Whole,
    /// There are logits for the last id alone, so none may be padding.
    LastOnly,
    /// An input is no cache, though it is called one.
    NoCaches,
}

/// The inputs of a language model.
struct Model {
    inputs: Vec<(Declaration, Role)>,
    /// The number of ids, where the model fixes it.
    seq: Option<i64>,
}

impl Model {
    /// Reads the inputs; `None` where one of them has no role, or the user speaks of their sizes.
    fn of(declared: Vec<Declaration>, dims: &Dims) -> Option<Self> {
        let inputs: Option<Vec<(Declaration, Role)>> =
            declared.into_iter().map(|input| role(&input).map(|role| (input, role))).collect();
        let inputs = inputs?;
        let has = |wanted: fn(Role) -> bool| inputs.iter().any(|(_, role)| wanted(*role));
        if !has(|role| role == Role::Ids) || !has(|role| matches!(role, Role::Cache(_))) {
            return None;
        }
        let mut seq = None;
        for (input, role) in &inputs {
            let shape = input.shape.as_deref()?;
            let mut spoken = BTreeSet::new();
            let own =
                shape.iter().enumerate().filter(|(axis, _)| !matches!(role, Role::Cache(a) if axis > a));
            own.for_each(|(_, dim)| dim.symbols(&mut spoken));
            if spoken.iter().any(|symbol| dims.contains_key(symbol)) {
                return None;
            }
            if *role == Role::Ids {
                seq = shape.get(1).and_then(Dim::as_known);
            }
        }
        Some(Self { inputs, seq })
    }

    /// What the user says of sizes that no function decides, and the size of a head where the model leaves it open.
    fn known(&self, path: &Path, dims: &Dims) -> Result<BTreeMap<String, DimSpec>> {
        let mut known = BTreeMap::new();
        let mut open = BTreeMap::new();
        for (input, role) in &self.inputs {
            let Role::Cache(positions) = *role else { continue };
            let shape = input.shape.iter().flatten().enumerate().skip(1);
            for (axis, symbol) in shape.filter_map(|(axis, d)| Some((axis, d.as_symbol()?))) {
                if axis == positions {
                    continue;
                }
                match dims.get(symbol) {
                    Some(bounds) => {
                        known.insert(symbol.to_string(), spec(*bounds));
                    }
                    None => {
                        open.insert(symbol.to_string(), (axis, input.shape.iter().flatten().count()));
                    }
                }
            }
        }
        if open.is_empty() {
            return Ok(known);
        }
        // What empty caches become after a token has the sizes of what is added.
        let probe = self.import(path, &known, &Dim::known(self.seq.unwrap_or(1)), DimSpec::Fixed(0), None)?;
        for (symbol, (axis, rank)) in open {
            let outputs = probe.graph.outputs().iter().filter(|o| o.name != "logits");
            let mut shapes = outputs.map(|o| &probe.graph.tensor(o.node).shape).filter(|s| s.len() == rank);
            if let Some(size) = shapes.find_map(|shape| shape.get(axis)?.as_known()) {
                known.insert(symbol, DimSpec::Fixed(size));
            }
        }
        Ok(known)
    }

    /// Imports the model with so many tokens after `past` others; `seq` is the symbol that `tokens` may be, with its bounds.
    fn import(
        &self,
        path: &Path,
        known: &BTreeMap<String, DimSpec>,
        tokens: &Dim,
        past: DimSpec,
        seq: Option<(&str, (i64, i64))>,
    ) -> Result<Imported> {
        let mut options = Options { dims: known.clone(), ..Options::default() };
        let symbol = Dim::symbol(PAST);
        let is = |dim: &Dim| dim.as_known().map_or_else(|| DimSpec::Is(dim.clone()), DimSpec::Fixed);
        for (input, role) in &self.inputs {
            if *role == Role::Branch {
                let yes = Array::int(DType::Bool, &[1], vec![1]);
                options.constants.insert(input.name.clone(), yes);
                continue;
            }
            for (axis, dim) in input.shape.iter().flatten().enumerate() {
                let Some(name) = dim.as_symbol() else { continue };
                let wanted = match (role, axis) {
                    (_, 0) => DimSpec::Fixed(1),
                    (Role::Ids | Role::Positions, 1) => is(tokens),
                    (Role::Mask, 1) => is(&symbol.add(tokens)),
                    (Role::Cache(positions), _) if axis == *positions => is(&symbol),
                    _ => continue,
                };
                // A symbol that is its own name needs bounds alone.
                if wanted != DimSpec::Is(Dim::symbol(name)) {
                    options.dims.entry(name.to_string()).or_insert(wanted);
                }
            }
        }
        options.dims.insert(PAST.to_string(), past);
        options.dims.extend(seq.map(|(name, bounds)| (name.to_string(), spec(bounds))));
        onnx::load(path, &options)
    }

    /// Makes the imported graph a function.
    fn function(&self, graph: &mut Graph, entry: &Entry) -> Result<Built> {
        graph.sweep();
        let inputs: BTreeMap<String, NodeId> =
            graph.inputs().iter().map(|id| (graph.node(*id).name.clone(), *id)).collect();
        let logits = graph.outputs().iter().find(|o| o.name == "logits").map(|o| o.node);
        let Some(logits) = logits else { return Ok(Built::NoCaches) };
        let mut found: Vec<Cache> = Vec::new();
        for (input, role) in &self.inputs {
            if let (Role::Cache(_), Some(id)) = (role, inputs.get(&input.name)) {
                let Some(cache) = caches::find(graph, *id) else { return Ok(Built::NoCaches) };
                found.push(cache);
            }
        }
        let shape = graph.tensor(logits).shape.clone();
        let ([batch, rows, _], true) = (shape.as_slice(), graph.outputs().len() == found.len() + 1) else {
            return Ok(Built::NoCaches);
        };
        if !batch.is(1) || *rows != entry.seq() {
            return Ok(Built::LastOnly);
        }
        graph.clear_outputs();
        graph.add_output("logits", logits);
        for cache in found {
            caches::keep(graph, cache, entry)?;
        }
        let tokens = entry.seq();
        let mut g = Builder::new(graph, "ids");
        for (input, role) in &self.inputs {
            let Some(id) = inputs.get(&input.name).copied() else { continue };
            let dtype = g.tensor(id).dtype;
            let shape = g.tensor(id).shape.clone();
            g.name.clone_from(&input.name);
            let value = match role {
                Role::Ids => {
                    let ids = entry.ids(&mut g)?;
                    g.cast(ids, dtype)?
                }
                Role::Mask => {
                    let one = g.scalar(dtype, 1.0)?;
                    g.expand(one, shape)?
                }
                Role::Positions => {
                    let start = Dim::symbol(PAST);
                    let positions = g.add(Range { dtype, start, step: 1, length: tokens.clone() }, &[])?;
                    g.reshape(positions, shape)?
                }
                Role::Branch | Role::Cache(_) => continue,
            };
            g.graph.replace_uses(id, value);
            g.graph.remove_input(id);
        }
        let Some(mut logits) = g.graph.outputs().first().map(|o| o.node) else { return Ok(Built::NoCaches) };
        if let Some(only) = entry.only() {
            logits = row(&mut g, logits, &only)?;
        }
        let stores = g.graph.stores().to_vec();
        g.graph.clear_outputs();
        for store in stores {
            g.graph.add_store(&store.name, store.node);
        }
        entry.finish(&mut g, logits)?;
        graph.sweep();
        Ok(Built::Whole)
    }

    /// How many positions tables hold that the positions, or their number, index.
    fn rows(&self, graph: &Graph) -> Option<i64> {
        let mut counted: BTreeSet<NodeId> = BTreeSet::new();
        for id in graph.inputs() {
            let is = |(input, role): &(Declaration, Role)| {
                *role == Role::Positions && input.name == graph.node(*id).name
            };
            if self.inputs.iter().any(is) {
                counted.insert(*id);
            }
        }
        let mut rows: Option<i64> = None;
        let mut note = |n: Option<i64>| rows = rows.into_iter().chain(n).min();
        for id in graph.topological() {
            let operands = graph.operands(id);
            let of_position = |i: usize| operands.get(i).is_some_and(|o| counted.contains(o));
            let size = |axis: usize| {
                let table = operands.first().filter(|o| graph.constant(**o).is_some())?;
                graph.tensor(*table).shape.get(axis)?.as_known()
            };
            match graph.op(id) {
                Op::Range(range) if range.start == Dim::symbol(PAST) && range.step == 1 => {
                    counted.insert(id);
                }
                Op::Reshape(_)
                | Op::Expand(_)
                | Op::Elementwise(Elementwise { element: Element::Cast(_) })
                    if of_position(0) =>
                {
                    counted.insert(id);
                }
                Op::Gather(gather) if of_position(1) => note(size(gather.axis)),
                Op::Slice(slice) => {
                    let axis = slice.starts.iter().position(|start| *start == Dim::symbol(PAST));
                    note(axis.and_then(size));
                }
                _ => {}
            }
        }
        rows
    }
}

/// Bounds as the importer has them.
fn spec((low, high): (i64, i64)) -> DimSpec {
    if low == high { DimSpec::Fixed(low) } else { DimSpec::Range(low, high) }
}

/// What an input is, by its name and form.
fn role(input: &Declaration) -> Option<Role> {
    let shape = input.shape.as_deref()?;
    let dtype = input.dtype?;
    let whole = matches!(dtype, DType::I32 | DType::I64);
    match (input.name.as_str(), shape) {
        ("input_ids", [_, _]) if whole => Some(Role::Ids),
        ("position_ids", [_, _]) if whole => Some(Role::Positions),
        ("attention_mask", [_, keys]) if keys.as_known().is_none() => Some(Role::Mask),
        ("use_cache_branch", [n]) if n.is(1) && dtype == DType::Bool => Some(Role::Branch),
        (name, [_, middle @ .., _]) if name.starts_with("past") && dtype.is_float() => {
            let mut open = middle.iter().enumerate().filter(|(_, dim)| dim.as_symbol().is_some());
            let (axis, _) = open.next()?;
            open.next().is_none().then_some(Role::Cache(axis + 1))
        }
        _ => None,
    }
}

/// One of the rows of `x [1, n, m]`, computed from one row as far as its products and element functions go.
fn row(g: &mut Builder<'_>, x: NodeId, at: &Dim) -> Result<NodeId> {
    let node = g.graph.node(x);
    let operands = g.graph.operands(x);
    let rank = |id: &NodeId| g.tensor(*id).rank();
    let shape = &node.tensor.shape;
    let rowwise = match (&node.op, operands.as_slice()) {
        (Op::MatMul(MatMul { trans_a: false, .. }), [a, b]) => rank(a) == 3 && rank(b) == 2,
        (Op::Elementwise(_), [a, rest @ ..]) => {
            // The others are the same for every row.
            g.tensor(*a).shape == *shape && rest.iter().all(|o| rank(o) == 0 || rank(o) == 1)
        }
        _ => false,
    };
    let arity = node.arity;
    if !rowwise || !node.epilogue.is_empty() || arity != operands.len() {
        return g.slice(x, 1, at.clone(), Dim::known(1));
    }
    let (op, name) = (node.op.clone(), node.name.clone());
    let Some((first, rest)) = operands.split_first() else { return Ok(x) };
    let first = row(g, *first, at)?;
    let operands: Vec<NodeId> = [first].into_iter().chain(rest.iter().copied()).collect();
    g.graph.add_fused(Replacement { op, arity, operands, epilogue: Vec::new() }, &name)
}
