//! Sums of rows over all ranks, in their order, by slices of the elements ([`hgnnc_dist::slices`]).

use std::ops::Range;

use hgnnc_data::BoundData;
use hgnnc_data::buffer::PlannedSlabs;
use hgnnc_dist::{CommError, Pending, slices};
use rayon::prelude::*;

use crate::exchange::Exchanger;
use crate::plan::RankSumStep;

/// Elements per task of a sum.
const TASK: usize = 4096;

/// Sums that were started.
pub(crate) struct StartedSums {
    /// The rows of other ranks, on their way; `None` for a single rank.
    pending: Option<Box<dyn Pending>>,
    /// The slice of this rank in its own rows.
    own: Vec<f32>,
}

/// The elements of several sums, one after the other, as if they were those of one row.
struct Elements<'a> {
    sums: &'a [RankSumStep],
    /// Number of rows of each rank.
    rows: &'a [usize],
    count: usize,
}

/// A part of a slice that belongs to one sum.
struct Piece {
    sum: RankSumStep,
    /// Elements of the sum's row.
    of_row: Range<usize>,
    /// First element in the slice.
    at: usize,
}

impl<'a> Elements<'a> {
    /// All sums have as many rows on each rank. `None` for none.
    fn new(sums: &'a [RankSumStep], data: &'a BoundData) -> Option<Self> {
        let rows = data.rows_of_ranks.get(sums.first()?.rows.index())?.as_deref()?;
        Some(Self { sums, rows, count: sums.iter().map(|sum| sum.out.len).sum() })
    }

    /// The elements that a rank adds.
    fn slice(&self, rank: usize) -> Range<usize> {
        slices::slice(self.count, rank, self.rows.len())
    }

    fn pieces(&self, slice: Range<usize>) -> impl Iterator<Item = Piece> {
        let mut first = 0;
        self.sums.iter().filter_map(move |&sum| {
            let (start, end) = (first, first + sum.out.len);
            first = end;
            let (from, to) = (slice.start.max(start), slice.end.min(end));
            (from < to).then(|| Piece { sum, of_row: from - start..to - start, at: from - slice.start })
        })
    }

    /// Copies a slice of this rank's rows.
    fn pack(&self, slabs: PlannedSlabs<'_>, slice: Range<usize>, rows: usize, into: &mut [f32]) {
        let len = slice.len();
        for Piece { sum, of_row, at } in self.pieces(slice) {
            let all = slabs.of(sum.x);
            for row in 0..rows {
                let from = row * sum.out.len;
                let into = &mut into[row * len + at..][..of_row.len()];
                into.copy_from_slice(&all[from + of_row.start..from + of_row.end]);
            }
        }
    }

    /// Stores a slice of the sums.
    fn store(&self, slabs: PlannedSlabs<'_>, slice: Range<usize>, sums: &[u8]) {
        for Piece { sum, of_row, at } in self.pieces(slice) {
            // Nothing else of the launch accesses the result.
            let into = slabs.write(sum.out.slab, sum.out.offset + of_row.start, of_row.len());
            bytemuck::cast_slice_mut::<f32, u8>(into).copy_from_slice(&sums[4 * at..][..4 * of_row.len()]);
        }
    }
}

/// Adds rows of numbers to a sum, one row after the other.
fn add_rows(rows: &[u8], sum: &mut [f32]) {
    let width = sum.len();
    sum.par_chunks_mut(TASK).enumerate().for_each(|(task, sum)| {
        for row in rows.chunks_exact((4 * width).max(1)) {
            let numbers = row[4 * TASK * task..].chunks_exact(4);
            for (sum, number) in sum.iter_mut().zip(numbers) {
                *sum += f32::from_ne_bytes([number[0], number[1], number[2], number[3]]);
            }
        }
    });
}

/// The bytes for each rank, or from it, but none for a rank itself.
fn counts(size: usize, rank: usize, of: impl Fn(usize) -> usize) -> Vec<usize> {
    (0..size).map(|other| if other == rank { 0 } else { 4 * of(other) }).collect()
}

impl Exchanger {
    /// Starts the sums of a launch: sends each rank its slice of the rows of this one.
    pub fn start_sums(&self, slabs: PlannedSlabs<'_>, data: &BoundData, sums: &[RankSumStep]) -> Option<StartedSums> {
        let elements = Elements::new(sums, data).filter(|_| self.check().is_ok())?;
        let (rank, size) = (self.comm.rank(), self.comm.size());
        let (slice, rows) = (elements.slice(rank), elements.rows[rank]);
        let mut own = vec![0.0; rows * slice.len()];
        elements.pack(slabs, slice.clone(), rows, &mut own);
        let mut pending = None;
        if size > 1 {
            let mut exchange = self.buffers();
            exchange.send_counts = counts(size, rank, |to| rows * elements.slice(to).len());
            exchange.recv_counts = counts(size, rank, |from| elements.rows[from] * slice.len());
            exchange.send.clear();
            let mut numbers = vec![];
            for to in (0..size).filter(|&to| to != rank) {
                numbers.resize(rows * elements.slice(to).len(), 0.0);
                elements.pack(slabs, elements.slice(to), rows, &mut numbers);
                exchange.send.extend_from_slice(bytemuck::cast_slice(&numbers));
            }
            exchange.recv.resize(exchange.recv_counts.iter().sum(), 0);
            pending = self.begin(exchange);
        }
        Some(StartedSums { pending, own })
    }

    /// Waits for the rows of all ranks, adds them, and stores the sums.
    pub fn finish_sums(
        &self,
        slabs: PlannedSlabs<'_>,
        data: &BoundData,
        sums: &[RankSumStep],
        started: Option<StartedSums>,
    ) {
        let Some((elements, started)) = Elements::new(sums, data).zip(started) else { return };
        if let Err(error) = self.add_and_share(slabs, &elements, started) {
            self.fail(error);
        }
    }

    fn add_and_share(
        &self,
        slabs: PlannedSlabs<'_>,
        elements: &Elements<'_>,
        started: StartedSums,
    ) -> Result<(), CommError> {
        let StartedSums { pending, own } = started;
        let (rank, size) = (self.comm.rank(), self.comm.size());
        let slice = elements.slice(rank);
        let arrived = pending.map(|pending| self.wait(pending)).transpose()?.unwrap_or_default();
        let mut sum = vec![0.0; slice.len()];
        let mut others = &arrived.recv[..];
        for from in 0..size {
            if from == rank {
                add_rows(bytemuck::cast_slice(&own), &mut sum);
                continue;
            }
            let (rows, rest) = others.split_at(arrived.recv_counts.get(from).copied().unwrap_or(0));
            add_rows(rows, &mut sum);
            others = rest;
        }
        elements.store(slabs, slice.clone(), bytemuck::cast_slice(&sum));
        if size == 1 || slices::are_few(elements.count) {
            self.keep(arrived);
            return Ok(());
        }
        let mut exchange = arrived;
        exchange.send_counts = counts(size, rank, |_| slice.len());
        exchange.recv_counts = counts(size, rank, |from| elements.slice(from).len());
        exchange.send.clear();
        (1..size).for_each(|_| exchange.send.extend_from_slice(bytemuck::cast_slice(&sum)));
        exchange.recv.resize(exchange.recv_counts.iter().sum(), 0);
        let Some(pending) = self.begin(exchange) else { return Ok(()) };
        let shared = self.wait(pending)?;
        let mut others = &shared.recv[..];
        for from in (0..size).filter(|&from| from != rank) {
            let (sums, rest) = others.split_at(shared.recv_counts[from]);
            elements.store(slabs, elements.slice(from), sums);
            others = rest;
        }
        self.keep(shared);
        Ok(())
    }
}
