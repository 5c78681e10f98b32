// The sum of two rows, each divided by its root mean square: `a / sqrt(mean(a^2) + first_epsilon) * scale_a + b / sqrt(mean(b^2)
// + second_epsilon) * scale_b`. A row belongs to LANES invocations and a workgroup holds ROWS rows; sums of both rows' squares
// go through one tree. Picked for what stands behind two products whose results are normalised and added to a residual.
//
// Replaced: the knobs, the sizes, `V` (one element, four of one row, or one of four rows), the hooks that load, `store`, and
// `across` when the four lanes belong to one row.

const LANES = 64u;
const ROWS = 1u;
const THREADS = LANES * ROWS;
/// Neighbouring invocations take neighbouring rows rather than neighbouring positions.
const ROWS_FIRST = false;
/// Units of each row per invocation that are loaded together, and kept when HELD says that they are the whole row.
const KEEP = 2u;
const HELD = false;
fn first_epsilon() -> f32 { return 1e-5; }
fn second_epsilon() -> f32 { return 1e-5; }
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;

alias V = f32;
/// Sums of squares of both rows.
struct Squares { a: V, b: V }

@group(0) @binding(0) var<storage, read> first: array<f32>;
@group(0) @binding(1) var<storage, read> second: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;

/// Number of rows, of units in a row, and of elements in one.
fn rows() -> u32 { return 3u; }
fn length() -> u32 { return 100u; }
fn elements() -> u32 { return 100u; }
fn load_a(row: u32, i: u32) -> V { return first[row * 100u + i]; }
fn load_b(row: u32, i: u32) -> V { return second[row * 100u + i]; }
fn scale_a(row: u32, i: u32) -> V { return V(1.0); }
fn scale_b(row: u32, i: u32) -> V { return V(1.0); }
fn store(row: u32, i: u32, v: V) { result[row * 100u + i] = v; }
/// The sum of all four lanes, in every lane, when they belong to one row.
fn across(sum: V) -> V { return sum; }

var<workgroup> parts: array<Squares, THREADS>;

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
    var a: array<V, KEEP>;
    var b: array<V, KEEP>;
    var squares = Squares(V(0.0), V(0.0));
    for (var base = lane; base < n; base += LANES * KEEP) {
        // unroll
        for (var k = 0u; k < KEEP; k++) {
            let i = base + k * LANES;
            if (i < n) {
                a[k] = load_a(row, i);
                b[k] = load_b(row, i);
            }
        }
        // unroll
        for (var k = 0u; k < KEEP; k++) {
            if (base + k * LANES < n) {
                squares.a += a[k] * a[k];
                squares.b += b[k] * b[k];
            }
        }
    }
    if (LANES > 1u) {
        let here = lane * ROWS + member;
        parts[here] = squares;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if (lane < step) {
                let other = parts[here + step * ROWS];
                squares = Squares(squares.a + other.a, squares.b + other.b);
                parts[here] = squares;
            }
            workgroupBarrier();
        }
        squares = parts[member];
    }
    let of_a = inverseSqrt(across(squares.a) / f32(elements()) + V(first_epsilon()));
    let of_b = inverseSqrt(across(squares.b) / f32(elements()) + V(second_epsilon()));
    for (var base = lane; base < n; base += LANES * KEEP) {
        // unroll
        for (var k = 0u; k < KEEP; k++) {
            let i = base + k * LANES;
            if (i < n) {
                if (!HELD) {
                    a[k] = load_a(row, i);
                    b[k] = load_b(row, i);
                }
                store(row, i, a[k] * of_a * scale_a(row, i) + b[k] * of_b * scale_b(row, i));
            }
        }
    }
}
