// Matrix product with few rows and a constant second operand, bound by streaming that operand once: `result[batch] =
// a[batch] * b[batch]`. The constant lies in panels of COLUMNS columns, so that invocations side by side read memory side by
// side: a unit of 16 bytes is the columns of a panel's row that one invocation takes, PARTS units are a row, and LANES
// invocations share the depth. The sums of the invocations are added through workgroup memory in two steps, always in the
// same order, however many rows there are. Picked for products of one to a few rows.
//
// Replaced: the knobs, the sizes, the type of a unit and the hooks. `load_a` is only called within K.

const THREADS = 64u;
const ROWS = 2u;
/// Units that an invocation loads before it uses the first.
const UNROLL = 2u;
/// Units in a row of a panel, and vectors of four columns in a unit.
const PARTS = 2u;
const VECTORS = 2u;
/// Whether K may end within a step.
const GUARD_K = true;
const COLUMNS = PARTS * VECTORS * 4u;
const LANES = THREADS / PARTS;
/// Vectors of four columns in a panel.
const GROUPS = PARTS * VECTORS;
/// Invocations whose sums one invocation adds up in the first step, and how many such sums of a column there are.
const SHARE = 8u;
const SHARES = LANES / SHARE;
const_assert THREADS % PARTS == 0u && LANES % SHARE == 0u && GROUPS * SHARES <= THREADS;

/// 16 bytes of a panel.
alias Unit = vec4<u32>;

@group(0) @binding(0) var<storage, read> a_buffer: array<f32>;
@group(0) @binding(1) var<storage, read> panels: array<Unit>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 3u; }
fn size_n() -> u32 { return 32u; }
fn size_k() -> u32 { return 32u; }
/// Units of a panel.
fn panel_units() -> u32 { return 64u; }
/// The first panel of a batch.
fn first_panel(batch: u32) -> u32 { return batch * 2u; }

/// Element `k` of row `row` of a.
fn load_a(batch: u32, row: u32, k: u32) -> f32 { return a_buffer[(batch * 3u + row) * 32u + k]; }
/// Unit `at` of the constant.
fn load_b(at: u32) -> Unit { return panels[at]; }
/// Vector `i` of four columns of a unit.
fn decode(unit: Unit, i: u32) -> vec4<f32> {
    let pair = select(unit.xy, unit.zw, i == 1u);
    return vec4<f32>(unpack2x16float(pair.x), unpack2x16float(pair.y));
}
/// Stores four elements of row `row`, from column `4 * n4`.
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) { result[(batch * 3u + row) * 8u + n4] = v; }

var<workgroup> cells: array<vec4<f32>, THREADS * VECTORS>;
var<workgroup> shares: array<vec4<f32>, GROUPS * SHARES>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let batch = group.z;
    let first = group.y * ROWS;
    let last_row = size_m() - 1u;
    let part = local % PARTS;
    let lane = local / PARTS;
    let base = (first_panel(batch) + group.x) * panel_units() + part;
    var acc: array<vec4<f32>, ROWS * VECTORS>;
    // unroll
    for (var i = 0u; i < ROWS * VECTORS; i++) { acc[i] = vec4<f32>(0.0); }
    var units: array<Unit, UNROLL>;
    for (var from_k = lane; from_k < size_k(); from_k += LANES * UNROLL) {
        // unroll
        for (var j = 0u; j < UNROLL; j++) {
            let k = from_k + j * LANES;
            units[j] = load_b(base + select(k, min(k, size_k() - 1u), GUARD_K) * PARTS);
        }
        // unroll
        for (var j = 0u; j < UNROLL; j++) {
            let k = from_k + j * LANES;
            if (!GUARD_K || k < size_k()) {
                // unroll
                for (var r = 0u; r < ROWS; r++) {
                    let x = load_a(batch, min(first + r, last_row), k);
                    // unroll
                    for (var i = 0u; i < VECTORS; i++) { acc[r * VECTORS + i] += decode(units[j], i) * x; }
                }
            }
        }
    }
    // unroll
    for (var r = 0u; r < ROWS; r++) {
        if (r > 0u) { workgroupBarrier(); }
        // unroll
        for (var i = 0u; i < VECTORS; i++) { cells[(part * VECTORS + i) * LANES + lane] = acc[r * VECTORS + i]; }
        workgroupBarrier();
        if (local < GROUPS * SHARES) {
            let at = local / SHARES * LANES + local % SHARES;
            var sum = cells[at];
            // unroll
            for (var i = 1u; i < SHARE; i++) { sum += cells[at + i * SHARES]; }
            shares[local] = sum;
        }
        workgroupBarrier();
        let n4 = group.x * GROUPS + local;
        if (local < GROUPS && n4 * 4u < size_n() && first + r <= last_row) {
            var sum = shares[local * SHARES];
            // unroll
            for (var i = 1u; i < SHARES; i++) { sum += shares[local * SHARES + i]; }
            store(batch, first + r, n4, sum);
        }
    }
}
