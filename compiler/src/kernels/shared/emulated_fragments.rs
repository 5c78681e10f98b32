//! Matrix multiply-add that emulates the matrix instruction: fragments are exchanged through workgroup memory.
//!
//! This code replaces the matrix instruction on devices without matrix units, so that kernels that depend on the
//! fragment layout can be tested on every device.

use crate::shader::{Need, Shader};
use crate::target::Fragments;

/// WGSL function `multiply_fragments(local, a, b, c)`, which emulates a matrix multiply-add. The kernel has THREADS
/// invocations per workgroup, and LANES of them hold one fragment.
const WGSL: &str = "var<workgroup> emulated_a: array<vec4<u32>, THREADS>;
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

/// Declares how a kernel multiplies fragments. `call` is the WGSL call of the kernel's function, with the workgroup's
/// index `group` and the invocation's index `LOCAL`. Returns the bytes of workgroup memory that the multiplication needs.
pub(crate) fn declare(shader: &mut Shader<'_>, fragments: Fragments, call: &str, threads: u32) -> u32 {
    match fragments {
        Fragments::MmaM16N8K16 => {
            let call = call.replace("LOCAL", "subgroup * LANES + lane");
            let main = format!(
                "@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane: u32) {{
    {call};
}}"
            );
            shader.replace("main", main);
            shader.needs(&[Need::Subgroups]);
            0
        }
        Fragments::Emulated => {
            shader.replace("multiply_fragments", WGSL.to_string());
            BYTES_PER_INVOCATION * threads
        }
    }
}
