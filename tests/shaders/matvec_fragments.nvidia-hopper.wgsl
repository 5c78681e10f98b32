// @generated for matmul/16 f16: matvec_fragments SUBGROUPS=16 PANEL_PAIRS=1 BLOCK_STEPS=1
enable f16;
enable wgpu_cooperative_matrix;
const LANES = 32u;
const SUBGROUPS = 16u;
const THREADS = SUBGROUPS * LANES;
const ROW_FRAGMENTS = 1u;
const BITS = 16u;
const GROUPED = false;
const BIASED = false;
const MATRICES = 1u;
const PANEL_PAIRS = 1u;
const PANELS = PANEL_PAIRS * 2u;
const ALL_PAIRS = MATRICES * PANEL_PAIRS;
const NORMALIZED = false;
const ROTATED = 0u;
const HALF_PANELS = 1u;
const BLOCK_STEPS = 1u;
const GUARD_K = false;
const SUM_FACTOR = 1.0;
const X_SCALE = 0.015625;
const LOADS_PER_K8 = 8u;
const FRAG_ROWS = ROW_FRAGMENTS * 8u;
const SIZE_C = FRAG_ROWS * 4u;
const SUBGROUP_VECTORS = MATRICES * PANELS * SIZE_C;
const_assert LANES == 32u;
alias PanelLoad = vec2<u32>;
fn size_m() -> u32 { return 3u; }
fn size_n() -> u32 { return 83u; }
fn size_k8() -> u32 { return 64u; }
fn rounds() -> u32 { return 1u; }
fn k_blocks() -> u32 { return 16u; }
fn blocks_per_group() -> u32 { return 1u; }
fn panel_loads() -> u32 { return 2048u; }
fn last_panel() -> u32 { return 5u; }
fn load_a_vec4_plain(row: u32, k8: u32) -> vec4<f32> {
    return vec4<f32>(buffer_0[(row) * 128u + (k8)]);
}
fn load_a_vec4(row: u32, k8: u32) -> vec2<f32> {
    let v = load_a_vec4_plain(row, k8);
    return bitcast<vec2<f32>>(vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw)));
}
fn load_a(row: u32, k8: u32) -> vec4<f32> {
    return vec4<f32>(load_a_vec4(row, k8 * 2u), load_a_vec4(row, k8 * 2u + 1u));
}
fn load_scale(k8: u32) -> vec4<f32> { return vec4<f32>(); }
fn epsilon() -> f32 { return 1e-5; }
fn load_b(c: u32, at: u32) -> PanelLoad {
    return buffer_1[at];
}
fn group_scale(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(1.0); }
fn group_bias(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(0.0); }
fn fragment_columns(loads: array<PanelLoad, LOADS_PER_K8>, i: u32) -> array<vec4<u32>, 2> {
    return array<vec4<u32>, 2>(vec4<u32>((loads[0][i] & 0xffffu) | (loads[1][i] << 16u), (loads[2][i] & 0xffffu) | (loads[3][i] << 16u), (loads[4][i] & 0xffffu) | (loads[5][i] << 16u), (loads[6][i] & 0xffffu) | (loads[7][i] << 16u)), vec4<u32>((loads[0][i] >> 16u) | (loads[1][i] & 0xffff0000u), (loads[2][i] >> 16u) | (loads[3][i] & 0xffff0000u), (loads[4][i] >> 16u) | (loads[5][i] & 0xffff0000u), (loads[6][i] >> 16u) | (loads[7][i] & 0xffff0000u)));
}
fn scale_pair(x: u32, y: u32) -> u32 {
    let p = vec2<f16>(unpack2x16float(x)) * vec2<f16>(unpack2x16float(y));
    return pack2x16float(vec2<f32>(p));
}
fn scale_pairs(pairs: vec4<u32>, by: vec4<u32>) -> vec4<u32> { return vec4<u32>(scale_pair(pairs.x, by.x), scale_pair(pairs.y, by.y), scale_pair(pairs.z, by.z), scale_pair(pairs.w, by.w)); }
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
    buffer_2[(row) * 83u + (((n4) * 4u))] = w.x;
    if ((n4) * 4u + 1u < 83u) { buffer_2[(row) * 83u + (((n4) * 4u)) + 1u] = w.y; }
    if ((n4) * 4u + 2u < 83u) { buffer_2[(row) * 83u + (((n4) * 4u)) + 2u] = w.z; }
    if ((n4) * 4u + 3u < 83u) { buffer_2[(row) * 83u + (((n4) * 4u)) + 3u] = w.w; }
}
fn multiply_fragments(local: u32, a: vec4<u32>, b: vec2<u32>, c: vec4<f32>) -> vec4<f32> {
    let d = coopMultiplyAdd(coop_mat16x16<f32, A>(), coop_mat16x16<f32, B>(), coop_mat16x16<f32, C>());
    return c;
}
var<workgroup> sums: array<vec4<f32>, SUBGROUPS * SUBGROUP_VECTORS>;
var<workgroup> squares: array<f32, SUBGROUPS * FRAG_ROWS>;
fn has_rows(f: u32) -> bool { return f == 0u || size_m() > f * 8u; }
fn panel_base(group: u32, i: u32) -> u32 { return min(panel_index(group, i), last_panel()) * panel_loads(); }
fn reorder_pairs(v: vec4<u32>) -> vec4<u32> {
    if (BITS == 16u) { return v; }
    let low = select(v.xz, v.xy, BITS == 8u);
    let high = select(v.yw, v.zw, BITS == 8u);
    return vec4<u32>(
        (low.x & 0xffffu) | (low.y << 16u),
        (low.x >> 16u) | (low.y & 0xffff0000u),
        (high.x & 0xffffu) | (high.y << 16u),
        (high.x >> 16u) | (high.y & 0xffff0000u),
    );
}
struct BlockLoads {
    loads: array<PanelLoad, ALL_PAIRS * BLOCK_STEPS * LOADS_PER_K8>,
    scales: array<vec4<f32>, ALL_PAIRS>,
    rows: array<vec4<u32>, BLOCK_STEPS * ROW_FRAGMENTS>,
}
fn load_block(bases: array<u32, PANEL_PAIRS>, k_block: u32, local: u32) -> BlockLoads {
    let t = local % 4u;
    let g = local % LANES / 4u;
    let q = g % 4u;
    var loaded: BlockLoads;
    {
        let p = 0u / BLOCK_STEPS;
        let assigned_k8 = (k_block * BLOCK_STEPS + 0u % BLOCK_STEPS) * 4u + t;
        let k8 = select(assigned_k8, min(assigned_k8, size_k8() - 1u), GUARD_K);
        { loaded.loads[0u * LOADS_PER_K8 + 0u] = load_b(p / PANEL_PAIRS, bases[p % PANEL_PAIRS] + (k8 * LOADS_PER_K8 + 0u) * 4u + q); }
{ loaded.loads[0u * LOADS_PER_K8 + 1u] = load_b(p / PANEL_PAIRS, bases[p % PANEL_PAIRS] + (k8 * LOADS_PER_K8 + 1u) * 4u + q); }
{ loaded.loads[0u * LOADS_PER_K8 + 2u] = load_b(p / PANEL_PAIRS, bases[p % PANEL_PAIRS] + (k8 * LOADS_PER_K8 + 2u) * 4u + q); }
{ loaded.loads[0u * LOADS_PER_K8 + 3u] = load_b(p / PANEL_PAIRS, bases[p % PANEL_PAIRS] + (k8 * LOADS_PER_K8 + 3u) * 4u + q); }
{ loaded.loads[0u * LOADS_PER_K8 + 4u] = load_b(p / PANEL_PAIRS, bases[p % PANEL_PAIRS] + (k8 * LOADS_PER_K8 + 4u) * 4u + q); }
{ loaded.loads[0u * LOADS_PER_K8 + 5u] = load_b(p / PANEL_PAIRS, bases[p % PANEL_PAIRS] + (k8 * LOADS_PER_K8 + 5u) * 4u + q); }
{ loaded.loads[0u * LOADS_PER_K8 + 6u] = load_b(p / PANEL_PAIRS, bases[p % PANEL_PAIRS] + (k8 * LOADS_PER_K8 + 6u) * 4u + q); }
{ loaded.loads[0u * LOADS_PER_K8 + 7u] = load_b(p / PANEL_PAIRS, bases[p % PANEL_PAIRS] + (k8 * LOADS_PER_K8 + 7u) * 4u + q); }
    }
    {
        let clamped_block = select(k_block, min(k_block, k_blocks() - 1u), GUARD_K);
        if (GROUPED) { loaded.scales[0u] = group_scale(0u / PANEL_PAIRS, bases[0u % PANEL_PAIRS], clamped_block / blocks_per_group(), q); }
    }
    {
        let assigned_k8 = (k_block * BLOCK_STEPS + 0u / ROW_FRAGMENTS) * 4u + t;
        let k8 = select(assigned_k8, min(assigned_k8, size_k8() - 1u), GUARD_K);
        loaded.rows[0u] = vec4<u32>();
        if (has_rows(0u % ROW_FRAGMENTS)) { loaded.rows[0u] = bitcast<vec4<u32>>(load_a(min(0u % ROW_FRAGMENTS * 8u + g, size_m() - 1u), k8)); }
        if (GUARD_K) { loaded.rows[0u] = select(vec4<u32>(), loaded.rows[0u], assigned_k8 < size_k8()); }
    }
    return loaded;
}
fn final_sum(r: u32, at: u32) -> vec4<f32> {
    var totals: array<vec4<f32>, MATRICES>;
    {
        let sum_index = (0u * PANELS + at / 4u) * SIZE_C + r * 4u + at % 4u;
        totals[0u] = sums[sum_index];
        { totals[0u] += sums[1u * SUBGROUP_VECTORS + sum_index]; }
{ totals[0u] += sums[2u * SUBGROUP_VECTORS + sum_index]; }
{ totals[0u] += sums[3u * SUBGROUP_VECTORS + sum_index]; }
{ totals[0u] += sums[4u * SUBGROUP_VECTORS + sum_index]; }
{ totals[0u] += sums[5u * SUBGROUP_VECTORS + sum_index]; }
{ totals[0u] += sums[6u * SUBGROUP_VECTORS + sum_index]; }
{ totals[0u] += sums[7u * SUBGROUP_VECTORS + sum_index]; }
{ totals[0u] += sums[8u * SUBGROUP_VECTORS + sum_index]; }
{ totals[0u] += sums[9u * SUBGROUP_VECTORS + sum_index]; }
{ totals[0u] += sums[10u * SUBGROUP_VECTORS + sum_index]; }
{ totals[0u] += sums[11u * SUBGROUP_VECTORS + sum_index]; }
{ totals[0u] += sums[12u * SUBGROUP_VECTORS + sum_index]; }
{ totals[0u] += sums[13u * SUBGROUP_VECTORS + sum_index]; }
{ totals[0u] += sums[14u * SUBGROUP_VECTORS + sum_index]; }
{ totals[0u] += sums[15u * SUBGROUP_VECTORS + sum_index]; }
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
{ square += squares[8u * FRAG_ROWS + r]; }
{ square += squares[9u * FRAG_ROWS + r]; }
{ square += squares[10u * FRAG_ROWS + r]; }
{ square += squares[11u * FRAG_ROWS + r]; }
{ square += squares[12u * FRAG_ROWS + r]; }
{ square += squares[13u * FRAG_ROWS + r]; }
{ square += squares[14u * FRAG_ROWS + r]; }
{ square += squares[15u * FRAG_ROWS + r]; }
        let factor = inverseSqrt(square / f32(size_k8() * 8u) + epsilon()) / X_SCALE;
        { totals[0u] *= factor; }
    }
    return combine(totals[0], totals[MATRICES - 1u]);
}
@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane: u32) {
    multiply(group.x, subgroup * LANES + lane);
}
fn multiply(group: u32, local: u32) {
    let subgroup = local / LANES;
    let t = local % 4u;
    let g = local % LANES / 4u;
    let q = g % 4u;
    let pair_panel = g / 4u;
    var bases: array<u32, PANEL_PAIRS>;
    { bases[0u] = panel_base(group, 0u * 2u + pair_panel); }
    var acc: array<vec4<f32>, ALL_PAIRS * ROW_FRAGMENTS * 2u>;
    var group_sums: array<vec4<f32>, ALL_PAIRS * ROW_FRAGMENTS * 2u>;
    { acc[0u] = vec4<f32>(); group_sums[0u] = vec4<f32>(); }
{ acc[1u] = vec4<f32>(); group_sums[1u] = vec4<f32>(); }
    var square: array<vec4<f32>, ROW_FRAGMENTS>;
    var x_sums: array<vec4<f32>, ROW_FRAGMENTS>;
    { square[0u] = vec4<f32>(); x_sums[0u] = vec4<f32>(); }
    var loaded: BlockLoads;
    for (var round = 0u; round < rounds(); round++) {
        let k_block = round * SUBGROUPS + subgroup;
        loaded = load_block(bases, k_block, local);
        if (round < rounds()) {
            let clamped_block = select(k_block, min(k_block, k_blocks() - 1u), GUARD_K);
            {
                var factor = vec4<u32>();
                if (NORMALIZED) {
                    let assigned_k8 = (k_block * BLOCK_STEPS + 0u) * 4u + t;
                    let scale = bitcast<vec4<u32>>(load_scale(select(assigned_k8, min(assigned_k8, size_k8() - 1u), GUARD_K)));
                    factor = scale_pairs(reorder_pairs(scale), vec4<u32>(pack2x16float(vec2<f32>(X_SCALE))));
                }
                var b: array<vec2<u32>, ROW_FRAGMENTS * 2u>;
                {
                    if (has_rows(0u)) {
                        var x = reorder_pairs(loaded.rows[0u * ROW_FRAGMENTS + 0u]);
                        if (NORMALIZED) {
                            square[0u] = multiply_fragments(local, vec4<u32>(x.xy, 0u, 0u), x.xy, square[0u]);
                            square[0u] = multiply_fragments(local, vec4<u32>(x.zw, 0u, 0u), x.zw, square[0u]);
                            x = scale_pairs(x, factor);
                        }
                        b[0u * 2u] = x.xy;
                        b[0u * 2u + 1u] = x.zw;
                        if (BIASED) {
                            x_sums[0u] = multiply_fragments(local, vec4<u32>(0x3c003c00u), x.xy, x_sums[0u]);
                            x_sums[0u] = multiply_fragments(local, vec4<u32>(0x3c003c00u), x.zw, x_sums[0u]);
                        }
                    }
                }
                {
                    var loads: array<PanelLoad, LOADS_PER_K8>;
                    { loads[0u] = loaded.loads[(0u / 2u * BLOCK_STEPS + 0u) * LOADS_PER_K8 + 0u]; }
{ loads[1u] = loaded.loads[(0u / 2u * BLOCK_STEPS + 0u) * LOADS_PER_K8 + 1u]; }
{ loads[2u] = loaded.loads[(0u / 2u * BLOCK_STEPS + 0u) * LOADS_PER_K8 + 2u]; }
{ loads[3u] = loaded.loads[(0u / 2u * BLOCK_STEPS + 0u) * LOADS_PER_K8 + 3u]; }
{ loads[4u] = loaded.loads[(0u / 2u * BLOCK_STEPS + 0u) * LOADS_PER_K8 + 4u]; }
{ loads[5u] = loaded.loads[(0u / 2u * BLOCK_STEPS + 0u) * LOADS_PER_K8 + 5u]; }
{ loads[6u] = loaded.loads[(0u / 2u * BLOCK_STEPS + 0u) * LOADS_PER_K8 + 6u]; }
{ loads[7u] = loaded.loads[(0u / 2u * BLOCK_STEPS + 0u) * LOADS_PER_K8 + 7u]; }
                    let pairs = fragment_columns(loads, 0u % 2u);
                    {
                        if (has_rows(0u)) {
                            let acc_index = 0u * ROW_FRAGMENTS + 0u;
                            group_sums[acc_index] = multiply_fragments(local, vec4<u32>(pairs[0].xy, pairs[1].xy), b[0u * 2u], group_sums[acc_index]);
                            group_sums[acc_index] = multiply_fragments(local, vec4<u32>(pairs[0].zw, pairs[1].zw), b[0u * 2u + 1u], group_sums[acc_index]);
                        }
                    }
                }
{
                    var loads: array<PanelLoad, LOADS_PER_K8>;
                    { loads[0u] = loaded.loads[(1u / 2u * BLOCK_STEPS + 0u) * LOADS_PER_K8 + 0u]; }
{ loads[1u] = loaded.loads[(1u / 2u * BLOCK_STEPS + 0u) * LOADS_PER_K8 + 1u]; }
{ loads[2u] = loaded.loads[(1u / 2u * BLOCK_STEPS + 0u) * LOADS_PER_K8 + 2u]; }
{ loads[3u] = loaded.loads[(1u / 2u * BLOCK_STEPS + 0u) * LOADS_PER_K8 + 3u]; }
{ loads[4u] = loaded.loads[(1u / 2u * BLOCK_STEPS + 0u) * LOADS_PER_K8 + 4u]; }
{ loads[5u] = loaded.loads[(1u / 2u * BLOCK_STEPS + 0u) * LOADS_PER_K8 + 5u]; }
{ loads[6u] = loaded.loads[(1u / 2u * BLOCK_STEPS + 0u) * LOADS_PER_K8 + 6u]; }
{ loads[7u] = loaded.loads[(1u / 2u * BLOCK_STEPS + 0u) * LOADS_PER_K8 + 7u]; }
                    let pairs = fragment_columns(loads, 1u % 2u);
                    {
                        if (has_rows(0u)) {
                            let acc_index = 1u * ROW_FRAGMENTS + 0u;
                            group_sums[acc_index] = multiply_fragments(local, vec4<u32>(pairs[0].xy, pairs[1].xy), b[0u * 2u], group_sums[acc_index]);
                            group_sums[acc_index] = multiply_fragments(local, vec4<u32>(pairs[0].zw, pairs[1].zw), b[0u * 2u + 1u], group_sums[acc_index]);
                        }
                    }
                }
            }
            if (GROUPED || round + 1u == rounds()) {
                {
                    var factor = loaded.scales[0u];
                    if (!GROUPED) { factor = group_scale(0u / PANEL_PAIRS, bases[0u % PANEL_PAIRS], 0u, q); }
                    factor *= SUM_FACTOR;
                    var bias = vec4<f32>();
                    if (BIASED) { bias = group_bias(0u / PANEL_PAIRS, bases[0u % PANEL_PAIRS], select(0u, clamped_block / blocks_per_group(), GROUPED), q); }
                    {
                        let low = 0u * 2u * ROW_FRAGMENTS + 0u;
                        let high = low + ROW_FRAGMENTS;
                        acc[low] += group_sums[low] * factor.xxyy;
                        acc[high] += group_sums[high] * factor.zzww;
                        if (BIASED) {
                            acc[low] += x_sums[0u] * bias.xxyy;
                            acc[high] += x_sums[0u] * bias.zzww;
                        }
                        group_sums[low] = vec4<f32>();
                        group_sums[high] = vec4<f32>();
                    }
                }
                { x_sums[0u] = vec4<f32>(); }
            }
        }
    }
    {
        let p = 0u / ROW_FRAGMENTS;
        let f = 0u % ROW_FRAGMENTS;
        let low = acc[p * 2u * ROW_FRAGMENTS + f];
        let high = acc[(p * 2u + 1u) * ROW_FRAGMENTS + f];
        let panel = p / PANEL_PAIRS * PANELS + p % PANEL_PAIRS * 2u + pair_panel;
        let to = subgroup * SUBGROUP_VECTORS + panel * SIZE_C + (f * 8u + t * 2u) * 4u + q;
        sums[to] = vec4<f32>(low.x, low.z, high.x, high.z);
        sums[to + 4u] = vec4<f32>(low.y, low.w, high.y, high.w);
    }
    if (NORMALIZED && t == g / 2u) {
        { squares[subgroup * FRAG_ROWS + 0u * 8u + g] = select(square[0u].x, square[0u].y, g % 2u == 1u); }
    }
    workgroupBarrier();
    for (var i = local; i < FRAG_ROWS * PANELS * 4u; i += THREADS) {
        let r = i / (PANELS * 4u);
        let at = i % (PANELS * 4u);
        let n4 = panel_index(group, at / 4u) * 4u + at % 4u;
        if (r < size_m() && n4 * 4u < size_n()) {
            var v = final_sum(r, at);
            if (ROTATED == 1u) { v = rotate(r, n4, v, v.yxwz); }
            if (ROTATED == 2u) { v = rotate(r, n4, v, final_sum(r, (at + 4u) % (2u * 4u))); }
            store(r, n4, v);
        }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> buffer_2: array<f32>;
