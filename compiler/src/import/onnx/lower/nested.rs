//! Nested graphs and local functions, inlined in place of their nodes.

use std::collections::BTreeMap;

use super::super::attributes::Attributes;
use super::super::lowering::{Call, Lowered, Value};
use super::super::refused::Refused;
use super::super::schema::{FunctionProto, GraphProto, NodeProto};
use super::Lowerer;
use super::scope::{Scope, node_name, opsets};
use crate::error::Result;
use crate::ir::builder::Builder;

/// Maximum nesting of calls of local functions.
const MAX_DEPTH: usize = 64;

impl<'m> Lowerer<'m> {
    /// Returns the branch of an If that is executed. Fails if the condition is not constant.
    pub(super) fn selected_branch(
        &mut self,
        operands: &[Value],
        attributes: &Attributes<'m>,
    ) -> Lowered<&'m GraphProto> {
        let call = Call::new(Builder::new(&mut self.graph, ""), attributes, 0, operands, &[]);
        match call.array(0).as_ref().map(|a| a.to_floats()).as_deref() {
            Some([0.0]) => attributes.graph("else_branch"),
            Some([_]) => attributes.graph("then_branch"),
            _ if self.source_inputs(operands).is_empty() => {
                Err(Refused::new("the condition depends on symbolic sizes; fix them with --dim"))
            }
            _ => Err(Refused::new(
                "the condition is computed from data at run time; it must be known at compile time",
            )),
        }
    }

    /// Inlines a nested graph in place of its node.
    pub(super) fn inline_subgraph(
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
        self.bind_initializers(graph, &mut inner)?;
        self.lower_nodes(&graph.node, &mut inner)?;
        graph
            .output
            .iter()
            .map(|o| {
                inner.lookup(o.name()).cloned().ok_or_else(|| {
                    let place = format!("node `{}`", node_name(node, scope));
                    self.error(
                        &place,
                        format!("the node's nested graph does not compute its own output `{}`", o.name()),
                    )
                })
            })
            .collect()
    }

    /// Inlines a local function in place of a call.
    pub(super) fn inline_function(
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
            return Err(self.error(&place, format!("the function `{}` calls itself", function.name())));
        }
        if self.calls.len() >= MAX_DEPTH {
            return Err(self.error(&place, format!("functions are nested more than {MAX_DEPTH} deep")));
        }
        if operands.len() > function.input.len() || node.output.len() > function.output.len() {
            let reason = format!(
                "the node has more operands or results than the function `{}` that it calls",
                function.name()
            );
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
        self.lower_nodes(&function.node, &mut inner)?;
        self.calls.pop();
        function
            .output
            .iter()
            .map(|o| {
                inner.lookup(o).cloned().ok_or_else(|| {
                    self.error(
                        &place,
                        format!("the function `{}` does not compute its output `{o}`", function.name()),
                    )
                })
            })
            .collect()
    }
}
