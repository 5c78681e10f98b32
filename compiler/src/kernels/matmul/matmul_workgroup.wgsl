// Matmul with matrices of workgroup scope: `result[batch] = a[batch] (M x K) * b[batch] (K x N)`, f16 inputs, f32 sums.
// A workgroup computes TILE_M x TILE_N elements as a sequence of TILE_M x TILE_K by TILE_K x TILE_N matrix
// multiplications. The driver decides how matrices pass through workgroup memory and registers. A tile that would
// extend past an edge begins earlier and computes some elements of its neighbor again, with equal results.
//
// The epilogue is a function of single elements, which the emitter applies to the matrix of sums (see `map_elements`).
// The matrix of results is then stored as a whole, or each element is stored by itself.
//
// The compiler replaces the knobs, the sizes and the hooks. The matrix types in this file stand for types of workgroup
// scope, which the emitter inserts. Eight f16 are stored as the bits of a vec4<f32>.

enable wgpu_cooperative_matrix;

alias MatrixA = coop_mat16x16<f32, A>;
alias MatrixB = coop_mat16x16<f32, B>;
alias MatrixC = coop_mat16x16<f32, C>;
const THREADS = 256u;
const TILE_M = 128u;
const TILE_N = 128u;
const TILE_K = 64u;
/// Number of K-tiles per iteration of the loop over K.
const UNROLL = 2u;
/// True if the sums pass through `element`.
const MAPPED = true;
/// True if the matrix of results is stored as a whole; otherwise `element` stores.
const STORES_TILE = true;
/// Number of result elements in 16 bytes: 4 of f32, or 8 of f16, to which the emitter then converts the results.
const STORED_ELEMENTS = 4u;
/// Number of rows of tiles in a band. Workgroups compute tiles band by band, and in a band column by column, so that
/// they reuse operands in the cache.
const BAND = 8u;
const_assert TILE_N % 8u == 0u && TILE_K % 16u == 0u;

@group(0) @binding(0) var<storage, read> a_buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b_buffer: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 256u; }
fn size_n() -> u32 { return 256u; }
fn size_k() -> u32 { return 256u; }
fn groups_m() -> u32 { return 2u; }
fn groups_n() -> u32 { return 2u; }

/// Loads the TILE_M x TILE_K matrix of the first operand whose first element is at row `row`, column `k`. In the
/// buffer, indices along the contiguous axis count groups of eight elements.
fn fragment_a(batch: u32, row: u32, k: u32) -> MatrixA { return coopLoadT<MatrixA>(&a_buffer[(batch * 256u + row) * 32u + k / 8u], 32u); }
/// Loads the TILE_K x TILE_N matrix of the second operand whose first element is at row `k`, column `column`.
fn fragment_b(batch: u32, k: u32, column: u32) -> MatrixB { return coopLoadT<MatrixB>(&b_buffer[(batch * 256u + k) * 32u + column / 8u], 32u); }
/// Applies the epilogue to the sum at row `row`, column `column` of a tile whose first element is at row `first_row`, column
/// `first_column` of the result. Without STORES_TILE, stores the result.
fn element(row: u32, column: u32, v: f32, batch: u32, first_row: u32, first_column: u32) -> f32 { return v; }
/// Applies `element` to every element of a tile. The emitter replaces the body, in which the call only names the
/// function and its last arguments.
fn map_elements(tile: MatrixC, batch: u32, first_row: u32, first_column: u32) -> MatrixC {
    let v = element(0u, 0u, 0.0, batch, first_row, first_column);
    return tile;
}
/// Stores a tile of results.
fn store_tile(batch: u32, row: u32, column: u32, tile: MatrixC) {
    coopStoreT(tile, &result[((batch * 256u + row) * 256u + column) / STORED_ELEMENTS], 256u / STORED_ELEMENTS);
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
        // unroll
        for (var step = 0u; step < UNROLL; step++) {
            let a = fragment_a(batch, first.x, k + step * TILE_K);
            let b = fragment_b(batch, k + step * TILE_K, first.y);
            tile = coopMultiplyAdd(a, b, tile);
        }
    }
    if (MAPPED) { tile = map_elements(tile, batch, first.x, first.y); }
    if (STORES_TILE) { store_tile(batch, first.x, first.y, tile); }
}
