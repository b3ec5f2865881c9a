//! Devices, streams and communicators.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use crate::clique::{Clique, Message};
use crate::{BROKEN, DEVICES, SILENT};

/// Bytes of memory that was not written.
const UNWRITTEN: u8 = 0xa5;

/// Codes of CUDA.
pub const INVALID_VALUE: c_int = 1;
pub const OUT_OF_MEMORY: c_int = 2;
pub const INVALID_CONTEXT: c_int = 201;
pub const INVALID_HANDLE: c_int = 400;

/// Codes of NCCL.
pub const SYSTEM_ERROR: c_int = 2;
pub const INVALID_ARGUMENT: c_int = 4;
pub const INVALID_USAGE: c_int = 5;
pub const REMOTE_ERROR: c_int = 6;
pub const IN_PROGRESS: c_int = 7;

/// The result of a call; an error is a code.
pub type Answer<T = ()> = Result<T, c_int>;

thread_local! {
    /// The device whose context is current.
    pub static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The device whose context is current.
pub fn current() -> Answer<usize> {
    CURRENT.get().ok_or(INVALID_CONTEXT)
}

/// A range of device memory, for another rank or from one.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub address: u64,
    pub bytes: usize,
    pub peer: usize,
}

/// An operation of a stream.
#[derive(Debug)]
pub enum Operation {
    ToDevice {
        host: usize,
        address: u64,
        bytes: usize,
    },
    ToHost {
        host: usize,
        address: u64,
        bytes: usize,
    },
    Group {
        comm: usize,
        sends: Vec<Transfer>,
        receives: Vec<Transfer>,
        /// Messages of the sends, once it has begun.
        posted: Option<Vec<Message>>,
    },
}

#[derive(Debug)]
pub struct Stream {
    pub device: usize,
    pub queue: VecDeque<Operation>,
}

#[derive(Debug)]
struct Memory {
    device: usize,
    content: Vec<u8>,
}

#[derive(Debug)]
pub struct Pinned {
    pub device: usize,
    pub bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    Joining,
    Joined,
    Leaving,
    Left,
}

/// A communicator.
#[derive(Debug)]
pub struct Comm {
    pub clique: Clique,
    pub device: usize,
    pub stage: Stage,
    /// Number of polls until the last call is over.
    pub polls: usize,
    /// Operations that are enqueued then, with their streams.
    pub deferred: Vec<(usize, Operation)>,
    pub error: c_int,
}

#[derive(Default, Debug)]
pub struct World {
    last: usize,
    pub contexts: [usize; DEVICES],
    pub streams: BTreeMap<usize, Stream>,
    memory: BTreeMap<u64, Memory>,
    pub pinned: BTreeMap<usize, Pinned>,
    pub comms: BTreeMap<usize, Comm>,
    /// By device: bytes of its sends.
    pub sent: [u64; DEVICES],
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);

/// Calls a function with everything there is.
pub fn with<T>(function: impl FnOnce(&mut World) -> T) -> T {
    let mut world = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    function(world.get_or_insert_default())
}

/// The code of a result. Misuse is printed.
pub fn code(name: &str, result: Answer) -> c_int {
    let code = result.err().unwrap_or(0);
    if code != 0 && code != IN_PROGRESS {
        eprintln!("hgnnc-nccl-library: {name} fails with code {code}");
    }
    code
}

impl World {
    /// A number that was not given before.
    pub fn number(&mut self) -> usize {
        self.last += 1;
        self.last
    }

    pub fn allocate(&mut self, device: usize, bytes: usize) -> u64 {
        // Addresses that are none of this process, far apart.
        let address = (1 << 60) + ((self.number() as u64) << 36);
        self.memory.insert(address, Memory { device, content: vec![UNWRITTEN; bytes] });
        address
    }

    pub fn pin(&mut self, device: usize, bytes: usize) -> *mut c_void {
        let place = Box::leak(vec![UNWRITTEN; bytes].into_boxed_slice()).as_mut_ptr();
        self.pinned.insert(place.expose_provenance(), Pinned { device, bytes });
        place.cast()
    }

    pub fn free(&mut self, address: u64) -> Answer {
        let device = self.memory.get(&address).ok_or(INVALID_VALUE)?.device;
        self.wait(device)?;
        self.memory.remove(&address);
        Ok(())
    }

    pub fn unpin(&mut self, place: usize) -> Answer {
        let device = self.pinned.get(&place).ok_or(INVALID_VALUE)?.device;
        self.wait(device)?;
        let Some(Pinned { bytes, .. }) = self.pinned.remove(&place) else { return Err(INVALID_VALUE) };
        let memory = std::ptr::slice_from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<u8>(place), bytes);
        // SAFETY: it is the slice that `pin` has leaked.
        drop(unsafe { Box::from_raw(memory) });
        Ok(())
    }

    /// Executes all copies of a device. Sends and receives that are on their way would hang a GPU.
    fn wait(&mut self, device: usize) -> Answer {
        let of: Vec<usize> =
            self.streams.iter().filter(|(_, stream)| stream.device == device).map(|(&handle, _)| handle).collect();
        for handle in of {
            while let Some(first) = self.streams[&handle].queue.front() {
                if let Operation::Group { comm, .. } = first {
                    eprintln!("hgnnc-nccl-library: memory is freed while a group of {comm} is on its way");
                    return Err(INVALID_VALUE);
                }
                self.advance(handle)?;
            }
        }
        Ok(())
    }

    /// The range of device memory, of a device.
    pub fn range(&mut self, device: usize, address: u64, bytes: usize) -> Answer<&mut [u8]> {
        let (&base, memory) = self.memory.range_mut(..=address).next_back().ok_or(INVALID_VALUE)?;
        let start = (address - base) as usize;
        match memory.device == device {
            true => memory.content.get_mut(start..start + bytes).ok_or(INVALID_VALUE),
            false => Err(INVALID_VALUE),
        }
    }

    /// Whether bytes are pinned.
    pub fn is_pinned(&self, host: usize, bytes: usize) -> bool {
        let before = self.pinned.range(..=host).next_back();
        before.is_some_and(|(&place, pinned)| host + bytes <= place + pinned.bytes)
    }

    /// Executes an operation of a stream, if it can; whether all are done.
    pub fn advance(&mut self, handle: usize) -> Answer<bool> {
        let stream = self.streams.get_mut(&handle).ok_or(INVALID_HANDLE)?;
        let device = stream.device;
        let Some(operation) = stream.queue.pop_front() else { return Ok(true) };
        let unfinished = match operation {
            Operation::ToDevice { host, address, bytes } => {
                let from = std::ptr::with_exposed_provenance::<u8>(host);
                // SAFETY: the range was pinned when the copy was enqueued, and freeing it executes the copy first.
                let from = unsafe { std::slice::from_raw_parts(from, bytes) };
                self.range(device, address, bytes)?.copy_from_slice(from);
                None
            }
            Operation::ToHost { host, address, bytes } => {
                let from = self.range(device, address, bytes)?.to_vec();
                let to = std::ptr::with_exposed_provenance_mut::<u8>(host);
                // SAFETY: as above.
                unsafe { to.copy_from_nonoverlapping(from.as_ptr(), bytes) };
                None
            }
            Operation::Group { comm, sends, receives, posted } => self.group(device, comm, sends, receives, posted)?,
        };
        let stream = self.streams.get_mut(&handle).ok_or(INVALID_HANDLE)?;
        if let Some(operation) = unfinished {
            stream.queue.push_front(operation);
        }
        Ok(stream.queue.is_empty())
    }

    /// Goes on with sends and receives; those that are not over.
    fn group(
        &mut self,
        device: usize,
        handle: usize,
        sends: Vec<Transfer>,
        mut receives: Vec<Transfer>,
        posted: Option<Vec<Message>>,
    ) -> Answer<Option<Operation>> {
        if device == SILENT {
            return Ok(Some(Operation::Group { comm: handle, sends, receives, posted }));
        }
        let posted = match posted {
            Some(posted) => posted,
            None => {
                let mut posted = Vec::new();
                for Transfer { address, bytes, peer } in &sends {
                    let content = self.range(device, *address, *bytes)?.to_vec();
                    self.sent[device] += content.len() as u64;
                    posted.push(self.comm(handle)?.clique.send(*peer, &content)?);
                }
                posted
            }
        };
        let mut missing = Vec::new();
        for receive in receives.drain(..) {
            let comm = self.comm(handle)?;
            match comm.clique.receive(receive.peer) {
                Some(content) if content.len() == receive.bytes => {
                    self.range(device, receive.address, receive.bytes)?.copy_from_slice(&content);
                }
                Some(content) => {
                    eprintln!("hgnnc-nccl-library: {} bytes are received by {receive:?}", content.len());
                    comm.error = INVALID_USAGE;
                }
                None => missing.push(receive),
            }
        }
        let is_over = missing.is_empty() && posted.iter().all(Message::is_received);
        Ok((!is_over).then_some(Operation::Group { comm: handle, sends, receives: missing, posted: Some(posted) }))
    }

    fn comm(&mut self, handle: usize) -> Answer<&mut Comm> {
        self.comms.get_mut(&handle).ok_or(INVALID_ARGUMENT)
    }

    /// A poll of a communicator: the code of its state.
    pub fn poll(&mut self, handle: usize) -> Answer<c_int> {
        let comm = self.comm(handle)?;
        if comm.error != 0 {
            return Ok(comm.error);
        }
        if comm.clique.has_failed() {
            return Ok(REMOTE_ERROR);
        }
        let waits = match comm.stage {
            Stage::Joining => !comm.clique.is_complete(),
            Stage::Leaving => !comm.clique.is_final(),
            Stage::Joined | Stage::Left => false,
        };
        if waits || comm.polls > 0 {
            comm.polls = comm.polls.saturating_sub(1);
            return Ok(IN_PROGRESS);
        }
        comm.stage = match comm.stage {
            Stage::Joining | Stage::Joined => Stage::Joined,
            Stage::Leaving | Stage::Left => Stage::Left,
        };
        let deferred = std::mem::take(&mut comm.deferred);
        if comm.device == BROKEN && !deferred.is_empty() {
            comm.error = SYSTEM_ERROR;
            return Ok(SYSTEM_ERROR);
        }
        for (stream, operation) in deferred {
            self.streams.get_mut(&stream).ok_or(INVALID_ARGUMENT)?.queue.push_back(operation);
        }
        Ok(0)
    }

    /// Takes a communicator away, with what it has enqueued.
    pub fn remove(&mut self, handle: usize) -> Answer<Comm> {
        let comm = self.comms.remove(&handle).ok_or(INVALID_ARGUMENT)?;
        for stream in self.streams.values_mut() {
            stream.queue.retain(|of| !matches!(of, Operation::Group { comm, .. } if *comm == handle));
        }
        Ok(comm)
    }

    /// Number of things of a device that were not released.
    pub fn in_use(&self, device: usize) -> usize {
        self.contexts[device]
            + self.streams.values().filter(|of| of.device == device).count()
            + self.memory.values().filter(|of| of.device == device).count()
            + self.pinned.values().filter(|of| of.device == device).count()
            + self.comms.values().filter(|of| of.device == device).count()
    }
}
