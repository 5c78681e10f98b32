//! `reduce.wgsl`: every kind of reduction along any set of axes.

use super::shares::{Params, Shares};
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Op, Reduce};
use crate::ir::ops::reduce::ReduceKind;
use crate::ir::tensor::DType;
use crate::kernels::cost::named;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::rows::{Lanes, Reduced, reduced};
use crate::shader::{Class, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "reduce",
    wgsl: include_str!("reduce.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::named::<Params>("reduce")],
    in_place: InPlace::Nothing,
};

/// Loads in flight per invocation.
const KEEP: u32 = 4;

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Reduce(op) = problem.op else { return Vec::new() };
    let Some(p) = named::<Params>(problem, KERNEL.name) else { return Vec::new() };
    let Reduced { problem, rows, .. } = reduced(problem, &op.axes, op.keepdims);
    let machine = &problem.target.machine;
    let room = machine.invocations() as i64;
    let (count, length) = (problem.max(&rows.rows()), problem.max(&rows.length()));
    let mut out = Vec::new();
    for shares in Shares::all(&problem, &rows, bytes(op.kind, rows.lanes)) {
        out.push(shares.candidate(&p, &problem, &rows, 1.0, KEEP));
        // Pieces long enough to be worth a launch, and few enough for the device.
        let lanes = i64::from(shares.lanes);
        let most = (room / (count * lanes).max(1)).min(length / (lanes * i64::from(KEEP) * 4)).min(256);
        if shares.lanes >= 64 && most >= 4 {
            let mut split = shares.pieces(&p, &problem, &rows, most as u32, KEEP);
            split.knobs.push(("SPLIT", most as u32));
            out.push(split);
        }
    }
    out
}

/// Bytes of what is accumulated.
fn bytes(kind: ReduceKind, lanes: Lanes) -> u32 {
    let values = if kind == ReduceKind::LogSumExp { 2 } else { 1 };
    4 * values * lanes.count()
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::Reduce(op) = problem.op else { return Err(OpError::new("not a reduction")) };
    let walk = reduced(problem, &op.axes, op.keepdims);
    let (problem, rows) = (&walk.problem, &walk.rows);
    let shares = Shares::of(candidate);
    let split = candidate.knob("SPLIT").max(1);
    let flops = problem.operands[0].elements();
    if split == 1 {
        let mut shader = Shader::new(problem);
        shares.split(&mut shader, rows);
        let (prelude, at) = rows.at(&mut shader);
        shader.read("load", "row: u32, i: u32", &prelude, 0, &at);
        kind(&mut shader, op, &walk, true);
        result(&mut shader, &walk)?;
        shader.knob("KEEP", KEEP);
        shader.iterations(rows.length().ceil_div(i64::from(shares.lanes) * i64::from(KEEP)));
        shader.workgroup_memory(shares.threads() * bytes(op.kind, rows.lanes));
        return Ok(vec![shader.finish("reduce", KERNEL.wgsl, shares.grid(problem, &rows.rows()), flops)?]);
    }
    let pieces = rows.rows().scale(i64::from(split));
    let mut first = Shader::new(problem);
    shares.split(&mut first, rows);
    first.knob("SPLIT", split);
    let each = rows.length().ceil_div(i64::from(split) * i64::from(shares.lanes) * i64::from(KEEP));
    first.iterations(each);
    first.knob("KEEP", KEEP);
    let (prelude, at) = rows.at(&mut first);
    first.read("load", "row: u32, i: u32", &prelude, 0, &at);
    kind(&mut first, op, &walk, false);
    first.alias("R", "A");
    first.replace("finish", "fn finish(a: A) -> A { return a; }".into());
    let scratch = first.scratch(pieces.scale(i64::from(bytes(op.kind, rows.lanes))));
    let buffer = first.bind(scratch, "A", true);
    first.replace("store", format!("fn store(row: u32, v: R) {{ {buffer}[row] = v; }}"));
    first.workgroup_memory(shares.threads() * bytes(op.kind, rows.lanes));
    let grid = shares.grid(problem, &pieces);

    let mut second = Shader::new(problem);
    let last = Shares { lanes: 64.min(split.next_power_of_two()), rows: 1 };
    last.split(&mut second, rows);
    second.constant("ROWS_FIRST", false);
    second.knob("KEEP", KEEP);
    second.size("length", &Dim::known(i64::from(split)));
    second.iterations(Dim::known(i64::from(split)));
    kind(&mut second, op, &walk, true);
    let buffer = second.bind(scratch, "A", false);
    second.replace(
        "load",
        format!("fn load(row: u32, i: u32) -> V {{ return {buffer}[row * {split}u + i]; }}"),
    );
    second.alias("V", "A");
    second.replace("lift", "fn lift(x: V) -> A { return x; }".into());
    result(&mut second, &walk)?;
    second.workgroup_memory(last.threads() * bytes(op.kind, rows.lanes));
    let after = last.grid(problem, &rows.rows());
    Ok(vec![
        first.finish("reduce", KERNEL.wgsl, grid, flops)?,
        second.finish("reduce", KERNEL.wgsl, after, pieces)?,
    ])
}

/// The hook that applies the epilogue to a row's result and stores it.
fn result(shader: &mut Shader<'_>, walk: &Reduced<'_>) -> Result<(), OpError> {
    let (prelude, at): (String, Coordinates) = walk.rows.result(shader, walk.kept);
    shader.write("store", "row: u32", &prelude, &at)
}

/// The types and functions of the kind of reduction; `whole` joins the lanes of a row.
fn kind(shader: &mut Shader<'_>, op: &Reduce, walk: &Reduced<'_>, whole: bool) {
    let dtype = shader.problem.operands[0].dtype;
    let class = Class::of(dtype);
    let lanes = walk.rows.lanes.count();
    let v = class.wgsl(lanes);
    let along = matches!(walk.rows.lanes, Lanes::Along(_));
    let total = reduced_elements(walk);
    let count = shader.dim(&total);
    let Functions { accumulate, first, lift, join, finish } = functions(op.kind, dtype, &count);
    let a = accumulate.wgsl(lanes);
    shader.alias("V", &v);
    shader.alias("R", &class.wgsl(if along { 1 } else { lanes }));
    let (fields, first) = match op.kind {
        ReduceKind::LogSumExp => {
            // The maximum and, in its second part, the sum of exponentials.
            let pair = if lanes == 1 { "vec2<f32>" } else { "mat2x4<f32>" };
            (format!("alias A = {pair};"), format!("A({a}({first}), {a}(0.0))"))
        }
        _ => (format!("alias A = {a};"), format!("A({first})")),
    };
    shader.replace("A", fields);
    shader.replace("first", format!("fn first() -> A {{ return {first}; }}"));
    shader.replace("lift", format!("fn lift(x: V) -> A {{ return {}; }}", lift.replace('@', &a)));
    shader.replace("join", format!("fn join(a: A, b: A) -> A {{ {} }}", join.replace('@', &a)));
    let mut done = finish.replace('@', &a);
    if class == Class::Bool {
        done = format!("({done}) != {a}(0u)");
    } else if accumulate != class {
        done = format!("{v}({done})");
    }
    if along {
        done = format!("({done}).x");
        if whole {
            let text = match op.kind {
                ReduceKind::LogSumExp => {
                    "let top = max(max(a[0].x, a[0].y), max(a[0].z, a[0].w));
    let sum = a[1] * exp(a[0] - top);
    return A(vec4<f32>(top), vec4<f32>(sum.x + sum.y + sum.z + sum.w));"
                }
                _ => "return join(join(A(a.x), A(a.y)), join(A(a.z), A(a.w)));",
            };
            shader.replace("across", format!("fn across(a: A) -> A {{\n    {text}\n}}"));
        }
    }
    shader.replace("finish", format!("fn finish(a: A) -> R {{ return {done}; }}"));
}

/// Elements that make up one result.
fn reduced_elements(walk: &Reduced<'_>) -> Dim {
    let length = walk.rows.length();
    if matches!(walk.rows.lanes, Lanes::Along(_)) { length.scale(4) } else { product([&length]) }
}

/// The text of a kind's functions; `@` stands for the accumulator's type.
struct Functions {
    /// What is accumulated.
    accumulate: Class,
    first: String,
    lift: &'static str,
    join: &'static str,
    finish: String,
}

fn functions(kind: ReduceKind, dtype: DType, count: &str) -> Functions {
    use ReduceKind as K;
    let class = match (kind, Class::of(dtype)) {
        (_, Class::Bool) => Class::Uint,
        // Roots and logarithms of integers are taken in floats and cut towards zero.
        (K::L2 | K::LogSum | K::LogSumExp, _) => Class::Float,
        (_, class) => class,
    };
    let converted = "@(x)";
    let (lift, join) = match kind {
        K::Sum | K::Mean | K::LogSum => (converted, "return a + b;"),
        K::Max => (converted, "return max(a, b);"),
        K::Min => (converted, "return min(a, b);"),
        K::Prod => (converted, "return a * b;"),
        K::L1 if class == Class::Uint => (converted, "return a + b;"),
        K::L1 => ("abs(x)", "return a + b;"),
        K::L2 | K::SumSquare => ("@(x) * @(x)", "return a + b;"),
        K::LogSumExp => (
            "A(@(x), @(1.0))",
            "let top = max(a[0], b[0]);
    return A(top, a[1] * exp(a[0] - top) + b[1] * exp(b[0] - top));",
        ),
    };
    let finish = match kind {
        K::Mean if class == Class::Float => format!("a / f32({count})"),
        K::Mean if class == Class::Int => format!("a / @(i32({count}))"),
        K::Mean => format!("a / @({count})"),
        K::L2 => "sqrt(a)".into(),
        K::LogSum => "log(a)".into(),
        K::LogSumExp => "a[0] + log(a[1])".into(),
        _ => "a".into(),
    };
    Functions { accumulate: class, first: start(kind, class, dtype), lift, join, finish }
}

/// What no element gives.
fn start(kind: ReduceKind, class: Class, dtype: DType) -> String {
    let bits = u32::try_from(dtype.bytes() * 8).unwrap_or(32).min(32);
    let (least, greatest) = match class {
        Class::Float => ("bitcast<f32>(0xff800000u)".to_string(), "bitcast<f32>(0x7f800000u)".to_string()),
        Class::Int => {
            let greatest = i32::MAX >> (32 - bits);
            (format!("(-{greatest}i - 1i)"), format!("{greatest}i"))
        }
        Class::Uint | Class::Bool if dtype == DType::Bool => ("0u".into(), "1u".into()),
        Class::Uint | Class::Bool => ("0u".into(), format!("{}u", u32::MAX >> (32 - bits))),
    };
    match (kind, class) {
        (ReduceKind::LogSumExp, _) => "-3.4028234e38".into(),
        (ReduceKind::Max, _) => least,
        (ReduceKind::Min, _) => greatest,
        (ReduceKind::Prod, Class::Float) => "1.0".into(),
        (ReduceKind::Prod, Class::Int) => "1i".into(),
        (ReduceKind::Prod, _) => "1u".into(),
        (_, Class::Float) => "0.0".into(),
        (_, Class::Int) => "0i".into(),
        (_, _) => "0u".into(),
    }
}
