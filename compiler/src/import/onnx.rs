//! ONNX models: `map -> decode -> resolve sizes -> lower node by node -> Graph`.
//!
//! Weights stay in the mapped file. Attributes are read once, typed, where a node is lowered (`onnx/<family>.rs`,
//! one line per operator in the family's table); after that only the graph's own operators exist. Shapes that the
//! model computes are evaluated on symbolic sizes on the way ([`ints`]), and small constants are folded.
//! Every node that cannot be lowered is reported, all of them at once.

mod activation;
mod attempts;
mod attention;
mod attributes;
mod blocks;
mod conv;
mod einsum;
mod elementwise;
mod gather;
mod generate;
mod grouped_query;
mod inputs;
mod ints;
mod loss;
mod lower;
mod lowering;
mod matmul;
mod microsoft;
mod narrow;
mod norm;
mod order;
mod pool;
mod quantize;
mod quantize_microsoft;
mod recurrent;
mod reduce;
mod registry;
mod remedies;
mod resize;
mod roles;
mod rotary;
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod schema;
mod shape;
mod slice;
mod softmax;
mod source;
mod state;
mod tensors;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use prost::Message;

use crate::error::{Error, Result};
use crate::ir::array::Array;
use crate::ir::dim::Dim;
use crate::ir::graph::Graph;
use crate::ir::tensor::DType;

pub use remedies::{Remedies, Remedy};
use source::Source;

/// What is said about a symbolic size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DimSpec {
    /// The size is this number.
    Fixed(i64),
    /// The size lies within these bounds, inclusive.
    Range(i64, i64),
    /// The size always is this one, of symbols that the model may not have; exporters give equal sizes different names.
    Is(Dim),
}

/// How a model is imported.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Symbolic sizes by name.
    pub dims: BTreeMap<String, DimSpec>,
    /// Bounds of symbolic sizes that `dims` does not name and whose role is not known either.
    pub default_range: (i64, i64),
    /// Concrete shapes of inputs by name; they bind the symbols that the inputs declare.
    pub input_shapes: BTreeMap<String, Vec<i64>>,
    /// Values of inputs that are known at compile time, by name; such an input becomes a constant.
    pub constants: BTreeMap<String, Array>,
    /// Arrays as inputs are going to be, by name: their shapes bind symbols as `input_shapes` do, and a small one
    /// becomes a constant where the model is refused otherwise, because its values decide shapes or conditions.
    pub samples: BTreeMap<String, Array>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dims: BTreeMap::new(),
            default_range: (1, 64),
            input_shapes: BTreeMap::new(),
            constants: BTreeMap::new(),
            samples: BTreeMap::new(),
        }
    }
}

/// An imported model.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The graph.
    pub graph: Graph,
    /// What was assumed, for the user to read.
    pub notes: Vec<String>,
    /// BLAKE3 hash of the model file, for provenance.
    pub hash: [u8; 32],
    /// The other files that tensors were found in.
    pub external: Vec<PathBuf>,
    /// Symbols whose bounds were assumed, each with a usual size within them.
    pub assumed: BTreeMap<String, i64>,
    /// The samples that became constants.
    pub constants: Vec<String>,
}

/// An input as the model declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct Declaration {
    /// Name.
    pub name: String,
    /// Element type; `None` when the graph cannot hold it.
    pub dtype: Option<DType>,
    /// Sizes; `None` when not even the rank is declared.
    pub shape: Option<Vec<Dim>>,
}

/// An operator that can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Supported {
    /// Domain; empty for ai.onnx.
    pub domain: &'static str,
    /// Operator name.
    pub name: &'static str,
    /// First version of the operator set from which on the operator is understood.
    pub since: i64,
    /// Last version in which it is, where it was removed or got another meaning.
    pub until: Option<i64>,
}

/// Imports a model file.
///
/// # Errors
/// When the file cannot be read, is malformed, or contains nodes that cannot be lowered.
pub fn load(path: &Path, options: &Options) -> Result<Imported> {
    let (source, bytes) = Source::open(path)?;
    attempts::import(&source, bytes, options)
}

/// The inputs that a model file declares, without those that have a value of their own.
///
/// # Errors
/// When the file cannot be read or is malformed.
pub fn inputs(path: &Path) -> Result<Vec<Declaration>> {
    let (source, bytes) = Source::open(path)?;
    let model = lower::decode(&source, bytes)?;
    let Some(graph) = &model.graph else { return Ok(Vec::new()) };
    let own: BTreeSet<&str> = graph.initializer.iter().map(|t| t.name()).collect();
    let open = graph.input.iter().filter(|i| !own.contains(i.name()));
    Ok(open
        .map(|info| match inputs::declared(info) {
            Ok(d) => Declaration { name: d.name, dtype: d.dtype.ok(), shape: d.shape },
            Err(_) => Declaration { name: info.name().to_string(), dtype: None, shape: None },
        })
        .collect())
}

/// What would make a model file import, or refuse fewer of its nodes: tried, one thing at a time. Empty where
/// nothing is found.
///
/// # Errors
/// When the file cannot be read or is malformed.
pub fn remedies(path: &Path, options: &Options) -> Result<Remedies> {
    let (source, bytes) = Source::open(path)?;
    remedies::find(&source, bytes, options)
}

/// Imports a model from memory; external data is refused.
///
/// # Errors
/// When the model is malformed, or contains nodes that cannot be lowered.
pub fn load_bytes(bytes: Bytes, options: &Options) -> Result<Imported> {
    attempts::import(&Source::new(PathBuf::from("<memory>"), None), bytes, options)
}

/// Decodes a serialized tensor, such as the test data of the ONNX project.
///
/// # Errors
/// When it is malformed or of a type that the graph cannot hold.
pub fn tensor(bytes: Bytes) -> Result<Array> {
    let wrong = |reason: String| Error::request(reason, "a serialized TensorProto is expected");
    let proto = schema::TensorProto::decode(bytes).map_err(|e| wrong(e.to_string()))?;
    tensors::inline(&proto).map_err(|e| wrong(e.0))
}

/// Every operator that can be imported, by domain and name.
pub fn supported() -> Vec<Supported> {
    let mut list: Vec<Supported> = registry::entries()
        .map(|e| Supported { domain: e.domain, name: e.name, since: e.since, until: e.until })
        .collect();
    list.push(Supported { domain: "", name: "If", since: 1, until: None });
    list.sort_unstable();
    list.dedup();
    list
}
