// Softmax or log-softmax of each row. LANES invocations compute a row, and a workgroup computes ROWS rows. One pass
// computes the maximum and the sum of exponentials, and rescales the sum whenever the maximum grows. Many invocations
// per row suit long rows; one invocation per row suits short rows and outer axes.
//
// Prelude: `rows.wgsl`.
//
// The compiler replaces the knobs, the sizes, the hooks `load`, `store` and `finish`, and the type `V`: one element, a
// vec4 of one row, or one element of each of four rows. It replaces `max_lanes` and `sum_lanes` if `V` is a vec4 of one row.

const LOWEST = -3.4028234e38;

alias V = f32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

fn load(row: u32, i: u32) -> V { return source[row * 100u + i]; }
fn store(row: u32, i: u32, v: V) { result[row * 100u + i] = v; }
/// If `V` is a vec4 of one row, returns the maximum of its four components in every component. Otherwise returns `v`.
fn max_lanes(v: V) -> V { return v; }
/// If `V` is a vec4 of one row, returns the sum of its four components in every component. Otherwise returns `v`.
fn sum_lanes(v: V) -> V { return v; }
/// Returns the softmax of an element from the maximum of its row and the sum of exponentials.
fn finish(x: V, max_value: V, sum: V) -> V { return exp(x - max_value) / sum; }

var<workgroup> lane_max: array<V, THREADS>;
var<workgroup> sums: array<V, THREADS>;

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
    var values: array<V, LOADS>;
    var max_value = V(LOWEST);
    var sum = V(0.0);
    for (var base = lane; base < n; base += LANES * LOADS) {
        // unroll
        for (var k = 0u; k < LOADS; k++) {
            if (base + k * LANES < n) { values[k] = load(row, base + k * LANES); }
        }
        // unroll
        for (var k = 0u; k < LOADS; k++) {
            if (base + k * LANES < n) {
                let new_max = max(max_value, values[k]);
                sum = sum * exp(max_value - new_max) + exp(values[k] - new_max);
                max_value = new_max;
            }
        }
    }
    if (LANES > 1u) {
        let here = lane * ROWS + group_row;
        lane_max[here] = max_value;
        sums[here] = sum;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if (lane < step) {
                let other = here + step * ROWS;
                let new_max = max(lane_max[here], lane_max[other]);
                sums[here] = sums[here] * exp(lane_max[here] - new_max) + sums[other] * exp(lane_max[other] - new_max);
                lane_max[here] = new_max;
            }
            workgroupBarrier();
        }
        max_value = lane_max[group_row];
        sum = sums[group_row];
    }
    let row_max = max_lanes(max_value);
    let total = sum_lanes(sum * exp(max_value - row_max));
    for (var base = lane; base < n; base += LANES * LOADS) {
        // unroll
        for (var k = 0u; k < LOADS; k++) {
            let i = base + k * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[k] = load(row, i); }
                store(row, i, finish(values[k], row_max, total));
            }
        }
    }
}
