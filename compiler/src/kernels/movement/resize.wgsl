// Resize along any axes. Each invocation sums the taps of one element or vec4 (a "unit") of the result. Along a resized
// axis, a tap is an element of the operand and its weight. A tap of a unit combines one tap per axis; its weight is the
// product of their weights. Along an axis of symbolic size, a function `axis_...` computes the index of the tap's
// element, as a float, and the tap's weight. Position `at` of the result samples the operand at `at * scale + shift`.
// For known sizes, taps are in a table.
//
// The compiler replaces TAPS, CHUNK, the types, `units` and the hooks.

const THREADS = 64u;
const TAPS = 4u;
/// Number of taps that one unrolled loop adds.
const CHUNK = 4u;
const_assert TAPS % CHUNK == 0u;

/// Type of the accumulator in which the taps of a result element or vec4 are added.
alias value = f32;
/// Type of an element or vec4 of the result.
alias output = f32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

/// Number of units (elements or vec4s) of the result.
fn units() -> u32 { return 8u; }
/// Returns tap t of a unit (an element or vec4 of the result): the operand's element times its weight.
fn tap(unit: u32, t: u32) -> value { return source[unit / 2u] * axis_linear(f32(unit), 0.5, -0.25, t % 2u, 4u).y; }
/// Returns the result of a unit from the sum of all its taps.
fn finish(unit: u32, sum: value) -> output { return sum; }
/// Applies the epilogue to a unit (an element or vec4) of the result and stores it.
fn store(unit: u32, v: output) { result[unit] = v; }

/// Clamps the index of an element to an axis of `size` elements.
fn clamp_element(x: f32, size: u32) -> f32 { return clamp(x, 0.0, f32(size) - 1.0); }

/// Returns the index of the operand's element that is nearest to result position `at`, and the weight 1. The index is
/// computed exactly in integers as `(at * step + first) / per`.
fn axis_ratio(at: u32, step: i32, first: i32, per: i32, size: u32) -> vec2<f32> {
    return vec2<f32>(clamp_element(f32((i32(at) * step + first) / per), size), 1.0);
}

/// Returns tap k of linear interpolation: its element's index and its weight.
fn axis_linear(at: f32, scale: f32, shift: f32, k: u32, size: u32) -> vec2<f32> {
    let x = at * scale + shift;
    let low = floor(x);
    return vec2<f32>(clamp_element(low + f32(k), size), select(1.0 - (x - low), x - low, k == 1u));
}

/// Returns tap k of a filter with a radius of `reach` elements, widened by the factor `1 / narrow`. `a` is 1 for the
/// linear filter, otherwise the coefficient of the cubic filter by Keys. If `exclude` is true, elements outside the
/// operand have weight 0.
fn axis_filter(
    at: f32, scale: f32, shift: f32, k: u32, size: u32, taps: u32, reach: f32, narrow: f32, a: f32, exclude: bool,
) -> vec2<f32> {
    let x = at * scale + shift;
    let low = floor(x - reach / narrow) + 1.0;
    var sum = 0.0;
    var tap_weight = 0.0;
    for (var j = 0u; j < taps; j++) {
        let i = low + f32(j);
        let d = abs(i - x) * narrow;
        var w = 1.0 - d;
        if (a != 1.0) {
            w = select(((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a, ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0, d <= 1.0);
        }
        if (d >= reach || (exclude && clamp_element(i, size) != i)) { w = 0.0; }
        sum += w;
        if (j == k) { tap_weight = w; }
    }
    if (sum == 0.0) { return vec2<f32>(clamp_element(round(x), size), select(0.0, 1.0, k == 0u)); }
    return vec2<f32>(clamp_element(low + f32(k), size), tap_weight / sum);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit >= units()) { return; }
    var sum = value(0);
    for (var t = 0u; t < TAPS; t += CHUNK) {
        // unroll
        for (var c = 0u; c < CHUNK; c++) { sum += tap(unit, t + c); }
    }
    store(unit, finish(unit, sum));
}
