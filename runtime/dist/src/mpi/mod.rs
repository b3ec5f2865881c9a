//! MPI, found at run time.
//!
//! One thread makes all calls of the library (`MPI_THREAD_FUNNELED`, which every library has). Others give it exchanges
//! and wait, or go on. It polls while something is on its way, and yields the processor when nothing has come, so that more
//! ranks than processors make progress as well; after a while it naps between polls, since what waits that long is waited
//! for by another rank's computation, and the processor may be one that this rank computes on.
//!
//! A part for a rank is one message, or several of 1 GiB, since counts are 32-bit integers; an empty part is none.

mod library;

use std::io::Write;
use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::library::{Library, Request};
use crate::dynamic::first;
use crate::launcher::{Family, Launcher};
use crate::work::{Work, patience};
use crate::{Comm, CommError, Exchange, Pending, Tag, parts};

/// Largest number of bytes of one message.
const MESSAGE: usize = 1 << 30;

/// The processes of a launcher, on an MPI library.
#[derive(Debug)]
pub struct Mpi {
    rank: usize,
    size: usize,
    engine: String,
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

/// Orders to the thread that calls the library.
enum Order {
    Exchange(Work),
    Abort(String),
    End,
}

/// A message of an exchange that is on its way.
struct Message {
    request: Request,
    /// The rank that receives or sends it.
    with: usize,
    /// Number of bytes that are expected, of one that is received.
    expected: Option<usize>,
}

/// An exchange whose messages are on their way.
struct Active {
    messages: Vec<Message>,
    since: Instant,
    done: Sender<Result<(), CommError>>,
}

impl Mpi {
    /// Joins the job of a launcher.
    ///
    /// # Errors
    /// When no library of the launcher is found, or the library does not see the launcher's processes.
    pub fn open(launcher: &Launcher) -> Result<Mpi, CommError> {
        let library = find(launcher)?;
        let patience = patience()?;
        let (orders, inbox) = channel();
        let (joined, answer) = channel();
        let launcher = launcher.clone();
        let thread = std::thread::Builder::new().name("mpi".into()).spawn(move || {
            let found = join(&library, &launcher);
            let is_joined = found.is_ok();
            let engine = library.name.clone();
            let rank = found.as_ref().map_or(0, |&(rank, _)| rank);
            if joined.send(found.map(|(rank, size)| (rank, size, engine))).is_ok() && is_joined {
                Server { library, rank, patience }.serve(&inbox);
            }
        });
        let thread = thread.map_err(|_| CommError::Gone)?;
        let (rank, size, engine) = answer.recv().unwrap_or(Err(CommError::Gone))?;
        Ok(Mpi { rank, size, engine, orders, thread: Some(thread) })
    }
}

impl Comm for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn engine(&self) -> &str {
        &self.engine
    }

    fn alltoallv(&self, tag: Tag, send: (&[u8], &[usize]), recv: (&mut [u8], &[usize])) -> Result<(), CommError> {
        let (work, answer) = Work::new((self.rank, self.size), tag, send, recv)?;
        self.orders.send(Order::Exchange(work)).map_err(|_| CommError::Gone)?;
        answer.wait()
    }

    fn start(&self, tag: Tag, exchange: Exchange) -> Result<Box<dyn Pending>, CommError> {
        let (work, started) = Work::started((self.rank, self.size), tag, exchange)?;
        self.orders.send(Order::Exchange(work)).map_err(|_| CommError::Gone)?;
        Ok(Box::new(started))
    }

    fn abort(&self, reason: &str) {
        let _ = self.orders.send(Order::Abort(reason.to_owned()));
        // The library ends this process, too; if it does not, this does.
        std::thread::sleep(Duration::from_secs(60));
        std::process::exit(1);
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Opens the library of a launcher.
fn find(launcher: &Launcher) -> Result<Library, CommError> {
    const STANDARD: &str = "libmpi_abi.so.1";
    const OPEN_MPI: &str = "libmpi.so.40";
    const MPICH: [&str; 2] = ["libmpi.so.12", "libmpich.so.12"];
    let candidates = match (std::env::var("HGNNC_MPI"), launcher.family) {
        (Ok(path), _) => vec![path],
        (Err(_), Family::OpenMpi) => [STANDARD, OPEN_MPI].map(String::from).to_vec(),
        (Err(_), Family::Mpich) => [STANDARD, MPICH[0], MPICH[1]].map(String::from).to_vec(),
        (Err(_), Family::Any) => [STANDARD, OPEN_MPI, MPICH[0], MPICH[1]].map(String::from).to_vec(),
    };
    first(&candidates, Library::open).map_err(|tried| CommError::NoLibrary { launcher: launcher.name.into(), tried })
}

/// Joins the job, and checks that it is that of the launcher: with the library of another one each process believes to
/// be alone, and all of them would write the same files.
fn join(library: &Library, launcher: &Launcher) -> Result<(usize, usize), CommError> {
    let (rank, size) = library.init()?;
    let is_alone = size == 1 && launcher.rank.is_some_and(|rank| rank > 0);
    if is_alone || launcher.size.is_some_and(|started| started != size) {
        library.finalize();
        return Err(CommError::OtherLauncher {
            launcher: launcher.name.into(),
            started: launcher.size.map_or_else(|| "several".into(), |size| size.to_string()),
            library: library.name.clone(),
            seen: size,
        });
    }
    Ok((rank, size))
}

/// Time without anything new after which polls are [`NAP`]s apart.
const AWAKE: Duration = Duration::from_micros(200);
const NAP: Duration = Duration::from_micros(50);

/// The thread that calls the library.
struct Server {
    library: Library,
    rank: usize,
    patience: Duration,
}

impl Server {
    /// Makes the calls of the library, until it is told to end.
    fn serve(&self, inbox: &Receiver<Order>) {
        let mut active: Vec<Active> = Vec::new();
        let mut is_ending = false;
        let mut moved_at = Instant::now();
        // Messages that are on their way have places in memory that is still in use.
        while !is_ending || !active.is_empty() {
            // Without anything on its way there is nothing to poll.
            let order = match active.is_empty() {
                true => inbox.recv().map_err(|_| TryRecvError::Disconnected),
                false if moved_at.elapsed() > AWAKE => inbox.recv_timeout(NAP).map_err(|error| match error {
                    RecvTimeoutError::Timeout => TryRecvError::Empty,
                    RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
                }),
                false => inbox.try_recv(),
            };
            let mut is_idle = false;
            match order {
                Ok(Order::Exchange(work)) => match self.begin(&work) {
                    Ok(messages) => active.push(Active { messages, since: Instant::now(), done: work.done }),
                    Err(error) => self.end(&error.to_string()),
                },
                Ok(Order::Abort(reason)) => self.end(&reason),
                Ok(Order::End) | Err(TryRecvError::Disconnected) => is_ending = true,
                Err(TryRecvError::Empty) => is_idle = true,
            }
            for of in &mut active {
                match self.advance(of) {
                    Ok(moved) => is_idle &= !moved,
                    Err(error) => self.end(&error.to_string()),
                }
                if of.messages.is_empty() {
                    // Nothing receives this if the exchange was abandoned by a panic.
                    let _ = of.done.send(Ok(()));
                } else if of.since.elapsed() > self.patience && moved_at.elapsed() > self.patience {
                    // Batches that are prepared ahead may wait for as long as an evaluation takes, while its exchanges go on.
                    let mut ranks: Vec<usize> = of.messages.iter().map(|message| message.with).collect();
                    ranks.sort_unstable();
                    ranks.dedup();
                    self.end(&CommError::Silent { rank: self.rank, ranks, since: self.patience }.to_string());
                }
            }
            active.retain(|of| !of.messages.is_empty());
            match is_idle {
                true => rustix::thread::sched_yield(),
                false => moved_at = Instant::now(),
            }
        }
        self.library.finalize();
    }

    /// Starts the messages of an exchange.
    #[allow(unsafe_code)]
    fn begin(&self, work: &Work) -> Result<Vec<Message>, CommError> {
        let others = |counts: &[usize]| {
            let pieces = pieces(counts, MESSAGE);
            pieces.into_iter().filter(|&(with, _)| with != self.rank).collect::<Vec<_>>()
        };
        let mut messages = Vec::new();
        // Places first, so that nothing that arrives has to be kept elsewhere.
        for (from, range) in others(&work.recv_counts) {
            // SAFETY: the memory is valid until `done` is told, and ranges do not overlap.
            let request = unsafe { self.library.receive(work.recv.add(range.start), range.len(), from, work.tag.0)? };
            messages.push(Message { request, with: from, expected: Some(range.len()) });
        }
        for (to, range) in others(&work.send_counts) {
            // SAFETY: as above.
            let request = unsafe { self.library.send(work.send.add(range.start), range.len(), to, work.tag.0)? };
            messages.push(Message { request, with: to, expected: None });
        }
        Ok(messages)
    }

    /// Takes what is done off an exchange; whether there was something.
    fn advance(&self, of: &mut Active) -> Result<bool, CommError> {
        let before = of.messages.len();
        let mut at = 0;
        while at < of.messages.len() {
            let message = &mut of.messages[at];
            let Some(received) = self.library.test(&mut message.request)? else {
                at += 1;
                continue;
            };
            if let Some(expected) = message.expected.filter(|&expected| expected != received) {
                return Err(CommError::Differs { from: message.with, to: self.rank, sent: received, expected });
            }
            of.messages.swap_remove(at);
        }
        Ok(of.messages.len() < before)
    }

    /// Ends the job on all ranks, this one included.
    fn end(&self, reason: &str) {
        let line = format!("hgnnc: rank {} ends the job: {reason}\n", self.rank);
        let _ = std::io::stderr().write_all(line.as_bytes());
        // Launchers drop what they have not yet passed on.
        std::thread::sleep(Duration::from_millis(200));
        self.library.abort();
        std::process::exit(1);
    }
}

/// The ranges of messages of at most `largest` bytes, with the rank of each.
fn pieces(counts: &[usize], largest: usize) -> Vec<(usize, Range<usize>)> {
    let split = |(with, part): (usize, Range<usize>)| {
        let end = part.end;
        part.step_by(largest).map(move |start| (with, start..end.min(start + largest)))
    };
    parts(counts).enumerate().flat_map(split).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn large_parts_are_several_messages_and_empty_ones_are_none() {
        assert_eq!(super::pieces(&[5, 0, 4], 4), [(0, 0..4), (0, 4..5), (2, 5..9)]);
    }
}
