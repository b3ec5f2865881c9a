//! f32 functions that LLVM vectorises: no branches, no tables, no calls.
//!
//! Errors against f64, over all arguments where the result is a normal number: [`exp`], [`ln`],
//! [`expm1_neg`], [`tanh`] and [`sigmoid`] 3 ulp; [`softplus`] and [`erf`] 4 ulp; [`gelu`] 2e-7 · max(1, |x|)
//! absolute. NaN gives NaN, and infinities give the limits. With `FMA` a product and sum round once.

/// `a · b + c`.
#[inline(always)]
pub fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// 1.5 · 2^23: adding it rounds to the nearest integer, which the low mantissa bits then hold.
const ROUND: f32 = 12_582_912.0;
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// `e^r - 1` for |r| ≤ ln 2 / 2 (coefficients of Cephes `expf`).
#[inline(always)]
fn expm1_reduced<const FMA: bool>(r: f32) -> f32 {
    let mut p = 1.987_569_1e-4;
    p = fma::<FMA>(p, r, 1.398_199_9e-3);
    p = fma::<FMA>(p, r, 8.333_452e-3);
    p = fma::<FMA>(p, r, 4.166_579_6e-2);
    p = fma::<FMA>(p, r, 1.666_666_5e-1);
    p = fma::<FMA>(p, r, 0.5);
    fma::<FMA>(p * r, r, r)
}

/// `(n, r)` with `x = n ln 2 + r`.
#[inline(always)]
fn reduce<const FMA: bool>(x: f32) -> (i32, f32) {
    let shifted = fma::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = fma::<FMA>(n, -LN2_LOW, fma::<FMA>(n, -LN2_HIGH, x));
    ((shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32), r)
}

/// 2^n for n in -126..=127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) << 23) as u32)
}

/// Exponential `e^x`, 3 ulp.
#[inline(always)]
pub fn exp<const FMA: bool>(x: f32) -> f32 {
    // Comparisons instead of `min` and `max`, which would drop NaN.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let (n, r) = reduce::<FMA>(x);
    // In two factors, because 2^n alone leaves the exponent range before the result does.
    let half = n >> 1;
    (1.0 + expm1_reduced::<FMA>(r)) * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// `e^x - 1` for `x ≤ 0`, accurate near 0.
#[inline(always)]
pub fn expm1_neg<const FMA: bool>(x: f32) -> f32 {
    let x = if x < -30.0 { -30.0 } else { x };
    let (n, r) = reduce::<FMA>(x);
    let scale = power_of_two(n);
    fma::<FMA>(expm1_reduced::<FMA>(r), scale, scale - 1.0)
}

/// Natural logarithm: -∞ at 0, NaN below.
#[inline(always)]
pub fn ln<const FMA: bool>(x: f32) -> f32 {
    let subnormal = x < f32::MIN_POSITIVE;
    let scaled = if subnormal { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits() as i32;
    // Mantissa in [√½, √2): the exponent counts from there.
    let shifted = bits.wrapping_sub(0x3f35_04f3);
    let exponent = (shifted >> 23) - if subnormal { 23 } else { 0 };
    let m = f32::from_bits(((shifted & 0x007f_ffff).wrapping_add(0x3f35_04f3)) as u32) - 1.0;
    let z = m * m;
    let mut p = 7.037_683_6e-2;
    p = fma::<FMA>(p, m, -1.151_461e-1);
    p = fma::<FMA>(p, m, 1.167_699_9e-1);
    p = fma::<FMA>(p, m, -1.242_014_1e-1);
    p = fma::<FMA>(p, m, 1.424_932_3e-1);
    p = fma::<FMA>(p, m, -1.666_805_8e-1);
    p = fma::<FMA>(p, m, 2.000_071_5e-1);
    p = fma::<FMA>(p, m, -2.499_999_4e-1);
    p = fma::<FMA>(p, m, 3.333_333e-1);
    let e = exponent as f32;
    let tail = fma::<FMA>(z, -0.5, fma::<FMA>(e, LN2_LOW, p * m * z));
    let result = fma::<FMA>(e, LN2_HIGH, m + tail);
    let result = if x == f32::INFINITY { x } else { result };
    // Threads that flush subnormal operands have scaled them to zero, but a comparison may be compiled to one of bits.
    let result = if scaled == 0.0 { f32::NEG_INFINITY } else { result };
    if scaled < 0.0 || x.is_nan() { f32::NAN } else { result }
}

/// `ln(1 + t)` for `0 ≤ t ≤ 1`.
#[inline(always)]
fn ln_1p_unit<const FMA: bool>(t: f32) -> f32 {
    let u = 1.0 + t;
    // Rounding error of `u`, to first order.
    ln::<FMA>(u) + (t - (u - 1.0)) / u
}

/// `ln(1 + x)`: -∞ at -1, NaN below.
#[inline(always)]
pub fn ln_1p<const FMA: bool>(x: f32) -> f32 {
    let u = 1.0 + x;
    // Rounding error of `u`, to first order. At infinity it is NaN.
    let lost = x - (u - 1.0);
    let ln = ln::<FMA>(u);
    if lost == 0.0 || u == f32::INFINITY { ln } else { ln + lost / u }
}

/// Softplus `ln(1 + e^x)`, 4 ulp.
#[inline(always)]
pub fn softplus<const FMA: bool>(x: f32) -> f32 {
    let positive = if x > 0.0 { x } else { 0.0 };
    positive + ln_1p_unit::<FMA>(exp::<FMA>(-x.abs()))
}

/// Log-add-exp `ln(e^a + e^b)` without overflow.
#[inline(always)]
pub fn log_add_exp<const FMA: bool>(a: f32, b: f32) -> f32 {
    let larger = if a > b { a } else { b };
    // Equal operands may be infinite: their difference would be NaN.
    let distance = if a == b { 0.0 } else { -(a - b).abs() };
    larger + ln_1p_unit::<FMA>(exp::<FMA>(distance))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    let e = exp::<FMA>(-x.abs());
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// `tanh x` (small arguments: coefficients of Cephes `tanhf`).
#[inline(always)]
pub fn tanh<const FMA: bool>(x: f32) -> f32 {
    let magnitude = x.abs();
    let z = x * x;
    let mut p = -5.704_988_7e-3;
    p = fma::<FMA>(p, z, 2.063_909e-2);
    p = fma::<FMA>(p, z, -5.373_971_6e-2);
    p = fma::<FMA>(p, z, 1.333_144_2e-1);
    p = fma::<FMA>(p, z, -3.333_328e-1);
    let small = fma::<FMA>(p * z, x, x);
    let large = (1.0 - 2.0 / (exp::<FMA>(2.0 * magnitude) + 1.0)).copysign(x);
    if magnitude < 0.625 { small } else { large }
}

/// `(erf t, 1 - erf t)` for `t ≥ 0` (minimax fits in the style of N. Juffa's `erff`).
#[inline(always)]
fn erf_parts<const FMA: bool>(t: f32) -> (f32, f32) {
    let s = t * t;
    let mut p = -5.967_617e-4;
    p = fma::<FMA>(p, s, 4.991_194_2e-3);
    p = fma::<FMA>(p, s, -2.676_813_5e-2);
    p = fma::<FMA>(p, s, 1.128_199_25e-1);
    p = fma::<FMA>(p, s, -3.761_253_4e-1);
    p = fma::<FMA>(p, s, 1.283_791_7e-1);
    let near = fma::<FMA>(p, t, t);

    let t = if t > 4.5 { 4.5 } else { t };
    let s = t * t;
    let r = fma::<FMA>(-1.728_534_7e-5, t, 3.831_971_3e-4);
    let u = fma::<FMA>(-3.883_964_4e-3, t, 2.425_462_2e-2);
    let mut r = fma::<FMA>(r, s, u);
    r = fma::<FMA>(r, t, -1.067_778_8e-1);
    r = fma::<FMA>(r, t, -6.348_467e-1);
    r = fma::<FMA>(r, t, -1.287_175_1e-1);
    r = fma::<FMA>(r, t, -t);
    let rest = exp::<FMA>(r);
    if t > 0.927_734_4 { (1.0 - rest, rest) } else { (near, 1.0 - near) }
}

/// Error function, `erf x`.
#[inline(always)]
pub fn erf<const FMA: bool>(x: f32) -> f32 {
    erf_parts::<FMA>(x.abs()).0.copysign(x)
}

/// GELU `x Φ(x)` with the exact Gaussian CDF.
#[inline(always)]
pub fn gelu<const FMA: bool>(x: f32) -> f32 {
    let (_, rest) = erf_parts::<FMA>(x.abs() * std::f32::consts::FRAC_1_SQRT_2);
    // For x < 0 the small tail itself is used, so nothing cancels. -∞ · 0 would be NaN.
    let phi = if x > 0.0 { 1.0 - 0.5 * rest } else { 0.5 * rest };
    if x < -20.0 { -0.0 } else { x * phi }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance in units of the last place of the exact result.
    fn ulps(got: f32, exact: f64) -> f64 {
        if got.is_nan() && exact.is_nan() || f64::from(got) == exact {
            return 0.0;
        }
        let size = (exact.abs() as f32).max(f32::MIN_POSITIVE);
        let ulp = f64::from(f32::from_bits(size.to_bits() + 1)) - f64::from(size);
        (f64::from(got) - exact).abs() / ulp
    }

    fn worst(range: impl Iterator<Item = f32>, f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64) -> (f64, f32) {
        range.map(|x| (ulps(f(x), exact(f64::from(x))), x)).fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a })
    }

    fn linear(from: f32, to: f32) -> impl Iterator<Item = f32> {
        (0..=400_000).map(move |i| from + (to - from) * (i as f32 / 400_000.0))
    }

    fn all_positive() -> impl Iterator<Item = f32> {
        (1..0x7f80_0000u32).step_by(4001).map(f32::from_bits)
    }

    fn erf_exact(x: f64) -> f64 {
        // Maclaurin series, good to 1e-12 for |x| ≤ 4; beyond, 1 in f32.
        if x.abs() > 4.0 {
            return x.signum();
        }
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    }

    fn check<const FMA: bool>() {
        let near = |(error, at): (f64, f32), limit: f64, name: &str| {
            assert!(error <= limit, "{name}({at}): {error:.2} ulp with FMA = {FMA}");
        };
        near(worst(linear(-87.3, 88.72), exp::<FMA>, f64::exp), 3.0, "exp");
        near(worst(all_positive(), ln::<FMA>, f64::ln), 3.0, "ln");
        near(worst(linear(0.5, 2.0), ln::<FMA>, f64::ln), 3.0, "ln");
        near(worst(linear(-40.0, 0.0), expm1_neg::<FMA>, f64::exp_m1), 3.0, "expm1");
        near(worst(linear(-12.0, 12.0), tanh::<FMA>, f64::tanh), 3.0, "tanh");
        near(worst(linear(-1e-3, 1e-3), tanh::<FMA>, f64::tanh), 3.0, "tanh");
        near(worst(linear(-87.0, 40.0), sigmoid::<FMA>, |x| 1.0 / (1.0 + (-x).exp())), 3.0, "sigmoid");
        near(worst(linear(-0.999, 3.0), ln_1p::<FMA>, f64::ln_1p), 4.0, "ln_1p");
        near(worst(linear(-80.0, 100.0), softplus::<FMA>, |x| x.max(0.0) + (-x.abs()).exp().ln_1p()), 4.0, "softplus");
        near(worst(linear(-4.5, 4.5), erf::<FMA>, erf_exact), 4.0, "erf");
        for x in linear(-12.0, 12.0) {
            let exact = f64::from(x) * 0.5 * (1.0 + erf_exact(f64::from(x) * std::f64::consts::FRAC_1_SQRT_2));
            let error = (f64::from(gelu::<FMA>(x)) - exact).abs() / f64::from(x.abs().max(1.0));
            assert!(error < 2e-7, "gelu({x}): {error}");
        }
        let inf = f32::INFINITY;
        assert_eq!((exp::<FMA>(-inf), exp::<FMA>(inf), exp::<FMA>(0.0)), (0.0, inf, 1.0));
        assert_eq!((ln::<FMA>(0.0), ln::<FMA>(inf), ln::<FMA>(1.0)), (-inf, inf, 0.0));
        assert_eq!((tanh::<FMA>(-inf), sigmoid::<FMA>(-inf), softplus::<FMA>(inf)), (-1.0, 0.0, inf));
        assert_eq!(log_add_exp::<FMA>(-inf, -inf), -inf);
        assert_eq!(log_add_exp::<FMA>(-inf, 2.0), 2.0);
        assert_eq!((gelu::<FMA>(-inf), gelu::<FMA>(inf), erf::<FMA>(-inf)), (0.0, inf, -1.0));
        for f in [exp::<FMA>, ln::<FMA>, tanh::<FMA>, sigmoid::<FMA>, softplus::<FMA>, erf::<FMA>, gelu::<FMA>] {
            assert!(f(f32::NAN).is_nan());
        }
        assert!(ln::<FMA>(-1.0).is_nan() && expm1_neg::<FMA>(f32::NAN).is_nan());
    }

    /// Subnormal numbers count as zero there, for vectors as well.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[test]
    fn logarithms_of_subnormal_numbers_that_are_flushed() {
        let inside = std::thread::spawn(|| {
            crate::subnormal::flush_to_zero();
            let numbers = std::hint::black_box([1e-45, -1e-45, 1e-39, 0.0, -0.0, 1.0, 1.2e-38, f32::MIN_POSITIVE]);
            numbers.map(ln::<false>)
        });
        let found = inside.join().expect("it ends");
        assert_eq!(
            found[..6],
            [f32::NEG_INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0]
        );
        assert!(found[6..].iter().all(|x| x.is_finite()), "{found:?}");
    }

    #[test]
    fn errors_against_f64_stay_within_the_stated_ulps() {
        check::<true>();
        check::<false>();
    }
}
