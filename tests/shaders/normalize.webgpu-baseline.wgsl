// @generated for normalize/0 f32: normalize LANES=64 ROWS=1
const LANES = 64u;
const ROWS = 1u;
const THREADS = LANES * ROWS;
const ROWS_FIRST = false;
const LOADS = 8u;
const ROW_IN_REGISTERS = false;
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;
fn rows() -> u32 { return 21u; }
fn length() -> u32 { return 2054u; }
fn lane_of(local: u32) -> u32 { return select(local % LANES, local / ROWS, ROWS_FIRST); }
fn group_row_of(local: u32) -> u32 { return select(local / LANES, local % ROWS, ROWS_FIRST); }
fn first_row(group: vec3<u32>, groups: vec3<u32>) -> u32 { return (group.x + group.y * groups.x) * ROWS; }
const SPLIT = 1u;
const COMPUTES_MOMENTS = true;
const STORES_RESULT = true;
const SUBTRACTS_MEAN = true;
fn epsilon() -> f32 { return f32(1e-5); }
alias V = f32;
alias M = f32;
struct Moments { count: f32, mean: M, squared_deviation: M }
fn load(row: u32, i: u32) -> f32 {
    let row_0 = row;
    let i_1 = i;
    return f32(buffer_0[(row_0) * 2054u + (i_1)]);
}
fn scale(row: u32, i: u32) -> f32 {
    let row_0 = row;
    let i_1 = i;
    let x1 = f32(buffer_1[(i_1)]);
    return x1;
}
fn bias(row: u32, i: u32) -> f32 {
    let row_0 = row;
    let i_1 = i;
    let x2 = f32(buffer_2[(i_1)]);
    return x2;
}
fn store(row: u32, i: u32, v: f32) {
    let row_0 = row;
    let i_1 = i;
    buffer_3[(row_0) * 2054u + (i_1)] = f32(v);
}
fn store_moments(row_part: u32, m: Moments) {}
fn load_moments(row_part: u32) -> Moments { return Moments(0.0, M(0.0), M(0.0)); }
fn merge_lanes(count: f32, mean: V, squared_deviation: V) -> Moments { return Moments(count, mean, squared_deviation); }
fn merge(a: Moments, b: Moments) -> Moments {
    let count = a.count + b.count;
    let fraction = select(0.0, b.count / count, count > 0.0);
    let mean_difference = b.mean - a.mean;
    return Moments(count, a.mean + mean_difference * fraction, a.squared_deviation + b.squared_deviation + mean_difference * mean_difference * (a.count * fraction));
}
var<workgroup> partial_moments: array<Moments, THREADS>;
fn merge_invocations(moments: Moments, lane: u32, group_row: u32) -> Moments {
    let here = lane * ROWS + group_row;
    partial_moments[here] = moments;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        if (lane < step) { partial_moments[here] = merge(partial_moments[here], partial_moments[here + step * ROWS]); }
        workgroupBarrier();
    }
    return partial_moments[group_row];
}
fn normalize(group: vec3<u32>, groups: vec3<u32>, local: u32) {
    let lane = lane_of(local);
    let group_row = group_row_of(local);
    let row_part = first_row(group, groups) + group_row;
    let row = row_part / SPLIT;
    let part_length = (length() + SPLIT - 1u) / SPLIT;
    let first = row_part % SPLIT * part_length + lane;
    let n = select(0u, min(row_part % SPLIT * part_length + part_length, length()), row < rows());
    var values: array<V, LOADS>;
    var origin = V(0.0);
    if (COMPUTES_MOMENTS && SUBTRACTS_MEAN && first < n) { origin = load(row, first); }
    var count = 0.0;
    var sum = V(0.0);
    var squares = V(0.0);
    for (var base = first; COMPUTES_MOMENTS && base < n; base += LANES * LOADS) {
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
            if (base + 4u * LANES < n) { values[4u] = load(row, base + 4u * LANES); }
        }
{
            if (base + 5u * LANES < n) { values[5u] = load(row, base + 5u * LANES); }
        }
{
            if (base + 6u * LANES < n) { values[6u] = load(row, base + 6u * LANES); }
        }
{
            if (base + 7u * LANES < n) { values[7u] = load(row, base + 7u * LANES); }
        }
        {
            if (base + 0u * LANES < n) {
                let x = values[0u] - origin;
                count += 1.0;
                sum += x;
                squares += x * x;
            }
        }
{
            if (base + 1u * LANES < n) {
                let x = values[1u] - origin;
                count += 1.0;
                sum += x;
                squares += x * x;
            }
        }
{
            if (base + 2u * LANES < n) {
                let x = values[2u] - origin;
                count += 1.0;
                sum += x;
                squares += x * x;
            }
        }
{
            if (base + 3u * LANES < n) {
                let x = values[3u] - origin;
                count += 1.0;
                sum += x;
                squares += x * x;
            }
        }
{
            if (base + 4u * LANES < n) {
                let x = values[4u] - origin;
                count += 1.0;
                sum += x;
                squares += x * x;
            }
        }
{
            if (base + 5u * LANES < n) {
                let x = values[5u] - origin;
                count += 1.0;
                sum += x;
                squares += x * x;
            }
        }
{
            if (base + 6u * LANES < n) {
                let x = values[6u] - origin;
                count += 1.0;
                sum += x;
                squares += x * x;
            }
        }
{
            if (base + 7u * LANES < n) {
                let x = values[7u] - origin;
                count += 1.0;
                sum += x;
                squares += x * x;
            }
        }
    }
    var mean = V(0.0);
    if (SUBTRACTS_MEAN && count > 0.0) {
        let shift = sum / count;
        mean = origin + shift;
        squares = max(squares - sum * shift, V(0.0));
    }
    var moments = merge_lanes(count, mean, squares);
    if (COMPUTES_MOMENTS && LANES > 1u) { moments = merge_invocations(moments, lane, group_row); }
    if (!STORES_RESULT) {
        if (lane == 0u && row < rows()) { store_moments(row_part, moments); }
        return;
    }
    if (!COMPUTES_MOMENTS && row < rows()) {
        for (var k = 0u; k < SPLIT; k++) { moments = merge(moments, load_moments(row * SPLIT + k)); }
    }
    let factor = inverseSqrt(moments.squared_deviation / moments.count + M(epsilon()));
    for (var base = first; base < n; base += LANES * LOADS) {
        {
            let i = base + 0u * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[0u] = load(row, i); }
                store(row, i, (values[0u] - V(moments.mean)) * V(factor) * scale(row, i) + bias(row, i));
            }
        }
{
            let i = base + 1u * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[1u] = load(row, i); }
                store(row, i, (values[1u] - V(moments.mean)) * V(factor) * scale(row, i) + bias(row, i));
            }
        }
{
            let i = base + 2u * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[2u] = load(row, i); }
                store(row, i, (values[2u] - V(moments.mean)) * V(factor) * scale(row, i) + bias(row, i));
            }
        }
{
            let i = base + 3u * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[3u] = load(row, i); }
                store(row, i, (values[3u] - V(moments.mean)) * V(factor) * scale(row, i) + bias(row, i));
            }
        }
{
            let i = base + 4u * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[4u] = load(row, i); }
                store(row, i, (values[4u] - V(moments.mean)) * V(factor) * scale(row, i) + bias(row, i));
            }
        }
{
            let i = base + 5u * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[5u] = load(row, i); }
                store(row, i, (values[5u] - V(moments.mean)) * V(factor) * scale(row, i) + bias(row, i));
            }
        }
{
            let i = base + 6u * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[6u] = load(row, i); }
                store(row, i, (values[6u] - V(moments.mean)) * V(factor) * scale(row, i) + bias(row, i));
            }
        }
{
            let i = base + 7u * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[7u] = load(row, i); }
                store(row, i, (values[7u] - V(moments.mean)) * V(factor) * scale(row, i) + bias(row, i));
            }
        }
    }
}
@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    normalize(group, groups, local);
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read> buffer_1: array<f32>;
@group(0) @binding(2) var<storage, read> buffer_2: array<f32>;
@group(0) @binding(3) var<storage, read_write> buffer_3: array<f32>;
