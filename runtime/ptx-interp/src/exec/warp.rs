//! Warp execution: groups of converged lanes.

use super::{BARRIERS, Run, Stop};
use crate::fault::{Fault, FaultKind};
use crate::module::{Constant, Kernel};
use crate::ops::{Barrier, Inst, Logic, Op, Pred, PredSlot};
use crate::registers::{LANES, Registers, Slot, lanes};
use crate::shared::SyncLog;

/// Instructions after which another warp is scheduled, so that a warp may spin on a value that another one writes.
const TURN: u32 = 1 << 14;

/// A group of waiting lanes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub pc: usize,
    pub lanes: u32,
    /// The lanes waited for; `None`: a barrier of the block.
    pub mask: Option<u32>,
}

/// A `cp.async` that has not been waited for yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingCopy {
    pub lane: u32,
    /// Number of its commit group, per lane.
    pub group: u32,
    pub to: usize,
    pub len: usize,
    pub bytes: [u8; 16],
}

pub(super) struct Warp {
    pub index: u32,
    pub registers: Registers,
    /// Mask of the lanes that exist.
    pub everyone: u32,
    /// Mask of the lanes that have not exited.
    pub live: u32,
    /// Runnable groups: program counter and lanes.
    pub ready: Vec<(usize, u32)>,
    pub waiting: Vec<Waiting>,
    pub sync: SyncLog,
    pub copies: Vec<PendingCopy>,
    /// Number of committed copy groups, per lane.
    pub committed: [u32; LANES],
}

impl Warp {
    pub fn new(kernel: &Kernel, index: usize, threads: usize) -> Warp {
        let lanes = (threads - index * LANES).min(LANES);
        Warp {
            index: index as u32,
            registers: Registers {
                values: vec![[0; LANES]; kernel.num_places],
                defined: vec![0; kernel.num_slots],
                predicates: vec![0; kernel.num_predicates],
                predicates_defined: vec![0; kernel.num_predicates],
            },
            everyone: u32::MAX >> (LANES - lanes),
            live: 0,
            ready: Vec::new(),
            waiting: Vec::new(),
            sync: SyncLog::default(),
            copies: Vec::new(),
            committed: [0; LANES],
        }
    }

    pub fn begin_block(&mut self, kernel: &Kernel, block: [u32; 3]) {
        self.registers.defined.fill(0);
        self.registers.predicates_defined.fill(0);
        for &(slot, constant) in &kernel.constants {
            if let Constant::Ctaid(axis) = constant {
                self.registers.values[slot as usize] = [block[axis].into(); LANES];
            }
        }
        self.live = self.everyone;
        self.ready.clear();
        self.ready.push((0, self.everyone));
        self.waiting.clear();
        self.sync = SyncLog::default();
        self.copies.clear();
        self.committed = [0; LANES];
    }

    /// Mask of the lanes in which a predicate holds.
    pub fn pred(&self, pred: Pred) -> u32 {
        self.registers.predicates[pred.slot as usize] ^ if pred.negated { u32::MAX } else { 0 }
    }

    pub fn set_pred(&mut self, d: PredSlot, holds: u32, mask: u32) {
        let value = &mut self.registers.predicates[d as usize];
        *value = *value & !mask | holds & mask;
    }

    pub fn make_ready(&mut self, pc: usize, lanes: u32) {
        if lanes == 0 {
            return;
        }
        match self.ready.iter_mut().find(|(at, _)| *at == pc) {
            Some((_, there)) => *there |= lanes,
            None => self.ready.push((pc, lanes)),
        }
    }

    /// The barrier resource that lanes wait at.
    pub fn barrier_id(&self, barrier: &Barrier, at: u32) -> usize {
        self.registers.values[barrier.id as usize][at.trailing_zeros() as usize % LANES] as u32 as usize
    }

    /// Removes the group with the smallest program counter.
    fn take_first(&mut self) -> Option<(usize, u32)> {
        let first = (0..self.ready.len()).min_by_key(|&at| self.ready[at].0)?;
        Some(self.ready.swap_remove(first))
    }
}

/// Control flow of a group after an instruction.
pub(super) enum Next {
    /// The whole group continues at the next instruction.
    On,
    /// The whole group jumps.
    To(usize),
    /// The group has diverged, waits or has exited.
    Apart,
}

impl Run<'_> {
    /// Runs a warp until all its lanes wait or have exited, or its time slice is over.
    pub(super) fn run_warp(&mut self, warp: &mut Warp) -> Result<(), Fault> {
        let mut turn = TURN;
        while let Some((mut pc, mut group)) = warp.take_first() {
            loop {
                if !warp.ready.is_empty() {
                    // Another group may be at the same instruction, or behind it.
                    if let Some(at) = warp.ready.iter().position(|&(other, _)| other == pc) {
                        group |= warp.ready.swap_remove(at).1;
                    }
                    if warp.ready.iter().any(|&(other, _)| other < pc) {
                        warp.ready.push((pc, group));
                        break;
                    }
                }
                if turn == 0 {
                    warp.ready.push((pc, group));
                    return Ok(());
                }
                turn -= 1;
                let kernel = self.kernel;
                let inst = &kernel.code[pc];
                match self.step(warp, pc, inst, group) {
                    Ok(Next::On) => pc += 1,
                    Ok(Next::To(target)) => pc = target,
                    Ok(Next::Apart) => break,
                    Err((lane, wrong)) => {
                        let thread = self.thread(warp, lane);
                        return Err(Fault { thread, ..self.fault(Some(inst), 0, wrong) });
                    }
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn step(&mut self, warp: &mut Warp, pc: usize, inst: &Inst, group: u32) -> Result<Next, Stop> {
        self.executed += 1;
        if self.executed > self.launch.max_instructions {
            let message = format!("more than {} instructions of warps were executed", self.launch.max_instructions);
            return Err((group.trailing_zeros() as usize, (FaultKind::InstructionLimit, message)));
        }
        let active = match inst.guard {
            None => group,
            Some(guard) => {
                self.check_preds(warp, &[guard.slot], group)?;
                warp.pred(guard) & group
            }
        };
        let class = inst.class as usize;
        self.counters.warp[class] += 1;
        self.counters.lane[class] += u64::from(active.count_ones());
        self.counters.flops += u64::from(inst.flops) * u64::from(active.count_ones());
        for &slot in &inst.reads {
            let undefined = active & !warp.registers.defined[slot as usize];
            if undefined != 0 {
                let message = "reads a register that has not been written".to_owned();
                return Err((undefined.trailing_zeros() as usize, (FaultKind::UninitialisedRegister, message)));
            }
        }
        if !inst.reads_pred.is_empty() {
            self.check_preds(warp, &inst.reads_pred, active)?;
        }
        let next = if active == 0 {
            // All lanes are masked off: `bra` falls through, everything else has no effect.
            if inst.guard.is_some() && matches!(inst.op, Op::Bra { .. }) {
                self.counters.branches += 1;
            }
            Next::On
        } else {
            self.execute(warp, pc, inst, group, active)?
        };
        for &slot in &inst.writes {
            warp.registers.defined[slot as usize] |= active;
        }
        for &slot in &inst.writes_pred {
            warp.registers.predicates_defined[slot as usize] |= active;
        }
        Ok(next)
    }

    fn check_preds(&self, warp: &Warp, slots: &[PredSlot], mask: u32) -> Result<(), Stop> {
        for &slot in slots {
            let undefined = mask & !warp.registers.predicates_defined[slot as usize];
            if undefined != 0 {
                let message = "reads a predicate that has not been written".to_owned();
                return Err((undefined.trailing_zeros() as usize, (FaultKind::UninitialisedRegister, message)));
            }
        }
        Ok(())
    }

    fn execute(&mut self, warp: &mut Warp, pc: usize, inst: &Inst, group: u32, active: u32) -> Result<Next, Stop> {
        let o = &inst.operands;
        match &inst.op {
            Op::Alu(step) => step(&mut warp.registers, o, active),
            Op::Nop => {}
            Op::Convert(conversion) => {
                for lane in lanes(active) {
                    let [a, b] = [o.s[0], o.s[1]].map(|slot| warp.registers.values[slot as usize][lane]);
                    warp.registers.values[o.d as usize][lane] = conversion.apply(a, b);
                }
            }
            Op::Clock { d } => {
                lanes(active).for_each(|lane| warp.registers.values[*d as usize][lane] = self.executed);
            }
            Op::Pack { d, parts, bits } => {
                for lane in lanes(active) {
                    let part = |slot: Slot| warp.registers.values[slot as usize][lane] & ((1 << bits) - 1);
                    let packed = parts.iter().rev().fold(0, |packed, &slot| packed << bits | part(slot));
                    warp.registers.values[*d as usize][lane] = packed;
                }
            }
            Op::Unpack { parts, a, bits } => {
                let packed = warp.registers.values[*a as usize];
                for (at, d) in parts.iter().enumerate().filter_map(|(at, d)| Some((at, (*d)?))) {
                    for lane in lanes(active) {
                        let part = packed[lane] >> (at as u32 * bits) & ((1 << bits) - 1);
                        warp.registers.values[d as usize][lane] = part;
                    }
                }
            }
            Op::Setp { test, combine, p, q } => {
                let holds = test(&warp.registers, o, active);
                let combined = |holds| combine.map_or(holds, |(logic, c)| apply(logic, holds, warp.pred(c)));
                let (holds, fails) = (combined(holds), combined(!holds));
                if let Some(p) = p {
                    warp.set_pred(*p, holds, active);
                }
                if let Some(q) = q {
                    warp.set_pred(*q, fails, active);
                }
            }
            Op::Set { test, combine, one } => {
                let holds = test(&warp.registers, o, active);
                let holds = combine.map_or(holds, |(logic, c)| apply(logic, holds, warp.pred(c)));
                for lane in lanes(active) {
                    warp.registers.values[o.d as usize][lane] = if holds >> lane & 1 == 1 { *one } else { 0 };
                }
            }
            Op::Selp { pred } => {
                let holds = warp.pred(*pred);
                let [a, b] = [o.s[0], o.s[1]].map(|slot| warp.registers.values[slot as usize]);
                let d = &mut warp.registers.values[o.d as usize];
                for lane in lanes(active) {
                    d[lane] = if holds >> lane & 1 == 1 { a[lane] } else { b[lane] };
                }
            }
            Op::PredLogic { op, d, a, b } => {
                let value = apply(*op, warp.pred(*a), warp.pred(*b));
                warp.set_pred(*d, value, active);
            }
            Op::PredMov { d, a } => {
                let value = warp.pred(*a);
                warp.set_pred(*d, value, active);
            }
            Op::LdParam { d, ty, offset } => {
                for (at, d) in d.iter().enumerate().filter_map(|(at, d)| Some((at, (*d)?))) {
                    let from = *offset as usize + at * ty.bytes();
                    let mut bytes = [0; 8];
                    bytes[..ty.bytes()].copy_from_slice(&self.launch.params[from..from + ty.bytes()]);
                    let value = ty.extend(u64::from_le_bytes(bytes));
                    lanes(active).for_each(|lane| warp.registers.values[d as usize][lane] = value);
                }
            }
            Op::Ld { .. } => self.load(warp, pc, inst, active)?,
            Op::St { .. } => self.store(warp, pc, inst, active)?,
            Op::Atomic { .. } => self.atomic(warp, pc, inst, active)?,
            Op::CpAsync { .. } => self.begin_copies(warp, pc, inst, active)?,
            Op::CpCommit => lanes(active).for_each(|lane| warp.committed[lane] += 1),
            Op::CpWait(pending) => self.finish_copies(warp, active, *pending)?,
            Op::Bra { target } => {
                let target = *target as usize;
                if inst.guard.is_none() {
                    return Ok(Next::To(target));
                }
                self.counters.branches += 1;
                if active == group {
                    return Ok(Next::To(target));
                }
                self.counters.divergent_branches += 1;
                warp.make_ready(target, active);
                warp.make_ready(pc + 1, group & !active);
                return Ok(Next::Apart);
            }
            Op::Exit => {
                warp.live &= !active;
                if let Some(left) = warp.waiting.iter().find(|waiting| waiting.mask.is_some_and(|m| m & active != 0)) {
                    let line = self.kernel.code[left.pc].line;
                    let lanes = left.lanes;
                    let message = format!("exits while lanes {lanes:#010x} wait for it at line {line}");
                    return Err((active.trailing_zeros() as usize, (FaultKind::BadMask, message)));
                }
                warp.make_ready(pc + 1, group & !active);
                return Ok(Next::Apart);
            }
            Op::Trap => {
                return Err((active.trailing_zeros() as usize, (FaultKind::Trap, "`trap` was executed".to_owned())));
            }
            Op::Barrier(barrier) => {
                self.arrive(warp, pc, barrier, active)?;
                if barrier.arrive {
                    return Ok(Next::On);
                }
                warp.make_ready(pc + 1, group & !active);
                return Ok(Next::Apart);
            }
            Op::ActiveMask { d } => {
                lanes(active).for_each(|lane| warp.registers.values[*d as usize][lane] = active.into());
            }
            Op::WarpSync { .. }
            | Op::Shfl { .. }
            | Op::Vote { .. }
            | Op::Match { .. }
            | Op::Redux { .. }
            | Op::Ldmatrix { .. }
            | Op::Mma(_) => return self.meet(warp, pc, inst, group, active),
        }
        Ok(Next::On)
    }

    fn arrive(&mut self, warp: &mut Warp, pc: usize, barrier: &Barrier, active: u32) -> Result<(), Stop> {
        let first = active.trailing_zeros() as usize;
        let id = &warp.registers.values[barrier.id as usize];
        let number = id[first] as u32;
        if number as usize >= BARRIERS {
            return Err((first, (FaultKind::DivergentBarrier, format!("there is no barrier {number}, only 0 to 15"))));
        }
        if let Some(other) = lanes(active).find(|&lane| id[lane] as u32 != number) {
            let message = "lanes of a warp use different barriers at once".to_owned();
            return Err((other, (FaultKind::DivergentBarrier, message)));
        }
        if let Some(count) = barrier.count {
            let count = warp.registers.values[count as usize][first] as u32;
            if count == 0 || barrier.aligned && !count.is_multiple_of(32) {
                let message = format!("a barrier is for {count} threads, not for a multiple of 32");
                return Err((first, (FaultKind::DivergentBarrier, message)));
            }
        }
        if barrier.arrive {
            if barrier.aligned && active != warp.everyone {
                let message = format!("only lanes {active:#010x} of the warp arrive at a barrier");
                return Err((first, (FaultKind::DivergentBarrier, message)));
            }
            let (threads, warps) = &mut self.arrived[number as usize];
            *threads += if barrier.aligned { LANES as u32 } else { active.count_ones() };
            *warps |= 1 << warp.index;
            return Ok(());
        }
        match warp.waiting.iter_mut().find(|waiting| waiting.pc == pc && waiting.mask.is_none()) {
            Some(waiting) => waiting.lanes |= active,
            None => warp.waiting.push(Waiting { pc, lanes: active, mask: None }),
        }
        Ok(())
    }
}

fn apply(logic: Logic, a: u32, b: u32) -> u32 {
    match logic {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
    }
}
