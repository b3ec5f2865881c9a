//! Makes batches ahead of those that are computed.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use hgnnc_sample::BatchKey;

use super::internal;
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
}

impl Pipeline {
    /// Begins with a batch of an epoch, and ends with the last one of the epoch before `epochs`.
    pub fn new(source: Arc<Source>, first: BatchKey, epochs: u64) -> Result<Self> {
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
        Ok(Self { ready: Some(ready), used, worker: Some(worker) })
    }

    /// The next batch.
    pub fn next(&mut self) -> Result<Box<Made>> {
        let next = self.ready.as_ref().and_then(|ready| ready.recv().ok());
        next.unwrap_or_else(|| {
            // The thread has ended without saying why: it panicked, or all epochs are done.
            let panicked = self.worker.take().is_some_and(|worker| worker.join().is_err());
            Err(internal(if panicked { "the thread that makes batches panicked" } else { "there are no more batches" }))
        })
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
    first: BatchKey,
    epochs: u64,
    ready: &SyncSender<Result<Box<Made>>>,
    used: &Receiver<Box<Made>>,
) -> Result<()> {
    let mut maker = source.maker()?;
    for epoch in first.epoch..epochs {
        let order = source.order(first.seed, epoch);
        let start = if epoch == first.epoch { first.batch } else { 0 };
        for batch in start..source.num_batches() {
            let mut made = used.try_recv().unwrap_or_default();
            source.make(&mut maker, &order, BatchKey { epoch, batch, ..first }, &mut made)?;
            if ready.send(Ok(made)).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
