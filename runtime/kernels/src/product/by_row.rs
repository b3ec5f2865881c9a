//! Products of two operands of the same row: attention that weighs vectors, matrices that are computed.

// Indices address registers of several operands at once.
#![allow(clippy::needless_range_loop)]

use super::super::Rows;
use super::lanes::{Lanes, Portable, load, store};
use super::tile::per_level;
use crate::simd::{Dispatch, versions};

/// Groups `[m, k]` of each row of `a` times groups `[k, n]` of the same row of `b`, to groups `[m, n]`.
pub(super) struct Product<'a> {
    /// Left operands with their width.
    pub a: (Rows<'a>, usize),
    /// Right operands with their width.
    pub b: (Rows<'a>, usize),
    pub extents: (usize, usize, usize),
    pub out: &'a mut [f32],
}

per_level! {
    /// 2·m·k·n operations for each group, whose operands are read from the L1 cache and used once or `m` times: it is bound
    /// by reading them.
    pub(super) fn multiply(Product<'_>) as multiply_body
}

#[inline(always)]
fn multiply_body<V: Lanes>(isa: V, job: Product<'_>) {
    let Product { a: (a, left), b: (b, right), extents: (m, k, n), out } = job;
    let groups = left / (m * k).max(1);
    for (i, row) in out.chunks_exact_mut((groups * m * n).max(1)).enumerate() {
        let (a, b) = (a.row(i, left), b.row(i, right));
        for (group, out) in row.chunks_exact_mut(m * n).enumerate() {
            let (a, b) = (&a[group * m * k..][..m * k], &b[group * k * n..][..k * n]);
            if n == 1 {
                dots(isa, a, b, out);
            } else {
                for (a, out) in a.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
                    weighted_sum(isa, a, b, out);
                }
            }
        }
    }
}

/// The products of several vectors with one, four at a time: their elements are summed together.
#[inline(always)]
fn dots<V: Lanes>(isa: V, a: &[f32], b: &[f32], out: &mut [f32]) {
    let k = b.len();
    for (a, out) in a.chunks(4 * k).zip(out.chunks_mut(4)) {
        let mut sums = [isa.splat(0.0); 4];
        for start in (0..k).step_by(V::LANES) {
            let columns = start..(start + V::LANES).min(k);
            let b = load(isa, &b[columns.clone()]);
            for row in 0..4 {
                if row < out.len() {
                    let a = load(isa, &a[row * k..][columns.clone()]);
                    sums[row] = isa.fma(sums[row], a, b);
                }
            }
        }
        out.copy_from_slice(&isa.sums(sums)[..out.len()]);
    }
}

/// The sum of rows of `b` by weights, whose vectors stay in registers.
#[inline(always)]
fn weighted_sum<V: Lanes>(isa: V, weights: &[f32], b: &[f32], out: &mut [f32]) {
    let n = out.len();
    let mut start = 0;
    while n - start >= 4 * V::LANES {
        let mut sums = [isa.splat(0.0); 4];
        for (&weight, b) in weights.iter().zip(b.chunks_exact(n)) {
            let weight = isa.splat(weight);
            for v in 0..4 {
                sums[v] = isa.fma(sums[v], weight, load(isa, &b[start + v * V::LANES..]));
            }
        }
        for v in 0..4 {
            store(isa, sums[v], &mut out[start + v * V::LANES..]);
        }
        start += 4 * V::LANES;
    }
    while start < n {
        let mut sum = isa.splat(0.0);
        for (&weight, b) in weights.iter().zip(b.chunks_exact(n)) {
            sum = isa.fma(sum, isa.splat(weight), load(isa, &b[start..]));
        }
        store(isa, sum, &mut out[start..]);
        start += V::LANES;
    }
}
