// LayerNorm, RMSNorm, GroupNorm and InstanceNorm: `(x - mean) / sqrt(variance + epsilon) * scale + bias` for each row.
// LANES invocations compute a row, and a workgroup computes ROWS rows. One pass computes the moments (mean and
// variance): every invocation sums differences from its first element, and partial moments are merged by Chan's
// formula, so that a large mean does not reduce accuracy. If there are few long rows, each row is split in SPLIT parts:
// a first launch computes the moments of each part; in a second launch, each workgroup merges the moments of a row and
// normalizes one part.
//
// Prelude: `rows.wgsl`.
//
// The compiler replaces the knobs, the sizes, the hooks `load`, `scale`, `bias` and `store`, and the types `V` and `M`. `V`
// is one element, a vec4 of one row, or one element of each of four rows. It replaces `merge_lanes` if `V` is a vec4 of
// one row, `store_moments` and `load_moments` if rows are split, and `main` and `merge_invocations` if subgroups shuffle.

const SPLIT = 1u;
/// True if the launch computes moments: false only in the second of two launches.
const COMPUTES_MOMENTS = true;
/// True if the launch stores the result: false only in the first of two launches.
const STORES_RESULT = true;
/// True if the norm subtracts the mean. False for RMSNorm, whose variance is the mean of squares.
const SUBTRACTS_MEAN = true;
fn epsilon() -> f32 { return 1e-5; }

alias V = f32;
/// Type of a mean: f32, or a vec4 for four rows.
alias M = f32;
/// Moments of a row or a part of it: number of elements, mean, and sum of squared deviations from the mean.
struct Moments { count: f32, mean: M, squared_deviation: M }
/// Type of moments that are stored in a buffer. It equals `Moments`, but types in workgroup memory must not have the
/// explicit layout of a buffer.
struct StoredMoments { count: f32, mean: M, squared_deviation: M }

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;

fn load(row: u32, i: u32) -> V { return source[row * 100u + i]; }
fn scale(row: u32, i: u32) -> V { return scales[i]; }
fn bias(row: u32, i: u32) -> V { return V(0.0); }
fn store(row: u32, i: u32, v: V) { result[row * 100u + i] = v; }
/// Stores the moments of a part of a row in a buffer.
fn store_moments(row_part: u32, m: Moments) {}
/// Loads the moments of a part of a row from a buffer.
fn load_moments(row_part: u32) -> Moments { return Moments(0.0, M(0.0), M(0.0)); }
/// Returns the moments of `count` accesses of an invocation. If `V` is a vec4 of one row, merges its four components.
fn merge_lanes(count: f32, mean: V, squared_deviation: V) -> Moments { return Moments(count, mean, squared_deviation); }

fn merge(a: Moments, b: Moments) -> Moments {
    let count = a.count + b.count;
    let fraction = select(0.0, b.count / count, count > 0.0);
    let mean_difference = b.mean - a.mean;
    return Moments(count, a.mean + mean_difference * fraction, a.squared_deviation + b.squared_deviation + mean_difference * mean_difference * (a.count * fraction));
}

/// Moments of each invocation, or of each subgroup if subgroups shuffle.
var<workgroup> partial_moments: array<Moments, THREADS>;

/// Returns the merged moments of all invocations of a row. `lane` is the index of the invocation in its row, `group_row` the
/// index of the row in the workgroup.
fn merge_invocations(moments: Moments, lane: u32, group_row: u32) -> Moments {
    let here = lane * ROWS + group_row;
    partial_moments[here] = moments;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        if (lane < step) { partial_moments[here] = merge(partial_moments[here], partial_moments[here + step * ROWS]); }
        workgroupBarrier();
    }
    return partial_moments[group_row];
}

fn normalize(group: vec3<u32>, groups: vec3<u32>, local: u32) {
    let lane = lane_of(local);
    let group_row = group_row_of(local);
    let row_part = first_row(group, groups) + group_row;
    let row = row_part / SPLIT;
    let part_length = (length() + SPLIT - 1u) / SPLIT;
    let first = row_part % SPLIT * part_length + lane;
    // An invocation whose row is past the last row reads no elements, but it reaches every barrier.
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
    var mean = V(0.0);
    if (SUBTRACTS_MEAN && count > 0.0) {
        let shift = sum / count;
        mean = origin + shift;
        squares = max(squares - sum * shift, V(0.0));
    }
    var moments = merge_lanes(count, mean, squares);
    if (COMPUTES_MOMENTS && LANES > 1u) { moments = merge_invocations(moments, lane, group_row); }
    if (!STORES_RESULT) {
        if (lane == 0u && row < rows()) { store_moments(row_part, moments); }
        return;
    }
    if (!COMPUTES_MOMENTS && row < rows()) {
        for (var k = 0u; k < SPLIT; k++) { moments = merge(moments, load_moments(row * SPLIT + k)); }
    }
    let factor = inverseSqrt(moments.squared_deviation / moments.count + M(epsilon()));
    for (var base = first; base < n; base += LANES * LOADS) {
        // unroll
        for (var k = 0u; k < LOADS; k++) {
            let i = base + k * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) { values[k] = load(row, i); }
                store(row, i, (values[k] - V(moments.mean)) * V(factor) * scale(row, i) + bias(row, i));
            }
        }
    }
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    normalize(group, groups, local);
}
