//! Faults of drivers that profiles name, and what the compiler does about each.
//!
//! The compiler knows no driver's version, so a fault of any version counts.

use serde::{Deserialize, Serialize};

/// A fault, by its name in profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the table has a sentence for each")]
pub enum Fault {
    SubgroupsNeedLinearWorkgroups,
    SubgroupsNeedRequiredSize,
    CooperativeMatrixSlow,
    LargeMatrixTilesSlow,
    ConstantBufferSync,
    FragilePipelineCreation,
    SubgroupBarriersWaitForWorkgroup,
    ByteFragmentsFromMemoryWrong,
}

/// Every fault with its name and what the compiler does about it.
pub const FAULTS: &[(Fault, &str, &str)] = &[
    (
        Fault::SubgroupsNeedLinearWorkgroups,
        "subgroups-need-linear-workgroups",
        "kernels whose invocations work together in subgroups have workgroups along x alone; another is refused",
    ),
    (
        Fault::SubgroupsNeedRequiredSize,
        "subgroups-need-required-size",
        "pipelines of such kernels ask for their subgroup size; a kernel that does not is refused",
    ),
    (Fault::CooperativeMatrixSlow, "cooperative-matrix-slow", "no kernel uses matrix units"),
    (
        Fault::LargeMatrixTilesSlow,
        "large-matrix-tiles-slow",
        "workgroups on matrix units compute 64 x 64 elements at most",
    ),
    (Fault::ConstantBufferSync, "constant-buffer-sync", "filters do not lie in uniform buffers"),
    (
        Fault::FragilePipelineCreation,
        "fragile-pipeline-creation",
        "candidates with short shaders come before those with long ones, up to four times their cost",
    ),
    (
        Fault::SubgroupBarriersWaitForWorkgroup,
        "subgroup-barriers-wait-for-workgroup",
        "all subgroups of a workgroup take branches with barriers, or none does",
    ),
    (
        Fault::ByteFragmentsFromMemoryWrong,
        "byte-fragments-from-memory-wrong",
        "fragments of matrices of 8 bits come through workgroup memory, never straight from a buffer",
    ),
];

impl Fault {
    /// The name in profiles.
    pub fn name(self) -> &'static str {
        FAULTS.iter().find(|(fault, ..)| *fault == self).map_or("", |(_, name, _)| name)
    }
}
