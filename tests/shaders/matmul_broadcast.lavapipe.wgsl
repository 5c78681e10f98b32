// @generated for matmul/1 f32: matmul_broadcast THREADS=8 ROWS=4
const LANES = 8u;
const THREADS = 8u;
const ROWS = 4u;
const DEPTH = 22u;
const_assert LANES > 0u && THREADS % LANES == 0u && ROWS > 0u && DEPTH > 0u;
fn size_m() -> u32 { return 150u; }
fn column_vec4s() -> u32 { return 18u; }
fn load_a(batch: u32, row: u32, k4: u32) -> vec4<f32> {
    return vec4<f32>(buffer_0[(row) * 22u + (k4)]);
}
fn load_b(k: u32, n4: u32) -> vec4<f32> { return vec4<f32>(textureLoad(buffer_1, vec2<u32>(((n4 / 16u * 88u + k) * 16u + n4 % 16u) % 64u, ((n4 / 16u * 88u + k) * 16u + n4 % 16u) / 64u), 0)); }
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) {
    let s1 = max(v, vec4<f32>(0.0));
    var w = vec4<f32>(s1);
    buffer_2[(row) * 18u + (n4)] = w;
}
@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let batch = group.z;
    let first = group.y * ROWS;
    let column = group.x * THREADS + subgroup * LANES + lane;
    let n4 = min(column, column_vec4s() - 1u);
    var acc: array<vec4<f32>, ROWS>;
    { acc[0u] = vec4<f32>(0.0); }
{ acc[1u] = vec4<f32>(0.0); }
{ acc[2u] = vec4<f32>(0.0); }
{ acc[3u] = vec4<f32>(0.0); }
    for (var k4 = 0u; k4 < DEPTH; k4 += LANES) {
        var own: array<vec4<f32>, ROWS>;
        {
            let loaded = load_a(batch, min(first + 0u, size_m() - 1u), min(k4 + lane, DEPTH - 1u));
            own[0u] = select(vec4<f32>(0.0), loaded, k4 + lane < DEPTH);
        }
{
            let loaded = load_a(batch, min(first + 1u, size_m() - 1u), min(k4 + lane, DEPTH - 1u));
            own[1u] = select(vec4<f32>(0.0), loaded, k4 + lane < DEPTH);
        }
{
            let loaded = load_a(batch, min(first + 2u, size_m() - 1u), min(k4 + lane, DEPTH - 1u));
            own[2u] = select(vec4<f32>(0.0), loaded, k4 + lane < DEPTH);
        }
{
            let loaded = load_a(batch, min(first + 3u, size_m() - 1u), min(k4 + lane, DEPTH - 1u));
            own[3u] = select(vec4<f32>(0.0), loaded, k4 + lane < DEPTH);
        }
        {
            let k = min(k4 + 0u, DEPTH - 1u) * 4u;
            let w0 = load_b(k, n4);
            let w1 = load_b(k + 1u, n4);
            let w2 = load_b(k + 2u, n4);
            let w3 = load_b(k + 3u, n4);
            {
                let x = subgroupShuffle(own[0u], 0u);
                acc[0u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[1u], 0u);
                acc[1u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[2u], 0u);
                acc[2u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[3u], 0u);
                acc[3u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
        }
{
            let k = min(k4 + 1u, DEPTH - 1u) * 4u;
            let w0 = load_b(k, n4);
            let w1 = load_b(k + 1u, n4);
            let w2 = load_b(k + 2u, n4);
            let w3 = load_b(k + 3u, n4);
            {
                let x = subgroupShuffle(own[0u], 1u);
                acc[0u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[1u], 1u);
                acc[1u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[2u], 1u);
                acc[2u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[3u], 1u);
                acc[3u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
        }
{
            let k = min(k4 + 2u, DEPTH - 1u) * 4u;
            let w0 = load_b(k, n4);
            let w1 = load_b(k + 1u, n4);
            let w2 = load_b(k + 2u, n4);
            let w3 = load_b(k + 3u, n4);
            {
                let x = subgroupShuffle(own[0u], 2u);
                acc[0u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[1u], 2u);
                acc[1u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[2u], 2u);
                acc[2u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[3u], 2u);
                acc[3u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
        }
{
            let k = min(k4 + 3u, DEPTH - 1u) * 4u;
            let w0 = load_b(k, n4);
            let w1 = load_b(k + 1u, n4);
            let w2 = load_b(k + 2u, n4);
            let w3 = load_b(k + 3u, n4);
            {
                let x = subgroupShuffle(own[0u], 3u);
                acc[0u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[1u], 3u);
                acc[1u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[2u], 3u);
                acc[2u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[3u], 3u);
                acc[3u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
        }
{
            let k = min(k4 + 4u, DEPTH - 1u) * 4u;
            let w0 = load_b(k, n4);
            let w1 = load_b(k + 1u, n4);
            let w2 = load_b(k + 2u, n4);
            let w3 = load_b(k + 3u, n4);
            {
                let x = subgroupShuffle(own[0u], 4u);
                acc[0u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[1u], 4u);
                acc[1u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[2u], 4u);
                acc[2u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[3u], 4u);
                acc[3u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
        }
{
            let k = min(k4 + 5u, DEPTH - 1u) * 4u;
            let w0 = load_b(k, n4);
            let w1 = load_b(k + 1u, n4);
            let w2 = load_b(k + 2u, n4);
            let w3 = load_b(k + 3u, n4);
            {
                let x = subgroupShuffle(own[0u], 5u);
                acc[0u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[1u], 5u);
                acc[1u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[2u], 5u);
                acc[2u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[3u], 5u);
                acc[3u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
        }
{
            let k = min(k4 + 6u, DEPTH - 1u) * 4u;
            let w0 = load_b(k, n4);
            let w1 = load_b(k + 1u, n4);
            let w2 = load_b(k + 2u, n4);
            let w3 = load_b(k + 3u, n4);
            {
                let x = subgroupShuffle(own[0u], 6u);
                acc[0u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[1u], 6u);
                acc[1u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[2u], 6u);
                acc[2u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[3u], 6u);
                acc[3u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
        }
{
            let k = min(k4 + 7u, DEPTH - 1u) * 4u;
            let w0 = load_b(k, n4);
            let w1 = load_b(k + 1u, n4);
            let w2 = load_b(k + 2u, n4);
            let w3 = load_b(k + 3u, n4);
            {
                let x = subgroupShuffle(own[0u], 7u);
                acc[0u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[1u], 7u);
                acc[1u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[2u], 7u);
                acc[2u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
{
                let x = subgroupShuffle(own[3u], 7u);
                acc[3u] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
        }
    }
    {
        if (first + 0u < size_m() && column < column_vec4s()) { store(batch, first + 0u, n4, acc[0u]); }
    }
{
        if (first + 1u < size_m() && column < column_vec4s()) { store(batch, first + 1u, n4, acc[1u]); }
    }
{
        if (first + 2u < size_m() && column < column_vec4s()) { store(batch, first + 2u, n4, acc[2u]); }
    }
{
        if (first + 3u < size_m() && column < column_vec4s()) { store(batch, first + 3u, n4, acc[3u]); }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<vec4<f32>>;
@group(0) @binding(1) var buffer_1: texture_2d<f32>;
@group(0) @binding(2) var<storage, read_write> buffer_2: array<vec4<f32>>;
