//! ONNX models: `map -> decode -> resolve sizes -> lower node by node -> Graph`.
//!
//! Weights stay in the mapped file. Attributes are read once, typed, where a node is lowered (`onnx/<family>.rs`,
//! one line per operator in the family's table); after that only the graph's own operators exist. Shapes that the
//! model computes are evaluated on symbolic sizes on the way ([`ints`]), and small constants are folded.
//! Every node that cannot be lowered is reported, all of them at once.

mod activation;
mod attention;
mod attributes;
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
mod norm;
mod order;
mod pool;
mod quantize;
mod quantize_microsoft;
mod recurrent;
mod reduce;
mod registry;
mod resize;
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod schema;
mod shape;
mod slice;
mod softmax;
mod source;
mod tensors;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use prost::Message;

use crate::error::{Error, Result};
use crate::ir::array::Array;
use crate::ir::graph::Graph;

use source::Source;

/// What is said about a symbolic size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DimSpec {
    /// The size is this number.
    Fixed(i64),
    /// The size lies within these bounds, inclusive.
    Range(i64, i64),
    /// The size always equals the symbolic size of this name; exporters give equal sizes different names.
    Same(String),
}

/// How a model is imported.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Symbolic sizes by name.
    pub dims: BTreeMap<String, DimSpec>,
    /// Bounds of symbolic sizes that `dims` does not name; the upper one is lower for batches.
    pub default_range: (i64, i64),
    /// Concrete shapes of inputs by name; they bind the symbols that the inputs declare.
    pub input_shapes: BTreeMap<String, Vec<i64>>,
    /// Values of inputs that are known at compile time, by name; such an input becomes a constant.
    pub constants: BTreeMap<String, Array>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dims: BTreeMap::new(),
            default_range: (1, 64),
            input_shapes: BTreeMap::new(),
            constants: BTreeMap::new(),
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
}

/// An operator that can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Supported {
    /// Domain; empty for ai.onnx.
    pub domain: &'static str,
    /// Operator name.
    pub name: &'static str,
    /// First version of the operator set that is understood.
    pub since: i64,
    /// Last version that has the operator, when it was removed.
    pub until: Option<i64>,
}

/// Imports a model file.
///
/// # Errors
/// When the file cannot be read, is malformed, or contains nodes that cannot be lowered.
pub fn load(path: &Path, options: &Options) -> Result<Imported> {
    let (source, bytes) = Source::open(path)?;
    lower::model(&source, bytes, options)
}

/// Imports a model from memory; external data is refused.
///
/// # Errors
/// When the model is malformed, or contains nodes that cannot be lowered.
pub fn load_bytes(bytes: Bytes, options: &Options) -> Result<Imported> {
    lower::model(&Source::new(PathBuf::from("<memory>"), None), bytes, options)
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
    list.push(Supported { domain: "", name: "If", since: 7, until: None });
    list.sort_unstable();
    list.dedup();
    list
}
