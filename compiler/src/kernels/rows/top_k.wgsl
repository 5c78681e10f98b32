// Top-k: first COUNT elements of each row by descending sort key, then by position. One workgroup computes a row. A row
// of at most TILE elements is sorted as a whole. For a longer row, the lower half of the tile holds the best elements
// so far, in order. Elements that precede the COUNT-th best element are appended to the upper half. Before the upper
// half can overflow, the tile is sorted again. Few elements of a long row are appended, so there are few sorts. COUNT
// must fit in half of the largest tile.
//
// The compiler replaces the knobs, the sizes, the types, and the hooks `load`, `key`, `output_of` and `store`.

const THREADS = 64u;
const TILE = 256u;
const HALF = TILE / 2u;
const COUNT = 10u;
/// Number of elements of a row that an invocation examines before the workgroup checks whether its tile in workgroup
/// memory may overflow.
const ROUND_ELEMENTS = 2u;
/// True if a whole row fits in the tile.
const WHOLE = false;
const_assert TILE >= 2u && (TILE & (TILE - 1u)) == 0u;
const_assert WHOLE || (COUNT <= HALF && THREADS * ROUND_ELEMENTS <= HALF);

alias V = f32;
alias U = u32;
alias R = f32;
struct Entry { key: u32, at: u32 }
const NONE = Entry(0u, 0xffffffffu);

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

/// Number of rows.
fn rows() -> u32 { return 3u; }
/// Number of elements per row.
fn length() -> u32 { return 1000u; }
fn load(row: u32, i: u32) -> V { return source[row * 1000u + i]; }
fn key(x: V) -> U { return bitcast<U>(x); }
/// Returns what the kernel outputs for the element at position `at` of a row: its value, or its position.
fn output_of(row: u32, at: u32) -> R { return load(row, at); }
fn store(row: u32, i: u32, v: R) { result[row * COUNT + i] = v; }

var<workgroup> tile: array<Entry, TILE>;
var<workgroup> pending: atomic<u32>;
var<workgroup> must_sort: u32;

fn is_before(a: Entry, b: Entry) -> bool { return a.key > b.key || (a.key == b.key && a.at < b.at); }

/// Sorts the elements of the tile with a bitonic network.
fn sort(local: u32) {
    for (var size = 2u; size <= TILE; size *= 2u) {
        for (var step = size / 2u; step > 0u; step /= 2u) {
            for (var i = local; i < TILE / 2u; i += THREADS) {
                let low = 2u * i - (i & (step - 1u));
                let a = tile[low];
                let b = tile[low + step];
                if (is_before(b, a) == ((low & size) == 0u)) {
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
    if (local == 0u) { atomicStore(&pending, 0u); }
    workgroupBarrier();
    if (WHOLE) {
        sort(local);
    } else {
        for (var base = 0u; base < n; base += THREADS * ROUND_ELEMENTS) {
            let threshold = tile[COUNT - 1u];
            for (var k = 0u; k < ROUND_ELEMENTS; k++) {
                let i = base + k * THREADS + local;
                if (i < n) {
                    let entry = Entry(key(load(row, i)), i);
                    if (is_before(entry, threshold)) { tile[HALF + atomicAdd(&pending, 1u)] = entry; }
                }
            }
            workgroupBarrier();
            // The tile is sorted if the elements of the next round might not fit, and after the last round.
            if (local == 0u) {
                let count = atomicLoad(&pending);
                must_sort = u32(count + THREADS * ROUND_ELEMENTS > HALF || base + THREADS * ROUND_ELEMENTS >= n);
            }
            if (workgroupUniformLoad(&must_sort) != 0u) {
                sort(local);
                for (var i = local; i < HALF; i += THREADS) { tile[HALF + i] = NONE; }
                if (local == 0u) { atomicStore(&pending, 0u); }
                workgroupBarrier();
            }
        }
    }
    for (var i = local; i < COUNT; i += THREADS) { store(row, i, output_of(row, min(tile[i].at, n - 1u))); }
}
