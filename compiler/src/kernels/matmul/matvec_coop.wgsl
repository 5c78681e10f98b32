// Small-M matmul with a quantized constant on matrix units: `result = a * b`, f16 inputs and f32 sums. The constant is
// packed into panels of 16 columns, as `matvec_quantized.wgsl` explains. A workgroup computes all rows of PANELS panels
// of each constant. Each of its SUBGROUPS subgroups takes every SUBGROUPS-th step of STEP_K8S groups of eight K
// positions. An invocation loads eight K positions of four columns and dequantizes them to f16. Weights and rows pass
// through the subgroup's own range of workgroup memory. STEPS_IN_FLIGHT steps are loaded before the first is
// multiplied. At the end the sums of all subgroups are added in order. The rows of a fragment are independent, so a row
// has equal sums for every M.
//
// RMSNorm of the rows, a second weight matrix and RoPE may be fused, as in `matvec_quantized.wgsl`.
//
// The compiler replaces the knobs, the sizes and the hooks. `load_a` is only called for positions within K. Eight f16
// are stored as the bits of a vec4<f32>; `coop.wgsl` explains why.

enable wgpu_cooperative_matrix;

const LANES = 32u;
const SIDE_M = 16u;
const SIDE_N = 16u;
const SIDE_K = 16u;
alias MatrixA = coop_mat16x16<f32, A>;
alias MatrixB = coop_mat16x16<f32, B>;
alias MatrixC = coop_mat16x16<f32, C>;
const SUBGROUPS = 4u;
const THREADS = SUBGROUPS * LANES;
/// Maximum rows.
const ROWS = 16u;
/// Number of 16-byte vectors that hold the quantized values of eight K positions of four columns.
const VECTORS_PER_K8 = 1u;
/// True if the quantization scale is applied to each value when it is dequantized, false if it is applied to the sums at the end.
const SCALED_VALUES = true;
/// True if the groups of quantized values have biases, false if they have only scales.
const BIASED = false;
/// Number of weight matrices.
const MATRICES = 2u;
/// Number of panels (blocks of 16 columns) of each weight matrix that a workgroup computes.
const PANELS = 1u;
/// Number of panels (blocks of 16 columns) that a workgroup computes, over all weight matrices.
const WORKGROUP_PANELS = MATRICES * PANELS;
/// True if rows are normalized before the matmul (fused RMSNorm).
const NORMALIZED = true;
/// Fused RoPE, which rotates pairs of columns. 0: none, 1: adjacent columns, 2: columns half a head apart.
const ROTATED = 0u;
/// Number of panels (blocks of 16 columns) that half of an attention head spans.
const HALF_PANELS = 1u;
/// 1 if fragments of rows are loaded from global memory, else 0. With 1, the rows fill whole fragments and whole steps along K.
const DIRECT = 0u;
/// Number of rows, padded to whole fragments, that are copied to workgroup memory; 0 if DIRECT is 1.
const STAGED_ROWS = 16u;
/// Number of steps along K that are loaded before the first is multiplied.
const STEPS_IN_FLIGHT = 2u;
/// True if a subgroup multiplies more than STEPS_IN_FLIGHT steps, so that it needs several rounds.
const SEVERAL_ROUNDS = true;
/// True if K may end within the steps of a round, so that reads along K need a bounds check.
const GUARD_K = true;

/// Factor by which elements of a row are multiplied before they become f16, in a matmul with a fused norm. The norm is
/// applied to the sums, so without the factor elements could exceed the range of f16. The sums are divided by the factor.
const X_SCALE = 0.015625;
/// Number of groups of eight K positions per step along K. Each invocation loads one such group, of rows and of four columns.
const STEP_K8S = LANES / 4u;
/// Distance between adjacent rows in workgroup memory, in vec4s. It includes 16 bytes of padding, which spread rows
/// over the memory's banks.
const ROW_STRIDE = STEP_K8S + 1u;
/// Number of matrix fragments along M.
const FRAGS_M = (ROWS + SIDE_M - 1u) / SIDE_M;
/// Number of matrix fragments along N in a panel (block of 16 columns).
const FRAGS_N = 16u / SIDE_N;
/// Number of matrix fragments that hold the sums of a panel (block of 16 columns).
const FRAGS = FRAGS_M * FRAGS_N;
/// Number of matrix fragments along K in a step.
const FRAGS_K = STEP_K8S * 8u / SIDE_K;
/// Number of rows of the matmul, padded to whole fragments.
const FRAG_ROWS = FRAGS_M * SIDE_M;
/// Workgroup memory for a subgroup's rows, in vec4s.
const SIZE_A = STAGED_ROWS * ROW_STRIDE;
/// Workgroup memory for a subgroup's sums of one panel (block of 16 columns), in vec4s.
const SIZE_C = FRAG_ROWS * 4u;
/// Workgroup memory of a subgroup, in vec4s: for rows and the columns of a panel, and at the end for the sums of all
/// panels.
const SUBGROUP_VECTORS = max(SIZE_A + 16u * ROW_STRIDE, WORKGROUP_PANELS * SIZE_C);
/// Number of groups of eight row elements that an invocation copies to workgroup memory per step.
const ROW_PASSES = (ROWS + 3u) / 4u;
const_assert LANES % 4u == 0u && 16u % SIDE_N == 0u && (STEP_K8S * 8u) % SIDE_K == 0u;

@group(0) @binding(0) var<storage, read> a_buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> panels: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 3u; }
fn size_n() -> u32 { return 32u; }
fn size_k8() -> u32 { return 8u; }
/// Returns the number of rounds. In a round, each subgroup multiplies STEPS_IN_FLIGHT steps along K.
fn rounds() -> u32 { return 1u; }
/// Returns the size of a packed panel (block of 16 columns), in vec4s.
fn panel_vec4s() -> u32 { return 40u; }
/// Returns the index of the last panel (block of 16 columns) of a weight matrix.
fn last_panel() -> u32 { return 1u; }
/// Returns the number of groups of eight K positions that share a scale.
fn k8s_per_group() -> u32 { return 4u; }

/// Loads eight elements of row `row` of the first operand, from K position `8 * k8`, as f16 pairs.
fn load_a(row: u32, k8: u32) -> vec4<f32> { return a_buffer[row * 8u + k8]; }
/// Loads the matrix fragment of the first operand that starts at row `row` and K position `8 * k8`.
fn fragment_a(row: u32, k8: u32) -> MatrixA { return MatrixA(); }
/// Returns four elements of the fused norm's scale, from K position `4 * k4`.
fn load_scale(k4: u32) -> vec4<f32> { return vec4<f32>(1.0); }
/// Returns the epsilon of the fused norm.
fn epsilon() -> f32 { return 1e-5; }
/// Loads the vec4 with index `at` of weight matrix `c` (0 or 1): packed words of four columns.
fn load_b(c: u32, at: u32) -> vec4<u32> { return panels[at]; }
/// Returns the scales of quantization group `g` for four columns of a panel, from column `4 * q` of the panel. The
/// panel belongs to weight matrix `c` and starts at vec4 `base`.
fn group_scale(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(1.0); }
/// Returns the biases of quantization group `g` for four columns of a panel, from column `4 * q` of the panel. The
/// panel belongs to weight matrix `c` and starts at vec4 `base`.
fn group_bias(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(0.0); }
/// Dequantizes eight values of one or two packed words to f16 pairs.
fn dequantize8(first: u32, second: u32, scale: f32, bias: f32) -> vec4<u32> { return vec4<u32>(first); }
/// Combines the results of the two weight matrices, such as in a SwiGLU gate. Without a second matrix, returns the first result.
fn combine(first: vec4<f32>, second: vec4<f32>) -> vec4<f32> { return first * second; }
/// Rotates four elements of a result row by RoPE. `paired` holds the elements with which RoPE pairs them, one for each.
fn rotate(row: u32, n4: u32, v: vec4<f32>, paired: vec4<f32>) -> vec4<f32> { return v; }
/// Returns the index in the weight matrix of the workgroup's panel `i`; a panel holds 16 columns. If RoPE rotates
/// columns that are half a head apart, the workgroup's two panels are half a head apart as well.
fn panel_index(group: u32, i: u32) -> u32 {
    if (ROTATED == 2u) { return group / HALF_PANELS * 2u * HALF_PANELS + group % HALF_PANELS + i * HALF_PANELS; }
    return group * PANELS + i;
}
/// Applies the epilogue to four elements of row `row` of the result, from column `4 * n4`, and stores them.
fn store(row: u32, n4: u32, v: vec4<f32>) { result[row * 8u + n4] = v; }

var<workgroup> subgroup_memory: array<vec4<f32>, SUBGROUPS * SUBGROUP_VECTORS>;
var<workgroup> squares: array<f32, SUBGROUPS * FRAG_ROWS>;

/// Returns the index of the first vec4 of the workgroup's panel `t % PANELS` in weight matrix `t / PANELS`.
fn panel_base(group: u32, t: u32) -> u32 { return min(panel_index(group, t % PANELS), last_panel()) * panel_vec4s(); }

/// Returns the matmul's result of row `r` in four adjacent columns. `at` counts the vec4s of columns of the workgroup's panels.
fn final_sum(group: u32, r: u32, at: u32) -> vec4<f32> {
    var sums: array<vec4<f32>, MATRICES>;
    // unroll
    for (var m = 0u; m < MATRICES; m++) {
        let t = m * PANELS + at / 4u;
        let sum_index = t * SIZE_C + r * 4u + at % 4u;
        sums[m] = subgroup_memory[sum_index];
        // unroll
        for (var i = 1u; i < SUBGROUPS; i++) { sums[m] += subgroup_memory[i * SUBGROUP_VECTORS + sum_index]; }
        if (!SCALED_VALUES) { sums[m] *= group_scale(m, panel_base(group, t), 0u, at % 4u); }
    }
    if (NORMALIZED) {
        var square = squares[r];
        // unroll
        for (var i = 1u; i < SUBGROUPS; i++) { square += squares[i * FRAG_ROWS + r]; }
        let factor = inverseSqrt(square / f32(size_k8() * 8u) + epsilon()) / X_SCALE;
        // unroll
        for (var m = 0u; m < MATRICES; m++) { sums[m] *= factor; }
    }
    return combine(sums[0], sums[MATRICES - 1u]);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let group = group_id.x;
    let subgroup = local / LANES;
    let lane = local % LANES;
    let memory_base = subgroup * SUBGROUP_VECTORS;
    let columns_base = memory_base + SIZE_A;
    let lane_k8 = lane % STEP_K8S;
    let q = lane / STEP_K8S;
    // Rows of a fragment past the last row of the matmul stay zero.
    // unroll
    for (var p = 0u; p < STAGED_ROWS / 4u; p++) { subgroup_memory[memory_base + (q + p * 4u) * ROW_STRIDE + lane_k8] = vec4<f32>(); }
    var acc: array<MatrixC, WORKGROUP_PANELS * FRAGS>;
    // unroll
    for (var t = 0u; t < WORKGROUP_PANELS * FRAGS; t++) { acc[t] = MatrixC(); }
    var square: array<f32, ROW_PASSES>;
    // unroll
    for (var p = 0u; p < ROW_PASSES; p++) { square[p] = 0.0; }
    var loaded_words: array<vec4<u32>, STEPS_IN_FLIGHT * WORKGROUP_PANELS * VECTORS_PER_K8>;
    var scales: array<vec4<f32>, STEPS_IN_FLIGHT * WORKGROUP_PANELS>;
    var loaded_rows: array<vec4<f32>, STEPS_IN_FLIGHT * ROW_PASSES>;
    var loaded_fragments: array<MatrixA, STEPS_IN_FLIGHT * FRAGS_M * FRAGS_K>;
    // unroll
    for (var s = 0u; s < STEPS_IN_FLIGHT; s++) {
        let assigned_k8 = (s * SUBGROUPS + subgroup) * STEP_K8S + lane_k8;
        let k8 = select(assigned_k8, min(assigned_k8, size_k8() - 1u), GUARD_K);
        // unroll
        for (var t = 0u; t < WORKGROUP_PANELS; t++) {
            // unroll
            for (var u = 0u; u < VECTORS_PER_K8; u++) {
                loaded_words[(s * WORKGROUP_PANELS + t) * VECTORS_PER_K8 + u] = load_b(t / PANELS, panel_base(group, t) + (k8 * VECTORS_PER_K8 + u) * 4u + q);
            }
            scales[s * WORKGROUP_PANELS + t] = vec4<f32>(1.0);
            if (SCALED_VALUES) { scales[s * WORKGROUP_PANELS + t] = group_scale(t / PANELS, panel_base(group, t), k8 / k8s_per_group(), q); }
        }
        // unroll
        for (var f = 0u; f < DIRECT * FRAGS_M * FRAGS_K; f++) {
            let start = select(assigned_k8 - lane_k8, min(assigned_k8 - lane_k8, size_k8() - STEP_K8S), GUARD_K);
            loaded_fragments[s * FRAGS_M * FRAGS_K + f] = fragment_a(f / FRAGS_K * SIDE_M, start + f % FRAGS_K * (SIDE_K / 8u));
        }
        // unroll
        for (var p = 0u; p < (1u - DIRECT) * ROW_PASSES; p++) {
            loaded_rows[s * ROW_PASSES + p] = vec4<f32>();
            if (q + p * 4u < size_m()) { loaded_rows[s * ROW_PASSES + p] = load_a(q + p * 4u, k8); }
        }
    }
    for (var round = 0u; round < rounds(); round++) {
        // unroll
        for (var s = 0u; s < STEPS_IN_FLIGHT; s++) {
            let assigned_k8 = ((round * STEPS_IN_FLIGHT + s) * SUBGROUPS + subgroup) * STEP_K8S + lane_k8;
            let k8 = select(assigned_k8, min(assigned_k8, size_k8() - 1u), GUARD_K);
            let inside = !GUARD_K || assigned_k8 < size_k8();
            // The loads of the next round replace the values that this round multiplies, so these values are copied first.
            var words: array<vec4<u32>, WORKGROUP_PANELS * VECTORS_PER_K8>;
            var scale: array<vec4<f32>, WORKGROUP_PANELS>;
            var staged: array<vec4<f32>, ROW_PASSES>;
            var a: array<MatrixA, FRAGS_M * FRAGS_K>;
            let next_k8 = min(assigned_k8 + STEPS_IN_FLIGHT * SUBGROUPS * STEP_K8S, size_k8() - 1u);
            let next_step_k8 = min(assigned_k8 - lane_k8 + STEPS_IN_FLIGHT * SUBGROUPS * STEP_K8S, size_k8() - min(size_k8(), STEP_K8S));
            // unroll
            for (var u = 0u; u < WORKGROUP_PANELS * VECTORS_PER_K8; u++) {
                words[u] = loaded_words[s * WORKGROUP_PANELS * VECTORS_PER_K8 + u];
                if (SEVERAL_ROUNDS) { loaded_words[s * WORKGROUP_PANELS * VECTORS_PER_K8 + u] = load_b(u / VECTORS_PER_K8 / PANELS, panel_base(group, u / VECTORS_PER_K8) + (next_k8 * VECTORS_PER_K8 + u % VECTORS_PER_K8) * 4u + q); }
            }
            // unroll
            for (var t = 0u; t < WORKGROUP_PANELS; t++) {
                scale[t] = scales[s * WORKGROUP_PANELS + t];
                if (SEVERAL_ROUNDS && SCALED_VALUES) { scales[s * WORKGROUP_PANELS + t] = group_scale(t / PANELS, panel_base(group, t), next_k8 / k8s_per_group(), q); }
            }
            // unroll
            for (var f = 0u; f < DIRECT * FRAGS_M * FRAGS_K; f++) {
                a[f] = loaded_fragments[s * FRAGS_M * FRAGS_K + f];
                if (SEVERAL_ROUNDS) { loaded_fragments[s * FRAGS_M * FRAGS_K + f] = fragment_a(f / FRAGS_K * SIDE_M, next_step_k8 + f % FRAGS_K * (SIDE_K / 8u)); }
            }
            // unroll
            for (var p = 0u; p < (1u - DIRECT) * ROW_PASSES; p++) {
                staged[p] = loaded_rows[s * ROW_PASSES + p];
                if (SEVERAL_ROUNDS && q + p * 4u < size_m()) { loaded_rows[s * ROW_PASSES + p] = load_a(q + p * 4u, next_k8); }
            }
            var low = vec4<f32>();
            var high = vec4<f32>();
            if (NORMALIZED) {
                low = load_scale(k8 * 2u) * X_SCALE;
                high = load_scale(k8 * 2u + 1u) * X_SCALE;
            }
            subgroupBarrier();
            if (DIRECT == 0u) {
                // unroll
                for (var p = 0u; p < ROW_PASSES; p++) {
                    if (q + p * 4u < size_m()) {
                        var v = select(vec4<f32>(), staged[p], inside);
                        if (NORMALIZED) {
                            let bits = bitcast<vec4<u32>>(v);
                            let a = vec4<f32>(unpack2x16float(bits.x), unpack2x16float(bits.y));
                            let b = vec4<f32>(unpack2x16float(bits.z), unpack2x16float(bits.w));
                            square[p] += dot(a, a) + dot(b, b);
                            let x = a * low;
                            let y = b * high;
                            v = bitcast<vec4<f32>>(vec4<u32>(pack2x16float(x.xy), pack2x16float(x.zw), pack2x16float(y.xy), pack2x16float(y.zw)));
                        }
                        subgroup_memory[memory_base + (q + p * 4u) * ROW_STRIDE + lane_k8] = v;
                    }
                }
                subgroupBarrier();
                // unroll
                for (var f = 0u; f < FRAGS_M * FRAGS_K; f++) {
                    let at = memory_base + f / FRAGS_K * (SIDE_M * ROW_STRIDE) + f % FRAGS_K * (SIDE_K / 8u);
                    a[f] = coopLoadT<MatrixA>(&subgroup_memory[at], ROW_STRIDE);
                }
            }
            // unroll
            for (var t = 0u; t < WORKGROUP_PANELS; t++) {
                if (t > 0u) { subgroupBarrier(); }
                var bias = vec4<f32>(0.0);
                if (BIASED) { bias = group_bias(t / PANELS, panel_base(group, t), k8 / k8s_per_group(), q); }
                let low_words = words[t * VECTORS_PER_K8];
                let high_words = words[t * VECTORS_PER_K8 + VECTORS_PER_K8 - 1u];
                // unroll
                for (var c = 0u; c < 4u; c++) {
                    var v = dequantize8(low_words[c], high_words[c], scale[t][c], bias[c]);
                    if (DIRECT == 1u && GUARD_K) { v = select(vec4<u32>(), v, inside); }
                    subgroup_memory[columns_base + (q * 4u + c) * ROW_STRIDE + lane_k8] = bitcast<vec4<f32>>(v);
                }
                subgroupBarrier();
                // unroll
                for (var k = 0u; k < FRAGS_K; k++) {
                    // unroll
                    for (var n = 0u; n < FRAGS_N; n++) {
                        let at = columns_base + n * (SIDE_N * ROW_STRIDE) + k * (SIDE_K / 8u);
                        let b = coopLoad<MatrixB>(&subgroup_memory[at], ROW_STRIDE);
                        // unroll
                        for (var f = 0u; f < FRAGS_M; f++) {
                            let acc_index = t * FRAGS + f * FRAGS_N + n;
                            acc[acc_index] = coopMultiplyAdd(a[f * FRAGS_K + k], b, acc[acc_index]);
                        }
                    }
                }
            }
        }
    }
    if (NORMALIZED) {
        // unroll
        for (var p = 0u; p < ROW_PASSES; p++) {
            var sum = square[p];
            for (var distance = 1u; distance < STEP_K8S; distance *= 2u) { sum += subgroupShuffleXor(sum, distance); }
            if (lane_k8 == 0u) { squares[subgroup * FRAG_ROWS + q + p * 4u] = sum; }
        }
    }
    subgroupBarrier();
    // unroll
    for (var i = 0u; i < WORKGROUP_PANELS * FRAGS; i++) {
        let to = memory_base + i / FRAGS * SIZE_C + i % FRAGS / FRAGS_N * (SIDE_M * 4u) + i % FRAGS_N * (SIDE_N / 4u);
        let sum = acc[i];
        coopStoreT(sum, &subgroup_memory[to], 4u);
    }
    workgroupBarrier();
    for (var i = local; i < ROWS * PANELS * 4u; i += THREADS) {
        let r = i / (PANELS * 4u);
        let at = i % (PANELS * 4u);
        let n4 = panel_index(group, at / 4u) * 4u + at % 4u;
        if (r < size_m() && n4 * 4u < size_n()) {
            var v = final_sum(group, r, at);
            if (ROTATED == 1u) { v = rotate(r, n4, v, v.yxwz); }
            if (ROTATED == 2u) { v = rotate(r, n4, v, final_sum(group, r, (at + 4u) % (2u * 4u))); }
            store(r, n4, v);
        }
    }
}
