//! `reduce.wgsl`: reductions along any set of axes.

use super::row_tiling::{Params, RowTiling, SplitRowTiling};
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Op, Reduce};
use crate::ir::ops::reduce::ReduceKind;
use crate::ir::tensor::DType;
use crate::kernels::cost::named;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::row_view::{Lanes, ReductionRows, reduction_rows};
use crate::shader::{LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "reduce",
    wgsl: concat!(include_str!("../shared/preludes/rows.wgsl"), include_str!("reduce.wgsl")),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::named::<Params>("reduce")],
    in_place: InPlace::Nothing,
};

/// Number of loads that an invocation of the kernel `reduce` has in flight.
const LOADS: u32 = 4;

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Reduce(op) = problem.op else { return Vec::new() };
    let Some(p) = named::<Params>(problem, KERNEL.name) else { return Vec::new() };
    let ReductionRows { problem, rows, .. } = reduction_rows(problem, &op.axes, op.keepdims);
    let machine = &problem.target.machine;
    let resident = machine.invocations() as i64;
    let (count, length) = (problem.max(&rows.rows()), problem.max(&rows.length()));
    let mut out = Vec::new();
    for tiling in RowTiling::configurations(&problem, &rows, bytes(op.kind, rows.lanes)) {
        out.push(tiling.candidate(&p, &problem, &rows, 1.0, LOADS));
        // Parts must be long enough to justify a second launch, and few enough for the device.
        let lanes = i64::from(tiling.lanes);
        let max_split =
            (resident / (count * lanes).max(1)).min(length / (lanes * i64::from(LOADS) * 4)).min(256);
        if tiling.lanes >= 64 && max_split >= 4 {
            let split = tiling.split_candidate(&p, &problem, &rows, max_split as u32, LOADS);
            out.push(split);
        }
    }
    out
}

/// Returns the size of an accumulator of a reduction, in bytes.
fn bytes(kind: ReduceKind, lanes: Lanes) -> u32 {
    let values = if kind == ReduceKind::LogSumExp { 2 } else { 1 };
    4 * values * lanes.count()
}

fn launches(problem: &Problem<'_>, config: SplitRowTiling) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Reduce(op) = problem.op else { return Err(OpError::new("the operator is not a reduction")) };
    let reduction = reduction_rows(problem, &op.axes, op.keepdims);
    let (problem, rows) = (&reduction.problem, &reduction.rows);
    let tiling = config.tiling();
    let split = config.split.unwrap_or(1);
    let flops = problem.operands[0].elements();
    if split == 1 {
        let mut shader = Shader::new(problem);
        tiling.declare_rows(&mut shader, rows);
        let (prelude, at) = rows.at(&mut shader);
        shader.read("load", "row: u32, i: u32", &prelude, 0, &at);
        declare_reduction(&mut shader, op, &reduction, true);
        declare_store(&mut shader, &reduction)?;
        shader.knob("LOADS", LOADS);
        shader.iterations(rows.length().ceil_div(i64::from(tiling.lanes) * i64::from(LOADS)));
        shader.workgroup_memory(tiling.threads() * bytes(op.kind, rows.lanes));
        return Ok(vec![shader.finish("reduce", KERNEL.wgsl, tiling.grid(problem, &rows.rows()), flops)]);
    }
    let parts = rows.rows().scale(i64::from(split));
    let mut first = Shader::new(problem);
    tiling.declare_rows(&mut first, rows);
    first.knob("SPLIT", split);
    let each = rows.length().ceil_div(i64::from(split) * i64::from(tiling.lanes) * i64::from(LOADS));
    first.iterations(each);
    first.knob("LOADS", LOADS);
    let (prelude, at) = rows.at(&mut first);
    first.read("load", "row: u32, i: u32", &prelude, 0, &at);
    declare_reduction(&mut first, op, &reduction, false);
    first.alias("R", "A");
    first.replace("finish", "fn finish(a: A) -> A { return a; }".into());
    let scratch = first.scratch(parts.scale(i64::from(bytes(op.kind, rows.lanes))));
    let buffer = first.bind(scratch, "A", true);
    first.replace("store", format!("fn store(row: u32, v: R) {{ {buffer}[row] = v; }}"));
    first.workgroup_memory(tiling.threads() * bytes(op.kind, rows.lanes));
    let grid = tiling.grid(problem, &parts);

    let mut second = Shader::new(problem);
    let last = RowTiling { lanes: 64.min(split.next_power_of_two()), rows: 1 };
    last.declare_rows(&mut second, rows);
    second.constant("ROWS_FIRST", false);
    second.knob("LOADS", LOADS);
    second.size("length", &Dim::known(i64::from(split)));
    second.iterations(Dim::known(i64::from(split)));
    declare_reduction(&mut second, op, &reduction, true);
    let buffer = second.bind(scratch, "A", false);
    second.replace(
        "load",
        format!("fn load(row: u32, i: u32) -> V {{ return {buffer}[row * {split}u + i]; }}"),
    );
    second.alias("V", "A");
    second.replace("from_element", "fn from_element(x: V) -> A { return x; }".into());
    declare_store(&mut second, &reduction)?;
    second.workgroup_memory(last.threads() * bytes(op.kind, rows.lanes));
    let after = last.grid(problem, &rows.rows());
    Ok(vec![
        first.finish("reduce", KERNEL.wgsl, grid, flops),
        second.finish("reduce", KERNEL.wgsl, after, parts),
    ])
}

/// Declares the hook that applies the epilogue to the result of a row and stores it.
fn declare_store(shader: &mut Shader<'_>, reduction: &ReductionRows<'_>) -> Result<(), OpError> {
    let (prelude, at): (String, Coordinates) = reduction.rows.result(shader, reduction.kept);
    shader.write("store", "row: u32", &prelude, &at)
}

/// Declares the WGSL types and functions of a reduction. If vec4s hold four elements of one row, `complete` says if the
/// launch joins the accumulators of the four components; otherwise a second launch joins them.
fn declare_reduction(shader: &mut Shader<'_>, op: &Reduce, reduction: &ReductionRows<'_>, complete: bool) {
    let dtype = shader.problem.operands[0].dtype;
    let class = ValueType::from_dtype(dtype);
    let lanes = reduction.rows.lanes.count();
    let v = class.wgsl(lanes);
    let along = matches!(reduction.rows.lanes, Lanes::Along(_));
    let total = reduced_elements(reduction);
    let count = shader.dim(&total);
    let Functions { accumulate, initial, from_element, join, finish } = functions(op.kind, dtype, &count);
    let a = accumulate.wgsl(lanes);
    shader.alias("V", &v);
    shader.alias("R", &class.wgsl(if along { 1 } else { lanes }));
    let (alias, initial) = match op.kind {
        ReduceKind::LogSumExp => {
            // Maximum, and sum of exponentials relative to it.
            let pair = if lanes == 1 { "vec2<f32>" } else { "mat2x4<f32>" };
            (format!("alias A = {pair};"), format!("A({a}({initial}), {a}(0.0))"))
        }
        _ => (format!("alias A = {a};"), format!("A({initial})")),
    };
    shader.replace("A", alias);
    shader.replace("initial", format!("fn initial() -> A {{ return {initial}; }}"));
    shader.replace(
        "from_element",
        format!("fn from_element(x: V) -> A {{ return {}; }}", from_element.replace('@', &a)),
    );
    shader.replace("join", format!("fn join(a: A, b: A) -> A {{ {} }}", join.replace('@', &a)));
    let mut done = finish.replace('@', &a);
    if class == ValueType::Bool {
        done = format!("({done}) != {a}(0u)");
    } else if accumulate != class {
        done = format!("{v}({done})");
    }
    if along {
        done = format!("({done}).x");
        if complete {
            let text = match op.kind {
                ReduceKind::LogSumExp => {
                    "let top = max(max(a[0].x, a[0].y), max(a[0].z, a[0].w));
    let sum = a[1] * exp(a[0] - top);
    return A(vec4<f32>(top), vec4<f32>(sum.x + sum.y + sum.z + sum.w));"
                }
                _ => "return join(join(A(a.x), A(a.y)), join(A(a.z), A(a.w)));",
            };
            shader.replace("join_lanes", format!("fn join_lanes(a: A) -> A {{\n    {text}\n}}"));
        }
    }
    shader.replace("finish", format!("fn finish(a: A) -> R {{ return {done}; }}"));
}

/// Returns the number of elements that are reduced to one element of the result.
fn reduced_elements(reduction: &ReductionRows<'_>) -> Dim {
    let length = reduction.rows.length();
    if matches!(reduction.rows.lanes, Lanes::Along(_)) { length.scale(4) } else { product([&length]) }
}

/// WGSL of the hooks of a reduction: `initial`, `from_element`, `join` and `finish`. `@` stands for the WGSL type of
/// the accumulator.
struct Functions {
    /// Scalar type of the accumulator.
    accumulate: ValueType,
    initial: String,
    from_element: &'static str,
    join: &'static str,
    finish: String,
}

fn functions(kind: ReduceKind, dtype: DType, count: &str) -> Functions {
    use ReduceKind as K;
    let class = match (kind, ValueType::from_dtype(dtype)) {
        (_, ValueType::Bool) => ValueType::Uint,
        // Roots and logarithms of integers are computed in floats and truncated.
        (K::L2 | K::LogSum | K::LogSumExp, _) => ValueType::Float,
        (_, class) => class,
    };
    let converted = "@(x)";
    let (from_element, join) = match kind {
        K::Sum | K::Mean | K::LogSum => (converted, "return a + b;"),
        K::Max => (converted, "return max(a, b);"),
        K::Min => (converted, "return min(a, b);"),
        K::Prod => (converted, "return a * b;"),
        K::L1 if class == ValueType::Uint => (converted, "return a + b;"),
        K::L1 => ("abs(x)", "return a + b;"),
        K::L2 | K::SumSquare => ("@(x) * @(x)", "return a + b;"),
        K::LogSumExp => (
            "A(@(x), @(1.0))",
            "let top = max(a[0], b[0]);
    return A(top, a[1] * exp(a[0] - top) + b[1] * exp(b[0] - top));",
        ),
    };
    let finish = match kind {
        K::Mean if class == ValueType::Float => format!("a / f32({count})"),
        K::Mean if class == ValueType::Int => format!("a / @(i32({count}))"),
        K::Mean => format!("a / @({count})"),
        K::L2 => "sqrt(a)".into(),
        K::LogSum => "log(a)".into(),
        K::LogSumExp => "a[0] + log(a[1])".into(),
        _ => "a".into(),
    };
    Functions { accumulate: class, initial: initial(kind, class, dtype), from_element, join, finish }
}

/// Returns the WGSL literal of the initial accumulator of a reduction, such as 0 for a sum.
fn initial(kind: ReduceKind, class: ValueType, dtype: DType) -> String {
    let bits = u32::try_from(dtype.bytes() * 8).unwrap_or(32).min(32);
    let (lowest, greatest) = match class {
        ValueType::Float => {
            ("bitcast<f32>(0xff800000u)".to_string(), "bitcast<f32>(0x7f800000u)".to_string())
        }
        ValueType::Int => {
            let greatest = i32::MAX >> (32 - bits);
            (format!("(-{greatest}i - 1i)"), format!("{greatest}i"))
        }
        ValueType::Uint | ValueType::Bool if dtype == DType::Bool => ("0u".into(), "1u".into()),
        ValueType::Uint | ValueType::Bool => ("0u".into(), format!("{}u", u32::MAX >> (32 - bits))),
    };
    match (kind, class) {
        (ReduceKind::LogSumExp, _) => "-3.4028234e38".into(),
        (ReduceKind::Max, _) => lowest,
        (ReduceKind::Min, _) => greatest,
        (ReduceKind::Prod, ValueType::Float) => "1.0".into(),
        (ReduceKind::Prod, ValueType::Int) => "1i".into(),
        (ReduceKind::Prod, _) => "1u".into(),
        (_, ValueType::Float) => "0.0".into(),
        (_, ValueType::Int) => "0i".into(),
        (_, _) => "0u".into(),
    }
}
