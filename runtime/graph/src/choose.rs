//! A choice of in-edges or path instances of a vertex, the same in every run.

use std::collections::BTreeSet;

/// `kept` of the numbers below `all`, uniformly and without replacement (Floyd's algorithm, Bentley & Floyd 1987). Their
/// key is the vertex.
pub fn choose(vertex: u32, all: u64, kept: u64) -> BTreeSet<u64> {
    let key = split_mix(vertex.into());
    let mut chosen = BTreeSet::new();
    for last in all - kept..all {
        let bits = split_mix(key.wrapping_add(last - (all - kept)));
        let number = ((u128::from(bits) * (u128::from(last) + 1)) >> 64) as u64;
        if !chosen.insert(number) {
            chosen.insert(last);
        }
    }
    chosen
}

/// The SplitMix64 finaliser (Steele et al. 2014).
fn split_mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
