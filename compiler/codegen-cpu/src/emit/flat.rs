//! Programs without row structure: one loop over elements, unrolled by several vectors, then by one, then scalar.

use std::collections::HashMap;

use cranelift_codegen::ir::types::{F32, F32X4, I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use cranelift_frontend::Variable;
use hgnnc_ir::ops::Reduce;

use super::{Emitter, changing, fixed};
use hgnnc_kernel_ir::kernel::KernelOp;
use hgnnc_kernel_ir::loops::function::{Row, Source};

/// Operations per unrolled iteration: enough instruction-level parallelism without spilling registers.
const ROUND: usize = 48;

impl Emitter<'_, '_> {
    pub(super) fn flat(&mut self, width: usize, count: Value) -> Result<(), String> {
        let program = self.program;
        let elements = self.b.ins().imul_imm_u(count, width as i64);
        let totals: Vec<usize> = (0..program.instrs.len()).filter(|&op| program.instrs[op].accumulates()).collect();
        // Reductions use as many partial sums as the runtime's kernels have lanes, and thus add in the same order.
        let vectors = if totals.is_empty() { (ROUND / program.instrs.len()).clamp(1, 4) } else { 4 };
        let mut parts: HashMap<usize, Vec<Variable>> = HashMap::new();
        for &op in &totals {
            let (reduce, _) = self.accumulated(op);
            let identity = self.lanes().number(reduce.identity() as f32);
            let variables: Vec<Variable> = (0..vectors).map(|_| self.b.declare_var(F32X4)).collect();
            variables.iter().for_each(|&variable| self.b.def_var(variable, identity));
            parts.insert(op, variables);
        }
        let mut done = self.integer(0);
        for (step, vectors, lanes) in
            [(4 * vectors, vectors, 4), (4, 1, 4), (1, 1, 1)].into_iter().skip(usize::from(vectors == 1))
        {
            let end = if step == 1 { elements } else { self.whole(elements, step) };
            self.repeat(done, end, step as i64, |emitter, first| {
                for vector in 0..vectors {
                    emitter.flat_vector(first, vector, lanes, &parts)?;
                }
                Ok(())
            })?;
            done = end;
        }
        for &op in &totals {
            let (reduce, _) = self.accumulated(op);
            let mut folded: Vec<Value> = parts[&op].iter().map(|&variable| self.b.use_var(variable)).collect();
            let part = self.fold(reduce, &mut folded)?;
            let part = self.b.ins().splat(F32X4, part);
            let to = self.results[program.instrs[op].result.unwrap_or(0)];
            let so_far = self.b.ins().load(F32, changing(), to, 0);
            let so_far = self.b.ins().splat(F32X4, so_far);
            let total = self.combine(reduce, so_far, part)?;
            let total = self.b.ins().extractlane(total, 0);
            self.b.ins().store(changing(), total, to, 0);
        }
        Ok(())
    }

    /// Rounds `elements` down to a multiple of `step`.
    fn whole(&mut self, elements: Value, step: usize) -> Value {
        let step = self.integer(step as i64);
        let rest = self.b.ins().urem(elements, step);
        self.b.ins().isub(elements, rest)
    }

    /// Emits all operations for vector `vector` of the iteration that begins at element `first`.
    fn flat_vector(
        &mut self,
        first: Value,
        vector: usize,
        lanes: usize,
        parts: &HashMap<usize, Vec<Variable>>,
    ) -> Result<(), String> {
        let program = self.program;
        let offset = (16 * vector) as i32;
        let mut values: Vec<Value> = vec![];
        for (at, op) in program.instrs.iter().enumerate() {
            let operand = |emitter: &mut Self, source| match source {
                Source::Value(value) => values[value],
                Source::Array(array) => emitter.flat_load(array, first, vector, lanes),
                Source::Label(_) => unreachable!("no element-wise instruction of a verified function reads labels"),
            };
            let not_generated = || format!("{:?} is not generated", op.op);
            let value = match &op.op {
                op if op.is_element_wise() => self.function(op, operand)?,
                KernelOp::ReduceAll(reduce, a) => {
                    let (reduce, mut x) = (*reduce, operand(self, *a));
                    let variable = parts[&at][vector];
                    if lanes == 1 {
                        let one = self.b.ins().extractlane(x, 0);
                        let identity = self.lanes().number(reduce.identity() as f32);
                        x = self.b.ins().insertlane(identity, one, 0);
                    }
                    let so_far = self.b.use_var(variable);
                    let sum = self.combine(reduce, so_far, x)?;
                    self.b.def_var(variable, sum);
                    sum
                }
                _ => return Err(not_generated()),
            };
            values.push(value);
            if let (Some(result), false) = (op.result, op.accumulates()) {
                let to = self.row(self.results[result], first, 1);
                if lanes == 4 {
                    self.b.ins().store(changing(), value, to, offset);
                } else {
                    let x = self.b.ins().extractlane(value, 0);
                    self.b.ins().store(changing(), x, to, offset);
                }
            }
        }
        Ok(())
    }

    fn flat_load(&mut self, array: usize, first: Value, vector: usize, lanes: usize) -> Value {
        let base = self.arrays[array];
        let offset = (16 * vector) as i32;
        match self.program.arrays[array].row {
            Row::Same | Row::Owner => {
                let x = self.b.ins().load(F32, fixed(), base, 0);
                self.b.ins().splat(F32X4, x)
            }
            Row::Each => {
                let (from, flags) = (self.row(base, first, 1), self.flags(array));
                if lanes == 4 {
                    return self.b.ins().load(F32X4, flags, from, offset);
                }
                let x = self.b.ins().load(F32, flags, from, offset);
                self.b.ins().splat(F32X4, x)
            }
            Row::Picked(index) => {
                let indices = self.row(self.indices[index as usize], first, 1);
                let picked: Vec<Value> = (0..lanes)
                    .map(|lane| {
                        let at = self.b.ins().load(I32, fixed(), indices, offset + 4 * lane as i32);
                        let at = self.b.ins().uextend(I64, at);
                        let from = self.row(base, at, 1);
                        self.b.ins().load(F32, fixed(), from, 0)
                    })
                    .collect();
                self.join(&picked)
            }
        }
    }

    /// Reduces the lanes of vectors to a scalar by halving, in the order of the runtime's kernels.
    pub(super) fn fold(&mut self, reduce: Reduce, vectors: &mut Vec<Value>) -> Result<Value, String> {
        while vectors.len() > 1 {
            let half = vectors.len().div_ceil(2);
            for at in half..vectors.len() {
                vectors[at - half] = self.combine(reduce, vectors[at - half], vectors[at])?;
            }
            vectors.truncate(half);
        }
        let mut lanes: Vec<Value> = (0..4u8).map(|lane| self.b.ins().extractlane(vectors[0], lane)).collect();
        if reduce == Reduce::Sum {
            let (even, odd) = (self.b.ins().fadd(lanes[0], lanes[2]), self.b.ins().fadd(lanes[1], lanes[3]));
            return Ok(self.b.ins().fadd(even, odd));
        }
        lanes.iter_mut().for_each(|lane| *lane = self.b.ins().splat(F32X4, *lane));
        let (even, odd) = (self.combine(reduce, lanes[0], lanes[2])?, self.combine(reduce, lanes[1], lanes[3])?);
        let vector = self.combine(reduce, even, odd)?;
        Ok(self.b.ins().extractlane(vector, 0))
    }
}
