//! Lowers RNN, GRU and LSTM.
//!
//! The input's contribution to all gates is one matmul over all steps and directions. The operator `recurrent` then
//! iterates over the steps. All biases are added to the matmul's result, except a bias that a GRU's reset gate
//! multiplies. DynamicQuantizeLSTM is computed in floats with dequantized weights.

use super::elementwise::typed_binary;
use super::lowering::{Call, Lowered, OpEntry, Outputs, Value, microsoft, op};
use super::quantized_operands::subtract_zero_point;
use super::refused::Refused;
use crate::ir::dim::Dim;
use crate::ir::element::{BinaryFn, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::op::{Concat, MatMul, Recurrent};
use crate::ir::ops::recurrent::Cell;
use crate::ir::tensor::DType;

pub(super) const OPS: &[OpEntry] = &[
    op("RNN", 1, |c| recurrent(c, Kind::Rnn, float_weights)),
    op("GRU", 1, |c| recurrent(c, Kind::Gru, float_weights)),
    op("LSTM", 1, |c| recurrent(c, Kind::Lstm, float_weights)),
    microsoft("DynamicQuantizeLSTM", |c| recurrent(c, Kind::Lstm, quantized_weights)),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rnn,
    Gru,
    Lstm,
}

impl Kind {
    fn activations(self) -> &'static [&'static str] {
        match self {
            Self::Rnn => &["Tanh"],
            Self::Gru => &["Sigmoid", "Tanh"],
            Self::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

/// Weights of an RNN, GRU or LSTM.
struct Weights {
    /// Weights of the input, `[D, G * H, I]`.
    input: NodeId,
    /// Weights of the hidden state, `[D, H, G * H]`.
    state: NodeId,
}

/// Returns the weights in operands 1 and 2 of RNN, GRU and LSTM.
fn float_weights(call: &mut Call<'_>) -> Lowered<Weights> {
    let (input, state) = (call.node(1)?, call.node(2)?);
    check_rank_3(call, &[input, state])?;
    Ok(Weights { input, state: call.b.transpose(state, vec![0, 2, 1])? })
}

/// Returns the dequantized weights in operands 1 and 2 of DynamicQuantizeLSTM, `[D, I, G * H]` and `[D, H, G * H]`.
/// Their scales and zero points, of shape `[D]` or `[D, G * H]`, are operands 8 to 11.
fn quantized_weights(call: &mut Call<'_>) -> Lowered<Weights> {
    let mut weights = [call.node(1)?, call.node(2)?];
    check_rank_3(call, &weights)?;
    for (weights, parameters) in weights.iter_mut().zip([8, 10]) {
        let (scale, zero) = (call.node(parameters)?, call.node(parameters + 1)?);
        let [scale, zero] = [per_column(call, scale)?, per_column(call, zero)?];
        let value = subtract_zero_point(call, *weights, Some(zero))?;
        let value = call.b.cast(value, DType::F32)?;
        *weights = call.b.binary(BinaryFn::Mul, value, scale)?;
    }
    let [input, state] = weights;
    Ok(Weights { input: call.b.transpose(input, vec![0, 2, 1])?, state })
}

/// Reshapes a scale or zero point, `[D]` or `[D, G * H]`, so that it broadcasts to weights `[D, _, G * H]`.
fn per_column(call: &mut Call<'_>, parameter: NodeId) -> Lowered<NodeId> {
    let one = Dim::known(1);
    let shape = match call.shape(parameter).as_slice() {
        [] => vec![one],
        [directions] => vec![directions.clone(), one.clone(), one],
        [directions, columns] => vec![directions.clone(), one, columns.clone()],
        other => {
            let rank = other.len();
            return Err(Refused::new(format!("a scale or zero point has rank {rank}; 1 or 2 is needed")));
        }
    };
    Ok(call.b.reshape(parameter, shape)?)
}

fn check_rank_3(call: &Call<'_>, weights: &[NodeId]) -> Lowered<()> {
    match weights.iter().map(|w| call.rank(*w)).find(|rank| *rank != 3) {
        Some(rank) => Err(Refused::new(format!("the weights have rank {rank}; rank 3 is needed"))),
        None => Ok(()),
    }
}

/// Sizes of an RNN, GRU or LSTM node.
struct Sizes {
    steps: Dim,
    batch: Dim,
    directions: Dim,
    hidden: Dim,
    /// Number of gates times the hidden size.
    gates: Dim,
    batch_first: bool,
}

fn recurrent(call: &mut Call<'_>, kind: Kind, weights: fn(&mut Call<'_>) -> Lowered<Weights>) -> Lowered {
    let reverse = match call.attributes.text("direction", "forward")? {
        "forward" => vec![false],
        "reverse" => vec![true],
        "bidirectional" => vec![false, true],
        other => return Err(Refused::attribute("direction", other, "`forward`, `reverse`, `bidirectional`")),
    };
    call.attributes.ignore(&["hidden_size", "output_sequence"]);
    let linear_before_reset = call.attributes.flag("linear_before_reset", false)?;
    let coupled = call.attributes.flag("input_forget", false)?;
    let peepholes = if kind == Kind::Lstm { call.optional(7)? } else { None };
    let cell = match kind {
        Kind::Rnn => Cell::Rnn,
        Kind::Gru => Cell::Gru { linear_before_reset },
        Kind::Lstm => Cell::Lstm { peepholes: peepholes.is_some(), coupled },
    };
    let weights = weights(call)?;
    let sizes = sizes(call, &weights, cell, reverse.len())?;
    let mut functions = Vec::new();
    for d in 0..reverse.len() {
        functions.extend(activations(call, kind, d)?);
    }
    let (projected, inner_bias) = projected(call, weights.input, cell, &sizes)?;
    let mut operands = vec![projected, weights.state];
    for i in 0..cell.states() {
        operands.push(initial(call, 5 + i, &sizes, projected)?);
    }
    operands.extend(peepholes.or(inner_bias));
    let lengths = lengths(call, &sizes)?;
    operands.extend(lengths);
    let states = (1..=cell.states()).rev().find(|i| call.wants(*i)).unwrap_or(0);
    let clip = call.attributes.float_opt("clip")?;
    let op = Recurrent { cell, reverse, functions, clip, lengths: lengths.is_some(), states };
    let all = call.add(op, &operands)?;
    outputs(call, all, states, &sizes)
}

/// Returns the sizes of an RNN, GRU or LSTM node, from its input and its recurrence weights.
fn sizes(call: &mut Call<'_>, weights: &Weights, cell: Cell, directions: usize) -> Lowered<Sizes> {
    let batch_first = call.attributes.flag("layout", false)?;
    let x = call.node(0)?;
    let (x, weights) = (call.shape(x), call.shape(weights.state));
    let ([first, second, _], [d, hidden, gates]) = (x.as_slice(), weights.as_slice()) else {
        return Err(Refused::new(format!("operand 0 has rank {}; rank 3 is needed", x.len())));
    };
    let (steps, batch) = if batch_first { (second, first) } else { (first, second) };
    let count = call.known_dim(hidden, "the hidden size")?;
    let columns = Dim::from(cell.gates().saturating_mul(count));
    if *d != Dim::from(directions) || *gates != columns {
        return Err(Refused::new(format!(
            "the recurrence weights [{d}, {gates}, {hidden}] do not match {directions} directions with {} \
             gates",
            cell.gates()
        )));
    }
    Ok(Sizes {
        steps: steps.clone(),
        batch: batch.clone(),
        directions: d.clone(),
        hidden: hidden.clone(),
        gates: columns,
        batch_first,
    })
}

/// Returns the input's contribution to the gates, `[S, B, D, G * H]`, and the bias that a GRU's reset gate multiplies,
/// `[D, H]`, if the GRU has one.
fn projected(
    call: &mut Call<'_>,
    weights: NodeId,
    cell: Cell,
    sizes: &Sizes,
) -> Lowered<(NodeId, Option<NodeId>)> {
    let x = call.node(0)?;
    let (shape, rows) = (call.shape(x), call.shape(weights));
    let (Some(width), Some(inputs)) = (shape.get(2), rows.get(2)) else {
        return Err(Refused::new(format!("operand 1 has rank {}; rank 3 is needed", rows.len())));
    };
    let all = sizes.directions.mul(&sizes.gates);
    let flat = call.b.reshape(x, vec![sizes.steps.mul(&sizes.batch), width.clone()])?;
    let weights = call.b.reshape(weights, vec![all.clone(), inputs.clone()])?;
    let mut projected = call.add(MatMul { trans_a: false, trans_b: true }, &[flat, weights])?;
    let linear = cell == Cell::Gru { linear_before_reset: true };
    let mut inner = None;
    if let Some(bias) = call.optional(3)? {
        let input = call.b.slice(bias, 1, Dim::known(0), sizes.gates.clone())?;
        let state = call.b.slice(bias, 1, sizes.gates.clone(), sizes.gates.clone())?;
        let mut sum = call.b.binary(BinaryFn::Add, input, state)?;
        if linear {
            let outer = sizes.hidden.scale(2);
            let gated = call.b.slice(sum, 1, Dim::known(0), outer.clone())?;
            let fresh = call.b.slice(input, 1, outer.clone(), sizes.hidden.clone())?;
            sum = call.add(Concat { axis: 1 }, &[gated, fresh])?;
            inner = Some(call.b.slice(state, 1, outer, sizes.hidden.clone())?);
        }
        let sum = call.b.reshape(sum, vec![all])?;
        projected = typed_binary(call, BinaryFn::Add, projected, sum)?;
    } else if linear {
        let zero = call.b.scalar(call.dtype(projected), 0.0)?;
        inner = Some(call.b.expand(zero, vec![sizes.directions.clone(), sizes.hidden.clone()])?);
    }
    let mut steps = [sizes.steps.clone(), sizes.batch.clone()];
    if sizes.batch_first {
        steps.reverse();
    }
    let [first, second] = steps;
    let shape = vec![first, second, sizes.directions.clone(), sizes.gates.clone()];
    projected = call.b.reshape(projected, shape)?;
    if sizes.batch_first {
        projected = call.b.transpose(projected, vec![1, 0, 2, 3])?;
    }
    Ok((projected, inner))
}

/// Returns the initial state `[D, B, H]` that operand `index` gives; zeros if the operand is absent.
fn initial(call: &mut Call<'_>, index: usize, sizes: &Sizes, x: NodeId) -> Lowered<NodeId> {
    match call.optional(index)? {
        Some(state) if sizes.batch_first => Ok(call.b.transpose(state, vec![1, 0, 2])?),
        Some(state) => Ok(state),
        None => {
            let zero = call.b.scalar(call.dtype(x), 0.0)?;
            let shape = vec![sizes.directions.clone(), sizes.batch.clone(), sizes.hidden.clone()];
            Ok(call.b.expand(zero, shape)?)
        }
    }
}

/// Returns the sequence lengths; `None` if all are known to equal the input's length.
fn lengths(call: &mut Call<'_>, sizes: &Sizes) -> Lowered<Option<NodeId>> {
    if let Some(known) = call.ints(4) {
        if known.values.iter().all(|l| *l == sizes.steps) {
            return Ok(None);
        }
        let outside = |l: &Dim| {
            let past = l.sub(&sizes.steps).as_known().is_some_and(|over| over > 0);
            past || l.as_known().is_some_and(|l| l < 0)
        };
        if let Some(length) = known.values.iter().find(|l| outside(l)) {
            return Err(Refused::new(format!(
                "a sequence length is {length}; it must be 0 to {}",
                sizes.steps
            )));
        }
    }
    call.optional(4)
}

/// Slices the node's results from the result of the operator `recurrent`, `[S + states, D, B, H]`: the
/// hidden state after each step, then the final states.
fn outputs(call: &mut Call<'_>, all: NodeId, states: usize, sizes: &Sizes) -> Lowered {
    let mut sequence =
        if states == 0 { all } else { call.b.slice(all, 0, Dim::known(0), sizes.steps.clone())? };
    if sizes.batch_first {
        sequence = call.b.transpose(sequence, vec![2, 0, 1, 3])?;
    }
    let mut outputs = Outputs(vec![Value::Node(sequence)]);
    for i in 0..states {
        let last = call.b.slice(all, 0, sizes.steps.add(&Dim::from(i)), Dim::known(1))?;
        let shape = vec![sizes.directions.clone(), sizes.batch.clone(), sizes.hidden.clone()];
        let mut last = call.b.reshape(last, shape)?;
        if sizes.batch_first {
            last = call.b.transpose(last, vec![1, 0, 2])?;
        }
        outputs.0.push(Value::Node(last));
    }
    Ok(outputs)
}

/// Returns the activation functions of direction `d` of an RNN, GRU or LSTM.
fn activations(call: &Call<'_>, kind: Kind, d: usize) -> Lowered<Vec<UnaryFn>> {
    let given = call.attributes.texts_opt("activations")?;
    let alphas = call.attributes.floats_opt("activation_alpha")?.unwrap_or(&[]);
    let betas = call.attributes.floats_opt("activation_beta")?.unwrap_or(&[]);
    let n = kind.activations().len();
    let names: Vec<&str> = match &given {
        Some(list) => list.iter().skip(d * n).take(n).copied().collect(),
        None => kind.activations().to_vec(),
    };
    if names.len() != n {
        return Err(Refused::new(format!(
            "attribute `activations` has {} functions for a direction; {n} are needed",
            names.len()
        )));
    }
    names
        .iter()
        .enumerate()
        .map(|(i, name)| {
            let alpha = |default: f32| alphas.get(d * n + i).copied().unwrap_or(default);
            let beta = |default: f32| betas.get(d * n + i).copied().unwrap_or(default);
            Ok(match name.to_ascii_lowercase().as_str() {
                "tanh" => UnaryFn::Tanh,
                "sigmoid" => UnaryFn::Sigmoid,
                "relu" => UnaryFn::Relu,
                "softsign" => UnaryFn::Softsign,
                "softplus" => UnaryFn::Softplus,
                "affine" => UnaryFn::Affine { scale: alpha(1.0), shift: beta(0.0) },
                "leakyrelu" => UnaryFn::LeakyRelu { alpha: alpha(0.01) },
                "thresholdedrelu" => UnaryFn::ThresholdedRelu { alpha: alpha(1.0) },
                "elu" => UnaryFn::Elu { alpha: alpha(1.0) },
                "hardsigmoid" => UnaryFn::HardSigmoid { alpha: alpha(0.2), beta: beta(0.5) },
                _ => {
                    let supported = "`Tanh`, `Sigmoid`, `Relu`, `Softsign`, `Softplus`, `Affine`, \
                                     `LeakyRelu`, `ThresholdedRelu`, `Elu`, `HardSigmoid`";
                    return Err(Refused::attribute("activations", name, supported));
                }
            })
        })
        .collect()
}
