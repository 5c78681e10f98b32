//! RNN, GRU and LSTM, unrolled over a sequence of known length.
//!
//! The input's part of every gate is one matrix product over the whole sequence; each step adds the state's part.
//! States are `[B, H]`, and gates are slices of `[B, G * H]` in ONNX's order.

use super::elementwise::typed_binary;
use super::lowering::{Call, Lowered, OpEntry, Outputs, Refused, Value, op};
use crate::ir::dim::Dim;
use crate::ir::element::{BinaryFn, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::op::{Concat, MatMul};

pub(super) const OPS: &[OpEntry] = &[
    op("RNN", 7, |c| recurrent(c, Kind::Rnn)),
    op("GRU", 7, |c| recurrent(c, Kind::Gru)),
    op("LSTM", 7, |c| recurrent(c, Kind::Lstm)),
];

/// Longest sequence that is unrolled.
const MAX_STEPS: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rnn,
    Gru,
    Lstm,
}

impl Kind {
    fn gates(self) -> i64 {
        match self {
            Self::Rnn => 1,
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }

    fn activations(self) -> &'static [&'static str] {
        match self {
            Self::Rnn => &["Tanh"],
            Self::Gru => &["Sigmoid", "Tanh"],
            Self::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

/// What one direction needs at every step.
struct Cell {
    kind: Kind,
    hidden: i64,
    /// `[G * H, H]`.
    recurrence: NodeId,
    /// `[G * H]`.
    input_bias: Option<NodeId>,
    /// `[G * H]`.
    state_bias: Option<NodeId>,
    /// LSTM's `[3 * H]`.
    peepholes: Option<NodeId>,
    activations: Vec<UnaryFn>,
    clip: Option<f32>,
    linear_before_reset: bool,
    coupled: bool,
}

fn recurrent(call: &mut Call<'_>, kind: Kind) -> Lowered {
    let batch_first = call.attributes.flag("layout", false)?;
    let mut x = call.node(0)?;
    if batch_first {
        x = call.b.transpose(x, vec![1, 0, 2])?;
    }
    let shape = call.shape(x);
    let [steps, batch, width] = shape.as_slice() else {
        return Err(Refused::new(format!("rank {} is not 3", shape.len())));
    };
    let (batch, width) = (batch.clone(), width.clone());
    let steps = call.known_dim(steps, "the sequence's length")?;
    if steps == 0 || steps > MAX_STEPS {
        return Err(Refused::new(format!(
            "a sequence of {steps} steps is not unrolled (at most {MAX_STEPS})"
        )));
    }
    if let Some(lengths) = call.known(4, "the list of lengths")?
        && lengths.iter().any(|l| usize::try_from(*l) != Ok(steps))
    {
        return Err(Refused::new("sequences of different lengths are not supported"));
    }
    let backward: &[bool] = match call.attributes.text("direction", "forward")? {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return Err(Refused::new(format!("direction `{other}` is not known"))),
    };
    call.attributes.ignore(&["hidden_size", "output_sequence"]);
    let states = if kind == Kind::Lstm { 2 } else { 1 };
    let mut sequences = Vec::new();
    let mut finals = vec![Vec::new(); states];
    for (d, backward) in backward.iter().enumerate() {
        let cell = cell(call, kind, d)?;
        let weights = call.node(1)?;
        let weights = direction(call, weights, d)?;
        let flat = call.b.reshape(x, vec![Dim::from(steps).mul(&batch), width.clone()])?;
        let mut projected = call.add(MatMul { trans_a: false, trans_b: true }, &[flat, weights])?;
        if let Some(bias) = cell.input_bias {
            projected = typed_binary(call, BinaryFn::Add, projected, bias)?;
        }
        let all = Dim::known(cell.hidden * kind.gates());
        let projected = call.b.reshape(projected, vec![Dim::from(steps), batch.clone(), all.clone()])?;
        let mut state = Vec::new();
        for i in 0..states {
            state.push(initial(call, 5 + i, d, &batch, &cell, x, batch_first)?);
        }
        let mut outputs = Vec::with_capacity(steps);
        for t in 0..steps {
            let t = if *backward { steps - 1 - t } else { t };
            let step = call.b.slice(projected, 0, Dim::from(t), Dim::known(1))?;
            let step = call.b.reshape(step, vec![batch.clone(), all.clone()])?;
            match kind {
                Kind::Rnn => state[0] = rnn(call, &cell, step, state[0])?,
                Kind::Gru => state[0] = gru(call, &cell, step, state[0])?,
                Kind::Lstm => (state[0], state[1]) = lstm(call, &cell, step, state[0], state[1])?,
            }
            let row = vec![Dim::known(1), Dim::known(1), batch.clone(), Dim::known(cell.hidden)];
            outputs.push(call.b.reshape(state[0], row)?);
        }
        if *backward {
            outputs.reverse();
        }
        sequences.push(join(call, &outputs, 0)?);
        for (list, value) in finals.iter_mut().zip(&state) {
            let shape = vec![Dim::known(1), batch.clone(), Dim::known(cell.hidden)];
            list.push(call.b.reshape(*value, shape)?);
        }
    }
    // [S, D, B, H], and [D, B, H] of each state.
    let mut sequence = join(call, &sequences, 1)?;
    if batch_first {
        sequence = call.b.transpose(sequence, vec![2, 0, 1, 3])?;
    }
    let mut outputs = Outputs(vec![Value::Node(sequence)]);
    for list in finals {
        let mut last = join(call, &list, 0)?;
        if batch_first {
            last = call.b.transpose(last, vec![1, 0, 2])?;
        }
        outputs.0.push(Value::Node(last));
    }
    Ok(outputs)
}

fn join(call: &mut Call<'_>, parts: &[NodeId], axis: usize) -> Lowered<NodeId> {
    match parts {
        [one] => Ok(*one),
        parts => call.add(Concat { axis }, parts),
    }
}

/// One direction's part of a tensor whose first axis is the direction.
fn direction(call: &mut Call<'_>, x: NodeId, d: usize) -> Lowered<NodeId> {
    let shape = call.shape(x);
    let part = call.b.slice(x, 0, Dim::from(d), Dim::known(1))?;
    Ok(call.b.reshape(part, shape.get(1..).unwrap_or_default().to_vec())?)
}

fn cell(call: &mut Call<'_>, kind: Kind, d: usize) -> Lowered<Cell> {
    let recurrence = call.node(2)?;
    let recurrence = direction(call, recurrence, d)?;
    let hidden = call.shape(recurrence).get(1).cloned().unwrap_or_default();
    let hidden = i64::try_from(call.known_dim(&hidden, "the hidden size")?).unwrap_or(i64::MAX);
    let all = Dim::known(hidden.saturating_mul(kind.gates()));
    let (mut input_bias, mut state_bias) = (None, None);
    if let Some(bias) = call.optional(3)? {
        let bias = direction(call, bias, d)?;
        input_bias = Some(call.b.slice(bias, 0, Dim::known(0), all.clone())?);
        state_bias = Some(call.b.slice(bias, 0, all.clone(), all)?);
    }
    let peepholes = match (kind, call.optional(7)?) {
        (Kind::Lstm, Some(p)) => Some(direction(call, p, d)?),
        _ => None,
    };
    Ok(Cell {
        kind,
        hidden,
        recurrence,
        input_bias,
        state_bias,
        peepholes,
        activations: activations(call, kind, d)?,
        clip: call.attributes.float_opt("clip")?,
        linear_before_reset: call.attributes.flag("linear_before_reset", false)?,
        coupled: call.attributes.flag("input_forget", false)?,
    })
}

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
        return Err(Refused::new(format!("{} activations are given where {n} are needed", names.len())));
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
                _ => return Err(Refused::new(format!("activation `{name}` is not supported"))),
            })
        })
        .collect()
}

/// One direction's initial state, zeros without one.
fn initial(
    call: &mut Call<'_>,
    index: usize,
    d: usize,
    batch: &Dim,
    cell: &Cell,
    x: NodeId,
    batch_first: bool,
) -> Lowered<NodeId> {
    match call.optional(index)? {
        Some(state) => {
            let state = if batch_first { call.b.transpose(state, vec![1, 0, 2])? } else { state };
            direction(call, state, d)
        }
        None => {
            let zero = call.b.scalar(call.dtype(x), 0.0)?;
            Ok(call.b.expand(zero, vec![batch.clone(), Dim::known(cell.hidden)])?)
        }
    }
}

impl Cell {
    /// Gate `i` of a tensor `[.., G * H]`.
    fn gate(&self, call: &mut Call<'_>, x: NodeId, i: i64) -> Lowered<NodeId> {
        let axis = call.rank(x).saturating_sub(1);
        Ok(call.b.slice(x, axis, Dim::known(i * self.hidden), Dim::known(self.hidden))?)
    }

    /// Gates `from..to` of the state's product with the recurrence weights.
    fn state_part(&self, call: &mut Call<'_>, h: NodeId, from: i64, to: i64) -> Lowered<NodeId> {
        let (mut weights, mut bias) = (self.recurrence, self.state_bias);
        if (from, to) != (0, self.kind.gates()) {
            let (start, size) = (Dim::known(from * self.hidden), Dim::known((to - from) * self.hidden));
            weights = call.b.slice(weights, 0, start.clone(), size.clone())?;
            if let Some(b) = bias {
                bias = Some(call.b.slice(b, 0, start, size)?);
            }
        }
        let product = call.add(MatMul { trans_a: false, trans_b: true }, &[h, weights])?;
        match bias {
            Some(bias) => typed_binary(call, BinaryFn::Add, product, bias),
            None => Ok(product),
        }
    }

    fn activated(&self, call: &mut Call<'_>, i: usize, mut x: NodeId) -> Lowered<NodeId> {
        if let Some(clip) = self.clip {
            x = call.b.unary(UnaryFn::Clip { low: -clip, high: clip }, x)?;
        }
        let f = self.activations.get(i).copied().unwrap_or(UnaryFn::Tanh);
        Ok(call.b.unary(f, x)?)
    }

    /// `x + peephole i * c`.
    fn peeped(&self, call: &mut Call<'_>, x: NodeId, i: i64, c: NodeId) -> Lowered<NodeId> {
        let Some(all) = self.peepholes else { return Ok(x) };
        let weight = self.gate(call, all, i)?;
        let part = call.b.binary(BinaryFn::Mul, c, weight)?;
        Ok(call.b.binary(BinaryFn::Add, x, part)?)
    }
}

fn rnn(call: &mut Call<'_>, cell: &Cell, x: NodeId, h: NodeId) -> Lowered<NodeId> {
    let part = cell.state_part(call, h, 0, 1)?;
    let sum = call.b.binary(BinaryFn::Add, x, part)?;
    cell.activated(call, 0, sum)
}

/// Gates z (update), r (reset), h (new).
fn gru(call: &mut Call<'_>, cell: &Cell, x: NodeId, h: NodeId) -> Lowered<NodeId> {
    let mut gates = Vec::new();
    let part = cell.state_part(call, h, 0, 2)?;
    for i in 0..2 {
        let (a, b) = (cell.gate(call, x, i)?, cell.gate(call, part, i)?);
        let sum = call.b.binary(BinaryFn::Add, a, b)?;
        gates.push(cell.activated(call, 0, sum)?);
    }
    let (update, reset) = (gates[0], gates[1]);
    let state = if cell.linear_before_reset {
        let part = cell.state_part(call, h, 2, 3)?;
        call.b.binary(BinaryFn::Mul, reset, part)?
    } else {
        let part = call.b.binary(BinaryFn::Mul, reset, h)?;
        cell.state_part(call, part, 2, 3)?
    };
    let fresh = cell.gate(call, x, 2)?;
    let fresh = call.b.binary(BinaryFn::Add, fresh, state)?;
    let fresh = cell.activated(call, 1, fresh)?;
    // (1 - z) * new + z * old
    let difference = call.b.binary(BinaryFn::Sub, h, fresh)?;
    let kept = call.b.binary(BinaryFn::Mul, update, difference)?;
    Ok(call.b.binary(BinaryFn::Add, fresh, kept)?)
}

/// Gates i (input), o (output), f (forget), c (cell); peepholes in the order i, o, f.
fn lstm(call: &mut Call<'_>, cell: &Cell, x: NodeId, h: NodeId, c: NodeId) -> Lowered<(NodeId, NodeId)> {
    let part = cell.state_part(call, h, 0, 4)?;
    let all = call.b.binary(BinaryFn::Add, x, part)?;
    let input = cell.gate(call, all, 0)?;
    let input = cell.peeped(call, input, 0, c)?;
    let input = cell.activated(call, 0, input)?;
    let forget = if cell.coupled {
        call.b.unary(UnaryFn::Affine { scale: -1.0, shift: 1.0 }, input)?
    } else {
        let forget = cell.gate(call, all, 2)?;
        let forget = cell.peeped(call, forget, 2, c)?;
        cell.activated(call, 0, forget)?
    };
    let fresh = cell.gate(call, all, 3)?;
    let fresh = cell.activated(call, 1, fresh)?;
    let kept = call.b.binary(BinaryFn::Mul, forget, c)?;
    let added = call.b.binary(BinaryFn::Mul, input, fresh)?;
    let state = call.b.binary(BinaryFn::Add, kept, added)?;
    let output = cell.gate(call, all, 1)?;
    let output = cell.peeped(call, output, 1, state)?;
    let output = cell.activated(call, 0, output)?;
    let shown = call.b.unary(cell.activations.get(2).copied().unwrap_or(UnaryFn::Tanh), state)?;
    Ok((call.b.binary(BinaryFn::Mul, output, shown)?, state))
}
