// @generated for conv/4 f16: conv_fragments SUBGROUPS_M=1 SUBGROUPS_N=1 K_SPLIT=8 GROUP_SPLIT=1 FRAGS_M=1 FRAGS_N=4 TILE_K=64 STAGED_B=0
enable wgpu_cooperative_matrix;
const LANES = 32u;
const SUBGROUPS_M = 1u;
const SUBGROUPS_N = 1u;
const K_SPLIT = 8u;
const GROUP_SPLIT = 1u;
const FRAGS_M = 1u;
const FRAGS_N = 4u;
const TILE_K = 64u;
const STAGED_B = 0u;
const GUARD_M = true;
const GUARD_N = true;
const GUARD_K = true;
const BAND = 8u;
const FRAGS = FRAGS_M * FRAGS_N;
const TILE_M = SUBGROUPS_M * FRAGS_M * 16u;
const COLUMN_FRAGS = SUBGROUPS_N * FRAGS_N;
const TILE_K8 = TILE_K / 8u;
const STEPS_K32 = TILE_K / 32u;
const SPLIT_SUBGROUPS = SUBGROUPS_M * SUBGROUPS_N;
const SPLIT_THREADS = SPLIT_SUBGROUPS * LANES;
const THREADS = SPLIT_THREADS * K_SPLIT;
const VEC8S_A = TILE_M * TILE_K8;
const LOADS_A = (VEC8S_A + SPLIT_THREADS - 1u) / SPLIT_THREADS;
const TILE_N = COLUMN_FRAGS * 8u;
const VEC8S_B = TILE_N * TILE_K8;
const LOADS_B = STAGED_B * ((VEC8S_B + SPLIT_THREADS - 1u) / SPLIT_THREADS) + (1u - STAGED_B) * FRAGS_N * STEPS_K32;
const TILE_VEC8S = VEC8S_A + STAGED_B * VEC8S_B;
const SHARED_VEC4S = 2048u;
const_assert LANES == 32u && TILE_K % 32u == 0u;
fn size_m() -> u32 { return 12u; }
fn size_n() -> u32 { return 6u; }
fn size_k8() -> u32 { return 81u; }
fn groups_m() -> u32 { return 1u; }
fn groups_n() -> u32 { return 1u; }
fn load_pixel_vec4(b: u32, c: u32, y: u32, x: u32) -> vec2<f32> {
    return buffer_0[(c) * 12u + ((x) + (y) * 3u)];
}
fn load_pixel(b: u32, c: u32, y: u32, x: u32) -> vec4<f32> {
    return vec4<f32>(load_pixel_vec4(b, c * 2u, y, x), select(vec2<f32>(), load_pixel_vec4(b, min(c * 2u + 1u, 17u - 1u), y, x), c * 2u + 1u < 17u));
}
fn load_a(batch: u32, row: u32, k: u32) -> vec4<f32> {
    let row_3 = row % 3u;
    let row_3_rest = row / 3u;
    let row_2 = row_3_rest;
    let c = k % 9u;
    var tap = k / 9u;
    var x = row_3 * 1u + tap % 3u * 1u - 1u;
    tap = tap / 3u;
    var y = row_2 * 1u + tap % 3u * 1u - 1u;
    let inside = x < 3u && y < 4u;
    y = select(0u, y, inside);
    x = select(0u, x, inside);
    return select(vec4<f32>(), load_pixel(0u, c, y, x), inside);
}
fn load_b(n8: u32, k8: u32, g: u32) -> vec4<u32> { return buffer_1[(n8 * size_k8() + k8) * 8u + g]; }
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) {
    let row_3 = row % 3u;
    let row_3_rest = row / 3u;
    let row_2 = row_3_rest;
    var l2: vec4<f32> = vec4<f32>(0.0);
    l2.x = f32(buffer_2[(((n4) * 4u))]);
    if ((n4) * 4u + 1u < 6u) { l2.y = f32(buffer_2[(((n4) * 4u)) + 1u]); }
    if ((n4) * 4u + 2u < 6u) { l2.z = f32(buffer_2[(((n4) * 4u)) + 2u]); }
    if ((n4) * 4u + 3u < 6u) { l2.w = f32(buffer_2[(((n4) * 4u)) + 3u]); }
    let x2 = l2;
    let s1 = (v + x2);
    let s2 = -(s1);
    let w = vec4<f32>(s2);
    buffer_3[(row_2) * 3u + (row_3) + (((n4) * 4u)) * 12u] = w.x;
    if ((n4) * 4u + 1u < 6u) { buffer_3[(row_2) * 3u + (row_3) + (((n4) * 4u)) * 12u + 12u] = w.y; }
    if ((n4) * 4u + 2u < 6u) { buffer_3[(row_2) * 3u + (row_3) + (((n4) * 4u)) * 12u + 24u] = w.z; }
    if ((n4) * 4u + 3u < 6u) { buffer_3[(row_2) * 3u + (row_3) + (((n4) * 4u)) * 12u + 36u] = w.w; }
}
fn store_partial(group: u32, n4: u32, row: u32, v: vec4<f32>) {}
fn multiply_fragments(local: u32, a: vec4<u32>, b: vec2<u32>, c: vec4<f32>) -> vec4<f32> {
    let d = coopMultiplyAdd(coop_mat16x16<f32, A>(), coop_mat16x16<f32, B>(), coop_mat16x16<f32, C>());
    return c;
}
var<workgroup> shared_vec4s: array<vec4<f32>, SHARED_VEC4S>;
fn tile_vec8_a(batch: u32, first_m: u32, k8: u32, i: u32) -> vec4<f32> {
    let k = k8 + i / (4u * TILE_M) * 4u + i % 4u;
    let tile_row = i / 4u % TILE_M;
    let row = select(first_m + tile_row, min(first_m + tile_row, size_m() - 1u), GUARD_M);
    let v = load_a(batch, row, select(k, min(k, size_k8() - 1u), GUARD_K));
    return select(v, vec4<f32>(), GUARD_K && k >= size_k8());
}
fn load_tile_b(first_n8: u32, k8: u32, i: u32, subgroup_n8: u32, split_thread: u32) -> vec4<u32> {
    let vec8 = min(split_thread + i * SPLIT_THREADS, VEC8S_B - 1u);
    let column = vec8 / 4u % TILE_N;
    let lane = split_thread % LANES;
    let k = k8 + split_thread % 4u + 4u * select(i / FRAGS_N, vec8 / (4u * TILE_N), STAGED_B == 1u);
    let n8 = first_n8 + select(subgroup_n8 + i % FRAGS_N, column / 8u, STAGED_B == 1u);
    return load_b(
        select(n8, min(n8, (size_n() + 7u) / 8u - 1u), GUARD_N),
        select(k, min(k, size_k8() - 1u), GUARD_K),
        select(lane / 4u, column % 8u, STAGED_B == 1u),
    );
}
fn multiply(group: vec3<u32>, local: u32) {
    let batch = group.z / GROUP_SPLIT;
    let steps = (size_k8() + TILE_K8 * K_SPLIT - 1u) / (TILE_K8 * K_SPLIT);
    let group_k8 = (steps + GROUP_SPLIT - 1u) / GROUP_SPLIT * (TILE_K8 * K_SPLIT);
    let first_k8 = group.z % GROUP_SPLIT * group_k8;
    let end_k8 = min(first_k8 + group_k8, size_k8());
    let band = group.x / (BAND * groups_n());
    let in_band = group.x % (BAND * groups_n());
    let band_rows = min(BAND, groups_m() - band * BAND);
    let first_m = (band * BAND + in_band % band_rows) * TILE_M;
    let lane = local % LANES;
    let t = lane % 4u;
    let split = local / SPLIT_THREADS;
    let split_thread = local % SPLIT_THREADS;
    let subgroup = split_thread / LANES;
    let subgroup_row = subgroup % SUBGROUPS_M * (FRAGS_M * 16u);
    let first_n8 = in_band / band_rows * COLUMN_FRAGS;
    let subgroup_n8 = subgroup / SUBGROUPS_M * FRAGS_N;
    let own_vec8 = (subgroup_row + lane / 4u) * 4u + t;
    let own_vec8_b = VEC8S_A + (subgroup_n8 * 8u + lane / 4u) * 4u + t;
    var acc: array<vec4<f32>, FRAGS>;
    { acc[0u] = vec4<f32>(); }
{ acc[1u] = vec4<f32>(); }
{ acc[2u] = vec4<f32>(); }
{ acc[3u] = vec4<f32>(); }
    var next_a: array<vec4<f32>, LOADS_A>;
    var next_b: array<vec4<u32>, LOADS_B>;
    var b: array<vec4<u32>, LOADS_B>;
    { next_a[0u] = tile_vec8_a(batch, first_m, first_k8 + split * TILE_K8, min(split_thread + 0u * SPLIT_THREADS, VEC8S_A - 1u)); }
{ next_a[1u] = tile_vec8_a(batch, first_m, first_k8 + split * TILE_K8, min(split_thread + 1u * SPLIT_THREADS, VEC8S_A - 1u)); }
{ next_a[2u] = tile_vec8_a(batch, first_m, first_k8 + split * TILE_K8, min(split_thread + 2u * SPLIT_THREADS, VEC8S_A - 1u)); }
{ next_a[3u] = tile_vec8_a(batch, first_m, first_k8 + split * TILE_K8, min(split_thread + 3u * SPLIT_THREADS, VEC8S_A - 1u)); }
    { next_b[0u] = load_tile_b(first_n8, first_k8 + split * TILE_K8, 0u, subgroup_n8, split_thread); }
{ next_b[1u] = load_tile_b(first_n8, first_k8 + split * TILE_K8, 1u, subgroup_n8, split_thread); }
{ next_b[2u] = load_tile_b(first_n8, first_k8 + split * TILE_K8, 2u, subgroup_n8, split_thread); }
{ next_b[3u] = load_tile_b(first_n8, first_k8 + split * TILE_K8, 3u, subgroup_n8, split_thread); }
{ next_b[4u] = load_tile_b(first_n8, first_k8 + split * TILE_K8, 4u, subgroup_n8, split_thread); }
{ next_b[5u] = load_tile_b(first_n8, first_k8 + split * TILE_K8, 5u, subgroup_n8, split_thread); }
{ next_b[6u] = load_tile_b(first_n8, first_k8 + split * TILE_K8, 6u, subgroup_n8, split_thread); }
{ next_b[7u] = load_tile_b(first_n8, first_k8 + split * TILE_K8, 7u, subgroup_n8, split_thread); }
    var base = split * TILE_VEC8S;
    var other_base = (K_SPLIT + split) * TILE_VEC8S;
    for (var step = first_k8; step < end_k8; step += TILE_K8 * K_SPLIT) {
        {
            let vec8 = split_thread + 0u * SPLIT_THREADS;
            if (VEC8S_A % SPLIT_THREADS == 0u || vec8 < VEC8S_A) { shared_vec4s[base + vec8] = next_a[0u]; }
        }
{
            let vec8 = split_thread + 1u * SPLIT_THREADS;
            if (VEC8S_A % SPLIT_THREADS == 0u || vec8 < VEC8S_A) { shared_vec4s[base + vec8] = next_a[1u]; }
        }
{
            let vec8 = split_thread + 2u * SPLIT_THREADS;
            if (VEC8S_A % SPLIT_THREADS == 0u || vec8 < VEC8S_A) { shared_vec4s[base + vec8] = next_a[2u]; }
        }
{
            let vec8 = split_thread + 3u * SPLIT_THREADS;
            if (VEC8S_A % SPLIT_THREADS == 0u || vec8 < VEC8S_A) { shared_vec4s[base + vec8] = next_a[3u]; }
        }
        if (STAGED_B == 1u) {
            {
                let vec8 = split_thread + 0u * SPLIT_THREADS;
                if (VEC8S_B % SPLIT_THREADS == 0u || vec8 < VEC8S_B) { shared_vec4s[base + VEC8S_A + vec8] = bitcast<vec4<f32>>(next_b[0u]); }
            }
{
                let vec8 = split_thread + 1u * SPLIT_THREADS;
                if (VEC8S_B % SPLIT_THREADS == 0u || vec8 < VEC8S_B) { shared_vec4s[base + VEC8S_A + vec8] = bitcast<vec4<f32>>(next_b[1u]); }
            }
{
                let vec8 = split_thread + 2u * SPLIT_THREADS;
                if (VEC8S_B % SPLIT_THREADS == 0u || vec8 < VEC8S_B) { shared_vec4s[base + VEC8S_A + vec8] = bitcast<vec4<f32>>(next_b[2u]); }
            }
{
                let vec8 = split_thread + 3u * SPLIT_THREADS;
                if (VEC8S_B % SPLIT_THREADS == 0u || vec8 < VEC8S_B) { shared_vec4s[base + VEC8S_A + vec8] = bitcast<vec4<f32>>(next_b[3u]); }
            }
{
                let vec8 = split_thread + 4u * SPLIT_THREADS;
                if (VEC8S_B % SPLIT_THREADS == 0u || vec8 < VEC8S_B) { shared_vec4s[base + VEC8S_A + vec8] = bitcast<vec4<f32>>(next_b[4u]); }
            }
{
                let vec8 = split_thread + 5u * SPLIT_THREADS;
                if (VEC8S_B % SPLIT_THREADS == 0u || vec8 < VEC8S_B) { shared_vec4s[base + VEC8S_A + vec8] = bitcast<vec4<f32>>(next_b[5u]); }
            }
{
                let vec8 = split_thread + 6u * SPLIT_THREADS;
                if (VEC8S_B % SPLIT_THREADS == 0u || vec8 < VEC8S_B) { shared_vec4s[base + VEC8S_A + vec8] = bitcast<vec4<f32>>(next_b[6u]); }
            }
{
                let vec8 = split_thread + 7u * SPLIT_THREADS;
                if (VEC8S_B % SPLIT_THREADS == 0u || vec8 < VEC8S_B) { shared_vec4s[base + VEC8S_A + vec8] = bitcast<vec4<f32>>(next_b[7u]); }
            }
        }
        workgroupBarrier();
        let next_k8 = select(step, step + TILE_K8 * K_SPLIT, step + TILE_K8 * K_SPLIT < end_k8) + split * TILE_K8;
        { next_a[0u] = tile_vec8_a(batch, first_m, next_k8, min(split_thread + 0u * SPLIT_THREADS, VEC8S_A - 1u)); }
{ next_a[1u] = tile_vec8_a(batch, first_m, next_k8, min(split_thread + 1u * SPLIT_THREADS, VEC8S_A - 1u)); }
{ next_a[2u] = tile_vec8_a(batch, first_m, next_k8, min(split_thread + 2u * SPLIT_THREADS, VEC8S_A - 1u)); }
{ next_a[3u] = tile_vec8_a(batch, first_m, next_k8, min(split_thread + 3u * SPLIT_THREADS, VEC8S_A - 1u)); }
        {
            b[0u] = next_b[0u];
            next_b[0u] = load_tile_b(first_n8, next_k8, 0u, subgroup_n8, split_thread);
        }
{
            b[1u] = next_b[1u];
            next_b[1u] = load_tile_b(first_n8, next_k8, 1u, subgroup_n8, split_thread);
        }
{
            b[2u] = next_b[2u];
            next_b[2u] = load_tile_b(first_n8, next_k8, 2u, subgroup_n8, split_thread);
        }
{
            b[3u] = next_b[3u];
            next_b[3u] = load_tile_b(first_n8, next_k8, 3u, subgroup_n8, split_thread);
        }
{
            b[4u] = next_b[4u];
            next_b[4u] = load_tile_b(first_n8, next_k8, 4u, subgroup_n8, split_thread);
        }
{
            b[5u] = next_b[5u];
            next_b[5u] = load_tile_b(first_n8, next_k8, 5u, subgroup_n8, split_thread);
        }
{
            b[6u] = next_b[6u];
            next_b[6u] = load_tile_b(first_n8, next_k8, 6u, subgroup_n8, split_thread);
        }
{
            b[7u] = next_b[7u];
            next_b[7u] = load_tile_b(first_n8, next_k8, 7u, subgroup_n8, split_thread);
        }
        {
            var low: array<vec4<u32>, FRAGS_M>;
            var high: array<vec4<u32>, FRAGS_M>;
            {
                let at = base + own_vec8 + 0u * (TILE_M * 4u) + 0u * 64u;
                low[0u] = bitcast<vec4<u32>>(shared_vec4s[at]);
                high[0u] = bitcast<vec4<u32>>(shared_vec4s[at + 32u]);
            }
            {
                var column = vec4<u32>();
                if (STAGED_B == 1u) { column = bitcast<vec4<u32>>(shared_vec4s[base + own_vec8_b + 0u * (TILE_N * 4u) + 0u * 32u]); } else { column = b[min(0u * FRAGS_N + 0u, LOADS_B - 1u)]; }
                {
                    acc[0u * FRAGS_N + 0u] = multiply_fragments(local, vec4<u32>(low[0u].xy, high[0u].xy), column.xy, acc[0u * FRAGS_N + 0u]);
                }
                {
                    acc[0u * FRAGS_N + 0u] = multiply_fragments(local, vec4<u32>(low[0u].zw, high[0u].zw), column.zw, acc[0u * FRAGS_N + 0u]);
                }
            }
{
                var column = vec4<u32>();
                if (STAGED_B == 1u) { column = bitcast<vec4<u32>>(shared_vec4s[base + own_vec8_b + 0u * (TILE_N * 4u) + 1u * 32u]); } else { column = b[min(0u * FRAGS_N + 1u, LOADS_B - 1u)]; }
                {
                    acc[0u * FRAGS_N + 1u] = multiply_fragments(local, vec4<u32>(low[0u].xy, high[0u].xy), column.xy, acc[0u * FRAGS_N + 1u]);
                }
                {
                    acc[0u * FRAGS_N + 1u] = multiply_fragments(local, vec4<u32>(low[0u].zw, high[0u].zw), column.zw, acc[0u * FRAGS_N + 1u]);
                }
            }
{
                var column = vec4<u32>();
                if (STAGED_B == 1u) { column = bitcast<vec4<u32>>(shared_vec4s[base + own_vec8_b + 0u * (TILE_N * 4u) + 2u * 32u]); } else { column = b[min(0u * FRAGS_N + 2u, LOADS_B - 1u)]; }
                {
                    acc[0u * FRAGS_N + 2u] = multiply_fragments(local, vec4<u32>(low[0u].xy, high[0u].xy), column.xy, acc[0u * FRAGS_N + 2u]);
                }
                {
                    acc[0u * FRAGS_N + 2u] = multiply_fragments(local, vec4<u32>(low[0u].zw, high[0u].zw), column.zw, acc[0u * FRAGS_N + 2u]);
                }
            }
{
                var column = vec4<u32>();
                if (STAGED_B == 1u) { column = bitcast<vec4<u32>>(shared_vec4s[base + own_vec8_b + 0u * (TILE_N * 4u) + 3u * 32u]); } else { column = b[min(0u * FRAGS_N + 3u, LOADS_B - 1u)]; }
                {
                    acc[0u * FRAGS_N + 3u] = multiply_fragments(local, vec4<u32>(low[0u].xy, high[0u].xy), column.xy, acc[0u * FRAGS_N + 3u]);
                }
                {
                    acc[0u * FRAGS_N + 3u] = multiply_fragments(local, vec4<u32>(low[0u].zw, high[0u].zw), column.zw, acc[0u * FRAGS_N + 3u]);
                }
            }
        }
{
            var low: array<vec4<u32>, FRAGS_M>;
            var high: array<vec4<u32>, FRAGS_M>;
            {
                let at = base + own_vec8 + 1u * (TILE_M * 4u) + 0u * 64u;
                low[0u] = bitcast<vec4<u32>>(shared_vec4s[at]);
                high[0u] = bitcast<vec4<u32>>(shared_vec4s[at + 32u]);
            }
            {
                var column = vec4<u32>();
                if (STAGED_B == 1u) { column = bitcast<vec4<u32>>(shared_vec4s[base + own_vec8_b + 1u * (TILE_N * 4u) + 0u * 32u]); } else { column = b[min(1u * FRAGS_N + 0u, LOADS_B - 1u)]; }
                {
                    acc[0u * FRAGS_N + 0u] = multiply_fragments(local, vec4<u32>(low[0u].xy, high[0u].xy), column.xy, acc[0u * FRAGS_N + 0u]);
                }
                {
                    acc[0u * FRAGS_N + 0u] = multiply_fragments(local, vec4<u32>(low[0u].zw, high[0u].zw), column.zw, acc[0u * FRAGS_N + 0u]);
                }
            }
{
                var column = vec4<u32>();
                if (STAGED_B == 1u) { column = bitcast<vec4<u32>>(shared_vec4s[base + own_vec8_b + 1u * (TILE_N * 4u) + 1u * 32u]); } else { column = b[min(1u * FRAGS_N + 1u, LOADS_B - 1u)]; }
                {
                    acc[0u * FRAGS_N + 1u] = multiply_fragments(local, vec4<u32>(low[0u].xy, high[0u].xy), column.xy, acc[0u * FRAGS_N + 1u]);
                }
                {
                    acc[0u * FRAGS_N + 1u] = multiply_fragments(local, vec4<u32>(low[0u].zw, high[0u].zw), column.zw, acc[0u * FRAGS_N + 1u]);
                }
            }
{
                var column = vec4<u32>();
                if (STAGED_B == 1u) { column = bitcast<vec4<u32>>(shared_vec4s[base + own_vec8_b + 1u * (TILE_N * 4u) + 2u * 32u]); } else { column = b[min(1u * FRAGS_N + 2u, LOADS_B - 1u)]; }
                {
                    acc[0u * FRAGS_N + 2u] = multiply_fragments(local, vec4<u32>(low[0u].xy, high[0u].xy), column.xy, acc[0u * FRAGS_N + 2u]);
                }
                {
                    acc[0u * FRAGS_N + 2u] = multiply_fragments(local, vec4<u32>(low[0u].zw, high[0u].zw), column.zw, acc[0u * FRAGS_N + 2u]);
                }
            }
{
                var column = vec4<u32>();
                if (STAGED_B == 1u) { column = bitcast<vec4<u32>>(shared_vec4s[base + own_vec8_b + 1u * (TILE_N * 4u) + 3u * 32u]); } else { column = b[min(1u * FRAGS_N + 3u, LOADS_B - 1u)]; }
                {
                    acc[0u * FRAGS_N + 3u] = multiply_fragments(local, vec4<u32>(low[0u].xy, high[0u].xy), column.xy, acc[0u * FRAGS_N + 3u]);
                }
                {
                    acc[0u * FRAGS_N + 3u] = multiply_fragments(local, vec4<u32>(low[0u].zw, high[0u].zw), column.zw, acc[0u * FRAGS_N + 3u]);
                }
            }
        }
        let free = base;
        base = other_base;
        other_base = free;
    }
    if (K_SPLIT > 1u) {
        workgroupBarrier();
        {
            if (0u % K_SPLIT != split) { shared_vec4s[((split * SPLIT_SUBGROUPS + subgroup) * FRAGS + 0u) * LANES + lane] = acc[0u]; }
        }
{
            if (1u % K_SPLIT != split) { shared_vec4s[((split * SPLIT_SUBGROUPS + subgroup) * FRAGS + 1u) * LANES + lane] = acc[1u]; }
        }
{
            if (2u % K_SPLIT != split) { shared_vec4s[((split * SPLIT_SUBGROUPS + subgroup) * FRAGS + 2u) * LANES + lane] = acc[2u]; }
        }
{
            if (3u % K_SPLIT != split) { shared_vec4s[((split * SPLIT_SUBGROUPS + subgroup) * FRAGS + 3u) * LANES + lane] = acc[3u]; }
        }
        workgroupBarrier();
    }
    let odd = t % 2u == 1u;
    for (var fragment = split; fragment < FRAGS; fragment += K_SPLIT) {
        var v = vec4<f32>();
        { v = select(v, acc[0u], 0u == fragment); }
{ v = select(v, acc[1u], 1u == fragment); }
{ v = select(v, acc[2u], 2u == fragment); }
{ v = select(v, acc[3u], 3u == fragment); }
        if (K_SPLIT > 1u) {
            var total = vec4<f32>();
            {
                if (0u == split) { total += v; } else { total += shared_vec4s[((0u * SPLIT_SUBGROUPS + subgroup) * FRAGS + fragment) * LANES + lane]; }
            }
{
                if (1u == split) { total += v; } else { total += shared_vec4s[((1u * SPLIT_SUBGROUPS + subgroup) * FRAGS + fragment) * LANES + lane]; }
            }
{
                if (2u == split) { total += v; } else { total += shared_vec4s[((2u * SPLIT_SUBGROUPS + subgroup) * FRAGS + fragment) * LANES + lane]; }
            }
{
                if (3u == split) { total += v; } else { total += shared_vec4s[((3u * SPLIT_SUBGROUPS + subgroup) * FRAGS + fragment) * LANES + lane]; }
            }
{
                if (4u == split) { total += v; } else { total += shared_vec4s[((4u * SPLIT_SUBGROUPS + subgroup) * FRAGS + fragment) * LANES + lane]; }
            }
{
                if (5u == split) { total += v; } else { total += shared_vec4s[((5u * SPLIT_SUBGROUPS + subgroup) * FRAGS + fragment) * LANES + lane]; }
            }
{
                if (6u == split) { total += v; } else { total += shared_vec4s[((6u * SPLIT_SUBGROUPS + subgroup) * FRAGS + fragment) * LANES + lane]; }
            }
{
                if (7u == split) { total += v; } else { total += shared_vec4s[((7u * SPLIT_SUBGROUPS + subgroup) * FRAGS + fragment) * LANES + lane]; }
            }
            v = total;
        }
        let received = subgroupShuffleXor(select(v.zw, v.xy, odd), 1u);
        let stored = select(vec4<f32>(v.xy, received), vec4<f32>(received, v.zw), odd);
        let row = first_m + subgroup_row + fragment / FRAGS_N * 16u + lane / 4u + select(0u, 8u, odd);
        let n4 = (first_n8 + subgroup_n8 + fragment % FRAGS_N) * 2u + t / 2u;
        if ((!GUARD_M || row < size_m()) && (!GUARD_N || n4 * 4u < size_n())) {
            if (GROUP_SPLIT > 1u) { store_partial(group.z, n4, row, stored); } else { store(batch, row, n4, stored); }
        }
    }
}
@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane: u32) {
    multiply(group, subgroup * LANES + lane);
}
@group(0) @binding(0) var<storage, read> buffer_0: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> buffer_2: array<f32>;
@group(0) @binding(3) var<storage, read_write> buffer_3: array<f32>;
