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

use super::lanes::{Lanes, Portable};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::simd::{Level, level};

/// Block size of the contracted dimension: 64 columns of the small operand are then 24 KiB and stay in the L1 cache.
pub(super) const DEPTH: usize = 96;

/// [`DEPTH`] if the tall operand is transposed: it is read again for every tile, so 64 rows of 64 elements of both
/// operands and the result share the L1 cache.
const DEPTH_DOWN: usize = 64;

/// Elements packed on the stack per call (32 KiB).
pub(super) const PACKED: usize = 8192;

/// `c[i, j] = Σ_p a[i, p] · b[p, j]`, optionally accumulated into `c`. Rows of `b` and `c` are contiguous.
#[derive(Clone, Copy)]
pub(super) struct Job {
    /// Rows of `a` and `c`.
    pub m: usize,
    /// Columns of `b` and `c`.
    pub n: usize,
    /// Extent of the contracted dimension.
    pub depth: usize,
    /// Element (i, p) at `i · a_row + p · a_step`.
    pub a: *const f32,
    /// Elements between rows of `a`.
    pub a_row: usize,
    /// Elements between columns of `a`.
    pub a_step: usize,
    /// Element (p, j) at `p · b_row + j`.
    pub b: *const f32,
    /// Elements between rows of `b`.
    pub b_row: usize,
    /// Element (i, j) at `i · c_row + j`.
    pub c: *mut f32,
    /// Elements between rows of `c`.
    pub c_row: usize,
    /// Whether to add to the contents of `c`.
    pub accumulate: bool,
}

/// `c[i, j] = Σ_p a[i, p] · b[j, p]`, optionally accumulated into `c`. Rows of `a` and `b` are contiguous.
#[derive(Clone, Copy)]
pub(super) struct Dots {
    pub m: usize,
    pub n: usize,
    /// Extent of the contracted dimension.
    pub depth: usize,
    /// Element (i, p) at `i · a_row + p`.
    pub a: *const f32,
    /// Elements between rows of `a`.
    pub a_row: usize,
    /// Element (j, p) at `j · b_row + p`.
    pub b: *const f32,
    /// Elements between rows of `b`.
    pub b_row: usize,
    /// Element (i, j) at `i · c_row + j · c_step`.
    pub c: *mut f32,
    /// Elements between rows of `c`.
    pub c_row: usize,
    /// Elements between columns of `c`.
    pub c_step: usize,
    /// Whether to add to the contents of `c`.
    pub accumulate: bool,
}

/// Copies `from[i · from_row + p]` to `to[p · to_row + i]`, for `rows` of `columns` elements.
#[derive(Clone, Copy)]
pub(super) struct Transpose {
    pub rows: usize,
    pub columns: usize,
    pub from: *const f32,
    /// Elements between source rows.
    pub from_row: usize,
    pub to: *mut f32,
    /// Elements between destination rows.
    pub to_row: usize,
}

/// Defines a function that runs a body compiled for the level of the machine, and a body for a given level.
macro_rules! per_level {
    ($(#[$meta:meta])* $name:ident, $body:ident, $job:ty) => {
        $(#[$meta])*
        /// # Safety
        /// Every element that the job addresses lies within its operand, and no other thread uses the written elements.
        pub(super) unsafe fn $name(job: $job) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2(job: $job) {
                    // SAFETY: the caller's promise.
                    unsafe { $body::<super::lanes::Avx2>(job) }
                }
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
                unsafe fn avx512(job: $job) {
                    // SAFETY: the caller's promise.
                    unsafe { $body::<super::lanes::Avx512>(job) }
                }
                match level() {
                    // SAFETY: `level` reports a level only where the processor has its instructions.
                    Level::Avx512 => return unsafe { avx512(job) },
                    // SAFETY: as above.
                    Level::Avx2 => return unsafe { avx2(job) },
                    Level::Neon | Level::Base => {}
                }
            }
            #[cfg(target_arch = "aarch64")]
            if level() == Level::Neon {
                // SAFETY: every processor of this architecture has the instructions.
                return unsafe { $body::<super::lanes::Neon>(job) };
            }
            // SAFETY: the caller's promise.
            unsafe { $body::<Portable>(job) }
        }
    };
}

per_level! {
    /// GEMM with the small operand `b`, in register tiles.
    ///
    /// 2·m·n·depth operations; `a` and `c` are read or written once per 64 (AVX-512) columns and once per [`DEPTH`]
    /// steps: for 64 x 64, 16 operations per byte of `a` and `c`. Compute-bound while these are in the L2 cache (87 %
    /// of peak at 128 rows), partly memory-bound beyond (76 % at 4278).
    multiply, multiply_body, Job
}

per_level! {
    /// GEMM with at most four rows of `b`, as dot products along the vectors.
    ///
    /// 2·m·n·depth operations for 4·m·depth bytes: at most two operations per byte, so it is bound by reading `a`.
    dots, dots_body, Dots
}

per_level! {
    /// Transposed copy. Loads place the rows, so that four vectors need only two shuffles each.
    transpose, transpose_body, Transpose
}

/// Advances in tiles of `$rows` rows while that many remain.
macro_rules! tiles {
    ($v:ty, $panel:expr, $i:ident, $n:literal: $($rows:literal),*) => {
        {$(
            while $panel.job.m - $i >= $rows {
                // SAFETY: the caller's promise: rows `i..i + rows` exist.
                unsafe { tile_of::<$v, $rows, $n>($panel, $i) };
                $i += $rows;
            }
        )*}
    };
}

/// Columns and step range that the tiles of a panel share.
#[derive(Clone, Copy)]
struct Panel<M> {
    job: Job,
    column: usize,
    /// Step range, end exclusive.
    steps: (usize, usize),
    /// Mask of a partial last vector.
    part: Option<M>,
}

#[inline(always)]
unsafe fn multiply_body<V: Lanes>(job: Job) {
    let depth = if job.a_row == 1 { DEPTH_DOWN } else { DEPTH };
    let mut start = 0;
    while start < job.depth {
        let steps = (start, (start + depth).min(job.depth));
        let mut column = 0;
        while column < job.n {
            let columns = (job.n - column).min(V::ACROSS * V::LANES);
            let rest = columns % V::LANES;
            // SAFETY: the caller's promise; the remainder is at least one element.
            let part = if rest == 0 { None } else { Some(unsafe { V::mask(rest) }) };
            let panel = Panel { job, column, steps, part };
            let mut i = 0;
            match columns.div_ceil(V::LANES) {
                4 if V::ACROSS >= 4 => tiles!(V, panel, i, 4: 6, 4, 2, 1),
                3 if V::ACROSS >= 4 => tiles!(V, panel, i, 3: 8, 4, 2, 1),
                2 if V::ACROSS >= 4 => tiles!(V, panel, i, 2: 12, 4, 2, 1),
                2 => tiles!(V, panel, i, 2: 6, 4, 2, 1),
                _ => tiles!(V, panel, i, 1: 12, 4, 2, 1),
            }
            column += columns;
        }
        start = steps.1;
    }
}

/// Tile of rows `i..i + M`, specialized for its strides and a partial last vector.
#[inline(always)]
unsafe fn tile_of<V: Lanes, const M: usize, const N: usize>(panel: Panel<V::Mask>, i: usize) {
    // SAFETY: the caller's promise; each specialization matches its stride condition.
    unsafe {
        match (panel.job.a_row == 1, panel.part.is_some()) {
            (false, false) => tile::<V, M, N, false, false>(panel, i),
            (false, true) => tile::<V, M, N, false, true>(panel, i),
            (true, false) => tile::<V, M, N, true, false>(panel, i),
            (true, true) => tile::<V, M, N, true, true>(panel, i),
        }
    }
}

/// `ADJACENT`: rows of `a` are adjacent elements. `PART`: the last vector is partial.
#[inline(always)]
unsafe fn tile<V: Lanes, const M: usize, const N: usize, const ADJACENT: bool, const PART: bool>(
    panel: Panel<V::Mask>,
    i: usize,
) {
    let Panel { job, column, steps, part } = panel;
    let a_row = if ADJACENT { 1 } else { job.a_row };
    // SAFETY: the caller's promise: the rows `i..i + M`, the columns of the panel and its steps exist.
    unsafe {
        let mut a = job.a.add(i * a_row + steps.0 * job.a_step);
        let mut b = job.b.add(steps.0 * job.b_row + column);
        if !ADJACENT && N == V::ACROSS {
            // Prefetches the rows of the next tile during this one; a prefetch never faults.
            for m in M..2 * M {
                let row = a.wrapping_add(m * a_row);
                for line in (0..steps.1 - steps.0).step_by(16) {
                    V::prefetch(row.wrapping_add(line));
                }
            }
        }
        let mut sums = [[V::zero(); N]; M];
        for _ in steps.0..steps.1 {
            let mut row = [V::zero(); N];
            for v in 0..N {
                let at = b.add(v * V::LANES);
                row[v] = match part {
                    Some(part) if PART && v + 1 == N => V::load_part(at, part),
                    _ => V::load(at),
                };
            }
            for m in 0..M {
                let number = V::splat(*a.add(m * a_row));
                for v in 0..N {
                    sums[m][v] = sums[m][v].fma(number, row[v]);
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
                match part {
                    Some(part) if PART && v + 1 == N => {
                        let sum = if accumulate { sums[m][v].add(V::load_part(at, part)) } else { sums[m][v] };
                        sum.store_part(at, part);
                    }
                    _ => {
                        let sum = if accumulate { sums[m][v].add(V::load(at)) } else { sums[m][v] };
                        sum.store(at);
                    }
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn dots_body<V: Lanes>(job: Dots) {
    let mut i = 0;
    // Four rows at a time, then one at a time.
    while i < job.m {
        // SAFETY: the caller's promise: rows `i..i + 4`, or row `i`, exist.
        unsafe {
            match (job.m - i >= 4, job.n) {
                (true, 1) => dots_of::<V, 4, 1>(job, i),
                (true, 2) => dots_of::<V, 4, 2>(job, i),
                (true, 3) => dots_of::<V, 4, 3>(job, i),
                (true, _) => dots_of::<V, 4, 4>(job, i),
                (false, 1) => dots_of::<V, 1, 1>(job, i),
                (false, 2) => dots_of::<V, 1, 2>(job, i),
                (false, 3) => dots_of::<V, 1, 3>(job, i),
                (false, _) => dots_of::<V, 1, 4>(job, i),
            }
        }
        i += if job.m - i >= 4 { 4 } else { 1 };
    }
}

#[inline(always)]
unsafe fn dots_of<V: Lanes, const M: usize, const N: usize>(job: Dots, i: usize) {
    // SAFETY: the caller's promise: rows `i..i + M` of `a`, and `N` rows of `b`, exist.
    unsafe {
        let a = job.a.add(i * job.a_row);
        let mut sums = [[V::zero(); 4]; N];
        let whole = job.depth - job.depth % V::LANES;
        let mut p = 0;
        while p < whole {
            dots_step::<V, M, N>(job, a, p, None, &mut sums);
            p += V::LANES;
        }
        if whole < job.depth {
            dots_step::<V, M, N>(job, a, whole, Some(V::mask(job.depth - whole)), &mut sums);
        }
        for n in 0..N {
            let sums = V::sums(sums[n]);
            for m in 0..M {
                let at = job.c.add((i + m) * job.c_row + n * job.c_step);
                *at = if job.accumulate { *at + sums[m] } else { sums[m] };
            }
        }
    }
}

/// Accumulates the products of one vector per row from element `p` on, partial if masked.
#[inline(always)]
unsafe fn dots_step<V: Lanes, const M: usize, const N: usize>(
    job: Dots,
    a: *const f32,
    p: usize,
    part: Option<V::Mask>,
    sums: &mut [[V; 4]; N],
) {
    // SAFETY: the caller's promise: `M` rows at `a`, `N` rows of `b`, and their elements from `p` on exist.
    unsafe {
        let mut rows = [V::zero(); M];
        for m in 0..M {
            rows[m] = load(a.add(m * job.a_row + p), part);
        }
        for n in 0..N {
            let row = load(job.b.add(n * job.b_row + p), part);
            for m in 0..M {
                sums[n][m] = sums[n][m].fma(rows[m], row);
            }
        }
    }
}

/// Loads a vector, partial if masked.
#[inline(always)]
unsafe fn load<V: Lanes>(from: *const f32, part: Option<V::Mask>) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        match part {
            Some(part) => V::load_part(from, part),
            None => V::load(from),
        }
    }
}

#[inline(always)]
unsafe fn transpose_body<V: Lanes>(job: Transpose) {
    let Transpose { rows, columns, from, from_row, to, to_row } = job;
    let (whole_rows, whole_columns) = (rows - rows % V::LANES, columns - columns % 4);
    // SAFETY: the caller's promise; blocks stay within complete rows and columns.
    unsafe {
        for i in (0..whole_rows).step_by(V::LANES) {
            for p in (0..whole_columns).step_by(4) {
                V::transpose_four(from.add(i * from_row + p), from_row, to.add(p * to_row + i), to_row);
            }
            for p in whole_columns..columns {
                for i in i..i + V::LANES {
                    *to.add(p * to_row + i) = *from.add(i * from_row + p);
                }
            }
        }
        for i in whole_rows..rows {
            for p in 0..columns {
                *to.add(p * to_row + i) = *from.add(i * from_row + p);
            }
        }
    }
}
