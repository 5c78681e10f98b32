// Rows of floats as words of four signed codes of 8 bits, and behind them the bits of the row's scale. A row belongs to LANES
// invocations and a workgroup holds ROWS rows; they look for the largest magnitude first. Picked for every such node.
//
// Replaced: the knobs, the sizes, `load` (four elements of a row) and `store` (a word of a row).

const LANES = 32u;
const ROWS = 2u;
const THREADS = LANES * ROWS;
/// Neighbouring invocations take neighbouring rows rather than neighbouring positions.
const ROWS_FIRST = false;
/// Units per invocation that are loaded together, and kept when HELD says that they are the whole row.
const KEEP = 2u;
const HELD = false;
const LARGEST = 127.0;
/// What a row's largest magnitude is multiplied by for its scale: products are the same on all devices, quotients are not.
const SMALLEST = 1.0 / 127.0;
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;

@group(0) @binding(0) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> result: array<u32>;

/// Number of rows, and of units of four elements in a row.
fn rows() -> u32 { return 3u; }
fn length() -> u32 { return 25u; }
fn load(row: u32, i: u32) -> vec4<f32> { return source[row * 25u + i]; }
fn store(row: u32, i: u32, v: u32) { result[row * 26u + i] = v; }

var<workgroup> tops: array<f32, THREADS>;

fn largest(top: f32, v: vec4<f32>) -> f32 {
    let x = abs(v);
    return max(max(top, max(x.x, x.y)), max(x.z, x.w));
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let lane = select(local % LANES, local / ROWS, ROWS_FIRST);
    let member = select(local / LANES, local % ROWS, ROWS_FIRST);
    let row = (group.x + group.y * groups.x) * ROWS + member;
    // A row past the end has no element, but its invocations take part in every barrier.
    let n = select(0u, length(), row < rows());
    var kept: array<vec4<f32>, KEEP>;
    var top = 0.0;
    for (var base = lane; base < n; base += LANES * KEEP) {
        // unroll
        for (var k = 0u; k < KEEP; k++) {
            if (base + k * LANES < n) { kept[k] = load(row, base + k * LANES); }
        }
        // unroll
        for (var k = 0u; k < KEEP; k++) {
            if (base + k * LANES < n) { top = largest(top, kept[k]); }
        }
    }
    if (LANES > 1u) {
        let here = lane * ROWS + member;
        tops[here] = top;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if (lane < step) { tops[here] = max(tops[here], tops[here + step * ROWS]); }
            workgroupBarrier();
        }
        top = tops[member];
    }
    var factor = 0.0;
    if (top > 0.0) { factor = LARGEST / top; }
    for (var base = lane; base < n; base += LANES * KEEP) {
        // unroll
        for (var k = 0u; k < KEEP; k++) {
            let i = base + k * LANES;
            if (i < n) {
                if (!HELD) { kept[k] = load(row, i); }
                let codes = clamp(floor(kept[k] * factor + 0.5), vec4<f32>(-LARGEST), vec4<f32>(LARGEST));
                store(row, i, pack4xI8(vec4<i32>(codes)));
            }
        }
    }
    if (lane == 0u && row < rows()) { store(row, length(), bitcast<u32>(top * SMALLEST)); }
}
