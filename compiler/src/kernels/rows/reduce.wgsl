// Reduction of each row: sum, maximum, minimum, product or norm. LANES invocations compute a row, and a workgroup
// computes ROWS rows. A long row may be split in SPLIT parts, whose results a second launch combines. Many invocations
// per row suit long rows; one invocation per row suits short rows and outer axes.
//
// Prelude: `rows.wgsl`.
//
// The compiler replaces the knobs, the sizes, the hooks `load` and `store`, and the types `A` (accumulator), `R`
// (result) and `V`: one element, a vec4 of one row, or one element of each of four rows. It replaces the functions of
// the reduction: `initial`, `from_element`, `join`, `join_lanes` and `finish`.

const SPLIT = 1u;

alias V = f32;
alias A = f32;
alias R = f32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

fn load(row: u32, i: u32) -> V { return source[row * 100u + i]; }
/// Stores the result of row `row`. If rows are split, stores the result of part `row % SPLIT` of row `row / SPLIT`.
fn store(row: u32, v: R) { result[row] = v; }
/// Returns the accumulator of zero elements.
fn initial() -> A { return 0.0; }
/// Returns the accumulator of one element.
fn from_element(x: V) -> A { return x; }
/// Joins two accumulators.
fn join(a: A, b: A) -> A { return a + b; }
/// If `V` is a vec4 of one row, returns the joined accumulators of its four components in every component. Otherwise
/// returns `a`.
fn join_lanes(a: A) -> A { return a; }
fn finish(a: A) -> R { return a; }

var<workgroup> lane_totals: array<A, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let lane = lane_of(local);
    let group_row = group_row_of(local);
    let row = first_row(group, groups) + group_row;
    let inside = row < rows() * SPLIT;
    let part_length = (length() + SPLIT - 1u) / SPLIT;
    let start = (row % SPLIT) * part_length;
    // An invocation whose row is past the last row reads no elements, but it reaches every barrier.
    let end = select(0u, min(start + part_length, length()), inside);
    var total = initial();
    for (var base = start + lane; base < end; base += LANES * LOADS) {
        var loaded: array<V, LOADS>;
        // unroll
        for (var k = 0u; k < LOADS; k++) {
            if (base + k * LANES < end) { loaded[k] = load(row / SPLIT, base + k * LANES); }
        }
        // unroll
        for (var k = 0u; k < LOADS; k++) {
            if (base + k * LANES < end) { total = join(total, from_element(loaded[k])); }
        }
    }
    if (LANES > 1u) {
        let here = lane * ROWS + group_row;
        lane_totals[here] = total;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if (lane < step) { lane_totals[here] = join(lane_totals[here], lane_totals[here + step * ROWS]); }
            workgroupBarrier();
        }
        total = lane_totals[group_row];
    }
    if (lane == 0u && inside) { store(row, finish(join_lanes(total))); }
}
