// Updates combined into a copy of a tensor by way of lists: every place of the tensor has a list of the entries of the
// indices that name it. So the work is that of the tensor, of the entries and of their updates, each once, where
// looking for the entries of each element would be their product. There is a launch for each step: the lists are
// emptied; an invocation per entry puts it into its list, in no known order; an invocation per place sorts its list, so
// that updates combine in the order of the entries, whatever the device did first; an invocation per unit of the result
// follows its list. Where the last update counts alone, a list is that one entry and needs no order.
// Picked for scatters of many indices. An index outside the tensor names nothing.
//
// Replaced: the step, the types, the sizes and the hooks. Lists hold entries plus one; 0 ends them.

const THREADS = 64u;
const_assert THREADS >= 1u && THREADS <= 1024u;

alias V = f32;
alias Index = i32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read> indices: array<i32>;
@group(0) @binding(2) var<storage, read> updates: array<f32>;
@group(0) @binding(3) var<storage, read_write> result: array<f32>;
@group(0) @binding(4) var<storage, read_write> heads: array<u32>;
@group(0) @binding(5) var<storage, read_write> shared_heads: array<atomic<u32>>;
@group(0) @binding(6) var<storage, read_write> links: array<u32>;

/// Number of places, entries and units of the result.
fn places() -> u32 { return 100u; }
fn entries() -> u32 { return 10u; }
fn units() -> u32 { return 100u; }
/// Part of the index of an entry.
fn pick(entry: u32, part: u32) -> Index { return indices[entry]; }
/// The place that an entry names; `places()` or more where it names none.
fn named(entry: u32) -> u32 { return wrap(pick(entry, 0u), 100u); }
/// The place that a unit belongs to.
fn place(unit: u32) -> u32 { return unit; }
fn head(place: u32) -> u32 { return heads[place]; }
fn set_head(place: u32, entry: u32) { heads[place] = entry; }
/// Puts an entry, plus one, in front of its list; what was there before.
fn enter(place: u32, entry: u32) -> u32 { return atomicExchange(&shared_heads[place], entry); }
/// What follows an entry, both plus one.
fn next(entry: u32) -> u32 { return links[entry - 1u]; }
fn set_next(entry: u32, to: u32) { links[entry - 1u] = to; }
fn load(unit: u32) -> V { return source[unit]; }
fn update(unit: u32, entry: u32) -> V { return updates[entry]; }
fn combine(old: V, next: V) -> V { return next; }
fn store(unit: u32, v: V) { result[unit] = v; }

/// The position that an index names on an axis; no position when it lies outside.
fn wrap(index: Index, size: u32) -> u32 {
    let i = i32(index);
    return u32(select(i, i + i32(size), i < 0));
}

/// Empties a list.
fn empty(place: u32) {
    if (place < places()) { set_head(place, 0u); }
}

/// Puts an entry into the list of its place.
fn enlist(entry: u32) {
    if (entry >= entries()) { return; }
    let at = named(entry);
    if (at < places()) { set_next(entry + 1u, enter(at, entry + 1u)); }
}

/// Sorts a list: merges its runs in pairs until there is one run.
fn sort(place: u32) {
    if (place >= places()) { return; }
    var list = head(place);
    if (list == 0u || next(list) == 0u) { return; }
    for (var run = 1u; run < entries(); run *= 2u) {
        var left = list;
        var tail = 0u;
        var pairs = 0u;
        while (left != 0u) {
            pairs += 1u;
            var right = left;
            var lefts = 0u;
            while (lefts < run && right != 0u) {
                right = next(right);
                lefts += 1u;
            }
            var rights = run;
            while (lefts > 0u || (rights > 0u && right != 0u)) {
                var first = left;
                if (lefts > 0u && (rights == 0u || right == 0u || left < right)) {
                    left = next(left);
                    lefts -= 1u;
                } else {
                    first = right;
                    right = next(right);
                    rights -= 1u;
                }
                if (tail == 0u) { list = first; } else { set_next(tail, first); }
                tail = first;
            }
            left = right;
        }
        set_next(tail, 0u);
        if (pairs == 1u) { break; }
    }
    set_head(place, list);
}

/// Computes a unit of the result.
fn gather(unit: u32) {
    if (unit >= units()) { return; }
    var value = load(unit);
    var entry = head(place(unit));
    while (entry != 0u) {
        value = combine(value, update(unit, entry - 1u));
        entry = next(entry);
    }
    store(unit, value);
}

/// What the launch does: one of the four functions above.
fn step(i: u32) { gather(i); }

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    step(id.x + id.y * (groups.x * THREADS));
}
