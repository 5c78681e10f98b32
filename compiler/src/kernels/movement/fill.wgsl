// Computes tensors that have no operands: ranges, and tensors of sizes (as from ONNX Shape). One invocation computes
// one element from the element's position and from sizes.
//
// The compiler replaces `units`, the element type, and the hooks `value` and `store`.

const THREADS = 64u;
const_assert THREADS >= 1u && THREADS <= 1024u;

alias E = i32;

@group(0) @binding(0) var<storage, read_write> result: array<i32>;

/// Number of elements.
fn units() -> u32 { return 100u; }
fn value(unit: u32) -> E { return E(unit); }
fn store(unit: u32, v: E) { result[unit] = v; }

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit < units()) { store(unit, value(unit)); }
}
