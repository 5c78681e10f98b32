// Matrix product of 8-bit integers with few rows and sums in i32, bound by reading the second operand once:
// `result[batch] = a[batch] * b[batch]`. The rows of a are staged as words of four numbers along K. Each invocation
// takes a group of four columns and every LANES_K-th word of the depth; the partial sums of the LANES_K invocations are
// added through workgroup memory. Picked for products of one to a few rows.
//
// Replaced: the knobs, the signs, the sizes and the hooks. `load_b` returns zeros past K and anything past N.

const LANES_K = 16u;
const LANES_N = 4u;
const THREADS = LANES_K * LANES_N;
const ROWS = 2u;
/// Words of each row that are staged at a time.
const STAGE = 64u;
/// Neighbouring invocations take neighbouring depths, because b lies along them, rather than neighbouring columns.
const K_FIRST = false;
/// Whether the numbers of a, or of b, are 128 less than they should be.
const FLIP_A = false;
const FLIP_B = false;
/// A word of four ones, whose products are sums.
const ONES = 0x01010101u;
const_assert LANES_K > 0u && (LANES_K & (LANES_K - 1u)) == 0u;
const_assert !(FLIP_A && FLIP_B);

@group(0) @binding(0) var<storage, read> a_buffer: array<u32>;
@group(0) @binding(1) var<storage, read> b_buffer: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<i32>>;

fn size_m() -> u32 { return 3u; }
fn size_n() -> u32 { return 32u; }
fn size_k() -> u32 { return 32u; }

/// Four elements of row `row` of a, from column `4 * k4`, as a word.
fn load_a(batch: u32, row: u32, k4: u32) -> u32 { return a_buffer[(batch * 3u + row) * 8u + k4]; }
/// Four elements of each of the columns from `4 * n4` on of b, from row `4 * k4`, as words.
fn load_b(batch: u32, k4: u32, n4: u32) -> vec4<u32> { return b_buffer[(batch * 8u + k4) * 8u + n4]; }
/// Stores four elements of row `row`, from column `4 * n4`.
fn store(batch: u32, row: u32, n4: u32, v: vec4<i32>) { result[(batch * 3u + row) * 8u + n4] = v; }
/// The sum of the products of two words' numbers.
fn product(a: u32, b: u32) -> i32 { return dot4I8Packed(a, b); }

/// Four numbers of 8 bits, of which each has 32, as a word.
fn word(v: vec4<u32>) -> u32 {
    return insertBits(insertBits(insertBits(v.x, v.y, 8u, 24u), v.z, 16u, 16u), v.w, 24u, 8u);
}
fn products(a: u32, b: vec4<u32>) -> vec4<i32> {
    return vec4<i32>(product(a, b.x), product(a, b.y), product(a, b.z), product(a, b.w));
}

var<workgroup> staged: array<u32, ROWS * STAGE>;
var<workgroup> parts: array<vec4<i32>, THREADS * ROWS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let lane_k = select(local / LANES_N, local % LANES_K, K_FIRST);
    let lane_n = select(local % LANES_N, local / LANES_K, K_FIRST);
    let batch = group.z;
    let first = group.y * ROWS;
    let n4 = group.x * LANES_N + lane_n;
    let inside = n4 < (size_n() + 3u) / 4u;
    let k4_end = (size_k() + 3u) / 4u;
    let last = size_m() - 1u;
    var acc: array<vec4<i32>, ROWS>;
    // unroll
    for (var r = 0u; r < ROWS; r++) { acc[r] = vec4<i32>(); }
    for (var start = 0u; start < k4_end; start += STAGE) {
        let words = min(STAGE, k4_end - start);
        for (var i = local; i < ROWS * STAGE; i += THREADS) {
            let k = i % STAGE;
            if (k < words) { staged[i] = load_a(batch, min(first + i / STAGE, last), start + k); }
        }
        workgroupBarrier();
        // Columns past the end have no depth, but their invocations take part in every barrier.
        let end = select(0u, words, inside);
        for (var k = lane_k; k < end; k += LANES_K) {
            let b = load_b(batch, start + k, n4);
            var less = vec4<i32>();
            if (FLIP_A) { less = products(ONES, b) * 128i; }
            // unroll
            for (var r = 0u; r < ROWS; r++) {
                let a = staged[r * STAGE + k];
                if (FLIP_B) { less = vec4<i32>(product(a, ONES) * 128i); }
                acc[r] += products(a, b) + less;
            }
        }
        workgroupBarrier();
    }
    if (LANES_K > 1u) {
        let here = lane_k * LANES_N + lane_n;
        // unroll
        for (var r = 0u; r < ROWS; r++) { parts[here + r * THREADS] = acc[r]; }
        workgroupBarrier();
        for (var step = LANES_K / 2u; step > 0u; step /= 2u) {
            if (lane_k < step) {
                // unroll
                for (var r = 0u; r < ROWS; r++) {
                    parts[here + r * THREADS] += parts[here + step * LANES_N + r * THREADS];
                }
            }
            workgroupBarrier();
        }
        // unroll
        for (var r = 0u; r < ROWS; r++) { acc[r] = parts[here + r * THREADS]; }
    }
    if (lane_k == 0u && inside) {
        // unroll
        for (var r = 0u; r < ROWS; r++) {
            if (first + r <= last) { store(batch, first + r, n4, acc[r]); }
        }
    }
}
