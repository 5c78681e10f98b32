// Resampling along any axes: each invocation sums the taps of one unit of the result.
// Picked for every resize.
//
// Replaced: TAPS, CHUNK, the types, `units` and the hooks. Along each resized axis a tap is an element and its weight;
// a tap of the whole is the product of one tap per axis.

const THREADS = 64u;
const TAPS = 4u;
/// How many taps are written out in a row.
const CHUNK = 4u;
const_assert TAPS % CHUNK == 0u;

/// What is summed and what is stored.
alias value = f32;
alias output = f32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

/// Number of units.
fn units() -> u32 { return 8u; }
/// Tap t of a unit: the element times its weight.
fn tap(unit: u32, t: u32) -> value { return source[unit / 2u] * axis_linear(f32(unit), 0.5, -0.25, t % 2u, 4u).y; }
/// The result, given the sum of all taps.
fn finish(unit: u32, sum: value) -> output { return sum; }
/// Applies the chain to a unit and stores it.
fn store(unit: u32, v: output) { result[unit] = v; }

/// The functions below give element (as a float) and weight of tap k, where position `at` of the result lies at
/// `at * scale + shift` of the source's `size` elements. They are for extents that are not known in advance;
/// otherwise elements and weights come from a table.
fn clamped(x: f32, size: u32) -> f32 { return clamp(x, 0.0, f32(size) - 1.0); }

/// Nearest, exactly: element `(at * step + first) / per` rounded down.
fn axis_ratio(at: u32, step: i32, first: i32, per: i32, size: u32) -> vec2<f32> {
    return vec2<f32>(clamped(f32((i32(at) * step + first) / per), size), 1.0);
}

fn axis_linear(at: f32, scale: f32, shift: f32, k: u32, size: u32) -> vec2<f32> {
    let x = at * scale + shift;
    let low = floor(x);
    return vec2<f32>(clamped(low + f32(k), size), select(1.0 - (x - low), x - low, k == 1u));
}

/// Any filter that reaches `reach` elements, made wider by `1 / narrow`; `a` is 1 for the linear one and otherwise
/// Keys' coefficient. Elements outside get no weight when `exclude` is set.
fn axis_filter(
    at: f32, scale: f32, shift: f32, k: u32, size: u32, taps: u32, reach: f32, narrow: f32, a: f32, exclude: bool,
) -> vec2<f32> {
    let x = at * scale + shift;
    let low = floor(x - reach / narrow) + 1.0;
    var sum = 0.0;
    var mine = 0.0;
    for (var j = 0u; j < taps; j++) {
        let i = low + f32(j);
        let d = abs(i - x) * narrow;
        var w = 1.0 - d;
        if (a != 1.0) {
            w = select(((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a, ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0, d <= 1.0);
        }
        if (d >= reach || (exclude && clamped(i, size) != i)) { w = 0.0; }
        sum += w;
        if (j == k) { mine = w; }
    }
    if (sum == 0.0) { return vec2<f32>(clamped(round(x), size), select(0.0, 1.0, k == 0u)); }
    return vec2<f32>(clamped(low + f32(k), size), mine / sum);
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
