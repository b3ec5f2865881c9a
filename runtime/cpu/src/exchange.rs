//! Exchanges of rows between ranks, while other steps of their launch run.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use hgnnc_data::buffer::PlannedSlabs;
use hgnnc_data::ranks::Route;
use hgnnc_data::{BoundData, ExecError, Result};
use hgnnc_dist::{Comm, CommError, Exchange, Pending, Tag};

use crate::plan::ExchangeStep;

/// The ranks that an engine exchanges rows with.
#[derive(Debug)]
pub(crate) struct Exchanger {
    comm: Arc<dyn Comm>,
    /// The first error. Later exchanges do nothing.
    failed: Mutex<Option<CommError>>,
    /// Buffers of earlier exchanges.
    free: Mutex<Vec<Exchange>>,
    /// Bytes that were sent to other ranks.
    sent: AtomicU64,
}

impl Exchanger {
    pub fn new(comm: Arc<dyn Comm>) -> Self {
        Self { comm, failed: Mutex::default(), free: Mutex::default(), sent: AtomicU64::new(0) }
    }

    /// Bytes that were sent to other ranks so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
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

    fn fail(&self, error: CommError) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// Starts the exchange of a step: packs the rows that each rank needs, and sends them.
    pub fn start(&self, slabs: PlannedSlabs<'_>, data: &BoundData, step: &ExchangeStep) -> Option<Box<dyn Pending>> {
        let route = data.routes.get(step.mirrors.index()).and_then(Option::as_ref)?;
        if self.check().is_err() {
            return None;
        }
        let Route { send, send_rows, recv_rows } = &**route;
        let mut exchange = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let row_bytes = 4 * step.width;
        // Nothing writes the operand in this launch.
        let rows = slabs.of(step.x);
        exchange.send.clear();
        exchange.send.reserve(send.len() * row_bytes);
        for &row in send {
            let row = &rows[row as usize * step.width..][..step.width];
            exchange.send.extend_from_slice(bytemuck::cast_slice(row));
        }
        let counts = |rows: &[usize]| rows.iter().map(|rows| rows * row_bytes).collect();
        (exchange.send_counts, exchange.recv_counts) = (counts(send_rows), counts(recv_rows));
        exchange.recv.resize(exchange.recv_counts.iter().sum(), 0);
        let own = exchange.send_counts.get(self.comm.rank()).copied().unwrap_or(0);
        self.sent.fetch_add((exchange.send.len() - own) as u64, Relaxed);
        match self.comm.start(Tag::STEP, exchange) {
            Ok(pending) => Some(pending),
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    /// Waits for the rows of an exchange, and stores them.
    pub fn finish(&self, slabs: PlannedSlabs<'_>, step: &ExchangeStep, pending: Option<Box<dyn Pending>>) {
        let Some(pending) = pending else { return };
        match pending.wait() {
            Ok(exchange) => {
                // The rows of mirrors are those of the ranks, in order, and no other step of the launch accesses them.
                let out = slabs.write(step.out.slab, step.out.offset, step.out.len);
                bytemuck::cast_slice_mut::<f32, u8>(out).copy_from_slice(&exchange.recv);
                self.free.lock().unwrap_or_else(PoisonError::into_inner).push(exchange);
            }
            Err(error) => self.fail(error),
        }
    }
}
