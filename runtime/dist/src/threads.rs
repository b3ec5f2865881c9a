//! Virtual ranks: threads of one process. Tests compare other engines with it, and counts of bytes are its counts.
//!
//! Ranks of [`run_in_turns`] compute one at a time, each with all of the machine, until it waits for another. So the time
//! that a rank takes alone is measured, however many there are, and recorded with what it exchanges ([`crate::trace`]).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::trace::{Event, ExchangeId, Trace};
use crate::{Comm, CommError, Exchange, Pending, Tag, check, parts};

/// Calls `work` for each of `size` ranks, on a thread of its own, and returns the results in the order of the ranks. When
/// one of them panics, the others get an error from their next exchange, and the panic goes on.
///
/// # Panics
/// If there are no ranks, or one panics.
pub fn run<T: Send>(size: usize, work: impl Fn(&Arc<dyn Comm>) -> T + Sync) -> Vec<T> {
    start(size, false, |comm, _| work(comm)).0
}

/// Calls `work` as [`run`] does, for one rank at a time: one that waits for a message lets another go on. Returns what
/// the ranks have recorded, too.
///
/// # Panics
/// As [`run`].
pub fn run_in_turns<T: Send>(
    size: usize,
    work: impl Fn(&Arc<dyn Comm>, &Recorder) -> T + Sync,
) -> (Vec<T>, Vec<Trace>) {
    start(size, true, work)
}

/// Records what a rank computes and exchanges, while it is asked to.
#[derive(Debug)]
pub struct Recorder(VirtualRank);

impl Recorder {
    /// Begins to record. All ranks do so between the same two exchanges.
    pub fn begin(&self) {
        self.set(true);
    }

    /// Ends a step.
    pub fn end_step(&self) {
        let Recorder(rank) = self;
        let mut state = rank.shared.lock();
        rank.computed(&mut state);
        rank.record(&mut state, || Event::StepEnd);
        rank.computes(&mut state);
    }

    /// Ends recording.
    pub fn end(&self) {
        self.set(false);
    }

    fn set(&self, recording: bool) {
        let Recorder(rank) = self;
        let mut state = rank.shared.lock();
        rank.computed(&mut state);
        state.recording[rank.rank] = recording;
        rank.computes(&mut state);
    }
}

fn start<T: Send>(
    size: usize,
    in_turns: bool,
    work: impl Fn(&Arc<dyn Comm>, &Recorder) -> T + Sync,
) -> (Vec<T>, Vec<Trace>) {
    assert!(size > 0, "a job has a rank at least");
    let state = State { traces: vec![Trace::default(); size], recording: vec![false; size], ..State::default() };
    let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), in_turns });
    let work = &work;
    let results = std::thread::scope(|scope| {
        let start = |rank| {
            let virtual_rank = VirtualRank { rank, size, shared: Arc::clone(&shared) };
            let shared = &shared;
            scope.spawn(move || {
                let ended = EndsOnPanic(&virtual_rank);
                drop(virtual_rank.take_turn(shared.lock()));
                let comm: Arc<dyn Comm> = Arc::new(virtual_rank.clone());
                let result = work(&comm, &Recorder(virtual_rank.clone()));
                std::mem::forget(ended);
                let mut state = shared.lock();
                virtual_rank.computed(&mut state);
                virtual_rank.end_turn(&mut state);
                state.done.insert(rank);
                shared.changed.notify_all();
                result
            })
        };
        let ranks: Vec<_> = (0..size).map(start).collect();
        let results: Vec<_> = ranks.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        results.into_iter().map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    (results, std::mem::take(&mut shared.lock().traces))
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether one rank computes at a time.
    in_turns: bool,
}

/// A message's tag, sender and receiver.
type Address = (Tag, usize, usize);

#[derive(Default)]
struct State {
    /// Messages that are sent and not yet received, with the number of their exchange.
    messages: HashMap<Address, VecDeque<(u32, Vec<u8>)>>,
    /// The first rank that has ended the job.
    ended: Option<CommError>,
    /// Ranks whose work is done.
    done: HashSet<usize>,
    /// The rank that computes, of those that take turns, and since when.
    turn: Option<(usize, Instant)>,
    /// By rank: whether its work is recorded.
    recording: Vec<bool>,
    /// By rank: its recorded work.
    traces: Vec<Trace>,
    /// Exchanges that were started, by rank and tag.
    started: HashMap<(usize, Tag), u32>,
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
    /// Sends all parts, and returns which exchange it is.
    fn send(&self, tag: Tag, bytes: &[u8], counts: &[usize]) -> ExchangeId {
        check(self.size, bytes.len(), counts);
        let mut state = self.shared.lock();
        self.computed(&mut state);
        let started = state.started.entry((self.rank, tag)).or_default();
        let exchange = ExchangeId { tag, number: *started };
        *started += 1;
        self.record(&mut state, || Event::Start {
            exchange,
            bytes: counts.iter().map(|&count| count as u64).collect(),
        });
        for (to, part) in parts(counts).enumerate() {
            state.messages.entry((tag, self.rank, to)).or_default().push_back((exchange.number, bytes[part].to_vec()));
        }
        self.computes(&mut state);
        drop(state);
        self.shared.changed.notify_all();
        exchange
    }

    fn receive(&self, exchange: ExchangeId, bytes: &mut [u8], counts: &[usize]) -> Result<(), CommError> {
        check(self.size, bytes.len(), counts);
        let mut state = self.shared.lock();
        self.computed(&mut state);
        self.record(&mut state, || Event::Wait { exchange });
        for (from, part) in parts(counts).enumerate() {
            let message;
            (state, message) = self.message(state, (exchange.tag, from, self.rank), exchange.number)?;
            if message.len() != part.len() {
                let (sent, expected) = (message.len(), part.len());
                return Err(CommError::Differs { from, to: self.rank, sent, expected });
            }
            bytes[part].copy_from_slice(&message);
        }
        drop(self.take_turn(state));
        Ok(())
    }

    fn message<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        address: Address,
        number: u32,
    ) -> Result<(MutexGuard<'s, State>, Vec<u8>), CommError> {
        loop {
            if let Some(error) = &state.ended {
                return Err(error.clone());
            }
            // Exchanges may be waited for in another order than they were started in.
            let sent = state.messages.get_mut(&address).and_then(|sent| {
                let place = sent.iter().position(|(of, _)| *of == number)?;
                sent.remove(place)
            });
            if let Some((_, message)) = sent {
                return Ok((state, message));
            }
            if state.done.contains(&address.1) {
                return Err(CommError::Ended { rank: address.1, reason: "its work is done".into() });
            }
            self.end_turn(&mut state);
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until no other rank computes, if they take turns, or the job has ended.
    fn take_turn<'s>(&'s self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        if !self.shared.in_turns {
            return state;
        }
        while state.turn.is_some_and(|(rank, _)| rank != self.rank) && state.ended.is_none() {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.turn = Some((self.rank, Instant::now()));
        state
    }

    /// Lets another rank compute.
    fn end_turn(&self, state: &mut State) {
        if state.turn.is_some_and(|(rank, _)| rank == self.rank) {
            state.turn = None;
            self.shared.changed.notify_all();
        }
    }

    /// Records the time since this rank has begun to compute.
    fn computed(&self, state: &mut State) {
        if let Some((rank, since)) = state.turn
            && rank == self.rank
        {
            self.record(state, || Event::Compute(since.elapsed().as_secs_f64()));
            self.computes(state);
        }
    }

    /// This rank computes from now on, if it is its turn.
    fn computes(&self, state: &mut State) {
        if let Some((rank, since)) = &mut state.turn
            && *rank == self.rank
        {
            *since = Instant::now();
        }
    }

    fn record(&self, state: &mut State, event: impl FnOnce() -> Event) {
        if state.recording[self.rank] {
            state.traces[self.rank].0.push(event());
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
        let exchange = self.send(tag, send.0, send.1);
        self.receive(exchange, recv.0, recv.1)
    }

    fn start(&self, tag: Tag, exchange: Exchange) -> Result<Box<dyn Pending>, CommError> {
        let id = self.send(tag, &exchange.send, &exchange.send_counts);
        Ok(Box::new(Started { own: self.clone(), id, exchange: Some(exchange) }))
    }

    fn abort(&self, reason: &str) {
        let ended = CommError::Ended { rank: self.rank, reason: reason.to_owned() };
        self.shared.lock().ended.get_or_insert(ended);
        self.shared.changed.notify_all();
    }
}

struct Started {
    own: VirtualRank,
    id: ExchangeId,
    /// None once it is received.
    exchange: Option<Exchange>,
}

impl Started {
    fn receive(&mut self) -> Result<Exchange, CommError> {
        let mut exchange = self.exchange.take().unwrap_or_default();
        self.own.receive(self.id, &mut exchange.recv, &exchange.recv_counts)?;
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
