//! Weighted sampling, and that of the latest edges.

use hgnnc_ir::random::bits;

/// An exponentially distributed number of mean 1, `-ln u`, from 32 random bits, which select `u` as the midpoint of one
/// of 2^32 equal parts of (0, 1).
///
/// The logarithm is computed here, to a relative error of 1e-11, by additions, multiplications and divisions alone:
/// these are rounded identically everywhere, so that batches do not depend on the platform's math library.
#[inline]
pub(crate) fn exponential(random: u32) -> f64 {
    // From 1 to 2^33 - 1, so that u = odd / 2^33.
    let odd = f64::from(random) * 2.0 + 1.0;
    let raw = odd.to_bits();
    let (mut exponent, mut mantissa) = ((raw >> 52) as i64 - 1023, raw & ((1 << 52) - 1) | 1023 << 52);
    // The mantissa lies between the square roots of 1/2 and 2.
    if mantissa > std::f64::consts::SQRT_2.to_bits() {
        mantissa -= 1 << 52;
        exponent += 1;
    }
    let m = f64::from_bits(mantissa);
    // ln m = 2 artanh s: |s| < 0.172, and the first omitted term is below s^13 / 6.
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let series = 1.0
        + z * (1.0 / 3.0 + z * (1.0 / 5.0 + z * (1.0 / 7.0 + z * (1.0 / 9.0 + z * (1.0 / 11.0 + z * (1.0 / 13.0))))));
    (33 - exponent) as f64 * std::f64::consts::LN_2 - 2.0 * s * series
}

/// Samples edges of rows of one relation by weight.
pub(crate) struct Weigher<'s> {
    pub weights: &'s [f32],
    /// Weights are ranks, of which the lowest are taken.
    pub latest: bool,
    pub key: u64,
    /// Keys and positions of the edges of a row, as scratch memory.
    pub keys: &'s mut Vec<(u64, u32)>,
}

impl Weigher<'_> {
    /// Samples `out.len()` edges of the row of `vertex`, which starts at `start` and has at least as many edges of
    /// positive weight.
    pub fn take(&mut self, vertex: u32, start: u32, degree: u32, out: &mut [u32]) {
        let weights = &self.weights[start as usize..start as usize + degree as usize];
        self.keys.clear();
        self.keys.extend(weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0).map(|(k, &weight)| {
            let key = match self.latest {
                true => f64::from(weight),
                false => exponential(bits(self.key, u64::from(vertex) << 32 | k as u64)) / f64::from(weight),
            };
            // Positive floats compare as their bit patterns.
            (key.to_bits(), k as u32)
        }));
        if out.len() < self.keys.len() {
            self.keys.select_nth_unstable(out.len());
            self.keys.truncate(out.len());
        }
        for (to, &(_, k)) in out.iter_mut().zip(&*self.keys) {
            *to = start + k;
        }
        out.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_logarithms() {
        let mut worst = 0.0f64;
        let all = (0..=u32::MAX).step_by(65_521).chain([0, 1, 2, u32::MAX, u32::MAX - 1, 1 << 31, (1 << 31) - 1]);
        for random in all {
            let u = (f64::from(random) + 0.5) / 4_294_967_296.0;
            // ln(1 + x), because u is close to 1 at the upper end.
            let exact = -(u - 1.0).ln_1p();
            let found = exponential(random);
            assert!(found > 0.0, "{random}");
            worst = worst.max((found - exact).abs() / exact.max(1e-3));
        }
        println!("{worst:e}");
        assert!(worst < 1e-10, "{worst:e}");
    }
}
