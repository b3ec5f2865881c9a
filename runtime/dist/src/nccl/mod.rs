//! NCCL, found at run time, between devices of NVIDIA. **It has never run on a GPU**: its tests have a library that stands in
//! for NCCL and for the driver. No command chooses it, since commands refuse devices on several ranks.
//!
//! NCCL moves memory of devices, and [`Comm`] that of the host. So bytes are copied to pinned memory, to the device, to the
//! other device, and the same way back, in staging memory of fixed size: nothing is allocated while ranks wait for each
//! other, since an allocation may wait for all work of the device.
//!
//! # Order
//! NCCL asks for the same order of operations on all ranks, also on different communicators ("Using multiple NCCL
//! communicators concurrently" in its documentation), and [`Comm`] allows exchanges of different tags in any order. So there
//! is one communicator with one stream, and ranks agree on an order by messages of a few bytes on another [`Comm`]
//! (`control`, MPI or threads), by tag:
//!
//! 1. Each rank tells each other how many bytes it sends. A rank that has all these numbers knows that all ranks have started
//!    the exchange, so no device waits for a rank that still computes.
//! 2. Rank 0 numbers the exchanges in the order in which it has heard of all ranks, and tells the number. Each rank tells
//!    whether a rank sends another number of bytes than it expects, which NCCL would not see, and then all have that error.
//!
//! A thread carries out exchanges one at a time, in the order of their numbers. All sends and receives of an exchange are
//! one group, so that none of them waits for another one; exchanges larger than the staging memory are several groups.
//!
//! # Not used
//! - Reductions of NCCL: the order of their sums depends on algorithm and topology. Sums are those of
//!   [`crate::ordered_sum`], made of exchanges, in the order of the ranks.
//! - Messages of [`Tag::CONTROL`], barriers and the end of a job, which are those of `control`.
//! - The bindings of `cudarc` 0.19, which do not look for `libnccl.so.2`, the name in NVIDIA's packages, and panic where a
//!   function is missing. Their result codes are an enum, and newer libraries have more of them.
//!
//! # Errors
//! No call of the communicator blocks. While a rank waits, it asks for errors that came up in the background
//! (`ncclCommGetAsyncError`), and after HGNNC_RANK_TIMEOUT it names the ranks that it waits for. After an error the
//! communicator is aborted, and the job is ended by `control`.

mod device;
mod engine;
mod library;
mod plan;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use self::engine::{Engine, Order, Over};
use crate::work::Work;
use crate::{Comm, CommError, Exchange, Pending, Tag};

/// Settings of [`Nccl::open`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Number of this rank's device; by default that of its place among the ranks of its host.
    pub device: Option<usize>,
    /// Bytes of staging memory for each direction, on the host and on the device, the same on all ranks. Rounded to slots of
    /// 256 bytes for each rank.
    pub staging: usize,
    /// Time that a rank waits for another one; by default that of HGNNC_RANK_TIMEOUT.
    pub patience: Option<Duration>,
    /// Names or paths of NCCL, of which the first that opens is used.
    pub nccl: Vec<String>,
    /// Names or paths of the driver, likewise.
    pub driver: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            device: None,
            staging: 64 << 20,
            patience: None,
            nccl: ["libnccl.so.2", "libnccl.so"].map(String::from).to_vec(),
            driver: ["libcuda.so.1", "libcuda.so"].map(String::from).to_vec(),
        }
    }
}

/// The ranks of another [`Comm`], with a device for each.
pub struct Nccl {
    engine: String,
    control: Arc<dyn Comm>,
    /// By tag: the thread that agrees with other ranks on its exchanges.
    agents: Mutex<BTreeMap<Tag, Agent>>,
    /// None once this is dropped.
    orders: Option<Sender<Order>>,
    /// Number of the next exchange, on rank 0.
    next: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    over: Over,
}

struct Agent {
    inbox: Sender<Work>,
    thread: JoinHandle<()>,
}

impl std::fmt::Debug for Nccl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {} on {}", self.rank(), self.size(), self.engine)
    }
}

impl Nccl {
    /// Gives each rank of `control` a device. All ranks call this, and from then on leave `control` to it.
    ///
    /// # Errors
    /// On all ranks, when one of them has no NCCL, no driver or no device, or another version of NCCL.
    pub fn open(control: Arc<dyn Comm>, options: &Options) -> Result<Nccl, CommError> {
        let (orders, inbox) = channel();
        let (joined, answer) = channel();
        let over = Over::default();
        let (of_thread, options, of_engine) = (Arc::clone(&control), options.clone(), Arc::clone(&over));
        let thread = std::thread::Builder::new().name("nccl".into()).spawn(move || {
            match Engine::join(&*of_thread, &options, of_engine) {
                Ok(engine) => {
                    if joined.send(Ok(engine.name.clone())).is_ok() {
                        engine.serve(&*of_thread, &inbox);
                    }
                }
                Err(error) => {
                    let _ = joined.send(Err(error));
                }
            }
        });
        let thread = thread.map_err(|_| CommError::Gone)?;
        let engine = answer.recv().unwrap_or(Err(CommError::Gone))?;
        let engine = format!("{engine}, over {}", control.engine());
        let (agents, next) = (Mutex::default(), Arc::default());
        Ok(Nccl { engine, control, agents, orders: Some(orders), next, thread: Some(thread), over })
    }

    /// Gives an exchange to the thread of its tag.
    fn begin(&self, work: Work) -> Result<(), CommError> {
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        let agent = match agents.entry(work.tag) {
            Entry::Occupied(agent) => agent.into_mut(),
            Entry::Vacant(place) => place.insert(self.agent(work.tag)?),
        };
        agent.inbox.send(work).map_err(|_| CommError::Gone)
    }

    fn agent(&self, tag: Tag) -> Result<Agent, CommError> {
        let (inbox, works) = channel();
        let orders = self.orders.clone().ok_or(CommError::Gone)?;
        let (control, next, over) = (Arc::clone(&self.control), Arc::clone(&self.next), Arc::clone(&self.over));
        let thread = std::thread::Builder::new().name(format!("nccl tag {}", tag.0));
        let thread = thread.spawn(move || serve_tag(&*control, &works, &orders, (&next, &over)));
        Ok(Agent { inbox, thread: thread.map_err(|_| CommError::Gone)? })
    }
}

/// Agrees with all ranks on the exchanges of a tag, one after the other, and passes them on.
fn serve_tag(control: &dyn Comm, works: &Receiver<Work>, orders: &Sender<Order>, (next, over): (&AtomicU64, &Over)) {
    for work in works {
        match agree(control, &work, next) {
            Ok((number, None)) => {
                let _ = orders.send(Order::Exchange(number, work));
            }
            Ok((number, Some(error))) => {
                let _ = orders.send(Order::Skip(number));
                let _ = work.done.send(Err(error));
            }
            Err(error) => {
                let _ = over.set(error.clone());
                let _ = work.done.send(Err(error));
            }
        }
    }
}

/// The number of an exchange, and the error that all ranks have of it.
fn agree(control: &dyn Comm, work: &Work, next: &AtomicU64) -> Result<(u64, Option<CommError>), CommError> {
    let (rank, size) = (control.rank(), control.size());
    let sent = all_to_all(control, work.tag, work.send_counts.iter().map(|&bytes| [bytes as u64]))?;
    let differs = (0..size).find(|&from| sent[from] != [work.recv_counts[from] as u64]);
    // This rank has the numbers of all: they have started the exchange.
    let number = if rank == 0 { next.fetch_add(1, Ordering::Relaxed) } else { 0 };
    let own = match differs {
        Some(from) => [number, 1, from as u64, sent[from][0], work.recv_counts[from] as u64],
        None => [number, 0, 0, 0, 0],
    };
    let all = all_to_all(control, work.tag, std::iter::repeat_n(own, size))?;
    let error =
        all.iter().enumerate().find(|(_, verdict)| verdict[1] == 1).map(|(to, &[_, _, from, sent, expected])| {
            CommError::Differs { from: from as usize, to, sent: sent as usize, expected: expected as usize }
        });
    Ok((all[0][0], error))
}

/// Numbers for each rank, and then those from each.
fn all_to_all<const N: usize>(
    control: &dyn Comm,
    tag: Tag,
    own: impl Iterator<Item = [u64; N]>,
) -> Result<Vec<[u64; N]>, CommError> {
    let send: Vec<[u64; N]> = own.collect();
    let mut all = vec![[0; N]; send.len()];
    let counts = vec![size_of::<[u64; N]>(); send.len()];
    let recv = bytemuck::cast_slice_mut(all.as_flattened_mut());
    control.alltoallv(tag, (bytemuck::cast_slice(send.as_flattened()), &counts), (recv, &counts))?;
    Ok(all)
}

impl Comm for Nccl {
    fn rank(&self) -> usize {
        self.control.rank()
    }

    fn size(&self) -> usize {
        self.control.size()
    }

    fn engine(&self) -> &str {
        &self.engine
    }

    fn alltoallv(&self, tag: Tag, send: (&[u8], &[usize]), recv: (&mut [u8], &[usize])) -> Result<(), CommError> {
        if tag == Tag::CONTROL {
            return self.control.alltoallv(tag, send, recv);
        }
        let (work, answer) = Work::new((self.rank(), self.size()), tag, send, recv)?;
        self.begin(work)?;
        answer.wait()
    }

    fn start(&self, tag: Tag, exchange: Exchange) -> Result<Box<dyn Pending>, CommError> {
        if tag == Tag::CONTROL {
            return self.control.start(tag, exchange);
        }
        let (work, started) = Work::started((self.rank(), self.size()), tag, exchange)?;
        self.begin(work)?;
        Ok(Box::new(started))
    }

    fn barrier(&self) -> Result<(), CommError> {
        self.control.barrier()
    }

    fn abort(&self, reason: &str) {
        let _ = self.over.set(CommError::Ended { rank: self.rank(), reason: reason.to_owned() });
        self.control.abort(reason);
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.over.set(CommError::Ended { rank: self.rank(), reason: "it panicked".into() });
        }
        let agents = std::mem::take(self.agents.get_mut().unwrap_or_else(PoisonError::into_inner));
        for (_, Agent { inbox, thread }) in agents {
            drop(inbox);
            let _ = thread.join();
        }
        // The last of them: the thread ends.
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
