// Small-M matmul with a constant second operand, bound by streaming it once: `result[batch] = a[batch] * b[batch]`. The
// constant is stored in panels of COLUMNS columns, so that adjacent invocations read adjacent memory. A load of 16
// bytes holds columns of one row of a panel, LOADS_PER_ROW loads are a row, and K_LANES invocations split K. The sums
// of the invocations are added in two steps, the first within a subgroup where possible, in an order that does not
// depend on the number of rows.
//
// RMSNorm of the rows, a residual, a second constant and RoPE may be fused, as in matvec_quantized.wgsl.
//
// Replaced: the knobs, the sizes, the type of a load and the hooks. `load_a` is only called within K.

const THREADS = 64u;
const ROWS = 2u;
/// Loads of an invocation before it uses the first.
const UNROLL = 2u;
/// Constants, and panels of each constant per workgroup.
const MATRICES = 2u;
const PANELS = 1u;
/// 1 if a residual is added to normalized rows before their norm, else 0.
const RESIDUALS = 0u;
/// True if rows are normalized, true if they are stored in workgroup memory, and the number of stored elements.
const NORMALIZED = true;
const STORED = true;
const STORED_ELEMENTS = 64u;
/// Loads of a row of a panel, and vec4s of columns in a load.
const LOADS_PER_ROW = 2u;
const VEC4S_PER_LOAD = 2u;
/// Rotation of column pairs (0: none, 1: adjacent columns, 2: columns half a head apart), and panels per half head.
const ROTATED = 0u;
const HALF_PANELS = 1u;
/// True if K may end within a step.
const GUARD_K = true;
const COLUMNS = LOADS_PER_ROW * VEC4S_PER_LOAD * 4u;
/// Invocations per panel, and invocations that split its K.
const PANEL_THREADS = THREADS / MATRICES / PANELS;
const K_LANES = PANEL_THREADS / LOADS_PER_ROW;
/// Vec4s of columns in a panel.
const PANEL_VEC4S = LOADS_PER_ROW * VEC4S_PER_LOAD;
/// Invocations whose sums of the same columns are added in the first step, and the number of such partial sums per
/// panel.
const PARTIAL_LANES = 8u;
const PANEL_PARTIALS = K_LANES / PARTIAL_LANES;
/// Invocations whose sums of squares are added in the first step, and the number of such partial sums.
const PARTIAL_THREADS = PARTIAL_LANES * LOADS_PER_ROW;
const WORKGROUP_PARTIALS = THREADS / PARTIAL_THREADS;
const_assert PANEL_THREADS % LOADS_PER_ROW == 0u && K_LANES % PARTIAL_LANES == 0u && PANEL_VEC4S * WORKGROUP_PARTIALS <= THREADS;

/// 16 bytes of a panel.
alias PanelLoad = vec4<u32>;

@group(0) @binding(0) var<storage, read> a_buffer: array<f32>;
@group(0) @binding(1) var<storage, read> panels: array<PanelLoad>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 3u; }
fn size_n() -> u32 { return 32u; }
fn size_k() -> u32 { return 32u; }
/// Loads of a panel.
fn panel_loads() -> u32 { return 64u; }
/// The first panel of a batch, and the last panel.
fn first_panel(batch: u32) -> u32 { return batch * 2u; }
fn last_panel() -> u32 { return 1u; }

/// Element `k` of row `row` of a.
fn load_a(batch: u32, row: u32, k: u32) -> f32 { return a_buffer[(batch * 3u + row) * 32u + k]; }
/// Prepares rows with a residual, before the first of them is read.
fn prepare_rows(batch: u32, first: u32, local: u32) {}
/// One element of the norm's scale, and the norm's epsilon.
fn load_scale(k: u32) -> f32 { return 1.0; }
fn epsilon() -> f32 { return 1e-5; }
/// Load `at` of constant `c`.
fn load_b(c: u32, at: u32) -> PanelLoad { return panels[at]; }
/// Vec4 `i` of the columns of a load.
fn column_vec4(load: PanelLoad, i: u32) -> vec4<f32> {
    let pair = select(load.xy, load.zw, i == 1u);
    return vec4<f32>(unpack2x16float(pair.x), unpack2x16float(pair.y));
}
/// Combines the sums of both constants.
fn combine(first: vec4<f32>, second: vec4<f32>) -> vec4<f32> { return first * second; }
/// Rotates four columns with the columns that are paired with them.
fn rotate(row: u32, n4: u32, v: vec4<f32>, paired: vec4<f32>) -> vec4<f32> { return v; }
/// Panel `i` of a workgroup. If columns half a head apart are rotated, the two panels are half a head apart, too.
fn panel_index(group: u32, i: u32) -> u32 {
    if (ROTATED == 2u) { return group / HALF_PANELS * 2u * HALF_PANELS + group % HALF_PANELS + i * HALF_PANELS; }
    return group * PANELS + i;
}
/// Stores four elements of row `row`, from column `4 * n4`.
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) { result[(batch * 3u + row) * 8u + n4] = v; }

/// Normalized rows before the norm factor.
var<workgroup> stored_rows: array<f32, STORED_ELEMENTS>;
var<workgroup> invocation_sums: array<vec4<f32>, THREADS * VEC4S_PER_LOAD>;
var<workgroup> partial_sums: array<vec4<f32>, PANEL_VEC4S * WORKGROUP_PARTIALS>;
var<workgroup> invocation_squares: array<f32, THREADS>;
var<workgroup> partial_squares: array<f32, WORKGROUP_PARTIALS * ROWS>;

/// Adds the sums of the same columns of PARTIAL_LANES invocations: the first and the last vec4 of their columns.
fn reduce_sums(local: u32, low: vec4<f32>, high: vec4<f32>) {
    invocation_sums[local * VEC4S_PER_LOAD] = low;
    if (VEC4S_PER_LOAD == 2u) { invocation_sums[local * VEC4S_PER_LOAD + VEC4S_PER_LOAD - 1u] = high; }
    workgroupBarrier();
    if (local < PANEL_VEC4S * WORKGROUP_PARTIALS) {
        let first = local / PANEL_VEC4S * PARTIAL_THREADS * VEC4S_PER_LOAD + local % PANEL_VEC4S;
        var sum = invocation_sums[first];
        // unroll
        for (var i = 1u; i < PARTIAL_LANES; i++) { sum += invocation_sums[first + i * PANEL_VEC4S]; }
        partial_sums[local] = sum;
    }
}

/// Adds the squares of row `r` of PARTIAL_THREADS adjacent invocations.
fn reduce_squares(local: u32, r: u32, square: f32) {
    invocation_squares[local] = square;
    workgroupBarrier();
    if (local < WORKGROUP_PARTIALS) {
        var sum = invocation_squares[local * PARTIAL_THREADS];
        // unroll
        for (var i = 1u; i < PARTIAL_THREADS; i++) { sum += invocation_squares[local * PARTIAL_THREADS + i]; }
        partial_squares[r * WORKGROUP_PARTIALS + local] = sum;
    }
}

/// The result of a row in four columns: vec4 `at` of the columns of the workgroup's panels.
fn final_sum(r: u32, at: u32) -> vec4<f32> {
    var sums: array<vec4<f32>, MATRICES>;
    // unroll
    for (var m = 0u; m < MATRICES; m++) {
        let first_partial = (at / PANEL_VEC4S * MATRICES + m) * PANEL_PARTIALS * PANEL_VEC4S + at % PANEL_VEC4S;
        sums[m] = partial_sums[first_partial];
        // unroll
        for (var i = 1u; i < PANEL_PARTIALS; i++) { sums[m] += partial_sums[first_partial + i * PANEL_VEC4S]; }
    }
    if (NORMALIZED) {
        var square = partial_squares[r * WORKGROUP_PARTIALS];
        // unroll
        for (var i = 1u; i < WORKGROUP_PARTIALS; i++) { square += partial_squares[r * WORKGROUP_PARTIALS + i]; }
        let factor = inverseSqrt(square / f32(size_k()) + epsilon());
        // unroll
        for (var m = 0u; m < MATRICES; m++) { sums[m] *= factor; }
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
    // unroll
    for (var i = 0u; i < ROWS * VEC4S_PER_LOAD; i++) { acc[i] = vec4<f32>(0.0); }
    var loads: array<PanelLoad, UNROLL>;
    for (var step = 0u; step < (size_k() + K_LANES * UNROLL - 1u) / (K_LANES * UNROLL); step++) {
        let first_k = lane + step * (K_LANES * UNROLL);
        // unroll
        for (var j = 0u; j < UNROLL; j++) {
            let k = first_k + j * K_LANES;
            loads[j] = load_b(c, base + select(k, min(k, size_k() - 1u), GUARD_K) * LOADS_PER_ROW);
        }
        if (NORMALIZED && step == 0u) {
            // unroll
            for (var i = 0u; i < RESIDUALS; i++) { prepare_rows(batch, first, local); }
            // unroll
            for (var r = 0u; r < ROWS; r++) {
                if (r > 0u) { workgroupBarrier(); }
                var square = 0.0;
                for (var k = local; k < size_k(); k += THREADS) {
                    let x = load_a(batch, min(first + r, last_row), k);
                    square = fma(x, x, square);
                    if (STORED) { stored_rows[r * size_k() + k] = x * load_scale(k); }
                }
                reduce_squares(local, r, square);
            }
            workgroupBarrier();
        }
        // unroll
        for (var j = 0u; j < UNROLL; j++) {
            let k = first_k + j * K_LANES;
            if (!GUARD_K || k < size_k()) {
                var scale = 1.0;
                if (NORMALIZED && !STORED) { scale = load_scale(k); }
                // unroll
                for (var r = 0u; r < ROWS; r++) {
                    var x = 0.0;
                    if (STORED) { x = stored_rows[r * size_k() + k]; } else {
                        x = load_a(batch, min(first + r, last_row), k);
                        if (NORMALIZED) { x = x * scale; }
                    }
                    // unroll
                    for (var i = 0u; i < VEC4S_PER_LOAD; i++) { acc[r * VEC4S_PER_LOAD + i] += column_vec4(loads[j], i) * x; }
                }
            }
        }
    }
    // unroll
    for (var r = 0u; r < ROWS; r++) {
        if (r > 0u) { workgroupBarrier(); }
        reduce_sums(local, acc[r * VEC4S_PER_LOAD], acc[r * VEC4S_PER_LOAD + VEC4S_PER_LOAD - 1u]);
        workgroupBarrier();
        let n4 = panel_index(panel_group, local / PANEL_VEC4S) * PANEL_VEC4S + local % PANEL_VEC4S;
        if (local < PANEL_VEC4S * PANELS && n4 * 4u < size_n() && first + r <= last_row) {
            var v = final_sum(r, local);
            if (ROTATED == 1u) { v = rotate(first + r, n4, v, v.yxwz); }
            if (ROTATED == 2u) { v = rotate(first + r, n4, v, final_sum(r, (local + PANEL_VEC4S) % (2u * PANEL_VEC4S))); }
            store(batch, first + r, n4, v);
        }
    }
}
