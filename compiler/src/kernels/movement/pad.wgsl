// Padding along any axes. One invocation computes one element or vec4 (a "unit") of the result.
//
// The compiler replaces MODE, `units`, the type and the hooks.

const THREADS = 64u;
/// Padding mode. 0: constant, 1: reflect, 2: edge, 3: wrap.
const MODE = 0u;

alias value = f32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

/// Number of units (elements or vec4s) of the result.
fn units() -> u32 { return 8u; }
/// Loads the value of a unit (an element or vec4 of the result): elements of the operand, or the padding constant.
fn load(unit: u32) -> value {
    let c0 = source_position(unit, 2u, 4u);
    if (c0 < 0) { return value(0.0); }
    return source[c0];
}
/// Applies the epilogue to a unit (an element or vec4) of the result and stores it.
fn store(unit: u32, v: value) { result[unit] = v; }

/// Returns the position in the operand from which position `at` of the result is copied along a padded axis, or -1 if
/// the padding constant is used.
fn source_position(at: u32, before: u32, size: u32) -> i32 {
    let n = i32(size);
    let i = i32(at) - i32(before);
    if (i >= 0 && i < n) { return i; }
    if (MODE == 1u) {
        let period = max(2 * (n - 1), 1);
        let phase = (i % period + period) % period;
        return min(phase, period - phase) * i32(n > 1);
    }
    if (MODE == 2u) { return clamp(i, 0, n - 1); }
    if (MODE == 3u) { return (i % n + n) % n; }
    return -1;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit < units()) { store(unit, load(unit)); }
}
