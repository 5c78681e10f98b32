// One invocation per unit of the result: elementwise functions, copies and everything else whose result elements
// each come from few operand elements. Picked for every such operator.
//
// Replaced: `units` (how many units there are) and `run` (coordinates, reads, the chain and the store).

const THREADS = 64u;
const_assert THREADS >= 1u && THREADS <= 1024u;

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

/// Number of units.
fn units() -> u32 { return 1u; }

/// Computes and stores one unit.
fn run(unit: u32) { result[unit] = source[unit]; }

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit < units()) { run(unit); }
}
