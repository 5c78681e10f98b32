//! Driver faults that profiles name, and the compiler's workarounds.
//!
//! The compiler does not know driver versions, so it works around a fault whatever versions have it.

use serde::{Deserialize, Serialize};

/// A driver fault, by its name in profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the table below describes each fault")]
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

/// Each fault with its name and the compiler's workaround.
pub const FAULTS: &[(Fault, &str, &str)] = &[
    (
        Fault::SubgroupsNeedLinearWorkgroups,
        "subgroups-need-linear-workgroups",
        "kernels with subgroup operations have workgroups along x only; other launches are refused",
    ),
    (
        Fault::SubgroupsNeedRequiredSize,
        "subgroups-need-required-size",
        "pipelines with subgroup operations require a subgroup size; a kernel that does not set one is refused",
    ),
    (Fault::CooperativeMatrixSlow, "cooperative-matrix-slow", "no kernel uses matrix units"),
    (
        Fault::LargeMatrixTilesSlow,
        "large-matrix-tiles-slow",
        "workgroups on matrix units compute at most 64 x 64 elements",
    ),
    (Fault::ConstantBufferSync, "constant-buffer-sync", "filters are not stored in uniform buffers"),
    (
        Fault::FragilePipelineCreation,
        "fragile-pipeline-creation",
        "candidates with short shaders are preferred, up to four times the cost of others",
    ),
    (
        Fault::SubgroupBarriersWaitForWorkgroup,
        "subgroup-barriers-wait-for-workgroup",
        "barriers are in uniform control flow of the workgroup: all subgroups take such a branch, or none",
    ),
    (
        Fault::ByteFragmentsFromMemoryWrong,
        "byte-fragments-from-memory-wrong",
        "8-bit matrix fragments are loaded from workgroup memory, never directly from a buffer",
    ),
];

impl Fault {
    /// Name in profiles.
    pub fn name(self) -> &'static str {
        FAULTS.iter().find(|(fault, ..)| *fault == self).map_or("", |(_, name, _)| name)
    }
}
