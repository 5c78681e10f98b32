// @generated for cum_sum/0 f32: cum_sum LANES=512 ROWS=1
const LANES = 512u;
const ROWS = 1u;
const THREADS = LANES * ROWS;
const ROWS_FIRST = false;
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;
fn rows() -> u32 { return 3u; }
fn length() -> u32 { return 301u; }
fn lane_of(local: u32) -> u32 { return select(local % LANES, local / ROWS, ROWS_FIRST); }
fn group_row_of(local: u32) -> u32 { return select(local / LANES, local % ROWS, ROWS_FIRST); }
fn first_row(group: vec3<u32>, groups: vec3<u32>) -> u32 { return (group.x + group.y * groups.x) * ROWS; }
const EXCLUSIVE = false;
const REVERSE = false;
alias V = f32;
fn load(row: u32, i: u32) -> f32 {
    let row_0 = row;
    let i_1 = i;
    return f32(buffer_0[(row_0) * 301u + (i_1)]);
}
fn store(row: u32, i: u32, v: f32) {
    let row_0 = row;
    let i_1 = i;
    buffer_1[(row_0) * 301u + (i_1)] = f32(v);
}
fn position(at: u32) -> u32 { return select(at, length() - 1u - at, REVERSE); }
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
    let here = lane * ROWS + group_row;
    var carry = V();
    for (var base = 0u; base < length(); base += LANES) {
        let at = base + lane;
        var x = V();
        if (at < n) { x = load(row, position(at)); }
        var sum = x;
        var before = V();
        var total = x;
        if (LANES > 1u) {
            sums[here] = sum;
            workgroupBarrier();
            for (var step = 1u; step < LANES; step *= 2u) {
                var other = V();
                if (lane >= step) { other = sums[here - step * ROWS]; }
                workgroupBarrier();
                sum += other;
                sums[here] = sum;
                workgroupBarrier();
            }
            if (lane > 0u) { before = sums[here - ROWS]; }
            total = sums[(LANES - 1u) * ROWS + group_row];
            workgroupBarrier();
        }
        if (at < n) { store(row, position(at), carry + select(sum, before, EXCLUSIVE)); }
        carry += total;
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read_write> buffer_1: array<f32>;
