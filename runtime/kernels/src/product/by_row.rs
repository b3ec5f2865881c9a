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

/// Operands of [`dot`]: groups of `inner` elements, `outer` groups per row.
pub(super) struct Dot<'a> {
    pub a: Rows<'a>,
    pub b: Rows<'a>,
    pub outer: usize,
    pub inner: usize,
    pub out: &'a mut [f32],
}

per_level! {
    /// `out[i, o] = Σ_k a[i, o, k] · b[i, o, k]`: two operations for each pair of elements, which are read once. Reading them
    /// is the limit, and for few elements the sum of a vector, which four groups share.
    pub(super) fn dot(Dot<'_>) as dot_body
}

#[inline(always)]
fn dot_body<V: Lanes>(isa: V, job: Dot<'_>) {
    let Dot { a, b, outer, inner, out } = job;
    let width = outer * inner;
    let (mut row, mut group) = (0, 0);
    for out in out.chunks_mut(4) {
        let mut sums = [[isa.splat(0.0); MOST_VECTORS]; 4];
        for slot in 0..4 {
            if slot == out.len() {
                break;
            }
            let columns = group * inner..(group + 1) * inner;
            let (x, y) = (&a.row(row, width)[columns.clone()], &b.row(row, width)[columns]);
            add_products(isa, &mut sums[slot], x, y);
            group += 1;
            if group == outer {
                (row, group) = (row + 1, 0);
            }
        }
        out.copy_from_slice(&folded(isa, sums)[..out.len()]);
    }
}

/// Numbers that are summed apart: element `i` is added to the number `i % 16`. Then the second half of them is added to the
/// first one until one is left. Machine code of the same sums has this order as well.
const APART: usize = 16;

/// Most vectors of as many numbers.
const MOST_VECTORS: usize = 4;

/// Adds the products of the elements of two slices to sums in as many vectors as [`APART`] numbers take.
#[inline(always)]
fn add_products<V: Lanes>(isa: V, sums: &mut [V::Vector; MOST_VECTORS], x: &[f32], y: &[f32]) {
    let mut start = 0;
    while start < x.len() {
        for v in 0..APART / V::LANES {
            let at = (start + v * V::LANES).min(x.len());
            sums[v] = isa.fma(sums[v], load(isa, &x[at..]), load(isa, &y[at..]));
        }
        start += APART;
    }
}

/// The sums of four sets of [`APART`] numbers.
#[inline(always)]
fn folded<V: Lanes>(isa: V, mut sums: [[V::Vector; MOST_VECTORS]; 4]) -> [f32; 4] {
    let mut vectors = APART / V::LANES;
    while vectors > 1 {
        vectors /= 2;
        for sums in &mut sums {
            for v in 0..vectors {
                sums[v] = isa.add(sums[v], sums[v + vectors]);
            }
        }
    }
    let [[a, ..], [b, ..], [c, ..], [d, ..]] = sums;
    isa.folds([a, b, c, d])
}

per_level! {
    /// 2·m·k·n operations for each group. Its operands are read from the L1 cache, and used once or `m` times, so reading
    /// them is the limit.
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

/// The products of several vectors with one, four at a time: their vectors are summed together.
#[inline(always)]
fn dots<V: Lanes>(isa: V, a: &[f32], b: &[f32], out: &mut [f32]) {
    let k = b.len();
    for (a, out) in a.chunks(4 * k).zip(out.chunks_mut(4)) {
        let mut sums = [[isa.splat(0.0); MOST_VECTORS]; 4];
        for row in 0..4 {
            if row == out.len() {
                break;
            }
            add_products(isa, &mut sums[row], &a[row * k..][..k], b);
        }
        out.copy_from_slice(&folded(isa, sums)[..out.len()]);
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
