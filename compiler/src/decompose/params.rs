//! Parameters of decompositions: how much cheaper an alternative must be, and the smallest sizes for which it is tried.
//!
//! The values come from experience with estimates and devices, so they are data like the parameters of the cost model.

use serde::Deserialize;

use crate::target::TargetProfile;
use crate::target::costs::read_group;

/// Name of the parameter group of decompositions in the files of `targets/costs/`.
pub(crate) const GROUP: &str = "decompose";

/// Parameters of decompositions. An alternative replaces a node only if its estimated cost is below the node's cost
/// times the decomposition's `max_cost_ratio`, because estimates are not exact.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// `max_cost_ratio` of `split-k`. The node and the alternative use the same kernels, so their estimates err alike.
    pub split_k_max_cost_ratio: f64,
    /// `max_cost_ratio` of `winograd`. Estimates of convolutions and matmuls err differently, and transformed filters
    /// are larger.
    pub winograd_max_cost_ratio: f64,
    /// `max_cost_ratio` of `separable`. The node and the alternative use different kernels, whose estimates may err
    /// differently.
    pub separable_max_cost_ratio: f64,
    /// `max_cost_ratio` of `whole-groups`. The estimate of the fallback kernel, which computes the node, is less
    /// accurate than the estimate of the alternative.
    pub whole_groups_max_cost_ratio: f64,
    /// `max_cost_ratio` of `dequantize`. Estimates of kernels that read quantized weights are less accurate.
    pub dequantize_max_cost_ratio: f64,
    /// `max_cost_ratio` of `attention-matmuls`. The node and the alternative use different kernels, whose estimates may
    /// err differently.
    pub attention_matmuls_max_cost_ratio: f64,
    /// `max_cost_ratio` of `norm-of-sums`. The node and the alternative use the same kernels, so their estimates err alike.
    pub norm_of_sums_max_cost_ratio: f64,
    /// Maximum cost of merged matmuls of quantized rows and of the nodes that read them, as a fraction of the cost without
    /// the merge. The fusion step merges them; both sides use the same kernels, so their estimates err alike.
    pub merged_rows_max_cost_ratio: f64,
    /// Fraction of the shorter time that is added to the longer time if two dispatches run at the same time. 0 to 1.
    pub concurrent_cost_ratio: f64,
    /// Alternatives that cost up to this many times the cheapest one count as equally cheap; of these, the alternative
    /// with the least scratch memory wins.
    pub tie_cost_ratio: f64,
    /// Minimum K of one split of `split-k`. A shorter split takes less time than its launch and the addition of its
    /// partial sums.
    pub min_k_split: f64,
    /// Minimum number of Winograd tiles. Each tile is a row of the matmuls; with few rows, most of a workgroup idles
    /// while it reads the larger filters.
    pub min_winograd_tiles: f64,
    /// Minimum number of input and output channels for Winograd. With fewer channels, the transforms are most of the
    /// work.
    pub min_winograd_channels: f64,
    /// Maximum number of convolution groups that `whole-groups` joins into one. Joined filters are padded with zeros;
    /// with more groups, multiplying by the zeros costs more than the fallback kernel.
    pub max_joined_groups: f64,
    /// Minimum head size of queries for `attention-matmuls`. The kernels of attention are fast for smaller heads.
    pub min_attention_matmuls_head_size: f64,
}

impl Params {
    /// Returns the target's parameters of decompositions. Returns `None` if some are missing; loading a profile rejects
    /// such a file.
    pub fn from_target(target: &TargetProfile) -> Option<Self> {
        read_group(&target.costs, GROUP)
    }
}

#[cfg(test)]
mod tests {
    use super::Params;
    use crate::target::{TargetProfile, names};

    #[test]
    fn every_profile_has_the_parameters_and_no_others() {
        for name in names() {
            assert!(Params::from_target(&TargetProfile::load(name).unwrap()).is_some(), "{name}");
        }
    }
}
