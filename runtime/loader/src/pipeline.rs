//! Loads mini-batches on threads of their own, ahead of training or when they are asked for.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use hgnnc_data::{ExecError, Result};
use hgnnc_graph::processors::free;
use hgnnc_sample::BatchKey;

use crate::internal;
use crate::loader::{MiniBatch, MiniBatchLoader};

/// Batches that a thread keeps between the one in training and the one in preparation. One overlaps loading with training if
/// loading is faster; more would only smooth variation, at the cost of their memory.
const WAITING: usize = 1;

/// Threads that load the batches of one epoch after another. They take turns, so that batches come in order.
pub struct Pipeline {
    lanes: Vec<Lane>,
    /// The lane of the next batch, and that of the next one that is given back.
    next: usize,
    back: usize,
}

/// A thread that loads batches.
struct Lane {
    /// `None` once the thread is to end.
    ready: Option<Receiver<Result<Box<MiniBatch>>>>,
    /// Returns used batches for reuse of their memory.
    used: Sender<Box<MiniBatch>>,
    /// Asks for the next batch, unless they are loaded ahead.
    ask: Option<Sender<()>>,
    worker: Option<JoinHandle<()>>,
}

/// Loader end of the channels of a lane.
pub struct Line<'l> {
    /// The number of the lane, and how many there are.
    turn: (u64, u64),
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
    /// Starts threads that make batches and send them along their lines, `ahead` of the requests or when they come.
    pub fn new(
        threads: usize,
        ahead: bool,
        make: impl Fn(&Line<'_>) -> Result<()> + Clone + Send + 'static,
    ) -> Result<Self> {
        let lanes = (0..threads).map(|lane| Lane::new((lane as u64, threads as u64), ahead, make.clone()));
        Ok(Self { lanes: lanes.collect::<Result<_>>()?, next: 0, back: 0 })
    }

    /// Waits for the next batch.
    pub fn wait(&mut self) -> Result<Box<MiniBatch>> {
        let lane = self.next;
        self.next = (lane + 1) % self.lanes.len();
        self.lanes[lane].wait()
    }

    /// Returns a batch so that its memory is reused.
    pub fn give_back(&mut self, mini_batch: Box<MiniBatch>) {
        let lane = self.back;
        self.back = (lane + 1) % self.lanes.len();
        // The send fails after the last batch, when the thread has ended.
        let _ = self.lanes[lane].used.send(mini_batch);
    }
}

impl Lane {
    fn new(turn: (u64, u64), ahead: bool, make: impl FnOnce(&Line<'_>) -> Result<()> + Send + 'static) -> Result<Self> {
        let (to_ready, ready) = sync_channel(WAITING);
        let (used, from_used) = channel();
        let (ask, asked) = channel();
        let worker = std::thread::Builder::new()
            .name("hgnnc-batches".into())
            .spawn(move || {
                free();
                let line = Line { turn, ready: &to_ready, used: &from_used, asked: (!ahead).then_some(&asked) };
                if let Err(error) = make(&line) {
                    // Sending fails only if the receiver is gone.
                    let _ = to_ready.send(Err(error));
                }
            })
            .map_err(|error| ExecError::Threads { threads: 1, reason: error.to_string() })?;
        Ok(Self { ready: Some(ready), used, ask: (!ahead).then_some(ask), worker: Some(worker) })
    }

    fn wait(&mut self) -> Result<Box<MiniBatch>> {
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
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Dropping the receiver makes the next send fail, which ends the thread.
        self.ready = None;
        self.ask = None;
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

/// Makes the batches from `first` to the last of epoch `epochs - 1` for which it is the turn of a lane.
///
/// # Errors
/// A graph that cannot be sampled.
pub fn make_all(loader: &MiniBatchLoader, first: BatchKey, epochs: u64, line: &Line<'_>) -> Result<()> {
    let mut worker = loader.worker_in_order()?;
    let (mut number, (lane, lanes)) = (0, line.turn);
    for epoch in first.epoch..epochs {
        let order = loader.shared_order(first.seed, epoch);
        let start = if epoch == first.epoch { first.batch } else { 0 };
        for batch in start..loader.num_batches() {
            number += 1;
            if (number - 1) % lanes != lane {
                continue;
            }
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
