//! Loads mini-batches on a thread, ahead of training or when they are asked for.

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

/// A thread that loads the batches of one epoch after another, in order.
pub struct Pipeline {
    /// `None` once the thread is to end.
    ready: Option<Receiver<Result<Box<MiniBatch>>>>,
    /// Returns used batches for reuse of their memory.
    used: Sender<Box<MiniBatch>>,
    /// Asks for the next batch, unless they are loaded ahead.
    ask: Option<Sender<()>>,
    worker: Option<JoinHandle<()>>,
}

/// Loader end of the channels.
pub struct Line<'l> {
    ready: &'l SyncSender<Result<Box<MiniBatch>>>,
    used: &'l Receiver<Box<MiniBatch>>,
    asked: Option<&'l Receiver<()>>,
}

impl Line<'_> {
    /// A used batch to overwrite, or a new one.
    pub fn used(&self) -> Box<MiniBatch> {
        self.used.try_recv().unwrap_or_default()
    }

    /// Waits until the next batch is asked for, unless batches are loaded ahead. Returns false if the receiver is gone.
    pub fn wait_until_asked(&self) -> bool {
        self.asked.is_none_or(|asked| asked.recv().is_ok())
    }

    /// Sends a batch. Returns false if the receiver is gone.
    pub fn send(&self, mini_batch: Box<MiniBatch>) -> bool {
        self.ready.send(Ok(mini_batch)).is_ok()
    }
}

impl Pipeline {
    /// Starts a thread that makes batches and sends them along the line, `ahead` of the requests or when they come.
    pub fn new(ahead: bool, make: impl FnOnce(&Line<'_>) -> Result<()> + Send + 'static) -> Result<Self> {
        let (to_ready, ready) = sync_channel(WAITING);
        let (used, from_used) = channel();
        let (ask, asked) = channel();
        let worker = std::thread::Builder::new()
            .name("hgnnc-batches".into())
            .spawn(move || {
                free();
                let line = Line { ready: &to_ready, used: &from_used, asked: (!ahead).then_some(&asked) };
                if let Err(error) = make(&line) {
                    // Sending fails only if the receiver is gone.
                    let _ = to_ready.send(Err(error));
                }
            })
            .map_err(|error| ExecError::Threads { threads: 1, reason: error.to_string() })?;
        Ok(Self { ready: Some(ready), used, ask: (!ahead).then_some(ask), worker: Some(worker) })
    }

    /// Waits for the next batch.
    pub fn wait(&mut self) -> Result<Box<MiniBatch>> {
        if let Some(ask) = &self.ask {
            // The send fails when the thread has ended, which receiving tells.
            let _ = ask.send(());
        }
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
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        // Dropping the receiver makes the next send fail, which ends the thread.
        self.ready = None;
        self.ask = None;
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
    let mut worker = loader.worker_in_order()?;
    for epoch in first.epoch..epochs {
        let order = loader.order(first.seed, epoch);
        let start = if epoch == first.epoch { first.batch } else { 0 };
        for batch in start..loader.num_batches() {
            if !line.wait_until_asked() {
                return loader.end_with_others();
            }
            let mut mini_batch = line.used();
            if !loader.make(&mut worker, &order, BatchKey { epoch, batch, ..first }, &mut mini_batch)? {
                return Ok(());
            }
            if !line.send(mini_batch) {
                let last = epoch + 1 == epochs && batch + 1 == loader.num_batches();
                return if last { Ok(()) } else { loader.end_with_others() };
            }
        }
    }
    Ok(())
}
