//! Warp-level instructions: `.sync` instructions, executed together by the lanes of a mask.

use super::warp::{Next, Waiting, Warp};
use super::{Run, Stop};
use crate::counters::count_rows;
use crate::fault::FaultKind;
use crate::memory::get;
use crate::ops::{AtomicOp, Inst, Op, Shuffle, Vote};
use crate::registers::{LANES, Lanes, Slot, lanes};

impl Run<'_> {
    /// Lanes arrive at a `.sync` instruction, which executes when all lanes of its mask have arrived.
    pub(super) fn meet(
        &mut self,
        warp: &mut Warp,
        pc: usize,
        inst: &Inst,
        group: u32,
        active: u32,
    ) -> Result<Next, Stop> {
        let mask_slot: Option<Slot> = match &inst.op {
            Op::WarpSync { mask }
            | Op::Shfl { mask, .. }
            | Op::Vote { mask, .. }
            | Op::Match { mask, .. }
            | Op::Redux { mask, .. } => Some(*mask),
            // These involve the whole warp.
            _ => None,
        };
        let mut rest = active;
        let mut executed = 0;
        while rest != 0 {
            let first = rest.trailing_zeros() as usize;
            let mask_of =
                |lane: usize| mask_slot.map_or(u32::MAX, |slot| warp.registers.values[slot as usize][lane] as u32);
            let mask = mask_of(first);
            let class = lanes(rest).filter(|&lane| mask_of(lane) == mask).fold(0, |class, lane| class | 1 << lane);
            rest &= !class;
            let bad = |lane: u32, message: String| Err((lane as usize, (FaultKind::BadMask, message)));
            if class & !mask != 0 {
                let lane = (class & !mask).trailing_zeros();
                return bad(lane, format!("lane {lane} is not in its own mask {mask:#010x}"));
            }
            if mask & !warp.everyone != 0 {
                let threads = warp.everyone.count_ones();
                return bad(first as u32, format!("the mask {mask:#010x} names lanes of a warp of {threads} threads"));
            }
            if mask & !warp.live != 0 {
                let gone = mask & !warp.live;
                return bad(first as u32, format!("lanes {gone:#010x} of the mask {mask:#010x} have exited"));
            }
            let before = warp.waiting.iter().position(|waiting| waiting.pc == pc && waiting.mask == Some(mask));
            let here = class | before.map_or(0, |at| warp.waiting[at].lanes);
            if here == mask {
                if let Some(at) = before {
                    warp.waiting.swap_remove(at);
                }
                let everyone = warp.everyone;
                warp.sync.meet(mask, everyone);
                self.execute_together(warp, pc, inst, mask)?;
                executed |= mask;
            } else if let Some(at) = before {
                warp.waiting[at].lanes = here;
            } else {
                warp.waiting.push(Waiting { pc, lanes: class, mask: Some(mask) });
            }
        }
        if executed == group {
            return Ok(Next::On);
        }
        warp.make_ready(pc + 1, executed | group & !active);
        Ok(Next::Apart)
    }

    fn execute_together(&mut self, warp: &mut Warp, pc: usize, inst: &Inst, mask: u32) -> Result<(), Stop> {
        match &inst.op {
            Op::Shfl { mode, d, p, a, b, c, .. } => {
                let [a, b, c] = [a, b, c].map(|slot| warp.registers.values[*slot as usize]);
                let mut inside = 0;
                for lane in lanes(mask) {
                    let (source, in_range) = shuffle_source(*mode, lane as u32, b[lane] as u32, c[lane] as u32);
                    if mask >> source & 1 == 0 {
                        let message = format!("shuffles from lane {source}, which is not in the mask {mask:#010x}");
                        return Err((lane, (FaultKind::BadMask, message)));
                    }
                    inside |= u32::from(in_range) << lane;
                    warp.registers.values[*d as usize][lane] = a[source as usize] & 0xffff_ffff;
                }
                if let Some(p) = p {
                    warp.set_pred(*p, inside, mask);
                }
            }
            Op::Vote { mode, d, p, a, .. } => {
                let holds = warp.pred(*a) & mask;
                let result = match mode {
                    Vote::All => holds == mask,
                    Vote::Any => holds != 0,
                    Vote::Uni => holds == mask || holds == 0,
                    Vote::Ballot => false,
                };
                if let Some(d) = d {
                    lanes(mask).for_each(|lane| warp.registers.values[*d as usize][lane] = holds.into());
                }
                if let Some(p) = p {
                    warp.set_pred(*p, if result { u32::MAX } else { 0 }, mask);
                }
            }
            Op::Match { all, wide, d, p, a, .. } => {
                let keep = if *wide { u64::MAX } else { 0xffff_ffff };
                let values = warp.registers.values[*a as usize].map(|value| value & keep);
                let equal = |to: usize| {
                    lanes(mask).filter(|&lane| values[lane] == values[to]).fold(0u32, |equal, lane| equal | 1 << lane)
                };
                let agree = equal(mask.trailing_zeros() as usize) == mask;
                for lane in lanes(mask) {
                    let result = if !all {
                        equal(lane)
                    } else if agree {
                        mask
                    } else {
                        0
                    };
                    warp.registers.values[*d as usize][lane] = result.into();
                }
                if let Some(p) = p {
                    warp.set_pred(*p, if agree { u32::MAX } else { 0 }, mask);
                }
            }
            Op::Redux { op, signed, d, a, .. } => {
                let values = warp.registers.values[*a as usize];
                let result = lanes(mask).map(|lane| values[lane] as u32).reduce(|x, y| match (op, signed) {
                    (AtomicOp::Add, _) => x.wrapping_add(y),
                    (AtomicOp::Min, true) => (x as i32).min(y as i32) as u32,
                    (AtomicOp::Max, true) => (x as i32).max(y as i32) as u32,
                    (AtomicOp::Min, false) => x.min(y),
                    (AtomicOp::Max, false) => x.max(y),
                    (AtomicOp::And, _) => x & y,
                    (AtomicOp::Or, _) => x | y,
                    _ => x ^ y,
                });
                let result = result.unwrap_or(0);
                lanes(mask).for_each(|lane| warp.registers.values[*d as usize][lane] = result.into());
            }
            Op::Ldmatrix { .. } => self.ldmatrix(warp, pc, inst)?,
            Op::Mma(mma) => {
                let flops = 16 * 8 * mma.shape.k as u64 * 2;
                self.counters.flops += flops;
                self.counters.mma_flops += flops;
                super::mma::multiply(&mut warp.registers, mma);
            }
            _ => {}
        }
        Ok(())
    }

    /// PTX ISA, `ldmatrix`: lanes 8·i to 8·i+7 hold the addresses of the rows of matrix i, 8 elements of 16 bits each.
    /// A lane receives two adjacent elements of row lane/4, or of column lane/4 if transposed.
    fn ldmatrix(&mut self, warp: &mut Warp, _pc: usize, inst: &Inst) -> Result<(), Stop> {
        let Op::Ldmatrix { d, transposed, address } = &inst.op else { return Ok(()) };
        let addresses = warp.addresses(address);
        self.counters.shared_loads.requests += 1;
        for (matrix, d) in d.iter().enumerate() {
            let mut rows = [[0u64; 8]; 8];
            for (row, elems) in rows.iter_mut().enumerate() {
                let lane = 8 * matrix + row;
                let offset = addresses[lane];
                let at = self.find_shared(offset, 16).map_err(|wrong| (lane, wrong))?;
                let row = self.shared.load(at, 16, warp.accessor(lane), &warp.sync).map_err(|wrong| (lane, wrong))?;
                elems.iter_mut().zip(row.chunks_exact(2)).for_each(|(elem, bytes)| *elem = get(bytes));
            }
            let result: Lanes = std::array::from_fn(|lane| {
                let (at, first) = (lane / 4, 2 * (lane % 4));
                let elem = |i: usize| if *transposed { rows[first + i][at] } else { rows[at][first + i] };
                elem(1) << 16 | elem(0)
            });
            warp.registers.values[*d as usize] = result;
            count_rows(&mut self.counters.shared_loads, &addresses, 0xff << (8 * matrix));
        }
        Ok(())
    }
}

/// The source lane of a shuffle, and whether it is in range. PTX ISA, `shfl.sync`.
pub(crate) fn shuffle_source(mode: Shuffle, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (b, clamp, segment) = (b & 31, c & 31, c >> 8 & 31);
    let last = (lane & segment | clamp & !segment) & 31;
    let first = lane & segment;
    let (source, inside) = match mode {
        Shuffle::Up => (lane.wrapping_sub(b), lane as i32 - b as i32 >= last as i32),
        Shuffle::Down => (lane + b, lane + b <= last),
        Shuffle::Bfly => (lane ^ b, lane ^ b <= last),
        Shuffle::Idx => (first | b & !segment, (first | b & !segment) <= last),
    };
    if inside { (source % LANES as u32, true) } else { (lane, false) }
}
