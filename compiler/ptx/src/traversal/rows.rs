//! Instructions that compute a value of a row or of an edge from values at hand there.

use hgnnc_ir::{BinaryOp, Direction, Reduce};
use hgnnc_kernel_ir::kernel::{Instr, KernelOp, Operand, Rows, Source};

use super::{Emit, Held, Regs, Result, Value, WARP_BITS};
use crate::Slot;
use crate::code::Code;
use crate::isa::{Address, Class, Opcode, Reg, Region, StateSpace, Symbol, Type, Val};
use crate::math;

/// Most groups of a value whose length depends on the dataset.
const MOST_LONG: usize = 16;

impl Emit<'_> {
    /// An instruction of the row.
    pub(super) fn row_instr(&mut self, index: usize) -> Result<()> {
        self.comment(index);
        let traversal = self.traversal;
        let instr = &traversal.instrs[index];
        if instr.op.is_total() {
            return self.accumulate(index);
        }
        let value = self.map(instr)?;
        self.keep(index, value)
    }

    /// The text of an instruction, and where it comes from.
    pub(super) fn comment(&mut self, index: usize) {
        let instr = &self.traversal.instrs[index];
        let text = hgnnc_kernel_ir::kernel::print::print_instr(self.program, &self.traversal.rows, self.locals, instr);
        let stage = instr.stage.name();
        self.code.comment(format!("{text} @{stage}{}", self.hints.place(instr.from)));
    }

    /// The number of elements of a result.
    fn out_width(&self, instr: &Instr) -> Result<usize> {
        match instr.width.as_fixed() {
            Some(width) => Ok(width),
            None => self.unsupported("a result whose length depends on the dataset"),
        }
    }

    /// The layout of an element-wise operation.
    fn place(&mut self, out: usize, operands: &[usize]) -> (usize, usize, Vec<Option<usize>>) {
        let all: Vec<usize> = std::iter::once(out).chain(operands.iter().copied()).collect();
        if let Some((layout, positions)) = self.layout(&all) {
            return (layout, positions[0], positions[1..].iter().copied().map(Some).collect());
        }
        let (layout, positions) = self.layout(&[out]).expect("one width makes a chain");
        let found = operands.iter().map(|&width| self.layouts[layout].chain.position(width)).collect();
        (layout, positions[0], found)
    }

    /// The elements of an operand that belong to the registers of a wider value.
    fn spread(&mut self, operand: Operand, layout: usize, out: usize, position: Option<usize>) -> Result<Regs> {
        if let Some(position) = position {
            let regs = self.fetch(operand, layout, position)?;
            let slots = self.num_slots(layout, out);
            let of = &self.layouts[layout];
            return Ok((0..slots).map(|slot| regs[of.narrower(out, slot, position)]).collect());
        }
        // A width that does not fit: each lane looks its elements up.
        let repeat = self.layouts[layout].chain.width(out) / self.width_of(operand)?;
        self.each(layout, out, |emit, element, exists| {
            let narrow = emit.code.div(element, repeat);
            emit.gather(operand, narrow, exists)
        })
    }

    /// A number for each element, from its number.
    fn each(
        &mut self,
        layout: usize,
        position: usize,
        mut make: impl FnMut(&mut Self, Reg, Option<Reg>) -> Result<Val>,
    ) -> Result<Regs> {
        let slots = self.layouts[layout].slots(position);
        let mut regs = vec![];
        for slot in slots {
            regs.push(match slot {
                None => None,
                Some(slot) => {
                    let element = self.element(layout, position, slot.offset);
                    let exists = self.exists(&slot.bounds);
                    Some(make(self, element, exists)?)
                }
            });
        }
        Ok(regs)
    }

    /// Computes an instruction that is no reduction over edges or rows.
    pub(super) fn map(&mut self, instr: &Instr) -> Result<Value> {
        let width = self.out_width(instr)?;
        let one = |layout, position, regs| Ok(Value::One(Held { layout, position, regs }));
        match &instr.op {
            KernelOp::Unary(f, a) => {
                let (layout, out, of) = self.place(width, &[self.width_of(*a)?]);
                let a = self.spread(*a, layout, out, of[0])?;
                let regs = a.into_iter().map(|a| a.map(|a| math::unary(&mut self.code, *f, a))).collect();
                one(layout, out, regs)
            }
            KernelOp::Binary(f, a, b) => {
                let (layout, out, of) = self.place(width, &[self.width_of(*a)?, self.width_of(*b)?]);
                let a = self.spread(*a, layout, out, of[0])?;
                let b = self.spread(*b, layout, out, of[1])?;
                let pairs = a.into_iter().zip(b);
                let regs = pairs.map(|(a, b)| Some(math::binary(&mut self.code, *f, a?, b?))).collect();
                one(layout, out, regs)
            }
            KernelOp::Compose { first, then, a, b } => {
                let (layout, out, of) = self.place(width, &[self.width_of(*a)?, self.width_of(*b)?]);
                let a = self.spread(*a, layout, out, of[0])?;
                let b = self.spread(*b, layout, out, of[1])?;
                let code = &mut self.code;
                let mut element = |a, b| {
                    let x = math::binary(code, *first, a, b);
                    math::unary(code, *then, x)
                };
                let regs = a.into_iter().zip(b).map(|(a, b)| Some(element(a?, b?))).collect();
                one(layout, out, regs)
            }
            KernelOp::Select { a, positive, otherwise } => {
                let (layout, out, of) = self.place(width, &[self.width_of(*a)?]);
                let a = self.spread(*a, layout, out, of[0])?;
                let regs = a
                    .into_iter()
                    .map(|a| a.map(|a| math::positive_or(&mut self.code, a, *positive, *otherwise)))
                    .collect();
                one(layout, out, regs)
            }
            KernelOp::Copy(a) => {
                let (layout, out, of) = self.place(width, &[self.width_of(*a)?]);
                let regs = self.spread(*a, layout, out, of[0])?;
                one(layout, out, regs)
            }
            KernelOp::ScatterRows(a, b) => {
                let (layout, out, of) = self.place(width, &[self.width_of(*a)?, width]);
                let old = self.spread(*a, layout, out, of[0])?;
                let new = self.spread(*b, layout, out, of[1])?;
                let is_end = self.is_end(*b)?;
                let pick = |code: &mut Code, new: Val, old: Val| -> Val { code.selp_f32(new, old, is_end).into() };
                let pairs = old.into_iter().zip(new);
                let regs = pairs.map(|(old, new)| Some(pick(&mut self.code, new?, old?))).collect();
                one(layout, out, regs)
            }
            KernelOp::ScatterAdd(parts) => {
                let mut widths = vec![self.width_of(parts[0])?];
                widths.extend(parts[1..].iter().map(|_| width));
                let (layout, out, of) = self.place(width, &widths);
                let base = self.spread(parts[0], layout, out, of[0])?;
                let mut sums: Regs = base.into_iter().map(|x| x.map(|x| self.code.mov_f32(x).into())).collect();
                for (&part, &of) in parts[1..].iter().zip(&of[1..]) {
                    let x = self.spread(part, layout, out, of)?;
                    let is_end = self.is_end(part)?;
                    for (sum, x) in sums.iter_mut().zip(x) {
                        let (Some(Val::Reg(sum)), Some(x)) = (*sum, x) else { continue };
                        self.code.set_if(is_end, sum, Opcode::Add(Type::F32), (sum, x));
                    }
                }
                one(layout, out, sums)
            }
            KernelOp::Concat { parts, lead } => self.concat(width, parts, lead.as_fixed()),
            KernelOp::Slice { a, last, start, len } => {
                if let Some(part) = self.part(*a, *last, *start, *len)? {
                    return Ok(Value::One(part));
                }
                let (layout, positions) = self.layout(&[width]).expect("one width makes a chain");
                let (a, last, start, len) = (*a, *last, *start, *len);
                let regs = self.each(layout, positions[0], |emit, element, exists| {
                    let at = emit.code.rem(element, len);
                    let outer = emit.code.div(element, len);
                    let at = emit.code.add(at, start);
                    let from = emit.code.mad(outer, last, at);
                    emit.gather(a, from, exists)
                })?;
                one(layout, positions[0], regs)
            }
            KernelOp::Transpose { a, m, n, inner } => {
                let (layout, positions) = self.layout(&[width]).expect("one width makes a chain");
                let (a, extents) = (*a, (*m, *n, *inner));
                let regs = self.each(layout, positions[0], |emit, element, exists| {
                    let from = emit.transposed(element, extents);
                    emit.gather(a, from, exists)
                })?;
                one(layout, positions[0], regs)
            }
            KernelOp::RowProduct { m, k, n, a, b } => self.row_product((*m, *k, *n), *a, *b, width),
            KernelOp::OneHot(label) => self.one_hot(*label, width),
            KernelOp::Mask { stream, rate } => self.mask(*stream, *rate, width),
            KernelOp::MatMul(of, x, w) => self.product(of, *x, *w, width, false),
            KernelOp::MatMulT(of, y, w) => self.product(of, *y, *w, width, true),
            KernelOp::ReduceTrailing(reduce, a) if self.is_long(*a) => self.reduce_long(*reduce, *a, width),
            KernelOp::ReduceTrailing(reduce, a) => {
                let wide = self.width_of(*a)?;
                let (layout, positions) = self.layout(&[width, wide]).expect("groups of elements make a chain");
                let regs = self.fetch(*a, layout, positions[1])?;
                let regs = self.reduce(*reduce, regs, layout, positions[1], positions[0]);
                one(layout, positions[0], regs)
            }
            KernelOp::Dot(a, b) => {
                let wide = self.width_of(*a)?;
                let (layout, positions) = self.layout(&[width, wide]).expect("groups of elements make a chain");
                let (x, y) = (self.fetch(*a, layout, positions[1])?, self.fetch(*b, layout, positions[1])?);
                let products = x.into_iter().zip(y);
                let regs = products.map(|(x, y)| Some(math::binary(&mut self.code, BinaryOp::Mul, x?, y?))).collect();
                let regs = self.reduce(Reduce::Sum, regs, layout, positions[1], positions[0]);
                one(layout, positions[0], regs)
            }
            KernelOp::Segment(..)
            | KernelOp::WeightedSum { .. }
            | KernelOp::SoftmaxSum { .. }
            | KernelOp::SegmentArg { .. }
            | KernelOp::ReduceAll(..)
            | KernelOp::OuterAll(..) => unreachable!("a reduction needs more than its own row or edge"),
        }
    }

    /// Is the vertex of this row one of the ends that an operand has rows for?
    pub(super) fn is_end(&mut self, operand: Operand) -> Result<Reg> {
        let Source::Buffer(buffer) = operand.source else { return self.unsupported("ends without a buffer") };
        let hgnnc_ir::Space::Endpoints(graph, direction) = self.program.buffer(buffer).ty.space else {
            return self.unsupported("ends without a graph");
        };
        let end = self.end_of_vertex(graph, direction);
        Ok(self.code.ge_signed(end, 0))
    }

    /// A slice that is one of the parts of a value.
    fn part(&self, a: Operand, last: usize, start: usize, len: usize) -> Result<Option<Held>> {
        let Some(Value::Parts(parts)) = self.producer(a).and_then(|maker| self.row.values[maker].as_ref()) else {
            return Ok(None);
        };
        let whole = self.width_of(a)? == last;
        let found = parts.iter().find(|(offset, held)| {
            *offset == start && self.layouts[held.layout].chain.width(held.position) == len && whole
        });
        Ok(found.map(|(_, held)| held.clone()))
    }

    fn concat(&mut self, width: usize, parts: &[Operand], lead: Option<usize>) -> Result<Value> {
        let Some(lead) = lead else { return self.unsupported("parts whose number depends on the dataset") };
        let last = width / lead;
        let (layout, positions) = self.layout(&[width]).expect("one width makes a chain");
        let mut lens = vec![];
        for &part in parts {
            lens.push(self.width_of(part)? / lead);
        }
        let regs = self.each(layout, positions[0], |emit, element, exists| {
            let outer = emit.code.div(element, last);
            let at = emit.code.rem(element, last);
            let (mut result, mut start) = (None, 0);
            for (&part, &len) in parts.iter().zip(&lens) {
                // Elements of other parts read the first or last of this one.
                let within = emit.code.sub_signed(at, start);
                let within = emit.code.max_signed(within, 0);
                let within = emit.code.min_signed(within, len - 1);
                let from = emit.code.mad(outer, len, within);
                let value = emit.gather(part, from, exists)?;
                result = Some(match result {
                    None => value,
                    Some(before) => {
                        let here = emit.code.ge(at, start);
                        emit.code.selp_f32(value, before, here).into()
                    }
                });
                start += len;
            }
            Ok(result.unwrap_or(Val::ZERO))
        })?;
        Ok(Value::One(Held { layout, position: positions[0], regs }))
    }

    /// 1 at the class of the row.
    fn one_hot(&mut self, label: Operand, width: usize) -> Result<Value> {
        let class = self.class_of_row(label)?;
        let (layout, positions) = self.layout(&[width]).expect("one width makes a chain");
        let regs = self.each(layout, positions[0], |emit, element, _| {
            let here = emit.code.eq(element, class);
            Ok(emit.code.selp_f32(Val::Imm(1.0), Val::ZERO, here).into())
        })?;
        Ok(Value::One(Held { layout, position: positions[0], regs }))
    }

    /// The label of the vertex of the row.
    pub(super) fn class_of_row(&mut self, label: Operand) -> Result<Reg> {
        let Source::Buffer(buffer) = label.source else { return self.unsupported("labels without a buffer") };
        let base = self.entry(Slot::Buffer(buffer));
        let address = self.code.mad_wide(self.row.vertex, 4, base);
        Ok(self.code.load_index(address))
    }

    /// A dropout mask, drawn for the position of each element in the dense value.
    fn mask(&mut self, stream: u32, rate: f64, width: usize) -> Result<Value> {
        let (key, first) = self.mask_start(stream, width)?;
        let (layout, positions) = self.layout(&[width]).expect("one width makes a chain");
        let regs = self.each(layout, positions[0], |emit, element, _| {
            let wide = emit.code.widen(element);
            let index = emit.code.add64(first, wide);
            Ok(math::mask(&mut emit.code, key, index, rate))
        })?;
        Ok(Value::One(Held { layout, position: positions[0], regs }))
    }

    /// The key of a mask, and the position of the first element of the row or edge in the dense value.
    pub(super) fn mask_start(&mut self, stream: u32, width: usize) -> Result<(Reg, Reg)> {
        let keys = self.entry(Slot::MaskKeys);
        let key = {
            let (keys, op) = (Address::from((keys, 8 * stream as usize)), Opcode::Ld(StateSpace::GlobalNc, Type::U64));
            self.scoped(|code| code.op(Class::U64, op, (keys,)))
        };
        let first = match (&self.edge.current, &self.traversal.rows) {
            (Some(_), Rows::Elements(..)) => {
                let cell = self.cell()?;
                self.code.mul64(cell, width)
            }
            (Some(edge), _) => {
                let edge = edge.clone();
                let position = match self.topology() {
                    Some((_, Direction::In)) => edge.number,
                    _ => self.position()?,
                };
                self.code.mul_wide(position, width)
            }
            (None, _) => self.code.mul_wide(self.row.number, width),
        };
        Ok((key, first))
    }

    /// Reduces groups of elements of the `wide`-th width to the elements of the `narrow`-th.
    pub(super) fn reduce(&mut self, reduce: Reduce, regs: Regs, layout: usize, wide: usize, narrow: usize) -> Regs {
        if reduce == Reduce::Lse {
            return self.log_sum_exp(regs, layout, wide, narrow);
        }
        let regs = self.masked(reduce, regs, layout, wide);
        let mut out: Regs = vec![None; self.num_slots(layout, narrow)];
        for (slot, value) in regs.into_iter().enumerate() {
            let Some(value) = value else { continue };
            let to = self.layouts[layout].narrower(wide, slot, narrow);
            out[to] = Some(match out[to] {
                None => value,
                Some(sum) => self.combine(reduce, sum, value),
            });
        }
        let bits = self.layouts[layout].exchanged(wide, narrow);
        out.into_iter().map(|value| value.map(|value| self.across(reduce, value, &bits))).collect()
    }

    /// With elements that do not exist as if they were nothing.
    fn masked(&mut self, reduce: Reduce, regs: Regs, layout: usize, position: usize) -> Regs {
        let slots = self.layouts[layout].slots(position);
        let nothing = Val::Imm(reduce.identity() as f32);
        let mut masked = vec![];
        for (slot, value) in slots.into_iter().zip(regs) {
            masked.push(match (slot, value) {
                (Some(slot), Some(value)) => Some(match self.exists(&slot.bounds) {
                    None => value,
                    Some(exists) => self.code.selp_f32(value, nothing, exists).into(),
                }),
                _ => None,
            });
        }
        masked
    }

    /// `m + ln Σ e^(x - m)` with the largest element `m` of each group.
    fn log_sum_exp(&mut self, regs: Regs, layout: usize, wide: usize, narrow: usize) -> Regs {
        let largest = self.reduce(Reduce::Max, regs.clone(), layout, wide, narrow);
        let bases: Regs = largest.into_iter().map(|m| m.map(|m| self.finite(m))).collect();
        let mut powers = vec![];
        for (slot, value) in regs.into_iter().enumerate() {
            let base = bases[self.layouts[layout].narrower(wide, slot, narrow)];
            powers.push(value.zip(base).map(|(value, base)| {
                let apart = math::binary(&mut self.code, BinaryOp::Sub, value, base);
                math::exp(&mut self.code, apart)
            }));
        }
        let sums = self.reduce(Reduce::Sum, powers, layout, wide, narrow);
        let both = sums.into_iter().zip(bases);
        both.map(|(sum, base)| {
            let log = math::log(&mut self.code, sum?);
            Some(math::binary(&mut self.code, BinaryOp::Add, base?, log))
        })
        .collect()
    }

    /// The nearest finite number.
    pub(super) fn finite(&mut self, value: Val) -> Val {
        let above = math::max(&mut self.code, value, Val::Imm(f32::MIN));
        math::min(&mut self.code, above, Val::Imm(f32::MAX))
    }

    /// Two partial results as one.
    pub(super) fn combine(&mut self, reduce: Reduce, a: Val, b: Val) -> Val {
        let f = match reduce {
            Reduce::Sum => BinaryOp::Add,
            Reduce::Max => BinaryOp::Max,
            Reduce::Min => BinaryOp::Min,
            Reduce::Lse => BinaryOp::LogAddExp,
        };
        math::binary(&mut self.code, f, a, b)
    }

    /// Combines what lanes have that differ in these bits of their thread: all get the same.
    pub(super) fn across(&mut self, reduce: Reduce, value: Val, bits: &[u32]) -> Val {
        let mut value = value;
        for &bit in bits.iter().filter(|&&bit| bit < WARP_BITS) {
            let own = self.reg(value);
            let other = self.code.shuffle(own, 1u32 << bit);
            // The same order in both, so that both get the same bits.
            value = self.combine(reduce, own.into(), other.into());
        }
        let high: Vec<u32> = bits.iter().copied().filter(|&bit| bit >= WARP_BITS).collect();
        if high.is_empty() { value } else { self.across_warps(reduce, value, &high) }
    }

    /// Does the length of a stored operand depend on the dataset?
    pub(super) fn is_long(&self, operand: Operand) -> bool {
        let width = self.program.operand_width(&self.traversal.rows, &[], operand);
        matches!(operand.source, Source::Buffer(_)) && width.is_some_and(|width| width.as_fixed().is_none())
    }

    /// The address and the number of elements of a stored value of any length.
    pub(super) fn long_row(&mut self, a: Operand) -> Result<(Reg, Reg)> {
        match a.source {
            Source::Buffer(buffer) if a.index == hgnnc_kernel_ir::kernel::Index::Uniform => {
                let width = self.program.operand_width(&self.traversal.rows, &[], a).expect("a verified operand");
                Ok((self.entry(Slot::Buffer(buffer)), self.entry32(Slot::Elements(width))))
            }
            _ => self.unsupported("a row of unknown length that is not a whole stored value"),
        }
    }

    /// Reduces groups of a stored value of any length, each by all threads of the team.
    fn reduce_long(&mut self, reduce: Reduce, a: Operand, groups: usize) -> Result<Value> {
        if groups > MOST_LONG {
            return self.unsupported("many reductions of values whose length depends on the dataset");
        }
        let (base, all) = self.long_row(a)?;
        let inner = self.code.div(all, groups);
        let (layout, positions) = self.layout(&[groups]).expect("one width makes a chain");
        let bits: Vec<u32> = (0..self.shape.lanes).collect();
        let mut sums = vec![];
        for group in 0..groups {
            let first = self.code.mul(inner, group);
            let at = self.code.mov(self.lane);
            let sum = self.code.mov_f32(Val::Imm(reduce.identity() as f32));
            let (again, done) = (self.code.label(), self.code.label());
            self.code.place(again);
            let end = self.code.ge(at, inner);
            self.code.jump_if(end, done);
            let element = self.code.add(at, first);
            let address = self.code.mad_wide(element, 4, base);
            let value = self.code.load(StateSpace::Global, address);
            let next = self.combine(reduce, sum.into(), value.into());
            self.code.assign(sum, next);
            self.code.increase(at, 1u32 << self.shape.lanes);
            self.code.jump(again);
            self.code.place(done);
            sums.push(self.across(reduce, sum.into(), &bits));
        }
        // Each lane picks its groups.
        let regs = self.each(layout, positions[0], |emit, element, _| {
            let mut picked = sums[0];
            for (group, &sum) in sums.iter().enumerate().skip(1) {
                let here = emit.code.eq(element, group);
                picked = emit.code.selp_f32(sum, picked, here).into();
            }
            Ok(picked)
        })?;
        Ok(Value::One(Held { layout, position: positions[0], regs }))
    }

    /// The same between warps, through memory that all have.
    fn across_warps(&mut self, reduce: Reduce, value: Val, bits: &[u32]) -> Val {
        let mask: u32 = bits.iter().map(|bit| 1 << bit).sum();
        let lowest = self.show(value, Seen::Without(mask));
        let mut result = None;
        for number in 0..1u32 << bits.len() {
            let offset: u32 = bits.iter().enumerate().map(|(i, bit)| (number >> i & 1) << bit).sum();
            let part = self.code.load(StateSpace::Shared, (lowest, 4 * offset as usize));
            result = Some(match result {
                None => Val::Reg(part),
                Some(sum) => self.combine(reduce, sum, part.into()),
            });
        }
        self.code.block_sync();
        result.expect("there are parts")
    }

    /// Shows a number of each thread to all threads of the block: the address of that of a thread. Another barrier must
    /// follow the reads.
    pub(super) fn show(&mut self, value: Val, of: Seen) -> Reg {
        self.memory.exchange = true;
        let own = self.place_of(Seen::Other(0));
        let value = self.reg(value);
        self.code.store(None, StateSpace::Shared, own, value);
        self.code.block_sync();
        self.place_of(of)
    }

    /// The address of the number that a thread shows.
    fn place_of(&mut self, of: Seen) -> Reg {
        if let Some(&known) = self.memory.shown.get(&of) {
            return known;
        }
        let thread = self.thread;
        let place = self.code.first(|code| {
            let thread = match of {
                Seen::Other(0) => thread,
                Seen::Other(bits) => code.xor(thread, bits),
                Seen::Without(bits) => code.and(thread, !bits),
            };
            let base = code.mov(Symbol::Shared);
            let base = code.add(base, Region::Exchange);
            code.mad(thread, 4, base)
        });
        self.memory.shown.insert(of, place);
        place
    }
}

/// A thread of the block, as another one calls it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Seen {
    /// The one that differs in these bits.
    Other(u32),
    /// The one without these bits.
    Without(u32),
}
