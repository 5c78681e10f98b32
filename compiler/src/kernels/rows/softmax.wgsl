// Softmax, or its logarithm, of each row. A row belongs to LANES invocations and a workgroup holds ROWS rows; the
// row's maximum and the sum of exponentials are found in one pass, rescaling the sum whenever the maximum grows.
// Picked for every softmax: many lanes for long rows, one lane per row for short rows and for outer axes.
//
// Replaced: the knobs, the sizes, `V` (one element, or four of one row, or one of four rows), `load`, `store`,
// `across_max` and `across_sum` (over the four lanes when they belong to one row), and `finish`.

const LANES = 64u;
const ROWS = 1u;
const THREADS = LANES * ROWS;
/// Neighbouring invocations take neighbouring rows rather than neighbouring positions.
const ROWS_FIRST = false;
/// Units per invocation that are loaded together, and kept when HELD says that they are the whole row.
const KEEP = 2u;
const HELD = false;
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;
const LOWEST = -3.4028234e38;

alias V = f32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

/// Number of rows, and of units in a row.
fn rows() -> u32 { return 3u; }
fn length() -> u32 { return 100u; }
fn load(row: u32, i: u32) -> V { return source[row * 100u + i]; }
fn store(row: u32, i: u32, v: V) { result[row * 100u + i] = v; }
/// The largest lane in all lanes, when the lanes belong to one row.
fn across_max(v: V) -> V { return v; }
/// The sum of the lanes in all lanes, when the lanes belong to one row.
fn across_sum(v: V) -> V { return v; }
/// The result for an element, the row's maximum and its sum of exponentials.
fn finish(x: V, top: V, sum: V) -> V { return exp(x - top) / sum; }

var<workgroup> tops: array<V, THREADS>;
var<workgroup> sums: array<V, THREADS>;

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
    var kept: array<V, KEEP>;
    var top = V(LOWEST);
    var sum = V(0.0);
    for (var base = lane; base < n; base += LANES * KEEP) {
        // unroll
        for (var k = 0u; k < KEEP; k++) {
            if (base + k * LANES < n) { kept[k] = load(row, base + k * LANES); }
        }
        // unroll
        for (var k = 0u; k < KEEP; k++) {
            if (base + k * LANES < n) {
                let higher = max(top, kept[k]);
                sum = sum * exp(top - higher) + exp(kept[k] - higher);
                top = higher;
            }
        }
    }
    if (LANES > 1u) {
        let here = lane * ROWS + member;
        tops[here] = top;
        sums[here] = sum;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if (lane < step) {
                let there = here + step * ROWS;
                let higher = max(tops[here], tops[there]);
                sums[here] = sums[here] * exp(tops[here] - higher) + sums[there] * exp(tops[there] - higher);
                tops[here] = higher;
            }
            workgroupBarrier();
        }
        top = tops[member];
        sum = sums[member];
    }
    let highest = across_max(top);
    let total = across_sum(sum * exp(top - highest));
    for (var base = lane; base < n; base += LANES * KEEP) {
        // unroll
        for (var k = 0u; k < KEEP; k++) {
            let i = base + k * LANES;
            if (i < n) {
                if (!HELD) { kept[k] = load(row, i); }
                store(row, i, finish(kept[k], highest, total));
            }
        }
    }
}
