//! Kernels: plain WGSL files with a table of what each can compute, at which cost, and how it is launched.
//!
//! A kernel sees only its [`Problem`]: one operator, its operands and the device's facts. Every kernel reads and
//! writes through generated hooks, so all of them work with every layout.

pub mod access;
pub mod chain;
pub mod pack;
pub mod problem;
pub mod resource;
pub mod shader;
pub mod specialize;

mod order;
mod rows;
mod shares;
mod walk;
mod window;

mod arg_reduce;
mod attention;
mod attention_coop;
mod concat;
mod conv;
mod conv_1x1;
mod conv_broadcast;
mod conv_constants;
mod conv_coop;
mod conv_direct;
mod conv_dot;
mod conv_separable;
mod conv_separable_direct;
mod conv_transpose;
mod coop;
mod cum_sum;
mod depthwise;
mod dot;
mod fill;
mod gather;
mod map;
mod matmul;
mod matmul_coop;
mod matmul_direct;
mod matmul_dot;
mod matmul_workgroup;
mod matvec;
mod matvec_dot;
mod normalize;
mod pad;
mod pool;
mod recurrent;
mod reduce;
mod resize;
mod scatter;
mod scatter_list;
mod softmax;
mod top_k;
mod top_k_rank;
mod winograd;

#[cfg(test)]
mod matrix_tests;
#[cfg(test)]
mod tests;

use crate::error::OpError;
use problem::Problem;
use shader::Launch;

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

/// Every kernel. Among equal costs the earlier one wins.
pub const KERNELS: &[Kernel] = &[
    matmul_coop::KERNEL,
    matmul_workgroup::KERNEL,
    conv_coop::KERNEL,
    matmul::KERNEL,
    matmul_dot::KERNEL,
    conv::KERNEL,
    conv_dot::KERNEL,
    conv_1x1::KERNEL,
    conv_constants::KERNEL,
    conv_broadcast::KERNEL,
    depthwise::KERNEL,
    conv_separable_direct::KERNEL,
    conv_separable::KERNEL,
    conv_transpose::KERNEL,
    conv_direct::KERNEL,
    pool::KERNEL,
    resize::KERNEL,
    pad::KERNEL,
    concat::KERNEL,
    map::KERNEL,
    matvec::KERNEL,
    matvec_dot::KERNEL,
    matmul_direct::KERNEL,
    normalize::KERNEL,
    reduce::KERNEL,
    softmax::KERNEL,
    attention_coop::KERNEL,
    attention::KERNEL,
    arg_reduce::KERNEL,
    cum_sum::KERNEL,
    top_k::KERNEL,
    top_k_rank::KERNEL,
    recurrent::KERNEL,
    gather::KERNEL,
    scatter::KERNEL,
    scatter_list::KERNEL,
    fill::KERNEL,
    winograd::KERNEL,
];

/// Nanoseconds that `steps` loads one after the other take, when as many invocations as `lanes` run in rounds of what
/// the device keeps in flight.
pub fn waiting(problem: &Problem<'_>, lanes: f64, steps: f64) -> f64 {
    let machine = &problem.target.machine;
    let room = f64::from(machine.compute_units) * f64::from(machine.invocations_per_unit);
    (lanes / room).ceil().max(1.0) * steps * machine.memory_latency_ns
}

/// Nanoseconds that `count` barriers take, one after the other, where workgroups have as many invocations in all as
/// `lanes`.
pub fn barriers(problem: &Problem<'_>, lanes: f64, count: f64) -> f64 {
    let machine = &problem.target.machine;
    let room = f64::from(machine.compute_units) * f64::from(machine.invocations_per_unit);
    (lanes / room).ceil().max(1.0) * count * machine.barrier_ns
}

/// A roofline estimate in nanoseconds: the slower of arithmetic and traffic, over what the device reaches of its
/// peaks, plus one launch.
pub fn roofline(problem: &Problem<'_>, flops: f64, bytes: f64, efficiency: f64) -> f64 {
    let machine = &problem.target.machine;
    let compute = flops / (machine.peak.f32 * efficiency).max(1e-3);
    let traffic = bytes / machine.bandwidth_gb_s.max(1e-3);
    compute.max(traffic) + machine.launch_us * 1e3
}
