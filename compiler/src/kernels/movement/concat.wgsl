// Copies one operand of a concatenation into its part of the result, one unit of the operand per invocation.
// Picked for every concatenation, with one dispatch per operand.
//
// Replaced: `units`, the type, and the two hooks.

const THREADS = 64u;

alias value = f32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

/// Number of units.
fn units() -> u32 { return 8u; }
/// A unit of the operand.
fn load(unit: u32) -> value { return source[unit]; }
/// Applies the chain to a unit at its place in the result, and stores it there.
fn store(unit: u32, v: value) { result[unit + 8u] = v; }

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit < units()) { store(unit, load(unit)); }
}
