//! Floating-point formats and rounding.
//!
//! Correctly rounded results in f32 or less are computed in f64 rounded to odd (Boldo and Melquiond 2008) and then
//! rounded once more: with at least two extra bits of precision, that equals rounding once.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Round {
    /// To the nearest, ties to even.
    Nearest,
    /// To the nearest, ties away from zero.
    NearestAway,
    Zero,
    Down,
    Up,
}

impl Round {
    /// Rounds `x` to an integral value.
    pub fn integral(self, x: f64) -> f64 {
        match self {
            Round::Nearest => x.round_ties_even(),
            Round::NearestAway => x.round(),
            Round::Zero => x.trunc(),
            Round::Down => x.floor(),
            Round::Up => x.ceil(),
        }
    }
}

/// A binary format: bits of precision including the leading one, and the exponents of the smallest and largest normal
/// number.
#[derive(Clone, Copy)]
struct Format {
    precision: i32,
    least: i32,
    largest: i32,
}

const F16: Format = Format { precision: 11, least: -14, largest: 15 };
const BF16: Format = Format { precision: 8, least: -126, largest: 127 };
const F32: Format = Format { precision: 24, least: -126, largest: 127 };

fn power_of_two(exponent: i32) -> f64 {
    debug_assert!((-1022..=1023).contains(&exponent));
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// `x` rounded to a number of the format, as f64.
fn round_to(x: f64, format: Format, round: Round) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let exponent = (((x.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(format.least);
    let unit = exponent - (format.precision - 1);
    // Powers of two: both products are exact.
    let rounded = round.integral(x * power_of_two(-unit)) * power_of_two(unit);
    let max = (2.0 - power_of_two(1 - format.precision)) * power_of_two(format.largest);
    if rounded.abs() <= max {
        return if rounded == 0.0 { 0f64.copysign(x) } else { rounded };
    }
    let to_max = match round {
        Round::Nearest | Round::NearestAway => false,
        Round::Zero => true,
        Round::Down => x > 0.0,
        Round::Up => x < 0.0,
    };
    if to_max { max.copysign(x) } else { f64::INFINITY.copysign(x) }
}

/// f64 to f32 in any direction.
pub(crate) fn round_f32(x: f64, round: Round) -> f32 {
    if round == Round::Nearest { x as f32 } else { round_to(x, F32, round) as f32 }
}

/// f64 to the bits of f16. NaN is 0x7fff.
pub(crate) fn to_f16(x: f64, round: Round) -> u16 {
    if x.is_nan() {
        return 0x7fff;
    }
    let x = round_to(x, F16, round);
    let sign = ((x.to_bits() >> 48) & 0x8000) as u16;
    let magnitude = x.abs();
    if magnitude.is_infinite() {
        return sign | 0x7c00;
    }
    if magnitude < power_of_two(-14) {
        return sign | (magnitude * power_of_two(24)) as u16;
    }
    // The bits of f64 with the exponent in the bias of f16, cut to its 10 bits of mantissa.
    sign | ((magnitude.to_bits() - ((1023 - 15) << 52)) >> 42) as u16
}

/// The bits of f16 to f64, exactly.
pub(crate) fn from_f16(bits: u16) -> f64 {
    let sign = if bits & 0x8000 != 0 { -1.0 } else { 1.0 };
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
    match exponent {
        0 => sign * mantissa * power_of_two(-24),
        31 if mantissa == 0.0 => sign * f64::INFINITY,
        31 => f64::NAN,
        _ => sign * (1024.0 + mantissa) * power_of_two(exponent - 25),
    }
}

/// f64 to the bits of bf16. NaN is 0x7fff.
pub(crate) fn to_bf16(x: f64, round: Round) -> u16 {
    if x.is_nan() { 0x7fff } else { ((round_to(x, BF16, round) as f32).to_bits() >> 16) as u16 }
}

/// f32 to the bits of bf16, to the nearest even. NaN is 0x7fff.
pub(crate) fn nearest_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() { 0x7fff } else { (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16 }
}

/// The bits of bf16 to f32, exactly.
pub(crate) fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// f32 to tf32: the low 13 bits become zero.
pub(crate) fn to_tf32(x: f32, round: Round) -> u32 {
    let bits = x.to_bits();
    if !x.is_finite() {
        return bits & !0x1fff;
    }
    let bits = match round {
        Round::NearestAway => bits.wrapping_add(0x1000),
        Round::Nearest => bits.wrapping_add(0xfff + (bits >> 13 & 1)),
        Round::Zero | Round::Down | Round::Up => bits,
    };
    bits & !0x1fff
}

/// `x` if it is exact, otherwise the neighbour towards the exact result whose last bit is one. `x` is rounded to
/// nearest; `error` is the exact result minus `x`.
fn to_odd(x: f64, error: f64) -> f64 {
    if error == 0.0 || !x.is_finite() || !error.is_finite() || x.to_bits() & 1 == 1 {
        return x;
    }
    let bits = x.to_bits();
    // Towards the exact result: away from zero if the error has the sign of `x`.
    f64::from_bits(if (error > 0.0) == (x > 0.0) { bits + 1 } else { bits - 1 })
}

/// `a + b` rounded to odd.
pub(crate) fn add_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // TwoSum (Knuth): the error is exact.
    let b_part = sum - a;
    to_odd(sum, (a - (sum - b_part)) + (b - b_part))
}

/// `a / b` rounded to odd, for `a` and `b` from f32.
pub(crate) fn div_odd(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    let rest = (-quotient).mul_add(b, a);
    to_odd(quotient, if b < 0.0 { -rest } else { rest })
}

/// The root of `a` rounded to odd, for `a` from f32.
pub(crate) fn sqrt_odd(a: f64) -> f64 {
    let root = a.sqrt();
    to_odd(root, (-root).mul_add(root, a))
}

/// An integer rounded to odd.
pub(crate) fn int_odd(value: i128) -> f64 {
    let nearest = value as f64;
    to_odd(nearest, (value - nearest as i128) as f64)
}

/// f32 `a · b + c`, rounded once. The product is exact in f64.
#[inline]
pub(crate) fn fma_f32(a: f32, b: f32, c: f32) -> f32 {
    let (p, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = p + c;
    // Double rounding differs from single rounding only close to the midpoint of two f32, or on it; both have 28 zeros
    // at the end, unless the result is subnormal.
    if sum.to_bits() & 0x0fff_ffff != 0 && sum.abs() >= f64::from(f32::MIN_POSITIVE) {
        sum as f32
    } else {
        add_odd(p, c) as f32
    }
}

/// Flushes subnormals to zero of the same sign.
pub(crate) fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

/// Clamps `x` to [0, 1]; NaN becomes 0.
pub(crate) fn saturate(x: f32) -> f32 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn fma_is_rounded_once(a: u32, b: u32, c: u32) {
            let (a, b, c) = (f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
            let (ours, exact) = (fma_f32(a, b, c), a.mul_add(b, c));
            prop_assert!(ours.to_bits() == exact.to_bits() || ours.is_nan() && exact.is_nan(), "{ours:e} {exact:e}");
        }

        /// Cancellation and ties, which random bits do not reach.
        #[test]
        fn fma_of_close_numbers(a in 1u32..64, b in 1u32..64, c in -64i32..64, e in -40i32..40, l in -3i32..4) {
            let (a, b) = (1.0 + a as f32 * f32::EPSILON, 1.0 + b as f32 * f32::EPSILON);
            let c = ((c as f32).mul_add(f32::EPSILON, l as f32)) * (e as f32).exp2();
            prop_assert_eq!(fma_f32(a, b, c).to_bits(), a.mul_add(b, c).to_bits());
            prop_assert_eq!(fma_f32(a, b, -1.0 / c).to_bits(), a.mul_add(b, -1.0 / c).to_bits());
        }

        #[test]
        fn nearest_f32_as_the_language(x: u64) {
            let x = f64::from_bits(x);
            let rounded = round_to(x, F32, Round::Nearest) as f32;
            prop_assert!(rounded.to_bits() == (x as f32).to_bits() || x.is_nan());
        }

        #[test]
        fn directions_enclose(x: f64, y: f32) {
            for x in [x, f64::from(y) * (1.0 + f64::EPSILON * 8.0)] {
                let (down, up) = (round_f32(x, Round::Down), round_f32(x, Round::Up));
                prop_assert!(f64::from(down) <= x && x <= f64::from(up));
                prop_assert!(down == up || down.next_up() == up);
                prop_assert_eq!(round_f32(x, Round::Zero), if x < 0.0 { up } else { down });
            }
        }

        #[test]
        fn bf16_two_ways(x: f32) {
            prop_assert_eq!(nearest_bf16(x), to_bf16(f64::from(x), Round::Nearest));
        }
    }

    #[test]
    fn f16_round_trip() {
        for bits in 0..=u16::MAX {
            let value = from_f16(bits);
            let back = to_f16(value, Round::Nearest);
            assert!(back == bits || value.is_nan() && back == 0x7fff, "{bits:04x} {back:04x}");
        }
        assert_eq!(to_f16(65520.0, Round::Nearest), 0x7c00);
        assert_eq!(to_f16(65519.0, Round::Nearest), 0x7bff);
        assert_eq!(to_f16(1e9, Round::Zero), 0x7bff);
    }

    #[test]
    fn directed_sums_see_bits_that_f64_loses() {
        assert_eq!(round_f32(add_odd(1.0, 1e-40), Round::Up), 1f32.next_up());
        assert_eq!(round_f32(add_odd(1.0, -1e-40), Round::Zero), 1f32.next_down());
        assert_eq!(round_f32(div_odd(1.0, 3.0), Round::Up), (1f32 / 3.0).max((1f32 / 3.0).next_down()));
    }
}
