//! Rows with more elements than the registers of a team hold: a block for each row, and a loop over
//! the elements for each instruction.
//!
//! The result of an instruction lies in memory that each block has for the row at hand, so the text has the same length
//! for every width. An element-wise instruction whose value is read once, element by element, is computed within the
//! loop of its reader and needs no memory. Edges are taken one after another, and their reductions are in that memory,
//! too; sums over all rows are added up in the part of the block.
//!
//! Element `i` belongs to thread `i mod 256` in every loop. Threads wait for each other after each instruction, since
//! readers of another width look elements of other threads up.
//!
//! An element-wise instruction takes a few operations and at most 4 bytes for each element that it reads or writes, in
//! a memory of 512 MiB at most for the rows that are at hand: wide rows are bound by memory, and slower than those in
//! registers, whose intermediate values need none.

mod edges;
mod elements;
mod reductions;

use std::collections::HashMap;

use hgnnc_ir::Reduce;
use hgnnc_kernel_ir::kernel::{Buffer, Dest, Extent, Instr, KernelOp, Operand, Rows};
use hgnnc_kernel_ir::loops::passes::Pass;

use self::edges::is_rounded;
use super::{BLOCK_BITS, Emit, Phase, Result, Setup, Shape};
use crate::Slot;
use crate::isa::{self, Body, Reg, Regions, StateSpace, Val};
use crate::table::Table;
use crate::{Blocks, KernelInfo, THREADS};

/// Elements of a row at most: positions in a row, and the bytes of a row, have 32 bits.
pub(super) const MOST_ELEMENTS: usize = 1 << 24;
/// Blocks at most: as many as fill the largest devices several times.
const MOST_BLOCKS: usize = 528;
/// Elements of the memory of all blocks together, above which there are fewer blocks: 512 MiB.
const MOST_MEMORY: usize = 1 << 27;
/// Values begin at multiples of so many elements: where a sector of memory begins.
const ALIGN: usize = 8;
/// Edges whose sum is added up by itself before it is added to that of the row, so that roundings
/// of long rows stay small.
const EDGES_AT_ONCE: usize = 128;
/// Instructions that are computed within the loop of another one, within each other, at most: writing them recurses.
const MOST_NESTED: usize = 24;

/// Writes the kernel of a traversal whose rows do not fit in registers.
pub(super) fn emit(setup: &Setup<'_>, table: &mut Table) -> Result<(Body, KernelInfo)> {
    let shape = Shape { lanes: BLOCK_BITS, teams: 0, unroll: 1, block: BLOCK_BITS };
    // Addresses that are first needed within a loop hold behind it, too.
    let setup = Setup { hoists: true, cut: None, ..*setup };
    let emit = Emit::new(&setup, table, None, shape, (setup.kernel, Phase::Rows));
    Wide::new(emit)?.kernel()
}

struct Wide<'a> {
    emit: Emit<'a>,
    /// Is an instruction computed within the loop of its only reader?
    nested: Vec<bool>,
    /// Offsets of instructions' results in the memory of the block, and the elements of all together.
    places: HashMap<usize, usize>,
    elements: usize,
    /// Registers with the addresses of results, by instruction.
    addresses: HashMap<usize, Reg>,
    /// Results to be stored at the end of the row or edge, since their memory is read before.
    late: Vec<usize>,
}

impl<'a> Wide<'a> {
    fn new(emit: Emit<'a>) -> Result<Self> {
        let none = vec![false; emit.traversal.instrs.len()];
        let mut wide =
            Self { emit, nested: none, places: HashMap::new(), elements: 0, addresses: HashMap::new(), late: vec![] };
        let readers = wide.readers();
        let mut depths = vec![0; readers.len()];
        for (index, readers) in readers.iter().enumerate() {
            wide.nested[index] =
                readers.len() == 1 && wide.can_be_nested(index, readers[0]) && depths[index] < MOST_NESTED;
            if wide.nested[index] {
                let reader = readers[0].0;
                depths[reader] = depths[reader].max(depths[index] + 1);
            }
        }
        for (index, readers) in readers.iter().enumerate() {
            let instr = wide.instr(index);
            let kept = !readers.is_empty() || instr.op.reduces_edges() || wide.is_late(index);
            let total = instr.op.is_total() && wide.emit.traversal.rows == Rows::Once;
            if total || kept && !wide.nested[index] {
                let width = wide.width(index)?;
                let more = match &instr.op {
                    // The weights and scales of an edge.
                    KernelOp::SoftmaxSum { score, .. } => 2 * wide.emit.width_of(*score)?,
                    _ => 0,
                };
                let states = if is_rounded(&instr.op) { 2 } else { 1 };
                wide.places.insert(index, wide.elements);
                wide.elements += (states * width + more).next_multiple_of(ALIGN);
            }
        }
        Ok(wide)
    }

    fn instr(&self, index: usize) -> &'a Instr {
        &self.emit.traversal.instrs[index]
    }

    fn width(&self, index: usize) -> Result<usize> {
        match self.instr(index).width.as_fixed() {
            Some(width) => Ok(width),
            None => self.emit.unsupported("a result whose length depends on the dataset"),
        }
    }

    /// The instruction before a reader that makes what it reads of this row or edge.
    fn producer(&self, reader: usize, operand: Operand) -> Option<usize> {
        self.emit.own_producer(operand).filter(|&maker| maker < reader)
    }

    /// For each instruction, those that read its value and the position among their operands.
    fn readers(&self) -> Vec<Vec<(usize, usize)>> {
        let instrs = &self.emit.traversal.instrs;
        let mut readers = vec![vec![]; instrs.len()];
        for (reader, instr) in instrs.iter().enumerate() {
            for (position, operand) in instr.op.operands().into_iter().enumerate() {
                if let Some(maker) = self.producer(reader, operand) {
                    readers[maker].push((reader, position));
                }
            }
        }
        readers
    }

    /// Does the only reader take each element at most once, at the same row or edge?
    fn can_be_nested(&self, index: usize, (reader, position): (usize, usize)) -> bool {
        let (own, reader) = (self.instr(index), self.instr(reader));
        let is_map = own.op.is_element_wise()
            || matches!(
                own.op,
                KernelOp::ScatterRows(..)
                    | KernelOp::ScatterAdd(_)
                    | KernelOp::Concat { .. }
                    | KernelOp::Slice { .. }
                    | KernelOp::Transpose { .. }
                    | KernelOp::OneHot(_)
                    | KernelOp::Mask { .. }
            );
        let once = match &reader.op {
            op if op.is_element_wise() => own.width == reader.width,
            KernelOp::Slice { .. }
            | KernelOp::Transpose { .. }
            | KernelOp::ReduceTrailing(..)
            | KernelOp::Dot(..)
            | KernelOp::Segment(..)
            | KernelOp::ReduceAll(..) => true,
            KernelOp::WeightedSum { .. } => position == 1,
            _ => false,
        };
        is_map && once && matches!(own.dest, Dest::Local(_)) && own.level == reader.level
    }

    /// Is a result stored only when its row or edge is complete, since its place is read?
    fn is_late(&self, index: usize) -> bool {
        match self.instr(index).dest {
            Dest::Buffer(buffer) if !self.instr(index).op.is_total() => self.emit.place_is_read(buffer),
            Dest::Buffer(_) | Dest::Local(_) => false,
        }
    }

    fn kernel(mut self) -> Result<(Body, KernelInfo)> {
        let rounds = self.emit.def_use.passes();
        self.emit.begin();
        let once = self.emit.traversal.rows == Rows::Once;
        let totals = self.begin_totals()?;
        let (next, done) = (self.emit.code.label(), self.emit.code.label());
        let row = self.emit.row.number;
        if once {
            self.emit.code.assign(row, 0);
        } else {
            let rows = self.emit.entry32(Slot::Rows(self.emit.traversal.rows.clone()));
            self.emit.code.assign(row, Reg::BLOCK);
            self.emit.code.place(next);
            let end = self.emit.code.ge(row, rows);
            self.emit.code.jump_if(end, done);
        }
        self.emit.vertex_of_row();
        for (number, Pass { rows, edges }) in rounds.iter().enumerate() {
            for &index in rows {
                self.write(index)?;
            }
            if !edges.is_empty() {
                self.edge_pass(number, edges)?;
            }
        }
        self.store_late()?;
        if !once {
            let blocks = self.emit.entry32(Slot::Blocks(self.emit.number));
            self.emit.code.increase(row, blocks);
            self.emit.code.jump(next);
            self.emit.code.place(done);
        }
        if once {
            for index in self.totals() {
                let Dest::Buffer(out) = self.instr(index).dest else { continue };
                let to = self.emit.entry(Slot::Buffer(out));
                self.copy(index, to)?;
            }
        }
        let memory = self.elements + totals.iter().filter_map(|total| total.width.as_fixed()).sum::<usize>();
        let blocks = match once {
            true => Blocks::One,
            false => Blocks::Rows {
                rows: self.emit.traversal.rows.clone(),
                per_block: 1,
                most: (MOST_MEMORY / memory.max(1)).clamp(1, MOST_BLOCKS),
            },
        };
        let Emit { code, number, memory, .. } = self.emit;
        let shared = if memory.exchange { 4 * THREADS } else { 0 };
        Ok((code.finish(&Regions::default()), KernelInfo { number, blocks, shared, row_memory: self.elements, totals }))
    }

    /// Waits for all threads of the block.
    fn wait(&mut self) {
        self.emit.code.block_sync();
    }

    /// A loop in which each thread has every 256th of so many elements.
    fn each_element(
        &mut self,
        count: impl Into<isa::Operand>,
        body: impl FnOnce(&mut Self, Reg) -> Result<()>,
    ) -> Result<()> {
        let thread = self.emit.thread;
        let at = self.emit.code.mov(thread);
        self.repeat((at, THREADS), count, body)
    }

    /// A loop that counts on in a register, in steps.
    fn repeat(
        &mut self,
        (at, step): (Reg, usize),
        end: impl Into<isa::Operand>,
        body: impl FnOnce(&mut Self, Reg) -> Result<()>,
    ) -> Result<()> {
        let (again, done) = (self.emit.code.label(), self.emit.code.label());
        self.emit.code.place(again);
        let ended = self.emit.code.ge(at, end);
        self.emit.code.jump_if(ended, done);
        body(self, at)?;
        self.emit.code.increase(at, step);
        self.emit.code.jump(again);
        self.emit.code.place(done);
        Ok(())
    }

    /// The address of what the block keeps of an instruction.
    fn address(&mut self, index: usize) -> Reg {
        if let Some(&known) = self.addresses.get(&index) {
            return known;
        }
        let (place, elements) = (self.places[&index], self.elements);
        let base = self.emit.entry(Slot::RowMemory(self.emit.number));
        let address = self.emit.code.first(|code| {
            let own = code.mad_wide(Reg::BLOCK, 4 * elements, base);
            code.add64(own, 4 * place)
        });
        self.addresses.insert(index, address);
        address
    }

    /// The rows of memory that the value of an instruction goes to now.
    fn targets(&mut self, index: usize) -> Result<Vec<Reg>> {
        let mut targets = vec![];
        if self.places.contains_key(&index) {
            targets.push(self.address(index));
        }
        match self.instr(index).dest {
            Dest::Buffer(_) if self.is_late(index) => self.late.push(index),
            Dest::Buffer(buffer) => targets.push(self.stored_at(index, buffer)?),
            Dest::Local(_) => {}
        }
        Ok(targets)
    }

    /// The address of the row of a buffer that an instruction makes.
    fn stored_at(&mut self, index: usize, buffer: Buffer) -> Result<Reg> {
        let bytes = 4 * self.width(index)?;
        let row = match self.instr(index).extent() {
            Extent::Edge => self.emit.position()?,
            Extent::Row | Extent::Total => self.emit.row.number,
        };
        let base = self.emit.entry(Slot::Buffer(buffer));
        Ok(self.emit.code.mad_wide(row, bytes, base))
    }

    /// Stores what had to wait.
    fn store_late(&mut self) -> Result<()> {
        for index in std::mem::take(&mut self.late) {
            let Dest::Buffer(buffer) = self.instr(index).dest else { continue };
            let to = self.stored_at(index, buffer)?;
            self.copy(index, to)?;
        }
        Ok(())
    }

    /// Copies what the block keeps of an instruction.
    fn copy(&mut self, index: usize, to: Reg) -> Result<()> {
        let (width, from) = (self.width(index)?, self.address(index));
        self.each_element(width, |wide, at| {
            let value = wide.load(StateSpace::Global, from, Some(at), None);
            wide.store(&[to], Some(at), value, None);
            Ok(())
        })?;
        self.wait();
        Ok(())
    }

    fn element_address(&mut self, row: Reg, at: Option<Reg>) -> Reg {
        at.map_or(row, |at| self.emit.code.mad_wide(at, 4, row))
    }

    /// An element of a row of memory, the first one without a position; 0 where the row does not exist.
    fn load(&mut self, space: StateSpace, row: Reg, at: Option<Reg>, exists: Option<Reg>) -> Val {
        let address = self.element_address(row, at);
        self.emit.code.load_if(exists, space, address).into()
    }

    fn store(&mut self, rows: &[Reg], at: Option<Reg>, value: Val, guard: Option<Reg>) {
        let value = self.emit.reg(value);
        for &row in rows {
            let address = self.element_address(row, at);
            self.emit.code.store(guard, StateSpace::Global, address, value);
        }
    }

    /// Writes an instruction of the row or of the edge at hand.
    fn write(&mut self, index: usize) -> Result<()> {
        if self.nested[index] {
            return Ok(());
        }
        self.emit.comment(index);
        match &self.instr(index).op {
            op if op.is_total() => self.add_to_total(index)?,
            op if op.reduces_edges() => self.add_edge(index)?,
            KernelOp::ReduceTrailing(reduce, a) => self.groups(index, *reduce, &[*a])?,
            KernelOp::Dot(a, b) => self.groups(index, Reduce::Sum, &[*a, *b])?,
            _ => {
                let map = self.prepare(index)?;
                let targets = self.targets(index)?;
                self.each_element(map.width, |wide, at| {
                    let value = wide.compute(&map, at)?;
                    wide.store(&targets, Some(at), value, None);
                    Ok(())
                })?;
            }
        }
        self.wait();
        Ok(())
    }
}
