// One invocation per unit of the result, each copied from a place that run-time indices name: slices along an axis,
// single elements, or slices at index tuples. Negative indices count from the end, and an index outside the axis is
// clamped, so that nothing outside the tensor is read. Picked for every gather.
//
// Replaced: `units`, the types, `pick` (an index), `load` (which calls `pick` and `wrap`) and `store`.

const THREADS = 64u;
const_assert THREADS >= 1u && THREADS <= 1024u;

alias V = f32;
alias Index = i32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read> indices: array<i32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;

/// Number of units.
fn units() -> u32 { return 1u; }
/// Part of the index, or of the index tuple, of a unit.
fn pick(unit: u32, part: u32) -> Index { return indices[unit]; }
/// The unit's value.
fn load(unit: u32) -> V { return source[wrap(pick(unit, 0u), 8u)]; }
fn store(unit: u32, v: V) { result[unit] = v; }

/// The position that an index names on an axis.
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
