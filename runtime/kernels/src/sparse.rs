//! SpMM kernels with one weight per edge: a sparse matrix, or its transpose, times a dense one. Each is tested against
//! a portable version in [`super::segment`].
//!
//! Bound by L2 bandwidth: the gathered rows come from the L2 cache (a weight of 1902 x 64 has 0.5 MB), one vector per
//! load. A row of 64 takes about 1.6 ns on a core of 2.6 GHz, the same as a loop that only sums the rows. Gathering the
//! weights as well costs half as much again, so a matrix with equal elements is bound as one scalar (see
//! `plan::region`).

#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use bytemuck::must_cast;

use super::Rows;
use crate::simd::{Dispatch, versions};

/// `out[r, k] += Σ a[e] · x[e, k]` for gathered rows of eight, or at least 16 elements. Returns false if unsupported.
pub fn weighted_sum(
    dispatch: Dispatch,
    a: Rows<'_>,
    x: Rows<'_>,
    width: usize,
    offsets: &[u32],
    out: &mut [f32],
) -> bool {
    let Rows::Picked(x, index) = x else { return false };
    if width != 8 && width < 16 {
        return false;
    }
    versions!(dispatch, (a, x, index, width, offsets, out), {
        Avx512 => weighted_512,
        _ => return false,
    });
    true
}

#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
fn weighted_512(a: Rows<'_>, x: &[f32], index: &[u32], width: usize, offsets: &[u32], out: &mut [f32]) {
    let edges = offsets.last().map_or(0, |&last| last as usize);
    let index = &index[..edges];
    match a {
        Rows::Same(a) => {
            let a = a[0];
            sums(|_| a, x, index, width, offsets, out);
        }
        Rows::Each(a) => {
            let a = &a[..edges];
            sums(|e| a[e], x, index, width, offsets, out);
        }
        Rows::Picked(a, position) => {
            let position = &position[..edges];
            sums(|e| a[position[e] as usize], x, index, width, offsets, out);
        }
    }
}

/// Rows of `width` elements, gathered.
#[derive(Clone, Copy)]
struct Gathered<'a> {
    x: &'a [f32],
    index: &'a [u32],
    width: usize,
    rows: usize,
}

impl<'a> Gathered<'a> {
    fn new(x: &'a [f32], index: &'a [u32], width: usize) -> Self {
        Self { x, index, width, rows: x.len() / width }
    }

    /// `N` vectors of elements from `column` on of the row of an edge.
    ///
    /// # Safety
    /// The edge is a position in the index, and a row has `column + N · LEN` elements.
    #[inline(always)]
    unsafe fn at<const N: usize, const LEN: usize>(&self, edge: usize, column: usize) -> &'a [[f32; LEN]; N] {
        // SAFETY: the edge is a position in the index.
        let row = unsafe { *self.index.get_unchecked(edge) } as usize;
        // For each edge, which costs nothing while the loop waits for rows.
        assert!(row < self.rows, "gathered rows exist");
        // SAFETY: the row exists, and by the caller's promise it holds the elements.
        unsafe { &*self.x.as_ptr().add(row * self.width + column).cast() }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
fn sums(a: impl Fn(usize) -> f32, x: &[f32], index: &[u32], width: usize, offsets: &[u32], out: &mut [f32]) {
    let x = Gathered::new(x, index, width);
    assert!(offsets.is_sorted() && out.len() >= offsets.len().saturating_sub(1) * width, "each row has its edges");
    if width == 8 {
        return heads8(a, x, offsets, out);
    }
    for (row, edges) in out.chunks_exact_mut(width).zip(offsets.windows(2)) {
        let edges = edges[0] as usize..edges[1] as usize;
        let mut start = 0;
        while width - start >= 64 {
            band::<4, 1>(&a, x, edges.clone(), start, ALL, row);
            start += 64;
        }
        if width - start >= 32 {
            band::<2, 2>(&a, x, edges.clone(), start, ALL, row);
            start += 32;
        }
        // One call, since it is not inlined into several. The last vector has the last elements of the row, of which the
        // first ones may be summed already.
        while start < width {
            let column = start.min(width - 16);
            band::<1, 4>(&a, x, edges.clone(), column, ALL << (start - column), row);
            start = column + 16;
        }
    }
}

/// All elements of a vector.
const ALL: __mmask16 = !0;

/// `N` vectors from column `start` of one row, with `U` accumulators each, enough to hide the latency of an addition. Of
/// each vector, `elements` are added to the row.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
fn band<const N: usize, const U: usize>(
    a: &impl Fn(usize) -> f32,
    x: Gathered<'_>,
    edges: Range<usize>,
    start: usize,
    elements: __mmask16,
    row: &mut [f32],
) {
    // Once per row, so that nothing is checked per edge.
    assert!(edges.start <= edges.end && edges.end <= x.index.len() && start + 16 * N <= x.width);
    let mut sums = [[_mm512_setzero_ps(); N]; U];
    let add = |e: usize, sums: &mut [__m512; N]| {
        let weight = _mm512_set1_ps(a(e));
        // SAFETY: `e` is one of the edges, and a row has the columns, by the assertion.
        let x = unsafe { x.at::<N, 16>(e, start) };
        for (x, sum) in x.iter().zip(sums) {
            *sum = _mm512_fmadd_ps(weight, must_cast(*x), *sum);
        }
    };
    let whole = edges.start + edges.len() / U * U;
    for e in (edges.start..whole).step_by(U) {
        for (u, sums) in sums.iter_mut().enumerate() {
            add(e + u, sums);
        }
    }
    for (sums, e) in sums.iter_mut().zip(whole..edges.end) {
        add(e, sums);
    }
    for (v, out) in row[start..].as_chunks_mut::<16>().0.iter_mut().take(N).enumerate() {
        let sum = sums[1..].iter().fold(sums[0][v], |all, more| _mm512_add_ps(all, more[v]));
        *out = must_cast(_mm512_mask_add_ps(must_cast(*out), elements, must_cast(*out), sum));
    }
}

/// Rows of eight: one edge per vector, with four accumulators to hide the latency of an addition.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
fn heads8(a: impl Fn(usize) -> f32, x: Gathered<'_>, offsets: &[u32], out: &mut [f32]) {
    assert!(x.width == 8);
    let add = |e: usize, sum: __m256| {
        // SAFETY: `e` is one of the edges, by the assertion below, and rows have eight elements.
        let [x] = unsafe { x.at::<1, 8>(e, 0) };
        _mm256_fmadd_ps(_mm256_set1_ps(a(e)), must_cast(*x), sum)
    };
    for (row, edges) in out.as_chunks_mut::<8>().0.iter_mut().zip(offsets.windows(2)) {
        let (start, end) = (edges[0] as usize, edges[1] as usize);
        // Once per row, so that nothing is checked per edge.
        assert!(start <= end && end <= x.index.len());
        let mut sums = [_mm256_setzero_ps(); 4];
        let whole = start + (end - start) / 4 * 4;
        for e in (start..whole).step_by(4) {
            for (u, sum) in sums.iter_mut().enumerate() {
                *sum = add(e + u, *sum);
            }
        }
        for (sum, e) in sums.iter_mut().zip(whole..end) {
            *sum = add(e, *sum);
        }
        let sum = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
        *row = must_cast(_mm256_add_ps(must_cast(*row), sum));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment;
    use crate::simd::Level;

    #[test]
    fn sums_are_those_of_the_portable_kernel() {
        const ROWS: usize = 23;
        let widest = Dispatch::default();
        let numbers = |seed: u64, len: usize| -> Vec<f32> {
            (0..len as u64).map(|i| hgnnc_ir::random::uniform(seed, i) as f32 - 0.5).collect()
        };
        // Rows without edges, with one, with a few, and with many.
        let offsets = [0u32, 0, 1, 3, 6, 10, 10, 61, 63];
        let index: Vec<u32> = (0..63).map(|e| (e * 7) % ROWS as u32).collect();
        let position: Vec<u32> = (0..63).rev().collect();
        let a = numbers(1, 63);
        for width in [8, 16, 17, 31, 32, 48, 50, 64, 65, 100, 112, 128] {
            let x = numbers(2, ROWS * width);
            let start = numbers(3, (offsets.len() - 1) * width);
            for weights in [Rows::Each(&a), Rows::Same(&a), Rows::Picked(&a, &position)] {
                let (mut expected, mut found) = (start.clone(), start.clone());
                segment::weighted_portable(
                    widest,
                    weights,
                    Rows::Picked(&x, &index),
                    1,
                    width,
                    &offsets,
                    &mut expected,
                );
                let has = weighted_sum(widest, weights, Rows::Picked(&x, &index), width, &offsets, &mut found);
                assert_eq!(has, widest.level() == Level::Avx512);
                if !has {
                    continue;
                }
                for (i, (f, e)) in found.iter().zip(&expected).enumerate() {
                    assert!((f - e).abs() <= 2e-6 * e.abs().max(1.0), "width {width}, element {i}: {f} instead of {e}");
                }
            }
        }
    }
}
