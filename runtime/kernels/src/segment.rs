//! Reductions over the edges of rows. `offsets[r]..offsets[r + 1]` are the edges of row `r` of the block.

use std::ops::Range;

use hgnnc_ir::ops::Reduce;

use super::flat::{larger, smaller};
use super::{ROWS_AHEAD, Rows};
use crate::math;
use crate::simd::{Dispatch, multiversion};
use hgnnc_machine::KernelFeature;

/// Sums of high-degree rows are accumulated in runs of this many edges, so that rounding errors grow with the number of
/// runs plus the length of one, not with their product.
const RUN: usize = 256;
/// Edges per batch of exponentials.
const FEW: usize = 32;

multiversion! {
    /// `out[r] = reduce over the edges of r of x`, rows of `width` elements. With `more`, continues from the values in
    /// `out`; not for `Lse`.
    pub fn segment(
        dispatch: Dispatch,
        reduce: Reduce, x: Rows<'_>, width: usize, offsets: &[u32], out: &mut [f32], more: bool,
    ) as segment_body with dispatch
}

#[inline(always)]
fn segment_body<const FMA: bool>(
    dispatch: Dispatch,
    reduce: Reduce,
    x: Rows<'_>,
    width: usize,
    offsets: &[u32],
    out: &mut [f32],
    more: bool,
) {
    if !more {
        out.fill(reduce.identity() as f32);
    }
    if !dispatch.has(KernelFeature::FixedWidths) {
        return segment_any::<FMA>(reduce, x, width, offsets, out);
    }
    if let Rows::Each(data) = x {
        match width {
            1 => return segment_flat::<FMA, 1, 16>(reduce, data, offsets, out),
            2 => return segment_flat::<FMA, 2, 8>(reduce, data, offsets, out),
            4 => return segment_flat::<FMA, 4, 4>(reduce, data, offsets, out),
            8 => return segment_flat::<FMA, 8, 2>(reduce, data, offsets, out),
            16 => return segment_flat::<FMA, 16, 1>(reduce, data, offsets, out),
            _ => {}
        }
    }
    match width {
        4 => segment_fixed::<FMA, 4>(reduce, dispatch, x, offsets, out),
        8 => segment_fixed::<FMA, 8>(reduce, dispatch, x, offsets, out),
        16 => segment_fixed::<FMA, 16>(reduce, dispatch, x, offsets, out),
        _ if width.is_multiple_of(64) => segment_banded::<FMA, 64>(reduce, dispatch, x, width, offsets, out),
        _ if width.is_multiple_of(32) => segment_banded::<FMA, 32>(reduce, dispatch, x, width, offsets, out),
        17.. if reduce == Reduce::Sum => sum_wide(dispatch, x, width, offsets, out),
        // Columns that two bands share have the same result in both.
        129.. => segment_banded::<FMA, 64>(reduce, dispatch, x, width, offsets, out),
        33.. => segment_banded::<FMA, 32>(reduce, dispatch, x, width, offsets, out),
        17.. => segment_banded::<FMA, 16>(reduce, dispatch, x, width, offsets, out),
        _ => segment_any::<FMA>(reduce, x, width, offsets, out),
    }
}

/// Narrow rows one after another: vectors run along the edges, `G = 16 / W` edges at a time.
#[inline(always)]
fn segment_flat<const FMA: bool, const W: usize, const G: usize>(
    reduce: Reduce,
    data: &[f32],
    offsets: &[u32],
    out: &mut [f32],
) {
    let (rows, _) = out.as_chunks_mut::<W>();
    for (o, edges) in rows.iter_mut().zip(offsets.windows(2)) {
        let x = &data[edges[0] as usize * W..edges[1] as usize * W];
        match reduce {
            Reduce::Sum => {
                // Runs keep the rounding errors of long rows small.
                for run in x.chunks(RUN * 16) {
                    let part = flat_fold::<W, G>(run, 0.0, |a, b| a + b);
                    for k in 0..W {
                        o[k] += part[k];
                    }
                }
            }
            Reduce::Max => {
                let part = flat_fold::<W, G>(x, f32::NEG_INFINITY, larger);
                for k in 0..W {
                    o[k] = larger(o[k], part[k]);
                }
            }
            Reduce::Min => {
                let part = flat_fold::<W, G>(x, f32::INFINITY, smaller);
                for k in 0..W {
                    o[k] = smaller(o[k], part[k]);
                }
            }
            Reduce::Lse => {
                let largest = flat_fold::<W, G>(x, f32::NEG_INFINITY, larger);
                let base: [f32; W] = std::array::from_fn(|k| finite_base(largest[k]));
                let bases: [f32; 16] = std::array::from_fn(|k| base[k % W]);
                let [mut total, mut second] = [[0.0f32; 16]; 2];
                let (pairs, rest) = x.as_chunks::<32>();
                for x in pairs {
                    for k in 0..16 {
                        total[k] += math::exp::<FMA>(x[k] - bases[k]);
                    }
                    for k in 0..16 {
                        second[k] += math::exp::<FMA>(x[16 + k] - bases[k]);
                    }
                }
                for k in 0..16 {
                    total[k] += second[k];
                }
                for x in rest.chunks(16) {
                    // Padding adds exp(-∞) = 0.
                    let mut padded = [f32::NEG_INFINITY; 16];
                    padded[..x.len()].copy_from_slice(x);
                    for k in 0..16 {
                        total[k] += math::exp::<FMA>(padded[k] - bases[k]);
                    }
                }
                let total = fold_to::<W>(total, |a, b| a + b);
                for k in 0..W {
                    o[k] = lse_of(largest[k], base[k], math::ln::<FMA>(total[k]));
                }
            }
        }
    }
}

/// Reduces rows of `W` elements: four times `G` rows next to each other, then these.
///
/// Rows stay arrays of their own, so that no lane of a vector is moved within the loop.
#[inline(always)]
fn flat_fold<const W: usize, const G: usize>(x: &[f32], identity: f32, f: impl Fn(f32, f32) -> f32) -> [f32; W] {
    if x.len() < 64 {
        // Few edges: row by row.
        let (rows, _) = x.as_chunks::<W>();
        let mut all = [identity; W];
        for row in rows {
            for k in 0..W {
                all[k] = f(all[k], row[k]);
            }
        }
        return all;
    }
    let mut quarters = [[[identity; W]; G]; 4];
    let (chunks, rest) = x.as_chunks::<64>();
    for x in chunks {
        for (quarter, x) in quarters.iter_mut().zip(x.as_chunks::<16>().0) {
            fold_rows(quarter, x, &f);
        }
    }
    let [mut rows, b, c, d] = quarters;
    for g in 0..G {
        for k in 0..W {
            rows[g][k] = f(f(rows[g][k], b[g][k]), f(c[g][k], d[g][k]));
        }
    }
    let (chunks, rest) = rest.as_chunks::<16>();
    for x in chunks {
        fold_rows(&mut rows, x, &f);
    }
    fold_rows(&mut rows, rest, &f);
    let mut half = G / 2;
    while half > 0 {
        let (left, right) = rows.split_at_mut(half);
        for (row, x) in left.iter_mut().zip(right) {
            for k in 0..W {
                row[k] = f(row[k], x[k]);
            }
        }
        half /= 2;
    }
    rows[0]
}

/// Folds rows of `W` elements into one result each.
#[inline(always)]
fn fold_rows<const W: usize, const G: usize>(rows: &mut [[f32; W]; G], x: &[f32], f: &impl Fn(f32, f32) -> f32) {
    for (row, x) in rows.iter_mut().zip(x.as_chunks::<W>().0) {
        for k in 0..W {
            row[k] = f(row[k], x[k]);
        }
    }
}

/// Reduces the lanes of a vector that belong to the same of `W` columns.
#[inline(always)]
fn fold_to<const W: usize>(mut a: [f32; 16], f: impl Fn(f32, f32) -> f32) -> [f32; W] {
    let mut half = 8;
    while half >= W {
        for k in 0..half {
            a[k] = f(a[k], a[k + half]);
        }
        half /= 2;
    }
    std::array::from_fn(|k| a[k])
}

#[inline(always)]
fn segment_fixed<const FMA: bool, const W: usize>(
    reduce: Reduce,
    dispatch: Dispatch,
    x: Rows<'_>,
    offsets: &[u32],
    out: &mut [f32],
) {
    segment_banded::<FMA, W>(reduce, dispatch, x, W, offsets, out);
}

#[inline(always)]
fn band_of<const W: usize>(x: Rows<'_>, e: usize, width: usize, start: usize) -> &[f32; W] {
    x.row(e, width)[start..].first_chunk::<W>().expect("a row has all columns of a band")
}

/// Folds `W` columns from `start` on over some edges, in their order. `f` takes what `of` has for an edge, and is a
/// function that is always inlined, with the instructions of its caller; a closure would not be. Gathered rows have a loop
/// of their own, so that results stay in registers.
#[inline(always)]
fn fold_band<T, const W: usize>(
    (x, width, start): (Rows<'_>, usize, usize),
    edges: Range<usize>,
    mut all: [f32; W],
    of: impl Fn(usize) -> T,
    f: impl Fn(&mut [f32; W], T, &[f32; W]),
) -> [f32; W] {
    const HAS: &str = "a row has all columns of a band";
    match x {
        Rows::Picked(data, index) => {
            for (e, &picked) in edges.clone().zip(&index[edges]) {
                f(&mut all, of(e), data[picked as usize * width + start..].first_chunk::<W>().expect(HAS));
            }
        }
        Rows::Each(data) => {
            for e in edges {
                f(&mut all, of(e), data[e * width + start..].first_chunk::<W>().expect(HAS));
            }
        }
        Rows::Same(_) => edges.for_each(|e| f(&mut all, of(e), band_of::<W>(x, e, width, start))),
    }
    all
}

/// Whether rows are fetched ahead of their use; those of the first edges are fetched now.
#[inline(always)]
fn begin_prefetch(dispatch: Dispatch, x: Rows<'_>, width: usize, offsets: &[u32]) -> bool {
    let prefetch = x.wants_prefetch(dispatch);
    if prefetch {
        let first = offsets.first().map_or(0, |&first| first as usize);
        (first..first + ROWS_AHEAD).for_each(|e| x.prefetch(e, width));
    }
    prefetch
}

/// Bands of `W` columns whose running results stay in registers. The last one has the last columns of the row, and
/// shares some with the one before if the width is no multiple of `W`: not for sums.
#[inline(always)]
fn segment_banded<const FMA: bool, const W: usize>(
    reduce: Reduce,
    dispatch: Dispatch,
    x: Rows<'_>,
    width: usize,
    offsets: &[u32],
    out: &mut [f32],
) {
    let prefetch = begin_prefetch(dispatch, x, width, offsets);
    for (row, edges) in out.chunks_exact_mut(width).zip(offsets.windows(2)) {
        let edges = edges[0] as usize..edges[1] as usize;
        for band in 0..width.div_ceil(W) {
            let column = (band * W).min(width - W);
            let o = row[column..].first_chunk_mut::<W>().expect("a row has all columns of a band");
            let mut acc = if reduce == Reduce::Lse { [f32::NEG_INFINITY; W] } else { *o };
            match reduce {
                Reduce::Sum => {
                    for start in edges.clone().step_by(RUN) {
                        let mut part = [0.0f32; W];
                        for e in start..edges.end.min(start + RUN) {
                            // Prefetches the entire row with its first band.
                            if prefetch && band == 0 {
                                x.prefetch(e + ROWS_AHEAD, width);
                            }
                            let v = band_of::<W>(x, e, width, column);
                            for k in 0..W {
                                part[k] += v[k];
                            }
                        }
                        for k in 0..W {
                            acc[k] += part[k];
                        }
                    }
                }
                Reduce::Max => acc = fold_band((x, width, column), edges.clone(), acc, none, max_columns),
                Reduce::Min => acc = fold_band((x, width, column), edges.clone(), acc, none, min_columns),
                Reduce::Lse => {
                    acc = fold_band((x, width, column), edges.clone(), acc, none, max_columns);
                    let mut base = acc;
                    for b in &mut base {
                        *b = finite_base(*b);
                    }
                    let mut total = [0.0f32; W];
                    // Differences, exponentials and sums of a few edges in separate loops, so that `exp` runs over full
                    // vectors however narrow the rows are.
                    let mut few = [[0.0f32; W]; FEW];
                    for start in edges.clone().step_by(FEW) {
                        let count = FEW.min(edges.end - start);
                        for (i, slot) in few[..count].iter_mut().enumerate() {
                            let v = band_of::<W>(x, start + i, width, column);
                            for k in 0..W {
                                slot[k] = v[k] - base[k];
                            }
                        }
                        for x in few[..count].as_flattened_mut() {
                            *x = math::exp::<FMA>(*x);
                        }
                        for row in &few[..count] {
                            for k in 0..W {
                                total[k] += row[k];
                            }
                        }
                    }
                    for t in &mut total {
                        *t = math::ln::<FMA>(*t);
                    }
                    for k in 0..W {
                        acc[k] = lse_of(acc[k], base[k], total[k]);
                    }
                }
            }
            *o = acc;
        }
    }
}

#[inline(always)]
fn none(_: usize) {}

#[inline(always)]
fn max_columns<const W: usize>(all: &mut [f32; W], (): (), row: &[f32; W]) {
    for k in 0..W {
        all[k] = larger(all[k], row[k]);
    }
}

#[inline(always)]
fn min_columns<const W: usize>(all: &mut [f32; W], (): (), row: &[f32; W]) {
    for k in 0..W {
        all[k] = smaller(all[k], row[k]);
    }
}

/// Sums of rows of more than 16 elements in bands of 64, 32 and 16 columns. The last band may overlap the one before. The rows
/// of a run stay in cache for all bands.
#[inline(always)]
fn sum_wide(dispatch: Dispatch, x: Rows<'_>, width: usize, offsets: &[u32], out: &mut [f32]) {
    let prefetch = begin_prefetch(dispatch, x, width, offsets);
    for (row, edges) in out.chunks_exact_mut(width).zip(offsets.windows(2)) {
        let edges = edges[0] as usize..edges[1] as usize;
        for start in edges.clone().step_by(RUN) {
            let run = start..edges.end.min(start + RUN);
            let mut column = 0;
            while column < width {
                // Whole rows are fetched ahead of their first band.
                let ahead = prefetch && column == 0;
                let fetch = |e: usize| {
                    if ahead {
                        x.prefetch(e + ROWS_AHEAD, width);
                    }
                };
                let (of_row, run) = ((x, width, 0), run.clone());
                column += match width - column {
                    33.. if width >= 64 => add_band::<(), 64>(of_row, column, run, row, fetch, add),
                    17.. if width >= 32 => add_band::<(), 32>(of_row, column, run, row, fetch, add),
                    _ => add_band::<(), 16>(of_row, column, run, row, fetch, add),
                };
            }
        }
    }
}

/// Adds what `f` makes of `W` columns from `column` on, over some edges, to a row: of its last `W` columns those that are
/// left. The row's columns are those of `x` from `first` on; `of` and `f` are as of [`fold_band`]. Returns their number.
#[inline(always)]
fn add_band<T, const W: usize>(
    (x, width, first): (Rows<'_>, usize, usize),
    column: usize,
    edges: Range<usize>,
    row: &mut [f32],
    of: impl Fn(usize) -> T,
    f: impl Fn(&mut [f32; W], T, &[f32; W]),
) -> usize {
    let start = column.min(row.len() - W);
    let part = fold_band((x, width, first + start), edges, [0.0; W], of, f);
    row[column..start + W].iter_mut().zip(&part[column - start..]).for_each(|(sum, part)| *sum += part);
    start + W - column
}

#[inline(always)]
fn add<const W: usize>(sum: &mut [f32; W], (): (), row: &[f32; W]) {
    for k in 0..W {
        sum[k] += row[k];
    }
}

multiversion! {
    /// Row of each edge. Short rows write eight entries, which the following rows overwrite.
    pub fn owners(dispatch: Dispatch, offsets: &[u32], own: &mut [u32]) as owners_body
}

#[inline(always)]
fn owners_body<const FMA: bool>(offsets: &[u32], own: &mut [u32]) {
    for (row, edges) in offsets.windows(2).enumerate() {
        let (start, end) = (edges[0] as usize, edges[1] as usize);
        match own[start..].first_chunk_mut::<8>() {
            Some(few) if end - start <= 8 => *few = [row as u32; 8],
            _ => own[start..end].fill(row as u32),
        }
    }
}

/// The base subtracted before `exp`: an infinite maximum would give NaN.
#[inline(always)]
fn finite_base(largest: f32) -> f32 {
    if largest.is_infinite() { 0.0 } else { largest }
}

#[inline(always)]
fn lse_of(largest: f32, base: f32, ln_total: f32) -> f32 {
    if largest.is_infinite() { largest } else { base + ln_total }
}

#[inline(always)]
fn segment_any<const FMA: bool>(reduce: Reduce, x: Rows<'_>, width: usize, offsets: &[u32], out: &mut [f32]) {
    for (row, edges) in out.chunks_exact_mut(width).zip(offsets.windows(2)) {
        let edges = edges[0] as usize..edges[1] as usize;
        match reduce {
            Reduce::Sum => {
                // Columns in bands of 16, the last one narrower.
                for (band, o) in row.chunks_mut(16).enumerate() {
                    let columns = band * 16..band * 16 + o.len();
                    for start in edges.clone().step_by(RUN) {
                        let mut part = [0.0f32; 16];
                        for e in start..edges.end.min(start + RUN) {
                            part.iter_mut().zip(&x.row(e, width)[columns.clone()]).for_each(|(p, &v)| *p += v);
                        }
                        o.iter_mut().zip(part).for_each(|(o, p)| *o += p);
                    }
                }
            }
            Reduce::Max => {
                for e in edges {
                    row.iter_mut().zip(x.row(e, width)).for_each(|(o, &v)| *o = larger(*o, v));
                }
            }
            Reduce::Min => {
                for e in edges {
                    row.iter_mut().zip(x.row(e, width)).for_each(|(o, &v)| *o = smaller(*o, v));
                }
            }
            Reduce::Lse => {
                for (k, o) in row.iter_mut().enumerate() {
                    let largest = edges.clone().fold(f32::NEG_INFINITY, |m, e| larger(m, x.row(e, width)[k]));
                    let base = finite_base(largest);
                    let mut total = 0.0f32;
                    for e in edges.clone() {
                        total += math::exp::<FMA>(x.row(e, width)[k] - base);
                    }
                    *o = lse_of(largest, base, math::ln::<FMA>(total));
                }
            }
        }
    }
}

/// Weighted gather-sum: `out[r, h, k] = Σ over the edges e of r of a[e, h] · x[e, h, k]`, with `heads` weights per edge
/// and `inner` elements per weight. The products are never stored. With `more`, continues from the values in `out`.
#[allow(clippy::too_many_arguments, reason = "operands, their extents and the choice of kernels")]
pub fn weighted_sum(
    dispatch: Dispatch,
    a: Rows<'_>,
    x: Rows<'_>,
    heads: usize,
    inner: usize,
    offsets: &[u32],
    out: &mut [f32],
    more: bool,
) {
    if !more {
        out.fill(0.0);
    }
    #[cfg(target_arch = "x86_64")]
    if heads == 1
        && dispatch.has(KernelFeature::Spmm)
        && super::sparse::weighted_sum(dispatch, a, x, inner, offsets, out)
        || dispatch.has(KernelFeature::WideRows)
            && super::heads8::weighted_sum_wide(dispatch, a, x, heads, inner, offsets, out)
    {
        return;
    }
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if inner == 8
        && dispatch.has(KernelFeature::Heads8)
        && super::heads8::weighted_sum(dispatch, a, x, heads, offsets, out)
    {
        return;
    }
    weighted_portable(dispatch, a, x, heads, inner, offsets, out);
}

multiversion! {
    /// [`weighted_sum`] for all extents.
    pub(super) fn weighted_portable(
        dispatch: Dispatch,
        a: Rows<'_>, x: Rows<'_>, heads: usize, inner: usize, offsets: &[u32], out: &mut [f32],
    ) as weighted_sum_body with dispatch
}

#[inline(always)]
fn weighted_sum_body<const FMA: bool>(
    dispatch: Dispatch,
    a: Rows<'_>,
    x: Rows<'_>,
    heads: usize,
    inner: usize,
    offsets: &[u32],
    out: &mut [f32],
) {
    if !dispatch.has(KernelFeature::FixedWidths) {
        return weighted_any::<FMA>(a, x, heads, inner, offsets, out);
    }
    match (heads, inner) {
        (_, 8) if heads.is_multiple_of(8) => weighted_banded::<FMA, 8, 8>(a, x, heads, inner, offsets, out),
        (_, 8) if heads.is_multiple_of(4) => weighted_banded::<FMA, 4, 8>(a, x, heads, inner, offsets, out),
        (_, 16) if heads.is_multiple_of(4) => weighted_banded::<FMA, 4, 16>(a, x, heads, inner, offsets, out),
        _ if inner.is_multiple_of(64) => weighted_banded::<FMA, 1, 64>(a, x, heads, inner, offsets, out),
        (_, 16..) => weighted_wide::<FMA>(a, x, heads, inner, offsets, out),
        (_, 8) => weighted_banded::<FMA, 1, 8>(a, x, heads, inner, offsets, out),
        _ => weighted_any::<FMA>(a, x, heads, inner, offsets, out),
    }
}

/// Bands of `H` weights times `K` elements; a band's sums stay in registers over all edges of a row.
/// `inner` is a multiple of `K`, and equal to it where `H > 1`.
#[inline(always)]
fn weighted_banded<const FMA: bool, const H: usize, const K: usize>(
    a: Rows<'_>,
    x: Rows<'_>,
    heads: usize,
    inner: usize,
    offsets: &[u32],
    out: &mut [f32],
) {
    let width = heads * inner;
    for (row, edges) in out.chunks_exact_mut(width).zip(offsets.windows(2)) {
        for (band, o) in row.chunks_exact_mut(H * K).enumerate() {
            let start = band * H * K;
            let head = start / inner;
            let end = edges[1] as usize;
            for first in (edges[0] as usize..end).step_by(RUN) {
                let mut acc = [[0.0f32; K]; H];
                for e in first..end.min(first + RUN) {
                    let weights = a.row(e, heads)[head..].first_chunk::<H>().expect("heads are a multiple of H");
                    let (groups, _) = x.row(e, width)[start..start + H * K].as_chunks::<K>();
                    for h in 0..H {
                        for k in 0..K {
                            acc[h][k] = math::fma::<FMA>(weights[h], groups[h][k], acc[h][k]);
                        }
                    }
                }
                for (o, acc) in o.chunks_exact_mut(K).zip(&acc) {
                    o.iter_mut().zip(acc).for_each(|(o, a)| *o += a);
                }
            }
        }
    }
}

/// Groups of at least 16 elements in bands of 64 and 16: compilers make scalars of 32. The last band may overlap the one
/// before. The rows of a run stay in cache for all bands.
#[inline(always)]
fn weighted_wide<const FMA: bool>(
    a: Rows<'_>,
    x: Rows<'_>,
    heads: usize,
    inner: usize,
    offsets: &[u32],
    out: &mut [f32],
) {
    match a {
        Rows::Each(a) => weighted_groups::<FMA>(|e, head| a[e * heads + head], x, heads, inner, offsets, out),
        _ => weighted_groups::<FMA>(|e, head| a.row(e, heads)[head], x, heads, inner, offsets, out),
    }
}

#[inline(always)]
fn weighted_groups<const FMA: bool>(
    weight: impl Fn(usize, usize) -> f32,
    x: Rows<'_>,
    heads: usize,
    inner: usize,
    offsets: &[u32],
    out: &mut [f32],
) {
    let width = heads * inner;
    for (row, edges) in out.chunks_exact_mut(width).zip(offsets.windows(2)) {
        let edges = edges[0] as usize..edges[1] as usize;
        for first in edges.clone().step_by(RUN) {
            let run = first..edges.end.min(first + RUN);
            for (head, row) in row.chunks_exact_mut(inner).enumerate() {
                let weight = |e: usize| weight(e, head);
                let x = (x, width, head * inner);
                let mut column = 0;
                while column < inner {
                    column += match inner - column {
                        33.. if inner >= 64 => add_band(x, column, run.clone(), row, weight, add_times::<FMA, 64>),
                        _ => add_band(x, column, run.clone(), row, weight, add_times::<FMA, 16>),
                    };
                }
            }
        }
    }
}

#[inline(always)]
fn add_times<const FMA: bool, const W: usize>(sum: &mut [f32; W], weight: f32, row: &[f32; W]) {
    for k in 0..W {
        sum[k] = math::fma::<FMA>(weight, row[k], sum[k]);
    }
}

#[inline(always)]
fn weighted_any<const FMA: bool>(
    a: Rows<'_>,
    x: Rows<'_>,
    heads: usize,
    inner: usize,
    offsets: &[u32],
    out: &mut [f32],
) {
    let width = heads * inner;
    for (row, edges) in out.chunks_exact_mut(width).zip(offsets.windows(2)) {
        for e in edges[0] as usize..edges[1] as usize {
            let groups = row.chunks_exact_mut(inner).zip(x.row(e, width).chunks_exact(inner));
            for ((o, x), &weight) in groups.zip(a.row(e, heads)) {
                o.iter_mut().zip(x).for_each(|(o, &x)| *o = math::fma::<FMA>(weight, x, *o));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever bands their columns are divided into, columns are summed by runs of edges in their order.
    #[test]
    fn sums_of_rows_of_any_width_are_those_of_their_columns() {
        let offsets = [0u32, 0, 1, 300, 301, 900];
        let index: Vec<u32> = (0..900).map(|e| e * 37 % 250).collect();
        for width in [1, 3, 16, 17, 31, 32, 33, 50, 63, 65, 100, 130, 349] {
            let data: Vec<f32> = (0..900 * width).map(|i| (i * 7919 % 1009) as f32 / 1009.0 - 0.3).collect();
            for x in [Rows::Each(&data), Rows::Picked(&data[..250 * width], &index)] {
                let mut expected = vec![0.5; (offsets.len() - 1) * width];
                for (row, edges) in expected.chunks_exact_mut(width).zip(offsets.windows(2)) {
                    for (column, sum) in row.iter_mut().enumerate() {
                        let edges: Vec<usize> = (edges[0] as usize..edges[1] as usize).collect();
                        for run in edges.chunks(RUN) {
                            *sum += run.iter().fold(0.0, |part, &e| part + x.row(e, width)[column]);
                        }
                    }
                }
                let mut sums = vec![0.5; expected.len()];
                segment(Dispatch::default(), Reduce::Sum, x, width, &offsets, &mut sums, true);
                let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-4;
                // Narrower rows are summed several at a time.
                let same = if width <= 16 { sums.iter().zip(&expected).all(near) } else { sums == expected };
                assert!(same, "width {width}");
            }
        }
    }

    /// Columns that two bands share are reduced to the same number in both.
    #[test]
    fn reductions_of_rows_of_any_width_are_those_of_their_columns() {
        let offsets = [0u32, 0, 1, 300, 301, 900];
        let index: Vec<u32> = (0..900).map(|e| e * 37 % 250).collect();
        for width in [3, 16, 17, 31, 32, 33, 50, 63, 64, 100, 349] {
            let data: Vec<f32> = (0..250 * width).map(|i| (i * 7919 % 1009) as f32 / 1009.0 - 0.3).collect();
            let each: Vec<f32> = index.iter().flat_map(|&i| &data[i as usize * width..][..width]).copied().collect();
            let operands = [Rows::Picked(&data, &index), Rows::Each(&each), Rows::Same(&data)];
            for (reduce, more) in [(Reduce::Max, true), (Reduce::Min, true), (Reduce::Max, false), (Reduce::Lse, false)]
            {
                let levels = crate::simd::available();
                for (x, level) in operands.into_iter().flat_map(|x| levels.iter().map(move |&level| (x, level))) {
                    let mut found = vec![0.1; (offsets.len() - 1) * width];
                    segment(Dispatch::default().at_most(level), reduce, x, width, &offsets, &mut found, more);
                    for (row, edges) in found.chunks_exact(width).zip(offsets.windows(2)) {
                        for (column, &found) in row.iter().enumerate() {
                            let column = (edges[0]..edges[1]).map(|e| f64::from(x.row(e as usize, width)[column]));
                            let before = more.then_some(f64::from(0.1f32)).into_iter();
                            let expected = match reduce {
                                Reduce::Max => before.chain(column).fold(f64::NEG_INFINITY, f64::max),
                                Reduce::Min => before.chain(column).fold(f64::INFINITY, f64::min),
                                _ => column.map(f64::exp).sum::<f64>().ln(),
                            };
                            let found = f64::from(found);
                            let near = found == expected || (found - expected).abs() <= 1e-5;
                            assert!(near, "{reduce:?} of width {width}, {level:?}: {found}, not {expected}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn weighted_sums_of_rows_of_any_width_are_those_of_their_columns() {
        let offsets = [0u32, 0, 1, 300, 301, 900];
        let index: Vec<u32> = (0..900).map(|e| e * 37 % 250).collect();
        for (heads, inner) in
            [(1, 3), (1, 17), (1, 50), (1, 100), (1, 349), (2, 16), (2, 24), (3, 33), (4, 12), (2, 80)]
        {
            let width = heads * inner;
            let data: Vec<f32> = (0..250 * width).map(|i| (i * 7919 % 1009) as f32 / 1009.0 - 0.3).collect();
            let weights: Vec<f32> = (0..900 * heads).map(|i| (i * 5003 % 709) as f32 / 709.0).collect();
            let x = Rows::Picked(&data, &index);
            let weights = [Rows::Each(&weights), Rows::Picked(&weights, &index), Rows::Same(&weights)];
            let levels = crate::simd::available();
            for (a, level) in weights.into_iter().flat_map(|a| levels.iter().map(move |&level| (a, level))) {
                let mut sums = vec![0.5; (offsets.len() - 1) * width];
                let at = Dispatch::default().at_most(level);
                weighted_sum(at, a, x, heads, inner, &offsets, &mut sums, true);
                for (row, edges) in sums.chunks_exact(width).zip(offsets.windows(2)) {
                    for (column, &found) in row.iter().enumerate() {
                        let terms = (edges[0] as usize..edges[1] as usize)
                            .map(|e| f64::from(a.row(e, heads)[column / inner]) * f64::from(x.row(e, width)[column]));
                        let expected = 0.5 + terms.sum::<f64>();
                        let near = (f64::from(found) - expected).abs() <= 1e-5 * expected.abs().max(1.0);
                        assert!(near, "{heads} x {inner}, {level:?}: {found}, not {expected}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_edge_has_its_owner() {
        // Rows without edges, with few, with more than one chunk of eight, and few at the end.
        let offsets = [0u32, 0, 3, 3, 4, 21, 22, 22];
        let mut own = vec![u32::MAX; 22];
        owners(Dispatch::default(), &offsets, &mut own);
        let expected: Vec<u32> = offsets
            .windows(2)
            .zip(0u32..)
            .flat_map(|(e, row)| std::iter::repeat_n(row, (e[1] - e[0]) as usize))
            .collect();
        assert_eq!(own, expected);
    }
}
