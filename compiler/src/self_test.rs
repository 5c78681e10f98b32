//! Self-test vectors of a bundle: seeded inputs, and samples of what the CPU reference computes from them.
//!
//! `driftc check --self-test` and `Session::self_test` run them on the user's device.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use drift_format::self_test::{
    SelfTest, TestInput, TestOutput, VECTOR_LIMIT, Vector, generate, input_seed, positions, statistics,
};

use crate::bundle::host_type;
use crate::entry_points::{EntryPoint, Lowered, MAIN, Model, Options};
use crate::error::{Error, Result};
use crate::ir::array::{Array, Data, count};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::eval::{States, eval_with};
use crate::ir::graph::Graph;
use crate::ir::op::Input;
use crate::language::DECODE;
use crate::pass::Precision;

/// Name of the function that draws a token. Its result depends on a random number.
const SAMPLE: &str = "sample";
/// Size of a symbolic dimension, clamped to its bounds.
const SIZE: i64 = 3;
/// Maximum cost of the vector that a bundle has by default: floating-point operations, and [`CONSTANT_COST`] for each
/// element of a constant. The CPU reference takes about a second for it.
const MAX_DEFAULT_COST: i64 = 200_000_000;
const CONSTANT_COST: i64 = 4;
/// Number of samples of an output, if the vector has few outputs.
const MAX_SAMPLES: usize = 64;
/// Maximum number of different token ids.
const MAX_TOKENS: i64 = 250;

/// A function for vectors: its name, its graph, its compiled form, the storage type of its floats, and values for its
/// symbols.
struct Subject<'a> {
    name: &'a str,
    graph: &'a Graph,
    lowered: &'a Lowered,
    precision: Precision,
    symbols: Bindings,
}

/// Results of the CPU reference for a model's vectors. Bundles of one model for several targets share them.
#[derive(Debug, Default)]
pub struct References(Mutex<BTreeMap<(String, u64), Results>>);

/// Outputs by name.
type Results = Arc<Vec<(String, Array)>>;

impl References {
    /// Returns the results for a function and a seed. `compute` computes them if they are new.
    fn get(
        &self,
        function: &str,
        seed: u64,
        compute: impl FnOnce() -> Result<Vec<(String, Array)>>,
    ) -> Result<Results> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (function.to_owned(), seed);
        if let Some(results) = known().get(&key) {
            return Ok(results.clone());
        }
        let results = Arc::new(compute()?);
        known().insert(key, results.clone());
        Ok(results)
    }
}

/// Computes the self-test of a model. `n_vectors` is the number of vectors; `None` gives one vector if it is cheap to
/// compute. `lowered` has the functions of a target, from which the cost is estimated. `references` keeps results for further
/// calls with the same model. Returns `None` if there are no vectors.
///
/// # Errors
/// If the CPU reference cannot compute a requested vector.
pub fn self_test(
    model: &Model,
    lowered: &[Lowered],
    options: &Options,
    n_vectors: Option<u16>,
    references: &References,
) -> Result<Option<SelfTest>> {
    let subjects = subjects(model, lowered, options);
    let Some(first) = subjects.first().filter(|_| n_vectors != Some(0)) else { return Ok(None) };
    let Some(n_vectors) = n_vectors else {
        let cheap = cost(first).is_some_and(|cost| cost <= MAX_DEFAULT_COST);
        // A model that the reference cannot evaluate has no vector by default.
        let vector = cheap.then(|| vector(first, 1, references).ok()).flatten();
        return Ok(vector.map(|vector| SelfTest { vectors: vec![vector] }));
    };
    let seeds = 1..=u64::from(n_vectors);
    let vectors = subjects.iter().cycle().zip(seeds).map(|(subject, seed)| vector(subject, seed, references));
    Ok(Some(SelfTest { vectors: vectors.collect::<Result<_>>()? }))
}

/// Returns the functions for vectors. A language model's `decode` is the first one, because it is the cheapest function
/// that reads all weights.
fn subjects<'a>(model: &'a Model, lowered: &'a [Lowered], options: &Options) -> Vec<Subject<'a>> {
    // The first function of a name is the general one.
    let general = |name: &str| lowered.iter().find(|function| function.name == name);
    let middle = |graph: &Graph| {
        graph.bounds.iter().map(|(name, (low, high))| (name.clone(), SIZE.clamp(*low, *high))).collect()
    };
    if model.entry_points.is_empty() {
        let (graph, precision) = (&model.graph, options.precision);
        let symbols = middle(graph);
        let subject = |lowered| Subject { name: MAIN, graph, lowered, precision, symbols };
        return general(MAIN).map(subject).into_iter().collect();
    }
    let is_language_model = model.entry_point_index(DECODE).is_some();
    let included = |entry: &&EntryPoint| entry.keep_if_faster_than.is_none() && entry.name != SAMPLE;
    let mut subjects: Vec<Subject<'a>> = model
        .entry_points
        .iter()
        .filter(included)
        .filter_map(|entry| {
            let symbols = match is_language_model {
                // A text begins: there are no tokens in the KV cache.
                true => entry.graph.bounds.iter().map(|(name, (low, _))| (name.clone(), *low)).collect(),
                false => middle(&entry.graph),
            };
            let (name, graph, lowered) = (entry.name.as_str(), &entry.graph, general(&entry.name)?);
            let precision = entry.precision.unwrap_or(options.precision);
            Some(Subject { name, graph, lowered, precision, symbols })
        })
        .collect();
    subjects.sort_by_key(|subject| subject.name != DECODE);
    subjects
}

/// Estimates the cost of a vector, in the unit of [`MAX_DEFAULT_COST`].
fn cost(subject: &Subject<'_>) -> Option<i64> {
    let flops =
        subject.lowered.plan.dispatches.iter().map(|dispatch| dispatch.launch.flops.eval(&subject.symbols));
    let graph = subject.graph;
    let constants = graph.ids().into_iter().filter(|id| graph.constant(*id).is_some());
    let elements = constants.map(|id| {
        let mut dims = graph.tensor(id).shape.iter().map(|dim| dim.eval(&subject.symbols));
        dims.try_fold(CONSTANT_COST, |elements, size| elements.checked_mul(size?))
    });
    flops.chain(elements).try_fold(0i64, |sum, cost| sum.checked_add(cost?))
}

/// Computes a vector with the CPU reference.
fn vector(subject: &Subject<'_>, seed: u64, references: &References) -> Result<Vector> {
    let Subject { name, graph, lowered, precision, symbols } = subject;
    let declared: Vec<&Input> = graph.inputs().iter().filter_map(|id| graph.input(*id)).collect();
    let (mut inputs, mut arrays) = (Vec::new(), BTreeMap::new());
    for (input, position) in declared.iter().zip(0u64..) {
        let (described, array) = generated(subject, input, input_seed(seed, position))?;
        inputs.push(described);
        arrays.insert(input.name.clone(), array);
    }
    let results = references.get(name, seed, || eval_with(graph, &arrays, symbols, &mut States::new()))?;
    let (relative, absolute) = precision.tolerance();
    let sizes = declared.iter().flat_map(|input| &input.shape).filter_map(Dim::as_symbol);
    let undetermined: Vec<(String, i64)> = symbols
        .iter()
        .filter(|(name, _)| {
            lowered.plan.bounds.contains_key(*name) && !sizes.clone().any(|size| size == *name)
        })
        .map(|(name, value)| (name.clone(), *value))
        .collect();
    let mut vector = Vector {
        function: (*name).to_owned(),
        seed,
        relative,
        absolute,
        symbols: undetermined,
        inputs,
        outputs: Vec::new(),
    };
    let results = compared(&results, *name != MAIN || *precision != Precision::F32);
    let mut samples = MAX_SAMPLES;
    loop {
        vector.outputs = results.iter().map(|(name, array)| expected(name, array, samples, seed)).collect();
        let test = SelfTest { vectors: vec![vector] };
        let size = test.encode().map_err(|error| Error::internal("self-test", error.to_string()))?.len();
        vector = test.vectors.into_iter().next().unwrap_or_default();
        if size < VECTOR_LIMIT {
            return Ok(vector);
        }
        if samples == 0 {
            let reason = format!("the self-test of function `{name}` is larger than {VECTOR_LIMIT} bytes");
            return Err(Error::request(reason, "compile without a self-test: --self-test 0"));
        }
        samples /= 2;
    }
}

/// Generates an input, and describes it for the runtime.
fn generated(subject: &Subject<'_>, input: &Input, seed: u64) -> Result<(TestInput, Array)> {
    let refuse = |reason: String| Error::Input { input: input.name.clone(), dimension: None, reason };
    let sizes =
        input.shape.iter().map(|dim| dim.eval(&subject.symbols).and_then(|size| usize::try_from(size).ok()));
    let shape: Option<Vec<usize>> = sizes.collect();
    let shape = shape.ok_or_else(|| refuse("its shape is not known for the self-test".to_owned()))?;
    let integers = integers(subject, input);
    let bytes = generate(host_type(input.dtype), count(&shape), integers, seed);
    let array = Array::from_bytes(input.dtype, &shape, &bytes).map_err(|error| refuse(error.0))?;
    let shape = shape.iter().map(|size| *size as u64).collect();
    Ok((TestInput { name: input.name.clone(), shape, integers }, array))
}

/// Number of different integers of an input: token ids below the vocabulary size of a language model, else 1. In most
/// models, 1 is a valid index, token type and mask value.
fn integers(subject: &Subject<'_>, input: &Input) -> u64 {
    let logits = subject.graph.outputs().iter().find(|output| output.name == "logits");
    let vocabulary = logits.and_then(|output| subject.graph.tensor(output.node).shape.last()?.as_known());
    match (subject.name != MAIN && input.name == "ids", vocabulary) {
        (true, Some(vocabulary)) => (vocabulary - 1).clamp(1, MAX_TOKENS).unsigned_abs(),
        _ => 1,
    }
}

/// Returns the outputs that a vector compares. Rounding may change integers, such as an arg-max, so only `floats` are
/// compared if there are any.
fn compared(results: &[(String, Array)], floats: bool) -> Vec<&(String, Array)> {
    let has_floats = results.iter().any(|(_, array)| array.dtype.is_float());
    results.iter().filter(|(_, array)| !(floats && has_floats) || array.dtype.is_float()).collect()
}

fn expected(name: &str, array: &Array, samples: usize, seed: u64) -> TestOutput {
    let values: Vec<f64> = match &array.data {
        Data::Float(values) => values.iter().map(|value| f64::from(*value)).collect(),
        Data::Int(values) => values.iter().map(|value| *value as f64).collect(),
    };
    let elements = values.len() as u64;
    let [mean, rms, largest] = statistics(&values);
    let at = |position: u64| usize::try_from(position).ok().and_then(|p| values.get(p)).copied();
    let samples = positions(elements, samples, seed).into_iter().filter_map(at).collect();
    TestOutput { name: name.to_owned(), elements, mean, rms, largest, samples }
}
