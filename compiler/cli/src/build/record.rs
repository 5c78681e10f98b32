//! Record of a finished bundle: its hash, and the figures of the report.

use driftc::target::TargetProfile;
use serde::{Deserialize, Serialize};

/// Bundle of an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// Key of the action.
    pub(crate) key: String,
    /// BLAKE3 hash of the file, in hexadecimal digits.
    pub(crate) bundle: String,
    /// Size of the file.
    pub(crate) bytes: u64,
    pub(crate) targets: Vec<TargetRecord>,
    /// Notes of the compiler for the user.
    pub(crate) notes: Vec<String>,
}

/// Figures of a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TargetRecord {
    pub(crate) target: String,
    /// Bytes of intermediate tensors at the largest sizes.
    pub(crate) memory: u64,
    /// Functions without specializations.
    pub(crate) functions: Vec<FunctionRecord>,
}

/// Figures of a function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FunctionRecord {
    pub(crate) name: String,
    /// Estimated time of a run at the largest sizes, in nanoseconds. An integer, because JSON may round others.
    pub(crate) estimated_ns: u64,
}

impl Record {
    /// True if the record is about the bundle of a key for these targets. A record from a cache may be about anything.
    pub(crate) fn fits(&self, key: &str, targets: &[TargetProfile]) -> bool {
        self.key == key
            && is_hash(&self.bundle)
            && self.targets.iter().map(|t| &t.target).eq(targets.iter().map(|t| &t.name))
    }
}

/// True if the text is a BLAKE3 hash in hexadecimal digits.
pub(crate) fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}
