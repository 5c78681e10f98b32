// Scatter with linked lists. Every position of the tensor has a list of the entries (indices) that select it. The work
// is proportional to the sum of the sizes of tensor and entries, not to their product as in scatter.wgsl. There is one
// launch per stage:
// 1. Clear the lists.
// 2. Insert entries, one invocation per entry, in unspecified order.
// 3. Sort the lists, one invocation per position, so that updates are combined in the order of the entries.
// 4. Combine, one invocation per element or vec4 (a "unit") of the result.
// If updates replace each other, a list holds only the last entry, and stage 3 is omitted. This kernel is for scatters
// with many indices. An index outside the tensor selects nothing.
//
// The compiler replaces the stage, the types, the sizes and the hooks. Lists store the index of an entry plus 1; 0 is
// the end of a list.

const THREADS = 64u;
const_assert THREADS >= 1u && THREADS <= 1024u;

alias V = f32;
alias Index = i32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read> indices: array<i32>;
@group(0) @binding(2) var<storage, read> updates: array<f32>;
@group(0) @binding(3) var<storage, read_write> result: array<f32>;
@group(0) @binding(4) var<storage, read_write> heads: array<u32>;
@group(0) @binding(5) var<storage, read_write> atomic_heads: array<atomic<u32>>;
@group(0) @binding(6) var<storage, read_write> links: array<u32>;

/// Number of positions that entries may select.
fn positions() -> u32 { return 100u; }
/// Number of entries (indices).
fn entries() -> u32 { return 10u; }
/// Number of units (elements or vec4s) of the result.
fn units() -> u32 { return 100u; }
/// Loads the index of an entry, or component `part` of its index tuple.
fn load_index(entry: u32, part: u32) -> Index { return indices[entry]; }
/// Returns the position that an entry selects, or a number of at least `positions()` if the entry selects none.
fn target_of(entry: u32) -> u32 { return wrap(load_index(entry, 0u), 100u); }
/// Returns the position that holds a unit (an element or vec4 of the result).
fn position(unit: u32) -> u32 { return unit; }
fn head(position: u32) -> u32 { return heads[position]; }
fn set_head(position: u32, entry: u32) { heads[position] = entry; }
/// Puts an entry in front of a position's list, and returns the former first entry. An entry is given as its index plus
/// 1, and 0 stands for none.
fn prepend(position: u32, entry: u32) -> u32 { return atomicExchange(&atomic_heads[position], entry); }
/// Returns the entry after `entry` in a list. An entry is given as its index plus 1, and 0 stands for none.
fn next(entry: u32) -> u32 { return links[entry - 1u]; }
fn set_next(entry: u32, to: u32) { links[entry - 1u] = to; }
fn load(unit: u32) -> V { return source[unit]; }
fn update(unit: u32, entry: u32) -> V { return updates[entry]; }
fn combine(old: V, next: V) -> V { return next; }
fn store(unit: u32, v: V) { result[unit] = v; }

/// Returns the position that an index selects on an axis of `size` elements. The position is outside the axis if the
/// index is invalid.
fn wrap(index: Index, size: u32) -> u32 {
    let i = i32(index);
    return u32(select(i, i + i32(size), i < 0));
}

/// Clears a list.
fn clear_list(position: u32) {
    if (position < positions()) { set_head(position, 0u); }
}

/// Inserts an entry into the list of the position that it selects.
fn insert_entry(entry: u32) {
    if (entry >= entries()) { return; }
    let at = target_of(entry);
    if (at < positions()) { set_next(entry + 1u, prepend(at, entry + 1u)); }
}

/// Sorts a list by bottom-up merge sort.
fn sort(position: u32) {
    if (position >= positions()) { return; }
    var list = head(position);
    if (list == 0u || next(list) == 0u) { return; }
    for (var run = 1u; run < entries(); run *= 2u) {
        var left = list;
        var tail = 0u;
        var pairs = 0u;
        while (left != 0u) {
            pairs += 1u;
            var right = left;
            var left_count = 0u;
            while (left_count < run && right != 0u) {
                right = next(right);
                left_count += 1u;
            }
            var right_count = run;
            while (left_count > 0u || (right_count > 0u && right != 0u)) {
                var first = left;
                if (left_count > 0u && (right_count == 0u || right == 0u || left < right)) {
                    left = next(left);
                    left_count -= 1u;
                } else {
                    first = right;
                    right = next(right);
                    right_count -= 1u;
                }
                if (tail == 0u) { list = first; } else { set_next(tail, first); }
                tail = first;
            }
            left = right;
        }
        set_next(tail, 0u);
        if (pairs == 1u) { break; }
    }
    set_head(position, list);
}

/// Computes a unit (an element or vec4) of the result from the list of its position.
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

/// Runs the stage of this launch: `clear_list`, `insert_entry`, `sort` or `combine_list`.
fn run_stage(i: u32) { combine_list(i); }

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    run_stage(id.x + id.y * (groups.x * THREADS));
}
