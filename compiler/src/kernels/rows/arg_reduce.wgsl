// Arg-max or arg-min: position of the element with the largest sort key in each row. Sort keys are unsigned integers in
// the order of the elements, or in reverse order for arg-min. LANES invocations compute a row, and a workgroup computes
// ROWS rows.
//
// Prelude: `rows.wgsl`.
//
// The compiler replaces the knobs, the sizes, the hooks `load`, `key` and `store`, and the types: `V` is one element,
// or one element of each of four rows; `U` and `I` are as wide as `V`.

/// True if the last of equal elements is selected, false if the first one is selected.
const LAST = false;

alias V = f32;
alias U = u32;
alias I = i32;
struct Best { key: U, at: U }

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<i32>;

fn load(row: u32, i: u32) -> V { return source[row * 100u + i]; }
fn key(x: V) -> U { return bitcast<U>(x); }
fn store(row: u32, v: I) { result[row] = v; }

/// Returns the better of two elements: the one with the larger sort key. Of elements with equal keys, LAST selects the
/// last or the first position. An argument with position 0xffffffff holds no element.
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
    // An invocation whose row is past the last row reads no elements, but it reaches every barrier.
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
