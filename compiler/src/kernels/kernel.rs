//! What a kernel is, and a candidate: one configuration of it.

use serde::de::DeserializeOwned;

use super::cost::Parameters;
use crate::error::OpError;
use crate::shader::Launch;
use crate::shader::problem::Problem;
use crate::target::MatrixScope;
use crate::target::costs::{self, typed};

/// A configuration of a kernel for a problem.
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
    /// The configurations in which it can compute a problem; empty when it cannot.
    pub candidates: fn(&Problem<'_>) -> Vec<Candidate>,
    /// The dispatches of a candidate, in order; each may read what an earlier one wrote.
    pub launches: fn(&Problem<'_>, &Candidate) -> Result<Vec<Launch>, OpError>,
    /// The invocations that hold its cooperative matrices together, which not every device has; none where it uses none.
    pub matrices: Option<MatrixScope>,
    /// The parameters that its estimate reads.
    pub params: &'static [Group],
    /// Which operands its result may overwrite.
    pub in_place: InPlace,
}

/// A group of parameters that an estimate reads.
#[derive(Debug)]
pub struct Group {
    /// Its name in `targets/costs/`.
    pub name: &'static str,
    /// Whether numbers are these parameters, all of them and no others.
    pub check: fn(&costs::Group) -> Result<(), String>,
}

impl Group {
    /// The group of a struct.
    pub(crate) const fn of<P: Parameters>() -> Self {
        Self::named::<P>(P::GROUP)
    }

    /// The group of a struct of which several kernels have one.
    pub(crate) const fn named<P: DeserializeOwned>(name: &'static str) -> Self {
        Self { name, check: |group| typed::<P>(group).map(|_| ()) }
    }
}

/// Which operands a kernel reads at no other elements than those that the same invocation is about to store, provided
/// that every element of the result is stored once, after everything that is read there. The result may overwrite these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InPlace {
    /// None.
    Nothing,
    /// Those of the epilogue, which are read where the result is stored.
    Epilogue,
    /// The first, and those of the epilogue.
    FirstAndEpilogue,
    /// All of them.
    All,
}

impl InPlace {
    /// Whether the result may overwrite operand `index`, where the first `arity` belong to the operator.
    pub fn overwrites(self, index: usize, arity: usize) -> bool {
        match self {
            Self::Nothing => false,
            Self::Epilogue => index >= arity,
            Self::FirstAndEpilogue => index == 0 || index >= arity,
            Self::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::kernels::KERNELS;
    use crate::target::{TargetProfile, costs, names};

    #[test]
    fn the_generic_file_has_the_parameters_of_every_kernel_and_no_others() {
        let groups = || KERNELS.iter().flat_map(|kernel| kernel.params.iter().map(move |g| (kernel, g)));
        for (kernel, group) in groups() {
            let numbers = costs::generic().get(group.name);
            let numbers = numbers.unwrap_or_else(|| panic!("{}: no group `{}`", kernel.name, group.name));
            (group.check)(numbers).unwrap_or_else(|e| panic!("{}, group `{}`: {e}", kernel.name, group.name));
        }
        let decompose = crate::decompose::params::GROUP;
        let read: BTreeSet<&str> = groups().map(|(_, group)| group.name).chain([decompose]).collect();
        let unread: Vec<&String> = costs::generic().keys().filter(|g| !read.contains(g.as_str())).collect();
        assert!(unread.is_empty(), "no kernel reads {unread:?}");
    }

    #[test]
    fn every_profile_has_every_group_and_says_where_it_is_from() {
        for name in names() {
            let target = TargetProfile::load(name).unwrap();
            assert_eq!(target.costs.len(), costs::generic().len(), "{name}");
            for group in target.costs.keys() {
                let source = target.source_of(&format!("costs.{group}"));
                assert!(source.is_some(), "{name}: parameters `{group}` have no source");
            }
        }
    }
}
