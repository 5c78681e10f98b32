//! Matmuls whose first operand has more than two axes and whose second operand is one matrix, as matmuls of two axes.
//!
//! `[1, 14, 14, K] x [K, N]` is one matmul of 196 rows, not 14 matmuls of 14 rows, if the rows have one common stride in
//! every tensor.

use super::problem::{Operand, Placement, Problem};
use super::row_view::broadcast_strides;
use crate::ir::dim::{Dim, product};
use crate::ir::op::Op;

/// Returns the problem with all axes before the last one merged into rows. Returns it unchanged if the operator is no such
/// matmul, or if some tensor has no common stride of its rows.
pub(crate) fn with_merged_rows(problem: Problem<'_>) -> Problem<'_> {
    merged(&problem).unwrap_or(problem)
}

fn merged<'a>(problem: &Problem<'a>) -> Option<Problem<'a>> {
    let Op::MatMul(op) = problem.op else { return None };
    let axes = problem.result.rank().checked_sub(1).filter(|axes| *axes > 1)?;
    let [a, b] = problem.operands.get(..problem.arity)? else { return None };
    if op.trans_a || b.rank() != 2 || a.rank() != problem.result.rank() {
        return None;
    }
    let sizes = &problem.result.shape[..axes];
    let mut out = problem.clone();
    out.operands[0] = operand_with_merged_rows(a, sizes)?;
    for operand in out.operands.iter_mut().skip(problem.arity) {
        *operand = operand_with_merged_rows(operand, sizes)?;
    }
    out.result = operand_with_merged_rows(&problem.result, sizes)?;
    Some(out)
}

/// Returns a tensor with two axes: its rows, and the last axis. `sizes` are the sizes of the axes before the last one, to
/// which the tensor broadcasts. Returns a tensor of one axis unchanged. Returns `None` if the rows have no common stride.
fn operand_with_merged_rows<'a>(operand: &Operand<'a>, sizes: &[Dim]) -> Option<Operand<'a>> {
    let Placement::Strided { strides, offset } = &operand.placement else { return None };
    let (Some((last_stride, row_strides)), Some((last, rows))) =
        (strides.split_last(), operand.shape.split_last())
    else {
        return Some(operand.clone());
    };
    let Some(inner_stride) = row_strides.last() else { return Some(operand.clone()) };
    let full = broadcast_strides(row_strides, rows, sizes)?;
    // Axes of size 1 have no stride that counts.
    let wide: Vec<usize> = (0..sizes.len()).filter(|axis| !sizes[*axis].is(1)).collect();
    let common = wide.windows(2).all(|pair| full[pair[0]] == full[pair[1]].mul(&sizes[pair[1]]));
    if !common {
        return None;
    }
    let row_stride = wide.last().map_or(inner_stride, |axis| &full[*axis]).clone();
    let strides = vec![row_stride, last_stride.clone()];
    Some(Operand {
        shape: vec![product(rows), last.clone()],
        placement: Placement::Strided { strides, offset: offset.clone() },
        ..operand.clone()
    })
}

#[cfg(test)]
mod tests {
    use crate::ir::graph_text;
    use crate::ir::op::Op;
    use crate::plan::estimate::problem;
    use crate::shader::problem::Placement;
    use crate::target::TargetProfile;

    /// Returns the sizes of the result, and of the first operand with its strides, of the matmul in a graph. Sizes and strides
    /// are written as text.
    fn sizes(lines: &str, symbols: &str) -> String {
        let text = format!(
            "{symbols}%1 = constant {{\"dtype\":\"f32\",\"shape\":[8,24],\"random\":1}}\n{lines}output \"y\" %9\n"
        );
        let graph = graph_text::parse(&text).unwrap();
        let target = TargetProfile::load("nvidia-hopper").unwrap();
        let matmul = graph.ids().into_iter().find(|id| matches!(graph.op(*id), Op::MatMul(_))).unwrap();
        let problem = problem(&graph, matmul, &target).unwrap();
        let a = &problem.operands[0];
        let Placement::Strided { strides, .. } = &a.placement else { panic!("{a:?}") };
        let list =
            |dims: &[crate::ir::dim::Dim]| dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        format!("{} = {} by {}", list(&problem.result.shape), list(&a.shape), list(strides))
    }

    fn input(shape: &str) -> String {
        format!("%0 = input {{\"name\":\"a\",\"dtype\":\"f32\",\"shape\":[{shape}]}}\n")
    }

    const MATMUL: &str = "%9 = matmul %0 %1 {\"trans_a\":false,\"trans_b\":false}\n";

    #[test]
    fn axes_before_the_last_one_are_rows() {
        assert_eq!(sizes(&(input("1,14,15,8") + MATMUL), ""), "210 24 = 210 8 by 8 1");
        assert_eq!(sizes(&(input("\"b\",3,8") + MATMUL), "symbol b 1..5\n"), "3*b 24 = 3*b 8 by 8 1");
        assert_eq!(sizes(&(input("1,1,8") + MATMUL), ""), "1 24 = 1 8 by 8 1");
    }

    #[test]
    fn rows_without_a_common_stride_are_not_merged() {
        let part = "%2 = slice %0 {\"starts\":[0,1,0],\"steps\":[1,1,1],\"sizes\":[3,4,8]}\n";
        let lines = input("3,6,8") + part + &MATMUL.replace("%0", "%2");
        assert_eq!(sizes(&lines, ""), "3 4 24 = 3 4 8 by 48 8 1");
    }
}
