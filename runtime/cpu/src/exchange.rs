//! Exchanges of rows between ranks, while other steps of their launch run.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use hgnnc_data::buffer::PlannedSlabs;
use hgnnc_data::ranks::Route;
use hgnnc_data::{BoundData, ExecError, Result};
use hgnnc_dist::{Comm, CommError, Exchange, Pending, Tag};
use hgnnc_session::Exchanged;
use rayon::prelude::*;

use crate::plan::ExchangeStep;

/// Rows per task of a copy.
const TASK: usize = 512;

/// The ranks that an engine exchanges rows with.
#[derive(Debug)]
pub(crate) struct Exchanger {
    pub comm: Arc<dyn Comm>,
    /// The first error. Later exchanges do nothing.
    failed: Mutex<Option<CommError>>,
    /// Buffers of earlier exchanges.
    free: Mutex<Vec<Exchange>>,
    exchanges: AtomicU64,
    /// Bytes that were sent to other ranks.
    sent: AtomicU64,
    /// Nanoseconds of waiting, after all other steps of a launch.
    waited: AtomicU64,
}

/// The rows of a rank within those of all ranks, in their order.
fn rows_of(rank: usize, counts: &[usize]) -> Range<usize> {
    let first: usize = counts[..rank].iter().sum();
    first..first + counts[rank]
}

/// Bytes of the rows for each rank or from it, but not of those of a rank itself.
fn bytes_of_others(rank: usize, counts: &[usize], width: usize) -> Vec<usize> {
    let bytes = |(other, rows): (usize, &usize)| if other == rank { 0 } else { rows * width };
    counts.iter().enumerate().map(bytes).collect()
}

impl Exchanger {
    pub fn new(comm: Arc<dyn Comm>) -> Self {
        Self {
            comm,
            failed: Mutex::default(),
            free: Mutex::default(),
            exchanges: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            waited: AtomicU64::new(0),
        }
    }

    /// Bytes, exchanges and waiting times so far.
    pub fn exchanged(&self) -> Exchanged {
        Exchanged {
            exchanges: self.exchanges.load(Relaxed),
            sent_bytes: self.sent.load(Relaxed),
            waited_ns: self.waited.load(Relaxed),
        }
    }

    /// The error of an exchange, if one has failed.
    ///
    /// # Errors
    /// That error.
    pub fn check(&self) -> Result<()> {
        match &*self.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(error) => Err(ExecError::Ranks(error.to_string())),
        }
    }

    pub fn fail(&self, error: CommError) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// The buffers of an earlier exchange.
    pub fn buffers(&self) -> Exchange {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Keeps the buffers of an exchange for later ones.
    pub fn keep(&self, exchange: Exchange) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(exchange);
    }

    /// Starts an exchange with the other ranks.
    pub fn begin(&self, exchange: Exchange) -> Option<Box<dyn Pending>> {
        self.exchanges.fetch_add(1, Relaxed);
        self.sent.fetch_add(exchange.send.len() as u64, Relaxed);
        match self.comm.start(Tag::STEP, exchange) {
            Ok(started) => Some(started),
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    /// Waits for an exchange, with nothing else to do.
    ///
    /// # Errors
    /// As [`Pending::wait`].
    pub fn wait(&self, pending: Box<dyn Pending>) -> std::result::Result<Exchange, CommError> {
        let start = Instant::now();
        let arrived = pending.wait();
        self.waited.fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
        arrived
    }

    /// Starts the exchange of a step: packs the rows that other ranks need, and sends them. Those that this rank has
    /// itself are copied to their places meanwhile, unless they were computed there.
    pub fn start(&self, slabs: PlannedSlabs<'_>, data: &BoundData, step: &ExchangeStep) -> Option<Box<dyn Pending>> {
        let route = data.routes.get(step.to.index()).and_then(Option::as_ref)?;
        if self.check().is_err() {
            return None;
        }
        let (rank, width) = (self.comm.rank(), 4 * step.width);
        // Nothing writes the operand in this launch.
        let rows: &[u8] = bytemuck::cast_slice(slabs.of(step.x));
        let own = rows_of(rank, &route.send_rows);
        let mut pending = None;
        if self.comm.size() > 1 {
            let mut exchange = self.buffers();
            exchange.send_counts = bytes_of_others(rank, &route.send_rows, width);
            exchange.recv_counts = bytes_of_others(rank, &route.recv_rows, width);
            let (before, after) = (&route.send[..own.start], &route.send[own.end..]);
            exchange.send.resize(exchange.send_counts.iter().sum(), 0);
            exchange.recv.resize(exchange.recv_counts.iter().sum(), 0);
            let (first, second) = exchange.send.split_at_mut(before.len() * width);
            pack(rows, before, width, first);
            pack(rows, after, width, second);
            pending = self.begin(exchange);
        }
        if step.in_place {
            return pending;
        }
        let from = &route.send[own];
        let to = rows_of(rank, &route.recv_rows);
        place(slabs, step, route, to, &|row, into| {
            into.copy_from_slice(&rows[from[row] as usize * width..][..width]);
        });
        pending
    }

    /// Waits for the rows of an exchange, and stores them.
    pub fn finish(
        &self,
        slabs: PlannedSlabs<'_>,
        data: &BoundData,
        step: &ExchangeStep,
        pending: Option<Box<dyn Pending>>,
    ) {
        let (Some(pending), Some(Some(route))) = (pending, data.routes.get(step.to.index())) else { return };
        match self.wait(pending) {
            Ok(exchange) => {
                let (own, width) = (rows_of(self.comm.rank(), &route.recv_rows), 4 * step.width);
                let all: usize = route.recv_rows.iter().sum();
                let (before, after) = exchange.recv.split_at(own.start * width);
                for (rows, arrived) in [(0..own.start, before), (own.end..all, after)] {
                    place(slabs, step, route, rows, &|row, into| {
                        into.copy_from_slice(&arrived[row * width..][..width]);
                    });
                }
                self.keep(exchange);
            }
            Err(error) => self.fail(error),
        }
    }
}

/// Copies rows of this many bytes one after the other.
fn pack(rows: &[u8], picked: &[u32], width: usize, into: &mut [u8]) {
    let tasks = into.par_chunks_mut((TASK * width).max(1)).zip(picked.par_chunks(TASK));
    tasks.for_each(|(into, picked)| {
        for (into, &row) in into.chunks_exact_mut(width.max(1)).zip(picked) {
            into.copy_from_slice(&rows[row as usize * width..][..width]);
        }
    });
}

/// Writes the bytes of rows of the result: those with the given numbers in the order of the sending ranks.
fn place(
    slabs: PlannedSlabs<'_>,
    step: &ExchangeStep,
    route: &Route,
    numbers: Range<usize>,
    write: &(dyn Fn(usize, &mut [u8]) + Sync),
) {
    let (first, width) = (numbers.start, step.width);
    numbers.into_par_iter().with_min_len(TASK).for_each(|number| {
        let row = route.places.as_ref().map_or(number, |places| places[number] as usize);
        // Each row has one number, and no other step of the launch accesses the result.
        let into = slabs.write(step.out.slab, step.out.offset + row * width, width);
        write(number - first, bytemuck::cast_slice_mut(into));
    });
}
