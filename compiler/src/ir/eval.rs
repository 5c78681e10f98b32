//! CPU reference of a whole graph, used by tests, constant folding and `driftc verify`.
//!
//! Symbols get their values from the shapes of the input arrays. Values are row-major, whatever layouts the graph
//! declares. Each value is dropped after its last use. A value is rounded to its stored type once, after the node's
//! epilogue.

use std::collections::BTreeMap;

use super::array::{Array, Data, count, round_floats};
use super::dim::{Atom, Bindings, Dim};
use super::element::{Arg, EpilogueStep};
use super::graph::{Graph, Node, NodeId};
use super::op::Input;
use super::ops::elementwise::apply;
use crate::error::{Error, OpError, Result};

/// Maximum number of elements of a value in the CPU reference. Larger values are refused instead of exhausting the
/// host's memory.
const MAX_HOST_ELEMENTS: usize = 1 << 31;

/// Evaluates a graph on the CPU. Takes the inputs by name and returns the outputs with their names.
///
/// # Errors
/// If an input is missing or does not match, or a node cannot be evaluated.
pub fn eval(graph: &Graph, inputs: &BTreeMap<String, Array>) -> Result<Vec<(String, Array)>> {
    trace(graph, inputs, &mut |_, _| {})
}

/// Evaluates a graph like [`eval`], and passes the value of every node to `visit` in topological order.
///
/// # Errors
/// If an input is missing or does not match, or a node cannot be evaluated.
pub fn trace(
    graph: &Graph,
    inputs: &BTreeMap<String, Array>,
    visit: &mut dyn FnMut(NodeId, &Array),
) -> Result<Vec<(String, Array)>> {
    trace_with(graph, inputs, &Bindings::new(), &mut States::new(), visit)
}

/// Contents of states by name; missing states are zero.
pub type States = BTreeMap<String, Array>;

/// Evaluates a graph like [`eval`]. `given` has values for symbols that no input determines. `states` has the contents
/// of states, which the graph's stores update.
///
/// # Errors
/// If an input is missing or does not match, or a node cannot be evaluated.
pub fn eval_with(
    graph: &Graph,
    inputs: &BTreeMap<String, Array>,
    given: &Bindings,
    states: &mut States,
) -> Result<Vec<(String, Array)>> {
    trace_with(graph, inputs, given, states, &mut |_, _| {})
}

fn trace_with(
    graph: &Graph,
    inputs: &BTreeMap<String, Array>,
    given: &Bindings,
    states: &mut States,
    visit: &mut dyn FnMut(NodeId, &Array),
) -> Result<Vec<(String, Array)>> {
    let mut symbols = bind_symbols(graph, inputs)?;
    for (name, value) in given {
        if symbols.insert(name.clone(), *value).is_some_and(|bound| bound != *value) {
            let reason = format!(
                "symbol `{name}` cannot be {value}: the shapes of the inputs give the symbol another value"
            );
            return Err(Error::request(reason, "give inputs that match the value, or omit the value"));
        }
    }
    let mut values: BTreeMap<NodeId, Array> = BTreeMap::new();
    let mut uses: BTreeMap<NodeId, usize> = BTreeMap::new();
    for id in graph.topological() {
        let operands = graph.operands(id);
        let state = graph.state(id).and_then(|state| states.get(&state.name));
        let given = match (graph.input(id), state) {
            (_, Some(state)) => Some(state),
            (Some(input), None) => Some(inputs.get(&input.name).ok_or_else(|| missing(input))?),
            (None, None) => None,
        };
        let value = if let Some(array) = given {
            to_stored_type(array.clone(), graph.node(id)).map_err(|e| graph.error(id, e))?
        } else {
            let arrays: Option<Vec<&Array>> = operands.iter().map(|o| values.get(o)).collect();
            let arrays = arrays
                .ok_or_else(|| graph.error(id, OpError::new("an operand of the node was not evaluated")))?;
            eval_node(graph, id, &arrays, &symbols)?
        };
        visit(id, &value);
        for operand in operands {
            if let Some(left) = uses.get_mut(&operand) {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    values.remove(&operand);
                }
            }
        }
        let count = graph.use_count(id);
        if count > 0 {
            uses.insert(id, count);
            values.insert(id, value);
        }
    }
    let result = |id: NodeId| values.get(&id).ok_or_else(|| Error::internal("eval", "a result has no value"));
    let results = graph.outputs().iter().map(|o| {
        let value = result(o.node)?;
        Ok((o.name.clone(), if value.dtype == o.dtype { value.clone() } else { value.cast(o.dtype) }))
    });
    let results = results.collect();
    for store in graph.stores() {
        states.insert(store.name.clone(), result(store.node)?.clone());
    }
    results
}

/// Evaluates one node with its epilogue.
///
/// # Errors
/// If the operands do not match, or a symbol has no value.
pub fn eval_node(graph: &Graph, id: NodeId, operands: &[&Array], symbols: &Bindings) -> Result<Array> {
    compute(graph.node(id), operands, symbols).map_err(|e| graph.error(id, e))
}

fn compute(node: &Node, operands: &[&Array], symbols: &Bindings) -> Result<Array, OpError> {
    let op_operands = operands.get(..node.arity).ok_or_else(|| OpError::new("an operand is missing"))?;
    let out = sizes(&node.tensor.shape, symbols)?;
    if count(&out) > MAX_HOST_ELEMENTS {
        return Err(OpError::new(format!("the result {} is too large for the CPU reference", node.tensor)));
    }
    let result = node.op.operation().eval(op_operands, &out, symbols)?;
    to_stored_type(apply_epilogue(result, &node.epilogue, operands)?, node)
}

/// Applies a node's epilogue to the result of its operator. `operands` are all operands of the node.
///
/// # Errors
/// If a step does not accept its operands.
pub(crate) fn apply_epilogue(
    value: Array,
    epilogue: &[EpilogueStep],
    operands: &[&Array],
) -> Result<Array, OpError> {
    let shape = value.shape.clone();
    let mut results = vec![value];
    for step in epilogue {
        let operand = |arg: &Arg| match *arg {
            Arg::Step(i) => results.get(i as usize),
            Arg::Input(k) => operands.get(k as usize).copied(),
        };
        let args: Option<Vec<&Array>> = step.args.iter().map(operand).collect();
        let args = args.ok_or_else(|| OpError::new("an epilogue step names a missing operand"))?;
        results.push(apply(step.element, &args, &shape)?);
    }
    results.pop().ok_or_else(|| OpError::new("no result"))
}

/// Rounds the value of a node to the type in which the graph stores it.
fn to_stored_type(mut value: Array, node: &Node) -> Result<Array, OpError> {
    let to = node.tensor.dtype;
    match &mut value.data {
        Data::Float(v) if to.is_float() => round_floats(to, v),
        _ if value.dtype == to => {}
        _ => {
            let (from, to) = (value.dtype.name(), to.name());
            return Err(OpError::new(format!(
                "the CPU reference computes {from}, but the graph declares {to}"
            )));
        }
    }
    value.dtype = to;
    Ok(value)
}

/// Returns the sizes of a shape as numbers, for the values of the symbols.
fn sizes(shape: &[Dim], symbols: &Bindings) -> Result<Vec<usize>, OpError> {
    let size = |d: &Dim| {
        let value =
            d.eval(symbols).ok_or_else(|| OpError::new(format!("no input determines the size {d}")))?;
        usize::try_from(value).map_err(|_| OpError::new(format!("the size {d} is {value}")))
    };
    shape.iter().map(size).collect()
}

/// Returns the values of the symbols, from the shapes of the input arrays.
///
/// # Errors
/// If an array is missing, unknown or of another type or rank, or if a size contradicts the model, another input or the
/// bounds of a symbol.
pub fn bind_symbols(graph: &Graph, inputs: &BTreeMap<String, Array>) -> Result<Bindings> {
    let declared: Vec<&Input> = graph.inputs().iter().filter_map(|id| graph.input(*id)).collect();
    if let Some(name) = inputs.keys().find(|name| declared.iter().all(|d| d.name != **name)) {
        let names: Vec<&str> = declared.iter().map(|d| d.name.as_str()).collect();
        let reason = format!("the model has no such input; its inputs are: {}", names.join(", "));
        return Err(Error::Input { input: name.clone(), dimension: None, reason });
    }
    // A symbol with one possible value needs no input.
    let fixed = graph.bounds.iter().filter(|(_, (low, high))| low == high);
    let mut symbols: Bindings = fixed.map(|(name, (low, _))| (name.clone(), *low)).collect();
    let mut unsolved: Vec<(&Input, usize, &Dim, usize)> = Vec::new();
    for input in declared {
        let array = inputs.get(&input.name).ok_or_else(|| missing(input))?;
        check_array(input, array)?;
        let dims = input.shape.iter().zip(&array.shape).enumerate();
        unsolved.extend(dims.map(|(axis, (dim, size))| (input, axis, dim, *size)));
    }
    // A size is checked if all of its symbols have values, and determines the symbol if one has none.
    loop {
        let before = unsolved.len();
        let mut rest = Vec::new();
        for (input, axis, dim, size) in unsolved {
            let refuse =
                |reason: String| Error::Input { input: input.name.clone(), dimension: Some(axis), reason };
            let size_i64 = i64::try_from(size).unwrap_or(i64::MAX);
            match dim.eval(&symbols) {
                Some(value) if value == size_i64 => continue,
                Some(value) if dim.as_known().is_some() => {
                    return Err(refuse(format!("an axis has size {size}, but the model requires {value}")));
                }
                Some(value) => {
                    return Err(refuse(format!(
                        "the size is {size}, but according to the other inputs `{dim}` is {value}"
                    )));
                }
                None => {}
            }
            let Some((name, value)) = solve(&dim.substitute(&symbols), size_i64) else {
                rest.push((input, axis, dim, size));
                continue;
            };
            let value =
                value.ok_or_else(|| refuse(format!("no integer `{name}` makes `{dim}` equal to {size}")))?;
            if let Some((low, high)) = graph.bounds.get(&name)
                && !(*low..=*high).contains(&value)
            {
                return Err(refuse(format!(
                    "symbol `{name}` would be {value}, outside its bounds {low}..{high}"
                )));
            }
            symbols.insert(name, value);
        }
        if rest.is_empty() || rest.len() == before {
            return Ok(symbols);
        }
        unsolved = rest;
    }
}

/// Solves `dim = size` if `dim` has one symbol, in a linear term. Returns the symbol and its value; the value is `None`
/// if no integer solves the equation.
fn solve(dim: &Dim, size: i64) -> Option<(String, Option<i64>)> {
    let (mut found, mut rest) = (None, size);
    for term in dim.terms() {
        match term.factors.as_slice() {
            [] => rest = rest.checked_sub(term.coefficient)?,
            [Atom::Symbol(name)] if found.is_none() => found = Some((name.to_string(), term.coefficient)),
            _ => return None,
        }
    }
    let (name, coefficient) = found?;
    let exact = rest.checked_rem(coefficient)? == 0;
    Some((name, rest.checked_div(coefficient).filter(|_| exact)))
}

fn check_array(input: &Input, array: &Array) -> Result<()> {
    let refuse = |reason: String| Err(Error::Input { input: input.name.clone(), dimension: None, reason });
    if array.dtype != input.dtype {
        return refuse(format!("the type is {}, expected {}", array.dtype.name(), input.dtype.name()));
    }
    if array.shape.len() != input.shape.len() {
        return refuse(format!("the rank is {}, expected {}", array.shape.len(), input.shape.len()));
    }
    let n = match &array.data {
        Data::Float(v) if input.dtype.is_float() => v.len(),
        Data::Int(v) if !input.dtype.is_float() => v.len(),
        Data::Float(_) | Data::Int(_) => return refuse("the elements are not of the declared type".into()),
    };
    if n != array.len() {
        return refuse(format!("{n} elements do not fill the shape {:?}", array.shape));
    }
    Ok(())
}

fn missing(input: &Input) -> Error {
    Error::Input { input: input.name.clone(), dimension: None, reason: "no array was given".into() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{bind_symbols, eval, trace};
    use crate::error::Error;
    use crate::ir::array::Array;
    use crate::ir::builder::Builder;
    use crate::ir::dim::{Bounds, Dim};
    use crate::ir::element::{Arg, BinaryFn, Element, EpilogueStep, UnaryFn};
    use crate::ir::graph::{Graph, Replacement};
    use crate::ir::op::{Elementwise, Op};
    use crate::ir::tensor::DType;

    fn arrays(named: &[(&str, Array)]) -> BTreeMap<String, Array> {
        named.iter().map(|(n, a)| ((*n).to_string(), a.clone())).collect()
    }

    fn two_inputs() -> Graph {
        let mut g = Graph::default();
        g.bounds = Bounds::from([("seq".into(), (1, 8)), ("past".into(), (0, 9))]);
        let seq = Dim::symbol("seq");
        let mut b = Builder::new(&mut g, "n");
        let a = b.input("a", DType::F32, vec![seq.clone(), 2usize.into()]).unwrap();
        let c = b.input("c", DType::F32, vec![seq.add(&Dim::symbol("past")), 1usize.into()]).unwrap();
        let y = b.unary(UnaryFn::Neg, a).unwrap();
        g.add_output("y", y);
        g.add_output("c", c);
        g
    }

    #[test]
    fn all_values_are_visited() {
        let g = two_inputs();
        let inputs =
            arrays(&[("a", Array::f32(&[1, 2], vec![1.0, -2.0])), ("c", Array::f32(&[3, 1], vec![0.0; 3]))]);
        let mut seen = Vec::new();
        let results = trace(&g, &inputs, &mut |_, value| seen.push(value.shape.clone())).unwrap();
        assert_eq!(results[0].0, "y");
        assert_eq!(results[0].1.floats().unwrap(), [-1.0, 2.0]);
        assert_eq!(seen, [vec![1, 2], vec![3, 1], vec![1, 2]]);
        let symbols = bind_symbols(&g, &inputs).unwrap();
        assert_eq!((symbols["seq"], symbols["past"]), (1, 2));
    }

    #[test]
    fn errors_name_the_input_and_the_dimension() {
        let g = two_inputs();
        let a = |n: usize| Array::f32(&[n, 2], vec![0.0; 2 * n]);
        let c = |n: usize| Array::f32(&[n, 1], vec![0.0; n]);
        let place = |inputs: &[(&str, Array)]| match eval(&g, &arrays(inputs)) {
            Err(Error::Input { input, dimension, .. }) => (input, dimension),
            other => panic!("{other:?}"),
        };
        assert_eq!(place(&[("a", a(2))]), ("c".into(), None));
        assert_eq!(place(&[("a", a(2)), ("c", c(2)), ("d", c(1))]), ("d".into(), None));
        assert_eq!(place(&[("a", a(9)), ("c", c(9))]), ("a".into(), Some(0)));
        assert_eq!(place(&[("a", a(3)), ("c", c(2))]), ("c".into(), Some(0)));
        assert_eq!(place(&[("a", c(3)), ("c", c(3))]), ("a".into(), Some(1)));
        assert_eq!(place(&[("a", Array::i64s(&[1])), ("c", c(3))]), ("a".into(), None));
    }

    #[test]
    fn epilogues_apply_after_the_operator() {
        let mut g = Graph::default();
        let mut b = Builder::new(&mut g, "n");
        let x = b.input("x", DType::F32, vec![2usize.into()]).unwrap();
        let s = b.scalar(DType::F32, 10.0).unwrap();
        // abs(x) * 10 + abs(x), cast to f16
        let step = |f, args: &[Arg]| EpilogueStep { element: Element::Binary(f), args: args.to_vec() };
        let y = g
            .add_fused(
                Replacement {
                    op: Op::Elementwise(Elementwise { element: Element::Unary(UnaryFn::Abs) }),
                    operands: vec![x, s],
                    arity: 1,
                    epilogue: vec![
                        step(BinaryFn::Mul, &[Arg::Step(0), Arg::Input(1)]),
                        step(BinaryFn::Add, &[Arg::Step(1), Arg::Step(0)]),
                        EpilogueStep { element: Element::Cast(DType::F16), args: vec![Arg::Step(2)] },
                    ],
                },
                "y",
            )
            .unwrap();
        g.add_output("y", y);
        let inputs = arrays(&[("x", Array::f32(&[2], vec![-1.0, 0.0001]))]);
        let (_, value) = eval(&g, &inputs).unwrap().remove(0);
        assert_eq!(value.dtype, DType::F16);
        assert_eq!(value.floats().unwrap(), [11.0, half::f16::from_f32(0.0011).to_f32()]);
    }

    #[test]
    fn stored_type_rounds() {
        let mut g = two_inputs();
        let y = g.outputs()[0].node;
        g.set_storage_type(y, DType::F16);
        let inputs = arrays(&[
            ("a", Array::f32(&[1, 2], vec![1.0001, -70000.0])),
            ("c", Array::f32(&[1, 1], vec![0.0])),
        ]);
        let (_, value) = eval(&g, &inputs).unwrap().remove(0);
        assert_eq!(value.floats().unwrap(), [-1.0, f32::INFINITY]);
    }
}
