// Small-M matmul whose time is bound by reading the second operand once: `result[batch] = a[batch] * b[batch]`. An
// invocation computes a vec4 of columns, over every LANES_K-th group of four rows of b. The partial sums of the LANES_K
// invocations are added in workgroup memory.
//
// The compiler replaces the knobs, the sizes and the hooks. `load_a` returns zeros past K. The result of `load_b` is
// undefined past N.

const LANES_K = 16u;
const LANES_N = 4u;
const THREADS = LANES_K * LANES_N;
const ROWS = 2u;
/// True if adjacent invocations read adjacent positions along K, because the second operand is contiguous along K.
/// False if they read adjacent columns.
const K_FIRST = true;
const_assert LANES_K > 0u && (LANES_K & (LANES_K - 1u)) == 0u;

@group(0) @binding(0) var<storage, read> a_buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b_buffer: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 3u; }
fn size_n() -> u32 { return 32u; }
fn size_k() -> u32 { return 32u; }

/// Loads four elements of row `row` of the first operand, from K position `4 * k4`.
fn load_a(batch: u32, row: u32, k4: u32) -> vec4<f32> { return a_buffer[(batch * 3u + row) * 8u + k4]; }
/// Loads the 4 x 4 block of the second operand that starts at row `4 * k4` and column `4 * n4`, as four vectors along
/// the operand's contiguous axis.
fn load_b(batch: u32, k4: u32, n4: u32) -> mat4x4<f32> {
    let at = (batch * 32u + k4 * 4u) * 8u + n4;
    return mat4x4<f32>(b_buffer[at], b_buffer[at + 8u], b_buffer[at + 16u], b_buffer[at + 24u]);
}
/// Multiplies four elements of a row by a 4 x 4 block: `b * a`, or `a * b` if the vectors of the block run along K.
fn multiply_block(a: vec4<f32>, b: mat4x4<f32>) -> vec4<f32> { return b * a; }
/// Applies the epilogue to four elements of row `row` of the result, from column `4 * n4`, and stores them.
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) { result[(batch * 3u + row) * 8u + n4] = v; }

var<workgroup> partial_sums: array<vec4<f32>, THREADS * ROWS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let lane_k = select(local / LANES_N, local % LANES_K, K_FIRST);
    let lane_n = select(local % LANES_N, local / LANES_K, K_FIRST);
    let batch = group.z;
    let first = group.y * ROWS;
    let n4 = group.x * LANES_N + lane_n;
    let inside = n4 < (size_n() + 3u) / 4u;
    // Invocations with columns past the end have an empty range of K, but they take part in every barrier.
    let end = select(0u, (size_k() + 3u) / 4u, inside);
    let last = size_m() - 1u;
    var acc: array<vec4<f32>, ROWS>;
    // unroll
    for (var r = 0u; r < ROWS; r++) { acc[r] = vec4<f32>(0.0); }
    for (var k4 = lane_k; k4 < end; k4 += LANES_K) {
        let b = load_b(batch, k4, n4);
        // unroll
        for (var r = 0u; r < ROWS; r++) { acc[r] += multiply_block(load_a(batch, min(first + r, last), k4), b); }
    }
    if (LANES_K > 1u) {
        let here = lane_k * LANES_N + lane_n;
        // unroll or shift acc
        for (var r = 0u; r < ROWS; r++) { partial_sums[here + r * THREADS] = acc[r]; }
        workgroupBarrier();
        for (var distance = LANES_K / 2u; distance > 0u; distance /= 2u) {
            if (lane_k < distance) {
                // unroll or loop
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
        // unroll or shift acc
        for (var r = 0u; r < ROWS; r++) {
            if (first + r <= last) { store(batch, first + r, n4, acc[r]); }
        }
    }
}
