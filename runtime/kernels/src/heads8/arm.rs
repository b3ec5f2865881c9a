//! NEON. A band is eight heads: 64 elements, which are 16 vectors of four, half of the registers.

use std::arch::aarch64::*;

use bytemuck::must_cast;

use super::super::Rows;

#[target_feature(enable = "neon")]
pub(super) fn weighted_sum(a: Rows<'_>, x: Rows<'_>, heads: usize, offsets: &[u32], out: &mut [f32]) {
    with_rows!(weighted_rows, a: heads, x: heads * 8, heads, offsets, out);
}

#[inline]
#[target_feature(enable = "neon")]
fn weighted_rows<'a>(
    weights: impl Fn(usize) -> &'a [f32],
    values: impl Fn(usize) -> &'a [f32],
    heads: usize,
    offsets: &[u32],
    out: &mut [f32],
) {
    for (row, edges) in out.chunks_exact_mut(heads * 8).zip(offsets.windows(2)) {
        for (band, out) in row.as_chunks_mut::<64>().0.iter_mut().enumerate() {
            let mut sums = [vdupq_n_f32(0.0); 16];
            for e in edges[0] as usize..edges[1] as usize {
                let weights = &weights(e).as_chunks::<8>().0[band];
                let values = &values(e).as_chunks::<64>().0[band];
                let [low, high]: [float32x4_t; 2] = must_cast(*weights);
                let values = values.as_chunks::<4>().0;
                // The head's lane is an immediate of the instruction.
                macro_rules! add {
                    ($($head:literal: $four:ident[$lane:literal]),*) => {$(
                        for v in [2 * $head, 2 * $head + 1] {
                            sums[v] = vfmaq_laneq_f32::<$lane>(sums[v], must_cast(values[v]), $four);
                        }
                    )*};
                }
                add!(0: low[0], 1: low[1], 2: low[2], 3: low[3], 4: high[0], 5: high[1], 6: high[2], 7: high[3]);
            }
            for (out, sum) in out.as_chunks_mut::<4>().0.iter_mut().zip(sums) {
                *out = must_cast(vaddq_f32(must_cast(*out), sum));
            }
        }
    }
}

#[target_feature(enable = "neon")]
pub(super) fn dot(a: Rows<'_>, b: Rows<'_>, heads: usize, out: &mut [f32]) {
    with_rows!(dot_rows, a: heads * 8, b: heads * 8, heads, out);
}

#[inline]
#[target_feature(enable = "neon")]
fn dot_rows<'a>(a: impl Fn(usize) -> &'a [f32], b: impl Fn(usize) -> &'a [f32], heads: usize, out: &mut [f32]) {
    for (row, out) in out.chunks_exact_mut(heads).enumerate() {
        let (a, b) = (a(row).as_chunks::<64>().0, b(row).as_chunks::<64>().0);
        for ((out, a), b) in out.as_chunks_mut::<8>().0.iter_mut().zip(a).zip(b) {
            let (a, b) = (a.as_chunks::<4>().0, b.as_chunks::<4>().0);
            let product = |v: usize| vmulq_f32(must_cast(a[v]), must_cast(b[v]));
            // Sum of both halves of a head's products.
            let products = |h: usize| vfmaq_f32(product(2 * h), must_cast(a[2 * h + 1]), must_cast(b[2 * h + 1]));
            for (four, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let pairs = |h: usize| vpaddq_f32(products(4 * four + h), products(4 * four + h + 1));
                *out = must_cast(vpaddq_f32(pairs(0), pairs(2)));
            }
        }
    }
}
