// @generated for quantized_rows_matmul/0 f32: quantized_rows_coop SUBGROUPS_M=2 SUBGROUPS_N=2 K_SPLIT=2 FRAGS_M=2 FRAGS_N=2 TILE_K=64 STAGES=1 EPILOGUE_FRAGS=2 STAGED_B=1
enable wgpu_cooperative_matrix;
const LANES = 32u;
const SIDE_M = 16u;
const SIDE_N = 16u;
const SIDE_K = 32u;
alias MatrixA = coop_mat16x16<f32, A>;
alias MatrixB = coop_mat16x16<f32, B>;
alias MatrixC = coop_mat16x16<f32, C>;
alias Vec8 = vec2<f32>;
alias Sum = vec4<i32>;
const PAD = 2u;
const SUBGROUPS_M = 2u;
const SUBGROUPS_N = 2u;
const K_SPLIT = 2u;
const FRAGS_M = 2u;
const FRAGS_N = 2u;
const TILE_K = 64u;
const STAGES = 1u;
const EPILOGUE_FRAGS = 2u;
const STAGED_B = true;
const B_ALONG_K = true;
const ROWS_FIRST = false;
const GUARD_M = true;
const GUARD_N = true;
const GUARD_K = true;
const BAND = 8u;
const TILE_M = SUBGROUPS_M * FRAGS_M * SIDE_M;
const TILE_N = SUBGROUPS_N * FRAGS_N * SIDE_N;
const SPLIT_THREADS = SUBGROUPS_M * SUBGROUPS_N * LANES;
const THREADS = SPLIT_THREADS * K_SPLIT;
const TILE_K8 = TILE_K / 8u;
const PANEL_VEC8S = SIDE_N / 8u;
const PANEL_VEC4S = SIDE_N / 4u;
const PANELS = TILE_N / SIDE_N;
const ROW_A = TILE_K8 + PAD;
const ROW_B = PANELS * PANEL_VEC8S + PAD;
const ROW_C = PANEL_VEC4S + 1u;
const SIZE_A = TILE_M * ROW_A;
const SIZE_B = TILE_N * ROW_A;
const SIZE_C = SIDE_M * ROW_C;
const VEC8S_A = TILE_M * TILE_K8;
const VEC8S_B = TILE_N * TILE_K8;
const LOADS_A = (VEC8S_A + SPLIT_THREADS - 1u) / SPLIT_THREADS;
const LOADS_B = (VEC8S_B + SPLIT_THREADS - 1u) / SPLIT_THREADS;
const FRAGS_K = TILE_K / SIDE_K;
const_assert TILE_K % SIDE_K == 0u && SIDE_N % 8u == 0u && FRAGS_N % EPILOGUE_FRAGS == 0u;
fn size_m() -> u32 { return 150u; }
fn size_n() -> u32 { return 77u; }
fn size_k8() -> u32 { return 40u; }
fn groups_m() -> u32 { return 3u; }
fn groups_n() -> u32 { return 2u; }
fn load_a(batch: u32, row: u32, k8: u32) -> Vec8 { return buffer_0[(batch * 150u + row) * 42u + k8]; }
fn load_b(batch: u32, n: u32, k8: u32) -> Vec8 { return bitcast<vec2<f32>>(vec2<u32>(buffer_1[n / 16u * 322u + n / 4u % 4u + (k8 * 2u) * 4u][n % 4u], buffer_1[n / 16u * 322u + n / 4u % 4u + (k8 * 2u + 1u) * 4u][n % 4u]) ^ vec2<u32>(0x80808080u)); }
fn flip_sign_bits(v: Vec8) -> Vec8 { return v; }
fn as_sum(v: vec4<f32>) -> Sum { return bitcast<vec4<i32>>(v); }
fn correct_sum(batch: u32, n4: u32, v: Sum) -> Sum { return v; }
fn staged_fragment_b(base: u32, panel: u32, k: u32) -> MatrixB {
    let at = base + panel * SIDE_N * ROW_A + k * (SIDE_K / 8u);
    return coopLoad<MatrixB>(&tile_b[at], ROW_A);
}
fn global_fragment_b(batch: u32, panel: u32, k: u32) -> MatrixB { return MatrixB(); }
fn store_floats(batch: u32, row: u32, n4: u32, v: vec4<f32>) {
    let w = vec4<f32>(v);
    buffer_2[(row) * 77u + (((n4) * 4u))] = w.x;
    if ((n4) * 4u + 1u < 77u) { buffer_2[(row) * 77u + (((n4) * 4u)) + 1u] = w.y; }
    if ((n4) * 4u + 2u < 77u) { buffer_2[(row) * 77u + (((n4) * 4u)) + 2u] = w.z; }
    if ((n4) * 4u + 3u < 77u) { buffer_2[(row) * 77u + (((n4) * 4u)) + 3u] = w.w; }
}
fn store(batch: u32, row: u32, n4: u32, v: vec4<i32>) {
    let column_scales = weights_scale(n4 / 4u * 322u, 0u, n4 % 4u);
    store_floats(batch, row, n4, vec4<f32>(v) * (buffer_0[(batch * 150u + row) * 42u + 40u].x * column_scales));
}
var<workgroup> tile_a: array<Vec8, STAGES * K_SPLIT * SIZE_A>;
var<workgroup> tile_b: array<Vec8, STAGES * K_SPLIT * SIZE_B>;
var<workgroup> sums: array<vec4<f32>, SUBGROUPS_M * SUBGROUPS_N * K_SPLIT * EPILOGUE_FRAGS * SIZE_C>;
fn tile_vec8_a(batch: u32, first_m: u32, k8: u32, i: u32) -> Vec8 {
    let k = k8 + i % TILE_K8;
    let row = select(first_m + i / TILE_K8, min(first_m + i / TILE_K8, size_m() - 1u), GUARD_M);
    let v = flip_sign_bits(load_a(batch, row, select(k, min(k, size_k8() - 1u), GUARD_K)));
    return select(v, Vec8(), GUARD_K && k >= size_k8());
}
fn tile_vec8_b(batch: u32, first_panel: u32, k8: u32, i: u32) -> Vec8 {
    if (B_ALONG_K) {
        let column = first_panel * SIDE_N + i / TILE_K8;
        let k = k8 + i % TILE_K8;
        return load_b(batch, select(column, min(column, size_n() - 1u), GUARD_N), select(k, min(k, size_k8() - 1u), GUARD_K));
    }
    let n8 = first_panel * PANEL_VEC8S + i % (PANELS * PANEL_VEC8S);
    let k = k8 * 8u + i / (PANELS * PANEL_VEC8S);
    return load_b(
        batch,
        select(k, min(k, size_k8() * 8u - 1u), GUARD_K),
        select(n8, min(n8, (size_n() + 7u) / 8u - 1u), GUARD_N),
    );
}
@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let batch = group.z;
    let band = group.x / (BAND * groups_n());
    let in_band = group.x % (BAND * groups_n());
    let band_rows = min(BAND, groups_m() - band * BAND);
    let first_m = (band * BAND + in_band % band_rows) * TILE_M;
    let first_panel = in_band / band_rows * PANELS;
    let subgroup = local / LANES;
    let split = local / SPLIT_THREADS;
    let split_thread = local % SPLIT_THREADS;
    let subgroup_m = subgroup % SUBGROUPS_M;
    let subgroup_n = subgroup / SUBGROUPS_M % SUBGROUPS_N;
    let last_k = (size_k8() * 8u - 1u) / SIDE_K;
    let last_panel = (size_n() - 1u) / SIDE_N;
    var acc: array<MatrixC, FRAGS_M * FRAGS_N>;
    { acc[0u] = MatrixC(); }
{ acc[1u] = MatrixC(); }
{ acc[2u] = MatrixC(); }
{ acc[3u] = MatrixC(); }
    var a: array<MatrixA, FRAGS_M>;
    var b: array<MatrixB, FRAGS_K * FRAGS_N>;
    var next_fragments: array<MatrixB, FRAGS_K * FRAGS_N>;
    var next_a: array<Vec8, LOADS_A>;
    var next_b: array<Vec8, LOADS_B>;
    { next_a[0u] = tile_vec8_a(batch, first_m, split * TILE_K8, min(split_thread + 0u * SPLIT_THREADS, VEC8S_A - 1u)); }
{ next_a[1u] = tile_vec8_a(batch, first_m, split * TILE_K8, min(split_thread + 1u * SPLIT_THREADS, VEC8S_A - 1u)); }
{ next_a[2u] = tile_vec8_a(batch, first_m, split * TILE_K8, min(split_thread + 2u * SPLIT_THREADS, VEC8S_A - 1u)); }
{ next_a[3u] = tile_vec8_a(batch, first_m, split * TILE_K8, min(split_thread + 3u * SPLIT_THREADS, VEC8S_A - 1u)); }
    if (STAGED_B) {
        { next_b[0u] = tile_vec8_b(batch, first_panel, split * TILE_K8, min(split_thread + 0u * SPLIT_THREADS, VEC8S_B - 1u)); }
{ next_b[1u] = tile_vec8_b(batch, first_panel, split * TILE_K8, min(split_thread + 1u * SPLIT_THREADS, VEC8S_B - 1u)); }
{ next_b[2u] = tile_vec8_b(batch, first_panel, split * TILE_K8, min(split_thread + 2u * SPLIT_THREADS, VEC8S_B - 1u)); }
{ next_b[3u] = tile_vec8_b(batch, first_panel, split * TILE_K8, min(split_thread + 3u * SPLIT_THREADS, VEC8S_B - 1u)); }
    } else {
        {
            let panel = min(first_panel + subgroup_n * FRAGS_N + 0u % FRAGS_N, last_panel);
            next_fragments[0u] = global_fragment_b(batch, panel, min(split * FRAGS_K + 0u / FRAGS_N, last_k));
        }
{
            let panel = min(first_panel + subgroup_n * FRAGS_N + 1u % FRAGS_N, last_panel);
            next_fragments[1u] = global_fragment_b(batch, panel, min(split * FRAGS_K + 1u / FRAGS_N, last_k));
        }
{
            let panel = min(first_panel + subgroup_n * FRAGS_N + 2u % FRAGS_N, last_panel);
            next_fragments[2u] = global_fragment_b(batch, panel, min(split * FRAGS_K + 2u / FRAGS_N, last_k));
        }
{
            let panel = min(first_panel + subgroup_n * FRAGS_N + 3u % FRAGS_N, last_panel);
            next_fragments[3u] = global_fragment_b(batch, panel, min(split * FRAGS_K + 3u / FRAGS_N, last_k));
        }
    }
    var stage = 0u;
    for (var step = 0u; step < size_k8(); step += TILE_K8 * K_SPLIT) {
        let base_a = (stage * K_SPLIT + split) * SIZE_A;
        let base_b = (stage * K_SPLIT + split) * SIZE_B;
        if (STAGES == 1u) { workgroupBarrier(); }
        {
            let vec8 = split_thread + 0u * SPLIT_THREADS;
            if (VEC8S_A % SPLIT_THREADS == 0u || vec8 < VEC8S_A) { tile_a[base_a + vec8 / TILE_K8 * ROW_A + vec8 % TILE_K8] = next_a[0u]; }
        }
{
            let vec8 = split_thread + 1u * SPLIT_THREADS;
            if (VEC8S_A % SPLIT_THREADS == 0u || vec8 < VEC8S_A) { tile_a[base_a + vec8 / TILE_K8 * ROW_A + vec8 % TILE_K8] = next_a[1u]; }
        }
{
            let vec8 = split_thread + 2u * SPLIT_THREADS;
            if (VEC8S_A % SPLIT_THREADS == 0u || vec8 < VEC8S_A) { tile_a[base_a + vec8 / TILE_K8 * ROW_A + vec8 % TILE_K8] = next_a[2u]; }
        }
{
            let vec8 = split_thread + 3u * SPLIT_THREADS;
            if (VEC8S_A % SPLIT_THREADS == 0u || vec8 < VEC8S_A) { tile_a[base_a + vec8 / TILE_K8 * ROW_A + vec8 % TILE_K8] = next_a[3u]; }
        }
        if (STAGED_B) {
            {
                let vec8 = split_thread + 0u * SPLIT_THREADS;
                let row_vec8s = select(PANELS * PANEL_VEC8S, TILE_K8, B_ALONG_K);
                if (VEC8S_B % SPLIT_THREADS == 0u || vec8 < VEC8S_B) { tile_b[base_b + vec8 / row_vec8s * select(ROW_B, ROW_A, B_ALONG_K) + vec8 % row_vec8s] = next_b[0u]; }
            }
{
                let vec8 = split_thread + 1u * SPLIT_THREADS;
                let row_vec8s = select(PANELS * PANEL_VEC8S, TILE_K8, B_ALONG_K);
                if (VEC8S_B % SPLIT_THREADS == 0u || vec8 < VEC8S_B) { tile_b[base_b + vec8 / row_vec8s * select(ROW_B, ROW_A, B_ALONG_K) + vec8 % row_vec8s] = next_b[1u]; }
            }
{
                let vec8 = split_thread + 2u * SPLIT_THREADS;
                let row_vec8s = select(PANELS * PANEL_VEC8S, TILE_K8, B_ALONG_K);
                if (VEC8S_B % SPLIT_THREADS == 0u || vec8 < VEC8S_B) { tile_b[base_b + vec8 / row_vec8s * select(ROW_B, ROW_A, B_ALONG_K) + vec8 % row_vec8s] = next_b[2u]; }
            }
{
                let vec8 = split_thread + 3u * SPLIT_THREADS;
                let row_vec8s = select(PANELS * PANEL_VEC8S, TILE_K8, B_ALONG_K);
                if (VEC8S_B % SPLIT_THREADS == 0u || vec8 < VEC8S_B) { tile_b[base_b + vec8 / row_vec8s * select(ROW_B, ROW_A, B_ALONG_K) + vec8 % row_vec8s] = next_b[3u]; }
            }
        }
        workgroupBarrier();
        let next_k8 = select(step, step + TILE_K8 * K_SPLIT, step + TILE_K8 * K_SPLIT < size_k8()) + split * TILE_K8;
        { next_a[0u] = tile_vec8_a(batch, first_m, next_k8, min(split_thread + 0u * SPLIT_THREADS, VEC8S_A - 1u)); }
{ next_a[1u] = tile_vec8_a(batch, first_m, next_k8, min(split_thread + 1u * SPLIT_THREADS, VEC8S_A - 1u)); }
{ next_a[2u] = tile_vec8_a(batch, first_m, next_k8, min(split_thread + 2u * SPLIT_THREADS, VEC8S_A - 1u)); }
{ next_a[3u] = tile_vec8_a(batch, first_m, next_k8, min(split_thread + 3u * SPLIT_THREADS, VEC8S_A - 1u)); }
        if (STAGED_B) {
            { next_b[0u] = tile_vec8_b(batch, first_panel, next_k8, min(split_thread + 0u * SPLIT_THREADS, VEC8S_B - 1u)); }
{ next_b[1u] = tile_vec8_b(batch, first_panel, next_k8, min(split_thread + 1u * SPLIT_THREADS, VEC8S_B - 1u)); }
{ next_b[2u] = tile_vec8_b(batch, first_panel, next_k8, min(split_thread + 2u * SPLIT_THREADS, VEC8S_B - 1u)); }
{ next_b[3u] = tile_vec8_b(batch, first_panel, next_k8, min(split_thread + 3u * SPLIT_THREADS, VEC8S_B - 1u)); }
        } else {
            {
                b[0u] = next_fragments[0u];
                let panel = min(first_panel + subgroup_n * FRAGS_N + 0u % FRAGS_N, last_panel);
                next_fragments[0u] = global_fragment_b(batch, panel, min(next_k8 * 8u / SIDE_K + 0u / FRAGS_N, last_k));
            }
{
                b[1u] = next_fragments[1u];
                let panel = min(first_panel + subgroup_n * FRAGS_N + 1u % FRAGS_N, last_panel);
                next_fragments[1u] = global_fragment_b(batch, panel, min(next_k8 * 8u / SIDE_K + 1u / FRAGS_N, last_k));
            }
{
                b[2u] = next_fragments[2u];
                let panel = min(first_panel + subgroup_n * FRAGS_N + 2u % FRAGS_N, last_panel);
                next_fragments[2u] = global_fragment_b(batch, panel, min(next_k8 * 8u / SIDE_K + 2u / FRAGS_N, last_k));
            }
{
                b[3u] = next_fragments[3u];
                let panel = min(first_panel + subgroup_n * FRAGS_N + 3u % FRAGS_N, last_panel);
                next_fragments[3u] = global_fragment_b(batch, panel, min(next_k8 * 8u / SIDE_K + 3u / FRAGS_N, last_k));
            }
        }
        {
            {
                let at = base_a + (subgroup_m * FRAGS_M + 0u) * SIDE_M * ROW_A + 0u * (SIDE_K / 8u);
                a[0u] = coopLoadT<MatrixA>(&tile_a[at], ROW_A);
            }
{
                let at = base_a + (subgroup_m * FRAGS_M + 1u) * SIDE_M * ROW_A + 0u * (SIDE_K / 8u);
                a[1u] = coopLoadT<MatrixA>(&tile_a[at], ROW_A);
            }
            {
                if (STAGED_B) { b[0u * FRAGS_N + 0u] = staged_fragment_b(base_b, subgroup_n * FRAGS_N + 0u, 0u); }
                {
                    acc[0u * FRAGS_N + 0u] = coopMultiplyAdd(a[0u], b[0u * FRAGS_N + 0u], acc[0u * FRAGS_N + 0u]);
                }
{
                    acc[1u * FRAGS_N + 0u] = coopMultiplyAdd(a[1u], b[0u * FRAGS_N + 0u], acc[1u * FRAGS_N + 0u]);
                }
            }
{
                if (STAGED_B) { b[0u * FRAGS_N + 1u] = staged_fragment_b(base_b, subgroup_n * FRAGS_N + 1u, 0u); }
                {
                    acc[0u * FRAGS_N + 1u] = coopMultiplyAdd(a[0u], b[0u * FRAGS_N + 1u], acc[0u * FRAGS_N + 1u]);
                }
{
                    acc[1u * FRAGS_N + 1u] = coopMultiplyAdd(a[1u], b[0u * FRAGS_N + 1u], acc[1u * FRAGS_N + 1u]);
                }
            }
        }
{
            {
                let at = base_a + (subgroup_m * FRAGS_M + 0u) * SIDE_M * ROW_A + 1u * (SIDE_K / 8u);
                a[0u] = coopLoadT<MatrixA>(&tile_a[at], ROW_A);
            }
{
                let at = base_a + (subgroup_m * FRAGS_M + 1u) * SIDE_M * ROW_A + 1u * (SIDE_K / 8u);
                a[1u] = coopLoadT<MatrixA>(&tile_a[at], ROW_A);
            }
            {
                if (STAGED_B) { b[1u * FRAGS_N + 0u] = staged_fragment_b(base_b, subgroup_n * FRAGS_N + 0u, 1u); }
                {
                    acc[0u * FRAGS_N + 0u] = coopMultiplyAdd(a[0u], b[1u * FRAGS_N + 0u], acc[0u * FRAGS_N + 0u]);
                }
{
                    acc[1u * FRAGS_N + 0u] = coopMultiplyAdd(a[1u], b[1u * FRAGS_N + 0u], acc[1u * FRAGS_N + 0u]);
                }
            }
{
                if (STAGED_B) { b[1u * FRAGS_N + 1u] = staged_fragment_b(base_b, subgroup_n * FRAGS_N + 1u, 1u); }
                {
                    acc[0u * FRAGS_N + 1u] = coopMultiplyAdd(a[0u], b[1u * FRAGS_N + 1u], acc[0u * FRAGS_N + 1u]);
                }
{
                    acc[1u * FRAGS_N + 1u] = coopMultiplyAdd(a[1u], b[1u * FRAGS_N + 1u], acc[1u * FRAGS_N + 1u]);
                }
            }
        }
        stage = (stage + 1u) % STAGES;
    }
    let subgroup_base = subgroup * (EPILOGUE_FRAGS * SIZE_C);
    for (var epilogue_pass = 0u; epilogue_pass < FRAGS_M * FRAGS_N / EPILOGUE_FRAGS; epilogue_pass++) {
        {
            if (0u == epilogue_pass * EPILOGUE_FRAGS) {
                {
                    let at = subgroup_base + 0u * SIZE_C;
                    let sum = acc[0u + 0u];
                    coopStoreT(sum, &sums[at], ROW_C);
                }
{
                    let at = subgroup_base + 1u * SIZE_C;
                    let sum = acc[0u + 1u];
                    coopStoreT(sum, &sums[at], ROW_C);
                }
            }
        }
{
            if (2u == epilogue_pass * EPILOGUE_FRAGS) {
                {
                    let at = subgroup_base + 0u * SIZE_C;
                    let sum = acc[2u + 0u];
                    coopStoreT(sum, &sums[at], ROW_C);
                }
{
                    let at = subgroup_base + 1u * SIZE_C;
                    let sum = acc[2u + 1u];
                    coopStoreT(sum, &sums[at], ROW_C);
                }
            }
        }
        workgroupBarrier();
        let i = epilogue_pass / (FRAGS_N / EPILOGUE_FRAGS);
        let j = epilogue_pass % (FRAGS_N / EPILOGUE_FRAGS) * EPILOGUE_FRAGS;
        for (var index = local; index < SUBGROUPS_M * SUBGROUPS_N * EPILOGUE_FRAGS * SIDE_M * PANEL_VEC4S; index += THREADS) {
            let fragment = index / (SIDE_M * PANEL_VEC4S);
            let element = index % (SIDE_M * PANEL_VEC4S);
            let row = select(element / PANEL_VEC4S, element % SIDE_M, ROWS_FIRST);
            let row_vec4 = select(element % PANEL_VEC4S, element / SIDE_M, ROWS_FIRST);
            let subgroup_index = fragment / EPILOGUE_FRAGS;
            let at = fragment * SIZE_C + row * ROW_C + row_vec4;
            var v = as_sum(sums[at]);
            { v += as_sum(sums[at + 1u * (SUBGROUPS_M * SUBGROUPS_N * EPILOGUE_FRAGS * SIZE_C)]); }
            let m = first_m + (subgroup_index % SUBGROUPS_M * FRAGS_M + i) * SIDE_M + row;
            let n4 = (first_panel + subgroup_index / SUBGROUPS_M * FRAGS_N + j + fragment % EPILOGUE_FRAGS) * PANEL_VEC4S + row_vec4;
            if ((!GUARD_M || m < size_m()) && (!GUARD_N || n4 * 4u < size_n())) { store(batch, m, n4, correct_sum(batch, n4, v)); }
        }
        workgroupBarrier();
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec4<u32>>;
fn weights_scale(base: u32, g: u32, q: u32) -> vec4<f32> {
    let halves = buffer_1[base + 320u + g * 2u + q / 2u];
    let pair = select(halves.xy, halves.zw, q % 2u == 1u);
    return vec4<f32>(unpack2x16float(pair.x), unpack2x16float(pair.y));
}
@group(0) @binding(2) var<storage, read_write> buffer_2: array<f32>;
