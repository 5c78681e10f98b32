//! RNN, GRU and LSTM along a sequence. The matmul of the inputs with their weights is a separate operator.
//!
//! Operands, for S steps, B sequences, D directions, H units and G gates:
//! 1. inputs times input weights plus additive biases, `[S, B, D, G * H]`;
//! 2. recurrent weights `[D, H, G * H]`;
//! 3. initial hidden state `[D, B, H]`; for an LSTM also the initial cell state;
//! 4. if the kind of cell requires it: peephole weights `[D, 3 * H]` (input, output, forget), or the recurrent bias of
//!    the new gate `[D, H]`;
//! 5. if `lengths`: sequence lengths, integers `[B]`.
//!
//! Gates have ONNX's order: update, reset, new (GRU); input, output, forget, cell (LSTM).
//!
//! The result is `[S + states, D, B, H]`: the hidden state after each step (zero after the end of a sequence), then the
//! final hidden state and the final cell state, depending on `states`.

use serde::{Deserialize, Serialize};

use super::check;
use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::element::{UnaryFn, eval_unary};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::TensorDesc;

/// Kind of recurrent cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cell {
    /// Plain RNN: `h = f(x + h R)` with hidden state `h`, input term `x` and recurrent weights `R`.
    Rnn,
    /// Gated recurrent unit.
    Gru {
        /// True if the GRU's reset gate multiplies `h R + bias` instead of the hidden state `h`. The bias is then an
        /// operand.
        linear_before_reset: bool,
    },
    /// Long short-term memory.
    Lstm {
        /// True if the gates of the LSTM also read the cell state, through peephole weights.
        peepholes: bool,
        /// True if the LSTM's forget gate is one minus the input gate.
        coupled: bool,
    },
}

impl Cell {
    /// Number of gates of the cell.
    pub fn gates(self) -> usize {
        match self {
            Self::Rnn => 1,
            Self::Gru { .. } => 3,
            Self::Lstm { .. } => 4,
        }
    }

    /// Number of activation functions per direction: 1 for an RNN, 2 for a GRU, 3 for an LSTM, as in ONNX.
    pub fn functions(self) -> usize {
        match self {
            Self::Rnn => 1,
            Self::Gru { .. } => 2,
            Self::Lstm { .. } => 3,
        }
    }

    /// Number of states that one time step of the cell passes to the next: hidden state, and cell state for an LSTM.
    pub fn states(self) -> usize {
        if matches!(self, Self::Lstm { .. }) { 2 } else { 1 }
    }

    /// True if the cell has an operand of extra weights (peepholes, or the bias of `linear_before_reset`) after the
    /// initial states.
    pub fn has_extra_weights(self) -> bool {
        matches!(self, Self::Gru { linear_before_reset: true } | Self::Lstm { peepholes: true, .. })
    }
}

/// RNN, GRU and LSTM along a sequence, after the matmul of the inputs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recurrent {
    /// Kind of recurrent cell.
    pub cell: Cell,
    /// For each direction, true if it runs from the end of a sequence to its start.
    pub reverse: Vec<bool>,
    /// Activation functions of the gates: all functions of the first direction, then all functions of the second.
    pub functions: Vec<UnaryFn>,
    /// Maximum magnitude of the arguments of the gates' activation functions; larger arguments are clipped.
    pub clip: Option<f32>,
    /// True if the last operand holds the sequence lengths.
    pub lengths: bool,
    /// Number of final states (hidden state, cell state) that the result contains.
    pub states: usize,
}

impl Recurrent {
    /// Index of the operand that holds the extra weights (peepholes, or the recurrent bias of a GRU); `None` without them.
    pub fn extra_weights(&self) -> Option<usize> {
        self.cell.has_extra_weights().then_some(2 + self.cell.states())
    }

    /// Number of operands of the recurrent operator.
    pub fn operand_count(&self) -> usize {
        2 + self.cell.states() + usize::from(self.cell.has_extra_weights()) + usize::from(self.lengths)
    }

    /// Checks the types and shapes of the operands after the gate inputs. `sizes` are the directions, the sequences, the
    /// hidden units of a gate and the hidden units of all gates.
    fn check_operands(&self, sizes: [&Dim; 4], others: &[&TensorDesc]) -> Result<(), OpError> {
        let [directions, batch, hidden, all] = sizes;
        let peepholes = hidden.scale(3);
        let mut wanted = vec![("the recurrent weights", vec![directions, hidden, all])];
        wanted.resize(1 + self.cell.states(), ("an initial state", vec![directions, batch, hidden]));
        if self.cell.has_extra_weights() {
            let each = if self.cell.gates() == 4 { &peepholes } else { hidden };
            wanted.push(("the extra weights", vec![directions, each]));
        }
        for ((role, shape), given) in wanted.iter().zip(others) {
            check::float(given, role)?;
            if given.rank() != shape.len() {
                return Err(OpError::new(format!("{role} must have rank {}, not {given}", shape.len())));
            }
            for (a, b) in given.shape.iter().zip(shape) {
                check::equal_sizes(a, b, role)?;
            }
        }
        if let Some(lengths) = others.last().filter(|_| self.lengths) {
            check::indices(lengths)?;
            check::vector(lengths, batch, "the sequence lengths")?;
        }
        Ok(())
    }
}

impl Operation for Recurrent {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, self.operand_count()..=self.operand_count())?;
        check::float(x, "the gate inputs")?;
        let [steps, batch, directions, all] = x.shape.as_slice() else {
            return Err(OpError::new(format!("the gate inputs must have rank 4, found {x}")));
        };
        let gates = self.cell.gates();
        let hidden = all.div_exact(&Dim::from(gates)).ok_or_else(|| {
            OpError::new(format!("{all} columns of gate inputs do not divide into {gates} gates"))
        })?;
        if hidden.as_known().is_none_or(|h| h < 1) {
            return Err(OpError::new(format!(
                "the number of hidden units must be known and positive, found {hidden}"
            )));
        }
        if !directions.is(i64::try_from(self.reverse.len()).unwrap_or(-1)) || self.reverse.is_empty() {
            let declared = self.reverse.len();
            return Err(OpError::new(format!(
                "the gate inputs have {directions} directions, but the operator declares {declared}"
            )));
        }
        if self.functions.len() != self.cell.functions() * self.reverse.len() {
            let wanted = self.cell.functions() * self.reverse.len();
            let reason = format!("{} activation functions, expected {wanted}", self.functions.len());
            return Err(OpError::new(reason));
        }
        if self.states > self.cell.states() {
            let most = self.cell.states();
            return Err(OpError::new(format!(
                "{} final states are requested, but the cell has only {most} states",
                self.states
            )));
        }
        self.check_operands([directions, batch, &hidden, all], &inputs[1..])?;
        let rows = steps.add(&Dim::from(self.states));
        Ok(TensorDesc::new(x.dtype, vec![rows, directions.clone(), batch.clone(), hidden]))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::Other, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let floats = inputs.iter().take(self.operand_count() - usize::from(self.lengths));
            let floats: Vec<&[f32]> = floats.map(|x| x.floats()).collect::<Result<_, _>>()?;
            let shape = &inputs[0].shape;
            let [steps, batch, directions] = [shape[0], shape[1], shape[2]];
            let mut values = vec![0.0; out.iter().product()];
            let sizes = Sizes { steps, batch, directions, hidden: out[3] };
            for d in 0..directions {
                for b in 0..batch {
                    let length = match inputs.last().filter(|_| self.lengths) {
                        Some(list) => usize::try_from(list.ints()?[b]).unwrap_or(0).min(steps),
                        None => steps,
                    };
                    self.sequence(&floats, &sizes, d, b, length, &mut values);
                }
            }
            Ok(Data::Float(values))
        })
    }
}

/// Sizes of a recurrent operator: time steps, sequences, directions and hidden units.
struct Sizes {
    steps: usize,
    batch: usize,
    directions: usize,
    hidden: usize,
}

impl Sizes {
    /// Returns the offset, in elements, of a hidden state in the result: the state of sequence `b` in direction `d` at a step.
    fn row(&self, step: usize, d: usize, b: usize) -> usize {
        ((step * self.directions + d) * self.batch + b) * self.hidden
    }
}

impl Recurrent {
    /// Computes one direction of a recurrent operator for one sequence of the batch.
    fn sequence(&self, operands: &[&[f32]], s: &Sizes, d: usize, b: usize, length: usize, out: &mut [f32]) {
        let (hidden, all) = (s.hidden, s.hidden * self.cell.gates());
        let weights = &operands[1][d * hidden * all..][..hidden * all];
        let start = |i: usize| operands[i][(d * s.batch + b) * hidden..][..hidden].to_vec();
        let mut state = start(2);
        let mut cell_state = if self.cell.states() == 2 { start(3) } else { Vec::new() };
        let extra = self.extra_weights().map_or(&[][..], |i| {
            let each = operands[i].len() / s.directions;
            &operands[i][d * each..][..each]
        });
        let n = self.cell.functions();
        let functions = &self.functions[d * n..][..n];
        for step in 0..length {
            let t = if self.reverse[d] { length - 1 - step } else { step };
            let x = &operands[0][((t * s.batch + b) * s.directions + d) * all..][..all];
            let cell = TimeStep { op: self, functions, x, weights, extra, hidden };
            match self.cell {
                Cell::Rnn => state = cell.rnn(&state),
                Cell::Gru { linear_before_reset } => state = cell.gru(&state, linear_before_reset),
                Cell::Lstm { coupled, .. } => state = cell.lstm(&state, &mut cell_state, coupled),
            }
            out[s.row(t, d, b)..][..hidden].copy_from_slice(&state);
        }
        for (i, last) in [&state, &cell_state].into_iter().take(self.states).enumerate() {
            out[s.row(s.steps + i, d, b)..][..hidden].copy_from_slice(last);
        }
    }
}

/// One time step of a recurrent operator for one sequence of the batch.
struct TimeStep<'a> {
    op: &'a Recurrent,
    functions: &'a [UnaryFn],
    x: &'a [f32],
    weights: &'a [f32],
    extra: &'a [f32],
    hidden: usize,
}

impl TimeStep<'_> {
    /// Returns the dot product of a hidden state with the recurrent weights of hidden unit `j` of a gate.
    fn product(&self, state: &[f32], gate: usize, j: usize) -> f32 {
        let column = gate * self.hidden + j;
        let products = state.iter().zip(self.weights[column..].iter().step_by(self.x.len()));
        products.map(|(h, w)| f64::from(*h) * f64::from(*w)).sum::<f64>() as f32
    }

    fn input_part(&self, gate: usize, j: usize) -> f32 {
        self.x[gate * self.hidden + j]
    }

    fn gate(&self, function: usize, x: f32) -> f32 {
        let bound = self.op.clip.map_or(x, |clip| x.clamp(-clip.abs(), clip.abs()));
        eval_unary(self.functions[function], bound)
    }

    /// Returns the peephole term of gate `i` for hidden unit `j`; 0 if the cell has no peephole weights.
    fn peephole(&self, i: usize, j: usize, cell_state: f32) -> f32 {
        self.extra.get(i * self.hidden + j).map_or(0.0, |w| w * cell_state)
    }

    fn rnn(&self, h: &[f32]) -> Vec<f32> {
        (0..self.hidden).map(|j| self.gate(0, self.input_part(0, j) + self.product(h, 0, j))).collect()
    }

    fn gru(&self, h: &[f32], linear: bool) -> Vec<f32> {
        let gate = |g: usize, j: usize| self.gate(0, self.input_part(g, j) + self.product(h, g, j));
        let reset: Vec<f32> = (0..self.hidden).map(|j| gate(1, j)).collect();
        let seen: Vec<f32> = h.iter().zip(&reset).map(|(h, r)| h * r).collect();
        let fresh = |j: usize| {
            let product = if linear {
                reset[j] * (self.product(h, 2, j) + self.extra[j])
            } else {
                self.product(&seen, 2, j)
            };
            self.gate(1, self.input_part(2, j) + product)
        };
        (0..self.hidden)
            .map(|j| {
                let (update, fresh) = (gate(0, j), fresh(j));
                fresh + update * (h[j] - fresh)
            })
            .collect()
    }

    fn lstm(&self, h: &[f32], cell_state: &mut [f32], coupled: bool) -> Vec<f32> {
        let sum = |g: usize, j: usize| self.input_part(g, j) + self.product(h, g, j);
        (0..self.hidden)
            .map(|j| {
                let before = cell_state[j];
                let input = self.gate(0, sum(0, j) + self.peephole(0, j, before));
                let forget =
                    if coupled { 1.0 - input } else { self.gate(0, sum(2, j) + self.peephole(2, j, before)) };
                cell_state[j] = forget * before + input * self.gate(1, sum(3, j));
                let output = self.gate(0, sum(1, j) + self.peephole(1, j, cell_state[j]));
                output * eval_unary(self.functions[2], cell_state[j])
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, Recurrent};
    use crate::ir::array::Array;
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::element::UnaryFn;
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    fn sums(reverse: Vec<bool>, lengths: bool, states: usize) -> Recurrent {
        let functions = vec![UnaryFn::Relu; reverse.len()];
        Recurrent { cell: Cell::Rnn, reverse, functions, clip: None, lengths, states }
    }

    #[test]
    fn directions_and_lengths() {
        // One unit that sums its inputs.
        let x = Array::f32(&[3, 2, 2, 1], vec![1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0, 5.0, 6.0, 6.0]);
        let one = Array::f32(&[2, 1, 1], vec![1.0, 1.0]);
        let start = Array::f32(&[2, 2, 1], vec![10.0, 0.0, 0.0, 20.0]);
        let op = sums(vec![false, true], false, 1);
        let y = run(&op, &[&x, &one, &start], &Bindings::new()).unwrap();
        let steps = [11.0, 2.0, 9.0, 32.0, 14.0, 6.0, 8.0, 30.0, 19.0, 12.0, 5.0, 26.0];
        assert_eq!((&y.shape[..], &y.floats().unwrap()[..12]), (&[4, 2, 2, 1][..], &steps[..]));
        assert_eq!(&y.floats().unwrap()[12..], [19.0, 12.0, 9.0, 32.0]);
        let lengths = Array::i64s(&[1, 2]);
        let y = run(&sums(vec![false, true], true, 1), &[&x, &one, &start, &lengths], &Bindings::new());
        let steps = [11.0, 2.0, 1.0, 26.0, 0.0, 6.0, 0.0, 24.0, 0.0, 0.0, 0.0, 0.0, 11.0, 6.0, 1.0, 26.0];
        assert_eq!(y.unwrap().floats().unwrap(), steps);
    }

    #[test]
    fn cells_without_recurrent_weights() {
        // The recurrent weights are zero, so a step depends on its inputs only.
        let zero = |n: usize| Array::f32(&[1, 1, n], vec![0.0; n]);
        let cell = Cell::Lstm { peepholes: true, coupled: false };
        let functions = vec![UnaryFn::Relu, UnaryFn::Relu, UnaryFn::Relu];
        let op =
            Recurrent { cell, reverse: vec![false], functions, clip: Some(8.0), lengths: false, states: 2 };
        let x = Array::f32(&[1, 1, 1, 4], vec![2.0, 1.0, 3.0, 9.0]);
        let peepholes = Array::f32(&[1, 3], vec![1.0, 0.5, -1.0]);
        let start = Array::f32(&[1, 1, 1], vec![2.0]);
        // i = 2 + 2, f = 3 - 2, c = 1 * 2 + 4 * 8, o = min(1 + c / 2, 8)
        let y = run(&op, &[&x, &zero(4), &start, &start, &peepholes], &Bindings::new()).unwrap();
        assert_eq!(y.floats().unwrap(), [272.0, 272.0, 34.0]);
        let cell = Cell::Gru { linear_before_reset: true };
        let functions = vec![UnaryFn::Relu, UnaryFn::Relu];
        let op = Recurrent { cell, reverse: vec![false], functions, clip: None, lengths: false, states: 0 };
        let x = Array::f32(&[1, 1, 1, 3], vec![0.25, 2.0, 1.0]);
        let bias = Array::f32(&[1, 1], vec![3.0]);
        // new = 1 + 2 * 3, h = 0.75 * new + 0.25 * 2
        let y = run(&op, &[&x, &zero(3), &start, &bias], &Bindings::new()).unwrap();
        assert_eq!(y.floats().unwrap(), [5.75]);
    }

    #[test]
    fn shapes() {
        let dim = |text: &str| Dim::parse(text).unwrap();
        let tensor = |shape: &[&str]| TensorDesc::new(DType::F32, shape.iter().map(|d| dim(d)).collect());
        let (x, weights) = (tensor(&["seq", "b", "1", "5"]), tensor(&["1", "5", "5"]));
        let op = sums(vec![true], false, 1);
        let y = op.infer(&[&x, &weights, &tensor(&["1", "b", "5"])]).unwrap();
        assert_eq!(y.to_string(), "f32[seq+1, 1, b, 5]");
        assert!(op.infer(&[&x, &weights, &tensor(&["2", "b", "5"])]).is_err());
        assert!(op.infer(&[&x, &weights]).is_err());
        assert!(sums(vec![true, false], false, 0).infer(&[&x, &weights, &tensor(&["1", "b", "5"])]).is_err());
        let none = Array::f32(&[0, 2, 1, 1], vec![]);
        let one = Array::f32(&[1, 1, 1], vec![1.0]);
        let start = Array::f32(&[1, 2, 1], vec![3.0, 4.0]);
        let y = run(&op, &[&none, &one, &start], &Bindings::new()).unwrap();
        assert_eq!(y.floats().unwrap(), [3.0, 4.0]);
    }
}
