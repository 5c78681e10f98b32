// Matmul of 8-bit integers with i32 sums and tiles in workgroup memory: `result[batch] = a[batch] (M x K) * b[batch] (K
// x N)`. Tiles hold words of four elements along K. A workgroup computes TILE_M x TILE_N elements, an invocation ROWS
// rows of COLS vec4s of columns, by dot products of words.
//
// The compiler replaces the knobs, the flags for signed operands, the sizes and the three hooks. `load_a` and `store` are
// only called inside their matrices. `load_b` returns zeros for rows past K; what it returns for columns past N is never
// stored.

const THREADS_M = 8u;
const THREADS_N = 8u;
const ROWS = 4u;
const COLS = 1u;
/// Size of a K-tile, in vec4s of words (16 elements).
const TILE_K = 2u;
const TILE_M = THREADS_M * ROWS;
const TILE_N4 = THREADS_N * COLS;
const THREADS = THREADS_M * THREADS_N;
/// True if the top bits of the first operand are flipped, so that its elements are FLIPPED less than their values.
const FLIP_A = false;
/// True if the top bits of the second operand are flipped, so that its elements are FLIPPED less than their values.
const FLIP_B = false;
/// A word of four ones. The dot product of a word with it is the sum of the word's elements.
const ONES = 0x01010101u;
/// Number that flipping subtracts from an element: 128 from an unsigned element, -128 from a signed element.
const FLIPPED = 128i;

@group(0) @binding(0) var<storage, read> a_buffer: array<u32>;
@group(0) @binding(1) var<storage, read> b_buffer: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<i32>>;

fn size_m() -> u32 { return 32u; }
fn size_n() -> u32 { return 32u; }
fn size_k() -> u32 { return 32u; }

/// Loads four elements of row `row` of the first operand, from K position `4 * k4`, as a word of four bytes.
fn load_a(batch: u32, row: u32, k4: u32) -> u32 { return a_buffer[(batch * 32u + row) * 8u + k4]; }
/// Loads rows `4 * k4 ..` of four columns of the second operand, from column `4 * n4`: one word of four bytes per column.
fn load_b(batch: u32, k4: u32, n4: u32) -> vec4<u32> { return b_buffer[(batch * 8u + k4) * 8u + n4]; }
/// Applies the epilogue to four elements of row `row` of the result, from column `4 * n4`, and stores them.
fn store(batch: u32, row: u32, n4: u32, v: vec4<i32>) { result[(batch * 32u + row) * 8u + n4] = v; }
/// Returns the dot product of two words, each of four 8-bit elements.
fn dot4(a: u32, b: u32) -> i32 { return dot4I8Packed(a, b); }

/// Packs four 8-bit elements, each in 32 bits, into a word.
fn pack_bytes(v: vec4<u32>) -> u32 {
    return insertBits(insertBits(insertBits(v.x, v.y, 8u, 24u), v.z, 16u, 16u), v.w, 24u, 8u);
}
fn dot4_columns(a: u32, b: vec4<u32>) -> vec4<i32> {
    return vec4<i32>(dot4(a, b.x), dot4(a, b.y), dot4(a, b.z), dot4(a, b.w));
}

var<workgroup> tile_a: array<vec4<u32>, TILE_M * TILE_K>;
var<workgroup> tile_b: array<vec4<u32>, TILE_K * 4u * TILE_N4>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let batch = group.z;
    let first_row = group.y * TILE_M;
    let first_n4 = group.x * TILE_N4;
    let lane_m = local / THREADS_N;
    let lane_n = local % THREADS_N;
    let n4_end = (size_n() + 3u) / 4u;
    let k4_end = (size_k() + 3u) / 4u;
    var acc: array<vec4<i32>, ROWS * COLS>;
    // unroll
    for (var i = 0u; i < ROWS * COLS; i++) { acc[i] = vec4<i32>(); }
    // Sum of the elements of each row of the first operand, for the sign correction.
    var sums_a: array<i32, ROWS>;
    // unroll
    for (var i = 0u; i < ROWS; i++) { sums_a[i] = 0i; }
    // Sum of the elements of each column of the second operand, for the sign correction.
    var sums_b: array<vec4<i32>, COLS>;
    // unroll
    for (var i = 0u; i < COLS; i++) { sums_b[i] = vec4<i32>(); }
    for (var k4 = 0u; k4 < k4_end; k4 += TILE_K * 4u) {
        for (var i = local; i < TILE_M * TILE_K * 4u; i += THREADS) {
            let row = first_row + i / (TILE_K * 4u);
            let k = k4 + i % (TILE_K * 4u);
            var v = 0u;
            if (row < size_m() && k < k4_end) { v = load_a(batch, row, k); }
            tile_a[i / 4u][i % 4u] = v;
        }
        for (var i = local; i < TILE_K * 4u * TILE_N4; i += THREADS) {
            let k = k4 + i / TILE_N4;
            let n4 = first_n4 + i % TILE_N4;
            var v = vec4<u32>();
            if (k < k4_end && n4 < n4_end) { v = load_b(batch, k, n4); }
            tile_b[i] = v;
        }
        workgroupBarrier();
        for (var k = 0u; k < TILE_K; k++) {
            // unroll
            for (var c = 0u; c < COLS; c++) {
                let b0 = tile_b[(k * 4u) * TILE_N4 + lane_n + c * THREADS_N];
                let b1 = tile_b[(k * 4u + 1u) * TILE_N4 + lane_n + c * THREADS_N];
                let b2 = tile_b[(k * 4u + 2u) * TILE_N4 + lane_n + c * THREADS_N];
                let b3 = tile_b[(k * 4u + 3u) * TILE_N4 + lane_n + c * THREADS_N];
                // unroll
                for (var r = 0u; r < ROWS; r++) {
                    let a = tile_a[(lane_m + r * THREADS_M) * TILE_K + k];
                    acc[r * COLS + c] += dot4_columns(a.x, b0) + dot4_columns(a.y, b1) + dot4_columns(a.z, b2) + dot4_columns(a.w, b3);
                    if (FLIP_B && c == 0u) {
                        sums_a[r] += dot4(a.x, ONES) + dot4(a.y, ONES) + dot4(a.z, ONES) + dot4(a.w, ONES);
                    }
                }
                if (FLIP_A) {
                    sums_b[c] += dot4_columns(ONES, b0) + dot4_columns(ONES, b1) + dot4_columns(ONES, b2) + dot4_columns(ONES, b3);
                }
            }
        }
        workgroupBarrier();
    }
    // unroll
    for (var r = 0u; r < ROWS; r++) {
        // unroll
        for (var c = 0u; c < COLS; c++) {
            let row = first_row + lane_m + r * THREADS_M;
            let n4 = first_n4 + lane_n + c * THREADS_N;
            var correction = (vec4<i32>(sums_a[r]) + sums_b[c]) * FLIPPED;
            if (FLIP_A && FLIP_B) { correction += vec4<i32>(i32(k4_end * 4u) * FLIPPED * FLIPPED); }
            if (row < size_m() && n4 < n4_end) { store(batch, row, n4, acc[r * COLS + c] + correction); }
        }
    }
}
