//! `pool.wgsl`: pooling, which computes the maximum, the index of the maximum, the average or the norm over windows.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Op, Pool};
use crate::ir::ops::pool::PoolKind;
use crate::ir::tensor::DType;
use crate::kernels::cost::{Estimate, Parameters};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, ThreadsConfig};
use crate::kernels::shared::window::{AXES, Windows, declare_guards, spatial, vec4_channels};
use crate::shader::problem::Problem;
use crate::shader::{Grid, LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "pool",
    wgsl: concat!(
        include_str!("shared/preludes/window.wgsl"),
        include_str!("shared/preludes/image_sizes.wgsl"),
        include_str!("pool.wgsl")
    ),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

/// Cost parameters of the kernel `pool`. All are between 0 and 1.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Fraction of the f32 peak that the kernel reaches.
    peak_fraction: f64,
}

impl Parameters for Params {
    const GROUP: &str = "pool";
}

fn windows(op: &Pool) -> Windows {
    Windows::new(&op.kernel, &op.strides, &op.dilations, &op.pads_begin, &op.pads_end)
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Pool(op) = problem.op else { return Vec::new() };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let windows = windows(op);
    let limit = [&windows.kernel, &windows.stride, &windows.dilation, &windows.begin, &windows.end];
    let small = limit.iter().all(|l| l.iter().all(|v| *v < 1 << 24));
    if !(3..=5).contains(&problem.result.rank()) || !small {
        return Vec::new();
    }
    let elements = problem.max(&problem.result.elements()) as f64;
    let flops = elements * windows.taps() as f64;
    vec![Candidate::new(
        &ThreadsConfig { threads: problem.threads() },
        Estimate::roofline(problem, flops, problem.traffic() as f64, p.peak_fraction),
        format!(
            "{} taps for each of {elements} result elements, four channels per invocation",
            windows.taps()
        ),
    )]
}

/// Returns the WGSL of the hooks `start` (initial accumulator), `combine` (adds one tap) and `finish` (result) of a
/// pooling operator.
fn reduction(kind: PoolKind, class: ValueType, dtype: DType) -> [String; 3] {
    let zero = class.zero(4);
    let (start, combine, finish) = match kind {
        PoolKind::Max | PoolKind::MaxIndex { .. } => {
            let lowest = match class {
                ValueType::Float => "bitcast<vec4<f32>>(vec4<u32>(0xff800000u))".to_string(),
                ValueType::Int => {
                    let bits = u32::try_from(dtype.bytes() * 8).unwrap_or(32).min(32);
                    format!("vec4<i32>({})", i64::from(i32::MIN) >> (32 - bits))
                }
                _ => zero,
            };
            let result = if matches!(kind, PoolKind::Max) { "acc" } else { "best_index" };
            (lowest, "max(acc, v)".to_string(), result.to_string())
        }
        PoolKind::Average { .. } => (zero, "acc + v".to_string(), "acc / taps".to_string()),
        PoolKind::Lp { p: 1 } => (zero, "acc + abs(v)".to_string(), "acc".to_string()),
        PoolKind::Lp { p: 2 } => (zero, "acc + v * v".to_string(), "sqrt(acc)".to_string()),
        PoolKind::Lp { p } => (
            zero,
            format!("acc + pow(abs(v), value({p}.0))"),
            format!("pow(acc, value({:?}))", 1.0 / p as f32),
        ),
    };
    [
        format!("fn start() -> value {{ return {start}; }}\n"),
        format!("fn combine(acc: value, v: value) -> value {{ return {combine}; }}\n"),
        format!("fn finish(acc: value, best_index: vec4<i32>, taps: f32) -> output {{ return {finish}; }}\n"),
    ]
}

fn launches(problem: &Problem<'_>, config: ThreadsConfig) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Pool(op) = problem.op else { return Err(OpError::new("the operator is not a pool")) };
    let windows = windows(op);
    let mut shader = Shader::new(problem);
    let ThreadsConfig { threads } = config;
    config.declare(&mut shader);
    windows.declare(&mut shader, &[0, 1, 2]);
    for (name, end) in AXES.iter().zip(windows.end) {
        shader.constant(&format!("PAD_END_{name}"), format_args!("{end}i"));
    }
    let padding = matches!(op.kind, PoolKind::Average { count_include_pad: true });
    shader.constant("COUNT_PADDING", padding);
    // Zeros do not change a sum, but averages would count them and they could be the maximum.
    let outside = windows.padded().map(|padded| padded || op.ceil);
    match op.kind {
        PoolKind::Lp { .. } | PoolKind::Average { count_include_pad: true } => {
            declare_guards(&mut shader, 0, &[0, 1, 2], outside);
        }
        _ => AXES
            .iter()
            .zip(outside)
            .for_each(|(axis, guard)| shader.constant(&format!("GUARD_{axis}"), guard)),
    }
    shader.constant("TRACKS_INDEX", matches!(op.kind, PoolKind::MaxIndex { .. }));
    shader.constant("BATCH_INNER", problem.result.is_slices4());
    let source_type = problem.operands[0].dtype;
    let class = ValueType::from_dtype(source_type);
    shader.alias("value", &class.wgsl(4));
    shader.alias("output", &ValueType::from_dtype(problem.computed).wgsl(4));
    let [start, combine, finish] = reduction(op.kind, class, source_type);
    shader.replace("start", start);
    shader.replace("combine", combine);
    shader.replace("finish", finish);
    let (source, result) = (problem.operands[0].shape.clone(), problem.result.shape.clone());
    shader.size("batches", &result[0]);
    let slices = result[1].ceil_div(4);
    shader.size("slices", &slices);
    windows.declare_sizes(&mut shader, &[0, 1, 2], [&source, &result]);
    if let PoolKind::MaxIndex { column_major } = op.kind {
        let [d, h, w] = spatial(&source).map(|s| shader.dim(&s));
        let channels = shader.dim(&source[1]);
        let index = if column_major {
            format!("(x * {h} + y) * {d} + z")
        } else {
            format!("(z * {h} + y) * {w} + x")
        };
        shader.replace(
            "flat",
            format!(
                "fn flat(b: u32, z: u32, y: u32, x: u32, s: u32) -> vec2<u32> {{\n    let plane = {d} * {h} * {w};\n    return vec2<u32>((b * {channels} + s * 4u) * plane + {index}, plane);\n}}\n"
            ),
        );
    }
    let at = vec4_channels(problem.result.rank(), "b", "s", ["z", "y", "x"]);
    shader.read("src", "b: u32, z: u32, y: u32, x: u32, s: u32", "", 0, &at);
    shader.write("store", "b: u32, z: u32, y: u32, x: u32, s: u32", "", &at)?;
    let mut units = result.clone();
    units[1] = slices;
    let grid = Grid::linear(&product(&units), threads, problem.bounds);
    let flops = product(&result).mul(&Dim::from(windows.taps()));
    Ok(vec![shader.finish("pool", KERNEL.wgsl, grid, flops)])
}
