//! Reductions over all rows or edges: each thread has its part until the kernel ends, then the block, then a kernel of
//! its own adds up the blocks, always in the same order.

use hgnnc_ir::Reduce;
use hgnnc_ir::width::Width;
use hgnnc_kernel_ir::kernel::{Buffer, Dest, Extents, Instr, KernelOp, Level, Operand, Traversal};

use super::{Emit, Held, Result, WARP_BITS};
use crate::Slot;
use crate::Total;
use crate::isa::{Reg, Val};

/// A thread's part of a total.
pub(super) struct Accumulator {
    index: usize,
    out: Buffer,
    reduce: Reduce,
    layout: usize,
    position: usize,
    regs: Vec<Option<Reg>>,
}

/// Most elements of an outer product that a lane adds up.
const MOST_OUTER: usize = 64;

/// Lanes of a team, as a power of two, that have room for the outer products that they add up.
pub(super) fn least_lanes(traversal: &Traversal) -> u32 {
    let outer = |instr: &Instr| match &instr.op {
        KernelOp::OuterAll(..) => instr.width.as_fixed(),
        _ => None,
    };
    let widest = traversal.instrs.iter().filter_map(outer).max().unwrap_or(0);
    widest.div_ceil(MOST_OUTER).next_power_of_two().trailing_zeros().min(WARP_BITS)
}

impl Emit<'_> {
    /// Takes what an instruction computes for this row or edge along in its total.
    pub(super) fn accumulate(&mut self, index: usize) -> Result<()> {
        let accumulator = match self.accumulators.iter().position(|known| known.index == index) {
            Some(known) => known,
            None => self.begin_total(index)?,
        };
        let (layout, position) = (self.accumulators[accumulator].layout, self.accumulators[accumulator].position);
        let instr = &self.traversal.instrs[index];
        let valid = match instr.level {
            Level::Edge => Some(self.edge.current.as_ref().expect("an edge is at hand").valid),
            // All teams of a row have the same.
            Level::Row => {
                let first = self.first_team();
                self.code.both(self.row.valid, first)
            }
        };
        let (values, reduce) = match &instr.op {
            KernelOp::ReduceAll(reduce, of) => (self.fetch(*of, layout, position)?, *reduce),
            KernelOp::OuterAll(of, x, y) => (self.outer(of, *x, *y, layout, position)?, Reduce::Sum),
            _ => unreachable!("no other operation is a total"),
        };
        for (slot, value) in values.into_iter().enumerate() {
            let (Some(sum), Some(value)) = (self.accumulators[accumulator].regs[slot], value) else { continue };
            let next = self.combine(reduce, sum.into(), value);
            match valid {
                None => self.code.assign(sum, next),
                Some(valid) => self.code.assign_if(valid, sum, next),
            }
        }
        Ok(())
    }

    /// Is this the first of the teams that share a row? `None`: there is one.
    fn first_team(&mut self) -> Option<Reg> {
        let (thread, shape) = (self.thread, self.shape);
        let mask = ((1u32 << shape.teams) - 1) << shape.lanes;
        (shape.teams > 0).then(|| {
            self.code.first(|code| {
                let team = code.and(thread, mask);
                code.eq(team, 0)
            })
        })
    }

    /// Begins all totals, those that other bodies of the kernel contribute to, too: each has the same number in all.
    pub(super) fn begin_totals(&mut self) -> Result<()> {
        let traversal = self.traversal;
        let totals = traversal.instrs.iter().enumerate().filter(|(_, instr)| instr.op.is_total());
        totals.map(|(index, _)| index).try_for_each(|index| self.begin_total(index).map(|_| ()))
    }

    fn begin_total(&mut self, index: usize) -> Result<usize> {
        let instr = &self.traversal.instrs[index];
        let Dest::Buffer(out) = instr.dest else { return self.unsupported("a total that is not stored") };
        let Some(width) = instr.width.as_fixed() else {
            return self.unsupported("a total whose length depends on the dataset");
        };
        let reduce = match instr.op {
            KernelOp::ReduceAll(reduce, _) => reduce,
            _ => Reduce::Sum,
        };
        let (layout, positions) = self.layout(&[width]).expect("one width makes a chain");
        let slots = self.layouts[layout].slots(positions[0]);
        if matches!(instr.op, KernelOp::OuterAll(..)) && slots.len() > MOST_OUTER {
            return self.unsupported(format!("a sum of outer products of {width} elements within a traversal"));
        }
        let start = Val::Imm(reduce.identity() as f32);
        let regs = slots.iter().map(|slot| slot.as_ref().map(|_| self.code.first(|code| code.mov_f32(start))));
        let regs = regs.collect();
        self.accumulators.push(Accumulator { index, out, reduce, layout, position: positions[0], regs });
        Ok(self.accumulators.len() - 1)
    }

    /// The outer product of two rows.
    fn outer(
        &mut self,
        of: &Extents,
        x: Operand,
        y: Operand,
        layout: usize,
        position: usize,
    ) -> Result<Vec<Option<Val>>> {
        let (Some(k), Some(n)) = (of.k.as_fixed(), of.n.as_fixed()) else {
            return self.unsupported("an outer product whose extents depend on the dataset");
        };
        let width = self.layouts[layout].chain.width(position);
        let mut values = vec![];
        for slot in self.layouts[layout].slots(position) {
            let Some(slot) = slot else {
                values.push(None);
                continue;
            };
            let element = self.element(layout, position, slot.offset);
            let element = self.code.min(element, width - 1);
            let from_x = self.code.div(element, n);
            let batch = self.code.div(from_x, k);
            let within = self.code.rem(element, n);
            let from_y = self.code.mad(batch, n, within);
            let (x, y) = (self.gather(x, from_x, None)?, self.gather(y, from_y, None)?);
            values.push(Some(self.code.mul_f32(x, y).into()));
        }
        Ok(values)
    }

    /// Writes the parts of this block, or where there is one block only, the totals.
    pub(super) fn write_totals(&mut self, once: bool) -> Result<Vec<Total>> {
        let mut totals = vec![];
        // Teams of a warp, and the warps of the block, if their rows are different ones.
        let bits: Vec<u32> = (self.shape.lanes..self.shape.block).collect();
        for accumulator in std::mem::take(&mut self.accumulators) {
            let Accumulator { out, reduce, layout, position, regs, .. } = accumulator;
            self.code.comment(format!("total {}", self.program.buffer(out).name));
            let width = self.layouts[layout].chain.width(position);
            let combined: Vec<Option<Val>> =
                regs.into_iter().map(|reg| reg.map(|reg| self.across(reduce, reg.into(), &bits))).collect();
            let held = Held { layout, position, regs: combined };
            let first = self.first_of_block();
            if once {
                let row = self.code.mov(0);
                self.store(out, row, &held, first);
            } else {
                let slot = Slot::Partials(self.kernel, totals.len());
                self.store_part(slot, &held, width, first);
                totals.push(Total { out, reduce, width: Width::fixed(width), members: None });
            }
        }
        Ok(totals)
    }

    /// Is this thread of the first team of the block?
    fn first_of_block(&mut self) -> Option<Reg> {
        let (thread, shape) = (self.thread, self.shape);
        (shape.block > shape.lanes).then(|| self.code.first(|code| code.lt(thread, 1u32 << shape.lanes)))
    }

    /// Stores a value as the part of this block.
    fn store_part(&mut self, slot: Slot, held: &Held, width: usize, valid: Option<Reg>) {
        let base = self.entry(slot);
        let Held { layout, position, .. } = *held;
        let own = self.stores(layout, position, false);
        let valid = self.code.both(valid, own);
        let part = self.part_number();
        let mut at = self.code.mad_wide(part, 4 * width, base);
        if let Some(lane) = self.lane_element(layout, position) {
            at = self.code.mad_wide(lane, 4, at);
        }
        self.store_slots(at, held, valid);
        debug_assert!(self.shape.lanes <= WARP_BITS, "rows of whole blocks have no parts");
    }
}
