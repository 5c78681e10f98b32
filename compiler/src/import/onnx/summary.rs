//! Summary of an ONNX file without importing it: declarations, operators, weights and metadata.
//!
//! A summary exists for every well-formed file, also for models that the compiler refuses. The weights are not read.

use std::collections::{BTreeMap, BTreeSet};

use super::declarations;
use super::inputs::resolve_sizes;
use super::schema::tensor_proto::{DataLocation, DataType};
use super::schema::type_proto::Value as TypeValue;
use super::schema::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto};
use super::{Options, registry, tensors};
use crate::import::listing::StoredType;

/// Name of the operator domain that ONNX files leave empty.
const DEFAULT_DOMAIN: &str = "ai.onnx";

/// Contents of an ONNX file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// IR version of the file format.
    pub ir_version: i64,
    /// Imported operator sets: domain and version, sorted by domain.
    pub opsets: Vec<(String, i64)>,
    /// Program that wrote the file, with its version. Empty if the file does not name it.
    pub producer: String,
    /// Entries of `metadata_props` in file order.
    pub metadata: Vec<(String, String)>,
    /// Inputs without an initializer.
    pub inputs: Vec<PortSummary>,
    /// Outputs.
    pub outputs: Vec<PortSummary>,
    /// Symbolic dimensions of the inputs, sorted by name.
    pub open_sizes: Vec<OpenSize>,
    /// Number of nodes, with the nodes of nested graphs and of local functions.
    pub nodes: usize,
    /// Number of local functions.
    pub functions: usize,
    /// Operators in use, most frequent first.
    pub operators: Vec<OperatorUse>,
    /// Weights by element type, largest first.
    pub weights: Vec<StoredType>,
    /// Locations of external data, relative to the file's folder, sorted.
    pub external: Vec<String>,
}

/// Declaration of an input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSummary {
    /// Name.
    pub name: String,
    /// Element type, or the kind of a value that is no tensor.
    pub element: String,
    /// Sizes as numbers or expressions of symbols; `None` if not even the rank is declared.
    pub shape: Option<Vec<String>>,
    /// True if every size is a number and the tensor has one element.
    pub single: bool,
}

/// Symbolic dimension of the inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSize {
    /// Name of the symbol.
    pub name: String,
    /// Quantity that the symbol counts, such as a batch.
    pub role: &'static str,
    /// Inclusive bounds that the importer assumes first.
    pub bounds: (i64, i64),
    /// Common size within the bounds.
    pub typical: i64,
    /// Names of the inputs with a dimension that depends on the symbol.
    pub inputs: Vec<String>,
}

/// Operator with the number of its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorUse {
    /// Domain, `ai.onnx` for the default domain.
    pub domain: String,
    /// Name.
    pub name: String,
    /// Version of the domain's operator set.
    pub opset: i64,
    /// Number of nodes.
    pub count: usize,
    /// Reason why the importer knows no such operator; `None` for a supported operator.
    pub refusal: Option<String>,
}

/// Summarizes a decoded model.
pub(super) fn summarize(model: &ModelProto) -> Summary {
    let mut summary = Summary {
        ir_version: model.ir_version(),
        opsets: opsets(&model.opset_import).into_iter().collect(),
        producer: format!("{} {}", model.producer_name(), model.producer_version()).trim().to_string(),
        metadata: model
            .metadata_props
            .iter()
            .map(|entry| (entry.key().to_string(), entry.value().to_string()))
            .collect(),
        functions: model.functions.len(),
        ..Summary::default()
    };
    let mut counts = Counts::default();
    let local: BTreeSet<(&str, &str)> = model.functions.iter().map(|f| (f.domain(), f.name())).collect();
    if let Some(graph) = &model.graph {
        let initializers: BTreeSet<&str> = graph.initializer.iter().map(TensorProto::name).collect();
        let open = graph.input.iter().filter(|input| !initializers.contains(input.name()));
        summary.inputs = open.map(port).collect();
        summary.outputs = graph.output.iter().map(port).collect();
        summary.open_sizes = open_sizes(graph, &initializers);
        counts.graph(graph, &opsets(&model.opset_import), &local);
    }
    for function in &model.functions {
        counts.nodes(&function.node, &opsets(&function.opset_import), &local);
    }
    summary.nodes = counts.nodes;
    summary.operators = operators(counts.operators);
    summary.weights = StoredType::sorted(counts.weights);
    summary.external = counts.external.into_iter().collect();
    summary
}

/// Versions of operator sets by domain.
fn opsets(imports: &[OperatorSetIdProto]) -> BTreeMap<String, i64> {
    imports.iter().map(|import| (domain_name(import.domain()), import.version())).collect()
}

fn domain_name(domain: &str) -> String {
    if domain.is_empty() { DEFAULT_DOMAIN.to_string() } else { domain.to_string() }
}

fn port(info: &ValueInfoProto) -> PortSummary {
    let name = info.name().to_string();
    let element = match info.r#type.as_ref().and_then(|t| t.value.as_ref()) {
        None => "no declared type".to_string(),
        Some(TypeValue::TensorType(tensor)) => element_name(tensor.elem_type.unwrap_or(0)),
        Some(TypeValue::SequenceType(_)) => "sequence".to_string(),
        Some(TypeValue::MapType(_)) => "map".to_string(),
        Some(TypeValue::OptionalType(_)) => "optional value".to_string(),
        Some(TypeValue::SparseTensorType(_)) => "sparse tensor".to_string(),
    };
    let shape = declarations::read(info).ok().and_then(|declared| declared.shape);
    let single = shape.as_ref().is_some_and(|shape| shape.iter().all(|size| size.is(1)));
    let shape = shape.map(|shape| shape.iter().map(ToString::to_string).collect());
    PortSummary { name, element, shape, single }
}

/// Returns the name of an element type by its number in ONNX's enum `DataType`.
fn element_name(number: i32) -> String {
    match (tensors::dtype(number), DataType::try_from(number)) {
        (Ok(dtype), _) => dtype.name().to_string(),
        (Err(_), Ok(kind)) => kind.as_str_name().to_lowercase(),
        (Err(_), Err(_)) => format!("element type {number}"),
    }
}

/// Returns the symbolic dimensions of the inputs, with the bounds that the importer assumes first.
fn open_sizes(graph: &GraphProto, initializers: &BTreeSet<&str>) -> Vec<OpenSize> {
    let open = graph.input.iter().filter(|input| !initializers.contains(input.name()));
    let mut inputs: Vec<_> = open.filter_map(|input| declarations::read(input).ok()).collect();
    let readers: Vec<(String, BTreeSet<String>)> = inputs
        .iter()
        .map(|input| {
            let mut symbols = BTreeSet::new();
            input.shape.iter().flatten().for_each(|size| size.symbols(&mut symbols));
            (input.name.clone(), symbols)
        })
        .collect();
    let resolved = resolve_sizes(graph, &mut inputs, &BTreeMap::new(), &Options::default(), 0);
    let Ok((bounds, assumed)) = resolved else { return Vec::new() };
    let size = |symbol: super::inputs::Assumed| {
        let (low, high) = bounds.get(&symbol.symbol).copied().unwrap_or((1, 1));
        let typical = symbol.role.typical().first().map_or(low, |size| (*size).min(high).max(low));
        let reads = |(_, symbols): &&(String, BTreeSet<String>)| symbols.contains(&symbol.symbol);
        OpenSize {
            role: symbol.role.description(),
            bounds: (low, high),
            typical,
            inputs: readers.iter().filter(reads).map(|(name, _)| name.clone()).collect(),
            name: symbol.symbol.clone(),
        }
    };
    assumed.into_iter().map(size).collect()
}

/// Number of nodes of each operator, by domain, name and version of the operator set.
type OperatorCounts = BTreeMap<(String, String, i64), usize>;

/// Counters while the graphs of a model are visited.
#[derive(Default)]
struct Counts {
    nodes: usize,
    operators: OperatorCounts,
    weights: BTreeMap<String, StoredType>,
    external: BTreeSet<String>,
}

impl Counts {
    /// Counts the nodes and weights of a graph and of its nested graphs.
    fn graph(&mut self, graph: &GraphProto, opsets: &BTreeMap<String, i64>, local: &BTreeSet<(&str, &str)>) {
        // Nested graphs are visited from a list, so deep nesting does not exhaust the stack.
        let mut graphs = vec![graph];
        while let Some(graph) = graphs.pop() {
            graph.initializer.iter().for_each(|tensor| self.weight(tensor));
            self.nodes(&graph.node, opsets, local);
            graphs.extend(nested(&graph.node));
        }
    }

    /// Counts nodes without their nested graphs.
    fn nodes(&mut self, nodes: &[NodeProto], opsets: &BTreeMap<String, i64>, local: &BTreeSet<(&str, &str)>) {
        self.nodes += nodes.len();
        for node in nodes {
            if node.op_type() == "Constant" {
                node.attribute.iter().filter_map(|a| a.t.as_ref()).for_each(|tensor| self.weight(tensor));
            }
            if !local.contains(&(node.domain(), node.op_type())) {
                let domain = domain_name(node.domain());
                let opset = opsets.get(&domain).copied().unwrap_or(1);
                *self.operators.entry((domain, node.op_type().to_string(), opset)).or_default() += 1;
            }
        }
    }

    fn weight(&mut self, tensor: &TensorProto) {
        let number = tensor.data_type.unwrap_or(0);
        let elements = tensor.dims.iter().fold(1u64, |n, size| n.saturating_mul(size.unsigned_abs()));
        let bytes = match bits(number) {
            Some(bits) => elements.saturating_mul(bits).div_ceil(8),
            None => tensor.string_data.iter().map(|text| text.len() as u64).sum(),
        };
        let name = element_name(number);
        let entry = self.weights.entry(name.clone()).or_insert_with(|| StoredType::new(name));
        entry.add(elements, bytes);
        if tensor.data_location == Some(DataLocation::External as i32) {
            let location = tensor.external_data.iter().rev().find(|entry| entry.key() == "location");
            self.external.extend(location.map(|entry| entry.value().to_string()));
        }
    }
}

/// Graphs that are attributes of nodes, such as the branches of `If`.
fn nested(nodes: &[NodeProto]) -> impl Iterator<Item = &GraphProto> {
    let attributes = nodes.iter().flat_map(|node| &node.attribute);
    attributes.flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs))
}

/// Number of bits of an element type by its number in ONNX's enum `DataType`; `None` for strings and unknown types.
fn bits(number: i32) -> Option<u64> {
    if let Ok(dtype) = tensors::dtype(number) {
        return Some(dtype.bytes() as u64 * 8);
    }
    match DataType::try_from(number).ok()? {
        DataType::Uint4 | DataType::Int4 | DataType::Float4e2m1 => Some(4),
        DataType::Uint2 | DataType::Int2 => Some(2),
        DataType::Float8e4m3fn
        | DataType::Float8e4m3fnuz
        | DataType::Float8e5m2
        | DataType::Float8e5m2fnuz
        | DataType::Float8e8m0 => Some(8),
        DataType::Complex64 => Some(64),
        DataType::Complex128 => Some(128),
        _ => None,
    }
}

fn operators(counts: OperatorCounts) -> Vec<OperatorUse> {
    let describe = |((domain, name, opset), count): ((String, String, i64), usize)| {
        let registered = if domain == DEFAULT_DOMAIN { "" } else { domain.as_str() };
        // The importer inlines the branches of `If` and has no table entry for it.
        let known = registered.is_empty() && name == "If";
        let found = registry::find_operator(registered, &name, opset);
        let refusal = found.err().filter(|_| !known).map(|refused| refused.reason);
        OperatorUse { domain, name, opset, count, refusal }
    };
    let mut list: Vec<OperatorUse> = counts.into_iter().map(describe).collect();
    list.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    list
}
