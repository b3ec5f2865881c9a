//! Vector types for the tiles, one per instruction set, as methods of a token that shows that the processor has it.

use bytemuck::must_cast;

/// An instruction set with vectors of `f32`: who has a value of this type may use its instructions.
///
/// # Safety
/// [`Self::Vector`] consists of [`Self::LANES`] `f32` without padding, of any bits.
pub(super) unsafe trait Lanes: Copy {
    /// A vector.
    type Vector: Copy;
    /// Places of elements in a vector.
    type Places: Copy;
    /// Number of elements of a vector.
    const LANES: usize;
    /// Maximum vectors per tile row: six rows of them, the vectors of the other operand and one broadcast
    /// element fill the registers.
    const ACROSS: usize;

    /// Broadcasts a number to all elements.
    fn splat(self, number: f32) -> Self::Vector;
    /// Loads the elements of a slice, at most a vector; others are zero.
    fn load_part(self, from: &[f32]) -> Self::Vector;
    /// Stores the leading elements of a vector to a slice, at most a vector.
    fn store_part(self, vector: Self::Vector, to: &mut [f32]);
    /// `sum + a · b`, rounded once where the instruction set can.
    fn fma(self, sum: Self::Vector, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Element-wise sum of two vectors.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Horizontal sum of each vector, as a tree.
    fn sums(self, of: [Self::Vector; 4]) -> [f32; 4];
    /// As [`Self::sums`], in another order: the second half of the elements is added to the first one until one is left.
    fn folds(self, of: [Self::Vector; 4]) -> [f32; 4];
    /// Transposes `LANES` rows of four elements into four vectors.
    fn transpose_four(self, row: impl Fn(usize) -> [f32; 4]) -> [Self::Vector; 4];
    /// The first [`Self::LANES`] of these, each less than that number.
    fn places(self, of: [i32; 16]) -> Self::Places;
    /// The elements at these places.
    fn permute(self, vector: Self::Vector, places: Self::Places) -> Self::Vector;
}

/// The first elements, a vector at most, then zeros.
#[inline(always)]
pub(super) fn load<V: Lanes>(isa: V, from: &[f32]) -> V::Vector {
    if from.len() < V::LANES {
        return isa.load_part(from);
    }
    // SAFETY: a vector is `LANES` numbers of any bits, and the slice has as many.
    unsafe { from.as_ptr().cast::<V::Vector>().read_unaligned() }
}

/// Stores the leading elements that have room.
#[inline(always)]
pub(super) fn store<V: Lanes>(isa: V, vector: V::Vector, to: &mut [f32]) {
    if to.len() < V::LANES {
        return isa.store_part(vector, to);
    }
    // SAFETY: a vector is `LANES` numbers without padding, and the slice has as many.
    unsafe { to.as_mut_ptr().cast::<V::Vector>().write_unaligned(vector) }
}

/// Portable fallback, which the compiler vectorizes with four lanes.
#[derive(Clone, Copy)]
pub(super) struct Portable;

// SAFETY: four numbers.
unsafe impl Lanes for Portable {
    type Vector = [f32; 4];
    type Places = [i32; 4];
    const LANES: usize = 4;
    const ACROSS: usize = 2;

    #[inline(always)]
    fn splat(self, number: f32) -> [f32; 4] {
        [number; 4]
    }

    #[inline(always)]
    fn load_part(self, from: &[f32]) -> [f32; 4] {
        part_of_four(from)
    }

    #[inline(always)]
    fn store_part(self, vector: [f32; 4], to: &mut [f32]) {
        to.iter_mut().zip(vector).for_each(|(to, number)| *to = number);
    }

    #[inline(always)]
    fn fma(self, sum: [f32; 4], a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| sum[i] + a[i] * b[i])
    }

    #[inline(always)]
    fn add(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sums(self, of: [[f32; 4]; 4]) -> [f32; 4] {
        of.map(|v| (v[0] + v[2]) + (v[1] + v[3]))
    }

    #[inline(always)]
    fn folds(self, of: [[f32; 4]; 4]) -> [f32; 4] {
        self.sums(of)
    }

    #[inline(always)]
    fn transpose_four(self, row: impl Fn(usize) -> [f32; 4]) -> [[f32; 4]; 4] {
        let rows = [row(0), row(1), row(2), row(3)];
        std::array::from_fn(|column| rows.map(|row| row[column]))
    }

    #[inline(always)]
    fn places(self, of: [i32; 16]) -> [i32; 4] {
        [of[0], of[1], of[2], of[3]]
    }

    #[inline(always)]
    fn permute(self, vector: [f32; 4], places: [i32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| vector[places[i] as usize])
    }
}

/// Up to four elements, then zeros.
#[inline(always)]
fn part_of_four(from: &[f32]) -> [f32; 4] {
    std::array::from_fn(|i| if i < from.len() { from[i] } else { 0.0 })
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Lanes, must_cast};

    /// Defines methods whose bodies are compiled for instructions of which the token shows that there are.
    macro_rules! with_instructions {
        ($features:literal: $(
            fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block
        )*) => {$(
            #[inline(always)]
            fn $name(self, $($arg: $ty),*) $(-> $ret)? {
                #[inline]
                #[target_feature(enable = $features)]
                fn with_instructions($($arg: $ty),*) $(-> $ret)? $body
                // SAFETY: the token is made only by a function that is compiled for the same instructions.
                unsafe { with_instructions($($arg),*) }
            }
        )*};
    }

    /// AVX2 and FMA: 16 registers of 8.
    #[derive(Clone, Copy)]
    pub struct Avx2(());

    impl Avx2 {
        #[inline]
        #[target_feature(enable = "avx2,fma")]
        pub fn new() -> Self {
            Self(())
        }
    }

    /// Mask of the first `count` elements of a vector of eight.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn mask_of_eight(count: usize) -> __m256i {
        _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
    }

    /// [`Lanes::folds`] of vectors of four.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn folds_of_four([a, b, c, d]: [__m128; 4]) -> [f32; 4] {
        let ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
        let cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
        must_cast(_mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab)))
    }

    // SAFETY: eight numbers.
    unsafe impl Lanes for Avx2 {
        type Vector = __m256;
        type Places = __m256i;
        const LANES: usize = 8;
        const ACROSS: usize = 2;

        with_instructions! {
            "avx2,fma":

            fn splat(number: f32) -> __m256 {
                _mm256_set1_ps(number)
            }

            fn load_part(from: &[f32]) -> __m256 {
                // SAFETY: the mask selects elements of the slice only.
                unsafe { _mm256_maskload_ps(from.as_ptr(), mask_of_eight(from.len())) }
            }

            fn store_part(vector: __m256, to: &mut [f32]) {
                // SAFETY: the mask selects elements of the slice only.
                unsafe { _mm256_maskstore_ps(to.as_mut_ptr(), mask_of_eight(to.len()), vector) }
            }

            fn fma(sum: __m256, a: __m256, b: __m256) -> __m256 {
                _mm256_fmadd_ps(a, b, sum)
            }

            fn add(a: __m256, b: __m256) -> __m256 {
                _mm256_add_ps(a, b)
            }

            fn sums(of: [__m256; 4]) -> [f32; 4] {
                let [a, b, c, d] = of;
                // Within each half: sums of a, b, c, d.
                let sums = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
                must_cast(_mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps::<1>(sums)))
            }

            fn folds(of: [__m256; 4]) -> [f32; 4] {
                let mut halves = [_mm_setzero_ps(); 4];
                for (half, v) in halves.iter_mut().zip(of) {
                    *half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
                }
                folds_of_four(halves)
            }

            fn transpose_four(row: impl Fn(usize) -> [f32; 4]) -> [__m256; 4] {
                let mut pairs = [_mm256_setzero_ps(); 4];
                for (r, pair) in pairs.iter_mut().enumerate() {
                    // Rows r and r + 4.
                    *pair = _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(must_cast(row(r))), must_cast(row(r + 4)));
                }
                let [a, b, c, d] = pairs;
                let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
                let first = [_mm256_shuffle_ps::<0x44>(ab, cd), _mm256_shuffle_ps::<0xee>(ab, cd)];
                let (ab, cd) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
                [first[0], first[1], _mm256_shuffle_ps::<0x44>(ab, cd), _mm256_shuffle_ps::<0xee>(ab, cd)]
            }

            fn places(of: [i32; 16]) -> __m256i {
                let [low, _]: [__m256i; 2] = must_cast(of);
                low
            }

            fn permute(vector: __m256, places: __m256i) -> __m256 {
                _mm256_permutevar8x32_ps(vector, places)
            }
        }
    }

    /// AVX-512 F, VL, BW and DQ: 32 registers of 16.
    #[derive(Clone, Copy)]
    pub struct Avx512(());

    impl Avx512 {
        #[inline]
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
        pub fn new() -> Self {
            Self(())
        }
    }

    /// Mask of the first `count` elements of a vector of 16; all if there are more.
    #[inline(always)]
    fn mask_of_sixteen(count: usize) -> __mmask16 {
        ((1u32 << count.min(16)) - 1) as u16
    }

    // SAFETY: 16 numbers.
    unsafe impl Lanes for Avx512 {
        type Vector = __m512;
        type Places = __m512i;
        const LANES: usize = 16;
        const ACROSS: usize = 4;

        with_instructions! {
            "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma":

            fn splat(number: f32) -> __m512 {
                _mm512_set1_ps(number)
            }

            fn load_part(from: &[f32]) -> __m512 {
                // SAFETY: the mask selects elements of the slice only.
                unsafe { _mm512_maskz_loadu_ps(mask_of_sixteen(from.len()), from.as_ptr()) }
            }

            fn store_part(vector: __m512, to: &mut [f32]) {
                // SAFETY: the mask selects elements of the slice only.
                unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), mask_of_sixteen(to.len()), vector) }
            }

            fn fma(sum: __m512, a: __m512, b: __m512) -> __m512 {
                _mm512_fmadd_ps(a, b, sum)
            }

            fn add(a: __m512, b: __m512) -> __m512 {
                _mm512_add_ps(a, b)
            }

            fn sums(of: [__m512; 4]) -> [f32; 4] {
                let [a, b, c, d] = of;
                // Within each quarter: a, b, a, b; then a, b, c, d.
                let ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
                let cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
                let sums = _mm512_add_ps(_mm512_shuffle_ps::<0x44>(ab, cd), _mm512_shuffle_ps::<0xee>(ab, cd));
                let sums = _mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps::<1>(sums));
                must_cast(_mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps::<1>(sums)))
            }

            fn folds(of: [__m512; 4]) -> [f32; 4] {
                let mut halves = [_mm_setzero_ps(); 4];
                for (half, v) in halves.iter_mut().zip(of) {
                    let v = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
                    *half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
                }
                folds_of_four(halves)
            }

            fn transpose_four(row: impl Fn(usize) -> [f32; 4]) -> [__m512; 4] {
                let mut fours = [_mm512_setzero_ps(); 4];
                for (r, four) in fours.iter_mut().enumerate() {
                    // Rows r, r + 4, r + 8 and r + 12: loads place them, which avoids the shuffle port.
                    let part = _mm512_castps128_ps512(must_cast(row(r)));
                    let part = _mm512_mask_broadcast_f32x4(part, 0x00f0, must_cast(row(r + 4)));
                    let part = _mm512_mask_broadcast_f32x4(part, 0x0f00, must_cast(row(r + 8)));
                    *four = _mm512_mask_broadcast_f32x4(part, 0xf000, must_cast(row(r + 12)));
                }
                let [a, b, c, d] = fours;
                let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
                let first = [_mm512_shuffle_ps::<0x44>(ab, cd), _mm512_shuffle_ps::<0xee>(ab, cd)];
                let (ab, cd) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
                [first[0], first[1], _mm512_shuffle_ps::<0x44>(ab, cd), _mm512_shuffle_ps::<0xee>(ab, cd)]
            }

            fn places(of: [i32; 16]) -> __m512i {
                must_cast(of)
            }

            fn permute(vector: __m512, places: __m512i) -> __m512 {
                _mm512_permutexvar_ps(places, vector)
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
pub(super) use arm::Neon;

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::*;

    use super::{Lanes, must_cast, part_of_four};

    /// NEON, which every processor of this architecture has: 32 registers of 4.
    #[derive(Clone, Copy)]
    pub struct Neon;

    // SAFETY: four numbers.
    unsafe impl Lanes for Neon {
        type Vector = float32x4_t;
        type Places = [i32; 4];
        const LANES: usize = 4;
        const ACROSS: usize = 4;

        #[inline(always)]
        fn splat(self, number: f32) -> float32x4_t {
            vdupq_n_f32(number)
        }

        #[inline(always)]
        fn load_part(self, from: &[f32]) -> float32x4_t {
            must_cast(part_of_four(from))
        }

        #[inline(always)]
        fn store_part(self, vector: float32x4_t, to: &mut [f32]) {
            let numbers: [f32; 4] = must_cast(vector);
            to.iter_mut().zip(numbers).for_each(|(to, number)| *to = number);
        }

        #[inline(always)]
        fn fma(self, sum: float32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t {
            vfmaq_f32(sum, a, b)
        }

        #[inline(always)]
        fn add(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
            vaddq_f32(a, b)
        }

        #[inline(always)]
        fn sums(self, of: [float32x4_t; 4]) -> [f32; 4] {
            let [a, b, c, d] = of;
            must_cast(vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)))
        }

        #[inline(always)]
        fn folds(self, of: [float32x4_t; 4]) -> [f32; 4] {
            let of: [[f32; 4]; 4] = must_cast(of);
            of.map(|v| (v[0] + v[2]) + (v[1] + v[3]))
        }

        #[inline(always)]
        fn transpose_four(self, row: impl Fn(usize) -> [f32; 4]) -> [float32x4_t; 4] {
            let row = |r: usize| -> float32x4_t { must_cast(row(r)) };
            let pair = |a, b| (vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b));
            // Of rows 0 and 1, and of 2 and 3: columns 0 and 2, then 1 and 3.
            let (ab, cd) = pair(vtrn1q_f32(row(0), row(1)), vtrn1q_f32(row(2), row(3)));
            let (first, third) = (vtrn1q_f64(ab, cd), vtrn2q_f64(ab, cd));
            let (ab, cd) = pair(vtrn2q_f32(row(0), row(1)), vtrn2q_f32(row(2), row(3)));
            [first, vtrn1q_f64(ab, cd), third, vtrn2q_f64(ab, cd)].map(vreinterpretq_f32_f64)
        }

        #[inline(always)]
        fn places(self, of: [i32; 16]) -> [i32; 4] {
            [of[0], of[1], of[2], of[3]]
        }

        #[inline(always)]
        fn permute(self, vector: float32x4_t, places: [i32; 4]) -> float32x4_t {
            let numbers: [f32; 4] = must_cast(vector);
            must_cast(places.map(|place| numbers[place as usize]))
        }
    }
}
