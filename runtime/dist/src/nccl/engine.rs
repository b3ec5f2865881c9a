//! The thread that calls NCCL and the driver, and how ranks find each other.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Options;
use super::device::{Device, Direction, Driver};
use super::library::{Communicator, Library, State, UniqueId};
use super::plan::{Group, groups, slot, staged};
use crate::work::{Work, patience};
use crate::{Comm, CommError, Tag, gather_texts};

/// Time without anything new after which polls are [`NAP`]s apart.
const AWAKE: Duration = Duration::from_micros(200);
const NAP: Duration = Duration::from_micros(50);

/// The end of the job, by this rank or as the control messages say.
pub(super) type Over = Arc<OnceLock<CommError>>;

/// Orders to the thread. Their numbers are those of all ranks: the n-th exchange is the same on each.
pub(super) enum Order {
    /// Carries out an exchange.
    Exchange(u64, Work),
    /// There is no exchange of this number: the ranks have agreed on its error.
    Skip(u64),
}

/// This rank, with its device.
pub(super) struct Engine {
    // Dropped before the device, whose stream and memory it uses.
    communicator: Communicator,
    device: Device,
    waiting: Waiting,
    size: usize,
    /// Number of bytes of a rank's slot in staging memory.
    slot: usize,
    /// The engine, in words.
    pub name: String,
}

/// The facts about a rank that all ranks know before they join.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Card {
    host: String,
    /// Number of devices that it sees.
    devices: usize,
    /// The device that its options name.
    device: Option<usize>,
    /// Version of NCCL.
    version: i32,
    /// Bytes of a slot.
    slot: usize,
}

impl Engine {
    /// Joins the ranks of `control`, all of which call this. Every rank knows the errors of the others before it waits for
    /// them in NCCL, which would wait for ever.
    pub fn join(control: &dyn Comm, options: &Options, over: Over) -> Result<Engine, CommError> {
        let (rank, size) = (control.rank(), control.size());
        let slot = slot(options.staging, size);
        let found = || {
            let patience = options.patience.map_or_else(patience, Ok)?;
            Ok((Driver::open(&options.driver)?, Library::open(&options.nccl)?, patience))
        };
        let (driver, library, patience) = agree(control, found())?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let card = Card { host, devices: driver.devices, device: options.device, version: library.version, slot };
        let ordinal = ordinals(&cards(control, &card)?)?[rank];
        let name = format!("{} on cuda:{ordinal}", library.name);
        let id = share(control, || library.unique_id())?;
        let device = agree(control, Device::open(driver, ordinal, slot * size))?;
        let waiting = Waiting { rank, patience, over };
        let (communicator, state) = agree(control, Communicator::join(library, id, rank, size))?;
        let joined = waiting.settle(&communicator, "ncclCommInitRankConfig", state, || others(rank, size));
        // Where a rank is still joining, another one's first exchange may keep it from allocating memory on its device.
        agree(control, joined)?;
        Ok(Engine { communicator, device, waiting, size, slot, name })
    }

    /// Carries out exchanges in the order of their numbers, until there are no more. An error ends the job.
    pub fn serve(self, control: &dyn Comm, inbox: &Receiver<Order>) {
        let mut failed: Option<CommError> = None;
        let mut early: BTreeMap<u64, Order> = BTreeMap::new();
        let mut next = 0;
        for order in inbox {
            let (Order::Exchange(number, _) | Order::Skip(number)) = order;
            early.insert(number, order);
            while let Some(order) = early.remove(&next) {
                next += 1;
                let Order::Exchange(_, work) = order else { continue };
                let result = failed.clone().map_or_else(|| self.exchange(&work), Err);
                let error = result.clone().err().filter(|_| failed.is_none());
                // Nothing receives this if the exchange was abandoned by a panic.
                let _ = work.done.send(result);
                if let Some(error) = error {
                    control.abort(&error.to_string());
                    failed = Some(error);
                }
            }
        }
        self.leave(failed.is_some());
    }

    /// Sends and receives what is not this rank's own, group by group.
    #[allow(unsafe_code)]
    fn exchange(&self, work: &Work) -> Result<(), CommError> {
        for group in groups(self.waiting.rank, &work.send_counts, &work.recv_counts, self.slot) {
            for piece in &group.sends {
                // SAFETY: the memory is valid until `done` is told.
                unsafe { self.device.write(piece.staged, work.send.add(piece.bytes.start), piece.bytes.len()) };
            }
            self.run(&group)?;
            for piece in &group.receives {
                // SAFETY: as above.
                unsafe { self.device.read(piece.staged, work.recv.add(piece.bytes.start), piece.bytes.len()) };
            }
        }
        Ok(())
    }

    /// Copies staging memory to the device, sends and receives, and copies it back.
    #[allow(unsafe_code)]
    fn run(&self, Group { sends, receives }: &Group) -> Result<(), CommError> {
        let partners = || {
            let mut ranks: Vec<usize> = sends.iter().chain(receives).map(|piece| piece.with).collect();
            ranks.sort_unstable();
            ranks.dedup();
            ranks
        };
        let device = &self.device;
        device.copy(Direction::Send, staged(sends))?;
        let of = |direction, pieces: &[super::plan::Piece]| -> Vec<_> {
            pieces
                .iter()
                .map(|piece| (device.address(direction, piece.staged), piece.bytes.len(), piece.with))
                .collect()
        };
        let (sent, received) = (of(Direction::Send, sends), of(Direction::Receive, receives));
        // SAFETY: the ranges lie in staging memory, and this thread waits for the stream before it uses that again; after an
        // error it does not.
        let state = unsafe { self.communicator.group(sent.into_iter(), received.into_iter(), device.stream()) }?;
        self.waiting.settle(&self.communicator, "ncclGroupEnd", state, partners)?;
        device.copy(Direction::Receive, staged(receives))?;
        self.waiting.until(partners, || {
            self.communicator.state("ncclGroupEnd")?;
            device.is_done()
        })
    }

    /// Leaves the communicator: together with the others, which may still be receiving, or at once after an error.
    fn leave(self, has_failed: bool) {
        let Engine { communicator, device, waiting, size, .. } = self;
        let finalize = || {
            let state = communicator.finalize()?;
            waiting.settle(&communicator, "ncclCommFinalize", state, || others(waiting.rank, size))
        };
        if !has_failed && waiting.over.get().is_none() && finalize().is_ok() {
            communicator.destroy();
        } else {
            drop(communicator);
        }
        // After the communicator, which uses its stream and its memory.
        drop(device);
    }
}

/// How long a rank waits.
struct Waiting {
    rank: usize,
    patience: Duration,
    over: Over,
}

impl Waiting {
    /// Waits until a step is done. `ranks` are those that it waits for.
    fn until(
        &self,
        ranks: impl Fn() -> Vec<usize>,
        mut is_done: impl FnMut() -> Result<bool, CommError>,
    ) -> Result<(), CommError> {
        let since = Instant::now();
        while !is_done()? {
            let waited = since.elapsed();
            if waited > self.patience {
                return Err(CommError::Silent { rank: self.rank, ranks: ranks(), since: self.patience });
            }
            if let Some(error) = self.over.get() {
                return Err(error.clone());
            }
            match waited > AWAKE {
                true => std::thread::sleep(NAP),
                false => std::thread::yield_now(),
            }
        }
        Ok(())
    }

    /// Waits until a call of the communicator is over.
    fn settle(
        &self,
        communicator: &Communicator,
        function: &'static str,
        state: State,
        ranks: impl Fn() -> Vec<usize>,
    ) -> Result<(), CommError> {
        let mut state = state;
        self.until(ranks, || {
            if state == State::InProgress {
                state = communicator.state(function)?;
            }
            Ok(state == State::Done)
        })
    }
}

/// All ranks but this.
fn others(rank: usize, size: usize) -> Vec<usize> {
    (0..size).filter(|&other| other != rank).collect()
}

/// The result of this rank, if no rank has an error.
fn agree<T>(control: &dyn Comm, own: Result<T, CommError>) -> Result<T, CommError> {
    let text = own.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let texts = gather_texts(control, Tag::CONTROL, &text)?;
    let own = own?;
    match texts.into_iter().enumerate().find(|(_, text)| !text.is_empty()) {
        Some((rank, reason)) => Err(CommError::Ended { rank, reason }),
        None => Ok(own),
    }
}

/// The id that rank 0 makes.
fn share(control: &dyn Comm, make: impl Fn() -> Result<UniqueId, CommError>) -> Result<UniqueId, CommError> {
    let (rank, size) = (control.rank(), control.size());
    let id = match rank {
        0 => make(),
        _ => Ok(UniqueId([0; 128])),
    };
    let id = agree(control, id)?;
    let length = id.0.len();
    let send_counts = vec![if rank == 0 { length } else { 0 }; size];
    let send = if rank == 0 { id.0.repeat(size) } else { Vec::new() };
    let recv_counts: Vec<usize> = (0..size).map(|from| if from == 0 { length } else { 0 }).collect();
    let mut shared = id;
    control.alltoallv(Tag::CONTROL, (&send, &send_counts), (&mut shared.0, &recv_counts))?;
    Ok(shared)
}

/// The facts about all ranks.
fn cards(control: &dyn Comm, own: &Card) -> Result<Vec<Card>, CommError> {
    let texts = gather_texts(control, Tag::CONTROL, &serde_json::to_string(own).unwrap_or_default())?;
    let of = |(rank, text): (usize, String)| {
        serde_json::from_str(&text).map_err(|_| CommError::Ended { rank, reason: "it is another program".into() })
    };
    texts.into_iter().enumerate().map(of).collect()
}

/// The device of each rank: the one that its options name, the only one that it sees, or that of its place among the ranks
/// of its host. NCCL takes one rank for each device.
fn ordinals(cards: &[Card]) -> Result<Vec<usize>, CommError> {
    let of = |(rank, card): (usize, &Card)| {
        let first = &cards[0];
        if (card.version, card.slot) != (first.version, first.slot) {
            let reason = "its version of NCCL, or the size of its staging memory, is not that of rank 0".to_owned();
            return Err(CommError::Ended { rank, reason });
        }
        let place = cards[..rank].iter().filter(|other| other.host == card.host).count();
        let ordinal = card.device.unwrap_or(if card.devices == 1 { 0 } else { place });
        match ordinal < card.devices {
            true => Ok(ordinal),
            false => Err(CommError::NoDevice {
                reason: format!(
                    "rank {rank} on `{}` would use cuda:{ordinal}, and sees {} {}: NCCL takes one rank for each device",
                    card.host,
                    card.devices,
                    if card.devices == 1 { "device" } else { "devices" }
                ),
            }),
        }
    };
    cards.iter().enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::{Card, ordinals};

    fn card(host: &str, devices: usize, device: Option<usize>) -> Card {
        Card { host: host.into(), devices, device, version: 22703, slot: 256 }
    }

    #[test]
    fn ranks_of_a_host_have_devices_of_their_own() {
        let all =
            [card("a", 2, None), card("b", 4, None), card("a", 2, None), card("b", 4, Some(3)), card("c", 1, None)];
        assert_eq!(ordinals(&all).unwrap(), [0, 0, 1, 3, 0]);
        // A launcher that shows each rank its own device.
        assert_eq!(ordinals(&[card("a", 1, None), card("a", 1, None)]).unwrap(), [0, 0]);
        let error = ordinals(&[card("a", 2, None), card("a", 2, None), card("a", 2, None)]).unwrap_err();
        let expected = "rank 2 on `a` would use cuda:2, and sees 2 devices: NCCL takes one rank for each device";
        assert_eq!(error.to_string(), expected);
        let error = ordinals(&[card("a", 0, None)]).unwrap_err();
        assert!(error.to_string().contains("sees 0 devices"), "{error}");
        let error = ordinals(&[card("a", 1, None), Card { version: 22800, ..card("b", 1, None) }]).unwrap_err();
        assert!(error.to_string().starts_with("rank 1 has ended: its version of NCCL"), "{error}");
    }
}
