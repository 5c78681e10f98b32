// @generated for matmul/38 f16: matvec_coop SUBGROUPS=8 PANELS=1 STEPS_IN_FLIGHT=1
enable f16;
enable wgpu_cooperative_matrix;
const LANES = 32u;
const SIDE_M = 16u;
const SIDE_N = 16u;
const SIDE_K = 16u;
alias MatrixA = coop_mat16x16<f32, A>;
alias MatrixB = coop_mat16x16<f32, B>;
alias MatrixC = coop_mat16x16<f32, C>;
const SUBGROUPS = 8u;
const THREADS = SUBGROUPS * LANES;
const ROWS = 5u;
const VECTORS_PER_K8 = 2u;
const SCALED_VALUES = true;
const BIASED = false;
const MATRICES = 1u;
const PANELS = 1u;
const WORKGROUP_PANELS = MATRICES * PANELS;
const NORMALIZED = false;
const ROTATED = 0u;
const HALF_PANELS = 1u;
const DIRECT = 0u;
const STAGED_ROWS = 16u;
const STEPS_IN_FLIGHT = 1u;
const SEVERAL_ROUNDS = false;
const GUARD_K = false;
const X_SCALE = 0.015625;
const STEP_K8S = LANES / 4u;
const ROW_STRIDE = STEP_K8S + 1u;
const FRAGS_M = (ROWS + SIDE_M - 1u) / SIDE_M;
const FRAGS_N = 16u / SIDE_N;
const FRAGS = FRAGS_M * FRAGS_N;
const FRAGS_K = STEP_K8S * 8u / SIDE_K;
const FRAG_ROWS = FRAGS_M * SIDE_M;
const SIZE_A = STAGED_ROWS * ROW_STRIDE;
const SIZE_C = FRAG_ROWS * 4u;
const SUBGROUP_VECTORS = max(SIZE_A + 16u * ROW_STRIDE, WORKGROUP_PANELS * SIZE_C);
const ROW_PASSES = (ROWS + 3u) / 4u;
const_assert LANES % 4u == 0u && 16u % SIDE_N == 0u && (STEP_K8S * 8u) % SIDE_K == 0u;
fn size_m() -> u32 { return 5u; }
fn size_n() -> u32 { return 33u; }
fn size_k8() -> u32 { return 64u; }
fn rounds() -> u32 { return 1u; }
fn panel_vec4s() -> u32 { return 640u; }
fn last_panel() -> u32 { return 2u; }
fn k8s_per_group() -> u32 { return 2u; }
fn load_a(row: u32, k8: u32) -> vec4<f32> {
    return buffer_0[(row) * 64u + (k8)];
}
fn load_scale(k4: u32) -> vec4<f32> { return vec4<f32>(1.0); }
fn epsilon() -> f32 { return 1e-5; }
fn load_b(c: u32, at: u32) -> vec4<u32> {
    return buffer_1[at];
}
fn group_scale(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> {
    return first_scale(base, g, q);
}
fn group_bias(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> {
    return first_bias(base, g, q);
}
fn dequantize8(first: u32, second: u32, scale: f32, bias: f32) -> vec4<u32> { return first_from_words(first, second, scale, bias); }
fn combine(first: vec4<f32>, second: vec4<f32>) -> vec4<f32> {
    return first;
}
fn rotate(row: u32, n4: u32, v: vec4<f32>, paired: vec4<f32>) -> vec4<f32> { return v; }
fn panel_index(group: u32, i: u32) -> u32 {
    if (ROTATED == 2u) { return group / HALF_PANELS * 2u * HALF_PANELS + group % HALF_PANELS + i * HALF_PANELS; }
    return group * PANELS + i;
}
fn store(row: u32, n4: u32, v: vec4<f32>) {
    let w = vec4<f32>(v);
    buffer_2[(row) * 33u + (((n4) * 4u))] = w.x;
    if ((n4) * 4u + 1u < 33u) { buffer_2[(row) * 33u + (((n4) * 4u)) + 1u] = w.y; }
    if ((n4) * 4u + 2u < 33u) { buffer_2[(row) * 33u + (((n4) * 4u)) + 2u] = w.z; }
    if ((n4) * 4u + 3u < 33u) { buffer_2[(row) * 33u + (((n4) * 4u)) + 3u] = w.w; }
}
var<workgroup> subgroup_memory: array<vec4<f32>, SUBGROUPS * SUBGROUP_VECTORS>;
var<workgroup> squares: array<f32, SUBGROUPS * FRAG_ROWS>;
fn panel_base(group: u32, t: u32) -> u32 { return min(panel_index(group, t % PANELS), last_panel()) * panel_vec4s(); }
fn final_sum(group: u32, r: u32, at: u32) -> vec4<f32> {
    var sums: array<vec4<f32>, MATRICES>;
    {
        let t = 0u * PANELS + at / 4u;
        let sum_index = t * SIZE_C + r * 4u + at % 4u;
        sums[0u] = subgroup_memory[sum_index];
        { sums[0u] += subgroup_memory[1u * SUBGROUP_VECTORS + sum_index]; }
{ sums[0u] += subgroup_memory[2u * SUBGROUP_VECTORS + sum_index]; }
{ sums[0u] += subgroup_memory[3u * SUBGROUP_VECTORS + sum_index]; }
{ sums[0u] += subgroup_memory[4u * SUBGROUP_VECTORS + sum_index]; }
{ sums[0u] += subgroup_memory[5u * SUBGROUP_VECTORS + sum_index]; }
{ sums[0u] += subgroup_memory[6u * SUBGROUP_VECTORS + sum_index]; }
{ sums[0u] += subgroup_memory[7u * SUBGROUP_VECTORS + sum_index]; }
        if (!SCALED_VALUES) { sums[0u] *= group_scale(0u, panel_base(group, t), 0u, at % 4u); }
    }
    if (NORMALIZED) {
        var square = squares[r];
        { square += squares[1u * FRAG_ROWS + r]; }
{ square += squares[2u * FRAG_ROWS + r]; }
{ square += squares[3u * FRAG_ROWS + r]; }
{ square += squares[4u * FRAG_ROWS + r]; }
{ square += squares[5u * FRAG_ROWS + r]; }
{ square += squares[6u * FRAG_ROWS + r]; }
{ square += squares[7u * FRAG_ROWS + r]; }
        let factor = inverseSqrt(square / f32(size_k8() * 8u) + epsilon()) / X_SCALE;
        { sums[0u] *= factor; }
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
    { subgroup_memory[memory_base + (q + 0u * 4u) * ROW_STRIDE + lane_k8] = vec4<f32>(); }
{ subgroup_memory[memory_base + (q + 1u * 4u) * ROW_STRIDE + lane_k8] = vec4<f32>(); }
{ subgroup_memory[memory_base + (q + 2u * 4u) * ROW_STRIDE + lane_k8] = vec4<f32>(); }
{ subgroup_memory[memory_base + (q + 3u * 4u) * ROW_STRIDE + lane_k8] = vec4<f32>(); }
    var acc: array<MatrixC, WORKGROUP_PANELS * FRAGS>;
    { acc[0u] = MatrixC(); }
    var square: array<f32, ROW_PASSES>;
    { square[0u] = 0.0; }
{ square[1u] = 0.0; }
    var loaded_words: array<vec4<u32>, STEPS_IN_FLIGHT * WORKGROUP_PANELS * VECTORS_PER_K8>;
    var scales: array<vec4<f32>, STEPS_IN_FLIGHT * WORKGROUP_PANELS>;
    var loaded_rows: array<vec4<f32>, STEPS_IN_FLIGHT * ROW_PASSES>;
    var loaded_fragments: array<MatrixA, STEPS_IN_FLIGHT * FRAGS_M * FRAGS_K>;
    {
        let assigned_k8 = (0u * SUBGROUPS + subgroup) * STEP_K8S + lane_k8;
        let k8 = select(assigned_k8, min(assigned_k8, size_k8() - 1u), GUARD_K);
        {
            {
                loaded_words[(0u * WORKGROUP_PANELS + 0u) * VECTORS_PER_K8 + 0u] = load_b(0u / PANELS, panel_base(group, 0u) + (k8 * VECTORS_PER_K8 + 0u) * 4u + q);
            }
{
                loaded_words[(0u * WORKGROUP_PANELS + 0u) * VECTORS_PER_K8 + 1u] = load_b(0u / PANELS, panel_base(group, 0u) + (k8 * VECTORS_PER_K8 + 1u) * 4u + q);
            }
            scales[0u * WORKGROUP_PANELS + 0u] = vec4<f32>(1.0);
            if (SCALED_VALUES) { scales[0u * WORKGROUP_PANELS + 0u] = group_scale(0u / PANELS, panel_base(group, 0u), k8 / k8s_per_group(), q); }
        }
        {
            loaded_rows[0u * ROW_PASSES + 0u] = vec4<f32>();
            if (q + 0u * 4u < size_m()) { loaded_rows[0u * ROW_PASSES + 0u] = load_a(q + 0u * 4u, k8); }
        }
{
            loaded_rows[0u * ROW_PASSES + 1u] = vec4<f32>();
            if (q + 1u * 4u < size_m()) { loaded_rows[0u * ROW_PASSES + 1u] = load_a(q + 1u * 4u, k8); }
        }
    }
    for (var round = 0u; round < rounds(); round++) {
        {
            let assigned_k8 = ((round * STEPS_IN_FLIGHT + 0u) * SUBGROUPS + subgroup) * STEP_K8S + lane_k8;
            let k8 = select(assigned_k8, min(assigned_k8, size_k8() - 1u), GUARD_K);
            let inside = !GUARD_K || assigned_k8 < size_k8();
            var words: array<vec4<u32>, WORKGROUP_PANELS * VECTORS_PER_K8>;
            var scale: array<vec4<f32>, WORKGROUP_PANELS>;
            var staged: array<vec4<f32>, ROW_PASSES>;
            var a: array<MatrixA, FRAGS_M * FRAGS_K>;
            let next_k8 = min(assigned_k8 + STEPS_IN_FLIGHT * SUBGROUPS * STEP_K8S, size_k8() - 1u);
            let next_step_k8 = min(assigned_k8 - lane_k8 + STEPS_IN_FLIGHT * SUBGROUPS * STEP_K8S, size_k8() - min(size_k8(), STEP_K8S));
            {
                words[0u] = loaded_words[0u * WORKGROUP_PANELS * VECTORS_PER_K8 + 0u];
                if (SEVERAL_ROUNDS) { loaded_words[0u * WORKGROUP_PANELS * VECTORS_PER_K8 + 0u] = load_b(0u / VECTORS_PER_K8 / PANELS, panel_base(group, 0u / VECTORS_PER_K8) + (next_k8 * VECTORS_PER_K8 + 0u % VECTORS_PER_K8) * 4u + q); }
            }
{
                words[1u] = loaded_words[0u * WORKGROUP_PANELS * VECTORS_PER_K8 + 1u];
                if (SEVERAL_ROUNDS) { loaded_words[0u * WORKGROUP_PANELS * VECTORS_PER_K8 + 1u] = load_b(1u / VECTORS_PER_K8 / PANELS, panel_base(group, 1u / VECTORS_PER_K8) + (next_k8 * VECTORS_PER_K8 + 1u % VECTORS_PER_K8) * 4u + q); }
            }
            {
                scale[0u] = scales[0u * WORKGROUP_PANELS + 0u];
                if (SEVERAL_ROUNDS && SCALED_VALUES) { scales[0u * WORKGROUP_PANELS + 0u] = group_scale(0u / PANELS, panel_base(group, 0u), next_k8 / k8s_per_group(), q); }
            }
            {
                staged[0u] = loaded_rows[0u * ROW_PASSES + 0u];
                if (SEVERAL_ROUNDS && q + 0u * 4u < size_m()) { loaded_rows[0u * ROW_PASSES + 0u] = load_a(q + 0u * 4u, next_k8); }
            }
{
                staged[1u] = loaded_rows[0u * ROW_PASSES + 1u];
                if (SEVERAL_ROUNDS && q + 1u * 4u < size_m()) { loaded_rows[0u * ROW_PASSES + 1u] = load_a(q + 1u * 4u, next_k8); }
            }
            var low = vec4<f32>();
            var high = vec4<f32>();
            if (NORMALIZED) {
                low = load_scale(k8 * 2u) * X_SCALE;
                high = load_scale(k8 * 2u + 1u) * X_SCALE;
            }
            subgroupBarrier();
            if (DIRECT == 0u) {
                {
                    if (q + 0u * 4u < size_m()) {
                        var v = select(vec4<f32>(), staged[0u], inside);
                        if (NORMALIZED) {
                            let bits = bitcast<vec4<u32>>(v);
                            let a = vec4<f32>(unpack2x16float(bits.x), unpack2x16float(bits.y));
                            let b = vec4<f32>(unpack2x16float(bits.z), unpack2x16float(bits.w));
                            square[0u] += dot(a, a) + dot(b, b);
                            let x = a * low;
                            let y = b * high;
                            v = bitcast<vec4<f32>>(vec4<u32>(pack2x16float(x.xy), pack2x16float(x.zw), pack2x16float(y.xy), pack2x16float(y.zw)));
                        }
                        subgroup_memory[memory_base + (q + 0u * 4u) * ROW_STRIDE + lane_k8] = v;
                    }
                }
{
                    if (q + 1u * 4u < size_m()) {
                        var v = select(vec4<f32>(), staged[1u], inside);
                        if (NORMALIZED) {
                            let bits = bitcast<vec4<u32>>(v);
                            let a = vec4<f32>(unpack2x16float(bits.x), unpack2x16float(bits.y));
                            let b = vec4<f32>(unpack2x16float(bits.z), unpack2x16float(bits.w));
                            square[1u] += dot(a, a) + dot(b, b);
                            let x = a * low;
                            let y = b * high;
                            v = bitcast<vec4<f32>>(vec4<u32>(pack2x16float(x.xy), pack2x16float(x.zw), pack2x16float(y.xy), pack2x16float(y.zw)));
                        }
                        subgroup_memory[memory_base + (q + 1u * 4u) * ROW_STRIDE + lane_k8] = v;
                    }
                }
                subgroupBarrier();
                {
                    let at = memory_base + 0u / FRAGS_K * (SIDE_M * ROW_STRIDE) + 0u % FRAGS_K * (SIDE_K / 8u);
                    a[0u] = coopLoadT<MatrixA>(&subgroup_memory[at], ROW_STRIDE);
                }
{
                    let at = memory_base + 1u / FRAGS_K * (SIDE_M * ROW_STRIDE) + 1u % FRAGS_K * (SIDE_K / 8u);
                    a[1u] = coopLoadT<MatrixA>(&subgroup_memory[at], ROW_STRIDE);
                }
{
                    let at = memory_base + 2u / FRAGS_K * (SIDE_M * ROW_STRIDE) + 2u % FRAGS_K * (SIDE_K / 8u);
                    a[2u] = coopLoadT<MatrixA>(&subgroup_memory[at], ROW_STRIDE);
                }
{
                    let at = memory_base + 3u / FRAGS_K * (SIDE_M * ROW_STRIDE) + 3u % FRAGS_K * (SIDE_K / 8u);
                    a[3u] = coopLoadT<MatrixA>(&subgroup_memory[at], ROW_STRIDE);
                }
            }
            {
                if (0u > 0u) { subgroupBarrier(); }
                var bias = vec4<f32>(0.0);
                if (BIASED) { bias = group_bias(0u / PANELS, panel_base(group, 0u), k8 / k8s_per_group(), q); }
                let low_words = words[0u * VECTORS_PER_K8];
                let high_words = words[0u * VECTORS_PER_K8 + VECTORS_PER_K8 - 1u];
                {
                    var v = dequantize8(low_words[0u], high_words[0u], scale[0u][0u], bias[0u]);
                    if (DIRECT == 1u && GUARD_K) { v = select(vec4<u32>(), v, inside); }
                    subgroup_memory[columns_base + (q * 4u + 0u) * ROW_STRIDE + lane_k8] = bitcast<vec4<f32>>(v);
                }
{
                    var v = dequantize8(low_words[1u], high_words[1u], scale[0u][1u], bias[1u]);
                    if (DIRECT == 1u && GUARD_K) { v = select(vec4<u32>(), v, inside); }
                    subgroup_memory[columns_base + (q * 4u + 1u) * ROW_STRIDE + lane_k8] = bitcast<vec4<f32>>(v);
                }
{
                    var v = dequantize8(low_words[2u], high_words[2u], scale[0u][2u], bias[2u]);
                    if (DIRECT == 1u && GUARD_K) { v = select(vec4<u32>(), v, inside); }
                    subgroup_memory[columns_base + (q * 4u + 2u) * ROW_STRIDE + lane_k8] = bitcast<vec4<f32>>(v);
                }
{
                    var v = dequantize8(low_words[3u], high_words[3u], scale[0u][3u], bias[3u]);
                    if (DIRECT == 1u && GUARD_K) { v = select(vec4<u32>(), v, inside); }
                    subgroup_memory[columns_base + (q * 4u + 3u) * ROW_STRIDE + lane_k8] = bitcast<vec4<f32>>(v);
                }
                subgroupBarrier();
                {
                    {
                        let at = columns_base + 0u * (SIDE_N * ROW_STRIDE) + 0u * (SIDE_K / 8u);
                        let b = coopLoad<MatrixB>(&subgroup_memory[at], ROW_STRIDE);
                        {
                            let acc_index = 0u * FRAGS + 0u * FRAGS_N + 0u;
                            acc[acc_index] = coopMultiplyAdd(a[0u * FRAGS_K + 0u], b, acc[acc_index]);
                        }
                    }
                }
{
                    {
                        let at = columns_base + 0u * (SIDE_N * ROW_STRIDE) + 1u * (SIDE_K / 8u);
                        let b = coopLoad<MatrixB>(&subgroup_memory[at], ROW_STRIDE);
                        {
                            let acc_index = 0u * FRAGS + 0u * FRAGS_N + 0u;
                            acc[acc_index] = coopMultiplyAdd(a[0u * FRAGS_K + 1u], b, acc[acc_index]);
                        }
                    }
                }
{
                    {
                        let at = columns_base + 0u * (SIDE_N * ROW_STRIDE) + 2u * (SIDE_K / 8u);
                        let b = coopLoad<MatrixB>(&subgroup_memory[at], ROW_STRIDE);
                        {
                            let acc_index = 0u * FRAGS + 0u * FRAGS_N + 0u;
                            acc[acc_index] = coopMultiplyAdd(a[0u * FRAGS_K + 2u], b, acc[acc_index]);
                        }
                    }
                }
{
                    {
                        let at = columns_base + 0u * (SIDE_N * ROW_STRIDE) + 3u * (SIDE_K / 8u);
                        let b = coopLoad<MatrixB>(&subgroup_memory[at], ROW_STRIDE);
                        {
                            let acc_index = 0u * FRAGS + 0u * FRAGS_N + 0u;
                            acc[acc_index] = coopMultiplyAdd(a[0u * FRAGS_K + 3u], b, acc[acc_index]);
                        }
                    }
                }
            }
        }
    }
    if (NORMALIZED) {
        {
            var sum = square[0u];
            for (var distance = 1u; distance < STEP_K8S; distance *= 2u) { sum += subgroupShuffleXor(sum, distance); }
            if (lane_k8 == 0u) { squares[subgroup * FRAG_ROWS + q + 0u * 4u] = sum; }
        }
{
            var sum = square[1u];
            for (var distance = 1u; distance < STEP_K8S; distance *= 2u) { sum += subgroupShuffleXor(sum, distance); }
            if (lane_k8 == 0u) { squares[subgroup * FRAG_ROWS + q + 1u * 4u] = sum; }
        }
    }
    subgroupBarrier();
    {
        let to = memory_base + 0u / FRAGS * SIZE_C + 0u % FRAGS / FRAGS_N * (SIDE_M * 4u) + 0u % FRAGS_N * (SIDE_N / 4u);
        let sum = acc[0u];
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
@group(0) @binding(0) var<storage, read> buffer_0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec4<u32>>;
fn first_scale(base: u32, g: u32, q: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(buffer_1[base + 512u + g * 4u + q]);
}
fn first_bias(base: u32, g: u32, q: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}
fn unpack_f16_pair(bits: u32) -> vec2<f16> { return vec2<f16>(unpack2x16float(bits)); }
fn pack_f16_pair(x: f16, y: f16) -> u32 { return pack2x16float(vec2<f32>(vec2<f16>(x, y))); }
fn dequantize_pairs(word: u32) -> array<vec2<f16>, 2> {
    return array<vec2<f16>, 2>(fma(unpack_f16_pair((word & 0x00ff00ffu) | 0x64006400u), vec2<f16>(0.00390625h), vec2<f16>(-4.125h)), fma(unpack_f16_pair(((word >> 8u) & 0x00ff00ffu) | 0x64006400u), vec2<f16>(0.00390625h), vec2<f16>(-4.125h)));
}
fn first_from_words(first: u32, second: u32, scale: f32, bias: f32) -> vec4<u32> {
    let factor = vec2<f16>(f16(scale * 256.0));
    let offset = vec2<f16>(f16(bias));
    let pairs = dequantize_pairs(first);
    let second_pairs = dequantize_pairs(second);
    let p0 = fma(pairs[0], factor, offset);
    let p1 = fma(pairs[1], factor, offset);
    let p2 = fma(second_pairs[0], factor, offset);
    let p3 = fma(second_pairs[1], factor, offset);
    return vec4<u32>(pack_f16_pair(p0.x, p1.x), pack_f16_pair(p0.y, p1.y), pack_f16_pair(p2.x, p3.x), pack_f16_pair(p2.y, p3.y));
}
@group(0) @binding(2) var<storage, read_write> buffer_2: array<f32>;
