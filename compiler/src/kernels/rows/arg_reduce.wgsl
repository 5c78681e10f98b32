// Arg-max or arg-min: position of the largest key of each row. Keys are unsigned integers in the order of the elements,
// or in reverse order for arg-min. LANES invocations compute a row, and a workgroup computes ROWS rows.
//
// Replaced by the compiler: knobs, sizes, `V` (one element, or one element of four rows), `U` and `I` of the same
// width, `load`, `key` and `store`.

const LANES = 64u;
const ROWS = 1u;
const THREADS = LANES * ROWS;
/// True if neighboring invocations read neighboring rows, false if they read neighboring elements of a row.
const ROWS_FIRST = false;
/// True if the last of equal elements is selected.
const LAST = false;
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;

alias V = f32;
alias U = u32;
alias I = i32;
struct Best { key: U, at: U }

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<i32>;

/// Number of rows, and elements or vec4s per row.
fn rows() -> u32 { return 3u; }
fn length() -> u32 { return 100u; }
fn load(row: u32, i: u32) -> V { return source[row * 100u + i]; }
fn key(x: V) -> U { return bitcast<U>(x); }
fn store(row: u32, v: I) { result[row] = v; }

/// Returns the better of two entries. Either may be empty.
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
    let lane = select(local % LANES, local / ROWS, ROWS_FIRST);
    let group_row = select(local / LANES, local % ROWS, ROWS_FIRST);
    let row = (group.x + group.y * groups.x) * ROWS + group_row;
    let inside = row < rows();
    // A row past the end has no elements, but its invocations reach every barrier.
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
