//! Arg-max and arg-min over the edges of a row: see [`hgnnc_kernel_ir::kernel::KernelOp::SegmentArg`].
//!
//! A row holds `width` extreme elements, then the `width` ranks of their edges. Among equal elements the lowest rank
//! wins, so a row does not depend on the order of its edges or partial results. NaN never wins, as in other reductions.

use hgnnc_ir::ops::Extreme;

use super::Rows;
use crate::simd::{Dispatch, multiversion};

/// Initializes rows for a reduction over no edges.
pub fn begin(extreme: Extreme, width: usize, out: &mut [f32]) {
    if width == 0 {
        return;
    }
    for row in out.chunks_exact_mut(2 * width) {
        let (best, ranks) = row.split_at_mut(width);
        best.fill(extreme.reduce().identity() as f32);
        ranks.fill(f32::INFINITY);
    }
}

multiversion! {
    /// Reduces edges into the rows of `out`: those of row `r` are `offsets[r]..offsets[r + 1]` of `x`, which has
    /// `width` elements per edge, and of `ranks`, which has one.
    pub fn segment_arg(
        dispatch: Dispatch,
        extreme: Extreme, x: Rows<'_>, ranks: Rows<'_>, width: usize, offsets: &[u32], out: &mut [f32],
    ) as segment_arg_body
}

#[inline(always)]
fn segment_arg_body<const FMA: bool>(
    extreme: Extreme,
    x: Rows<'_>,
    ranks: Rows<'_>,
    width: usize,
    offsets: &[u32],
    out: &mut [f32],
) {
    if width == 0 {
        return;
    }
    for (row, edges) in out.chunks_exact_mut(2 * width).zip(offsets.windows(2)) {
        let (best, of) = row.split_at_mut(width);
        for e in edges[0] as usize..edges[1] as usize {
            let (x, rank) = (x.row(e, width), ranks.row(e, 1)[0]);
            match extreme {
                Extreme::Max => compare::<true>(best, of, x, |_| rank),
                Extreme::Min => compare::<false>(best, of, x, |_| rank),
            }
        }
    }
}

/// Merges `parts`, partial results of one row, into `out`.
pub fn merge(extreme: Extreme, width: usize, parts: &[f32], out: &mut [f32]) {
    let (best, of) = out.split_at_mut(width);
    for part in parts.chunks_exact(2 * width) {
        let (x, ranks) = part.split_at(width);
        match extreme {
            Extreme::Max => compare::<true>(best, of, x, |k| ranks[k]),
            Extreme::Min => compare::<false>(best, of, x, |k| ranks[k]),
        }
    }
}

/// Keeps the winning elements with their ranks. Selects instead of branches, so that the loop vectorizes.
#[inline(always)]
fn compare<const MAX: bool>(best: &mut [f32], of: &mut [f32], x: &[f32], rank: impl Fn(usize) -> f32) {
    let (of, x) = (&mut of[..best.len()], &x[..best.len()]);
    for k in 0..best.len() {
        let (v, b, rank) = (x[k], best[k], rank(k));
        let wins = if MAX { v > b } else { v < b };
        let takes = wins | ((v == b) & (rank < of[k]));
        best[k] = if takes { v } else { b };
        of[k] = if takes { rank } else { of[k] };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::available;

    fn found(
        dispatch: Dispatch,
        extreme: Extreme,
        x: &[f32],
        ranks: &[f32],
        width: usize,
        offsets: &[u32],
    ) -> Vec<f32> {
        let mut out = vec![0.0; 2 * width * (offsets.len() - 1)];
        begin(extreme, width, &mut out);
        segment_arg(dispatch, extreme, Rows::Each(x), Rows::Each(ranks), width, offsets, &mut out);
        out
    }

    #[test]
    fn the_winner_of_each_row_at_every_vector_width() {
        let infinity = f32::INFINITY;
        for level in available() {
            let dispatch = Dispatch::default().at_most(level);
            let x = [1.0, -2.0, 3.0, -2.0, 3.0, 5.0];
            let max = found(dispatch, Extreme::Max, &x, &[0.0, 1.0, 2.0], 2, &[0, 3, 3]);
            assert_eq!(max, [3.0, 5.0, 1.0, 2.0, -infinity, -infinity, infinity, infinity], "{level:?}");
            let min = found(dispatch, Extreme::Min, &x, &[0.0, 1.0, 2.0], 2, &[0, 3, 3]);
            assert_eq!(min, [1.0, -2.0, 0.0, 0.0, infinity, infinity, infinity, infinity], "{level:?}");
        }
    }

    #[test]
    fn the_lowest_rank_wins_a_tie_in_any_order_of_edges_and_parts() {
        assert_eq!(
            found(Dispatch::default(), Extreme::Max, &[4.0, 4.0, 4.0], &[7.0, 2.0, 5.0], 1, &[0, 3]),
            [4.0, 2.0]
        );
        assert_eq!(
            found(Dispatch::default(), Extreme::Min, &[f32::INFINITY; 2], &[1.0, 0.0], 1, &[0, 2]),
            [f32::INFINITY, 0.0]
        );
        let mut out = [0.0; 2];
        begin(Extreme::Max, 1, &mut out);
        merge(Extreme::Max, 1, &[4.0, 7.0, 3.0, 0.0, 4.0, 2.0], &mut out);
        assert_eq!(out, [4.0, 2.0]);
    }
}
