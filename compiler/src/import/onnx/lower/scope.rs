//! Scopes: the values, operator sets and attributes that the nodes of an ONNX graph or function can use.

use std::collections::BTreeMap;

use super::super::attributes::Attributes;
use super::super::lowering::Value;
use super::super::schema::{AttributeProto, NodeProto, OperatorSetIdProto};
use super::super::source::Source;
use super::model_error::model_error;
use crate::error::Result;

/// Versions of the imported operator sets by domain.
pub(super) type Opsets<'m> = BTreeMap<&'m str, i64>;

/// Values by name, operator sets and attributes that the nodes of an ONNX graph or function can use.
pub(super) struct Scope<'m, 's> {
    /// Values by name that this graph or function defines.
    pub(super) values: BTreeMap<&'m str, Value>,
    /// Scope of the enclosing graph.
    pub(super) parent: Option<&'s Scope<'m, 's>>,
    /// Versions of the operator sets by domain.
    pub(super) opsets: &'s Opsets<'m>,
    /// Attributes of the function that is being inlined.
    pub(super) attributes: &'s [(&'m str, &'m AttributeProto)],
    /// Prefix of node names in error messages.
    pub(super) prefix: &'s str,
}

impl Scope<'_, '_> {
    /// Returns the value that a name has in this scope or an enclosing scope.
    pub(super) fn lookup(&self, name: &str) -> Option<&Value> {
        self.values.get(name).or_else(|| self.parent.and_then(|p| p.lookup(name)))
    }
}

/// Returns the domain of a node; empty for ai.onnx.
pub(super) fn domain(node: &NodeProto) -> &str {
    match node.domain() {
        "ai.onnx" => "",
        other => other,
    }
}

/// Returns the versions of the operator sets that a model or function imports.
pub(super) fn opsets<'m>(source: &Source, imports: &'m [OperatorSetIdProto]) -> Result<Opsets<'m>> {
    let mut opsets = Opsets::new();
    for import in imports {
        let name = if import.domain() == "ai.onnx" { "" } else { import.domain() };
        if import.version() < 1 {
            let reason = format!(
                "the model imports version {} of the operator set `{name}`; versions start at 1",
                import.version()
            );
            return Err(model_error(source, "the file", reason));
        }
        opsets.insert(name, import.version());
    }
    Ok(opsets)
}

/// Returns the node's name with its prefix. A node without a name has the name of its first result.
pub(super) fn node_name(node: &NodeProto, scope: &Scope<'_, '_>) -> String {
    let name = match node.name() {
        "" => node.output.iter().find(|o| !o.is_empty()).map_or(node.op_type(), String::as_str),
        name => name,
    };
    format!("{}{name}", scope.prefix)
}

/// Returns a node's attributes. References to attributes of a function are replaced by the attributes of the function
/// that is being inlined.
pub(super) fn resolve_attributes<'m>(node: &'m NodeProto, scope: &Scope<'m, '_>) -> Attributes<'m> {
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
