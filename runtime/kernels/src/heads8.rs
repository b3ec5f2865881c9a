//! Attention kernels for 8 elements per head: products of rows in groups of eight with one weight per group. Compilers
//! vectorize them poorly, so they use intrinsics. Each is tested against a portable version in [`super::rows`] and
//! [`super::segment`].

use super::Rows;
use crate::simd::{Dispatch, versions};

/// Calls `$f` with closures that return row `$e` of both operands, specialized for common access patterns so
/// that no row branches.
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

// After the macro that the modules use.
#[cfg(target_arch = "aarch64")]
mod arm;
#[cfg(target_arch = "x86_64")]
mod x86;

/// `out[r, h, k] += Σ a[e, h] · x[e, h, k]` for groups of eight `k` and a multiple of eight `h`.
/// Returns false if unsupported.
pub fn weighted_sum(
    dispatch: Dispatch,
    a: Rows<'_>,
    x: Rows<'_>,
    heads: usize,
    offsets: &[u32],
    out: &mut [f32],
) -> bool {
    if heads == 0 || !heads.is_multiple_of(8) {
        return false;
    }
    versions!(dispatch, (a, x, heads, offsets, out), {
        #[cfg(target_arch = "x86_64")]
        Avx512 => x86::weighted_sum_512,
        #[cfg(target_arch = "x86_64")]
        Avx2 => x86::weighted_sum_256,
        #[cfg(target_arch = "aarch64")]
        Neon => arm::weighted_sum,
        _ => return false,
    });
    true
}

/// `out[r, h, k] += Σ a[e, h] · x[e, h, k]` for groups of at least 16 elements. Returns false if unsupported: for narrower
/// vectors compilers vectorize the portable version well.
#[cfg(target_arch = "x86_64")]
pub fn weighted_sum_wide(
    dispatch: Dispatch,
    a: Rows<'_>,
    x: Rows<'_>,
    heads: usize,
    inner: usize,
    offsets: &[u32],
    out: &mut [f32],
) -> bool {
    if heads == 0 || inner < 16 {
        return false;
    }
    versions!(dispatch, (a, x, heads, inner, offsets, out), {
        Avx512 => x86::weighted_wide_512,
        _ => return false,
    });
    true
}

/// `out[i, h] = Σ a[i, h, k] · b[i, h, k]` for groups of eight `k` and a multiple of eight `h`.
/// Returns false if unsupported.
pub fn dot(dispatch: Dispatch, a: Rows<'_>, b: Rows<'_>, heads: usize, out: &mut [f32]) -> bool {
    if heads == 0 || !heads.is_multiple_of(8) {
        return false;
    }
    // The gathered operand comes second.
    let (a, b) = if let Rows::Picked(..) = a { (b, a) } else { (a, b) };
    versions!(dispatch, (a, b, heads, out), {
        #[cfg(target_arch = "x86_64")]
        Avx512 => x86::dot_512,
        #[cfg(target_arch = "x86_64")]
        Avx2 => x86::dot_256,
        #[cfg(target_arch = "aarch64")]
        Neon => arm::dot,
        _ => return false,
    });
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Level, available};
    use crate::{rows, segment};

    fn numbers(seed: u64, len: usize) -> Vec<f32> {
        (0..len as u64).map(|i| hgnnc_ir::random::uniform(seed, i) as f32 - 0.5).collect()
    }

    fn close(what: &str, found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len());
        for (i, (f, e)) in found.iter().zip(expected).enumerate() {
            assert!((f - e).abs() <= 2e-6 * e.abs().max(1.0), "{what}, element {i}: {f} instead of {e}");
        }
    }

    /// [`weighted_sum_wide`], which other architectures do not have.
    fn sum_wide(
        dispatch: Dispatch,
        a: Rows<'_>,
        x: Rows<'_>,
        heads: usize,
        inner: usize,
        offsets: &[u32],
        out: &mut [f32],
    ) -> bool {
        #[cfg(target_arch = "x86_64")]
        return weighted_sum_wide(dispatch, a, x, heads, inner, offsets, out);
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    #[test]
    fn sums_and_dot_products_are_those_of_the_portable_kernels() {
        const ROWS: usize = 23;
        // Rows without edges, with one, and with many.
        let offsets = [0u32, 0, 1, 4, 4, 61, 63];
        let edges = 63;
        let widest = Dispatch::default();
        let index: Vec<u32> = (0..edges).map(|e| ((e * 7) % ROWS) as u32).collect();
        for (heads, inner) in
            [(8, 8), (16, 8), (24, 8), (1, 64), (1, 80), (3, 16), (2, 128), (1, 50), (3, 17), (2, 100)]
        {
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
                segment::weighted_portable(widest, weights, right, heads, inner, &offsets, &mut sums);
                // An odd number of rows, and an even one.
                for count in [edges, edges - 1] {
                    let mut dots = vec![0.0; count * heads];
                    rows::dot_portable(widest, left, right, heads, inner, &mut dots);
                    for level in available() {
                        let at = widest.at_most(level);
                        let (mut sum, mut dot) = (start.clone(), vec![0.0; count * heads]);
                        let (has_sums, has_dots) = if inner == 8 {
                            let has = weighted_sum(at, weights, right, heads, &offsets, &mut sum);
                            (has, super::dot(at, left, right, heads, &mut dot))
                        } else {
                            (sum_wide(at, weights, right, heads, inner, &offsets, &mut sum), false)
                        };
                        assert_eq!(has_sums, level != Level::Base && (inner == 8 || level == Level::Avx512));
                        assert_eq!(has_dots, level != Level::Base && inner == 8);
                        if has_sums {
                            close(&format!("sums of {heads} x {inner}, {level:?}"), &sum, &sums);
                        }
                        if has_dots {
                            close(&format!("dot products of {heads} x {inner}, {level:?}"), &dot, &dots);
                        }
                    }
                }
            }
        }
    }
}
