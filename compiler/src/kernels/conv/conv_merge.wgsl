// Adds the partial sums of conv_fragments.wgsl, whose workgroups split K. An invocation adds four columns of a row. Rows are
// adjacent, as in the scratch buffer.
//
// The compiler replaces the knobs, the sizes and the hooks.

const THREADS = 128u;
const GROUP_SPLIT = 2u;

@group(0) @binding(0) var<storage, read> partial: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 64u; }
/// Returns the number of columns divided by four, rounded up.
fn size_n4() -> u32 { return 16u; }
/// Loads four partial sums of row `row` from column `4 * n4`. `group` is `GROUP_SPLIT` times the batch, plus the number of the
/// workgroup's part of K.
fn load_partial(group: u32, n4: u32, row: u32) -> vec4<f32> { return partial[(group * 16u + n4) * 64u + row]; }
/// Applies the epilogue to four sums of row `row` of the result, from column `4 * n4`, and stores them.
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) { result[(batch * 64u + row) * 16u + n4] = v; }

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let vec4_index = group.x * THREADS + local;
    let row = vec4_index % size_m();
    let n4 = vec4_index / size_m();
    if (n4 >= size_n4()) { return; }
    var total = vec4<f32>();
    // unroll
    for (var p = 0u; p < GROUP_SPLIT; p++) { total += load_partial(group.z * GROUP_SPLIT + p, n4, row); }
    store(group.z, row, n4, total);
}
