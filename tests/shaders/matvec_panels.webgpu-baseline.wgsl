// @generated for gather_matmul/0 f32: matvec_panels THREADS=128 ROWS=1 UNROLL=2 PANELS=1
const THREADS = 128u;
const ROWS = 1u;
const UNROLL = 2u;
const MATRICES = 1u;
const PANELS = 1u;
const NORMALIZED = false;
const STORED = false;
const STORED_ELEMENTS = 1u;
const LOADS_PER_ROW = 4u;
const VEC4S_PER_LOAD = 1u;
const ROTATED = 0u;
const HALF_PANELS = 1u;
const GUARD_K = true;
const PANEL_THREADS = THREADS / MATRICES / PANELS;
const K_LANES = PANEL_THREADS / LOADS_PER_ROW;
const PANEL_VEC4S = LOADS_PER_ROW * VEC4S_PER_LOAD;
const PARTIAL_LANES = 16u;
const PANEL_PARTIALS = K_LANES / PARTIAL_LANES;
const PARTIAL_THREADS = PARTIAL_LANES * LOADS_PER_ROW;
const WORKGROUP_PARTIALS = THREADS / PARTIAL_THREADS;
const_assert PANEL_THREADS % LOADS_PER_ROW == 0u && K_LANES % PARTIAL_LANES == 0u && PANEL_VEC4S * WORKGROUP_PARTIALS <= THREADS;
alias PanelLoad = vec4<f32>;
fn size_m() -> u32 { return 1u; }
fn size_n() -> u32 { return 24u; }
fn size_k() -> u32 { return 40u; }
fn panel_loads() -> u32 { return 160u; }
fn load_index(batch: u32) -> i32 {
    let batch_1 = batch % 2u;
    let batch_1_rest = batch / 2u;
    let batch_0 = batch_1_rest;
    return i32(buffer_0[(batch_0) * 2u + (batch_1)]);
}
fn matrix_index(batch: u32) -> u32 {
    let index = i32(load_index(batch));
    let count = i32(5u);
    return u32(clamp(select(index, index + count, index < 0), 0, count - 1));
}
fn first_panel(batch: u32) -> u32 { return matrix_index(batch) * 2u; }
fn last_panel() -> u32 { return 1u; }
fn load_a(batch: u32, row: u32, k: u32) -> f32 {
    let batch_1 = batch % 2u;
    let batch_1_rest = batch / 2u;
    let batch_0 = batch_1_rest;
    return f32(buffer_1[(batch_0) * 40u + (k)]);
}
fn load_scale(k: u32) -> f32 { return 1.0; }
fn epsilon() -> f32 { return 1e-5; }
fn load_b(c: u32, at: u32) -> PanelLoad {
    return buffer_2[at];
}
fn column_vec4(load: PanelLoad, i: u32) -> vec4<f32> { return load; }
fn combine(first: vec4<f32>, second: vec4<f32>) -> vec4<f32> {
    return first;
}
fn rotate(row: u32, n4: u32, v: vec4<f32>, paired: vec4<f32>) -> vec4<f32> { return v; }
fn panel_index(group: u32, i: u32) -> u32 {
    if (ROTATED == 2u) { return group / HALF_PANELS * 2u * HALF_PANELS + group % HALF_PANELS + i * HALF_PANELS; }
    return group * PANELS + i;
}
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) {
    let batch_1 = batch % 2u;
    let batch_1_rest = batch / 2u;
    let batch_0 = batch_1_rest;
    var w = vec4<f32>(v);
    buffer_3[(batch_0) * 12u + (batch_1) * 6u + (n4)] = w;
}
var<workgroup> stored_rows: array<f32, STORED_ELEMENTS>;
var<workgroup> invocation_sums: array<vec4<f32>, THREADS * VEC4S_PER_LOAD>;
var<workgroup> partial_sums: array<vec4<f32>, PANEL_VEC4S * WORKGROUP_PARTIALS>;
var<workgroup> invocation_squares: array<f32, THREADS>;
var<workgroup> partial_squares: array<f32, WORKGROUP_PARTIALS * ROWS>;
fn reduce_sums(local: u32, low: vec4<f32>, high: vec4<f32>) {
    invocation_sums[local * VEC4S_PER_LOAD] = low;
    if (VEC4S_PER_LOAD == 2u) { invocation_sums[local * VEC4S_PER_LOAD + VEC4S_PER_LOAD - 1u] = high; }
    workgroupBarrier();
    if (local < PANEL_VEC4S * WORKGROUP_PARTIALS) {
        let first = local / PANEL_VEC4S * PARTIAL_THREADS * VEC4S_PER_LOAD + local % PANEL_VEC4S;
        var sum = invocation_sums[first];
        { sum += invocation_sums[first + 1u * PANEL_VEC4S]; }
{ sum += invocation_sums[first + 2u * PANEL_VEC4S]; }
{ sum += invocation_sums[first + 3u * PANEL_VEC4S]; }
{ sum += invocation_sums[first + 4u * PANEL_VEC4S]; }
{ sum += invocation_sums[first + 5u * PANEL_VEC4S]; }
{ sum += invocation_sums[first + 6u * PANEL_VEC4S]; }
{ sum += invocation_sums[first + 7u * PANEL_VEC4S]; }
{ sum += invocation_sums[first + 8u * PANEL_VEC4S]; }
{ sum += invocation_sums[first + 9u * PANEL_VEC4S]; }
{ sum += invocation_sums[first + 10u * PANEL_VEC4S]; }
{ sum += invocation_sums[first + 11u * PANEL_VEC4S]; }
{ sum += invocation_sums[first + 12u * PANEL_VEC4S]; }
{ sum += invocation_sums[first + 13u * PANEL_VEC4S]; }
{ sum += invocation_sums[first + 14u * PANEL_VEC4S]; }
{ sum += invocation_sums[first + 15u * PANEL_VEC4S]; }
        partial_sums[local] = sum;
    }
}
fn reduce_squares(local: u32, r: u32, square: f32) {
    invocation_squares[local] = square;
    workgroupBarrier();
    if (local < WORKGROUP_PARTIALS) {
        var sum = invocation_squares[local * PARTIAL_THREADS];
        { sum += invocation_squares[local * PARTIAL_THREADS + 1u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 2u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 3u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 4u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 5u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 6u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 7u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 8u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 9u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 10u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 11u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 12u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 13u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 14u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 15u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 16u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 17u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 18u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 19u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 20u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 21u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 22u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 23u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 24u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 25u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 26u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 27u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 28u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 29u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 30u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 31u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 32u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 33u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 34u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 35u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 36u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 37u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 38u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 39u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 40u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 41u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 42u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 43u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 44u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 45u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 46u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 47u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 48u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 49u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 50u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 51u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 52u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 53u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 54u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 55u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 56u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 57u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 58u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 59u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 60u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 61u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 62u]; }
{ sum += invocation_squares[local * PARTIAL_THREADS + 63u]; }
        partial_squares[r * WORKGROUP_PARTIALS + local] = sum;
    }
}
fn final_sum(r: u32, at: u32) -> vec4<f32> {
    var sums: array<vec4<f32>, MATRICES>;
    {
        let first_partial = (at / PANEL_VEC4S * MATRICES + 0u) * PANEL_PARTIALS * PANEL_VEC4S + at % PANEL_VEC4S;
        sums[0u] = partial_sums[first_partial];
        { sums[0u] += partial_sums[first_partial + 1u * PANEL_VEC4S]; }
    }
    if (NORMALIZED) {
        var square = partial_squares[r * WORKGROUP_PARTIALS];
        { square += partial_squares[r * WORKGROUP_PARTIALS + 1u]; }
        let factor = inverseSqrt(square / f32(size_k()) + epsilon());
        { sums[0u] *= factor; }
    }
    return combine(sums[0], sums[MATRICES - 1u]);
}
@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) { multiply(group, local); }
fn multiply(group: vec3<u32>, local: u32) {
    let batch = group.z;
    let first = group.y * ROWS;
    let last_row = size_m() - 1u;
    let panel_group = group.x;
    let team = local / PANEL_THREADS;
    let c = team % MATRICES;
    let panel = panel_index(panel_group, team / MATRICES);
    let row_load = local % LOADS_PER_ROW;
    let lane = local % PANEL_THREADS / LOADS_PER_ROW;
    let base = (first_panel(batch) + select(panel, min(panel, last_panel()), PANELS > 1u)) * panel_loads() + row_load;
    var acc: array<vec4<f32>, ROWS * VEC4S_PER_LOAD>;
    { acc[0u] = vec4<f32>(0.0); }
    var loads: array<PanelLoad, UNROLL>;
    for (var step = 0u; step < (size_k() + K_LANES * UNROLL - 1u) / (K_LANES * UNROLL); step++) {
        let first_k = lane + step * (K_LANES * UNROLL);
        {
            let k = first_k + 0u * K_LANES;
            loads[0u] = load_b(c, base + select(k, min(k, size_k() - 1u), GUARD_K) * LOADS_PER_ROW);
        }
{
            let k = first_k + 1u * K_LANES;
            loads[1u] = load_b(c, base + select(k, min(k, size_k() - 1u), GUARD_K) * LOADS_PER_ROW);
        }
        if (NORMALIZED && step == 0u) {
            {
                if (0u > 0u) { workgroupBarrier(); }
                var square = 0.0;
                for (var k = local; k < size_k(); k += THREADS) {
                    let x = load_a(batch, min(first + 0u, last_row), k);
                    square = fma(x, x, square);
                    if (STORED) { stored_rows[0u * size_k() + k] = x * load_scale(k); }
                }
                reduce_squares(local, 0u, square);
            }
            workgroupBarrier();
        }
        {
            let k = first_k + 0u * K_LANES;
            if (!GUARD_K || k < size_k()) {
                var scale = 1.0;
                if (NORMALIZED && !STORED) { scale = load_scale(k); }
                {
                    var x = 0.0;
                    if (STORED) { x = stored_rows[0u * size_k() + k]; } else {
                        x = load_a(batch, min(first + 0u, last_row), k);
                        if (NORMALIZED) { x = x * scale; }
                    }
                    { acc[0u * VEC4S_PER_LOAD + 0u] += column_vec4(loads[0u], 0u) * x; }
                }
            }
        }
{
            let k = first_k + 1u * K_LANES;
            if (!GUARD_K || k < size_k()) {
                var scale = 1.0;
                if (NORMALIZED && !STORED) { scale = load_scale(k); }
                {
                    var x = 0.0;
                    if (STORED) { x = stored_rows[0u * size_k() + k]; } else {
                        x = load_a(batch, min(first + 0u, last_row), k);
                        if (NORMALIZED) { x = x * scale; }
                    }
                    { acc[0u * VEC4S_PER_LOAD + 0u] += column_vec4(loads[1u], 0u) * x; }
                }
            }
        }
    }
    {
        if (0u > 0u) { workgroupBarrier(); }
        reduce_sums(local, acc[0u * VEC4S_PER_LOAD], acc[0u * VEC4S_PER_LOAD + VEC4S_PER_LOAD - 1u]);
        workgroupBarrier();
        let n4 = panel_index(panel_group, local / PANEL_VEC4S) * PANEL_VEC4S + local % PANEL_VEC4S;
        if (local < PANEL_VEC4S * PANELS && n4 * 4u < size_n() && first + 0u <= last_row) {
            var v = final_sum(0u, local);
            if (ROTATED == 1u) { v = rotate(first + 0u, n4, v, v.yxwz); }
            if (ROTATED == 2u) { v = rotate(first + 0u, n4, v, final_sum(0u, (local + PANEL_VEC4S) % (2u * PANEL_VEC4S))); }
            store(batch, first + 0u, n4, v);
        }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<i32>;
@group(0) @binding(1) var<storage, read> buffer_1: array<f32>;
@group(0) @binding(2) var<storage, read> buffer_2: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> buffer_3: array<vec4<f32>>;
