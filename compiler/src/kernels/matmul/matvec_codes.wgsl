// Matrix product with few rows and a constant second operand of few bits, bound by streaming its codes once:
// `result[batch] = a[batch] * b[batch]`. The constant lies in panels of 16 columns: the codes of a panel, depth by depth, and
// behind them its scales, group by group. One workgroup takes a panel. A unit of 16 bytes is 16 columns of one depth, or of
// two where codes have 4 bits.
//
// An element is `(code - ZERO) * scale + bias`, so a sum over a group is `scale * (sum of x * code - ZERO * sum of x) + bias
// * sum of x`. SIDE invocations take PIECE neighbouring units of a group together and apply its scale to what each of them
// has summed up; with one group all invocations take units side by side and apply the scale in the end. Then the sums of
// all invocations are added through workgroup memory in two steps. That order is the same however many rows there are.
//
// Where integers are slow to become floats, codes become the last bits of halves from 1024 on, which are sums of 1024 and the
// code, or 16 times the code for every second one of 4 bits; what that adds is taken off with ZERO.
//
// Replaced: the knobs, the sizes and the hooks. `load_a` is only called within K.

const THREADS = 64u;
const ROWS = 2u;
/// Bits of a code.
const BITS = 4u;
/// Whether there are several groups along K.
const GROUPED = true;
/// Units that share a scale and are summed up before it is applied, and the invocations that do so.
const PIECE = 16u;
const SIDE = 4u;
/// Pieces that an invocation loads before it uses the first.
const AHEAD = 2u;
/// Whether codes become halves.
const HALVES = true;
/// What codes count from.
const ZERO = 8.0;
/// Whether K may end within a step.
const GUARD = true;

/// Depths of a unit.
const DEEP = 8u / BITS;
/// Units of a piece that an invocation takes.
const EACH = PIECE / SIDE;
/// Pieces that are taken at the same time.
const BLOCKS = THREADS / SIDE;
/// Vectors of four columns of a unit, all depths together.
const VECTORS = 32u / BITS;
/// Invocations whose sums one invocation adds up in the first step, and how many such sums of a column there are.
const SHARE = 16u;
const SHARES = THREADS / SHARE;
const_assert PIECE % SIDE == 0u && THREADS % SHARE == 0u && 4u * SHARES <= THREADS;

@group(0) @binding(0) var<storage, read> a_buffer: array<f32>;
@group(0) @binding(1) var<storage, read> panels: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 3u; }
fn size_n() -> u32 { return 32u; }
fn size_k() -> u32 { return 64u; }
/// Units of a panel, and those of codes among them.
fn panel_units() -> u32 { return 40u; }
fn code_units() -> u32 { return 32u; }
/// Pieces of a panel, and those of a group.
fn pieces() -> u32 { return 2u; }
fn pieces_of_group() -> u32 { return 1u; }
/// The first panel of a batch.
fn first_panel(batch: u32) -> u32 { return batch * 2u; }
/// Blocks of ROWS rows.
fn row_blocks() -> u32 { return 2u; }

/// Element `k` of row `row` of a.
fn load_a(batch: u32, row: u32, k: u32) -> f32 { return a_buffer[(batch * 3u + row) * 64u + k]; }
/// Unit `at` of the constant.
fn load_b(at: u32) -> vec4<u32> { return panels[at]; }
/// The scales and biases of four columns of a panel in group `g`.
fn codes_scale(base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(1.0); }
fn codes_bias(base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(0.0); }
/// Stores four elements of row `row`, from column `4 * n4`.
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) { result[(batch * 3u + row) * 8u + n4] = v; }

/// Four codes of a word, from the lowest bits on; of 4 bits the first four, or the others if `high`.
fn codes_of(word: u32, high: bool) -> vec4<f32> {
    if (BITS == 8u) {
        if (HALVES) {
            let even = unpack2x16float((word & 0x00ff00ffu) | 0x64006400u);
            let odd = unpack2x16float(((word >> 8u) & 0x00ff00ffu) | 0x64006400u);
            return vec4<f32>(even.x, odd.x, even.y, odd.y);
        }
        return vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u));
    }
    if (HALVES) {
        let first = unpack2x16float((word & 0x000f000fu) | 0x64006400u);
        let second = unpack2x16float((word & 0x00f000f0u) | 0x64006400u);
        let third = unpack2x16float(((word >> 8u) & 0x000f000fu) | 0x64006400u);
        let fourth = unpack2x16float(((word >> 8u) & 0x00f000f0u) | 0x64006400u);
        if (high) { return vec4<f32>(first.y, second.y, third.y, fourth.y); }
        return vec4<f32>(first.x, second.x, third.x, fourth.x);
    }
    let half = select(word, word >> 16u, high);
    return vec4<f32>((vec4<u32>(half) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u));
}

/// What four codes of `codes_of` are multiplied by.
fn spread(x: f32) -> vec4<f32> {
    if (HALVES && BITS == 4u) { return vec4<f32>(x, x * 0.0625, x, x * 0.0625); }
    return vec4<f32>(x);
}

/// What the products of `codes_of` and `spread(1.0)` have more than codes.
fn excess() -> vec4<f32> {
    if (!HALVES) { return vec4<f32>(ZERO); }
    if (BITS == 4u) { return vec4<f32>(1024.0 + ZERO, 64.0 + ZERO, 1024.0 + ZERO, 64.0 + ZERO); }
    return vec4<f32>(1024.0 + ZERO);
}

var<workgroup> cells: array<vec4<f32>, THREADS * 4u>;
var<workgroup> shares: array<vec4<f32>, 4u * SHARES>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let batch = group.z;
    let panel = group.x / row_blocks();
    let first = group.x % row_blocks() * ROWS;
    let last_row = size_m() - 1u;
    let base = (first_panel(batch) + panel) * panel_units();
    let block = local / SIDE;
    let side = local % SIDE;
    // Sums of a group, of products and of the first operand alone, and of all groups so far.
    var part: array<vec4<f32>, ROWS * 4u>;
    var total: array<f32, ROWS>;
    var acc: array<vec4<f32>, ROWS * 4u>;
    // unroll
    for (var i = 0u; i < ROWS * 4u; i++) { part[i] = vec4<f32>(0.0); acc[i] = vec4<f32>(0.0); }
    // unroll
    for (var r = 0u; r < ROWS; r++) { total[r] = 0.0; }
    var units: array<vec4<u32>, AHEAD * EACH>;
    for (var from_piece = block; from_piece < pieces() && block < BLOCKS; from_piece += BLOCKS * AHEAD) {
        // unroll
        for (var s = 0u; s < AHEAD; s++) {
            // unroll
            for (var j = 0u; j < EACH; j++) {
                let u = (from_piece + s * BLOCKS) * PIECE + j * SIDE + side;
                units[s * EACH + j] = load_b(base + select(u, min(u, code_units() - 1u), GUARD));
            }
        }
        // unroll
        for (var s = 0u; s < AHEAD; s++) {
            let piece = from_piece + s * BLOCKS;
            // unroll
            for (var j = 0u; j < EACH; j++) {
                let k = (piece * PIECE + j * SIDE + side) * DEEP;
                let unit = units[s * EACH + j];
                var codes: array<vec4<f32>, VECTORS>;
                // unroll
                for (var i = 0u; i < 4u; i++) {
                    codes[i * VECTORS / 4u] = codes_of(unit[i], false);
                    if (BITS == 4u) { codes[i * VECTORS / 4u + VECTORS / 8u] = codes_of(unit[i], true); }
                }
                // unroll
                for (var r = 0u; r < ROWS; r++) {
                    let row = min(first + r, last_row);
                    // unroll
                    for (var d = 0u; d < DEEP; d++) {
                        var x = load_a(batch, row, select(k + d, min(k + d, size_k() - 1u), GUARD));
                        // Past the end codes are whatever the last unit holds.
                        if (GUARD) { x = select(0.0, x, k + d < size_k()); }
                        let xs = spread(x);
                        total[r] += x;
                        // unroll
                        for (var i = 0u; i < 4u; i++) { part[r * 4u + i] += codes[d * 4u + i] * xs; }
                    }
                }
            }
            if (GROUPED) {
                // Past the end there are only zeros.
                let g = select(piece, min(piece, pieces() - 1u), GUARD) / pieces_of_group();
                // unroll
                for (var i = 0u; i < 4u; i++) {
                    let scale = codes_scale(base, g, i);
                    let bias = codes_bias(base, g, i);
                    // unroll
                    for (var r = 0u; r < ROWS; r++) {
                        let products = part[r * 4u + i] - excess() * total[r];
                        acc[r * 4u + i] += scale * products + bias * total[r];
                        part[r * 4u + i] = vec4<f32>(0.0);
                    }
                }
                // unroll
                for (var r = 0u; r < ROWS; r++) { total[r] = 0.0; }
            }
        }
    }
    if (!GROUPED) {
        // unroll
        for (var i = 0u; i < 4u; i++) {
            let scale = codes_scale(base, 0u, i);
            let bias = codes_bias(base, 0u, i);
            // unroll
            for (var r = 0u; r < ROWS; r++) {
                let products = part[r * 4u + i] - excess() * total[r];
                acc[r * 4u + i] = scale * products + bias * total[r];
            }
        }
    }
    // unroll
    for (var r = 0u; r < ROWS; r++) {
        if (r > 0u) { workgroupBarrier(); }
        // unroll
        for (var i = 0u; i < 4u; i++) { cells[i * THREADS + local] = acc[r * 4u + i]; }
        workgroupBarrier();
        if (local < 4u * SHARES) {
            let at = local / SHARES * THREADS + local % SHARES;
            var sum = cells[at];
            // unroll
            for (var i = 1u; i < SHARE; i++) { sum += cells[at + i * SHARES]; }
            shares[local] = sum;
        }
        workgroupBarrier();
        let n4 = panel * 4u + local;
        if (local < 4u && n4 * 4u < size_n() && first + r <= last_row) {
            var sum = shares[local * SHARES];
            // unroll
            for (var i = 1u; i < SHARES; i++) { sum += shares[local * SHARES + i]; }
            store(batch, first + r, n4, sum);
        }
    }
}
