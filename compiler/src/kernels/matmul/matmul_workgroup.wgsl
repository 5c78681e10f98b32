// Matrix product whose matrices a whole workgroup holds: `result[batch] = a[batch] (M x K) * b[batch] (K x N)`, f16
// inputs, f32 sums. A workgroup computes TILE_M x TILE_N elements as one product of TILE_M x DEPTH by DEPTH x TILE_N after
// the other; how these pass through workgroup memory and registers is the driver's affair. A tile that would reach past
// an edge begins earlier instead, and computes what its neighbour computes as well; it stores its own part alone, since the
// chain may read what the result overwrites.
//
// The elements of such a matrix cannot be reached. The sums go to memory, from where the same workgroup reads them again,
// four at a time, for the fused chain; with DIRECT they are the result. There are SLOTS workgroups to a product of the
// batch, which take one tile after the other, so that what they need of memory does not grow with the product.
//
// Replaced: the knobs, the sizes and the hooks. The matrix types here stand for ones of a workgroup's size, which they
// become when the module is emitted; eight f16 travel as the bits of a vec4<f32>.

enable wgpu_cooperative_matrix;

alias MatrixA = coop_mat16x16<f32, A>;
alias MatrixB = coop_mat16x16<f32, B>;
alias MatrixC = coop_mat16x16<f32, C>;
const THREADS = 256u;
const TILE_M = 128u;
const TILE_N = 128u;
const DEPTH = 64u;
/// Products between two looks at the loop's end.
const STEPS = 2u;
const DIRECT = false;
/// Workgroups to a product.
const SLOTS = 4u;
/// Rows of workgroups that run side by side, for the sake of the cache.
const BAND = 8u;
/// Sums that an invocation reads before it stores any.
const AHEAD = 4u;
const FOURS = TILE_N / 4u;
const UNITS = TILE_M * FOURS;
const_assert UNITS % (THREADS * AHEAD) == 0u;
const_assert TILE_N % 8u == 0u && DEPTH % 16u == 0u;

@group(0) @binding(0) var<storage, read> a_buffer: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b_buffer: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> sums: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> result: array<vec4<f32>>;

fn size_m() -> u32 { return 256u; }
fn size_n() -> u32 { return 256u; }
fn size_k() -> u32 { return 256u; }
fn groups_m() -> u32 { return 2u; }
fn groups_n() -> u32 { return 2u; }

/// The TILE_M x DEPTH matrix of a whose first element is at `row`, `k`; what is eight neighbours in memory counts in eights.
fn fragment_a(batch: u32, row: u32, k: u32) -> MatrixA { return coopLoadT<MatrixA>(&a_buffer[(batch * 256u + row) * 32u + k / 8u], 32u); }
/// The DEPTH x TILE_N matrix of b.
fn fragment_b(batch: u32, k: u32, column: u32) -> MatrixB { return coopLoadT<MatrixB>(&b_buffer[(batch * 256u + k) * 32u + column / 8u], 32u); }
/// Stores the sums of a tile: as the result with DIRECT, else where `kept` finds them.
fn keep(slot: u32, batch: u32, row: u32, column: u32, tile: MatrixC) { coopStoreT(tile, &sums[slot * UNITS], FOURS); }
/// Four sums of row `row` from column `4 * n4`, which are the tile's vector `unit`.
fn kept(slot: u32, unit: u32, batch: u32, row: u32, n4: u32) -> vec4<f32> { return sums[slot * UNITS + unit]; }
/// Applies the chain to four sums of row `row` from column `4 * n4` and stores them.
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) { result[(batch * 256u + row) * 64u + n4] = v; }

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let batch = group.z;
    let slot = batch * SLOTS + group.x;
    for (var i = group.x; i < groups_m() * groups_n(); i += SLOTS) {
        let band = i / (BAND * groups_n());
        let in_band = i % (BAND * groups_n());
        let high = min(BAND, groups_m() - band * BAND);
        let own = vec2<u32>(band * BAND + in_band % high, in_band / high) * vec2<u32>(TILE_M, TILE_N);
        let first = min(own, vec2<u32>(size_m() - TILE_M, size_n() - TILE_N));
        var tile = MatrixC();
        for (var k = 0u; k < size_k(); k += DEPTH * STEPS) {
            // unroll
            for (var step = 0u; step < STEPS; step++) {
                let a = fragment_a(batch, first.x, k + step * DEPTH);
                let b = fragment_b(batch, k + step * DEPTH, first.y);
                tile = coopMultiplyAdd(a, b, tile);
            }
        }
        keep(slot, batch, first.x, first.y, tile);
        if (!DIRECT) {
            storageBarrier();
            for (var unit = local; unit < UNITS; unit += THREADS * AHEAD) {
                var v: array<vec4<f32>, AHEAD>;
                // unroll
                for (var j = 0u; j < AHEAD; j++) {
                    let at = unit + j * THREADS;
                    v[j] = kept(slot, at, batch, first.x + at / FOURS, first.y / 4u + at % FOURS);
                }
                // unroll
                for (var j = 0u; j < AHEAD; j++) {
                    let at = unit + j * THREADS;
                    let row = first.x + at / FOURS;
                    let n4 = first.y / 4u + at % FOURS;
                    if (row >= own.x && n4 >= own.y / 4u) { store(batch, row, n4, v[j]); }
                }
            }
            storageBarrier();
        }
    }
}
