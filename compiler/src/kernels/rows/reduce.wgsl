// Combines the elements of each row into one: sums, extremes, products, norms. A row belongs to LANES invocations and
// a workgroup holds ROWS rows; a long row may be cut into SPLIT pieces, whose results a second launch combines.
// Picked for every reduction: many lanes for long rows, one lane per row for short rows and for outer axes.
//
// Replaced: the knobs, the sizes, `V` (one element, four of one row, or one of four rows), `A` (what is accumulated),
// `R` (the result), `load`, `store`, and the functions of the kind: `first`, `lift`, `join`, `across` and `finish`.

const LANES = 64u;
const ROWS = 1u;
const THREADS = LANES * ROWS;
/// Neighbouring invocations take neighbouring rows rather than neighbouring positions.
const ROWS_FIRST = false;
/// Units that an invocation loads together.
const KEEP = 2u;
const SPLIT = 1u;
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;

alias V = f32;
alias A = f32;
alias R = f32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

/// Number of rows, and of units in a row.
fn rows() -> u32 { return 3u; }
fn length() -> u32 { return 100u; }
fn load(row: u32, i: u32) -> V { return source[row * 100u + i]; }
/// Stores the result of a row, or of piece `row % SPLIT` of row `row / SPLIT`.
fn store(row: u32, v: R) { result[row] = v; }
/// The result of no element.
fn first() -> A { return 0.0; }
/// The result of one element.
fn lift(x: V) -> A { return x; }
fn join(a: A, b: A) -> A { return a + b; }
/// The four lanes together, in every lane, when they belong to one row.
fn across(a: A) -> A { return a; }
fn finish(a: A) -> R { return a; }

var<workgroup> parts: array<A, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let lane = select(local % LANES, local / ROWS, ROWS_FIRST);
    let member = select(local / LANES, local % ROWS, ROWS_FIRST);
    let row = (group.x + group.y * groups.x) * ROWS + member;
    let inside = row < rows() * SPLIT;
    let piece = (length() + SPLIT - 1u) / SPLIT;
    let start = (row % SPLIT) * piece;
    // A row past the end has no element, but its invocations take part in every barrier.
    let end = select(0u, min(start + piece, length()), inside);
    var total = first();
    for (var base = start + lane; base < end; base += LANES * KEEP) {
        var loaded: array<V, KEEP>;
        // unroll
        for (var k = 0u; k < KEEP; k++) {
            if (base + k * LANES < end) { loaded[k] = load(row / SPLIT, base + k * LANES); }
        }
        // unroll
        for (var k = 0u; k < KEEP; k++) {
            if (base + k * LANES < end) { total = join(total, lift(loaded[k])); }
        }
    }
    if (LANES > 1u) {
        let here = lane * ROWS + member;
        parts[here] = total;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if (lane < step) { parts[here] = join(parts[here], parts[here + step * ROWS]); }
            workgroupBarrier();
        }
        total = parts[member];
    }
    if (lane == 0u && inside) { store(row, finish(across(total))); }
}
