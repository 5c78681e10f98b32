// @generated for reduce/0 f32: reduce LANES=128 ROWS=1
const LANES = 128u;
const ROWS = 1u;
const THREADS = LANES * ROWS;
const ROWS_FIRST = false;
const LOADS = 4u;
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;
fn rows() -> u32 { return 15u; }
fn length() -> u32 { return 1030u; }
fn lane_of(local: u32) -> u32 { return select(local % LANES, local / ROWS, ROWS_FIRST); }
fn group_row_of(local: u32) -> u32 { return select(local / LANES, local % ROWS, ROWS_FIRST); }
fn first_row(group: vec3<u32>, groups: vec3<u32>) -> u32 { return (group.x + group.y * groups.x) * ROWS; }
const SPLIT = 1u;
alias V = f32;
alias A = f32;
alias R = f32;
fn load(row: u32, i: u32) -> f32 {
    let row_0 = row;
    let i_1 = i;
    return f32(buffer_0[(row_0) * 1030u + (i_1)]);
}
fn store(row: u32, v: f32) {
    let row_0 = row;
    buffer_1[(row_0)] = f32(v);
}
fn initial() -> A { return A(0.0); }
fn from_element(x: V) -> A { return f32(x); }
fn join(a: A, b: A) -> A { return a + b; }
fn join_lanes(a: A) -> A { return a; }
fn finish(a: A) -> R { return a; }
var<workgroup> lane_totals: array<A, THREADS>;
@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let lane = lane_of(local);
    let group_row = group_row_of(local);
    let row = first_row(group, groups) + group_row;
    let inside = row < rows() * SPLIT;
    let part_length = (length() + SPLIT - 1u) / SPLIT;
    let start = (row % SPLIT) * part_length;
    let end = select(0u, min(start + part_length, length()), inside);
    var total = initial();
    for (var base = start + lane; base < end; base += LANES * LOADS) {
        var loaded: array<V, LOADS>;
        {
            if (base + 0u * LANES < end) { loaded[0u] = load(row / SPLIT, base + 0u * LANES); }
        }
{
            if (base + 1u * LANES < end) { loaded[1u] = load(row / SPLIT, base + 1u * LANES); }
        }
{
            if (base + 2u * LANES < end) { loaded[2u] = load(row / SPLIT, base + 2u * LANES); }
        }
{
            if (base + 3u * LANES < end) { loaded[3u] = load(row / SPLIT, base + 3u * LANES); }
        }
        {
            if (base + 0u * LANES < end) { total = join(total, from_element(loaded[0u])); }
        }
{
            if (base + 1u * LANES < end) { total = join(total, from_element(loaded[1u])); }
        }
{
            if (base + 2u * LANES < end) { total = join(total, from_element(loaded[2u])); }
        }
{
            if (base + 3u * LANES < end) { total = join(total, from_element(loaded[3u])); }
        }
    }
    if (LANES > 1u) {
        let here = lane * ROWS + group_row;
        lane_totals[here] = total;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if (lane < step) { lane_totals[here] = join(lane_totals[here], lane_totals[here + step * ROWS]); }
            workgroupBarrier();
        }
        total = lane_totals[group_row];
    }
    if (lane == 0u && inside) { store(row, finish(join_lanes(total))); }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read_write> buffer_1: array<f32>;
