//! Counter-based random numbers: a mask element is a pure function of its key and index, independent
//! of threads and order.
//!
//! The generator is two rounds of a 32-bit finaliser with full avalanche (the constants of
//! "lowbias32", C. Wellons), keyed by 64 bits: enough for dropout, cheap enough to recompute in the
//! backward pass, and the same few 32-bit instructions on a CPU and on a GPU.

use crate::types::VertexType;

/// The key of one mask in one training step.
pub fn mask_key(seed: u64, step: u64, stream: u32) -> u64 {
    split_mix(split_mix(split_mix(seed).wrapping_add(step)).wrapping_add(u64::from(stream)))
}

/// 32 random bits for element `index` under `key`.
#[inline(always)]
pub fn bits(key: u64, index: u64) -> u32 {
    bits_from(low_round(key, index as u32), key, (index >> 32) as u32)
}

/// The first round of [`bits`]. It depends on the low half of the index only, so loops over the high half hoist it.
#[inline(always)]
pub fn low_round(key: u64, low: u32) -> u32 {
    mix(low ^ key as u32)
}

/// `bits(key, high << 32 | low)`, given `first = low_round(key, low)`.
#[inline(always)]
pub fn bits_from(first: u32, key: u64, high: u32) -> u32 {
    second_round(first, high_offset(key, high))
}

/// The number that [`second_round`] adds for the high half of the index. Depends on the high half only, so loops over
/// the low half hoist it.
#[inline(always)]
pub fn high_offset(key: u64, high: u32) -> u32 {
    ((key >> 32) as u32).wrapping_add(high.wrapping_mul(0x9e37_79b9))
}

/// The second round of [`bits`], given the result of [`low_round`] and the [`high_offset`] of the index.
#[inline(always)]
pub fn second_round(first: u32, offset: u32) -> u32 {
    mix(first.wrapping_add(offset))
}

/// The threshold below which [`bits`] keep an element.
pub fn keep_threshold(rate: f64) -> u32 {
    ((1.0 - rate) * 4_294_967_296.0).min(4_294_967_295.0) as u32
}

/// The scale of kept elements, `1 / (1 - rate)`.
pub fn keep_scale(rate: f64) -> f64 {
    1.0 / (1.0 - rate)
}

/// One element of the dropout mask: [`keep_scale`] if kept, else 0.
pub fn mask_element(key: u64, index: u64, rate: f64) -> f64 {
    if rate <= 0.0 || bits(key, index) < keep_threshold(rate) { keep_scale(rate) } else { 0.0 }
}

/// The sources of the in-edges of shuffled vertices in one training step, ascending for each vertex: those of so many
/// independent permutations. `[count * permutations]`
pub fn shuffled_sources((seed, step): (u64, u64), vertex: VertexType, count: usize, permutations: u32) -> Vec<u32> {
    let key = |number: u32| split_mix(mask_key(seed, step, vertex.0) ^ split_mix(u64::from(number)));
    if permutations == 1 {
        return permutation(key(0), count);
    }
    let width = permutations as usize;
    let mut sources = vec![0; count * width];
    for number in 0..permutations {
        for (at, source) in permutation(key(number), count).into_iter().enumerate() {
            sources[at * width + number as usize] = source;
        }
    }
    sources.chunks_exact_mut(width).for_each(<[u32]>::sort_unstable);
    sources
}

/// A permutation of `0..count`, each as probable as any other (Fisher & Yates 1938, from the end): a function of the key.
pub fn permutation(key: u64, count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    for last in (1..count).rev() {
        let other = (uniform(key, last as u64) * (last + 1) as f64) as usize;
        order.swap(last, other.min(last));
    }
    order
}

/// A uniform number in [0, 1) with 53 random bits, for initialisation.
#[inline(always)]
pub fn uniform(key: u64, index: u64) -> f64 {
    let word = split_mix(key ^ split_mix(index));
    (word >> 11) as f64 / (1u64 << 53) as f64
}

/// A standard normal number (Box–Muller), for initialisation.
pub fn normal(key: u64, index: u64) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(key, 2 * index)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(key, 2 * index + 1)).cos()
}

/// The SplitMix64 finaliser (Steele et al. 2014).
#[inline(always)]
fn split_mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[inline(always)]
fn mix(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x7feb_352d);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}
