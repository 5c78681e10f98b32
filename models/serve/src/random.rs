//! Random numbers for ids and seeds, from the standard library's source of hash keys. They are not secret.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns a random number.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns a random id with this prefix, such as `chatcmpl-4f...`.
pub(crate) fn random_id(prefix: &str) -> String {
    format!("{prefix}-{:016x}{:016x}", random(), random())
}
