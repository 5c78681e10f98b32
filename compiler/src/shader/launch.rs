//! One dispatch of a specialised kernel: its module, bindings and grid.

use std::collections::BTreeSet;

use super::outside::Outside;
use super::pack::Packed;
use super::resource::Resource;
use crate::ir::dim::{Bounds, Dim};
use crate::target::MatrixShape;

/// What a binding is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// The problem's operand of this index.
    Operand(usize),
    /// The launch's repacked constant of this index.
    Packed(usize),
    /// The result.
    Result,
    /// The node's scratch buffer of this index.
    Scratch(usize),
    /// The uniform block of symbolic sizes.
    Params,
}

/// A binding of a launch; its number is its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// What is bound.
    pub bound: Bound,
    /// As which kind of memory object.
    pub resource: Resource,
    /// Whether the shader writes it.
    pub writable: bool,
}

/// One dispatch of a specialised kernel.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Name of the kernel.
    pub kernel: &'static str,
    /// The module; its entry point is `main`.
    pub wgsl: String,
    /// Bindings in group 0.
    pub bindings: Vec<Binding>,
    /// Words of the uniform block, empty when there is none.
    pub params: Vec<Dim>,
    /// Workgroups.
    pub grid: [Dim; 3],
    /// Invocations per workgroup.
    pub workgroup: [u32; 3],
    /// Bytes of workgroup memory.
    pub workgroup_memory: u32,
    /// Times that an invocation goes round its loops, where that grows with what it computes; 1 where nobody counted.
    pub iterations: Dim,
    /// Constants in the arrangement the kernel wants.
    pub packed: Vec<Packed>,
    /// Bytes of the scratch buffers the node's launches share, by index; only the first launch that uses one lists it.
    pub scratch: Vec<Dim>,
    /// Floating-point operations.
    pub flops: Dim,
    /// Subgroup size the shader is written for.
    pub subgroup_size: Option<u32>,
    /// Whether it would have to store single lanes of texels of a texture, which cannot be done: it is written for
    /// slices of four in a buffer in the texture's place.
    pub partial_texels: bool,
    /// The matrix product the shader is written for.
    pub matrix: Option<MatrixShape>,
    /// What it counts on where it reads outside of textures.
    pub outside: Outside,
    /// What its instructions take that not every device has, besides matrices.
    pub needs: BTreeSet<Need>,
}

/// Instructions and types that not every device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Floats of 16 bits in buffers and in registers.
    F16,
    /// Dot products of four 8-bit integers in a word.
    IntDotProduct,
    /// Invocations that know their place in a subgroup.
    Subgroups,
    /// A vote of a subgroup.
    SubgroupVote,
    /// Values passed around a subgroup.
    SubgroupShuffle,
}

impl Need {
    /// Whether invocations work together in subgroups for it.
    pub fn is_of_subgroups(self) -> bool {
        match self {
            Self::F16 | Self::IntDotProduct => false,
            Self::Subgroups | Self::SubgroupVote | Self::SubgroupShuffle => true,
        }
    }
}

/// The kernel's own text and the shape of its launch.
#[derive(Debug, Clone)]
pub struct Grid {
    /// Workgroups.
    pub groups: [Dim; 3],
    /// Invocations per workgroup.
    pub workgroup: [u32; 3],
}

impl Grid {
    /// Enough workgroups of `threads` invocations for `units`, in one or, past the limit of one axis, two axes:
    /// the shader computes `id.x + id.y * (num_workgroups.x * threads)`.
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
