// Sum of two RMSNorms of rows: `a / sqrt(mean(a^2) + first_epsilon) * scale_a + b / sqrt(mean(b^2) + second_epsilon) *
// scale_b`. LANES invocations compute a row, and a workgroup computes ROWS rows. The sums of squares of both operands
// share one reduction tree. Used where the results of two matmuls are normalized and added to a residual.
//
// Replaced by the compiler: knobs, sizes, `V` (one element, a vec4 of one row, or one element of four rows), the load
// hooks, `store`, and `sum_lanes` if the four lanes belong to one row.

const LANES = 64u;
const ROWS = 1u;
const THREADS = LANES * ROWS;
/// True if neighboring invocations read neighboring rows, false if they read neighboring elements of a row.
const ROWS_FIRST = false;
/// Loads in flight per invocation and row. If ROW_IN_REGISTERS is true, they are the whole row and are not loaded
/// again.
const LOADS = 2u;
const ROW_IN_REGISTERS = false;
fn first_epsilon() -> f32 { return 1e-5; }
fn second_epsilon() -> f32 { return 1e-5; }
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;

alias V = f32;
/// Sums of squares of both operands.
struct Squares { a: V, b: V }

@group(0) @binding(0) var<storage, read> first: array<f32>;
@group(0) @binding(1) var<storage, read> second: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;

/// Number of rows, elements or vec4s per row, and elements per row.
fn rows() -> u32 { return 3u; }
fn length() -> u32 { return 100u; }
fn elements() -> u32 { return 100u; }
fn load_a(row: u32, i: u32) -> V { return first[row * 100u + i]; }
fn load_b(row: u32, i: u32) -> V { return second[row * 100u + i]; }
fn scale_a(row: u32, i: u32) -> V { return V(1.0); }
fn scale_b(row: u32, i: u32) -> V { return V(1.0); }
fn store(row: u32, i: u32, v: V) { result[row * 100u + i] = v; }
/// Returns the sum of the four lanes in every lane, if they belong to one row.
fn sum_lanes(sum: V) -> V { return sum; }

var<workgroup> lane_squares: array<Squares, THREADS>;

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
