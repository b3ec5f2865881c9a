//! Reductions of groups of elements of a row, and over all rows.

use hgnnc_ir::width::Width;
use hgnnc_ir::{BinaryOp, Reduce};
use hgnnc_kernel_ir::kernel::{Dest, KernelOp, Operand};

use super::elements::{Elements, From};
use super::{BLOCK_BITS, Result, Wide};
use crate::Slot;
use crate::isa::{self, Reg, StateSpace, Val};
use crate::{THREADS, Total, math};

impl Wide<'_> {
    /// Reduces groups of consecutive elements of an operand, or of the product of two: each group by one thread if
    /// there are enough, otherwise by all.
    pub(super) fn groups(&mut self, index: usize, reduce: Reduce, operands: &[Operand]) -> Result<()> {
        let groups = self.width(index)?;
        let targets = self.targets(index)?;
        let (mut of, mut inner) = (vec![], None);
        for &operand in operands {
            if self.emit.is_long(operand) {
                let (base, elements) = self.emit.long_row(operand)?;
                inner = Some(isa::Operand::from(self.emit.code.div(elements, groups)));
                // The width only tells that there are as many elements as in the loop.
                of.push(Elements {
                    from: From::Row { space: StateSpace::Global, address: base, exists: None },
                    width: 0,
                });
            } else {
                let elements = self.locate(index, operand)?;
                inner.get_or_insert_with(|| isa::Operand::from(elements.width / groups));
                of.push(elements);
            }
        }
        let inner = inner.expect("an instruction has operands");
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
            let at = wide.emit.code.add(first, number);
            let x = value(wide, at)?;
            let next = wide.emit.combine(reduce, sum.into(), x);
            wide.emit.code.assign(sum, next);
            Ok(())
        };
        if groups >= THREADS {
            return self.each_element(groups, |wide, group| {
                let first = wide.emit.code.mul(group, inner.clone());
                let (sum, number) = (wide.emit.code.mov_f32(nothing), wide.emit.code.mov(0));
                wide.repeat((number, 1), inner, |wide, number| add(wide, first, number, sum))?;
                wide.store(&targets, Some(group), sum.into(), None);
                Ok(())
            });
        }
        let thread = self.emit.thread;
        let is_first = self.emit.code.first(|code| code.eq(thread, 0));
        let group = self.emit.code.mov(0);
        self.repeat((group, 1), groups, |wide, group| {
            let first = wide.emit.code.mul(group, inner.clone());
            let sum = wide.emit.code.mov_f32(nothing);
            wide.each_element(inner.clone(), |wide, number| add(wide, first, number, sum))?;
            let all: Vec<u32> = (0..BLOCK_BITS).collect();
            let sum = wide.emit.across(reduce, sum.into(), &all);
            wide.store(&targets, Some(group), sum, Some(is_first));
            Ok(())
        })
    }

    /// The instructions that are sums over all rows or edges, in order.
    pub(super) fn totals(&self) -> Vec<usize> {
        let instrs = self.emit.traversal.instrs.iter().enumerate();
        instrs.filter(|(_, instr)| instr.op.is_total()).map(|(index, _)| index).collect()
    }

    /// Begins all totals: in the memory of the block where there is one block only, otherwise in its part.
    pub(super) fn begin_totals(&mut self) -> Result<Vec<Total>> {
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
                let row = self.emit.code.first(|code| code.mad_wide(Reg::BLOCK, 4 * width, base));
                self.addresses.insert(index, row);
                totals.push(Total { out, reduce, width: Width::fixed(width), members: None });
                row
            };
            self.each_element(width, |wide, at| {
                wide.store(&[row], Some(at), Val::Imm(reduce.identity() as f32), None);
                Ok(())
            })?;
        }
        Ok(totals)
    }

    /// Takes what an instruction computes for this row or edge along in its total.
    pub(super) fn add_to_total(&mut self, index: usize) -> Result<()> {
        let (width, sums) = (self.width(index)?, self.addresses[&index]);
        match &self.instr(index).op {
            KernelOp::ReduceAll(reduce, x) => {
                let x = self.locate(index, *x)?;
                self.each_element(width, |wide, at| {
                    let (sum, x) = (wide.load(StateSpace::Global, sums, Some(at), None), wide.spread(&x, width, at)?);
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
                self.each_element(width, |wide, at| {
                    let from_x = wide.emit.code.div(at, n);
                    let batch = wide.emit.code.div(from_x, k);
                    let within = wide.emit.code.rem(at, n);
                    let from_y = wide.emit.code.mad(batch, n, within);
                    let (x, y) = (wide.element(&x, Some(from_x))?, wide.element(&y, Some(from_y))?);
                    let sum = wide.load(StateSpace::Global, sums, Some(at), None);
                    let next = math::fma(&mut wide.emit.code, x, y, sum);
                    wide.store(&[sums], Some(at), next, None);
                    Ok(())
                })
            }
            _ => unreachable!("no other operation is a total"),
        }
    }
}
