//! Matmuls of quantized rows and quantized weights, for kernels that multiply and add quantized values in integers.
//!
//! The columns of several packed matrices may follow each other in one matmul. A kernel then selects the matrix by the
//! column of each load.

use super::matmul_sizes::{MatMulSizes, batch_axes, operand_batch};
use crate::error::OpError;
use crate::ir::op::{Op, QuantizedRowsMatMul};
use crate::shader::Shader;
use crate::shader::access::Coordinates;
use crate::shader::pack::quantized_panels::{QuantizedPanels, ROWS};
use crate::shader::problem::{Operand, Problem};

/// Name of the WGSL functions that load the scales of the first matrix. The names for further matrices end in a number.
const WEIGHTS: &str = "weights";
/// A vec4 of columns is in one matrix, so matrices begin at multiples of this number of columns.
const COLUMNS_MULTIPLE: usize = 4;

/// A matmul of quantized rows and weights with one scale per column.
pub(crate) struct QuantizedRowsProblem {
    pub(crate) sizes: MatMulSizes,
    /// Number of elements of a row (K).
    pub(crate) depth: usize,
    matrices: Vec<Matrix>,
}

/// One packed matrix of a matmul.
struct Matrix {
    /// Number of columns of the matrices before this matrix.
    first_column: usize,
    panels: QuantizedPanels,
}

impl Matrix {
    /// Returns a matrix, and its number of columns and of rows. Returns `None` if the operand is not packed with one
    /// scale per column and with values that are signed 8-bit integers after subtracting the zero point.
    fn new(operand: &Operand<'_>, trans_b: bool, first_column: usize) -> Option<(Self, [usize; 2])> {
        let panels = operand.quantized?.panels;
        let [first, last] = operand.constant?.shape.as_slice() else { return None };
        let [n, k] = if trans_b { [*first, *last] } else { [*last, *first] };
        let fits = first_column.is_multiple_of(COLUMNS_MULTIPLE)
            && panels.has_column_scales([*first, *last], trans_b);
        fits.then_some((Self { first_column, panels }, [n, k]))
    }
}

impl QuantizedRowsProblem {
    /// Returns the matmul of a problem. Returns `None` if the operator is another one, or if its weights are not packed
    /// with one scale per column and with values that are signed 8-bit integers after subtracting the zero point.
    pub(crate) fn from_problem(problem: &Problem<'_>) -> Option<Self> {
        let Op::QuantizedRowsMatMul(QuantizedRowsMatMul { trans_b }) = problem.op else { return None };
        let (mut matrices, mut columns, mut depth) = (Vec::new(), 0, 0);
        for operand in problem.operands.get(1..problem.arity)? {
            let (matrix, [n, k]) = Matrix::new(operand, *trans_b, columns)?;
            matrices.push(matrix);
            columns += n;
            depth = k;
        }
        let (batch, matrix) = problem.result.shape.split_last_chunk::<2>()?;
        let sizes =
            MatMulSizes { batch: batch.to_vec(), m: matrix[0].clone(), k: depth.into(), n: columns.into() };
        (!matrices.is_empty()).then_some(Self { sizes, depth, matrices })
    }

    /// Returns the WGSL function with the signature `head`, which returns the value of the expression that `expression`
    /// returns for the matrix of a column. The parameter `column` of the function counts groups of `group` columns.
    /// `expression` takes the index of the matrix and the number of the column group in the matrix, as WGSL.
    pub(crate) fn function(
        &self,
        head: &str,
        (column, group): (&str, usize),
        expression: impl Fn(usize, &str) -> String,
    ) -> String {
        let further = self.matrices.iter().enumerate().skip(1).rev().map(|(i, matrix)| {
            let first = matrix.first_column / group;
            let value = expression(i, &format!("({column} - {first}u)"));
            format!("    if ({column} >= {first}u) {{ return {value}; }}\n")
        });
        let further: String = further.collect();
        let first = expression(0, column);
        match further.is_empty() {
            true => format!("fn {head} {{ return {first}; }}\n"),
            false => format!("fn {head} {{\n{further}    return {first};\n}}\n"),
        }
    }

    /// Replaces the hook `store(batch, row, n4, v)` by a function that multiplies four integer sums by the scales of
    /// the row and of the columns, applies the epilogue and stores the results. The WGSL expression `row_scale` uses
    /// the variables `batch` and `row`. [`Self::bind_weights`] must come first.
    ///
    /// # Errors
    /// If the epilogue is malformed (a defect of the graph).
    pub(crate) fn declare_store(&self, shader: &mut Shader<'_>, row_scale: &str) -> Result<(), OpError> {
        let params = "batch: u32, row: u32, n4: u32";
        let (prelude, mut axes) = batch_axes(shader, &self.sizes.batch);
        axes.extend(["row".to_string(), "n4".to_string()]);
        let lanes = axes.len() - 1;
        let store =
            shader.write_fn("store_floats", params, &prelude, &Coordinates::vec4(axes, lanes), false)?;
        let scales = |i: usize, n4: &str| {
            let panel = self.matrices[i].panels.panel_vec4s();
            format!("{}_scale({n4} / 4u * {panel}u, 0u, {n4} % 4u)", functions_name(i))
        };
        let (function, column_scales) = match self.matrices.len() {
            1 => (String::new(), scales(0, "n4")),
            _ => {
                let function = self.function("scales_of(n4: u32) -> vec4<f32>", ("n4", 4), scales);
                (function, "scales_of(n4)".to_string())
            }
        };
        shader.replace(
            "store",
            format!(
                "{function}{store}fn store({params}, v: vec4<i32>) {{
    let column_scales = {column_scales};
    store_floats(batch, row, n4, vec4<f32>(v) * ({row_scale} * column_scales));
}}
"
            ),
        );
        Ok(())
    }

    /// Returns the WGSL function `name(batch, row, k4)`, which loads word `k4` of a quantized row.
    pub(crate) fn word_function(shader: &mut Shader<'_>, name: &str) -> String {
        let (prelude, mut axes) = operand_batch(shader, 0);
        axes.extend(["row".to_string(), "k4".to_string()]);
        let params = "batch: u32, row: u32, k4: u32";
        shader.read_fn(name, params, &prelude, 0, &Coordinates::element(axes), false)
    }

    /// Binds the matrices, and returns the names of their buffers, arrays of `vec4<u32>`.
    ///
    /// # Errors
    /// If a matrix is not quantized (a defect of the candidates).
    pub(crate) fn bind_weights(&self, shader: &mut Shader<'_>) -> Result<Vec<String>, OpError> {
        (0..self.matrices.len()).map(|i| shader.add_scale_functions(&functions_name(i), i + 1)).collect()
    }

    /// Returns a WGSL expression of type `vec4<u32>`: the words at position `k4` of the columns `4 * n4` to
    /// `4 * n4 + 3` of matrix `i` in `buffer`, as signed 8-bit integers.
    pub(crate) fn vec4_of_words(&self, i: usize, buffer: &str, n4: &str) -> String {
        let panels = &self.matrices[i].panels;
        let base = format!("{n4} / 4u * {}u", panels.panel_vec4s());
        if panels.bits == 8 {
            return format!("{buffer}[{base} + k4 * 4u + {n4} % 4u] ^ vec4<u32>(0x80808080u)");
        }
        let word = format!("{buffer}[{base} + k4 / 2u * 4u + {n4} % 4u]");
        widened("vec4<u32>", &format!("({word} >> vec4<u32>(k4 % 2u * 16u))"))
    }

    /// Returns a WGSL expression of type `vec2<u32>`: the weights at K positions `8 * k8` to `8 * k8 + 7` of column
    /// `n` of matrix `i` in `buffer`, as signed 8-bit integers.
    pub(crate) fn two_words(&self, i: usize, buffer: &str, n: &str) -> String {
        let panels = &self.matrices[i].panels;
        let base = format!("{n} / {ROWS}u * {}u + {n} / 4u % 4u", panels.panel_vec4s());
        if panels.bits == 8 {
            let word = |position: &str| format!("{buffer}[{base} + {position} * 4u][{n} % 4u]");
            return format!(
                "vec2<u32>({}, {}) ^ vec2<u32>(0x80808080u)",
                word("(k8 * 2u)"),
                word("(k8 * 2u + 1u)")
            );
        }
        let word = format!("{buffer}[{base} + k8 * 4u][{n} % 4u]");
        widened("vec2<u32>", &format!("(vec2<u32>({word}) >> vec2<u32>(0u, 16u))"))
    }
}

/// Returns the name of the WGSL functions that load the scales of matrix `i`.
fn functions_name(i: usize) -> String {
    if i == 0 { WEIGHTS.to_string() } else { format!("{WEIGHTS}_{i}") }
}

/// Returns a WGSL expression that widens the four 4-bit values in the low half of each component of `halves`, which has
/// the type `ty`, to signed 8-bit integers. The zero point of the values is 8.
fn widened(ty: &str, halves: &str) -> String {
    let low = format!("({halves} & {ty}(0xffffu))");
    let pairs = format!("(({low} | ({low} << {ty}(8u))) & {ty}(0x00ff00ffu))");
    let bytes = format!("(({pairs} | ({pairs} << {ty}(4u))) & {ty}(0x0f0f0f0fu))");
    // With the top bit set, no byte borrows from the next byte.
    format!("(({bytes} | {ty}(0x80808080u)) - {ty}(0x08080808u)) ^ {ty}(0x80808080u)")
}
