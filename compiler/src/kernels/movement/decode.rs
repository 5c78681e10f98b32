//! The part of `map` that copies a constant of codes as the elements they stand for: whole words are read, eight elements
//! of four rows at a time.
//!
//! Elements by themselves would each take a division for their row, and a load of a word for one code. Here neighbouring
//! invocations read whole units. Where rows of codes are rows of the result, eight invocations store 128 bytes of a row
//! together; where they are its columns, 32 invocations store 256 bytes of each of eight rows.

use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::Op;
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;
use crate::kernels::kernel::{Candidate, Kernel};
use crate::shader::codes::eights;
use crate::shader::pack::codes::{CodePanels, ROWS};
use crate::shader::problem::Problem;
use crate::shader::{Bound, Grid, Launch, Shader};

/// What `explain` says.
pub(super) const REASON: &str =
    "one invocation makes eight elements of four rows of whole words of codes; bound by memory traffic";

/// Fours of rows whose columns are stored side by side.
const ABREAST: usize = 32;

/// How the operand lies, where it is a constant of codes whose rows are those of the result or its columns, in f16.
pub(super) fn suits(problem: &Problem<'_>) -> Option<CodePanels> {
    let ([operand], Op::Relayout(_), []) = (problem.operands.as_slice(), problem.op, problem.epilogue) else {
        return None;
    };
    let form = operand.codes?.form;
    let result = &problem.result;
    let size = |back: usize| operand.size_from_end(back);
    let known = |size: usize| Dim::known(i64::try_from(size).unwrap_or(i64::MAX));
    let rows = form.inner == 1 && size(1) == known(form.depth);
    let columns =
        form.inner.is_multiple_of(4) && size(1) == known(form.inner) && size(2) == known(form.depth);
    let whole = (rows || columns) && form.depth.is_multiple_of(8) && eights(&form);
    let plain = result.dtype.on_device() == DeviceType::F16 && result.storage == Storage::Buffer;
    let dense = operand.placement.is_dense(&operand.shape) && result.placement.is_dense(&result.shape);
    (whole && plain && dense).then_some(form)
}

/// The dispatch of `kernel`, which is `map`, for such a copy.
pub(super) fn launches(
    kernel: &Kernel,
    problem: &Problem<'_>,
    candidate: &Candidate,
    form: &CodePanels,
) -> Result<Vec<Launch>, OpError> {
    let mut shader = Shader::new(problem);
    shader.code_eights_of_fours("codes", 0)?;
    let (run, count) = if form.inner == 1 { rows(&mut shader, form) } else { columns(&mut shader, form) };
    shader.replace("run", run);
    let units =
        Dim::known(i64::try_from(count).map_err(|_| OpError::new("a constant of too many elements"))?);
    shader.size("units", &units);
    let threads = candidate.knob("THREADS");
    shader.knob("THREADS", threads);
    let grid = Grid::linear(&units, threads, problem.bounds);
    Ok(vec![shader.finish(kernel.name, kernel.wgsl, grid, problem.result.elements())?])
}

/// The text for rows of codes that are rows of the result, and the number of units.
fn rows(shader: &mut Shader<'_>, form: &CodePanels) -> (String, usize) {
    let result = shader.bind(Bound::Result, "vec4<u32>", true);
    let (fours, eights, rows) = (ROWS / 4, form.depth / 8, form.rows);
    let guard = !rows.is_multiple_of(ROWS);
    let store = |i: usize| {
        let store = format!("{result}[(r4 * 4u + {i}u) * {eights}u + k8] = made[{i}];");
        if guard { format!("if (r4 * 4u + {i}u < {rows}u) {{ {store} }}") } else { store }
    };
    let text = format!(
        "fn run(unit: u32) {{
    let k8 = unit / {fours}u % {eights}u;
    let r4 = unit / {}u * {fours}u + unit % {fours}u;
    let made = codes(r4, k8);
    {}
}}
",
        fours * eights,
        [0, 1, 2, 3].map(store).join("\n    ")
    );
    (text, form.panels().saturating_mul(fours * eights))
}

/// The same for rows of codes that are columns of the result.
fn columns(shader: &mut Shader<'_>, form: &CodePanels) -> (String, usize) {
    let result = shader.bind(Bound::Result, "vec2<u32>", true);
    let (eights, all, across) = (form.depth / 8, form.rows / 4, form.inner / 4);
    // Neighbours along the depth are halves of a word, those along the result's rows are four.
    let store = |pair: usize| {
        let word = |lane: usize| format!("made[{lane}][{pair}]");
        let [a, b, c, d] = [0, 1, 2, 3].map(word);
        format!(
            "    {result}[at + {}u] = vec2<u32>(({a} & 0xffffu) | ({b} << 16u), ({c} & 0xffffu) | ({d} << 16u));
    {result}[at + {}u] = vec2<u32>(({a} >> 16u) | ({b} & 0xffff0000u), ({c} >> 16u) | ({d} & 0xffff0000u));
",
            2 * pair * across,
            (2 * pair + 1) * across
        )
    };
    let text = format!(
        "fn run(unit: u32) {{
    let k8 = unit / {ABREAST}u % {eights}u;
    let r4 = unit / {}u * {ABREAST}u + unit % {ABREAST}u;
    if (r4 >= {all}u) {{ return; }}
    let made = codes(r4, k8);
    let at = (r4 / {across}u * {}u + k8 * 8u) * {across}u + r4 % {across}u;
{}}}
",
        ABREAST * eights,
        form.depth,
        [0, 1, 2, 3].map(store).join("")
    );
    (text, all.div_ceil(ABREAST).saturating_mul(ABREAST * eights))
}
