// @generated for matmul/10 f16: matmul_workgroup TILE_M=32 TILE_N=64 TILE_K=64 UNROLL=1
enable wgpu_cooperative_matrix;
alias MatrixA = coop_mat16x16<f32, A>;
alias MatrixB = coop_mat16x16<f32, B>;
alias MatrixC = coop_mat16x16<f32, C>;
const THREADS = 256u;
const TILE_M = 32u;
const TILE_N = 64u;
const TILE_K = 64u;
const UNROLL = 1u;
const DIRECT = false;
const GROUPS_PER_MATMUL = 40u;
const BAND = 8u;
const VEC4S_IN_FLIGHT = 2u;
const ROW_VEC4S = TILE_N / 4u;
const TILE_VEC4S = TILE_M * ROW_VEC4S;
const_assert TILE_VEC4S % (THREADS * VEC4S_IN_FLIGHT) == 0u;
const_assert TILE_N % 8u == 0u && TILE_K % 16u == 0u;
fn size_m() -> u32 { return 300u; }
fn size_n() -> u32 { return 200u; }
fn size_k() -> u32 { return 128u; }
fn groups_m() -> u32 { return 10u; }
fn groups_n() -> u32 { return 4u; }
fn fragment_a(batch: u32, row: u32, k: u32) -> MatrixA {
    return coopLoadT<MatrixA>(&buffer_0[(row) * 16u + ((k / 8u))], 16u);
}
fn fragment_b(batch: u32, k: u32, column: u32) -> MatrixB {
    return coopLoadT<MatrixB>(&buffer_1[(0u * 128u + k) * 25u + column / 8u], 25u);
}
fn store_sums(group_slot: u32, batch: u32, row: u32, column: u32, tile: MatrixC) { coopStoreT(tile, &buffer_3[(batch * 300u + row) * 50u + column / 4u], 50u); }
fn load_sums(group_slot: u32, vec4_index: u32, batch: u32, row: u32, n4: u32) -> vec4<f32> { return buffer_3[(batch * 300u + row) * 50u + n4]; }
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) {
    let s1 = max(v, vec4<f32>(0.0));
    var w = vec4<f32>(s1);
    buffer_2[(row) * 50u + (n4)] = w;
}
@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let batch = group.z;
    let group_slot = batch * GROUPS_PER_MATMUL + group.x;
    for (var i = group.x; i < groups_m() * groups_n(); i += GROUPS_PER_MATMUL) {
        let band = i / (BAND * groups_n());
        let in_band = i % (BAND * groups_n());
        let band_rows = min(BAND, groups_m() - band * BAND);
        let origin = vec2<u32>(band * BAND + in_band % band_rows, in_band / band_rows) * vec2<u32>(TILE_M, TILE_N);
        let first = min(origin, vec2<u32>(size_m() - TILE_M, size_n() - TILE_N));
        var tile = MatrixC();
        for (var k = 0u; k < size_k(); k += TILE_K * UNROLL) {
            {
                let a = fragment_a(batch, first.x, k + 0u * TILE_K);
                let b = fragment_b(batch, k + 0u * TILE_K, first.y);
                tile = coopMultiplyAdd(a, b, tile);
            }
        }
        store_sums(group_slot, batch, first.x, first.y, tile);
        if (!DIRECT) {
            storageBarrier();
            for (var vec4_index = local; vec4_index < TILE_VEC4S; vec4_index += THREADS * VEC4S_IN_FLIGHT) {
                var v: array<vec4<f32>, VEC4S_IN_FLIGHT>;
                {
                    let at = vec4_index + 0u * THREADS;
                    v[0u] = load_sums(group_slot, at, batch, first.x + at / ROW_VEC4S, first.y / 4u + at % ROW_VEC4S);
                }
{
                    let at = vec4_index + 1u * THREADS;
                    v[1u] = load_sums(group_slot, at, batch, first.x + at / ROW_VEC4S, first.y / 4u + at % ROW_VEC4S);
                }
                {
                    let at = vec4_index + 0u * THREADS;
                    let row = first.x + at / ROW_VEC4S;
                    let n4 = first.y / 4u + at % ROW_VEC4S;
                    if (row >= origin.x && n4 >= origin.y / 4u) { store(batch, row, n4, v[0u]); }
                }
{
                    let at = vec4_index + 1u * THREADS;
                    let row = first.x + at / ROW_VEC4S;
                    let n4 = first.y / 4u + at % ROW_VEC4S;
                    if (row >= origin.x && n4 >= origin.y / 4u) { store(batch, row, n4, v[1u]); }
                }
            }
            storageBarrier();
        }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> buffer_2: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> buffer_3: array<vec4<f32>>;
