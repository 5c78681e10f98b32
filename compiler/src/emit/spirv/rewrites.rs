//! Compares the SPIR-V rewrites of small modules with `rewrites.txt`, which lists the instructions that each step
//! removes and adds. DRIFT_BLESS=1 rewrites the file.

use std::fmt::Write;
use std::path::Path;

use super::{
    Matrix, atomics, barriers, elements, f16_bitcasts, fragments, instructions, loops, matrices,
    strip_explicit_layout, tensors, write,
};
use crate::emit::texels;
use crate::target::MatrixType;

/// Titles and WGSL modules of the test. At least one rewrite changes each module.
const MODULES: &[(&str, &str)] = &[
    (
        "types in workgroup memory lose their layout, types in buffers keep it",
        "struct Pair { a: f32, b: vec2<f32> }
var<workgroup> pairs: array<Pair, 4>;
@group(0) @binding(0) var<storage, read_write> out: array<vec2<f32>>;
@compute @workgroup_size(4) fn main(@builtin(local_invocation_index) i: u32) {
    pairs[i] = Pair(1.0, out[i]);
    workgroupBarrier();
    out[i] = pairs[3u - i].b;
}",
    ),
    (
        "subgroup barriers order workgroup memory, storage barriers have workgroup scope",
        "var<workgroup> held: array<f32, 4>;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(4) fn main(@builtin(local_invocation_index) i: u32) {
    held[i] = out[i];
    subgroupBarrier();
    out[i] = held[3u - i];
    storageBarrier();
    out[i] = out[i] + 1.0;
}",
    ),
    (
        "1-D textures become texel buffers",
        "@group(0) @binding(0) var texels: texture_1d<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;
@compute @workgroup_size(4) fn main(@builtin(local_invocation_index) i: u32) {
    out[i] = textureLoad(texels, i, 0);
}",
    ),
    (
        "packing and unpacking of f16 pairs become bitcasts, other conversions stay",
        "enable f16;
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(4) fn main(@builtin(local_invocation_index) i: u32) {
    let halves = vec2<f16>(unpack2x16float(out[i]));
    let floats = unpack2x16float(out[i + 4u]) * 2.0;
    out[i] = pack2x16float(vec2<f32>(halves * halves));
    out[i + 4u] = pack2x16float(floats);
}",
    ),
    (
        "atomic operations of a module with matrices (coop) have the scope of the queue family",
        "enable wgpu_cooperative_matrix;
@group(0) @binding(0) var<storage, read_write> flags: array<atomic<u32>>;
fn multiply(a: vec4<u32>, b: vec2<u32>, c: vec4<f32>) -> vec4<f32> {
    let d = coopMultiplyAdd(coop_mat16x16<f32, A>(), coop_mat16x16<f32, B>(), coop_mat16x16<f32, C>());
    return c;
}
@compute @workgroup_size(32) fn main(@builtin(local_invocation_index) i: u32) {
    let c = multiply(vec4<u32>(i), vec2<u32>(i), vec4<f32>(f32(i)));
    atomicOr(&flags[i], u32(c.x));
}",
    ),
    (
        "a fragment multiplication becomes a cooperative-matrix multiplication",
        "enable wgpu_cooperative_matrix;
@group(0) @binding(0) var<storage, read> left: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> right: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
fn multiply(a: vec4<u32>, b: vec2<u32>, c: vec4<f32>) -> vec4<f32> {
    let d = coopMultiplyAdd(coop_mat16x16<f32, A>(), coop_mat16x16<f32, B>(), coop_mat16x16<f32, C>());
    return c;
}
@compute @workgroup_size(32) fn main(@builtin(local_invocation_index) i: u32) {
    out[i] = multiply(left[i], right[i], out[i]);
}",
    ),
    (
        "matrices get the types and sizes of the device",
        "enable wgpu_cooperative_matrix;
@group(0) @binding(0) var<storage, read> left: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> right: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
@compute @workgroup_size(32) fn main() {
    let a = coopLoadT<coop_mat16x16<f32, A>>(&left[0], 4u);
    let b = coopLoadT<coop_mat16x16<f32, B>>(&right[0], 4u);
    let c = coopMultiplyAdd(a, b, coop_mat16x16<f32, C>());
    coopStoreT(c, &out[0], 4u);
}",
    ),
    (
        "a function of single elements is applied to a matrix in a loop",
        "enable wgpu_cooperative_matrix;
alias MatrixC = coop_mat16x16<f32, C>;
@group(0) @binding(0) var<storage, read> left: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> bias: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
fn element(row: u32, column: u32, v: f32, first: u32) -> f32 { return v + bias[first + column]; }
fn map_elements(tile: MatrixC, first: u32) -> MatrixC {
    let v = element(0u, 0u, 0.0, first);
    return tile;
}
@compute @workgroup_size(32) fn main(@builtin(workgroup_id) group: vec3<u32>) {
    var c = MatrixC();
    for (var k = 0u; k < group.y; k++) {
        let a = coopLoadT<coop_mat16x16<f32, A>>(&left[k], 4u);
        c = coopMultiplyAdd(a, coop_mat16x16<f32, B>(), c);
    }
    coopStoreT(map_elements(c, group.x), &out[group.x], 4u);
}",
    ),
];

/// Cooperative matrix shapes of devices, with titles. Only the last ones convert what they store and keep loops.
const MATRICES: [(&str, Option<Matrix>); 5] = [
    ("f16", None),
    ("16 x 8 x 16 of f16", Some(matrix([16, 8, 16], false))),
    (
        "16 x 16 x 32 of i8",
        Some(Matrix { elements: [MatrixType::I8, MatrixType::I32], ..matrix([16, 16, 32], false) }),
    ),
    ("128 x 64 x 16, workgroup scope", Some(matrix([128, 64, 16], true))),
    (
        "128 x 64 x 16, workgroup scope, stored as f16",
        Some(Matrix { stores_halves: true, keeps_loops: true, ..matrix([128, 64, 16], true) }),
    ),
];

/// Returns matrices with f16 factors and f32 sums.
const fn matrix(sizes: [u32; 3], workgroup: bool) -> Matrix {
    let elements = [MatrixType::F16, MatrixType::F32];
    Matrix { sizes, workgroup, elements, stores_halves: false, keeps_loops: false }
}

/// Names of the SPIR-V instructions that rewrites remove or add, by opcode.
const NAMES: &[(u32, &str)] = &[
    (1, "OpUndef"),
    (10, "OpExtension"),
    (12, "OpExtInst"),
    (17, "OpCapability"),
    (21, "OpTypeInt"),
    (22, "OpTypeFloat"),
    (23, "OpTypeVector"),
    (25, "OpTypeImage"),
    (43, "OpConstant"),
    (57, "OpFunctionCall"),
    (65, "OpAccessChain"),
    (71, "OpDecorate"),
    (72, "OpMemberDecorate"),
    (80, "OpCompositeConstruct"),
    (81, "OpCompositeExtract"),
    (82, "OpCompositeInsert"),
    (95, "OpImageFetch"),
    (115, "OpFConvert"),
    (124, "OpBitcast"),
    (132, "OpIMul"),
    (224, "OpControlBarrier"),
    (241, "OpAtomicOr"),
    (246, "OpLoopMerge"),
    (248, "OpLabel"),
    (249, "OpBranch"),
    (254, "OpReturnValue"),
    (4456, "OpTypeCooperativeMatrixKHR"),
    (4457, "OpCooperativeMatrixLoadKHR"),
    (4458, "OpCooperativeMatrixStoreKHR"),
    (4459, "OpCooperativeMatrixMulAddKHR"),
    (5367, "OpCooperativeMatrixLoadTensorNV"),
    (5369, "OpCooperativeMatrixPerElementOpNV"),
    (5370, "OpTypeTensorLayoutNV"),
    (5372, "OpCreateTensorLayoutNV"),
    (5373, "OpTensorLayoutSetDimensionNV"),
    (5374, "OpTensorLayoutSetStrideNV"),
    (5375, "OpTensorLayoutSliceNV"),
];

/// Returns a SPIR-V instruction as one line of text.
fn shown(instruction: &[u32]) -> String {
    let opcode = instruction[0] & 0xffff;
    let name = NAMES.iter().find(|(number, _)| *number == opcode).map(|(_, name)| *name);
    let mut line = name.map_or_else(|| format!("Op{opcode}"), str::to_owned);
    instruction[1..].iter().for_each(|word| write!(line, " {word}").unwrap());
    line
}

/// Returns the lines in which two modules differ, in order: with `-` from the first and with `+` from the second.
fn difference(before: &[u32], after: &[u32]) -> String {
    let [a, b] = [before, after].map(|words| -> Vec<String> {
        let bound = [format!("identifiers below {}", words[3])];
        bound.into_iter().chain(instructions(words).unwrap().into_iter().map(shown)).collect()
    });
    // Longest common subsequences of all tails.
    let mut longest = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            longest[i][j] = match a[i] == b[j] {
                true => longest[i + 1][j + 1] + 1,
                false => longest[i + 1][j].max(longest[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, String::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || (i < a.len() && longest[i + 1][j] >= longest[i][j + 1]) {
            writeln!(out, "- {}", a[i]).unwrap();
            i += 1;
        } else {
            writeln!(out, "+ {}", b[j]).unwrap();
            j += 1;
        }
    }
    out
}

#[test]
fn rewrites_match_the_golden_file() {
    let mut text = String::new();
    for (what, wgsl) in MODULES {
        let raw = write(wgsl).unwrap_or_else(|e| panic!("{what}: {e}"));
        let matrices_of = if wgsl.contains("coop") { &MATRICES[..] } else { &MATRICES[..1] };
        for (kind, matrix) in matrices_of {
            let matrix_kind = if wgsl.contains("coop") { format!(": {kind}") } else { String::new() };
            writeln!(text, "# {what}{matrix_kind}\n").unwrap();
            let mut words = raw.clone();
            let mut step = |name: &str, after: Vec<u32>| {
                let changed = difference(&words, &after);
                if !changed.is_empty() {
                    writeln!(text, "{name}\n{changed}").unwrap();
                }
                words.clone_from(&after);
                after
            };
            let next = step("layout", strip_explicit_layout(&raw).unwrap());
            let next = step("texels", texels::retype(next).unwrap());
            let next = step("f16_bitcasts", f16_bitcasts::reinterpret(&next).unwrap());
            let next = step("matrices", matrices::retype(&next, *matrix).unwrap());
            let mut next = step("fragments", fragments::fill(&next).unwrap());
            if matrix.is_some_and(|matrix| matrix.workgroup) {
                next = step("elements", elements::apply(&next).unwrap());
                next = step("tensors", tensors::address(&next).unwrap());
            }
            if matrix.is_some_and(|matrix| matrix.stores_halves) && wgsl.contains("coopStoreT") {
                next = step("halves", elements::store_halves(&next).unwrap());
            }
            if matrix.is_some_and(|matrix| matrix.keeps_loops) {
                next = step("loops", loops::keep(&next).unwrap());
            }
            let next = step("barriers", barriers::repair(&next).unwrap());
            step("atomics", atomics::narrow(&next).unwrap());
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/emit/spirv/rewrites.txt");
    if std::env::var_os("DRIFT_BLESS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap_or_default();
    for (line, (got, want)) in text.lines().zip(golden.lines()).enumerate() {
        assert_eq!(
            got,
            want,
            "line {} of {} differs; DRIFT_BLESS=1 rewrites the file",
            line + 1,
            file.display()
        );
    }
    assert_eq!(text.lines().count(), golden.lines().count(), "{}", file.display());
}
