//! What streams do, and when.

use std::collections::VecDeque;
use std::thread::ThreadId;
use std::time::Instant;

use cudarc::driver::sys::CUresult;
use hgnnc_ptx_interp::{FaultKind, Launch};

use crate::driver::{Answer, Driver, say};

/// Work that was put into a stream and is not done yet.
#[derive(Default)]
pub(crate) struct Stream {
    pub device: usize,
    pub queue: VecDeque<Work>,
    /// How many records of events were put into it.
    pub records: u64,
    pub capture: Option<Capture>,
}

/// A stream whose work goes into a graph.
pub(crate) struct Capture {
    pub thread: ThreadId,
    pub works: Vec<Work>,
    /// Something was called that must not be called now.
    pub spoilt: bool,
}

/// One thing to do.
#[derive(Clone)]
pub(crate) enum Work {
    /// The function's module and kernel.
    Launch { module: usize, kernel: String, launch: Launch },
    /// Copies to a device.
    Upload { to: u64, from: Source },
    /// Copies from a device.
    Download { to: HostMemory, from: u64 },
    /// Copies within a device.
    Copy { to: u64, from: u64, bytes: usize },
    /// Fills memory of a device.
    Fill { at: u64, bytes: usize, value: u8 },
    /// Notes that everything before is done.
    Record { event: usize, number: u64 },
}

/// What is copied to a device.
#[derive(Clone)]
pub(crate) enum Source {
    /// Memory that is read when the copy is made.
    Pinned(HostMemory),
    /// What other memory held when the copy was asked for.
    Kept(Vec<u8>),
}

/// Memory of this machine that lives until the work is done, as the caller of the driver promises.
#[derive(Clone, Copy)]
pub(crate) struct HostMemory {
    pub at: usize,
    pub bytes: usize,
}

impl HostMemory {
    /// What it holds now.
    pub fn read(self) -> Vec<u8> {
        let from = std::ptr::with_exposed_provenance::<u8>(self.at);
        // SAFETY: the caller of the driver promises that so many bytes can be read there until the copy is done.
        unsafe { std::slice::from_raw_parts(from, self.bytes) }.to_vec()
    }

    /// Fills it.
    pub fn write(self, bytes: &[u8]) {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.at);
        // SAFETY: the caller of the driver promises that so many bytes can be written there until the copy is done, and
        // `bytes`, which belongs to this library, is no part of them.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, self.bytes.min(bytes.len())) };
    }
}

impl Driver {
    /// The stream with this handle, of the current device.
    pub fn stream(&mut self, handle: usize) -> Answer<&mut Stream> {
        let device = self.current()?;
        let stream = self.streams.get_mut(&handle).filter(|stream| stream.device == device);
        stream.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Puts work into a stream, or into the graph that is captured from it.
    pub fn put(&mut self, stream: usize, work: Work) -> Answer {
        let stream = self.stream(stream)?;
        match &mut stream.capture {
            Some(Capture { works, spoilt: false, .. }) => works.push(work),
            Some(_) => return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            None => stream.queue.push_back(work),
        }
        Ok(())
    }

    /// Does all that a stream was asked to do.
    pub fn finish(&mut self, stream: usize) -> Answer {
        while let Some(work) = self.stream(stream)?.queue.pop_front() {
            self.perform(stream, work)?;
        }
        Ok(())
    }

    /// Does what the streams of a device were asked to do.
    pub fn finish_all(&mut self) -> Answer {
        let device = self.current()?;
        let all: Vec<usize> =
            self.streams.iter().filter(|(_, stream)| stream.device == device).map(|(&handle, _)| handle).collect();
        all.into_iter().try_for_each(|stream| self.finish(stream))
    }

    /// Does what a stream was asked to do before a record of an event, and reaches that.
    pub fn reach(&mut self, event: usize) -> Answer {
        let known = self.events.get(&event).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        // One that was never recorded has passed.
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

    /// Copies and fills.
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

/// What a GPU would have called it.
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
