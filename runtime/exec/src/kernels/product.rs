//! Dense products of row chunks, by the `gemm` crate on one thread.
//!
//! Results depend on the chunk only, never on who computes it or on how many threads there are.

use gemm::Parallelism;

/// Extents of a batched product: weights are `[batch, k, n]`, rows `[batch, k]` or `[batch, n]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extents {
    /// Product of the leading dimensions that both operands share.
    pub batch: usize,
    /// Contracted by MatMul.
    pub k: usize,
    /// Contracted by MatMulT.
    pub n: usize,
}

/// `out[r, b, :] = x[r, b, :] · w[b, :, :]`.
pub fn mat_mul(of: Extents, rows: usize, x: &[f32], w: &[f32], out: &mut [f32]) {
    let Extents { batch, k, n } = of;
    for b in 0..batch {
        let lhs = Matrix { rows, columns: k, row_stride: batch * k, column_stride: 1, start: b * k };
        let rhs = Matrix { rows: k, columns: n, row_stride: n, column_stride: 1, start: b * k * n };
        let dst = Matrix { rows, columns: n, row_stride: batch * n, column_stride: 1, start: b * n };
        multiply(dst, out, lhs, x, rhs, w, false);
    }
}

/// `out[r, b, :] = y[r, b, :] · w[b, :, :]ᵀ`.
pub fn mat_mul_t(of: Extents, rows: usize, y: &[f32], w: &[f32], out: &mut [f32]) {
    let Extents { batch, k, n } = of;
    for b in 0..batch {
        let lhs = Matrix { rows, columns: n, row_stride: batch * n, column_stride: 1, start: b * n };
        let rhs = Matrix { rows: n, columns: k, row_stride: 1, column_stride: n, start: b * k * n };
        let dst = Matrix { rows, columns: k, row_stride: batch * k, column_stride: 1, start: b * k };
        multiply(dst, out, lhs, y, rhs, w, false);
    }
}

/// `out[b, i, :] (+)= Σ_r x[r, b, i] · y[r, b, :]` for `i` in `band`; `out` holds the band of each batch:
/// `[batch, band.len(), n]`.
pub fn outer(
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
    for b in 0..batch {
        let lhs =
            Matrix { rows: height, columns: rows, row_stride: 1, column_stride: batch * k, start: b * k + band.start };
        let rhs = Matrix { rows, columns: n, row_stride: batch * n, column_stride: 1, start: b * n };
        let dst = Matrix { rows: height, columns: n, row_stride: n, column_stride: 1, start: b * height * n };
        multiply(dst, out, lhs, x, rhs, y, accumulate);
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

    /// Is the last element within `len` elements?
    fn fits(self, len: usize) -> bool {
        self.is_empty()
            || self.start + (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride < len
    }
}

#[allow(unsafe_code)]
fn multiply(dst: Matrix, out: &mut [f32], lhs: Matrix, a: &[f32], rhs: Matrix, b: &[f32], accumulate: bool) {
    assert!(dst.fits(out.len()) && lhs.fits(a.len()) && rhs.fits(b.len()), "operands of a product hold their matrices");
    assert!(dst.rows == lhs.rows && dst.columns == rhs.columns && lhs.columns == rhs.rows);
    if dst.is_empty() {
        return;
    }
    if lhs.columns == 0 {
        if !accumulate {
            for i in 0..dst.rows {
                let row = dst.start + i * dst.row_stride;
                out[row..row + dst.columns].fill(0.0);
            }
        }
        return;
    }
    // SAFETY: the assertions above keep every element that the strides reach within its slice, and `out`
    // is borrowed mutably, so it overlaps neither operand.
    unsafe {
        gemm::gemm(
            dst.rows,
            dst.columns,
            lhs.columns,
            out.as_mut_ptr().add(dst.start),
            dst.column_stride as isize,
            dst.row_stride as isize,
            accumulate,
            a.as_ptr().add(lhs.start),
            lhs.column_stride as isize,
            lhs.row_stride as isize,
            b.as_ptr().add(rhs.start),
            rhs.column_stride as isize,
            rhs.row_stride as isize,
            if accumulate { 1.0f32 } else { 0.0 },
            1.0f32,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}
