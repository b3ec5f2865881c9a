//! The cost of a miss of the feature cache, measured.

use std::time::Instant;

use hgnnc_data::Result;
use hgnnc_ir::random::{bits, mask_key};
use hgnnc_session::RowStore;

/// Rows per timing of a miss, and repetitions.
const TIMED: (usize, u64) = (2048, 7);

/// Nanoseconds of `one` per row for scattered rows: the minimum of several attempts, each on other rows, which are not
/// in a CPU cache.
fn time(rows: usize, mut one: impl FnMut(usize) -> Result<()>) -> Result<f64> {
    if rows == 0 {
        return Ok(0.0);
    }
    let attempt = |attempt: u64| -> Result<f64> {
        let key = mask_key(0, attempt, 0);
        let timed: Vec<usize> =
            (0..TIMED.0 as u64).map(|at| ((u64::from(bits(key, at)) * rows as u64) >> 32) as usize).collect();
        let start = Instant::now();
        timed.iter().try_for_each(|&row| one(row))?;
        Ok(start.elapsed().as_nanos() as f64 / TIMED.0 as f64)
    };
    (0..TIMED.1).map(attempt).try_fold(f64::INFINITY, |least, took| Ok(least.min(took?)))
}

/// Nanoseconds per row read, and, with `written`, its write-back, over several stores with a row for each vertex.
///
/// # Errors
/// Those of the stores.
pub fn time_misses(stores: &[&dyn RowStore], written: bool) -> Result<f64> {
    let width = stores.iter().map(|store| store.width()).max().unwrap_or(0);
    let mut scratch = vec![0.0; TIMED.0 * width];
    let mut at = 0;
    time(stores.first().map_or(0, |store| store.num_rows()), |row| {
        for store in stores {
            let here = &mut scratch[at * width..][..store.width()];
            store.read(&[row as u32], here)?;
            if written {
                store.write(&[row as u32], here)?;
            }
        }
        at = (at + 1) % TIMED.0;
        Ok(())
    })
}
