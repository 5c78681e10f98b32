// Sum of two RMSNorms of rows: `a / sqrt(mean(a^2) + first_epsilon) * scale_a + b / sqrt(mean(b^2) + second_epsilon) *
// scale_b`. LANES invocations compute a row, and a workgroup computes ROWS rows. The sums of squares of both operands
// share one reduction tree. The kernel is used where the results of two matmuls are normalized and added.
//
// Prelude: `rows.wgsl`.
//
// The compiler replaces the knobs, the sizes, the load hooks, `store`, and the type `V`: one element, a vec4 of one
// row, or one element of each of four rows. It replaces `sum_lanes` if `V` is a vec4 of one row.

fn first_epsilon() -> f32 { return 1e-5; }
fn second_epsilon() -> f32 { return 1e-5; }

alias V = f32;
/// Sum of squares of a row of the first operand (`a`), and of the same row of the second operand (`b`).
struct Squares { a: V, b: V }

@group(0) @binding(0) var<storage, read> first: array<f32>;
@group(0) @binding(1) var<storage, read> second: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;

/// Returns the number of elements per row, over which the means are computed.
fn elements() -> u32 { return 100u; }
fn load_a(row: u32, i: u32) -> V { return first[row * 100u + i]; }
fn load_b(row: u32, i: u32) -> V { return second[row * 100u + i]; }
fn scale_a(row: u32, i: u32) -> V { return V(1.0); }
fn scale_b(row: u32, i: u32) -> V { return V(1.0); }
fn store(row: u32, i: u32, v: V) { result[row * 100u + i] = v; }
/// If `V` is a vec4 of one row, returns the sum of its four components in every component. Otherwise returns `sum`.
fn sum_lanes(sum: V) -> V { return sum; }

var<workgroup> lane_squares: array<Squares, THREADS>;

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
    var a: array<V, LOADS>;
    var b: array<V, LOADS>;
    var squares = Squares(V(0.0), V(0.0));
    for (var base = lane; base < n; base += LANES * LOADS) {
        // unroll
        for (var k = 0u; k < LOADS; k++) {
            let i = base + k * LANES;
            if (i < n) {
                a[k] = load_a(row, i);
                b[k] = load_b(row, i);
            }
        }
        // unroll
        for (var k = 0u; k < LOADS; k++) {
            if (base + k * LANES < n) {
                squares.a += a[k] * a[k];
                squares.b += b[k] * b[k];
            }
        }
    }
    if (LANES > 1u) {
        let here = lane * ROWS + group_row;
        lane_squares[here] = squares;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if (lane < step) {
                let other = lane_squares[here + step * ROWS];
                squares = Squares(squares.a + other.a, squares.b + other.b);
                lane_squares[here] = squares;
            }
            workgroupBarrier();
        }
        squares = lane_squares[group_row];
    }
    let factor_a = inverseSqrt(sum_lanes(squares.a) / f32(elements()) + V(first_epsilon()));
    let factor_b = inverseSqrt(sum_lanes(squares.b) / f32(elements()) + V(second_epsilon()));
    for (var base = lane; base < n; base += LANES * LOADS) {
        // unroll
        for (var k = 0u; k < LOADS; k++) {
            let i = base + k * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) {
                    a[k] = load_a(row, i);
                    b[k] = load_b(row, i);
                }
                store(row, i, a[k] * factor_a * scale_a(row, i) + b[k] * factor_b * scale_b(row, i));
            }
        }
    }
}
