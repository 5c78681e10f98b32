// RNN, GRU and LSTM along sequences, in one dispatch, or in several if the device limits loop iterations. A workgroup
// computes ROWS sequences in one direction, up to the length of the longest sequence. The states of the sequences stay
// in workgroup memory. In each step, every invocation multiplies the states by a vec4 of columns of the weights; SPLIT
// invocations split the sum of a column. Then each invocation computes hidden units from the sums of their gates.
// Loaded weights serve all ROWS sequences. Where shuffles are cheap, the invocations of a subgroup load different
// states and exchange them.
//
// The compiler replaces the knobs, the sizes, the kind of cell, the activation functions and the hooks. The result of
// `load_weights` past the last column is not used.

const THREADS = 64u;
const ROWS = 1u;
const SPLIT = 2u;
/// Number of hidden units.
const HIDDEN = 6u;
/// Number of gates per hidden unit.
const GATES = 4u;
/// Kind of recurrent cell: 0 is RNN, 1 is GRU, 2 is GRU with `linear_before_reset`, 3 is LSTM.
const CELL = 3u;
const PEEPHOLES = false;
/// True if the forget gate of an LSTM is 1 minus the input gate.
const COUPLED = false;
/// Number of final states that the result holds after the outputs of all steps: 0, 1 (the hidden state), or 2 (the
/// hidden state and the cell state).
const OUTPUT_STATES = 0u;
/// Number of sets of states in workgroup memory. A GRU that resets the state before the matmul has two.
const STATE_SETS = 1u;
/// True in the last dispatch of the node, false if another dispatch continues the sequences.
const LAST_DISPATCH = true;
/// Number of invocations of a subgroup that exchange the states they load; 1 if each invocation loads all states.
const LANES = 1u;
/// Number of vec4s of states that invocations exchange: a multiple of LANES, or 0 if LANES is 1.
const EXCHANGED = 0u;

const DEPTH = (HIDDEN + 3u) / 4u;
const COLUMNS = (GATES * HIDDEN + 3u) / 4u;
const WIDTH = COLUMNS * 4u;
/// Index in `states`, in vec4s, at which the states multiplied by the reset gate start.
const RESET_STATES = ROWS * DEPTH;
const_assert ROWS > 0u && SPLIT > 0u && HIDDEN > 0u && (CELL != 1u || STATE_SETS == 2u);
const_assert LANES == 1u || (SPLIT == 1u && THREADS % LANES == 0u && EXCHANGED % LANES == 0u && EXCHANGED <= DEPTH);

@group(0) @binding(0) var<storage, read> gates: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weights: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> start: array<f32>;
@group(0) @binding(3) var<storage, read_write> result: array<f32>;

/// Maximum length of a sequence in steps: the size of the sequence axis of the operand.
fn steps() -> u32 { return 5u; }
/// Number of sequences.
fn batch() -> u32 { return 2u; }
/// First sequence step that this dispatch computes.
fn first() -> u32 { return 0u; }
/// End (exclusive) of the sequence steps that this dispatch computes.
fn last() -> u32 { return steps(); }
/// Returns the length of a sequence in steps.
fn length_of(b: u32) -> u32 { return steps(); }
/// True if direction `d` starts at the end of a sequence.
fn reversed(d: u32) -> bool { return d == 1u; }
/// Loads the product of input and weights, computed by an earlier node, for four adjacent gate columns at position `t`
/// of sequence `b`.
fn load_gates(t: u32, b: u32, d: u32, n4: u32) -> vec4<f32> { return gates[((t * 2u + b) * 2u + d) * 6u + n4]; }
/// Loads the product of input and weights, computed by an earlier node, for one gate column at position `t` of sequence
/// `b`.
fn load_gate(t: u32, b: u32, d: u32, n: u32) -> f32 { return gates[((t * 2u + b) * 2u + d) * 6u + n / 4u][n % 4u]; }
/// Loads a vec4 of columns of the recurrent weights, in the row of hidden unit `k`.
fn load_weights(d: u32, k: u32, n4: u32) -> vec4<f32> { return weights[(d * 6u + k) * 6u + n4]; }
/// Loads the initial state of hidden unit `j` for sequence `b` in direction `d`.
fn load_state(d: u32, b: u32, j: u32) -> f32 { return start[(d * 2u + b) * 6u + j]; }
/// Loads the initial cell state of hidden unit `j` of an LSTM for sequence `b` in direction `d`.
fn load_cell_state(d: u32, b: u32, j: u32) -> f32 { return 0.0; }
/// Loads a peephole weight of an LSTM, or the recurrent bias of a GRU with `linear_before_reset`.
fn load_extra(d: u32, i: u32) -> f32 { return 0.0; }
/// Activation functions of the cell, in the operator's order. The third one is for the cell state of an LSTM.
fn function0(d: u32, x: f32) -> f32 { return 1.0 / (1.0 + exp(-x)); }
fn function1(d: u32, x: f32) -> f32 { return tanh(x); }
fn function2(d: u32, x: f32) -> f32 { return tanh(x); }
/// Stores a state (`which` is 0) or a cell state (`which` is 1) for the next dispatch.
fn store_carried(which: u32, d: u32, b: u32, j: u32, v: f32) {}
fn store(t: u32, d: u32, b: u32, j: u32, v: f32) { result[((t * 2u + d) * 2u + b) * 6u + j] = v; }

/// States of the hidden units, padded with zeros. In a GRU that resets the state before the matmul, the states
/// multiplied by the reset gate follow.
var<workgroup> states: array<vec4<f32>, RESET_STATES * STATE_SETS>;
/// Cell states of an LSTM, or update gates of a GRU.
var<workgroup> cell_states: array<f32, ROWS * HIDDEN>;
var<workgroup> sums: array<f32, SPLIT * ROWS * WIDTH>;

/// Returns the vec4 of states that invocation `i` of the subgroup loaded.
fn state_of(own: vec4<f32>, i: u32) -> vec4<f32> { return own; }

/// Returns the position in a sequence of `length` steps that step `s` computes. A reversed direction counts from the
/// end.
fn position(d: u32, s: u32, length: u32) -> u32 { return select(s, length - 1u - s, reversed(d) && s < length); }

/// Multiplies the states from index `base` by columns `first..end` (in vec4s) of the recurrent weights, and adds the
/// products of input and weights that `load_gates` returns.
fn multiply(local: u32, s: u32, d: u32, b0: u32, base: u32, first: u32, end: u32) {
    let items = (end - first) * SPLIT;
    for (var offset = 0u; offset < items; offset += THREADS) {
        if (LANES == 1u && offset + local >= items) { break; }
        // With exchanged states, invocations past the last column repeat it.
        let at = min(offset + local, items - 1u);
        let column = first + at % (end - first);
        let split_index = at / (end - first);
        var acc: array<vec4<f32>, ROWS>;
        // unroll
        for (var r = 0u; r < ROWS; r++) {
            acc[r] = vec4<f32>(0.0);
            if (CELL != 2u && split_index == 0u) {
                let b = min(b0 + r, batch() - 1u);
                acc[r] = load_gates(position(d, s, length_of(b)), b, d, column);
            }
        }
        for (var k = 0u; k < EXCHANGED; k += LANES) {
            var own: array<vec4<f32>, ROWS>;
            // unroll
            for (var r = 0u; r < ROWS; r++) { own[r] = states[base + r * DEPTH + k + local % LANES]; }
            // unroll
            for (var i = 0u; i < LANES; i++) {
                let w0 = load_weights(d, (k + i) * 4u, column);
                let w1 = load_weights(d, min((k + i) * 4u + 1u, HIDDEN - 1u), column);
                let w2 = load_weights(d, min((k + i) * 4u + 2u, HIDDEN - 1u), column);
                let w3 = load_weights(d, min((k + i) * 4u + 3u, HIDDEN - 1u), column);
                // unroll
                for (var r = 0u; r < ROWS; r++) {
                    let h = state_of(own[r], i);
                    acc[r] += h.x * w0 + h.y * w1 + h.z * w2 + h.w * w3;
                }
            }
        }
        for (var k4 = EXCHANGED + split_index; k4 < DEPTH; k4 += SPLIT) {
            let w0 = load_weights(d, k4 * 4u, column);
            let w1 = load_weights(d, min(k4 * 4u + 1u, HIDDEN - 1u), column);
            let w2 = load_weights(d, min(k4 * 4u + 2u, HIDDEN - 1u), column);
            let w3 = load_weights(d, min(k4 * 4u + 3u, HIDDEN - 1u), column);
            // unroll
            for (var r = 0u; r < ROWS; r++) {
                let h = states[base + r * DEPTH + k4];
                acc[r] += h.x * w0 + h.y * w1 + h.z * w2 + h.w * w3;
            }
        }
        // unroll
        for (var r = 0u; r < ROWS; r++) {
            let to = (split_index * ROWS + r) * WIDTH + column * 4u;
            sums[to] = acc[r].x;
            sums[to + 1u] = acc[r].y;
            sums[to + 2u] = acc[r].z;
            sums[to + 3u] = acc[r].w;
        }
    }
    workgroupBarrier();
}

/// Returns the sum of gate `g` of hidden unit `j`, added over the SPLIT partial sums.
fn sum(r: u32, g: u32, j: u32) -> f32 {
    var total = sums[r * WIDTH + g * HIDDEN + j];
    for (var p = 1u; p < SPLIT; p++) { total += sums[(p * ROWS + r) * WIDTH + g * HIDDEN + j]; }
    return total;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) { run(group, local); }

fn run(group: vec3<u32>, local: u32) {
    let b0 = group.x * ROWS;
    let d = group.y;
    for (var i = local; i < ROWS * DEPTH * 4u; i += THREADS) {
        let r = i / (DEPTH * 4u);
        let j = i % (DEPTH * 4u);
        var h = 0.0;
        if (j < HIDDEN) { h = load_state(d, min(b0 + r, batch() - 1u), j); }
        states[i / 4u][i % 4u] = h;
        if (CELL == 1u) { states[RESET_STATES + i / 4u][i % 4u] = 0.0; }
    }
    for (var i = local; i < ROWS * HIDDEN; i += THREADS) {
        cell_states[i] = 0.0;
        if (CELL == 3u) { cell_states[i] = load_cell_state(d, min(b0 + i / HIDDEN, batch() - 1u), i % HIDDEN); }
    }
    workgroupBarrier();
    // After the end of the workgroup's longest sequence, all outputs are zero.
    var longest = 0u;
    for (var r = 0u; r < ROWS; r++) { longest = max(longest, length_of(min(b0 + r, batch() - 1u))); }
    for (var s = first(); s < min(last(), longest); s++) {
        if (CELL == 1u) {
            multiply(local, s, d, b0, 0u, 0u, (2u * HIDDEN + 3u) / 4u);
            for (var i = local; i < ROWS * HIDDEN; i += THREADS) {
                let r = i / HIDDEN;
                let j = i % HIDDEN;
                cell_states[i] = function0(d, sum(r, 0u, j));
                let h = states[r * DEPTH + j / 4u][j % 4u];
                states[RESET_STATES + r * DEPTH + j / 4u][j % 4u] = h * function0(d, sum(r, 1u, j));
            }
            workgroupBarrier();
            multiply(local, s, d, b0, RESET_STATES, 2u * HIDDEN / 4u, COLUMNS);
        } else {
            multiply(local, s, d, b0, 0u, 0u, COLUMNS);
        }
        for (var i = local; i < ROWS * HIDDEN; i += THREADS) {
            let r = i / HIDDEN;
            let j = i % HIDDEN;
            let b = b0 + r;
            // A row past the last sequence of the batch repeats the last sequence and stores nothing.
            let n = length_of(min(b, batch() - 1u));
            let t = position(d, s, n);
            let previous = states[r * DEPTH + j / 4u][j % 4u];
            var h = previous;
            if (CELL == 0u) {
                h = function0(d, sum(r, 0u, j));
            } else if (CELL == 1u) {
                let candidate = function1(d, sum(r, 2u, j));
                h = candidate + cell_states[i] * (previous - candidate);
            } else if (CELL == 2u) {
                let at = min(b, batch() - 1u);
                let update = function0(d, load_gate(t, at, d, j) + sum(r, 0u, j));
                let reset = function0(d, load_gate(t, at, d, HIDDEN + j) + sum(r, 1u, j));
                let product = reset * (sum(r, 2u, j) + load_extra(d, j));
                let candidate = function1(d, load_gate(t, at, d, 2u * HIDDEN + j) + product);
                h = candidate + update * (previous - candidate);
            } else {
                var cell = cell_states[i];
                var gate_i = sum(r, 0u, j);
                var gate_o = sum(r, 1u, j);
                var gate_f = sum(r, 2u, j);
                if (PEEPHOLES) {
                    gate_i += load_extra(d, j) * cell;
                    gate_f += load_extra(d, 2u * HIDDEN + j) * cell;
                }
                let input = function0(d, gate_i);
                var forget = 1.0 - input;
                if (!COUPLED) { forget = function0(d, gate_f); }
                cell = forget * cell + input * function1(d, sum(r, 3u, j));
                if (PEEPHOLES) { gate_o += load_extra(d, HIDDEN + j) * cell; }
                h = function0(d, gate_o) * function2(d, cell);
                if (s < n) { cell_states[i] = cell; }
            }
            if (s < n) { states[r * DEPTH + j / 4u][j % 4u] = h; }
            if (b < batch()) { store(t, d, b, j, select(0.0, h, s < n)); }
        }
        workgroupBarrier();
    }
    for (var s = max(first(), longest); s < last(); s++) {
        for (var i = local; i < ROWS * HIDDEN; i += THREADS) {
            let b = b0 + i / HIDDEN;
            if (b < batch()) { store(s, d, b, i % HIDDEN, 0.0); }
        }
    }
    if (!LAST_DISPATCH || OUTPUT_STATES > 0u) {
        for (var i = local; i < ROWS * HIDDEN; i += THREADS) {
            let r = i / HIDDEN;
            let j = i % HIDDEN;
            if (b0 + r < batch() && !LAST_DISPATCH) {
                store_carried(0u, d, b0 + r, j, states[r * DEPTH + j / 4u][j % 4u]);
                if (CELL == 3u) { store_carried(1u, d, b0 + r, j, cell_states[i]); }
            } else if (b0 + r < batch()) {
                store(steps(), d, b0 + r, j, states[r * DEPTH + j / 4u][j % 4u]);
                if (OUTPUT_STATES > 1u) { store(steps() + 1u, d, b0 + r, j, cell_states[i]); }
            }
        }
    }
}
