// Matrix product with few rows and a constant second operand of few bits, bound by streaming its codes once:
// `result[batch] = a[batch] * b[batch]`. The constant lies in panels of 16 columns: the codes of a panel, and behind them its
// scales, group by group. One workgroup takes a panel. A word holds neighbouring depths of a column, a unit of 16 bytes the
// words of four columns, and four units are a slot: all columns at the depths of a word.
//
// An element is `(code - ZERO) * scale + bias`, so a sum over a group is `scale * (sum of x * code - ZERO * sum of x) + bias
// * sum of x`. Four neighbouring invocations take the units of a slot; SIDE such fours take PIECE neighbouring slots of a
// group together and apply its scale to what each of them has summed up. With one group all invocations take slots side by
// side and apply the scale in the end. Then the sums of all invocations are added through workgroup memory in two steps. That
// order is the same however many rows there are.
//
// Rows may be normalised by their root mean square on the way: their elements are scaled as they are read, their squares are
// summed up beside the products, and the sums are divided in the end. And there may be a second constant of the same form,
// which the second half of the invocations takes, and whose sums `join` those of the first.
//
// Where integers are slow to become floats, codes become the last bits of halves from 1024 on, which are sums of 1024 and the
// code, or 16 times the code for every second one of 4 bits; what that adds is taken off with ZERO.
//
// Replaced: the knobs, the sizes and the hooks. `load_a` is only called within K.

const THREADS = 128u;
const ROWS = 2u;
/// Bits of a code.
const BITS = 4u;
/// Whether there are several groups along K.
const GROUPED = true;
/// Whether there are biases.
const BIASED = false;
/// Slots that share a scale and are summed up before it is applied, and the fours of invocations that do so.
const PIECE = 16u;
const SIDE = 4u;
/// Pieces that an invocation loads before it uses the first.
const AHEAD = 2u;
/// Whether codes become halves.
const HALVES = true;
/// What codes count from.
const ZERO = 8.0;
/// Constants, and whether rows are normalised.
const MATRICES = 2u;
const NORMALISED = true;
/// Whether K may end within a step.
const GUARD = true;

/// Vectors of four depths of a word.
const VECTORS = 8u / BITS;
/// Units of a piece that an invocation takes.
const EACH = PIECE / SIDE;
/// Invocations that take a constant, and pieces that they take at the same time.
const TEAM = THREADS / MATRICES;
const BLOCKS = TEAM / 4u / SIDE;
/// Invocations whose sums one invocation adds up in the first step, and how many such sums of a column there are.
const SHARE = 16u;
const SHARES = TEAM / 4u / SHARE;
const_assert PIECE % SIDE == 0u && TEAM % (4u * SHARE) == 0u;

@group(0) @binding(0) var<storage, read> a_buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> panels: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 3u; }
fn size_n() -> u32 { return 32u; }
fn size_k() -> u32 { return 64u; }
/// Units of a panel, and slots of codes in it.
fn panel_units() -> u32 { return 40u; }
fn slots() -> u32 { return 8u; }
/// Pieces of a panel, and those of a group.
fn pieces() -> u32 { return 1u; }
fn pieces_of_group() -> u32 { return 1u; }
/// The first panel of a batch.
fn first_panel(batch: u32) -> u32 { return batch * 2u; }
/// Blocks of ROWS rows.
fn row_blocks() -> u32 { return 2u; }

/// Four elements of row `row` of a, from element `4 * k4`.
fn load_a(batch: u32, row: u32, k4: u32) -> vec4<f32> { return a_buffer[(batch * 3u + row) * 16u + k4]; }
/// What four elements of a normalised row are multiplied by, and what is added to the mean of its squares.
fn load_scale(k4: u32) -> vec4<f32> { return vec4<f32>(1.0); }
fn epsilon() -> f32 { return 1e-5; }
/// Unit `at` of constant `c`.
fn load_b(c: u32, at: u32) -> vec4<u32> { return panels[at]; }
/// The scales and biases of four columns of a panel in group `g`.
fn codes_scale(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(1.0); }
fn codes_bias(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(0.0); }
/// What is stored of the sums of both constants.
fn join(first: vec4<f32>, second: vec4<f32>) -> vec4<f32> { return first * second; }
/// Stores four elements of row `row`, from column `4 * n4`.
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) { result[(batch * 3u + row) * 8u + n4] = v; }

/// The sum of the products of a word's codes, as `spread` expects them, with what it gives.
fn products(word: u32, xs: array<vec4<f32>, VECTORS>) -> f32 {
    if (BITS == 8u) {
        if (HALVES) {
            let even = unpack2x16float((word & 0x00ff00ffu) | 0x64006400u);
            let odd = unpack2x16float(((word >> 8u) & 0x00ff00ffu) | 0x64006400u);
            return dot(vec4<f32>(even.x, odd.x, even.y, odd.y), xs[0]);
        }
        return dot(vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u)), xs[0]);
    }
    if (HALVES) {
        let first = unpack2x16float((word & 0x000f000fu) | 0x64006400u);
        let second = unpack2x16float((word & 0x00f000f0u) | 0x64006400u);
        let third = unpack2x16float(((word >> 8u) & 0x000f000fu) | 0x64006400u);
        let fourth = unpack2x16float(((word >> 8u) & 0x00f000f0u) | 0x64006400u);
        return dot(vec4<f32>(first.x, second.x, third.x, fourth.x), xs[0])
            + dot(vec4<f32>(first.y, second.y, third.y, fourth.y), xs[VECTORS - 1u]);
    }
    let shifts = vec4<u32>(0u, 4u, 8u, 12u);
    return dot(vec4<f32>((vec4<u32>(word) >> shifts) & vec4<u32>(15u)), xs[0])
        + dot(vec4<f32>((vec4<u32>(word >> 16u) >> shifts) & vec4<u32>(15u)), xs[VECTORS - 1u]);
}

/// What four codes of a word are multiplied by.
fn spread(x: vec4<f32>) -> vec4<f32> {
    if (HALVES && BITS == 4u) { return x * vec4<f32>(1.0, 0.0625, 1.0, 0.0625); }
    return x;
}

/// What the products of four codes with `x` have more than those of elements before their scale.
fn excess(x: vec4<f32>) -> f32 {
    if (!HALVES) { return dot(x, vec4<f32>(ZERO)); }
    if (BITS == 4u) { return dot(x, vec4<f32>(1024.0 + ZERO, 64.0 + ZERO, 1024.0 + ZERO, 64.0 + ZERO)); }
    return dot(x, vec4<f32>(1024.0 + ZERO));
}

/// Sums of four columns in one row: of products, of what those have too much, and of the first operand.
struct Part { products: vec4<f32>, excess: f32, total: f32 }

/// What a part is with the scale and bias of its group.
fn scaled(part: Part, scale: vec4<f32>, bias: vec4<f32>) -> vec4<f32> {
    let sum = scale * (part.products - part.excess);
    if (BIASED) { return sum + bias * part.total; }
    return sum;
}

var<workgroup> cells: array<vec4<f32>, THREADS>;
var<workgroup> shares: array<vec4<f32>, 4u * SHARES * MATRICES>;
/// Sums of squares of the invocations that take a slot, one of each four, and of SHARE of them.
var<workgroup> square_cells: array<f32, TEAM / 4u>;
var<workgroup> square_shares: array<f32, SHARES>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let batch = group.z;
    let panel = group.x / row_blocks();
    let first = group.x % row_blocks() * ROWS;
    let last_row = size_m() - 1u;
    let base = (first_panel(batch) + panel) * panel_units();
    let c = local / TEAM;
    let q = local % 4u;
    let side = local % TEAM / 4u % SIDE;
    let block = local % TEAM / 4u / SIDE;
    var parts: array<Part, ROWS>;
    var squares: array<f32, ROWS>;
    var acc: array<vec4<f32>, ROWS>;
    // unroll
    for (var r = 0u; r < ROWS; r++) { parts[r] = Part(); squares[r] = 0.0; acc[r] = vec4<f32>(0.0); }
    var units: array<vec4<u32>, AHEAD * EACH>;
    var scales: array<vec4<f32>, AHEAD>;
    for (var from_piece = block; from_piece < pieces() && block < BLOCKS; from_piece += BLOCKS * AHEAD) {
        // unroll
        for (var s = 0u; s < AHEAD; s++) {
            let piece = from_piece + s * BLOCKS;
            // unroll
            for (var j = 0u; j < EACH; j++) {
                let slot = piece * PIECE + j * SIDE + side;
                units[s * EACH + j] = load_b(c, base + select(slot, min(slot, slots() - 1u), GUARD) * 4u + q);
            }
            if (GROUPED) { scales[s] = codes_scale(c, base, select(piece, min(piece, pieces() - 1u), GUARD) / pieces_of_group(), q); }
        }
        // unroll
        for (var s = 0u; s < AHEAD; s++) {
            let piece = from_piece + s * BLOCKS;
            // unroll
            for (var j = 0u; j < EACH; j++) {
                let slot = piece * PIECE + j * SIDE + side;
                let unit = units[s * EACH + j];
                var weights: array<vec4<f32>, VECTORS>;
                if (NORMALISED) {
                    // unroll
                    for (var d = 0u; d < VECTORS; d++) {
                        let k4 = slot * VECTORS + d;
                        weights[d] = load_scale(select(k4, min(k4, (size_k() - 1u) / 4u), GUARD));
                    }
                }
                // unroll
                for (var r = 0u; r < ROWS; r++) {
                    let row = min(first + r, last_row);
                    var xs: array<vec4<f32>, VECTORS>;
                    // unroll
                    for (var d = 0u; d < VECTORS; d++) {
                        let k4 = slot * VECTORS + d;
                        var x = load_a(batch, row, select(k4, min(k4, (size_k() - 1u) / 4u), GUARD));
                        // Past the end codes are whatever the last slot holds.
                        if (GUARD) { x = select(vec4<f32>(0.0), x, vec4<u32>(k4 * 4u) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(size_k())); }
                        if (NORMALISED) {
                            squares[r] += dot(x, x);
                            x = x * weights[d];
                        }
                        xs[d] = spread(x);
                        parts[r].excess += excess(x);
                        if (BIASED) { parts[r].total += dot(x, vec4<f32>(1.0)); }
                    }
                    parts[r].products += vec4<f32>(products(unit.x, xs), products(unit.y, xs), products(unit.z, xs), products(unit.w, xs));
                }
            }
            if (GROUPED) {
                var bias = vec4<f32>(0.0);
                if (BIASED) { bias = codes_bias(c, base, select(piece, min(piece, pieces() - 1u), GUARD) / pieces_of_group(), q); }
                // unroll
                for (var r = 0u; r < ROWS; r++) {
                    acc[r] += scaled(parts[r], scales[s], bias);
                    parts[r] = Part();
                }
            }
        }
    }
    if (!GROUPED) {
        let scale = codes_scale(c, base, 0u, q);
        let bias = codes_bias(c, base, 0u, q);
        // unroll
        for (var r = 0u; r < ROWS; r++) { acc[r] = scaled(parts[r], scale, bias); }
    }
    // unroll
    for (var r = 0u; r < ROWS; r++) {
        if (r > 0u) { workgroupBarrier(); }
        cells[local] = acc[r];
        if (NORMALISED && local < TEAM && q == 0u) { square_cells[local / 4u] = squares[r]; }
        workgroupBarrier();
        if (local < 4u * SHARES * MATRICES) {
            let share = local / 4u * SHARE;
            var sum = cells[share * 4u + q];
            // unroll
            for (var i = 1u; i < SHARE; i++) { sum += cells[(share + i) * 4u + q]; }
            shares[local] = sum;
            if (NORMALISED && local < 4u * SHARES && q == 0u) {
                var square = square_cells[share];
                // unroll
                for (var i = 1u; i < SHARE; i++) { square += square_cells[share + i]; }
                square_shares[local / 4u] = square;
            }
        }
        workgroupBarrier();
        let n4 = panel * 4u + local;
        if (local < 4u && n4 * 4u < size_n() && first + r <= last_row) {
            var sums: array<vec4<f32>, MATRICES>;
            // unroll
            for (var m = 0u; m < MATRICES; m++) {
                sums[m] = shares[m * 4u * SHARES + local];
                // unroll
                for (var i = 1u; i < SHARES; i++) { sums[m] += shares[(m * SHARES + i) * 4u + local]; }
            }
            if (NORMALISED) {
                var square = square_shares[0];
                // unroll
                for (var i = 1u; i < SHARES; i++) { square += square_shares[i]; }
                let factor = inverseSqrt(square / f32(size_k()) + epsilon());
                // unroll
                for (var m = 0u; m < MATRICES; m++) { sums[m] *= factor; }
            }
            store(batch, first + r, n4, join(sums[0], sums[MATRICES - 1u]));
        }
    }
}
