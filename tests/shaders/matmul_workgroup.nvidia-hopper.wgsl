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
const MAPPED = true;
const STORES_TILE = true;
const STORED_ELEMENTS = 4u;
const BAND = 8u;
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
fn element(row: u32, column: u32, v: f32, batch: u32, first_row: u32, first_column: u32) -> f32 {
    let s1 = max(v, f32(0.0));
    return s1;
}
fn map_elements(tile: MatrixC, batch: u32, first_row: u32, first_column: u32) -> MatrixC {
    let v = element(0u, 0u, 0.0, batch, first_row, first_column);
    return tile;
}
fn store_tile(batch: u32, row: u32, column: u32, tile: MatrixC) {
    coopStoreT(tile, &buffer_2[0u + row * 50u + column / STORED_ELEMENTS], 50u);
}
@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    let batch = group.z;
    let band = group.x / (BAND * groups_n());
    let in_band = group.x % (BAND * groups_n());
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
    if (MAPPED) { tile = map_elements(tile, batch, first.x, first.y); }
    if (STORES_TILE) { store_tile(batch, first.x, first.y, tile); }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> buffer_2: array<vec4<f32>>;
