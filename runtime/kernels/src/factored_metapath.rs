//! Attention over a factored metapath (row, middle vertex, end): see [`hgnnc_ir::metapath`].
//!
//! For each middle vertex and head, the ends are sorted by their part of the attention score. Below a position of that
//! order the argument of the score function is negative, from it on positive, so prefix sums ([`Table::below`]) and
//! suffix sums ([`Table::above`]) at that position give the aggregation over all ends. Exponentials are kept relative to
//! the largest one in their sum, as in an online softmax: no sums are subtracted, and nothing overflows.

use std::cell::RefCell;

use crate::math;
use crate::simd::{Dispatch, multiversion};

/// Aggregated rows: `width` elements per head of each end; ones without rows.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct SummedRows<'a> {
    /// Row elements; `None` for ones.
    pub rows: Option<&'a [f32]>,
    pub width: usize,
}

/// Operands at the ends of the metapath.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct EndData<'a> {
    /// Their part of the score, `heads` elements each.
    pub score: &'a [f32],
    /// Their log-sum-exp, subtracted from scores; sums for the ends of the second graph are normalized when complete.
    pub norm: Option<&'a [f32]>,
    /// Operands to aggregate over the ends.
    pub summed: &'a [SummedRows<'a>],
    pub heads: usize,
    /// The slopes of the score below and above zero.
    pub slopes: [f32; 2],
}

/// Table elements per end and head, for `width` aggregated elements: sorted score, and below and above it the largest
/// exponent and the sums.
pub fn table_len(width: usize) -> usize {
    1 + 2 * (1 + width)
}

/// Elements of a row's running state per head: the largest exponent, and the sums on both sides of zero.
pub fn state_len(width: usize) -> usize {
    1 + 2 * width
}

/// Table of a middle vertex and head: scores in ascending order, then prefix and suffix sums at each position.
struct Table<'a> {
    scores: &'a [f32],
    below: &'a [f32],
    above: &'a [f32],
    len: usize,
}

impl<'a> Table<'a> {
    fn of(table: &'a [f32], ends: usize, width: usize) -> Self {
        let len = 1 + width;
        let (scores, sums) = table.split_at(ends);
        let (below, above) = sums.split_at(ends * len);
        Self { scores, below, above, len }
    }
}

thread_local! {
    /// Sort keys and exponent distances of the ends of a middle vertex. Kept per thread, so that runs do not allocate.
    static ORDER: RefCell<(Vec<u64>, Vec<f32>)> = const { RefCell::new((vec![], vec![])) };
}

/// Sort key: by score, then by end.
fn sort_key(score: f32, end: usize) -> u64 {
    let bits = score.to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(ordered) << 32 | end as u64
}

/// Builds the table of a middle vertex with ends `others`, for a head.
pub fn make_table(dispatch: Dispatch, ends: EndData<'_>, others: &[u32], head: usize, table: &mut [f32]) {
    ORDER.with_borrow_mut(|(order, distances)| {
        let score = |other: u32| ends.score[other as usize * ends.heads + head];
        order.clear();
        order.extend(others.iter().enumerate().map(|(at, &other)| sort_key(score(other), at)));
        order.sort_unstable();
        distances.clear();
        distances.resize(4 * others.len(), 0.0);
        fill_table(dispatch, ends, others, (head, order), distances, table);
    });
}

multiversion! {
    fn fill_table(
        dispatch: Dispatch,
        ends: EndData<'_>,
        others: &[u32],
        order: (usize, &[u64]),
        distances: &mut [f32],
        table: &mut [f32],
    ) as fill_table_body
}

#[inline(always)]
fn fill_table_body<const FMA: bool>(
    ends: EndData<'_>,
    others: &[u32],
    (head, order): (usize, &[u64]),
    distances: &mut [f32],
    table: &mut [f32],
) {
    let EndData { heads, slopes: [slope_below, slope_above], summed, .. } = ends;
    let count = others.len();
    let width: usize = summed.iter().map(|of| of.width).sum();
    let len = 1 + width;
    let (scores, sums) = table.split_at_mut(count);
    let (below, above) = sums.split_at_mut(count * len);
    let end = |place: usize| others[order[place] as u32 as usize] as usize * heads + head;
    // The largest exponent up to each position is stored before its sums, with the distances of the current and the
    // previous exponent from it.
    let [own_below, before_below, own_above, before_above] = parts(distances, count);
    let (mut lowest, mut highest) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
    for place in 0..count {
        let at = end(place);
        let (score, norm) = (ends.score[at], ends.norm.map_or(0.0, |norm| norm[at]));
        scores[place] = score;
        let exponent = slope_below * score - norm;
        let largest = larger(lowest, exponent);
        own_below[place] = distance(exponent, largest);
        before_below[place] = distance(lowest, largest);
        below[place * len] = largest;
        lowest = largest;
    }
    for place in (0..count).rev() {
        let norm = ends.norm.map_or(0.0, |norm| norm[end(place)]);
        let exponent = slope_above * scores[place] - norm;
        let largest = larger(highest, exponent);
        own_above[place] = distance(exponent, largest);
        before_above[place] = distance(highest, largest);
        above[place * len] = largest;
        highest = largest;
    }
    for distance in distances.iter_mut() {
        *distance = math::exp::<FMA>(*distance);
    }
    let [own_below, before_below, own_above, before_above] = parts(distances, count);
    for place in 0..count {
        let (done, rest) = below.split_at_mut(place * len);
        let before = place.checked_sub(1).map(|place| &done[place * len + 1..]);
        add::<FMA>(
            summed,
            end(place),
            own_below[place],
            before.map(|sums| (sums, before_below[place])),
            &mut rest[1..len],
        );
    }
    for place in (0..count).rev() {
        let (rest, done) = above.split_at_mut((place + 1) * len);
        let before = (place + 1 < count).then(|| &done[1..len]);
        let sums = &mut rest[place * len + 1..];
        add::<FMA>(summed, end(place), own_above[place], before.map(|sums| (sums, before_above[place])), sums);
    }
}

fn parts(distances: &mut [f32], count: usize) -> [&mut [f32]; 4] {
    let (a, rest) = distances.split_at_mut(count);
    let (b, rest) = rest.split_at_mut(count);
    let (c, d) = rest.split_at_mut(count);
    [a, b, c, d]
}

/// Maximum; NaN if either is NaN.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// `exponent - largest`, defined as -∞ if `exponent` is -∞.
#[inline(always)]
fn distance(exponent: f32, largest: f32) -> f32 {
    exponent - largest.max(f32::MIN)
}

/// `weight · row + factor · sums so far`.
#[inline(always)]
fn add<const FMA: bool>(
    summed: &[SummedRows<'_>],
    end: usize,
    weight: f32,
    before: Option<(&[f32], f32)>,
    sums: &mut [f32],
) {
    let mut column = 0;
    for of in summed {
        let sums = &mut sums[column..column + of.width];
        match of.rows {
            Some(rows) => {
                let row = &rows[end * of.width..(end + 1) * of.width];
                sums.iter_mut().zip(row).for_each(|(sum, x)| *sum = weight * x);
            }
            None => sums.fill(weight),
        }
        if let Some((before, scale)) = before {
            let before = &before[column..column + of.width];
            sums.iter_mut().zip(before).for_each(|(sum, &before)| *sum = math::fma::<FMA>(scale, before, *sum));
        }
        column += of.width;
    }
}

/// Initializes the state of a row.
pub fn begin_row(heads: usize, width: usize, state: &mut [f32]) {
    for state in state.chunks_exact_mut(state_len(width)).take(heads) {
        state.fill(0.0);
        state[0] = f32::NEG_INFINITY;
    }
}

multiversion! {
    /// Merges the table of a middle vertex into the state of a row. `scores` are the row's part of the score.
    pub fn add_row(
        dispatch: Dispatch,
        scores: &[f32],
        slopes: [f32; 2],
        tables: &[f32],
        extents: (usize, usize),
        state: &mut [f32],
    ) as add_row_body
}

#[inline(always)]
fn add_row_body<const FMA: bool>(
    scores: &[f32],
    [below, above]: [f32; 2],
    tables: &[f32],
    (ends, width): (usize, usize),
    state: &mut [f32],
) {
    let tables = tables.chunks_exact(ends * table_len(width));
    let states = state.chunks_exact_mut(state_len(width));
    for ((&score, table), state) in scores.iter().zip(tables).zip(states) {
        let table = Table::of(table, ends, width);
        let kink = table.scores.partition_point(|&other| other + score <= 0.0);
        let (largest, sums) = state.split_first_mut().expect("the largest exponent");
        let (low, high) = sums.split_at_mut(width);
        let mut found = [(f32::NEG_INFINITY, None); 2];
        if kink > 0 {
            let place = &table.below[(kink - 1) * table.len..kink * table.len];
            found[0] = (below * score + place[0], Some(&place[1..]));
        }
        if kink < ends {
            let place = &table.above[kink * table.len..(kink + 1) * table.len];
            found[1] = (above * score + place[0], Some(&place[1..]));
        }
        let raised = larger(larger(*largest, found[0].0), found[1].0);
        let scale = math::exp::<FMA>(distance(*largest, raised));
        for (sums, (exponent, place)) in [low, high].into_iter().zip(found) {
            let Some(place) = place else {
                sums.iter_mut().for_each(|sum| *sum *= scale);
                continue;
            };
            let weight = math::exp::<FMA>(distance(exponent, raised));
            for (sum, x) in sums.iter_mut().zip(place) {
                *sum = math::fma::<FMA>(*sum, scale, weight * x);
            }
        }
        *largest = raised;
    }
}

/// Log-sum-exp accumulated in one column.
pub fn log_sum(state: &[f32], width: usize, column: usize) -> f32 {
    let sum = state[1 + column] + state[1 + width + column];
    if sum == 0.0 { f32::NEG_INFINITY } else { state[0] + math::ln::<false>(sum) }
}

/// Sums of columns relative to `e^norm`, each side of zero times its factor.
pub fn sums(state: &[f32], (width, column): (usize, usize), [below, above]: [f32; 2], norm: f32, out: &mut [f32]) {
    if state[0] == f32::NEG_INFINITY {
        return out.fill(0.0);
    }
    let scale = math::exp::<false>(state[0] - norm);
    let (low, high) = (&state[1 + column..], &state[1 + width + column..]);
    for ((out, low), high) in out.iter_mut().zip(low).zip(high) {
        *out = scale * (below * low + above * high);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Log-sum-exp of the scores of a row, and its weighted means without and with slopes, end by end.
    fn naive(ends: &EndData<'_>, score: f32, x: &[f32]) -> (f64, f64, f64) {
        let terms: Vec<(f64, f64, f64)> = ends
            .score
            .iter()
            .zip(x)
            .map(|(&own, &x)| {
                let t = f64::from(own) + f64::from(score);
                let slope = f64::from(ends.slopes[usize::from(t > 0.0)]);
                (t * slope, slope, f64::from(x))
            })
            .collect();
        let largest = terms.iter().map(|term| term.0).fold(f64::NEG_INFINITY, f64::max);
        let sum =
            |of: fn(&(f64, f64, f64)) -> f64| terms.iter().map(|term| (term.0 - largest).exp() * of(term)).sum::<f64>();
        let all = sum(|_| 1.0);
        (largest + all.ln(), sum(|term| term.2) / all, sum(|term| term.1 * term.2) / all)
    }

    fn check(scores: &[f32], slopes: [f32; 2], rows: &[f32]) {
        let x: Vec<f32> = (0..scores.len()).map(|i| (i as f32 * 0.7).sin()).collect();
        let summed = [SummedRows { rows: Some(&x), width: 1 }, SummedRows { rows: None, width: 1 }];
        let ends = EndData { score: scores, norm: None, summed: &summed, heads: 1, slopes };
        let others: Vec<u32> = (0..scores.len() as u32).collect();
        let mut table = vec![f32::NAN; scores.len() * table_len(2)];
        make_table(Dispatch::default(), ends, &others, 0, &mut table);
        for &row in rows {
            let mut state = vec![f32::NAN; state_len(2)];
            begin_row(1, 2, &mut state);
            add_row(Dispatch::default(), &[row], slopes, &table, (scores.len(), 2), &mut state);
            let lse = log_sum(&state, 2, 1);
            let mut out = [0.0; 2];
            sums(&state, (2, 0), [1.0; 2], lse, &mut out[..1]);
            sums(&state, (2, 0), slopes, lse, &mut out[1..]);
            let (exact, weighted, sloped) = naive(&ends, row, &x);
            let close = |found: f32, exact: f64| (f64::from(found) - exact).abs() <= 1e-5 * exact.abs().max(1.0);
            assert!(close(lse, exact), "{scores:?} {row}: {lse} instead of {exact}");
            assert!(close(out[0], weighted) && close(out[1], sloped), "{scores:?} {row}: {out:?}");
        }
    }

    #[test]
    fn a_row_finds_what_its_ends_add_up_to() {
        let rows = [-2.0, -1.0, -0.5, 0.0, 0.3, 1.0, 7.0];
        check(&[0.5], [0.2, 1.0], &rows);
        check(&[0.5, 0.5, -1.0, 1.0, 0.0, -0.3], [0.2, 1.0], &rows);
        check(&[0.5, 0.5, -1.0, 1.0, 0.0, -0.3], [0.0, 1.0], &rows);
        check(&[0.5, 0.5, -1.0, 1.0, 0.0, -0.3], [1.0, 1.0], &rows);
        check(&[0.5, 0.5, -1.0, 1.0, 0.0, -0.3], [0.5, -2.0], &rows);
        let many: Vec<f32> = (0..300).map(|i| (i as f32 * 1.3).cos() * 3.0).collect();
        check(&many, [0.2, 1.0], &rows);
    }

    #[test]
    fn scores_that_are_far_apart_overflow_nothing() {
        check(&[-80.0, 80.0, 3.0, -3.0, 60.0], [0.2, 1.0], &[-300.0, -80.0, 0.0, 80.0, 300.0]);
        check(&[-1000.0, 1000.0], [0.01, 1.0], &[-500.0, 0.0, 500.0]);
    }

    #[test]
    fn a_row_without_paths_has_a_sum_of_nothing() {
        let mut state = vec![f32::NAN; state_len(1)];
        begin_row(1, 1, &mut state);
        let mut out = [f32::NAN];
        sums(&state, (1, 0), [1.0; 2], f32::NEG_INFINITY, &mut out);
        assert_eq!((log_sum(&state, 1, 0), out), (f32::NEG_INFINITY, [0.0]));
    }
}
