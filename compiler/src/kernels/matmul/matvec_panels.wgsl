// Small-M matmul with a constant second operand, whose time is bound by reading the constant once: `result[batch] =
// a[batch] * b[batch]`. The constant is packed into panels of COLUMNS columns, so that adjacent invocations read
// adjacent memory. A load of 16 bytes reads columns of one row of a panel, LOADS_PER_ROW loads read a row, and K_LANES
// invocations split K. The sums of the invocations are added in two steps, the first within a subgroup where possible,
// in an order that does not depend on the number of rows.
//
// RMSNorm of the rows, a residual, a second weight matrix and RoPE may be fused, as in matvec_quantized.wgsl.
//
// The compiler replaces the knobs, the sizes, the type of a load and the hooks. `load_a` is only called for positions within K.

const THREADS = 64u;
const ROWS = 2u;
/// Number of loads that an invocation issues before it uses the first.
const UNROLL = 2u;
/// Number of weight matrices.
const MATRICES = 2u;
/// Number of panels (blocks of COLUMNS columns) of each weight matrix that a workgroup computes.
const PANELS = 1u;
/// 1 if the rows are normalized, a residual is added to them, and the sum is normalized again before the matmul; else 0.
const RESIDUALS = 0u;
/// True if rows are normalized before the matmul (fused RMSNorm).
const NORMALIZED = true;
/// True if rows, multiplied by the fused norm's scale, are stored in workgroup memory.
const STORED = true;
/// Number of row elements that are stored in workgroup memory, over all rows.
const STORED_ELEMENTS = 64u;
/// Number of loads (of 16 bytes) that read one row of a panel (a block of COLUMNS columns).
const LOADS_PER_ROW = 2u;
/// Number of columns that one load (16 bytes) reads, in vec4s.
const VEC4S_PER_LOAD = 2u;
/// Fused RoPE, which rotates pairs of columns. 0: none, 1: adjacent columns, 2: columns half a head apart.
const ROTATED = 0u;
/// Number of panels (blocks of COLUMNS columns) that half of an attention head spans.
const HALF_PANELS = 1u;
/// True if K may end within a step, so that reads along K need a bounds check.
const GUARD_K = true;
const COLUMNS = LOADS_PER_ROW * VEC4S_PER_LOAD * 4u;
/// Number of invocations that compute one panel (a block of COLUMNS columns).
const PANEL_THREADS = THREADS / MATRICES / PANELS;
/// Number of invocations that split the K positions of a panel.
const K_LANES = PANEL_THREADS / LOADS_PER_ROW;
/// Number of columns of a panel, in vec4s.
const PANEL_VEC4S = LOADS_PER_ROW * VEC4S_PER_LOAD;
/// Number of invocations whose sums of the same columns are added in the first step of the reduction.
const PARTIAL_LANES = 8u;
/// Number of partial sums of a column after the first step of the reduction.
const PANEL_PARTIALS = K_LANES / PARTIAL_LANES;
/// Number of invocations whose sums of squares are added in the first step of the reduction.
const PARTIAL_THREADS = PARTIAL_LANES * LOADS_PER_ROW;
/// Number of partial sums of a row's squares after the first step of the reduction.
const WORKGROUP_PARTIALS = THREADS / PARTIAL_THREADS;
const_assert PANEL_THREADS % LOADS_PER_ROW == 0u && K_LANES % PARTIAL_LANES == 0u && PANEL_VEC4S * WORKGROUP_PARTIALS <= THREADS;

/// Type of one load: 16 bytes of a panel.
alias PanelLoad = vec4<u32>;

@group(0) @binding(0) var<storage, read> a_buffer: array<f32>;
@group(0) @binding(1) var<storage, read> panels: array<PanelLoad>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 3u; }
fn size_n() -> u32 { return 32u; }
fn size_k() -> u32 { return 32u; }
/// Returns the number of loads (of 16 bytes) that read a whole panel (a block of COLUMNS columns).
fn panel_loads() -> u32 { return 64u; }
/// Returns the index of the first panel (a block of COLUMNS columns) of the matrix of batch `batch`.
fn first_panel(batch: u32) -> u32 { return batch * 2u; }
/// Returns the index of the last panel (a block of COLUMNS columns) of a matrix.
fn last_panel() -> u32 { return 1u; }

/// Loads element `k` of row `row` of the first operand.
fn load_a(batch: u32, row: u32, k: u32) -> f32 { return a_buffer[(batch * 3u + row) * 32u + k]; }
/// Computes the norm factors (1 / RMS) of rows to which a residual is added, before the first of these rows is read.
/// Does nothing without a residual.
fn prepare_rows(batch: u32, first: u32, local: u32) {}
/// Returns element `k` of the fused norm's scale.
fn load_scale(k: u32) -> f32 { return 1.0; }
/// Returns the epsilon of the fused norm.
fn epsilon() -> f32 { return 1e-5; }
/// Loads the element (of the type PanelLoad) with index `at` of the packed weight matrix `c` (0 or 1).
fn load_b(c: u32, at: u32) -> PanelLoad { return panels[at]; }
/// Returns the vec4 with index `i` of the columns that a load holds, as floats.
fn column_vec4(load: PanelLoad, i: u32) -> vec4<f32> {
    let pair = select(load.xy, load.zw, i == 1u);
    return vec4<f32>(unpack2x16float(pair.x), unpack2x16float(pair.y));
}
/// Combines the results of the two weight matrices, such as in a SwiGLU gate. Without a second matrix, returns the first result.
fn combine(first: vec4<f32>, second: vec4<f32>) -> vec4<f32> { return first * second; }
/// Rotates four elements of a result row by RoPE. `paired` holds the elements with which RoPE pairs them, one for each.
fn rotate(row: u32, n4: u32, v: vec4<f32>, paired: vec4<f32>) -> vec4<f32> { return v; }
/// Returns the index in the weight matrix of the workgroup's panel `i`, a block of COLUMNS columns. If RoPE rotates
/// columns that are half a head apart, the workgroup's two panels are half a head apart as well.
fn panel_index(group: u32, i: u32) -> u32 {
    if (ROTATED == 2u) { return group / HALF_PANELS * 2u * HALF_PANELS + group % HALF_PANELS + i * HALF_PANELS; }
    return group * PANELS + i;
}
/// Applies the epilogue to four elements of row `row` of the result, from column `4 * n4`, and stores them.
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) { result[(batch * 3u + row) * 8u + n4] = v; }

/// Rows multiplied by the norm's scale, but not yet by the norm factor (1 / RMS).
var<workgroup> stored_rows: array<f32, STORED_ELEMENTS>;
var<workgroup> invocation_sums: array<vec4<f32>, THREADS * VEC4S_PER_LOAD>;
var<workgroup> partial_sums: array<vec4<f32>, PANEL_VEC4S * WORKGROUP_PARTIALS>;
var<workgroup> invocation_squares: array<f32, THREADS>;
var<workgroup> partial_squares: array<f32, WORKGROUP_PARTIALS * ROWS>;

/// First step of the reduction: adds the sums of the same columns over PARTIAL_LANES invocations. `low` and `high` are
/// the sums of the first and of the last vec4 of an invocation's columns.
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

/// First step of the reduction of squares: adds the sums of squares of row `r` over PARTIAL_THREADS adjacent invocations.
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

/// Returns the matmul's result of row `r` in four adjacent columns. `at` counts the vec4s of columns of the workgroup's panels.
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
