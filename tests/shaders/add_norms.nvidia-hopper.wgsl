// @generated for add_norms/0 f32: add_norms LANES=1024 ROWS=1
const LANES = 1024u;
const ROWS = 1u;
const THREADS = LANES * ROWS;
const ROWS_FIRST = false;
const LOADS = 1u;
const ROW_IN_REGISTERS = true;
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;
fn rows() -> u32 { return 1u; }
fn length() -> u32 { return 576u; }
fn lane_of(local: u32) -> u32 { return select(local % LANES, local / ROWS, ROWS_FIRST); }
fn group_row_of(local: u32) -> u32 { return select(local / LANES, local % ROWS, ROWS_FIRST); }
fn first_row(group: vec3<u32>, groups: vec3<u32>) -> u32 { return (group.x + group.y * groups.x) * ROWS; }
fn first_epsilon() -> f32 { return f32(1e-5); }
fn second_epsilon() -> f32 { return f32(0.001); }
alias V = vec4<f32>;
struct Squares { a: V, b: V }
fn elements() -> u32 { return 2304u; }
fn load_a(row: u32, i: u32) -> vec4<f32> {
    let i_0 = i;
    return vec4<f32>(buffer_0[(i_0)]);
}
fn load_b(row: u32, i: u32) -> vec4<f32> {
    let i_0 = i;
    return vec4<f32>(buffer_1[(i_0)]);
}
fn scale_a(row: u32, i: u32) -> vec4<f32> {
    let i_0 = i;
    let x1 = vec4<f32>(buffer_2[(i_0)]);
    return x1;
}
fn scale_b(row: u32, i: u32) -> vec4<f32> {
    let i_0 = i;
    let x3 = vec4<f32>(buffer_3[(i_0)]);
    return x3;
}
fn store(row: u32, i: u32, v: vec4<f32>) {
    let i_0 = i;
    let x4 = vec4<f32>(buffer_4[(i_0)]);
    let s1 = (v + x4);
    var w = vec4<f32>(s1);
    buffer_5[(i_0)] = w;
}
fn sum_lanes(sum: V) -> V { return V(dot(sum, V(1.0))); }
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
    let n = select(0u, length(), row < rows());
    var a: array<V, LOADS>;
    var b: array<V, LOADS>;
    var squares = Squares(V(0.0), V(0.0));
    for (var base = lane; base < n; base += LANES * LOADS) {
        {
            let i = base + 0u * LANES;
            if (i < n) {
                a[0u] = load_a(row, i);
                b[0u] = load_b(row, i);
            }
        }
        {
            if (base + 0u * LANES < n) {
                squares.a += a[0u] * a[0u];
                squares.b += b[0u] * b[0u];
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
        {
            let i = base + 0u * LANES;
            if (i < n) {
                if (!ROW_IN_REGISTERS) {
                    a[0u] = load_a(row, i);
                    b[0u] = load_b(row, i);
                }
                store(row, i, a[0u] * factor_a * scale_a(row, i) + b[0u] * factor_b * scale_b(row, i));
            }
        }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> buffer_2: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> buffer_3: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> buffer_4: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> buffer_5: array<vec4<f32>>;
