//! Makes batches ahead of those that are computed.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use hgnnc_graph::processors::free;
use hgnnc_sample::BatchKey;

use super::historical_embeddings::{RefreshBatch, make_super_batches};
use super::internal;
use super::loader::{MiniBatch, MiniBatchLoader};
use crate::error::{ExecError, Result};

/// Batches that wait, besides the one that is computed and the one that is made: one hides what is made in less time than
/// a batch is computed, and more would only hide that times differ, at the price of their memory.
const WAITING: usize = 1;

/// What is to be computed next.
pub(super) enum Ready {
    /// A batch.
    Batch(Box<MiniBatch>),
    /// Values that the batches behind it take.
    Refresh(Box<RefreshBatch>),
}

/// A thread that makes the batches of one epoch after another, in order.
pub(super) struct Pipeline {
    /// `None` once it is to end.
    ready: Option<Receiver<Result<Ready>>>,
    /// What has been computed, for its memory.
    used: Sender<Box<MiniBatch>>,
    used_refresh: Sender<Box<RefreshBatch>>,
    worker: Option<JoinHandle<()>>,
}

/// The way of batches to where they are computed, and back.
pub(super) struct Line<'l> {
    ready: &'l SyncSender<Result<Ready>>,
    used: &'l Receiver<Box<MiniBatch>>,
    used_refresh: &'l Receiver<Box<RefreshBatch>>,
}

impl Line<'_> {
    /// A batch that has been computed, whose memory is to be used again, or a new one.
    pub fn used(&self) -> Box<MiniBatch> {
        self.used.try_recv().unwrap_or_default()
    }

    /// As [`Line::used`], of vertices whose values were wanted.
    pub fn used_refresh(&self) -> Box<RefreshBatch> {
        self.used_refresh.try_recv().unwrap_or_default()
    }

    /// Hands something over. `false` where nobody waits for it any more.
    pub fn send(&self, ready: Ready) -> bool {
        self.ready.send(Ok(ready)).is_ok()
    }
}

impl Pipeline {
    /// Begins with a batch of an epoch, and ends with the last one of the epoch before `epochs`. Where batches reuse values:
    /// what makes batches of the vertices that these are of, and how many batches take the same.
    pub fn new(
        loader: Arc<MiniBatchLoader>,
        reuse: Option<(Arc<MiniBatchLoader>, u64)>,
        first: BatchKey,
        epochs: u64,
    ) -> Result<Self> {
        let (to_ready, ready) = sync_channel(WAITING);
        let (used, from_used) = channel();
        let (used_refresh, from_used_wanted) = channel();
        let worker = std::thread::Builder::new()
            .name("hgnnc-batches".into())
            .spawn(move || {
                free();
                let line = Line { ready: &to_ready, used: &from_used, used_refresh: &from_used_wanted };
                let mini_batch = match reuse {
                    None => make_all(&loader, first, epochs, &line),
                    Some((values, size)) => make_super_batches((&loader, &values), first, epochs, size, &line),
                };
                if let Err(error) = mini_batch {
                    // Nobody waits for it any more where it cannot be sent.
                    let _ = to_ready.send(Err(error));
                }
            })
            .map_err(|error| ExecError::Threads { threads: 1, reason: error.to_string() })?;
        Ok(Self { ready: Some(ready), used, used_refresh, worker: Some(worker) })
    }

    /// What is to be computed next.
    pub fn next(&mut self) -> Result<Ready> {
        let next = self.ready.as_ref().and_then(|ready| ready.recv().ok());
        next.unwrap_or_else(|| {
            // The thread has ended without saying why: it panicked, or all epochs are done.
            let panicked = self.worker.take().is_some_and(|worker| worker.join().is_err());
            Err(internal(if panicked { "the thread that makes batches panicked" } else { "there are no more batches" }))
        })
    }

    /// Takes a batch back, so that another one is made in its memory.
    pub fn give_back(&mut self, mini_batch: Box<MiniBatch>) {
        // Nobody needs it after the last one.
        let _ = self.used.send(mini_batch);
    }

    /// As [`Pipeline::give_back`], of vertices whose values were wanted.
    pub fn give_back_refresh(&mut self, refresh: Box<RefreshBatch>) {
        let _ = self.used_refresh.send(refresh);
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

fn make_all(loader: &MiniBatchLoader, first: BatchKey, epochs: u64, line: &Line<'_>) -> Result<()> {
    let mut worker = loader.worker()?;
    for epoch in first.epoch..epochs {
        let order = loader.order(first.seed, epoch);
        let start = if epoch == first.epoch { first.batch } else { 0 };
        for batch in start..loader.num_batches() {
            let mut mini_batch = line.used();
            loader.make(&mut worker, &order, BatchKey { epoch, batch, ..first }, &mut mini_batch)?;
            if !line.send(Ready::Batch(mini_batch)) {
                return Ok(());
            }
        }
    }
    Ok(())
}
