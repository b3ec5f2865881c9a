//! Deferred work of streams.

use std::collections::VecDeque;
use std::thread::ThreadId;
use std::time::Instant;

use cudarc::driver::sys::CUresult;
use hgnnc_ptx_interp::{FaultKind, Launch};

use crate::driver::{Answer, Driver, say};

/// A stream with its pending work.
#[derive(Default)]
pub(crate) struct Stream {
    pub device: usize,
    pub queue: VecDeque<Work>,
    /// Number of event records enqueued so far.
    pub records: u64,
    pub capture: Option<Capture>,
}

/// A stream capture: work goes into a graph.
pub(crate) struct Capture {
    pub thread: ThreadId,
    pub works: Vec<Work>,
    /// A forbidden call has invalidated the capture.
    pub spoilt: bool,
}

/// One operation of a stream.
#[derive(Clone)]
pub(crate) enum Work {
    /// Launches a kernel, given its module and name.
    Launch { module: usize, kernel: String, launch: Launch },
    /// Host to device copy.
    Upload { to: u64, from: Source },
    /// Device to host copy.
    Download { to: HostMemory, from: u64 },
    /// Device to device copy.
    Copy { to: u64, from: u64, bytes: usize },
    /// Memset on the device.
    Fill { at: u64, bytes: usize, value: u8 },
    /// Marks an event as completed.
    Record { event: usize, number: u64 },
}

/// Source of an upload.
#[derive(Clone)]
pub(crate) enum Source {
    /// Pinned memory, read when the copy executes.
    Pinned(HostMemory),
    /// Pageable memory, copied when the call was made.
    Kept(Vec<u8>),
}

/// Host memory that outlives the pending work, as the caller promises.
#[derive(Clone, Copy)]
pub(crate) struct HostMemory {
    pub at: usize,
    pub bytes: usize,
}

impl HostMemory {
    /// Copies its current contents.
    pub fn read(self) -> Vec<u8> {
        let from = std::ptr::with_exposed_provenance::<u8>(self.at);
        // SAFETY: the caller of the driver promises that the range is readable until the copy is done.
        unsafe { std::slice::from_raw_parts(from, self.bytes) }.to_vec()
    }

    /// Overwrites it with `bytes`.
    pub fn write(self, bytes: &[u8]) {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.at);
        // SAFETY: the caller of the driver promises that the range is writable until the copy is done, and `bytes` is
        // owned by this library, so they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, self.bytes.min(bytes.len())) };
    }
}

impl Driver {
    /// The stream with this handle, on the current device.
    pub fn stream(&mut self, handle: usize) -> Answer<&mut Stream> {
        let device = self.current()?;
        let stream = self.streams.get_mut(&handle).filter(|stream| stream.device == device);
        stream.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Enqueues work on a stream, or adds it to the graph being captured.
    pub fn put(&mut self, stream: usize, work: Work) -> Answer {
        let stream = self.stream(stream)?;
        match &mut stream.capture {
            Some(Capture { works, spoilt: false, .. }) => works.push(work),
            Some(_) => return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            None => stream.queue.push_back(work),
        }
        Ok(())
    }

    /// Executes all work of a stream.
    pub fn finish(&mut self, stream: usize) -> Answer {
        while let Some(work) = self.stream(stream)?.queue.pop_front() {
            self.perform(stream, work)?;
        }
        Ok(())
    }

    /// Executes all work of a device's streams.
    pub fn finish_all(&mut self) -> Answer {
        let device = self.current()?;
        let all: Vec<usize> =
            self.streams.iter().filter(|(_, stream)| stream.device == device).map(|(&handle, _)| handle).collect();
        all.into_iter().try_for_each(|stream| self.finish(stream))
    }

    /// Executes the work of a stream up to the last record of an event.
    pub fn reach(&mut self, event: usize) -> Answer {
        let known = self.events.get(&event).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        // An event that was never recorded counts as complete.
        let Some((stream, number)) = known.asked else { return Ok(()) };
        while self.events[&event].reached.is_none_or(|(reached, _)| reached < number) {
            let Some(work) = self.stream(stream)?.queue.pop_front() else {
                return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
            };
            self.perform(stream, work)?;
        }
        Ok(())
    }

    fn perform(&mut self, stream: usize, work: Work) -> Answer {
        let number = self.stream(stream)?.device;
        let done = match work {
            Work::Record { event, number } => {
                if let Some(event) = self.events.get_mut(&event) {
                    event.reached = Some((number, Instant::now()));
                }
                return Ok(());
            }
            Work::Launch { module, kernel, launch } => {
                let loaded = self.modules.get(&module).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
                let device = &mut self.devices[number];
                device.launches += 1;
                if device.launches > self.settings.launches {
                    let error = CUresult::CUDA_ERROR_LAUNCH_FAILED;
                    say(&format!("launch {} fails, as the settings ask", device.launches));
                    device.broken = Some(error);
                    return Err(error);
                }
                let run = loaded.module.run_with(&kernel, &mut device.memory, &launch, &mut device.cache);
                run.map(|_| ()).map_err(|fault| (error_of(fault.kind), fault.to_string()))
            }
            work => self.copy(number, work).map_err(|reason| (CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, reason)),
        };
        done.map_err(|(error, reason)| {
            say(&reason);
            self.devices[number].broken = Some(error);
            error
        })
    }

    /// Executes copies and memsets.
    fn copy(&mut self, device: usize, work: Work) -> Result<(), String> {
        let memory = &mut self.devices[device].memory;
        let done = match work {
            Work::Upload { to, from: Source::Pinned(from) } => memory.write(to, &from.read()),
            Work::Upload { to, from: Source::Kept(bytes) } => memory.write(to, &bytes),
            Work::Download { to, from } => memory.read(from, to.bytes).map(|bytes| to.write(&bytes)),
            Work::Copy { to, from, bytes } => memory.read(from, bytes).and_then(|bytes| memory.write(to, &bytes)),
            Work::Fill { at, bytes, value } => memory.fill(at, bytes, value),
            Work::Launch { .. } | Work::Record { .. } => Ok(()),
        };
        done.map_err(|error| format!("a copy or fill {error}"))
    }
}

/// The driver's error code for a fault.
fn error_of(kind: FaultKind) -> CUresult {
    match kind {
        FaultKind::OutOfBounds => CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
        FaultKind::Misaligned => CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
        FaultKind::Trap | FaultKind::BadMask => CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        FaultKind::InstructionLimit | FaultKind::Deadlock => CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
        FaultKind::Launch
        | FaultKind::UninitialisedMemory
        | FaultKind::UninitialisedRegister
        | FaultKind::SharedRace
        | FaultKind::GlobalRace
        | FaultKind::PendingCopy
        | FaultKind::DivergentBarrier
        | FaultKind::ReadOnly => CUresult::CUDA_ERROR_LAUNCH_FAILED,
    }
}
