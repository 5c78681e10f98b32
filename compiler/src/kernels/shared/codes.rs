//! Second operands of products that lie as codes: which of them kernels read column by column.

use super::fused::of_constant;
use super::product::has_one_each;
use crate::error::OpError;
use crate::ir::op::MatMul;
use crate::shader::Shader;
use crate::shader::codes::eights;
use crate::shader::pack::codes::{CodePanels, ROWS};
use crate::shader::problem::Problem;

/// A second operand of codes whose scales are of stretches of the product's depth: its columns are the rows of panels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns {
    pub(crate) form: CodePanels,
    /// Columns of each matrix where each product of the batch has one of its own.
    pub(crate) apart: Option<usize>,
}

/// Most rows worth a walk over the codes by `matvec_codes`, or by `matvec_fragments` or `matvec_coop` on matrix units. Other
/// kernels leave those to them, so that a product has the same sums in one row and in sixteen where the same one of them is
/// picked for both.
pub const FEW_ROWS: i64 = 16;

impl Columns {
    /// Whether units of 16 bytes never hold codes of two groups, so that `matvec_codes` reads them.
    pub(crate) fn streams(&self) -> bool {
        self.form.groups() <= 1 || self.form.group.is_multiple_of(self.form.of_word())
    }

    /// Whether a product of so many rows is for the kernels of few rows alone.
    pub(crate) fn only_streams(&self, problem: &Problem<'_>, rows: i64) -> bool {
        let fits = self.form.bytes() <= problem.target.limits.max_storage_buffer_range;
        rows <= FEW_ROWS && self.streams() && fits && problem.computed.is_float()
    }

    /// Of a matrix product; none where the operand lies otherwise, or one matrix serves some products.
    pub(crate) fn of(op: &MatMul, problem: &Problem<'_>) -> Option<Self> {
        Self::at(op, problem, 1)
    }

    /// The same for operand `index`.
    pub(crate) fn at(op: &MatMul, problem: &Problem<'_>, index: usize) -> Option<Self> {
        let operand = problem.operands.get(index)?;
        let form = operand.codes?.form;
        let [rest @ .., first, last] = operand.constant?.shape.as_slice() else { return None };
        let (depth, columns) = if op.trans_b { (*last, *first) } else { (*first, *last) };
        let batch = problem.result.shape.split_last_chunk::<2>().map(|(batch, _)| batch)?;
        let one = rest.iter().all(|d| *d == 1);
        let each = has_one_each(problem, rest, batch);
        let inner = if op.trans_b { 1 } else { columns };
        let along = form.depth == depth && form.inner == inner;
        let whole = one || each && columns.is_multiple_of(ROWS);
        (along && whole).then_some(Self { form, apart: (!one).then_some(columns) })
    }

    /// Of a product with so many constants, operands from 1 on; none where they do not all lie alike.
    pub(crate) fn of_all(op: &MatMul, problem: &Problem<'_>, matrices: usize) -> Option<Self> {
        let columns = Self::of(op, problem)?;
        let alike = |place| {
            Self::at(op, problem, place)
                .is_some_and(|other| other.form == columns.form && other.apart == columns.apart)
        };
        (2..=matrices).all(alike).then_some(columns)
    }

    /// Replaces the hook `load_b(batch, k, n4)` by one that makes four elements of row `k` of codes.
    ///
    /// # Errors
    /// When the operand does not lie as codes.
    pub(crate) fn load_fours(&self, shader: &mut Shader<'_>) -> Result<(), OpError> {
        shader.code_fours("codes_b", 1)?;
        let first = self.first_four();
        let params = "batch: u32, k: u32, n4: u32";
        let text = format!("fn load_b({params}) -> vec4<f32> {{ return codes_b({first}n4, k); }}");
        shader.replace("load_b", text);
        Ok(())
    }

    /// Replaces the hook `load_b` by one that makes eight elements of codes in f16: of column `k` from row `8 * n8` where
    /// groups hold whole eights, else of row `k` from column `8 * n8`, where rows past the end repeat the last one. Tells
    /// whether it is along K.
    ///
    /// # Errors
    /// When the operand does not lie as codes.
    pub(crate) fn load_eights(&self, shader: &mut Shader<'_>) -> Result<bool, OpError> {
        let first = self.first_four();
        if eights(&self.form) {
            shader.code_eights("codes_b", 1)?;
            let first = self.apart.map_or(String::new(), |columns| format!("batch * {columns}u + "));
            shader.replace(
                "load_b",
                format!(
                    "fn load_b(batch: u32, k: u32, n8: u32) -> Unit {{ return bitcast<Unit>(codes_b({first}k, n8)); }}"
                ),
            );
            return Ok(true);
        }
        shader.code_fours("codes_b", 1)?;
        let depth = self.form.depth;
        let row = if depth.is_multiple_of(8) { "k".to_string() } else { format!("min(k, {}u)", depth - 1) };
        shader.replace(
            "load_b",
            format!(
                "fn load_b(batch: u32, k: u32, n8: u32) -> Unit {{
    let low = codes_b({first}n8 * 2u, {row});
    let high = codes_b({first}n8 * 2u + 1u, {row});
    return bitcast<Unit>(vec4<u32>(pack2x16float(low.xy), pack2x16float(low.zw), pack2x16float(high.xy), pack2x16float(high.zw)));
}}"
            ),
        );
        Ok(false)
    }

    /// What is added to the number of a group of four columns.
    fn first_four(&self) -> String {
        self.apart.map_or(String::new(), |columns| format!("batch * {}u + ", columns / 4))
    }
}

/// Names of the functions that read a product's constants, operands from 1 on.
const CONSTANTS: [&str; 2] = ["first", "second"];

/// Replaces the hooks `load_b(c, at)`, unit `at` of constant `c`, and `codes_scale` and `codes_bias(c, base, g, q)`; `hooks`
/// adds the functions of an operand under a name and returns its buffer.
///
/// # Errors
/// Those of `hooks`.
pub(crate) fn declare_constants<'p>(
    shader: &mut Shader<'p>,
    matrices: usize,
    hooks: impl Fn(&mut Shader<'p>, &str, usize) -> Result<String, OpError>,
) -> Result<(), OpError> {
    let mut names = Vec::with_capacity(matrices);
    for (name, index) in CONSTANTS.into_iter().zip(1..=matrices) {
        names.push((name, hooks(shader, name, index)?));
    }
    let either =
        |value: &dyn Fn(&(&str, String)) -> String| of_constant(&names.iter().map(value).collect::<Vec<_>>());
    let body = either(&|(_, buffer)| format!("{buffer}[at]"));
    shader.replace("load_b", format!("fn load_b(c: u32, at: u32) -> vec4<u32> {{\n{body}\n}}"));
    for part in ["scale", "bias"] {
        let body = either(&|(name, _)| format!("{name}_{part}(base, g, q)"));
        let head = format!("fn codes_{part}(c: u32, base: u32, g: u32, q: u32) -> vec4<f32>");
        shader.replace(&format!("codes_{part}"), format!("{head} {{\n{body}\n}}"));
    }
    Ok(())
}
