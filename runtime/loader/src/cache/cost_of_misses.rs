//! The cost of a miss of the feature cache, measured.

use std::time::Instant;

use hgnnc_ir::random::{bits, mask_key};
use hgnnc_session::HostRows;

/// Rows per timing of a miss, and repetitions.
const TIMED: (usize, u64) = (2048, 7);

/// Nanoseconds of `one` per row for scattered rows: the minimum of several attempts, each on other rows, which are not
/// in a CPU cache.
fn time(rows: usize, mut one: impl FnMut(usize)) -> f64 {
    if rows == 0 {
        return 0.0;
    }
    let attempt = |attempt: u64| {
        let key = mask_key(0, attempt, 0);
        let timed: Vec<usize> =
            (0..TIMED.0 as u64).map(|at| ((u64::from(bits(key, at)) * rows as u64) >> 32) as usize).collect();
        let start = Instant::now();
        timed.iter().for_each(|&row| one(row));
        start.elapsed().as_nanos() as f64 / TIMED.0 as f64
    };
    (0..TIMED.1).map(attempt).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds per row read.
pub fn time_reads(numbers: &[f32], width: usize) -> f64 {
    let mut scratch = vec![0.0; TIMED.0 * width];
    let mut at = 0;
    time(numbers.len() / width.max(1), |row| {
        scratch[at * width..][..width].copy_from_slice(&numbers[row * width..][..width]);
        at = (at + 1) % TIMED.0;
    })
}

/// Nanoseconds per row read and write-back, over several arrays.
pub fn time_moves(arrays: &[&HostRows], rows: usize, width: usize) -> f64 {
    let mut scratch = vec![0.0; TIMED.0 * width];
    let mut at = 0;
    time(rows, |row| {
        for array in arrays {
            let here = &mut scratch[at * width..][..width];
            array.read_row(row, here);
            array.write_row(row, here);
        }
        at = (at + 1) % TIMED.0;
    })
}
