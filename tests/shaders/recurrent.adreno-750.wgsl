// @generated for recurrent/0 f32: recurrent THREADS=16 ROWS=1 SPLIT=2
const THREADS = 16u;
const ROWS = 1u;
const SPLIT = 2u;
const HIDDEN = 5u;
const GATES = 1u;
const CELL = 0u;
const PEEPHOLES = false;
const COUPLED = false;
const OUTPUT_STATES = 1u;
const STATE_SETS = 1u;
const LAST_DISPATCH = true;
const LANES = 1u;
const EXCHANGED = 0u;
const DEPTH = (HIDDEN + 3u) / 4u;
const COLUMNS = (GATES * HIDDEN + 3u) / 4u;
const WIDTH = COLUMNS * 4u;
const RESET_STATES = ROWS * DEPTH;
const_assert ROWS > 0u && SPLIT > 0u && HIDDEN > 0u && (CELL != 1u || STATE_SETS == 2u);
const_assert LANES == 1u || (SPLIT == 1u && THREADS % LANES == 0u && EXCHANGED % LANES == 0u && EXCHANGED <= DEPTH);
fn steps() -> u32 { return 7u; }
fn batch() -> u32 { return 3u; }
fn first() -> u32 { return 0u; }
fn last() -> u32 { return steps(); }
fn length_of(b: u32) -> u32 { return steps(); }
fn reversed(d: u32) -> bool { return d == 1u; }
fn load_gates(t: u32, b: u32, d: u32, n4: u32) -> vec4<f32> {
    var r: vec4<f32> = vec4<f32>(0.0);
    r.x = f32(buffer_0[(t) * 30u + (b) * 10u + (d) * 5u + (((n4) * 4u))]);
    if ((n4) * 4u + 1u < 5u) { r.y = f32(buffer_0[(t) * 30u + (b) * 10u + (d) * 5u + (((n4) * 4u)) + 1u]); }
    if ((n4) * 4u + 2u < 5u) { r.z = f32(buffer_0[(t) * 30u + (b) * 10u + (d) * 5u + (((n4) * 4u)) + 2u]); }
    if ((n4) * 4u + 3u < 5u) { r.w = f32(buffer_0[(t) * 30u + (b) * 10u + (d) * 5u + (((n4) * 4u)) + 3u]); }
    return r;
}
fn load_gate(t: u32, b: u32, d: u32, n: u32) -> f32 { return 0.0; }
fn load_weights(d: u32, k: u32, n4: u32) -> vec4<f32> {
    var r: vec4<f32> = vec4<f32>(0.0);
    r.x = f32(buffer_1[(d) * 25u + (k) * 5u + (((n4) * 4u))]);
    if ((n4) * 4u + 1u < 5u) { r.y = f32(buffer_1[(d) * 25u + (k) * 5u + (((n4) * 4u)) + 1u]); }
    if ((n4) * 4u + 2u < 5u) { r.z = f32(buffer_1[(d) * 25u + (k) * 5u + (((n4) * 4u)) + 2u]); }
    if ((n4) * 4u + 3u < 5u) { r.w = f32(buffer_1[(d) * 25u + (k) * 5u + (((n4) * 4u)) + 3u]); }
    return r;
}
fn load_state(d: u32, b: u32, j: u32) -> f32 {
    return f32(buffer_2[(d) * 15u + (b) * 5u + (j)]);
}
fn load_cell_state(d: u32, b: u32, j: u32) -> f32 { return 0.0; }
fn load_extra(d: u32, i: u32) -> f32 { return 0.0; }
fn function0(d: u32, x: f32) -> f32 {
    if (d == 1u) {
    let s1 = min(max(x, f32(-0.5)), f32(0.5));
    let s2 = max(s1, f32(0.0));
    return s2;
    }
    let s1 = min(max(x, f32(-0.5)), f32(0.5));
    let s2 = tanh_safe(s1);
    return s2;
}
fn function1(d: u32, x: f32) -> f32 { return tanh(x); }
fn function2(d: u32, x: f32) -> f32 { return tanh(x); }
fn store_carried(which: u32, d: u32, b: u32, j: u32, v: f32) {}
fn store(t: u32, d: u32, b: u32, j: u32, v: f32) {
    buffer_3[(t) * 30u + (d) * 15u + (b) * 5u + (j)] = f32(v);
}
var<workgroup> states: array<vec4<f32>, RESET_STATES * STATE_SETS>;
var<workgroup> cell_states: array<f32, ROWS * HIDDEN>;
var<workgroup> sums: array<f32, SPLIT * ROWS * WIDTH>;
fn state_of(own: vec4<f32>, i: u32) -> vec4<f32> { return own; }
fn position(d: u32, s: u32, length: u32) -> u32 { return select(s, length - 1u - s, reversed(d) && s < length); }
fn multiply(local: u32, s: u32, d: u32, b0: u32, base: u32, first: u32, end: u32) {
    let items = (end - first) * SPLIT;
    for (var offset = 0u; offset < items; offset += THREADS) {
        if (LANES == 1u && offset + local >= items) { break; }
        let at = min(offset + local, items - 1u);
        let column = first + at % (end - first);
        let split_index = at / (end - first);
        var acc: array<vec4<f32>, ROWS>;
        {
            acc[0u] = vec4<f32>(0.0);
            if (CELL != 2u && split_index == 0u) {
                let b = min(b0 + 0u, batch() - 1u);
                acc[0u] = load_gates(position(d, s, length_of(b)), b, d, column);
            }
        }
        for (var k = 0u; k < EXCHANGED; k += LANES) {
            var own: array<vec4<f32>, ROWS>;
            { own[0u] = states[base + 0u * DEPTH + k + local % LANES]; }
            {
                let w0 = load_weights(d, (k + 0u) * 4u, column);
                let w1 = load_weights(d, min((k + 0u) * 4u + 1u, HIDDEN - 1u), column);
                let w2 = load_weights(d, min((k + 0u) * 4u + 2u, HIDDEN - 1u), column);
                let w3 = load_weights(d, min((k + 0u) * 4u + 3u, HIDDEN - 1u), column);
                {
                    let h = state_of(own[0u], 0u);
                    acc[0u] += h.x * w0 + h.y * w1 + h.z * w2 + h.w * w3;
                }
            }
        }
        for (var k4 = EXCHANGED + split_index; k4 < DEPTH; k4 += SPLIT) {
            let w0 = load_weights(d, k4 * 4u, column);
            let w1 = load_weights(d, min(k4 * 4u + 1u, HIDDEN - 1u), column);
            let w2 = load_weights(d, min(k4 * 4u + 2u, HIDDEN - 1u), column);
            let w3 = load_weights(d, min(k4 * 4u + 3u, HIDDEN - 1u), column);
            {
                let h = states[base + 0u * DEPTH + k4];
                acc[0u] += h.x * w0 + h.y * w1 + h.z * w2 + h.w * w3;
            }
        }
        {
            let to = (split_index * ROWS + 0u) * WIDTH + column * 4u;
            sums[to] = acc[0u].x;
            sums[to + 1u] = acc[0u].y;
            sums[to + 2u] = acc[0u].z;
            sums[to + 3u] = acc[0u].w;
        }
    }
    workgroupBarrier();
}
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
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read> buffer_1: array<f32>;
@group(0) @binding(2) var<storage, read> buffer_2: array<f32>;
@group(0) @binding(3) var<storage, read_write> buffer_3: array<f32>;
alias Elem = f32;
fn tanh_safe(x: Elem) -> Elem {
    return tanh(clamp(x, Elem(-15.0), Elem(15.0)));
}
