//! Dense products of rows with small weights: register-tiled GEMM over operands read in place, and the `gemm` crate
//! where it is faster.
//!
//! Results depend only on the chunk and the instruction set, not on threads. Nothing is allocated (except by `gemm`,
//! one workspace per thread): operands are packed on the stack.

#![allow(unsafe_code)]

mod blocks;
mod by_row;
mod lanes;
mod library;
mod tile;

use std::mem::MaybeUninit;

use tile::{Dots, Job, PACKED};

use super::{Rows, rows, segment};
use crate::simd::{Dispatch, multiversion};
use hgnnc_machine::{KernelFeature, KernelFeatures};

/// Extents of a batched product: weights are `[batch, k, n]`, rows `[batch, k]` or `[batch, n]`.
pub type Extents = hgnnc_kernel_ir::kernel::Extents<usize>;

/// Maximum columns (or rows) of a result computed as dot products: tiles would leave most of a vector empty.
const FEW: usize = 4;

/// Minimum contracted extent for dot products.
const LONG: usize = 16;

/// Columns of the transposed weight packed together: one tile of the widest vectors.
const PANEL: usize = 64;

/// `out[r, b, :] = x[r, b, :] · w[b, :, :]`.
///
/// # Panics
/// If a slice is shorter than its extents say.
pub fn mat_mul(dispatch: Dispatch, of: Extents, rows: usize, x: &[f32], w: &[f32], out: &mut [f32]) {
    let Extents { batch, k, n } = of;
    let (x, w, out) = (&x[..rows * batch * k], &w[..batch * k * n], &mut out[..rows * batch * n]);
    if out.is_empty() {
        return;
    }
    match (k, n) {
        (0, _) => return out.fill(0.0),
        (_, 1) if batch > 1 => return rows::dot(dispatch, Rows::Each(x), Rows::Same(w), batch, k, out),
        (1, _) if batch > 1 => return scale_groups(dispatch, x, w, n, out),
        _ if in_blocks(dispatch, of) => {
            return blocks::multiply(dispatch, blocks::Product { size: n, transposed: false, x, w, out });
        }
        _ => {}
    }
    let Kernels { multiply, dots } = Kernels::of(dispatch);
    for b in 0..batch {
        let lhs = Matrix { rows, columns: k, row_stride: batch * k, column_stride: 1, start: b * k };
        let rhs = Matrix { rows: k, columns: n, row_stride: n, column_stride: 1, start: b * k * n };
        let dst = Matrix { rows, columns: n, row_stride: batch * n, column_stride: 1, start: b * n };
        if n <= FEW && k >= LONG {
            let mut packed = Packed::new();
            for start in (0..k).step_by(PACKED / FEW) {
                let depth = (k - start).min(PACKED / FEW);
                let (columns, packed) = packed.transpose(dispatch, rhs.part(start..start + depth, 0..n), w);
                dots(dispatch, dst, out, lhs.part(0..rows, start..start + depth), x, columns, packed, start > 0);
            }
        } else if library::is_faster(k, n, dispatch.features()) {
            library::multiply(dst, out, lhs, x, rhs, w, false);
        } else {
            multiply(dispatch, dst, out, lhs, x, rhs, w, false);
        }
    }
}

/// `out[r, b, :] = y[r, b, :] · w[b, :, :]ᵀ`.
///
/// # Panics
/// If a slice is shorter than its extents say.
pub fn mat_mul_t(dispatch: Dispatch, of: Extents, rows: usize, y: &[f32], w: &[f32], out: &mut [f32]) {
    let few = rows <= FEW;
    mat_mul_t_of(dispatch, of, (rows, few), y, w, out);
}

/// As [`mat_mul_t`], with a row computed by the same operations however many rows there are, where the `gemm` crate is not faster.
///
/// # Panics
/// If a slice is shorter than its extents say.
pub fn mat_mul_t_by_row(dispatch: Dispatch, of: Extents, rows: usize, y: &[f32], w: &[f32], out: &mut [f32]) {
    mat_mul_t_of(dispatch, of, (rows, false), y, w, out);
}

fn mat_mul_t_of(dispatch: Dispatch, of: Extents, (rows, few): (usize, bool), y: &[f32], w: &[f32], out: &mut [f32]) {
    let Extents { batch, k, n } = of;
    let (y, w, out) = (&y[..rows * batch * n], &w[..batch * k * n], &mut out[..rows * batch * k]);
    if out.is_empty() {
        return;
    }
    match (k, n) {
        (_, 0) => return out.fill(0.0),
        (1, _) if batch > 1 => return rows::dot(dispatch, Rows::Each(y), Rows::Same(w), batch, n, out),
        (_, 1) if batch > 1 => return scale_groups(dispatch, y, w, k, out),
        _ if in_blocks(dispatch, of) => {
            return blocks::multiply(dispatch, blocks::Product { size: n, transposed: true, x: y, w, out });
        }
        _ => {}
    }
    let Kernels { multiply, dots } = Kernels::of(dispatch);
    for b in 0..batch {
        let lhs = Matrix { rows, columns: n, row_stride: batch * n, column_stride: 1, start: b * n };
        let weight = Matrix { rows: k, columns: n, row_stride: n, column_stride: 1, start: b * k * n };
        let dst = Matrix { rows, columns: k, row_stride: batch * k, column_stride: 1, start: b * k };
        if k <= FEW && n >= LONG {
            dots(dispatch, dst, out, lhs, y, weight, w, false);
        } else if few && n >= LONG {
            // Transposing the weight does not pay for few rows.
            dots(dispatch, dst.transposed(), out, weight, w, lhs, y, false);
        } else if n == 1 {
            // A column is its own transpose.
            let row = Matrix { rows: 1, columns: k, row_stride: k, ..weight };
            multiply(dispatch, dst, out, lhs, y, row, w, false);
        } else if library::is_faster(k, n, dispatch.features()) {
            library::multiply(dst, out, lhs, y, weight.transposed(), w, false);
        } else {
            let mut packed = Packed::new();
            let depth = n.min(tile::DEPTH);
            let panel = PACKED / depth / PANEL * PANEL;
            for column in (0..k).step_by(panel) {
                let columns = column..(column + panel).min(k);
                for start in (0..n).step_by(depth) {
                    let steps = start..(start + depth).min(n);
                    let (rhs, packed) = packed.transpose(dispatch, weight.part(columns.clone(), steps.clone()), w);
                    let dst = dst.part(0..rows, columns.clone());
                    multiply(dispatch, dst, out, lhs.part(0..rows, steps), y, rhs, packed, start > 0);
                }
            }
        }
    }
}

/// Groups `[m, k]` of each row of `a` times groups `[k, n]` of the same row of `b`, to groups `[m, n]`. The numbers beside
/// the operands are elements of a row.
///
/// # Panics
/// If an operand has fewer rows than the result.
pub fn by_row(
    dispatch: Dispatch,
    a: (Rows<'_>, usize),
    b: (Rows<'_>, usize),
    extents: (usize, usize, usize),
    out: &mut [f32],
) {
    by_row::multiply(dispatch, by_row::Product { a, b, extents, out });
}

/// `out[i, o] = Σ_k a[i, o, k] · b[i, o, k]` over groups of `inner` elements, `outer` groups per row.
pub(super) fn dot(dispatch: Dispatch, a: Rows<'_>, b: Rows<'_>, (outer, inner): (usize, usize), out: &mut [f32]) {
    by_row::dot(dispatch, by_row::Dot { a, b, outer, inner, out });
}

/// Are the weights small blocks, of which a vector holds several?
fn in_blocks(dispatch: Dispatch, of: Extents) -> bool {
    blocks::are(dispatch, of) && dispatch.has(KernelFeature::RegisterTiles)
}

/// Most rows of a weight gradient with more columns that is computed transposed, and least rows of its operands.
const NARROW: usize = 128;

/// `out[b, i, :] (+)= Σ_r x[r, b, i] · y[r, b, :]` for `i` in `band`; `out` holds the band of each
/// batch: `[batch, band.len(), n]`.
///
/// # Panics
/// If a slice is shorter than its extents say.
#[allow(clippy::too_many_arguments, reason = "operands, their extents and the choice of kernels")]
pub fn outer(
    dispatch: Dispatch,
    of: Extents,
    rows: usize,
    band: std::ops::Range<usize>,
    x: &[f32],
    y: &[f32],
    out: &mut [f32],
    accumulate: bool,
) {
    let Extents { batch, k, n } = of;
    let height = band.len();
    let (x, y, out) = (&x[..rows * batch * k], &y[..rows * batch * n], &mut out[..batch * height * n]);
    if out.is_empty() {
        return;
    }
    if rows == 0 {
        if !accumulate {
            out.fill(0.0);
        }
        return;
    }
    if batch > 1 && height == k && (n == 1 || k == 1) {
        // One weight per group of a row: a weighted sum over one segment of rows.
        let (weights, groups, inner) = if n == 1 { (y, x, k) } else { (x, y, n) };
        let segment = [0, u32::try_from(rows).expect("rows are fewer than 2^32")];
        segment::weighted_sum(
            dispatch,
            Rows::Each(weights),
            Rows::Each(groups),
            batch,
            inner,
            &segment,
            out,
            accumulate,
        );
        return;
    }
    if height == k && in_blocks(dispatch, of) {
        if !accumulate {
            out.fill(0.0);
        }
        return blocks::outer(dispatch, blocks::Outer { size: n, x, y, out });
    }
    // Vectorizes along rows or along columns of the result, whichever fills the vectors better.
    let Kernels { multiply, .. } = Kernels::of(dispatch);
    let across = n * height.div_ceil(LONG) * 2 <= height * n.div_ceil(LONG);
    for b in 0..batch {
        let lhs = Matrix { rows, columns: k, row_stride: batch * k, column_stride: 1, start: b * k };
        let lhs = lhs.part(0..rows, band.clone());
        let rhs = Matrix { rows, columns: n, row_stride: batch * n, column_stride: 1, start: b * n };
        let dst = Matrix { rows: height, columns: n, row_stride: n, column_stride: 1, start: b * height * n };
        if n == 1 {
            let row = Matrix { rows: 1, columns: height, row_stride: height, ..dst };
            multiply(dispatch, row, out, rhs.transposed(), y, lhs, x, accumulate);
        } else if across && n <= PACKED / PANEL {
            let mut packed = Packed::new();
            let panel = (PACKED / n).min(height);
            for column in (0..height).step_by(panel) {
                let columns = column..(column + panel).min(height);
                let part = Matrix { rows: n, columns: columns.len(), row_stride: panel, column_stride: 1, start: 0 };
                let sums = packed.zeros(n * panel);
                multiply(dispatch, part, sums, rhs.transposed(), y, lhs.part(0..rows, columns.clone()), x, false);
                for (i, row) in out[dst.start + column * n..].chunks_exact_mut(n).take(columns.len()).enumerate() {
                    for (j, slot) in row.iter_mut().enumerate() {
                        *slot = if accumulate { *slot } else { 0.0 } + sums[j * panel + i];
                    }
                }
            }
        } else if library::is_faster(k, n, dispatch.features()) && k <= NARROW && n > k && rows >= NARROW {
            // The library takes 1.2 to 1.5 times as long for few rows of many columns as for the transposed result.
            let of = Matrix { rows: n, columns: height, row_stride: height, column_stride: 1, start: 0 };
            let mut sums = vec![0.0; n * height];
            library::multiply(of, &mut sums, rhs.transposed(), y, lhs, x, false);
            for (i, row) in out[dst.start..].chunks_exact_mut(n).take(height).enumerate() {
                for (j, slot) in row.iter_mut().enumerate() {
                    *slot = if accumulate { *slot } else { 0.0 } + sums[j * height + i];
                }
            }
        } else if library::is_faster(k, n, dispatch.features()) {
            library::multiply(dst, out, lhs.transposed(), x, rhs, y, accumulate);
        } else {
            multiply(dispatch, dst, out, lhs.transposed(), x, rhs, y, accumulate);
        }
    }
}

/// Rows of a band of a weight gradient whose rows are divided instead of those of its operands, since partial results would
/// take too much memory.
pub fn band_rows(of: Extents) -> Option<usize> {
    (of.batch == 1 && of.k >= 256).then_some(64)
}

/// Rows per task of a product divided by rows; a function of shapes, so that results do not depend on threads.
///
/// Cost model: the multiply-adds of a row, plus sixteen per element read or written. A task of 64 x 64 is 132 rows,
/// about 6 µs of one core: thousands of rows keep tens of threads busy. Rounded to tiles, whose rows divide 12 or,
/// for dot products, 4.
pub fn task_rows(of: Extents, features: KernelFeatures) -> usize {
    let Extents { batch, k, n } = of;
    let cost = (batch * (k * n + 16 * (k + n))).max(1);
    // The library packs the weight again in every task.
    let least = if library::is_faster(k, n, features) { 192 } else { 24 };
    (800_000 / cost).clamp(least, 1024).next_multiple_of(12)
}

/// Rows per partial result of a sum of outer products; partial results are added in order at the end. At most 16
/// partial results of at least `least` rows, and at most 4 MiB of memory for them if one alone is smaller.
pub fn part_rows(of: Extents, rows: usize, least: usize) -> usize {
    let size = (of.batch * of.k * of.n).max(1);
    let parts = ((1 << 20) / size).clamp(1, 16).min(rows.div_ceil(least).max(1));
    rows.div_ceil(parts).max(1)
}

multiversion! {
    /// `out[r, b, :] = a[r, b] · w[b, :]` for groups of `len` elements.
    fn scale_groups(dispatch: Dispatch, a: &[f32], w: &[f32], len: usize, out: &mut [f32]) as scale_groups_body
}

#[inline(always)]
fn scale_groups_body<const FMA: bool>(a: &[f32], w: &[f32], len: usize, out: &mut [f32]) {
    match len {
        4 => scale_arrays::<4>(a, w, out),
        8 => scale_arrays::<8>(a, w, out),
        16 => scale_arrays::<16>(a, w, out),
        _ => {
            for (out, a) in out.chunks_exact_mut(w.len()).zip(a.chunks_exact(w.len() / len)) {
                for ((out, w), &a) in out.chunks_exact_mut(len).zip(w.chunks_exact(len)).zip(a) {
                    out.iter_mut().zip(w).for_each(|(out, &w)| *out = a * w);
                }
            }
        }
    }
}

/// [`scale_groups`] for a fixed length.
#[inline(always)]
fn scale_arrays<const LEN: usize>(a: &[f32], w: &[f32], out: &mut [f32]) {
    let (w, _) = w.as_chunks::<LEN>();
    let (out, _) = out.as_chunks_mut::<LEN>();
    for (out, a) in out.chunks_exact_mut(w.len()).zip(a.chunks_exact(w.len())) {
        for ((out, w), &a) in out.iter_mut().zip(w).zip(a) {
            *out = w.map(|w| a * w);
        }
    }
}

/// A strided matrix within a slice.
#[derive(Clone, Copy)]
struct Matrix {
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
    start: usize,
}

impl Matrix {
    fn is_empty(self) -> bool {
        self.rows == 0 || self.columns == 0
    }

    /// Whether the last element is within `len` elements.
    fn fits(self, len: usize) -> bool {
        self.is_empty()
            || self.start + (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride < len
    }

    /// The elements from its first on.
    ///
    /// # Panics
    /// If the slice does not hold it.
    fn of(self, slice: &[f32]) -> &[f32] {
        assert!(self.fits(slice.len()), "operands of a product hold their matrices");
        &slice[self.start..]
    }

    /// As [`Self::of`], to write them.
    fn of_mut(self, slice: &mut [f32]) -> &mut [f32] {
        assert!(self.fits(slice.len()), "operands of a product hold their matrices");
        &mut slice[self.start..]
    }

    fn part(self, rows: std::ops::Range<usize>, columns: std::ops::Range<usize>) -> Self {
        let start = self.start + rows.start * self.row_stride + columns.start * self.column_stride;
        Self { rows: rows.len(), columns: columns.len(), start, ..self }
    }

    fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            start: self.start,
        }
    }
}

/// Stack buffer for a packed operand.
#[repr(C, align(64))]
struct Packed([MaybeUninit<f32>; PACKED]);

impl Packed {
    #[inline(always)]
    fn new() -> Self {
        // Uninitialized: a call writes the elements that it reads.
        Self([MaybeUninit::uninit(); PACKED])
    }

    /// The transpose of a matrix, with contiguous rows.
    fn transpose(&mut self, dispatch: Dispatch, of: Matrix, from: &[f32]) -> (Matrix, &[f32]) {
        let packed = tile::packed_transpose(dispatch, (of, from), &mut self.0);
        let Matrix { rows, columns, .. } = of;
        (Matrix { rows: columns, columns: rows, row_stride: rows, column_stride: 1, start: 0 }, packed)
    }

    /// The first `len` elements, zeroed.
    fn zeros(&mut self, len: usize) -> &mut [f32] {
        let room = &mut self.0[..len];
        room.fill(MaybeUninit::new(0.0));
        // SAFETY: all elements have just been written.
        unsafe { room.assume_init_mut() }
    }
}

/// A kernel for `dst (+)= lhs · rhs`, or `lhs · rhsᵀ`.
type Kernel = fn(Dispatch, Matrix, &mut [f32], Matrix, &[f32], Matrix, &[f32], bool);

/// Kernels of small products.
struct Kernels {
    /// `dst (+)= lhs · rhs`.
    multiply: Kernel,
    /// `dst (+)= lhs · rhsᵀ`.
    dots: Kernel,
}

impl Kernels {
    fn of(dispatch: Dispatch) -> Self {
        if dispatch.has(KernelFeature::RegisterTiles) {
            Self {
                multiply: |dispatch, dst, out, lhs, a, rhs, b, accumulate| {
                    tile::multiply(dispatch, Job::new((dst, out), (lhs, a), (rhs, b), accumulate));
                },
                dots: |dispatch, dst, out, lhs, a, rhs, b, accumulate| {
                    tile::dots(dispatch, Dots::new((dst, out), (lhs, a), (rhs, b), accumulate));
                },
            }
        } else {
            Self {
                multiply: |_, dst, out, lhs, a, rhs, b, accumulate| {
                    library::multiply(dst, out, lhs, a, rhs, b, accumulate);
                },
                dots: |_, dst, out, lhs, a, rhs, b, accumulate| {
                    library::multiply(dst, out, lhs, a, rhs.transposed(), b, accumulate);
                },
            }
        }
    }
}
