// @generated for matmul/26 f32: matvec_dot LANES_K=16 LANES_N=8 ROWS=1 STAGED_WORDS=76
const LANES_K = 16u;
const LANES_N = 8u;
const THREADS = LANES_K * LANES_N;
const ROWS = 1u;
const STAGED_WORDS = 76u;
const K_FIRST = false;
const FLIP_A = true;
const FLIP_B = true;
const ONES = 0x01010101u;
const_assert LANES_K > 0u && (LANES_K & (LANES_K - 1u)) == 0u;
const FLIPPED = -128i;
fn size_m() -> u32 { return 1u; }
fn size_n() -> u32 { return 85u; }
fn size_k() -> u32 { return 302u; }
fn word_a_elements(batch: u32, row: u32, k4: u32) -> vec4<i32> {
    var r: vec4<i32> = vec4<i32>(0i);
    r.x = i32(buffer_0_element((((k4) * 4u))));
    if ((k4) * 4u + 1u < 302u) { r.y = i32(buffer_0_element((((k4) * 4u)) + 1u)); }
    if ((k4) * 4u + 2u < 302u) { r.z = i32(buffer_0_element((((k4) * 4u)) + 2u)); }
    if ((k4) * 4u + 3u < 302u) { r.w = i32(buffer_0_element((((k4) * 4u)) + 3u)); }
    return r;
}
fn word_a(batch: u32, row: u32, k4: u32) -> u32 { return pack_bytes(vec4<u32>(word_a_elements(batch, row, k4))); }
fn load_a(batch: u32, row: u32, k4: u32) -> u32 { return (word_a(batch, row, k4) ^ 0x80808080u); }
fn load_b(batch: u32, k4: u32, n4: u32) -> vec4<u32> { return (buffer_1[k4 * 22u + n4] ^ vec4<u32>(0x80808080u)); }
fn store(batch: u32, row: u32, n4: u32, v: vec4<i32>) {
    let s1 = vec4<f32>(v);
    let w = vec4<f32>(s1);
    buffer_2[(((n4) * 4u))] = w.x;
    if ((n4) * 4u + 1u < 85u) { buffer_2[(((n4) * 4u)) + 1u] = w.y; }
    if ((n4) * 4u + 2u < 85u) { buffer_2[(((n4) * 4u)) + 2u] = w.z; }
    if ((n4) * 4u + 3u < 85u) { buffer_2[(((n4) * 4u)) + 3u] = w.w; }
}
fn dot4(a: u32, b: u32) -> i32 { return i32(dot4U8Packed(a, b)); }
fn pack_bytes(v: vec4<u32>) -> u32 {
    return insertBits(insertBits(insertBits(v.x, v.y, 8u, 24u), v.z, 16u, 16u), v.w, 24u, 8u);
}
fn dot4_columns(a: u32, b: vec4<u32>) -> vec4<i32> {
    return vec4<i32>(dot4(a, b.x), dot4(a, b.y), dot4(a, b.z), dot4(a, b.w));
}
var<workgroup> staged_rows: array<u32, ROWS * STAGED_WORDS>;
var<workgroup> partial_sums: array<vec4<i32>, THREADS * ROWS>;
@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let lane_k = select(local / LANES_N, local % LANES_K, K_FIRST);
    let lane_n = select(local % LANES_N, local / LANES_K, K_FIRST);
    let batch = group.z;
    let first = group.y * ROWS;
    let n4 = group.x * LANES_N + lane_n;
    let inside = n4 < (size_n() + 3u) / 4u;
    let k4_end = (size_k() + 3u) / 4u;
    let last = size_m() - 1u;
    var acc: array<vec4<i32>, ROWS>;
    { acc[0u] = vec4<i32>(); }
    for (var start = 0u; start < k4_end; start += STAGED_WORDS) {
        let words = min(STAGED_WORDS, k4_end - start);
        for (var i = local; i < ROWS * STAGED_WORDS; i += THREADS) {
            let k = i % STAGED_WORDS;
            if (k < words) { staged_rows[i] = load_a(batch, min(first + i / STAGED_WORDS, last), start + k); }
        }
        workgroupBarrier();
        let end = select(0u, words, inside);
        for (var k = lane_k; k < end; k += LANES_K) {
            let b = load_b(batch, start + k, n4);
            var correction = vec4<i32>();
            if (FLIP_A) { correction = dot4_columns(ONES, b) * FLIPPED; }
            if (FLIP_A && FLIP_B) { correction += vec4<i32>(4i * FLIPPED * FLIPPED); }
            {
                let a = staged_rows[0u * STAGED_WORDS + k];
                var sum = dot4_columns(a, b) + correction;
                if (FLIP_B) { sum += vec4<i32>(dot4(a, ONES) * FLIPPED); }
                acc[0u] += sum;
            }
        }
        workgroupBarrier();
    }
    if (LANES_K > 1u) {
        let here = lane_k * LANES_N + lane_n;
        { partial_sums[here + 0u * THREADS] = acc[0u]; }
        workgroupBarrier();
        for (var distance = LANES_K / 2u; distance > 0u; distance /= 2u) {
            if (lane_k < distance) {
                {
                    partial_sums[here + 0u * THREADS] += partial_sums[here + distance * LANES_N + 0u * THREADS];
                }
            }
            workgroupBarrier();
        }
        { acc[0u] = partial_sums[here + 0u * THREADS]; }
    }
    if (lane_k == 0u && inside) {
        {
            if (first + 0u <= last) { store(batch, first + 0u, n4, acc[0u]); }
        }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<u32>;
fn buffer_0_element(i: u32) -> i32 { return extractBits(i32(buffer_0[i / 4u]), i % 4u * 8u, 8u); }
@group(0) @binding(1) var<storage, read> buffer_1: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> buffer_2: array<f32>;
