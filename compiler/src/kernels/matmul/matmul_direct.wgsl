// Matmul with one invocation per element of the result, without vectors or tiles. It is for integers and for operand
// layouts that the faster kernels do not support.
//
// The compiler replaces the element type, the sizes and the hooks.

const THREADS = 64u;
const_assert THREADS >= 1u && THREADS <= 1024u;

alias E = f32;

@group(0) @binding(0) var<storage, read> a_buffer: array<f32>;
@group(0) @binding(1) var<storage, read> b_buffer: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;

/// Number of units (elements of the result).
fn units() -> u32 { return 64u; }
/// Number of elements along K.
fn size_k() -> u32 { return 8u; }
/// Loads element `k` of the row of the first operand that belongs to a unit (an element of the result).
fn load_a(unit: u32, k: u32) -> E { return a_buffer[unit / 8u * 8u + k]; }
/// Loads element `k` of the column of the second operand that belongs to a unit (an element of the result).
fn load_b(unit: u32, k: u32) -> E { return b_buffer[k * 8u + unit % 8u]; }
fn store(unit: u32, v: E) { result[unit] = v; }

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit >= units()) { return; }
    var sum = E();
    for (var k = 0u; k < size_k(); k++) { sum += E(load_a(unit, k)) * E(load_b(unit, k)); }
    store(unit, sum);
}
