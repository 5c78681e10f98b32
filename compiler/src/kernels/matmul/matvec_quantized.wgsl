// Small-M matmul with a quantized constant, bound by streaming the packed words once: `result[batch] = a[batch] *
// b[batch]`. The constant is stored in panels of 16 columns: the packed words of a panel, followed by its scales, group
// by group. A workgroup computes PANELS panels. A packed word holds adjacent K positions of a column, a vec4 of 16
// bytes holds the words of four columns, and four vec4s hold all columns of a panel at one K-word index.
//
// An element is `(value - ZERO_POINT) * scale + bias`, so the sum over a group is `scale * (sum of x * value -
// ZERO_POINT * sum of x) + bias * sum of x`. Four adjacent invocations (a quad) load the four vec4s of a K-word.
// BLOCK_QUADS quads take a block of BLOCK_WORDS adjacent K-words of one group together, and each applies the group's
// scale to its own partial sum. With a single group, quads take K-words in turn and apply the scale once at the end.
// The sums of all invocations are then added in two steps, the first within a subgroup where possible. This order does
// not depend on the number of rows.
//
// Fused RMSNorm: while the first loads are in flight, the squares of the rows are summed up. If they fit, the scaled
// elements are stored in workgroup memory for all panels. Sums are multiplied by the norm factor at the end. Rows may
// be the sum of a residual and a normalized row (RESIDUALS). A second constant of the same layout may be multiplied by
// other invocations of the workgroup; `combine` combines both sums. The result may be rotated in pairs of columns (RoPE).
//
// On devices with slow integer to float conversion (VIA_F16), a quantized value becomes the last bits of an f16 from
// 1024 on: 1024 plus the value, or 1024 plus 16 times the value for every second 4-bit value. The offset is subtracted
// together with ZERO_POINT. If rows are f16 too (F16_PAIRS), two f16 are multiplied at a time: the products of a word
// are added in f16, and words in f32. Values are then less than one, so that the sums stay in the range of f16.
//
// Replaced: the knobs, the sizes and the hooks. `load_a` is only called within K.

const THREADS = 128u;
const ROWS = 2u;
/// Bits of a quantized value.
const BITS = 4u;
/// True if K has several groups.
const GROUPED = true;
/// True if groups have biases.
const BIASED = false;
/// K-words of a block, which have the same scale and are added before it is applied, and quads that take a block
/// together.
const BLOCK_WORDS = 16u;
const BLOCK_QUADS = 4u;
/// Blocks that an invocation loads before it uses the first.
const BLOCKS_IN_FLIGHT = 2u;
/// True if quantized values are converted through f16 bit patterns.
const VIA_F16 = true;
/// Quantized value of zero.
const ZERO_POINT = 8.0;
/// True if two f16 are multiplied at a time, and the factor that restores the scale of their sums.
const F16_PAIRS = false;
const SUM_FACTOR = 1.0;
/// Vec4s of multiplicands per K-word: vec4s of floats, or one vec4 of eight f16.
const X_VEC4S = 2u;
/// Factor of elements of rows before they become f16: rows that are not normalized yet may exceed the range of f16.
const X_SCALE = 1.0;
/// Constants, and panels of each constant per workgroup.
const MATRICES = 2u;
const PANELS = 1u;
/// 1 if a residual is added to normalized rows before their norm, else 0.
const RESIDUALS = 0u;
/// True if rows are normalized, and true if they are stored in workgroup memory.
const NORMALIZED = true;
const STORED = true;
/// K-words of all rows that are stored.
const STORED_WORDS = 16u;
/// Rotation of column pairs (0: none, 1: adjacent columns, 2: columns half a head apart), and panels per half head.
const ROTATED = 0u;
const HALF_PANELS = 1u;
/// True if K may end within a step.
const GUARD_K = true;

/// Vec4s of K positions in a word.
const WORD_VEC4S = 8u / BITS;
/// K-words of a block per quad.
const WORDS_PER_QUAD = BLOCK_WORDS / BLOCK_QUADS;
/// Invocations per panel, and blocks that they take at the same time.
const PANEL_THREADS = THREADS / MATRICES / PANELS;
const PARALLEL_BLOCKS = PANEL_THREADS / 4u / BLOCK_QUADS;
/// Quads whose sums are added in the first step, and the number of such partial sums per panel.
const PARTIAL_QUADS = 16u;
const PANEL_PARTIALS = PANEL_THREADS / 4u / PARTIAL_QUADS;
/// Partial sums of all panels; also the partial sums of a row's squares.
const WORKGROUP_PARTIALS = THREADS / 4u / PARTIAL_QUADS;
/// Sums per row that the norm computes: of squares, and with a single group the offset and the sum of the elements, if
/// needed.
const ROW_SUMS = 1u;
const_assert BLOCK_WORDS % BLOCK_QUADS == 0u && PANEL_THREADS % (4u * PARTIAL_QUADS) == 0u && 4u * PANELS <= THREADS;

@group(0) @binding(0) var<storage, read> a_buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> panels: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 3u; }
fn size_n() -> u32 { return 32u; }
fn size_k() -> u32 { return 64u; }
/// Vec4s of a panel, and its K-words.
fn panel_vec4s() -> u32 { return 40u; }
const K_WORDS = 8u;
/// Blocks of a panel, and blocks of a group.
fn k_blocks() -> u32 { return 1u; }
fn blocks_per_group() -> u32 { return 1u; }
/// The first panel of a batch.
fn first_panel(batch: u32) -> u32 { return batch * 2u; }
/// The last panel of a batch.
fn last_panel() -> u32 { return 1u; }
/// Number of blocks of ROWS rows.
fn row_blocks() -> u32 { return 2u; }

/// Four elements of row `row` of a, from element `4 * k4`.
fn load_a(batch: u32, row: u32, k4: u32) -> vec4<f32> { return a_buffer[(batch * 3u + row) * 16u + k4]; }
/// Prepares rows with a residual, before the first of them is read.
fn prepare_rows(batch: u32, first: u32, local: u32) {}
/// Four elements of the norm's scale, and the norm's epsilon.
fn load_scale(k4: u32) -> vec4<f32> { return vec4<f32>(1.0); }
fn epsilon() -> f32 { return 1e-5; }
/// Vec4 `at` of constant `c`.
fn load_b(c: u32, at: u32) -> vec4<u32> { return panels[at]; }
/// Scales and biases of group `g` of columns `4 * q ..` in the panel that starts at vec4 `base`.
fn group_scale(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(1.0); }
fn group_bias(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(0.0); }
/// Combines the sums of both constants.
fn combine(first: vec4<f32>, second: vec4<f32>) -> vec4<f32> { return first * second; }
/// Rotates four columns with the columns that are paired with them.
fn rotate(row: u32, n4: u32, v: vec4<f32>, paired: vec4<f32>) -> vec4<f32> { return v; }
/// Panel `i` of a workgroup. If columns half a head apart are rotated, the two panels are half a head apart, too.
fn panel_index(group: u32, i: u32) -> u32 {
    if (ROTATED == 2u) { return group / HALF_PANELS * 2u * HALF_PANELS + group % HALF_PANELS + i * HALF_PANELS; }
    return group * PANELS + i;
}
/// Stores four elements of row `row`, from column `4 * n4`.
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) { result[(batch * 3u + row) * 8u + n4] = v; }

/// Adds four products to a sum.
fn fma_vec4(sum: f32, values: vec4<f32>, x: vec4<f32>) -> f32 {
    return fma(values.x, x.x, fma(values.y, x.y, fma(values.z, x.z, fma(values.w, x.w, sum))));
}

/// Adds the products of a word's quantized values and their multiplicands to a sum.
fn add_products(sum: f32, word: u32, xs: array<vec4<f32>, X_VEC4S>) -> f32 {
    if (BITS == 8u) {
        if (VIA_F16) {
            let even = unpack2x16float((word & 0x00ff00ffu) | 0x64006400u);
            let odd = unpack2x16float(((word >> 8u) & 0x00ff00ffu) | 0x64006400u);
            return fma_vec4(sum, vec4<f32>(even.x, odd.x, even.y, odd.y), xs[0]);
        }
        return fma_vec4(sum, vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u)), xs[0]);
    }
    if (VIA_F16) {
        let first = unpack2x16float((word & 0x000f000fu) | 0x64006400u);
        let second = unpack2x16float((word & 0x00f000f0u) | 0x64006400u);
        let third = unpack2x16float(((word >> 8u) & 0x000f000fu) | 0x64006400u);
        let fourth = unpack2x16float(((word >> 8u) & 0x00f000f0u) | 0x64006400u);
        let low_sum = fma_vec4(sum, vec4<f32>(first.x, second.x, third.x, fourth.x), xs[0]);
        return fma_vec4(low_sum, vec4<f32>(first.y, second.y, third.y, fourth.y), xs[X_VEC4S - 1u]);
    }
    let shifts = vec4<u32>(0u, 4u, 8u, 12u);
    let low_sum = fma_vec4(sum, vec4<f32>((vec4<u32>(word) >> shifts) & vec4<u32>(15u)), xs[0]);
    return fma_vec4(low_sum, vec4<f32>((vec4<u32>(word >> 16u) >> shifts) & vec4<u32>(15u)), xs[X_VEC4S - 1u]);
}

/// Elements of a row in the form in which a word's values are multiplied with them.
fn multiplicands(xs: array<vec4<f32>, WORD_VEC4S>) -> array<vec4<f32>, X_VEC4S> {
    var out = xs;
    if (VIA_F16 && BITS == 4u) {
        // unroll
        for (var d = 0u; d < WORD_VEC4S; d++) { out[d] *= vec4<f32>(1.0, 0.0625, 1.0, 0.0625); }
    }
    return out;
}

/// Amount by which products of four values with `x` exceed products of `value - ZERO_POINT`.
fn offset_sum(x: vec4<f32>) -> f32 {
    if (F16_PAIRS) { return 0.0; }
    if (!VIA_F16) { return dot(x, vec4<f32>(ZERO_POINT)); }
    if (BITS == 4u) { return dot(x, vec4<f32>(1024.0 + ZERO_POINT, 64.0 + ZERO_POINT, 1024.0 + ZERO_POINT, 64.0 + ZERO_POINT)); }
    return dot(x, vec4<f32>(1024.0 + ZERO_POINT));
}

/// Sums of four columns in one row: of products, of offsets, and of the elements of a.
struct PartialSum { products: vec4<f32>, offset: f32, x_sum: f32 }

/// Applies the scale and the bias of a group to a partial sum.
fn apply_scale(partial: PartialSum, scale: vec4<f32>, bias: vec4<f32>) -> vec4<f32> {
    let sum = scale * ((partial.products - partial.offset) * SUM_FACTOR);
    if (BIASED) { return sum + bias * partial.x_sum; }
    return sum;
}

/// Offset and sum of the elements of one K-word, and rows in workgroup memory as multiplicands.
struct WordSums { offset: f32, x_sum: f32 }
var<workgroup> stored_x: array<vec4<f32>, STORED_WORDS * X_VEC4S>;
var<workgroup> stored_sums: array<WordSums, STORED_WORDS>;
var<workgroup> invocation_sums: array<vec4<f32>, THREADS>;
var<workgroup> partial_sums: array<vec4<f32>, WORKGROUP_PARTIALS * 4u>;
var<workgroup> invocation_squares: array<f32, THREADS>;
var<workgroup> partial_squares: array<f32, WORKGROUP_PARTIALS * ROWS * ROW_SUMS>;

/// Adds the sums of the same columns of PARTIAL_QUADS adjacent quads.
fn reduce_sums(local: u32, low: vec4<f32>, high: vec4<f32>) {
    invocation_sums[local] = low;
    workgroupBarrier();
    if (local < WORKGROUP_PARTIALS * 4u) {
        let first = local / 4u * PARTIAL_QUADS * 4u + local % 4u;
        var sum = invocation_sums[first];
        // unroll
        for (var i = 1u; i < PARTIAL_QUADS; i++) { sum += invocation_sums[first + i * 4u]; }
        partial_sums[local] = sum;
    }
}

/// Adds row sum number `r` of PARTIAL_QUADS adjacent quads.
fn reduce_squares(local: u32, r: u32, square: f32) {
    invocation_squares[local] = square;
    workgroupBarrier();
    if (local < WORKGROUP_PARTIALS) {
        var sum = invocation_squares[local * PARTIAL_QUADS * 4u];
        // unroll
        for (var i = 1u; i < PARTIAL_QUADS * 4u; i++) { sum += invocation_squares[local * PARTIAL_QUADS * 4u + i]; }
        partial_squares[r * WORKGROUP_PARTIALS + local] = sum;
    }
}

/// Row sum number `r`.
fn row_sum(r: u32) -> f32 {
    var sum = partial_squares[r * WORKGROUP_PARTIALS];
    // unroll
    for (var i = 1u; i < WORKGROUP_PARTIALS; i++) { sum += partial_squares[r * WORKGROUP_PARTIALS + i]; }
    return sum;
}

/// Four elements of a row; zeros past its end.
fn load_x(batch: u32, row: u32, k4: u32) -> vec4<f32> {
    let x = load_a(batch, row, select(k4, min(k4, (size_k() - 1u) / 4u), GUARD_K));
    if (!GUARD_K) { return x; }
    return select(vec4<f32>(0.0), x, vec4<u32>(k4 * 4u) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(size_k()));
}

fn load_norm_scale(k4: u32) -> vec4<f32> { return load_scale(select(k4, min(k4, (size_k() - 1u) / 4u), GUARD_K)); }

/// The result of a row in four columns: vec4 `at` of the columns of the workgroup's panels.
fn final_sum(r: u32, at: u32) -> vec4<f32> {
    var sums: array<vec4<f32>, MATRICES>;
    // unroll
    for (var m = 0u; m < MATRICES; m++) {
        let first_partial = (at / 4u * MATRICES + m) * PANEL_PARTIALS * 4u + at % 4u;
        sums[m] = partial_sums[first_partial];
        // unroll
        for (var i = 1u; i < PANEL_PARTIALS; i++) { sums[m] += partial_sums[first_partial + i * 4u]; }
    }
    if (NORMALIZED) {
        let factor = inverseSqrt(row_sum(r * ROW_SUMS) / f32(size_k()) + epsilon()) / X_SCALE;
        // unroll
        for (var m = 0u; m < MATRICES; m++) { sums[m] *= factor; }
    }
    return combine(sums[0], sums[MATRICES - 1u]);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) { multiply(group, local); }

fn multiply(group: vec3<u32>, local: u32) {
    let batch = group.z;
    let panel_group = group.x / row_blocks();
    let first = group.x % row_blocks() * ROWS;
    let last_row = size_m() - 1u;
    let team = local / PANEL_THREADS;
    let c = team % MATRICES;
    let panel = panel_index(panel_group, team / MATRICES);
    let base = (first_panel(batch) + select(panel, min(panel, last_panel()), PANELS > 1u)) * panel_vec4s();
    let q = local % 4u;
    let quad = local % PANEL_THREADS / 4u % BLOCK_QUADS;
    let assigned_block = local % PANEL_THREADS / 4u / BLOCK_QUADS;
    // Invocations beyond the last whole group of BLOCK_QUADS quads take a block past the end.
    let block = select(assigned_block, k_blocks(), assigned_block >= PARALLEL_BLOCKS);
    var partials: array<PartialSum, ROWS>;
    var acc: array<vec4<f32>, ROWS>;
    // unroll
    for (var r = 0u; r < ROWS; r++) { partials[r] = PartialSum(); acc[r] = vec4<f32>(0.0); }
    var loads: array<vec4<u32>, BLOCKS_IN_FLIGHT * WORDS_PER_QUAD>;
    var scales: array<vec4<f32>, BLOCKS_IN_FLIGHT>;
    var single_scale = vec4<f32>(0.0);
    var single_bias = vec4<f32>(0.0);
    if (!GROUPED) {
        single_scale = group_scale(c, base, 0u, q);
        single_bias = group_bias(c, base, 0u, q);
    }
    for (var step = 0u; step < (k_blocks() + PARALLEL_BLOCKS * BLOCKS_IN_FLIGHT - 1u) / (PARALLEL_BLOCKS * BLOCKS_IN_FLIGHT); step++) {
        let first_block = block + step * (PARALLEL_BLOCKS * BLOCKS_IN_FLIGHT);
        // unroll
        for (var s = 0u; s < BLOCKS_IN_FLIGHT; s++) {
            let k_block = first_block + s * PARALLEL_BLOCKS;
            // unroll
            for (var j = 0u; j < WORDS_PER_QUAD; j++) {
                let k_word = k_block * BLOCK_WORDS + j * BLOCK_QUADS + quad;
                loads[s * WORDS_PER_QUAD + j] = load_b(c, base + select(k_word, min(k_word, K_WORDS - 1u), GUARD_K) * 4u + q);
            }
            if (GROUPED) { scales[s] = group_scale(c, base, select(k_block, min(k_block, k_blocks() - 1u), GUARD_K) / blocks_per_group(), q); }
        }
        if (NORMALIZED && step == 0u) {
            // unroll
            for (var i = 0u; i < RESIDUALS; i++) { prepare_rows(batch, first, local); }
            // unroll
            for (var r = 0u; r < ROWS; r++) {
                if (r > 0u) { workgroupBarrier(); }
                let row = min(first + r, last_row);
                var square = 0.0;
                var row_sums = WordSums();
                for (var k_word = local; k_word < K_WORDS; k_word += THREADS) {
                    var word_sums = WordSums();
                    var word_x: array<vec4<f32>, WORD_VEC4S>;
                    // unroll
                    for (var d = 0u; d < WORD_VEC4S; d++) {
                        let k4 = k_word * WORD_VEC4S + d;
                        let x = load_x(batch, row, k4);
                        square += dot(x, x);
                        if (STORED || !GROUPED) {
                            word_x[d] = x * load_norm_scale(k4) * X_SCALE;
                            word_sums.offset += offset_sum(word_x[d]);
                            if (BIASED) { word_sums.x_sum += dot(word_x[d], vec4<f32>(1.0)); }
                        }
                    }
                    if (STORED) {
                        let prepared = multiplicands(word_x);
                        // unroll
                        for (var d = 0u; d < X_VEC4S; d++) { stored_x[(r * K_WORDS + k_word) * X_VEC4S + d] = prepared[d]; }
                        if (GROUPED && (!F16_PAIRS || BIASED)) { stored_sums[r * K_WORDS + k_word] = word_sums; }
                    }
                    row_sums.offset += word_sums.offset;
                    row_sums.x_sum += word_sums.x_sum;
                }
                reduce_squares(local, r * ROW_SUMS, square);
                if (!GROUPED) {
                    if (!F16_PAIRS) {
                        workgroupBarrier();
                        reduce_squares(local, r * ROW_SUMS + min(1u, ROW_SUMS - 1u), row_sums.offset);
                    }
                    if (BIASED) {
                        workgroupBarrier();
                        reduce_squares(local, r * ROW_SUMS + ROW_SUMS - 1u, row_sums.x_sum);
                    }
                }
            }
            workgroupBarrier();
        }
        // unroll
        for (var s = 0u; s < BLOCKS_IN_FLIGHT; s++) {
            let k_block = first_block + s * PARALLEL_BLOCKS;
            // unroll
            for (var j = 0u; j < WORDS_PER_QUAD; j++) {
                let k_word = k_block * BLOCK_WORDS + j * BLOCK_QUADS + quad;
                let words = loads[s * WORDS_PER_QUAD + j];
                var norm_scales: array<vec4<f32>, WORD_VEC4S>;
                if (NORMALIZED && !STORED) {
                    // unroll
                    for (var d = 0u; d < WORD_VEC4S; d++) { norm_scales[d] = load_norm_scale(k_word * WORD_VEC4S + d); }
                }
                // unroll
                for (var r = 0u; r < ROWS; r++) {
                    let row = min(first + r, last_row);
                    var xs: array<vec4<f32>, X_VEC4S>;
                    var word_sums = WordSums();
                    if (STORED) {
                        let inside = !GUARD_K || k_word < K_WORDS;
                        let at = r * K_WORDS + select(k_word, min(k_word, K_WORDS - 1u), GUARD_K);
                        if (GROUPED && (!F16_PAIRS || BIASED)) { word_sums = stored_sums[at]; }
                        if (!inside) { word_sums = WordSums(); }
                        // unroll
                        for (var d = 0u; d < X_VEC4S; d++) { xs[d] = select(vec4<f32>(0.0), stored_x[at * X_VEC4S + d], inside); }
                    } else {
                        var word_x: array<vec4<f32>, WORD_VEC4S>;
                        // unroll
                        for (var d = 0u; d < WORD_VEC4S; d++) {
                            word_x[d] = load_x(batch, row, k_word * WORD_VEC4S + d);
                            if (NORMALIZED) { word_x[d] *= norm_scales[d] * X_SCALE; }
                            if (GROUPED || !NORMALIZED) {
                                word_sums.offset += offset_sum(word_x[d]);
                                if (BIASED) { word_sums.x_sum += dot(word_x[d], vec4<f32>(1.0)); }
                            }
                        }
                        xs = multiplicands(word_x);
                    }
                    partials[r].offset += word_sums.offset;
                    if (BIASED) { partials[r].x_sum += word_sums.x_sum; }
                    let sum = partials[r].products;
                    partials[r].products = vec4<f32>(add_products(sum.x, words.x, xs), add_products(sum.y, words.y, xs), add_products(sum.z, words.z, xs), add_products(sum.w, words.w, xs));
                }
            }
            if (GROUPED) {
                var bias = vec4<f32>(0.0);
                if (BIASED) { bias = group_bias(c, base, select(k_block, min(k_block, k_blocks() - 1u), GUARD_K) / blocks_per_group(), q); }
                // unroll
                for (var r = 0u; r < ROWS; r++) {
                    acc[r] += apply_scale(partials[r], scales[s], bias);
                    partials[r] = PartialSum();
                }
            }
        }
    }
    if (!GROUPED) {
        // unroll
        for (var r = 0u; r < ROWS; r++) {
            // Only one quad per panel adds the sums of whole rows.
            if (NORMALIZED && local % PANEL_THREADS < 4u) {
                if (!F16_PAIRS) { partials[r].offset = row_sum(r * ROW_SUMS + min(1u, ROW_SUMS - 1u)); }
                if (BIASED) { partials[r].x_sum = row_sum(r * ROW_SUMS + ROW_SUMS - 1u); }
            }
            acc[r] = apply_scale(partials[r], single_scale, single_bias);
        }
    }
    // unroll
    for (var r = 0u; r < ROWS; r++) {
        if (r > 0u) { workgroupBarrier(); }
        reduce_sums(local, acc[r], acc[r]);
        workgroupBarrier();
        let n4 = panel_index(panel_group, local / 4u) * 4u + local % 4u;
        if (local < 4u * PANELS && n4 * 4u < size_n() && first + r <= last_row) {
            var v = final_sum(r, local);
            if (ROTATED == 1u) { v = rotate(first + r, n4, v, v.yxwz); }
            if (ROTATED == 2u) { v = rotate(first + r, n4, v, final_sum(r, (local + 4u) % (2u * 4u))); }
            store(batch, first + r, n4, v);
        }
    }
}
