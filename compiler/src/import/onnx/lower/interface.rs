//! Adds the initializers, inputs and outputs of an ONNX graph to the compiler's graph.

use std::collections::BTreeSet;

use super::super::Options;
use super::super::declarations::{self, Declared};
use super::super::inputs::{self, Assumed};
use super::super::lowering::Value;
use super::super::refused::Refused;
use super::super::schema::{GraphProto, ValueInfoProto};
use super::super::tensors::{self, Tensor};
use super::Lowerer;
use super::scope::Scope;
use crate::error::{Result, Unsupported};
use crate::ir::builder::Builder;
use crate::ir::dim::Dim;
use crate::ir::op::Constant;

impl<'m> Lowerer<'m> {
    /// Adds the initializers of a graph as constants.
    pub(super) fn bind_initializers(
        &mut self,
        graph: &'m GraphProto,
        scope: &mut Scope<'m, '_>,
    ) -> Result<()> {
        if let Some(sparse) = graph.sparse_initializer.first() {
            let name = sparse.values.as_ref().map_or("", |v| v.name());
            return Err(self.error(
                &format!("initializer `{name}`"),
                "sparse tensors are not supported; export a dense initializer",
            ));
        }
        for tensor in &graph.initializer {
            let place = || format!("initializer `{}`", tensor.name());
            let value = match tensors::read(tensor, self.source) {
                Ok(Tensor::Constant(constant)) => {
                    Value::Node(self.graph.add_constant(constant, tensor.name())?)
                }
                Ok(Tensor::Int4(tensor)) => Value::Int4(tensor),
                Ok(Tensor::Unsupported(reason)) => {
                    Value::Unsupported(format!("constant `{}`: {reason}", tensor.name()))
                }
                Err(reason) => return Err(self.error(&place(), reason.reason)),
            };
            if scope.values.insert(tensor.name(), value).is_some() {
                return Err(self.error(&place(), "it is defined twice"));
            }
        }
        Ok(())
    }

    /// Adds the model's inputs that have no initializer. An input with a value in the options becomes a constant.
    pub(super) fn add_inputs(
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
                self.check_declared_type(info, value, "input")?;
                self.check_declared_shape(info, value)?;
            } else {
                declared.push(declarations::read(info).map_err(|e| self.error(&place, e.reason))?);
            }
        }
        self.batch = inputs::replace_shapes(&mut declared, options)?;
        let mut shapes = options.input_shapes.clone();
        for (name, array) in &options.constants {
            let Some(input) = declared.iter().find(|d| d.name == *name) else {
                return Err(inputs::unknown_input(name, names.iter().copied()));
            };
            inputs::check_value_type(input, array)?;
            let size = |d: &usize| i64::try_from(*d).unwrap_or(i64::MAX);
            shapes.insert(name.clone(), array.shape.iter().map(size).collect());
        }
        let (bounds, assumed) = inputs::resolve_sizes(graph, &mut declared, &shapes, options, attempt)?;
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
                unknown_operator: false,
            };
            let value = match (input.dtype, input.shape) {
                (Ok(dtype), Some(shape)) => {
                    let node =
                        Builder::new(&mut self.graph, &input.name).input(&input.name, dtype, shape).map_err(
                            |e| self.error(&format!("input `{}`", input.name), Refused::from(e).reason),
                        )?;
                    self.computed.insert(node);
                    Value::Node(node)
                }
                (Ok(_), None) => {
                    self.refused.push(refuse(
                        "the shape of the input is not declared; give a sample array with --like".to_string(),
                    ));
                    Value::Unknown
                }
                (Err(reason), _) => {
                    self.refused.push(refuse(reason.reason));
                    Value::Unknown
                }
            };
            scope.values.insert(info.name(), value);
        }
        Ok(assumed)
    }

    /// Adds an output of the ONNX graph to the compiler's graph.
    pub(super) fn add_output(&mut self, name: &str, value: Option<Value>) -> Result<()> {
        let place = format!("output `{name}`");
        let node = match value {
            Some(Value::Node(node)) => node,
            Some(Value::Ints(ints)) => ints
                .materialize(&mut Builder::new(&mut self.graph, name))
                .map_err(|e| self.error(&place, e.reason))?,
            Some(Value::Unknown) if !self.refused.is_empty() => return Ok(()),
            Some(Value::Unsupported(reason)) => return Err(self.error(&place, reason)),
            Some(Value::Int4(tensor)) => return Err(self.error(&place, tensor.refusal())),
            None | Some(Value::Absent | Value::Unknown) => {
                return Err(self.error(&place, "no node computes it"));
            }
        };
        self.graph.add_output(name, node);
        Ok(())
    }

    /// Fails if the element type of a value differs from the type that the model declares for the value.
    pub(super) fn check_declared_type(
        &self,
        info: &ValueInfoProto,
        value: &Value,
        place: &str,
    ) -> Result<()> {
        let (Some(wanted), Some(dtype)) = (declarations::declared_dtype(info), self.dtype(value)) else {
            return Ok(());
        };
        if wanted == dtype {
            return Ok(());
        }
        let reason =
            format!("the value is declared with type {}, but has type {}", wanted.name(), dtype.name());
        Err(self.error(&format!("{place} `{}`", info.name()), reason))
    }

    /// Fails if the shape of an initializer differs from the declaration of the input that has the same name.
    fn check_declared_shape(&self, info: &ValueInfoProto, value: &Value) -> Result<()> {
        let Value::Node(node) = value else { return Ok(()) };
        let place = format!("input `{}`", info.name());
        let declared = declarations::read(info).map_err(|e| self.error(&place, e.reason))?;
        let (Some(wanted), Some(shape)) = (declared.shape, self.graph.tensor(*node).known_shape()) else {
            return Ok(());
        };
        let matches = |(d, n): (&Dim, &usize)| d.as_known().is_none_or(|d| usize::try_from(d) == Ok(*n));
        if wanted.len() == shape.len() && wanted.iter().zip(&shape).all(matches) {
            return Ok(());
        }
        let sizes = wanted.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
        Err(self.error(
            &place,
            format!("the input is declared with shape [{sizes}], but its initializer has shape {shape:?}"),
        ))
    }
}
