//! Products with many small square blocks: rotations of complex numbers, relation matrices of narrow heads, block-diagonal
//! weights.
//!
//! A tile of the general product would fill a part of a vector with the row of one block, and read all rows once for each
//! block. Here a vector holds elements of several blocks of a row, whose weights stay in registers while the rows pass: `N`
//! multiply-adds and shuffles per vector for blocks of `N`, and each element is read once. Up to blocks of four, that is
//! bound by reading the rows.

// Indices address registers of several operands at once.
#![allow(clippy::needless_range_loop)]

use super::Extents;
use super::lanes::{Lanes, Portable, load, store};
use super::tile::per_level;
use crate::simd::{Dispatch, Level, versions};

/// Elements of the widest vector.
const MOST_LANES: usize = 16;

/// Are these the extents of blocks that are computed here, of which a vector holds two at least?
pub(super) fn are(dispatch: Dispatch, of: Extents) -> bool {
    let lanes = match dispatch.level() {
        Level::Avx512 => 16,
        Level::Avx2 => 8,
        _ => 4,
    };
    of.batch > 1 && of.k == of.n && matches!(of.n, 2 | 4 | 8) && 2 * of.n <= lanes
}

/// `out[r, b, :] = x[r, b, :] · w[b, :, :]`, or with the transpose of each block, of `size` by `size` elements.
pub(super) struct Product<'a> {
    pub size: usize,
    pub transposed: bool,
    pub x: &'a [f32],
    pub w: &'a [f32],
    pub out: &'a mut [f32],
}

/// `out[b, k, :] += Σ_r x[r, b, k] · y[r, b, :]` for blocks of `size` by `size` elements.
pub(super) struct Outer<'a> {
    pub size: usize,
    pub x: &'a [f32],
    pub y: &'a [f32],
    pub out: &'a mut [f32],
}

per_level! {
    /// 2·N operations for each element, which is read and written once.
    pub(super) fn multiply(Product<'_>) as multiply_body
}

per_level! {
    /// 2·N operations for each element of `y`, which is read once, as is the element of `x` beside it.
    pub(super) fn outer(Outer<'_>) as outer_body
}

#[inline(always)]
fn multiply_body<V: Lanes>(isa: V, job: Product<'_>) {
    match job.size {
        2 => multiply_blocks::<V, 2>(isa, job),
        4 => multiply_blocks::<V, 4>(isa, job),
        8 => multiply_blocks::<V, 8>(isa, job),
        _ => unreachable!("blocks have 2, 4 or 8 rows"),
    }
}

#[inline(always)]
fn multiply_blocks<V: Lanes, const N: usize>(isa: V, job: Product<'_>) {
    let Product { transposed, x, w, out, .. } = job;
    let width = w.len() / N;
    let wide = joined::<V>(width);
    let places = places::<V, N>(isa);
    for start in (0..wide).step_by(V::LANES) {
        // The factor of element k of the block of each column.
        let mut weights = [isa.splat(0.0); N];
        for k in 0..N {
            let mut row = [0.0; MOST_LANES];
            for i in 0..V::LANES.min(wide - start) {
                let column = (start + i) % width;
                let (block, j) = (column / N * N * N, column % N);
                row[i] = w[block + if transposed { j * N + k } else { k * N + j }];
            }
            weights[k] = load(isa, &row);
        }
        for (x, out) in x.chunks(wide).zip(out.chunks_mut(wide)) {
            let first = start.min(x.len());
            let x = load(isa, &x[first..]);
            let mut sum = isa.splat(0.0);
            for k in 0..N {
                sum = isa.fma(sum, isa.permute(x, places[k]), weights[k]);
            }
            store(isa, sum, &mut out[first..]);
        }
    }
}

#[inline(always)]
fn outer_body<V: Lanes>(isa: V, job: Outer<'_>) {
    match job.size {
        2 => outer_blocks::<V, 2, 4>(isa, job),
        4 => outer_blocks::<V, 4, 2>(isa, job),
        8 => outer_blocks::<V, 8, 1>(isa, job),
        _ => unreachable!("blocks have 2, 4 or 8 rows"),
    }
}

/// Adds the sums of `CHAINS` sets of rows, each of which waits for its own last sum only.
#[inline(always)]
fn outer_blocks<V: Lanes, const N: usize, const CHAINS: usize>(isa: V, job: Outer<'_>) {
    let Outer { x, y, out, .. } = job;
    let width = out.len() / N;
    let wide = joined::<V>(width);
    let places = places::<V, N>(isa);
    for start in (0..wide).step_by(V::LANES) {
        let mut sums = [[isa.splat(0.0); N]; CHAINS];
        for (x, y) in x.chunks(CHAINS * wide).zip(y.chunks(CHAINS * wide)) {
            for chain in 0..CHAINS {
                let row = (chain * wide).min(x.len())..((chain + 1) * wide).min(x.len());
                let first = (row.start + start).min(row.end);
                let (x, y) = (load(isa, &x[first..row.end]), load(isa, &y[first..row.end]));
                for k in 0..N {
                    sums[chain][k] = isa.fma(sums[chain][k], isa.permute(x, places[k]), y);
                }
            }
        }
        for k in 0..N {
            let mut row = [0.0; MOST_LANES];
            for chain in 0..CHAINS {
                store(isa, sums[chain][k], &mut row);
                for i in 0..V::LANES.min(wide - start) {
                    let column = (start + i) % width;
                    out[column / N * N * N + k * N + column % N] += row[i];
                }
            }
        }
    }
}

/// Elements that are taken as one row: of as many rows as a vector holds, or of one.
#[inline(always)]
fn joined<V: Lanes>(width: usize) -> usize {
    if V::LANES.is_multiple_of(width) { V::LANES } else { width }
}

/// For each element of a block: its place in a vector, for each column of its block.
#[inline(always)]
fn places<V: Lanes, const N: usize>(isa: V) -> [V::Places; N] {
    let mut places = [isa.places([0; MOST_LANES]); N];
    for k in 0..N {
        let mut of = [0; MOST_LANES];
        for (i, place) in of.iter_mut().enumerate() {
            *place = (i / N * N + k) as i32;
        }
        places[k] = isa.places(of);
    }
    places
}
