// Small-M matmul of 8-bit integers with i32 sums, bound by one pass over the second operand: `result[batch] = a[batch]
// * b[batch]`. The rows of a are staged in workgroup memory as words of four elements along K. An invocation computes a
// vec4 of columns, over every LANES_K-th word of K. The partial sums of the LANES_K invocations are added in workgroup
// memory.
//
// The compiler replaces the knobs, the signs, the sizes and the hooks. `load_b` returns zeros past K; its result is
// undefined past N.

const LANES_K = 16u;
const LANES_N = 4u;
const THREADS = LANES_K * LANES_N;
const ROWS = 2u;
/// Number of packed words of each row that are copied to workgroup memory at a time.
const STAGED_WORDS = 64u;
/// True if adjacent invocations read adjacent positions along K, because the second operand is contiguous along K.
/// False if they read adjacent columns.
const K_FIRST = false;
/// True if the top bit of each element of the first operand is flipped, so that the elements are FLIPPED less than
/// their values.
const FLIP_A = false;
/// True if the top bit of each element of the second operand is flipped, so that the elements are FLIPPED less than
/// their values.
const FLIP_B = false;
/// A word of four bytes that are 1. The dot product of another word with this word is the sum of the other word's elements.
const ONES = 0x01010101u;
const_assert LANES_K > 0u && (LANES_K & (LANES_K - 1u)) == 0u;
/// Number that flipping subtracts from an element: 128 from an unsigned element, -128 from a signed element.
const FLIPPED = 128i;

@group(0) @binding(0) var<storage, read> a_buffer: array<u32>;
@group(0) @binding(1) var<storage, read> b_buffer: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<i32>>;

fn size_m() -> u32 { return 3u; }
fn size_n() -> u32 { return 32u; }
fn size_k() -> u32 { return 32u; }

/// Loads four elements of row `row` of the first operand, from K position `4 * k4`, as a word of four bytes.
fn load_a(batch: u32, row: u32, k4: u32) -> u32 { return a_buffer[(batch * 3u + row) * 8u + k4]; }
/// Loads four rows (from row `4 * k4`) of four columns (from column `4 * n4`) of the second operand: one word of four
/// bytes per column.
fn load_b(batch: u32, k4: u32, n4: u32) -> vec4<u32> { return b_buffer[(batch * 8u + k4) * 8u + n4]; }
/// Applies the epilogue to four elements of row `row` of the result, from column `4 * n4`, and stores them.
fn store(batch: u32, row: u32, n4: u32, v: vec4<i32>) { result[(batch * 3u + row) * 8u + n4] = v; }
/// Returns the dot product of two words, each of four 8-bit elements.
fn dot4(a: u32, b: u32) -> i32 { return dot4I8Packed(a, b); }

/// Packs four 8-bit elements, each in 32 bits, into a word.
fn pack_bytes(v: vec4<u32>) -> u32 {
    return insertBits(insertBits(insertBits(v.x, v.y, 8u, 24u), v.z, 16u, 16u), v.w, 24u, 8u);
}
fn dot4_columns(a: u32, b: vec4<u32>) -> vec4<i32> {
    return vec4<i32>(dot4(a, b.x), dot4(a, b.y), dot4(a, b.z), dot4(a, b.w));
}

var<workgroup> staged_rows: array<u32, ROWS * STAGED_WORDS>;
var<workgroup> partial_sums: array<vec4<i32>, THREADS * ROWS>;

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
    for (var start = 0u; start < k4_end; start += STAGED_WORDS) {
        let words = min(STAGED_WORDS, k4_end - start);
        for (var i = local; i < ROWS * STAGED_WORDS; i += THREADS) {
            let k = i % STAGED_WORDS;
            if (k < words) { staged_rows[i] = load_a(batch, min(first + i / STAGED_WORDS, last), start + k); }
        }
        workgroupBarrier();
        // Invocations with columns past the end have an empty range of K, but they take part in every barrier.
        let end = select(0u, words, inside);
        for (var k = lane_k; k < end; k += LANES_K) {
            let b = load_b(batch, start + k, n4);
            var correction = vec4<i32>();
            if (FLIP_A) { correction = dot4_columns(ONES, b) * FLIPPED; }
            if (FLIP_A && FLIP_B) { correction += vec4<i32>(4i * FLIPPED * FLIPPED); }
            // unroll
            for (var r = 0u; r < ROWS; r++) {
                let a = staged_rows[r * STAGED_WORDS + k];
                var sum = dot4_columns(a, b) + correction;
                if (FLIP_B) { sum += vec4<i32>(dot4(a, ONES) * FLIPPED); }
                acc[r] += sum;
            }
        }
        workgroupBarrier();
    }
    if (LANES_K > 1u) {
        let here = lane_k * LANES_N + lane_n;
        // unroll
        for (var r = 0u; r < ROWS; r++) { partial_sums[here + r * THREADS] = acc[r]; }
        workgroupBarrier();
        for (var distance = LANES_K / 2u; distance > 0u; distance /= 2u) {
            if (lane_k < distance) {
                // unroll
                for (var r = 0u; r < ROWS; r++) {
                    partial_sums[here + r * THREADS] += partial_sums[here + distance * LANES_N + r * THREADS];
                }
            }
            workgroupBarrier();
        }
        // unroll
        for (var r = 0u; r < ROWS; r++) { acc[r] = partial_sums[here + r * THREADS]; }
    }
    if (lane_k == 0u && inside) {
        // unroll
        for (var r = 0u; r < ROWS; r++) {
            if (first + r <= last) { store(batch, first + r, n4, acc[r]); }
        }
    }
}
