//! Copies and reductions within rows.

use hgnnc_ir::ops::Reduce;

use super::flat::{larger, smaller};
use super::{Rows, product};
use crate::math;
use crate::simd::{Dispatch, multiversion};
use hgnnc_machine::KernelFeature;

multiversion! {
    /// Copies rows `first..` of an operand to contiguous elements, repeating every element `expand` times; as many rows
    /// as fit into `out`.
    pub fn fetch(dispatch: Dispatch, from: Rows<'_>, width: usize, expand: usize, first: usize, out: &mut [f32]) as fetch_body
}

#[inline(always)]
fn fetch_body<const FMA: bool>(from: Rows<'_>, width: usize, expand: usize, first: usize, out: &mut [f32]) {
    if expand == 1 {
        match from {
            Rows::Each(data) => out.copy_from_slice(&data[first * width..first * width + out.len()]),
            Rows::Same(data) => match data[..width].first_chunk::<8>() {
                Some(row) if width == 8 => out.as_chunks_mut::<8>().0.fill(*row),
                _ => fetch_rows(from, width, first, out),
            },
            Rows::Picked(data, index) => match width {
                1 => {
                    for (o, &at) in out.iter_mut().zip(&index[first..]) {
                        *o = data[at as usize];
                    }
                }
                4 => fetch_fixed::<4>(data, &index[first..], out),
                8 => fetch_fixed::<8>(data, &index[first..], out),
                16 => fetch_fixed::<16>(data, &index[first..], out),
                _ => fetch_rows(from, width, first, out),
            },
        }
        return;
    }
    match expand {
        4 => fetch_expanded::<4>(from, width, first, out),
        8 => fetch_expanded::<8>(from, width, first, out),
        16 => fetch_expanded::<16>(from, width, first, out),
        64 => fetch_expanded::<64>(from, width, first, out),
        _ => {
            for (i, row) in out.chunks_exact_mut(width * expand).enumerate() {
                for (group, &x) in row.chunks_exact_mut(expand).zip(from.row(first + i, width)) {
                    group.fill(x);
                }
            }
        }
    }
}

#[inline(always)]
fn fetch_rows(from: Rows<'_>, width: usize, first: usize, out: &mut [f32]) {
    for (i, row) in out.chunks_exact_mut(width).enumerate() {
        row.copy_from_slice(from.row(first + i, width));
    }
}

#[inline(always)]
fn fetch_fixed<const W: usize>(data: &[f32], index: &[u32], out: &mut [f32]) {
    let (data, _) = data.as_chunks::<W>();
    let (out, _) = out.as_chunks_mut::<W>();
    for (row, &at) in out.iter_mut().zip(index) {
        *row = data[at as usize];
    }
}

#[inline(always)]
fn fetch_expanded<const E: usize>(from: Rows<'_>, width: usize, first: usize, out: &mut [f32]) {
    for (i, row) in out.chunks_exact_mut(width * E).enumerate() {
        let (groups, _) = row.as_chunks_mut::<E>();
        for (group, &x) in groups.iter_mut().zip(from.row(first + i, width)) {
            *group = [x; E];
        }
    }
}

multiversion! {
    /// Reduces groups of `inner` adjacent elements.
    pub fn reduce_trailing(dispatch: Dispatch, reduce: Reduce, x: &[f32], inner: usize, out: &mut [f32]) as reduce_trailing_body
}

#[inline(always)]
fn reduce_trailing_body<const FMA: bool>(reduce: Reduce, x: &[f32], inner: usize, out: &mut [f32]) {
    if inner == 0 {
        out.fill(reduce.identity() as f32);
        return;
    }
    for (group, o) in x.chunks_exact(inner).zip(out.iter_mut()) {
        *o = match reduce {
            Reduce::Sum => sum(group),
            Reduce::Max => largest(group),
            Reduce::Min => group.iter().copied().fold(f32::INFINITY, smaller),
            Reduce::Lse => lse::<FMA>(group),
        };
    }
}

/// Sum with 16 accumulators, so that it vectorizes and its error grows slowly.
#[inline(always)]
pub fn sum(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let (chunks, rest) = x.as_chunks::<16>();
    for chunk in chunks {
        for k in 0..16 {
            lanes[k] += chunk[k];
        }
    }
    for (lane, &v) in lanes.iter_mut().zip(rest) {
        *lane += v;
    }
    fold_lanes(lanes)
}

#[inline(always)]
fn fold_lanes(mut lanes: [f32; 16]) -> f32 {
    for half in [8, 4, 2, 1] {
        for k in 0..half {
            lanes[k] += lanes[k + half];
        }
    }
    lanes[0]
}

/// Maximum with 16 accumulators; its order does not matter.
#[inline(always)]
fn largest(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let (chunks, rest) = x.as_chunks::<16>();
    for chunk in chunks {
        for k in 0..16 {
            lanes[k] = larger(lanes[k], chunk[k]);
        }
    }
    for (lane, &v) in lanes.iter_mut().zip(rest) {
        *lane = larger(*lane, v);
    }
    let mut found = lanes[0];
    for &lane in &lanes[1..] {
        found = larger(found, lane);
    }
    found
}

/// Log-sum-exp: `ln Σ e^x`.
#[inline(always)]
pub fn lse<const FMA: bool>(x: &[f32]) -> f32 {
    let largest = largest(x);
    if largest.is_infinite() {
        return largest;
    }
    let mut lanes = [0.0f32; 16];
    let (chunks, rest) = x.as_chunks::<16>();
    for chunk in chunks {
        for k in 0..16 {
            lanes[k] += math::exp::<FMA>(chunk[k] - largest);
        }
    }
    for (lane, &v) in lanes.iter_mut().zip(rest) {
        *lane += math::exp::<FMA>(v - largest);
    }
    largest + math::ln::<FMA>(fold_lanes(lanes))
}

multiversion! {
    /// [`dot`] for all extents.
    pub(super) fn dot_portable(
        dispatch: Dispatch,
        a: Rows<'_>, b: Rows<'_>, outer: usize, inner: usize, out: &mut [f32],
    ) as dot_body with dispatch
}

/// `out[i, o] = Σ_k a[i, o, k] · b[i, o, k]` over groups of `inner` elements, `outer` groups per row.
/// Products are not stored.
pub fn dot(dispatch: Dispatch, a: Rows<'_>, b: Rows<'_>, outer: usize, inner: usize, out: &mut [f32]) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if inner == 8 && dispatch.has(KernelFeature::Heads8) && super::heads8::dot(dispatch, a, b, outer, out) {
        return;
    }
    dot_portable(dispatch, a, b, outer, inner, out);
}

#[inline(always)]
fn dot_body<const FMA: bool>(
    dispatch: Dispatch,
    a: Rows<'_>,
    b: Rows<'_>,
    outer: usize,
    inner: usize,
    out: &mut [f32],
) {
    match if dispatch.has(KernelFeature::FixedWidths) { inner } else { 0 } {
        4 => dot_fixed::<FMA, 4>(a, b, outer, out),
        8 => dot_fixed::<FMA, 8>(a, b, outer, out),
        16 => dot_fixed::<FMA, 16>(a, b, outer, out),
        32 => dot_fixed::<FMA, 32>(a, b, outer, out),
        64 => dot_fixed::<FMA, 64>(a, b, outer, out),
        _ => product::dot(dispatch, a, b, (outer, inner), out),
    }
}

#[inline(always)]
fn dot_fixed<const FMA: bool, const K: usize>(a: Rows<'_>, b: Rows<'_>, outer: usize, out: &mut [f32]) {
    let width = outer * K;
    for (i, row) in out.chunks_exact_mut(outer).enumerate() {
        let (x, _) = a.row(i, width).as_chunks::<K>();
        let (y, _) = b.row(i, width).as_chunks::<K>();
        for ((slot, x), y) in row.iter_mut().zip(x).zip(y) {
            *slot = dot_array::<FMA, K>(x, y);
        }
    }
}

/// Dot product of a fixed power of two of elements, summed as a tree.
#[inline(always)]
fn dot_array<const FMA: bool, const K: usize>(x: &[f32; K], y: &[f32; K]) -> f32 {
    let mut products = [0.0f32; K];
    for k in 0..K {
        products[k] = x[k] * y[k];
    }
    let mut half = K / 2;
    while half > 0 {
        for k in 0..half {
            products[k] += products[k + half];
        }
        half /= 2;
    }
    products[0]
}

/// Groups `[m, n, inner]` of each row as groups `[n, m, inner]`.
pub fn transpose(from: Rows<'_>, width: usize, (m, n, inner): (usize, usize, usize), out: &mut [f32]) {
    let group = m * n * inner;
    for (i, row) in out.chunks_exact_mut(width.max(1)).enumerate() {
        let groups = from.row(i, width).chunks_exact(group).zip(row.chunks_exact_mut(group));
        for (from, to) in groups {
            for (column, to) in to.chunks_exact_mut(m * inner).enumerate() {
                if inner == 1 {
                    // Elements, which are no slices to copy.
                    for (row, to) in to.iter_mut().enumerate() {
                        *to = from[row * n + column];
                    }
                    continue;
                }
                for (row, to) in to.chunks_exact_mut(inner).enumerate() {
                    to.copy_from_slice(&from[(row * n + column) * inner..][..inner]);
                }
            }
        }
    }
}

multiversion! {
    /// `out = out ∘ Σ over rows`: accumulates rows of `width` elements into one row.
    pub fn accumulate_rows(dispatch: Dispatch, reduce: Reduce, x: &[f32], width: usize, out: &mut [f32]) as accumulate_rows_body
}

#[inline(always)]
fn accumulate_rows_body<const FMA: bool>(reduce: Reduce, x: &[f32], width: usize, out: &mut [f32]) {
    if width == 1 {
        // One element per row: vectors run along the rows.
        let o = &mut out[0];
        match reduce {
            Reduce::Sum => *o += sum(x),
            Reduce::Max => *o = x.iter().copied().fold(*o, larger),
            Reduce::Min => *o = x.iter().copied().fold(*o, smaller),
            Reduce::Lse => *o = math::log_add_exp::<FMA>(*o, lse::<FMA>(x)),
        }
        return;
    }
    if reduce == Reduce::Sum {
        // Bands of columns with sums in registers, added to the result once per 256 rows.
        for (band, o) in out.chunks_mut(16).enumerate() {
            let columns = band * 16..band * 16 + o.len();
            for rows in x.chunks(256 * width) {
                let mut part = [0.0f32; 16];
                for row in rows.chunks_exact(width) {
                    part.iter_mut().zip(&row[columns.clone()]).for_each(|(p, &v)| *p += v);
                }
                o.iter_mut().zip(part).for_each(|(o, p)| *o += p);
            }
        }
        return;
    }
    for row in x.chunks_exact(width) {
        for (o, &v) in out.iter_mut().zip(row) {
            *o = match reduce {
                Reduce::Sum => *o,
                Reduce::Max => larger(*o, v),
                Reduce::Min => smaller(*o, v),
                Reduce::Lse => math::log_add_exp::<FMA>(*o, v),
            };
        }
    }
}
