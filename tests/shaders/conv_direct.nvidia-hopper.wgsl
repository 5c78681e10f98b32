// @generated for conv/0 f32: conv_direct THREADS=256
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
fn batches() -> u32 { return 1u; }
fn in_w() -> u32 { return 11u; }
fn in_h() -> u32 { return 13u; }
fn in_d() -> u32 { return 1u; }
fn out_w() -> u32 { return 6u; }
fn out_h() -> u32 { return 7u; }
fn out_d() -> u32 { return 1u; }
const THREADS = 256u;
alias E = f32;
const TRANSPOSED = false;
fn group_inputs() -> u32 { return 3u; }
fn group_outputs() -> u32 { return 10u; }
fn outputs() -> u32 { return 10u; }
fn src(b: u32, c: u32, z: u32, y: u32, x: u32) -> f32 {
    return f32(buffer_0[(c) * 143u + (y) * 11u + (x)]);
}
fn weight(o: u32, first: u32, i: u32, z: u32, y: u32, x: u32) -> f32 {
    return f32(buffer_1[(o) * 27u + (i) * 9u + (y) * 3u + (x)]);
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
fn position(at: u32, tap: u32, stride: i32, dilation: i32, pad: i32, size: u32, guard: bool) -> i32 {
    var p = i32(at) * stride - pad + i32(tap) * dilation;
    if (TRANSPOSED) {
        p = i32(at) + pad - i32(tap) * dilation;
        if (p < 0 || p % stride != 0) { return -1; }
        p = p / stride;
    }
    return select(-1, p, !guard || (p >= 0 && u32(p) < size));
}
@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let slices = (outputs() + 3u) / 4u;
    var rest = id.x + id.y * (groups.x * THREADS);
    if (rest >= batches() * slices * out_d() * out_h() * out_w()) { return; }
    var b = 0u;
    if (BATCH_INNER) {
        b = rest % batches();
        rest = rest / batches();
    }
    let x = rest % out_w();
    rest = rest / out_w();
    let y = rest % out_h();
    rest = rest / out_h();
    let z = rest % out_d();
    rest = rest / out_d();
    let s = rest % slices;
    if (!BATCH_INNER) { b = rest / slices; }
    var acc = vec4<E>();
    for (var kz = 0u; kz < KERNEL_Z; kz++) {
        let iz = position(z, kz, STRIDE_Z, DILATION_Z, PAD_Z, in_d(), GUARD_Z);
        if (GUARD_Z && iz < 0) { continue; }
        for (var ky = 0u; ky < KERNEL_Y; ky++) {
            let iy = position(y, ky, STRIDE_Y, DILATION_Y, PAD_Y, in_h(), GUARD_Y);
            if (GUARD_Y && iy < 0) { continue; }
            for (var kx = 0u; kx < KERNEL_X; kx++) {
                let ix = position(x, kx, STRIDE_X, DILATION_X, PAD_X, in_w(), GUARD_X);
                if (GUARD_X && ix < 0) { continue; }
                for (var i = 0u; i < group_inputs(); i++) {
                    {
                        let o = s * 4u + 0u;
                        if (o < outputs()) {
                            let first = o / group_outputs() * group_inputs();
                            let v = E(src(b, first + i, u32(iz), u32(iy), u32(ix)));
                            acc[0u] += v * E(weight(o, first, i, kz, ky, kx));
                        }
                    }
{
                        let o = s * 4u + 1u;
                        if (o < outputs()) {
                            let first = o / group_outputs() * group_inputs();
                            let v = E(src(b, first + i, u32(iz), u32(iy), u32(ix)));
                            acc[1u] += v * E(weight(o, first, i, kz, ky, kx));
                        }
                    }
{
                        let o = s * 4u + 2u;
                        if (o < outputs()) {
                            let first = o / group_outputs() * group_inputs();
                            let v = E(src(b, first + i, u32(iz), u32(iy), u32(ix)));
                            acc[2u] += v * E(weight(o, first, i, kz, ky, kx));
                        }
                    }
{
                        let o = s * 4u + 3u;
                        if (o < outputs()) {
                            let first = o / group_outputs() * group_inputs();
                            let v = E(src(b, first + i, u32(iz), u32(iy), u32(ix)));
                            acc[3u] += v * E(weight(o, first, i, kz, ky, kx));
                        }
                    }
                }
            }
        }
    }
    store(b, z, y, x, s, acc);
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read> buffer_1: array<f32>;
@group(0) @binding(2) var<storage, read> buffer_2: array<f32>;
@group(0) @binding(3) var<storage, read_write> buffer_3: array<f32>;
