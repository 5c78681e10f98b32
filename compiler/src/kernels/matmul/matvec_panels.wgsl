// Matrix product with few rows and a constant second operand, bound by streaming that operand once: `result[batch] =
// a[batch] * b[batch]`. The constant lies in panels of COLUMNS columns, so that invocations side by side read memory side by
// side: a unit of 16 bytes is the columns of a panel's row that one invocation takes, PARTS units are a row, and LANES
// invocations share the depth. The sums of the invocations are added in two steps, of which the first stays within a subgroup
// where that can be, always in the same order, however many rows there are. Picked for products of one to a few rows.
//
// Rows may be normalised by their root mean square on the way, and there may be a second constant of the same form, and columns
// may be rotated in pairs, all as in matvec_codes.wgsl.
//
// Replaced: the knobs, the sizes, the type of a unit and the hooks. `load_a` is only called within K.

const THREADS = 64u;
const ROWS = 2u;
/// Units that an invocation loads before it uses the first.
const UNROLL = 2u;
/// Constants, and panels of each that a workgroup takes.
const MATRICES = 2u;
const PANELS = 1u;
/// Residuals that rows, normalised once, are added to before they are normalised: none or one.
const RESIDUALS = 0u;
/// Whether rows are normalised, and whether those are stored in workgroup memory, with how many elements.
const NORMALISED = true;
const STORED = true;
const STORED_ELEMENTS = 64u;
/// Units in a row of a panel, and vectors of four columns in a unit.
const PARTS = 2u;
const VECTORS = 2u;
/// Whether columns are rotated in pairs (1: of neighbours, 2: half a head apart), and how many panels half a head is.
const ROTATED = 0u;
const HALF_PANELS = 1u;
/// Whether K may end within a step.
const GUARD_K = true;
const COLUMNS = PARTS * VECTORS * 4u;
/// Invocations that take a panel, and those that share its depth.
const TEAM = THREADS / MATRICES / PANELS;
const LANES = TEAM / PARTS;
/// Vectors of four columns in a panel.
const GROUPS = PARTS * VECTORS;
/// Invocations whose sums of the same columns are added up in the first step, and how many such sums of a panel there are.
const SHARE = 8u;
const SHARES = LANES / SHARE;
/// Invocations that add up sums of squares in the first step, and how many such sums there are.
const GATHERED = SHARE * PARTS;
const SQUARES = THREADS / GATHERED;
const_assert TEAM % PARTS == 0u && LANES % SHARE == 0u && GROUPS * SQUARES <= THREADS;

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
/// The first panel of a batch, and its last one.
fn first_panel(batch: u32) -> u32 { return batch * 2u; }
fn last_panel() -> u32 { return 1u; }

/// Element `k` of row `row` of a.
fn load_a(batch: u32, row: u32, k: u32) -> f32 { return a_buffer[(batch * 3u + row) * 32u + k]; }
/// Makes rows ready that are sums with a residual, before the first of them is read.
fn prepare_rows(batch: u32, first: u32, local: u32) {}
/// What an element of a normalised row is multiplied by, and what is added to the mean of its squares.
fn load_scale(k: u32) -> f32 { return 1.0; }
fn epsilon() -> f32 { return 1e-5; }
/// Unit `at` of constant `c`.
fn load_b(c: u32, at: u32) -> Unit { return panels[at]; }
/// Vector `i` of four columns of a unit.
fn decode(unit: Unit, i: u32) -> vec4<f32> {
    let pair = select(unit.xy, unit.zw, i == 1u);
    return vec4<f32>(unpack2x16float(pair.x), unpack2x16float(pair.y));
}
/// What is stored of the sums of both constants.
fn join(first: vec4<f32>, second: vec4<f32>) -> vec4<f32> { return first * second; }
/// What is stored of four columns and those that are paired with them.
fn turned(row: u32, n4: u32, own: vec4<f32>, other: vec4<f32>) -> vec4<f32> { return own; }
/// Panel `i` of a workgroup. Where columns half a head apart are rotated, so are its two panels.
fn panel_of(group: u32, i: u32) -> u32 {
    if (ROTATED == 2u) { return group / HALF_PANELS * 2u * HALF_PANELS + group % HALF_PANELS + i * HALF_PANELS; }
    return group * PANELS + i;
}
/// Stores four elements of row `row`, from column `4 * n4`.
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) { result[(batch * 3u + row) * 8u + n4] = v; }

/// Rows as products take them.
var<workgroup> stored: array<f32, STORED_ELEMENTS>;
var<workgroup> cells: array<vec4<f32>, THREADS * VECTORS>;
var<workgroup> shares: array<vec4<f32>, GROUPS * SQUARES>;
var<workgroup> square_cells: array<f32, THREADS>;
var<workgroup> square_shares: array<f32, SQUARES * ROWS>;

/// Adds up what SHARE invocations have found for the same columns: for the first four of those that they take, and the last.
fn share_sums(local: u32, low: vec4<f32>, high: vec4<f32>) {
    cells[local * VECTORS] = low;
    if (VECTORS == 2u) { cells[local * VECTORS + VECTORS - 1u] = high; }
    workgroupBarrier();
    if (local < GROUPS * SQUARES) {
        let first = local / GROUPS * GATHERED * VECTORS + local % GROUPS;
        var sum = cells[first];
        // unroll
        for (var i = 1u; i < SHARE; i++) { sum += cells[first + i * GROUPS]; }
        shares[local] = sum;
    }
}

/// Adds up the squares of row `r` that neighbouring invocations have found.
fn share_squares(local: u32, r: u32, square: f32) {
    square_cells[local] = square;
    workgroupBarrier();
    if (local < SQUARES) {
        var sum = square_cells[local * GATHERED];
        // unroll
        for (var i = 1u; i < GATHERED; i++) { sum += square_cells[local * GATHERED + i]; }
        square_shares[r * SQUARES + local] = sum;
    }
}

/// What is made of the sums of a row in four columns, number `at` of those that the workgroup's panels have.
fn total(r: u32, at: u32) -> vec4<f32> {
    var sums: array<vec4<f32>, MATRICES>;
    // unroll
    for (var m = 0u; m < MATRICES; m++) {
        let from_share = (at / GROUPS * MATRICES + m) * SHARES * GROUPS + at % GROUPS;
        sums[m] = shares[from_share];
        // unroll
        for (var i = 1u; i < SHARES; i++) { sums[m] += shares[from_share + i * GROUPS]; }
    }
    if (NORMALISED) {
        var square = square_shares[r * SQUARES];
        // unroll
        for (var i = 1u; i < SQUARES; i++) { square += square_shares[r * SQUARES + i]; }
        let factor = inverseSqrt(square / f32(size_k()) + epsilon());
        // unroll
        for (var m = 0u; m < MATRICES; m++) { sums[m] *= factor; }
    }
    return join(sums[0], sums[MATRICES - 1u]);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) { multiply(group, local); }

fn multiply(group: vec3<u32>, local: u32) {
    let batch = group.z;
    let first = group.y * ROWS;
    let last_row = size_m() - 1u;
    let panels_of = group.x;
    let team = local / TEAM;
    let c = team % MATRICES;
    let panel = panel_of(panels_of, team / MATRICES);
    let part = local % PARTS;
    let lane = local % TEAM / PARTS;
    let base = (first_panel(batch) + select(panel, min(panel, last_panel()), PANELS > 1u)) * panel_units() + part;
    var acc: array<vec4<f32>, ROWS * VECTORS>;
    // unroll
    for (var i = 0u; i < ROWS * VECTORS; i++) { acc[i] = vec4<f32>(0.0); }
    var units: array<Unit, UNROLL>;
    for (var step = 0u; step < (size_k() + LANES * UNROLL - 1u) / (LANES * UNROLL); step++) {
        let from_k = lane + step * (LANES * UNROLL);
        // unroll
        for (var j = 0u; j < UNROLL; j++) {
            let k = from_k + j * LANES;
            units[j] = load_b(c, base + select(k, min(k, size_k() - 1u), GUARD_K) * PARTS);
        }
        if (NORMALISED && step == 0u) {
            // unroll
            for (var i = 0u; i < RESIDUALS; i++) { prepare_rows(batch, first, local); }
            // unroll
            for (var r = 0u; r < ROWS; r++) {
                if (r > 0u) { workgroupBarrier(); }
                var square = 0.0;
                for (var k = local; k < size_k(); k += THREADS) {
                    let x = load_a(batch, min(first + r, last_row), k);
                    square = fma(x, x, square);
                    if (STORED) { stored[r * size_k() + k] = x * load_scale(k); }
                }
                share_squares(local, r, square);
            }
            workgroupBarrier();
        }
        // unroll
        for (var j = 0u; j < UNROLL; j++) {
            let k = from_k + j * LANES;
            if (!GUARD_K || k < size_k()) {
                var weight = 1.0;
                if (NORMALISED && !STORED) { weight = load_scale(k); }
                // unroll
                for (var r = 0u; r < ROWS; r++) {
                    var x = 0.0;
                    if (STORED) { x = stored[r * size_k() + k]; } else {
                        x = load_a(batch, min(first + r, last_row), k);
                        if (NORMALISED) { x = x * weight; }
                    }
                    // unroll
                    for (var i = 0u; i < VECTORS; i++) { acc[r * VECTORS + i] += decode(units[j], i) * x; }
                }
            }
        }
    }
    // unroll
    for (var r = 0u; r < ROWS; r++) {
        if (r > 0u) { workgroupBarrier(); }
        share_sums(local, acc[r * VECTORS], acc[r * VECTORS + VECTORS - 1u]);
        workgroupBarrier();
        let n4 = panel_of(panels_of, local / GROUPS) * GROUPS + local % GROUPS;
        if (local < GROUPS * PANELS && n4 * 4u < size_n() && first + r <= last_row) {
            var v = total(r, local);
            if (ROTATED == 1u) { v = turned(first + r, n4, v, v.yxwz); }
            if (ROTATED == 2u) { v = turned(first + r, n4, v, total(r, (local + GROUPS) % (2u * GROUPS))); }
            store(batch, first + r, n4, v);
        }
    }
}
