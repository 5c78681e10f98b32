//! Sorting, through one instance of the algorithm: a program that embeds the runtime should stay small.

/// The positions of the keys in ascending order; equal keys keep their order.
pub fn by_key(keys: impl Iterator<Item = (u64, u64)>) -> Vec<usize> {
    let mut keys: Vec<(u64, u64, usize)> = keys.enumerate().map(|(index, (a, b))| (a, b, index)).collect();
    keys.sort_unstable();
    keys.into_iter().map(|(_, _, index)| index).collect()
}

/// The positions of texts in an order that puts equal ones side by side.
pub(crate) fn by_text(texts: &[&str]) -> Vec<usize> {
    by_key(texts.iter().map(|text| fingerprint(text.as_bytes())))
}

/// 128 bits of a hash: equal where the bytes are, and for all that can be made to happen only then.
pub fn fingerprint(bytes: &[u8]) -> (u64, u64) {
    let hash = blake3::hash(bytes);
    let (words, _) = hash.as_bytes().as_chunks::<8>();
    let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
    (words.next().unwrap_or(0), words.next().unwrap_or(0))
}
