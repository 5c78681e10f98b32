//! Sorting through one instance of the algorithm, which keeps programs that embed the runtime small.

/// Indices of the keys in ascending key order. Equal keys keep their order.
pub fn sorted_indices(keys: impl Iterator<Item = (u64, u64)>) -> Vec<usize> {
    let mut keys: Vec<(u64, u64, usize)> = keys.enumerate().map(|(index, (a, b))| (a, b, index)).collect();
    keys.sort_unstable();
    keys.into_iter().map(|(_, _, index)| index).collect()
}

/// Indices of the strings in an order that makes equal strings adjacent.
pub(crate) fn sorted_string_indices(strings: &[&str]) -> Vec<usize> {
    sorted_indices(strings.iter().map(|string| fingerprint(string.as_bytes())))
}

/// The first 128 bits of a BLAKE3 hash. Equal bytes have equal fingerprints; collisions are infeasible.
pub fn fingerprint(bytes: &[u8]) -> (u64, u64) {
    let hash = blake3::hash(bytes);
    let (words, _) = hash.as_bytes().as_chunks::<8>();
    let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
    (words.next().unwrap_or(0), words.next().unwrap_or(0))
}
