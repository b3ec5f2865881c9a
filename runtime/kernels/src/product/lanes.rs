//! Vector types for the tiles, one per instruction set. Every function is inlined into a caller compiled for the
//! instruction set; see [`super::tile`].

// Row indices address several operands at once.
#![allow(clippy::needless_range_loop)]

/// A vector of `f32`.
///
/// # Safety
/// For all functions: the processor has the instructions of the type, and pointers are valid for the accessed elements.
/// The strides of `transpose_four` count elements.
pub(super) unsafe trait Lanes: Copy {
    /// Number of elements of the vector.
    const LANES: usize;
    /// Maximum vectors per tile row: six rows of them, the vectors of the other operand and one broadcast
    /// element fill the registers.
    const ACROSS: usize;
    /// Mask of the leading elements of a vector.
    type Mask: Copy;

    /// Mask of the first `count` elements, at least one.
    unsafe fn mask(count: usize) -> Self::Mask;
    /// A vector of zeros.
    unsafe fn zero() -> Self;
    /// Broadcasts a number to all elements.
    unsafe fn splat(number: f32) -> Self;
    /// Loads a full vector.
    unsafe fn load(from: *const f32) -> Self;
    /// Loads the masked elements; others are zero.
    unsafe fn load_part(from: *const f32, mask: Self::Mask) -> Self;
    /// Stores a full vector.
    unsafe fn store(self, to: *mut f32);
    /// Stores the masked elements.
    unsafe fn store_part(self, to: *mut f32, mask: Self::Mask);
    /// `self + a · b`, rounded once where the instruction set can.
    unsafe fn fma(self, a: Self, b: Self) -> Self;
    /// Element-wise sum of two vectors.
    unsafe fn add(self, other: Self) -> Self;
    /// Horizontal sum of each vector, as a tree.
    unsafe fn sums(of: [Self; 4]) -> [f32; 4];

    /// Prefetches a cache line; the address need not be valid.
    #[inline(always)]
    fn prefetch(_at: *const f32) {}

    /// Transposes columns 0..4 of `LANES` rows into four rows.
    #[inline(always)]
    unsafe fn transpose_four(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        for column in 0..4 {
            for row in 0..Self::LANES {
                // SAFETY: the caller's promise.
                unsafe { *to.add(column * to_stride + row) = *from.add(row * from_stride + column) };
            }
        }
    }
}

/// Portable fallback, which the compiler vectorizes with four lanes.
#[derive(Clone, Copy)]
pub(super) struct Portable([f32; 4]);

// SAFETY: arrays need no special instructions.
unsafe impl Lanes for Portable {
    const LANES: usize = 4;
    const ACROSS: usize = 2;
    type Mask = usize;

    #[inline(always)]
    unsafe fn mask(count: usize) -> usize {
        count
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0.0; 4])
    }

    #[inline(always)]
    unsafe fn splat(number: f32) -> Self {
        Self([number; 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { from.cast::<[f32; 4]>().read() })
    }

    #[inline(always)]
    unsafe fn load_part(from: *const f32, mask: usize) -> Self {
        // SAFETY: the caller's promise: the elements of the mask exist.
        Self(std::array::from_fn(|i| if i < mask { unsafe { *from.add(i) } } else { 0.0 }))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[f32; 4]>().write(self.0) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, mask: usize) {
        for (i, &number) in self.0.iter().enumerate().take(mask) {
            // SAFETY: the caller's promise: the elements of the mask exist.
            unsafe { *to.add(i) = number };
        }
    }

    #[inline(always)]
    unsafe fn fma(self, a: Self, b: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + a.0[i] * b.0[i]))
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + other.0[i]))
    }

    #[inline(always)]
    unsafe fn sums(of: [Self; 4]) -> [f32; 4] {
        of.map(|Self(v)| (v[0] + v[2]) + (v[1] + v[3]))
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Lanes;

    /// AVX2 and FMA: 16 registers of 8.
    #[derive(Clone, Copy)]
    pub struct Avx2(__m256);

    // SAFETY: each function matches its intrinsics; callers promise that the processor has them.
    unsafe impl Lanes for Avx2 {
        const LANES: usize = 8;
        const ACROSS: usize = 2;
        type Mask = __m256i;

        #[inline(always)]
        unsafe fn mask(count: usize) -> __m256i {
            // SAFETY: the trait's condition.
            unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
        }

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the trait's condition.
            Self(unsafe { _mm256_setzero_ps() })
        }

        #[inline(always)]
        unsafe fn splat(number: f32) -> Self {
            // SAFETY: the trait's condition.
            Self(unsafe { _mm256_set1_ps(number) })
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the trait's condition.
            Self(unsafe { _mm256_loadu_ps(from) })
        }

        #[inline(always)]
        unsafe fn load_part(from: *const f32, mask: __m256i) -> Self {
            // SAFETY: the trait's condition.
            Self(unsafe { _mm256_maskload_ps(from, mask) })
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the trait's condition.
            unsafe { _mm256_storeu_ps(to, self.0) }
        }

        #[inline(always)]
        unsafe fn store_part(self, to: *mut f32, mask: __m256i) {
            // SAFETY: the trait's condition.
            unsafe { _mm256_maskstore_ps(to, mask, self.0) }
        }

        #[inline(always)]
        unsafe fn fma(self, a: Self, b: Self) -> Self {
            // SAFETY: the trait's condition.
            Self(unsafe { _mm256_fmadd_ps(a.0, b.0, self.0) })
        }

        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            // SAFETY: the trait's condition.
            Self(unsafe { _mm256_add_ps(self.0, other.0) })
        }

        #[inline(always)]
        fn prefetch(at: *const f32) {
            // SAFETY: a hint, which never faults; every processor of this architecture has it.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }

        #[inline(always)]
        unsafe fn sums(of: [Self; 4]) -> [f32; 4] {
            // SAFETY: the trait's condition; the array has four elements.
            unsafe {
                let [Self(a), Self(b), Self(c), Self(d)] = of;
                // Within each half: sums of a, b, c, d.
                let sums = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
                let sums = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps::<1>(sums));
                let mut out = [0.0; 4];
                _mm_storeu_ps(out.as_mut_ptr(), sums);
                out
            }
        }

        #[inline(always)]
        unsafe fn transpose_four(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
            // SAFETY: the trait's condition.
            unsafe {
                let mut pairs = [_mm256_setzero_ps(); 4];
                for r in 0..4 {
                    // Rows r and r + 4.
                    let low = _mm256_castps128_ps256(_mm_loadu_ps(from.add(r * from_stride)));
                    pairs[r] = _mm256_insertf128_ps::<1>(low, _mm_loadu_ps(from.add((r + 4) * from_stride)));
                }
                let [a, b, c, d] = pairs;
                let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
                _mm256_storeu_ps(to, _mm256_shuffle_ps::<0x44>(ab, cd));
                _mm256_storeu_ps(to.add(to_stride), _mm256_shuffle_ps::<0xee>(ab, cd));
                let (ab, cd) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
                _mm256_storeu_ps(to.add(2 * to_stride), _mm256_shuffle_ps::<0x44>(ab, cd));
                _mm256_storeu_ps(to.add(3 * to_stride), _mm256_shuffle_ps::<0xee>(ab, cd));
            }
        }
    }

    /// AVX-512 F, VL, BW and DQ: 32 registers of 16.
    #[derive(Clone, Copy)]
    pub struct Avx512(__m512);

    // SAFETY: each function matches its intrinsics; callers promise that the processor has them.
    unsafe impl Lanes for Avx512 {
        const LANES: usize = 16;
        const ACROSS: usize = 4;
        type Mask = __mmask16;

        #[inline(always)]
        unsafe fn mask(count: usize) -> __mmask16 {
            u16::MAX >> (16 - count)
        }

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the trait's condition.
            Self(unsafe { _mm512_setzero_ps() })
        }

        #[inline(always)]
        unsafe fn splat(number: f32) -> Self {
            // SAFETY: the trait's condition.
            Self(unsafe { _mm512_set1_ps(number) })
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the trait's condition.
            Self(unsafe { _mm512_loadu_ps(from) })
        }

        #[inline(always)]
        unsafe fn load_part(from: *const f32, mask: __mmask16) -> Self {
            // SAFETY: the trait's condition.
            Self(unsafe { _mm512_maskz_loadu_ps(mask, from) })
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the trait's condition.
            unsafe { _mm512_storeu_ps(to, self.0) }
        }

        #[inline(always)]
        unsafe fn store_part(self, to: *mut f32, mask: __mmask16) {
            // SAFETY: the trait's condition.
            unsafe { _mm512_mask_storeu_ps(to, mask, self.0) }
        }

        #[inline(always)]
        unsafe fn fma(self, a: Self, b: Self) -> Self {
            // SAFETY: the trait's condition.
            Self(unsafe { _mm512_fmadd_ps(a.0, b.0, self.0) })
        }

        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            // SAFETY: the trait's condition.
            Self(unsafe { _mm512_add_ps(self.0, other.0) })
        }

        #[inline(always)]
        fn prefetch(at: *const f32) {
            // SAFETY: a hint, which never faults; every processor of this architecture has it.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }

        #[inline(always)]
        unsafe fn sums(of: [Self; 4]) -> [f32; 4] {
            // SAFETY: the trait's condition; the array has four elements.
            unsafe {
                let [Self(a), Self(b), Self(c), Self(d)] = of;
                // Within each quarter: a, b, a, b; then a, b, c, d.
                let ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
                let cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
                let sums = _mm512_add_ps(_mm512_shuffle_ps::<0x44>(ab, cd), _mm512_shuffle_ps::<0xee>(ab, cd));
                let sums = _mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps::<1>(sums));
                let sums = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps::<1>(sums));
                let mut out = [0.0; 4];
                _mm_storeu_ps(out.as_mut_ptr(), sums);
                out
            }
        }

        #[inline(always)]
        unsafe fn transpose_four(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
            // SAFETY: the trait's condition.
            unsafe {
                let mut fours = [_mm512_setzero_ps(); 4];
                for r in 0..4 {
                    // Rows r, r + 4, r + 8 and r + 12: loads place them, which avoids the shuffle port.
                    let at = from.add(r * from_stride);
                    let four = _mm512_castps128_ps512(_mm_loadu_ps(at));
                    let four = _mm512_mask_broadcast_f32x4(four, 0x00f0, _mm_loadu_ps(at.add(4 * from_stride)));
                    let four = _mm512_mask_broadcast_f32x4(four, 0x0f00, _mm_loadu_ps(at.add(8 * from_stride)));
                    fours[r] = _mm512_mask_broadcast_f32x4(four, 0xf000, _mm_loadu_ps(at.add(12 * from_stride)));
                }
                let [a, b, c, d] = fours;
                let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
                _mm512_storeu_ps(to, _mm512_shuffle_ps::<0x44>(ab, cd));
                _mm512_storeu_ps(to.add(to_stride), _mm512_shuffle_ps::<0xee>(ab, cd));
                let (ab, cd) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
                _mm512_storeu_ps(to.add(2 * to_stride), _mm512_shuffle_ps::<0x44>(ab, cd));
                _mm512_storeu_ps(to.add(3 * to_stride), _mm512_shuffle_ps::<0xee>(ab, cd));
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
pub(super) use arm::Neon;

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::*;

    use super::Lanes;

    /// NEON, which every processor of this architecture has: 32 registers of 4.
    #[derive(Clone, Copy)]
    pub struct Neon(float32x4_t);

    // SAFETY: each function matches its intrinsics.
    unsafe impl Lanes for Neon {
        const LANES: usize = 4;
        const ACROSS: usize = 4;
        type Mask = usize;

        #[inline(always)]
        unsafe fn mask(count: usize) -> usize {
            count
        }

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the trait's condition.
            Self(unsafe { vdupq_n_f32(0.0) })
        }

        #[inline(always)]
        unsafe fn splat(number: f32) -> Self {
            // SAFETY: the trait's condition.
            Self(unsafe { vdupq_n_f32(number) })
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the trait's condition.
            Self(unsafe { vld1q_f32(from) })
        }

        #[inline(always)]
        unsafe fn load_part(from: *const f32, mask: usize) -> Self {
            let mut part = [0.0; 4];
            for (i, slot) in part.iter_mut().enumerate().take(mask) {
                // SAFETY: the trait's condition: the elements of the mask exist.
                *slot = unsafe { *from.add(i) };
            }
            // SAFETY: four elements.
            Self(unsafe { vld1q_f32(part.as_ptr()) })
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the trait's condition.
            unsafe { vst1q_f32(to, self.0) }
        }

        #[inline(always)]
        unsafe fn store_part(self, to: *mut f32, mask: usize) {
            let mut part = [0.0; 4];
            // SAFETY: four elements.
            unsafe { vst1q_f32(part.as_mut_ptr(), self.0) };
            for (i, &number) in part.iter().enumerate().take(mask) {
                // SAFETY: the trait's condition: the elements of the mask exist.
                unsafe { *to.add(i) = number };
            }
        }

        #[inline(always)]
        unsafe fn fma(self, a: Self, b: Self) -> Self {
            // SAFETY: the trait's condition.
            Self(unsafe { vfmaq_f32(self.0, a.0, b.0) })
        }

        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            // SAFETY: the trait's condition.
            Self(unsafe { vaddq_f32(self.0, other.0) })
        }

        #[inline(always)]
        unsafe fn sums(of: [Self; 4]) -> [f32; 4] {
            let [Self(a), Self(b), Self(c), Self(d)] = of;
            let mut out = [0.0; 4];
            // SAFETY: the trait's condition; the array has four elements.
            unsafe { vst1q_f32(out.as_mut_ptr(), vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d))) };
            out
        }

        #[inline(always)]
        unsafe fn transpose_four(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
            // SAFETY: the trait's condition.
            unsafe {
                let row = |r: usize| vld1q_f32(from.add(r * from_stride));
                let pair = |a, b| (vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b));
                // Of rows 0 and 1, and of 2 and 3: columns 0 and 2, then 1 and 3.
                let (ab, cd) = pair(vtrn1q_f32(row(0), row(1)), vtrn1q_f32(row(2), row(3)));
                vst1q_f32(to, vreinterpretq_f32_f64(vtrn1q_f64(ab, cd)));
                vst1q_f32(to.add(2 * to_stride), vreinterpretq_f32_f64(vtrn2q_f64(ab, cd)));
                let (ab, cd) = pair(vtrn2q_f32(row(0), row(1)), vtrn2q_f32(row(2), row(3)));
                vst1q_f32(to.add(to_stride), vreinterpretq_f32_f64(vtrn1q_f64(ab, cd)));
                vst1q_f32(to.add(3 * to_stride), vreinterpretq_f32_f64(vtrn2q_f64(ab, cd)));
            }
        }
    }
}
