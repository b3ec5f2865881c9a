//! Virtual ranks: threads of one process. Tests compare other engines with it, and counts of bytes are its counts.
//!
//! Ranks of [`run_in_turns`] compute one at a time, each with all of the machine, until it waits for another. Their times, and
//! what they exchange, are recorded ([`crate::trace`]). A rank finds little of its data in the caches of the processor after the
//! turns of many others, though. [`run_alone`] repeats the work of one rank without the others, from the messages that it has
//! received from them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
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
    start((0..size, size), false, State::default(), |comm, _| work(comm)).0
}

/// The work of ranks that took turns.
#[derive(Debug)]
pub struct InTurns<T> {
    /// The results, in the order of the ranks.
    pub results: Vec<T>,
    /// The recorded work of each rank.
    pub traces: Vec<Trace>,
    /// The messages to each rank, if there was room for all of them.
    pub received: Option<Vec<Received>>,
}

/// The messages that a rank has received from other ranks.
#[derive(Clone, Debug, Default)]
pub struct Received(Messages);

/// Calls `work` as [`run`] does, for one rank at a time: one that waits for a message lets another go on. Keeps the messages
/// between different ranks if they take `room` bytes of memory at most.
///
/// # Panics
/// As [`run`].
pub fn run_in_turns<T: Send>(
    size: usize,
    room: u64,
    work: impl Fn(&Arc<dyn Comm>, &Recorder) -> T + Sync,
) -> InTurns<T> {
    let kept = (0..size).map(|_| Received::default()).collect();
    let state = State { kept: Some(kept), room, ..State::default() };
    let (results, State { traces, kept: received, .. }) = start((0..size, size), true, state, work);
    InTurns { results, traces, received }
}

/// Calls `work` for one rank of `size`, with the messages that it has received in the same work before. Messages that it sends to
/// other ranks are dropped.
///
/// # Panics
/// When `work` does: its panic is passed on.
pub fn run_alone<T: Send>(
    (rank, size): (usize, usize),
    received: Received,
    work: impl Fn(&Arc<dyn Comm>, &Recorder) -> T + Sync,
) -> (T, Trace) {
    // Work that asks for another message than before gets an error instead of waiting for it.
    let done = (0..size).filter(|&other| other != rank).collect();
    let state = State { messages: received.0, done, ..State::default() };
    let (mut results, mut state) = start((rank..rank + 1, size), true, state, work);
    (results.remove(0), std::mem::take(&mut state.traces[rank]))
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

/// Starts some ranks of `size`. Returns their results, and what is left of the state.
fn start<T: Send>(
    (ranks, size): (Range<usize>, usize),
    in_turns: bool,
    state: State,
    work: impl Fn(&Arc<dyn Comm>, &Recorder) -> T + Sync,
) -> (Vec<T>, State) {
    assert!(!ranks.is_empty(), "a job has a rank at least");
    let state = State { traces: vec![Trace::default(); size], recording: vec![false; size], ..state };
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
        let ranks: Vec<_> = ranks.map(start).collect();
        let results: Vec<_> = ranks.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        results.into_iter().map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    (results, std::mem::take(&mut *shared.lock()))
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether one rank computes at a time.
    in_turns: bool,
}

/// A message's tag, sender and receiver.
type Address = (Tag, usize, usize);

/// Messages with the numbers of their exchanges.
type Messages = HashMap<Address, VecDeque<(u32, Vec<u8>)>>;

#[derive(Default)]
struct State {
    /// Messages that are sent and not yet received.
    messages: Messages,
    /// By rank: the messages of others that it has received, while they are kept.
    kept: Option<Vec<Received>>,
    /// Bytes that may still be kept.
    room: u64,
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

impl State {
    /// Keeps a message that was received, or none any more if there is no room.
    fn keep(&mut self, address: Address, message: (u32, Vec<u8>)) {
        // A place in a queue, which may have as many free ones, and the memory of the bytes.
        let bytes = message.1.len().next_multiple_of(16) + 2 * size_of::<(u32, Vec<u8>)>() + 16;
        let left = self.room.checked_sub(bytes as u64);
        self.kept = self.kept.take().filter(|_| left.is_some());
        self.room = left.unwrap_or_default();
        if let Some(kept) = &mut self.kept {
            kept[address.2].0.entry(address).or_default().push_back(message);
        }
    }
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
            // A rank whose work is done receives nothing.
            if state.done.contains(&to) {
                continue;
            }
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
            if from != self.rank {
                state.keep((exchange.tag, from, self.rank), (exchange.number, message));
            }
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
