// Matmul on matrix units: `result[batch] = a[batch] (M x K) * b[batch] (K x N)`, with f16 inputs and f32 sums, or 8-bit
// inputs and i32 sums. A workgroup computes TILE_M x TILE_N elements with K_SPLIT groups of SUBGROUPS_M x SUBGROUPS_N
// subgroups. A group multiplies every K_SPLIT-th K-tile of TILE_K. A subgroup holds FRAGS_M x FRAGS_N fragments of
// SIDE_M x SIDE_N sums. Eight elements move at a time: the next K-tile is loaded into registers while the current one
// is multiplied from workgroup memory. Constants are packed into panels of SIDE_N columns, so a fragment of b is
// contiguous in global memory, and small tiles load it without a copy in workgroup memory. A convolution is a matmul
// with a row per pixel.
//
// The compiler replaces the knobs, the types, the sizes and the hooks. Eight f16 are stored in a vec4<f32> and eight
// 8-bit integers in a vec2<f32>, because a matrix has the element type of the memory it is loaded from. The emitter
// gives matrices their own element types.

enable wgpu_cooperative_matrix;

const LANES = 32u;
const SIDE_M = 16u;
const SIDE_N = 16u;
const SIDE_K = 16u;
alias MatrixA = coop_mat16x16<f32, A>;
alias MatrixB = coop_mat16x16<f32, B>;
alias MatrixC = coop_mat16x16<f32, C>;
/// Type of eight matrix elements.
alias Vec8 = vec4<f32>;
/// Type of four sums.
alias Sum = vec4<f32>;
/// Padding after a row of a K-tile in workgroup memory, in vectors of eight elements. Padding of 16 bytes puts
/// neighboring rows in different memory banks.
const PAD = 1u;
const SUBGROUPS_M = 2u;
const SUBGROUPS_N = 2u;
const K_SPLIT = 2u;
const FRAGS_M = 2u;
const FRAGS_N = 2u;
const TILE_K = 32u;
/// Number of K-tiles in workgroup memory at once. With 2 K-tiles, a step along K needs one barrier less.
const STAGES = 1u;
/// Number of matrix fragments along N whose sums pass through workgroup memory to the epilogue at once.
const EPILOGUE_FRAGS = 2u;
/// True if the second operand is copied to workgroup memory; otherwise `global_fragment_b` loads fragments of it from
/// global memory.
const STAGED_B = true;
/// True if `load_b` returns eight elements along K instead of N.
const B_ALONG_K = false;
/// True if adjacent invocations store adjacent rows of the result, false if they store adjacent columns.
const ROWS_FIRST = true;
/// True if M may end within a tile, so that rows need a bounds check.
const GUARD_M = true;
/// True if N may end within a tile, so that columns need a bounds check.
const GUARD_N = true;
/// True if K may end within a K-tile, so that reads along K need a bounds check.
const GUARD_K = true;
/// Number of rows of tiles in a band of the result. Workgroups run band by band, and in a band column by column, so
/// that they reuse operands in the cache.
const BAND = 4u;
const TILE_M = SUBGROUPS_M * FRAGS_M * SIDE_M;
const TILE_N = SUBGROUPS_N * FRAGS_N * SIDE_N;
const SPLIT_THREADS = SUBGROUPS_M * SUBGROUPS_N * LANES;
const THREADS = SPLIT_THREADS * K_SPLIT;
const TILE_K8 = TILE_K / 8u;
const PANEL_VEC8S = SIDE_N / 8u;
const PANEL_VEC4S = SIDE_N / 4u;
const PANELS = TILE_N / SIDE_N;
const ROW_A = TILE_K8 + PAD;
const ROW_B = PANELS * PANEL_VEC8S + PAD;
const ROW_C = PANEL_VEC4S + 1u;
const SIZE_A = TILE_M * ROW_A;
/// Number of vectors (of eight elements) of a K-tile of the second operand in workgroup memory, including
/// padding. With B_ALONG_K, a K-tile has TILE_N rows of ROW_A vectors instead.
const SIZE_B = TILE_K * ROW_B;
const SIZE_C = SIDE_M * ROW_C;
const VEC8S_A = TILE_M * TILE_K8;
const VEC8S_B = TILE_N * TILE_K8;
const LOADS_A = (VEC8S_A + SPLIT_THREADS - 1u) / SPLIT_THREADS;
const LOADS_B = (VEC8S_B + SPLIT_THREADS - 1u) / SPLIT_THREADS;
const FRAGS_K = TILE_K / SIDE_K;
const_assert TILE_K % SIDE_K == 0u && SIDE_N % 8u == 0u && FRAGS_N % EPILOGUE_FRAGS == 0u;

@group(0) @binding(0) var<storage, read> a_buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> panels: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 64u; }
fn size_n() -> u32 { return 64u; }
/// Returns the number of groups of eight elements along K.
fn size_k8() -> u32 { return 8u; }
fn groups_m() -> u32 { return 2u; }
fn groups_n() -> u32 { return 2u; }

/// Loads eight elements of row `row` of the first operand, from K position `8 * k8`, with zeros past K.
fn load_a(batch: u32, row: u32, k8: u32) -> Vec8 { return a_buffer[(batch * 64u + row) * 8u + k8]; }
/// Loads eight elements of the second operand: of row `k` from column `8 * n8`, or with B_ALONG_K of column `k` from
/// row `8 * n8`.
fn load_b(batch: u32, k: u32, n8: u32) -> Vec8 {
    return panels[(n8 / PANEL_VEC8S * 64u + k) * PANEL_VEC8S + n8 % PANEL_VEC8S];
}
/// Packs four 8-bit elements, each in 32 bits, into a word.
fn pack_bytes(v: vec4<u32>) -> u32 {
    return insertBits(insertBits(insertBits(v.x, v.y, 8u, 24u), v.z, 16u, 16u), v.w, 24u, 8u);
}
/// Returns eight elements of the first operand for the matrix units, with flipped top bits if unsigned elements must
/// become signed. `correct_sum` then corrects the sums.
fn flip_sign_bits(v: Vec8) -> Vec8 { return v; }
/// Converts four sums, as they are stored in workgroup memory, to the type `Sum`.
fn as_sum(v: vec4<f32>) -> Sum { return v; }
/// Adds to the sums of four columns, from column `4 * n4`, the correction for the bits that `flip_sign_bits` flipped.
fn correct_sum(batch: u32, n4: u32, v: Sum) -> Sum { return v; }
/// Loads a fragment of the second operand from workgroup memory. `base` is the index in `tile_b` at which the K-tile
/// starts; `k` is the index of the fragment along K in the K-tile.
fn staged_fragment_b(base: u32, panel: u32, k: u32) -> MatrixB {
    let at = base + k * SIDE_K * ROW_B + panel * PANEL_VEC8S;
    return coopLoadT<MatrixB>(&tile_b[at], ROW_B);
}
/// Loads the fragment of the second operand in panel `panel` at K position `SIDE_K * k` from global memory.
fn global_fragment_b(batch: u32, panel: u32, k: u32) -> MatrixB { return MatrixB(); }
/// Applies the epilogue to four sums of row `row` of the result, from column `4 * n4`, and stores them.
fn store(batch: u32, row: u32, n4: u32, v: Sum) { result[(batch * 64u + row) * 16u + n4] = v; }

var<workgroup> tile_a: array<Vec8, STAGES * K_SPLIT * SIZE_A>;
var<workgroup> tile_b: array<Vec8, STAGES * K_SPLIT * SIZE_B>;
var<workgroup> sums: array<vec4<f32>, SUBGROUPS_M * SUBGROUPS_N * K_SPLIT * EPILOGUE_FRAGS * SIZE_C>;

/// Returns vector `i` (eight elements) of the first operand's K-tile that starts at K position `8 * k8`. Rows past the
/// end repeat the last row; their results are never stored. Elements past K are zero, so the second operand may have
/// any elements there.
fn tile_vec8_a(batch: u32, first_m: u32, k8: u32, i: u32) -> Vec8 {
    let k = k8 + i % TILE_K8;
    let row = select(first_m + i / TILE_K8, min(first_m + i / TILE_K8, size_m() - 1u), GUARD_M);
    let v = flip_sign_bits(load_a(batch, row, select(k, min(k, size_k8() - 1u), GUARD_K)));
    return select(v, Vec8(), GUARD_K && k >= size_k8());
}

/// Returns vector `i` (eight elements) of the second operand's K-tile that starts at K position `8 * k8`. K positions
/// and columns past the end repeat the last ones.
fn tile_vec8_b(batch: u32, first_panel: u32, k8: u32, i: u32) -> Vec8 {
    if (B_ALONG_K) {
        let column = first_panel * SIDE_N + i / TILE_K8;
        let k = k8 + i % TILE_K8;
        return load_b(batch, select(column, min(column, size_n() - 1u), GUARD_N), select(k, min(k, size_k8() - 1u), GUARD_K));
    }
    let n8 = first_panel * PANEL_VEC8S + i % (PANELS * PANEL_VEC8S);
    let k = k8 * 8u + i / (PANELS * PANEL_VEC8S);
    return load_b(
        batch,
        select(k, min(k, size_k8() * 8u - 1u), GUARD_K),
        select(n8, min(n8, (size_n() + 7u) / 8u - 1u), GUARD_N),
    );
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let batch = group.z;
    // Workgroups run in bands of BAND rows of tiles, column by column in a band.
    let band = group.x / (BAND * groups_n());
    let in_band = group.x % (BAND * groups_n());
    let band_rows = min(BAND, groups_m() - band * BAND);
    let first_m = (band * BAND + in_band % band_rows) * TILE_M;
    let first_panel = in_band / band_rows * PANELS;
    let subgroup = local / LANES;
    let split = local / SPLIT_THREADS;
    let split_thread = local % SPLIT_THREADS;
    let subgroup_m = subgroup % SUBGROUPS_M;
    let subgroup_n = subgroup / SUBGROUPS_M % SUBGROUPS_N;
    let last_k = (size_k8() * 8u - 1u) / SIDE_K;
    let last_panel = (size_n() - 1u) / SIDE_N;
    var acc: array<MatrixC, FRAGS_M * FRAGS_N>;
    // unroll
    for (var i = 0u; i < FRAGS_M * FRAGS_N; i++) { acc[i] = MatrixC(); }
    var a: array<MatrixA, FRAGS_M>;
    var b: array<MatrixB, FRAGS_K * FRAGS_N>;
    var next_fragments: array<MatrixB, FRAGS_K * FRAGS_N>;
    var next_a: array<Vec8, LOADS_A>;
    var next_b: array<Vec8, LOADS_B>;
    // unroll
    for (var i = 0u; i < LOADS_A; i++) { next_a[i] = tile_vec8_a(batch, first_m, split * TILE_K8, min(split_thread + i * SPLIT_THREADS, VEC8S_A - 1u)); }
    if (STAGED_B) {
        // unroll
        for (var i = 0u; i < LOADS_B; i++) { next_b[i] = tile_vec8_b(batch, first_panel, split * TILE_K8, min(split_thread + i * SPLIT_THREADS, VEC8S_B - 1u)); }
    } else {
        // unroll
        for (var i = 0u; i < FRAGS_K * FRAGS_N; i++) {
            let panel = min(first_panel + subgroup_n * FRAGS_N + i % FRAGS_N, last_panel);
            next_fragments[i] = global_fragment_b(batch, panel, min(split * FRAGS_K + i / FRAGS_N, last_k));
        }
    }
    var stage = 0u;
    for (var step = 0u; step < size_k8(); step += TILE_K8 * K_SPLIT) {
        let base_a = (stage * K_SPLIT + split) * SIZE_A;
        let base_b = (stage * K_SPLIT + split) * SIZE_B;
        if (STAGES == 1u) { workgroupBarrier(); }
        // unroll
        for (var i = 0u; i < LOADS_A; i++) {
            let vec8 = split_thread + i * SPLIT_THREADS;
            if (VEC8S_A % SPLIT_THREADS == 0u || vec8 < VEC8S_A) { tile_a[base_a + vec8 / TILE_K8 * ROW_A + vec8 % TILE_K8] = next_a[i]; }
        }
        if (STAGED_B) {
            // unroll
            for (var i = 0u; i < LOADS_B; i++) {
                let vec8 = split_thread + i * SPLIT_THREADS;
                let row_vec8s = select(PANELS * PANEL_VEC8S, TILE_K8, B_ALONG_K);
                if (VEC8S_B % SPLIT_THREADS == 0u || vec8 < VEC8S_B) { tile_b[base_b + vec8 / row_vec8s * select(ROW_B, ROW_A, B_ALONG_K) + vec8 % row_vec8s] = next_b[i]; }
            }
        }
        workgroupBarrier();
        // The last step of the loop has no next K-tile, so it loads its own K-tile again.
        let next_k8 = select(step, step + TILE_K8 * K_SPLIT, step + TILE_K8 * K_SPLIT < size_k8()) + split * TILE_K8;
        // unroll
        for (var i = 0u; i < LOADS_A; i++) { next_a[i] = tile_vec8_a(batch, first_m, next_k8, min(split_thread + i * SPLIT_THREADS, VEC8S_A - 1u)); }
        if (STAGED_B) {
            // unroll
            for (var i = 0u; i < LOADS_B; i++) { next_b[i] = tile_vec8_b(batch, first_panel, next_k8, min(split_thread + i * SPLIT_THREADS, VEC8S_B - 1u)); }
        } else {
            // unroll
            for (var i = 0u; i < FRAGS_K * FRAGS_N; i++) {
                b[i] = next_fragments[i];
                let panel = min(first_panel + subgroup_n * FRAGS_N + i % FRAGS_N, last_panel);
                next_fragments[i] = global_fragment_b(batch, panel, min(next_k8 * 8u / SIDE_K + i / FRAGS_N, last_k));
            }
        }
        // unroll
        for (var k = 0u; k < FRAGS_K; k++) {
            // unroll
            for (var i = 0u; i < FRAGS_M; i++) {
                let at = base_a + (subgroup_m * FRAGS_M + i) * SIDE_M * ROW_A + k * (SIDE_K / 8u);
                a[i] = coopLoadT<MatrixA>(&tile_a[at], ROW_A);
            }
            // unroll
            for (var j = 0u; j < FRAGS_N; j++) {
                if (STAGED_B) { b[k * FRAGS_N + j] = staged_fragment_b(base_b, subgroup_n * FRAGS_N + j, k); }
                // unroll
                for (var i = 0u; i < FRAGS_M; i++) {
                    acc[i * FRAGS_N + j] = coopMultiplyAdd(a[i], b[k * FRAGS_N + j], acc[i * FRAGS_N + j]);
                }
            }
        }
        stage = (stage + 1u) % STAGES;
    }
    // All invocations add the sums of the K splits, EPILOGUE_FRAGS fragments at a time. The epilogue stands only once
    // in the source, because it may be long and drivers compile long shaders slowly.
    let subgroup_base = subgroup * (EPILOGUE_FRAGS * SIZE_C);
    for (var epilogue_pass = 0u; epilogue_pass < FRAGS_M * FRAGS_N / EPILOGUE_FRAGS; epilogue_pass++) {
        // unroll
        for (var f = 0u; f < FRAGS_M * FRAGS_N; f += EPILOGUE_FRAGS) {
            if (f == epilogue_pass * EPILOGUE_FRAGS) {
                // unroll
                for (var frag = 0u; frag < EPILOGUE_FRAGS; frag++) {
                    let at = subgroup_base + frag * SIZE_C;
                    let sum = acc[f + frag];
                    coopStoreT(sum, &sums[at], ROW_C);
                }
            }
        }
        workgroupBarrier();
        let i = epilogue_pass / (FRAGS_N / EPILOGUE_FRAGS);
        let j = epilogue_pass % (FRAGS_N / EPILOGUE_FRAGS) * EPILOGUE_FRAGS;
        for (var index = local; index < SUBGROUPS_M * SUBGROUPS_N * EPILOGUE_FRAGS * SIDE_M * PANEL_VEC4S; index += THREADS) {
            let fragment = index / (SIDE_M * PANEL_VEC4S);
            let element = index % (SIDE_M * PANEL_VEC4S);
            let row = select(element / PANEL_VEC4S, element % SIDE_M, ROWS_FIRST);
            let row_vec4 = select(element % PANEL_VEC4S, element / SIDE_M, ROWS_FIRST);
            let subgroup_index = fragment / EPILOGUE_FRAGS;
            let at = fragment * SIZE_C + row * ROW_C + row_vec4;
            var v = as_sum(sums[at]);
            // unroll
            for (var p = 1u; p < K_SPLIT; p++) { v += as_sum(sums[at + p * (SUBGROUPS_M * SUBGROUPS_N * EPILOGUE_FRAGS * SIZE_C)]); }
            let m = first_m + (subgroup_index % SUBGROUPS_M * FRAGS_M + i) * SIDE_M + row;
            let n4 = (first_panel + subgroup_index / SUBGROUPS_M * FRAGS_N + j + fragment % EPILOGUE_FRAGS) * PANEL_VEC4S + row_vec4;
            if ((!GUARD_M || m < size_m()) && (!GUARD_N || n4 * 4u < size_n())) { store(batch, m, n4, correct_sum(batch, n4, v)); }
        }
        workgroupBarrier();
    }
}
