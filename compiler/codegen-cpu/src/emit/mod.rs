//! Emits the loops of a program.
//!
//! ```text
//! for each row that owns items                 (Shape::Segments; otherwise all items belong to one row)
//!     for each run of RUN items                (only if the program reduces over items)
//!         accumulators = identity
//!         for each item: the phases, in order
//!         results = results ∘ accumulators
//! ```
//!
//! All numbers are vectors of four lanes; a column outside a full vector occupies the first lane of one.
//!
//! Loads of arrays carry `can_move`, `notrap` and `readonly` if no result overlaps them, so Cranelift may schedule them
//! at their uses. Loads of other arrays, of results and of rows on the stack stay in order.

mod flat;
mod groups;
mod moves;
mod rows;

use std::collections::HashMap;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F32, F32X4, I32, I64};
use cranelift_codegen::ir::{BlockArg, InstBuilder, MemFlagsData, StackSlot, StackSlotData, StackSlotKind, Value};
use cranelift_frontend::FunctionBuilder;

use crate::math::Lanes;
use crate::phases::flat_width;
use hgnnc_kernel_ir::kernel::KernelOp;
use hgnnc_kernel_ir::loops::function::{Function, Source};
use rows::Accumulator;

/// Maximum number of operations times vectors that are unrolled; wider phases become loops over columns.
const UNROLL: usize = 192;

/// Flags of loads from memory that is never written.
fn fixed() -> MemFlagsData {
    MemFlagsData::new().with_notrap().with_can_move().with_readonly()
}

/// Flags of accesses to memory that the function writes.
fn changing() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

/// A range of columns of the current row.
#[derive(Clone, Copy)]
pub(crate) struct At {
    /// Inside a loop over columns: the loop counter and the columns per iteration.
    round: Option<(Value, usize)>,
    /// The first column, relative to the iteration.
    column: usize,
    /// Number of lanes: 4 or 1.
    lanes: usize,
}

pub(crate) struct Emitter<'p, 'b> {
    b: FunctionBuilder<'b>,
    program: &'p Function,
    fma: bool,
    arrays: Vec<Value>,
    indices: Vec<Value>,
    results: Vec<Value>,
    /// Addresses of the current item's rows of arrays.
    array_rows: Vec<Value>,
    result_rows: HashMap<usize, Value>,
    item: Value,
    /// The row that owns the current item.
    owner: Value,
    /// Stack rows of values that other phases read and that are no results.
    stack: HashMap<usize, StackSlot>,
    accumulators: HashMap<usize, Accumulator>,
}

/// Emits the body of a function `(arrays, indices, results, offsets, count)` and creates its blocks. The error is the
/// reason why code is not generated.
pub(crate) fn emit<'b>(program: &Function, b: FunctionBuilder<'b>, fma: bool) -> Result<FunctionBuilder<'b>, String> {
    program.verify()?;
    let mut b = b;
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    b.seal_block(entry);
    let params = b.block_params(entry).to_vec();
    let [arrays, indices, results, offsets, count] = params[..] else {
        return Err("a function of five parameters is needed".into());
    };
    let mut table = |table: Value, entries: usize| -> Vec<Value> {
        (0..entries).map(|at| b.ins().load(I64, fixed(), table, 8 * at as i32)).collect()
    };
    let arrays = table(arrays, program.arrays.len());
    let indices = table(indices, program.num_indices);
    let results = table(results, program.num_results);
    let mut emitter = Emitter {
        b,
        program,
        fma,
        arrays,
        indices,
        results,
        array_rows: vec![],
        result_rows: HashMap::new(),
        item: count,
        owner: count,
        stack: HashMap::new(),
        accumulators: HashMap::new(),
    };
    match flat_width(program) {
        Some(width) => emitter.flat(width, count)?,
        None => emitter.rows(offsets, count)?,
    }
    emitter.b.ins().return_(&[]);
    Ok(emitter.b)
}

impl<'b> Emitter<'_, 'b> {
    fn lanes(&mut self) -> Lanes<'_, 'b> {
        Lanes { b: &mut self.b, fma: self.fma }
    }

    fn integer(&mut self, value: i64) -> Value {
        self.b.ins().iconst(I64, value)
    }

    /// A loop: runs `body` for `from`, `from + step`, … while below `to`.
    fn repeat(
        &mut self,
        from: Value,
        to: Value,
        step: i64,
        body: impl FnOnce(&mut Self, Value) -> Result<(), String>,
    ) -> Result<(), String> {
        let (inside, after) = (self.b.create_block(), self.b.create_block());
        let at = self.b.append_block_param(inside, I64);
        let any = self.b.ins().icmp(IntCC::UnsignedLessThan, from, to);
        self.b.ins().brif(any, inside, &[BlockArg::Value(from)], after, &[]);
        self.b.switch_to_block(inside);
        body(self, at)?;
        let next = self.b.ins().iadd_imm_u(at, step);
        let more = self.b.ins().icmp(IntCC::UnsignedLessThan, next, to);
        self.b.ins().brif(more, inside, &[BlockArg::Value(next)], after, &[]);
        self.b.seal_block(inside);
        self.b.seal_block(after);
        self.b.switch_to_block(after);
        Ok(())
    }

    /// Runs `body` for all columns of rows of `width` elements: unrolled if that is little code (`weight` operations
    /// per vector), else in a loop whose iterations cover a multiple of `unit` columns.
    fn columns(
        &mut self,
        width: usize,
        unit: usize,
        weight: usize,
        mut body: impl FnMut(&mut Self, At) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut straight = |emitter: &mut Self, round: Option<(Value, usize)>, columns: std::ops::Range<usize>| {
            let mut column = columns.start;
            while column < columns.end {
                let lanes = if column + 4 <= columns.end { 4 } else { 1 };
                body(emitter, At { round, column, lanes })?;
                column += lanes;
            }
            Ok::<(), String>(())
        };
        if is_straight(width, weight) {
            return straight(self, None, 0..width);
        }
        let mut unit = unit.next_multiple_of(4);
        while unit < 16 && 2 * unit <= width {
            unit *= 2;
        }
        if unit > width || unit.div_ceil(4) * weight > 2 * UNROLL {
            return Err(format!("rounds of {unit} columns of {weight} operations are too long"));
        }
        let (zero, rounds) = (self.integer(0), self.integer((width / unit) as i64));
        self.repeat(zero, rounds, 1, |emitter, round| straight(emitter, Some((round, unit)), 0..unit))?;
        straight(self, None, width / unit * unit..width)
    }

    /// The address of the operand's element for column `at.column`, where each element is broadcast to `repeat` columns
    /// (with `only`, the row's single element to all).
    fn address(&mut self, row: Value, at: At, repeat: usize, only: bool) -> (Value, i32) {
        match at.round {
            Some((round, unit)) if !only => {
                let bytes = self.b.ins().imul_imm_u(round, (unit / repeat * 4) as i64);
                (self.b.ins().iadd(row, bytes), (at.column / repeat * 4) as i32)
            }
            _ => (row, if only { 0 } else { (at.column / repeat * 4) as i32 }),
        }
    }

    fn flags(&self, array: usize) -> MemFlagsData {
        if self.program.arrays[array].changes { changing() } else { fixed() }
    }

    /// The address of an operand's row for the current item.
    fn memory(&mut self, source: Source) -> (Value, MemFlagsData) {
        match source {
            Source::Array(array) => (self.array_rows[array], self.flags(array)),
            Source::Label(_) => unreachable!("labels are read by `one_hot` only"),
            Source::Value(op) => match self.program.instrs[op].result {
                Some(_) => (self.result_rows[&op], changing()),
                None => (self.b.ins().stack_addr(I64, self.stack[&op], 0), changing()),
            },
        }
    }

    /// Loads columns of an operand from memory, broadcast to rows of `width` elements.
    fn fetch(&mut self, source: Source, width: usize, at: At) -> Value {
        let own = self.program.width(source);
        let repeat = width / own;
        let (row, flags) = self.memory(source);
        let (row, offset) = self.address(row, at, repeat, own == 1);
        if at.lanes == 4 && repeat == 1 {
            return self.b.ins().load(F32X4, flags, row, offset);
        }
        if at.lanes == 1 || own == 1 || repeat.is_multiple_of(4) {
            let x = self.b.ins().load(F32, flags, row, offset);
            return self.b.ins().splat(F32X4, x);
        }
        let elements: Vec<i32> = (0..4).map(|lane| ((at.column + lane) / repeat * 4) as i32).collect();
        let lanes: Vec<Value> = elements.iter().map(|&e| self.b.ins().load(F32, flags, row, e)).collect();
        self.join(&lanes)
    }

    /// A vector of up to four scalars; unused lanes repeat the first.
    fn join(&mut self, lanes: &[Value]) -> Value {
        let mut vector = self.b.ins().splat(F32X4, lanes[0]);
        for (lane, &x) in lanes.iter().enumerate().skip(1) {
            vector = self.b.ins().insertlane(vector, x, lane as u8);
        }
        vector
    }

    fn store(&mut self, value: Value, row: Value, at: At) {
        let (row, offset) = self.address(row, at, 1, false);
        if at.lanes == 4 {
            self.b.ins().store(changing(), value, row, offset);
        } else {
            let x = self.b.ins().extractlane(value, 0);
            self.b.ins().store(changing(), x, row, offset);
        }
    }

    /// Stores columns of an operation's value if a result or another phase needs it.
    fn keep(&mut self, op: usize, value: Value, at: At) {
        if let Some(&row) = self.result_rows.get(&op) {
            self.store(value, row, at);
        } else if let Some(&slot) = self.stack.get(&op) {
            let row = self.b.ins().stack_addr(I64, slot, 0);
            self.store(value, row, at);
        }
    }

    fn row_on_stack(&mut self, width: usize) -> StackSlot {
        let bytes = (4 * width).next_multiple_of(16) as u32;
        self.b.func.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 4))
    }

    /// The address `rows[at]` of rows with `width` elements.
    fn row(&mut self, rows: Value, at: Value, width: usize) -> Value {
        let bytes = self.b.ins().imul_imm_u(at, 4 * width as i64);
        self.b.ins().iadd(rows, bytes)
    }

    fn index(&mut self, index: u32, item: Value) -> Value {
        let indices = self.indices[index as usize];
        let at = self.row(indices, item, 1);
        self.b.ins().load(I32, fixed(), at, 0)
    }

    /// Emits a phase of element-wise operations of equal width.
    fn element_wise(&mut self, ops: &[usize]) -> Result<(), String> {
        let program = self.program;
        let width = program.instrs[ops[0]].width;
        let mut unit = 4;
        for source in ops.iter().flat_map(|&at| program.instrs[at].op.operands()) {
            let own = program.width(source);
            if own != 1 && own != width {
                unit = lcm(unit, width / own);
            }
        }
        self.columns(width, unit, ops.len(), |emitter, at| {
            let mut values: HashMap<usize, Value> = HashMap::new();
            for &op in ops {
                let value = emitter.element(op, &values, width, at)?;
                values.insert(op, value);
                emitter.keep(op, value, at);
            }
            Ok(())
        })
    }

    /// Emits columns of an element-wise operation, given the values of earlier operations of its phase.
    fn element(&mut self, op: usize, values: &HashMap<usize, Value>, width: usize, at: At) -> Result<Value, String> {
        let operand = |emitter: &mut Self, source: Source| match source {
            Source::Value(value) if values.contains_key(&value) => values[&value],
            _ => emitter.fetch(source, width, at),
        };
        match &self.program.instrs[op].op {
            KernelOp::Segment(reduce, a) | KernelOp::ReduceAll(reduce, a) => {
                let (x, so_far) = (operand(self, *a), self.accumulator(op, at));
                let sum = self.combine(*reduce, so_far, x)?;
                self.set_accumulator(op, sum, at);
                Ok(sum)
            }
            element_wise => self.function(element_wise, operand),
        }
    }

    /// Computes a vector of an element-wise operation.
    fn function(
        &mut self,
        op: &KernelOp<Source, usize>,
        mut operand: impl FnMut(&mut Self, Source) -> Value,
    ) -> Result<Value, String> {
        let not_generated = || format!("{op:?} is not generated");
        Ok(match *op {
            KernelOp::Unary(f, a) => {
                let x = operand(self, a);
                self.lanes().unary(f, x).ok_or_else(not_generated)?
            }
            KernelOp::Binary(f, a, b) => {
                let (x, y) = (operand(self, a), operand(self, b));
                self.lanes().binary(f, x, y).ok_or_else(not_generated)?
            }
            KernelOp::Compose { first, then, a, b } => {
                let (x, y) = (operand(self, a), operand(self, b));
                let x = self.lanes().binary(first, x, y).ok_or_else(not_generated)?;
                self.lanes().unary(then, x).ok_or_else(not_generated)?
            }
            KernelOp::Select { a, positive, otherwise } => {
                let x = operand(self, a);
                self.lanes().choose(x, positive as f32, otherwise as f32)
            }
            KernelOp::Copy(a) => operand(self, a),
            _ => return Err(not_generated()),
        })
    }
}

/// Are all columns of a row unrolled?
fn is_straight(width: usize, weight: usize) -> bool {
    (width / 4 + width % 4) * weight <= UNROLL
}

/// Index of the vector within an unrolled row.
fn vector(at: At) -> usize {
    at.column / 4 + at.column % 4
}

fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}
