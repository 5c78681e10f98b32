//! Loop and Scan with a known number of steps, unrolled: the nested graph is inlined once per step.

use std::collections::BTreeMap;

use super::super::attributes::Attributes;
use super::super::lowering::{Call, Lowered, Value};
use super::super::refused::Refused;
use super::super::schema::{GraphProto, NodeProto};
use super::super::symbolic_ints::SymbolicInts;
use super::Lowerer;
use super::scope::{Scope, node_name};
use crate::error::Result;
use crate::ir::builder::Builder;
use crate::ir::dim::Dim;
use crate::ir::op::Concat;
use crate::ir::tensor::{DType, normalize_axis};

/// Maximum number of steps of a Loop or Scan.
const MAX_STEPS: usize = 1024;

/// A Loop or Scan node with its known number of steps.
struct Unrolled<'m> {
    body: &'m GraphProto,
    /// Number of steps. A Loop without trip count has the maximum, and must end by its condition.
    steps: usize,
    /// True for a Loop whose number of steps is only limited by its condition.
    unlimited: bool,
    /// Values that each step takes from the step before.
    carried: Vec<Value>,
    kind: Kind,
}

enum Kind {
    /// A Loop. The field is its condition before the first step.
    Loop {
        condition: Value,
    },
    Scan {
        sequences: Vec<Sequence>,
        stacked: Vec<Direction>,
    },
}

/// Operand of a Scan. Each step reads one slice of it.
struct Sequence {
    value: Value,
    direction: Direction,
}

/// Axis along which a Scan slices an operand or stacks a result.
#[derive(Clone, Copy)]
struct Direction {
    axis: i64,
    reverse: bool,
}

impl<'m> Lowerer<'m> {
    /// Lowers a Loop or Scan. The outer result is an error of the model, the inner one a refusal of the node.
    pub(super) fn unroll_node(
        &mut self,
        node: &'m NodeProto,
        operands: &[Value],
        attributes: &Attributes<'m>,
        scope: &Scope<'m, '_>,
    ) -> Result<Lowered<Vec<Value>>> {
        let opset = scope.opsets.get("").copied().unwrap_or(0);
        let unrolled = match node.op_type() {
            "Loop" => self.loop_steps(operands, attributes),
            _ => self.scan_steps(operands, attributes, opset),
        };
        match unrolled {
            Ok(unrolled) => self.unroll(unrolled, node, scope),
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// Returns a Loop as a node with a known number of steps. Fails if the number or the condition is not constant.
    fn loop_steps(&mut self, operands: &[Value], attributes: &Attributes<'m>) -> Lowered<Unrolled<'m>> {
        let body = attributes.graph("body")?;
        let call = Call::new(Builder::new(&mut self.graph, ""), attributes, 0, operands, &[]);
        let limit = call.known_scalar(0, "the number of steps")?;
        let steps = match limit {
            Some(steps) => usize::try_from(steps.max(0)).unwrap_or(usize::MAX),
            None => MAX_STEPS,
        };
        check_steps(steps)?;
        let condition = match operands.get(1) {
            Some(Value::Absent) | None => truth(),
            Some(value) => value.clone(),
        };
        let carried = operands.get(2..).unwrap_or_default().to_vec();
        Ok(Unrolled { body, steps, unlimited: limit.is_none(), carried, kind: Kind::Loop { condition } })
    }

    /// Returns a Scan as a node with a known number of steps. Fails if the number is not constant.
    fn scan_steps(
        &mut self,
        operands: &[Value],
        attributes: &Attributes<'m>,
        opset: i64,
    ) -> Lowered<Unrolled<'m>> {
        if opset < 9 {
            return Err(Refused::new(
                "Scan before opset 9 is not supported; convert the model to opset 9 or later",
            ));
        }
        let body = attributes.graph("body")?;
        let count = attributes.int("num_scan_inputs", 0)?;
        let count = usize::try_from(count)
            .ok()
            .filter(|n| (1..=operands.len()).contains(n))
            .ok_or_else(|| Refused::attribute("num_scan_inputs", count, "1 up to the number of operands"))?;
        let (states, inputs) = operands.split_at(operands.len() - count);
        let directions = |axes: &str, reverse: &str, n: usize| -> Lowered<Vec<Direction>> {
            let (axes, reverse) = (attributes.ints_opt(axes)?, attributes.ints_opt(reverse)?);
            let at = |list: Option<&[i64]>, i: usize| list.and_then(|l| l.get(i)).copied().unwrap_or(0);
            Ok((0..n).map(|i| Direction { axis: at(axes, i), reverse: at(reverse, i) != 0 }).collect())
        };
        let stacked = body.output.len().saturating_sub(states.len());
        let stacked = directions("scan_output_axes", "scan_output_directions", stacked)?;
        let mut call = Call::new(Builder::new(&mut self.graph, ""), attributes, 0, operands, &[]);
        let (mut sequences, mut steps) = (Vec::new(), 0);
        for (i, direction) in
            directions("scan_input_axes", "scan_input_directions", count)?.into_iter().enumerate()
        {
            let node = call.node(states.len() + i)?;
            let shape = call.shape(node);
            let axis = normalize_axis(direction.axis, shape.len())?;
            steps = call.known_dim(&shape[axis], "the number of steps")?;
            sequences.push(Sequence { value: Value::Node(node), direction });
        }
        check_steps(steps)?;
        debug_assert_eq!(sequences.len(), inputs.len());
        Ok(Unrolled {
            body,
            steps,
            unlimited: false,
            carried: states.to_vec(),
            kind: Kind::Scan { sequences, stacked },
        })
    }

    /// Inlines the body of a Loop or Scan once per step. Returns the two results of [`Self::unroll_node`].
    fn unroll(
        &mut self,
        unrolled: Unrolled<'m>,
        node: &'m NodeProto,
        scope: &Scope<'m, '_>,
    ) -> Result<Lowered<Vec<Value>>> {
        let name = node_name(node, scope);
        let Unrolled { body, steps, unlimited, mut carried, mut kind } = unrolled;
        let mut outer = Scope {
            values: BTreeMap::new(),
            parent: Some(scope),
            opsets: scope.opsets,
            attributes: scope.attributes,
            prefix: scope.prefix,
        };
        self.bind_initializers(body, &mut outer)?;
        let states = carried.len();
        let mut stacks: Vec<Vec<Value>> = Vec::new();
        for step in 0..=steps {
            if let Kind::Loop { condition } = &kind {
                match self.is_true(condition) {
                    Ok(true) if step == steps && unlimited => {
                        return Ok(Err(Refused::new(format!(
                            "the loop has no number of steps, and its condition holds after {MAX_STEPS} steps"
                        ))));
                    }
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(reason) if step < steps => return Ok(Err(reason)),
                    Err(_) => {}
                }
            }
            if step == steps {
                break;
            }
            let inputs = match self.step_inputs(&kind, &carried, step, steps, &name) {
                Ok(inputs) => inputs,
                Err(reason) => return Ok(Err(reason)),
            };
            let prefix = format!("{name}/{step}/");
            let mut outputs = self.inline_step(body, inputs, &prefix, &outer)?.into_iter();
            if let Kind::Loop { condition } = &mut kind {
                *condition = outputs.next().unwrap_or(Value::Unknown);
            }
            let mut outputs: Vec<Value> = outputs.collect();
            if outputs.iter().any(|v| matches!(v, Value::Unknown)) {
                return Ok(Ok(vec![Value::Unknown; node.output.len()]));
            }
            let scanned = outputs.split_off(states.min(outputs.len()));
            stacks.resize(scanned.len(), Vec::new());
            for (stack, value) in stacks.iter_mut().zip(scanned) {
                stack.push(value);
            }
            carried = outputs;
        }
        let stacked = node.output.len().saturating_sub(carried.len());
        stacks.resize(stacked, Vec::new());
        Ok(self.stack_all(&kind, stacks, &name).map(|stacks| [carried, stacks].concat()))
    }

    /// Returns the inputs of the body in a step.
    fn step_inputs(
        &mut self,
        kind: &Kind,
        carried: &[Value],
        step: usize,
        steps: usize,
        name: &str,
    ) -> Lowered<Vec<Value>> {
        match kind {
            Kind::Loop { condition } => {
                let number =
                    SymbolicInts { dtype: DType::I64, shape: Vec::new(), values: vec![Dim::from(step)] };
                Ok([&[Value::Ints(number), condition.clone()], carried].concat())
            }
            Kind::Scan { sequences, .. } => {
                let mut inputs = carried.to_vec();
                let mut b = Builder::new(&mut self.graph, name);
                for Sequence { value, direction } in sequences {
                    let Value::Node(x) = value else { continue };
                    let mut shape = b.tensor(*x).shape.clone();
                    let axis = normalize_axis(direction.axis, shape.len())?;
                    if shape[axis] != Dim::from(steps) {
                        return Err(Refused::new(format!(
                            "an operand has {} steps and another one {steps}",
                            shape[axis]
                        )));
                    }
                    let at = if direction.reverse { steps - 1 - step } else { step };
                    let slice = b.slice(*x, axis, Dim::from(at), Dim::known(1))?;
                    shape.remove(axis);
                    inputs.push(Value::Node(b.reshape(slice, shape)?));
                }
                Ok(inputs)
            }
        }
    }

    /// Inlines the body of a Loop or Scan for one step. Returns the body's outputs.
    fn inline_step(
        &mut self,
        body: &'m GraphProto,
        inputs: Vec<Value>,
        prefix: &str,
        outer: &Scope<'m, '_>,
    ) -> Result<Vec<Value>> {
        let place = format!("node `{}`", prefix.trim_end_matches('/'));
        if inputs.len() != body.input.len() {
            let reason =
                format!("its nested graph has {} inputs; {} are needed", body.input.len(), inputs.len());
            return Err(self.error(&place, reason));
        }
        let mut inner = Scope {
            values: body.input.iter().map(|i| i.name()).zip(inputs).collect(),
            parent: Some(outer),
            opsets: outer.opsets,
            attributes: outer.attributes,
            prefix,
        };
        self.lower_nodes(&body.node, &mut inner)?;
        body.output
            .iter()
            .map(|o| {
                inner.lookup(o.name()).cloned().ok_or_else(|| {
                    self.error(&place, format!("its nested graph does not compute its output `{}`", o.name()))
                })
            })
            .collect()
    }

    /// Returns the value of a loop's condition. Fails if the condition is not constant.
    fn is_true(&mut self, condition: &Value) -> Lowered<bool> {
        let (attributes, operands) = (Attributes::default(), [condition.clone()]);
        let call = Call::new(Builder::new(&mut self.graph, ""), &attributes, 0, &operands, &[]);
        match call.array(0).as_ref().map(|a| a.to_floats()).as_deref() {
            Some([value]) => Ok(*value != 0.0),
            _ => Err(Refused::new(
                "the condition is computed from data at run time; it must be known at compile time",
            )),
        }
    }

    /// Stacks the values that the steps gave for each stacked result.
    fn stack_all(&mut self, kind: &Kind, stacks: Vec<Vec<Value>>, name: &str) -> Lowered<Vec<Value>> {
        let direction = |i: usize| match kind {
            Kind::Loop { .. } => Direction { axis: 0, reverse: false },
            Kind::Scan { stacked, .. } => {
                stacked.get(i).copied().unwrap_or(Direction { axis: 0, reverse: false })
            }
        };
        stacks.into_iter().enumerate().map(|(i, values)| self.stack(values, direction(i), name)).collect()
    }

    /// Stacks values of equal shape along a new axis.
    fn stack(&mut self, mut values: Vec<Value>, direction: Direction, name: &str) -> Lowered<Value> {
        if values.is_empty() {
            return Ok(Value::Unsupported(
                "the loop has no steps, so the shape of this result is not known".to_string(),
            ));
        }
        if direction.reverse {
            values.reverse();
        }
        let attributes = Attributes::default();
        let mut call = Call::new(Builder::new(&mut self.graph, name), &attributes, 0, &values, &[]);
        let mut parts = Vec::with_capacity(values.len());
        let mut along = 0;
        for node in call.nodes()? {
            let mut shape = call.shape(node);
            along = normalize_axis(direction.axis, shape.len() + 1)?;
            shape.insert(along, Dim::known(1));
            parts.push(call.b.reshape(node, shape)?);
        }
        match parts.as_slice() {
            [one] => Ok(Value::Node(*one)),
            all => Ok(Value::Node(call.add(Concat { axis: along }, all)?)),
        }
    }
}

/// Returns the constant true.
fn truth() -> Value {
    Value::Ints(SymbolicInts { dtype: DType::Bool, shape: Vec::new(), values: vec![Dim::known(1)] })
}

fn check_steps(steps: usize) -> Lowered<()> {
    if steps > MAX_STEPS {
        return Err(Refused::new(format!(
            "the loop has {steps} steps, which would be unrolled; at most {MAX_STEPS} are supported"
        )));
    }
    Ok(())
}
