//! Makes batches ahead of those that are computed.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use super::source::{Made, Source};
use crate::error::{ExecError, Result};

/// Batches that wait, besides the one that is computed and the one that is made: one hides what is made in less time than
/// a batch is computed, and more would only hide that times differ, at the price of their memory.
const WAITING: usize = 1;

/// A thread that makes the batches of one epoch after another, in order.
pub(super) struct Pipeline {
    /// `None` once it is to end.
    ready: Option<Receiver<Result<Box<Made>>>>,
    /// What has been computed, for its memory.
    used: Sender<Box<Made>>,
    worker: Option<JoinHandle<()>>,
    /// Seconds that were spent waiting for a batch.
    pub waited: f64,
}

impl Pipeline {
    /// Begins with a batch of an epoch, and ends with the last one of the epoch before `epochs`.
    pub fn new(source: Arc<Source>, first: (u64, u64), epochs: u64) -> Result<Self> {
        let (to_ready, ready) = sync_channel(WAITING);
        let (used, from_used) = channel();
        let worker = std::thread::Builder::new()
            .name("hgnnc-batches".into())
            .spawn(move || {
                if let Err(error) = make_all(&source, first, epochs, &to_ready, &from_used) {
                    // Nobody waits for it any more where it cannot be sent.
                    let _ = to_ready.send(Err(error));
                }
            })
            .map_err(|error| ExecError::Threads { threads: 1, reason: error.to_string() })?;
        Ok(Self { ready: Some(ready), used, worker: Some(worker), waited: 0.0 })
    }

    /// The next batch.
    pub fn next(&mut self) -> Result<Box<Made>> {
        let start = Instant::now();
        let next = self.ready.as_ref().and_then(|ready| ready.recv().ok());
        self.waited += start.elapsed().as_secs_f64();
        next.unwrap_or_else(|| Err(ExecError::Unsupported("internal error: there are no more batches".into())))
    }

    /// Takes a batch back, so that another one is made in its memory.
    pub fn give_back(&mut self, made: Box<Made>) {
        // Nobody needs it after the last one.
        let _ = self.used.send(made);
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        // A batch that cannot be sent ends the thread.
        self.ready = None;
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

fn make_all(
    source: &Source,
    (first_epoch, first_batch): (u64, u64),
    epochs: u64,
    ready: &SyncSender<Result<Box<Made>>>,
    used: &Receiver<Box<Made>>,
) -> Result<()> {
    let mut sampler = source.sampler()?;
    for epoch in first_epoch..epochs {
        let order = source.order(epoch);
        let first = if epoch == first_epoch { first_batch } else { 0 };
        for number in first..source.num_batches() {
            let mut made = used.try_recv().unwrap_or_default();
            source.make(&mut sampler, &order, (epoch, number), &mut made)?;
            if ready.send(Ok(made)).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
