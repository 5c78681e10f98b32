// Convolution and transposed convolution over one to three spatial axes, with any groups and with filters that may be
// computed at run time. Each invocation computes four output channels of one pixel, one tap and input channel at a
// time. The fallback if no faster kernel applies.
//
// Replaced by the compiler: element type, geometry, sizes and hooks. `weight` is called only inside its tensor, `src`
// only inside the image along guarded axes.

const THREADS = 64u;

alias E = f32;

const KERNEL_X = 3u;
const KERNEL_Y = 3u;
const KERNEL_Z = 1u;
const STRIDE_X = 1i;
const STRIDE_Y = 1i;
const STRIDE_Z = 1i;
const DILATION_X = 1i;
const DILATION_Y = 1i;
const DILATION_Z = 1i;
const PAD_X = 1i;
const PAD_Y = 1i;
const PAD_Z = 0i;
/// True for a transposed convolution, whose strides spread the input.
const TRANSPOSED = false;
/// True if taps may be outside the image along an axis and must be skipped.
const GUARD_X = true;
const GUARD_Y = true;
const GUARD_Z = true;
/// True if the batch is the fastest index of the grid, false if it is the slowest.
const BATCH_INNER = true;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read> filters: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn batches() -> u32 { return 1u; }
/// Input and output channels of one group, and output channels of all groups.
fn group_inputs() -> u32 { return 4u; }
fn group_outputs() -> u32 { return 4u; }
fn outputs() -> u32 { return 4u; }
fn in_w() -> u32 { return 8u; }
fn in_h() -> u32 { return 8u; }
fn in_d() -> u32 { return 1u; }
fn out_w() -> u32 { return 8u; }
fn out_h() -> u32 { return 8u; }
fn out_d() -> u32 { return 1u; }

/// Input channel c of a pixel, in the type of the input.
fn src(b: u32, c: u32, z: u32, y: u32, x: u32) -> f32 { return source[((b * 4u + c) * 8u + y) * 8u + x + z]; }
/// The filter of output channel o for input channel `first + i`, at a tap. `first` is the first input channel of the
/// group of o.
fn weight(o: u32, first: u32, i: u32, z: u32, y: u32, x: u32) -> f32 {
    return filters[((o * 4u + first + i) * 3u + y) * 3u + x + z];
}
/// Applies the epilogue to channels `4s..4s+4` of a position and stores them.
fn store(b: u32, z: u32, y: u32, x: u32, s: u32, v: vec4<E>) { result[((s * 8u + y) * 8u + x) + b + z] = v; }

/// Returns the input position of a tap for output position `at`, or -1 if it is outside and guarded.
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
