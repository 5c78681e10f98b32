// Small-M matmul with a quantized or f16 constant, on matrix units with a known fragment layout. Weights become matrix
// fragments in the registers that the matrix units read, without passing through memory. Quantized weights are packed
// as in `matvec_quantized.wgsl`, f16 weights as in `matvec_panels.wgsl`, both in panels of 16 columns. A workgroup
// computes all rows of PANEL_PAIRS pairs of panels of each weight matrix. Its SUBGROUPS subgroups multiply blocks of
// BLOCK_STEPS steps of 32 K positions in turn, and their sums are added in order.
//
// Fragments have the layout of `mma.m16n8k16`: 16 columns of the constant by 16 K positions, 16 K positions by eight
// rows, and 16 columns by eight rows of sums. Invocation 4 * g + t of a subgroup holds columns g and g + 8 of the first
// fragment and row g of the second. It holds the sums of columns g and g + 8 of rows 2 * t and 2 * t + 1. In a step it
// loads eight K positions (group t) of four columns: vec4 g % 4 of panel g / 4 of a pair. These 32 weights are the
// invocation's parts of four fragments. Each part is two of the columns (columns g and g + 8 of the fragment) at four of
// the K positions. K positions are summed in the order of the values in a packed word, or for f16 in their own order. So
// an invocation needs only the rows, scales and sums that belong to its own weights. The rows of a fragment are
// independent, so a row has equal sums for every M.
//
// Fused RMSNorm: the sums of the squares are the diagonal of a fragment of rows times itself. A second weight matrix
// and RoPE may be fused as in `matvec_quantized.wgsl`.
//
// The compiler replaces the knobs, the sizes and the hooks. `load_a` is only called for positions within K. Eight f16
// are stored as the bits of a vec4<f32>.

enable wgpu_cooperative_matrix;

const LANES = 32u;
const SUBGROUPS = 4u;
const THREADS = SUBGROUPS * LANES;
/// Number of matrix fragments, of eight rows each, that hold the rows of the matmul.
const ROW_FRAGMENTS = 2u;
const BITS = 4u;
/// True if each column has several groups with a scale each, false if it has a single group.
const GROUPED = true;
/// True if the groups of quantized values have biases, false if they have only scales.
const BIASED = false;
/// Number of weight matrices.
const MATRICES = 2u;
/// Number of pairs of panels (blocks of 16 columns) of each weight matrix that a workgroup computes.
const PANEL_PAIRS = 1u;
/// Number of panels (blocks of 16 columns) of each weight matrix that a workgroup computes.
const PANELS = PANEL_PAIRS * 2u;
/// Number of pairs of panels (blocks of 16 columns) that a workgroup computes, over all weight matrices.
const ALL_PAIRS = MATRICES * PANEL_PAIRS;
/// True if rows are normalized before the matmul (fused RMSNorm).
const NORMALIZED = true;
/// Fused RoPE, which rotates pairs of columns. 0: none, 1: adjacent columns, 2: columns half a head apart.
const ROTATED = 0u;
/// Number of panels (blocks of 16 columns) that half of an attention head spans.
const HALF_PANELS = 1u;
/// Number of steps in a block of K. A step is 32 K positions; the steps of a block share a scale.
const BLOCK_STEPS = 2u;
/// True if K may end within a round (one block of K per subgroup), so that reads along K need a bounds check.
const GUARD_K = true;
/// Factor that restores the scale of the sums of quantized values, because values are dequantized to smaller f16 numbers.
const SUM_FACTOR = 16.0;
/// Factor by which the fused norm's scale is multiplied. The norm is applied to the sums, so without the factor
/// elements of a row could exceed the range of f16. The sums are divided by the factor.
const X_SCALE = 0.015625;

/// Number of loads (of the type PanelLoad) that read eight K positions of four columns.
const LOADS_PER_K8 = 1u;
const FRAG_ROWS = ROW_FRAGMENTS * 8u;
/// Number of vec4s that hold a subgroup's sums of one panel (block of 16 columns).
const SIZE_C = FRAG_ROWS * 4u;
/// Number of vec4s that hold a subgroup's sums of all panels of the workgroup.
const SUBGROUP_VECTORS = MATRICES * PANELS * SIZE_C;
const_assert LANES == 32u;

/// Type of one load of weights: 16 bytes of packed words, or one K position of four columns in f16.
alias PanelLoad = vec4<u32>;

@group(0) @binding(0) var<storage, read> a_buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> panels: array<PanelLoad>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 3u; }
fn size_n() -> u32 { return 32u; }
fn size_k8() -> u32 { return 8u; }
/// Returns the number of rounds in which each subgroup multiplies one block of K.
fn rounds() -> u32 { return 1u; }
/// Returns the number of blocks along K. A block is BLOCK_STEPS steps of 32 K positions.
fn k_blocks() -> u32 { return 1u; }
/// Returns the number of blocks of K (BLOCK_STEPS steps each) in a quantization group.
fn blocks_per_group() -> u32 { return 1u; }
/// Returns the number of loads that read a whole panel (block of 16 columns).
fn panel_loads() -> u32 { return 40u; }
/// Returns the index of the last panel (block of 16 columns) of a weight matrix.
fn last_panel() -> u32 { return 1u; }

/// Loads eight elements of row `row` of the first operand, from K position `8 * k8`, as f16 pairs.
fn load_a(row: u32, k8: u32) -> vec4<f32> { return a_buffer[row * 8u + k8]; }
/// Returns eight elements of the fused norm's scale, from K position `8 * k8`, as f16 pairs.
fn load_scale(k8: u32) -> vec4<f32> { return vec4<f32>(); }
/// Returns the epsilon of the fused norm.
fn epsilon() -> f32 { return 1e-5; }
/// Loads the element (of the type PanelLoad) with index `at` of the packed weight matrix `c` (0 or 1).
fn load_b(c: u32, at: u32) -> PanelLoad { return panels[at]; }
/// Returns the scales of quantization group `g` for four columns of a panel, from column `4 * q` of the panel. The
/// panel belongs to weight matrix `c` and starts at load `base`.
fn group_scale(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(1.0); }
/// Returns the biases of quantization group `g` for four columns of a panel, from column `4 * q` of the panel. The
/// panel belongs to weight matrix `c` and starts at load `base`.
fn group_bias(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(0.0); }
/// Returns the weights at eight K positions of columns `2 * i` and `2 * i + 1` of a group of four columns, as f16 pairs.
fn fragment_columns(loads: array<PanelLoad, LOADS_PER_K8>, i: u32) -> array<vec4<u32>, 2> {
    return array<vec4<u32>, 2>(loads[0].xxyy, loads[LOADS_PER_K8 - 1u].zzww);
}
/// Multiplies two vectors of f16 pairs element by element.
fn scale_pairs(pairs: vec4<u32>, factor: vec4<u32>) -> vec4<u32> { return pairs; }
/// Combines the results of the two weight matrices, such as in a SwiGLU gate. Without a second matrix, returns the first result.
fn combine(first: vec4<f32>, second: vec4<f32>) -> vec4<f32> { return first * second; }
/// Rotates four elements of a result row by RoPE. `paired` holds the elements with which RoPE pairs them, one for each.
fn rotate(row: u32, n4: u32, v: vec4<f32>, paired: vec4<f32>) -> vec4<f32> { return v; }
/// Returns the index in the weight matrix of the workgroup's panel `i`; a panel holds 16 columns. If RoPE rotates
/// columns that are half a head apart, the workgroup's two panels are half a head apart as well.
fn panel_index(group: u32, i: u32) -> u32 {
    if (ROTATED == 2u) { return group / HALF_PANELS * 2u * HALF_PANELS + group % HALF_PANELS + i * HALF_PANELS; }
    return group * PANELS + i;
}
/// Applies the epilogue to four elements of row `row` of the result, from column `4 * n4`, and stores them.
fn store(row: u32, n4: u32, v: vec4<f32>) { result[row * 8u + n4] = v; }

/// Computes `a * b + c` for matrix fragments. Each invocation holds a part of each fragment. The emitter replaces the matrices
/// in the body by the arguments.
fn multiply_fragments(local: u32, a: vec4<u32>, b: vec2<u32>, c: vec4<f32>) -> vec4<f32> {
    let d = coopMultiplyAdd(coop_mat16x16<f32, A>(), coop_mat16x16<f32, B>(), coop_mat16x16<f32, C>());
    return c;
}

var<workgroup> sums: array<vec4<f32>, SUBGROUPS * SUBGROUP_VECTORS>;
var<workgroup> squares: array<f32, SUBGROUPS * FRAG_ROWS>;

/// True if the row fragment `f` (eight rows) contains rows of the matmul, not only padding.
fn has_rows(f: u32) -> bool { return f == 0u || size_m() > f * 8u; }

/// Returns where panel `i` of the workgroup (16 columns) starts in the weights, as an index of 16-byte loads.
fn panel_base(group: u32, i: u32) -> u32 { return min(panel_index(group, i), last_panel()) * panel_loads(); }

/// Reorders eight elements of a row into the order in which packed words are dequantized: pairs of values that are 16
/// bits apart in a word. The order for f16 weights is unchanged.
fn reorder_pairs(v: vec4<u32>) -> vec4<u32> {
    if (BITS == 16u) { return v; }
    let low = select(v.xz, v.xy, BITS == 8u);
    let high = select(v.yw, v.zw, BITS == 8u);
    return vec4<u32>(
        (low.x & 0xffffu) | (low.y << 16u),
        (low.x >> 16u) | (low.y & 0xffff0000u),
        (high.x & 0xffffu) | (high.y << 16u),
        (high.x >> 16u) | (high.y & 0xffff0000u),
    );
}

/// Values that an invocation loads for one block of K: packed weights and scales for each pair of weight panels, and
/// the first operand's rows for each step along K.
struct BlockLoads {
    loads: array<PanelLoad, ALL_PAIRS * BLOCK_STEPS * LOADS_PER_K8>,
    scales: array<vec4<f32>, ALL_PAIRS>,
    rows: array<vec4<u32>, BLOCK_STEPS * ROW_FRAGMENTS>,
}

fn load_block(bases: array<u32, PANEL_PAIRS>, k_block: u32, local: u32) -> BlockLoads {
    let t = local % 4u;
    let g = local % LANES / 4u;
    let q = g % 4u;
    var loaded: BlockLoads;
    // unroll
    for (var i = 0u; i < ALL_PAIRS * BLOCK_STEPS; i++) {
        let p = i / BLOCK_STEPS;
        let assigned_k8 = (k_block * BLOCK_STEPS + i % BLOCK_STEPS) * 4u + t;
        let k8 = select(assigned_k8, min(assigned_k8, size_k8() - 1u), GUARD_K);
        // unroll
        for (var u = 0u; u < LOADS_PER_K8; u++) { loaded.loads[i * LOADS_PER_K8 + u] = load_b(p / PANEL_PAIRS, bases[p % PANEL_PAIRS] + (k8 * LOADS_PER_K8 + u) * 4u + q); }
    }
    // unroll
    for (var p = 0u; p < ALL_PAIRS; p++) {
        let clamped_block = select(k_block, min(k_block, k_blocks() - 1u), GUARD_K);
        if (GROUPED) { loaded.scales[p] = group_scale(p / PANEL_PAIRS, bases[p % PANEL_PAIRS], clamped_block / blocks_per_group(), q); }
    }
    // unroll
    for (var i = 0u; i < BLOCK_STEPS * ROW_FRAGMENTS; i++) {
        let assigned_k8 = (k_block * BLOCK_STEPS + i / ROW_FRAGMENTS) * 4u + t;
        let k8 = select(assigned_k8, min(assigned_k8, size_k8() - 1u), GUARD_K);
        loaded.rows[i] = vec4<u32>();
        if (has_rows(i % ROW_FRAGMENTS)) { loaded.rows[i] = bitcast<vec4<u32>>(load_a(min(i % ROW_FRAGMENTS * 8u + g, size_m() - 1u), k8)); }
        if (GUARD_K) { loaded.rows[i] = select(vec4<u32>(), loaded.rows[i], assigned_k8 < size_k8()); }
    }
    return loaded;
}

/// Returns the matmul's result of row `r` in four adjacent columns. `at` counts the vec4s of columns of the workgroup's panels.
fn final_sum(r: u32, at: u32) -> vec4<f32> {
    var totals: array<vec4<f32>, MATRICES>;
    // unroll
    for (var m = 0u; m < MATRICES; m++) {
        let sum_index = (m * PANELS + at / 4u) * SIZE_C + r * 4u + at % 4u;
        totals[m] = sums[sum_index];
        // unroll
        for (var i = 1u; i < SUBGROUPS; i++) { totals[m] += sums[i * SUBGROUP_VECTORS + sum_index]; }
    }
    if (NORMALIZED) {
        var square = squares[r];
        // unroll
        for (var i = 1u; i < SUBGROUPS; i++) { square += squares[i * FRAG_ROWS + r]; }
        let factor = inverseSqrt(square / f32(size_k8() * 8u) + epsilon()) / X_SCALE;
        // unroll
        for (var m = 0u; m < MATRICES; m++) { totals[m] *= factor; }
    }
    return combine(totals[0], totals[MATRICES - 1u]);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) { multiply(group.x, local); }

fn multiply(group: u32, local: u32) {
    let subgroup = local / LANES;
    let t = local % 4u;
    let g = local % LANES / 4u;
    let q = g % 4u;
    let pair_panel = g / 4u;
    var bases: array<u32, PANEL_PAIRS>;
    // unroll
    for (var p = 0u; p < PANEL_PAIRS; p++) { bases[p] = panel_base(group, p * 2u + pair_panel); }
    var acc: array<vec4<f32>, ALL_PAIRS * ROW_FRAGMENTS * 2u>;
    var group_sums: array<vec4<f32>, ALL_PAIRS * ROW_FRAGMENTS * 2u>;
    // unroll
    for (var i = 0u; i < ALL_PAIRS * ROW_FRAGMENTS * 2u; i++) { acc[i] = vec4<f32>(); group_sums[i] = vec4<f32>(); }
    var square: array<vec4<f32>, ROW_FRAGMENTS>;
    var x_sums: array<vec4<f32>, ROW_FRAGMENTS>;
    // unroll
    for (var f = 0u; f < ROW_FRAGMENTS; f++) { square[f] = vec4<f32>(); x_sums[f] = vec4<f32>(); }
    var loaded: BlockLoads;
    for (var round = 0u; round < rounds(); round++) {
        let k_block = round * SUBGROUPS + subgroup;
        loaded = load_block(bases, k_block, local);
        // The condition of this branch is always true. Without the branch, drivers would move each load right before
        // its use, and fewer loads would be in flight.
        if (round < rounds()) {
            let clamped_block = select(k_block, min(k_block, k_blocks() - 1u), GUARD_K);
            // unroll
            for (var e = 0u; e < BLOCK_STEPS; e++) {
                var factor = vec4<u32>();
                if (NORMALIZED) {
                    let assigned_k8 = (k_block * BLOCK_STEPS + e) * 4u + t;
                    let scale = bitcast<vec4<u32>>(load_scale(select(assigned_k8, min(assigned_k8, size_k8() - 1u), GUARD_K)));
                    factor = scale_pairs(reorder_pairs(scale), vec4<u32>(pack2x16float(vec2<f32>(X_SCALE))));
                }
                var b: array<vec2<u32>, ROW_FRAGMENTS * 2u>;
                // unroll
                for (var f = 0u; f < ROW_FRAGMENTS; f++) {
                    if (has_rows(f)) {
                        var x = reorder_pairs(loaded.rows[e * ROW_FRAGMENTS + f]);
                        if (NORMALIZED) {
                            square[f] = multiply_fragments(local, vec4<u32>(x.xy, 0u, 0u), x.xy, square[f]);
                            square[f] = multiply_fragments(local, vec4<u32>(x.zw, 0u, 0u), x.zw, square[f]);
                            x = scale_pairs(x, factor);
                        }
                        b[f * 2u] = x.xy;
                        b[f * 2u + 1u] = x.zw;
                        if (BIASED) {
                            x_sums[f] = multiply_fragments(local, vec4<u32>(0x3c003c00u), x.xy, x_sums[f]);
                            x_sums[f] = multiply_fragments(local, vec4<u32>(0x3c003c00u), x.zw, x_sums[f]);
                        }
                    }
                }
                // unroll
                for (var i = 0u; i < ALL_PAIRS * 2u; i++) {
                    var loads: array<PanelLoad, LOADS_PER_K8>;
                    // unroll
                    for (var u = 0u; u < LOADS_PER_K8; u++) { loads[u] = loaded.loads[(i / 2u * BLOCK_STEPS + e) * LOADS_PER_K8 + u]; }
                    let pairs = fragment_columns(loads, i % 2u);
                    // unroll
                    for (var f = 0u; f < ROW_FRAGMENTS; f++) {
                        if (has_rows(f)) {
                            let acc_index = i * ROW_FRAGMENTS + f;
                            group_sums[acc_index] = multiply_fragments(local, vec4<u32>(pairs[0].xy, pairs[1].xy), b[f * 2u], group_sums[acc_index]);
                            group_sums[acc_index] = multiply_fragments(local, vec4<u32>(pairs[0].zw, pairs[1].zw), b[f * 2u + 1u], group_sums[acc_index]);
                        }
                    }
                }
            }
            if (GROUPED || round + 1u == rounds()) {
                // unroll
                for (var p = 0u; p < ALL_PAIRS; p++) {
                    var factor = loaded.scales[p];
                    if (!GROUPED) { factor = group_scale(p / PANEL_PAIRS, bases[p % PANEL_PAIRS], 0u, q); }
                    factor *= SUM_FACTOR;
                    var bias = vec4<f32>();
                    if (BIASED) { bias = group_bias(p / PANEL_PAIRS, bases[p % PANEL_PAIRS], select(0u, clamped_block / blocks_per_group(), GROUPED), q); }
                    // unroll
                    for (var f = 0u; f < ROW_FRAGMENTS; f++) {
                        let low = p * 2u * ROW_FRAGMENTS + f;
                        let high = low + ROW_FRAGMENTS;
                        acc[low] += group_sums[low] * factor.xxyy;
                        acc[high] += group_sums[high] * factor.zzww;
                        if (BIASED) {
                            acc[low] += x_sums[f] * bias.xxyy;
                            acc[high] += x_sums[f] * bias.zzww;
                        }
                        group_sums[low] = vec4<f32>();
                        group_sums[high] = vec4<f32>();
                    }
                }
                // unroll
                for (var f = 0u; f < ROW_FRAGMENTS; f++) { x_sums[f] = vec4<f32>(); }
            }
        }
    }
    // unroll
    for (var i = 0u; i < ALL_PAIRS * ROW_FRAGMENTS; i++) {
        let p = i / ROW_FRAGMENTS;
        let f = i % ROW_FRAGMENTS;
        let low = acc[p * 2u * ROW_FRAGMENTS + f];
        let high = acc[(p * 2u + 1u) * ROW_FRAGMENTS + f];
        let panel = p / PANEL_PAIRS * PANELS + p % PANEL_PAIRS * 2u + pair_panel;
        let to = subgroup * SUBGROUP_VECTORS + panel * SIZE_C + (f * 8u + t * 2u) * 4u + q;
        sums[to] = vec4<f32>(low.x, low.z, high.x, high.z);
        sums[to + 4u] = vec4<f32>(low.y, low.w, high.y, high.w);
    }
    if (NORMALIZED && t == g / 2u) {
        // unroll
        for (var f = 0u; f < ROW_FRAGMENTS; f++) { squares[subgroup * FRAG_ROWS + f * 8u + g] = select(square[f].x, square[f].y, g % 2u == 1u); }
    }
    workgroupBarrier();
    for (var i = local; i < FRAG_ROWS * PANELS * 4u; i += THREADS) {
        let r = i / (PANELS * 4u);
        let at = i % (PANELS * 4u);
        let n4 = panel_index(group, at / 4u) * 4u + at % 4u;
        if (r < size_m() && n4 * 4u < size_n()) {
            var v = final_sum(r, at);
            if (ROTATED == 1u) { v = rotate(r, n4, v, v.yxwz); }
            if (ROTATED == 2u) { v = rotate(r, n4, v, final_sum(r, (at + 4u) % (2u * 4u))); }
            store(r, n4, v);
        }
    }
}
