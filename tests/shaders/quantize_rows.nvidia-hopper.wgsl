// @generated for attention/15 f32: quantize_rows LANES=1 ROWS=256
const LANES = 1u;
const ROWS = 256u;
const THREADS = LANES * ROWS;
const ROWS_FIRST = false;
const LOADS = 4u;
const ROW_IN_REGISTERS = true;
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;
fn rows() -> u32 { return params[0].x; }
fn length() -> u32 { return 4u; }
fn lane_of(local: u32) -> u32 { return select(local % LANES, local / ROWS, ROWS_FIRST); }
fn group_row_of(local: u32) -> u32 { return select(local / LANES, local % ROWS, ROWS_FIRST); }
fn first_row(group: vec3<u32>, groups: vec3<u32>) -> u32 { return (group.x + group.y * groups.x) * ROWS; }
const MAX_QUANTIZED = 127.0;
const SCALE_FACTOR = 1.0 / 127.0;
fn load(row: u32, i: u32) -> vec4<f32> {
    let row_0 = row;
    let i_1 = i;
    return vec4<f32>(buffer_0[(row_0) * 4u + (i_1)]);
}
fn store(row: u32, i: u32, v: u32) {
    let row_0 = row;
    let i_1 = i;
    buffer_1[(row_0) * 5u + (i)] = u32(v);
}
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
    let n = select(0u, length(), row < rows());
    var values: array<vec4<f32>, LOADS>;
    var row_max = 0.0;
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
            if (base + 3u * LANES < n) { values[3u] = load(row, base + 3u * LANES); }
        }
        {
            if (base + 0u * LANES < n) { row_max = max_magnitude(row_max, values[0u]); }
        }
{
            if (base + 1u * LANES < n) { row_max = max_magnitude(row_max, values[1u]); }
        }
{
            if (base + 2u * LANES < n) { row_max = max_magnitude(row_max, values[2u]); }
        }
{
            if (base + 3u * LANES < n) { row_max = max_magnitude(row_max, values[3u]); }
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
        {
            let i = base + 0u * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[0u] = load(row, i); }
                let quantized = clamp(floor(values[0u] * factor + 0.5), vec4<f32>(-MAX_QUANTIZED), vec4<f32>(MAX_QUANTIZED));
                store(row, i, pack4xI8(vec4<i32>(quantized)));
            }
        }
{
            let i = base + 1u * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[1u] = load(row, i); }
                let quantized = clamp(floor(values[1u] * factor + 0.5), vec4<f32>(-MAX_QUANTIZED), vec4<f32>(MAX_QUANTIZED));
                store(row, i, pack4xI8(vec4<i32>(quantized)));
            }
        }
{
            let i = base + 2u * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[2u] = load(row, i); }
                let quantized = clamp(floor(values[2u] * factor + 0.5), vec4<f32>(-MAX_QUANTIZED), vec4<f32>(MAX_QUANTIZED));
                store(row, i, pack4xI8(vec4<i32>(quantized)));
            }
        }
{
            let i = base + 3u * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[3u] = load(row, i); }
                let quantized = clamp(floor(values[3u] * factor + 0.5), vec4<f32>(-MAX_QUANTIZED), vec4<f32>(MAX_QUANTIZED));
                store(row, i, pack4xI8(vec4<i32>(quantized)));
            }
        }
    }
    if (lane == 0u && row < rows()) { store(row, length(), bitcast<u32>(row_max * SCALE_FACTOR)); }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> buffer_1: array<u32>;
@group(0) @binding(2) var<uniform> params: array<vec4<u32>, 1>;
