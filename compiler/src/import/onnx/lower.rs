//! Lowers an ONNX model node by node.
//!
//! The results of a refused node are unknown, and lowering continues, so that all refused nodes are reported together.
//! Local functions, the branches of constant conditions and the steps of loops are inlined.

mod interface;
mod model_error;
mod nested;
mod random;
mod replaced_batch;
mod scope;
mod unroll;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prost::Message;

use super::attributes::Attributes;
use super::dequantized::{self, moved_operand};
use super::inputs::{Assumed, is_small};
use super::lowering::{Call, FOLDED_ELEMENTS, Lowered, Value};
use super::narrow_bounds::Narrowing;
use super::node_order::topological_order;
use super::quantization::Table;
use super::refused::Refused;
use super::schema::{FunctionProto, ModelProto, NodeProto, ValueInfoProto};
use super::source::Source;
use super::{Options, registry, shape_eval, type_constraints};
use crate::error::{Error, Result, Unsupported};
use crate::ir::array::{Array, count};
use crate::ir::builder::Builder;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Constant, Op};
use crate::ir::tensor::DType;
use model_error::model_error;
use scope::{Scope, domain, node_name, opsets, resolve_attributes};

/// Newest opset of ai.onnx against which the lowerings were checked.
const OPSET: i64 = 28;

/// Newest IR version of ONNX's file format against which the importer was checked.
const IR_VERSION: i64 = 14;

/// Maximum number of nodes after functions are inlined. Nested functions that each call another one twice double the
/// number of nodes per level.
const MAX_NODES: usize = 1 << 17;

/// State while an ONNX model is lowered.
struct Lowerer<'m> {
    source: &'m Source,
    /// Local functions by domain and name.
    functions: BTreeMap<(&'m str, &'m str), &'m FunctionProto>,
    graph: Graph,
    /// The dequantized tensors of the graph.
    dequantized: Table,
    /// Graph nodes that are known not to be constant.
    computed: BTreeSet<NodeId>,
    narrowing: Narrowing,
    /// Declared number of items of a batch and the size that replaces it, if the options replace sizes of inputs.
    batch: Option<(i64, Dim)>,
    /// True if random numbers become inputs.
    random_inputs: bool,
    /// Refused nodes.
    refused: Vec<Unsupported>,
    /// Number of nodes lowered so far.
    nodes: usize,
    /// Functions that are being inlined, outermost first.
    calls: Vec<(&'m str, &'m str)>,
}

/// A lowered model.
#[derive(Debug)]
pub(super) struct LoweredModel {
    pub(super) graph: Graph,
    /// Symbols with assumed bounds.
    pub(super) assumed: Vec<Assumed>,
    /// Notes for the user about assumptions other than bounds.
    pub(super) notes: Vec<String>,
}

/// Decodes a model file.
pub(super) fn decode_model(source: &Source, bytes: Bytes) -> Result<ModelProto> {
    ModelProto::decode(bytes)
        .map_err(|e| model_error(source, "the file", format!("the file is not a valid ONNX model: {e}")))
}

/// Lowers a model. Symbols without bounds get assumed bounds. `attempt` counts the import attempts from 0; each attempt
/// may assume other bounds.
pub(super) fn lower_model(
    source: &Source,
    model: &ModelProto,
    options: &Options,
    attempt: usize,
) -> Result<LoweredModel> {
    let Some(graph) = &model.graph else {
        return Err(model_error(source, "the file", "it contains no graph"));
    };
    if graph.output.is_empty() {
        return Err(model_error(source, "the file", "the graph declares no output"));
    }
    let mut notes = Vec::new();
    if model.ir_version() > IR_VERSION {
        let version = model.ir_version();
        notes.push(format!(
            "IR version {version} is newer than {IR_VERSION}, the newest supported version; \
             the file is read as IR version {IR_VERSION}"
        ));
    }
    let opsets = opsets(source, &model.opset_import)?;
    if let Some(version) = opsets.get("").filter(|v| **v > OPSET) {
        notes.push(format!(
            "opset {version} is newer than {OPSET}, the newest supported opset; \
             operators are read as of opset {OPSET}"
        ));
    }
    if !opsets.contains_key("") && graph.node.iter().any(|n| domain(n).is_empty()) {
        return Err(model_error(
            source,
            "the file",
            "the model imports no version of the ai.onnx operator set",
        ));
    }
    let mut functions = BTreeMap::new();
    for function in &model.functions {
        if functions.insert((function.domain(), function.name()), function).is_some() {
            return Err(model_error(
                source,
                &format!("function `{}`", function.name()),
                "it is defined twice",
            ));
        }
    }
    let mut lowerer = Lowerer {
        source,
        functions,
        graph: Graph::default(),
        dequantized: Table::new(),
        computed: BTreeSet::new(),
        narrowing: Narrowing::new(options),
        batch: None,
        random_inputs: options.random_inputs,
        refused: Vec::new(),
        nodes: 0,
        calls: Vec::new(),
    };
    let mut scope =
        Scope { values: BTreeMap::new(), parent: None, opsets: &opsets, attributes: &[], prefix: "" };
    lowerer.bind_initializers(graph, &mut scope)?;
    let assumed = lowerer.add_inputs(graph, &mut scope, options, attempt)?;
    lowerer.lower_nodes(&graph.node, &mut scope)?;
    lowerer.add_outputs(&graph.output, &scope)?;
    if !lowerer.refused.is_empty() {
        return Err(Error::Unsupported { nodes: lowerer.refused });
    }
    let mut graph = lowerer.graph;
    notes.extend(lowerer.narrowing.notes(&graph.bounds));
    graph.sweep();
    Ok(LoweredModel { graph, assumed, notes })
}

impl<'m> Lowerer<'m> {
    fn error(&self, place: &str, reason: impl Into<String>) -> Error {
        model_error(self.source, place, reason)
    }

    /// Adds the declared outputs of the model.
    fn add_outputs(&mut self, outputs: &[ValueInfoProto], scope: &Scope<'m, '_>) -> Result<()> {
        let mut names = BTreeSet::new();
        for output in outputs {
            if !names.insert(output.name()) {
                return Err(self.error(&format!("output `{}`", output.name()), "it is declared twice"));
            }
            let value = scope.lookup(output.name()).cloned();
            if let Some(value) = &value {
                self.check_declared_type(output, value, "output")?;
            }
            self.add_output(output.name(), value)?;
        }
        Ok(())
    }

    /// Lowers the nodes of a graph or function in topological order.
    fn lower_nodes(&mut self, nodes: &'m [NodeProto], scope: &mut Scope<'m, '_>) -> Result<()> {
        let order = topological_order(nodes).map_err(|i| {
            let name = nodes.get(i).map_or(String::new(), |n| node_name(n, scope));
            self.error(&format!("node `{name}`"), "the node's operands depend on its own result")
        })?;
        for node in order.into_iter().filter_map(|i| nodes.get(i)) {
            self.nodes += 1;
            if self.nodes > MAX_NODES {
                return Err(self.error(
                    "the file",
                    format!(
                        "the model has more than {MAX_NODES} nodes, the maximum, after functions are inlined"
                    ),
                ));
            }
            let outputs = self.lower_node(node, scope)?;
            self.bind_results(node, outputs, scope)?;
        }
        Ok(())
    }

    /// Adds a node's results to the scope under the names that the model gives them.
    fn bind_results(
        &mut self,
        node: &'m NodeProto,
        outputs: Vec<Value>,
        scope: &mut Scope<'m, '_>,
    ) -> Result<()> {
        let mut outputs = outputs.into_iter();
        for name in &node.output {
            let value = outputs.next().unwrap_or(Value::Unknown);
            if name.is_empty() {
                continue;
            }
            if scope.values.insert(name, value).is_some() {
                let place = format!("node `{}`", node_name(node, scope));
                return Err(self.error(&place, format!("the result `{name}` is already defined")));
            }
        }
        Ok(())
    }

    /// Lowers a node, or refuses it. The results of a refused node are unknown.
    fn lower_node(&mut self, node: &'m NodeProto, scope: &Scope<'m, '_>) -> Result<Vec<Value>> {
        let name = node_name(node, scope);
        let mut operands = Vec::with_capacity(node.input.len());
        for input in &node.input {
            let value = if input.is_empty() { Some(&Value::Absent) } else { scope.lookup(input) };
            operands.push(value.cloned().ok_or_else(|| {
                self.error(&format!("node `{name}`"), format!("the operand `{input}` is not defined"))
            })?);
        }
        let unknown = vec![Value::Unknown; node.output.len()];
        if operands.iter().any(|v| matches!(v, Value::Unknown)) {
            return Ok(unknown);
        }
        let replaced = self.replace_batch(node, &mut operands);
        let attributes = resolve_attributes(node, scope);
        let result = match self.functions.get(&(node.domain(), node.op_type())).copied() {
            Some(function) => return self.inline_function(function, node, &name, operands, &attributes),
            None if domain(node).is_empty() && node.op_type() == "If" => {
                match self.selected_branch(&operands, &attributes) {
                    Ok(branch) => return self.inline_subgraph(branch, node, scope),
                    Err(reason) => Err(reason),
                }
            }
            None if domain(node).is_empty() && matches!(node.op_type(), "Loop" | "Scan") => {
                match self.unroll_node(node, &operands, &attributes, scope)? {
                    Ok(outputs) => return Ok(outputs),
                    Err(reason) => Err(reason),
                }
            }
            None if self.takes_random_input(node) => self.lower_random(node, &operands, &attributes),
            None => self.lower_operator(node, &name, &operands, &attributes, scope),
        };
        match result {
            Ok(outputs) => Ok(outputs.0),
            Err(mut reason) => {
                if self.batch.is_some() && !replaced && self.has_constant_shape(node, &operands) {
                    reason.reason.push_str(
                        "; the target shape is a constant of the file, which may only be right for the declared sizes",
                    );
                }
                self.refuse(node, name, &operands, scope, reason);
                Ok(unknown)
            }
        }
    }

    /// Records a refused node with the reason, for the report of all refused nodes.
    fn refuse(
        &mut self,
        node: &NodeProto,
        name: String,
        operands: &[Value],
        scope: &Scope<'_, '_>,
        reason: Refused,
    ) {
        let domain = domain(node);
        let operator = if domain.is_empty() {
            node.op_type().to_string()
        } else {
            format!("{domain}.{}", node.op_type())
        };
        let opset = scope.opsets.get(domain).copied().unwrap_or(0);
        let types = operands.iter().map(|v| self.describe(v)).collect::<Vec<_>>().join(", ");
        let inputs = self.source_inputs(operands).into_iter().filter_map(|id| {
            let input = self.graph.input(id)?;
            let shape = self.graph.tensor(id).known_shape();
            shape.is_none_or(|s| is_small(&s)).then(|| input.name.clone())
        });
        let inputs = inputs.collect();
        let Refused { reason, within, unknown_operator } = reason;
        self.refused.push(Unsupported {
            node: name,
            operator,
            opset,
            types,
            reason,
            inputs,
            within,
            unknown_operator,
        });
    }

    /// Returns the graph inputs from which the operands are computed.
    fn source_inputs(&self, operands: &[Value]) -> Vec<NodeId> {
        let node = |v: &Value| if let Value::Node(node) = v { Some(*node) } else { None };
        let mut open: Vec<NodeId> = operands.iter().filter_map(node).collect();
        let (mut seen, mut inputs) = (BTreeSet::new(), Vec::new());
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                if self.graph.input(id).is_some() {
                    inputs.push(id);
                }
                open.extend(self.graph.operands(id));
            }
        }
        inputs
    }

    /// Returns the element type of a value, if known.
    fn dtype(&self, value: &Value) -> Option<DType> {
        match value {
            Value::Node(node) => Some(self.graph.tensor(*node).dtype),
            Value::Ints(ints) => Some(ints.dtype),
            Value::Absent | Value::Unsupported(_) | Value::Int4(_) | Value::Unknown => None,
        }
    }

    /// Returns type and shape of a value for error messages.
    fn describe(&self, value: &Value) -> String {
        match value {
            Value::Absent => "-".to_string(),
            Value::Node(node) => self.graph.tensor(*node).to_string(),
            Value::Ints(ints) => {
                let shape: Vec<String> = ints.shape.iter().map(usize::to_string).collect();
                format!("{}[{}]", ints.dtype.name(), shape.join(", "))
            }
            Value::Int4(tensor) => format!("int4 {:?}", tensor.shape),
            Value::Unsupported(_) | Value::Unknown => "?".to_string(),
        }
    }

    /// Lowers a node by the registered lowering of its operator.
    fn lower_operator(
        &mut self,
        node: &NodeProto,
        name: &str,
        operands: &[Value],
        attributes: &Attributes<'m>,
        scope: &Scope<'m, '_>,
    ) -> Lowered {
        let domain = domain(node);
        // onnxruntime's optimizer adds operators of its domain without importing the domain.
        let opset = scope.opsets.get(domain).copied().unwrap_or(1);
        let entry = registry::find_operator(domain, node.op_type(), opset)?;
        if domain.is_empty() {
            let dtypes: Vec<Option<DType>> = operands.iter().map(|value| self.dtype(value)).collect();
            type_constraints::check(node.op_type(), &dtypes)?;
        }
        let wanted: Vec<bool> = node.output.iter().map(|o| !o.is_empty()).collect();
        // Opsets 1 to 5: operands that a runtime may overwrite.
        attributes.ignore(&["consumed_inputs"]);
        let moved =
            moved_operand(&self.graph, node.op_type(), attributes, operands, &wanted, &self.dequantized)
                .cloned();
        let integers = moved.as_ref().map(|moved| with_first(operands, moved.values));
        let given = integers.as_deref().unwrap_or(operands);
        let mut call = Call::new(Builder::new(&mut self.graph, name), attributes, opset, given, &wanted)
            .with_dequantized(&self.dequantized);
        if domain.is_empty()
            && let Some(known) = shape_eval::apply(node.op_type(), &call)
            && attributes.unread().is_empty()
            && call.unread().is_none()
        {
            return Ok(known.into());
        }
        let by_integers =
            if domain.is_empty() { dequantized::lower(node.op_type(), &mut call)? } else { None };
        let mut outputs = match by_integers {
            Some(result) => result.into(),
            None => (entry.lower)(&mut call)?,
        };
        if let Some(unread) = attributes.unread().first() {
            return Err(Refused::new(format!("attribute `{unread}` is not supported")));
        }
        if let Some(unread) = call.unread() {
            return Err(Refused::new(format!("operand {unread} is not supported")));
        }
        if let Some(i) = wanted.iter().enumerate().rposition(|(i, w)| *w && i >= outputs.0.len()) {
            return Err(Refused::new(format!("result {i} is not supported")));
        }
        let mut known = Vec::new();
        if let (Some(moved), Some(Value::Node(real))) = (&moved, operands.first()) {
            let dtype = call.dtype(*real);
            known = dequantized::dequantize_results(&mut call, moved, &mut outputs.0, dtype)?;
        }
        if let ("DequantizeLinear", Some(Value::Node(node))) = (node.op_type(), outputs.0.first()) {
            let values = dequantized::from_operands(&self.graph, operands, attributes);
            known.extend(values.map(|values| (*node, values)));
        }
        self.dequantized.extend(known);
        for value in &mut outputs.0 {
            if let Value::Node(node) = value {
                self.narrowing.narrow_for_node(&mut self.graph, *node, name)?;
                // Constants that are dequantized stay integers.
                if !self.dequantized.contains_key(node) {
                    *node = self.fold_constant(*node, name)?;
                }
            }
        }
        Ok(outputs)
    }

    /// Replaces a node by a constant if its result is small and computed only from small constants.
    fn fold_constant(&mut self, node: NodeId, name: &str) -> Lowered<NodeId> {
        if self.graph.constant(node).is_some() || self.computed.contains(&node) {
            return Ok(node);
        }
        match self.evaluate(node) {
            Some(array) => Ok(self.graph.add_constant(Constant::from_array(&array), name)?),
            None => {
                self.computed.insert(node);
                Ok(node)
            }
        }
    }

    /// Returns the value of a node whose result is small and computed only from small constants; `None` for other
    /// nodes.
    fn evaluate(&self, node: NodeId) -> Option<Array> {
        if self.computed.contains(&node) || matches!(self.graph.op(node), Op::Input(_)) {
            return None;
        }
        let shape = self.graph.tensor(node).known_shape()?;
        if count(&shape) > FOLDED_ELEMENTS {
            return None;
        }
        let operands =
            self.graph.operands(node).into_iter().map(|o| self.evaluate(o)).collect::<Option<Vec<_>>>()?;
        let operands: Vec<&Array> = operands.iter().collect();
        self.graph.op(node).operation().eval(&operands, &shape, &Bindings::new()).ok()
    }
}

/// Returns the operands of a node with another first operand.
fn with_first(operands: &[Value], first: NodeId) -> Vec<Value> {
    let rest = operands.iter().skip(1).cloned();
    [Value::Node(first)].into_iter().chain(rest).collect()
}
