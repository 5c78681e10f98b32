// One invocation per unit of the result: the copied tensor's value, combined in order with every update whose index
// names the unit. Updates may name one place more than once, so each unit looks at all indices that could name it,
// which needs no atomics and gives the reference's order. An index outside the tensor names nothing. Picked for
// every scatter.
//
// Replaced: the types, the sizes and the hooks; `names` calls `pick` and `wrap`.

const THREADS = 64u;
const_assert THREADS >= 1u && THREADS <= 1024u;

alias V = f32;
alias Index = i32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read> indices: array<i32>;
@group(0) @binding(2) var<storage, read> updates: array<f32>;
@group(0) @binding(3) var<storage, read_write> result: array<f32>;

/// Number of units, and of indices that could name one of them.
fn units() -> u32 { return 100u; }
fn entries() -> u32 { return 10u; }
fn load(unit: u32) -> V { return source[unit]; }
/// Whether the unit lies where indices can reach.
fn reached(unit: u32) -> bool { return true; }
/// Part of an index, or of an index tuple.
fn pick(unit: u32, entry: u32, part: u32) -> Index { return indices[entry]; }
/// Whether an index names the unit.
fn names(unit: u32, entry: u32) -> bool { return wrap(pick(unit, entry, 0u), 100u) == unit; }
fn update(unit: u32, entry: u32) -> V { return updates[entry]; }
fn combine(old: V, next: V) -> V { return next; }
fn store(unit: u32, v: V) { result[unit] = v; }

/// The position that an index names on an axis; no position when it lies outside.
fn wrap(index: Index, size: u32) -> u32 {
    let i = i32(index);
    return u32(select(i, i + i32(size), i < 0));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit >= units()) { return; }
    var value = load(unit);
    let end = select(0u, entries(), reached(unit));
    for (var entry = 0u; entry < end; entry++) {
        if (names(unit, entry)) { value = combine(value, update(unit, entry)); }
    }
    store(unit, value);
}
