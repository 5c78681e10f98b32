// Quantizes rows of floats to signed 8-bit integers. A result row is packed words of four quantized values, followed by
// the bits of the f32 scale. LANES invocations compute a row, and a workgroup computes ROWS rows.
//
// Prelude: `rows.wgsl`.
//
// The compiler replaces the knobs, the sizes, and the hooks `load` (a vec4 of a row) and `store` (a word of a result row).

const MAX_QUANTIZED = 127.0;
/// Ratio of a row's scale to its largest magnitude. The scale is computed as a product, because products have equal
/// bits on all devices and quotients do not.
const SCALE_FACTOR = 1.0 / 127.0;

@group(0) @binding(0) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> result: array<u32>;

fn load(row: u32, i: u32) -> vec4<f32> { return source[row * 25u + i]; }
fn store(row: u32, i: u32, v: u32) { result[row * 26u + i] = v; }

var<workgroup> lane_max: array<f32, THREADS>;

fn max_magnitude(row_max: f32, v: vec4<f32>) -> f32 {
    let x = abs(v);
    return max(max(row_max, max(x.x, x.y)), max(x.z, x.w));
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let lane = lane_of(local);
    let group_row = group_row_of(local);
    let row = first_row(group, groups) + group_row;
    // An invocation whose row is past the last row reads no elements, but it reaches every barrier.
    let n = select(0u, length(), row < rows());
    var values: array<vec4<f32>, LOADS>;
    var row_max = 0.0;
    for (var base = lane; base < n; base += LANES * LOADS) {
        // unroll
        for (var k = 0u; k < LOADS; k++) {
            if (base + k * LANES < n) { values[k] = load(row, base + k * LANES); }
        }
        // unroll
        for (var k = 0u; k < LOADS; k++) {
            if (base + k * LANES < n) { row_max = max_magnitude(row_max, values[k]); }
        }
    }
    if (LANES > 1u) {
        let here = lane * ROWS + group_row;
        lane_max[here] = row_max;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if (lane < step) { lane_max[here] = max(lane_max[here], lane_max[here + step * ROWS]); }
            workgroupBarrier();
        }
        row_max = lane_max[group_row];
    }
    var factor = 0.0;
    if (row_max > 0.0) { factor = MAX_QUANTIZED / row_max; }
    for (var base = lane; base < n; base += LANES * LOADS) {
        // unroll
        for (var k = 0u; k < LOADS; k++) {
            let i = base + k * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[k] = load(row, i); }
                let quantized = clamp(floor(values[k] * factor + 0.5), vec4<f32>(-MAX_QUANTIZED), vec4<f32>(MAX_QUANTIZED));
                store(row, i, pack4xI8(vec4<i32>(quantized)));
            }
        }
    }
    if (lane == 0u && row < rows()) { store(row, length(), bitcast<u32>(row_max * SCALE_FACTOR)); }
}
