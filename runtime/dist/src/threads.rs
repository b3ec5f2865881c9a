//! Virtual ranks: threads of one process. Tests compare other engines with it, and counts of bytes are its counts.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::{Comm, CommError, Exchange, Pending, Tag, check, parts};

/// Calls `work` for each of `size` ranks, on a thread of its own, and returns the results in the order of the ranks. When
/// one of them panics, the others get an error from their next exchange, and the panic goes on.
///
/// # Panics
/// If there are no ranks, or one panics.
pub fn run<T: Send>(size: usize, work: impl Fn(&Arc<dyn Comm>) -> T + Sync) -> Vec<T> {
    assert!(size > 0, "a job has a rank at least");
    let shared = Arc::new(Shared { state: Mutex::new(State::default()), changed: Condvar::new() });
    let work = &work;
    std::thread::scope(|scope| {
        let start = |rank| {
            let virtual_rank = VirtualRank { rank, size, shared: Arc::clone(&shared) };
            let shared = &shared;
            scope.spawn(move || {
                let ended = EndsOnPanic(&virtual_rank);
                let comm: Arc<dyn Comm> = Arc::new(virtual_rank.clone());
                let result = work(&comm);
                std::mem::forget(ended);
                shared.lock().done.insert(rank);
                shared.changed.notify_all();
                result
            })
        };
        let ranks: Vec<_> = (0..size).map(start).collect();
        let results: Vec<_> = ranks.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        results.into_iter().map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A message's tag, sender and receiver.
type Address = (Tag, usize, usize);

#[derive(Default)]
struct State {
    /// Messages that are sent and not yet received.
    messages: HashMap<Address, VecDeque<Vec<u8>>>,
    /// The first rank that has ended the job.
    ended: Option<CommError>,
    /// Ranks whose work is done.
    done: HashSet<usize>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A rank on a thread.
#[derive(Clone)]
struct VirtualRank {
    rank: usize,
    size: usize,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for VirtualRank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "virtual rank {} of {}", self.rank, self.size)
    }
}

/// Ends the job when the work of a rank panics.
struct EndsOnPanic<'a>(&'a VirtualRank);

impl Drop for EndsOnPanic<'_> {
    fn drop(&mut self) {
        self.0.abort("it panicked");
    }
}

impl VirtualRank {
    fn send(&self, tag: Tag, bytes: &[u8], counts: &[usize]) {
        check(self.size, bytes.len(), counts);
        let mut state = self.shared.lock();
        for (to, part) in parts(counts).enumerate() {
            state.messages.entry((tag, self.rank, to)).or_default().push_back(bytes[part].to_vec());
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    fn receive(&self, tag: Tag, bytes: &mut [u8], counts: &[usize]) -> Result<(), CommError> {
        check(self.size, bytes.len(), counts);
        for (from, part) in parts(counts).enumerate() {
            let message = self.message((tag, from, self.rank))?;
            if message.len() != part.len() {
                let (sent, expected) = (message.len(), part.len());
                return Err(CommError::Differs { from, to: self.rank, sent, expected });
            }
            bytes[part].copy_from_slice(&message);
        }
        Ok(())
    }

    fn message(&self, address: Address) -> Result<Vec<u8>, CommError> {
        let mut state = self.shared.lock();
        loop {
            if let Some(error) = &state.ended {
                return Err(error.clone());
            }
            if let Some(message) = state.messages.get_mut(&address).and_then(VecDeque::pop_front) {
                return Ok(message);
            }
            if state.done.contains(&address.1) {
                return Err(CommError::Ended { rank: address.1, reason: "its work is done".into() });
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Comm for VirtualRank {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn engine(&self) -> &str {
        "virtual ranks of one process"
    }

    fn alltoallv(&self, tag: Tag, send: (&[u8], &[usize]), recv: (&mut [u8], &[usize])) -> Result<(), CommError> {
        self.send(tag, send.0, send.1);
        self.receive(tag, recv.0, recv.1)
    }

    fn start(&self, tag: Tag, exchange: Exchange) -> Result<Box<dyn Pending>, CommError> {
        self.send(tag, &exchange.send, &exchange.send_counts);
        Ok(Box::new(Started { own: self.clone(), tag, exchange: Some(exchange) }))
    }

    fn abort(&self, reason: &str) {
        let ended = CommError::Ended { rank: self.rank, reason: reason.to_owned() };
        self.shared.lock().ended.get_or_insert(ended);
        self.shared.changed.notify_all();
    }
}

struct Started {
    own: VirtualRank,
    tag: Tag,
    /// None once it is received.
    exchange: Option<Exchange>,
}

impl Started {
    fn receive(&mut self) -> Result<Exchange, CommError> {
        let mut exchange = self.exchange.take().unwrap_or_default();
        self.own.receive(self.tag, &mut exchange.recv, &exchange.recv_counts)?;
        Ok(exchange)
    }
}

impl Pending for Started {
    fn wait(mut self: Box<Self>) -> Result<Exchange, CommError> {
        self.receive()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // The messages of the next exchange are behind those of this one.
        if self.exchange.is_some() {
            let _ = self.receive();
        }
    }
}
