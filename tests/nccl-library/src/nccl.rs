//! Functions of NCCL, as declared in `nccl.h`, and two that tests call.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::DEVICES;
use crate::clique::Clique;
use crate::world::{
    Answer, Comm, IN_PROGRESS, INVALID_ARGUMENT, INVALID_USAGE, Operation, REMOTE_ERROR, SYSTEM_ERROR, Stage, Transfer,
    World, code, current, with,
};

/// Version 2.27.3.
const VERSION: c_int = 22703;

/// Number of polls that a call takes.
const POLLS: usize = 3;

/// The constant `ncclUint8`.
const BYTES: c_int = 1;

#[derive(Clone, Copy)]
#[repr(C)]
struct UniqueId([u8; 128]);

/// The first fields of `ncclConfig_t`.
#[repr(C)]
struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
}

/// An operation of a group: whether it sends, its communicator, its stream, and the range.
type Call = (bool, usize, usize, Transfer);

thread_local! {
    /// The operations of the group that this thread has started.
    static GROUP: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetVersion(to: *mut c_int) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { to.write(VERSION) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetUniqueId(to: *mut UniqueId) -> c_int {
    let number = with(|world| world.number() as u64) + (u64::from(std::process::id()) << 32);
    let mut id = UniqueId([0x5a; 128]);
    // The last bytes, so that all of them have to arrive.
    id.0[120..].copy_from_slice(&number.to_le_bytes());
    // SAFETY: the caller's contract.
    unsafe { to.write(id) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRankConfig(
    to: *mut usize,
    size: c_int,
    id: UniqueId,
    rank: c_int,
    config: *const Config,
) -> c_int {
    // SAFETY: the caller's contract.
    let Config { size: of_config, magic, version, blocking } = unsafe { config.read() };
    let is_known = of_config >= size_of::<Config>() && magic == 0xcafe_beef && version >= 21400 && blocking == 0;
    let [head @ .., a, b, c, d, e, f, g, h] = id.0;
    if !is_known || head != [0x5a; 120] || size < 1 || !(0..size).contains(&rank) {
        return code("ncclCommInitRankConfig", Err(INVALID_ARGUMENT));
    }
    let (number, size, rank) = (u64::from_le_bytes([a, b, c, d, e, f, g, h]), size as usize, rank as usize);
    let join = |device: usize| {
        with(|world| {
            let clique = Clique::join(number, rank, size, device)?;
            let handle = world.number();
            let (stage, deferred) = (Stage::Joining, Vec::new());
            world.comms.insert(handle, Comm { clique, device, stage, polls: POLLS, deferred, error: 0 });
            // SAFETY: the caller's contract.
            unsafe { to.write(handle) };
            Err(IN_PROGRESS)
        })
    };
    code("ncclCommInitRankConfig", current().and_then(join))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommGetAsyncError(comm: usize, to: *mut c_int) -> c_int {
    // SAFETY: the caller's contract.
    code("ncclCommGetAsyncError", with(|world| world.poll(comm)).map(|state| unsafe { to.write(state) }))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommFinalize(comm: usize) -> c_int {
    let finalize = |world: &mut World| {
        let device = current()?;
        let comm = ready(world, comm, device)?;
        (comm.stage, comm.polls) = (Stage::Leaving, POLLS);
        comm.clique.finalize()?;
        Err(IN_PROGRESS)
    };
    code("ncclCommFinalize", with(finalize))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDestroy(handle: usize) -> c_int {
    let destroy = |world: &mut World| {
        let comm = world.comms.get(&handle).ok_or(INVALID_ARGUMENT)?;
        if comm.stage != Stage::Left {
            return Err(INVALID_USAGE);
        }
        world.remove(handle).map(|_| ())
    };
    code("ncclCommDestroy", with(destroy))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommAbort(handle: usize) -> c_int {
    let abort = |world: &mut World| world.remove(handle)?.clique.fail();
    code("ncclCommAbort", with(abort))
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    let text = match code {
        0 => c"no error",
        SYSTEM_ERROR => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        INVALID_ARGUMENT => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        INVALID_USAGE => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        REMOTE_ERROR => c"remote process exited or there was a network error",
        IN_PROGRESS => c"NCCL operation in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_comm: usize) -> *const c_char {
    c"the last error of the library for tests\n".as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupStart() -> c_int {
    GROUP.with_borrow_mut(|group| group.get_or_insert_default().clear());
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclSend(
    from: *const c_void,
    count: usize,
    kind: c_int,
    peer: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    code("ncclSend", enqueue(true, (from.addr(), count, kind, peer), comm, stream))
}

#[unsafe(no_mangle)]
extern "C" fn ncclRecv(to: *mut c_void, count: usize, kind: c_int, peer: c_int, comm: usize, stream: usize) -> c_int {
    code("ncclRecv", enqueue(false, (to.addr(), count, kind, peer), comm, stream))
}

fn enqueue(
    is_send: bool,
    (address, bytes, kind, peer): (usize, usize, c_int, c_int),
    comm: usize,
    stream: usize,
) -> Answer {
    let (device, address) = (current()?, address as u64);
    let peer = with(|world| {
        let of = ready(world, comm, device)?;
        let (rank, size) = (of.clique.rank, of.clique.size);
        let peer = usize::try_from(peer).ok().filter(|&peer| peer < size && peer != rank).ok_or(INVALID_ARGUMENT)?;
        let is_of_device = world.streams.get(&stream).is_some_and(|stream| stream.device == device);
        match kind == BYTES && is_of_device && world.range(device, address, bytes).is_ok() {
            true => Ok(peer),
            false => Err(INVALID_ARGUMENT),
        }
    })?;
    GROUP.with_borrow_mut(|group| {
        group.as_mut().ok_or(INVALID_USAGE)?.push((is_send, comm, stream, Transfer { address, bytes, peer }));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupEnd() -> c_int {
    let end = || {
        let calls = GROUP.take().ok_or(INVALID_USAGE)?;
        let Some(&(_, handle, stream, _)) = calls.first() else { return Ok(()) };
        if calls.iter().any(|&(_, comm, of, _)| (comm, of) != (handle, stream)) {
            return Err(INVALID_USAGE);
        }
        let of = |sends: bool| -> Vec<Transfer> {
            calls.iter().filter(|call| call.0 == sends).map(|call| call.3.clone()).collect()
        };
        let group = Operation::Group { comm: handle, sends: of(true), receives: of(false), posted: None };
        with(|world| {
            let comm = world.comms.get_mut(&handle).ok_or(INVALID_ARGUMENT)?;
            comm.polls = POLLS;
            comm.deferred.push((stream, group));
            Err(IN_PROGRESS)
        })
    };
    code("ncclGroupEnd", end())
}

/// A communicator of a device that has joined, and no call of which is in progress.
fn ready(world: &mut World, handle: usize, device: usize) -> Answer<&mut Comm> {
    let comm = world.comms.get_mut(&handle).ok_or(INVALID_ARGUMENT)?;
    let is_ready = comm.stage == Stage::Joined && comm.polls == 0 && comm.deferred.is_empty() && comm.error == 0;
    match is_ready && comm.device == device {
        true => Ok(comm),
        false => Err(INVALID_USAGE),
    }
}

/// Number of bytes that a device has sent.
#[unsafe(no_mangle)]
extern "C" fn hgnn_test_sent(device: usize) -> u64 {
    with(|world| world.sent[device.min(DEVICES - 1)])
}

/// Number of things of a device that were not released.
#[unsafe(no_mangle)]
extern "C" fn hgnn_test_in_use(device: usize) -> usize {
    with(|world| world.in_use(device.min(DEVICES - 1)))
}
