// Elements added before and after along any axes: one unit of the result per invocation.
// Picked for every pad.
//
// Replaced: MODE, `units`, the type, and the two hooks.

const THREADS = 64u;
/// 0 adds a constant, 1 mirrors, 2 repeats the edge, 3 wraps around.
const MODE = 0u;

alias value = f32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

/// Number of units.
fn units() -> u32 { return 8u; }
/// The elements of the source, or the constant, that belong into a unit.
fn load(unit: u32) -> value {
    let c0 = place(unit, 2u, 4u);
    if (c0 < 0) { return value(0.0); }
    return source[c0];
}
/// Applies the chain to a unit and stores it.
fn store(unit: u32, v: value) { result[unit] = v; }

/// The position along a padded axis from which position `at` of the result comes; -1 for the constant.
fn place(at: u32, before: u32, size: u32) -> i32 {
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
