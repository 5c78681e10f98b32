//! What a build knows about a finished bundle: its hash, and the figures of the report.

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
    /// Estimated time of a run at the largest sizes, in nanoseconds with one decimal place.
    pub(crate) estimated_ns: f64,
}

impl FunctionRecord {
    /// Makes the figures of a function. The time is rounded, because the JSON parser may change the last digit of a number
    /// with 17 digits. A bundle from a cache must have the same figures as a new bundle.
    pub(crate) fn new(name: &str, ns: f64) -> Self {
        Self { name: name.to_owned(), estimated_ns: (ns * 10.0).round() / 10.0 }
    }
}

impl Record {
    /// True if the record is about the bundle of a key for these targets. A record from a cache may be about anything.
    pub(crate) fn fits(&self, key: &str, targets: &[TargetProfile]) -> bool {
        self.key == key
            && is_hash(&self.bundle)
            && self.targets.iter().map(|t| &t.target).eq(targets.iter().map(|t| &t.name))
            && self.targets.iter().flat_map(|t| &t.functions).all(|f| f.estimated_ns.is_finite())
    }
}

/// True if the text is a BLAKE3 hash in hexadecimal digits.
pub(crate) fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::FunctionRecord;

    #[test]
    fn figures_stay_equal_in_a_cache() {
        for ns in [500_366.037_774_220_1, 123_505.997_500_168_07, 415_563.899_999_999_97, 0.04, 9.5e11] {
            let record = FunctionRecord::new("main", ns);
            let text = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<FunctionRecord>(&text).unwrap(), record);
            assert!((record.estimated_ns - ns).abs() <= 0.051);
        }
    }
}
