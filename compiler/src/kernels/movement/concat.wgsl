// Copies one operand of a concatenation into the result. Each invocation copies one element or vec4 (a "unit"). There
// is one dispatch per operand.
//
// The compiler replaces `units`, the type and the hooks.

const THREADS = 64u;

alias value = f32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

/// Number of units (elements or vec4s) that the dispatch copies.
fn units() -> u32 { return 8u; }
/// Loads an element or vec4 of the operand.
fn load(unit: u32) -> value { return source[unit]; }
/// Applies the epilogue to a unit (an element or vec4) at its position in the result, and stores it.
fn store(unit: u32, v: value) { result[unit + 8u] = v; }

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit < units()) { store(unit, load(unit)); }
}
