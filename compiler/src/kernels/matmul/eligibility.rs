//! Table of the matmuls for which each matmul kernel is eligible, by M, weight encoding, fused operations and the
//! target's matrix units. Kernels consult the table and not each other.

use crate::kernels::cost::stays_cached;
use crate::kernels::shared::float_panels::FloatPanels;
use crate::kernels::shared::fragment_matmul::{FragmentMatMul, known_fragments};
use crate::kernels::shared::matmul_node::MatMulNode;
use crate::kernels::shared::matmul_sizes::matmul_sizes;
use crate::kernels::shared::quantized::{MAX_SMALL_M, QuantizedColumns};
use crate::shader::problem::Problem;

/// Class of a matmul's weights, on which the eligibility of kernels depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weights {
    /// Weights that are not quantized: floats or integers, constant or not.
    Unquantized,
    /// f16 constants of a small-M matmul that are read from memory and not from the cache, on a target whose layout of
    /// matrix fragments is known. `matvec_fragments` and `matvec_panels` stream them at the bandwidth of the memory;
    /// other kernels do not.
    StreamedF16,
    /// Weights of a small-M matmul, quantized in groups and packed in 4 bits per value. A group fills whole packed words.
    SmallMQuantized4,
    /// Weights of a small-M matmul, quantized in groups and packed in 8 bits per value. A group fills whole packed words.
    SmallMQuantized8,
    /// Other quantized weights.
    OtherQuantized,
}

/// An entry of the eligibility table: a kernel with a class of matmuls that it may compute.
struct Rule {
    kernel: &'static str,
    /// Minimum number of rows M of a matmul.
    min_rows: i64,
    /// Maximum number of rows M of a matmul without fused operations.
    max_rows: i64,
    /// Maximum number of rows M of a matmul with fused operations. Kernels that cannot compute fused operations also
    /// check the operator in their own code.
    max_fused_rows: i64,
    weights: &'static [Weights],
    /// True if the kernel is not eligible where `matvec_fragments` has a candidate. One kernel then computes the matmul
    /// for every M of 1 to 16, so that a row has equal sums whatever M is.
    unless_fragments: bool,
    /// True if the kernel is only a fallback for the matmuls of this entry.
    last_resort: bool,
}

/// Maximum M in an entry of the eligibility table that does not limit M.
const ANY: i64 = i64::MAX;

use Weights::{OtherQuantized, SmallMQuantized4, SmallMQuantized8, StreamedF16, Unquantized};

const UNQUANTIZED: &[Weights] = &[Unquantized, StreamedF16];
const SMALL_M_QUANTIZED: &[Weights] = &[SmallMQuantized4, SmallMQuantized8];

const fn rule(
    kernel: &'static str,
    min_rows: i64,
    [max_rows, max_fused_rows]: [i64; 2],
    weights: &'static [Weights],
) -> Rule {
    Rule { kernel, min_rows, max_rows, max_fused_rows, weights, unless_fragments: false, last_resort: false }
}

/// Eligibility table of the matmul kernels. A kernel may have several entries and is eligible if one of them matches.
/// The kernel's own function `candidates` checks the operator, the element types and the limits of the target.
#[rustfmt::skip]
const RULES: &[Rule] = &[
    // Kernel, minimum M, maximum M without and with fused operations, weights.
    rule("matmul", 0, [ANY, 0], &[Unquantized, StreamedF16, OtherQuantized]),
    // Kernels for few rows read the constant at least as fast.
    rule("matmul_broadcast", MAX_SMALL_M + 1, [ANY, 0], &[Unquantized]),
    rule("matmul_coop", 0, [ANY, 0], &[Unquantized, OtherQuantized]),
    rule("matmul_workgroup", 0, [ANY, 0], UNQUANTIZED),
    rule("matmul_dot", 0, [ANY, 0], UNQUANTIZED),
    rule("matmul_direct", 0, [ANY, 0], &[Unquantized, StreamedF16, OtherQuantized]),
    Rule { last_resort: true, ..rule("matmul_direct", 0, [ANY, 0], SMALL_M_QUANTIZED) },
    rule("matvec", 0, [MAX_SMALL_M, 0], &[Unquantized]),
    // With more rows, the kernels for many rows are faster than this one, although they fuse nothing.
    rule("matvec_panels", 0, [MAX_SMALL_M, 4], UNQUANTIZED),
    Rule { unless_fragments: true, ..rule("matvec_quantized", 0, [MAX_SMALL_M, MAX_SMALL_M], SMALL_M_QUANTIZED) },
    Rule { unless_fragments: true, ..rule("matvec_coop", 2, [MAX_SMALL_M, MAX_SMALL_M], SMALL_M_QUANTIZED) },
    rule("matvec_fragments", 1, [MAX_SMALL_M, MAX_SMALL_M], &[SmallMQuantized4]),
    // With one row of 8 bits or more, multiplying takes as long as reading. `matvec_quantized` and `matvec_panels`
    // spread it over more workgroups.
    rule("matvec_fragments", 2, [MAX_SMALL_M, MAX_SMALL_M], &[SmallMQuantized8, Unquantized, StreamedF16]),
    rule("matvec_dot", 0, [MAX_SMALL_M, 0], UNQUANTIZED),
];

/// True if the eligibility table has an entry of the matmul kernel `kernel` that matches the problem.
pub(super) fn is_eligible(kernel: &str, problem: &Problem<'_>) -> bool {
    find_rule(kernel, problem).is_some()
}

/// True if the matmul kernel `kernel` is only a fallback for the problem.
pub(super) fn is_last_resort(kernel: &str, problem: &Problem<'_>) -> bool {
    find_rule(kernel, problem).is_some_and(|rule| rule.last_resort)
}

fn find_rule(kernel: &str, problem: &Problem<'_>) -> Option<&'static Rule> {
    let node = MatMulNode::from_problem(problem)?;
    let rows = problem.max(&matmul_sizes(node.matmul, problem)?.m);
    let has_rows = |rule: &&Rule| {
        let max_rows = if node.is_plain() { rule.max_rows } else { rule.max_fused_rows };
        (rule.min_rows..=max_rows).contains(&rows)
    };
    let mut rules = RULES.iter().filter(|rule| rule.kernel == kernel).filter(has_rows).peekable();
    // The class of the weights takes long to compute, so it is computed only if the kernel has an entry for this M.
    rules.peek()?;
    let weights = weights(&node, problem, rows);
    let rule = rules.find(|rule| rule.weights.contains(&weights))?;
    (!rule.unless_fragments || !is_computed_by_fragments(problem)).then_some(rule)
}

fn is_computed_by_fragments(problem: &Problem<'_>) -> bool {
    is_eligible("matvec_fragments", problem)
        && FragmentMatMul::from_problem(problem).is_some_and(|matmul| !matmul.tiles(problem).is_empty())
}

fn weights(node: &MatMulNode<'_>, problem: &Problem<'_>, rows: i64) -> Weights {
    let columns = QuantizedColumns::from_operands(node.matmul, problem, node.matrices());
    if let Some(columns) = columns.filter(|columns| columns.is_small_m_only(problem, rows)) {
        return if columns.panels.bits == 4 { SmallMQuantized4 } else { SmallMQuantized8 };
    }
    if problem.operands.get(1).is_some_and(|operand| operand.quantized.is_some()) {
        return OtherQuantized;
    }
    let streamed = rows <= MAX_SMALL_M
        && known_fragments(problem).is_some()
        && !stays_cached(problem, problem.read_bytes(1) as f64)
        && FloatPanels::from_node(node, problem).is_some_and(|panels| panels.is_f16());
    if streamed { StreamedF16 } else { Unquantized }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::RULES;
    use crate::kernels::KERNELS;

    #[test]
    fn every_matmul_kernel_has_a_rule() {
        let matmul = |name: &&str| name.starts_with("matmul") || name.starts_with("matvec");
        let kernels: BTreeSet<&str> = KERNELS.iter().map(|kernel| kernel.name).filter(matmul).collect();
        let rules: BTreeSet<&str> = RULES.iter().map(|rule| rule.kernel).collect();
        assert_eq!(kernels, rules);
    }
}
