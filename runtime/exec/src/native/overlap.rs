//! Results that lie where operands do.
//!
//! The plan may put the new value of a parameter in the place of the old one, if what reads the old one reads row `i`
//! and only on the way to row `i` of the new one. A part keeps that order where all that it reads of the old value is the
//! row of the item at hand, by operations that the new value depends on: the new row is then written when these are
//! done. If the writing operation reads the old row itself, it must do so element by element.

use crate::plan::{Access, Base, BlockKind, Level, Operand, Place, Region, operands};
use crate::raw::Buffer;

/// The arrays among `arrays` in whose place results of `ops` lie, each with the local that takes it; `None` where a result
/// would be written too early.
pub(super) fn replaced(region: &Region, ops: &[usize], arrays: &[Operand]) -> Option<Vec<(usize, u32)>> {
    let mut changed = vec![];
    for &op in ops {
        let Some(result) = stored(region, op) else { continue };
        let mut wanted: Option<Vec<bool>> = None;
        for reader in 0..region.ops.len() {
            for operand in operands(&region.ops[reader].kind) {
                let Base::Stored(buffer) = operand.base else { continue };
                if !meet(buffer, result) {
                    continue;
                }
                let width = region.locals[region.ops[op].out as usize].width;
                let own_row = buffer == result
                    && operand.access == Access::Each
                    && operand.width == width
                    && region.ops[reader].level == Level::Row
                    && region.ops[op].level == Level::Row;
                let before = wanted.get_or_insert_with(|| ancestors(region, op))[reader];
                if !own_row || !(before || reader == op && element_wise(&region.ops[op].kind)) {
                    return None;
                }
                let array = arrays.iter().position(|array| *array == operand);
                changed.extend(array.map(|array| (array, region.ops[op].out)));
            }
        }
    }
    changed.sort_unstable();
    changed.dedup();
    Some(changed)
}

/// Where an operation's result is kept after the step.
fn stored(region: &Region, op: usize) -> Option<Buffer> {
    if matches!(region.ops[op].kind, BlockKind::PartialReduce(..) | BlockKind::PartialOuter(..)) {
        return None;
    }
    match region.locals[region.ops[op].out as usize].place {
        Place::Stored(buffer) => Some(buffer),
        Place::Scratch(_) => None,
    }
}

fn meet(a: Buffer, b: Buffer) -> bool {
    a.slab == b.slab && a.offset < b.offset + b.len && b.offset < a.offset + a.len
}

/// Which operations does an operation depend on?
fn ancestors(region: &Region, op: usize) -> Vec<bool> {
    let mut found = vec![false; region.ops.len()];
    let mut locals = vec![false; region.locals.len()];
    let want = |kind: &BlockKind, locals: &mut Vec<bool>| {
        for operand in operands(kind) {
            if let Base::Local(local) = operand.base {
                locals[local as usize] = true;
            }
        }
    };
    want(&region.ops[op].kind, &mut locals);
    for at in (0..op).rev() {
        let earlier = &region.ops[at];
        let partial = matches!(earlier.kind, BlockKind::PartialReduce(..) | BlockKind::PartialOuter(..));
        if !partial && locals[earlier.out as usize] {
            found[at] = true;
            want(&earlier.kind, &mut locals);
        }
    }
    found
}

fn element_wise(kind: &BlockKind) -> bool {
    matches!(
        kind,
        BlockKind::Unary(..)
            | BlockKind::Binary(..)
            | BlockKind::Pair(..)
            | BlockKind::Choose { .. }
            | BlockKind::Copy(_)
    )
}
