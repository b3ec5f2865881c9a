//! GEMM micro-kernels: register tiles of the result over the contracted dimension.
//!
//! A tile of `M` rows and `N` vectors costs, per step of the contracted dimension, `M + N` loads for `M · N` vector
//! multiply-adds; with 6 x 4 (AVX-512) that is 10 loads for 24, and the target CPUs do two of each per cycle. The
//! kernel is therefore compute-bound as long as operands come from the L1 cache (the tall one from anywhere: one
//! element per 64 multiply-adds). The tall operand is not packed: its elements are broadcast in place.
//!
//! Each function here is compiled once per instruction set, from one body over [`Lanes`].

// Indices of rows and vectors address registers of several operands at once.
#![allow(clippy::needless_range_loop)]

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::slice;

use super::Matrix;
use super::lanes::{Lanes, Portable};
use crate::prefetch;
use crate::simd::{Dispatch, versions};

/// Block size of the contracted dimension: 64 columns of the small operand are then 24 KiB and stay in the L1 cache.
pub(super) const DEPTH: usize = 96;

/// [`DEPTH`] if the tall operand is transposed: it is read again for every tile, so 64 rows of 64 elements of both
/// operands and the result share the L1 cache.
const DEPTH_DOWN: usize = 64;

/// Elements packed on the stack per call (32 KiB).
pub(super) const PACKED: usize = 8192;

/// `c[i, j] = Σ_p a[i, p] · b[p, j]`, optionally accumulated into `c`. Rows of `b` and `c` are contiguous.
///
/// All elements that the extents and strides reach lie within the operands, which are borrowed.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    /// Rows of `a` and `c`.
    m: usize,
    /// Columns of `b` and `c`.
    n: usize,
    /// Extent of the contracted dimension.
    depth: usize,
    /// Element (i, p) at `i · a_row + p · a_step`.
    a: *const f32,
    /// Elements between rows of `a`.
    a_row: usize,
    /// Elements between columns of `a`.
    a_step: usize,
    /// Element (p, j) at `p · b_row + j`.
    b: *const f32,
    /// Elements between rows of `b`.
    b_row: usize,
    /// Element (i, j) at `i · c_row + j`.
    c: *mut f32,
    /// Elements between rows of `c`.
    c_row: usize,
    /// Whether to add to the contents of `c`.
    accumulate: bool,
    operands: PhantomData<&'a [f32]>,
}

impl<'a> Job<'a> {
    /// `dst (+)= lhs · rhs`.
    ///
    /// # Panics
    /// If the matrices do not fit each other or their slices, or rows that have to be contiguous are not.
    pub(super) fn new(
        (dst, c): (Matrix, &'a mut [f32]),
        (lhs, a): (Matrix, &'a [f32]),
        (rhs, b): (Matrix, &'a [f32]),
        accumulate: bool,
    ) -> Self {
        assert!(dst.rows == lhs.rows && dst.columns == rhs.columns && lhs.columns == rhs.rows);
        assert!(
            rhs.column_stride == 1 && dst.column_stride == 1,
            "rows of the small operand and the result are contiguous"
        );
        Self {
            m: dst.rows,
            n: dst.columns,
            depth: lhs.columns,
            a: lhs.of(a).as_ptr(),
            a_row: lhs.row_stride,
            a_step: lhs.column_stride,
            b: rhs.of(b).as_ptr(),
            b_row: rhs.row_stride,
            c: dst.of_mut(c).as_mut_ptr(),
            c_row: dst.row_stride,
            accumulate,
            operands: PhantomData,
        }
    }
}

/// `c[i, j] = Σ_p a[i, p] · b[j, p]`, optionally accumulated into `c`. Rows of `a` and `b` are contiguous.
///
/// All elements that the extents and strides reach lie within the operands, which are borrowed.
#[derive(Clone, Copy)]
pub(super) struct Dots<'a> {
    m: usize,
    n: usize,
    /// Extent of the contracted dimension.
    depth: usize,
    /// Element (i, p) at `i · a_row + p`.
    a: *const f32,
    /// Elements between rows of `a`.
    a_row: usize,
    /// Element (j, p) at `j · b_row + p`.
    b: *const f32,
    /// Elements between rows of `b`.
    b_row: usize,
    /// Element (i, j) at `i · c_row + j · c_step`.
    c: *mut f32,
    /// Elements between rows of `c`.
    c_row: usize,
    /// Elements between columns of `c`.
    c_step: usize,
    /// Whether to add to the contents of `c`.
    accumulate: bool,
    operands: PhantomData<&'a [f32]>,
}

impl<'a> Dots<'a> {
    /// `dst (+)= lhs · rhsᵀ`, for one to four rows of `rhs`.
    ///
    /// # Panics
    /// If the matrices do not fit each other or their slices, or rows that have to be contiguous are not.
    pub(super) fn new(
        (dst, c): (Matrix, &'a mut [f32]),
        (lhs, a): (Matrix, &'a [f32]),
        (rhs, b): (Matrix, &'a [f32]),
        accumulate: bool,
    ) -> Self {
        assert!(dst.rows == lhs.rows && dst.columns == rhs.rows && lhs.columns == rhs.columns);
        assert!(lhs.column_stride == 1 && rhs.column_stride == 1 && (1..=4).contains(&rhs.rows));
        Self {
            m: dst.rows,
            n: dst.columns,
            depth: lhs.columns,
            a: lhs.of(a).as_ptr(),
            a_row: lhs.row_stride,
            b: rhs.of(b).as_ptr(),
            b_row: rhs.row_stride,
            c: dst.of_mut(c).as_mut_ptr(),
            c_row: dst.row_stride,
            c_step: dst.column_stride,
            accumulate,
            operands: PhantomData,
        }
    }
}

/// Copies `from[i · from_row + p]` to `to[p · rows + i]`, for `rows` of `columns` elements.
///
/// All these elements lie within the operands, which are borrowed.
#[derive(Clone, Copy)]
pub(super) struct Transpose<'a> {
    rows: usize,
    columns: usize,
    from: *const f32,
    /// Elements between source rows.
    from_row: usize,
    to: *mut f32,
    operands: PhantomData<&'a [f32]>,
}

/// The transpose of a matrix with contiguous rows, packed into the first elements of `to`.
///
/// # Panics
/// If the slices do not hold the matrix and its transpose.
pub(super) fn packed_transpose<'a>(
    dispatch: Dispatch,
    (of, from): (Matrix, &[f32]),
    to: &'a mut [MaybeUninit<f32>],
) -> &'a [f32] {
    assert!(of.column_stride == 1, "what is packed has contiguous rows");
    let Matrix { rows, columns, row_stride, .. } = of;
    let to = &mut to[..rows * columns];
    let (from, pointer) = (of.of(from).as_ptr(), to.as_mut_ptr().cast());
    transpose(dispatch, Transpose { rows, columns, from, from_row: row_stride, to: pointer, operands: PhantomData });
    // SAFETY: all elements have been written.
    unsafe { to.assume_init_ref() }
}

/// Defines a function that runs a body compiled for the level of its [`Dispatch`].
macro_rules! per_level {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($job:ty) as $body:ident) => {
        $(#[$meta])*
        $vis fn $name(dispatch: Dispatch, job: $job) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2(job: $job) {
                $body($crate::product::lanes::Avx2::new(), job);
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
            fn avx512(job: $job) {
                $body($crate::product::lanes::Avx512::new(), job);
            }
            #[cfg(target_arch = "aarch64")]
            fn neon(job: $job) {
                $body($crate::product::lanes::Neon, job);
            }
            versions!(dispatch, (job), {
                #[cfg(target_arch = "x86_64")]
                Avx512 => avx512,
                #[cfg(target_arch = "x86_64")]
                Avx2 => avx2,
                #[cfg(target_arch = "aarch64")]
                Neon => neon,
                _ => $body(Portable, job),
            });
        }
    };
}

pub(super) use per_level;

per_level! {
    /// GEMM with the small operand `b`, in register tiles.
    ///
    /// 2·m·n·depth operations; `a` and `c` are read or written once per 64 (AVX-512) columns and once per [`DEPTH`]
    /// steps: for 64 x 64, 16 operations per byte of `a` and `c`. Compute-bound while these are in the L2 cache (87 %
    /// of peak at 128 rows), partly memory-bound beyond (76 % at 4278).
    pub(super) fn multiply(Job<'_>) as multiply_body
}

per_level! {
    /// GEMM with at most four rows of `b`, as dot products along the vectors.
    ///
    /// 2·m·n·depth operations for 4·m·depth bytes: at most two operations per byte, so it is bound by reading `a`.
    pub(super) fn dots(Dots<'_>) as dots_body
}

per_level! {
    /// Transposed copy. Loads place the rows, so that four vectors need only two shuffles each.
    fn transpose(Transpose<'_>) as transpose_body
}

/// Advances in tiles of `$rows` rows while that many remain.
macro_rules! tiles {
    ($isa:expr, $panel:expr, $i:ident, $n:literal: $($rows:literal),*) => {
        {$(
            while $panel.job.m - $i >= $rows {
                tile_of::<_, $rows, $n>($isa, $panel, $i);
                $i += $rows;
            }
        )*}
    };
}

/// Columns and step range that the tiles of a panel share.
#[derive(Clone, Copy)]
struct Panel<'a> {
    job: Job<'a>,
    column: usize,
    /// Columns from `column` on.
    columns: usize,
    /// Step range, end exclusive.
    steps: (usize, usize),
}

#[inline(always)]
fn multiply_body<V: Lanes>(isa: V, job: Job<'_>) {
    let depth = if job.a_row == 1 { DEPTH_DOWN } else { DEPTH };
    let mut start = 0;
    while start < job.depth {
        let steps = (start, (start + depth).min(job.depth));
        let mut column = 0;
        while column < job.n {
            let columns = (job.n - column).min(V::ACROSS * V::LANES);
            let panel = Panel { job, column, columns, steps };
            let mut i = 0;
            match columns.div_ceil(V::LANES) {
                4 if V::ACROSS >= 4 => tiles!(isa, panel, i, 4: 6, 4, 2, 1),
                3 if V::ACROSS >= 4 => tiles!(isa, panel, i, 3: 8, 4, 2, 1),
                2 if V::ACROSS >= 4 => tiles!(isa, panel, i, 2: 12, 4, 2, 1),
                2 => tiles!(isa, panel, i, 2: 6, 4, 2, 1),
                _ => tiles!(isa, panel, i, 1: 12, 4, 2, 1),
            }
            column += columns;
        }
        start = steps.1;
    }
}

/// Tile of rows `i..i + M`, specialized for its strides and a partial last vector.
#[inline(always)]
fn tile_of<V: Lanes, const M: usize, const N: usize>(isa: V, panel: Panel<'_>, i: usize) {
    match (panel.job.a_row == 1, panel.columns < N * V::LANES) {
        (false, false) => tile::<V, M, N, false, false>(isa, panel, i),
        (false, true) => tile::<V, M, N, false, true>(isa, panel, i),
        (true, false) => tile::<V, M, N, true, false>(isa, panel, i),
        (true, true) => tile::<V, M, N, true, true>(isa, panel, i),
    }
}

/// `ADJACENT`: rows of `a` are adjacent elements. `PART`: the last vector is partial.
#[inline(always)]
fn tile<V: Lanes, const M: usize, const N: usize, const ADJACENT: bool, const PART: bool>(
    isa: V,
    panel: Panel<'_>,
    i: usize,
) {
    let Panel { job, column, columns, steps } = panel;
    // Elements of a partial last vector.
    let part = columns - (N - 1) * V::LANES;
    assert!(ADJACENT == (job.a_row == 1) && PART == (part < V::LANES) && part <= V::LANES);
    assert!(i + M <= job.m && column + columns <= job.n && steps.0 <= steps.1 && steps.1 <= job.depth);
    let a_row = if ADJACENT { 1 } else { job.a_row };
    // SAFETY: by the assertions, the rows `i..i + M`, the columns and the steps are those of the job, whose operands
    // hold them. A partial vector has `part` of them.
    unsafe {
        let mut a = job.a.add(i * a_row + steps.0 * job.a_step);
        let mut b = job.b.add(steps.0 * job.b_row + column);
        if !ADJACENT && N == V::ACROSS {
            // Prefetches the rows of the next tile during this one; a prefetch never faults.
            for m in M..2 * M {
                let row = a.wrapping_add(m * a_row);
                for line in (0..steps.1 - steps.0).step_by(16) {
                    prefetch::line(row.wrapping_add(line));
                }
            }
        }
        let mut sums = [[isa.splat(0.0); N]; M];
        for _ in steps.0..steps.1 {
            let mut row = [isa.splat(0.0); N];
            for v in 0..N {
                let at = b.add(v * V::LANES);
                row[v] = if PART && v + 1 == N {
                    isa.load_part(slice::from_raw_parts(at, part))
                } else {
                    at.cast::<V::Vector>().read_unaligned()
                };
            }
            for m in 0..M {
                let number = isa.splat(*a.add(m * a_row));
                for v in 0..N {
                    sums[m][v] = isa.fma(sums[m][v], number, row[v]);
                }
            }
            a = a.wrapping_add(job.a_step);
            b = b.wrapping_add(job.b_row);
        }
        let accumulate = job.accumulate || steps.0 > 0;
        for m in 0..M {
            let row = job.c.add((i + m) * job.c_row + column);
            for v in 0..N {
                let at = row.add(v * V::LANES);
                let mut sum = sums[m][v];
                if PART && v + 1 == N {
                    let at = slice::from_raw_parts_mut(at, part);
                    if accumulate {
                        sum = isa.add(sum, isa.load_part(at));
                    }
                    isa.store_part(sum, at);
                } else {
                    let at = at.cast::<V::Vector>();
                    if accumulate {
                        sum = isa.add(sum, at.read_unaligned());
                    }
                    at.write_unaligned(sum);
                }
            }
        }
    }
}

#[inline(always)]
fn dots_body<V: Lanes>(isa: V, job: Dots<'_>) {
    let mut i = 0;
    // Four rows at a time, then one at a time.
    while i < job.m {
        match (job.m - i >= 4, job.n) {
            (true, 1) => dots_of::<V, 4, 1>(isa, job, i),
            (true, 2) => dots_of::<V, 4, 2>(isa, job, i),
            (true, 3) => dots_of::<V, 4, 3>(isa, job, i),
            (true, _) => dots_of::<V, 4, 4>(isa, job, i),
            (false, 1) => dots_of::<V, 1, 1>(isa, job, i),
            (false, 2) => dots_of::<V, 1, 2>(isa, job, i),
            (false, 3) => dots_of::<V, 1, 3>(isa, job, i),
            (false, _) => dots_of::<V, 1, 4>(isa, job, i),
        }
        i += if job.m - i >= 4 { 4 } else { 1 };
    }
}

#[inline(always)]
fn dots_of<V: Lanes, const M: usize, const N: usize>(isa: V, job: Dots<'_>, i: usize) {
    assert!(i + M <= job.m && N <= job.n);
    let mut sums = [[isa.splat(0.0); 4]; N];
    let (whole, part) = (job.depth - job.depth % V::LANES, job.depth % V::LANES);
    // SAFETY: by the assertion, the rows `i..i + M` of `a` and `c`, and `N` rows of `b`, are those of the job, whose
    // operands hold `depth` elements of each.
    unsafe {
        let a = job.a.add(i * job.a_row);
        macro_rules! load {
            (whole, $at:expr) => {
                $at.cast::<V::Vector>().read_unaligned()
            };
            (part, $at:expr) => {
                isa.load_part(slice::from_raw_parts($at, part))
            };
        }
        // Adds the products of one vector per row from element `p` on.
        macro_rules! add {
            ($load:ident, $p:expr) => {
                let mut rows = [isa.splat(0.0); M];
                for m in 0..M {
                    rows[m] = load!($load, a.add(m * job.a_row + $p));
                }
                for n in 0..N {
                    let row = load!($load, job.b.add(n * job.b_row + $p));
                    for m in 0..M {
                        sums[n][m] = isa.fma(sums[n][m], rows[m], row);
                    }
                }
            };
        }
        let mut p = 0;
        while p < whole {
            add!(whole, p);
            p += V::LANES;
        }
        if part > 0 {
            add!(part, whole);
        }
        for n in 0..N {
            let sums = isa.sums(sums[n]);
            for m in 0..M {
                let at = job.c.add((i + m) * job.c_row + n * job.c_step);
                *at = if job.accumulate { *at + sums[m] } else { sums[m] };
            }
        }
    }
}

#[inline(always)]
fn transpose_body<V: Lanes>(isa: V, job: Transpose<'_>) {
    let Transpose { rows, columns, from, from_row, to, .. } = job;
    let (whole_rows, whole_columns) = (rows - rows % V::LANES, columns - columns % 4);
    // SAFETY: the operands hold all rows and columns; blocks stay within complete ones.
    unsafe {
        for i in (0..whole_rows).step_by(V::LANES) {
            for p in (0..whole_columns).step_by(4) {
                let from = from.add(i * from_row + p);
                let four = isa.transpose_four(|row| from.add(row * from_row).cast::<[f32; 4]>().read());
                for (column, vector) in four.into_iter().enumerate() {
                    to.add((p + column) * rows + i).cast::<V::Vector>().write_unaligned(vector);
                }
            }
            for p in whole_columns..columns {
                for i in i..i + V::LANES {
                    *to.add(p * rows + i) = *from.add(i * from_row + p);
                }
            }
        }
        for i in whole_rows..rows {
            for p in 0..columns {
                *to.add(p * rows + i) = *from.add(i * from_row + p);
            }
        }
    }
}
