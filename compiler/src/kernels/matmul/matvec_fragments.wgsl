// Matrix product of one to a few rows with a constant of few bits or of f16, on matrix units whose fragments are known: what is
// loaded becomes elements in the registers that the units multiply from, and passes through no memory. Codes lie in panels of 16
// columns as `matvec_codes.wgsl` describes, f16 as in `matvec_panels.wgsl`. A workgroup takes PER pairs of panels of each constant and all rows. Its SUBS subgroups take
// pieces of EACH steps of 32 depths in turns, and their sums are added up in their order.
//
// Fragments are those of `mma.m16n8k16` of NVIDIA's PTX: 16 columns of the constant by 16 depths, 16 depths by eight rows, and 16
// columns by eight rows of sums. Invocation 4 * g + t of a subgroup has columns g and g + 8 of the first and of the sums, one after the
// other, row g of the second, and rows 2 * t and 2 * t + 1 of the sums. In a step it loads eight depths, those of number t, of four columns, those
// of number g % 4 in panel g / 4 of a pair. Two of these columns are a fragment's columns g and g + 8, and four of the depths its four
// depths: the order in which depths are summed up is that in which codes lie in a word, or for f16 their own. So the rows, the scales and the sums of
// an invocation are of the codes that it loads. Rows of a fragment know nothing of each other, so each has the same sums
// however many there are.
//
// Rows may be normalised by their root mean square on the way: the sums of their squares are the diagonal of a fragment's rows
// times themselves. There may be a second constant whose sums `join` those of the first, and what is stored may be rotated in
// pairs of columns, as in `matvec_codes.wgsl`.
//
// Replaced: the knobs, the sizes and the hooks. `load_a` is only called within K. Eight f16 travel as the bits of a vec4<f32>.

enable wgpu_cooperative_matrix;

const LANES = 32u;
const SUBS = 4u;
const THREADS = SUBS * LANES;
/// Fragments of eight rows.
const FRAGS = 2u;
const BITS = 4u;
/// Whether there are several groups along K, and biases.
const GROUPED = true;
const BIASED = false;
/// Constants, pairs of panels of each that a workgroup takes, and panels.
const MATRICES = 2u;
const PER = 1u;
const PANELS = PER * 2u;
const PAIRS = MATRICES * PER;
/// Whether rows are normalised.
const NORMALISED = true;
/// Whether columns are rotated in pairs (1: of neighbours, 2: half a head apart), and how many panels half a head is.
const ROTATED = 0u;
const HALF_PANELS = 1u;
/// Steps of a piece, which share a scale.
const EACH = 2u;
/// Whether K may end within what the subgroups take together.
const GUARD = true;
/// By how much codes are too small as elements.
const SMALLER = 16.0;
/// What scales of rows are multiplied by, which their sums make up for: rows that are not normalised yet may have elements beyond
/// f16.
const SHRINK = 0.015625;

/// Units that hold eight depths of four columns.
const UNITS = 1u;
const HEIGHT = FRAGS * 8u;
/// What a subgroup's sums of a panel take, and those of all panels.
const SIZE_C = HEIGHT * 4u;
const SIZE = MATRICES * PANELS * SIZE_C;
const_assert LANES == 32u;

/// What is loaded at once: 16 bytes of codes, or one depth of four columns in f16.
alias Unit = vec4<u32>;

@group(0) @binding(0) var<storage, read> a_buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> panels: array<Unit>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 3u; }
fn size_n() -> u32 { return 32u; }
fn size_k8() -> u32 { return 8u; }
/// Times that the subgroups take a piece each, pieces, and those of a group.
fn rounds() -> u32 { return 1u; }
fn pieces() -> u32 { return 1u; }
fn pieces_of_group() -> u32 { return 1u; }
/// Units of a panel.
fn panel_units() -> u32 { return 40u; }
/// The last panel.
fn last_panel() -> u32 { return 1u; }

/// Elements `8 * k8 ..` of row `row` of a as f16, two in a word.
fn load_a(row: u32, k8: u32) -> vec4<f32> { return a_buffer[row * 8u + k8]; }
/// What these of a normalised row are multiplied by, and what is added to the mean of its squares.
fn load_scale(k8: u32) -> vec4<f32> { return vec4<f32>(); }
fn epsilon() -> f32 { return 1e-5; }
/// Unit `at` of constant `c`.
fn load_b(c: u32, at: u32) -> Unit { return panels[at]; }
/// The scales and biases of four columns of a panel in group `g`.
fn codes_scale(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(1.0); }
fn codes_bias(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(0.0); }
/// Eight depths of columns `2 * i` and `2 * i + 1` of four as pairs of f16, of the units that hold them.
fn elements(units: array<Unit, UNITS>, i: u32) -> array<vec4<u32>, 2> {
    return array<vec4<u32>, 2>(units[0].xxyy, units[UNITS - 1u].zzww);
}
/// Pairs of f16, multiplied.
fn scaled(pairs: vec4<u32>, by: vec4<u32>) -> vec4<u32> { return pairs; }
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

/// The product of an invocation's fragments and its sums; the emitter fills it with those of the matrices.
fn multiply_fragments(local: u32, a: vec4<u32>, b: vec2<u32>, c: vec4<f32>) -> vec4<f32> {
    let d = coopMultiplyAdd(coop_mat16x16<f32, A>(), coop_mat16x16<f32, B>(), coop_mat16x16<f32, C>());
    return c;
}

var<workgroup> sums: array<vec4<f32>, SUBS * SIZE>;
var<workgroup> squares: array<f32, SUBS * HEIGHT>;

/// Whether there are rows of fragment `f`.
fn there_is(f: u32) -> bool { return f == 0u || size_m() > f * 8u; }

/// The first unit of panel `i` of those that the workgroup takes of each constant.
fn base_of(group: u32, i: u32) -> u32 { return min(panel_of(group, i), last_panel()) * panel_units(); }

/// Eight elements of a row in the order in which codes lie, pairs of those that are halves of the same word, or f16.
fn in_order(v: vec4<u32>) -> vec4<u32> {
    if (BITS == 16u) { return v; }
    let early = select(v.xz, v.xy, BITS == 8u);
    let late = select(v.yw, v.zw, BITS == 8u);
    return vec4<u32>(
        (early.x & 0xffffu) | (early.y << 16u),
        (early.x >> 16u) | (early.y & 0xffff0000u),
        (late.x & 0xffffu) | (late.y << 16u),
        (late.x >> 16u) | (late.y & 0xffff0000u),
    );
}

/// What an invocation loads of a piece: units of codes and scales by pair of panels, and rows by step.
struct Loaded {
    units: array<Unit, PAIRS * EACH * UNITS>,
    scales: array<vec4<f32>, PAIRS>,
    rows: array<vec4<u32>, EACH * FRAGS>,
}

fn load_piece(bases: array<u32, PER>, piece: u32, local: u32) -> Loaded {
    let t = local % 4u;
    let g = local % LANES / 4u;
    let q = g % 4u;
    var loaded: Loaded;
    // unroll
    for (var i = 0u; i < PAIRS * EACH; i++) {
        let p = i / EACH;
        let own = (piece * EACH + i % EACH) * 4u + t;
        let k8 = select(own, min(own, size_k8() - 1u), GUARD);
        // unroll
        for (var u = 0u; u < UNITS; u++) { loaded.units[i * UNITS + u] = load_b(p / PER, bases[p % PER] + (k8 * UNITS + u) * 4u + q); }
    }
    // unroll
    for (var p = 0u; p < PAIRS; p++) {
        let here = select(piece, min(piece, pieces() - 1u), GUARD);
        if (GROUPED) { loaded.scales[p] = codes_scale(p / PER, bases[p % PER], here / pieces_of_group(), q); }
    }
    // unroll
    for (var i = 0u; i < EACH * FRAGS; i++) {
        let own = (piece * EACH + i / FRAGS) * 4u + t;
        let k8 = select(own, min(own, size_k8() - 1u), GUARD);
        loaded.rows[i] = vec4<u32>();
        if (there_is(i % FRAGS)) { loaded.rows[i] = bitcast<vec4<u32>>(load_a(min(i % FRAGS * 8u + g, size_m() - 1u), k8)); }
        if (GUARD) { loaded.rows[i] = select(vec4<u32>(), loaded.rows[i], own < size_k8()); }
    }
    return loaded;
}

/// What is made of the sums of row `r` in four columns, number `at` of those that the workgroup's panels have.
fn total(r: u32, at: u32) -> vec4<f32> {
    var found: array<vec4<f32>, MATRICES>;
    // unroll
    for (var m = 0u; m < MATRICES; m++) {
        let place = (m * PANELS + at / 4u) * SIZE_C + r * 4u + at % 4u;
        found[m] = sums[place];
        // unroll
        for (var i = 1u; i < SUBS; i++) { found[m] += sums[i * SIZE + place]; }
    }
    if (NORMALISED) {
        var square = squares[r];
        // unroll
        for (var i = 1u; i < SUBS; i++) { square += squares[i * HEIGHT + r]; }
        let factor = inverseSqrt(square / f32(size_k8() * 8u) + epsilon()) / SHRINK;
        // unroll
        for (var m = 0u; m < MATRICES; m++) { found[m] *= factor; }
    }
    return join(found[0], found[MATRICES - 1u]);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) { multiply(group.x, local); }

fn multiply(group: u32, local: u32) {
    let sub = local / LANES;
    let t = local % 4u;
    let g = local % LANES / 4u;
    let q = g % 4u;
    let half = g / 4u;
    var bases: array<u32, PER>;
    // unroll
    for (var p = 0u; p < PER; p++) { bases[p] = base_of(group, p * 2u + half); }
    var acc: array<vec4<f32>, PAIRS * FRAGS * 2u>;
    var part: array<vec4<f32>, PAIRS * FRAGS * 2u>;
    // unroll
    for (var i = 0u; i < PAIRS * FRAGS * 2u; i++) { acc[i] = vec4<f32>(); part[i] = vec4<f32>(); }
    var square: array<vec4<f32>, FRAGS>;
    var whole: array<vec4<f32>, FRAGS>;
    // unroll
    for (var f = 0u; f < FRAGS; f++) { square[f] = vec4<f32>(); whole[f] = vec4<f32>(); }
    var loaded: Loaded;
    for (var round = 0u; round < rounds(); round++) {
        let piece = round * SUBS + sub;
        loaded = load_piece(bases, piece, local);
        // Loads are not moved behind a branch, nor what uses them before it: drivers put each load right before its use otherwise.
        if (round < rounds()) {
            let here = select(piece, min(piece, pieces() - 1u), GUARD);
            // unroll
            for (var e = 0u; e < EACH; e++) {
                var by = vec4<u32>();
                if (NORMALISED) {
                    let own = (piece * EACH + e) * 4u + t;
                    let scale = bitcast<vec4<u32>>(load_scale(select(own, min(own, size_k8() - 1u), GUARD)));
                    by = scaled(in_order(scale), vec4<u32>(pack2x16float(vec2<f32>(SHRINK))));
                }
                var b: array<vec2<u32>, FRAGS * 2u>;
                // unroll
                for (var f = 0u; f < FRAGS; f++) {
                    if (there_is(f)) {
                        var x = in_order(loaded.rows[e * FRAGS + f]);
                        if (NORMALISED) {
                            square[f] = multiply_fragments(local, vec4<u32>(x.xy, 0u, 0u), x.xy, square[f]);
                            square[f] = multiply_fragments(local, vec4<u32>(x.zw, 0u, 0u), x.zw, square[f]);
                            x = scaled(x, by);
                        }
                        b[f * 2u] = x.xy;
                        b[f * 2u + 1u] = x.zw;
                        if (BIASED) {
                            whole[f] = multiply_fragments(local, vec4<u32>(0x3c003c00u), x.xy, whole[f]);
                            whole[f] = multiply_fragments(local, vec4<u32>(0x3c003c00u), x.zw, whole[f]);
                        }
                    }
                }
                // unroll
                for (var i = 0u; i < PAIRS * 2u; i++) {
                    var units: array<Unit, UNITS>;
                    // unroll
                    for (var u = 0u; u < UNITS; u++) { units[u] = loaded.units[(i / 2u * EACH + e) * UNITS + u]; }
                    let pairs = elements(units, i % 2u);
                    // unroll
                    for (var f = 0u; f < FRAGS; f++) {
                        if (there_is(f)) {
                            let own = i * FRAGS + f;
                            part[own] = multiply_fragments(local, vec4<u32>(pairs[0].xy, pairs[1].xy), b[f * 2u], part[own]);
                            part[own] = multiply_fragments(local, vec4<u32>(pairs[0].zw, pairs[1].zw), b[f * 2u + 1u], part[own]);
                        }
                    }
                }
            }
            if (GROUPED || round + 1u == rounds()) {
                // unroll
                for (var p = 0u; p < PAIRS; p++) {
                    var by = loaded.scales[p];
                    if (!GROUPED) { by = codes_scale(p / PER, bases[p % PER], 0u, q); }
                    by *= SMALLER;
                    var bias = vec4<f32>();
                    if (BIASED) { bias = codes_bias(p / PER, bases[p % PER], select(0u, here / pieces_of_group(), GROUPED), q); }
                    // unroll
                    for (var f = 0u; f < FRAGS; f++) {
                        let low = p * 2u * FRAGS + f;
                        let high = low + FRAGS;
                        acc[low] += part[low] * by.xxyy;
                        acc[high] += part[high] * by.zzww;
                        if (BIASED) {
                            acc[low] += whole[f] * bias.xxyy;
                            acc[high] += whole[f] * bias.zzww;
                        }
                        part[low] = vec4<f32>();
                        part[high] = vec4<f32>();
                    }
                }
                // unroll
                for (var f = 0u; f < FRAGS; f++) { whole[f] = vec4<f32>(); }
            }
        }
    }
    // unroll
    for (var i = 0u; i < PAIRS * FRAGS; i++) {
        let p = i / FRAGS;
        let f = i % FRAGS;
        let low = acc[p * 2u * FRAGS + f];
        let high = acc[(p * 2u + 1u) * FRAGS + f];
        let panel = p / PER * PANELS + p % PER * 2u + half;
        let to = sub * SIZE + panel * SIZE_C + (f * 8u + t * 2u) * 4u + q;
        sums[to] = vec4<f32>(low.x, low.z, high.x, high.z);
        sums[to + 4u] = vec4<f32>(low.y, low.w, high.y, high.w);
    }
    if (NORMALISED && t == g / 2u) {
        // unroll
        for (var f = 0u; f < FRAGS; f++) { squares[sub * HEIGHT + f * 8u + g] = select(square[f].x, square[f].y, g % 2u == 1u); }
    }
    workgroupBarrier();
    for (var i = local; i < HEIGHT * PANELS * 4u; i += THREADS) {
        let r = i / (PANELS * 4u);
        let at = i % (PANELS * 4u);
        let n4 = panel_of(group, at / 4u) * 4u + at % 4u;
        if (r < size_m() && n4 * 4u < size_n()) {
            var v = total(r, at);
            if (ROTATED == 1u) { v = turned(r, n4, v, v.yxwz); }
            if (ROTATED == 2u) { v = turned(r, n4, v, total(r, (at + 4u) % (2u * 4u))); }
            store(r, n4, v);
        }
    }
}
