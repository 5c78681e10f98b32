// @generated for arg_reduce/0 f32: arg_reduce LANES=1024 ROWS=1
const LANES = 1024u;
const ROWS = 1u;
const THREADS = LANES * ROWS;
const ROWS_FIRST = false;
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;
fn rows() -> u32 { return 3u; }
fn length() -> u32 { return 1030u; }
fn lane_of(local: u32) -> u32 { return select(local % LANES, local / ROWS, ROWS_FIRST); }
fn group_row_of(local: u32) -> u32 { return select(local / LANES, local % ROWS, ROWS_FIRST); }
fn first_row(group: vec3<u32>, groups: vec3<u32>) -> u32 { return (group.x + group.y * groups.x) * ROWS; }
const LAST = false;
alias V = f32;
alias U = u32;
alias I = i32;
struct Best { key: U, at: U }
fn load(row: u32, i: u32) -> f32 {
    let row_0 = row;
    let i_1 = i;
    return f32(buffer_0[(row_0) * 1030u + (i_1)]);
}
fn key(x: V) -> U {
    let bits = bitcast<U>(select(x, V(0.0), x == V(0.0)));
    let ordered = select(bits | U(0x80000000u), ~bits, (bits & U(0x80000000u)) != U(0u));
    let k = select(ordered, U(0xffffffffu), (bits & U(0x7fffffffu)) > U(0x7f800000u));
    return k;
}
fn store(row: u32, v: i32) {
    let row_0 = row;
    buffer_1[(row_0)] = i32(v);
}
fn join(a: Best, b: Best) -> Best {
    let none = U(0xffffffffu);
    let tie = (b.key == a.key) & select((b.at < a.at), (b.at > a.at), LAST);
    let wins = (b.at != none) & ((a.at == none) | (b.key > a.key) | tie);
    return Best(select(a.key, b.key, wins), select(a.at, b.at, wins));
}
var<workgroup> lane_best: array<Best, THREADS>;
@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let lane = lane_of(local);
    let group_row = group_row_of(local);
    let row = first_row(group, groups) + group_row;
    let inside = row < rows();
    let n = select(0u, length(), inside);
    var best = Best(U(0u), U(0xffffffffu));
    if (lane < n) { best = Best(key(load(row, lane)), U(lane)); }
    for (var i = lane + LANES; i < n; i += LANES) { best = join(best, Best(key(load(row, i)), U(i))); }
    if (LANES > 1u) {
        let here = lane * ROWS + group_row;
        lane_best[here] = best;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if (lane < step) { lane_best[here] = join(lane_best[here], lane_best[here + step * ROWS]); }
            workgroupBarrier();
        }
        best = lane_best[group_row];
    }
    if (lane == 0u && inside) { store(row, I(best.at)); }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read_write> buffer_1: array<i32>;
