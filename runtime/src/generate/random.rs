//! Random numbers determined by a seed, equal on every machine: SplitMix64.

/// Returns the random number with this index in the sequence of a seed: at least 0 and below 1.
pub(super) fn uniform(seed: u64, index: usize) -> f32 {
    let state = seed.wrapping_add((index as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    // An f32 represents 24 bits exactly.
    ((mixed ^ (mixed >> 31)) >> 40) as f32 / (1u32 << 24) as f32
}

#[cfg(test)]
mod tests {
    use super::uniform;

    #[test]
    fn the_sequence_is_the_published_one() {
        let expected = [6_457_827_717_110_365_317u64, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        for (index, value) in expected.into_iter().enumerate() {
            assert_eq!(uniform(1_234_567, index), (value >> 40) as f32 / (1u32 << 24) as f32);
        }
    }

    #[test]
    fn numbers_are_uniform() {
        let mut counts = [0usize; 10];
        for index in 0..10_000 {
            counts[(uniform(0, index) * 10.0) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
