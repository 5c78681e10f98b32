// Reduction of each row: sum, maximum, minimum, product or norm. LANES invocations compute a row, and a workgroup
// computes ROWS rows. A long row may be split in SPLIT parts, whose results a second launch combines. Many lanes suit
// long rows; one lane per row suits short rows and outer axes.
//
// Replaced by the compiler: knobs, sizes, `V` (one element, a vec4 of one row, or one element of four rows), `A` (the
// accumulator), `R` (the result), `load`, `store`, and the functions of the reduction: `initial`, `from_element`,
// `join`, `join_lanes` and `finish`.

const LANES = 64u;
const ROWS = 1u;
const THREADS = LANES * ROWS;
/// True if neighboring invocations read neighboring rows, false if they read neighboring elements of a row.
const ROWS_FIRST = false;
/// Loads in flight per invocation.
const LOADS = 2u;
const SPLIT = 1u;
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;

alias V = f32;
alias A = f32;
alias R = f32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

/// Number of rows, and elements or vec4s per row.
fn rows() -> u32 { return 3u; }
fn length() -> u32 { return 100u; }
fn load(row: u32, i: u32) -> V { return source[row * 100u + i]; }
/// Stores the result of a row, or of part `row % SPLIT` of row `row / SPLIT`.
fn store(row: u32, v: R) { result[row] = v; }
/// Accumulator of zero elements.
fn initial() -> A { return 0.0; }
/// Accumulator of one element.
fn from_element(x: V) -> A { return x; }
fn join(a: A, b: A) -> A { return a + b; }
/// Returns the joined lanes in every lane, if they belong to one row.
fn join_lanes(a: A) -> A { return a; }
fn finish(a: A) -> R { return a; }

var<workgroup> lane_totals: array<A, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let lane = select(local % LANES, local / ROWS, ROWS_FIRST);
    let group_row = select(local / LANES, local % ROWS, ROWS_FIRST);
    let row = (group.x + group.y * groups.x) * ROWS + group_row;
    let inside = row < rows() * SPLIT;
    let part_length = (length() + SPLIT - 1u) / SPLIT;
    let start = (row % SPLIT) * part_length;
    // A row past the end has no elements, but its invocations reach every barrier.
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
