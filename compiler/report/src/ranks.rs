//! Processes that train together: their times in a run, and how evenly the work is divided.

use crate::profile::{Kernel, Profile, Rank, Run};
use crate::table::{bytes, digits, time};

/// Kind of kernels that exchange rows with other processes. They belong to no stage.
pub const EXCHANGE: &str = "EX";

impl Kernel {
    /// Whether it exchanges rows with other processes.
    pub fn is_exchange(&self) -> bool {
        self.kind == EXCHANGE
    }
}

/// The process that computes longest.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Imbalance {
    /// Its number, from 0.
    pub rank: usize,
    /// Its time of computing by the mean of all processes; 1 if all compute as long.
    pub ratio: f64,
}

impl Profile {
    /// How evenly the work is divided; `None` for one process.
    pub fn imbalance(&self) -> Option<Imbalance> {
        let slowest = self.ranks.iter().max_by(|a, b| a.computing_ms.total_cmp(&b.computing_ms))?;
        let mean = self.mean_of_ranks(|rank| rank.computing_ms);
        let ratio = if mean > 0.0 { slowest.computing_ms / mean } else { 1.0 };
        Some(Imbalance { rank: slowest.rank, ratio })
    }

    /// The imbalance in a sentence.
    pub(crate) fn imbalance_text(&self) -> Option<String> {
        let Imbalance { rank, ratio } = self.imbalance()?;
        let run = self.run.name();
        Some(match ratio {
            even if even < 1.005 => format!("All {} ranks compute as long in each {run}.", self.ranks.len()),
            _ => format!(
                "Of {} ranks, rank {rank} computes longest: {} times the mean in each {run}.",
                self.ranks.len(),
                digits(ratio)
            ),
        })
    }

    fn mean_of_ranks(&self, of: impl Fn(&Rank) -> f64) -> f64 {
        self.ranks.iter().map(of).sum::<f64>() / self.ranks.len().max(1) as f64
    }

    /// Milliseconds of a run in which nothing was left to do but to wait for other processes.
    pub fn waits_for_ranks_ms(&self) -> f64 {
        self.exchanges().filter_map(|kernel| kernel.waiting_ms).fold(self.agreeing_ms, |sum, ms| sum + ms)
    }

    /// Milliseconds of kernels that exchange rows, without those of [`Profile::waits_for_ranks_ms`].
    pub fn exchanging_ms(&self) -> f64 {
        let own = |kernel: &Kernel| kernel.measured_ms - kernel.waiting_ms.unwrap_or(0.0);
        self.exchanges().map(own).fold(0.0, |sum, ms| sum + ms.max(0.0))
    }

    /// Milliseconds of all kernels that exchange rows.
    pub(crate) fn exchanges_ms(&self) -> f64 {
        self.exchanges().map(|kernel| kernel.measured_ms).fold(0.0, |sum, ms| sum + ms)
    }

    fn exchanges(&self) -> impl Iterator<Item = &Kernel> {
        self.kernels.iter().filter(|kernel| kernel.is_exchange())
    }

    /// The process that has the kernels, behind their name; nothing for one process.
    pub(crate) fn of_rank(&self) -> &'static str {
        if self.ranks.is_empty() { "" } else { " of rank 0" }
    }

    /// Heads of the table of processes.
    pub(crate) fn rank_heads(&self) -> Vec<&'static str> {
        let mut heads = vec!["rank", self.run.name(), "computing", "waiting for ranks"];
        heads.extend((self.run == Run::Batch).then_some("waiting for batches"));
        heads.extend(["sent", "exchanges", "peak memory"]);
        heads
    }

    /// Cells of the table of processes; the last row has means.
    pub(crate) fn rank_rows(&self) -> Vec<Vec<String>> {
        let cells = |name: String, of: &Rank| {
            let mut cells = vec![name];
            cells.extend([of.run_ms, of.computing_ms, of.waiting_ms].map(|ms| time(ms * 1e-3)));
            cells.extend((self.run == Run::Batch).then(|| time(of.loading_ms * 1e-3)));
            cells.extend([bytes(of.sent_bytes), digits(of.exchanges), bytes(of.peak_bytes as f64)]);
            cells
        };
        let mut rows: Vec<Vec<String>> = self.ranks.iter().map(|of| cells(of.rank.to_string(), of)).collect();
        let mean = Rank {
            rank: 0,
            run_ms: self.mean_of_ranks(|of| of.run_ms),
            computing_ms: self.mean_of_ranks(|of| of.computing_ms),
            waiting_ms: self.mean_of_ranks(|of| of.waiting_ms),
            loading_ms: self.mean_of_ranks(|of| of.loading_ms),
            sent_bytes: self.mean_of_ranks(|of| of.sent_bytes),
            exchanges: self.mean_of_ranks(|of| of.exchanges),
            peak_bytes: self.mean_of_ranks(|of| of.peak_bytes as f64) as u64,
        };
        rows.push(cells("mean".into(), &mean));
        rows
    }
}
