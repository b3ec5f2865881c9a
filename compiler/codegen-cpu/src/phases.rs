//! Partitions a program into phases: operations that are computed together for each group of four columns of an item.
//!
//! Within a phase of element-wise operations of one width, values stay in registers. A value that another phase
//! reads passes through memory: through its result if it has one, else through a row on the stack, which stays
//! in the L1 cache.

use hgnnc_kernel_ir::loops::function::{Function, Row, Shape, Source};

/// A group of operations that run in one loop over the columns of an item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Element-wise operations of equal width.
    Columns(Vec<usize>),
    /// A reduction within the row, or an operation that moves elements.
    Single(usize),
}

/// The phases in execution order, and for each operation whether another phase reads its value.
pub(crate) fn phases(program: &Function) -> (Vec<Phase>, Vec<bool>) {
    let mut phases: Vec<Phase> = vec![];
    let mut phase_of: Vec<usize> = vec![];
    for (at, op) in program.instrs.iter().enumerate() {
        let joins = |value: usize| {
            let other = &program.instrs[value];
            op.by_columns() && other.by_columns() && other.width == op.width
        };
        let first = op.op.operands().into_iter().map(|source| match source {
            Source::Array(_) | Source::Label(_) => 0,
            Source::Value(value) if joins(value) => phase_of[value],
            Source::Value(value) => phase_of[value] + 1,
        });
        let first = first.max().unwrap_or(0);
        let fits = |phase: &Phase| match phase {
            Phase::Columns(ops) => op.by_columns() && program.instrs[ops[0]].width == op.width,
            Phase::Single(_) => false,
        };
        let place = (first..phases.len()).find(|&phase| fits(&phases[phase]));
        phase_of.push(place.unwrap_or(phases.len()));
        match place.map(|phase| &mut phases[phase]) {
            Some(Phase::Columns(ops)) => ops.push(at),
            Some(Phase::Single(_)) | None if op.by_columns() => phases.push(Phase::Columns(vec![at])),
            Some(Phase::Single(_)) | None => phases.push(Phase::Single(at)),
        }
    }
    let mut kept = vec![false; program.instrs.len()];
    for (at, op) in program.instrs.iter().enumerate() {
        for source in op.op.operands() {
            if let Source::Value(value) = source {
                kept[value] |= phase_of[value] != phase_of[at];
            }
        }
    }
    (phases, kept)
}

/// The common width of a program without row structure, whose items can be treated as elements of one long row.
pub(crate) fn flat_width(program: &Function) -> Option<usize> {
    let width = program.instrs.first()?.width;
    let plain = program.instrs.iter().all(|op| {
        op.by_columns()
            && op.width == width
            && (!op.accumulates() || width == 1)
            && op.op.operands().iter().all(|&source| match source {
                Source::Value(_) => true,
                Source::Label(_) => false,
                Source::Array(array) => match program.arrays[array].row {
                    Row::Each => program.arrays[array].width == width,
                    Row::Same => program.arrays[array].width == 1,
                    Row::Picked(_) => width == 1,
                    Row::Owner => false,
                },
            })
    });
    (plain && program.shape == Shape::Items).then_some(width)
}

#[cfg(test)]
mod tests {
    use hgnnc_ir::ops::{BinaryOp, Reduce, UnaryOp};

    use super::*;
    use hgnnc_kernel_ir::kernel::KernelOp;
    use hgnnc_kernel_ir::loops::function::{Array, Instr};

    /// Softmax of `a0` (8 elements) without the maximum, times `a1` (1 element).
    fn softmax(second: Row) -> Function {
        let (a, v) = (Source::Array, Source::Value);
        let op = |op, width, result| Instr { op, width, result };
        Function {
            shape: Shape::Items,
            arrays: vec![
                Array { width: 8, row: Row::Each, changes: false },
                Array { width: 1, row: second, changes: false },
            ],
            instrs: vec![
                op(KernelOp::Unary(UnaryOp::Exp, a(0)), 8, None),
                op(KernelOp::ReduceTrailing(Reduce::Sum, v(0)), 1, None),
                op(KernelOp::Binary(BinaryOp::Mul, v(0), a(1)), 8, None),
                op(KernelOp::Binary(BinaryOp::Div, v(2), v(1)), 8, Some(0)),
            ],
            num_indices: 1,
            num_results: 1,
        }
    }

    #[test]
    fn what_needs_no_sum_of_the_row_is_computed_with_its_operand() {
        let (phases, kept) = phases(&softmax(Row::Same));
        assert_eq!(phases, [Phase::Columns(vec![0, 2]), Phase::Single(1), Phase::Columns(vec![3])]);
        // The sum reads the exponentials; the quotient reads the sum and the product.
        assert_eq!(kept, [true, true, true, false]);
    }

    #[test]
    fn only_programs_without_rows_are_flat() {
        let mut program = softmax(Row::Same);
        assert_eq!(flat_width(&program), None, "the sum needs rows");
        program.instrs[1].op = KernelOp::Unary(UnaryOp::Neg, Source::Value(0));
        program.instrs[1].width = 8;
        assert_eq!(flat_width(&program), Some(8));
        program.arrays[1].row = Row::Picked(0);
        assert_eq!(flat_width(&program), None, "elements of a row belong to the same picked element");
    }
}
