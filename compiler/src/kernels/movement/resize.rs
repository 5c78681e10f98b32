//! `resize.wgsl`: resampling along any axes. Elements and weights along an axis of known extents are worked out here
//! and read from a table; for other extents the shader computes them.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Constant, Op, Resize};
use crate::ir::ops::resize::{Coordinates, Filter, NearestRound};
use crate::ir::ops::sampling::Sample;
use crate::ir::tensor::DType;
use crate::kernels::cost::{Parameters, roofline};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::class::literal;
use crate::shader::pack::Packed;
use crate::shader::problem::Problem;
use crate::shader::walk::{Walk, gather, walk};
use crate::shader::{Class, Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "resize",
    wgsl: include_str!("resize.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Nothing,
};

/// Parameters of the estimate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Part of the arithmetic peak that is reached.
    reached: f64,
    /// Operations of a tap.
    tap: f64,
}

impl Parameters for Params {
    const GROUP: &str = "resize";
}

/// Marks a position outside the region in a table.
const OUTSIDE: u32 = u32::MAX;

/// A resized axis.
struct Axis {
    axis: usize,
    /// Taps per position.
    taps: usize,
    lookup: Lookup,
}

/// How the taps of an axis are found.
enum Lookup {
    /// Rows of element and weight, from a place in the table on.
    Table(usize),
    /// A call of a function of the shader with the position and the tap left out, `name({at}, .., {k}, ..)`, and the
    /// condition that a position lies outside the region, if there is one.
    Formula(String, Option<String>),
}

fn known(dim: &Dim) -> Option<usize> {
    crate::kernels::shared::window::known(dim)
}

/// The axes that change.
fn resized(op: &Resize, problem: &Problem<'_>) -> Vec<usize> {
    let keeps = |axis: usize| {
        let (input, output) = (&problem.operands[0].shape[axis], &problem.result.shape[axis]);
        match (known(input), known(output)) {
            (Some(input), Some(output)) => op.keeps(axis, input, output),
            _ => input == output && op.scales[axis] == 1.0 && op.coordinates != Coordinates::TfCropAndResize,
        }
    };
    (0..problem.result.rank()).filter(|a| !keeps(*a)).collect()
}

/// Taps per position along an axis whose extents may be symbolic.
fn most_taps(op: &Resize, axis: usize) -> usize {
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
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let integers = !problem.computed.is_float();
    if problem.result.rank() > op.scales.len() {
        return Vec::new();
    }
    let taps: f64 = resized(op, problem).into_iter().map(|a| most_taps(op, a) as f64).product();
    // Integers are picked as they are, or computed as floats.
    if integers && problem.computed == DType::Bool && taps > 1.0 {
        return Vec::new();
    }
    let elements = problem.max(&problem.result.elements()) as f64;
    let threads = problem.threads();
    vec![Candidate {
        knobs: vec![("THREADS", threads)],
        cost: roofline(problem, elements * taps * p.tap, problem.traffic() as f64, p.reached),
        reason: format!("{taps} taps for {elements} elements"),
    }]
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::Resize(op) = problem.op else { return Err(OpError::new("not a resize")) };
    let mut shader = Shader::new(problem);
    let threads = candidate.knob("THREADS");
    shader.knob("THREADS", threads);
    let changed = resized(op, problem);
    let (axes, table) = plan(&mut shader, op, &changed);
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
    let walk = walk(&mut shader, &result, |axis| !changed.contains(&axis));
    let lanes = walk.lanes();
    let class = Class::of(problem.computed);
    let weighed = !matches!(op.filter, Filter::Nearest(_));
    let sums = match class {
        Class::Bool => Class::Uint,
        _ if weighed => Class::Float,
        _ => class,
    };
    let (value, output) = (sums.wgsl(lanes), class.wgsl(lanes));
    shader.alias("value", &value);
    shader.alias("output", &output);
    shader.size("units", &walk.units);

    let outside = literal(
        f64::from(op.extrapolation),
        Class::of(problem.operands[0].dtype),
        if walk.apart { 1 } else { lanes },
    );
    let mut text = gather(&mut shader, &walk, &result, "element", "t: u32", 0, |shader, at| {
        let (mut text, _) = statements(shader, &axes, &table, at);
        if let Some(condition) = beyond(op, &axes, at) {
            text += &format!("    if ({condition}) {{ return {outside}; }}\n");
        }
        let mut places = at.to_vec();
        for a in &axes {
            places[a.axis] = format!("i{}", a.axis);
        }
        (text, places)
    });
    text += &weights(&mut shader, op, &walk, &axes, &table);
    text += "fn tap(unit: u32, t: u32) -> value {\n";
    text += &if weighed {
        "    return value(element(unit, t)) * weight(unit, t);\n}\n".to_string()
    } else {
        "    return value(element(unit, t));\n}\n".to_string()
    };
    shader.replace("tap", text);
    let end = match class {
        Class::Bool => format!("sum != {}", sums.zero(lanes)),
        Class::Int | Class::Uint if weighed => {
            let (low, high) = range(problem.computed);
            format!("output(clamp(round(sum), value({low:?}), value({high:?})))")
        }
        _ => "sum".to_string(),
    };
    shader.replace("finish", format!("fn finish(unit: u32, sum: value) -> output {{ return {end}; }}\n"));
    shader.write("store", "unit: u32", &walk.prelude, &walk.at)?;
    let grid = Grid::linear(&walk.units, threads, problem.bounds);
    let flops = product(&result.shape).mul(&Dim::from(taps)).scale(2);
    Ok(vec![shader.finish("resize", KERNEL.wgsl, grid, flops)?])
}

/// The smallest and largest value of an integer type that f32 and the device's 32 bits hold.
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

/// How the taps of each axis are found, and the table for all of them.
fn plan(shader: &mut Shader<'_>, op: &Resize, changed: &[usize]) -> (Vec<Axis>, Vec<u32>) {
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
                    // Rows shorter than the longest end with elements of no weight.
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
            let taps = most_taps(op, axis);
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

/// Where an axis of unknown extents is sampled: `at * scale + shift`, as WGSL.
fn affine(shader: &mut Shader<'_>, op: &Resize, axis: usize) -> [String; 2] {
    let problem = shader.problem;
    let input = format!("f32({})", shader.dim(&problem.operands[0].shape[axis]));
    let output = format!("f32({})", shader.dim(&problem.result.shape[axis]));
    let inverse = 1.0 / f64::from(op.scales[axis]);
    let number = |v: f64| literal(v, Class::Float, 1);
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

/// The call that gives element and weight of tap `{k}` at position `{at}`.
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
        return format!("vec2<f32>(clamped({x}, {size}), 1.0)");
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
        literal(narrow.into(), Class::Float, 1),
        literal(a.into(), Class::Float, 1),
        op.exclude_outside
    )
}

/// Numbers of `(at * step + first) / per` that give the nearest element exactly, for a scale that is a small fraction.
fn ratio(op: &Resize, axis: usize, round: NearestRound) -> Option<[i64; 3]> {
    let scale = f64::from(op.scales[axis]);
    let below = (1..=16i64).find(|q| (scale * *q as f64).fract() == 0.0)?;
    let above = (scale * below as f64) as i64;
    if above == 0 || above > 1 << 12 {
        return None;
    }
    // The source's position is (2 * below * at + first) / (2 * above).
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

/// Statements that find element `i<axis>` and weight `w<axis>` of tap `t` along each axis, and the weights' names.
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

/// The condition that a position lies outside the region along some axis.
fn beyond(op: &Resize, axes: &[Axis], at: &[String]) -> Option<String> {
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

/// The text of `fn weight(unit: u32, t: u32)`: one number per unit, or per lane where lanes have taps of their own.
fn weights(shader: &mut Shader<'_>, op: &Resize, walk: &Walk, axes: &[Axis], table: &str) -> String {
    let mut at = walk.at.axes.clone();
    if let (true, Some(lane)) = (walk.apart, walk.at.lanes) {
        let last = shader.dim(&shader.problem.result.shape[lane].plus(-1));
        at[lane] = format!("min(({}) * 4u + lane, {last})", at[lane]);
    }
    let (text, names) = statements(shader, axes, table, &at);
    let beyond = beyond(op, axes, &at)
        .map(|c| format!("    if ({c}) {{ return select(0.0, 1.0, t == 0u); }}\n"))
        .unwrap_or_default();
    let weight = if names.is_empty() { "1.0".to_string() } else { names.join(" * ") };
    let body = format!("{}{text}{beyond}    return {weight};\n}}\n", walk.prelude);
    if walk.apart {
        return format!(
            "fn weight_lane(unit: u32, lane: u32, t: u32) -> f32 {{\n{body}fn weight(unit: u32, t: u32) -> vec4<f32> {{\n    return vec4<f32>(weight_lane(unit, 0u, t), weight_lane(unit, 1u, t), weight_lane(unit, 2u, t), weight_lane(unit, 3u, t));\n}}\n"
        );
    }
    format!("fn weight(unit: u32, t: u32) -> f32 {{\n{body}")
}
