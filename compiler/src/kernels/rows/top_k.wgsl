// The COUNT first elements of each row by descending key, ties by position; a workgroup per row.
// A row that fits TILE is sorted whole. Of a longer one the better half of the tile is kept sorted; elements that come
// before the COUNT-th of them are collected in the other half, and when it could overflow the tile is sorted again.
// Few elements of a long row pass, so few sorts are needed. Picked when COUNT fits half of the largest tile.
//
// Replaced: the knobs, the sizes, the types, `load`, `key`, `chosen` and `store`.

const THREADS = 64u;
const TILE = 256u;
const HALF = TILE / 2u;
const COUNT = 10u;
/// Elements that an invocation looks at between two checks of the tile's room.
const KEEP = 2u;
/// Whether a row fits the tile.
const WHOLE = false;
const_assert TILE >= 2u && (TILE & (TILE - 1u)) == 0u;
const_assert WHOLE || (COUNT <= HALF && THREADS * KEEP <= HALF);

alias V = f32;
alias U = u32;
alias R = f32;
struct Entry { key: u32, at: u32 }
const NONE = Entry(0u, 0xffffffffu);

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

var<workgroup> tile: array<Entry, TILE>;
var<workgroup> waiting: atomic<u32>;
var<workgroup> full: u32;

fn precedes(a: Entry, b: Entry) -> bool { return a.key > b.key || (a.key == b.key && a.at < b.at); }

/// Sorts the tile: a bitonic network.
fn sort(local: u32) {
    for (var size = 2u; size <= TILE; size *= 2u) {
        for (var step = size / 2u; step > 0u; step /= 2u) {
            for (var i = local; i < TILE / 2u; i += THREADS) {
                let low = 2u * i - (i & (step - 1u));
                let a = tile[low];
                let b = tile[low + step];
                if (precedes(b, a) == ((low & size) == 0u)) {
                    tile[low] = b;
                    tile[low + step] = a;
                }
            }
            workgroupBarrier();
        }
    }
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let row = group.x + group.y * groups.x;
    if (row >= rows()) { return; }
    let n = length();
    for (var i = local; i < TILE; i += THREADS) {
        tile[i] = NONE;
        if (WHOLE && i < n) { tile[i] = Entry(key(load(row, i)), i); }
    }
    if (local == 0u) { atomicStore(&waiting, 0u); }
    workgroupBarrier();
    if (WHOLE) {
        sort(local);
    } else {
        for (var base = 0u; base < n; base += THREADS * KEEP) {
            let threshold = tile[COUNT - 1u];
            for (var k = 0u; k < KEEP; k++) {
                let i = base + k * THREADS + local;
                if (i < n) {
                    let entry = Entry(key(load(row, i)), i);
                    if (precedes(entry, threshold)) { tile[HALF + atomicAdd(&waiting, 1u)] = entry; }
                }
            }
            workgroupBarrier();
            // Sort when the next round might not fit, and after the last one.
            if (local == 0u) {
                let count = atomicLoad(&waiting);
                full = u32(count + THREADS * KEEP > HALF || base + THREADS * KEEP >= n);
            }
            if (workgroupUniformLoad(&full) != 0u) {
                sort(local);
                for (var i = local; i < HALF; i += THREADS) { tile[HALF + i] = NONE; }
                if (local == 0u) { atomicStore(&waiting, 0u); }
                workgroupBarrier();
            }
        }
    }
    for (var i = local; i < COUNT; i += THREADS) { store(row, i, chosen(row, min(tile[i].at, n - 1u))); }
}
