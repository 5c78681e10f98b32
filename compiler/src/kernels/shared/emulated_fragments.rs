//! The product of fragments of matrices without matrix units, through workgroup memory: what kernels that know how invocations hold
//! matrices have in its place on any device, so that they can be tested there.

/// The function `multiply_fragments(local, a, b, c)` of a kernel of THREADS invocations, of which LANES hold fragments together.
pub(crate) const WGSL: &str = "var<workgroup> emulated_a: array<vec4<u32>, THREADS>;
var<workgroup> emulated_b: array<vec2<u32>, THREADS>;

fn product_of_pairs(x: u32, y: u32) -> f32 { return dot(unpack2x16float(x), unpack2x16float(y)); }

/// The product of an invocation's fragments and its sums, through workgroup memory.
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
            product_of_pairs(columns.x, even.x) + product_of_pairs(columns.y, even.y),
            product_of_pairs(columns.x, odd.x) + product_of_pairs(columns.y, odd.y),
            product_of_pairs(columns.z, even.x) + product_of_pairs(columns.w, even.y),
            product_of_pairs(columns.z, odd.x) + product_of_pairs(columns.w, odd.y),
        );
    }
    return d;
}";

/// Bytes of workgroup memory that it takes for each invocation.
pub(crate) const BYTES: u32 = 24;
