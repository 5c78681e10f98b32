//! Driver faults that profiles name, and the compiler's workarounds.
//!
//! The compiler does not know driver versions, so it works around a fault for every driver version.

use serde::{Deserialize, Serialize};

/// A known driver fault. A profile lists faults by name.
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

/// Each driver fault with its name and the compiler's workaround.
pub const FAULTS: &[(Fault, &str, &str)] = &[
    (
        Fault::SubgroupsNeedLinearWorkgroups,
        "subgroups-need-linear-workgroups",
        "a launch with subgroup operations is refused if its workgroup is larger than 1 along y or z",
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
        "a workgroup that uses matrix units computes at most 64 x 64 elements of the result",
    ),
    (
        Fault::ConstantBufferSync,
        "constant-buffer-sync",
        "convolution filters are placed in storage buffers, never in uniform buffers",
    ),
    (
        Fault::FragilePipelineCreation,
        "fragile-pipeline-creation",
        "a candidate with short shaders is preferred if it costs at most four times the cheapest candidate",
    ),
    (
        Fault::SubgroupBarriersWaitForWorkgroup,
        "subgroup-barriers-wait-for-workgroup",
        "a branch around a barrier is uniform in the workgroup: all subgroups take it, or none",
    ),
    (
        Fault::ByteFragmentsFromMemoryWrong,
        "byte-fragments-from-memory-wrong",
        "8-bit matrix fragments are loaded from workgroup memory, never directly from a buffer",
    ),
];

impl Fault {
    /// Name of the driver fault in profiles.
    pub fn name(self) -> &'static str {
        FAULTS.iter().find(|(fault, ..)| *fault == self).map_or("", |(_, name, _)| name)
    }
}
