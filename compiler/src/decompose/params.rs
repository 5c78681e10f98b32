//! What decides beside costs: how much cheaper an alternative must be, and from which sizes on it is considered at all.
//!
//! These come from experience with estimates and devices, so they are data like the parameters of kernels' estimates.

use serde::Deserialize;

use crate::target::TargetProfile;
use crate::target::costs::typed;

/// Name of the group in `targets/costs/`.
pub(crate) const GROUP: &str = "decompose";

/// The parameters. A variant replaces a node when it is estimated to cost less than this part of the node's cost, since
/// estimates are not exact; each decomposition has a part of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The part for `split-k`: the kernels on both sides are the same ones, so their estimates err alike.
    pub split_k: f64,
    /// For `winograd`: estimates of a convolution and of products err differently, and filters grow.
    pub winograd: f64,
    /// For `separable`: the one dispatch and the two are other kernels, whose estimates may err differently.
    pub separable: f64,
    /// For `whole-groups`: one kernel against another, of which the fallback's estimate is the rougher one.
    pub whole_groups: f64,
    /// For `decoded`: kernels that read codes are estimated more roughly than others.
    pub decoded: f64,
    /// Among variants that cost no more than this times the cheapest, the one that stores least in between.
    pub close: f64,
    /// The shortest part of a sum: a shorter one costs less than its launch, and its sums more than themselves.
    pub shortest_part: f64,
    /// Fewest tiles of Winograd's: each is a row of the products, and fewer leave most of a workgroup idle while it reads
    /// filters that have grown.
    pub fewest_tiles: f64,
    /// Fewest channels on either side of Winograd's: with fewer the transforms are most of the work.
    pub fewest_channels: f64,
    /// More groups than this, joined, hold more zeros than the fallback kernel wastes.
    pub most_groups: f64,
}

impl Params {
    /// The target's; none where the profile lacks some, which loading a profile excludes.
    pub fn of(target: &TargetProfile) -> Option<Self> {
        typed(target.costs.get(GROUP)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Params;
    use crate::target::{TargetProfile, names};

    #[test]
    fn every_profile_has_the_parameters_and_no_others() {
        for name in names() {
            assert!(Params::of(&TargetProfile::load(name).unwrap()).is_some(), "{name}");
        }
    }
}
