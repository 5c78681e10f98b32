//! Lowers a model node by node.
//!
//! A node that is refused makes its results unknown, and lowering goes on, so that all refused nodes are reported
//! together. Local functions and branches of constant conditions are lowered in place.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prost::Message;

use super::attempts::is_small;
use super::attributes::Attributes;
use super::inputs::{self, Assumed, Declared};
use super::ints;
use super::lowering::{Call, FOLDED_ELEMENTS, Lowered, Refused, Value};
use super::narrow::Narrowing;
use super::order::order;
use super::schema::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto,
};
use super::source::Source;
use super::tensors::{self, Tensor};
use super::types;
use super::{Options, registry};
use crate::error::{Error, Result, Unsupported};
use crate::ir::array::{Array, count};
use crate::ir::builder::Builder;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Constant, Op};
use crate::ir::tensor::DType;

/// Newest operator set of ai.onnx whose operators were compared with what the lowerings do.
const OPSET: i64 = 28;

/// Newest version of the file format that was compared with what is read.
const IR_VERSION: i64 = 14;

/// Most nodes after functions are expanded; a function that calls another twice doubles them at each level.
const MAX_NODES: usize = 1 << 17;

/// Deepest nesting of functions.
const MAX_DEPTH: usize = 64;

const REEXPORT: &str = "check the file with `onnx.checker`, or export it again";

type Opsets<'m> = BTreeMap<&'m str, i64>;

/// Names visible to the nodes of one graph or function.
struct Scope<'m, 's> {
    values: BTreeMap<&'m str, Value>,
    parent: Option<&'s Scope<'m, 's>>,
    opsets: &'s Opsets<'m>,
    /// Attributes of the function being expanded.
    attributes: &'s [(&'m str, &'m AttributeProto)],
    /// What precedes node names in diagnostics.
    prefix: &'s str,
}

impl Scope<'_, '_> {
    fn find(&self, name: &str) -> Option<&Value> {
        self.values.get(name).or_else(|| self.parent.and_then(|p| p.find(name)))
    }
}

struct Lowerer<'m> {
    source: &'m Source,
    functions: BTreeMap<(&'m str, &'m str), &'m FunctionProto>,
    graph: Graph,
    /// Results of nodes that are not constant.
    computed: BTreeSet<NodeId>,
    narrowing: Narrowing,
    refused: Vec<Unsupported>,
    nodes: usize,
    /// Functions being expanded, outermost first.
    calls: Vec<(&'m str, &'m str)>,
}

/// A model, lowered.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) graph: Graph,
    /// Symbols whose bounds were assumed.
    pub(super) assumed: Vec<Assumed>,
    /// What else was assumed, for the user to read.
    pub(super) notes: Vec<String>,
}

/// Decodes a model file.
pub(super) fn decode(source: &Source, bytes: Bytes) -> Result<ModelProto> {
    ModelProto::decode(bytes).map_err(|e| error(source, "the file", format!("it is not an ONNX model: {e}")))
}

/// Lowers a model with the bounds that the given attempt assumes.
pub(super) fn model(source: &Source, model: &ModelProto, options: &Options, attempt: usize) -> Result<Whole> {
    let Some(graph) = &model.graph else {
        return Err(error(source, "the file", "it holds no graph"));
    };
    if graph.output.is_empty() {
        return Err(error(source, "the file", "its graph declares no output"));
    }
    let mut notes = Vec::new();
    if model.ir_version() > IR_VERSION {
        let version = model.ir_version();
        notes.push(format!("the format version {version} is newer than {IR_VERSION}, as which it is read"));
    }
    let opsets = opsets(source, &model.opset_import)?;
    if let Some(version) = opsets.get("").filter(|v| **v > OPSET) {
        notes.push(format!("opset {version} is newer than {OPSET}, whose operators its are taken to be"));
    }
    if !opsets.contains_key("") && graph.node.iter().any(|n| domain(n).is_empty()) {
        return Err(error(source, "the file", "it imports no version of the ai.onnx operator set"));
    }
    let mut functions = BTreeMap::new();
    for function in &model.functions {
        if functions.insert((function.domain(), function.name()), function).is_some() {
            return Err(error(source, &format!("function `{}`", function.name()), "it is defined twice"));
        }
    }
    let mut lowerer = Lowerer {
        source,
        functions,
        graph: Graph::default(),
        computed: BTreeSet::new(),
        narrowing: Narrowing::new(options),
        refused: Vec::new(),
        nodes: 0,
        calls: Vec::new(),
    };
    let mut scope =
        Scope { values: BTreeMap::new(), parent: None, opsets: &opsets, attributes: &[], prefix: "" };
    lowerer.constants(graph, &mut scope)?;
    let assumed = lowerer.inputs(graph, &mut scope, options, attempt)?;
    lowerer.body(&graph.node, &mut scope)?;
    let mut names = BTreeSet::new();
    for output in &graph.output {
        if !names.insert(output.name()) {
            return Err(error(source, &format!("output `{}`", output.name()), "it is declared twice"));
        }
        let value = scope.find(output.name()).cloned();
        if let Some(value) = &value {
            lowerer.declared(output, value, "output")?;
        }
        lowerer.output(output.name(), value)?;
    }
    if !lowerer.refused.is_empty() {
        return Err(Error::Unsupported { nodes: lowerer.refused });
    }
    let mut graph = lowerer.graph;
    notes.extend(lowerer.narrowing.notes(&graph.bounds));
    graph.sweep();
    Ok(Whole { graph, assumed, notes })
}

fn error(source: &Source, place: &str, reason: impl Into<String>) -> Error {
    Error::Model {
        path: source.path.clone(),
        place: place.to_string(),
        reason: reason.into(),
        help: REEXPORT.to_string(),
    }
}

/// The domain, with the default one empty.
fn domain(node: &NodeProto) -> &str {
    match node.domain() {
        "ai.onnx" => "",
        other => other,
    }
}

fn opsets<'m>(source: &Source, imports: &'m [OperatorSetIdProto]) -> Result<Opsets<'m>> {
    let mut opsets = Opsets::new();
    for import in imports {
        let name = if import.domain() == "ai.onnx" { "" } else { import.domain() };
        if import.version() < 1 {
            let reason = format!("it imports version {} of the operator set `{name}`", import.version());
            return Err(error(source, "the file", reason));
        }
        opsets.insert(name, import.version());
    }
    Ok(opsets)
}

impl<'m> Lowerer<'m> {
    fn error(&self, place: &str, reason: impl Into<String>) -> Error {
        error(self.source, place, reason)
    }

    /// Binds a graph's initializers.
    fn constants(&mut self, graph: &'m GraphProto, scope: &mut Scope<'m, '_>) -> Result<()> {
        if let Some(sparse) = graph.sparse_initializer.first() {
            let name = sparse.values.as_ref().map_or("", |v| v.name());
            return Err(self.error(&format!("initializer `{name}`"), "sparse tensors are not supported"));
        }
        for tensor in &graph.initializer {
            let place = || format!("initializer `{}`", tensor.name());
            let value = match tensors::read(tensor, self.source) {
                Ok(Tensor::Constant(constant)) => {
                    Value::Node(self.graph.add_constant(constant, tensor.name())?)
                }
                Ok(Tensor::Nibbles(nibbles)) => Value::Nibbles(nibbles),
                Ok(Tensor::Foreign(reason)) => {
                    Value::Foreign(format!("constant `{}`: {reason}", tensor.name()))
                }
                Err(reason) => return Err(self.error(&place(), reason.0)),
            };
            if scope.values.insert(tensor.name(), value).is_some() {
                return Err(self.error(&place(), "it is defined twice"));
            }
        }
        Ok(())
    }

    /// Adds the inputs that are neither initializers nor given as constants.
    fn inputs(
        &mut self,
        graph: &'m GraphProto,
        scope: &mut Scope<'m, '_>,
        options: &Options,
        attempt: usize,
    ) -> Result<Vec<Assumed>> {
        let mut declared: Vec<Declared> = Vec::new();
        let mut names = BTreeSet::new();
        for info in &graph.input {
            let place = format!("input `{}`", info.name());
            if !names.insert(info.name()) {
                return Err(self.error(&place, "it is declared twice"));
            }
            let given = options.constants.contains_key(info.name());
            if let Some(value) = scope.values.get(info.name()).filter(|_| !given) {
                self.declared(info, value, "input")?;
                self.sized(info, value)?;
            } else {
                declared.push(inputs::declared(info).map_err(|e| self.error(&place, e.0))?);
            }
        }
        let mut shapes = options.input_shapes.clone();
        for (name, array) in &options.constants {
            let Some(input) = declared.iter().find(|d| d.name == *name) else {
                return Err(inputs::no_input(name, names.iter().copied()));
            };
            inputs::fits(input, array)?;
            let size = |d: &usize| i64::try_from(*d).unwrap_or(i64::MAX);
            shapes.insert(name.clone(), array.shape.iter().map(size).collect());
        }
        let (bounds, assumed) = inputs::resolve(graph, &mut declared, &shapes, options, attempt)?;
        self.graph.bounds = bounds;
        for input in declared {
            let Some(info) = graph.input.iter().find(|i| i.name() == input.name) else { continue };
            if let Some(array) = options.constants.get(&input.name) {
                let node = self.graph.add_constant(Constant::from_array(array), &input.name)?;
                scope.values.insert(info.name(), Value::Node(node));
                continue;
            }
            let refuse = |reason: String| Unsupported {
                node: input.name.clone(),
                operator: "input".to_string(),
                opset: scope.opsets.get("").copied().unwrap_or(0),
                types: "?".to_string(),
                reason,
                inputs: Vec::new(),
                within: None,
            };
            let value = match (input.dtype, input.shape) {
                (Ok(dtype), Some(shape)) => {
                    let node = Builder::new(&mut self.graph, &input.name)
                        .input(&input.name, dtype, shape)
                        .map_err(|e| self.error(&format!("input `{}`", input.name), Refused::from(e).0))?;
                    self.computed.insert(node);
                    Value::Node(node)
                }
                (Ok(_), None) => {
                    self.refused.push(refuse("its shape is not declared".to_string()));
                    Value::Unknown
                }
                (Err(reason), _) => {
                    self.refused.push(refuse(reason.0));
                    Value::Unknown
                }
            };
            scope.values.insert(info.name(), value);
        }
        Ok(assumed)
    }

    /// Names a result of the graph.
    fn output(&mut self, name: &str, value: Option<Value>) -> Result<()> {
        let place = format!("output `{name}`");
        let node = match value {
            Some(Value::Node(node)) => node,
            Some(Value::Ints(ints)) => ints
                .materialize(&mut Builder::new(&mut self.graph, name))
                .map_err(|e| self.error(&place, e.0))?,
            Some(Value::Unknown) if !self.refused.is_empty() => return Ok(()),
            Some(Value::Foreign(reason)) => return Err(self.error(&place, reason)),
            Some(Value::Nibbles(nibbles)) => return Err(self.error(&place, nibbles.refusal())),
            None | Some(Value::Absent | Value::Unknown) => {
                return Err(self.error(&place, "no node computes it"));
            }
        };
        self.graph.add_output(name, node);
        Ok(())
    }

    /// Lowers the nodes of a graph or function.
    fn body(&mut self, nodes: &'m [NodeProto], scope: &mut Scope<'m, '_>) -> Result<()> {
        let order = order(nodes).map_err(|i| {
            let name = nodes.get(i).map_or(String::new(), |n| node_name(n, scope));
            self.error(&format!("node `{name}`"), "it depends on its own result")
        })?;
        for node in order.into_iter().filter_map(|i| nodes.get(i)) {
            self.nodes += 1;
            if self.nodes > MAX_NODES {
                return Err(self.error("the file", format!("it has more than {MAX_NODES} nodes")));
            }
            let outputs = self.node(node, scope)?;
            self.bind(node, outputs, scope)?;
        }
        Ok(())
    }

    /// Gives a node's results their names.
    fn bind(&mut self, node: &'m NodeProto, outputs: Vec<Value>, scope: &mut Scope<'m, '_>) -> Result<()> {
        let mut outputs = outputs.into_iter();
        for name in &node.output {
            let value = outputs.next().unwrap_or(Value::Unknown);
            if name.is_empty() {
                continue;
            }
            if scope.values.insert(name, value).is_some() {
                let place = format!("node `{}`", node_name(node, scope));
                return Err(self.error(&place, format!("its result `{name}` is already defined")));
            }
        }
        Ok(())
    }

    fn node(&mut self, node: &'m NodeProto, scope: &Scope<'m, '_>) -> Result<Vec<Value>> {
        let name = node_name(node, scope);
        let mut operands = Vec::with_capacity(node.input.len());
        for input in &node.input {
            let value = if input.is_empty() { Some(&Value::Absent) } else { scope.find(input) };
            operands.push(value.cloned().ok_or_else(|| {
                self.error(&format!("node `{name}`"), format!("its operand `{input}` is not defined"))
            })?);
        }
        let unknown = vec![Value::Unknown; node.output.len()];
        if operands.iter().any(|v| matches!(v, Value::Unknown)) {
            return Ok(unknown);
        }
        let attributes = resolve_attributes(node, scope);
        let result = match self.functions.get(&(node.domain(), node.op_type())).copied() {
            Some(function) => return self.function(function, node, &name, operands, &attributes),
            None if domain(node).is_empty() && node.op_type() == "If" => {
                match self.branch(&operands, &attributes) {
                    Ok(branch) => return self.subgraph(branch, node, scope),
                    Err(reason) => Err(reason),
                }
            }
            None => self.operator(node, &name, &operands, &attributes, scope),
        };
        match result {
            Ok(outputs) => Ok(outputs.0),
            Err(reason) => {
                self.refuse(node, name, &operands, scope, reason);
                Ok(unknown)
            }
        }
    }

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
        let inputs = self.leaves(operands).into_iter().filter_map(|id| {
            let input = self.graph.input(id)?;
            let shape = self.graph.tensor(id).known_shape();
            shape.is_none_or(|s| is_small(&s)).then(|| input.name.clone())
        });
        let inputs = inputs.collect();
        let Refused(reason, within) = reason;
        self.refused.push(Unsupported { node: name, operator, opset, types, reason, inputs, within });
    }

    /// The inputs that operands are computed from.
    fn leaves(&self, operands: &[Value]) -> Vec<NodeId> {
        let node = |v: &Value| if let Value::Node(node) = v { Some(*node) } else { None };
        let mut open: Vec<NodeId> = operands.iter().filter_map(node).collect();
        let (mut seen, mut leaves) = (BTreeSet::new(), Vec::new());
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                if self.graph.input(id).is_some() {
                    leaves.push(id);
                }
                open.extend(self.graph.operands(id));
            }
        }
        leaves
    }

    /// The element type, as far as it is known.
    fn dtype(&self, value: &Value) -> Option<DType> {
        match value {
            Value::Node(node) => Some(self.graph.tensor(*node).dtype),
            Value::Ints(ints) => Some(ints.dtype),
            Value::Absent | Value::Foreign(_) | Value::Nibbles(_) | Value::Unknown => None,
        }
    }

    /// Fails unless a value is of the type that the model declares for its name.
    fn declared(&self, info: &ValueInfoProto, value: &Value, place: &str) -> Result<()> {
        let (Some(wanted), Some(dtype)) = (inputs::dtype(info), self.dtype(value)) else { return Ok(()) };
        if wanted == dtype {
            return Ok(());
        }
        let reason = format!("it is declared as {} and is {}", wanted.name(), dtype.name());
        Err(self.error(&format!("{place} `{}`", info.name()), reason))
    }

    /// Fails where an initializer has other sizes than the input of its name is declared with.
    fn sized(&self, info: &ValueInfoProto, value: &Value) -> Result<()> {
        let Value::Node(node) = value else { return Ok(()) };
        let place = format!("input `{}`", info.name());
        let declared = inputs::declared(info).map_err(|e| self.error(&place, e.0))?;
        let (Some(wanted), Some(shape)) = (declared.shape, self.graph.tensor(*node).known_shape()) else {
            return Ok(());
        };
        let fits = |(d, n): (&Dim, &usize)| d.as_known().is_none_or(|d| usize::try_from(d) == Ok(*n));
        if wanted.len() == shape.len() && wanted.iter().zip(&shape).all(fits) {
            return Ok(());
        }
        let sizes = wanted.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
        Err(self.error(&place, format!("it is declared as [{sizes}], and its initializer is {shape:?}")))
    }

    fn describe(&self, value: &Value) -> String {
        match value {
            Value::Absent => "-".to_string(),
            Value::Node(node) => self.graph.tensor(*node).to_string(),
            Value::Ints(ints) => {
                let shape: Vec<String> = ints.shape.iter().map(usize::to_string).collect();
                format!("{}[{}]", ints.dtype.name(), shape.join(", "))
            }
            Value::Nibbles(nibbles) => format!("4 bits {:?}", nibbles.shape),
            Value::Foreign(_) | Value::Unknown => "?".to_string(),
        }
    }

    /// Lowers a node of a registered operator.
    fn operator(
        &mut self,
        node: &NodeProto,
        name: &str,
        operands: &[Value],
        attributes: &Attributes<'m>,
        scope: &Scope<'m, '_>,
    ) -> Lowered {
        let domain = domain(node);
        // onnxruntime's optimizer adds operators of its own domain without importing it.
        let opset = scope.opsets.get(domain).copied().unwrap_or(1);
        let entry = registry::find(domain, node.op_type(), opset)?;
        if domain.is_empty() {
            let kinds: Vec<Option<DType>> = operands.iter().map(|value| self.dtype(value)).collect();
            types::check(node.op_type(), &kinds)?;
        }
        let wanted: Vec<bool> = node.output.iter().map(|o| !o.is_empty()).collect();
        // Which operands a runtime may overwrite, in files of opsets 1 to 5.
        attributes.ignore(&["consumed_inputs"]);
        let mut call = Call::new(Builder::new(&mut self.graph, name), attributes, opset, operands, &wanted);
        if domain.is_empty()
            && let Some(known) = ints::apply(node.op_type(), &call)
            && attributes.unread().is_empty()
            && call.unread().is_none()
        {
            return Ok(known.into());
        }
        let mut outputs = (entry.lower)(&mut call)?;
        if let Some(unread) = attributes.unread().first() {
            return Err(Refused::new(format!("attribute `{unread}` is not supported")));
        }
        if let Some(unread) = call.unread() {
            return Err(Refused::new(format!(
                "it has an operand {unread}, which the operator does not take"
            )));
        }
        if let Some(i) = wanted.iter().enumerate().rposition(|(i, w)| *w && i >= outputs.0.len()) {
            return Err(Refused::new(format!("result {i} is not supported")));
        }
        for value in &mut outputs.0 {
            if let Value::Node(node) = value {
                self.narrowing.settle(&mut self.graph, *node, name)?;
                *node = self.folded(*node, name)?;
            }
        }
        Ok(outputs)
    }

    /// The node, or a constant in its place when it is small and depends on small constants only.
    fn folded(&mut self, node: NodeId, name: &str) -> Lowered<NodeId> {
        if self.graph.constant(node).is_some() || self.computed.contains(&node) {
            return Ok(node);
        }
        match self.fold(node) {
            Some(array) => Ok(self.graph.add_constant(Constant::from_array(&array), name)?),
            None => {
                self.computed.insert(node);
                Ok(node)
            }
        }
    }

    fn fold(&self, node: NodeId) -> Option<Array> {
        if self.computed.contains(&node) || matches!(self.graph.op(node), Op::Input(_)) {
            return None;
        }
        let shape = self.graph.tensor(node).known_shape()?;
        if count(&shape) > FOLDED_ELEMENTS {
            return None;
        }
        let operands =
            self.graph.operands(node).into_iter().map(|o| self.fold(o)).collect::<Option<Vec<_>>>()?;
        let operands: Vec<&Array> = operands.iter().collect();
        self.graph.op(node).operation().eval(&operands, &shape, &Bindings::new()).ok()
    }

    /// The branch of an If that is taken, when that is known.
    fn branch(&mut self, operands: &[Value], attributes: &Attributes<'m>) -> Lowered<&'m GraphProto> {
        let call = Call::new(Builder::new(&mut self.graph, ""), attributes, 0, operands, &[]);
        match call.array(0).as_ref().map(|a| a.to_floats()).as_deref() {
            Some([0.0]) => attributes.graph("else_branch"),
            Some([_]) => attributes.graph("then_branch"),
            _ if self.leaves(operands).is_empty() => {
                Err(Refused::new("the condition depends on sizes that are symbols; fix them with --dim"))
            }
            _ => Err(Refused::new("the condition is computed from data at run time")),
        }
    }

    /// Lowers a graph among a node's attributes in place of the node.
    fn subgraph(
        &mut self,
        graph: &'m GraphProto,
        node: &'m NodeProto,
        scope: &Scope<'m, '_>,
    ) -> Result<Vec<Value>> {
        let mut inner = Scope {
            values: BTreeMap::new(),
            parent: Some(scope),
            opsets: scope.opsets,
            attributes: scope.attributes,
            prefix: scope.prefix,
        };
        self.constants(graph, &mut inner)?;
        self.body(&graph.node, &mut inner)?;
        graph
            .output
            .iter()
            .map(|o| {
                inner.find(o.name()).cloned().ok_or_else(|| {
                    let place = format!("node `{}`", node_name(node, scope));
                    self.error(&place, format!("its graph does not compute `{}`", o.name()))
                })
            })
            .collect()
    }

    /// Lowers the body of a local function in place of a call.
    fn function(
        &mut self,
        function: &'m FunctionProto,
        node: &'m NodeProto,
        name: &str,
        operands: Vec<Value>,
        attributes: &Attributes<'m>,
    ) -> Result<Vec<Value>> {
        let place = format!("node `{name}`");
        let id = (function.domain(), function.name());
        if self.calls.contains(&id) {
            return Err(self.error(&place, format!("function `{}` calls itself", function.name())));
        }
        if self.calls.len() >= MAX_DEPTH {
            return Err(self.error(&place, "functions are nested too deeply"));
        }
        if operands.len() > function.input.len() || node.output.len() > function.output.len() {
            let reason = format!("it does not fit the signature of function `{}`", function.name());
            return Err(self.error(&place, reason));
        }
        let mut given = attributes.list().to_vec();
        for default in &function.attribute_proto {
            if !attributes.has(default.name()) {
                given.push((default.name(), default));
            }
        }
        let opsets = opsets(self.source, &function.opset_import)?;
        let prefix = format!("{name}/");
        let mut operands = operands.into_iter();
        let mut inner = Scope {
            values: BTreeMap::new(),
            parent: None,
            opsets: &opsets,
            attributes: &given,
            prefix: &prefix,
        };
        for input in &function.input {
            inner.values.insert(input, operands.next().unwrap_or(Value::Absent));
        }
        self.calls.push(id);
        self.body(&function.node, &mut inner)?;
        self.calls.pop();
        function
            .output
            .iter()
            .map(|o| {
                inner.find(o).cloned().ok_or_else(|| {
                    self.error(&place, format!("function `{}` does not compute `{o}`", function.name()))
                })
            })
            .collect()
    }
}

/// The node's name, its first result's where it has none.
fn node_name(node: &NodeProto, scope: &Scope<'_, '_>) -> String {
    let name = match node.name() {
        "" => node.output.iter().find(|o| !o.is_empty()).map_or(node.op_type(), String::as_str),
        name => name,
    };
    format!("{}{name}", scope.prefix)
}

/// A node's attributes, those of the function being expanded in place of references to them.
fn resolve_attributes<'m>(node: &'m NodeProto, scope: &Scope<'m, '_>) -> Attributes<'m> {
    let mut list = Vec::with_capacity(node.attribute.len());
    for attribute in &node.attribute {
        let reference = attribute.ref_attr_name();
        if reference.is_empty() {
            list.push((attribute.name(), attribute));
        } else if let Some((_, given)) = scope.attributes.iter().find(|(n, _)| *n == reference) {
            list.push((attribute.name(), given));
        }
    }
    Attributes::new(list)
}
