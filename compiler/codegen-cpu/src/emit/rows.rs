//! Loops over rows, runs and items, with their accumulators.

use cranelift_codegen::ir::types::{F32, F32X4, I32, I64};
use cranelift_codegen::ir::{InstBuilder, StackSlot, Value};
use cranelift_frontend::Variable;
use hgnnc_ir::ops::Reduce;

use super::{At, Emitter, changing, fixed, is_straight, vector};
use crate::phases::{Phase, phases};
use hgnnc_kernel_ir::kernel::KernelOp;
use hgnnc_kernel_ir::loops::function::{Row, Shape};

/// Reductions add items in runs of this length, as the runtime's kernels do. The rounding error then grows with the
/// number of runs plus the length of a run, not with their product.
const RUN: i64 = 256;
/// Number of accumulator vectors kept in registers.
const REGISTERS: usize = 8;
/// Maximum size of rows on the stack, in bytes; larger rows would be evicted from the L1 cache.
const STACK: usize = 16 * 1024;

/// Storage of a partial reduction over items.
pub(super) enum Accumulator {
    /// One variable per vector.
    Registers(Vec<Variable>),
    /// A row on the stack.
    Stack(StackSlot),
}

impl Emitter<'_, '_> {
    /// Emits the loops over rows, runs and items.
    pub(super) fn rows(&mut self, offsets: Value, count: Value) -> Result<(), String> {
        let (phases, kept) = phases(self.program);
        let program = self.program;
        let mut on_stack = 0;
        for (at, op) in program.instrs.iter().enumerate() {
            if kept[at] && op.result.is_none() {
                let slot = self.row_on_stack(op.width);
                self.stack.insert(at, slot);
                on_stack += 4 * op.width;
            }
        }
        let mut registers = 0;
        for phase in &phases {
            let Phase::Columns(ops) = phase else { continue };
            let straight = is_straight(program.instrs[ops[0]].width, ops.len());
            for &at in ops.iter().filter(|&&at| program.instrs[at].accumulates()) {
                let width = program.instrs[at].width;
                let vectors = width / 4 + width % 4;
                let accumulator = if straight && registers + vectors <= REGISTERS {
                    registers += vectors;
                    Accumulator::Registers((0..vectors).map(|_| self.b.declare_var(F32X4)).collect())
                } else {
                    on_stack += 4 * width;
                    Accumulator::Stack(self.row_on_stack(width))
                };
                self.accumulators.insert(at, accumulator);
            }
        }
        if on_stack > STACK {
            return Err(format!("{on_stack} bytes of rows are too many for the stack"));
        }
        let zero = self.integer(0);
        match program.shape {
            Shape::Items => self.runs(&phases, zero, zero, count),
            Shape::Segments => self.repeat(zero, count, 1, |emitter, row| {
                let at = emitter.row(offsets, row, 1);
                let mut bound = |offset| {
                    let edge = emitter.b.ins().load(I32, fixed(), at, offset);
                    emitter.b.ins().uextend(I64, edge)
                };
                let (begin, end) = (bound(0), bound(4));
                emitter.runs(&phases, row, begin, end)
            }),
        }
    }

    fn runs(&mut self, phases: &[Phase], row: Value, begin: Value, end: Value) -> Result<(), String> {
        self.owner = row;
        if self.accumulators.is_empty() {
            return self.repeat(begin, end, 1, |emitter, item| emitter.one(phases, item));
        }
        let mut ops: Vec<usize> = self.accumulators.keys().copied().collect();
        ops.sort_unstable();
        self.repeat(begin, end, RUN, |emitter, start| {
            let stop = emitter.b.ins().iadd_imm_u(start, RUN);
            let stop = emitter.b.ins().umin(stop, end);
            for &op in &ops {
                let (reduce, width) = emitter.accumulated(op);
                emitter.columns(width, 4, 1, |emitter, at| {
                    let identity = emitter.lanes().number(reduce.identity() as f32);
                    emitter.set_accumulator(op, identity, at);
                    Ok(())
                })?;
            }
            emitter.repeat(start, stop, 1, |emitter, item| emitter.one(phases, item))?;
            for &op in &ops {
                let (reduce, width) = emitter.accumulated(op);
                let result = &emitter.program.instrs[op];
                let rows = emitter.results[result.result.unwrap_or(0)];
                let owner =
                    if matches!(result.op, KernelOp::Segment(..)) { emitter.row(rows, row, width) } else { rows };
                emitter.columns(width, 4, 1, |emitter, at| {
                    let part = emitter.accumulator(op, at);
                    let (from, offset) = emitter.address(owner, at, 1, false);
                    let so_far = if at.lanes == 4 {
                        emitter.b.ins().load(F32X4, changing(), from, offset)
                    } else {
                        let x = emitter.b.ins().load(F32, changing(), from, offset);
                        emitter.b.ins().splat(F32X4, x)
                    };
                    let sum = emitter.combine(reduce, so_far, part)?;
                    emitter.store(sum, owner, at);
                    Ok(())
                })?;
            }
            Ok(())
        })
    }

    pub(super) fn accumulated(&self, op: usize) -> (Reduce, usize) {
        let op = &self.program.instrs[op];
        match op.op {
            KernelOp::Segment(reduce, _) | KernelOp::ReduceAll(reduce, _) => (reduce, op.width),
            _ => (Reduce::Sum, op.width),
        }
    }

    pub(super) fn accumulator(&mut self, op: usize, at: At) -> Value {
        match &self.accumulators[&op] {
            Accumulator::Registers(variables) => self.b.use_var(variables[vector(at)]),
            Accumulator::Stack(slot) => {
                let row = self.b.ins().stack_addr(I64, *slot, 0);
                let (row, offset) = self.address(row, at, 1, false);
                if at.lanes == 4 {
                    self.b.ins().load(F32X4, changing(), row, offset)
                } else {
                    let x = self.b.ins().load(F32, changing(), row, offset);
                    self.b.ins().splat(F32X4, x)
                }
            }
        }
    }

    pub(super) fn set_accumulator(&mut self, op: usize, value: Value, at: At) {
        match &self.accumulators[&op] {
            Accumulator::Registers(variables) => self.b.def_var(variables[vector(at)], value),
            Accumulator::Stack(slot) => {
                let row = self.b.ins().stack_addr(I64, *slot, 0);
                self.store(value, row, at);
            }
        }
    }

    pub(super) fn combine(&mut self, reduce: Reduce, so_far: Value, x: Value) -> Result<Value, String> {
        Ok(match reduce {
            Reduce::Sum => self.lanes().add(so_far, x),
            Reduce::Max => self.lanes().larger(so_far, x),
            Reduce::Min => self.lanes().smaller(so_far, x),
            Reduce::Lse => return Err("log-sum-exp over items is not generated".into()),
        })
    }

    /// Emits the work on one item.
    fn one(&mut self, phases: &[Phase], item: Value) -> Result<(), String> {
        self.item = item;
        self.array_rows.clear();
        for at in 0..self.program.arrays.len() {
            let array = self.program.arrays[at];
            let row = match array.row {
                Row::Each => self.row(self.arrays[at], item, array.width),
                Row::Same => self.arrays[at],
                Row::Owner => self.row(self.arrays[at], self.owner, array.width),
                Row::Picked(index) => {
                    let picked = self.index(index, item);
                    let picked = self.b.ins().uextend(I64, picked);
                    self.row(self.arrays[at], picked, array.width)
                }
            };
            self.array_rows.push(row);
        }
        for (at, op) in self.program.instrs.iter().enumerate().filter(|(_, op)| !op.accumulates()) {
            if let Some(result) = op.result {
                let row = self.row(self.results[result], item, op.width);
                self.result_rows.insert(at, row);
            }
        }
        for phase in phases {
            match phase {
                Phase::Columns(ops) => self.element_wise(ops)?,
                Phase::Single(op) => match self.program.instrs[*op].op {
                    KernelOp::ReduceTrailing(..) | KernelOp::Dot(..) => self.groups(*op)?,
                    _ => self.moved(*op)?,
                },
            }
        }
        Ok(())
    }
}
