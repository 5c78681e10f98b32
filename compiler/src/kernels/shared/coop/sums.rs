//! Operands of 8 bits of which the first is unsigned and the second signed, while matrices are signed: the top bits of
//! the first are flipped, which takes 128 from each of its numbers, and 128 times the sums of the second's columns are
//! added in the end.

use crate::error::OpError;
use crate::ir::array::Data;
use crate::ir::dim::Dim;
use crate::ir::op::Constant;
use crate::ir::tensor::DType;
use crate::kernels::shared::dot::Signs;
use crate::kernels::shared::window::known;
use crate::shader::Shader;
use crate::shader::pack::Packed;

/// Replaces the hooks `flipped` and `corrected` of `coop.wgsl` where the signs of a product ask for that, and nothing
/// elsewhere. The second operand must then be a constant: one matrix of `k` rows and `n` columns for all products of the
/// batch, or one for each. `columns` says that the elements of a column are neighbours in it, rather than those of a row.
/// What counts as zero in the first operand must be so before its bits are flipped, unless the second is zero there.
pub(crate) fn correct(shader: &mut Shader<'_>, [n, k]: [&Dim; 2], columns: bool) -> Result<(), OpError> {
    if !Signs::of(shader.problem).is_some_and(|signs| signs.flips(0)) {
        return Ok(());
    }
    let constant = shader.problem.operands.get(1).and_then(|operand| operand.constant);
    let constant = constant.ok_or_else(|| OpError::new("signs change for constants only"))?;
    let (Some(n), Some(k)) = (known(n), known(k)) else {
        return Err(OpError::new("a constant of unknown size"));
    };
    let Data::Int(values) = constant.to_array()?.data else {
        return Err(OpError::new("a constant that is no integer"));
    };
    let wide = n.next_multiple_of(4);
    let sums = sums(&values, [n, k], columns, wide);
    let each = values.len() > n * k;
    let bytes: Vec<u8> = sums.iter().flat_map(|v| v.to_le_bytes()).collect();
    let sums = Constant::new(DType::I32, vec![sums.len()], bytes)?;
    let bound = shader.packed(Packed::dense(&sums));
    let buffer = shader.bind(bound, "vec4<i32>", false);
    let first = if each { format!("batch * {}u + ", wide / 4) } else { String::new() };
    shader.replace(
        "corrected",
        format!("fn corrected(batch: u32, n4: u32, v: Sum) -> Sum {{ return v + {buffer}[{first}n4]; }}"),
    );
    shader.replace(
        "flipped",
        "fn flipped(v: Unit) -> Unit { return bitcast<vec2<f32>>(bitcast<vec2<u32>>(v) ^ vec2<u32>(0x80808080u)); }"
            .into(),
    );
    Ok(())
}

/// 128 times the sum of each column, modulo 2^32, and zeros up to `wide` for each matrix.
fn sums(values: &[i64], [n, k]: [usize; 2], columns: bool, wide: usize) -> Vec<i32> {
    let at = |column: usize, row: usize| if columns { column * k + row } else { row * n + column };
    values
        .chunks((n * k).max(1))
        .flat_map(|matrix| {
            let sum = move |column: usize| (0..k).map(|row| matrix[at(column, row)]).sum::<i64>();
            (0..wide).map(move |column| if column < n { (128 * sum(column)) as i32 } else { 0 })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::sums;

    #[test]
    fn columns_are_added_up() {
        // Two matrices of two rows and three columns, row by row and column by column.
        let rows = [1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, -6];
        let want = [5, 7, 9, 0, -5, -7, -9, 0].map(|v| v * 128);
        assert_eq!(sums(&rows, [3, 2], false, 4), want);
        let columns = [1, 4, 2, 5, 3, 6, -1, -4, -2, -5, -3, -6];
        assert_eq!(sums(&columns, [3, 2], true, 4), want);
        // Sums beyond 32 bits wrap, as the products do.
        assert_eq!(sums(&[1 << 24, 1], [1, 2], true, 1), [i32::MIN + 128]);
    }
}
