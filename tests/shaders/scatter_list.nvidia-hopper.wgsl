// @generated for scatter/0 f32: scatter_list THREADS=256
const THREADS = 256u;
const_assert THREADS >= 1u && THREADS <= 1024u;
fn positions() -> u32 { return 18u; }
fn position(unit: u32) -> u32 { return unit; }
fn set_head(position: u32, entry: u32) { buffer_0[position] = entry; }
fn clear_list(position: u32) {
    if (position < positions()) { set_head(position, 0u); }
}
fn run_stage(i: u32) { clear_list(i); }
@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    run_stage(id.x + id.y * (groups.x * THREADS));
}
@group(0) @binding(0) var<storage, read_write> buffer_0: array<u32>;

const THREADS = 256u;
const_assert THREADS >= 1u && THREADS <= 1024u;
alias Index = i32;
fn positions() -> u32 { return 18u; }
fn entries() -> u32 { return 4u; }
fn load_index(entry: u32, part: u32) -> i32 {
    let entry_1 = entry;
    return i32(buffer_1[(entry_1)]);
}
fn target_of(entry: u32) -> u32 {
    let entry_1 = entry;
    let at_1 = wrap(load_index(entry, 0u), 9u);
    return select(positions(), ((0u) * 9u + at_1), at_1 < 9u);
}
fn position(unit: u32) -> u32 { return unit; }
fn prepend(position: u32, entry: u32) -> u32 { return atomicMax(&buffer_0[position], entry); }
fn set_next(entry: u32, to: u32) {  }
fn wrap(index: Index, size: u32) -> u32 {
    let i = i32(index);
    return u32(select(i, i + i32(size), i < 0));
}
fn insert_entry(entry: u32) {
    if (entry >= entries()) { return; }
    let at = target_of(entry);
    if (at < positions()) { set_next(entry + 1u, prepend(at, entry + 1u)); }
}
fn run_stage(i: u32) { insert_entry(i); }
@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    run_stage(id.x + id.y * (groups.x * THREADS));
}
@group(0) @binding(0) var<storage, read_write> buffer_0: array<atomic<u32>>;
@group(0) @binding(1) var<storage, read> buffer_1: array<i32>;

const THREADS = 256u;
const_assert THREADS >= 1u && THREADS <= 1024u;
alias V = i32;
fn units() -> u32 { return 18u; }
fn position(unit: u32) -> u32 {
    let unit_1 = unit % 9u;
    let unit_1_rest = unit / 9u;
    let unit_0 = unit_1_rest;
    return ((unit_0) * 9u + unit_1);
}
fn head(position: u32) -> u32 { return buffer_0[position]; }
fn next(entry: u32) -> u32 { return 0u; }
fn load(unit: u32) -> i32 {
    let unit_1 = unit % 9u;
    let unit_1_rest = unit / 9u;
    let unit_0 = unit_1_rest;
    return i32(buffer_1[(unit_0) * 9u + (unit_1)]);
}
fn update(unit: u32, entry: u32) -> i32 {
    let unit_1 = unit % 9u;
    let unit_1_rest = unit / 9u;
    let unit_0 = unit_1_rest;
    let entry_1 = entry;
    return i32(buffer_3[(entry_1)]);
}
fn combine(old: V, next: V) -> V { return next; }
fn store(unit: u32, v: i32) {
    let unit_1 = unit % 9u;
    let unit_1_rest = unit / 9u;
    let unit_0 = unit_1_rest;
    buffer_2[(unit_0) * 9u + (unit_1)] = i32(v);
}
fn combine_list(unit: u32) {
    if (unit >= units()) { return; }
    var value = load(unit);
    var entry = head(position(unit));
    while (entry != 0u) {
        value = combine(value, update(unit, entry - 1u));
        entry = next(entry);
    }
    store(unit, value);
}
fn run_stage(i: u32) { combine_list(i); }
@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    run_stage(id.x + id.y * (groups.x * THREADS));
}
@group(0) @binding(0) var<storage, read> buffer_0: array<u32>;
@group(0) @binding(1) var<storage, read> buffer_1: array<i32>;
@group(0) @binding(2) var<storage, read_write> buffer_2: array<i32>;
@group(0) @binding(3) var<storage, read> buffer_3: array<i32>;
