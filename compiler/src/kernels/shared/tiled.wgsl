// Matmul with tiles in workgroup memory: `result[batch] = a[batch] (M x K) * b[batch] (K x N)`. A workgroup computes
// TILE_M x TILE_N elements, an invocation ROWS rows of COLS vec4s of columns. Used for matmuls of more than a few rows,
// and for 1x1 convolutions with a row per pixel.
//
// The compiler replaces the knobs, the sizes and the three hooks. The hooks are only called inside the matrices.
// `load_a` returns zeros past K; the result of `load_b` is undefined past N.

const THREADS_M = 8u;
const THREADS_N = 8u;
const ROWS = 4u;
const COLS = 1u;
const TILE_K = 16u;
const TILE_M = THREADS_M * ROWS;
const TILE_N4 = THREADS_N * COLS;
const THREADS = THREADS_M * THREADS_N;
const_assert TILE_K % 4u == 0u;

@group(0) @binding(0) var<storage, read> a_buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b_buffer: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 32u; }
fn size_n() -> u32 { return 32u; }
fn size_k() -> u32 { return 32u; }

/// Loads four elements of row `row` of the first operand, from K position `4 * k4`.
fn load_a(batch: u32, row: u32, k4: u32) -> vec4<f32> { return a_buffer[(batch * 32u + row) * 8u + k4]; }
/// Loads four elements of row `k` of the second operand, from column `4 * n4`.
fn load_b(batch: u32, k: u32, n4: u32) -> vec4<f32> { return b_buffer[(batch * 32u + k) * 8u + n4]; }
/// Applies the epilogue to four elements of row `row` of the result, from column `4 * n4`, and stores them.
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) { result[(batch * 32u + row) * 8u + n4] = v; }

var<workgroup> tile_a: array<vec4<f32>, TILE_M * TILE_K / 4u>;
var<workgroup> tile_b: array<vec4<f32>, TILE_K * TILE_N4>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let batch = group.z;
    let first_row = group.y * TILE_M;
    let first_n4 = group.x * TILE_N4;
    let lane_m = local / THREADS_N;
    let lane_n = local % THREADS_N;
    let n4_end = (size_n() + 3u) / 4u;
    let k4_end = (size_k() + 3u) / 4u;
    var acc: array<vec4<f32>, ROWS * COLS>;
    // unroll
    for (var i = 0u; i < ROWS * COLS; i++) { acc[i] = vec4<f32>(0.0); }
    for (var k4 = 0u; k4 < k4_end; k4 += TILE_K / 4u) {
        for (var i = local; i < TILE_M * TILE_K / 4u; i += THREADS) {
            let row = first_row + i / (TILE_K / 4u);
            let k = k4 + i % (TILE_K / 4u);
            var v = vec4<f32>(0.0);
            if (row < size_m() && k < k4_end) { v = load_a(batch, row, k); }
            tile_a[i] = v;
        }
        for (var i = local; i < TILE_K * TILE_N4; i += THREADS) {
            let k = k4 * 4u + i / TILE_N4;
            let n4 = first_n4 + i % TILE_N4;
            var v = vec4<f32>(0.0);
            if (k < size_k() && n4 < n4_end) { v = load_b(batch, k, n4); }
            tile_b[i] = v;
        }
        workgroupBarrier();
        for (var k = 0u; k < TILE_K / 4u; k++) {
            // unroll
            for (var c = 0u; c < COLS; c++) {
                let b0 = tile_b[(k * 4u) * TILE_N4 + lane_n + c * THREADS_N];
                let b1 = tile_b[(k * 4u + 1u) * TILE_N4 + lane_n + c * THREADS_N];
                let b2 = tile_b[(k * 4u + 2u) * TILE_N4 + lane_n + c * THREADS_N];
                let b3 = tile_b[(k * 4u + 3u) * TILE_N4 + lane_n + c * THREADS_N];
                // unroll
                for (var r = 0u; r < ROWS; r++) {
                    let a = tile_a[(lane_m * ROWS + r) * (TILE_K / 4u) + k];
                    acc[r * COLS + c] += a.x * b0 + a.y * b1 + a.z * b2 + a.w * b3;
                }
            }
        }
        workgroupBarrier();
    }
    // unroll or loop
    for (var r = 0u; r < ROWS; r++) {
        // unroll or shift acc
        for (var c = 0u; c < COLS; c++) {
            let row = first_row + lane_m * ROWS + r;
            let n4 = first_n4 + lane_n + c * THREADS_N;
            if (row < size_m() && n4 < n4_end) { store(batch, row, n4, acc[r * COLS + c]); }
        }
    }
}
