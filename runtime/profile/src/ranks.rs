//! Profiles of several processes: all of them measure the same runs, and each has times of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hgnnc_data::Result;
use hgnnc_session::Exchanged;
use hgnnc_trace::os;
use hgnnc_train::Trainer;

/// A run on one of several processes: milliseconds as in [`Profile`](crate::Profile), and means of all else.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RankTime {
    /// A run, with all that this process waited for.
    pub run_ms: f64,
    /// The run without `waiting_ms` and `loading_ms`.
    pub computing_ms: f64,
    /// Waiting for other processes, with nothing else to do.
    pub waiting_ms: f64,
    /// Waiting for the next mini-batch to be made.
    pub loading_ms: f64,
    /// Bytes sent to other processes.
    pub sent_bytes: f64,
    /// Exchanges with other processes.
    pub exchanges: f64,
    /// Peak resident set size in bytes, of everything so far.
    pub peak_rss_bytes: u64,
}

/// Whether the measurement ends before the next run, which all processes decide together, and the milliseconds that this
/// one has waited for the others.
pub(crate) fn agree(trainer: &mut Trainer, stop: &AtomicBool) -> Result<(bool, f64)> {
    let session = trainer.session();
    let is_alone = session.process().1 == 1;
    let start = Instant::now();
    let ends = session.agree(stop.load(Ordering::Relaxed))?;
    let ms = if is_alone { 0.0 } else { 1e3 * start.elapsed().as_secs_f64() };
    Ok((ends, ms))
}

/// The exchanges of training so far.
pub(crate) fn exchanged(trainer: &mut Trainer) -> Exchanged {
    match trainer.batches() {
        Some((batches, _)) => batches.exchanged(),
        None => trainer.session().exchanged(),
    }
}

impl RankTime {
    /// With means of what was exchanged in so many runs, and the peak of memory.
    pub(crate) fn with_exchanges(self, before: Exchanged, after: Exchanged, runs: u64) -> Self {
        let mean = |before: u64, after: u64| (after - before) as f64 / runs.max(1) as f64;
        Self {
            sent_bytes: mean(before.sent_bytes, after.sent_bytes),
            exchanges: mean(before.exchanges, after.exchanges),
            peak_rss_bytes: os::peak_rss_bytes(),
            ..self
        }
    }

    /// Those of all processes; empty for a single one.
    pub(crate) fn of_all(self, trainer: &mut Trainer) -> Result<Vec<Self>> {
        let session = trainer.session();
        if session.process().1 == 1 {
            return Ok(vec![]);
        }
        let Self { run_ms, computing_ms, waiting_ms, loading_ms, sent_bytes, exchanges, peak_rss_bytes } = self;
        let numbers = [run_ms, computing_ms, waiting_ms, loading_ms, sent_bytes, exchanges];
        let own: Vec<u64> = numbers.map(f64::to_bits).into_iter().chain([peak_rss_bytes]).collect();
        let of_rank = |numbers: Vec<u64>| {
            let number = |at: usize| numbers.get(at).copied().map_or(0.0, f64::from_bits);
            Self {
                run_ms: number(0),
                computing_ms: number(1),
                waiting_ms: number(2),
                loading_ms: number(3),
                sent_bytes: number(4),
                exchanges: number(5),
                peak_rss_bytes: numbers.get(6).copied().unwrap_or(0),
            }
        };
        Ok(session.of_all(&own)?.into_iter().map(of_rank).collect())
    }
}
