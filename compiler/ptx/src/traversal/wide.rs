//! Rows with more elements than the registers of a team hold: a block for each row, and a loop over the elements for each
//! instruction.
//!
//! What an instruction computes lies in memory that each block has for the row at hand, so the text has the same length for
//! every width. An element-wise instruction whose value is read once, element by element, is computed within the loop of
//! its reader and needs no memory. Edges are taken one after another, and their reductions are in that memory, too; sums over all
//! rows are added up in the part of the block.
//!
//! Element `i` belongs to thread `i mod 256` in every loop. Threads wait for each other after each instruction, since readers of
//! another width look elements of other threads up.
//!
//! An element-wise instruction takes a few operations and at most 4 bytes for each element that it reads or writes, in a
//! memory of 512 MiB at most for the rows that are at hand: wide rows are bound by memory, and slower than those in registers, whose
//! intermediate values need none.

use std::collections::HashMap;
use std::fmt::Display;

use hgnnc_ir::kernel::{Buffer, Dest, Extent, Extents, Instr, KernelOp, Operand, Rows, Source, Width};
use hgnnc_ir::{BinaryOp, Extreme, Reduce};

use super::{BLOCK_BITS, BLOCK_SYNC, Emit, Phase, Result, Round, Setup, Shape};
use crate::code::{Class, Reg, Val};
use crate::table::{Slot, Table};
use crate::{Blocks, KernelInfo, THREADS, Total, math};

/// Elements of a row at most: positions in a row, and the bytes of a row, have 32 bits.
pub(super) const MOST_ELEMENTS: usize = 1 << 24;
/// Blocks at most: as many as fill the largest devices several times.
const MOST_BLOCKS: usize = 528;
/// Elements of the memory of all blocks together, above which there are fewer blocks: 512 MiB.
const MOST_MEMORY: usize = 1 << 27;
/// Values begin at multiples of so many elements: where a sector of memory begins.
const ALIGN: usize = 8;
/// Edges whose sum is added up by itself before it is added to that of the row, so that roundings of long rows stay small.
const EDGES_AT_ONCE: usize = 128;
/// Instructions that are computed within the loop of another one, within each other, at most: writing them recurses.
const MOST_NESTED: usize = 24;

/// Writes the kernel.
pub(super) fn emit(setup: &Setup<'_>, table: &mut Table) -> Result<(String, KernelInfo)> {
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
    /// Where the values of instructions begin in the memory of the block, and the elements of all.
    places: HashMap<usize, usize>,
    elements: usize,
    /// Addresses of places.
    addresses: HashMap<usize, Reg>,
    /// What is stored at the end of the row or edge, since its place is read before.
    late: Vec<usize>,
}

/// Does a reduction over edges round, so that the order of many edges matters?
fn is_rounded(op: &KernelOp) -> bool {
    match op {
        KernelOp::Segment(reduce, _) => matches!(reduce, Reduce::Sum | Reduce::Lse),
        KernelOp::WeightedSum { .. } | KernelOp::SoftmaxSum { .. } => true,
        _ => false,
    }
}

/// Where the elements of an operand come from.
enum From<'a> {
    /// All are the same.
    Number(Val),
    /// A row of memory; where it may not exist, whether it does.
    Row { space: &'static str, address: Reg, exists: Option<Reg> },
    /// They are computed.
    Nested(Box<Map<'a>>),
}

/// An operand whose addresses are known.
struct Elements<'a> {
    from: From<'a>,
    width: usize,
}

/// An instruction that is computed element by element, ready to be written in a loop.
struct Map<'a> {
    op: &'a KernelOp,
    width: usize,
    operands: Vec<Elements<'a>>,
    /// Is the vertex of the row an end, for each operand that has rows of ends?
    ends: Vec<Option<Reg>>,
    /// Of a mask, the key and the position of the first element.
    mask: Option<(Reg, Reg)>,
    /// The class of the row.
    class: Option<Reg>,
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
    fn maker(&self, reader: usize, operand: Operand) -> Option<usize> {
        self.emit.own_maker(operand).filter(|&maker| maker < reader)
    }

    /// For each instruction, those that read its value and the position among their operands.
    fn readers(&self) -> Vec<Vec<(usize, usize)>> {
        let instrs = &self.emit.traversal.instrs;
        let mut readers = vec![vec![]; instrs.len()];
        for (reader, instr) in instrs.iter().enumerate() {
            for (position, operand) in instr.op.operands().into_iter().enumerate() {
                if let Some(maker) = self.maker(reader, operand) {
                    readers[maker].push((reader, position));
                }
            }
        }
        readers
    }

    /// Does the only reader take each element at most once, at the same row or edge?
    fn can_be_nested(&self, index: usize, (reader, position): (usize, usize)) -> bool {
        let (own, reader) = (self.instr(index), self.instr(reader));
        let is_map = matches!(
            own.op,
            KernelOp::Unary(..)
                | KernelOp::Binary(..)
                | KernelOp::Copy(_)
                | KernelOp::Replace(..)
                | KernelOp::AddEnds(_)
                | KernelOp::Concat { .. }
                | KernelOp::Slice { .. }
                | KernelOp::OneHot(_)
                | KernelOp::Mask { .. }
        );
        let once = match &reader.op {
            KernelOp::Unary(..) | KernelOp::Binary(..) | KernelOp::Copy(_) => own.width == reader.width,
            KernelOp::Slice { .. }
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

    fn kernel(mut self) -> Result<(String, KernelInfo)> {
        let rounds = self.emit.rounds();
        self.emit.begin();
        let once = self.emit.traversal.rows == Rows::Once;
        let totals = self.begin_totals()?;
        let (next, done) = (self.emit.code.label(), self.emit.code.label());
        let row = self.emit.row;
        if once {
            self.emit.code.set(row, "mov.u32", &[&0]);
        } else {
            let rows = self.emit.entry32(Slot::Rows(self.emit.traversal.rows.clone()));
            self.emit.code.set(row, "mov.u32", &[&"%block"]);
            self.emit.code.place(next);
            let end = self.emit.code.p("setp.ge.u32", &[&row, &rows]);
            self.emit.code.jump_if(end, done);
        }
        self.emit.vertex_of_row();
        for (number, Round { rows, edges }) in rounds.iter().enumerate() {
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
            self.emit.code.set(row, "add.u32", &[&row, &blocks]);
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
        let Emit { code, number, exchange, .. } = self.emit;
        let shared = if exchange { 4 * THREADS } else { 0 };
        let text = code.finish().replace("EXCHANGE", "0");
        Ok((text, KernelInfo { number, blocks, shared, row_memory: self.elements, totals }))
    }

    /// Waits for all threads of the block.
    fn wait(&mut self) {
        self.emit.code.line(BLOCK_SYNC);
    }

    /// A loop in which each thread has every 256th of so many elements.
    fn each_element(&mut self, count: &dyn Display, body: impl FnOnce(&mut Self, Reg) -> Result<()>) -> Result<()> {
        let thread = self.emit.thread;
        let at = self.emit.code.u("mov.u32", &[&thread]);
        self.repeat((at, THREADS), count, body)
    }

    /// A loop that counts on in a register, in steps.
    fn repeat(
        &mut self,
        (at, step): (Reg, usize),
        end: &dyn Display,
        body: impl FnOnce(&mut Self, Reg) -> Result<()>,
    ) -> Result<()> {
        let (again, done) = (self.emit.code.label(), self.emit.code.label());
        self.emit.code.place(again);
        let ended = self.emit.code.p("setp.ge.u32", &[&at, end]);
        self.emit.code.jump_if(ended, done);
        body(self, at)?;
        self.emit.code.set(at, "add.u32", &[&at, &step]);
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
            let own = code.d("mad.wide.u32", &[&"%block", &(4 * elements), &base]);
            code.d("add.u64", &[&own, &(4 * place)])
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
            Extent::Row | Extent::Total => self.emit.row,
        };
        let base = self.emit.entry(Slot::Buffer(buffer));
        Ok(self.emit.code.d("mad.wide.u32", &[&row, &bytes, &base]))
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
        self.each_element(&width, |wide, at| {
            let value = wide.load("global", from, Some(at), None);
            wide.store(&[to], Some(at), value, None);
            Ok(())
        })?;
        self.wait();
        Ok(())
    }

    fn element_address(&mut self, row: Reg, at: Option<Reg>) -> Reg {
        at.map_or(row, |at| self.emit.code.d("mad.wide.u32", &[&at, &4, &row]))
    }

    /// An element of a row of memory, the first one without a position; 0 where the row does not exist.
    fn load(&mut self, space: &str, row: Reg, at: Option<Reg>, exists: Option<Reg>) -> Val {
        let address = self.element_address(row, at);
        let code = &mut self.emit.code;
        let value = code.fresh(Class::F32);
        let (op, from) = (format!("ld.{space}.f32"), format!("[{address}]"));
        match exists {
            None => code.set(value, &op, &[&from]),
            Some(exists) => {
                code.set(value, "mov.f32", &[&Val::ZERO]);
                code.set_if(exists, value, &op, &[&from]);
            }
        }
        value.into()
    }

    fn store(&mut self, rows: &[Reg], at: Option<Reg>, value: Val, guard: Option<Reg>) {
        let value = self.emit.reg(value);
        let guard = guard.map(|guard| format!("@{guard} ")).unwrap_or_default();
        for &row in rows {
            let address = self.element_address(row, at);
            self.emit.code.line(format_args!("{guard}st.global.f32 [{address}], {value};"));
        }
    }

    /// Finds the elements of an operand.
    fn locate(&mut self, reader: usize, operand: Operand) -> Result<Elements<'a>> {
        let number = |from| Ok(Elements { from, width: 1 });
        match operand.source {
            Source::Const(known) => return number(From::Number(Val::Imm(known as f32))),
            Source::Count(space) => {
                let offset = self.emit.table.offset(Slot::CountF32(space));
                let count = self.emit.scoped(|code| code.f("ld.const.f32", &[&format_args!("[table+{offset}]")]));
                return number(From::Number(count.into()));
            }
            Source::Local(_) | Source::Buffer(_) => {}
        }
        let width = self.emit.width_of(operand)?;
        let from = match self.maker(reader, operand) {
            Some(maker) if self.nested[maker] => From::Nested(Box::new(self.prepare(maker)?)),
            Some(maker) => From::Row { space: "global", address: self.address(maker), exists: None },
            None => {
                let (space, address) = self.emit.stored_row(operand)?;
                From::Row { space, address, exists: self.emit.has_stored_row(operand) }
            }
        };
        Ok(Elements { from, width })
    }

    /// Finds all that an element-wise instruction reads.
    fn prepare(&mut self, index: usize) -> Result<Map<'a>> {
        let (op, width) = (&self.instr(index).op, self.width(index)?);
        let mut map = Map { op, width, operands: vec![], ends: vec![], mask: None, class: None };
        let with_ends = match op {
            KernelOp::Replace(..) | KernelOp::AddEnds(_) => 1,
            _ => usize::MAX,
        };
        match op {
            KernelOp::OneHot(label) => map.class = Some(self.emit.class_of_row(*label)?),
            KernelOp::Mask { stream, .. } => map.mask = Some(self.emit.mask_start(*stream, width)?),
            _ => {
                for (position, operand) in op.operands().into_iter().enumerate() {
                    map.operands.push(self.locate(index, operand)?);
                    let is_end = if position >= with_ends { Some(self.emit.is_end(operand)?) } else { None };
                    map.ends.push(is_end);
                }
            }
        }
        Ok(map)
    }

    /// An element of an operand.
    fn element(&mut self, of: &Elements<'a>, at: Option<Reg>) -> Result<Val> {
        match &of.from {
            From::Number(number) => Ok(*number),
            From::Row { space, address, exists } => Ok(self.load(space, *address, at, *exists)),
            From::Nested(map) => {
                let at = at.unwrap_or_else(|| self.emit.code.u("mov.u32", &[&0]));
                self.compute(map, at)
            }
        }
    }

    /// The element of an operand that belongs to one of a value of `width`: each of a narrower operand to several.
    fn spread(&mut self, of: &Elements<'a>, width: usize, at: Reg) -> Result<Val> {
        let at = match of.width {
            1 => None,
            own if own == width => Some(at),
            own => Some(self.emit.code.u("div.u32", &[&at, &(width / own)])),
        };
        self.element(of, at)
    }

    /// An element of the result of an element-wise instruction.
    fn compute(&mut self, map: &Map<'a>, at: Reg) -> Result<Val> {
        let (width, operands) = (map.width, &map.operands);
        Ok(match map.op {
            KernelOp::Unary(f, _) => {
                let x = self.spread(&operands[0], width, at)?;
                math::unary(&mut self.emit.code, *f, x)
            }
            KernelOp::Binary(f, ..) => {
                let (x, y) = (self.spread(&operands[0], width, at)?, self.spread(&operands[1], width, at)?);
                math::binary(&mut self.emit.code, *f, x, y)
            }
            KernelOp::Copy(_) => self.spread(&operands[0], width, at)?,
            KernelOp::Replace(..) => {
                let (old, new) = (self.spread(&operands[0], width, at)?, self.spread(&operands[1], width, at)?);
                let is_end = map.ends[1].expect("rows of ends");
                self.emit.code.f("selp.f32", &[&new, &old, &is_end]).into()
            }
            KernelOp::AddEnds(_) => {
                let base = self.spread(&operands[0], width, at)?;
                let sum = self.emit.code.f("mov.f32", &[&base]);
                for (part, is_end) in operands.iter().zip(&map.ends).skip(1) {
                    let x = self.spread(part, width, at)?;
                    self.emit.code.set_if(is_end.expect("rows of ends"), sum, "add.rn.f32", &[&sum, &x]);
                }
                sum.into()
            }
            KernelOp::Concat { lead, .. } => {
                let Some(lead) = lead.as_fixed() else {
                    return self.emit.unsupported("parts whose number depends on the dataset");
                };
                self.joined(operands, (lead, width / lead), at)?
            }
            KernelOp::Slice { last, start, len, .. } => {
                let code = &mut self.emit.code;
                let within = code.u("rem.u32", &[&at, len]);
                let outer = code.u("div.u32", &[&at, len]);
                let within = code.u("add.u32", &[&within, start]);
                let from = code.u("mad.lo.u32", &[&outer, last, &within]);
                self.element(&operands[0], Some(from))?
            }
            KernelOp::OneHot(_) => {
                let here = self.emit.code.p("setp.eq.u32", &[&at, &map.class.expect("a class")]);
                self.emit.code.f("selp.f32", &[&Val::Imm(1.0), &Val::ZERO, &here]).into()
            }
            KernelOp::Mask { rate, .. } => {
                let (key, first) = map.mask.expect("a key");
                let wide = self.emit.code.d("cvt.u64.u32", &[&at]);
                let position = self.emit.code.d("add.u64", &[&first, &wide]);
                math::mask(&mut self.emit.code, key, position, *rate)
            }
            KernelOp::MatMul(of, ..) => self.product(of, operands, at, false)?,
            KernelOp::MatMulT(of, ..) => self.product(of, operands, at, true)?,
            _ => unreachable!("reductions have loops of their own"),
        })
    }

    /// An element of what stands one after another in each of `lead` groups of `last` elements.
    fn joined(&mut self, parts: &[Elements<'a>], (lead, last): (usize, usize), at: Reg) -> Result<Val> {
        let outer = self.emit.code.u("div.u32", &[&at, &last]);
        let at = self.emit.code.u("rem.u32", &[&at, &last]);
        let (mut result, mut start) = (None, 0);
        for part in parts {
            let len = part.width / lead;
            // Elements of other parts read the first or last of this one.
            let within = self.emit.code.u("sub.s32", &[&at, &start]);
            let within = self.emit.code.u("max.s32", &[&within, &0]);
            let within = self.emit.code.u("min.s32", &[&within, &(len - 1)]);
            let from = self.emit.code.u("mad.lo.u32", &[&outer, &len, &within]);
            let value = self.element(part, Some(from))?;
            result = Some(match result {
                None => value,
                Some(before) => {
                    let here = self.emit.code.p("setp.ge.u32", &[&at, &start]);
                    self.emit.code.f("selp.f32", &[&value, &before, &here]).into()
                }
            });
            start += len;
        }
        Ok(result.unwrap_or(Val::ZERO))
    }

    /// An element of `x · w`, or of `y · wᵀ` if `transposed`.
    fn product(&mut self, of: &Extents, operands: &[Elements<'a>], at: Reg, transposed: bool) -> Result<Val> {
        let (Some(k), Some(n)) = (of.k.as_fixed(), of.n.as_fixed()) else {
            return self.emit.unsupported("a product whose extents depend on the dataset");
        };
        // Element `at` is of a matrix of the batch; there it is a column of `w`, or a row.
        let (inner, outer) = if transposed { (n, k) } else { (k, n) };
        let batch = self.emit.code.u("div.u32", &[&at, &outer]);
        let first_x = self.emit.code.u("mul.lo.u32", &[&batch, &inner]);
        let (first_w, step) = match transposed {
            true => (self.emit.code.u("mul.lo.u32", &[&at, &n]), 1),
            false => {
                let column = self.emit.code.u("rem.u32", &[&at, &n]);
                (self.emit.code.u("mad.lo.u32", &[&first_x, &n, &column]), n)
            }
        };
        let sum = self.emit.code.f("mov.f32", &[&Val::ZERO]);
        let number = self.emit.code.u("mov.u32", &[&0]);
        self.repeat((number, 1), &inner, |wide, number| {
            let from_x = wide.emit.code.u("add.u32", &[&first_x, &number]);
            let from_w = wide.emit.code.u("mad.lo.u32", &[&number, &step, &first_w]);
            let (x, w) = (wide.element(&operands[0], Some(from_x))?, wide.element(&operands[1], Some(from_w))?);
            wide.emit.code.set(sum, "fma.rn.f32", &[&x, &w, &sum]);
            Ok(())
        })?;
        Ok(sum.into())
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
                self.each_element(&map.width, |wide, at| {
                    let value = wide.compute(&map, at)?;
                    wide.store(&targets, Some(at), value, None);
                    Ok(())
                })?;
            }
        }
        self.wait();
        Ok(())
    }

    /// Reduces groups of consecutive elements of an operand, or of the product of two: each group by one thread if there are
    /// enough, otherwise by all.
    fn groups(&mut self, index: usize, reduce: Reduce, operands: &[Operand]) -> Result<()> {
        let groups = self.width(index)?;
        let targets = self.targets(index)?;
        let (mut of, mut inner) = (vec![], None);
        for &operand in operands {
            if self.emit.is_long(operand) {
                let (base, elements) = self.emit.long_row(operand)?;
                inner = Some(self.emit.code.u("div.u32", &[&elements, &groups]).to_string());
                // The width only tells that there are as many elements as in the loop.
                of.push(Elements { from: From::Row { space: "global", address: base, exists: None }, width: 0 });
            } else {
                let elements = self.locate(index, operand)?;
                inner.get_or_insert_with(|| (elements.width / groups).to_string());
                of.push(elements);
            }
        }
        let inner = inner.unwrap_or_default();
        let value = |wide: &mut Self, at: Reg| -> Result<Val> {
            let mut product = None;
            for elements in &of {
                let x = wide.element(elements, Some(at))?;
                product = Some(match product {
                    None => x,
                    Some(before) => math::binary(&mut wide.emit.code, BinaryOp::Mul, before, x),
                });
            }
            Ok(product.unwrap_or(Val::ZERO))
        };
        let nothing = Val::Imm(reduce.identity() as f32);
        let add = |wide: &mut Self, first: Reg, number: Reg, sum: Reg| -> Result<()> {
            let at = wide.emit.code.u("add.u32", &[&first, &number]);
            let x = value(wide, at)?;
            let next = wide.emit.combine(reduce, sum.into(), x);
            wide.emit.code.set(sum, "mov.f32", &[&next]);
            Ok(())
        };
        if groups >= THREADS {
            return self.each_element(&groups, |wide, group| {
                let first = wide.emit.code.u("mul.lo.u32", &[&group, &inner]);
                let (sum, number) = (wide.emit.code.f("mov.f32", &[&nothing]), wide.emit.code.u("mov.u32", &[&0]));
                wide.repeat((number, 1), &inner, |wide, number| add(wide, first, number, sum))?;
                wide.store(&targets, Some(group), sum.into(), None);
                Ok(())
            });
        }
        let thread = self.emit.thread;
        let is_first = self.emit.code.first(|code| code.p("setp.eq.u32", &[&thread, &0]));
        let group = self.emit.code.u("mov.u32", &[&0]);
        self.repeat((group, 1), &groups, |wide, group| {
            let first = wide.emit.code.u("mul.lo.u32", &[&group, &inner]);
            let sum = wide.emit.code.f("mov.f32", &[&nothing]);
            wide.each_element(&inner, |wide, number| add(wide, first, number, sum))?;
            let all: Vec<u32> = (0..BLOCK_BITS).collect();
            let sum = wide.emit.across(reduce, sum.into(), &all);
            wide.store(&targets, Some(group), sum, Some(is_first));
            Ok(())
        })
    }

    /// Goes over the edges of the row once.
    fn edge_pass(&mut self, number: usize, edges: &[usize]) -> Result<()> {
        self.emit.code.comment(format_args!("pass {} over the edges", number + 1));
        let reductions: Vec<usize> =
            edges.iter().copied().filter(|&index| self.instr(index).extent() == Extent::Row).collect();
        for &index in &reductions {
            self.begin_reduction(index)?;
        }
        self.wait();
        let (start, len, _) = self.emit.edges_of_row()?;
        let counter = self.emit.code.u("mov.u32", &[&0]);
        self.emit.code.begin_loop();
        self.repeat((counter, 1), &len, |wide, counter| {
            let edge = wide.emit.next_edge(counter, 0, None, (start, len))?;
            wide.emit.begin_edge(edge);
            for &index in edges {
                wide.write(index)?;
            }
            wide.store_late()?;
            wide.emit.end_edge();
            wide.end_edges(&reductions, counter, len)
        })?;
        self.emit.code.end_loop();
        for index in reductions {
            match self.instr(index).dest {
                Dest::Buffer(_) if self.is_late(index) => self.late.push(index),
                Dest::Buffer(buffer) => {
                    let to = self.stored_at(index, buffer)?;
                    self.copy(index, to)?;
                }
                Dest::Local(_) => {}
            }
        }
        Ok(())
    }

    /// Adds what a number of edges have given to the reductions of the row, once there are so many, or at the last edge.
    fn end_edges(&mut self, reductions: &[usize], counter: Reg, len: Reg) -> Result<()> {
        let rounded: Vec<usize> =
            reductions.iter().copied().filter(|&index| is_rounded(&self.instr(index).op)).collect();
        if rounded.is_empty() {
            return Ok(());
        }
        let on = self.emit.code.label();
        let code = &mut self.emit.code;
        let seen = code.u("add.u32", &[&counter, &1]);
        let within = code.u("and.b32", &[&seen, &(EDGES_AT_ONCE - 1)]);
        let more = code.p("setp.ne.u32", &[&within, &0]);
        let before_last = code.p("setp.lt.u32", &[&seen, &len]);
        let goes_on = code.p("and.pred", &[&more, &before_last]);
        code.jump_if(goes_on, on);
        for index in rounded {
            self.merge(index)?;
            self.begin_state(index, self.width(index)?)?;
        }
        self.wait();
        self.emit.code.place(on);
        Ok(())
    }

    /// Adds what some edges have given to a reduction of the row.
    fn merge(&mut self, index: usize) -> Result<()> {
        let width = self.width(index)?;
        let reduce = match &self.instr(index).op {
            KernelOp::Segment(reduce, _) => *reduce,
            KernelOp::SoftmaxSum { score, .. } => {
                let heads = self.emit.width_of(*score)?;
                return self.merge_softmax(index, width - 2 * heads, heads);
            }
            _ => Reduce::Sum,
        };
        let (sums, parts) = (self.part(index, 0), self.part(index, width));
        self.each_element(&width, |wide, at| {
            let (sum, part) = (wide.load("global", sums, Some(at), None), wide.load("global", parts, Some(at), None));
            let next = wide.emit.combine(reduce, sum, part);
            wide.store(&[sums], Some(at), next, None);
            Ok(())
        })
    }

    /// The same of an online softmax of so many elements and heads.
    fn merge_softmax(&mut self, index: usize, elements: usize, heads: usize) -> Result<()> {
        let width = elements + 2 * heads;
        let row = |wide: &mut Self, first: usize| [0, width].map(|state| wide.part(index, state + first));
        let (sums, totals, largest) = (row(self, 0), row(self, elements), row(self, elements + heads));
        let scales = [0, heads].map(|first| self.part(index, 2 * width + first));
        self.each_element(&heads, |wide, head| {
            let [own, other] = largest.map(|row| wide.load("global", row, Some(head), None));
            let raised = math::max(&mut wide.emit.code, own, other);
            let base = wide.emit.finite(raised);
            let mut parts = vec![];
            for ((largest, total), scaled) in [own, other].into_iter().zip(totals).zip(scales) {
                let apart = math::binary(&mut wide.emit.code, BinaryOp::Sub, largest, base);
                let scale = math::exp(&mut wide.emit.code, apart);
                wide.store(&[scaled], Some(head), scale, None);
                let total = wide.load("global", total, Some(head), None);
                parts.push(math::binary(&mut wide.emit.code, BinaryOp::Mul, total, scale));
            }
            let total = math::binary(&mut wide.emit.code, BinaryOp::Add, parts[0], parts[1]);
            wide.store(&[totals[0]], Some(head), total, None);
            wide.store(&[largest[0]], Some(head), raised, None);
            Ok(())
        })?;
        self.wait();
        self.each_element(&elements, |wide, at| {
            let head = Some(wide.emit.code.u("div.u32", &[&at, &(elements / heads)]));
            let mut parts = vec![];
            for (sum, scale) in sums.into_iter().zip(scales) {
                let (sum, scale) = (wide.load("global", sum, Some(at), None), wide.load("global", scale, head, None));
                parts.push(math::binary(&mut wide.emit.code, BinaryOp::Mul, sum, scale));
            }
            let sum = math::binary(&mut wide.emit.code, BinaryOp::Add, parts[0], parts[1]);
            wide.store(&[sums[0]], Some(at), sum, None);
            Ok(())
        })
    }

    /// What a reduction over edges is before the first one.
    fn begin_reduction(&mut self, index: usize) -> Result<()> {
        self.begin_state(index, 0)?;
        if is_rounded(&self.instr(index).op) {
            self.begin_state(index, self.width(index)?)?;
        }
        Ok(())
    }

    /// The same for the state that begins at an element of what the block keeps.
    fn begin_state(&mut self, index: usize, mut first: usize) -> Result<()> {
        let width = self.width(index)?;
        let starts = match &self.instr(index).op {
            KernelOp::Segment(reduce, _) => vec![(width, reduce.identity())],
            KernelOp::SegmentArg { extreme, .. } => {
                vec![(width / 2, extreme.reduce().identity()), (width / 2, f64::INFINITY)]
            }
            KernelOp::SoftmaxSum { score, .. } => {
                let heads = self.emit.width_of(*score)?;
                vec![(width - 2 * heads, 0.0), (heads, 1.0), (heads, f64::NEG_INFINITY)]
            }
            _ => vec![(width, 0.0)],
        };
        for (count, start) in starts {
            let row = self.part(index, first);
            self.each_element(&count, |wide, at| {
                wide.store(&[row], Some(at), Val::Imm(start as f32), None);
                Ok(())
            })?;
            first += count;
        }
        Ok(())
    }

    /// The address of an element of what the block keeps of an instruction.
    fn part(&mut self, index: usize, first: usize) -> Reg {
        let base = self.address(index);
        match first {
            0 => base,
            first => self.emit.code.d("add.u64", &[&base, &(4 * first)]),
        }
    }

    /// Takes the edge at hand along in a reduction.
    fn add_edge(&mut self, index: usize) -> Result<()> {
        let width = self.width(index)?;
        let state = if is_rounded(&self.instr(index).op) { width } else { 0 };
        match &self.instr(index).op {
            KernelOp::Segment(reduce, x) => {
                let (x, sums) = (self.locate(index, *x)?, self.part(index, state));
                self.each_element(&width, |wide, at| {
                    let (sum, x) = (wide.load("global", sums, Some(at), None), wide.spread(&x, width, at)?);
                    let next = wide.emit.combine(*reduce, sum, x);
                    wide.store(&[sums], Some(at), next, None);
                    Ok(())
                })
            }
            KernelOp::WeightedSum { a, x } => {
                let (a, x, sums) = (self.locate(index, *a)?, self.locate(index, *x)?, self.part(index, state));
                self.each_element(&width, |wide, at| {
                    let sum = wide.load("global", sums, Some(at), None);
                    let (a, x) = (wide.spread(&a, width, at)?, wide.spread(&x, width, at)?);
                    let next = math::fma(&mut wide.emit.code, a, x, sum);
                    wide.store(&[sums], Some(at), next, None);
                    Ok(())
                })
            }
            KernelOp::SegmentArg { extreme, x, rank } => {
                let (x, rank) = (self.locate(index, *x)?, self.locate(index, *rank)?);
                let (best, ranks) = (self.part(index, 0), self.part(index, width / 2));
                let wins = match extreme {
                    Extreme::Max => "setp.gt.f32",
                    Extreme::Min => "setp.lt.f32",
                };
                self.each_element(&(width / 2), |wide, at| {
                    let (x, rank) = (wide.spread(&x, width / 2, at)?, wide.spread(&rank, width / 2, at)?);
                    let known = wide.load("global", best, Some(at), None);
                    let of = wide.load("global", ranks, Some(at), None);
                    let code = &mut wide.emit.code;
                    let wins = code.p(wins, &[&x, &known]);
                    let equal = code.p("setp.eq.f32", &[&x, &known]);
                    let lower = code.p("setp.lt.f32", &[&rank, &of]);
                    let tie = code.p("and.pred", &[&equal, &lower]);
                    let takes = code.p("or.pred", &[&wins, &tie]);
                    wide.store(&[best], Some(at), x, Some(takes));
                    wide.store(&[ranks], Some(at), rank, Some(takes));
                    Ok(())
                })
            }
            KernelOp::SoftmaxSum { score, x, times } => {
                let heads = self.emit.width_of(*score)?;
                let (score, x) = (self.locate(index, *score)?, self.locate(index, *x)?);
                let times = times.map(|times| self.locate(index, times)).transpose()?;
                let elements = width - 2 * heads;
                let [sums, totals, largest] =
                    [0, elements, elements + heads].map(|first| self.part(index, state + first));
                let [weights, scales] = [0, heads].map(|first| self.part(index, 2 * width + first));
                self.each_element(&heads, |wide, head| {
                    let at = Some(head);
                    let score = wide.spread(&score, heads, head)?;
                    let (before, total) =
                        (wide.load("global", largest, at, None), wide.load("global", totals, at, None));
                    let raised = math::max(&mut wide.emit.code, before, score);
                    let base = wide.emit.finite(raised);
                    let apart = math::binary(&mut wide.emit.code, BinaryOp::Sub, before, base);
                    let scale = math::exp(&mut wide.emit.code, apart);
                    let apart = math::binary(&mut wide.emit.code, BinaryOp::Sub, score, base);
                    let weight = math::exp(&mut wide.emit.code, apart);
                    let next = math::fma(&mut wide.emit.code, total, scale, weight);
                    wide.store(&[totals], at, next, None);
                    wide.store(&[largest], at, raised, None);
                    wide.store(&[scales], at, scale, None);
                    let weight = match &times {
                        None => weight,
                        Some(times) => {
                            let times = wide.spread(times, heads, head)?;
                            math::binary(&mut wide.emit.code, BinaryOp::Mul, weight, times)
                        }
                    };
                    wide.store(&[weights], at, weight, None);
                    Ok(())
                })?;
                self.wait();
                self.each_element(&elements, |wide, at| {
                    let head = Some(wide.emit.code.u("div.u32", &[&at, &(elements / heads)]));
                    let (scale, weight) =
                        (wide.load("global", scales, head, None), wide.load("global", weights, head, None));
                    let (sum, x) = (wide.load("global", sums, Some(at), None), wide.spread(&x, elements, at)?);
                    let scaled = math::binary(&mut wide.emit.code, BinaryOp::Mul, sum, scale);
                    let next = math::fma(&mut wide.emit.code, weight, x, scaled);
                    wide.store(&[sums], Some(at), next, None);
                    Ok(())
                })
            }
            _ => unreachable!("no other operation reduces edges"),
        }
    }

    /// The instructions that are sums over all rows or edges, in order.
    fn totals(&self) -> Vec<usize> {
        let instrs = self.emit.traversal.instrs.iter().enumerate();
        instrs.filter(|(_, instr)| instr.op.is_total()).map(|(index, _)| index).collect()
    }

    /// Begins all totals: in the memory of the block where there is one block only, otherwise in its part.
    fn begin_totals(&mut self) -> Result<Vec<Total>> {
        let mut totals = vec![];
        for index in self.totals() {
            let instr = self.instr(index);
            let (Dest::Buffer(out), width) = (instr.dest, self.width(index)?) else {
                return self.emit.unsupported("a total that is not stored");
            };
            let reduce = match instr.op {
                KernelOp::ReduceAll(reduce, _) => reduce,
                _ => Reduce::Sum,
            };
            let row = if self.places.contains_key(&index) {
                self.address(index)
            } else {
                let base = self.emit.entry(Slot::Partials(self.emit.kernel, totals.len()));
                let row = self.emit.code.first(|code| code.d("mad.wide.u32", &[&"%block", &(4 * width), &base]));
                self.addresses.insert(index, row);
                totals.push(Total { out, reduce, width: Width::fixed(width) });
                row
            };
            self.each_element(&width, |wide, at| {
                wide.store(&[row], Some(at), Val::Imm(reduce.identity() as f32), None);
                Ok(())
            })?;
        }
        Ok(totals)
    }

    /// Takes what an instruction computes for this row or edge along in its total.
    fn add_to_total(&mut self, index: usize) -> Result<()> {
        let (width, sums) = (self.width(index)?, self.addresses[&index]);
        match &self.instr(index).op {
            KernelOp::ReduceAll(reduce, x) => {
                let x = self.locate(index, *x)?;
                self.each_element(&width, |wide, at| {
                    let (sum, x) = (wide.load("global", sums, Some(at), None), wide.spread(&x, width, at)?);
                    let next = wide.emit.combine(*reduce, sum, x);
                    wide.store(&[sums], Some(at), next, None);
                    Ok(())
                })
            }
            KernelOp::OuterAll(of, x, y) => {
                let (Some(k), Some(n)) = (of.k.as_fixed(), of.n.as_fixed()) else {
                    return self.emit.unsupported("an outer product whose extents depend on the dataset");
                };
                let (x, y) = (self.locate(index, *x)?, self.locate(index, *y)?);
                self.each_element(&width, |wide, at| {
                    let from_x = wide.emit.code.u("div.u32", &[&at, &n]);
                    let batch = wide.emit.code.u("div.u32", &[&from_x, &k]);
                    let within = wide.emit.code.u("rem.u32", &[&at, &n]);
                    let from_y = wide.emit.code.u("mad.lo.u32", &[&batch, &n, &within]);
                    let (x, y) = (wide.element(&x, Some(from_x))?, wide.element(&y, Some(from_y))?);
                    let sum = wide.load("global", sums, Some(at), None);
                    let next = math::fma(&mut wide.emit.code, x, y, sum);
                    wide.store(&[sums], Some(at), next, None);
                    Ok(())
                })
            }
            _ => unreachable!("no other operation is a total"),
        }
    }
}
