// Scatter by search. One invocation computes one element or vec4 (a "unit") of the result: the value of the copied
// tensor, combined in order with every update whose index selects the unit. Several updates may select the same
// position. Therefore each unit compares all indices that could select it. This needs no atomics and keeps the order of
// the updates. An index outside the tensor selects nothing.
//
// The compiler replaces the types, the sizes and the hooks. The hook `is_target` calls `load_index` and `wrap`.

const THREADS = 64u;
const_assert THREADS >= 1u && THREADS <= 1024u;

alias V = f32;
alias Index = i32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read> indices: array<i32>;
@group(0) @binding(2) var<storage, read> updates: array<f32>;
@group(0) @binding(3) var<storage, read_write> result: array<f32>;

/// Number of units (elements or vec4s) of the result.
fn units() -> u32 { return 100u; }
/// Number of entries (indices) that could select a unit (an element or vec4 of the result).
fn entries() -> u32 { return 10u; }
fn load(unit: u32) -> V { return source[unit]; }
/// True if any index can select the unit (an element or vec4 of the result).
fn is_reachable(unit: u32) -> bool { return true; }
/// Loads the index of an entry, or component `part` of the entry's index tuple.
fn load_index(unit: u32, entry: u32, part: u32) -> Index { return indices[entry]; }
/// True if the index of an entry selects the unit (an element or vec4 of the result).
fn is_target(unit: u32, entry: u32) -> bool { return wrap(load_index(unit, entry, 0u), 100u) == unit; }
fn update(unit: u32, entry: u32) -> V { return updates[entry]; }
fn combine(old: V, next: V) -> V { return next; }
fn store(unit: u32, v: V) { result[unit] = v; }

/// Returns the position that an index selects on an axis of `size` elements. The position is outside the axis if the
/// index is invalid.
fn wrap(index: Index, size: u32) -> u32 {
    let i = i32(index);
    return u32(select(i, i + i32(size), i < 0));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit >= units()) { return; }
    var value = load(unit);
    let end = select(0u, entries(), is_reachable(unit));
    for (var entry = 0u; entry < end; entry++) {
        if (is_target(unit, entry)) { value = combine(value, update(unit, entry)); }
    }
    store(unit, value);
}
