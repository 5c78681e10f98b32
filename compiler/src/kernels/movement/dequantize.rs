//! Dequantization of a constant, as a variant of the kernel `map`. An invocation dequantizes eight adjacent elements of
//! each of four rows from whole packed words.
//!
//! The generic `map` computes one division and loads one packed word per element. This variant loads whole words in
//! neighboring invocations. If the rows of the constant are rows of the result, eight invocations together store 128
//! bytes of a row. If the rows of the constant are columns of the result, 32 invocations together store 256 bytes of
//! each of eight rows.

use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::Op;
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;
use crate::kernels::kernel::{Configuration, Kernel, ThreadsConfig};
use crate::shader::pack::quantized_panels::{QuantizedPanels, ROWS};
use crate::shader::problem::Problem;
use crate::shader::quantized::vec8_shares_scale;
use crate::shader::{Bound, Grid, LaunchDraft, Shader};

/// Text that explains the estimated time of a dequantization to the user.
pub(super) const REASON: &str =
    "one invocation dequantizes eight elements of each of four rows; bound by memory traffic";

/// Number of neighboring invocations that store adjacent columns of the result. Each of them dequantizes elements of
/// four rows of the constant, and these rows are columns of the result.
const ADJACENT_ROW_GROUPS: usize = 32;

/// Returns the packed layout of the operand if this variant can dequantize it: a quantized constant whose rows are the
/// rows or the columns of an f16 result.
pub(super) fn panels(problem: &Problem<'_>) -> Option<QuantizedPanels> {
    let ([operand], Op::Relayout(_), []) = (problem.operands.as_slice(), problem.op, problem.epilogue) else {
        return None;
    };
    let form = operand.quantized?.panels;
    let result = &problem.result;
    let size = |back: usize| operand.size_from_end(back);
    let known = |size: usize| Dim::known(i64::try_from(size).unwrap_or(i64::MAX));
    let rows = form.k_stride == 1 && size(1) == known(form.depth);
    let columns =
        form.k_stride.is_multiple_of(4) && size(1) == known(form.k_stride) && size(2) == known(form.depth);
    let eligible =
        (rows || columns) && form.taps == 1 && form.depth.is_multiple_of(8) && vec8_shares_scale(&form);
    let f16_buffer = result.dtype.on_device() == DeviceType::F16 && result.storage == Storage::Buffer;
    let dense = operand.placement.is_dense(&operand.shape) && result.placement.is_dense(&result.shape);
    (eligible && f16_buffer && dense).then_some(form)
}

/// Returns the dispatch that dequantizes the constant. `kernel` is the kernel `map`.
pub(super) fn launches(
    kernel: &Kernel,
    problem: &Problem<'_>,
    config: ThreadsConfig,
    form: &QuantizedPanels,
) -> Result<Vec<LaunchDraft>, OpError> {
    let mut shader = Shader::new(problem);
    shader.add_dequantize_vec8_of_4_rows("dequantize_rows", 0)?;
    let (run, count) = if form.k_stride == 1 { rows(&mut shader, form) } else { columns(&mut shader, form) };
    shader.replace("run", run);
    let units =
        Dim::known(i64::try_from(count).map_err(|_| OpError::new("the constant has too many elements"))?);
    shader.size("units", &units);
    config.declare(&mut shader);
    let grid = Grid::linear(&units, config.threads, problem.bounds);
    Ok(vec![shader.finish(kernel.name, kernel.wgsl, grid, problem.result.elements())])
}

/// Returns the WGSL of the hook `run`, which computes the work of one invocation, if the rows of the quantized constant
/// are rows of the result. Also returns the number of invocations.
fn rows(shader: &mut Shader<'_>, form: &QuantizedPanels) -> (String, usize) {
    let result = shader.bind(Bound::Result, "vec4<u32>", true);
    let (row_groups, vec8s, rows) = (ROWS / 4, form.depth / 8, form.rows);
    let guard = !rows.is_multiple_of(ROWS);
    let store = |i: usize| {
        let store = format!("{result}[(r4 * 4u + {i}u) * {vec8s}u + k8] = values[{i}];");
        if guard { format!("if (r4 * 4u + {i}u < {rows}u) {{ {store} }}") } else { store }
    };
    let text = format!(
        "fn run(unit: u32) {{
    let k8 = unit / {row_groups}u % {vec8s}u;
    let r4 = unit / {}u * {row_groups}u + unit % {row_groups}u;
    let values = dequantize_rows(r4, k8);
    {}
}}
",
        row_groups * vec8s,
        [0, 1, 2, 3].map(store).join("\n    ")
    );
    (text, form.panels().saturating_mul(row_groups * vec8s))
}

/// Returns the WGSL of the hook `run`, which computes the work of one invocation, if the rows of the quantized constant
/// are columns of the result. Also returns the number of invocations.
fn columns(shader: &mut Shader<'_>, form: &QuantizedPanels) -> (String, usize) {
    let result = shader.bind(Bound::Result, "vec2<u32>", true);
    let (vec8s, all_groups, group_columns) = (form.depth / 8, form.rows / 4, form.k_stride / 4);
    // A packed word has two adjacent f16 elements along the depth. The result stores four adjacent elements along its
    // rows.
    let store = |pair: usize| {
        let word = |lane: usize| format!("values[{lane}][{pair}]");
        let [a, b, c, d] = [0, 1, 2, 3].map(word);
        format!(
            "    {result}[at + {}u] = vec2<u32>(({a} & 0xffffu) | ({b} << 16u), ({c} & 0xffffu) | ({d} << 16u));
    {result}[at + {}u] = vec2<u32>(({a} >> 16u) | ({b} & 0xffff0000u), ({c} >> 16u) | ({d} & 0xffff0000u));
",
            2 * pair * group_columns,
            (2 * pair + 1) * group_columns
        )
    };
    let text = format!(
        "fn run(unit: u32) {{
    let k8 = unit / {ADJACENT_ROW_GROUPS}u % {vec8s}u;
    let r4 = unit / {}u * {ADJACENT_ROW_GROUPS}u + unit % {ADJACENT_ROW_GROUPS}u;
    if (r4 >= {all_groups}u) {{ return; }}
    let values = dequantize_rows(r4, k8);
    let at = (r4 / {group_columns}u * {}u + k8 * 8u) * {group_columns}u + r4 % {group_columns}u;
{}}}
",
        ADJACENT_ROW_GROUPS * vec8s,
        form.depth,
        [0, 1, 2, 3].map(store).join("")
    );
    (text, all_groups.div_ceil(ADJACENT_ROW_GROUPS).saturating_mul(ADJACENT_ROW_GROUPS * vec8s))
}
