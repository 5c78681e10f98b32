// Matmul with matrices of workgroup scope: `result[batch] = a[batch] (M x K) * b[batch] (K x N)`, f16 inputs, f32 sums.
// A workgroup computes TILE_M x TILE_N elements as a sequence of TILE_M x TILE_K by TILE_K x TILE_N matrix
// multiplications. The driver decides how matrices pass through workgroup memory and registers. A tile that would
// extend past an edge begins earlier and computes some elements of its neighbor again. It stores only its own elements,
// because the epilogue may read memory that the result overwrites.
//
// A shader cannot access single elements of a matrix of workgroup scope. The workgroup writes the sums to memory and
// reads them again, four at a time, for the fused epilogue. With DIRECT, the sums are stored as the result.
// GROUPS_PER_MATMUL workgroups compute all tiles of one matmul of the batch in turn, so the scratch memory does not
// grow with the size of the matmul.
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
const DIRECT = false;
/// Number of workgroups that compute one matmul of the batch.
const GROUPS_PER_MATMUL = 4u;
/// Number of rows of tiles in a band. Workgroups compute tiles band by band, and in a band column by column, so that
/// they reuse operands in the cache.
const BAND = 8u;
/// Number of vec4s of sums that an invocation reads before it stores the first result.
const VEC4S_IN_FLIGHT = 4u;
const ROW_VEC4S = TILE_N / 4u;
const TILE_VEC4S = TILE_M * ROW_VEC4S;
const_assert TILE_VEC4S % (THREADS * VEC4S_IN_FLIGHT) == 0u;
const_assert TILE_N % 8u == 0u && TILE_K % 16u == 0u;

@group(0) @binding(0) var<storage, read> a_buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b_buffer: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> sums: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> result: array<vec4<f32>>;

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
/// Stores the sums of a tile: as the result if DIRECT is true, else in scratch memory, from which `load_sums` reads them.
fn store_sums(group_slot: u32, batch: u32, row: u32, column: u32, tile: MatrixC) { coopStoreT(tile, &sums[group_slot * TILE_VEC4S], ROW_VEC4S); }
/// Reads four sums of row `row`, from column `4 * n4`. They are the vec4 with index `vec4_index` of the tile.
fn load_sums(group_slot: u32, vec4_index: u32, batch: u32, row: u32, n4: u32) -> vec4<f32> { return sums[group_slot * TILE_VEC4S + vec4_index]; }
/// Applies the epilogue to four sums of row `row`, from column `4 * n4`, and stores the results.
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) { result[(batch * 256u + row) * 64u + n4] = v; }

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
            // unroll
            for (var step = 0u; step < UNROLL; step++) {
                let a = fragment_a(batch, first.x, k + step * TILE_K);
                let b = fragment_b(batch, k + step * TILE_K, first.y);
                tile = coopMultiplyAdd(a, b, tile);
            }
        }
        store_sums(group_slot, batch, first.x, first.y, tile);
        if (!DIRECT) {
            storageBarrier();
            for (var vec4_index = local; vec4_index < TILE_VEC4S; vec4_index += THREADS * VEC4S_IN_FLIGHT) {
                var v: array<vec4<f32>, VEC4S_IN_FLIGHT>;
                // unroll
                for (var j = 0u; j < VEC4S_IN_FLIGHT; j++) {
                    let at = vec4_index + j * THREADS;
                    v[j] = load_sums(group_slot, at, batch, first.x + at / ROW_VEC4S, first.y / 4u + at % ROW_VEC4S);
                }
                // unroll
                for (var j = 0u; j < VEC4S_IN_FLIGHT; j++) {
                    let at = vec4_index + j * THREADS;
                    let row = first.x + at / ROW_VEC4S;
                    let n4 = first.y / 4u + at % ROW_VEC4S;
                    if (row >= origin.x && n4 >= origin.y / 4u) { store(batch, row, n4, v[j]); }
                }
            }
            storageBarrier();
        }
    }
}
