// Convolution as implicit GEMM on matrix units with a known fragment layout: `result[batch] = a[batch] (M x K) * b
// (K x N)`, f16 inputs and f32 sums. A row of a is a pixel, a column of b is an output channel, and K are the taps and
// input channels. GROUP_SPLIT workgroups split K and compute partial sums of TILE_M x TILE_N elements, which
// conv_merge.wgsl adds. A workgroup has K_SPLIT groups of SUBGROUPS_M x SUBGROUPS_N subgroups. A group multiplies every
// K_SPLIT-th K-tile of TILE_K. A subgroup computes FRAGS_M fragments of 16 rows by FRAGS_N fragments of eight columns.
// K-tiles of a pass through workgroup memory, and with STAGED_B also K-tiles of b, so that each is loaded once for all
// subgroups. Otherwise, fragments of b are loaded from global memory into registers. Loads are one K-tile ahead. Sums stay
// in registers until the epilogue.
//
// Fragments have the layout of `mma.m16n8k16`. Invocation 4 * g + t of a subgroup holds rows g and g + 8 of a, column g
// of b, and columns 2 * t and 2 * t + 1 of these rows of sums. Matrix multiplication does not depend on the order of the
// summed positions, so in 32 K positions invocation t takes positions 8 * t to 8 * t + 7 and loads them at once, for two
// multiplications.
//
// The compiler replaces the knobs, the sizes and the hooks. Eight f16 are stored as the bits of a vec4<f32>; `coop.wgsl`
// explains why.

enable wgpu_cooperative_matrix;

const LANES = 32u;
const SUBGROUPS_M = 2u;
const SUBGROUPS_N = 2u;
const K_SPLIT = 2u;
const GROUP_SPLIT = 1u;
const FRAGS_M = 2u;
const FRAGS_N = 4u;
const TILE_K = 32u;
/// 1 if K-tiles of b pass through workgroup memory.
const STAGED_B = 0u;
/// True if M may end within a tile, so that rows need a bounds check.
const GUARD_M = true;
/// True if N may end within a tile, so that columns need a bounds check.
const GUARD_N = true;
/// True if K may end within a K-tile, so that reads along K need a bounds check.
const GUARD_K = true;
/// Number of rows of tiles in a band of the result. Workgroups run band by band, and in a band column by column, so
/// that they reuse operands in the cache.
const BAND = 8u;
const FRAGS = FRAGS_M * FRAGS_N;
const TILE_M = SUBGROUPS_M * FRAGS_M * 16u;
const COLUMN_FRAGS = SUBGROUPS_N * FRAGS_N;
const TILE_K8 = TILE_K / 8u;
const STEPS_K32 = TILE_K / 32u;
const SPLIT_SUBGROUPS = SUBGROUPS_M * SUBGROUPS_N;
const SPLIT_THREADS = SPLIT_SUBGROUPS * LANES;
const THREADS = SPLIT_THREADS * K_SPLIT;
/// Number of vectors (of eight elements) of a K-tile of the first operand.
const VEC8S_A = TILE_M * TILE_K8;
const LOADS_A = (VEC8S_A + SPLIT_THREADS - 1u) / SPLIT_THREADS;
/// Number of columns of a workgroup's tile.
const TILE_N = COLUMN_FRAGS * 8u;
/// Number of vectors (of eight elements) of a K-tile of the second operand.
const VEC8S_B = TILE_N * TILE_K8;
const LOADS_B = STAGED_B * ((VEC8S_B + SPLIT_THREADS - 1u) / SPLIT_THREADS) + (1u - STAGED_B) * FRAGS_N * STEPS_K32;
/// Number of vectors of a K-tile in workgroup memory.
const TILE_VEC8S = VEC8S_A + STAGED_B * VEC8S_B;
/// Size of the workgroup memory in vec4s: two K-tiles of each K split, or the sums of all K splits if they are larger.
const SHARED_VEC4S = 2u * K_SPLIT * TILE_VEC8S;
const_assert LANES == 32u && TILE_K % 32u == 0u;

@group(0) @binding(0) var<storage, read> a_buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> fragments: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 64u; }
fn size_n() -> u32 { return 64u; }
/// Returns the number of groups of eight elements along K.
fn size_k8() -> u32 { return 8u; }
fn groups_m() -> u32 { return 1u; }
fn groups_n() -> u32 { return 1u; }

/// Loads eight channels of pixel `row` at one tap, from K position `8 * k8`.
fn load_a(batch: u32, row: u32, k8: u32) -> vec4<f32> { return a_buffer[(batch * 64u + row) * 8u + k8]; }
/// Loads eight elements of column `8 * n8 + g` of the filters, from K position `8 * k8`.
fn load_b(n8: u32, k8: u32, g: u32) -> vec4<u32> { return fragments[(n8 * 8u + k8) * 8u + g]; }
/// Applies the epilogue to four sums of row `row` of the result, from column `4 * n4`, and stores them.
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) { result[(batch * 64u + row) * 16u + n4] = v; }
/// Stores four partial sums of row `row` from column `4 * n4`. `group` is `GROUP_SPLIT` times the batch, plus the number of the
/// workgroup's part of K.
fn store_partial(group: u32, n4: u32, row: u32, v: vec4<f32>) {}

/// Computes `a * b + c` for matrix fragments. Each invocation holds a part of each fragment. The emitter replaces the matrices
/// in the body by the arguments.
fn multiply_fragments(local: u32, a: vec4<u32>, b: vec2<u32>, c: vec4<f32>) -> vec4<f32> {
    let d = coopMultiplyAdd(coop_mat16x16<f32, A>(), coop_mat16x16<f32, B>(), coop_mat16x16<f32, C>());
    return c;
}
fn pack_f16(v: vec2<f32>) -> f32 { return bitcast<f32>(pack2x16float(v)); }

/// K-tiles in the order of `tile_vec8_a` and `load_tile_b`, later the sums of the K splits.
var<workgroup> shared_vec4s: array<vec4<f32>, SHARED_VEC4S>;

/// Returns vector `i` (eight elements) of the first operand's K-tile that starts at K position `8 * k8`. Vectors of
/// the same 32 K positions are adjacent. Rows past the end repeat the last row; their results are never stored. Elements
/// past K are zero, so the second operand may have any elements there.
fn tile_vec8_a(batch: u32, first_m: u32, k8: u32, i: u32) -> vec4<f32> {
    let k = k8 + i / (4u * TILE_M) * 4u + i % 4u;
    let tile_row = i / 4u % TILE_M;
    let row = select(first_m + tile_row, min(first_m + tile_row, size_m() - 1u), GUARD_M);
    let v = load_a(batch, row, select(k, min(k, size_k8() - 1u), GUARD_K));
    return select(v, vec4<f32>(), GUARD_K && k >= size_k8());
}

/// Returns load `i` of an invocation from the second operand's K-tile that starts at K position `8 * k8`: its part of a fragment
/// of its subgroup, or with STAGED_B a vector of the workgroup's tile. Vectors of the same 32 K positions are adjacent. K
/// positions and columns past the end repeat the last ones.
fn load_tile_b(first_n8: u32, k8: u32, i: u32, subgroup_n8: u32, split_thread: u32) -> vec4<u32> {
    let vec8 = min(split_thread + i * SPLIT_THREADS, VEC8S_B - 1u);
    let column = vec8 / 4u % TILE_N;
    let lane = split_thread % LANES;
    let k = k8 + split_thread % 4u + 4u * select(i / FRAGS_N, vec8 / (4u * TILE_N), STAGED_B == 1u);
    let n8 = first_n8 + select(subgroup_n8 + i % FRAGS_N, column / 8u, STAGED_B == 1u);
    return load_b(
        select(n8, min(n8, (size_n() + 7u) / 8u - 1u), GUARD_N),
        select(k, min(k, size_k8() - 1u), GUARD_K),
        select(lane / 4u, column % 8u, STAGED_B == 1u),
    );
}

fn multiply(group: vec3<u32>, local: u32) {
    let batch = group.z / GROUP_SPLIT;
    // K-tiles of the workgroup, in groups of eight elements along K.
    let steps = (size_k8() + TILE_K8 * K_SPLIT - 1u) / (TILE_K8 * K_SPLIT);
    let group_k8 = (steps + GROUP_SPLIT - 1u) / GROUP_SPLIT * (TILE_K8 * K_SPLIT);
    let first_k8 = group.z % GROUP_SPLIT * group_k8;
    let end_k8 = min(first_k8 + group_k8, size_k8());
    // Workgroups run in bands of BAND rows of tiles, column by column in a band.
    let band = group.x / (BAND * groups_n());
    let in_band = group.x % (BAND * groups_n());
    let band_rows = min(BAND, groups_m() - band * BAND);
    let first_m = (band * BAND + in_band % band_rows) * TILE_M;
    let lane = local % LANES;
    let t = lane % 4u;
    let split = local / SPLIT_THREADS;
    let split_thread = local % SPLIT_THREADS;
    let subgroup = split_thread / LANES;
    let subgroup_row = subgroup % SUBGROUPS_M * (FRAGS_M * 16u);
    let first_n8 = in_band / band_rows * COLUMN_FRAGS;
    let subgroup_n8 = subgroup / SUBGROUPS_M * FRAGS_N;
    // Indices, in a K-tile, of the first vectors that the invocation multiplies.
    let own_vec8 = (subgroup_row + lane / 4u) * 4u + t;
    let own_vec8_b = VEC8S_A + (subgroup_n8 * 8u + lane / 4u) * 4u + t;
    var acc: array<vec4<f32>, FRAGS>;
    // unroll
    for (var i = 0u; i < FRAGS; i++) { acc[i] = vec4<f32>(); }
    var next_a: array<vec4<f32>, LOADS_A>;
    var next_b: array<vec4<u32>, LOADS_B>;
    var b: array<vec4<u32>, LOADS_B>;
    // unroll
    for (var i = 0u; i < LOADS_A; i++) { next_a[i] = tile_vec8_a(batch, first_m, first_k8 + split * TILE_K8, min(split_thread + i * SPLIT_THREADS, VEC8S_A - 1u)); }
    // unroll
    for (var i = 0u; i < LOADS_B; i++) { next_b[i] = load_tile_b(first_n8, first_k8 + split * TILE_K8, i, subgroup_n8, split_thread); }
    var base = split * TILE_VEC8S;
    var other_base = (K_SPLIT + split) * TILE_VEC8S;
    for (var step = first_k8; step < end_k8; step += TILE_K8 * K_SPLIT) {
        // unroll
        for (var i = 0u; i < LOADS_A; i++) {
            let vec8 = split_thread + i * SPLIT_THREADS;
            if (VEC8S_A % SPLIT_THREADS == 0u || vec8 < VEC8S_A) { shared_vec4s[base + vec8] = next_a[i]; }
        }
        if (STAGED_B == 1u) {
            // unroll
            for (var i = 0u; i < LOADS_B; i++) {
                let vec8 = split_thread + i * SPLIT_THREADS;
                if (VEC8S_B % SPLIT_THREADS == 0u || vec8 < VEC8S_B) { shared_vec4s[base + VEC8S_A + vec8] = bitcast<vec4<f32>>(next_b[i]); }
            }
        }
        workgroupBarrier();
        // The last step of the loop has no next K-tile, so it loads its own K-tile again.
        let next_k8 = select(step, step + TILE_K8 * K_SPLIT, step + TILE_K8 * K_SPLIT < end_k8) + split * TILE_K8;
        // unroll
        for (var i = 0u; i < LOADS_A; i++) { next_a[i] = tile_vec8_a(batch, first_m, next_k8, min(split_thread + i * SPLIT_THREADS, VEC8S_A - 1u)); }
        // unroll
        for (var i = 0u; i < LOADS_B; i++) {
            b[i] = next_b[i];
            next_b[i] = load_tile_b(first_n8, next_k8, i, subgroup_n8, split_thread);
        }
        // unroll
        for (var k = 0u; k < STEPS_K32; k++) {
            var low: array<vec4<u32>, FRAGS_M>;
            var high: array<vec4<u32>, FRAGS_M>;
            // unroll
            for (var i = 0u; i < FRAGS_M; i++) {
                let at = base + own_vec8 + k * (TILE_M * 4u) + i * 64u;
                low[i] = bitcast<vec4<u32>>(shared_vec4s[at]);
                high[i] = bitcast<vec4<u32>>(shared_vec4s[at + 32u]);
            }
            // unroll
            for (var j = 0u; j < FRAGS_N; j++) {
                var column = vec4<u32>();
                if (STAGED_B == 1u) { column = bitcast<vec4<u32>>(shared_vec4s[base + own_vec8_b + k * (TILE_N * 4u) + j * 32u]); } else { column = b[min(k * FRAGS_N + j, LOADS_B - 1u)]; }
                // unroll
                for (var i = 0u; i < FRAGS_M; i++) {
                    acc[i * FRAGS_N + j] = multiply_fragments(local, vec4<u32>(low[i].xy, high[i].xy), column.xy, acc[i * FRAGS_N + j]);
                }
                // unroll
                for (var i = 0u; i < FRAGS_M; i++) {
                    acc[i * FRAGS_N + j] = multiply_fragments(local, vec4<u32>(low[i].zw, high[i].zw), column.zw, acc[i * FRAGS_N + j]);
                }
            }
        }
        let free = base;
        base = other_base;
        other_base = free;
    }
    // Each K split finishes every K_SPLIT-th fragment. The other splits leave their sums of it in workgroup memory.
    if (K_SPLIT > 1u) {
        workgroupBarrier();
        // unroll
        for (var f = 0u; f < FRAGS; f++) {
            if (f % K_SPLIT != split) { shared_vec4s[((split * SPLIT_SUBGROUPS + subgroup) * FRAGS + f) * LANES + lane] = acc[f]; }
        }
        workgroupBarrier();
    }
    // An invocation with an even t stores row g, its neighbor stores row g + 8. The epilogue stands only once in the
    // source, because it may be long and drivers compile long shaders slowly.
    let odd = t % 2u == 1u;
    for (var fragment = split; fragment < FRAGS; fragment += K_SPLIT) {
        var v = vec4<f32>();
        // unroll
        for (var f = 0u; f < FRAGS; f++) { v = select(v, acc[f], f == fragment); }
        if (K_SPLIT > 1u) {
            var total = vec4<f32>();
            // unroll
            for (var p = 0u; p < K_SPLIT; p++) {
                if (p == split) { total += v; } else { total += shared_vec4s[((p * SPLIT_SUBGROUPS + subgroup) * FRAGS + fragment) * LANES + lane]; }
            }
            v = total;
        }
        let received = subgroupShuffleXor(select(v.zw, v.xy, odd), 1u);
        let stored = select(vec4<f32>(v.xy, received), vec4<f32>(received, v.zw), odd);
        let row = first_m + subgroup_row + fragment / FRAGS_N * 16u + lane / 4u + select(0u, 8u, odd);
        let n4 = (first_n8 + subgroup_n8 + fragment % FRAGS_N) * 2u + t / 2u;
        if ((!GUARD_M || row < size_m()) && (!GUARD_N || n4 * 4u < size_n())) {
            if (GROUP_SPLIT > 1u) { store_partial(group.z, n4, row, stored); } else { store(batch, row, n4, stored); }
        }
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) { multiply(group, local); }
