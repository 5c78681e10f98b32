//! One dispatch of a kernel: its module, bindings and grid.
//!
//! A kernel returns a [`LaunchDraft`], which holds all facts that are checked against device limits. The WGSL of a
//! draft is specialized only where its text is needed.

use std::collections::{BTreeMap, BTreeSet};

use super::outside_reads::OutsideReads;
use super::pack::Packed;
use super::resource::Resource;
use super::specialize::specialize;
use crate::error::OpError;
use crate::ir::dim::{Bounds, Dim};
use crate::target::MatrixShape;

/// Memory object that a binding refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// An operand of the problem, by index.
    Operand(usize),
    /// A packed constant, by index into [`Launch::packed`].
    Packed(usize),
    /// The result of the problem.
    Result,
    /// A scratch buffer, by index into the list of all scratch buffers of the node.
    Scratch(usize),
    /// The uniform block of symbolic sizes.
    Params,
}

/// A binding of a launch. Its number in the shader is its index in [`Launch::bindings`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// Memory object that is bound.
    pub bound: Bound,
    /// Kind of the bound memory object.
    pub resource: Resource,
    /// True if the shader writes the bound memory object.
    pub writable: bool,
}

/// Specializes drafts, in order.
///
/// # Errors
/// As [`LaunchDraft::specialized_wgsl`].
pub fn specialize_all(drafts: Vec<LaunchDraft>) -> Result<Vec<Launch>, OpError> {
    drafts.into_iter().map(LaunchDraft::specialize).collect()
}

/// One dispatch of a kernel. The type `Code` holds the module: WGSL source, or [`Unspecialized`] in a [`LaunchDraft`].
#[derive(Debug, Clone)]
pub struct Launch<Code = String> {
    /// Name of the kernel.
    pub kernel: &'static str,
    /// The WGSL module. Its entry point is `main`.
    pub wgsl: Code,
    /// Bindings of the shader, all in group 0.
    pub bindings: Vec<Binding>,
    /// Sizes that the host writes into the uniform buffer before a run, one `u32` for each. Empty without symbolic
    /// sizes.
    pub params: Vec<Dim>,
    /// Number of workgroups along each axis.
    pub grid: [Dim; 3],
    /// Invocations per workgroup along each axis.
    pub workgroup: [u32; 3],
    /// Workgroup memory that the shader uses, in bytes.
    pub workgroup_memory: u32,
    /// Number of loop iterations of one invocation, if this number grows with the problem's sizes; otherwise 1.
    pub iterations: Dim,
    /// Packed constants of the launch. Bindings name them by their index in this list.
    pub packed: Vec<Packed>,
    /// Size in bytes of each scratch buffer that this launch is the first to use. Later launches of the same node can bind it
    /// too: the indices of scratch buffers count over all launches of the node.
    pub scratch: Vec<Dim>,
    /// Floating-point operations of the launch.
    pub flops: Dim,
    /// Subgroup size for which the shader is written, if it depends on the size.
    pub subgroup_size: Option<u32>,
    /// True if the result should be in a texture, but the shader would have to store single components of texels, which
    /// is impossible. The shader then stores to a buffer in slices of 4 channels.
    pub partial_texels: bool,
    /// Shape of the cooperative matrices that the shader uses, if any.
    pub matrix: Option<MatrixShape>,
    /// True if stores of cooperative matrices convert f32 sums to f16.
    pub stores_halves: bool,
    /// True if the driver should not unroll the shader's loops, because it would compile the shader for much longer. Only
    /// for shaders with cooperative matrices, whose loops are long.
    pub keeps_loops: bool,
    /// Values that the shader expects from reads outside the edges of a texture.
    pub outside: OutsideReads,
    /// Optional device features that the shader uses, other than cooperative matrices.
    pub needs: BTreeSet<Need>,
}

/// A launch whose WGSL is not specialized yet.
pub type LaunchDraft = Launch<Unspecialized>;

/// A kernel's module and the changes that specialize it.
#[derive(Debug, Clone)]
pub struct Unspecialized {
    /// The kernel's module with default constants and hooks.
    pub(super) source: &'static str,
    /// WGSL that replaces declarations of the module, by the name of the replaced declaration.
    pub(super) replacements: BTreeMap<String, String>,
    /// WGSL declarations that are appended to the module.
    pub(super) extra: String,
    /// True if the target prefers short shaders: loops with the marker `// unroll or` then stay loops.
    pub(super) short_shaders: bool,
}

impl LaunchDraft {
    /// Returns the kernel's specialized WGSL.
    ///
    /// # Errors
    /// If the kernel does not declare a replaced name, a name is declared twice, a replacement is not WGSL, or a marked
    /// loop has no constant bounds. All are defects of the kernel.
    pub fn specialized_wgsl(&self) -> Result<String, OpError> {
        let Unspecialized { source, replacements, extra, short_shaders } = &self.wgsl;
        let wgsl = specialize(source, replacements, extra, *short_shaders)
            .map_err(|e| OpError::new(format!("kernel {}: {e}", self.kernel)))?;
        Ok(if self.needs.contains(&Need::F16) { format!("enable f16;\n{wgsl}") } else { wgsl })
    }

    /// Specializes the kernel's WGSL and returns the launch.
    ///
    /// # Errors
    /// As [`Self::specialized_wgsl`].
    pub fn specialize(self) -> Result<Launch, OpError> {
        let wgsl = self.specialized_wgsl()?;
        Ok(Launch {
            kernel: self.kernel,
            wgsl,
            bindings: self.bindings,
            params: self.params,
            grid: self.grid,
            workgroup: self.workgroup,
            workgroup_memory: self.workgroup_memory,
            iterations: self.iterations,
            packed: self.packed,
            scratch: self.scratch,
            flops: self.flops,
            subgroup_size: self.subgroup_size,
            partial_texels: self.partial_texels,
            matrix: self.matrix,
            stores_halves: self.stores_halves,
            keeps_loops: self.keeps_loops,
            outside: self.outside,
            needs: self.needs,
        })
    }
}

/// Optional device feature that a shader needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// The type f16 in buffers and in arithmetic.
    F16,
    /// Dot products of four 8-bit integers.
    IntDotProduct,
    /// Built-in values of subgroups, such as the subgroup size and the index of an invocation in its subgroup.
    Subgroups,
    /// Subgroup votes, such as `subgroupAny`.
    SubgroupVote,
    /// Subgroup shuffles, such as `subgroupShuffleXor`.
    SubgroupShuffle,
}

impl Need {
    /// True if the feature is an operation of subgroups.
    pub fn needs_subgroups(self) -> bool {
        match self {
            Self::F16 | Self::IntDotProduct => false,
            Self::Subgroups | Self::SubgroupVote | Self::SubgroupShuffle => true,
        }
    }
}

/// Number of workgroups of a launch, and number of invocations in each.
#[derive(Debug, Clone)]
pub struct Grid {
    /// Number of workgroups along each axis.
    pub groups: [Dim; 3],
    /// Invocations per workgroup along each axis.
    pub workgroup: [u32; 3],
}

impl Grid {
    /// Returns the grid for `units` invocations in workgroups of `threads` invocations. The grid has two axes if one
    /// axis would exceed the limit of workgroups. The shader computes the index of an invocation as `id.x + id.y *
    /// (num_workgroups.x * threads)`.
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
