//! Programs: operations on the rows of arrays, executed for one item after another.
//!
//! An item is a row of a block of rows, or an edge. Each operation computes one row of numbers per item (its *value*)
//! from rows of arrays and values of earlier operations. Unless it has a result, a value exists in registers only, or
//! for one item at a time. Widths are part of the program; numbers of items and addresses are not, so programs with
//! equal texts share a function.
//!
//! ```text
//! items
//!   a0 each 8, a1 picked(0) 8, a2 same 1
//!   v0 = add a0, a1          : 8
//!   v1 = leaky_relu(0.2) v0  : 8
//!   v2 = mul v1, a2          : 8 -> r0
//! ```

use std::fmt;

use hgnnc_ir::ops::{BinaryOp, Reduce, UnaryOp};

/// The loop structure over items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// One loop over all items of a block.
    Items,
    /// Rows that own consecutive items, given by offsets; required by [`Kind::Segment`].
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

/// An input array of a program.
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
    /// The value of an earlier operation, by position.
    Value(usize),
}

/// The operation with its operands.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum Kind {
    /// The element-wise function `f(a)`.
    Unary(UnaryOp, Source),
    /// The element-wise function `a ∘ b`; the narrower operand broadcasts.
    Binary(BinaryOp, Source, Source),
    /// A select: `positive` where `a > 0`, else `otherwise`.
    Choose {
        a: Source,
        positive: f32,
        /// Value where `a` is zero, negative or NaN.
        otherwise: f32,
    },
    /// Broadcasts `a` to the width of the result.
    Copy(Source),
    /// Concatenates along the last dimension: operands with the extent of their last dimension, and the product
    /// of the leading dimensions.
    Concat(Vec<(Source, usize)>, usize),
    /// `len` of every `last` elements, beginning at `start`.
    Slice {
        a: Source,
        /// Extent of the last dimension of `a`.
        last: usize,
        start: usize,
        len: usize,
    },
    /// One-hot encoding of `labels[i]` of this index array; all zeros for labels out of range.
    OneHot(u32),
    /// Reduces groups of consecutive elements, one group per element of the result.
    Reduce(Reduce, Source),
    /// Dot products `Σ a · b` of groups of consecutive elements.
    Dot(Source, Source),
    /// Reduces the items of each row into the row's result, which holds the identity or an earlier partial result.
    Segment(Reduce, Source),
    /// Reduces all items into one row, which holds the identity or an earlier partial result.
    Total(Reduce, Source),
}

/// An operation with its width and result.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Op {
    pub kind: Kind,
    /// Elements of its value, per item.
    pub width: usize,
    /// The result that stores it: a row per item, per owner of items ([`Kind::Segment`]), or
    /// a single row ([`Kind::Total`]).
    pub result: Option<usize>,
}

/// The computation of one function.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Program {
    pub shape: Shape,
    /// Input arrays. No result overlaps them, except where [`Array::changes`] permits it.
    pub arrays: Vec<Array>,
    /// Operations in execution order.
    pub ops: Vec<Op>,
    /// Number of index arrays.
    pub num_indices: usize,
    /// Number of result arrays, which do not overlap each other.
    pub num_results: usize,
}

impl Kind {
    /// The operands in the order of the text.
    pub fn sources(&self) -> Vec<Source> {
        match self {
            Kind::Unary(_, a)
            | Kind::Choose { a, .. }
            | Kind::Copy(a)
            | Kind::Slice { a, .. }
            | Kind::Reduce(_, a)
            | Kind::Segment(_, a)
            | Kind::Total(_, a) => vec![*a],
            Kind::Binary(_, a, b) | Kind::Dot(a, b) => vec![*a, *b],
            Kind::Concat(parts, _) => parts.iter().map(|part| part.0).collect(),
            Kind::OneHot(_) => vec![],
        }
    }

    /// Does the operation reduce over items?
    pub fn accumulates(&self) -> bool {
        matches!(self, Kind::Segment(..) | Kind::Total(..))
    }

    /// Is it element-wise, so that it shares a loop over columns with operations of equal width?
    pub fn element_wise(&self) -> bool {
        match self {
            Kind::Unary(..)
            | Kind::Binary(..)
            | Kind::Choose { .. }
            | Kind::Copy(_)
            | Kind::Segment(..)
            | Kind::Total(..) => true,
            Kind::Concat(..) | Kind::Slice { .. } | Kind::OneHot(_) | Kind::Reduce(..) | Kind::Dot(..) => false,
        }
    }
}

impl Program {
    /// Elements per row of an operand.
    pub fn width(&self, source: Source) -> usize {
        match source {
            Source::Array(array) => self.arrays[array].width,
            Source::Value(op) => self.ops[op].width,
        }
    }

    /// Checks the program. Code generation and the memory safety of the code rely on these rules.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (at, op) in self.ops.iter().enumerate() {
            let wrong = |what: &str| Err(format!("v{at}: {what}"));
            for source in op.kind.sources() {
                let known = match source {
                    Source::Array(array) => array < self.arrays.len(),
                    Source::Value(value) => value < at && !self.ops[value].kind.accumulates(),
                };
                if !known {
                    return wrong("an operand that there is not");
                }
            }
            let widths: Vec<usize> = op.kind.sources().iter().map(|&s| self.width(s)).collect();
            if op.width == 0 || widths.contains(&0) {
                return wrong("no elements");
            }
            let fits = match &op.kind {
                Kind::Unary(_, _) | Kind::Segment(..) | Kind::Total(..) => widths == [op.width],
                Kind::Binary(..) | Kind::Choose { .. } | Kind::Copy(_) => {
                    widths.iter().all(|w| op.width.is_multiple_of(*w))
                }
                Kind::Reduce(..) => widths[0].is_multiple_of(op.width),
                Kind::Dot(..) => widths[0] == widths[1] && widths[0].is_multiple_of(op.width),
                Kind::Slice { last, start, len, .. } => {
                    *len > 0
                        && start + len <= *last
                        && op.width.is_multiple_of(*len)
                        && widths[0] == op.width / len * last
                }
                Kind::Concat(parts, lead) => {
                    let lasts: usize = parts.iter().map(|part| part.1).sum();
                    lasts * lead == op.width && parts.iter().zip(&widths).all(|(part, w)| part.1 * lead == *w)
                }
                Kind::OneHot(labels) => (*labels as usize) < self.num_indices,
            };
            if !fits {
                return wrong("widths that do not fit");
            }
            if op.kind.accumulates() && op.result.is_none() || op.result.is_some_and(|r| r >= self.num_results) {
                return wrong("a result that there is not");
            }
            if matches!(op.kind, Kind::Segment(..)) && self.shape != Shape::Segments {
                return wrong("rows that own items are needed");
            }
            if matches!(op.kind, Kind::Segment(Reduce::Lse, _) | Kind::Total(Reduce::Lse, _)) {
                return wrong("log-sum-exp over items is not generated");
            }
        }
        let known = |array: &Array| match array.row {
            Row::Each | Row::Same => true,
            Row::Picked(index) => (index as usize) < self.num_indices,
            Row::Owner => self.shape == Shape::Segments,
        };
        if self.ops.is_empty() {
            return Err("no operations".into());
        }
        let changes = |array: &Array| array.changes && (array.row != Row::Each || self.shape != Shape::Items);
        if self.arrays.iter().any(changes) {
            return Err("results in the place of rows that other items read".into());
        }
        if self.arrays.iter().all(known) { Ok(()) } else { Err("rows that there are not".into()) }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Array(array) => write!(f, "a{array}"),
            Source::Value(op) => write!(f, "v{op}"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The Debug form includes the slope, which is part of the code.
            Kind::Unary(op, a) => write!(f, "{op:?} {a}"),
            Kind::Binary(op, a, b) => write!(f, "{op:?} {a}, {b}"),
            Kind::Choose { a, positive, otherwise } => write!(f, "Choose({positive:?}, {otherwise:?}) {a}"),
            Kind::Copy(a) => write!(f, "Copy {a}"),
            Kind::Concat(parts, lead) => {
                write!(f, "Concat({lead})")?;
                parts.iter().try_for_each(|(a, last)| write!(f, " {a}:{last}"))
            }
            Kind::Slice { a, last, start, len } => write!(f, "Slice({start}, {len} of {last}) {a}"),
            Kind::OneHot(labels) => write!(f, "OneHot({labels})"),
            Kind::Reduce(reduce, a) => write!(f, "Reduce({reduce:?}) {a}"),
            Kind::Dot(a, b) => write!(f, "Dot {a}, {b}"),
            Kind::Segment(reduce, a) => write!(f, "Segment({reduce:?}) {a}"),
            Kind::Total(reduce, a) => write!(f, "Total({reduce:?}) {a}"),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", if self.shape == Shape::Items { "items" } else { "segments" })?;
        for (at, array) in self.arrays.iter().enumerate() {
            match array.row {
                Row::Each => write!(f, "  a{at} each {}", array.width)?,
                Row::Same => write!(f, "  a{at} same {}", array.width)?,
                Row::Picked(index) => write!(f, "  a{at} picked({index}) {}", array.width)?,
                Row::Owner => write!(f, "  a{at} owner {}", array.width)?,
            }
            writeln!(f, "{}", if array.changes { ", changes" } else { "" })?;
        }
        for (at, op) in self.ops.iter().enumerate() {
            write!(f, "  v{at} = {} : {}", op.kind, op.width)?;
            match op.result {
                Some(result) => writeln!(f, " -> r{result}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}
