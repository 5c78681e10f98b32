//! `resize.wgsl`: resize along any axes. For an axis of known size, the operand's elements to read and their weights
//! are computed at compile time and stored in a table. For symbolic sizes, the shader computes them.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Constant, Op, Resize};
use crate::ir::ops::resize::{Coordinates, Filter, NearestRound};
use crate::ir::ops::resize_samples::Sample;
use crate::ir::tensor::DType;
use crate::kernels::cost::{Estimate, Parameters};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, ThreadsConfig};
use crate::shader::element_walk::{ElementWalk, gather_function, walk_elements};
use crate::shader::pack::Packed;
use crate::shader::problem::Problem;
use crate::shader::value_type::literal;
use crate::shader::{Grid, LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "resize",
    wgsl: include_str!("resize.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Nothing,
};

/// Cost parameters of the kernel `resize`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Fraction of the f32 peak that the kernel reaches. 0 to 1.
    peak_fraction: f64,
    /// Floating-point operations per tap of a result element.
    tap_operations: f64,
}

impl Parameters for Params {
    const GROUP: &str = "resize";
}

/// Element index in the table of taps that marks a result position outside the cropped region (`tf_crop_and_resize`).
/// The position gets the extrapolation value.
const OUTSIDE: u32 = u32::MAX;

/// An axis that a resize changes, with the taps of its result positions.
struct Axis {
    axis: usize,
    /// Number of taps (elements of the operand with weights) per result position along the axis.
    taps: usize,
    lookup: Lookup,
}

/// Source of the taps of a resized axis: a table, or WGSL that computes them.
enum Lookup {
    /// Index of the axis's first tap in the table of taps. A tap has an element index and a weight.
    Table(usize),
    /// WGSL call of a function that computes a tap, `name({at}, .., {k}, ..)`, with placeholders for the result
    /// position and the number of the tap. The second field is the WGSL condition for result positions outside the
    /// cropped region, if there is a region.
    Formula(String, Option<String>),
}

fn known(dim: &Dim) -> Option<usize> {
    crate::kernels::shared::window::known(dim)
}

/// Returns the axes that a resize changes.
fn resized(op: &Resize, problem: &Problem<'_>) -> Vec<usize> {
    let keeps = |axis: usize| {
        let (input, output) = (&problem.operands[0].shape[axis], &problem.result.shape[axis]);
        match (known(input), known(output)) {
            (Some(input), Some(output)) => op.is_identity(axis, input, output),
            _ => input == output && op.scales[axis] == 1.0 && op.coordinates != Coordinates::TfCropAndResize,
        }
    };
    (0..problem.result.rank()).filter(|a| !keeps(*a)).collect()
}

/// Returns the maximum number of taps per position along a resized axis. The sizes of the axis may be symbolic.
fn max_taps(op: &Resize, axis: usize) -> usize {
    let scale = f64::from(op.scales[axis]);
    let narrow = if op.antialias { scale.min(1.0) } else { 1.0 };
    match op.filter {
        Filter::Nearest(_) => 1,
        Filter::Linear => (2.0 / narrow).ceil() as usize,
        Filter::Cubic { .. } => (4.0 / narrow).ceil() as usize,
    }
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Resize(op) = problem.op else { return Vec::new() };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let integers = !problem.computed.is_float();
    if problem.result.rank() > op.scales.len() {
        return Vec::new();
    }
    let taps: f64 = resized(op, problem).into_iter().map(|a| max_taps(op, a) as f64).product();
    // Booleans can only be copied. Other integers are copied, or computed as floats.
    if integers && problem.computed == DType::Bool && taps > 1.0 {
        return Vec::new();
    }
    let elements = problem.max(&problem.result.elements()) as f64;
    let operations = elements * taps * p.tap_operations;
    vec![Candidate::new(
        &ThreadsConfig { threads: problem.threads() },
        Estimate::roofline(problem, operations, problem.traffic() as f64, p.peak_fraction),
        format!("{taps} taps for each of {elements} result elements"),
    )]
}

fn launches(problem: &Problem<'_>, config: ThreadsConfig) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Resize(op) = problem.op else { return Err(OpError::new("the operator is not a resize")) };
    let mut shader = Shader::new(problem);
    let ThreadsConfig { threads } = config;
    config.declare(&mut shader);
    let changed = resized(op, problem);
    let (axes, table) = plan_axes(&mut shader, op, &changed);
    let table = (!table.is_empty()).then(|| {
        let array = Array::int(DType::U32, &[table.len()], table.iter().map(|v| i64::from(*v)).collect());
        let bound = shader.packed(Packed::dense(&Constant::from_array(&array)));
        shader.bind(bound, "vec2<u32>", false)
    });
    let table = table.unwrap_or_default();
    let taps: usize = axes.iter().map(|a| a.taps).product();
    let chunk = (1..=taps.min(8)).rev().find(|c| taps.is_multiple_of(*c)).unwrap_or(1);
    shader.constant("TAPS", format_args!("{taps}u"));
    shader.constant("CHUNK", format_args!("{chunk}u"));

    let result = problem.result.clone();
    let walk = walk_elements(&mut shader, &result, |axis| !changed.contains(&axis));
    let lanes = walk.lanes();
    let class = ValueType::from_dtype(problem.computed);
    let is_weighted = !matches!(op.filter, Filter::Nearest(_));
    let sums = match class {
        ValueType::Bool => ValueType::Uint,
        _ if is_weighted => ValueType::Float,
        _ => class,
    };
    let (value, output) = (sums.wgsl(lanes), class.wgsl(lanes));
    shader.alias("value", &value);
    shader.alias("output", &output);
    shader.size("units", &walk.units);

    let outside = literal(
        f64::from(op.extrapolation),
        ValueType::from_dtype(problem.operands[0].dtype),
        if walk.lanes_apart { 1 } else { lanes },
    );
    let mut text = gather_function(&mut shader, &walk, &result, "element", "t: u32", 0, |shader, at| {
        let (mut text, _) = statements(shader, &axes, &table, at);
        if let Some(condition) = outside_condition(op, &axes, at) {
            text += &format!("    if ({condition}) {{ return {outside}; }}\n");
        }
        let mut coordinates = at.to_vec();
        for a in &axes {
            coordinates[a.axis] = format!("i{}", a.axis);
        }
        (text, coordinates)
    });
    text += &weight_functions(&mut shader, op, &walk, &axes, &table);
    text += "fn tap(unit: u32, t: u32) -> value {\n";
    text += &if is_weighted {
        "    return value(element(unit, t)) * weight(unit, t);\n}\n".to_string()
    } else {
        "    return value(element(unit, t));\n}\n".to_string()
    };
    shader.replace("tap", text);
    let end = match class {
        ValueType::Bool => format!("sum != {}", sums.zero(lanes)),
        ValueType::Int | ValueType::Uint if is_weighted => {
            let (low, high) = range(problem.computed);
            format!("output(clamp(round(sum), value({low:?}), value({high:?})))")
        }
        _ => "sum".to_string(),
    };
    shader.replace("finish", format!("fn finish(unit: u32, sum: value) -> output {{ return {end}; }}\n"));
    shader.write("store", "unit: u32", &walk.prelude, &walk.at)?;
    let grid = Grid::linear(&walk.units, threads, problem.bounds);
    let flops = product(&result.shape).mul(&Dim::from(taps)).scale(2);
    Ok(vec![shader.finish("resize", KERNEL.wgsl, grid, flops)])
}

/// Returns the limits to which a resized value of an integer type is clamped: the smallest and the largest value that
/// both f32 and the integer type represent.
fn range(dtype: DType) -> (f32, f32) {
    match dtype {
        DType::I8 => (-128.0, 127.0),
        DType::U8 => (0.0, 255.0),
        DType::I16 => (-32768.0, 32767.0),
        DType::U16 => (0.0, 65535.0),
        DType::U32 | DType::U64 => (0.0, 4_294_967_000.0),
        _ => (-2_147_483_600.0, 2_147_483_500.0),
    }
}

/// Returns the resized axes, each with the source of its taps, and the table of the taps of all axes of known size.
fn plan_axes(shader: &mut Shader<'_>, op: &Resize, changed: &[usize]) -> (Vec<Axis>, Vec<u32>) {
    let problem = shader.problem;
    let mut table = Vec::new();
    let mut axes = Vec::new();
    for &axis in changed {
        let (input, output) = (&problem.operands[0].shape[axis], &problem.result.shape[axis]);
        if let (Some(input), Some(output)) = (known(input), known(output)) {
            let samples = op.samples(axis, input, output);
            let taps = samples.iter().map(|s| if let Sample::Taps(t) = s { t.len() } else { 1 }).max();
            let taps = taps.unwrap_or(1).max(1);
            axes.push(Axis { axis, taps, lookup: Lookup::Table(table.len() / 2) });
            for sample in &samples {
                for k in 0..taps {
                    // Positions with fewer taps are padded with elements of weight 0.
                    let (element, weight) = match sample {
                        Sample::Extrapolated => (OUTSIDE, 0.0),
                        Sample::Taps(t) => match (t.get(k), t.last()) {
                            (Some((i, w)), _) => (u32::try_from(*i).unwrap_or(0), *w as f32),
                            (None, Some((i, _))) => (u32::try_from(*i).unwrap_or(0), 0.0),
                            (None, None) => (0, 0.0),
                        },
                    };
                    table.extend([element, weight.to_bits()]);
                }
            }
        } else {
            let taps = max_taps(op, axis);
            let call = formula(shader, op, axis, taps);
            let outside = (op.coordinates == Coordinates::TfCropAndResize).then(|| {
                let [scale, shift] = affine(shader, op, axis);
                let last = format!("f32({}) - 1.0", shader.dim(&problem.operands[0].shape[axis]));
                let x = format!("(f32({{at}}) * {scale} + {shift})");
                format!("{x} < 0.0 || {x} > {last}")
            });
            axes.push(Axis { axis, taps, lookup: Lookup::Formula(call, outside) });
        }
    }
    (axes, table)
}

/// Returns the WGSL expressions of scale and shift for an axis of symbolic size. Position `at` of the result samples
/// the operand at `at * scale + shift`.
fn affine(shader: &mut Shader<'_>, op: &Resize, axis: usize) -> [String; 2] {
    let problem = shader.problem;
    let input = format!("f32({})", shader.dim(&problem.operands[0].shape[axis]));
    let output = format!("f32({})", shader.dim(&problem.result.shape[axis]));
    let inverse = 1.0 / f64::from(op.scales[axis]);
    let number = |v: f64| literal(v, ValueType::Float, 1);
    let half = number(0.5 * inverse - 0.5);
    let scale = number(inverse);
    match op.coordinates {
        Coordinates::HalfPixel => [scale, half],
        Coordinates::HalfPixelSymmetric => {
            let adjustment = format!("{output} / ({input} * {})", number(f64::from(op.scales[axis])));
            [scale, format!("(0.5 * {input} * (1.0 - {adjustment}) + {half})")]
        }
        Coordinates::PytorchHalfPixel => [scale, format!("select(0.0, {half}, {output} > 1.0)")],
        Coordinates::AlignCorners => {
            [format!("(({input} - 1.0) / max({output} - 1.0, 1.0))"), "0.0".to_string()]
        }
        Coordinates::Asymmetric => [scale, "0.0".to_string()],
        Coordinates::TfHalfPixelForNn => [scale, number(0.5 * inverse)],
        Coordinates::TfCropAndResize => {
            let roi = |i: usize| f64::from(op.roi.get(i).copied().unwrap_or(0.0));
            let (start, end) = (roi(axis), roi(axis + op.scales.len()));
            let last = format!("max({input} - 1.0, 0.0)");
            let middle = number(0.5 * (start + end));
            [
                format!("({} * {last} / max({output} - 1.0, 1.0))", number(end - start)),
                format!("(select({middle}, {}, {output} > 1.0) * {last})", number(start)),
            ]
        }
    }
}

/// Returns the WGSL call that computes the element and the weight of a tap, for an axis of symbolic size. `{at}` and
/// `{k}` are placeholders for the position and the tap's number.
fn formula(shader: &mut Shader<'_>, op: &Resize, axis: usize, taps: usize) -> String {
    let problem = shader.problem;
    let size = shader.dim(&problem.operands[0].shape[axis]);
    if let Filter::Nearest(round) = op.filter {
        if let Some([step, first, per]) = ratio(op, axis, round) {
            return format!("axis_ratio({{at}}, {step}, {first}, {per}, {size})");
        }
        let [scale, shift] = affine(shader, op, axis);
        let x = format!("(f32({{at}}) * {scale} + {shift})");
        let x = match round {
            NearestRound::RoundPreferFloor => format!("ceil({x} - 0.5)"),
            NearestRound::RoundPreferCeil => format!("floor({x} + 0.5)"),
            NearestRound::Floor => format!("floor({x})"),
            NearestRound::Ceil => format!("ceil({x})"),
        };
        return format!("vec2<f32>(clamp_element({x}, {size}), 1.0)");
    }
    let [scale, shift] = affine(shader, op, axis);
    let narrow = if op.antialias { op.scales[axis].min(1.0) } else { 1.0 };
    let (reach, a) = match op.filter {
        Filter::Cubic { a } => ("2.0", a),
        _ => ("1.0", 1.0),
    };
    if a == 1.0 && narrow == 1.0 {
        return format!("axis_linear(f32({{at}}), {scale}, {shift}, {{k}}, {size})");
    }
    format!(
        "axis_filter(f32({{at}}), {scale}, {shift}, {{k}}, {size}, {taps}u, {reach}, {}, {}, {})",
        literal(narrow.into(), ValueType::Float, 1),
        literal(a.into(), ValueType::Float, 1),
        op.exclude_outside
    )
}

/// Returns integers `[step, first, per]` with which the nearest element of position `at` is exactly `(at * step +
/// first) / per`, an integer division. Returns `None` if the scale is not a ratio of small integers.
fn ratio(op: &Resize, axis: usize, round: NearestRound) -> Option<[i64; 3]> {
    let scale = f64::from(op.scales[axis]);
    let below = (1..=16i64).find(|q| (scale * *q as f64).fract() == 0.0)?;
    let above = (scale * below as f64) as i64;
    if above == 0 || above > 1 << 12 {
        return None;
    }
    // The position in the operand is (2 * below * at + first) / (2 * above).
    let first = match op.coordinates {
        Coordinates::HalfPixel => below - above,
        Coordinates::Asymmetric => 0,
        Coordinates::TfHalfPixelForNn => below,
        _ => return None,
    };
    let more = match round {
        NearestRound::Floor => 0,
        NearestRound::Ceil => 2 * above - 1,
        NearestRound::RoundPreferFloor => above - 1,
        NearestRound::RoundPreferCeil => above,
    };
    Some([2 * below, first + more, 2 * above])
}

/// Returns WGSL statements that define, for tap `t`, the variables `i<axis>` (index of the operand's element) and
/// `w<axis>` (weight) of each resized axis. Also returns the names of the weight variables.
fn statements(shader: &mut Shader<'_>, axes: &[Axis], table: &str, at: &[String]) -> (String, Vec<String>) {
    let mut text = String::new();
    let mut names = Vec::new();
    let mut inner = 1;
    for a in axes.iter().rev() {
        let (axis, taps) = (a.axis, a.taps);
        let k = match (taps, inner) {
            (1, _) => "0u".to_string(),
            (_, 1) => format!("(t % {taps}u)"),
            _ => format!("(t / {inner}u % {taps}u)"),
        };
        inner *= taps;
        text += &match &a.lookup {
            Lookup::Table(first) => {
                let first = shader.dim(&Dim::from(*first));
                format!(
                    "    let e{axis} = {table}[{first} + ({}) * {taps}u + {k}];\n    let i{axis} = e{axis}.x;\n    let w{axis} = bitcast<f32>(e{axis}.y);\n",
                    at[axis]
                )
            }
            Lookup::Formula(call, _) => {
                let call = call.replace("{at}", &at[axis]).replace("{k}", &k);
                format!(
                    "    let e{axis} = {call};\n    let i{axis} = u32(e{axis}.x);\n    let w{axis} = e{axis}.y;\n"
                )
            }
        };
        names.push(format!("w{axis}"));
    }
    (text, names)
}

/// Returns the WGSL condition that a result position is outside the cropped region (`tf_crop_and_resize`), or `None` if
/// there is no region.
fn outside_condition(op: &Resize, axes: &[Axis], at: &[String]) -> Option<String> {
    if op.coordinates != Coordinates::TfCropAndResize {
        return None;
    }
    let conditions: Vec<String> = axes
        .iter()
        .filter_map(|a| match &a.lookup {
            Lookup::Table(_) => Some(format!("i{} == {OUTSIDE}u", a.axis)),
            Lookup::Formula(_, outside) => Some(outside.as_ref()?.replace("{at}", &at[a.axis])),
        })
        .collect();
    (!conditions.is_empty()).then(|| conditions.join(" || "))
}

/// Returns the WGSL of `fn weight(unit: u32, t: u32)`, the weight of tap `t` for a unit (one element or a vec4) of the
/// result. It returns four weights if the elements of a vec4 have different taps.
fn weight_functions(
    shader: &mut Shader<'_>,
    op: &Resize,
    walk: &ElementWalk,
    axes: &[Axis],
    table: &str,
) -> String {
    let mut at = walk.at.axes.clone();
    if let (true, Some(lane)) = (walk.lanes_apart, walk.at.lanes) {
        let last = shader.dim(&shader.problem.result.shape[lane].plus(-1));
        at[lane] = format!("min(({}) * 4u + lane, {last})", at[lane]);
    }
    let (text, names) = statements(shader, axes, table, &at);
    let outside = outside_condition(op, axes, &at)
        .map(|c| format!("    if ({c}) {{ return select(0.0, 1.0, t == 0u); }}\n"))
        .unwrap_or_default();
    let weight = if names.is_empty() { "1.0".to_string() } else { names.join(" * ") };
    let body = format!("{}{text}{outside}    return {weight};\n}}\n", walk.prelude);
    if walk.lanes_apart {
        return format!(
            "fn weight_lane(unit: u32, lane: u32, t: u32) -> f32 {{\n{body}fn weight(unit: u32, t: u32) -> vec4<f32> {{\n    return vec4<f32>(weight_lane(unit, 0u, t), weight_lane(unit, 1u, t), weight_lane(unit, 2u, t), weight_lane(unit, 3u, t));\n}}\n"
        );
    }
    format!("fn weight(unit: u32, t: u32) -> f32 {{\n{body}")
}
