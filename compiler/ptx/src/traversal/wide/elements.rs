//! Elements of operands, and element-wise instructions, within a loop.

use hgnnc_kernel_ir::kernel::{Extents, KernelOp, Operand, Source};

use super::{Result, Wide};
use crate::Slot;
use crate::isa::{Class, Opcode, Reg, StateSpace, Type, Val};
use crate::math;

/// The source of an operand's elements.
pub(super) enum From<'a> {
    /// All are the same.
    Number(Val),
    /// A row of memory; where it may not exist, whether it does.
    Row { space: StateSpace, address: Reg, exists: Option<Reg> },
    /// Elements computed within the loop of their reader.
    Nested(Box<Map<'a>>),
}

/// An operand whose addresses are known.
pub(super) struct Elements<'a> {
    pub(super) from: From<'a>,
    pub(super) width: usize,
}

/// An instruction that is computed element by element, ready to be written in a loop.
pub(super) struct Map<'a> {
    op: &'a KernelOp,
    pub(super) width: usize,
    operands: Vec<Elements<'a>>,
    /// Is the vertex of the row an end, for each operand that has rows of ends?
    ends: Vec<Option<Reg>>,
    /// Of a mask, the key and the position of the first element.
    mask: Option<(Reg, Reg)>,
    /// The class of the row.
    class: Option<Reg>,
}

impl<'a> Wide<'a> {
    /// Finds the elements of an operand.
    pub(super) fn locate(&mut self, reader: usize, operand: Operand) -> Result<Elements<'a>> {
        let number = |from| Ok(Elements { from, width: 1 });
        match operand.source {
            Source::Const(known) => return number(From::Number(Val::Imm(known as f32))),
            Source::Count(space) => {
                let offset = self.emit.table.offset(Slot::CountF32(space));
                let count = self.emit.scoped(|code| code.slot(Class::F32, offset));
                return number(From::Number(count.into()));
            }
            Source::Local(_) | Source::Buffer(_) => {}
        }
        let width = self.emit.width_of(operand)?;
        let from = match self.producer(reader, operand) {
            Some(maker) if self.nested[maker] => From::Nested(Box::new(self.prepare(maker)?)),
            Some(maker) => From::Row { space: StateSpace::Global, address: self.address(maker), exists: None },
            None => {
                let (space, address) = self.emit.stored_row(operand)?;
                From::Row { space, address, exists: self.emit.has_stored_row(operand) }
            }
        };
        Ok(Elements { from, width })
    }

    /// Finds all that an element-wise instruction reads.
    pub(super) fn prepare(&mut self, index: usize) -> Result<Map<'a>> {
        let (op, width) = (&self.instr(index).op, self.width(index)?);
        let mut map = Map { op, width, operands: vec![], ends: vec![], mask: None, class: None };
        let with_ends = match op {
            KernelOp::ScatterRows(..) | KernelOp::ScatterAdd(_) => 1,
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
    pub(super) fn element(&mut self, of: &Elements<'a>, at: Option<Reg>) -> Result<Val> {
        match &of.from {
            From::Number(number) => Ok(*number),
            From::Row { space, address, exists } => Ok(self.load(*space, *address, at, *exists)),
            From::Nested(map) => {
                let at = at.unwrap_or_else(|| self.emit.code.mov(0));
                self.compute(map, at)
            }
        }
    }

    /// The element of an operand that belongs to one of a value of `width`: each of a narrower operand to several.
    pub(super) fn spread(&mut self, of: &Elements<'a>, width: usize, at: Reg) -> Result<Val> {
        let at = match of.width {
            1 => None,
            own if own == width => Some(at),
            own => Some(self.emit.code.div(at, width / own)),
        };
        self.element(of, at)
    }

    /// An element of the result of an element-wise instruction.
    pub(super) fn compute(&mut self, map: &Map<'a>, at: Reg) -> Result<Val> {
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
            KernelOp::Compose { first, then, .. } => {
                let (x, y) = (self.spread(&operands[0], width, at)?, self.spread(&operands[1], width, at)?);
                let x = math::binary(&mut self.emit.code, *first, x, y);
                math::unary(&mut self.emit.code, *then, x)
            }
            KernelOp::Select { positive, otherwise, .. } => {
                let x = self.spread(&operands[0], width, at)?;
                math::positive_or(&mut self.emit.code, x, *positive, *otherwise)
            }
            KernelOp::Copy(_) => self.spread(&operands[0], width, at)?,
            KernelOp::ScatterRows(..) => {
                let (old, new) = (self.spread(&operands[0], width, at)?, self.spread(&operands[1], width, at)?);
                let is_end = map.ends[1].expect("rows of ends");
                self.emit.code.selp_f32(new, old, is_end).into()
            }
            KernelOp::ScatterAdd(_) => {
                let base = self.spread(&operands[0], width, at)?;
                let sum = self.emit.code.mov_f32(base);
                for (part, is_end) in operands.iter().zip(&map.ends).skip(1) {
                    let x = self.spread(part, width, at)?;
                    self.emit.code.set_if(is_end.expect("rows of ends"), sum, Opcode::Add(Type::F32), (sum, x));
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
                let within = code.rem(at, len);
                let outer = code.div(at, len);
                let within = code.add(within, start);
                let from = code.mad(outer, last, within);
                self.element(&operands[0], Some(from))?
            }
            KernelOp::Transpose { m, n, inner, .. } => {
                let from = self.emit.transposed(at, (*m, *n, *inner));
                self.element(&operands[0], Some(from))?
            }
            KernelOp::RowProduct { m, k, n, .. } => {
                let (from_a, from_b) = self.emit.terms(at, (*m, *k, *n));
                let sum = self.emit.code.mov_f32(Val::ZERO);
                let number = self.emit.code.mov(0);
                self.repeat((number, 1), *k, |wide, number| {
                    let (at_a, at_b) = (wide.emit.code.add(from_a, number), wide.emit.code.mad(number, *n, from_b));
                    let (a, b) = (wide.element(&operands[0], Some(at_a))?, wide.element(&operands[1], Some(at_b))?);
                    wide.emit.code.set(sum, Opcode::Mad(Type::F32), (a, b, sum));
                    Ok(())
                })?;
                sum.into()
            }
            KernelOp::OneHot(_) => {
                let here = self.emit.code.eq(at, map.class.expect("a class"));
                self.emit.code.selp_f32(Val::Imm(1.0), Val::ZERO, here).into()
            }
            KernelOp::Mask { rate, .. } => {
                let (key, first) = map.mask.expect("a key");
                let wide = self.emit.code.widen(at);
                let position = self.emit.code.add64(first, wide);
                math::mask(&mut self.emit.code, key, position, *rate)
            }
            KernelOp::MatMul(of, ..) => self.product(of, operands, at, false)?,
            KernelOp::MatMulT(of, ..) => self.product(of, operands, at, true)?,
            _ => unreachable!("reductions have loops of their own"),
        })
    }

    /// An element of what stands one after another in each of `lead` groups of `last` elements.
    pub(super) fn joined(&mut self, parts: &[Elements<'a>], (lead, last): (usize, usize), at: Reg) -> Result<Val> {
        let outer = self.emit.code.div(at, last);
        let at = self.emit.code.rem(at, last);
        let (mut result, mut start) = (None, 0);
        for part in parts {
            let len = part.width / lead;
            // Elements of other parts read the first or last of this one.
            let within = self.emit.code.sub_signed(at, start);
            let within = self.emit.code.max_signed(within, 0);
            let within = self.emit.code.min_signed(within, len - 1);
            let from = self.emit.code.mad(outer, len, within);
            let value = self.element(part, Some(from))?;
            result = Some(match result {
                None => value,
                Some(before) => {
                    let here = self.emit.code.ge(at, start);
                    self.emit.code.selp_f32(value, before, here).into()
                }
            });
            start += len;
        }
        Ok(result.unwrap_or(Val::ZERO))
    }

    /// An element of `x · w`, or of `y · wᵀ` if `transposed`.
    pub(super) fn product(
        &mut self,
        of: &Extents,
        operands: &[Elements<'a>],
        at: Reg,
        transposed: bool,
    ) -> Result<Val> {
        let (Some(k), Some(n)) = (of.k.as_fixed(), of.n.as_fixed()) else {
            return self.emit.unsupported("a product whose extents depend on the dataset");
        };
        // Element `at` is of a matrix of the batch; there it is a column of `w`, or a row.
        let (inner, outer) = if transposed { (n, k) } else { (k, n) };
        let batch = self.emit.code.div(at, outer);
        let first_x = self.emit.code.mul(batch, inner);
        let (first_w, step) = match transposed {
            true => (self.emit.code.mul(at, n), 1),
            false => {
                let column = self.emit.code.rem(at, n);
                (self.emit.code.mad(first_x, n, column), n)
            }
        };
        let sum = self.emit.code.mov_f32(Val::ZERO);
        let number = self.emit.code.mov(0);
        self.repeat((number, 1), inner, |wide, number| {
            let from_x = wide.emit.code.add(first_x, number);
            let from_w = wide.emit.code.mad(number, step, first_w);
            let (x, w) = (wide.element(&operands[0], Some(from_x))?, wide.element(&operands[1], Some(from_w))?);
            wide.emit.code.set(sum, Opcode::Mad(Type::F32), (x, w, sum));
            Ok(())
        })?;
        Ok(sum.into())
    }
}
