//! What a function computes: operations on the rows of arrays, for one item after another.
//!
//! An item is a row of a block of rows, or an edge. Each operation has one row of numbers per item (its *value*); it reads
//! rows of arrays and values of earlier operations, and its own value exists in registers, or for one item at a time,
//! unless it has a result. Widths are part of the program, numbers of items and addresses are not: programs whose texts
//! are equal share a function.
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

/// How items are gone through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// All items of a block.
    Items,
    /// Rows that own consecutive items, given by offsets: [`Kind::Segment`] needs it.
    Segments,
}

/// Which row of an array belongs to item `i`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Row {
    /// Row `i`.
    Each,
    /// The first one.
    Same,
    /// Row `index[i]` of this array of indices.
    Picked(u32),
    /// Row `r` of the row that owns the item ([`Shape::Segments`]).
    Owner,
}

/// An array that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Array {
    /// Elements per row.
    pub width: usize,
    /// Row of an item.
    pub row: Row,
    /// May a result lie in its place? All that reads its row `i` then has to be done before row `i` of the result is
    /// written, or be the operation that writes it, element by element.
    pub changes: bool,
}

/// Where an operand comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The row of an array.
    Array(usize),
    /// The value of an earlier operation.
    Value(usize),
}

/// What an operation computes.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// `f(a)`
    Unary(UnaryOp, Source),
    /// `a ∘ b`; each element of a narrower operand counts for several of the result.
    Binary(BinaryOp, Source, Source),
    /// `positive` where `a` is above zero, `otherwise` elsewhere.
    Choose {
        /// Whose sign.
        a: Source,
        /// Above zero.
        positive: f32,
        /// At zero, below, and where it is no number.
        otherwise: f32,
    },
    /// Each element of `a` repeated to the width of the result.
    Copy(Source),
    /// Along the last dimension: parts with the extent of their last dimension, and the leading extent.
    Concat(Vec<(Source, usize)>, usize),
    /// `len` of every `last` elements from `start` of each.
    Slice {
        /// From.
        a: Source,
        /// Extent of the last dimension of `a`.
        last: usize,
        /// First element.
        start: usize,
        /// Number of elements.
        len: usize,
    },
    /// 1 at the label of the item, which is `labels[i]` of this array of indices, else 0; all 0 for other labels.
    OneHot(u32),
    /// Over groups of neighbouring elements, as many as the result has.
    Reduce(Reduce, Source),
    /// `Σ a · b` over groups of neighbouring elements.
    Dot(Source, Source),
    /// Over the items of each row, into the row's result, which holds the identity or an earlier part.
    Segment(Reduce, Source),
    /// Over all items, into one row, which holds the identity or an earlier part.
    Total(Reduce, Source),
}

/// An operation.
#[derive(Clone, PartialEq, Debug)]
pub struct Op {
    /// What.
    pub kind: Kind,
    /// Elements of its value.
    pub width: usize,
    /// The result that keeps it: a row per item, per owner of items ([`Kind::Segment`]), or one ([`Kind::Total`]).
    pub result: Option<usize>,
}

/// What a function computes.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// How items are gone through.
    pub shape: Shape,
    /// What is read. No result overlaps it, unless [`Array::changes`] says so.
    pub arrays: Vec<Array>,
    /// In order.
    pub ops: Vec<Op>,
    /// Arrays of indices.
    pub num_indices: usize,
    /// Results, which do not overlap each other.
    pub num_results: usize,
}

impl Kind {
    /// All operands.
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

    /// Does the function accumulate it over items?
    pub fn accumulates(&self) -> bool {
        matches!(self, Kind::Segment(..) | Kind::Total(..))
    }

    /// Element by element: with this, values of one width stay in registers.
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
    /// Elements of an operand.
    pub fn width(&self, source: Source) -> usize {
        match source {
            Source::Array(array) => self.arrays[array].width,
            Source::Value(op) => self.ops[op].width,
        }
    }

    /// What is wrong with it, if anything: the code generator relies on this, and so does the safety of what it makes.
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
            // The number of a slope is part of the code.
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
