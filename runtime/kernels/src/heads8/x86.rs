//! AVX2 and AVX-512. A band is eight heads: 64 elements, which are four vectors of 16 or eight of eight.

use std::arch::x86_64::*;
use std::ops::Range;

use bytemuck::must_cast;

use super::super::Rows;

#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
pub(super) fn weighted_sum_512(a: Rows<'_>, x: Rows<'_>, heads: usize, offsets: &[u32], out: &mut [f32]) {
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
    // Weight lanes for the four vectors of a band of eight heads.
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
                let weights = _mm512_castps256_ps512(must_cast(*weights));
                for ((sum, x), pick) in sums.iter_mut().zip(values.as_chunks::<16>().0).zip(picks) {
                    *sum = _mm512_fmadd_ps(_mm512_permutexvar_ps(pick, weights), must_cast(*x), *sum);
                }
            }
            for (out, sum) in out.as_chunks_mut::<16>().0.iter_mut().zip(sums) {
                *out = must_cast(_mm512_add_ps(must_cast(*out), sum));
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
pub(super) fn weighted_wide_512(
    a: Rows<'_>,
    x: Rows<'_>,
    heads: usize,
    inner: usize,
    offsets: &[u32],
    out: &mut [f32],
) {
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
            let weight = |e: usize| weights(e)[head];
            let values = |e: usize| &values(e)[head * inner..];
            let mut column = 0;
            for out in row.as_chunks_mut::<64>().0 {
                let mut sums = [_mm512_setzero_ps(); 4];
                for e in edges.clone() {
                    let weight = _mm512_set1_ps(weight(e));
                    let values = values(e)[column..].first_chunk::<64>().expect("a row holds all bands");
                    for (sum, x) in sums.iter_mut().zip(values.as_chunks::<16>().0) {
                        *sum = _mm512_fmadd_ps(weight, must_cast(*x), *sum);
                    }
                }
                for (out, sum) in out.as_chunks_mut::<16>().0.iter_mut().zip(sums) {
                    *out = must_cast(_mm512_add_ps(must_cast(*out), sum));
                }
                column += 64;
            }
            match (inner - column).div_ceil(16) {
                0 => {}
                1 => weighted_end::<1>(weight, values, edges.clone(), column, row),
                2 => weighted_end::<2>(weight, values, edges.clone(), column, row),
                3 => weighted_end::<3>(weight, values, edges.clone(), column, row),
                _ => weighted_end::<4>(weight, values, edges.clone(), column, row),
            }
        }
    }
}

/// Adds the elements from `column` on over the edges to a row, in `N` vectors: the last one has the last 16 elements of
/// the row, of which those are added that are left.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
fn weighted_end<'a, const N: usize>(
    weight: impl Fn(usize) -> f32,
    values: impl Fn(usize) -> &'a [f32],
    edges: Range<usize>,
    column: usize,
    row: &mut [f32],
) {
    let last = row.len() - 16;
    let mut sums = [_mm512_setzero_ps(); N];
    for e in edges {
        let (weight, values) = (_mm512_set1_ps(weight(e)), values(e));
        for (v, sum) in sums.iter_mut().enumerate() {
            let start = if v == N - 1 { last } else { column + 16 * v };
            let x = values[start..].first_chunk::<16>().expect("a row holds all vectors");
            *sum = _mm512_fmadd_ps(weight, must_cast(*x), *sum);
        }
    }
    let (whole, end) = row[column..].as_chunks_mut::<16>();
    for (out, sum) in whole.iter_mut().zip(sums) {
        *out = must_cast(_mm512_add_ps(must_cast(*out), sum));
    }
    let left: [f32; 16] = must_cast(sums[N - 1]);
    let first = 16 - end.len();
    end.iter_mut().zip(&left[first..]).for_each(|(out, sum)| *out += sum);
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn weighted_sum_256(a: Rows<'_>, x: Rows<'_>, heads: usize, offsets: &[u32], out: &mut [f32]) {
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
                for ((sum, x), &weight) in sums.iter_mut().zip(values.as_chunks::<8>().0).zip(weights) {
                    *sum = _mm256_fmadd_ps(_mm256_set1_ps(weight), must_cast(*x), *sum);
                }
            }
            for (out, sum) in out.as_chunks_mut::<8>().0.iter_mut().zip(sums) {
                *out = must_cast(_mm256_add_ps(must_cast(*out), sum));
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
pub(super) fn dot_512(a: Rows<'_>, b: Rows<'_>, heads: usize, out: &mut [f32]) {
    with_rows!(dot_rows_512, a: heads * 8, b: heads * 8, heads, out);
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
fn dot_rows_512<'a>(a: impl Fn(usize) -> &'a [f32], b: impl Fn(usize) -> &'a [f32], heads: usize, out: &mut [f32]) {
    let order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    let bands = heads / 8;
    // Per quarter of a band's result: sums over a quarter of the product vectors 0 to 3.
    let quarters = |row: usize, band: usize| {
        let (a, b) = (&a(row).as_chunks::<64>().0[band], &b(row).as_chunks::<64>().0[band]);
        let (a, b) = (a.as_chunks::<16>().0, b.as_chunks::<16>().0);
        let product = |v: usize| _mm512_mul_ps(must_cast(a[v]), must_cast(b[v]));
        let pair = |x, y| _mm512_add_ps(_mm512_unpacklo_ps(x, y), _mm512_unpackhi_ps(x, y));
        let low = _mm512_castps_pd(pair(product(0), product(1)));
        let high = _mm512_castps_pd(pair(product(2), product(3)));
        _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(low, high)), _mm512_castpd_ps(_mm512_unpackhi_pd(low, high)))
    };
    // Two bands of eight results from their quarters.
    let join = |x, y| {
        let sums =
            _mm512_add_ps(_mm512_shuffle_f32x4::<0b10_00_10_00>(x, y), _mm512_shuffle_f32x4::<0b11_01_11_01>(x, y));
        _mm512_permutexvar_ps(order, sums)
    };
    // `quarters` has a single call, since it is not inlined into several.
    let (mut row, mut band) = (0, 0);
    for out in out.chunks_mut(16) {
        let mut two = [_mm512_setzero_ps(); 2];
        for sums in two.iter_mut().take(out.len() / 8) {
            *sums = quarters(row, band);
            band += 1;
            if band == bands {
                (row, band) = (row + 1, 0);
            }
        }
        let sums = join(two[0], two[1]);
        match out.first_chunk_mut::<16>() {
            Some(out) => *out = must_cast(sums),
            None => {
                if let Some(out) = out.first_chunk_mut::<8>() {
                    *out = must_cast(_mm512_castps512_ps256(sums));
                }
            }
        }
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn dot_256(a: Rows<'_>, b: Rows<'_>, heads: usize, out: &mut [f32]) {
    with_rows!(dot_rows_256, a: heads * 8, b: heads * 8, heads, out);
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn dot_rows_256<'a>(a: impl Fn(usize) -> &'a [f32], b: impl Fn(usize) -> &'a [f32], heads: usize, out: &mut [f32]) {
    for (row, out) in out.chunks_exact_mut(heads).enumerate() {
        let (a, b) = (a(row).as_chunks::<64>().0, b(row).as_chunks::<64>().0);
        for ((out, a), b) in out.as_chunks_mut::<8>().0.iter_mut().zip(a).zip(b) {
            let (a, b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
            let product = |h: usize| _mm256_mul_ps(must_cast(a[h]), must_cast(b[h]));
            // Sums of halves of four heads.
            let four = |h: usize| {
                let (x, y) =
                    (_mm256_hadd_ps(product(h), product(h + 1)), _mm256_hadd_ps(product(h + 2), product(h + 3)));
                _mm256_hadd_ps(x, y)
            };
            let (low, high) = (four(0), four(4));
            let sums =
                _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high));
            *out = must_cast(sums);
        }
    }
}
