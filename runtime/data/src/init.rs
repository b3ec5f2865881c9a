//! Parameter initialization.

use hgnnc_ir::dataflow::{Init, ParamDecl};
use hgnnc_ir::random;
use hgnnc_ir::types::Dim;
use hgnnc_kernels::simd::{Dispatch, multiversion};
use rayon::prelude::*;

/// Distribution and key of the initial values of one parameter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Initializer {
    distribution: Distribution,
    name_hash: u64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Distribution {
    Constant(f64),
    /// Uniform in `[-bound, bound]`.
    Uniform(f64),
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
}

impl Initializer {
    /// Initializer of a parameter; `extent` gives the size of each dimension.
    pub fn of(decl: &ParamDecl, extent: impl Fn(Dim) -> usize) -> Self {
        let of = |dim: Dim| extent(dim) as f64;
        let distribution = match decl.init {
            Init::Constant(c) => Distribution::Constant(c),
            // Glorot and Bengio 2010, eq. 16.
            Init::Glorot { fan_in, fan_out } => {
                Distribution::Uniform((6.0 / (of(fan_in) + fan_out as f64).max(1.0)).sqrt())
            }
            // He et al. 2015, eq. 10, as a uniform distribution of that variance.
            Init::He { fan_in } => Distribution::Uniform((6.0 / of(fan_in).max(1.0)).sqrt()),
            Init::Uniform(bound) => Distribution::Uniform(bound),
            Init::Normal { std } => Distribution::Normal(std),
        };
        Self { distribution, name_hash: name_hash(&decl.name) }
    }

    /// Writes all elements, on the threads of the current pool if there are many.
    pub fn fill_all(self, seed: u64, numbers: &mut [f32]) {
        // Each element depends on its position only, so that the parts are independent.
        const PART: usize = 1 << 14;
        if numbers.len() <= PART {
            return self.fill(seed, 0, numbers);
        }
        numbers.par_chunks_mut(PART).enumerate().for_each(|(part, numbers)| self.fill(seed, part * PART, numbers));
    }

    /// Writes elements from position `start` on. Each depends only on the seed, the parameter's name and its position.
    pub fn fill(self, seed: u64, start: usize, numbers: &mut [f32]) {
        let key = random::mask_key(seed, self.name_hash, 0);
        let start = start as u64;
        match self.distribution {
            Distribution::Constant(c) => numbers.fill(c as f32),
            Distribution::Uniform(bound) => uniform(Dispatch::default(), key, bound, start, numbers),
            Distribution::Normal(std) => {
                for (number, i) in numbers.iter_mut().zip(start..) {
                    *number = (std * random::normal(key, i)) as f32;
                }
            }
        }
    }
}

/// FNV-1a: values depend on the parameter's name, not on its index.
fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

multiversion! {
    /// Uniform in `[-bound, bound]`, bit-identical at every SIMD level.
    fn uniform(dispatch: Dispatch, key: u64, bound: f64, start: u64, numbers: &mut [f32]) as uniform_body
}

#[inline(always)]
fn uniform_body<const FMA: bool>(key: u64, bound: f64, start: u64, numbers: &mut [f32]) {
    for (i, number) in numbers.iter_mut().enumerate() {
        *number = (bound * (2.0 * random::uniform(key, start + i as u64) - 1.0)) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_depend_on_their_position_only() {
        let draw = |distribution| Initializer { distribution, name_hash: name_hash("conv.w") };
        for distribution in [Distribution::Uniform(0.3), Distribution::Normal(0.5), Distribution::Constant(2.0)] {
            let mut whole = [f32::NAN; 1000];
            draw(distribution).fill(7, 0, &mut whole);
            let mut parts = [f32::NAN; 1000];
            for (part, numbers) in parts.chunks_mut(33).enumerate() {
                draw(distribution).fill(7, 33 * part, numbers);
            }
            assert_eq!(whole, parts);
        }
    }

    #[test]
    fn numbers_are_the_same_with_any_instructions() {
        let (mut widest, mut plain) = ([0.0; 100], [0.0; 100]);
        uniform(Dispatch::default(), 5, 0.7, 12, &mut widest);
        uniform_body::<false>(5, 0.7, 12, &mut plain);
        assert_eq!(widest, plain);
        assert!(
            plain.iter().all(|x| x.abs() <= 0.7) && plain.iter().any(|x| *x < -0.5) && plain.iter().any(|x| *x > 0.5)
        );
    }
}
