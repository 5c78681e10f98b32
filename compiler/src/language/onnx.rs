//! Splits ONNX language models into entry points: decoders whose KV caches are inputs and outputs.
//!
//! Exporters agree on the names of tensors (inputs `input_ids`, `attention_mask`, `position_ids`, `past..`; outputs
//! `logits` and the new caches), but not on the names of sizes. The meaning of a size follows from the input that it
//! belongs to. The model is imported once per entry point, with that entry point's sizes. Mask and positions follow
//! from the sizes, and caches become states ([`super::caches`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::caches::{self, Cache, CacheSizes};
use super::{DECODE, DEFAULT_CONTEXT, GENERATION_SIZES, GenerationSizes, LanguageFunction, PAST, sample};
use crate::entry_points::EntryPoint;
use crate::error::{Error, Result};
use crate::import::onnx::{self, Declaration, DimSpec, Imported, Options};
use crate::ir::array::Array;
use crate::ir::builder::Builder;
use crate::ir::dim::Dim;
use crate::ir::element::Element;
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{Elementwise, MatMul, Op, Range};
use crate::ir::tensor::DType;
use crate::suggest::did_you_mean;

/// Inclusive bounds of dimensions, by the name of the dimension.
type Dims = BTreeMap<String, (i64, i64)>;

/// Symbol for the number of ids per run in the graph that is not split into entry points.
const SEQ: &str = "seq";
/// Maximum number of ids per run in the graph that is not split into entry points.
const MAX_SEQ: i64 = 256;

/// An ONNX language model.
#[derive(Debug)]
pub struct OnnxLanguageModel {
    /// The model as in the file, not split into entry points, with symbols `past` and `seq` and a batch of 1.
    pub whole: Imported,
    /// Entry points into which the model is split.
    pub entry_points: Vec<EntryPoint>,
    /// Assumptions about the model, for the user to read.
    pub notes: Vec<String>,
}

/// Role of an input of a language model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Token ids.
    Ids,
    /// Attention mask. The compiler sets it to all ones: no token is masked.
    Mask,
    /// Positions of the tokens.
    Positions,
    /// Flag that selects the branch of the model that uses KV caches. The compiler sets it to true.
    CacheBranch,
    /// A KV cache, with the index of its axis of positions.
    Cache(usize),
}

/// Loads a file as a language model. `longest` is the model's maximum context length, if known. Returns `None` if the
/// file is not a decoder with KV caches as inputs and outputs, or if `dims` names dimensions of the file itself, which
/// requests the model unchanged.
///
/// # Errors
/// If the file cannot be imported, or a size of the entry points is invalid.
pub fn load(path: &Path, dims: &Dims, longest: Option<i64>) -> Result<Option<OnnxLanguageModel>> {
    let Some(mut model) = load_unhashed(path, dims, longest)? else { return Ok(None) };
    model.whole.hash = onnx::hash(path)?;
    Ok(Some(model))
}

/// Loads a file like [`load`], but leaves the hash zero. So the weights are not read, and the time does not depend on
/// their size.
///
/// # Errors
/// As for [`load`].
pub fn load_unhashed(path: &Path, dims: &Dims, longest: Option<i64>) -> Result<Option<OnnxLanguageModel>> {
    let Some(model) = ModelInputs::from_declarations(onnx::inputs(path)?, dims) else { return Ok(None) };
    model.check_dims(dims)?;
    let usual = longest.unwrap_or(i64::MAX).min(DEFAULT_CONTEXT);
    let given = |name: &str| dims.get(name).copied();
    let known = model.known_dims(path, dims)?;
    let probe = GenerationSizes::from_bounds(given, i64::MAX, usual)?;
    let seq = MAX_SEQ.min(probe.context);
    let whole = model.import(
        path,
        &known,
        &Dim::symbol(SEQ),
        DimSpec::Range(0, probe.context - seq),
        Some((SEQ, (1, seq))),
    )?;
    let positions = model.max_positions(&whole.graph);
    let longest = positions.into_iter().chain(longest).min();
    let sizes = GenerationSizes::from_bounds(given, longest.unwrap_or(i64::MAX), usual)?;
    let mut entry_points: Vec<EntryPoint> = Vec::new();
    for function in sizes.functions() {
        if model.seq.is_some_and(|seq| seq != function.tokens) {
            continue;
        }
        let tokens = function.seq();
        let (low, high) = function.past_bounds();
        let seq = tokens.as_symbol().map(|name| (name, (1, function.tokens)));
        let mut graph = model.import(path, &known, &tokens, DimSpec::Range(low, high), seq)?.graph;
        match model.rewrite(&mut graph, &function)? {
            Rewrite::Complete => entry_points.push(function.entry_point(graph)),
            Rewrite::LastLogitsOnly => {}
            Rewrite::NoCaches => return Ok(None),
        }
    }
    if entry_points.iter().all(|entry| entry.name != DECODE) {
        return Ok(None);
    }
    entry_points.extend(sample::sample_entry_point(&entry_points)?);
    let mut notes = vec![
        "the KV caches stay on the device (functions `decode`, `verify`, `prefill`, ..); to compile the model unchanged, set its own dimensions with --dim".to_string(),
    ];
    if !dims.contains_key("context") && longest != Some(sizes.context) {
        let max = longest.map_or_else(String::new, |n| format!(" (the model's maximum is {n})"));
        notes
            .push(format!("the context length is {} tokens{max}; --dim context=N changes it", sizes.context));
    }
    Ok(Some(OnnxLanguageModel { whole, entry_points, notes }))
}

/// Returns true if a file has the inputs of a decoder with KV caches, so that [`load`] tries to make it a language
/// model.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub fn has_caches(path: &Path) -> Result<bool> {
    Ok(is_decoder(onnx::inputs(path)?))
}

/// True if a model with these inputs is a decoder with KV caches, which [`load`] splits into entry points.
pub fn is_decoder(inputs: Vec<Declaration>) -> bool {
    ModelInputs::from_declarations(inputs, &Dims::new()).is_some()
}

/// Result of rewriting an imported graph as an entry point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rewrite {
    /// The graph was rewritten completely and is an entry point.
    Complete,
    /// The graph is not an entry point: the model returns logits for the last id only, so padding is not possible.
    LastLogitsOnly,
    /// The model is not supported: an input with the name of a cache is not a cache, or there are other outputs.
    NoCaches,
}

/// Inputs of a language model.
struct ModelInputs {
    inputs: Vec<(Declaration, Role)>,
    /// Number of ids per run, if the model's file fixes it.
    seq: Option<i64>,
}

impl ModelInputs {
    /// Finds the role of each input. Returns `None` if an input has no role, or if `dims` names dimensions of the
    /// inputs.
    fn from_declarations(declared: Vec<Declaration>, dims: &Dims) -> Option<Self> {
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
            let mut symbols = BTreeSet::new();
            let relevant =
                shape.iter().enumerate().filter(|(axis, _)| !matches!(role, Role::Cache(a) if axis > a));
            relevant.for_each(|(_, dim)| dim.symbols(&mut symbols));
            if symbols.iter().any(|symbol| dims.contains_key(symbol)) {
                return None;
            }
            if *role == Role::Ids {
                seq = shape.get(1).and_then(Dim::as_known);
            }
        }
        Some(Self { inputs, seq })
    }

    /// Fails if `dims` names a dimension that neither the inputs nor the entry points have.
    fn check_dims(&self, dims: &Dims) -> Result<()> {
        let mut known = BTreeSet::new();
        let shapes = self.inputs.iter().flat_map(|(input, _)| input.shape.iter().flatten());
        shapes.for_each(|dim| dim.symbols(&mut known));
        let entry_points = GENERATION_SIZES.map(str::to_string);
        let Some(name) = dims.keys().find(|name| !known.contains(*name) && !entry_points.contains(name))
        else {
            return Ok(());
        };
        let list = |names: &mut dyn Iterator<Item = &String>| {
            names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        let similar = did_you_mean(name, entry_points.iter().chain(&known).map(String::as_str));
        Err(Error::request(
            format!("the model has no size `{name}`"),
            format!(
                "{similar}the functions that generate text have the sizes {}; the inputs of the file have the sizes {}",
                list(&mut entry_points.iter()),
                list(&mut known.iter())
            ),
        ))
    }

    /// Returns the sizes of the symbolic cache axes that are equal in all entry points, such as the number of heads. A
    /// size comes from `dims` or from an import with empty caches.
    fn known_dims(&self, path: &Path, dims: &Dims) -> Result<BTreeMap<String, DimSpec>> {
        let mut known = BTreeMap::new();
        let mut unknown = BTreeMap::new();
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
                        unknown.insert(symbol.to_string(), (axis, input.shape.iter().flatten().count()));
                    }
                }
            }
        }
        if unknown.is_empty() {
            return Ok(known);
        }
        // Import with empty caches: the cache outputs then have the sizes of the new rows.
        let probe = self.import(path, &known, &Dim::known(self.seq.unwrap_or(1)), DimSpec::Fixed(0), None)?;
        for (symbol, (axis, rank)) in unknown {
            let outputs = probe.graph.outputs().iter().filter(|o| o.name != "logits");
            let mut shapes = outputs.map(|o| &probe.graph.tensor(o.node).shape).filter(|s| s.len() == rank);
            if let Some(size) = shapes.find_map(|shape| shape.get(axis)?.as_known()) {
                known.insert(symbol, DimSpec::Fixed(size));
            }
        }
        Ok(known)
    }

    /// Imports the model for `tokens` ids after `past` tokens. `seq` is the name and the bounds of `tokens` if `tokens`
    /// is a symbol.
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
            if *role == Role::CacheBranch {
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
                // A symbol that maps to itself needs only bounds.
                if wanted != DimSpec::Is(Dim::symbol(name)) {
                    options.dims.entry(name.to_string()).or_insert(wanted);
                }
            }
        }
        options.dims.insert(PAST.to_string(), past);
        options.dims.extend(seq.map(|(name, bounds)| (name.to_string(), spec(bounds))));
        onnx::load_unhashed(path, &options)
    }

    /// Rewrites an imported language model's graph as an entry point.
    fn rewrite(&self, graph: &mut Graph, function: &LanguageFunction) -> Result<Rewrite> {
        graph.sweep();
        let inputs: BTreeMap<String, NodeId> =
            graph.inputs().iter().map(|id| (graph.node(*id).name.clone(), *id)).collect();
        let logits = graph.outputs().iter().find(|o| o.name == "logits").map(|o| o.node);
        let Some(logits) = logits else { return Ok(Rewrite::NoCaches) };
        let mut found: Vec<(&str, Cache)> = Vec::new();
        for (input, role) in &self.inputs {
            if let (Role::Cache(_), Some(id)) = (role, inputs.get(&input.name)) {
                let Some(cache) = caches::find_cache(graph, *id) else { return Ok(Rewrite::NoCaches) };
                found.push((&input.name, cache));
            }
        }
        let shape = graph.tensor(logits).shape.clone();
        let ([batch, rows, _], true) = (shape.as_slice(), graph.outputs().len() == found.len() + 1) else {
            return Ok(Rewrite::NoCaches);
        };
        if !batch.is(1) || *rows != function.seq() {
            return Ok(Rewrite::LastLogitsOnly);
        }
        graph.clear_outputs();
        graph.add_output("logits", logits);
        let sizes = CacheSizes { context: function.context, past: Dim::symbol(PAST), keys: function.keys() };
        for (name, cache) in found {
            caches::make_state(graph, name, cache, &sizes)?;
        }
        let tokens = function.seq();
        let mut g = Builder::new(graph, "ids");
        for (input, role) in &self.inputs {
            let Some(id) = inputs.get(&input.name).copied() else { continue };
            let dtype = g.tensor(id).dtype;
            let shape = g.tensor(id).shape.clone();
            g.name.clone_from(&input.name);
            let value = match role {
                Role::Ids => {
                    let ids = function.add_ids(&mut g)?;
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
                Role::CacheBranch | Role::Cache(_) => continue,
            };
            g.graph.replace_uses(id, value);
            g.graph.remove_input(id);
        }
        let Some(mut logits) = g.graph.outputs().first().map(|o| o.node) else {
            return Ok(Rewrite::NoCaches);
        };
        if let Some(position) = function.logits_position() {
            logits = select_row(&mut g, logits, &position)?;
        }
        let stores = g.graph.stores().to_vec();
        g.graph.clear_outputs();
        for store in stores {
            g.graph.add_store(&store.name, store.node);
        }
        function.add_outputs(&mut g, logits)?;
        graph.sweep();
        Ok(Rewrite::Complete)
    }

    /// Returns the number of positions in the smallest table that is indexed by positions, the model's maximum context
    /// length. Returns `None` without such a table.
    fn max_positions(&self, graph: &Graph) -> Option<i64> {
        let mut positions: BTreeSet<NodeId> = BTreeSet::new();
        for id in graph.inputs() {
            let is = |(input, role): &(Declaration, Role)| {
                *role == Role::Positions && input.name == graph.node(*id).name
            };
            if self.inputs.iter().any(is) {
                positions.insert(*id);
            }
        }
        let mut smallest: Option<i64> = None;
        let mut note = |n: Option<i64>| smallest = smallest.into_iter().chain(n).min();
        for id in graph.topological() {
            let operands = graph.operands(id);
            let of_position = |i: usize| operands.get(i).is_some_and(|o| positions.contains(o));
            let size = |axis: usize| {
                let table = operands.first().filter(|o| graph.constant(**o).is_some())?;
                graph.tensor(*table).shape.get(axis)?.as_known()
            };
            match graph.op(id) {
                Op::Range(range) if range.start == Dim::symbol(PAST) && range.step == 1 => {
                    positions.insert(id);
                }
                Op::Reshape(_)
                | Op::Expand(_)
                | Op::Elementwise(Elementwise { element: Element::Cast(_) })
                    if of_position(0) =>
                {
                    positions.insert(id);
                }
                Op::Gather(gather) if of_position(1) => note(size(gather.axis)),
                Op::Slice(slice) => {
                    let axis = slice.starts.iter().position(|start| *start == Dim::symbol(PAST));
                    note(axis.and_then(size));
                }
                _ => {}
            }
        }
        smallest
    }
}

/// Converts inclusive bounds of a dimension to the importer's type.
fn spec((low, high): (i64, i64)) -> DimSpec {
    if low == high { DimSpec::Fixed(low) } else { DimSpec::Range(low, high) }
}

/// Returns the role of a language model's input, by the input's name, type and shape.
fn role(input: &Declaration) -> Option<Role> {
    let shape = input.shape.as_deref()?;
    let dtype = input.dtype?;
    let whole = matches!(dtype, DType::I32 | DType::I64);
    match (input.name.as_str(), shape) {
        ("input_ids", [_, _]) if whole => Some(Role::Ids),
        ("position_ids", [_, _]) if whole => Some(Role::Positions),
        ("attention_mask", [_, keys]) if keys.as_known().is_none() => Some(Role::Mask),
        ("use_cache_branch", [n]) if n.is(1) && dtype == DType::Bool => Some(Role::CacheBranch),
        (name, [_, middle @ .., _]) if name.starts_with("past") && dtype.is_float() => {
            let mut symbolic = middle.iter().enumerate().filter(|(_, dim)| dim.as_symbol().is_some());
            let (axis, _) = symbolic.next()?;
            symbolic.next().is_none().then_some(Role::Cache(axis + 1))
        }
        _ => None,
    }
}

/// Returns row `at` of `x [1, n, m]`. Selects the row before matmuls and elementwise operators, so that they compute
/// only that row.
fn select_row(g: &mut Builder<'_>, x: NodeId, at: &Dim) -> Result<NodeId> {
    let node = g.graph.node(x);
    let operands = g.graph.operands(x);
    let rank = |id: &NodeId| g.tensor(*id).rank();
    let shape = &node.tensor.shape;
    let rowwise = match (&node.op, operands.as_slice()) {
        (Op::MatMul(MatMul { trans_a: false, .. }), [a, b]) => rank(a) == 3 && rank(b) == 2,
        (Op::Elementwise(_), [a, rest @ ..]) => {
            // The other operands are equal for all rows.
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
    let first = select_row(g, *first, at)?;
    let operands: Vec<NodeId> = [first].into_iter().chain(rest.iter().copied()).collect();
    g.graph.add_fused(Replacement { op, arity, operands, epilogue: Vec::new() }, &name)
}
