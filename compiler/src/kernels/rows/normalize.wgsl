// Normalisation of each row by its mean and variance: `(x - mean) / sqrt(variance + epsilon) * scale + bias`.
// A row belongs to LANES invocations and a workgroup holds ROWS rows. One pass collects the moments: every
// invocation sums distances from its first element, and the parts merge by Chan's formula, so that a large mean costs
// no accuracy. Picked for layer, root-mean-square, group and instance normalisation. Where rows are long and few, each is
// cut into SPLIT pieces: a first launch collects the moments of every piece, a second one merges those of the row and
// applies them to its piece.
//
// Replaced: the knobs, the sizes, `V` (one element, four of one row, or one of four rows), `load`, `scale`, `bias`,
// `store`, `across` when the four lanes belong to one row, and for pieces `collect` and `collected`.

const LANES = 64u;
const ROWS = 1u;
const THREADS = LANES * ROWS;
/// Neighbouring invocations take neighbouring rows rather than neighbouring positions.
const ROWS_FIRST = false;
/// Units per invocation that are loaded together, and kept when HELD says that they are the whole row.
const KEEP = 2u;
const HELD = false;
const SPLIT = 1u;
/// Which of the launches this is, where there are two.
const COLLECTS = true;
const APPLIES = true;
/// Whether the mean is subtracted; without, the variance is the mean of squares.
const CENTRED = true;
fn epsilon() -> f32 { return 1e-5; }
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;

alias V = f32;
/// Number of elements, their mean, and the sum of squared distances from it.
struct Moments { count: f32, mean: V, spread: V }
/// The same in a buffer, whose layout a type in workgroup memory must not have.
struct Kept { count: f32, mean: V, spread: V }

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;

/// Number of rows, and of units in a row.
fn rows() -> u32 { return 3u; }
fn length() -> u32 { return 100u; }
fn load(row: u32, i: u32) -> V { return source[row * 100u + i]; }
fn scale(row: u32, i: u32) -> V { return scales[i]; }
fn bias(row: u32, i: u32) -> V { return V(0.0); }
fn store(row: u32, i: u32, v: V) { result[row * 100u + i] = v; }
/// Keeps the moments of a piece, and gives them back.
fn collect(piece: u32, m: Moments) {}
fn collected(piece: u32) -> Moments { return Moments(0.0, V(0.0), V(0.0)); }
/// The moments of all four lanes together, in every lane, when they belong to one row.
fn across(m: Moments) -> Moments { return m; }

fn merge(a: Moments, b: Moments) -> Moments {
    let count = a.count + b.count;
    let part = select(0.0, b.count / count, count > 0.0);
    let gap = b.mean - a.mean;
    return Moments(count, a.mean + gap * part, a.spread + b.spread + gap * gap * (a.count * part));
}

var<workgroup> parts: array<Moments, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let lane = select(local % LANES, local / ROWS, ROWS_FIRST);
    let member = select(local / LANES, local % ROWS, ROWS_FIRST);
    let piece = (group.x + group.y * groups.x) * ROWS + member;
    let row = piece / SPLIT;
    let units = (length() + SPLIT - 1u) / SPLIT;
    let first = piece % SPLIT * units + lane;
    // A row past the end has no element, but its invocations take part in every barrier.
    let n = select(0u, min(piece % SPLIT * units + units, length()), row < rows());
    var kept: array<V, KEEP>;
    var origin = V(0.0);
    if (COLLECTS && CENTRED && first < n) { origin = load(row, first); }
    var count = 0.0;
    var sum = V(0.0);
    var squares = V(0.0);
    for (var base = first; COLLECTS && base < n; base += LANES * KEEP) {
        // unroll
        for (var k = 0u; k < KEEP; k++) {
            if (base + k * LANES < n) { kept[k] = load(row, base + k * LANES); }
        }
        // unroll
        for (var k = 0u; k < KEEP; k++) {
            if (base + k * LANES < n) {
                let x = kept[k] - origin;
                count += 1.0;
                sum += x;
                squares += x * x;
            }
        }
    }
    var moments = Moments(count, V(0.0), squares);
    if (CENTRED && count > 0.0) {
        let shift = sum / count;
        moments = Moments(count, origin + shift, max(squares - sum * shift, V(0.0)));
    }
    if (COLLECTS && LANES > 1u) {
        let here = lane * ROWS + member;
        parts[here] = moments;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if (lane < step) { parts[here] = merge(parts[here], parts[here + step * ROWS]); }
            workgroupBarrier();
        }
        moments = parts[member];
    }
    if (!APPLIES) {
        if (lane == 0u && row < rows()) { collect(piece, moments); }
        return;
    }
    if (!COLLECTS && row < rows()) {
        for (var k = 0u; k < SPLIT; k++) { moments = merge(moments, collected(row * SPLIT + k)); }
    }
    moments = across(moments);
    let factor = inverseSqrt(moments.spread / moments.count + V(epsilon()));
    for (var base = first; base < n; base += LANES * KEEP) {
        // unroll
        for (var k = 0u; k < KEEP; k++) {
            let i = base + k * LANES;
            if (i < n) {
                if (!HELD) { kept[k] = load(row, i); }
                store(row, i, (kept[k] - moments.mean) * factor * scale(row, i) + bias(row, i));
            }
        }
    }
}
