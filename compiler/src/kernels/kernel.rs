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
    /// The invocations that hold its cooperative matrices together, which not every device has; none where it uses none.
    pub matrices: Option<MatrixScope>,
    /// Which operands its result may overwrite.
    pub in_place: InPlace,
}

/// Which operands a kernel reads at no other elements than those that the same invocation is about to store, provided
/// that every element of the result is stored once, after everything that is read there. The result may overwrite these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InPlace {
    /// None.
    Nothing,
    /// Those of the chain, which are read where the result is stored.
    Chain,
    /// The first, and those of the chain.
    FirstAndChain,
    /// All of them.
    All,
}

impl InPlace {
    /// Whether the result may overwrite operand `index`, where the first `own` belong to the operator.
    pub fn overwrites(self, index: usize, own: usize) -> bool {
        match self {
            Self::Nothing => false,
            Self::Chain => index >= own,
            Self::FirstAndChain => index == 0 || index >= own,
            Self::All => true,
        }
    }
}
