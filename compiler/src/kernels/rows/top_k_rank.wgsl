// Top-k: first COUNT elements of each row by descending sort key, then by position. One invocation per element counts
// the elements that precede its element; the count is the element's rank. The kernel needs no workgroup memory, but
// compares all pairs of elements of a row. It is for a COUNT that is too large for `top_k`.
//
// The compiler replaces the knobs, the sizes, the types, and the hooks `load`, `key`, `output_of` and `store`.

const THREADS = 64u;
const COUNT = 10u;

alias V = f32;
alias U = u32;
alias R = f32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

/// Number of rows.
fn rows() -> u32 { return 3u; }
/// Number of elements per row.
fn length() -> u32 { return 1000u; }
fn load(row: u32, i: u32) -> V { return source[row * 1000u + i]; }
fn key(x: V) -> U { return bitcast<U>(x); }
/// Returns what the kernel outputs for the element at position `at` of a row: its value, or its position.
fn output_of(row: u32, at: u32) -> R { return load(row, at); }
fn store(row: u32, i: u32, v: R) { result[row * COUNT + i] = v; }

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    let n = length();
    if (unit >= rows() * n) { return; }
    let row = unit / n;
    let at = unit % n;
    let element_key = key(load(row, at));
    var rank = 0u;
    for (var i = 0u; i < n; i++) {
        let other = key(load(row, i));
        rank += u32(other > element_key || (other == element_key && i < at));
    }
    if (rank < COUNT) { store(row, rank, output_of(row, at)); }
}
