// Small-M matmul with a quantized constant, whose time is bound by reading the packed words once: `result[batch] =
// a[batch] * b[batch]`. The constant is packed into panels of 16 columns: the packed words of a panel, followed by its
// scales, group by group. A workgroup computes PANELS panels. A packed word holds adjacent K positions of a column, and
// a vec4 of 16 bytes holds the words of four columns. Four vec4s hold the words of all columns of a panel at one
// position along K; together they are called a K-word.
//
// An element is `(value - ZERO_POINT) * scale + bias`, so the sum over a group is `scale * (sum of x * value -
// ZERO_POINT * sum of x) + bias * sum of x`. Four adjacent invocations (a quad) load the four vec4s of a K-word.
// BLOCK_QUADS quads multiply a block of BLOCK_WORDS adjacent K-words of one group together, and each quad applies the
// group's scale to its own partial sum. If a column has a single group, quads multiply K-words in turn and apply the
// scale once at the end. The sums of all invocations are then added in two steps, the first within a subgroup where
// possible. This order does not depend on the number of rows.
//
// Fused RMSNorm: while the first loads are in flight, the squares of each row are summed. The row's elements,
// multiplied by the norm's scale, are stored in workgroup memory for all panels if they fit. Sums are multiplied by the
// norm factor at the end. Rows may be the sum of a residual and a normalized row (RESIDUALS). Other invocations of the
// workgroup may multiply a second weight matrix of equal layout; `combine` combines both results. The result may be
// rotated in pairs of columns (RoPE).
//
// On devices with slow integer to float conversion (VIA_F16), the bits of a quantized value become the last bits of an
// f16 number: 1024 plus the value, or 1024 plus 16 times the value for every second 4-bit value. The offset 1024 is
// subtracted together with ZERO_POINT. If rows are f16 too (F16_PAIRS), two f16 are multiplied at a time: the products
// of a packed word are added in f16, the sums of words in f32. Dequantized values are then less than one, so that the
// sums stay in the range of f16.
//
// The compiler replaces the knobs, the sizes and the hooks. `load_a` is only called for positions within K.

const THREADS = 128u;
const ROWS = 2u;
/// Number of bits of a quantized value.
const BITS = 4u;
/// True if each column has several groups with a scale each, false if it has a single group.
const GROUPED = true;
/// True if the groups of quantized values have biases, false if they have only scales.
const BIASED = false;
/// Number of K-words (positions of packed words along K) in a block of K. The K-words of a block share a scale.
const BLOCK_WORDS = 16u;
/// Number of quads (four invocations) that multiply a block of K together.
const BLOCK_QUADS = 4u;
/// Number of blocks of K that an invocation loads before it uses the first.
const BLOCKS_IN_FLIGHT = 2u;
/// True if quantized values are converted through f16 bit patterns.
const VIA_F16 = true;
/// Quantized value that stands for zero.
const ZERO_POINT = 8.0;
/// True if two f16 are multiplied at a time.
const F16_PAIRS = false;
/// Factor that restores the scale of the sums of f16 pairs, because values are dequantized to smaller f16 numbers.
const SUM_FACTOR = 1.0;
/// Number of vec4s that hold the row elements of one K-word (the K positions of one packed word): vec4s of floats, or
/// one vec4 of eight f16.
const X_VEC4S = 2u;
/// Factor by which row elements are multiplied before they become f16. A fused norm is applied to the sums, so without
/// the factor elements could exceed the range of f16.
const X_SCALE = 1.0;
/// Number of weight matrices.
const MATRICES = 2u;
/// Number of panels (blocks of 16 columns) of each weight matrix that a workgroup computes.
const PANELS = 1u;
/// 1 if the rows are normalized, a residual is added to them, and the sum is normalized again before the matmul; else 0.
const RESIDUALS = 0u;
/// True if rows are normalized before the matmul (fused RMSNorm).
const NORMALIZED = true;
/// True if rows, multiplied by the fused norm's scale, are stored in workgroup memory.
const STORED = true;
/// Number of K-words (K positions of one packed word) whose row elements are stored in workgroup memory, over all rows.
const STORED_WORDS = 16u;
/// Fused RoPE, which rotates pairs of columns. 0: none, 1: adjacent columns, 2: columns half a head apart.
const ROTATED = 0u;
/// Number of panels (blocks of 16 columns) that half of an attention head spans.
const HALF_PANELS = 1u;
/// True if K may end within a step, so that reads along K need a bounds check.
const GUARD_K = true;

/// Number of values in a packed word, in vec4s.
const WORD_VEC4S = 8u / BITS;
/// Number of K-words (positions of packed words along K) of a block that one quad loads.
const WORDS_PER_QUAD = BLOCK_WORDS / BLOCK_QUADS;
/// Number of invocations that compute one panel (a block of 16 columns).
const PANEL_THREADS = THREADS / MATRICES / PANELS;
/// Number of groups into which the invocations of a panel (a block of 16 columns) are divided. A group is BLOCK_QUADS
/// quads (of four invocations each) and multiplies a different block of K than the other groups.
const PARALLEL_BLOCKS = PANEL_THREADS / 4u / BLOCK_QUADS;
/// Number of quads (four invocations) whose sums are added in the first step of the reduction.
const PARTIAL_QUADS = 16u;
/// Number of partial sums per panel (a block of 16 columns) after the first step of the reduction.
const PANEL_PARTIALS = PANEL_THREADS / 4u / PARTIAL_QUADS;
/// Number of partial sums, over all panels, after the first step of the reduction. A row's squares have the same number
/// of partial sums.
const WORKGROUP_PARTIALS = THREADS / 4u / PARTIAL_QUADS;
/// Number of sums that are computed per row with a fused norm. The sum of squares is always computed. If each
/// column has a single group, the sum of offsets (see `offset_sum`) is computed unless F16_PAIRS is true, and the sum of
/// elements is computed if BIASED is true.
const ROW_SUMS = 1u;
const_assert BLOCK_WORDS % BLOCK_QUADS == 0u && PANEL_THREADS % (4u * PARTIAL_QUADS) == 0u && 4u * PANELS <= THREADS;

@group(0) @binding(0) var<storage, read> a_buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> panels: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 3u; }
fn size_n() -> u32 { return 32u; }
fn size_k() -> u32 { return 64u; }
/// Returns the size of a packed panel (block of 16 columns), in vec4s.
fn panel_vec4s() -> u32 { return 40u; }
/// Number of K-words (positions of packed words along K) of a panel (block of 16 columns).
const K_WORDS = 8u;
/// Returns the number of blocks along K. A block is BLOCK_WORDS K-words (positions of packed words).
fn k_blocks() -> u32 { return 1u; }
/// Returns the number of blocks of K (BLOCK_WORDS K-words each) in a quantization group.
fn blocks_per_group() -> u32 { return 1u; }
/// Returns the index of the first panel (block of 16 columns) of the matrix of batch `batch`.
fn first_panel(batch: u32) -> u32 { return batch * 2u; }
/// Returns the index of the last panel (block of 16 columns) of a matrix.
fn last_panel() -> u32 { return 1u; }
/// Returns the number of row blocks: the number of rows divided by ROWS, rounded up.
fn row_blocks() -> u32 { return 2u; }

/// Loads four elements of row `row` of the first operand, from K position `4 * k4`.
fn load_a(batch: u32, row: u32, k4: u32) -> vec4<f32> { return a_buffer[(batch * 3u + row) * 16u + k4]; }
/// Computes the norm factors (1 / RMS) of rows to which a residual is added, before the first of these rows is read.
/// Does nothing without a residual.
fn prepare_rows(batch: u32, first: u32, local: u32) {}
/// Returns four elements of the fused norm's scale, from K position `4 * k4`.
fn load_scale(k4: u32) -> vec4<f32> { return vec4<f32>(1.0); }
/// Returns the epsilon of the fused norm.
fn epsilon() -> f32 { return 1e-5; }
/// Loads the vec4 with index `at` of weight matrix `c` (0 or 1): packed words of four columns.
fn load_b(c: u32, at: u32) -> vec4<u32> { return panels[at]; }
/// Returns the scales of quantization group `g` for four columns of a panel, from column `4 * q` of the panel. The
/// panel belongs to weight matrix `c` and starts at vec4 `base`.
fn group_scale(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(1.0); }
/// Returns the biases of quantization group `g` for four columns of a panel, from column `4 * q` of the panel. The
/// panel belongs to weight matrix `c` and starts at vec4 `base`.
fn group_bias(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> { return vec4<f32>(0.0); }
/// Combines the results of the two weight matrices, such as in a SwiGLU gate. Without a second matrix, returns the
/// first result.
fn combine(first: vec4<f32>, second: vec4<f32>) -> vec4<f32> { return first * second; }
/// Rotates four elements of a result row by RoPE. `paired` holds the elements with which RoPE pairs them, one for each.
fn rotate(row: u32, n4: u32, v: vec4<f32>, paired: vec4<f32>) -> vec4<f32> { return v; }
/// Returns the index of panel `i` of a workgroup. If RoPE rotates columns that are half a head apart, the workgroup's
/// two panels are half a head apart as well.
fn panel_index(group: u32, i: u32) -> u32 {
    if (ROTATED == 2u) { return group / HALF_PANELS * 2u * HALF_PANELS + group % HALF_PANELS + i * HALF_PANELS; }
    return group * PANELS + i;
}
/// Applies the epilogue to four elements of row `row` of the result, from column `4 * n4`, and stores them.
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) { result[(batch * 3u + row) * 8u + n4] = v; }

/// Adds the products of two vec4s, component by component, to a sum.
fn fma_vec4(sum: f32, values: vec4<f32>, x: vec4<f32>) -> f32 {
    return fma(values.x, x.x, fma(values.y, x.y, fma(values.z, x.z, fma(values.w, x.w, sum))));
}

/// Adds the products of a packed word's quantized values and the row elements `xs` to a sum.
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

/// Returns row elements in the form in which `add_products` multiplies them by the values of a packed word.
fn multiplicands(xs: array<vec4<f32>, WORD_VEC4S>) -> array<vec4<f32>, X_VEC4S> {
    var out = xs;
    if (VIA_F16 && BITS == 4u) {
        // unroll
        for (var d = 0u; d < WORD_VEC4S; d++) { out[d] *= vec4<f32>(1.0, 0.0625, 1.0, 0.0625); }
    }
    return out;
}

/// Returns the offset of a sum of four products with `x`: the excess of the sum that `add_products` computes over the
/// sum of `x * (value - ZERO_POINT)`. The offset is subtracted later.
fn offset_sum(x: vec4<f32>) -> f32 {
    if (F16_PAIRS) { return 0.0; }
    if (!VIA_F16) { return dot(x, vec4<f32>(ZERO_POINT)); }
    if (BITS == 4u) { return dot(x, vec4<f32>(1024.0 + ZERO_POINT, 64.0 + ZERO_POINT, 1024.0 + ZERO_POINT, 64.0 + ZERO_POINT)); }
    return dot(x, vec4<f32>(1024.0 + ZERO_POINT));
}

/// Partial sums for four columns and one row: the sum of products of each column, the sum of offsets (see
/// `offset_sum`), and the sum of the row's elements.
struct PartialSum { products: vec4<f32>, offset: f32, x_sum: f32 }

/// Applies the scale and the bias of a group to a partial sum.
fn apply_scale(partial: PartialSum, scale: vec4<f32>, bias: vec4<f32>) -> vec4<f32> {
    let sum = scale * ((partial.products - partial.offset) * SUM_FACTOR);
    if (BIASED) { return sum + bias * partial.x_sum; }
    return sum;
}

/// Sum of offsets (see `offset_sum`) and sum of elements of a row, over the K positions of one packed word.
struct WordSums { offset: f32, x_sum: f32 }
/// Row elements in the form that `multiplicands` returns, for all rows of the workgroup.
var<workgroup> stored_x: array<vec4<f32>, STORED_WORDS * X_VEC4S>;
var<workgroup> stored_sums: array<WordSums, STORED_WORDS>;
var<workgroup> invocation_sums: array<vec4<f32>, THREADS>;
var<workgroup> partial_sums: array<vec4<f32>, WORKGROUP_PARTIALS * 4u>;
var<workgroup> invocation_squares: array<f32, THREADS>;
var<workgroup> partial_squares: array<f32, WORKGROUP_PARTIALS * ROWS * ROW_SUMS>;

/// First step of the reduction: adds the partial sums of each column over PARTIAL_QUADS adjacent quads (of four
/// invocations).
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

/// Adds the invocations' parts of the row sum with index `r` over PARTIAL_QUADS adjacent quads (of four invocations). A
/// row sum is a row's sum of squares, of offsets (see `offset_sum`) or of elements. Each row has ROW_SUMS row sums.
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

/// Returns the row sum with index `r`: a row's sum of squares, of offsets (see `offset_sum`) or of elements. Each row has
/// ROW_SUMS row sums.
fn row_sum(r: u32) -> f32 {
    var sum = partial_squares[r * WORKGROUP_PARTIALS];
    // unroll
    for (var i = 1u; i < WORKGROUP_PARTIALS; i++) { sum += partial_squares[r * WORKGROUP_PARTIALS + i]; }
    return sum;
}

/// Returns four elements of a row, with zeros past the row's end.
fn load_x(batch: u32, row: u32, k4: u32) -> vec4<f32> {
    let x = load_a(batch, row, select(k4, min(k4, (size_k() - 1u) / 4u), GUARD_K));
    if (!GUARD_K) { return x; }
    return select(vec4<f32>(0.0), x, vec4<u32>(k4 * 4u) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(size_k()));
}

fn load_norm_scale(k4: u32) -> vec4<f32> { return load_scale(select(k4, min(k4, (size_k() - 1u) / 4u), GUARD_K)); }

/// Returns the matmul's result of row `r` in four adjacent columns. `at` counts the vec4s of columns of the workgroup's
/// panels.
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
    // Invocations past the last full group of BLOCK_QUADS quads (of four invocations) get a block past the end of K,
    // which contributes nothing.
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
            // The sums of offsets (see `offset_sum`) and of elements of a whole row are added only once, by one quad
            // (four invocations) per panel.
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
