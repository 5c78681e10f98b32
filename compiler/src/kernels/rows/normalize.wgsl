// LayerNorm, RMSNorm, GroupNorm and InstanceNorm: `(x - mean) / sqrt(variance + epsilon) * scale + bias` for each row.
// LANES invocations compute a row, and a workgroup computes ROWS rows. One pass computes the moments: every invocation
// sums differences from its first element, and partial moments are merged by Chan's formula, so that a large mean does
// not reduce accuracy. Few long rows are split in SPLIT parts: a first launch computes the moments of each part, a
// second launch merges the moments of a row and normalizes one part.
//
// Replaced by the compiler: knobs, sizes, `V` (one element, a vec4 of one row, or one element of four rows), `load`,
// `scale`, `bias`, `store`, `merge_lanes` if the four lanes belong to one row, and `store_moments` and `load_moments`
// if rows are split.

const LANES = 64u;
const ROWS = 1u;
const THREADS = LANES * ROWS;
/// True if neighboring invocations read neighboring rows, false if they read neighboring elements of a row.
const ROWS_FIRST = false;
/// Loads in flight per invocation. If ROW_IN_REGISTERS is true, they are the whole row and are not loaded again.
const LOADS = 2u;
const ROW_IN_REGISTERS = false;
const SPLIT = 1u;
/// False in the second and in the first of two launches, respectively.
const COMPUTES_MOMENTS = true;
const STORES_RESULT = true;
/// True if the mean is subtracted. If false (RMSNorm), the variance is the mean of squares.
const SUBTRACTS_MEAN = true;
fn epsilon() -> f32 { return 1e-5; }
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;

alias V = f32;
/// Number of elements, mean, and sum of squared deviations from the mean.
struct Moments { count: f32, mean: V, squared_deviation: V }
/// Moments in a buffer. Types in workgroup memory must not have an explicit layout, so this is a second type.
struct StoredMoments { count: f32, mean: V, squared_deviation: V }

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;

/// Number of rows, and elements or vec4s per row.
fn rows() -> u32 { return 3u; }
fn length() -> u32 { return 100u; }
fn load(row: u32, i: u32) -> V { return source[row * 100u + i]; }
fn scale(row: u32, i: u32) -> V { return scales[i]; }
fn bias(row: u32, i: u32) -> V { return V(0.0); }
fn store(row: u32, i: u32, v: V) { result[row * 100u + i] = v; }
/// Stores and loads the moments of a part of a row.
fn store_moments(row_part: u32, m: Moments) {}
fn load_moments(row_part: u32) -> Moments { return Moments(0.0, V(0.0), V(0.0)); }
/// Returns the merged moments of the four lanes in every lane, if they belong to one row.
fn merge_lanes(m: Moments) -> Moments { return m; }

fn merge(a: Moments, b: Moments) -> Moments {
    let count = a.count + b.count;
    let fraction = select(0.0, b.count / count, count > 0.0);
    let mean_difference = b.mean - a.mean;
    return Moments(count, a.mean + mean_difference * fraction, a.squared_deviation + b.squared_deviation + mean_difference * mean_difference * (a.count * fraction));
}

var<workgroup> lane_moments: array<Moments, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let lane = select(local % LANES, local / ROWS, ROWS_FIRST);
    let group_row = select(local / LANES, local % ROWS, ROWS_FIRST);
    let row_part = (group.x + group.y * groups.x) * ROWS + group_row;
    let row = row_part / SPLIT;
    let part_length = (length() + SPLIT - 1u) / SPLIT;
    let first = row_part % SPLIT * part_length + lane;
    // A row past the end has no elements, but its invocations reach every barrier.
    let n = select(0u, min(row_part % SPLIT * part_length + part_length, length()), row < rows());
    var values: array<V, LOADS>;
    var origin = V(0.0);
    if (COMPUTES_MOMENTS && SUBTRACTS_MEAN && first < n) { origin = load(row, first); }
    var count = 0.0;
    var sum = V(0.0);
    var squares = V(0.0);
    for (var base = first; COMPUTES_MOMENTS && base < n; base += LANES * LOADS) {
        // unroll
        for (var k = 0u; k < LOADS; k++) {
            if (base + k * LANES < n) { values[k] = load(row, base + k * LANES); }
        }
        // unroll
        for (var k = 0u; k < LOADS; k++) {
            if (base + k * LANES < n) {
                let x = values[k] - origin;
                count += 1.0;
                sum += x;
                squares += x * x;
            }
        }
    }
    var moments = Moments(count, V(0.0), squares);
    if (SUBTRACTS_MEAN && count > 0.0) {
        let shift = sum / count;
        moments = Moments(count, origin + shift, max(squares - sum * shift, V(0.0)));
    }
    if (COMPUTES_MOMENTS && LANES > 1u) {
        let here = lane * ROWS + group_row;
        lane_moments[here] = moments;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if (lane < step) { lane_moments[here] = merge(lane_moments[here], lane_moments[here + step * ROWS]); }
            workgroupBarrier();
        }
        moments = lane_moments[group_row];
    }
    if (!STORES_RESULT) {
        if (lane == 0u && row < rows()) { store_moments(row_part, moments); }
        return;
    }
    if (!COMPUTES_MOMENTS && row < rows()) {
        for (var k = 0u; k < SPLIT; k++) { moments = merge(moments, load_moments(row * SPLIT + k)); }
    }
    moments = merge_lanes(moments);
    let factor = inverseSqrt(moments.squared_deviation / moments.count + V(epsilon()));
    for (var base = first; base < n; base += LANES * LOADS) {
        // unroll
        for (var k = 0u; k < LOADS; k++) {
            let i = base + k * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[k] = load(row, i); }
                store(row, i, (values[k] - moments.mean) * factor * scale(row, i) + bias(row, i));
            }
        }
    }
}
