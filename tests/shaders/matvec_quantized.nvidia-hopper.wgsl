// @generated for gather_matmul/3 f32: matvec_quantized THREADS=256 ROWS=1 PANELS=1
const THREADS = 256u;
const ROWS = 1u;
const BITS = 8u;
const GROUPED = true;
const BIASED = false;
const BLOCK_WORDS = 8u;
const BLOCK_QUADS = 8u;
const BLOCKS_IN_FLIGHT = 1u;
const VIA_F16 = true;
const ZERO_POINT = 128.0;
const F16_PAIRS = false;
const SUM_FACTOR = 1.0;
const X_VEC4S = 1u;
const X_SCALE = 1.0;
const MATRICES = 1u;
const PANELS = 1u;
const NORMALIZED = false;
const STORED = false;
const STORED_WORDS = 1u;
const ROTATED = 0u;
const HALF_PANELS = 1u;
const GUARD_K = false;
const WORD_VEC4S = 8u / BITS;
const WORDS_PER_QUAD = BLOCK_WORDS / BLOCK_QUADS;
const PANEL_THREADS = THREADS / MATRICES / PANELS;
const PARALLEL_BLOCKS = PANEL_THREADS / 4u / BLOCK_QUADS;
const PARTIAL_QUADS = 8u;
const PANEL_PARTIALS = PANEL_THREADS / 4u / PARTIAL_QUADS;
const WORKGROUP_PARTIALS = THREADS / 4u / PARTIAL_QUADS;
const ROW_SUMS = 1u;
const_assert BLOCK_WORDS % BLOCK_QUADS == 0u && PANEL_THREADS % (4u * PARTIAL_QUADS) == 0u && 4u * PANELS <= THREADS;
fn size_m() -> u32 { return 1u; }
fn size_n() -> u32 { return 32u; }
fn size_k() -> u32 { return 256u; }
fn panel_vec4s() -> u32 { return 272u; }
const K_WORDS = 64u;
fn k_blocks() -> u32 { return 8u; }
fn blocks_per_group() -> u32 { return 1u; }
fn load_index(batch: u32) -> i32 {
    let batch_0 = batch;
    return i32(buffer_0[(batch_0)]);
}
fn matrix_index(batch: u32) -> u32 {
    let index = i32(load_index(batch));
    let count = i32(3u);
    return u32(clamp(select(index, index + count, index < 0), 0, count - 1));
}
fn first_panel(batch: u32) -> u32 { return matrix_index(batch) * 2u; }
fn last_panel() -> u32 { return 1u; }
fn row_blocks() -> u32 { return 1u; }
fn load_a(batch: u32, row: u32, k4: u32) -> vec4<f32> {
    let batch_0 = batch;
    return vec4<f32>(buffer_1[(batch_0) * 64u + (k4)]);
}
fn load_scale(k4: u32) -> vec4<f32> { return vec4<f32>(1.0); }
fn epsilon() -> f32 { return 1e-5; }
fn load_b(c: u32, at: u32) -> vec4<u32> {
    return buffer_2[at];
}
fn group_scale(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> {
    return first_scale(base, g, q);
}
fn group_bias(c: u32, base: u32, g: u32, q: u32) -> vec4<f32> {
    return first_bias(base, g, q);
}
fn combine(first: vec4<f32>, second: vec4<f32>) -> vec4<f32> {
    return first;
}
fn rotate(row: u32, n4: u32, v: vec4<f32>, paired: vec4<f32>) -> vec4<f32> { return v; }
fn panel_index(group: u32, i: u32) -> u32 {
    if (ROTATED == 2u) { return group / HALF_PANELS * 2u * HALF_PANELS + group % HALF_PANELS + i * HALF_PANELS; }
    return group * PANELS + i;
}
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) {
    let batch_0 = batch;
    var w = vec4<f32>(v);
    buffer_3[(batch_0) * 8u + (n4)] = w;
}
fn fma_vec4(sum: f32, values: vec4<f32>, x: vec4<f32>) -> f32 {
    return fma(values.x, x.x, fma(values.y, x.y, fma(values.z, x.z, fma(values.w, x.w, sum))));
}
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
fn multiplicands(xs: array<vec4<f32>, WORD_VEC4S>) -> array<vec4<f32>, X_VEC4S> {
    var out = xs;
    if (VIA_F16 && BITS == 4u) {
        { out[0u] *= vec4<f32>(1.0, 0.0625, 1.0, 0.0625); }
    }
    return out;
}
fn offset_sum(x: vec4<f32>) -> f32 {
    if (F16_PAIRS) { return 0.0; }
    if (!VIA_F16) { return dot(x, vec4<f32>(ZERO_POINT)); }
    if (BITS == 4u) { return dot(x, vec4<f32>(1024.0 + ZERO_POINT, 64.0 + ZERO_POINT, 1024.0 + ZERO_POINT, 64.0 + ZERO_POINT)); }
    return dot(x, vec4<f32>(1024.0 + ZERO_POINT));
}
struct PartialSum { products: vec4<f32>, offset: f32, x_sum: f32 }
fn apply_scale(partial: PartialSum, scale: vec4<f32>, bias: vec4<f32>) -> vec4<f32> {
    let sum = scale * ((partial.products - partial.offset) * SUM_FACTOR);
    if (BIASED) { return sum + bias * partial.x_sum; }
    return sum;
}
struct WordSums { offset: f32, x_sum: f32 }
var<workgroup> stored_x: array<vec4<f32>, STORED_WORDS * X_VEC4S>;
var<workgroup> stored_sums: array<WordSums, STORED_WORDS>;
var<workgroup> partial_sums: array<vec4<f32>, WORKGROUP_PARTIALS * 4u>;
var<workgroup> partial_squares: array<f32, WORKGROUP_PARTIALS * ROWS * ROW_SUMS>;
fn reduce_sums(local: u32, low: vec4<f32>, high: vec4<f32>) {
    var sum = low;
    sum += subgroupShuffleXor(sum, 16u);
    sum += subgroupShuffleXor(sum, 8u);
    sum += subgroupShuffleXor(sum, 4u);
    if (local % 32u < 4u) { partial_sums[local / 32u * 4u + local % 4u] = sum; }
}
fn reduce_squares(local: u32, r: u32, square: f32) {
    var sum = square;
    sum += subgroupShuffleXor(sum, 16u);
    sum += subgroupShuffleXor(sum, 8u);
    sum += subgroupShuffleXor(sum, 4u);
    sum += subgroupShuffleXor(sum, 2u);
    sum += subgroupShuffleXor(sum, 1u);
    if (local % 32u == 0u) { partial_squares[r * WORKGROUP_PARTIALS + local / 32u] = sum; }
}
fn row_sum(r: u32) -> f32 {
    var sum = partial_squares[r * WORKGROUP_PARTIALS];
    { sum += partial_squares[r * WORKGROUP_PARTIALS + 1u]; }
{ sum += partial_squares[r * WORKGROUP_PARTIALS + 2u]; }
{ sum += partial_squares[r * WORKGROUP_PARTIALS + 3u]; }
{ sum += partial_squares[r * WORKGROUP_PARTIALS + 4u]; }
{ sum += partial_squares[r * WORKGROUP_PARTIALS + 5u]; }
{ sum += partial_squares[r * WORKGROUP_PARTIALS + 6u]; }
{ sum += partial_squares[r * WORKGROUP_PARTIALS + 7u]; }
    return sum;
}
fn load_x(batch: u32, row: u32, k4: u32) -> vec4<f32> {
    let x = load_a(batch, row, select(k4, min(k4, (size_k() - 1u) / 4u), GUARD_K));
    if (!GUARD_K) { return x; }
    return select(vec4<f32>(0.0), x, vec4<u32>(k4 * 4u) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(size_k()));
}
fn load_norm_scale(k4: u32) -> vec4<f32> { return load_scale(select(k4, min(k4, (size_k() - 1u) / 4u), GUARD_K)); }
fn final_sum(r: u32, at: u32) -> vec4<f32> {
    var sums: array<vec4<f32>, MATRICES>;
    {
        let first_partial = (at / 4u * MATRICES + 0u) * PANEL_PARTIALS * 4u + at % 4u;
        sums[0u] = partial_sums[first_partial];
        { sums[0u] += partial_sums[first_partial + 1u * 4u]; }
{ sums[0u] += partial_sums[first_partial + 2u * 4u]; }
{ sums[0u] += partial_sums[first_partial + 3u * 4u]; }
{ sums[0u] += partial_sums[first_partial + 4u * 4u]; }
{ sums[0u] += partial_sums[first_partial + 5u * 4u]; }
{ sums[0u] += partial_sums[first_partial + 6u * 4u]; }
{ sums[0u] += partial_sums[first_partial + 7u * 4u]; }
    }
    if (NORMALIZED) {
        let factor = inverseSqrt(row_sum(r * ROW_SUMS) / f32(size_k()) + epsilon()) / X_SCALE;
        { sums[0u] *= factor; }
    }
    return combine(sums[0], sums[MATRICES - 1u]);
}
@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane: u32) {
    multiply(group, subgroup * 32u + lane);
}
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
    let block = select(assigned_block, k_blocks(), assigned_block >= PARALLEL_BLOCKS);
    var partials: array<PartialSum, ROWS>;
    var acc: array<vec4<f32>, ROWS>;
    { partials[0u] = PartialSum(); acc[0u] = vec4<f32>(0.0); }
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
        {
            let k_block = first_block + 0u * PARALLEL_BLOCKS;
            {
                let k_word = k_block * BLOCK_WORDS + 0u * BLOCK_QUADS + quad;
                loads[0u * WORDS_PER_QUAD + 0u] = load_b(c, base + select(k_word, min(k_word, K_WORDS - 1u), GUARD_K) * 4u + q);
            }
            if (GROUPED) { scales[0u] = group_scale(c, base, select(k_block, min(k_block, k_blocks() - 1u), GUARD_K) / blocks_per_group(), q); }
        }
        if (NORMALIZED && step == 0u) {
            {
                if (0u > 0u) { workgroupBarrier(); }
                let row = min(first + 0u, last_row);
                var square = 0.0;
                var row_sums = WordSums();
                for (var k_word = local; k_word < K_WORDS; k_word += THREADS) {
                    var word_sums = WordSums();
                    var word_x: array<vec4<f32>, WORD_VEC4S>;
                    {
                        let k4 = k_word * WORD_VEC4S + 0u;
                        let x = load_x(batch, row, k4);
                        square += dot(x, x);
                        if (STORED || !GROUPED) {
                            word_x[0u] = x * load_norm_scale(k4) * X_SCALE;
                            word_sums.offset += offset_sum(word_x[0u]);
                            if (BIASED) { word_sums.x_sum += dot(word_x[0u], vec4<f32>(1.0)); }
                        }
                    }
                    if (STORED) {
                        let prepared = multiplicands(word_x);
                        { stored_x[(0u * K_WORDS + k_word) * X_VEC4S + 0u] = prepared[0u]; }
                        if (GROUPED && (!F16_PAIRS || BIASED)) { stored_sums[0u * K_WORDS + k_word] = word_sums; }
                    }
                    row_sums.offset += word_sums.offset;
                    row_sums.x_sum += word_sums.x_sum;
                }
                reduce_squares(local, 0u * ROW_SUMS, square);
                if (!GROUPED) {
                    if (!F16_PAIRS) {
                        workgroupBarrier();
                        reduce_squares(local, 0u * ROW_SUMS + min(1u, ROW_SUMS - 1u), row_sums.offset);
                    }
                    if (BIASED) {
                        workgroupBarrier();
                        reduce_squares(local, 0u * ROW_SUMS + ROW_SUMS - 1u, row_sums.x_sum);
                    }
                }
            }
            workgroupBarrier();
        }
        {
            let k_block = first_block + 0u * PARALLEL_BLOCKS;
            {
                let k_word = k_block * BLOCK_WORDS + 0u * BLOCK_QUADS + quad;
                let words = loads[0u * WORDS_PER_QUAD + 0u];
                var norm_scales: array<vec4<f32>, WORD_VEC4S>;
                if (NORMALIZED && !STORED) {
                    { norm_scales[0u] = load_norm_scale(k_word * WORD_VEC4S + 0u); }
                }
                {
                    let row = min(first + 0u, last_row);
                    var xs: array<vec4<f32>, X_VEC4S>;
                    var word_sums = WordSums();
                    if (STORED) {
                        let inside = !GUARD_K || k_word < K_WORDS;
                        let at = 0u * K_WORDS + select(k_word, min(k_word, K_WORDS - 1u), GUARD_K);
                        if (GROUPED && (!F16_PAIRS || BIASED)) { word_sums = stored_sums[at]; }
                        if (!inside) { word_sums = WordSums(); }
                        { xs[0u] = select(vec4<f32>(0.0), stored_x[at * X_VEC4S + 0u], inside); }
                    } else {
                        var word_x: array<vec4<f32>, WORD_VEC4S>;
                        {
                            word_x[0u] = load_x(batch, row, k_word * WORD_VEC4S + 0u);
                            if (NORMALIZED) { word_x[0u] *= norm_scales[0u] * X_SCALE; }
                            if (GROUPED || !NORMALIZED) {
                                word_sums.offset += offset_sum(word_x[0u]);
                                if (BIASED) { word_sums.x_sum += dot(word_x[0u], vec4<f32>(1.0)); }
                            }
                        }
                        xs = multiplicands(word_x);
                    }
                    partials[0u].offset += word_sums.offset;
                    if (BIASED) { partials[0u].x_sum += word_sums.x_sum; }
                    let sum = partials[0u].products;
                    partials[0u].products = vec4<f32>(add_products(sum.x, words.x, xs), add_products(sum.y, words.y, xs), add_products(sum.z, words.z, xs), add_products(sum.w, words.w, xs));
                }
            }
            if (GROUPED) {
                var bias = vec4<f32>(0.0);
                if (BIASED) { bias = group_bias(c, base, select(k_block, min(k_block, k_blocks() - 1u), GUARD_K) / blocks_per_group(), q); }
                {
                    acc[0u] += apply_scale(partials[0u], scales[0u], bias);
                    partials[0u] = PartialSum();
                }
            }
        }
    }
    if (!GROUPED) {
        {
            if (NORMALIZED && local % PANEL_THREADS < 4u) {
                if (!F16_PAIRS) { partials[0u].offset = row_sum(0u * ROW_SUMS + min(1u, ROW_SUMS - 1u)); }
                if (BIASED) { partials[0u].x_sum = row_sum(0u * ROW_SUMS + ROW_SUMS - 1u); }
            }
            acc[0u] = apply_scale(partials[0u], single_scale, single_bias);
        }
    }
    {
        if (0u > 0u) { workgroupBarrier(); }
        reduce_sums(local, acc[0u], acc[0u]);
        workgroupBarrier();
        let n4 = panel_index(panel_group, local / 4u) * 4u + local % 4u;
        if (local < 4u * PANELS && n4 * 4u < size_n() && first + 0u <= last_row) {
            var v = final_sum(0u, local);
            if (ROTATED == 1u) { v = rotate(first + 0u, n4, v, v.yxwz); }
            if (ROTATED == 2u) { v = rotate(first + 0u, n4, v, final_sum(0u, (local + 4u) % (2u * 4u))); }
            store(batch, first + 0u, n4, v);
        }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<i32>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> buffer_2: array<vec4<u32>>;
fn first_scale(base: u32, g: u32, q: u32) -> vec4<f32> {
    let halves = buffer_2[base + 256u + g * 2u + q / 2u];
    let pair = select(halves.xy, halves.zw, q % 2u == 1u);
    return vec4<f32>(unpack2x16float(pair.x), unpack2x16float(pair.y));
}
fn first_bias(base: u32, g: u32, q: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}
@group(0) @binding(3) var<storage, read_write> buffer_3: array<vec4<f32>>;
