// Joins what attention_parts.wgsl has found in the parts of the keys: an invocation takes four columns of a query.
//
// Replaced: the knobs, the sizes and the hooks.

const THREADS = 64u;
const PARTS = 4u;
const TILE = 8u;
const E4 = 2u;

@group(0) @binding(0) var<storage, read> partial: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> stats: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn rows() -> u32 { return 10u; }
fn size_t() -> u32 { return 100u; }
/// Key heads of all batches.
fn heads() -> u32 { return 2u; }
fn kept(at: u32, e4: u32) -> vec4<f32> { return partial[at * E4 + e4]; }
fn kept_stats(at: u32) -> vec2<f32> { return stats[at]; }
fn store(head: u32, row: u32, e4: u32, v: vec4<f32>) { result[(head * 10u + row) * E4 + e4] = v; }

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * groups.x * THREADS;
    let query = unit / E4;
    if (query < rows() * heads()) {
        let each = (size_t() + PARTS * TILE - 1u) / (PARTS * TILE) * TILE;
        let count = (size_t() + each - 1u) / max(each, 1u);
        var top = -3.4028234e38;
        for (var p = 0u; p < count; p++) { top = max(top, kept_stats(query * PARTS + p).x); }
        var total = vec4<f32>(0.0);
        var weight = 0.0;
        for (var p = 0u; p < count; p++) {
            let found = kept_stats(query * PARTS + p);
            let factor = exp(found.x - top);
            total += factor * kept(query * PARTS + p, unit % E4);
            weight += factor * found.y;
        }
        // A query that sees no key gives zero.
        let v = select(vec4<f32>(0.0), total / weight, weight > 0.0);
        store(query / rows(), query % rows(), unit % E4, v);
    }
}
