//! Loads mini-batches on a thread, ahead of training.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use hgnnc_data::{ExecError, Result};
use hgnnc_graph::processors::free;
use hgnnc_sample::BatchKey;

use crate::internal;
use crate::loader::{MiniBatch, MiniBatchLoader};

/// Batches buffered between the one in training and the one in preparation. One overlaps loading with training if
/// loading is faster; more would only smooth variation, at the cost of their memory.
const WAITING: usize = 1;

/// A batch of vertices whose embeddings are to be computed.
#[derive(Default)]
pub struct RefreshBatch {
    /// The batch that computes them.
    pub mini_batch: MiniBatch,
    /// Whether it is the first of a super-batch.
    pub first: bool,
    /// By [`hgnnc_ir::batch::BatchLayout::historical`]: table row of its first vertex, and total rows of the table.
    pub rows: Vec<(usize, usize)>,
}

/// Next item for the training thread.
pub enum Ready {
    /// A batch to train on.
    Batch(Box<MiniBatch>),
    /// Vertices whose historical embeddings the following batches read.
    Refresh(Box<RefreshBatch>),
}

/// A thread that loads the batches of one epoch after another, in order.
pub struct Pipeline {
    /// `None` once the thread is to end.
    ready: Option<Receiver<Result<Ready>>>,
    /// Returns used batches for reuse of their memory.
    used: Sender<Box<MiniBatch>>,
    used_refresh: Sender<Box<RefreshBatch>>,
    worker: Option<JoinHandle<()>>,
}

/// Loader end of the channels.
pub struct Line<'l> {
    ready: &'l SyncSender<Result<Ready>>,
    used: &'l Receiver<Box<MiniBatch>>,
    used_refresh: &'l Receiver<Box<RefreshBatch>>,
}

impl Line<'_> {
    /// A used batch to overwrite, or a new one.
    pub fn used(&self) -> Box<MiniBatch> {
        self.used.try_recv().unwrap_or_default()
    }

    /// A used refresh batch to overwrite, or a new one.
    pub fn used_refresh(&self) -> Box<RefreshBatch> {
        self.used_refresh.try_recv().unwrap_or_default()
    }

    /// Sends an item. Returns false if the receiver is gone.
    pub fn send(&self, ready: Ready) -> bool {
        self.ready.send(Ok(ready)).is_ok()
    }
}

impl Pipeline {
    /// Starts a thread that makes batches and sends them along the line.
    pub fn new(make: impl FnOnce(&Line<'_>) -> Result<()> + Send + 'static) -> Result<Self> {
        let (to_ready, ready) = sync_channel(WAITING);
        let (used, from_used) = channel();
        let (used_refresh, from_used_wanted) = channel();
        let worker = std::thread::Builder::new()
            .name("hgnnc-batches".into())
            .spawn(move || {
                free();
                let line = Line { ready: &to_ready, used: &from_used, used_refresh: &from_used_wanted };
                if let Err(error) = make(&line) {
                    // Sending fails only if the receiver is gone.
                    let _ = to_ready.send(Err(error));
                }
            })
            .map_err(|error| ExecError::Threads { threads: 1, reason: error.to_string() })?;
        Ok(Self { ready: Some(ready), used, used_refresh, worker: Some(worker) })
    }

    /// Waits for the next item.
    pub fn wait(&mut self) -> Result<Ready> {
        let next = self.ready.as_ref().and_then(|ready| ready.recv().ok());
        next.unwrap_or_else(|| {
            // The thread ended without an error: it panicked, or all epochs are done.
            let panicked = self.worker.take().is_some_and(|worker| worker.join().is_err());
            Err(internal(if panicked { "the thread that makes batches panicked" } else { "there are no more batches" }))
        })
    }

    /// Returns a batch so that its memory is reused.
    pub fn give_back(&mut self, mini_batch: Box<MiniBatch>) {
        // The send fails after the last batch, when the thread has ended.
        let _ = self.used.send(mini_batch);
    }

    /// Returns a refresh batch so that its memory is reused.
    pub fn give_back_refresh(&mut self, refresh: Box<RefreshBatch>) {
        let _ = self.used_refresh.send(refresh);
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        // Dropping the receiver makes the next send fail, which ends the thread.
        self.ready = None;
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

/// Makes the batches from `first` to the last of epoch `epochs - 1`.
///
/// # Errors
/// A graph that cannot be sampled.
pub fn make_all(loader: &MiniBatchLoader, first: BatchKey, epochs: u64, line: &Line<'_>) -> Result<()> {
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
