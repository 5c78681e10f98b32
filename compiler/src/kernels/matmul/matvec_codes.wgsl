// Matrix product with few rows and a constant second operand of few bits, bound by streaming its codes once:
// `result[batch] = a[batch] * b[batch]`. The constant lies in panels of 16 columns: the codes of a panel, and behind them its
// scales, group by group. One workgroup takes a panel. A word holds neighbouring depths of a column, a unit of 16 bytes the
// words of four columns, and four units are a slot: all columns at the depths of a word.
//
// An element is `(code - ZERO) * scale + bias`, so a sum over a group is `scale * (sum of x * code - ZERO * sum of x) + bias
// * sum of x`. Four neighbouring invocations take the units of a slot; SIDE such fours take PIECE neighbouring slots of a
// group together and apply its scale to what each of them has summed up. With one group all invocations take slots side by
// side and apply the scale in the end. Then the sums of all invocations are added in two steps, of which the first stays
// within a subgroup where that can be. That order is the same however many rows there are.
//
// Rows may be normalised by their root mean square on the way: while the first units are in flight their squares are summed
// up and, where they fit, their scaled elements are stored in workgroup memory, which all teams of invocations read; the sums
// are divided in the end. Rows may be sums of a residual and of rows that are normalised before. And there may be a second constant of the same form, which a team of its own takes, and whose sums
// `join` those of the first. What is stored may be rotated in pairs of columns.
//
// Where integers are slow to become floats, codes become the last bits of halves from 1024 on, which are sums of 1024 and the
// code, or 16 times the code for every second one of 4 bits; what that adds is taken off with ZERO. Where rows are halves too,
// products are of two halves at a time (PACKED): those of a word are summed up in halves, and words in floats. Codes are
// less than one there, so that sums stay within halves.
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
/// Whether products are of two halves at a time, and by how much their sums are too small.
const PACKED = false;
const SMALLER = 1.0;
/// Vectors in which products take the depths of a word: of floats, or one of eight halves.
const TAKEN = 2u;
/// What elements of rows that are not normalised yet are multiplied by before they become halves.
const SHRINK = 1.0;
/// Constants, and panels of each that a workgroup takes.
const MATRICES = 2u;
const PANELS = 1u;
/// Residuals that rows, normalised once, are added to before they are normalised: none or one.
const RESIDUALS = 0u;
/// Whether rows are normalised, and whether those are stored in workgroup memory.
const NORMALISED = true;
const STORED = true;
/// Slots of all rows that are stored.
const STORED_SLOTS = 16u;
/// Whether columns are rotated in pairs (1: of neighbours, 2: half a head apart), and how many panels half a head is.
const ROTATED = 0u;
const HALF_PANELS = 1u;
/// Whether K may end within a step.
const GUARD = true;

/// Vectors of four depths of a word.
const VECTORS = 8u / BITS;
/// Units of a piece that an invocation takes.
const EACH = PIECE / SIDE;
/// Invocations that take a panel, and pieces that they take at the same time.
const TEAM = THREADS / MATRICES / PANELS;
const BLOCKS = TEAM / 4u / SIDE;
/// Fours of invocations whose sums are added up in the first step, and how many such sums of a panel there are.
const SHARE = 16u;
const SHARES = TEAM / 4u / SHARE;
/// The same of all panels: sums of a row's squares.
const SQUARES = THREADS / 4u / SHARE;
/// Sums of a row that are found while it is normalised: of squares, and with one group what products have too much and what
/// biases are multiplied by.
const KINDS = 1u;
const_assert PIECE % SIDE == 0u && TEAM % (4u * SHARE) == 0u && 4u * PANELS <= THREADS;

@group(0) @binding(0) var<storage, read> a_buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> panels: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 3u; }
fn size_n() -> u32 { return 32u; }
fn size_k() -> u32 { return 64u; }
/// Units of a panel, and slots of codes in it.
fn panel_units() -> u32 { return 40u; }
const SLOTS = 8u;
/// Pieces of a panel, and those of a group.
fn pieces() -> u32 { return 1u; }
fn pieces_of_group() -> u32 { return 1u; }
/// The first panel of a batch.
fn first_panel(batch: u32) -> u32 { return batch * 2u; }
/// The last panel of a batch.
fn last_panel() -> u32 { return 1u; }
/// Blocks of ROWS rows.
fn row_blocks() -> u32 { return 2u; }

/// Four elements of row `row` of a, from element `4 * k4`.
fn load_a(batch: u32, row: u32, k4: u32) -> vec4<f32> { return a_buffer[(batch * 3u + row) * 16u + k4]; }
/// Makes rows ready that are sums with a residual, before the first of them is read.
fn prepare_rows(batch: u32, first: u32, local: u32) {}
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
/// What is stored of four columns and those that are paired with them.
fn turned(row: u32, n4: u32, own: vec4<f32>, other: vec4<f32>) -> vec4<f32> { return own; }
/// Panel `i` of a workgroup. Where columns half a head apart are rotated, so are its two panels.
fn panel_of(group: u32, i: u32) -> u32 {
    if (ROTATED == 2u) { return group / HALF_PANELS * 2u * HALF_PANELS + group % HALF_PANELS + i * HALF_PANELS; }
    return group * PANELS + i;
}
/// Stores four elements of row `row`, from column `4 * n4`.
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) { result[(batch * 3u + row) * 8u + n4] = v; }

/// Four products added to a sum.
fn added(sum: f32, codes: vec4<f32>, x: vec4<f32>) -> f32 {
    return fma(codes.x, x.x, fma(codes.y, x.y, fma(codes.z, x.z, fma(codes.w, x.w, sum))));
}

/// The products of a word's codes with what `taken` gives, added to a sum.
fn products(sum: f32, word: u32, xs: array<vec4<f32>, TAKEN>) -> f32 {
    if (BITS == 8u) {
        if (HALVES) {
            let even = unpack2x16float((word & 0x00ff00ffu) | 0x64006400u);
            let odd = unpack2x16float(((word >> 8u) & 0x00ff00ffu) | 0x64006400u);
            return added(sum, vec4<f32>(even.x, odd.x, even.y, odd.y), xs[0]);
        }
        return added(sum, vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u)), xs[0]);
    }
    if (HALVES) {
        let first = unpack2x16float((word & 0x000f000fu) | 0x64006400u);
        let second = unpack2x16float((word & 0x00f000f0u) | 0x64006400u);
        let third = unpack2x16float(((word >> 8u) & 0x000f000fu) | 0x64006400u);
        let fourth = unpack2x16float(((word >> 8u) & 0x00f000f0u) | 0x64006400u);
        let half = added(sum, vec4<f32>(first.x, second.x, third.x, fourth.x), xs[0]);
        return added(half, vec4<f32>(first.y, second.y, third.y, fourth.y), xs[TAKEN - 1u]);
    }
    let shifts = vec4<u32>(0u, 4u, 8u, 12u);
    let half = added(sum, vec4<f32>((vec4<u32>(word) >> shifts) & vec4<u32>(15u)), xs[0]);
    return added(half, vec4<f32>((vec4<u32>(word >> 16u) >> shifts) & vec4<u32>(15u)), xs[TAKEN - 1u]);
}

/// What the codes of a word are multiplied by.
fn taken(xs: array<vec4<f32>, VECTORS>) -> array<vec4<f32>, TAKEN> {
    var out = xs;
    if (HALVES && BITS == 4u) {
        // unroll
        for (var d = 0u; d < VECTORS; d++) { out[d] *= vec4<f32>(1.0, 0.0625, 1.0, 0.0625); }
    }
    return out;
}

/// What the products of four codes with `x` have more than those of elements before their scale.
fn excess(x: vec4<f32>) -> f32 {
    if (PACKED) { return 0.0; }
    if (!HALVES) { return dot(x, vec4<f32>(ZERO)); }
    if (BITS == 4u) { return dot(x, vec4<f32>(1024.0 + ZERO, 64.0 + ZERO, 1024.0 + ZERO, 64.0 + ZERO)); }
    return dot(x, vec4<f32>(1024.0 + ZERO));
}

/// Sums of four columns in one row: of products, of what those have too much, and of the first operand.
struct Part { products: vec4<f32>, excess: f32, total: f32 }

/// What a part is with the scale and bias of its group.
fn scaled(part: Part, scale: vec4<f32>, bias: vec4<f32>) -> vec4<f32> {
    let sum = scale * ((part.products - part.excess) * SMALLER);
    if (BIASED) { return sum + bias * part.total; }
    return sum;
}

/// Rows as products take them, and what the products of a slot have too much and their elements' sum.
struct Slot { excess: f32, total: f32 }
var<workgroup> stored: array<vec4<f32>, STORED_SLOTS * TAKEN>;
var<workgroup> stored_slots: array<Slot, STORED_SLOTS>;
var<workgroup> cells: array<vec4<f32>, THREADS>;
var<workgroup> shares: array<vec4<f32>, SQUARES * 4u>;
var<workgroup> square_cells: array<f32, THREADS>;
var<workgroup> square_shares: array<f32, SQUARES * ROWS * KINDS>;

/// Adds up what SHARE neighbouring fours of invocations have found for the same columns.
fn share_sums(local: u32, low: vec4<f32>, high: vec4<f32>) {
    cells[local] = low;
    workgroupBarrier();
    if (local < SQUARES * 4u) {
        let first = local / 4u * SHARE * 4u + local % 4u;
        var sum = cells[first];
        // unroll
        for (var i = 1u; i < SHARE; i++) { sum += cells[first + i * 4u]; }
        shares[local] = sum;
    }
}

/// Adds up a sum of a row, of number `r`, that SHARE neighbouring fours of invocations have found.
fn share_squares(local: u32, r: u32, square: f32) {
    square_cells[local] = square;
    workgroupBarrier();
    if (local < SQUARES) {
        var sum = square_cells[local * SHARE * 4u];
        // unroll
        for (var i = 1u; i < SHARE * 4u; i++) { sum += square_cells[local * SHARE * 4u + i]; }
        square_shares[r * SQUARES + local] = sum;
    }
}

/// Sum `r` of a row.
fn row_sum(r: u32) -> f32 {
    var sum = square_shares[r * SQUARES];
    // unroll
    for (var i = 1u; i < SQUARES; i++) { sum += square_shares[r * SQUARES + i]; }
    return sum;
}

/// Four elements of a row; zero past its end.
fn load_x(batch: u32, row: u32, k4: u32) -> vec4<f32> {
    let x = load_a(batch, row, select(k4, min(k4, (size_k() - 1u) / 4u), GUARD));
    if (!GUARD) { return x; }
    return select(vec4<f32>(0.0), x, vec4<u32>(k4 * 4u) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(size_k()));
}

fn load_weight(k4: u32) -> vec4<f32> { return load_scale(select(k4, min(k4, (size_k() - 1u) / 4u), GUARD)); }

/// What is made of the sums of a row in four columns, number `at` of those that the workgroup's panels have.
fn total(r: u32, at: u32) -> vec4<f32> {
    var sums: array<vec4<f32>, MATRICES>;
    // unroll
    for (var m = 0u; m < MATRICES; m++) {
        let from_share = (at / 4u * MATRICES + m) * SHARES * 4u + at % 4u;
        sums[m] = shares[from_share];
        // unroll
        for (var i = 1u; i < SHARES; i++) { sums[m] += shares[from_share + i * 4u]; }
    }
    if (NORMALISED) {
        let factor = inverseSqrt(row_sum(r * KINDS) / f32(size_k()) + epsilon()) / SHRINK;
        // unroll
        for (var m = 0u; m < MATRICES; m++) { sums[m] *= factor; }
    }
    return join(sums[0], sums[MATRICES - 1u]);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) { multiply(group, local); }

fn multiply(group: vec3<u32>, local: u32) {
    let batch = group.z;
    let panels_of = group.x / row_blocks();
    let first = group.x % row_blocks() * ROWS;
    let last_row = size_m() - 1u;
    let team = local / TEAM;
    let c = team % MATRICES;
    let panel = panel_of(panels_of, team / MATRICES);
    let base = (first_panel(batch) + select(panel, min(panel, last_panel()), PANELS > 1u)) * panel_units();
    let q = local % 4u;
    let side = local % TEAM / 4u % SIDE;
    let own_block = local % TEAM / 4u / SIDE;
    // Those that are too few for a piece take what lies past the end.
    let block = select(own_block, pieces(), own_block >= BLOCKS);
    var parts: array<Part, ROWS>;
    var acc: array<vec4<f32>, ROWS>;
    // unroll
    for (var r = 0u; r < ROWS; r++) { parts[r] = Part(); acc[r] = vec4<f32>(0.0); }
    var units: array<vec4<u32>, AHEAD * EACH>;
    var scales: array<vec4<f32>, AHEAD>;
    var only_scale = vec4<f32>(0.0);
    var only_bias = vec4<f32>(0.0);
    if (!GROUPED) {
        only_scale = codes_scale(c, base, 0u, q);
        only_bias = codes_bias(c, base, 0u, q);
    }
    for (var step = 0u; step < (pieces() + BLOCKS * AHEAD - 1u) / (BLOCKS * AHEAD); step++) {
        let from_piece = block + step * (BLOCKS * AHEAD);
        // unroll
        for (var s = 0u; s < AHEAD; s++) {
            let piece = from_piece + s * BLOCKS;
            // unroll
            for (var j = 0u; j < EACH; j++) {
                let slot = piece * PIECE + j * SIDE + side;
                units[s * EACH + j] = load_b(c, base + select(slot, min(slot, SLOTS - 1u), GUARD) * 4u + q);
            }
            if (GROUPED) { scales[s] = codes_scale(c, base, select(piece, min(piece, pieces() - 1u), GUARD) / pieces_of_group(), q); }
        }
        if (NORMALISED && step == 0u) {
            // unroll
            for (var i = 0u; i < RESIDUALS; i++) { prepare_rows(batch, first, local); }
            // unroll
            for (var r = 0u; r < ROWS; r++) {
                if (r > 0u) { workgroupBarrier(); }
                let row = min(first + r, last_row);
                var square = 0.0;
                var whole = Slot();
                for (var slot = local; slot < SLOTS; slot += THREADS) {
                    var here = Slot();
                    var ys: array<vec4<f32>, VECTORS>;
                    // unroll
                    for (var d = 0u; d < VECTORS; d++) {
                        let k4 = slot * VECTORS + d;
                        let x = load_x(batch, row, k4);
                        square += dot(x, x);
                        if (STORED || !GROUPED) {
                            ys[d] = x * load_weight(k4) * SHRINK;
                            here.excess += excess(ys[d]);
                            if (BIASED) { here.total += dot(ys[d], vec4<f32>(1.0)); }
                        }
                    }
                    if (STORED) {
                        let kept = taken(ys);
                        // unroll
                        for (var d = 0u; d < TAKEN; d++) { stored[(r * SLOTS + slot) * TAKEN + d] = kept[d]; }
                        if (GROUPED && (!PACKED || BIASED)) { stored_slots[r * SLOTS + slot] = here; }
                    }
                    whole.excess += here.excess;
                    whole.total += here.total;
                }
                share_squares(local, r * KINDS, square);
                if (!GROUPED) {
                    if (!PACKED) {
                        workgroupBarrier();
                        share_squares(local, r * KINDS + min(1u, KINDS - 1u), whole.excess);
                    }
                    if (BIASED) {
                        workgroupBarrier();
                        share_squares(local, r * KINDS + KINDS - 1u, whole.total);
                    }
                }
            }
            workgroupBarrier();
        }
        // unroll
        for (var s = 0u; s < AHEAD; s++) {
            let piece = from_piece + s * BLOCKS;
            // unroll
            for (var j = 0u; j < EACH; j++) {
                let slot = piece * PIECE + j * SIDE + side;
                let unit = units[s * EACH + j];
                var weights: array<vec4<f32>, VECTORS>;
                if (NORMALISED && !STORED) {
                    // unroll
                    for (var d = 0u; d < VECTORS; d++) { weights[d] = load_weight(slot * VECTORS + d); }
                }
                // unroll
                for (var r = 0u; r < ROWS; r++) {
                    let row = min(first + r, last_row);
                    var xs: array<vec4<f32>, TAKEN>;
                    var here = Slot();
                    if (STORED) {
                        let inside = !GUARD || slot < SLOTS;
                        let at = r * SLOTS + select(slot, min(slot, SLOTS - 1u), GUARD);
                        if (GROUPED && (!PACKED || BIASED)) { here = stored_slots[at]; }
                        if (!inside) { here = Slot(); }
                        // unroll
                        for (var d = 0u; d < TAKEN; d++) { xs[d] = select(vec4<f32>(0.0), stored[at * TAKEN + d], inside); }
                    } else {
                        var ys: array<vec4<f32>, VECTORS>;
                        // unroll
                        for (var d = 0u; d < VECTORS; d++) {
                            ys[d] = load_x(batch, row, slot * VECTORS + d);
                            if (NORMALISED) { ys[d] *= weights[d] * SHRINK; }
                            if (GROUPED || !NORMALISED) {
                                here.excess += excess(ys[d]);
                                if (BIASED) { here.total += dot(ys[d], vec4<f32>(1.0)); }
                            }
                        }
                        xs = taken(ys);
                    }
                    parts[r].excess += here.excess;
                    if (BIASED) { parts[r].total += here.total; }
                    let sum = parts[r].products;
                    parts[r].products = vec4<f32>(products(sum.x, unit.x, xs), products(sum.y, unit.y, xs), products(sum.z, unit.z, xs), products(sum.w, unit.w, xs));
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
        // unroll
        for (var r = 0u; r < ROWS; r++) {
            // Sums of whole rows are for one four of each team to add.
            if (NORMALISED && local % TEAM < 4u) {
                if (!PACKED) { parts[r].excess = row_sum(r * KINDS + min(1u, KINDS - 1u)); }
                if (BIASED) { parts[r].total = row_sum(r * KINDS + KINDS - 1u); }
            }
            acc[r] = scaled(parts[r], only_scale, only_bias);
        }
    }
    // unroll
    for (var r = 0u; r < ROWS; r++) {
        if (r > 0u) { workgroupBarrier(); }
        share_sums(local, acc[r], acc[r]);
        workgroupBarrier();
        let n4 = panel_of(panels_of, local / 4u) * 4u + local % 4u;
        if (local < 4u * PANELS && n4 * 4u < size_n() && first + r <= last_row) {
            var v = total(r, local);
            if (ROTATED == 1u) { v = turned(first + r, n4, v, v.yxwz); }
            if (ROTATED == 2u) { v = turned(first + r, n4, v, total(r, (local + 4u) % (2u * 4u))); }
            store(batch, first + r, n4, v);
        }
    }
}
