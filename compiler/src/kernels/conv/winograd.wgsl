// Transform of tiles into or out of the Winograd domain: `M * tile * M'`, with the transform matrix M, for tiles of N x
// N vec4s of channels. An invocation computes ROWS rows of a transformed tile. Neighboring invocations compute
// neighboring channels, which are contiguous in memory.
//
// The compiler replaces the knobs, the sizes and the hooks.

const GROUP_S = 8u;
const GROUP_T = 8u;
/// Number of rows of a transformed tile that an invocation computes.
const ROWS = 6u;
/// Number of rows of a transformed tile.
const SIDE = 6u;
/// Number of rows of a tile before the transform.
const N = 6u;
const_assert SIDE % ROWS == 0u && SIDE <= N && N <= 6u;

@group(0) @binding(0) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> result: array<vec4<f32>>;

fn slices() -> u32 { return 2u; }
fn tiles() -> u32 { return 8u; }

/// Loads channels `4s..4s+4` of the element in row `row`, column `column` of tile `t`.
fn src(t: u32, s: u32, row: u32, column: u32) -> vec4<f32> { return source[((row * N + column) * 8u + t) * 2u + s]; }
/// Multiplies row `i` of the transform matrix by a column of the tile, whose elements are `a` to `f`.
fn transform_row(i: u32, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>, e: vec4<f32>, f: vec4<f32>) -> vec4<f32> {
    return a + b + c + d + e + f;
}
/// Stores the element in row `i`, column `k` of the transformed tile.
fn store(t: u32, s: u32, i: u32, k: u32, v: vec4<f32>) { result[((i * SIDE + k) * 8u + t) * 2u + s] = v; }

@compute @workgroup_size(GROUP_S, GROUP_T)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let s = group.x * GROUP_S + local.x;
    let t = group.y * GROUP_T + local.y;
    if (s >= slices() || t >= tiles()) { return; }
    let first = select(group.z * ROWS, 0u, ROWS == SIDE);
    var row_transformed: array<vec4<f32>, ROWS * 6u>;
    var v: array<vec4<f32>, 6>;
    // unroll
    for (var j = 0u; j < N; j++) {
        // unroll
        for (var r = 0u; r < N; r++) { v[r] = src(t, s, r, j); }
        // unroll
        for (var i = 0u; i < ROWS; i++) { row_transformed[i * 6u + j] = transform_row(first + i, v[0], v[1], v[2], v[3], v[4], v[5]); }
    }
    // unroll
    for (var i = 0u; i < ROWS; i++) {
        // unroll
        for (var j = 0u; j < N; j++) { v[j] = row_transformed[i * 6u + j]; }
        // unroll
        for (var k = 0u; k < SIDE; k++) { store(t, s, first + i, k, transform_row(k, v[0], v[1], v[2], v[3], v[4], v[5])); }
    }
}
