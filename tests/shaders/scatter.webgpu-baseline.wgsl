// @generated for scatter/0 f32: scatter THREADS=64
const THREADS = 64u;
const_assert THREADS >= 1u && THREADS <= 1024u;
alias V = i32;
alias Index = i32;
fn units() -> u32 { return 18u; }
fn entries() -> u32 { return 4u; }
fn load(unit: u32) -> i32 {
    let unit_1 = unit % 9u;
    let unit_1_rest = unit / 9u;
    let unit_0 = unit_1_rest;
    return i32(buffer_0[(unit_0) * 9u + (unit_1)]);
}
fn is_reachable(unit: u32) -> bool {
    let unit_1 = unit % 9u;
    let unit_1_rest = unit / 9u;
    let unit_0 = unit_1_rest;
    return unit_0 < 1u;
}
fn load_index(unit: u32, entry: u32, part: u32) -> i32 {
    let unit_1 = unit % 9u;
    let unit_1_rest = unit / 9u;
    let unit_0 = unit_1_rest;
    let entry_0 = entry;
    return i32(buffer_2[(entry_0)]);
}
fn is_target(unit: u32, entry: u32) -> bool {
    let unit_1 = unit % 9u;
    let unit_1_rest = unit / 9u;
    let unit_0 = unit_1_rest;
    return wrap(load_index(unit, entry, 0u), 9u) == unit_1;
}
fn update(unit: u32, entry: u32) -> i32 {
    let unit_1 = unit % 9u;
    let unit_1_rest = unit / 9u;
    let unit_0 = unit_1_rest;
    let entry_0 = entry;
    return i32(buffer_3[(entry_0)]);
}
fn combine(old: V, next: V) -> V { return next; }
fn store(unit: u32, v: i32) {
    let unit_1 = unit % 9u;
    let unit_1_rest = unit / 9u;
    let unit_0 = unit_1_rest;
    buffer_1[(unit_0) * 9u + (unit_1)] = i32(v);
}
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
@group(0) @binding(0) var<storage, read> buffer_0: array<i32>;
@group(0) @binding(1) var<storage, read_write> buffer_1: array<i32>;
@group(0) @binding(2) var<storage, read> buffer_2: array<i32>;
@group(0) @binding(3) var<storage, read> buffer_3: array<i32>;
