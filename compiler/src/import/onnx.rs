//! ONNX importer: `map the file -> decode -> resolve sizes -> lower node by node -> Graph`.
//!
//! Weights stay in the mapped file. Each family of operators has a file with a table of its operators
//! (`onnx/<family>.rs`). A lowering reads the attributes of a node and adds operators of the graph. Shape computations
//! are evaluated on symbolic sizes (`shape_eval`), and small constants are folded. All nodes that cannot be lowered
//! are reported together.

mod activation;
mod attempts;
mod attention;
mod attributes;
mod block_quantized;
mod conv;
mod declarations;
mod dequantized;
mod einsum;
mod elementwise;
mod fourier;
mod fourier_matrix;
mod gather;
mod generate;
mod grouped_query;
mod inputs;
mod integer_sums;
mod loss;
mod lower;
mod lowering;
mod matmul;
mod mel;
mod microsoft;
mod narrow_bounds;
mod node_order;
mod norm;
mod pool;
mod quantization;
mod quantize;
mod quantize_microsoft;
pub mod quantize_static;
mod quantized_operands;
mod recurrent;
mod reduce;
mod refused;
mod registry;
mod remedies;
mod resize;
mod roles;
mod rotary;
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod schema;
mod shape;
mod shape_eval;
mod slice;
mod softmax;
mod source;
mod state;
mod summary;
mod symbolic_ints;
mod tensor_limit;
mod tensors;
mod type_constraints;

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
pub use summary::{OpenSize, OperatorUse, PortSummary, Summary};

/// User-specified value or bounds of a symbolic size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DimSpec {
    /// The size is a number.
    Fixed(i64),
    /// The size has these bounds, inclusive.
    Range(i64, i64),
    /// The size equals another size. Exporters may give equal sizes different names. The other size may use symbols
    /// that the model does not have.
    Is(Dim),
}

/// Import options.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Values and bounds of symbolic sizes by name.
    pub dims: BTreeMap<String, DimSpec>,
    /// Bounds of symbolic sizes that are not in `dims` and whose role (batch, sequence, image side) is not known.
    pub default_range: (i64, i64),
    /// Concrete shapes of inputs by name. The shapes fix the symbols that the inputs declare.
    pub input_shapes: BTreeMap<String, Vec<i64>>,
    /// Sizes of inputs by name that replace the declared sizes. They may have symbols that the model does not declare.
    pub shapes: BTreeMap<String, Vec<Dim>>,
    /// Constant values of inputs by name. Such an input becomes a constant.
    pub constants: BTreeMap<String, Array>,
    /// Sample values of inputs by name. The shapes of samples fix symbols as `input_shapes` do. If the model is refused
    /// because values of an input decide shapes or conditions, a small sample becomes a constant.
    pub samples: BTreeMap<String, Array>,
    /// True if the results of RandomNormal and RandomNormalLike become inputs with the names of the results: random numbers
    /// with mean 0 and variance 1. Otherwise these operators are refused.
    pub random_inputs: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dims: BTreeMap::new(),
            default_range: (1, 64),
            input_shapes: BTreeMap::new(),
            shapes: BTreeMap::new(),
            constants: BTreeMap::new(),
            samples: BTreeMap::new(),
            random_inputs: false,
        }
    }
}

/// An imported model.
#[derive(Debug, Clone)]
pub struct Imported {
    /// Imported graph.
    pub graph: Graph,
    /// Notes for the user about assumptions that the importer made.
    pub notes: Vec<String>,
    /// BLAKE3 hash of the model file, for provenance.
    pub hash: [u8; 32],
    /// Files besides the model file that hold tensor data.
    pub external: Vec<PathBuf>,
    /// Symbols with assumed bounds, each with a typical size within its bounds.
    pub assumed: BTreeMap<String, i64>,
    /// Names of the inputs whose samples became constants.
    pub constants: Vec<String>,
    /// Metadata of the model: its `metadata_props`.
    pub metadata: BTreeMap<String, String>,
}

/// Declaration of a model input.
#[derive(Debug, Clone, PartialEq)]
pub struct Declaration {
    /// Name.
    pub name: String,
    /// Element type of the input; `None` if the type is not supported.
    pub dtype: Option<DType>,
    /// Sizes of the input; `None` if not even the rank is declared.
    pub shape: Option<Vec<Dim>>,
}

/// An ONNX operator that can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Supported {
    /// Domain of the ONNX operator; empty for ai.onnx.
    pub domain: &'static str,
    /// Operator name.
    pub name: &'static str,
    /// First version of the domain's operator set for which the operator can be imported.
    pub since: i64,
    /// Last version of the domain's operator set for which the operator can be imported; `None` unless a later version
    /// removed the operator or changed its meaning.
    pub until: Option<i64>,
}

/// Imports a model file.
///
/// # Errors
/// Fails if the file cannot be read, is malformed, or contains nodes that cannot be lowered.
pub fn load(path: &Path, options: &Options) -> Result<Imported> {
    let (source, bytes) = Source::open(path)?;
    attempts::import(&source, bytes, options)
}

/// Returns the declared inputs of a model file, without the inputs that have an initializer.
///
/// # Errors
/// Fails if the file cannot be read or is malformed.
pub fn inputs(path: &Path) -> Result<Vec<Declaration>> {
    let (source, bytes) = Source::open(path)?;
    let model = lower::decode_model(&source, bytes)?;
    let Some(graph) = &model.graph else { return Ok(Vec::new()) };
    let initializers: BTreeSet<&str> = graph.initializer.iter().map(|t| t.name()).collect();
    let open = graph.input.iter().filter(|i| !initializers.contains(i.name()));
    Ok(open
        .map(|info| match declarations::read(info) {
            Ok(d) => Declaration { name: d.name, dtype: d.dtype.ok(), shape: d.shape },
            Err(_) => Declaration { name: info.name().to_string(), dtype: None, shape: None },
        })
        .collect())
}

/// Summarizes a model file without importing it.
///
/// # Errors
/// Fails if the file cannot be read or is malformed.
pub fn summary(path: &Path) -> Result<Summary> {
    let (source, bytes) = Source::open(path)?;
    Ok(summary::summarize(&lower::decode_model(&source, bytes)?))
}

/// Returns the BLAKE3 hash of a model file, without its external data.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn hash(path: &Path) -> Result<[u8; 32]> {
    let (_, bytes) = Source::open(path)?;
    Ok(*blake3::hash(&bytes).as_bytes())
}

/// Imports a model file like [`load`], but leaves the hash zero. So the weights are not read, and the time does not
/// depend on their size.
///
/// # Errors
/// As for [`load`].
pub fn load_unhashed(path: &Path, options: &Options) -> Result<Imported> {
    let (source, bytes) = Source::open(path)?;
    attempts::import_model(&source, &lower::decode_model(&source, bytes)?, options)
}

/// Searches for options with which a model file imports, or with which fewer nodes are refused. The result is empty if
/// none are found.
///
/// # Errors
/// Fails if the file cannot be read or is malformed.
pub fn remedies(path: &Path, options: &Options) -> Result<Remedies> {
    let (source, bytes) = Source::open(path)?;
    remedies::find_remedies(&source, bytes, options)
}

/// Imports a model from memory. External data is refused.
///
/// # Errors
/// Fails if the model is malformed, or contains nodes that cannot be lowered.
pub fn load_bytes(bytes: Bytes, options: &Options) -> Result<Imported> {
    attempts::import(&Source::new(PathBuf::from("<memory>"), None), bytes, options)
}

/// Decodes a serialized tensor, such as the test data of the ONNX project.
///
/// # Errors
/// Fails if the tensor is malformed or has an unsupported type.
pub fn tensor(bytes: Bytes) -> Result<Array> {
    let wrong = |reason: String| Error::request(reason, "give a serialized TensorProto");
    let proto = schema::TensorProto::decode(bytes).map_err(|e| wrong(e.to_string()))?;
    tensors::inline(&proto).map_err(|e| wrong(e.reason))
}

/// Returns every operator that can be imported, sorted by domain and name.
pub fn supported() -> Vec<Supported> {
    let mut list: Vec<Supported> = registry::entries()
        .map(|e| Supported { domain: e.domain, name: e.name, since: e.since, until: e.until })
        .collect();
    list.push(Supported { domain: "", name: "If", since: 1, until: None });
    list.push(Supported { domain: "", name: "Loop", since: 1, until: None });
    list.push(Supported { domain: "", name: "Scan", since: 9, until: None });
    list.sort_unstable();
    list.dedup();
    list
}
