// Float matmul with a constant second operand: `result[batch] = a[batch] * b`. Each invocation computes one vec4 of
// columns of ROWS rows. The invocations of a subgroup load different elements of the rows along K and exchange them by
// shuffles, so that a row is loaded once per subgroup. The constant is read once per ROWS rows, from panels (blocks of
// columns) in the order in which neighboring invocations read it.
//
// The compiler replaces the knobs, the sizes and the hooks. No invocation returns before the last shuffle.

/// Subgroup size.
const LANES = 8u;
const THREADS = 8u;
const ROWS = 4u;
/// Number of vec4s along K.
const DEPTH = 8u;
const_assert LANES > 0u && THREADS % LANES == 0u && ROWS > 0u && DEPTH > 0u;

@group(0) @binding(0) var<storage, read> a_buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b_buffer: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

/// Number of rows.
fn size_m() -> u32 { return 8u; }
/// Number of vec4s of columns.
fn column_vec4s() -> u32 { return 8u; }
/// Loads four elements of row `row` of the first operand, from position `4 * k4` of K. Elements past K are zero.
fn load_a(batch: u32, row: u32, k4: u32) -> vec4<f32> { return a_buffer[(batch * 8u + row) * DEPTH + k4]; }
/// Loads the vec4 of columns `n4` of the constant, in row `k`. Rows past K are zero.
fn load_b(k: u32, n4: u32) -> vec4<f32> { return b_buffer[k * 8u + n4]; }
/// Applies the epilogue to four elements of row `row` of the result, from column `4 * n4`, and stores them.
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) { result[(batch * 8u + row) * 8u + n4] = v; }

// Vulkan does not have to order subgroups by `local_invocation_index`.
@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let batch = group.z;
    let first = group.y * ROWS;
    let column = group.x * THREADS + subgroup * LANES + lane;
    // Columns and rows past the end repeat the last one and are not stored.
    let n4 = min(column, column_vec4s() - 1u);
    var acc: array<vec4<f32>, ROWS>;
    // unroll
    for (var r = 0u; r < ROWS; r++) { acc[r] = vec4<f32>(0.0); }
    for (var k4 = 0u; k4 < DEPTH; k4 += LANES) {
        var own: array<vec4<f32>, ROWS>;
        // unroll
        for (var r = 0u; r < ROWS; r++) {
            let loaded = load_a(batch, min(first + r, size_m() - 1u), min(k4 + lane, DEPTH - 1u));
            own[r] = select(vec4<f32>(0.0), loaded, k4 + lane < DEPTH);
        }
        // unroll
        for (var i = 0u; i < LANES; i++) {
            let k = min(k4 + i, DEPTH - 1u) * 4u;
            let w0 = load_b(k, n4);
            let w1 = load_b(k + 1u, n4);
            let w2 = load_b(k + 2u, n4);
            let w3 = load_b(k + 3u, n4);
            // unroll
            for (var r = 0u; r < ROWS; r++) {
                // After unrolling, the second argument is a constant, so drivers can compile the shuffle as a broadcast.
                let x = subgroupShuffle(own[r], i);
                acc[r] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
        }
    }
    // unroll
    for (var r = 0u; r < ROWS; r++) {
        if (first + r < size_m() && column < column_vec4s()) { store(batch, first + r, n4, acc[r]); }
    }
}
