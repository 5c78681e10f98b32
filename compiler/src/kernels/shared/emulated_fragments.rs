//! Matrix multiply-add that emulates the matrix instruction: fragments are exchanged through workgroup memory.
//!
//! This code replaces the matrix instruction on devices without matrix units, so that kernels that depend on the
//! fragment layout can be tested on every device.

/// WGSL function `multiply_fragments(local, a, b, c)`, which emulates a matrix multiply-add. The kernel has THREADS
/// invocations per workgroup, and LANES of them hold one fragment.
pub(crate) const WGSL: &str = "var<workgroup> emulated_a: array<vec4<u32>, THREADS>;
var<workgroup> emulated_b: array<vec2<u32>, THREADS>;

fn dot_f16_pair(x: u32, y: u32) -> f32 { return dot(unpack2x16float(x), unpack2x16float(y)); }

/// Computes `a * b + c` for matrix fragments that LANES invocations hold. The invocations exchange `a` and `b` through
/// workgroup memory.
fn multiply_fragments(local: u32, a: vec4<u32>, b: vec2<u32>, c: vec4<f32>) -> vec4<f32> {
    workgroupBarrier();
    emulated_a[local] = a;
    emulated_b[local] = b;
    workgroupBarrier();
    let first = local / LANES * LANES;
    let g = local % LANES / 4u;
    let t = local % 4u;
    var d = c;
    for (var s = 0u; s < 4u; s++) {
        let columns = emulated_a[first + g * 4u + s];
        let even = emulated_b[first + t * 8u + s];
        let odd = emulated_b[first + t * 8u + 4u + s];
        d += vec4<f32>(
            dot_f16_pair(columns.x, even.x) + dot_f16_pair(columns.y, even.y),
            dot_f16_pair(columns.x, odd.x) + dot_f16_pair(columns.y, odd.y),
            dot_f16_pair(columns.z, even.x) + dot_f16_pair(columns.w, even.y),
            dot_f16_pair(columns.z, odd.x) + dot_f16_pair(columns.w, odd.y),
        );
    }
    return d;
}";

/// Workgroup memory that the emulation needs per invocation, in bytes.
pub(crate) const BYTES_PER_INVOCATION: u32 = 24;
