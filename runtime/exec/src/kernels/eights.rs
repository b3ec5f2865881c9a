//! Products of rows in groups of eight with one number per group: attention of eight elements per head. Compilers
//! make poor vectors of them, so they are written in instructions here. Each has a portable version in
//! [`super::rows`] and [`super::segment`], which it is tested against.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::Rows;
use crate::simd::{Level, level};

/// Calls `$f` with what gives row `$e` of both operands: the usual kinds of operands without a branch per row.
macro_rules! with_rows {
    ($f:ident, $a:ident: $wa:expr, $x:ident: $wx:expr, $($rest:expr),*) => {{
        let (wa, wx) = ($wa, $wx);
        match ($a, $x) {
            (Rows::Each(a), Rows::Picked(x, index)) => $f(
                |e| &a[e * wa..e * wa + wa],
                |e| {
                    let at = index[e] as usize * wx;
                    &x[at..at + wx]
                },
                $($rest),*
            ),
            (Rows::Same(a), Rows::Picked(x, index)) => {
                let a = &a[..wa];
                $f(
                    |_| a,
                    |e| {
                        let at = index[e] as usize * wx;
                        &x[at..at + wx]
                    },
                    $($rest),*
                )
            }
            _ => $f(|e| $a.row(e, wa), |e| $x.row(e, wx), $($rest),*),
        }
    }};
}

/// `out[r, h, k] += Σ a[e, h] · x[e, h, k]` for groups of eight `k` and a multiple of eight `h`. False: not done.
pub fn weighted_sum(a: Rows<'_>, x: Rows<'_>, heads: usize, offsets: &[u32], out: &mut [f32]) -> bool {
    if heads == 0 || !heads.is_multiple_of(8) {
        return false;
    }
    match level() {
        // SAFETY: `level` reports a level only where the processor has its instructions.
        Level::Avx512 => unsafe { weighted_sum_512(a, x, heads, offsets, out) },
        // SAFETY: as above.
        Level::Avx2 => unsafe { weighted_sum_256(a, x, heads, offsets, out) },
        Level::Base => return false,
    }
    true
}

/// `out[r, h, k] += Σ a[e, h] · x[e, h, k]` for groups of `inner` elements, a multiple of 16. False: not done.
pub fn weighted_sum_wide(
    a: Rows<'_>,
    x: Rows<'_>,
    heads: usize,
    inner: usize,
    offsets: &[u32],
    out: &mut [f32],
) -> bool {
    if heads == 0 || inner == 0 || !inner.is_multiple_of(16) {
        return false;
    }
    match level() {
        // SAFETY: `level` reports a level only where the processor has its instructions.
        Level::Avx512 => unsafe { weighted_wide_512(a, x, heads, inner, offsets, out) },
        Level::Avx2 | Level::Base => return false,
    }
    true
}

/// `out[i, h] = Σ a[i, h, k] · b[i, h, k]` for groups of eight `k` and a multiple of eight `h`. False: not done.
pub fn dot(a: Rows<'_>, b: Rows<'_>, heads: usize, out: &mut [f32]) -> bool {
    if heads == 0 || !heads.is_multiple_of(8) {
        return false;
    }
    // The operand that is gathered comes second.
    let (a, b) = if let Rows::Picked(..) = a { (b, a) } else { (a, b) };
    match level() {
        // SAFETY: `level` reports a level only where the processor has its instructions.
        Level::Avx512 => unsafe { dot_512(a, b, heads, out) },
        // SAFETY: as above.
        Level::Avx2 => unsafe { dot_256(a, b, heads, out) },
        Level::Base => return false,
    }
    true
}

#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
fn weighted_sum_512(a: Rows<'_>, x: Rows<'_>, heads: usize, offsets: &[u32], out: &mut [f32]) {
    with_rows!(weighted_rows_512, a: heads, x: heads * 8, heads, offsets, out);
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
fn weighted_rows_512<'a>(
    weights: impl Fn(usize) -> &'a [f32],
    values: impl Fn(usize) -> &'a [f32],
    heads: usize,
    offsets: &[u32],
    out: &mut [f32],
) {
    // Lanes of the weights that the four vectors of a band of eight heads need.
    let pick = |first: i32| {
        let (f, s) = (first, first + 1);
        _mm512_setr_epi32(f, f, f, f, f, f, f, f, s, s, s, s, s, s, s, s)
    };
    let picks = [pick(0), pick(2), pick(4), pick(6)];
    for (row, edges) in out.chunks_exact_mut(heads * 8).zip(offsets.windows(2)) {
        for (band, out) in row.as_chunks_mut::<64>().0.iter_mut().enumerate() {
            let mut sums = [_mm512_setzero_ps(); 4];
            for e in edges[0] as usize..edges[1] as usize {
                let weights = &weights(e).as_chunks::<8>().0[band];
                let values = &values(e).as_chunks::<64>().0[band];
                // SAFETY: eight weights and 64 values, of arrays of that length.
                unsafe {
                    let weights = _mm512_castps256_ps512(_mm256_loadu_ps(weights.as_ptr()));
                    for v in 0..4 {
                        let x = _mm512_loadu_ps(values.as_ptr().add(16 * v));
                        sums[v] = _mm512_fmadd_ps(_mm512_permutexvar_ps(picks[v], weights), x, sums[v]);
                    }
                }
            }
            for (v, sum) in sums.into_iter().enumerate() {
                // SAFETY: within the 64 results.
                unsafe {
                    let at = out.as_mut_ptr().add(16 * v);
                    _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), sum));
                }
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
fn weighted_wide_512(a: Rows<'_>, x: Rows<'_>, heads: usize, inner: usize, offsets: &[u32], out: &mut [f32]) {
    with_rows!(weighted_wide_rows_512, a: heads, x: heads * inner, heads, inner, offsets, out);
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
fn weighted_wide_rows_512<'a>(
    weights: impl Fn(usize) -> &'a [f32],
    values: impl Fn(usize) -> &'a [f32],
    heads: usize,
    inner: usize,
    offsets: &[u32],
    out: &mut [f32],
) {
    for (row, edges) in out.chunks_exact_mut(heads * inner).zip(offsets.windows(2)) {
        let edges = edges[0] as usize..edges[1] as usize;
        for (head, row) in row.chunks_exact_mut(inner).enumerate() {
            let mut start = head * inner;
            let (wide, rest) = row.as_chunks_mut::<64>();
            for out in wide {
                let mut sums = [_mm512_setzero_ps(); 4];
                for e in edges.clone() {
                    let weight = _mm512_set1_ps(weights(e)[head]);
                    let values = values(e)[start..].first_chunk::<64>().expect("a row holds all bands");
                    for (v, sum) in sums.iter_mut().enumerate() {
                        // SAFETY: within 64 elements.
                        let x = unsafe { _mm512_loadu_ps(values.as_ptr().add(16 * v)) };
                        *sum = _mm512_fmadd_ps(weight, x, *sum);
                    }
                }
                for (v, sum) in sums.into_iter().enumerate() {
                    // SAFETY: within the 64 results.
                    unsafe {
                        let at = out.as_mut_ptr().add(16 * v);
                        _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), sum));
                    }
                }
                start += 64;
            }
            for out in rest.as_chunks_mut::<16>().0 {
                let mut sum = _mm512_setzero_ps();
                for e in edges.clone() {
                    let values = values(e)[start..].first_chunk::<16>().expect("a row holds all bands");
                    // SAFETY: 16 elements.
                    let x = unsafe { _mm512_loadu_ps(values.as_ptr()) };
                    sum = _mm512_fmadd_ps(_mm512_set1_ps(weights(e)[head]), x, sum);
                }
                // SAFETY: the 16 results.
                unsafe {
                    let at = out.as_mut_ptr();
                    _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), sum));
                }
                start += 16;
            }
        }
    }
}

#[target_feature(enable = "avx2,fma")]
fn weighted_sum_256(a: Rows<'_>, x: Rows<'_>, heads: usize, offsets: &[u32], out: &mut [f32]) {
    with_rows!(weighted_rows_256, a: heads, x: heads * 8, heads, offsets, out);
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn weighted_rows_256<'a>(
    weights: impl Fn(usize) -> &'a [f32],
    values: impl Fn(usize) -> &'a [f32],
    heads: usize,
    offsets: &[u32],
    out: &mut [f32],
) {
    for (row, edges) in out.chunks_exact_mut(heads * 8).zip(offsets.windows(2)) {
        for (band, out) in row.as_chunks_mut::<64>().0.iter_mut().enumerate() {
            let mut sums = [_mm256_setzero_ps(); 8];
            for e in edges[0] as usize..edges[1] as usize {
                let weights = &weights(e).as_chunks::<8>().0[band];
                let values = &values(e).as_chunks::<64>().0[band];
                for (h, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: eight values of an array of 64.
                    let x = unsafe { _mm256_loadu_ps(values.as_ptr().add(8 * h)) };
                    *sum = _mm256_fmadd_ps(_mm256_set1_ps(weights[h]), x, *sum);
                }
            }
            for (h, sum) in sums.into_iter().enumerate() {
                // SAFETY: within the 64 results.
                unsafe {
                    let at = out.as_mut_ptr().add(8 * h);
                    _mm256_storeu_ps(at, _mm256_add_ps(_mm256_loadu_ps(at), sum));
                }
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
fn dot_512(a: Rows<'_>, b: Rows<'_>, heads: usize, out: &mut [f32]) {
    with_rows!(dot_rows_512, a: heads * 8, b: heads * 8, heads, out);
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
fn dot_rows_512<'a>(a: impl Fn(usize) -> &'a [f32], b: impl Fn(usize) -> &'a [f32], heads: usize, out: &mut [f32]) {
    let order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    let bands = heads / 8;
    let rows = out.len() / heads;
    // In each quarter of the result of a band: sums over a quarter of the vectors 0 to 3 of the products.
    let quarters = |row: usize, band: usize| {
        let (a, b) = (&a(row).as_chunks::<64>().0[band], &b(row).as_chunks::<64>().0[band]);
        // SAFETY: 16 elements of arrays of 64.
        let product = |v: usize| unsafe {
            _mm512_mul_ps(_mm512_loadu_ps(a.as_ptr().add(16 * v)), _mm512_loadu_ps(b.as_ptr().add(16 * v)))
        };
        let pair = |x, y| _mm512_add_ps(_mm512_unpacklo_ps(x, y), _mm512_unpackhi_ps(x, y));
        let low = _mm512_castps_pd(pair(product(0), product(1)));
        let high = _mm512_castps_pd(pair(product(2), product(3)));
        _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(low, high)), _mm512_castpd_ps(_mm512_unpackhi_pd(low, high)))
    };
    // Two bands of eight results from the quarters of both.
    let join = |x, y| {
        let sums =
            _mm512_add_ps(_mm512_shuffle_f32x4::<0b10_00_10_00>(x, y), _mm512_shuffle_f32x4::<0b11_01_11_01>(x, y));
        _mm512_permutexvar_ps(order, sums)
    };
    if bands == 1 {
        let (pairs, rest) = out.as_chunks_mut::<16>();
        for (i, out) in pairs.iter_mut().enumerate() {
            let sums = join(quarters(2 * i, 0), quarters(2 * i + 1, 0));
            // SAFETY: 16 results.
            unsafe { _mm512_storeu_ps(out.as_mut_ptr(), sums) };
        }
        if let Some(out) = rest.first_chunk_mut::<8>() {
            let last = quarters(rows - 1, 0);
            // SAFETY: eight results.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr(), _mm512_castps512_ps256(join(last, last))) };
        }
        return;
    }
    for (row, out) in out.chunks_exact_mut(heads).enumerate() {
        for (band, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let sums = quarters(row, band);
            // SAFETY: eight results.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr(), _mm512_castps512_ps256(join(sums, sums))) };
        }
    }
}

#[target_feature(enable = "avx2,fma")]
fn dot_256(a: Rows<'_>, b: Rows<'_>, heads: usize, out: &mut [f32]) {
    with_rows!(dot_rows_256, a: heads * 8, b: heads * 8, heads, out);
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn dot_rows_256<'a>(a: impl Fn(usize) -> &'a [f32], b: impl Fn(usize) -> &'a [f32], heads: usize, out: &mut [f32]) {
    for (row, out) in out.chunks_exact_mut(heads).enumerate() {
        let (a, b) = (a(row).as_chunks::<64>().0, b(row).as_chunks::<64>().0);
        for ((out, a), b) in out.as_chunks_mut::<8>().0.iter_mut().zip(a).zip(b) {
            // SAFETY: eight elements of arrays of 64.
            let product = |h: usize| unsafe {
                _mm256_mul_ps(_mm256_loadu_ps(a.as_ptr().add(8 * h)), _mm256_loadu_ps(b.as_ptr().add(8 * h)))
            };
            // Sums of halves of four heads.
            let four = |h: usize| {
                let (x, y) =
                    (_mm256_hadd_ps(product(h), product(h + 1)), _mm256_hadd_ps(product(h + 2), product(h + 3)));
                _mm256_hadd_ps(x, y)
            };
            let (low, high) = (four(0), four(4));
            let sums =
                _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high));
            // SAFETY: eight results.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr(), sums) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{rows, segment};

    fn numbers(seed: u64, len: usize) -> Vec<f32> {
        (0..len as u64).map(|i| hgnnc_ir::random::uniform(seed, i) as f32 - 0.5).collect()
    }

    fn close(what: &str, found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len());
        for (i, (f, e)) in found.iter().zip(expected).enumerate() {
            assert!((f - e).abs() <= 2e-6 * e.abs().max(1.0), "{what}, element {i}: {f} instead of {e}");
        }
    }

    /// Levels of this machine with vectors.
    fn levels() -> Vec<Level> {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq");
        let mut levels = vec![];
        if avx2 {
            levels.push(Level::Avx2);
        }
        if avx2 && avx512 {
            levels.push(Level::Avx512);
        }
        levels
    }

    #[test]
    fn sums_and_dot_products_are_those_of_the_portable_kernels() {
        const ROWS: usize = 23;
        // Rows without edges, with one, and with many.
        let offsets = [0u32, 0, 1, 4, 4, 61, 63];
        let edges = 63;
        let index: Vec<u32> = (0..edges).map(|e| ((e * 7) % ROWS) as u32).collect();
        for (heads, inner) in [(8, 8), (16, 8), (1, 64), (1, 80), (3, 16), (2, 128)] {
            let width = heads * inner;
            let (a, wide, x) = (numbers(1, edges * heads), numbers(2, edges * width), numbers(3, ROWS * width));
            let position: Vec<u32> = (0..edges as u32).rev().collect();
            let operands = [
                (Rows::Each(&a), Rows::Each(&wide), Rows::Picked(&x, &index)),
                (Rows::Same(&a), Rows::Same(&wide), Rows::Picked(&x, &index)),
                (Rows::Each(&a), Rows::Picked(&x, &index), Rows::Each(&wide)),
                (Rows::Picked(&a, &position), Rows::Picked(&x, &index), Rows::Picked(&x, &index)),
            ];
            for (weights, left, right) in operands {
                let start = numbers(4, (offsets.len() - 1) * width);
                let mut sums = start.clone();
                segment::weighted_portable(weights, right, heads, inner, &offsets, &mut sums);
                // An odd number of rows, and an even one.
                for count in [edges, edges - 1] {
                    let mut dots = vec![0.0; count * heads];
                    rows::dot_portable(left, right, heads, inner, &mut dots);
                    for level in levels() {
                        let (mut sum, mut dot) = (start.clone(), vec![0.0; count * heads]);
                        let eights = inner == 8;
                        // SAFETY: the processor has the instructions of these levels.
                        unsafe {
                            match level {
                                Level::Avx512 if eights => {
                                    weighted_sum_512(weights, right, heads, &offsets, &mut sum);
                                    dot_512(left, right, heads, &mut dot);
                                }
                                Level::Avx512 => weighted_wide_512(weights, right, heads, inner, &offsets, &mut sum),
                                Level::Avx2 if eights => {
                                    weighted_sum_256(weights, right, heads, &offsets, &mut sum);
                                    dot_256(left, right, heads, &mut dot);
                                }
                                Level::Avx2 | Level::Base => continue,
                            }
                        }
                        close(&format!("sums of {heads} x {inner}, {level:?}"), &sum, &sums);
                        if eights {
                            close(&format!("dot products of {heads} x {inner}, {level:?}"), &dot, &dots);
                        }
                    }
                }
            }
        }
    }
}
