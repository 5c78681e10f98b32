// @generated for top_k/0 f32: top_k THREADS=256 TILE=2048 WHOLE=0
const THREADS = 256u;
const TILE = 2048u;
const HALF = TILE / 2u;
const COUNT = 40u;
const ROUND_ELEMENTS = 4u;
const WHOLE = false;
const_assert TILE >= 2u && (TILE & (TILE - 1u)) == 0u;
const_assert WHOLE || (COUNT <= HALF && THREADS * ROUND_ELEMENTS <= HALF);
alias V = f32;
alias U = u32;
alias R = f32;
struct Entry { key: u32, at: u32 }
const NONE = Entry(0u, 0xffffffffu);
fn rows() -> u32 { return 3u; }
fn length() -> u32 { return 20011u; }
fn load(row: u32, i: u32) -> f32 {
    let row_0 = row;
    let i_1 = i;
    return f32(buffer_0[(row_0) * 20011u + (i_1)]);
}
fn key(x: V) -> U {
    let bits = bitcast<U>(select(x, V(0.0), x == V(0.0)));
    let ordered = select(bits | U(0x80000000u), ~bits, (bits & U(0x80000000u)) != U(0u));
    let k = select(ordered, U(0xffffffffu), (bits & U(0x7fffffffu)) > U(0x7f800000u));
    return k;
}
fn output_of(row: u32, at: u32) -> R { return load(row, at); }
fn store(row: u32, i: u32, v: f32) {
    let row_0 = row;
    let i_1 = i;
    buffer_1[(row_0) * 40u + (i_1)] = f32(v);
}
var<workgroup> tile: array<Entry, TILE>;
var<workgroup> pending: atomic<u32>;
var<workgroup> must_sort: u32;
fn is_before(a: Entry, b: Entry) -> bool { return a.key > b.key || (a.key == b.key && a.at < b.at); }
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
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read_write> buffer_1: array<f32>;
