// The COUNT first elements of each row by descending key, ties by position: one invocation per element counts the
// elements that precede it, which is its place in the result. Needs no workgroup memory, but looks at every pair.
// Picked when COUNT exceeds what `top_k` can keep in workgroup memory.
//
// Replaced: the knobs, the sizes, the types, `load`, `key`, `chosen` and `store`.

const THREADS = 64u;
const COUNT = 10u;

alias V = f32;
alias U = u32;
alias R = f32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

/// Number of rows, and of elements in a row.
fn rows() -> u32 { return 3u; }
fn length() -> u32 { return 1000u; }
fn load(row: u32, i: u32) -> V { return source[row * 1000u + i]; }
fn key(x: V) -> U { return bitcast<U>(x); }
/// What is stored for the element at a position.
fn chosen(row: u32, at: u32) -> R { return load(row, at); }
fn store(row: u32, i: u32, v: R) { result[row * COUNT + i] = v; }

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    let n = length();
    if (unit >= rows() * n) { return; }
    let row = unit / n;
    let at = unit % n;
    let own = key(load(row, at));
    var place = 0u;
    for (var i = 0u; i < n; i++) {
        let other = key(load(row, i));
        place += u32(other > own || (other == own && i < at));
    }
    if (place < COUNT) { store(row, place, chosen(row, at)); }
}
