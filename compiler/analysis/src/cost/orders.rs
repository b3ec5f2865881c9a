//! Predicted times of the alternatives that a pass compares, for its explanation.

use hgnnc_machine::{Gather, Machine, Work};

use super::rates;

/// Predicted seconds of two alternatives.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Times {
    /// Time of the chosen alternative.
    pub chosen: f64,
    /// Time of the other alternative.
    pub other: f64,
}

impl Times {
    /// `fused 0.120 ms < unfused 0.310 ms`
    pub fn text(&self, chosen: &str, other: &str) -> String {
        let sign = if self.chosen < self.other { "<" } else { ">=" };
        format!("predicted: {chosen} {} {sign} {other} {}", ms(self.chosen), ms(self.other))
    }
}

fn ms(seconds: f64) -> String {
    // A prediction has three significant digits.
    let ms = seconds * 1e3;
    let digits = if ms >= 100.0 {
        0
    } else if ms >= 10.0 {
        1
    } else if ms >= 1.0 {
        2
    } else {
        4
    };
    format!("{ms:.digits$} ms")
}

/// Predicted seconds of kernels that run back to back.
pub fn seconds(machine: &Machine, works: &[Work]) -> f64 {
    works.iter().map(|work| machine.predict(work).seconds()).sum()
}

/// `rows` rows of `left` elements times a weight of `products` elements give rows of `right` elements.
pub fn dense_product(rows: f64, left: f64, products: f64, right: f64) -> Work {
    Work {
        products: rows * products,
        read: 4.0 * (rows * left + products),
        written: 4.0 * rows * right,
        ..Work::default()
    }
}

/// The sum of `width` elements over edges, read from `others` rows (from the edges themselves where there are none),
/// with `cost` operations per element, into `ends` rows.
pub fn gather_sum(edges: f64, others: Option<f64>, ends: f64, width: f64, cost: f64) -> Work {
    let mut work = Work { written: 4.0 * ends * width, read: 8.0 * (ends + 1.0), ..Work::default() };
    rates::add(&mut work, edges * width * cost, rates::SIMPLE);
    match others {
        Some(distinct) => {
            work.read += 4.0 * edges;
            work.gathers.push(Gather { reads: edges, distinct, row_bytes: 4.0 * width, ahead: false });
        }
        None => work.read += 4.0 * edges * width,
    }
    work
}
