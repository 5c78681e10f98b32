// Grid sample: samples an image at positions that another operand holds. Each invocation computes four channels of one
// position, so that weights and addresses are computed once for four channels.
//
// Preludes: `image_sizes.wgsl` and `image_hooks_3d.wgsl`.
//
// The compiler replaces the mode, the padding, the sizes and the hooks. The hook `src` is called only for pixels inside
// the image.

const THREADS = 64u;
const_assert THREADS >= 1u && THREADS <= 1024u;

/// Number of taps (pixels that are read) along x, y and z: 1 (nearest), 2 (linear) or 4 (cubic). Axes that the image
/// lacks have 1 tap.
const TAPS_X = 2u;
const TAPS_Y = 2u;
const TAPS_Z = 1u;
const_assert TAPS_X == 1u || TAPS_X == 2u || TAPS_X == 4u;
/// Padding mode: pixels outside the image are zero.
const ZEROS = 0u;
/// Padding mode: pixels outside the image repeat its border.
const BORDER = 1u;
/// Padding mode: pixels outside the image reflect the image.
const REFLECTION = 2u;
/// Padding mode: ZEROS, BORDER or REFLECTION.
const PADDING = ZEROS;
/// True if the sampling positions -1 and 1 are the centers of the first and the last pixel of the image, false if they
/// are the edges of the image.
const ALIGN_CORNERS = false;
/// Coefficient `a` of the cubic interpolation filter by Keys.
const CUBIC = -0.75;
/// Number of spatial axes of the image.
const AXES = 2u;

@group(0) @binding(2) var<storage, read> positions: array<f32>;

fn slices() -> u32 { return 1u; }

/// Loads coordinate `i` (0 is x, 1 is y, 2 is z) of the sampling position of a pixel of the result.
fn load_position(b: u32, z: u32, y: u32, x: u32, i: u32) -> f32 { return positions[(((b + z) * 4u + y) * 4u + x) * 2u + i]; }

/// Returns the smallest position inside the image along an axis, in elements.
fn low() -> f32 { return select(-0.5, 0.0, ALIGN_CORNERS); }
/// Returns the largest position inside the image along an axis, in elements.
fn high(size: u32) -> f32 { return f32(size) - 1.0 - low(); }

/// Reflects a position at the ends of the image until it is inside.
fn reflect_position(x: f32, size: u32) -> f32 {
    let range = high(size) - low();
    if (range <= 0.0) { return low(); }
    let excess = select(x - high(size), low() - x, x < low());
    let times = floor(excess / range);
    let rest = clamp(excess - times * range, 0.0, range);
    // After an even number of reflections, `rest` is the distance from the end of the image that `x` was beyond,
    // otherwise from the other end.
    let is_even = times - 2.0 * floor(times * 0.5) == 0.0;
    return select(high(size) - rest, low() + rest, (x < low()) == is_even);
}

/// Converts a sampling position along an axis (-1 to 1 inside the image) to a position in elements, and applies the
/// padding mode.
fn source_position(position: f32, size: u32, taps: u32) -> f32 {
    var x = ((position + 1.0) * f32(size) - 1.0) / 2.0;
    if (ALIGN_CORNERS) { x = (position + 1.0) / 2.0 * (f32(size) - 1.0); }
    if (taps == 1u) { x = round(x); }
    if (x < low() || x > high(size)) {
        if (PADDING == BORDER) { x = clamp(x, 0.0, f32(size) - 1.0); }
        if (PADDING == REFLECTION) { x = reflect_position(x, size); }
    }
    return x;
}

/// Returns the index of the element that tap k reads along an axis that is sampled at `x`, or -1 if the tap contributes
/// zero.
fn element(x: f32, k: u32, size: u32, taps: u32) -> i32 {
    var e = floor(x) + f32(k);
    if (taps == 4u) { e = e - 1.0; }
    let last = f32(size) - 1.0;
    if (PADDING == ZEROS && !(e >= 0.0 && e <= last)) { return -1; }
    if (PADDING == REFLECTION && (e < low() || e > high(size))) { e = reflect_position(e, size); }
    return clamp(i32(clamp(e, 0.0, last)), 0, i32(size) - 1);
}

/// Returns the weight of tap k along an axis that is sampled at `x`.
fn weight(x: f32, k: u32, taps: u32) -> f32 {
    if (taps == 1u) { return 1.0; }
    let e = floor(x) + f32(k);
    if (taps == 2u) { return 1.0 - abs(x - e); }
    let d = abs(x - (e - 1.0));
    if (d <= 1.0) { return ((CUBIC + 2.0) * d - (CUBIC + 3.0)) * d * d + 1.0; }
    return ((CUBIC * d - 5.0 * CUBIC) * d + 8.0 * CUBIC) * d - 4.0 * CUBIC;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    var rest = id.x + id.y * (groups.x * THREADS);
    if (rest >= batches() * slices() * out_d() * out_h() * out_w()) { return; }
    var b = 0u;
    if (BATCH_INNER) {
        b = rest % batches();
        rest = rest / batches();
    }
    let x = rest % out_w();
    rest = rest / out_w();
    let y = rest % out_h();
    rest = rest / out_h();
    let z = rest % out_d();
    rest = rest / out_d();
    let s = rest % slices();
    if (!BATCH_INNER) { b = rest / slices(); }

    let at_x = source_position(load_position(b, z, y, x, 0u), in_w(), TAPS_X);
    var at_y = 0.0;
    var at_z = 0.0;
    if (AXES > 1u) { at_y = source_position(load_position(b, z, y, x, 1u), in_h(), TAPS_Y); }
    if (AXES > 2u) { at_z = source_position(load_position(b, z, y, x, 2u), in_d(), TAPS_Z); }
    var sum = vec4<f32>(0.0);
    for (var kz = 0u; kz < TAPS_Z; kz++) {
        let ez = element(at_z, kz, in_d(), TAPS_Z);
        if (ez < 0) { continue; }
        let wz = weight(at_z, kz, TAPS_Z);
        for (var ky = 0u; ky < TAPS_Y; ky++) {
            let ey = element(at_y, ky, in_h(), TAPS_Y);
            if (ey < 0) { continue; }
            let wy = wz * weight(at_y, ky, TAPS_Y);
            for (var kx = 0u; kx < TAPS_X; kx++) {
                let ex = element(at_x, kx, in_w(), TAPS_X);
                if (ex < 0) { continue; }
                sum += src(b, u32(ez), u32(ey), u32(ex), s) * (wy * weight(at_x, kx, TAPS_X));
            }
        }
    }
    store(b, z, y, x, s, sum);
}
