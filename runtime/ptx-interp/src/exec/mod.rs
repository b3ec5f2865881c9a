//! Kernel execution.

mod exchange;
mod launch;
mod memory;
mod mma;
mod warp;

pub use launch::{Launch, Value};

use crate::Counters;
use crate::cache::Cache;
use crate::fault::{Fault, FaultKind};
use crate::memory::{Memory, Wrong};
use crate::module::{Constant, Kernel, Module};
use crate::ops::{Barrier, Inst, Op, Reduce};
use crate::registers::{LANES, lanes};
use crate::shared::{SHARED_WINDOW, Shared};
use warp::{Waiting, Warp};

const SHARED_WINDOW_END: u64 = SHARED_WINDOW + (1 << 24);
/// Cache size of [`Module::run`]: that of an A100, 40 MB.
const DEFAULT_CACHE: u64 = 40 << 20;
const BARRIERS: usize = 16;

/// A fault with the lane that caused it.
type Stop = (usize, Wrong);

/// State of a running kernel.
struct Run<'a> {
    module: &'a Module,
    kernel: &'a Kernel,
    launch: &'a Launch,
    memory: &'a mut Memory,
    cache: &'a mut Cache,
    counters: Counters,
    shared: Shared,
    /// Index of the current block; its number in [`Memory`] is `block_number`.
    block: [u32; 3],
    block_number: u32,
    first_block: u32,
    /// Warp instructions executed so far.
    executed: u64,
    /// Last allocation accessed by each instruction.
    guesses: Vec<usize>,
    /// Threads that arrived without waiting (`bar.arrive`), and their warps, by barrier.
    arrived: [(u32, u32); BARRIERS],
}

impl Module {
    /// Runs a kernel with an initially empty cache of 40 MB.
    pub fn run(&self, kernel: &str, memory: &mut Memory, launch: &Launch) -> Result<Counters, Fault> {
        self.run_with(kernel, memory, launch, &mut Cache::new(DEFAULT_CACHE))
    }

    /// Runs a kernel with a caller's cache, which keeps its contents between runs.
    pub fn run_with(
        &self,
        kernel: &str,
        memory: &mut Memory,
        launch: &Launch,
        cache: &mut Cache,
    ) -> Result<Counters, Fault> {
        let found = self.kernel(kernel).ok_or_else(|| "there is no such kernel".to_owned());
        let (kernel, threads) =
            found.and_then(|found| Ok((found, launch.check(found, &self.target)?))).map_err(|message| Fault {
                kind: FaultKind::Launch,
                kernel: kernel.to_owned(),
                line: 0,
                source: None,
                block: [0; 3],
                thread: [0; 3],
                message,
            })?;
        let addresses = self.instantiate(memory);
        let blocks: u32 = launch.grid.iter().product();
        let first_block = memory.begin_launch(blocks);
        let num_warps = threads.div_ceil(LANES);
        let mut run = Run {
            module: self,
            kernel,
            launch,
            memory,
            cache,
            counters: Counters::default(),
            shared: Shared::new(launch.shared_bytes(kernel), num_warps),
            block: [0; 3],
            block_number: first_block,
            first_block,
            executed: 0,
            guesses: vec![0; kernel.code.len()],
            arrived: [(0, 0); BARRIERS],
        };
        let mut warps: Vec<Warp> = (0..num_warps).map(|index| Warp::new(kernel, index, threads)).collect();
        warps.iter_mut().for_each(|warp| run.set_constants(warp, &addresses));
        if launch.backward {
            warps.reverse();
        }
        let [x, y, _] = launch.grid;
        for turn in 0..blocks {
            let block = if launch.backward { blocks - 1 - turn } else { turn };
            run.block = [block % x, block / x % y, block / x / y];
            run.block_number = first_block + block;
            run.run_block(&mut warps)?;
        }
        let used = run.cache.take_counters();
        let mut counters = run.counters;
        counters.cache_hits = used.hits;
        counters.device_read_bytes = used.read;
        counters.device_written_bytes = used.written;
        counters.blocks = u64::from(blocks);
        Ok(counters)
    }

    /// Address of a `.global` or `.const` variable, for [`Memory::write`], which may also write constants. Instantiates
    /// the variables of the module in this memory on first use; uninitialised ones are zero. `None` if there is no such
    /// variable.
    pub fn variable(&self, name: &str, memory: &mut Memory) -> Option<u64> {
        let at = self.variables.iter().position(|variable| variable.name == name)?;
        Some(self.instantiate(memory)[at])
    }

    /// Size of a `.global` or `.const` variable in bytes; `None` if there is no such variable.
    pub fn variable_bytes(&self, name: &str) -> Option<usize> {
        self.variables.iter().find(|variable| variable.name == name).map(|variable| variable.bytes)
    }

    /// Allocates and initialises the variables of the module, once per memory; returns their addresses.
    fn instantiate(&self, memory: &mut Memory) -> Vec<u64> {
        if let Some(addresses) = memory.modules.get(&self.id) {
            return addresses.clone();
        }
        let mut addresses = Vec::new();
        for variable in &self.variables {
            let address = memory.alloc(&variable.name, variable.bytes, variable.align);
            // Uninitialised variables are zero.
            let mut bytes = variable.init.clone();
            bytes.resize(variable.bytes, 0);
            memory.write(address, &bytes).expect("the allocation has this size");
            if variable.constant {
                memory.make_constant(address);
            }
            addresses.push(address);
        }
        memory.modules.insert(self.id, addresses.clone());
        addresses
    }
}

impl Run<'_> {
    fn set_constants(&self, warp: &mut Warp, addresses: &[u64]) {
        let [bx, by, _] = self.launch.block.map(|n| n as usize);
        let static_shared = self.launch.dynamic_offset(self.kernel) as u64;
        let index = warp.index as usize;
        for &(slot, constant) in &self.kernel.constants {
            let at = slot as usize;
            warp.registers.values[at] = std::array::from_fn(|lane| {
                let thread = index * LANES + lane;
                match constant {
                    Constant::Bits(bits) => bits,
                    Constant::Tid(0) => (thread % bx) as u64,
                    Constant::Tid(1) => (thread / bx % by) as u64,
                    Constant::Tid(_) => (thread / bx / by) as u64,
                    Constant::Ntid(axis) => self.launch.block[axis].into(),
                    Constant::Ctaid(axis) => self.block[axis].into(),
                    Constant::Nctaid(axis) => self.launch.grid[axis].into(),
                    Constant::LaneId => lane as u64,
                    Constant::WarpId => index as u64,
                    Constant::NumWarps => u64::from(self.launch.block.iter().product::<u32>()).div_ceil(32),
                    Constant::LaneMaskEq => 1 << lane,
                    Constant::LaneMaskLt => (1 << lane) - 1,
                    Constant::LaneMaskLe => (2 << lane) - 1,
                    Constant::LaneMaskGt => u64::from(u32::MAX) & !((2 << lane) - 1),
                    Constant::LaneMaskGe => u64::from(u32::MAX) & !((1 << lane) - 1),
                    Constant::DynamicSharedSize => self.launch.dynamic_shared as u64,
                    Constant::TotalSharedSize => self.launch.shared_bytes(self.kernel) as u64,
                    Constant::DynamicShared(offset) => static_shared.wrapping_add(offset),
                    Constant::Variable(at, offset) => addresses[at].wrapping_add(offset),
                }
            });
        }
    }

    fn run_block(&mut self, warps: &mut [Warp]) -> Result<(), Fault> {
        self.shared.begin_block();
        self.arrived = [(0, 0); BARRIERS];
        for warp in warps.iter_mut() {
            warp.begin_block(self.kernel, self.block);
        }
        loop {
            let mut progress = false;
            for warp in warps.iter_mut() {
                if !warp.ready.is_empty() {
                    self.run_warp(warp)?;
                    progress = true;
                }
            }
            progress |= self.release_barriers(warps)?;
            if !progress {
                break;
            }
        }
        if warps.iter().all(|warp| warp.live == 0) { Ok(()) } else { Err(self.stuck(warps)) }
    }

    /// The barrier that these lanes wait at.
    fn barrier_of(&self, waiting: &Waiting) -> Option<&Barrier> {
        match &self.kernel.code[waiting.pc].op {
            Op::Barrier(barrier) => Some(barrier),
            _ => None,
        }
    }

    /// Releases threads at completed barriers; returns whether there were any.
    fn release_barriers(&mut self, warps: &mut [Warp]) -> Result<bool, Fault> {
        let mut released = false;
        let kernel = self.kernel;
        for id in 0..BARRIERS {
            let (mut arrived, mut who) = self.arrived[id];
            let mut wanted = None;
            for warp in warps.iter() {
                for waiting in &warp.waiting {
                    let Some(barrier) = self.barrier_of(waiting) else { continue };
                    if warp.barrier_id(barrier, waiting.lanes) != id {
                        continue;
                    }
                    let (expected, counted) = match barrier.count {
                        Some(count) => {
                            let lane = waiting.lanes.trailing_zeros() as usize;
                            let count = warp.registers.values[count as usize][lane] as u32;
                            (count, if barrier.aligned { LANES as u32 } else { waiting.lanes.count_ones() })
                        }
                        None => (self.launch.block.iter().product(), waiting.lanes.count_ones()),
                    };
                    if barrier.aligned && waiting.lanes != warp.everyone {
                        continue;
                    }
                    if *wanted.get_or_insert(expected) != expected {
                        let message = format!("barrier {id} is used with different numbers of threads");
                        return Err(self.fault_at(warp, waiting, FaultKind::DivergentBarrier, message));
                    }
                    arrived += counted;
                    who |= 1 << warp.index;
                }
            }
            let Some(wanted) = wanted.filter(|&wanted| arrived >= wanted) else { continue };
            if arrived > wanted {
                let warp = warps.iter().find(|warp| who >> warp.index & 1 == 1 && !warp.waiting.is_empty());
                if let Some(warp) = warp {
                    let message = format!("{arrived} threads are at barrier {id}, which is for {wanted}");
                    return Err(self.fault_at(warp, &warp.waiting[0], FaultKind::DivergentBarrier, message));
                }
            }
            self.arrived[id] = (0, 0);
            self.shared.meet(who);
            self.counters.barriers += 1;
            released = true;
            self.reduce_at_barrier(warps, id)?;
            for warp in warps.iter_mut() {
                let everyone = warp.everyone;
                let mut at = 0;
                while at < warp.waiting.len() {
                    let waiting = warp.waiting[at];
                    let here = match &kernel.code[waiting.pc].op {
                        Op::Barrier(barrier) => warp.barrier_id(barrier, waiting.lanes) == id,
                        _ => false,
                    };
                    if here {
                        warp.waiting.swap_remove(at);
                        warp.sync.meet(waiting.lanes, everyone);
                        warp.make_ready(waiting.pc + 1, waiting.lanes);
                    } else {
                        at += 1;
                    }
                }
            }
        }
        Ok(released)
    }

    /// Computes the results of `bar.red` at a completed barrier.
    fn reduce_at_barrier(&self, warps: &mut [Warp], id: usize) -> Result<(), Fault> {
        let (mut holds, mut total) = (0, 0);
        for warp in warps.iter() {
            for waiting in &warp.waiting {
                let Some(barrier) = self.barrier_of(waiting) else { continue };
                if let Some(reduce) = barrier.reduce.as_ref().filter(|_| warp.barrier_id(barrier, waiting.lanes) == id)
                {
                    holds += (warp.pred(reduce.source) & waiting.lanes).count_ones();
                    total += waiting.lanes.count_ones();
                }
            }
        }
        for warp in warps.iter_mut() {
            for waiting in warp.waiting.clone() {
                let Op::Barrier(barrier) = &self.kernel.code[waiting.pc].op else { continue };
                if warp.barrier_id(barrier, waiting.lanes) != id {
                    continue;
                }
                let Some(reduce) = &barrier.reduce else { continue };
                let result = match reduce.op {
                    Reduce::Popc => holds,
                    Reduce::And => u32::from(holds == total),
                    Reduce::Or => u32::from(holds > 0),
                };
                if let Some(d) = reduce.value {
                    lanes(waiting.lanes).for_each(|lane| warp.registers.values[d as usize][lane] = result.into());
                }
                if let Some(d) = reduce.pred {
                    warp.set_pred(d, if result != 0 { u32::MAX } else { 0 }, waiting.lanes);
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn stuck(&self, warps: &[Warp]) -> Fault {
        let exited: u32 = warps.iter().map(|warp| (warp.everyone & !warp.live).count_ones()).sum();
        for warp in warps {
            for waiting in &warp.waiting {
                let line = |waiting: &Waiting| self.kernel.code[waiting.pc].line;
                match (waiting.mask, self.barrier_of(waiting)) {
                    (Some(mask), _) => {
                        let missing = mask & !waiting.lanes;
                        let others = warp.waiting.iter().find(|other| other.lanes & missing != 0);
                        let elsewhere = match others {
                            Some(other) => format!("which wait at line {} ({:#010x})", line(other), other.lanes),
                            None => "which never come".to_owned(),
                        };
                        let message = format!(
                            "lanes {:#010x} wait for lanes {missing:#010x} of their mask, {elsewhere}",
                            waiting.lanes
                        );
                        return self.fault_at(warp, waiting, FaultKind::Deadlock, message);
                    }
                    (None, Some(barrier)) if barrier.aligned && waiting.lanes != warp.everyone => {
                        let missing = warp.everyone & !waiting.lanes;
                        let others = warp.waiting.iter().find(|other| other.lanes & missing != 0);
                        let elsewhere = match others {
                            Some(other) => format!("lanes {:#010x} wait at line {}", other.lanes, line(other)),
                            None => format!("lanes {missing:#010x} have exited"),
                        };
                        let message = format!("lanes {:#010x} wait at a barrier, {elsewhere}", waiting.lanes);
                        return self.fault_at(warp, waiting, FaultKind::DivergentBarrier, message);
                    }
                    _ => {}
                }
            }
        }
        let warp = warps.iter().find(|warp| !warp.waiting.is_empty());
        let waiting: u32 = warps.iter().flat_map(|warp| &warp.waiting).map(|waiting| waiting.lanes.count_ones()).sum();
        let message = format!("{waiting} threads wait at barriers for others that never come; {exited} have exited");
        match warp {
            Some(warp) => self.fault_at(warp, &warp.waiting[0], FaultKind::Deadlock, message),
            None => self.fault(None, 0, (FaultKind::Deadlock, message)),
        }
    }

    fn fault_at(&self, warp: &Warp, waiting: &Waiting, kind: FaultKind, message: String) -> Fault {
        let thread = self.thread(warp, waiting.lanes.trailing_zeros() as usize);
        Fault { thread, ..self.fault(Some(&self.kernel.code[waiting.pc]), 0, (kind, message)) }
    }

    /// Thread index of a lane.
    fn thread(&self, warp: &Warp, lane: usize) -> [u32; 3] {
        let [x, y, _] = self.launch.block;
        let thread = warp.index * LANES as u32 + lane as u32;
        [thread % x, thread / x % y, thread / x / y]
    }

    fn fault(&self, inst: Option<&Inst>, thread: u32, (kind, message): Wrong) -> Fault {
        let source = inst.and_then(|inst| inst.source).map(|(file, line)| {
            let name = self.module.files.get(&file).cloned().unwrap_or_else(|| format!("file {file}"));
            (name, line)
        });
        Fault {
            kind,
            kernel: self.kernel.name.clone(),
            line: inst.map_or(0, |inst| inst.line),
            source,
            block: self.block,
            thread: [thread, 0, 0],
            message,
        }
    }
}
