//! Functions: operations on the rows of arrays, executed for one item after another, as one loop of machine code.
//!
//! An item is a row of a block of rows, or an edge. Each instruction computes one row of numbers per item (its *value*)
//! from rows of arrays and values of earlier instructions. Unless it has a result, a value exists in registers only, or
//! for one item at a time. Widths are part of the function; numbers of items and addresses are not, so loops with equal
//! texts share a function.
//!
//! ```text
//! items, indices 1, results 1
//!   a0 each 8
//!   a1 picked(0) 8
//!   a2 same 1
//!   v0 = add a0, a1 : 8
//!   v1 = leaky_relu(0.2) v0 : 8
//!   v2 = mul v1, a2 : 8 -> r0
//! ```

use std::fmt;

use hgnnc_ir::ops::Reduce;

use crate::kernel::KernelOp;
use crate::kernel::print::head;

/// The loop structure over items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// One loop over all items of a block.
    Items,
    /// Rows that own consecutive items, given by offsets; required by [`KernelOp::Segment`].
    Segments,
}

/// The row of an array that item `i` reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Row {
    /// Row `i`, one per item.
    Each,
    /// Row 0 for all items: a uniform operand.
    Same,
    /// Row `index[i]` of this index array: a gather.
    Picked(u32),
    /// Row `r`, where row `r` owns the item ([`Shape::Segments`]).
    Owner,
}

/// An input array of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Array {
    /// Number of elements per row.
    pub width: usize,
    /// The row that an item reads.
    pub row: Row,
    /// May a result alias this array (an in-place update)? Then every read of row `i` completes before row `i` of the
    /// result is written, or belongs to the operation that writes it element by element.
    pub changes: bool,
}

/// The source of an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The row of an array, by position.
    Array(usize),
    /// The value of an earlier instruction, by position.
    Value(usize),
    /// The class label of the item, in an index array ([`KernelOp::OneHot`]).
    Label(u32),
}

/// An instruction with its width and result.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Instr {
    pub op: KernelOp<Source, usize>,
    /// Elements of its value, per item.
    pub width: usize,
    /// The result that stores it: a row per item, per owner of items ([`KernelOp::Segment`]), or
    /// a single row ([`KernelOp::ReduceAll`]).
    pub result: Option<usize>,
}

/// The computation of one function.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Function {
    pub shape: Shape,
    /// Input arrays. No result overlaps them, except where [`Array::changes`] permits it.
    pub arrays: Vec<Array>,
    /// Instructions in execution order.
    pub instrs: Vec<Instr>,
    /// Number of index arrays.
    pub num_indices: usize,
    /// Number of result arrays, which do not overlap each other.
    pub num_results: usize,
}

impl Instr {
    /// Does it reduce over items?
    pub fn accumulates(&self) -> bool {
        matches!(self.op, KernelOp::Segment(..) | KernelOp::ReduceAll(..))
    }

    /// Is it computed column by column, so that it shares a loop over columns with instructions of equal width?
    pub fn by_columns(&self) -> bool {
        self.op.is_element_wise() || self.accumulates()
    }
}

impl Function {
    /// Elements per row of an operand.
    pub fn width(&self, source: Source) -> usize {
        match source {
            Source::Array(array) => self.arrays[array].width,
            Source::Value(instr) => self.instrs[instr].width,
            Source::Label(_) => 1,
        }
    }

    /// Checks the function. Code generation and the memory safety of the code rely on these rules.
    ///
    /// # Errors
    /// The first rule that is broken, with the value that breaks it.
    pub fn verify(&self) -> Result<(), String> {
        match self.violations().into_iter().next() {
            None => Ok(()),
            Some((Some(value), rule)) => Err(format!("v{value}: {rule}")),
            Some((None, rule)) => Err(rule.into()),
        }
    }

    /// All rules that are broken, with the value that breaks each, if it is one.
    pub fn violations(&self) -> Vec<(Option<usize>, &'static str)> {
        let mut broken = vec![];
        if self.instrs.is_empty() {
            broken.push((None, "no instructions"));
        }
        for (at, instr) in self.instrs.iter().enumerate() {
            if let Err(rule) = self.instr(at, instr) {
                broken.push((Some(at), rule));
            }
        }
        for result in 0..self.num_results {
            if self.instrs.iter().filter(|instr| instr.result == Some(result)).count() != 1 {
                broken.push((None, "a result is not written once"));
            }
        }
        let exists = |array: &Array| match array.row {
            Row::Each | Row::Same => true,
            Row::Picked(index) => (index as usize) < self.num_indices,
            Row::Owner => self.shape == Shape::Segments,
        };
        if !self.arrays.iter().all(exists) {
            broken.push((None, "an array is read at rows that do not exist"));
        }
        let changes = |array: &Array| array.changes && (array.row != Row::Each || self.shape != Shape::Items);
        if self.arrays.iter().any(changes) {
            broken.push((None, "a result aliases rows that other items read"));
        }
        broken
    }

    fn instr(&self, at: usize, instr: &Instr) -> Result<(), &'static str> {
        let operands = instr.op.operands();
        let exists = |source: &Source| match *source {
            Source::Array(array) => array < self.arrays.len(),
            Source::Value(value) => value < at && !self.instrs[value].accumulates(),
            Source::Label(index) => (index as usize) < self.num_indices,
        };
        if !operands.iter().all(exists) {
            return Err("an operand does not exist");
        }
        if operands.iter().any(|source| matches!(source, Source::Label(_))) != matches!(instr.op, KernelOp::OneHot(_)) {
            return Err("only a one-hot encoding reads labels");
        }
        let widths: Vec<usize> = operands.iter().map(|&source| self.width(source)).collect();
        if instr.width == 0 || widths.contains(&0) {
            return Err("a row has no elements");
        }
        let fits = match &instr.op {
            KernelOp::Unary(..) | KernelOp::Segment(..) | KernelOp::ReduceAll(..) => widths == [instr.width],
            KernelOp::Binary(..) | KernelOp::Compose { .. } | KernelOp::Select { .. } | KernelOp::Copy(_) => {
                widths.iter().all(|&width| instr.width.is_multiple_of(width))
            }
            KernelOp::ReduceTrailing(..) => widths[0].is_multiple_of(instr.width),
            KernelOp::Dot(..) => widths[0] == widths[1] && widths[0].is_multiple_of(instr.width),
            KernelOp::Slice { last, start, len, .. } => {
                *len > 0
                    && start + len <= *last
                    && instr.width.is_multiple_of(*len)
                    && widths[0] == instr.width / len * last
            }
            KernelOp::Concat { lead, .. } => {
                *lead > 0
                    && widths.iter().all(|width| width.is_multiple_of(*lead))
                    && widths.iter().sum::<usize>() == instr.width
            }
            KernelOp::OneHot(_) => true,
            KernelOp::ScatterRows(..)
            | KernelOp::ScatterAdd(_)
            | KernelOp::Mask { .. }
            | KernelOp::Transpose { .. }
            | KernelOp::RowProduct { .. }
            | KernelOp::MatMul(..)
            | KernelOp::MatMulT(..)
            | KernelOp::WeightedSum { .. }
            | KernelOp::SoftmaxSum { .. }
            | KernelOp::SegmentArg { .. }
            | KernelOp::OuterAll(..) => return Err("no code is generated for this operation"),
        };
        if !fits {
            return Err("the widths do not fit");
        }
        if instr.accumulates() && instr.result.is_none() || instr.result.is_some_and(|r| r >= self.num_results) {
            return Err("the result does not exist");
        }
        if matches!(instr.op, KernelOp::Segment(..)) && self.shape != Shape::Segments {
            return Err("a segment reduction needs rows that own items");
        }
        if matches!(instr.op, KernelOp::Segment(Reduce::Lse, _) | KernelOp::ReduceAll(Reduce::Lse, _)) {
            return Err("no code is generated for log-sum-exp over items");
        }
        Ok(())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Array(array) => write!(f, "a{array}"),
            Source::Value(instr) => write!(f, "v{instr}"),
            Source::Label(index) => write!(f, "label({index})"),
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = if self.shape == Shape::Items { "items" } else { "segments" };
        writeln!(f, "{shape}, indices {}, results {}", self.num_indices, self.num_results)?;
        for (at, array) in self.arrays.iter().enumerate() {
            match array.row {
                Row::Each => write!(f, "  a{at} each {}", array.width)?,
                Row::Same => write!(f, "  a{at} same {}", array.width)?,
                Row::Picked(index) => write!(f, "  a{at} picked({index}) {}", array.width)?,
                Row::Owner => write!(f, "  a{at} owner {}", array.width)?,
            }
            writeln!(f, "{}", if array.changes { ", changes" } else { "" })?;
        }
        for (at, instr) in self.instrs.iter().enumerate() {
            let operands: Vec<String> = instr.op.operands().iter().map(ToString::to_string).collect();
            let head = head(&instr.op, "items", usize::to_string);
            let space = if operands.is_empty() { "" } else { " " };
            write!(f, "  v{at} = {head}{space}{} : {}", operands.join(", "), instr.width)?;
            match instr.result {
                Some(result) => writeln!(f, " -> r{result}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}
