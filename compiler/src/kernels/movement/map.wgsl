// Elementwise functions and copies. One invocation computes one element or vec4 (a "unit") of the result.
//
// The compiler replaces `units` and the hook `run`, which computes coordinates, loads the operands, applies the
// elementwise functions and stores the result.

const THREADS = 64u;
const_assert THREADS >= 1u && THREADS <= 1024u;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

/// Number of units (elements or vec4s) of the result.
fn units() -> u32 { return 1u; }

/// Computes and stores one unit (an element or vec4) of the result.
fn run(unit: u32) { result[unit] = source[unit]; }

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit < units()) { run(unit); }
}
