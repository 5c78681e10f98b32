// Cumulative sum along each row. LANES invocations scan a row in blocks of LANES elements through workgroup memory and
// carry the sum from block to block. A workgroup computes ROWS rows. Many lanes suit long rows; one lane per row suits
// short rows and outer axes.
//
// Replaced by the compiler: knobs, sizes, `V` (one element, or one element of four rows), `load` and `store`.

const LANES = 64u;
const ROWS = 1u;
const THREADS = LANES * ROWS;
/// True if neighboring invocations read neighboring rows, false if they read neighboring elements of a row.
const ROWS_FIRST = false;
/// EXCLUSIVE: an element is not part of its own sum. REVERSE: sums start at the end of the row.
const EXCLUSIVE = false;
const REVERSE = false;
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;

alias V = f32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

/// Number of rows, and elements or vec4s per row.
fn rows() -> u32 { return 3u; }
fn length() -> u32 { return 100u; }
fn load(row: u32, i: u32) -> V { return source[row * 100u + i]; }
fn store(row: u32, i: u32, v: V) { result[row * 100u + i] = v; }

/// Returns the position of the element at step `at` of the scan.
fn position(at: u32) -> u32 { return select(at, length() - 1u - at, REVERSE); }

var<workgroup> sums: array<V, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let lane = select(local % LANES, local / ROWS, ROWS_FIRST);
    let group_row = select(local / LANES, local % ROWS, ROWS_FIRST);
    let row = (group.x + group.y * groups.x) * ROWS + group_row;
    // A row past the end has no elements, but its invocations reach every barrier.
    let n = select(0u, length(), row < rows());
    let here = lane * ROWS + group_row;
    var carry = V();
    for (var base = 0u; base < length(); base += LANES) {
        let at = base + lane;
        var x = V();
        if (at < n) { x = load(row, position(at)); }
        var sum = x;
        var before = V();
        var total = x;
        if (LANES > 1u) {
            sums[here] = sum;
            workgroupBarrier();
            for (var step = 1u; step < LANES; step *= 2u) {
                var other = V();
                if (lane >= step) { other = sums[here - step * ROWS]; }
                workgroupBarrier();
                sum += other;
                sums[here] = sum;
                workgroupBarrier();
            }
            if (lane > 0u) { before = sums[here - ROWS]; }
            total = sums[(LANES - 1u) * ROWS + group_row];
            workgroupBarrier();
        }
        if (at < n) { store(row, position(at), carry + select(sum, before, EXCLUSIVE)); }
        carry += total;
    }
}
