//! Loads, stores, atomic operations and copies.

use super::warp::{PendingCopy, Warp};
use super::{Run, SHARED_WINDOW_END, Stop};
use crate::counters::{count_global, count_shared, count_shared_atomic};
use crate::fault::FaultKind;
use crate::memory::{Access, Use, Wrong, get, put};
use crate::ops::{Address, AtomicOp, Inst, Op, Order, Space};
use crate::registers::{LANES, Lanes, lanes};
use crate::shared::Accessor;
use crate::shared::SHARED_WINDOW;
use crate::types::Type;

impl Warp {
    pub(super) fn addresses(&self, address: &Address) -> Lanes {
        let mask = if address.narrow { 0xffff_ffff } else { u64::MAX };
        self.registers.values[address.base as usize].map(|base| (base & mask).wrapping_add_signed(address.offset))
    }

    pub(super) fn accessor(&self, lane: usize) -> Accessor {
        Accessor { warp: self.index, lane: lane as u32 }
    }
}

/// Checks that an address is aligned to the access size.
#[inline]
fn check_aligned(address: u64, bytes: usize, describe: impl FnOnce() -> String) -> Result<(), Wrong> {
    if address & (bytes as u64 - 1) == 0 {
        return Ok(());
    }
    Err((FaultKind::Misaligned, format!("{bytes} bytes at {}, which is no multiple of {bytes}", describe())))
}

fn shared_place(offset: u64) -> String {
    format!("offset {offset} of shared memory")
}

/// The lanes with generic addresses in shared memory; those addresses become offsets.
fn split(space: Space, addresses: &mut Lanes, active: u32) -> u32 {
    match space {
        Space::Shared => active,
        Space::Global | Space::Const => 0,
        Space::Generic => lanes(active).fold(0, |shared, lane| {
            if !(SHARED_WINDOW..SHARED_WINDOW_END).contains(&addresses[lane]) {
                return shared;
            }
            addresses[lane] -= SHARED_WINDOW;
            shared | 1 << lane
        }),
    }
}

/// The stride between the addresses of adjacent lanes, if it is uniformly 0 or `bytes`: the common case.
#[inline]
fn stride(addresses: &Lanes, bytes: usize) -> Option<usize> {
    let step = addresses[1].wrapping_sub(addresses[0]);
    let regular = (step == 0 || step == bytes as u64)
        && addresses[0] & (bytes as u64 - 1) == 0
        && (2..LANES).all(|lane| addresses[lane] == addresses[0].wrapping_add(lane as u64 * step));
    regular.then_some(step as usize)
}

impl Run<'_> {
    /// Loads for the whole warp at once, if its addresses have a regular stride and every access is valid.
    fn load_regular(&mut self, warp: &mut Warp, pc: usize, op: &Op, addresses: &Lanes, access: Access) -> bool {
        let Op::Ld { space, ty, d, .. } = op else { return false };
        let bytes = ty.bytes();
        let total = bytes * d.len();
        let Some(step) = stride(addresses, total) else { return false };
        let len = total + (LANES - 1) * step;
        let Ok((at, offset)) = self.memory.find_near(self.guesses[pc], addresses[0], len) else { return false };
        self.guesses[pc] = at;
        if *space == Space::Const && !self.memory.is_constant(at) {
            return false;
        }
        // On a fault, the lane-by-lane path finds the lane that caused it.
        let Ok(all) = self.memory.load(at, offset, len, access) else { return false };
        for (i, d) in d.iter().enumerate().filter_map(|(i, d)| Some((i, (*d)?))) {
            let values = &mut warp.registers.values[d as usize];
            if step == 0 {
                *values = [ty.extend(get(&all[i * bytes..(i + 1) * bytes])); LANES];
            } else {
                for (value, one) in values.iter_mut().zip(all.chunks_exact(total)) {
                    *value = ty.extend(get(&one[i * bytes..(i + 1) * bytes]));
                }
            }
        }
        true
    }

    /// Stores for a whole warp at once; see [`Run::load_regular`].
    fn store_regular(&mut self, warp: &Warp, pc: usize, op: &Op, addresses: &Lanes, access: Access) -> bool {
        let Op::St { ty, values, .. } = op else { return false };
        let bytes = ty.bytes();
        let total = bytes * values.len();
        let Some(step) = stride(addresses, total).filter(|&step| step > 0) else { return false };
        let len = total * LANES;
        debug_assert_eq!(step, total);
        let Ok((at, offset)) = self.memory.find_near(self.guesses[pc], addresses[0], len) else { return false };
        self.guesses[pc] = at;
        let Ok(all) = self.memory.store(at, offset, len, access) else { return false };
        for (i, &slot) in values.iter().enumerate() {
            let values = &warp.registers.values[slot as usize];
            for (&value, one) in values.iter().zip(all.chunks_exact_mut(total)) {
                put(&mut one[i * bytes..(i + 1) * bytes], value);
            }
        }
        true
    }

    fn access(&self, how: Use) -> Access {
        Access { block: self.block_number, first: self.first_block, how }
    }

    /// Resolves an access to global memory.
    #[inline]
    fn find_global(&mut self, pc: usize, address: u64, bytes: usize) -> Result<(usize, usize), Wrong> {
        let (at, offset) = self.memory.find_near(self.guesses[pc], address, bytes)?;
        self.guesses[pc] = at;
        check_aligned(address, bytes, || self.memory.describe(address))?;
        Ok((at, offset))
    }

    pub(super) fn find_shared(&self, offset: u64, bytes: usize) -> Result<usize, Wrong> {
        let at = self.shared.find(offset, bytes)?;
        check_aligned(offset, bytes, || shared_place(offset))?;
        Ok(at)
    }

    pub(super) fn load(&mut self, warp: &mut Warp, pc: usize, inst: &Inst, active: u32) -> Result<(), Stop> {
        let Op::Ld { space, ty, d, address, order } = &inst.op else { return Ok(()) };
        let mut addresses = warp.addresses(address);
        let bytes = ty.bytes();
        let total = bytes * d.len();
        let in_shared = split(*space, &mut addresses, active);
        if in_shared != 0 {
            for lane in lanes(in_shared) {
                let by = warp.accessor(lane);
                let offset = self.find_shared(addresses[lane], total).map_err(|wrong| (lane, wrong))?;
                let all = self.shared.load(offset, total, by, &warp.sync).map_err(|wrong| (lane, wrong))?;
                for (i, d) in d.iter().enumerate().filter_map(|(i, d)| Some((i, (*d)?))) {
                    warp.registers.values[d as usize][lane] = ty.extend(get(&all[i * bytes..(i + 1) * bytes]));
                }
            }
            count_shared(&mut self.counters.shared_loads, &addresses, in_shared, total as u64);
        }
        let in_global = active & !in_shared;
        if in_global != 0 {
            let access = self.access(match order {
                Order::Plain => Use::Read,
                Order::ReadOnly => Use::ReadOnly,
                Order::Strong => Use::StrongRead,
            });
            let done = in_global == u32::MAX && self.load_regular(warp, pc, &inst.op, &addresses, access);
            for lane in lanes(if done { 0 } else { in_global }) {
                let (at, offset) = self.find_global(pc, addresses[lane], total).map_err(|wrong| (lane, wrong))?;
                if *space == Space::Const && !self.memory.is_constant(at) {
                    let message = format!("{} is not constant memory", self.memory.describe(addresses[lane]));
                    return Err((lane, (FaultKind::OutOfBounds, message)));
                }
                let all = self.memory.load(at, offset, total, access).map_err(|wrong| (lane, wrong))?;
                for (i, d) in d.iter().enumerate().filter_map(|(i, d)| Some((i, (*d)?))) {
                    warp.registers.values[d as usize][lane] = ty.extend(get(&all[i * bytes..(i + 1) * bytes]));
                }
            }
            if *space != Space::Const {
                let cache = &mut *self.cache;
                count_global(&mut self.counters.global_loads, &addresses, in_global, total as u64, |line, sectors| {
                    cache.access(line, sectors, false);
                });
            }
        }
        Ok(())
    }

    pub(super) fn store(&mut self, warp: &mut Warp, pc: usize, inst: &Inst, active: u32) -> Result<(), Stop> {
        let Op::St { space, ty, values, address, order } = &inst.op else { return Ok(()) };
        let mut addresses = warp.addresses(address);
        let bytes = ty.bytes();
        let total = bytes * values.len();
        let in_shared = split(*space, &mut addresses, active);
        if in_shared != 0 {
            for lane in lanes(in_shared) {
                let by = warp.accessor(lane);
                let offset = self.find_shared(addresses[lane], total).map_err(|wrong| (lane, wrong))?;
                let all = self.shared.store(offset, total, by, &warp.sync).map_err(|wrong| (lane, wrong))?;
                for (i, &slot) in values.iter().enumerate() {
                    put(&mut all[i * bytes..(i + 1) * bytes], warp.registers.values[slot as usize][lane]);
                }
            }
            count_shared(&mut self.counters.shared_stores, &addresses, in_shared, total as u64);
        }
        let in_global = active & !in_shared;
        if in_global != 0 {
            let access = self.access(if *order == Order::Strong { Use::StrongWrite } else { Use::Write });
            let done = in_global == u32::MAX && self.store_regular(warp, pc, &inst.op, &addresses, access);
            for lane in lanes(if done { 0 } else { in_global }) {
                let (at, offset) = self.find_global(pc, addresses[lane], total).map_err(|wrong| (lane, wrong))?;
                let all = self.memory.store(at, offset, total, access).map_err(|wrong| (lane, wrong))?;
                for (i, &slot) in values.iter().enumerate() {
                    put(&mut all[i * bytes..(i + 1) * bytes], warp.registers.values[slot as usize][lane]);
                }
            }
            let cache = &mut *self.cache;
            count_global(&mut self.counters.global_stores, &addresses, in_global, total as u64, |line, sectors| {
                cache.access(line, sectors, true);
            });
        }
        Ok(())
    }

    /// Executes lanes one after the other, in ascending order.
    pub(super) fn atomic(&mut self, warp: &mut Warp, pc: usize, inst: &Inst, active: u32) -> Result<(), Stop> {
        let Op::Atomic { op, space, ty, d, address, b, c } = &inst.op else { return Ok(()) };
        let mut addresses = warp.addresses(address);
        let bytes = ty.bytes();
        let in_shared = split(*space, &mut addresses, active);
        let (read, write) = (self.access(Use::StrongRead), self.access(Use::StrongWrite));
        for lane in lanes(active) {
            let [b, c] = [b, c].map(|slot| warp.registers.values[*slot as usize][lane]);
            let new = |old: u64| combine(*op, *ty, old, b, c);
            let mut apply = || -> Result<u64, Wrong> {
                if in_shared >> lane & 1 == 1 {
                    let offset = self.find_shared(addresses[lane], bytes)?;
                    return self.shared.atomic(offset, bytes, warp.accessor(lane), &warp.sync, new);
                }
                let (at, offset) = self.find_global(pc, addresses[lane], bytes)?;
                let old = get(self.memory.load(at, offset, bytes, read)?);
                put(self.memory.store(at, offset, bytes, write)?, new(old));
                Ok(old)
            };
            let old = apply().map_err(|wrong| (lane, wrong))?;
            if let Some(d) = d {
                warp.registers.values[*d as usize][lane] = old;
            }
        }
        if in_shared != 0 {
            count_shared_atomic(&mut self.counters.shared_atomics, &addresses, in_shared);
        }
        if active & !in_shared != 0 {
            let cache = &mut *self.cache;
            let traffic = &mut self.counters.global_atomics;
            // Atomics execute in the cache, which fetches missing sectors.
            count_global(traffic, &addresses, active & !in_shared, bytes as u64, |line, sectors| {
                cache.access(line, sectors, false);
                cache.access(line, sectors, true);
            });
        }
        Ok(())
    }

    pub(super) fn begin_copies(&mut self, warp: &mut Warp, pc: usize, inst: &Inst, active: u32) -> Result<(), Stop> {
        let Op::CpAsync { to, from, bytes, source_bytes } = &inst.op else { return Ok(()) };
        let (to, from) = (warp.addresses(to), warp.addresses(from));
        let len = *bytes as usize;
        let access = self.access(Use::Read);
        let mut sources = 0;
        for lane in lanes(active) {
            let wanted = match source_bytes {
                Some(slot) => warp.registers.values[*slot as usize][lane] as u32 as usize,
                None => len,
            };
            let mut begin = || -> Result<PendingCopy, Wrong> {
                if wanted > len {
                    return Err((FaultKind::OutOfBounds, format!("`cp.async` of {len} bytes from {wanted} bytes")));
                }
                let offset = self.find_shared(to[lane], len)?;
                self.shared.begin_copy(offset, len, warp.accessor(lane), &warp.sync)?;
                let mut bytes = [0; 16];
                check_aligned(from[lane], len, || self.memory.describe(from[lane]))?;
                // Without source bytes nothing is read, and the address may be invalid.
                if wanted > 0 {
                    sources |= 1 << lane;
                    let (at, source) = self.memory.find_near(self.guesses[pc], from[lane], wanted)?;
                    self.guesses[pc] = at;
                    bytes[..wanted].copy_from_slice(self.memory.load(at, source, wanted, access)?);
                }
                let group = warp.committed[lane];
                Ok(PendingCopy { lane: lane as u32, group, to: offset, len, bytes })
            };
            let copy = begin().map_err(|wrong| (lane, wrong))?;
            warp.copies.push(copy);
        }
        if sources != 0 {
            let cache = &mut *self.cache;
            count_global(&mut self.counters.global_loads, &from, sources, len as u64, |line, sectors| {
                cache.access(line, sectors, false);
            });
        }
        count_shared(&mut self.counters.shared_stores, &to, active, len as u64);
        Ok(())
    }

    /// Completes copies until at most `pending` groups of each lane are left.
    pub(super) fn finish_copies(&mut self, warp: &mut Warp, active: u32, pending: Option<u32>) -> Result<(), Stop> {
        let is_over = |copy: &PendingCopy| {
            let lane = copy.lane as usize;
            let over = pending.is_none_or(|pending| copy.group.saturating_add(pending) < warp.committed[lane]);
            active >> lane & 1 == 1 && over
        };
        let (over, left): (Vec<_>, Vec<_>) = std::mem::take(&mut warp.copies).into_iter().partition(is_over);
        warp.copies = left;
        for copy in over {
            let lane = copy.lane as usize;
            let ended = self.shared.end_copy(copy.to, &copy.bytes[..copy.len], warp.accessor(lane), &warp.sync);
            ended.map_err(|wrong| (lane, wrong))?;
        }
        Ok(())
    }
}

/// The new value of an atomic operation.
fn combine(op: AtomicOp, ty: Type, old: u64, b: u64, c: u64) -> u64 {
    let (old, b, c) = (ty.extend(old), ty.extend(b), ty.extend(c));
    let signed = ty.is_signed();
    match op {
        AtomicOp::Add => match ty {
            // Global f32 atomic additions flush subnormals only on old architectures.
            Type::F32 => (f32::from_bits(old as u32) + f32::from_bits(b as u32)).to_bits().into(),
            Type::F64 => (f64::from_bits(old) + f64::from_bits(b)).to_bits(),
            _ => old.wrapping_add(b),
        },
        AtomicOp::Min if signed => (old as i64).min(b as i64) as u64,
        AtomicOp::Min => old.min(b),
        AtomicOp::Max if signed => (old as i64).max(b as i64) as u64,
        AtomicOp::Max => old.max(b),
        AtomicOp::Exch => b,
        AtomicOp::Cas => {
            if old == b {
                c
            } else {
                old
            }
        }
        AtomicOp::And => old & b,
        AtomicOp::Or => old | b,
        AtomicOp::Xor => old ^ b,
        AtomicOp::Inc => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        AtomicOp::Dec => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
    }
}
