//! Products by the `gemm-f32` crate on one thread, which packs both operands. (`gemm` itself compiles the same for four
//! other types.)

use gemm_common::Parallelism;

use super::Matrix;
use hgnnc_machine::{KernelFeature, KernelFeatures};

/// Elements of a weight from which on the library is faster: packing pays once operands leave the first-level cache.
///
/// Measured on one thread of a Xeon with AVX-512, in µs, tiles in the engine's tasks and library in chunks of 256 rows:
/// [4278; 64 x 64]: 192 and 209 (matmul), 194 and 230 (matmul_t), 239 and 257 (outer). [3025; 128 x 128]: 592 and 560,
/// 684 and 603, 658 and 645. [3025; 1902 x 64]: 5872 and 4610, 8015 and 5819, 21500 and 12650. The machine was busy.
const LARGE: usize = 128 * 128;

/// Whether the library is faster for this weight.
pub fn is_faster(k: usize, n: usize, features: KernelFeatures) -> bool {
    match (features.has(KernelFeature::PackedGemm), features.has(KernelFeature::RegisterTiles)) {
        (true, true) => k * n >= LARGE,
        // At least one of both is enabled.
        (packed, tiles) => packed && !tiles,
    }
}

/// `dst (+)= lhs · rhs`. The caller handles empty operands.
pub fn multiply(dst: Matrix, out: &mut [f32], lhs: Matrix, a: &[f32], rhs: Matrix, b: &[f32], accumulate: bool) {
    assert!(dst.rows == lhs.rows && dst.columns == rhs.columns && lhs.columns == rhs.rows);
    // The library is made for columns of `dst` that are contiguous: (a · b)ᵀ = bᵀ · aᵀ.
    let (dst, lhs, a, rhs, b) = match dst.column_stride < dst.row_stride {
        true => (dst.transposed(), rhs.transposed(), b, lhs.transposed(), a),
        false => (dst, lhs, a, rhs, b),
    };
    let (out, a, b) = (dst.of_mut(out), lhs.of(a), rhs.of(b));
    // SAFETY: the slices hold every element that the strides reach, and `out` is borrowed mutably, so it overlaps
    // neither operand.
    unsafe {
        gemm_f32::gemm::f32::get_gemm_fn()(
            dst.rows,
            dst.columns,
            lhs.columns,
            out.as_mut_ptr(),
            dst.column_stride as isize,
            dst.row_stride as isize,
            accumulate,
            a.as_ptr(),
            lhs.column_stride as isize,
            lhs.row_stride as isize,
            b.as_ptr(),
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
