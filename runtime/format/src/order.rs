//! Sorting of indices by keys. All callers use one instance of the sorting algorithm, which keeps programs that embed
//! the runtime small.

/// Returns the indices of the keys in ascending order of the keys. Equal keys keep their order.
pub fn sorted_indices(keys: impl Iterator<Item = (u64, u64)>) -> Vec<usize> {
    let mut keys: Vec<(u64, u64, usize)> = keys.enumerate().map(|(index, (a, b))| (a, b, index)).collect();
    keys.sort_unstable();
    keys.into_iter().map(|(_, _, index)| index).collect()
}

/// Returns the indices of the strings in an order that makes equal strings adjacent.
pub(crate) fn sorted_string_indices(strings: &[&str]) -> Vec<usize> {
    sorted_indices(strings.iter().map(|string| fingerprint(string.as_bytes())))
}

/// Returns the first 128 bits of the BLAKE3 hash of `bytes`. Equal bytes have equal fingerprints; collisions are
/// infeasible.
pub fn fingerprint(bytes: &[u8]) -> (u64, u64) {
    let hash = blake3::hash(bytes);
    let (words, _) = hash.as_bytes().as_chunks::<8>();
    let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
    (words.next().unwrap_or(0), words.next().unwrap_or(0))
}
