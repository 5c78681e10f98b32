//! Correction of 8-bit matmuls with an unsigned first and a signed second operand on signed matrix units.
//!
//! Flipping the top bits of the first operand subtracts 128 from each of its elements. The kernel then adds 128 times
//! the sums of the second operand's columns to the result.

use crate::error::OpError;
use crate::ir::array::Data;
use crate::ir::dim::Dim;
use crate::ir::op::Constant;
use crate::ir::tensor::DType;
use crate::kernels::shared::dot::Signs;
use crate::kernels::shared::window::known;
use crate::shader::Shader;
use crate::shader::pack::Packed;
use crate::shader::problem::Problem;

/// True if the first operand of an 8-bit matmul is unsigned and the second signed.
pub(crate) fn needs_sign_correction(problem: &Problem<'_>) -> bool {
    Signs::from_problem(problem).is_some_and(|signs| signs.is_unsigned(0) && !signs.is_unsigned(1))
}

/// Replaces the hooks `flip_sign_bits` and `correct_sum` of `coop.wgsl` if the first operand is unsigned and the second
/// signed; otherwise does nothing. The second operand must then be a constant: one matrix of `k` rows and `n` columns
/// for all batches, or one for each batch. With `columns_contiguous`, the elements of a column are adjacent in the
/// constant, else the elements of a row. Padding of the first operand must be 0 before the top bits are flipped, except
/// where the second operand is 0.
pub(crate) fn declare_sign_correction(
    shader: &mut Shader<'_>,
    [n, k]: [&Dim; 2],
    columns_contiguous: bool,
) -> Result<(), OpError> {
    if !needs_sign_correction(shader.problem) {
        return Ok(());
    }
    let constant = shader.problem.operands.get(1).and_then(|operand| operand.constant);
    let constant =
        constant.ok_or_else(|| OpError::new("the sign correction needs a constant second operand"))?;
    let (Some(n), Some(k)) = (known(n), known(k)) else {
        return Err(OpError::new("the sign correction needs a constant of known size"));
    };
    let Data::Int(values) = constant.to_array()?.data else {
        return Err(OpError::new("the sign correction needs an integer constant"));
    };
    let padded_n = n.next_multiple_of(4);
    let sums = column_sums(&values, [n, k], columns_contiguous, padded_n);
    let matrix_per_batch = values.len() > n * k;
    let bytes: Vec<u8> = sums.iter().flat_map(|v| v.to_le_bytes()).collect();
    let sums = Constant::new(DType::I32, vec![sums.len()], bytes)?;
    let bound = shader.packed(Packed::dense(&sums));
    let buffer = shader.bind(bound, "vec4<i32>", false);
    let first = if matrix_per_batch { format!("batch * {}u + ", padded_n / 4) } else { String::new() };
    shader.replace(
        "correct_sum",
        format!("fn correct_sum(batch: u32, n4: u32, v: Sum) -> Sum {{ return v + {buffer}[{first}n4]; }}"),
    );
    shader.replace(
        "flip_sign_bits",
        "fn flip_sign_bits(v: Vec8) -> Vec8 { return bitcast<vec2<f32>>(bitcast<vec2<u32>>(v) ^ vec2<u32>(0x80808080u)); }"
            .into(),
    );
    Ok(())
}

/// Returns 128 times the sum of each column of the second operand, modulo 2^32. The sums of each matrix are padded with
/// zeros to `padded_n`.
fn column_sums(values: &[i64], [n, k]: [usize; 2], columns_contiguous: bool, padded_n: usize) -> Vec<i32> {
    let at = |column: usize, row: usize| if columns_contiguous { column * k + row } else { row * n + column };
    values
        .chunks((n * k).max(1))
        .flat_map(|matrix| {
            let sum = move |column: usize| (0..k).map(|row| matrix[at(column, row)]).sum::<i64>();
            (0..padded_n).map(move |column| if column < n { (128 * sum(column)) as i32 } else { 0 })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::column_sums;

    #[test]
    fn column_sums_handle_both_orders_and_wrap() {
        // Two matrices of two rows and three columns, row by row and column by column.
        let rows = [1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, -6];
        let want = [5, 7, 9, 0, -5, -7, -9, 0].map(|v| v * 128);
        assert_eq!(column_sums(&rows, [3, 2], false, 4), want);
        let columns = [1, 4, 2, 5, 3, 6, -1, -4, -2, -5, -3, -6];
        assert_eq!(column_sums(&columns, [3, 2], true, 4), want);
        // Sums beyond 32 bits wrap, as the sums of the matmul do.
        assert_eq!(column_sums(&[1 << 24, 1], [1, 2], true, 1), [i32::MIN + 128]);
    }
}
