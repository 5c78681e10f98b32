// @generated for conv/0 f32: conv_broadcast THREADS=64 TILE_X=8 BLOCK_X=1 SLICES=1
const KERNEL_X = 3u;
const KERNEL_Y = 3u;
const KERNEL_Z = 1u;
const STRIDE_X = 2i;
const STRIDE_Y = 2i;
const STRIDE_Z = 1i;
const DILATION_X = 1i;
const DILATION_Y = 1i;
const DILATION_Z = 1i;
const PAD_X = 1i;
const PAD_Y = 1i;
const PAD_Z = 0i;
const GUARD_X = true;
const GUARD_Y = true;
const GUARD_Z = false;
const BATCH_INNER = false;
const DEEP = false;
fn batches() -> u32 { return 1u; }
fn in_w() -> u32 { return 11u; }
fn in_h() -> u32 { return 13u; }
fn in_d() -> u32 { return 1u; }
fn out_w() -> u32 { return 6u; }
fn out_h() -> u32 { return 7u; }
fn out_d() -> u32 { return 1u; }
fn src(b: u32, z: u32, y: u32, x: u32, s: u32) -> vec4<f32> {
    var r: vec4<f32> = vec4<f32>(0.0);
    r.x = f32(buffer_0[(y) * 11u + (x) + (((0u) * 4u)) * 143u]);
    if ((0u) * 4u + 1u < 3u) { r.y = f32(buffer_0[(y) * 11u + (x) + (((0u) * 4u)) * 143u + 143u]); }
    if ((0u) * 4u + 2u < 3u) { r.z = f32(buffer_0[(y) * 11u + (x) + (((0u) * 4u)) * 143u + 286u]); }
    if ((0u) * 4u + 3u < 3u) { r.w = f32(buffer_0[(y) * 11u + (x) + (((0u) * 4u)) * 143u + 429u]); }
    return r;
}
fn store(b: u32, z: u32, y: u32, x: u32, s: u32, v: vec4<f32>) {
    var l2: vec4<f32> = vec4<f32>(0.0);
    l2.x = f32(buffer_2[(((s) * 4u))]);
    if ((s) * 4u + 1u < 10u) { l2.y = f32(buffer_2[(((s) * 4u)) + 1u]); }
    if ((s) * 4u + 2u < 10u) { l2.z = f32(buffer_2[(((s) * 4u)) + 2u]); }
    if ((s) * 4u + 3u < 10u) { l2.w = f32(buffer_2[(((s) * 4u)) + 3u]); }
    let x2 = l2;
    let s1 = (v + x2);
    let s2 = max(s1, vec4<f32>(0.0));
    let w = vec4<f32>(s2);
    buffer_3[(y) * 6u + (x) + (((s) * 4u)) * 42u] = w.x;
    if ((s) * 4u + 1u < 10u) { buffer_3[(y) * 6u + (x) + (((s) * 4u)) * 42u + 42u] = w.y; }
    if ((s) * 4u + 2u < 10u) { buffer_3[(y) * 6u + (x) + (((s) * 4u)) * 42u + 84u] = w.z; }
    if ((s) * 4u + 3u < 10u) { buffer_3[(y) * 6u + (x) + (((s) * 4u)) * 42u + 126u] = w.w; }
}
const IN_SLICES = 1u;
const OUT_SLICES = 3u;
fn weight(i: u32) -> vec4<f32> { return vec4<f32>(buffer_1[i]); }
const LANES = 32u;
const THREADS = 64u;
const TILE_X = 8u;
const BLOCK_X = 1u;
const SLICES = 1u;
const STEPS = 8u;
const_assert STEPS * SLICES * 4u == LANES && STEPS > 0u && THREADS % LANES == 0u;
const ALL_STEPS = KERNEL_X * KERNEL_Y * KERNEL_Z * IN_SLICES;
@compute @workgroup_size(THREADS, 1, 1)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    var block_x = group.x * TILE_X + local % TILE_X;
    let y = group.y * (THREADS / TILE_X) + local / TILE_X;
    var block_s = group.z;
    var b = 0u;
    if (BATCH_INNER) {
        b = block_x % batches();
        block_x = block_x / batches();
    } else {
        b = block_s % batches();
        block_s = block_s / batches();
    }
    var z = 0u;
    if (DEEP) {
        z = block_s % out_d();
        block_s = block_s / out_d();
    }
    let first_x = block_x * BLOCK_X;
    var base_x: array<i32, BLOCK_X>;
    { base_x[0u] = i32(min(first_x + 0u, out_w() - 1u)) * STRIDE_X - PAD_X; }
    let base_z = i32(z) * STRIDE_Z - PAD_Z;
    let base_y = i32(min(y, out_h() - 1u)) * STRIDE_Y - PAD_Y;
    var acc: array<vec4<f32>, BLOCK_X * SLICES>;
    { acc[0u] = vec4<f32>(0.0); }
    let first = block_s * (ALL_STEPS * SLICES * 4u);
    for (var first_step = 0u; first_step < ALL_STEPS; first_step += STEPS) {
        let lane_filters = weight(first + min(first_step * (SLICES * 4u) + lane, ALL_STEPS * SLICES * 4u - 1u));
        {
            let step = min(first_step + 0u, ALL_STEPS - 1u);
            let is_step = first_step + 0u < ALL_STEPS;
            let tap = step / IN_SLICES;
            let s = step % IN_SLICES;
            var ky = tap / KERNEL_X;
            var plane = 0u;
            if (DEEP) {
                plane = u32(base_z + i32(ky / KERNEL_Y) * DILATION_Z);
                ky = ky % KERNEL_Y;
            }
            let row = u32(base_y + i32(ky) * DILATION_Y);
            let inside_y = is_step && (!GUARD_Y || row < in_h()) && (!GUARD_Z || plane < in_d());
            var v: array<vec4<f32>, BLOCK_X>;
            {
                let x = u32(base_x[0u] + i32(tap % KERNEL_X) * DILATION_X);
                let inside = inside_y && (!GUARD_X || x < in_w());
                let pixel = src(b, select(0u, plane, inside), select(0u, row, inside), select(0u, x, inside), s);
                v[0u] = select(vec4<f32>(0.0), pixel, inside);
            }
            {
                {
                    let w = subgroupShuffle(lane_filters, (0u * SLICES + 0u) * 4u + 0u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][0u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (0u * SLICES + 0u) * 4u + 1u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][1u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (0u * SLICES + 0u) * 4u + 2u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][2u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (0u * SLICES + 0u) * 4u + 3u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][3u]), w, acc[0u * SLICES + 0u]);
                    }
                }
            }
        }
{
            let step = min(first_step + 1u, ALL_STEPS - 1u);
            let is_step = first_step + 1u < ALL_STEPS;
            let tap = step / IN_SLICES;
            let s = step % IN_SLICES;
            var ky = tap / KERNEL_X;
            var plane = 0u;
            if (DEEP) {
                plane = u32(base_z + i32(ky / KERNEL_Y) * DILATION_Z);
                ky = ky % KERNEL_Y;
            }
            let row = u32(base_y + i32(ky) * DILATION_Y);
            let inside_y = is_step && (!GUARD_Y || row < in_h()) && (!GUARD_Z || plane < in_d());
            var v: array<vec4<f32>, BLOCK_X>;
            {
                let x = u32(base_x[0u] + i32(tap % KERNEL_X) * DILATION_X);
                let inside = inside_y && (!GUARD_X || x < in_w());
                let pixel = src(b, select(0u, plane, inside), select(0u, row, inside), select(0u, x, inside), s);
                v[0u] = select(vec4<f32>(0.0), pixel, inside);
            }
            {
                {
                    let w = subgroupShuffle(lane_filters, (1u * SLICES + 0u) * 4u + 0u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][0u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (1u * SLICES + 0u) * 4u + 1u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][1u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (1u * SLICES + 0u) * 4u + 2u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][2u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (1u * SLICES + 0u) * 4u + 3u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][3u]), w, acc[0u * SLICES + 0u]);
                    }
                }
            }
        }
{
            let step = min(first_step + 2u, ALL_STEPS - 1u);
            let is_step = first_step + 2u < ALL_STEPS;
            let tap = step / IN_SLICES;
            let s = step % IN_SLICES;
            var ky = tap / KERNEL_X;
            var plane = 0u;
            if (DEEP) {
                plane = u32(base_z + i32(ky / KERNEL_Y) * DILATION_Z);
                ky = ky % KERNEL_Y;
            }
            let row = u32(base_y + i32(ky) * DILATION_Y);
            let inside_y = is_step && (!GUARD_Y || row < in_h()) && (!GUARD_Z || plane < in_d());
            var v: array<vec4<f32>, BLOCK_X>;
            {
                let x = u32(base_x[0u] + i32(tap % KERNEL_X) * DILATION_X);
                let inside = inside_y && (!GUARD_X || x < in_w());
                let pixel = src(b, select(0u, plane, inside), select(0u, row, inside), select(0u, x, inside), s);
                v[0u] = select(vec4<f32>(0.0), pixel, inside);
            }
            {
                {
                    let w = subgroupShuffle(lane_filters, (2u * SLICES + 0u) * 4u + 0u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][0u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (2u * SLICES + 0u) * 4u + 1u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][1u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (2u * SLICES + 0u) * 4u + 2u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][2u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (2u * SLICES + 0u) * 4u + 3u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][3u]), w, acc[0u * SLICES + 0u]);
                    }
                }
            }
        }
{
            let step = min(first_step + 3u, ALL_STEPS - 1u);
            let is_step = first_step + 3u < ALL_STEPS;
            let tap = step / IN_SLICES;
            let s = step % IN_SLICES;
            var ky = tap / KERNEL_X;
            var plane = 0u;
            if (DEEP) {
                plane = u32(base_z + i32(ky / KERNEL_Y) * DILATION_Z);
                ky = ky % KERNEL_Y;
            }
            let row = u32(base_y + i32(ky) * DILATION_Y);
            let inside_y = is_step && (!GUARD_Y || row < in_h()) && (!GUARD_Z || plane < in_d());
            var v: array<vec4<f32>, BLOCK_X>;
            {
                let x = u32(base_x[0u] + i32(tap % KERNEL_X) * DILATION_X);
                let inside = inside_y && (!GUARD_X || x < in_w());
                let pixel = src(b, select(0u, plane, inside), select(0u, row, inside), select(0u, x, inside), s);
                v[0u] = select(vec4<f32>(0.0), pixel, inside);
            }
            {
                {
                    let w = subgroupShuffle(lane_filters, (3u * SLICES + 0u) * 4u + 0u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][0u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (3u * SLICES + 0u) * 4u + 1u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][1u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (3u * SLICES + 0u) * 4u + 2u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][2u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (3u * SLICES + 0u) * 4u + 3u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][3u]), w, acc[0u * SLICES + 0u]);
                    }
                }
            }
        }
{
            let step = min(first_step + 4u, ALL_STEPS - 1u);
            let is_step = first_step + 4u < ALL_STEPS;
            let tap = step / IN_SLICES;
            let s = step % IN_SLICES;
            var ky = tap / KERNEL_X;
            var plane = 0u;
            if (DEEP) {
                plane = u32(base_z + i32(ky / KERNEL_Y) * DILATION_Z);
                ky = ky % KERNEL_Y;
            }
            let row = u32(base_y + i32(ky) * DILATION_Y);
            let inside_y = is_step && (!GUARD_Y || row < in_h()) && (!GUARD_Z || plane < in_d());
            var v: array<vec4<f32>, BLOCK_X>;
            {
                let x = u32(base_x[0u] + i32(tap % KERNEL_X) * DILATION_X);
                let inside = inside_y && (!GUARD_X || x < in_w());
                let pixel = src(b, select(0u, plane, inside), select(0u, row, inside), select(0u, x, inside), s);
                v[0u] = select(vec4<f32>(0.0), pixel, inside);
            }
            {
                {
                    let w = subgroupShuffle(lane_filters, (4u * SLICES + 0u) * 4u + 0u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][0u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (4u * SLICES + 0u) * 4u + 1u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][1u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (4u * SLICES + 0u) * 4u + 2u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][2u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (4u * SLICES + 0u) * 4u + 3u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][3u]), w, acc[0u * SLICES + 0u]);
                    }
                }
            }
        }
{
            let step = min(first_step + 5u, ALL_STEPS - 1u);
            let is_step = first_step + 5u < ALL_STEPS;
            let tap = step / IN_SLICES;
            let s = step % IN_SLICES;
            var ky = tap / KERNEL_X;
            var plane = 0u;
            if (DEEP) {
                plane = u32(base_z + i32(ky / KERNEL_Y) * DILATION_Z);
                ky = ky % KERNEL_Y;
            }
            let row = u32(base_y + i32(ky) * DILATION_Y);
            let inside_y = is_step && (!GUARD_Y || row < in_h()) && (!GUARD_Z || plane < in_d());
            var v: array<vec4<f32>, BLOCK_X>;
            {
                let x = u32(base_x[0u] + i32(tap % KERNEL_X) * DILATION_X);
                let inside = inside_y && (!GUARD_X || x < in_w());
                let pixel = src(b, select(0u, plane, inside), select(0u, row, inside), select(0u, x, inside), s);
                v[0u] = select(vec4<f32>(0.0), pixel, inside);
            }
            {
                {
                    let w = subgroupShuffle(lane_filters, (5u * SLICES + 0u) * 4u + 0u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][0u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (5u * SLICES + 0u) * 4u + 1u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][1u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (5u * SLICES + 0u) * 4u + 2u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][2u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (5u * SLICES + 0u) * 4u + 3u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][3u]), w, acc[0u * SLICES + 0u]);
                    }
                }
            }
        }
{
            let step = min(first_step + 6u, ALL_STEPS - 1u);
            let is_step = first_step + 6u < ALL_STEPS;
            let tap = step / IN_SLICES;
            let s = step % IN_SLICES;
            var ky = tap / KERNEL_X;
            var plane = 0u;
            if (DEEP) {
                plane = u32(base_z + i32(ky / KERNEL_Y) * DILATION_Z);
                ky = ky % KERNEL_Y;
            }
            let row = u32(base_y + i32(ky) * DILATION_Y);
            let inside_y = is_step && (!GUARD_Y || row < in_h()) && (!GUARD_Z || plane < in_d());
            var v: array<vec4<f32>, BLOCK_X>;
            {
                let x = u32(base_x[0u] + i32(tap % KERNEL_X) * DILATION_X);
                let inside = inside_y && (!GUARD_X || x < in_w());
                let pixel = src(b, select(0u, plane, inside), select(0u, row, inside), select(0u, x, inside), s);
                v[0u] = select(vec4<f32>(0.0), pixel, inside);
            }
            {
                {
                    let w = subgroupShuffle(lane_filters, (6u * SLICES + 0u) * 4u + 0u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][0u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (6u * SLICES + 0u) * 4u + 1u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][1u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (6u * SLICES + 0u) * 4u + 2u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][2u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (6u * SLICES + 0u) * 4u + 3u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][3u]), w, acc[0u * SLICES + 0u]);
                    }
                }
            }
        }
{
            let step = min(first_step + 7u, ALL_STEPS - 1u);
            let is_step = first_step + 7u < ALL_STEPS;
            let tap = step / IN_SLICES;
            let s = step % IN_SLICES;
            var ky = tap / KERNEL_X;
            var plane = 0u;
            if (DEEP) {
                plane = u32(base_z + i32(ky / KERNEL_Y) * DILATION_Z);
                ky = ky % KERNEL_Y;
            }
            let row = u32(base_y + i32(ky) * DILATION_Y);
            let inside_y = is_step && (!GUARD_Y || row < in_h()) && (!GUARD_Z || plane < in_d());
            var v: array<vec4<f32>, BLOCK_X>;
            {
                let x = u32(base_x[0u] + i32(tap % KERNEL_X) * DILATION_X);
                let inside = inside_y && (!GUARD_X || x < in_w());
                let pixel = src(b, select(0u, plane, inside), select(0u, row, inside), select(0u, x, inside), s);
                v[0u] = select(vec4<f32>(0.0), pixel, inside);
            }
            {
                {
                    let w = subgroupShuffle(lane_filters, (7u * SLICES + 0u) * 4u + 0u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][0u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (7u * SLICES + 0u) * 4u + 1u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][1u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (7u * SLICES + 0u) * 4u + 2u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][2u]), w, acc[0u * SLICES + 0u]);
                    }
                }
{
                    let w = subgroupShuffle(lane_filters, (7u * SLICES + 0u) * 4u + 3u);
                    {
                        acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][3u]), w, acc[0u * SLICES + 0u]);
                    }
                }
            }
        }
    }
    {
        if (first_x + 0u < out_w() && y < out_h()) {
            {
                if (block_s * SLICES + 0u < OUT_SLICES) {
                    store(b, z, y, first_x + 0u, block_s * SLICES + 0u, acc[0u * SLICES + 0u]);
                }
            }
        }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> buffer_2: array<f32>;
@group(0) @binding(3) var<storage, read_write> buffer_3: array<f32>;
