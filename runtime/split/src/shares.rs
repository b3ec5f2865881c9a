//! Shares of parts, and the order in which elements are divided.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::SplitError;

/// Shares of all elements that each part receives. The elements that remain are in no part.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shares {
    /// Share of the training part, from 0 to 1; `None`: the elements that the other parts leave.
    pub train: Option<f64>,
    /// Share of the validation part.
    pub val: f64,
    /// Share of the test part; `None`: the elements that the other parts leave, and none where they leave none.
    pub test: Option<f64>,
}

impl Shares {
    /// # Errors
    /// When a share is not from 0 to 1, or all are more than 1 together.
    pub fn check(&self) -> Result<(), SplitError> {
        let all = [self.train.unwrap_or(0.0), self.val, self.test.unwrap_or(0.0)];
        // Sums of decimal fractions may exceed 1 by rounding.
        if all.iter().all(|share| (0.0..=1.0).contains(share)) && all.iter().sum::<f64>() <= 1.0 + 1e-9 {
            return Ok(());
        }
        let text: Vec<String> = all.iter().map(f64::to_string).collect();
        Err(SplitError::Shares(text.join(", ")))
    }

    /// Number of elements of each part, of `count`.
    pub fn sizes(&self, count: usize) -> [usize; 3] {
        let of = |share: f64| (share * count as f64).round() as usize;
        let left = || count.saturating_sub(of(self.val) + self.test.map_or(0, of));
        let train = self.train.map_or_else(left, of).min(count);
        let val = of(self.val).min(count - train);
        let rest = count - train - val;
        [train, val, self.test.map_or(rest, |share| of(share).min(rest))]
    }

    /// The first elements of `order` as the training part, the next ones as the validation and the test part; each
    /// ascending.
    pub fn cut(&self, order: &[u32]) -> [Vec<u32>; 3] {
        let mut from = 0;
        self.sizes(order.len()).map(|size| {
            let mut part = order[from..from + size].to_vec();
            part.sort_unstable();
            from += size;
            part
        })
    }

    /// Refuses parts that have a share and no element. `of` says what is divided.
    pub(crate) fn check_parts(&self, sizes: [usize; 3], count: usize, of: &str) -> Result<(), SplitError> {
        let names = ["training", "validation", "test"];
        let train = self.train.unwrap_or(1.0 - self.val - self.test.unwrap_or(0.0));
        let shares = [train, self.val, self.test.unwrap_or(1.0 - train - self.val)];
        for ((part, share), size) in names.into_iter().zip(shares).zip(sizes) {
            if share > 1e-9 && size == 0 {
                return Err(SplitError::Empty { part, count, of: of.into() });
            }
        }
        Ok(())
    }
}

/// The order in which elements are divided: the first ones are to train on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Drawn from this seed.
    Random(u64),
    /// Ascending in time. Elements of equal times stay in the order of the dataset.
    Time,
    /// Ascending in time, of links only: each edge is one, also where a pair comes again.
    Events,
}

/// Shuffles `elements` by a seed: the order of [`Order::Random`].
pub fn shuffle(elements: &mut [u32], seed: u64) {
    elements.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(train: f64, val: f64, test: Option<f64>) -> Shares {
        Shares { train: Some(train), val, test }
    }

    #[test]
    fn parts_are_cut_in_the_order() {
        let [train, val, test] = shares(0.5, 0.25, None).cut(&[7, 3, 5, 1]);
        assert_eq!((train, val, test), (vec![3, 7], vec![5], vec![1]));
        let [train, val, test] = shares(0.25, 0.25, Some(0.25)).cut(&[7, 3, 5, 1]);
        assert_eq!((train, val, test), (vec![7], vec![3], vec![5]));
    }

    #[test]
    fn a_share_of_training_that_is_not_given_is_what_the_others_leave() {
        let order = [7, 3, 5, 1];
        let [train, val, test] = Shares { train: None, val: 0.25, test: Some(0.25) }.cut(&order);
        assert_eq!((train, val, test), (vec![3, 7], vec![5], vec![1]));
        let [train, val, test] = Shares { train: None, val: 0.25, test: None }.cut(&order);
        assert_eq!((train, val, test), (vec![3, 5, 7], vec![1], vec![]));
        // The other parts are rounded first.
        let halves = Shares { train: None, val: 0.1, test: Some(0.1) };
        assert_eq!((halves.sizes(5), halves.sizes(1)), ([3, 1, 1], [1, 0, 0]));
        let wrong = Shares { train: None, val: 0.6, test: Some(0.6) };
        assert!(wrong.check().is_err());
        assert_eq!(wrong.sizes(10), [0, 6, 4]);
    }

    #[test]
    fn shares_beyond_one_are_refused() {
        assert!(shares(0.7, 0.2, Some(0.1)).check().is_ok());
        for wrong in [shares(0.9, 0.2, None), shares(-0.1, 0.2, None), shares(0.5, f64::NAN, None)] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_part_that_rounding_leaves_empty_is_named() {
        let shares = shares(0.8, 0.1, None);
        let error = shares.check_parts(shares.sizes(4), 4, "links").unwrap_err();
        assert_eq!(error.to_string(), "the validation part of 4 links would be empty: give it a larger share, or 0");
    }
}
