//! Shapes of the target's cooperative matrices that the kernels on matrix units use.

use crate::ir::op::Op;
use crate::ir::tensor::{DType, DeviceType};
use crate::kernels::shared::dot::Signs;
use crate::shader::problem::Problem;
use crate::target::quirks::Fault;
use crate::target::{MatrixScope, MatrixShape, MatrixType, TargetProfile};

/// Returns the target's first matrix shape of f16 inputs and f32 sums with subgroup scope, if the matmul is computed in
/// f16.
pub(crate) fn f16_matrix_shape<'a>(problem: &Problem<'a>) -> Option<&'a MatrixShape> {
    let types = (MatrixType::F16, MatrixType::F16, MatrixType::F32);
    (computes_in_f16(problem) && supports_matrices(problem.target))
        .then(|| find_shape(problem.target, types))
        .flatten()
}

/// True if the problem is a float matmul that is computed with f16 inputs.
pub(crate) fn computes_in_f16(problem: &Problem<'_>) -> bool {
    if matches!(problem.op, Op::QuantizedRowsMatMul(_)) {
        return false;
    }
    // The second operand decides, because the first may be a graph input, whose precision never changes. Packed words
    // of quantized weights have no precision; then the first operand decides.
    let deciding = usize::from(problem.operands.get(1).is_none_or(|o| o.dtype != DType::U32));
    let f16 = problem.operands.get(deciding).is_some_and(|o| o.dtype.on_device() == DeviceType::F16);
    f16 && problem.target.features.stores_f16() && problem.computed.is_float()
}

/// Returns the target's matrix shape with 8-bit inputs and 32-bit sums for a problem. Both operands must be signed or
/// both unsigned. The first may also be unsigned and the second signed; then the kernel corrects the sums.
fn int8_matrix_shape<'a>(problem: &Problem<'a>) -> Option<&'a MatrixShape> {
    let signs = match problem.op {
        Op::QuantizedRowsMatMul(_) => [false; 2],
        _ => {
            let signs = Signs::from_problem(problem)?;
            [signs.is_unsigned(0), signs.is_unsigned(1)]
        }
    };
    // An unsigned first operand may become signed: the kernel corrects the sums (`sum_correction`).
    if signs == [false, true] || !problem.target.features.int8 || !supports_matrices(problem.target) {
        return None;
    }
    let types = match signs {
        [true, true] => (MatrixType::U8, MatrixType::U8, MatrixType::U32),
        _ => (MatrixType::I8, MatrixType::I8, MatrixType::I32),
    };
    find_shape(problem.target, types)
}

/// Returns the target's matrix shape for a problem, with f16 or 8-bit inputs. Returns `None` if the target has none.
pub(crate) fn matrix_shape<'a>(problem: &Problem<'a>) -> Option<&'a MatrixShape> {
    f16_matrix_shape(problem).or_else(|| int8_matrix_shape(problem))
}

/// True if the target has usable cooperative matrices and a launch can fix the subgroup size.
pub(crate) fn supports_matrices(target: &TargetProfile) -> bool {
    let sized =
        target.features.subgroup_size_control && target.subgroup.sizes.contains(&target.subgroup.preferred);
    target.features.cooperative_matrix && sized && !target.has_quirk(Fault::CooperativeMatrixSlow)
}

fn find_shape(target: &TargetProfile, types: (MatrixType, MatrixType, MatrixType)) -> Option<&MatrixShape> {
    target.matrix.iter().find(|s| {
        // Eight elements move at a time.
        let multiples_of_8 = s.m % 8 == 0 && s.n % 8 == 0 && s.k % 8 == 0;
        (s.a, s.b, s.c) == types && multiples_of_8 && s.scope == MatrixScope::Subgroup
    })
}

/// Returns the size in bytes of a vector of eight elements of a matrix, and the number of such vectors in 16 bytes.
pub(super) fn vec8_bytes(shape: &MatrixShape) -> [u32; 2] {
    if shape.a == MatrixType::F16 { [16, 1] } else { [8, 2] }
}
