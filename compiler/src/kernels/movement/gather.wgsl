// Gather of slices along an axis, of single elements, or of slices at index tuples. One invocation copies one element
// or vec4 (a "unit") of the result. Negative indices count from the end. An index outside the axis is clamped, so that
// no read is outside the tensor.
//
// The compiler replaces `units`, the types, and the hooks `load_index`, `load` (which calls `load_index` and `wrap`)
// and `store`.

const THREADS = 64u;
const_assert THREADS >= 1u && THREADS <= 1024u;

alias V = f32;
alias Index = i32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read> indices: array<i32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;

/// Number of units (elements or vec4s) of the result.
fn units() -> u32 { return 1u; }
/// Loads the index that selects the value of a unit (an element or vec4 of the result), or component `part` of an index tuple.
fn load_index(unit: u32, part: u32) -> Index { return indices[unit]; }
/// Loads the gathered value of a unit (an element or vec4 of the result).
fn load(unit: u32) -> V { return source[wrap(load_index(unit, 0u), 8u)]; }
fn store(unit: u32, v: V) { result[unit] = v; }

/// Returns the position on an axis of `size` elements that an index selects. Negative indices count from the end.
fn wrap(index: Index, size: u32) -> u32 {
    let i = i32(index);
    let last = i32(size) - 1;
    return u32(clamp(select(i, i + i32(size), i < 0), 0, max(last, 0)));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit < units()) { store(unit, load(unit)); }
}
