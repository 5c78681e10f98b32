// @generated for top_k/0 f32: top_k_rank THREADS=256
const THREADS = 256u;
const COUNT = 40u;
alias V = f32;
alias U = u32;
alias R = f32;
fn rows() -> u32 { return 3u; }
fn length() -> u32 { return 20011u; }
fn load(row: u32, i: u32) -> f32 {
    let row_0 = row;
    let i_1 = i;
    return f32(buffer_0[(row_0) * 20011u + (i_1)]);
}
fn key(x: V) -> U {
    let bits = bitcast<U>(select(x, V(0.0), x == V(0.0)));
    let ordered = select(bits | U(0x80000000u), ~bits, (bits & U(0x80000000u)) != U(0u));
    let k = select(ordered, U(0xffffffffu), (bits & U(0x7fffffffu)) > U(0x7f800000u));
    return k;
}
fn output_of(row: u32, at: u32) -> R { return load(row, at); }
fn store(row: u32, i: u32, v: f32) {
    let row_0 = row;
    let i_1 = i;
    buffer_1[(row_0) * 40u + (i_1)] = f32(v);
}
@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    let n = length();
    if (unit >= rows() * n) { return; }
    let row = unit / n;
    let at = unit % n;
    let element_key = key(load(row, at));
    var rank = 0u;
    for (var i = 0u; i < n; i++) {
        let other = key(load(row, i));
        rank += u32(other > element_key || (other == element_key && i < at));
    }
    if (rank < COUNT) { store(row, rank, output_of(row, at)); }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read_write> buffer_1: array<f32>;
