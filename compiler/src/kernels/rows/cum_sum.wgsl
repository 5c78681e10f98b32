// Cumulative sum along each row. LANES invocations scan a row in blocks of LANES elements through workgroup memory and
// carry the sum from block to block. A workgroup computes ROWS rows. Many invocations per row suit long rows; one
// invocation per row suits short rows and outer axes.
//
// Prelude: `rows.wgsl`.
//
// The compiler replaces the knobs, the sizes, the hooks `load` and `store`, and the type `V`: one element, or one
// element of each of four rows.

/// True if the cumulative sum at an element excludes the element itself.
const EXCLUSIVE = false;
/// True if the cumulative sum starts at the end of the row.
const REVERSE = false;

alias V = f32;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

fn load(row: u32, i: u32) -> V { return source[row * 100u + i]; }
fn store(row: u32, i: u32, v: V) { result[row * 100u + i] = v; }

/// Returns the position in the row of the element that step `at` of the scan adds.
fn position(at: u32) -> u32 { return select(at, length() - 1u - at, REVERSE); }

var<workgroup> sums: array<V, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let lane = lane_of(local);
    let group_row = group_row_of(local);
    let row = first_row(group, groups) + group_row;
    // An invocation whose row is past the last row reads no elements, but it reaches every barrier.
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
