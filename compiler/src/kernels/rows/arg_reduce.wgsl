// The position of the largest key of each row. Keys are unsigned numbers in the order of the elements, so that one
// kernel serves every type, smallest and largest. A row belongs to LANES invocations and a workgroup holds ROWS rows.
// Picked for every arg-max and arg-min.
//
// Replaced: the knobs, the sizes, `V` (one element, or one of four rows) with `U` and `I` as wide, `load`, `key` and
// `store`.

const LANES = 64u;
const ROWS = 1u;
const THREADS = LANES * ROWS;
/// Neighbouring invocations take neighbouring rows rather than neighbouring positions.
const ROWS_FIRST = false;
/// Whether the last of equal elements wins.
const LAST = false;
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;

alias V = f32;
alias U = u32;
alias I = i32;
struct Best { key: U, at: U }

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<i32>;

/// Number of rows, and of units in a row.
fn rows() -> u32 { return 3u; }
fn length() -> u32 { return 100u; }
fn load(row: u32, i: u32) -> V { return source[row * 100u + i]; }
fn key(x: V) -> U { return bitcast<U>(x); }
fn store(row: u32, v: I) { result[row] = v; }

/// The better of two, either of which may be none.
fn join(a: Best, b: Best) -> Best {
    let none = U(0xffffffffu);
    let tie = (b.key == a.key) & select((b.at < a.at), (b.at > a.at), LAST);
    let wins = (b.at != none) & ((a.at == none) | (b.key > a.key) | tie);
    return Best(select(a.key, b.key, wins), select(a.at, b.at, wins));
}

var<workgroup> parts: array<Best, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let lane = select(local % LANES, local / ROWS, ROWS_FIRST);
    let member = select(local / LANES, local % ROWS, ROWS_FIRST);
    let row = (group.x + group.y * groups.x) * ROWS + member;
    let inside = row < rows();
    // A row past the end has no element, but its invocations take part in every barrier.
    let n = select(0u, length(), inside);
    var best = Best(U(0u), U(0xffffffffu));
    if (lane < n) { best = Best(key(load(row, lane)), U(lane)); }
    for (var i = lane + LANES; i < n; i += LANES) { best = join(best, Best(key(load(row, i)), U(i))); }
    if (LANES > 1u) {
        let here = lane * ROWS + member;
        parts[here] = best;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if (lane < step) { parts[here] = join(parts[here], parts[here + step * ROWS]); }
            workgroupBarrier();
        }
        best = parts[member];
    }
    if (lane == 0u && inside) { store(row, I(best.at)); }
}
