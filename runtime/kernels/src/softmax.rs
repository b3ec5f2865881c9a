//! Online softmax: one pass over the edges of a row that accumulates exponentials, and rows weighted by them, relative
//! to the running maximum score: see [`hgnnc_kernel_ir::kernel::KernelOp::SoftmaxSum`].
//!
//! A row of the result is a *state*: `Σ t e^(s - m) x` (`heads · inner` elements), `Σ e^(s - m)` and `m` (one per
//! head). Edges are processed in batches: first the batch maximum, so that the sums are rescaled once per batch, then
//! the exponentials in full vectors, then the weighted rows. Several low-degree rows are processed together, so that
//! each step is one loop over the edges of all of them.

use hgnnc_ir::ops::Reduce;

use super::flat::larger;
use super::{Rows, rows, segment};
use crate::math;
use crate::simd::{Dispatch, multiversion};

/// Exponentials buffered at once: with the rows that they weight, half of an L1 cache.
const HELD: usize = 1024;
/// Minimum number of heads per band; states with more heads are processed in bands of heads.
const BAND: usize = 64;
/// Maximum number of rows processed together, and elements of their sums.
const TOGETHER: usize = 32;
const SUMS: usize = 2048;

/// Initializes the states of rows without edges.
pub fn begin(heads: usize, width: usize, states: &mut [f32]) {
    if heads == 0 {
        return;
    }
    for state in states.chunks_exact_mut(width + 2 * heads) {
        let (sums, rest) = state.split_at_mut(width);
        let (totals, largest) = rest.split_at_mut(heads);
        sums.fill(0.0);
        totals.fill(1.0);
        largest.fill(f32::NEG_INFINITY);
    }
}

/// Merges partial online-softmax states (max, sum, acc) of one row, in edge order.
pub fn merge(heads: usize, width: usize, parts: &[f32], state: &mut [f32]) {
    if heads == 0 {
        return;
    }
    for part in parts.chunks_exact(width + 2 * heads) {
        let (sums, rest) = part.split_at(width);
        let (totals, largest) = rest.split_at(heads);
        for head in 0..heads {
            let base = rescale(state, (heads, width / heads), head, largest[head]);
            let scale = math::exp::<false>(largest[head] - base);
            state[width + head] += scale * totals[head];
            let columns = head * (width / heads)..(head + 1) * (width / heads);
            for (sum, x) in state[columns.clone()].iter_mut().zip(&sums[columns]) {
                *sum += scale * x;
            }
        }
    }
}

/// Raises the running maximum of a head to at least `score` and rescales its sums. Returns the base of exponents.
#[inline(always)]
fn rescale(state: &mut [f32], (heads, inner): (usize, usize), head: usize, score: f32) -> f32 {
    let width = heads * inner;
    let before = state[width + heads + head];
    let largest = larger(before, score);
    let base = largest.clamp(f32::MIN, f32::MAX);
    if before == f32::NEG_INFINITY {
        // The state holds only the 1 of a row without edges, or exponentials of -∞.
        state[width + head] = 0.0;
        state[width + heads + head] = largest;
    } else if largest != before {
        let scale = math::exp::<false>(before - base);
        state[width + heads + head] = largest;
        state[width + head] *= scale;
        state[head * inner..(head + 1) * inner].iter_mut().for_each(|sum| *sum *= scale);
    }
    base
}

multiversion! {
    /// Merges edges into states: `offsets[r]..offsets[r + 1]` belong to row `r` of `out`. Per edge, `score` and `times`
    /// (edge weights) have `heads` elements, and `x` has `inner` elements per head.
    pub fn softmax_sum(
        dispatch: Dispatch,
        score: Rows<'_>,
        x: Rows<'_>,
        times: Option<Rows<'_>>,
        extents: (usize, usize),
        offsets: &[u32],
        out: &mut [f32],
    ) as softmax_sum_body with dispatch
}

#[inline(always)]
fn softmax_sum_body<const FMA: bool>(
    dispatch: Dispatch,
    score: Rows<'_>,
    x: Rows<'_>,
    times: Option<Rows<'_>>,
    extents: (usize, usize),
    offsets: &[u32],
    out: &mut [f32],
) {
    let (heads, inner) = extents;
    if heads == 0 || inner == 0 {
        return;
    }
    let width = heads * inner;
    let edges = Edges { dispatch, score, x, times, heads, inner };
    let mut buffers = Buffers { held: [0.0; HELD], bases: [0.0; HELD], sums: [0.0; SUMS] };
    // Rows of at most this many edges are processed together.
    let short = HELD / heads / 4;
    let together = TOGETHER.min(HELD / heads).min(SUMS / width.max(1));
    let mut row = 0;
    let rows = offsets.len() - 1;
    while row < rows {
        let first = offsets[row] as usize;
        let fits = |last: usize| {
            let edges = offsets[last + 1] as usize - offsets[last] as usize;
            edges <= short && offsets[last + 1] as usize - first <= HELD / heads
        };
        let more = (row..rows.min(row + together)).take_while(|&last| fits(last)).count();
        let states = &mut out[row * (width + 2 * heads)..(row + more.max(1)) * (width + 2 * heads)];
        let offsets = &offsets[row..=row + more.max(1)];
        if more > 1 {
            short_rows::<FMA>(edges, offsets, states, &mut buffers);
        } else {
            long_row::<FMA>(edges, offsets, states, &mut buffers);
        }
        row += more.max(1);
    }
}

/// Edge operands: per edge, `heads` scores, optionally as many weights, and `inner` elements per head.
#[derive(Clone, Copy)]
struct Edges<'a> {
    dispatch: Dispatch,
    score: Rows<'a>,
    x: Rows<'a>,
    times: Option<Rows<'a>>,
    heads: usize,
    inner: usize,
}

/// Temporaries of the current edges.
struct Buffers {
    held: [f32; HELD],
    bases: [f32; HELD],
    sums: [f32; SUMS],
}

/// Processes several rows with few edges in total.
#[inline(always)]
fn short_rows<const FMA: bool>(edges: Edges<'_>, offsets: &[u32], states: &mut [f32], buffers: &mut Buffers) {
    let Edges { dispatch, score, x, times, heads, inner } = edges;
    let (width, num_rows) = (heads * inner, offsets.len() - 1);
    let (start, end) = (offsets[0] as usize, offsets[num_rows] as usize);
    let mut own = [0u32; TOGETHER + 1];
    own.iter_mut().zip(offsets).for_each(|(own, &offset)| *own = offset - offsets[0]);
    let own = &own[..=num_rows];
    let held = &mut buffers.held[..(end - start) * heads];
    let (bases, sums) = (&mut buffers.bases[..num_rows * heads], &mut buffers.sums[..num_rows * width]);
    rows::fetch(dispatch, score, heads, 1, start, held);
    segment::segment(dispatch, Reduce::Max, Rows::Each(held), heads, own, bases, false);
    for (row, state) in states.chunks_exact_mut(width + 2 * heads).enumerate() {
        let (first, last) = (own[row] as usize, own[row + 1] as usize);
        if first == last {
            continue;
        }
        let bases = &mut bases[row * heads..(row + 1) * heads];
        for (head, base) in bases.iter_mut().enumerate() {
            *base = rescale(state, (heads, inner), head, *base);
        }
        for edge in held[first * heads..last * heads].chunks_exact_mut(heads) {
            edge.iter_mut().zip(&*bases).for_each(|(x, base)| *x -= base);
        }
    }
    held.iter_mut().for_each(|x| *x = math::exp::<FMA>(*x));
    // The bases are no longer needed.
    segment::segment(dispatch, Reduce::Sum, Rows::Each(held), heads, own, bases, false);
    multiply(times, heads, start, held);
    segment::weighted_sum(dispatch, Rows::Each(held), from(x, start, width), heads, inner, own, sums, false);
    let parts = sums.chunks_exact(width).zip(bases.chunks_exact(heads));
    for (state, (sums, totals)) in states.chunks_exact_mut(width + 2 * heads).zip(parts) {
        state[..width].iter_mut().zip(sums).for_each(|(sum, part)| *sum += part);
        state[width..width + heads].iter_mut().zip(totals).for_each(|(total, part)| *total += part);
    }
}

/// Processes a row with any number of edges.
#[inline(always)]
fn long_row<const FMA: bool>(edges: Edges<'_>, offsets: &[u32], state: &mut [f32], buffers: &mut Buffers) {
    let Edges { dispatch, score, x, times, heads, inner } = edges;
    let width = heads * inner;
    let edges = offsets[0] as usize..offsets[1] as usize;
    for band in (0..heads).step_by(BAND) {
        let of_band = BAND.min(heads - band);
        let some = HELD / of_band;
        for start in edges.clone().step_by(some) {
            let count = some.min(edges.end - start);
            let held = &mut buffers.held[..count * of_band];
            let bases = &mut buffers.bases[..of_band];
            let few = [0, count as u32];
            if of_band == heads {
                rows::fetch(dispatch, score, heads, 1, start, held);
            } else {
                for (i, row) in held.chunks_exact_mut(of_band).enumerate() {
                    row.copy_from_slice(&score.row(start + i, heads)[band..band + of_band]);
                }
            }
            segment::segment(dispatch, Reduce::Max, Rows::Each(held), of_band, &few, bases, false);
            for (head, base) in bases.iter_mut().enumerate() {
                *base = rescale(state, (heads, inner), band + head, *base);
            }
            exponentials::<FMA>(bases, held);
            let totals = &mut state[width + band..width + band + of_band];
            segment::segment(dispatch, Reduce::Sum, Rows::Each(held), of_band, &few, totals, true);
            if of_band == heads {
                multiply(times, heads, start, held);
                let sums = &mut state[..width];
                segment::weighted_sum(
                    dispatch,
                    Rows::Each(held),
                    from(x, start, width),
                    heads,
                    inner,
                    &few,
                    sums,
                    true,
                );
                continue;
            }
            for (i, weights) in held.chunks_exact_mut(of_band).enumerate() {
                if let Some(times) = times {
                    let times = &times.row(start + i, heads)[band..band + of_band];
                    weights.iter_mut().zip(times).for_each(|(weight, t)| *weight *= t);
                }
                let x = &x.row(start + i, width)[band * inner..];
                let sums = state[band * inner..].chunks_exact_mut(inner).zip(x.chunks_exact(inner));
                for ((sums, x), &mut weight) in sums.zip(weights) {
                    sums.iter_mut().zip(x).for_each(|(sum, &x)| *sum = math::fma::<FMA>(weight, x, *sum));
                }
            }
        }
    }
}

/// Multiplies the exponentials by the edge weights, from edge `start` on.
#[inline(always)]
fn multiply(times: Option<Rows<'_>>, heads: usize, start: usize, weights: &mut [f32]) {
    match times {
        Some(Rows::Each(times)) => {
            let times = &times[start * heads..start * heads + weights.len()];
            weights.iter_mut().zip(times).for_each(|(weight, t)| *weight *= t);
        }
        Some(times) => {
            for (i, row) in weights.chunks_exact_mut(heads).enumerate() {
                row.iter_mut().zip(times.row(start + i, heads)).for_each(|(weight, t)| *weight *= t);
            }
        }
        None => {}
    }
}

/// `e^(x - base)` for rows with one element per base.
#[inline(always)]
fn exponentials<const FMA: bool>(bases: &[f32], x: &mut [f32]) {
    if 16usize.is_multiple_of(bases.len()) {
        let bases: [f32; 16] = std::array::from_fn(|k| bases[k % bases.len()]);
        let (vectors, rest) = x.as_chunks_mut::<16>();
        for x in vectors {
            for k in 0..16 {
                x[k] = math::exp::<FMA>(x[k] - bases[k]);
            }
        }
        for (x, base) in rest.iter_mut().zip(bases) {
            *x = math::exp::<FMA>(*x - base);
        }
        return;
    }
    for row in x.chunks_exact_mut(bases.len()) {
        row.iter_mut().zip(bases).for_each(|(x, base)| *x -= base);
    }
    x.iter_mut().for_each(|x| *x = math::exp::<FMA>(*x));
}

/// Rows of an operand from `start` on.
#[inline(always)]
fn from(x: Rows<'_>, start: usize, width: usize) -> Rows<'_> {
    match x {
        Rows::Each(data) => Rows::Each(&data[start * width..]),
        Rows::Same(data) => Rows::Same(data),
        Rows::Picked(data, index) => Rows::Picked(data, &index[start..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weighted mean and log-sum-exp of one head of `x` and `score`, in f64.
    fn oracle(score: &[f32], x: &[f32], times: &[f32]) -> (f64, f64) {
        let largest = score.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
        let weights: Vec<f64> = score.iter().map(|&s| (f64::from(s) - largest).exp()).collect();
        let total: f64 = weights.iter().sum();
        let terms = weights.iter().zip(x).zip(times).map(|((w, &x), &t)| w * f64::from(x) * f64::from(t));
        (terms.sum::<f64>() / total, largest + total.ln())
    }

    #[test]
    fn any_number_of_heads_and_edges_gives_the_mean_and_the_log_sum_exp() {
        for (heads, inner) in [(1, 1), (1, 64), (2, 3), (3, 5), (8, 8), (16, 4), (65, 1)] {
            for edges in [1usize, 7, 8, 9, 100, 3000] {
                let draw = |salt: u64, i: usize| (hgnnc_ir::random::uniform(salt, i as u64) * 2.0 - 1.0) as f32;
                let width = heads * inner;
                // Scores that rise, fall and stay constant, some of them far apart.
                let score: Vec<f32> = (0..edges * heads).map(|i| draw(1, i) * [1.0, 1e4][i % 2]).collect();
                let times: Vec<f32> = (0..edges * heads).map(|i| 2.0 * (draw(2, i) > 0.0) as u8 as f32).collect();
                let x: Vec<f32> = (0..edges * width).map(|i| draw(3, i)).collect();
                let mut state = vec![0.0; width + 2 * heads];
                begin(heads, width, &mut state);
                // In two parts of the row, and in two states that are merged.
                let cut = edges / 3;
                let part = |range: std::ops::Range<usize>, state: &mut [f32]| {
                    let of = |data, width| from(Rows::Each(data), range.start, width);
                    let (scores, rows, times) = (of(&score, heads), of(&x, width), of(&times, heads));
                    softmax_sum(
                        Dispatch::default(),
                        scores,
                        rows,
                        Some(times),
                        (heads, inner),
                        &[0, range.len() as u32],
                        state,
                    );
                };
                part(0..cut, &mut state);
                let mut other = state.clone();
                part(cut..edges, &mut state);
                let (mut rest, all) = (vec![0.0; state.len()], state.clone());
                begin(heads, width, &mut rest);
                part(cut..edges, &mut rest);
                merge(heads, width, &rest, &mut other);
                for (what, state) in [("tiles", all), ("states", other)] {
                    for column in 0..width {
                        let head = column / inner;
                        let column_of = |data: &[f32], width: usize, at: usize| -> Vec<f32> {
                            data.chunks_exact(width).map(|row| row[at]).collect()
                        };
                        let (mean, lse) = oracle(
                            &column_of(&score, heads, head),
                            &column_of(&x, width, column),
                            &column_of(&times, heads, head),
                        );
                        let total = state[width + head];
                        let found = (state[column] / total, state[width + heads + head] + total.ln());
                        let close = (f64::from(found.0) - mean).abs() < 1e-5 && (f64::from(found.1) - lse).abs() < 1e-3;
                        assert!(close, "{heads} x {inner}, {edges} edges, {what}: {found:?} for {:?}", (mean, lse));
                    }
                }
            }
        }
    }

    #[test]
    fn infinite_scores_and_rows_without_edges_are_as_in_separate_passes() {
        let of = |scores: &[f32]| {
            let mut state = [0.0; 3];
            begin(1, 1, &mut state);
            let ones = vec![1.0; scores.len()];
            softmax_sum(
                Dispatch::default(),
                Rows::Each(scores),
                Rows::Each(&ones),
                None,
                (1, 1),
                &[0, scores.len() as u32],
                &mut state,
            );
            let [sum, total, largest] = state;
            (sum * total.recip(), largest + total.ln())
        };
        assert_eq!(of(&[]), (0.0, f32::NEG_INFINITY));
        assert_eq!(of(&[f32::MIN, f32::MIN]), (1.0, f32::MIN));
        assert_eq!(of(&[f32::NEG_INFINITY, 3.0]), (1.0, 3.0));
        let (mean, lse) = of(&[f32::NEG_INFINITY; 2]);
        assert!(mean.is_nan() && lse == f32::NEG_INFINITY);
        let (mean, lse) = of(&[1.0, f32::INFINITY]);
        assert!(mean.is_nan() && lse == f32::INFINITY);
    }
}
