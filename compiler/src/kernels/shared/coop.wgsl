// Matrix product on matrix units: `result[batch] = a[batch] (M x K) * b[batch] (K x N)`, f16 inputs and f32 sums, or
// inputs of 8 bits and i32 sums.
// A workgroup computes TILE_M x TILE_N elements with PARTS groups of SUBS_M x SUBS_N subgroups, each group taking every
// PARTS-th stretch of DEPTH along K; a subgroup holds FRAGS_M x FRAGS_N fragments of SIDE_M x SIDE_N. Eight elements
// move at a time: the next stretch is loaded into registers while the present one is multiplied from
// workgroup memory. Constants come in panels of SIDE_N columns, so that a fragment of b is one stretch of global
// memory, which small tiles load without a detour. A convolution is a product with a row per pixel.
//
// Replaced: the knobs, the types, the sizes and the hooks. Eight f16 travel as the bits of a vec4<f32>, eight numbers of
// 8 bits as those of a vec2<f32>, because the type of a matrix follows the memory it is loaded from; matrices get their
// own elements when the module is emitted.

enable wgpu_cooperative_matrix;

const LANES = 32u;
const SIDE_M = 16u;
const SIDE_N = 16u;
const SIDE_K = 16u;
alias MatrixA = coop_mat16x16<f32, A>;
alias MatrixB = coop_mat16x16<f32, B>;
alias MatrixC = coop_mat16x16<f32, C>;
/// Eight elements, and four sums.
alias Unit = vec4<f32>;
alias Sum = vec4<f32>;
/// Units between rows in workgroup memory: 16 bytes spread them over its banks.
const PAD = 1u;
const SUBS_M = 2u;
const SUBS_N = 2u;
const PARTS = 2u;
const FRAGS_M = 2u;
const FRAGS_N = 2u;
const DEPTH = 32u;
/// Stretches that fit workgroup memory at once: 2 saves a barrier a step.
const STAGES = 1u;
/// Fragments of a row whose sums are passed through workgroup memory at once.
const HELD = 2u;
/// Whether b passes through workgroup memory; else `fragment_b` loads from global memory.
const STAGED_B = true;
/// Whether `load_b` gives eight elements along K rather than along N.
const B_ALONG_K = false;
/// Whether neighbouring invocations store neighbouring rows rather than neighbouring columns.
const ROWS_FIRST = true;
/// Whether M, N and K may end within a tile.
const GUARD_M = true;
const GUARD_N = true;
const GUARD_K = true;
/// Rows of workgroups that run side by side, for the sake of the cache.
const BAND = 4u;
const TILE_M = SUBS_M * FRAGS_M * SIDE_M;
const TILE_N = SUBS_N * FRAGS_N * SIDE_N;
const GROUP = SUBS_M * SUBS_N * LANES;
const THREADS = GROUP * PARTS;
const D8 = DEPTH / 8u;
const S8 = SIDE_N / 8u;
const S4 = SIDE_N / 4u;
const PANELS = TILE_N / SIDE_N;
const ROW_A = D8 + PAD;
const ROW_B = PANELS * S8 + PAD;
const ROW_C = S4 + 1u;
const SIZE_A = TILE_M * ROW_A;
/// Vectors of b in workgroup memory per part: with B_ALONG_K as many as TILE_N rows of ROW_A.
const SIZE_B = DEPTH * ROW_B;
const SIZE_C = SIDE_M * ROW_C;
const UNITS_A = TILE_M * D8;
const UNITS_B = TILE_N * D8;
const LOADS_A = (UNITS_A + GROUP - 1u) / GROUP;
const LOADS_B = (UNITS_B + GROUP - 1u) / GROUP;
const STEPS = DEPTH / SIDE_K;
const_assert DEPTH % SIDE_K == 0u && SIDE_N % 8u == 0u && FRAGS_N % HELD == 0u;

@group(0) @binding(0) var<storage, read> a_buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> panels: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 64u; }
fn size_n() -> u32 { return 64u; }
/// K in groups of eight.
fn size_k8() -> u32 { return 8u; }
fn groups_m() -> u32 { return 2u; }
fn groups_n() -> u32 { return 2u; }

/// Elements `8 * k8 ..` of row `row` of a as f16, two in a word; zero past K.
fn load_a(batch: u32, row: u32, k8: u32) -> Unit { return a_buffer[(batch * 64u + row) * 8u + k8]; }
/// Eight elements of b: of row `k` from column `8 * n8`, or with B_ALONG_K of column `k` from row `8 * n8`.
fn load_b(batch: u32, k: u32, n8: u32) -> Unit {
    return panels[(n8 / S8 * 64u + k) * S8 + n8 % S8];
}
/// Four numbers of 8 bits, of which each has 32, as a word.
fn word(v: vec4<u32>) -> u32 {
    return insertBits(insertBits(insertBits(v.x, v.y, 8u, 24u), v.z, 16u, 16u), v.w, 24u, 8u);
}
/// Eight elements of a as the matrices take them: with their top bits flipped where `corrected` makes up for that.
fn flipped(v: Unit) -> Unit { return v; }
/// Four sums as they lie in memory.
fn sum_of(v: vec4<f32>) -> Sum { return v; }
/// What four sums of columns from `4 * n4` should be.
fn corrected(batch: u32, n4: u32, v: Sum) -> Sum { return v; }
/// The fragment of b in workgroup memory: `base` is where the stretch begins, `k` counts fragments in it.
fn tiled_b(base: u32, panel: u32, k: u32) -> MatrixB {
    let at = base + k * SIDE_K * ROW_B + panel * S8;
    return coopLoadT<MatrixB>(&tile_b[at], ROW_B);
}
/// The fragment of panel `panel` and depth `SIDE_K * k` from global memory.
fn fragment_b(batch: u32, panel: u32, k: u32) -> MatrixB { return MatrixB(); }
/// Applies the chain to four elements of row `row`, from column `4 * n4`, and stores them.
fn store(batch: u32, row: u32, n4: u32, v: Sum) { result[(batch * 64u + row) * 16u + n4] = v; }

var<workgroup> tile_a: array<Unit, STAGES * PARTS * SIZE_A>;
var<workgroup> tile_b: array<Unit, STAGES * PARTS * SIZE_B>;
var<workgroup> sums: array<vec4<f32>, SUBS_M * SUBS_N * PARTS * HELD * SIZE_C>;

/// Unit `i` of the stretch of a from group of eight `k8`. Rows past the end repeat the last one, as they are never
/// stored; depths past the end are zero, whatever b has there.
fn stretch_a(batch: u32, first_m: u32, k8: u32, i: u32) -> Unit {
    let k = k8 + i % D8;
    let row = select(first_m + i / D8, min(first_m + i / D8, size_m() - 1u), GUARD_M);
    let v = flipped(load_a(batch, row, select(k, min(k, size_k8() - 1u), GUARD_K)));
    return select(v, Unit(), GUARD_K && k >= size_k8());
}

/// Unit `i` of the stretch of b, repeated past the ends.
fn stretch_b(batch: u32, first_panel: u32, k8: u32, i: u32) -> Unit {
    if (B_ALONG_K) {
        let column = first_panel * SIDE_N + i / D8;
        let k = k8 + i % D8;
        return load_b(batch, select(column, min(column, size_n() - 1u), GUARD_N), select(k, min(k, size_k8() - 1u), GUARD_K));
    }
    let n8 = first_panel * S8 + i % (PANELS * S8);
    let k = k8 * 8u + i / (PANELS * S8);
    return load_b(
        batch,
        select(k, min(k, size_k8() * 8u - 1u), GUARD_K),
        select(n8, min(n8, (size_n() + 7u) / 8u - 1u), GUARD_N),
    );
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let batch = group.z;
    // Bands of BAND rows of workgroups, walked column by column.
    let band = group.x / (BAND * groups_n());
    let in_band = group.x % (BAND * groups_n());
    let high = min(BAND, groups_m() - band * BAND);
    let first_m = (band * BAND + in_band % high) * TILE_M;
    let first_panel = in_band / high * PANELS;
    let subgroup = local / LANES;
    let part = local / GROUP;
    let within = local % GROUP;
    let sub_m = subgroup % SUBS_M;
    let sub_n = subgroup / SUBS_M % SUBS_N;
    let last_k = (size_k8() * 8u - 1u) / SIDE_K;
    let last_panel = (size_n() - 1u) / SIDE_N;
    var acc: array<MatrixC, FRAGS_M * FRAGS_N>;
    // unroll
    for (var i = 0u; i < FRAGS_M * FRAGS_N; i++) { acc[i] = MatrixC(); }
    var a: array<MatrixA, FRAGS_M>;
    var b: array<MatrixB, STEPS * FRAGS_N>;
    var ahead: array<MatrixB, STEPS * FRAGS_N>;
    var next_a: array<Unit, LOADS_A>;
    var next_b: array<Unit, LOADS_B>;
    // unroll
    for (var i = 0u; i < LOADS_A; i++) { next_a[i] = stretch_a(batch, first_m, part * D8, min(within + i * GROUP, UNITS_A - 1u)); }
    if (STAGED_B) {
        // unroll
        for (var i = 0u; i < LOADS_B; i++) { next_b[i] = stretch_b(batch, first_panel, part * D8, min(within + i * GROUP, UNITS_B - 1u)); }
    } else {
        // unroll
        for (var i = 0u; i < STEPS * FRAGS_N; i++) {
            let panel = min(first_panel + sub_n * FRAGS_N + i % FRAGS_N, last_panel);
            ahead[i] = fragment_b(batch, panel, min(part * STEPS + i / FRAGS_N, last_k));
        }
    }
    var stage = 0u;
    for (var step = 0u; step < size_k8(); step += D8 * PARTS) {
        let base_a = (stage * PARTS + part) * SIZE_A;
        let base_b = (stage * PARTS + part) * SIZE_B;
        if (STAGES == 1u) { workgroupBarrier(); }
        // unroll
        for (var i = 0u; i < LOADS_A; i++) {
            let unit = within + i * GROUP;
            if (UNITS_A % GROUP == 0u || unit < UNITS_A) { tile_a[base_a + unit / D8 * ROW_A + unit % D8] = next_a[i]; }
        }
        if (STAGED_B) {
            // unroll
            for (var i = 0u; i < LOADS_B; i++) {
                let unit = within + i * GROUP;
                let line = select(PANELS * S8, D8, B_ALONG_K);
                if (UNITS_B % GROUP == 0u || unit < UNITS_B) { tile_b[base_b + unit / line * select(ROW_B, ROW_A, B_ALONG_K) + unit % line] = next_b[i]; }
            }
        }
        workgroupBarrier();
        // The last step has none following: what it loads again is not used.
        let following = select(step, step + D8 * PARTS, step + D8 * PARTS < size_k8()) + part * D8;
        // unroll
        for (var i = 0u; i < LOADS_A; i++) { next_a[i] = stretch_a(batch, first_m, following, min(within + i * GROUP, UNITS_A - 1u)); }
        if (STAGED_B) {
            // unroll
            for (var i = 0u; i < LOADS_B; i++) { next_b[i] = stretch_b(batch, first_panel, following, min(within + i * GROUP, UNITS_B - 1u)); }
        } else {
            // unroll
            for (var i = 0u; i < STEPS * FRAGS_N; i++) {
                b[i] = ahead[i];
                let panel = min(first_panel + sub_n * FRAGS_N + i % FRAGS_N, last_panel);
                ahead[i] = fragment_b(batch, panel, min(following * 8u / SIDE_K + i / FRAGS_N, last_k));
            }
        }
        // unroll
        for (var k = 0u; k < STEPS; k++) {
            // unroll
            for (var i = 0u; i < FRAGS_M; i++) {
                let at = base_a + (sub_m * FRAGS_M + i) * SIDE_M * ROW_A + k * (SIDE_K / 8u);
                a[i] = coopLoadT<MatrixA>(&tile_a[at], ROW_A);
            }
            // unroll
            for (var j = 0u; j < FRAGS_N; j++) {
                if (STAGED_B) { b[k * FRAGS_N + j] = tiled_b(base_b, sub_n * FRAGS_N + j, k); }
                // unroll
                for (var i = 0u; i < FRAGS_M; i++) {
                    acc[i * FRAGS_N + j] = coopMultiplyAdd(a[i], b[k * FRAGS_N + j], acc[i * FRAGS_N + j]);
                }
            }
        }
        stage = (stage + 1u) % STAGES;
    }
    // The sums of every part of a fragment are added up by all invocations together, HELD fragments at a time. One text
    // serves them all, as the chain may be long and drivers take their time over long shaders.
    let mine = subgroup * (HELD * SIZE_C);
    for (var turn = 0u; turn < FRAGS_M * FRAGS_N / HELD; turn++) {
        // unroll
        for (var f = 0u; f < FRAGS_M * FRAGS_N; f += HELD) {
            if (f == turn * HELD) {
                // unroll
                for (var h = 0u; h < HELD; h++) {
                    let at = mine + h * SIZE_C;
                    let sum = acc[f + h];
                    coopStoreT(sum, &sums[at], ROW_C);
                }
            }
        }
        workgroupBarrier();
        let i = turn / (FRAGS_N / HELD);
        let j = turn % (FRAGS_N / HELD) * HELD;
        for (var u = local; u < SUBS_M * SUBS_N * HELD * SIDE_M * S4; u += THREADS) {
            let fragment = u / (SIDE_M * S4);
            let inside = u % (SIDE_M * S4);
            let row = select(inside / S4, inside % SIDE_M, ROWS_FIRST);
            let four = select(inside % S4, inside / SIDE_M, ROWS_FIRST);
            let sub = fragment / HELD;
            let at = fragment * SIZE_C + row * ROW_C + four;
            var v = sum_of(sums[at]);
            // unroll
            for (var p = 1u; p < PARTS; p++) { v += sum_of(sums[at + p * (SUBS_M * SUBS_N * HELD * SIZE_C)]); }
            let m = first_m + (sub % SUBS_M * FRAGS_M + i) * SIDE_M + row;
            let n4 = (first_panel + sub / SUBS_M * FRAGS_N + j + fragment % HELD) * S4 + four;
            if ((!GUARD_M || m < size_m()) && (!GUARD_N || n4 * 4u < size_n())) { store(batch, m, n4, corrected(batch, n4, v)); }
        }
        workgroupBarrier();
    }
}
