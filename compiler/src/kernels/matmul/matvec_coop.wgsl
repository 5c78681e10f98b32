// Matrix product of a few rows with a constant of few bits, on matrix units: `result = a * b`, f16 inputs and f32 sums. The
// constant lies in panels of 16 columns as `matvec_codes.wgsl` describes. A workgroup takes PANELS panels of each constant and
// all rows. Each of its SUBS subgroups takes every SUBS-th step of EIGHTS times 8 depths:
// lanes load the codes of 8 depths of 4 columns, make f16 of them, and pass them through a piece of workgroup memory of the subgroup's
// own, as they pass the rows. AHEAD steps are loaded before the first is multiplied. In the end the sums of all subgroups are
// added up in their order. Rows of a fragment know nothing of each other, so each has the same sums however many there are.
//
// Rows may be normalised by their root mean square on the way, there may be a second constant whose sums `join` those of the
// first, and what is stored may be rotated in pairs of columns, as in `matvec_codes.wgsl`.
//
// Replaced: the knobs, the sizes and the hooks. `load_a` is only called within K. Eight f16 travel as the bits of a vec4<f32>;
// see `coop.wgsl`.

enable wgpu_cooperative_matrix;

const LANES = 32u;
const SIDE_M = 16u;
const SIDE_N = 16u;
const SIDE_K = 16u;
alias MatrixA = coop_mat16x16<f32, A>;
alias MatrixB = coop_mat16x16<f32, B>;
alias MatrixC = coop_mat16x16<f32, C>;
const SUBS = 4u;
const THREADS = SUBS * LANES;
/// Rows that there may be.
const ROWS = 16u;
/// Units of 16 bytes that hold 8 depths of 4 columns.
const UNITS = 1u;
/// Whether codes become elements with their scale; else sums are multiplied by it in the end.
const GROUPED = true;
/// Whether there are biases.
const BIASED = false;
/// Constants, and panels of each that a workgroup takes.
const MATRICES = 2u;
const PANELS = 1u;
const TILES = MATRICES * PANELS;
/// Whether rows are normalised.
const NORMALISED = true;
/// Whether columns are rotated in pairs (1: of neighbours, 2: half a head apart), and how many panels half a head is.
const ROTATED = 0u;
const HALF_PANELS = 1u;
/// 1 where fragments of rows are loaded from global memory, which has all of their rows and whole steps of K.
const DIRECT = 0u;
/// Rows of whole fragments that pass through workgroup memory; none where they are loaded directly.
const STAGED = 16u;
/// Steps that are loaded before the first is multiplied, and whether there are more of them.
const AHEAD = 2u;
const MORE = true;
/// Whether K may end within what the subgroups take together.
const GUARD = true;

/// What scaled elements are multiplied by before they become f16, which their sums make up for: rows that are not normalised
/// yet may have elements beyond f16.
const SHRINK = 0.015625;
/// Eights of depths in a step, which the lanes take for four rows or fours of columns, and those of a row in workgroup memory: 16 bytes more spread rows over its banks.
const EIGHTS = LANES / 4u;
const ROW = EIGHTS + 1u;
/// Fragments of the rows and of a panel, and those of a step along K.
const FRAGS_M = (ROWS + SIDE_M - 1u) / SIDE_M;
const FRAGS_N = 16u / SIDE_N;
const FRAGS = FRAGS_M * FRAGS_N;
const STEPS = EIGHTS * 8u / SIDE_K;
/// What a subgroup has for itself: rows, and a panel's columns; in the end sums of the rows of each panel.
const HEIGHT = FRAGS_M * SIDE_M;
const SIZE_A = STAGED * ROW;
const SIZE_C = HEIGHT * 4u;
const SIZE = max(SIZE_A + 16u * ROW, TILES * SIZE_C);
/// Eights of rows that a lane passes on in a step.
const PASSES = (ROWS + 3u) / 4u;
const_assert LANES % 4u == 0u && 16u % SIDE_N == 0u && (EIGHTS * 8u) % SIDE_K == 0u;

@group(0) @binding(0) var<storage, read> a_buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> panels: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 3u; }
fn size_n() -> u32 { return 32u; }
fn size_k8() -> u32 { return 8u; }
/// Times that the subgroups take AHEAD steps each.
fn rounds() -> u32 { return 1u; }
/// Units of a panel.
fn panel_units() -> u32 { return 40u; }
/// The last panel.
fn last_panel() -> u32 { return 1u; }
/// Eights of depths that share a scale.
fn eights_of_group() -> u32 { return 4u; }

/// Elements `8 * k8 ..` of row `row` of a as f16, two in a word.
fn load_a(row: u32, k8: u32) -> vec4<f32> { return a_buffer[row * 8u + k8]; }
/// The fragment of rows from `row` and of depths from `8 * k8`.
fn fragment_a(row: u32, k8: u32) -> MatrixA { return MatrixA(); }
/// What four elements of a normalised row are multiplied by, and what is added to the mean of its squares.
fn load_scale(k4: u32) -> vec4<f32> { return vec4<f32>(1.0); }
fn epsilon() -> f32 { return 1e-5; }
/// Unit `at` of constant `c`.
fn load_b(c: u32, at: u32) -> vec4<u32> { return panels[at]; }
/// The scales and biases of four columns of a panel in group `g`.
fn codes_scale(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(1.0); }
fn codes_bias(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(0.0); }
/// The elements of eight codes in f16, two in a word.
fn elements(first: u32, second: u32, scale: f32, bias: f32) -> vec4<u32> { return vec4<u32>(first); }
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
fn store(row: u32, n4: u32, v: vec4<f32>) { result[row * 8u + n4] = v; }

var<workgroup> tiles: array<vec4<f32>, SUBS * SIZE>;
var<workgroup> squares: array<f32, SUBS * HEIGHT>;

/// The first unit of panel `t % PANELS` of constant `t / PANELS`.
fn base_of(group: u32, t: u32) -> u32 { return min(panel_of(group, t % PANELS), last_panel()) * panel_units(); }

/// What is made of the sums of row `r` in four columns, number `at` of those that the workgroup's panels have.
fn total(group: u32, r: u32, at: u32) -> vec4<f32> {
    var sums: array<vec4<f32>, MATRICES>;
    // unroll
    for (var m = 0u; m < MATRICES; m++) {
        let t = m * PANELS + at / 4u;
        let place = t * SIZE_C + r * 4u + at % 4u;
        sums[m] = tiles[place];
        // unroll
        for (var i = 1u; i < SUBS; i++) { sums[m] += tiles[i * SIZE + place]; }
        if (!GROUPED) { sums[m] *= codes_scale(m, base_of(group, t), 0u, at % 4u); }
    }
    if (NORMALISED) {
        var square = squares[r];
        // unroll
        for (var i = 1u; i < SUBS; i++) { square += squares[i * HEIGHT + r]; }
        let factor = inverseSqrt(square / f32(size_k8() * 8u) + epsilon()) / SHRINK;
        // unroll
        for (var m = 0u; m < MATRICES; m++) { sums[m] *= factor; }
    }
    return join(sums[0], sums[MATRICES - 1u]);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let group = group_id.x;
    let sub = local / LANES;
    let lane = local % LANES;
    let mine = sub * SIZE;
    let columns = mine + SIZE_A;
    let eight = lane % EIGHTS;
    let q = lane / EIGHTS;
    // Rows that there are not stay zero.
    // unroll
    for (var p = 0u; p < STAGED / 4u; p++) { tiles[mine + (q + p * 4u) * ROW + eight] = vec4<f32>(); }
    var acc: array<MatrixC, TILES * FRAGS>;
    // unroll
    for (var t = 0u; t < TILES * FRAGS; t++) { acc[t] = MatrixC(); }
    var square: array<f32, PASSES>;
    // unroll
    for (var p = 0u; p < PASSES; p++) { square[p] = 0.0; }
    var units: array<vec4<u32>, AHEAD * TILES * UNITS>;
    var scales: array<vec4<f32>, AHEAD * TILES>;
    var rows: array<vec4<f32>, AHEAD * PASSES>;
    var fragments: array<MatrixA, AHEAD * FRAGS_M * STEPS>;
    // unroll
    for (var s = 0u; s < AHEAD; s++) {
        let own = (s * SUBS + sub) * EIGHTS + eight;
        let k8 = select(own, min(own, size_k8() - 1u), GUARD);
        // unroll
        for (var t = 0u; t < TILES; t++) {
            // unroll
            for (var u = 0u; u < UNITS; u++) {
                units[(s * TILES + t) * UNITS + u] = load_b(t / PANELS, base_of(group, t) + (k8 * UNITS + u) * 4u + q);
            }
            scales[s * TILES + t] = vec4<f32>(1.0);
            if (GROUPED) { scales[s * TILES + t] = codes_scale(t / PANELS, base_of(group, t), k8 / eights_of_group(), q); }
        }
        // unroll
        for (var f = 0u; f < DIRECT * FRAGS_M * STEPS; f++) {
            let start = select(own - eight, min(own - eight, size_k8() - EIGHTS), GUARD);
            fragments[s * FRAGS_M * STEPS + f] = fragment_a(f / STEPS * SIDE_M, start + f % STEPS * (SIDE_K / 8u));
        }
        // unroll
        for (var p = 0u; p < (1u - DIRECT) * PASSES; p++) {
            rows[s * PASSES + p] = vec4<f32>();
            if (q + p * 4u < size_m()) { rows[s * PASSES + p] = load_a(q + p * 4u, k8); }
        }
    }
    for (var round = 0u; round < rounds(); round++) {
        // unroll
        for (var s = 0u; s < AHEAD; s++) {
            let own = ((round * AHEAD + s) * SUBS + sub) * EIGHTS + eight;
            let k8 = select(own, min(own, size_k8() - 1u), GUARD);
            let inside = !GUARD || own < size_k8();
            // What comes a round later takes the place of what is multiplied now.
            var words: array<vec4<u32>, TILES * UNITS>;
            var by: array<vec4<f32>, TILES>;
            var passed: array<vec4<f32>, PASSES>;
            var a: array<MatrixA, FRAGS_M * STEPS>;
            let later = min(own + AHEAD * SUBS * EIGHTS, size_k8() - 1u);
            let from_eight = min(own - eight + AHEAD * SUBS * EIGHTS, size_k8() - min(size_k8(), EIGHTS));
            // unroll
            for (var u = 0u; u < TILES * UNITS; u++) {
                words[u] = units[s * TILES * UNITS + u];
                if (MORE) { units[s * TILES * UNITS + u] = load_b(u / UNITS / PANELS, base_of(group, u / UNITS) + (later * UNITS + u % UNITS) * 4u + q); }
            }
            // unroll
            for (var t = 0u; t < TILES; t++) {
                by[t] = scales[s * TILES + t];
                if (MORE && GROUPED) { scales[s * TILES + t] = codes_scale(t / PANELS, base_of(group, t), later / eights_of_group(), q); }
            }
            // unroll
            for (var f = 0u; f < DIRECT * FRAGS_M * STEPS; f++) {
                a[f] = fragments[s * FRAGS_M * STEPS + f];
                if (MORE) { fragments[s * FRAGS_M * STEPS + f] = fragment_a(f / STEPS * SIDE_M, from_eight + f % STEPS * (SIDE_K / 8u)); }
            }
            // unroll
            for (var p = 0u; p < (1u - DIRECT) * PASSES; p++) {
                passed[p] = rows[s * PASSES + p];
                if (MORE && q + p * 4u < size_m()) { rows[s * PASSES + p] = load_a(q + p * 4u, later); }
            }
            var low = vec4<f32>();
            var high = vec4<f32>();
            if (NORMALISED) {
                low = load_scale(k8 * 2u) * SHRINK;
                high = load_scale(k8 * 2u + 1u) * SHRINK;
            }
            subgroupBarrier();
            if (DIRECT == 0u) {
                // unroll
                for (var p = 0u; p < PASSES; p++) {
                    if (q + p * 4u < size_m()) {
                        var v = select(vec4<f32>(), passed[p], inside);
                        if (NORMALISED) {
                            let bits = bitcast<vec4<u32>>(v);
                            let a = vec4<f32>(unpack2x16float(bits.x), unpack2x16float(bits.y));
                            let b = vec4<f32>(unpack2x16float(bits.z), unpack2x16float(bits.w));
                            square[p] += dot(a, a) + dot(b, b);
                            let x = a * low;
                            let y = b * high;
                            v = bitcast<vec4<f32>>(vec4<u32>(pack2x16float(x.xy), pack2x16float(x.zw), pack2x16float(y.xy), pack2x16float(y.zw)));
                        }
                        tiles[mine + (q + p * 4u) * ROW + eight] = v;
                    }
                }
                subgroupBarrier();
                // unroll
                for (var f = 0u; f < FRAGS_M * STEPS; f++) {
                    let at = mine + f / STEPS * (SIDE_M * ROW) + f % STEPS * (SIDE_K / 8u);
                    a[f] = coopLoadT<MatrixA>(&tiles[at], ROW);
                }
            }
            // unroll
            for (var t = 0u; t < TILES; t++) {
                if (t > 0u) { subgroupBarrier(); }
                var bias = vec4<f32>(0.0);
                if (BIASED) { bias = codes_bias(t / PANELS, base_of(group, t), k8 / eights_of_group(), q); }
                let first_words = words[t * UNITS];
                let last_words = words[t * UNITS + UNITS - 1u];
                // unroll
                for (var c = 0u; c < 4u; c++) {
                    var v = elements(first_words[c], last_words[c], by[t][c], bias[c]);
                    if (DIRECT == 1u && GUARD) { v = select(vec4<u32>(), v, inside); }
                    tiles[columns + (q * 4u + c) * ROW + eight] = bitcast<vec4<f32>>(v);
                }
                subgroupBarrier();
                // unroll
                for (var k = 0u; k < STEPS; k++) {
                    // unroll
                    for (var n = 0u; n < FRAGS_N; n++) {
                        let at = columns + n * (SIDE_N * ROW) + k * (SIDE_K / 8u);
                        let b = coopLoad<MatrixB>(&tiles[at], ROW);
                        // unroll
                        for (var f = 0u; f < FRAGS_M; f++) {
                            let own_sum = t * FRAGS + f * FRAGS_N + n;
                            acc[own_sum] = coopMultiplyAdd(a[f * STEPS + k], b, acc[own_sum]);
                        }
                    }
                }
            }
        }
    }
    if (NORMALISED) {
        // unroll
        for (var p = 0u; p < PASSES; p++) {
            var sum = square[p];
            for (var far = 1u; far < EIGHTS; far *= 2u) { sum += subgroupShuffleXor(sum, far); }
            if (eight == 0u) { squares[sub * HEIGHT + q + p * 4u] = sum; }
        }
    }
    subgroupBarrier();
    // unroll
    for (var i = 0u; i < TILES * FRAGS; i++) {
        let to = mine + i / FRAGS * SIZE_C + i % FRAGS / FRAGS_N * (SIDE_M * 4u) + i % FRAGS_N * (SIDE_N / 4u);
        let done = acc[i];
        coopStoreT(done, &tiles[to], 4u);
    }
    workgroupBarrier();
    for (var i = local; i < ROWS * PANELS * 4u; i += THREADS) {
        let r = i / (PANELS * 4u);
        let at = i % (PANELS * 4u);
        let n4 = panel_of(group, at / 4u) * 4u + at % 4u;
        if (r < size_m() && n4 * 4u < size_n()) {
            var v = total(group, r, at);
            if (ROTATED == 1u) { v = turned(r, n4, v, v.yxwz); }
            if (ROTATED == 2u) { v = turned(r, n4, v, total(group, r, (at + 4u) % (2u * 4u))); }
            store(r, n4, v);
        }
    }
}
