//! Traces on a network that SimGrid simulates: its SMPI (Degomme et al. 2017, "Simulating MPI applications: the SMPI approach"),
//! a library that is opened at run time, runs all ranks in one process and lets them call MPI, in simulated time.
//!
//! A process can simulate once, and an error in the library may end it. [`simulate`] is therefore for a process of its own,
//! which reads a [`Request`] and writes what it returns.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_double, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use serde::{Deserialize, Serialize};

use crate::dynamic::{self, functions};
use crate::network::Network;
use crate::trace::{Event, ExchangeId, RankTimes, Trace};

/// Ranks and their network.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Request {
    pub traces: Vec<Trace>,
    pub network: Network,
}

/// A reason why SimGrid does not simulate.
#[derive(Debug, thiserror::Error)]
pub enum SimgridError {
    /// The library is not installed.
    #[error(
        "SimGrid was not found (`{0}`): Debian has it as `libsimgrid3.32`, and HGNNC_SIMGRID names another library"
    )]
    NotFound(String),
    /// A library without one of the functions.
    #[error("this SimGrid has no SMPI: {0}")]
    Incomplete(libloading::Error),
    /// The description of the network cannot be written.
    #[error("cannot write a description of the network: {0}")]
    Platform(std::io::Error),
    /// More than one simulation in a process.
    #[error("a process simulates once")]
    Again,
    /// A message that MPI cannot count.
    #[error("a message of {0} bytes is longer than MPI counts")]
    TooLong(u64),
}

/// Flops a second of a simulated processor, by which seconds are told to the library.
const FLOPS: f64 = 1e9;

/// A handle of SMPI: an address.
type Handle = usize;

/// The function of a simulated rank.
type Main = extern "C" fn(c_int, *mut *mut c_char) -> c_int;

functions! {
    simgrid_init: fn(*mut c_int, *mut *mut c_char),
    simgrid_load_platform: fn(*const c_char),
    simgrid_load_deployment: fn(*const c_char),
    simgrid_run: fn(),
    SMPI_init: fn(),
    SMPI_finalize: fn(),
    SMPI_app_instance_register: fn(*const c_char, Main, c_int),
    sg_cfg_set_boolean: fn(*const c_char, *const c_char),
    smpi_execute_flops: fn(c_double),
    MPI_Init: fn(*const c_int, *const c_void) -> c_int,
    MPI_Finalize: fn() -> c_int,
    MPI_Comm_rank: fn(Handle, *mut c_int) -> c_int,
    MPI_Barrier: fn(Handle) -> c_int,
    MPI_Wtime: fn() -> c_double,
    MPI_Isend: fn(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int,
    MPI_Irecv: fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int,
    MPI_Waitall: fn(c_int, *mut Handle, *mut c_void) -> c_int,
}

/// The simulation of this process, which its ranks read.
struct Simulation {
    functions: Functions,
    byte: Handle,
    /// The address of the handle of all ranks, which is set when they run.
    world: usize,
    traces: Vec<Trace>,
    /// By exchange: bytes by sending and receiving rank.
    bytes: HashMap<ExchangeId, Vec<Vec<u64>>>,
    /// A place for the bytes of all messages, which nobody reads.
    place: usize,
    times: Mutex<Vec<RankTimes>>,
    _library: Library,
}

static SIMULATION: OnceLock<Simulation> = OnceLock::new();

/// The library, if it is installed.
///
/// # Errors
/// [`SimgridError::NotFound`].
fn open() -> Result<Library, SimgridError> {
    let named = std::env::var("HGNNC_SIMGRID").ok().filter(|name| !name.is_empty());
    let names = named.map_or(vec!["libsimgrid.so.3.32".to_owned(), "libsimgrid.so".to_owned()], |name| vec![name]);
    let open = |name: &str| dynamic::open(name, RTLD_NOW | RTLD_GLOBAL);
    dynamic::first(&names, open).map_err(|_| SimgridError::NotFound(names[0].clone()))
}

/// The times of ranks that go through their traces, of which there is one at least, on a network. `folder` is for a file
/// that the library reads. Ends the process where the library fails.
///
/// # Errors
/// Without the library, for a second simulation of this process, and for messages of 2 GiB and more.
pub fn simulate(request: Request, folder: &Path) -> Result<Vec<RankTimes>, SimgridError> {
    let Request { traces, network } = request;
    let size = traces.len();
    let mut bytes: HashMap<ExchangeId, Vec<Vec<u64>>> = HashMap::new();
    let mut longest = 1;
    for (rank, trace) in traces.iter().enumerate() {
        for event in &trace.0 {
            let Event::Start { exchange, bytes: own } = event else { continue };
            longest = own.iter().copied().fold(longest, u64::max);
            bytes.entry(*exchange).or_insert_with(|| vec![vec![0; size]; size])[rank].clone_from(own);
        }
    }
    if c_int::try_from(longest).is_err() {
        return Err(SimgridError::TooLong(longest));
    }
    let library = open()?;
    let functions = Functions::of(&library).map_err(SimgridError::Incomplete)?;
    // SAFETY: both are pointers of the library.
    let address = |name: &[u8]| unsafe {
        library.get::<*const c_void>(name).map(|symbol| symbol.as_raw_ptr() as usize).map_err(SimgridError::Incomplete)
    };
    let (world, byte) = (address(b"MPI_COMM_WORLD\0")?, address(b"smpi_MPI_BYTE\0")?);
    let platform = folder.join("platform.xml");
    let deployment = folder.join("deployment.xml");
    std::fs::write(&platform, platform_text(&network, size))
        .and_then(|()| std::fs::write(&deployment, deployment_text(size)))
        .map_err(SimgridError::Platform)?;
    // Senders read it while receivers write it: what it holds does not matter.
    let place = Box::leak(vec![0u8; longest as usize].into_boxed_slice()).as_mut_ptr() as usize;
    let times = Mutex::new(vec![RankTimes::default(); size]);
    let simulation = Simulation { functions, byte, world, traces, bytes, place, times, _library: library };
    if SIMULATION.set(simulation).is_err() {
        return Err(SimgridError::Again);
    }
    let simulation = SIMULATION.get().expect("it was set");
    simulation.run(&platform, &deployment);
    Ok(simulation.times.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Hosts with a link each to a network without a bottleneck. A message passes two links.
fn platform_text(network: &Network, size: usize) -> String {
    format!(
        "{HEAD}<platform version=\"4.1\">\n  <cluster id=\"c\" prefix=\"n\" suffix=\"\" radical=\"0-{}\" speed=\"{FLOPS}f\" \
         bw=\"{}Bps\" lat=\"{}s\"/>\n</platform>\n",
        size - 1,
        network.bytes_per_s,
        network.latency_s / 2.0
    )
}

/// A rank on each host.
fn deployment_text(size: usize) -> String {
    let actor = |rank: usize| {
        format!(
            "  <actor host=\"n{rank}\" function=\"{NAME}\"><prop id=\"instance_id\" value=\"{NAME}\"/><prop id=\"rank\" \
             value=\"{rank}\"/></actor>\n"
        )
    };
    let actors: String = (0..size).map(actor).collect();
    format!("{HEAD}<platform version=\"4.1\">\n{actors}</platform>\n")
}

/// The name of the program that is simulated.
const NAME: &str = "hgnnc";
/// The first lines of a description.
const HEAD: &str = "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n";

impl Simulation {
    fn run(&self, platform: &Path, deployment: &Path) {
        let text = |text: &str| CString::new(text).expect("no zero byte");
        // A message takes latency and bandwidth, without factors that were measured with TCP.
        let args = [
            NAME,
            "--log=root.thres:critical",
            "--cfg=network/model:CM02",
            "--cfg=network/TCP-gamma:0",
            "--cfg=network/crosstraffic:no",
        ]
        .map(text);
        let mut argv: Vec<*mut c_char> = args.iter().map(|arg| arg.as_ptr().cast_mut()).collect();
        let mut argc = argv.len() as c_int;
        argv.push(ptr::null_mut());
        let of = &self.functions;
        let [platform, deployment] = [platform, deployment].map(|path| text(&path.to_string_lossy()));
        // SAFETY: the order that SimGrid's documentation asks for; all texts live until the end.
        unsafe {
            (of.simgrid_init)(&mut argc, argv.as_mut_ptr());
            (of.simgrid_load_platform)(platform.as_ptr());
            (of.SMPI_init)();
            // The times of computing are told.
            (of.sg_cfg_set_boolean)(text("smpi/simulate-computation").as_ptr(), text("no").as_ptr());
            (of.SMPI_app_instance_register)(text(NAME).as_ptr(), rank, self.traces.len() as c_int);
            (of.simgrid_load_deployment)(deployment.as_ptr());
            (of.simgrid_run)();
            (of.SMPI_finalize)();
        }
    }

    /// Goes through the trace of a rank. Called on a stack of the library.
    fn rank(&self) {
        let of = &self.functions;
        let mut own: c_int = 0;
        // SAFETY: handles of the library; buffers are as long as the longest message, and nobody reads their bytes.
        unsafe {
            let world = *(self.world as *const Handle);
            (of.MPI_Comm_rank)(world, &mut own);
            (of.MPI_Barrier)(world);
            let begin = (of.MPI_Wtime)();
            let mut times = RankTimes::default();
            let mut requests: HashMap<ExchangeId, Vec<Handle>> = HashMap::new();
            let rank = own as usize;
            for event in &self.traces[rank].0 {
                match event {
                    Event::Compute(seconds) => {
                        times.compute_s += seconds;
                        (of.smpi_execute_flops)(seconds * FLOPS);
                    }
                    Event::Start { exchange, .. } => {
                        let started = self.start(world, rank, *exchange);
                        requests.insert(*exchange, started);
                    }
                    Event::Wait { exchange } => {
                        let before = (of.MPI_Wtime)();
                        let mut pending = requests.remove(exchange).unwrap_or_default();
                        (of.MPI_Waitall)(pending.len() as c_int, pending.as_mut_ptr(), ptr::null_mut());
                        times.wait_s += (of.MPI_Wtime)() - before;
                    }
                    Event::StepEnd => {}
                }
            }
            times.end_s = (of.MPI_Wtime)() - begin;
            self.times.lock().unwrap_or_else(PoisonError::into_inner)[rank] = times;
        }
    }

    /// Starts the messages of an exchange, from and to a rank.
    ///
    /// # Safety
    /// Called by a rank.
    unsafe fn start(&self, world: Handle, rank: usize, exchange: ExchangeId) -> Vec<Handle> {
        let (bytes, size) = (&self.bytes[&exchange], self.traces.len());
        // Any tag does: messages between two ranks come in their order, and all ranks start exchanges alike.
        let tag = c_int::from(exchange.tag.0);
        let mut requests = vec![];
        for step in 1..size {
            let (to, from) = ((rank + step) % size, (rank + size - step) % size);
            for (other, count, receives) in [(from, bytes[from][rank], true), (to, bytes[rank][to], false)] {
                if count == 0 {
                    continue;
                }
                let mut request = 0;
                // SAFETY: the place has as many bytes.
                unsafe {
                    let of = &self.functions;
                    let (other, count) = (other as c_int, count as c_int);
                    match receives {
                        true => {
                            (of.MPI_Irecv)(self.place as *mut c_void, count, self.byte, other, tag, world, &mut request)
                        }
                        false => (of.MPI_Isend)(
                            self.place as *const c_void,
                            count,
                            self.byte,
                            other,
                            tag,
                            world,
                            &mut request,
                        ),
                    };
                }
                requests.push(request);
            }
        }
        requests
    }
}

extern "C" fn rank(_: c_int, _: *mut *mut c_char) -> c_int {
    let Some(simulation) = SIMULATION.get() else { return 1 };
    // SAFETY: called on a stack of the library, for a rank.
    unsafe {
        (simulation.functions.MPI_Init)(ptr::null(), ptr::null());
        simulation.rank();
        (simulation.functions.MPI_Finalize)();
    }
    0
}
