//! One dispatch of a specialized kernel: its module, bindings and grid.

use std::collections::BTreeSet;

use super::outside_reads::OutsideReads;
use super::pack::Packed;
use super::resource::Resource;
use crate::ir::dim::{Bounds, Dim};
use crate::target::MatrixShape;

/// Memory object that a binding refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// Operand of the problem, by index.
    Operand(usize),
    /// Packed constant of the launch, by index.
    Packed(usize),
    /// The result.
    Result,
    /// Scratch buffer of the node, by index.
    Scratch(usize),
    /// The uniform block of symbolic sizes.
    Params,
}

/// A binding of a launch. Its binding number is its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// Memory object.
    pub bound: Bound,
    /// Kind of memory object.
    pub resource: Resource,
    /// True if the shader writes it.
    pub writable: bool,
}

/// One dispatch of a specialized kernel.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Name of the kernel.
    pub kernel: &'static str,
    /// The WGSL module. Its entry point is `main`.
    pub wgsl: String,
    /// Bindings in group 0.
    pub bindings: Vec<Binding>,
    /// Sizes that the host writes into the uniform buffer before a run, one `u32` for each. Empty without symbolic
    /// sizes.
    pub params: Vec<Dim>,
    /// Workgroups.
    pub grid: [Dim; 3],
    /// Invocations per workgroup.
    pub workgroup: [u32; 3],
    /// Bytes of workgroup memory.
    pub workgroup_memory: u32,
    /// Loop iterations per invocation, if they grow with the problem; 1 if the kernel does not set it.
    pub iterations: Dim,
    /// Packed constants that the launch binds.
    pub packed: Vec<Packed>,
    /// Bytes of scratch buffers, by index. The node's launches use them in common; only the first user lists a buffer.
    pub scratch: Vec<Dim>,
    /// Floating-point operations.
    pub flops: Dim,
    /// Subgroup size the shader is written for.
    pub subgroup_size: Option<u32>,
    /// True if the result is in a texture and the shader would have to store single components of texels, which is
    /// impossible. The shader is then written for a buffer in slices of 4 instead.
    pub partial_texels: bool,
    /// Cooperative-matrix shape that the shader uses.
    pub matrix: Option<MatrixShape>,
    /// Values that the shader expects from reads outside of textures.
    pub outside: OutsideReads,
    /// Optional device features that the shader uses, other than cooperative matrices.
    pub needs: BTreeSet<Need>,
}

/// Optional device features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// f16 in buffers and in arithmetic.
    F16,
    /// 4-way 8-bit integer dot products.
    IntDotProduct,
    /// Subgroup size and invocation id.
    Subgroups,
    /// Subgroup votes.
    SubgroupVote,
    /// Subgroup shuffles.
    SubgroupShuffle,
}

impl Need {
    /// True for features of subgroups.
    pub fn needs_subgroups(self) -> bool {
        match self {
            Self::F16 | Self::IntDotProduct => false,
            Self::Subgroups | Self::SubgroupVote | Self::SubgroupShuffle => true,
        }
    }
}

/// Workgroups of a launch and their size.
#[derive(Debug, Clone)]
pub struct Grid {
    /// Workgroups.
    pub groups: [Dim; 3],
    /// Invocations per workgroup.
    pub workgroup: [u32; 3],
}

impl Grid {
    /// Returns a grid of workgroups of `threads` invocations for `units`. It has two axes if one axis would exceed its
    /// limit. The shader computes `id.x + id.y * (num_workgroups.x * threads)`.
    pub fn linear(units: &Dim, threads: u32, bounds: &Bounds) -> Self {
        const ROW: i64 = 32768;
        let groups = units.ceil_div(i64::from(threads));
        let groups = if groups.range(bounds).1 <= 65535 {
            [groups, Dim::known(1), Dim::known(1)]
        } else {
            [Dim::known(ROW), groups.ceil_div(ROW), Dim::known(1)]
        };
        Self { groups, workgroup: [threads, 1, 1] }
    }
}
