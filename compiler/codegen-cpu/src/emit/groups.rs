//! Reductions over groups of consecutive elements, and dot products.
//!
//! The order of additions is that of the runtime's kernels: products of 4, 8, 16, 32 or 64 elements are added as a
//! tree; all others in 16 partial sums, which are then halved.

use cranelift_codegen::ir::types::{F32, F32X4};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value};
use cranelift_frontend::Variable;
use hgnnc_ir::ops::Reduce;

use super::{At, Emitter, UNROLL};
use hgnnc_kernel_ir::kernel::KernelOp;
use hgnnc_kernel_ir::loops::function::Source;

/// The address of a group's first element.
#[derive(Clone, Copy)]
struct Group {
    row: Value,
    offset: i32,
    flags: MemFlagsData,
}

impl Emitter<'_, '_> {
    /// Emits a [`KernelOp::ReduceTrailing`] or [`KernelOp::Dot`] for the current item.
    pub(super) fn groups(&mut self, op: usize) -> Result<(), String> {
        let program = self.program;
        let sources = program.instrs[op].op.operands();
        let width = program.instrs[op].width;
        let inner = program.width(sources[0]) / width;
        if width * inner.div_ceil(4) <= UNROLL {
            let mut column = 0;
            while column < width {
                let lanes = if column + 4 <= width { 4 } else { 1 };
                let groups: Result<Vec<Value>, String> =
                    (column..column + lanes).map(|group| self.group(op, &sources, None, group, inner)).collect();
                let value = self.join(&groups?);
                self.keep(op, value, At { round: None, column, lanes });
                column += lanes;
            }
            return Ok(());
        }
        if width == 1 {
            let value = self.group(op, &sources, None, 0, inner)?;
            let value = self.join(&[value]);
            self.keep(op, value, At { round: None, column: 0, lanes: 1 });
            return Ok(());
        }
        let (zero, end) = (self.integer(0), self.integer(width as i64));
        self.repeat(zero, end, 1, |emitter, group| {
            let value = emitter.group(op, &sources, Some(group), 0, inner)?;
            let value = emitter.join(&[value]);
            emitter.keep(op, value, At { round: Some((group, 1)), column: 0, lanes: 1 });
            Ok(())
        })
    }

    /// Emits one group, inside a loop over groups or unrolled.
    fn group(
        &mut self,
        op: usize,
        sources: &[Source],
        round: Option<Value>,
        group: usize,
        inner: usize,
    ) -> Result<Value, String> {
        let places: Vec<Group> = sources
            .iter()
            .map(|&source| {
                let (row, flags) = self.memory(source);
                let row = match round {
                    Some(round) => self.row(row, round, inner),
                    None => row,
                };
                Group { row, offset: (4 * group * inner) as i32, flags }
            })
            .collect();
        match self.program.instrs[op].op {
            KernelOp::Dot(..) if matches!(inner, 4 | 8 | 16 | 32 | 64) => {
                let mut products: Vec<Value> = (0..inner / 4)
                    .map(|v| {
                        let (x, y) = (self.vector(places[0], v), self.vector(places[1], v));
                        self.lanes().mul(x, y)
                    })
                    .collect();
                self.fold(Reduce::Sum, &mut products)
            }
            KernelOp::Dot(..) => {
                let mut sums =
                    self.over(inner, 0.0, &places, |emitter, so_far, x| Ok(emitter.lanes().fma(x[0], x[1], so_far)))?;
                self.fold(Reduce::Sum, &mut sums)
            }
            KernelOp::ReduceTrailing(Reduce::Lse, _) => self.log_sum_exp(&places, inner),
            KernelOp::ReduceTrailing(reduce, _) => self.reduced(reduce, &places, inner),
            _ => Err("no reduction of groups".into()),
        }
    }

    fn reduced(&mut self, reduce: Reduce, places: &[Group], inner: usize) -> Result<Value, String> {
        let identity = reduce.identity() as f32;
        let mut parts =
            self.over(inner, identity, places, |emitter, so_far, x| emitter.combine(reduce, so_far, x[0]))?;
        self.fold(reduce, &mut parts)
    }

    fn log_sum_exp(&mut self, places: &[Group], inner: usize) -> Result<Value, String> {
        let largest = self.reduced(Reduce::Max, places, inner)?;
        let largest = self.b.ins().splat(F32X4, largest);
        // Padding must not contribute to the sum: `exp(-∞)` is 0.
        let mut sums = self.over_padded(inner, (0.0, f32::NEG_INFINITY), places, |emitter, so_far, x| {
            let shifted = emitter.lanes().sub(x[0], largest);
            let e = emitter.lanes().exp(shifted);
            Ok(emitter.lanes().add(so_far, e))
        })?;
        let total = self.fold(Reduce::Sum, &mut sums)?;
        let total = self.b.ins().splat(F32X4, total);
        let ln = self.lanes().ln(total);
        let lse = self.lanes().add(largest, ln);
        let lse = self.lanes().unless_infinite(largest, lse);
        Ok(self.b.ins().extractlane(lse, 0))
    }

    fn over(
        &mut self,
        inner: usize,
        identity: f32,
        places: &[Group],
        step: impl FnMut(&mut Self, Value, &[Value]) -> Result<Value, String>,
    ) -> Result<Vec<Value>, String> {
        self.over_padded(inner, (identity, identity), places, step)
    }

    /// Accumulates a group in up to four vectors, 16 elements at a time; long groups in a loop.
    fn over_padded(
        &mut self,
        inner: usize,
        (identity, padding): (f32, f32),
        places: &[Group],
        mut step: impl FnMut(&mut Self, Value, &[Value]) -> Result<Value, String>,
    ) -> Result<Vec<Value>, String> {
        let used = inner.div_ceil(4).min(4);
        let identity = self.lanes().number(identity);
        let mut sums = vec![identity; used];
        let mut done = 0;
        if inner > 64 {
            let variables: Vec<Variable> = sums.iter().map(|_| self.b.declare_var(F32X4)).collect();
            variables.iter().for_each(|&variable| self.b.def_var(variable, identity));
            let (zero, rounds) = (self.integer(0), self.integer((inner / 16) as i64));
            self.repeat(zero, rounds, 1, |emitter, round| {
                let here: Vec<Group> =
                    places.iter().map(|place| Group { row: emitter.row(place.row, round, 16), ..*place }).collect();
                for (v, &variable) in variables.iter().enumerate() {
                    let x: Vec<Value> = here.iter().map(|&place| emitter.vector(place, v)).collect();
                    let so_far = emitter.b.use_var(variable);
                    let sum = step(emitter, so_far, &x)?;
                    emitter.b.def_var(variable, sum);
                }
                Ok(())
            })?;
            sums = variables.iter().map(|&variable| self.b.use_var(variable)).collect();
            done = inner / 16 * 16;
        }
        for first in (done..inner).step_by(4) {
            let x: Vec<Value> = places
                .iter()
                .map(|&place| {
                    if first + 4 <= inner {
                        return self.vector(place, first / 4);
                    }
                    let mut vector = self.lanes().number(padding);
                    for lane in 0..inner - first {
                        let x =
                            self.b.ins().load(F32, place.flags, place.row, place.offset + 4 * (first + lane) as i32);
                        vector = self.b.ins().insertlane(vector, x, lane as u8);
                    }
                    vector
                })
                .collect();
            let sum = (first / 4) % 4;
            sums[sum] = step(self, sums[sum], &x)?;
        }
        Ok(sums)
    }

    fn vector(&mut self, place: Group, vector: usize) -> Value {
        self.b.ins().load(F32X4, place.flags, place.row, place.offset + 16 * vector as i32)
    }
}
