//! What a kernel is, and one way of using it.

use crate::error::OpError;
use crate::shader::Launch;
use crate::shader::problem::Problem;
use crate::target::MatrixScope;

/// A way of computing a problem with one kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Tile sizes and the like, in the order of the kernel's knobs.
    pub knobs: Vec<(&'static str, u32)>,
    /// Estimated time in nanoseconds at the upper bounds of the symbols.
    pub cost: f64,
    /// Why the estimate is what it is.
    pub reason: String,
}

impl Candidate {
    /// The value of a knob; 0 when the candidate has none of that name.
    pub fn knob(&self, name: &str) -> u32 {
        self.knobs.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v)
    }
}

/// A kernel.
#[derive(Debug)]
pub struct Kernel {
    /// Name of its files.
    pub name: &'static str,
    /// Its module, valid as it stands.
    pub wgsl: &'static str,
    /// The ways it can compute a problem; empty when it cannot.
    pub candidates: fn(&Problem<'_>) -> Vec<Candidate>,
    /// The dispatches of a candidate, in order; each may read what an earlier one wrote.
    pub launches: fn(&Problem<'_>, &Candidate) -> Result<Vec<Launch>, OpError>,
    /// Graphs in text form that the kernel computes, with sizes that do not divide its tiles; one list for tests,
    /// benches and the support table.
    pub cases: &'static [&'static str],
}

impl Kernel {
    /// The invocations that hold its cooperative matrices together, which not every device has; none where the kernel uses
    /// none.
    pub fn matrix_scope(&self) -> Option<MatrixScope> {
        let uses = self.wgsl.contains("enable wgpu_cooperative_matrix;");
        let of_workgroup = WORKGROUP_MATRICES.contains(&self.name);
        uses.then_some(if of_workgroup { MatrixScope::Workgroup } else { MatrixScope::Subgroup })
    }
}

/// Kernels whose cooperative matrices a whole workgroup holds together.
const WORKGROUP_MATRICES: &[&str] = &["matmul_workgroup"];
