// Convolution and transposed convolution over one to three spatial axes, with any groups and with filters that may be
// computed at run time. Each invocation computes four output channels of one pixel, one tap and input channel at a
// time. This kernel is the fallback if no faster kernel applies.
//
// Preludes: `window.wgsl` and `image_sizes.wgsl`.
//
// The compiler replaces the element type, the window geometry, the sizes and the hooks. The hook `weight` is called
// only inside the filters, `src` only inside the image along axes with a guard.

const THREADS = 64u;

alias E = f32;

/// True for a transposed convolution, in which strides are distances between input pixels in the output.
const TRANSPOSED = false;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read> filters: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

/// Number of input channels of a group.
fn group_inputs() -> u32 { return 4u; }
/// Number of output channels of a group.
fn group_outputs() -> u32 { return 4u; }
/// Number of output channels of all groups.
fn outputs() -> u32 { return 4u; }

/// Loads input channel c of a pixel.
fn src(b: u32, c: u32, z: u32, y: u32, x: u32) -> f32 { return source[((b * 4u + c) * 8u + y) * 8u + x + z]; }
/// Loads the filter weight of output channel o and input channel `first + i` at a tap (x, y, z). `first` is the first
/// input channel of the group that o belongs to.
fn weight(o: u32, first: u32, i: u32, z: u32, y: u32, x: u32) -> f32 {
    return filters[((o * 4u + first + i) * 3u + y) * 3u + x + z];
}
/// Applies the epilogue to channels `4s..4s+4` of a result pixel and stores them.
fn store(b: u32, z: u32, y: u32, x: u32, s: u32, v: vec4<E>) { result[((s * 8u + y) * 8u + x) + b + z] = v; }

/// Returns the input position that a tap reads for output position `at` along an axis. Returns -1 if the tap reads no
/// input position, or if `guard` is true and the position is outside the image.
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
                    // unroll
                    for (var lane = 0u; lane < 4u; lane++) {
                        let o = s * 4u + lane;
                        if (o < outputs()) {
                            let first = o / group_outputs() * group_inputs();
                            let v = E(src(b, first + i, u32(iz), u32(iy), u32(ix)));
                            acc[lane] += v * E(weight(o, first, i, kz, ky, kx));
                        }
                    }
                }
            }
        }
    }
    store(b, z, y, x, s, acc);
}
