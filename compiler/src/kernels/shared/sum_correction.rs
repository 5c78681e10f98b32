//! Correction of the sums of 8-bit matmuls and convolutions whose first operand the kernel multiplies with an offset.
//!
//! Signed matrix units multiply an unsigned first operand with flipped top bits, which subtracts 128 from each of its
//! elements. Kernels multiply a convolution's input without subtracting its zero point. The sums of the second operand's
//! columns, multiplied by the offset, are then added to the result.

use super::dot::Signs;
use super::window::known;
use crate::error::OpError;
use crate::ir::array::Data;
use crate::ir::dim::Dim;
use crate::ir::op::{Constant, Conv, Op};
use crate::ir::tensor::DType;
use crate::shader::Shader;
use crate::shader::pack::Packed;
use crate::shader::problem::Problem;

/// True if the first operand of an 8-bit matmul is unsigned and the second signed.
pub(crate) fn needs_sign_correction(problem: &Problem<'_>) -> bool {
    Signs::from_problem(problem).is_some_and(|signs| signs.is_unsigned(0) && !signs.is_unsigned(1))
}

/// Returns the zero point of the first operand: the number that the operator subtracts from its elements.
fn zero_point(problem: &Problem<'_>) -> i64 {
    match problem.op {
        Op::Conv(Conv { zero_point, .. }) => *zero_point,
        _ => 0,
    }
}

/// Sums of the columns of the second operand, multiplied by an offset, in a buffer of `vec4<i32>`.
pub(crate) struct Correction {
    /// WGSL name of the buffer.
    buffer: String,
    /// Vec4s of a matrix, if each batch has its own matrix.
    vec4s_per_batch: Option<usize>,
}

impl Correction {
    /// Binds the correction for a first operand that the kernel multiplies with its top bits flipped, if `flipped` is
    /// true, and without subtracting its zero point. Returns `None` if nothing needs correction. The second operand
    /// must be a constant: one matrix of `k` rows and `n` columns for all batches, or one for each batch. With
    /// `columns_contiguous`, the elements of a column are adjacent in the constant, else the elements of a row.
    ///
    /// # Errors
    /// If the second operand is not such a constant (a defect of the candidates).
    pub(crate) fn bind(
        shader: &mut Shader<'_>,
        [n, k]: [&Dim; 2],
        columns_contiguous: bool,
        flipped: bool,
    ) -> Result<Option<Self>, OpError> {
        let offset = if flipped { 128 } else { 0 } - zero_point(shader.problem);
        if offset == 0 {
            return Ok(None);
        }
        let constant = shader.problem.operands.get(1).and_then(|operand| operand.constant);
        let constant =
            constant.ok_or_else(|| OpError::new("the correction of sums needs a constant second operand"))?;
        let (Some(n), Some(k)) = (known(n), known(k)) else {
            return Err(OpError::new("the correction of sums needs a constant of known size"));
        };
        let Data::Int(values) = constant.to_array()?.data else {
            return Err(OpError::new("the correction of sums needs an integer constant"));
        };
        let padded_n = n.next_multiple_of(4);
        let sums = scaled_column_sums(&values, [n, k], columns_contiguous, padded_n, offset);
        let bytes: Vec<u8> = sums.iter().flat_map(|v| v.to_le_bytes()).collect();
        let sums = Constant::new(DType::I32, vec![sums.len()], bytes)?;
        let bound = shader.packed(Packed::dense(&sums));
        let buffer = shader.bind(bound, "vec4<i32>", false);
        Ok(Some(Self { buffer, vec4s_per_batch: (values.len() > n * k).then_some(padded_n / 4) }))
    }

    /// Returns the WGSL expression of the correction of four columns. It uses the variables `batch` and `n4`, the index
    /// of the vec4 of columns.
    pub(crate) fn vec4(&self) -> String {
        let first = self.vec4s_per_batch.map_or(String::new(), |vec4s| format!("batch * {vec4s}u + "));
        format!("{}[{first}n4]", self.buffer)
    }
}

/// Replaces the hooks `flip_sign_bits` and `correct_sum` of `coop.wgsl` if the sums need a correction ([`Correction`]).
/// Padding of the first operand must be 0 before the top bits are flipped, except where the second operand is 0.
///
/// # Errors
/// Returns the errors of [`Correction::bind`].
pub(crate) fn declare_sum_correction(
    shader: &mut Shader<'_>,
    sizes: [&Dim; 2],
    columns_contiguous: bool,
) -> Result<(), OpError> {
    let flipped = needs_sign_correction(shader.problem);
    if let Some(correction) = Correction::bind(shader, sizes, columns_contiguous, flipped)? {
        let sum = format!("v + {}", correction.vec4());
        shader.replace(
            "correct_sum",
            format!("fn correct_sum(batch: u32, n4: u32, v: Sum) -> Sum {{ return {sum}; }}"),
        );
    }
    if flipped {
        shader.replace(
            "flip_sign_bits",
            "fn flip_sign_bits(v: Vec8) -> Vec8 { return bitcast<vec2<f32>>(bitcast<vec2<u32>>(v) ^ vec2<u32>(0x80808080u)); }"
                .into(),
        );
    }
    Ok(())
}

/// Returns the sum of each column of the second operand, multiplied by `offset`, modulo 2^32. The sums of each matrix
/// are padded with zeros to `padded_n`.
fn scaled_column_sums(
    values: &[i64],
    [n, k]: [usize; 2],
    columns_contiguous: bool,
    padded_n: usize,
    offset: i64,
) -> Vec<i32> {
    let at = |column: usize, row: usize| if columns_contiguous { column * k + row } else { row * n + column };
    values
        .chunks((n * k).max(1))
        .flat_map(|matrix| {
            let sum = move |column: usize| (0..k).map(|row| matrix[at(column, row)]).sum::<i64>();
            (0..padded_n).map(move |column| if column < n { (offset * sum(column)) as i32 } else { 0 })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::scaled_column_sums;

    #[test]
    fn column_sums_handle_both_orders_and_wrap() {
        // Two matrices of two rows and three columns, row by row and column by column.
        let rows = [1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, -6];
        let want = [5, 7, 9, 0, -5, -7, -9, 0].map(|v| v * 128);
        assert_eq!(scaled_column_sums(&rows, [3, 2], false, 4, 128), want);
        let columns = [1, 4, 2, 5, 3, 6, -1, -4, -2, -5, -3, -6];
        assert_eq!(scaled_column_sums(&columns, [3, 2], true, 4, 128), want);
        // Sums beyond 32 bits wrap, as the sums of the matmul do.
        assert_eq!(scaled_column_sums(&[1 << 24, 1], [1, 2], true, 1, 128), [i32::MIN + 128]);
    }
}
