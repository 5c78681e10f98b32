// @generated for softmax/0 f32: softmax LANES=512 ROWS=1
const LANES = 512u;
const ROWS = 1u;
const THREADS = LANES * ROWS;
const ROWS_FIRST = false;
const LOADS = 3u;
const ROW_IN_REGISTERS = true;
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;
fn rows() -> u32 { return 15u; }
fn length() -> u32 { return 1030u; }
fn lane_of(local: u32) -> u32 { return select(local % LANES, local / ROWS, ROWS_FIRST); }
fn group_row_of(local: u32) -> u32 { return select(local / LANES, local % ROWS, ROWS_FIRST); }
fn first_row(group: vec3<u32>, groups: vec3<u32>) -> u32 { return (group.x + group.y * groups.x) * ROWS; }
const LOWEST = -3.4028234e38;
alias V = f32;
fn load(row: u32, i: u32) -> f32 {
    let row_0 = row;
    let i_1 = i;
    return f32(buffer_0[(row_0) * 1030u + (i_1)]);
}
fn store(row: u32, i: u32, v: f32) {
    let row_0 = row;
    let i_1 = i;
    buffer_1[(row_0) * 1030u + (i_1)] = f32(v);
}
fn max_lanes(v: V) -> V { return v; }
fn sum_lanes(v: V) -> V { return v; }
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
    let n = select(0u, length(), row < rows());
    var values: array<V, LOADS>;
    var max_value = V(LOWEST);
    var sum = V(0.0);
    for (var base = lane; base < n; base += LANES * LOADS) {
        {
            if (base + 0u * LANES < n) { values[0u] = load(row, base + 0u * LANES); }
        }
{
            if (base + 1u * LANES < n) { values[1u] = load(row, base + 1u * LANES); }
        }
{
            if (base + 2u * LANES < n) { values[2u] = load(row, base + 2u * LANES); }
        }
        {
            if (base + 0u * LANES < n) {
                let new_max = max(max_value, values[0u]);
                sum = sum * exp(max_value - new_max) + exp(values[0u] - new_max);
                max_value = new_max;
            }
        }
{
            if (base + 1u * LANES < n) {
                let new_max = max(max_value, values[1u]);
                sum = sum * exp(max_value - new_max) + exp(values[1u] - new_max);
                max_value = new_max;
            }
        }
{
            if (base + 2u * LANES < n) {
                let new_max = max(max_value, values[2u]);
                sum = sum * exp(max_value - new_max) + exp(values[2u] - new_max);
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
        {
            let i = base + 0u * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[0u] = load(row, i); }
                store(row, i, finish(values[0u], row_max, total));
            }
        }
{
            let i = base + 1u * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[1u] = load(row, i); }
                store(row, i, finish(values[1u], row_max, total));
            }
        }
{
            let i = base + 2u * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[2u] = load(row, i); }
                store(row, i, finish(values[2u], row_max, total));
            }
        }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read_write> buffer_1: array<f32>;
