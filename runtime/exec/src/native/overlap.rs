//! Results that alias operands.
//!
//! The plan may place the new value of a parameter over the old one if every reader of the old value reads row `i` only
//! to compute row `i` of the new one. A native loop preserves that order if it reads only the current item's row of the
//! old value, in operations that the new value depends on: the new row is written after these. If the writing operation
//! itself reads the old row, it must do so element by element.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::buffer::BufferRange;
use crate::plan::{Access, Base, Level, Operand, Place, Region};

/// Producers and readers of values in a region.
pub struct Uses {
    /// Producing operation of each local.
    makers: Vec<Option<usize>>,
    /// Reading operations of each local.
    readers: Vec<Vec<usize>>,
    /// Reads of stored values, by slab and offset.
    reads: BTreeMap<(u32, usize), Vec<(usize, Operand)>>,
    /// Length of the longest read, in elements.
    longest: usize,
}

impl Uses {
    /// Uses over all operations of a region.
    pub fn of(region: &Region) -> Self {
        let count = region.locals.len();
        let mut uses =
            Self { makers: vec![None; count], readers: vec![vec![]; count], reads: BTreeMap::new(), longest: 0 };
        for (at, op) in region.ops.iter().enumerate() {
            if !op.op.is_total() {
                uses.makers[op.out as usize] = Some(at);
            }
            for operand in op.op.operands() {
                match operand.base {
                    Base::Local(local) => uses.readers[local as usize].push(at),
                    Base::Stored(buffer) => {
                        uses.reads.entry((buffer.slab, buffer.offset)).or_default().push((at, operand));
                        uses.longest = uses.longest.max(buffer.len);
                    }
                    Base::Labels(_) => {}
                }
            }
        }
        uses
    }

    /// [`Uses::of`] for the operations of one edge pass: edge values have only readers within the pass, because
    /// other passes recompute them.
    pub fn of_round(region: &Region, ops: &[usize]) -> Self {
        let mut uses = Self::of(region);
        for (readers, local) in uses.readers.iter_mut().zip(&region.locals) {
            readers.retain(|reader| local.level == Level::Row || ops.contains(reader));
        }
        uses
    }

    /// Reading operations of a local.
    pub fn readers(&self, local: u32) -> &[usize] {
        &self.readers[local as usize]
    }

    /// Reads that overlap a result.
    fn reads_of(&self, result: BufferRange) -> impl Iterator<Item = (usize, Operand, BufferRange)> {
        let from = (result.slab, result.offset.saturating_sub(self.longest));
        let near = self.reads.range(from..(result.slab, result.offset + result.len));
        near.flat_map(|(_, reads)| reads).filter_map(move |&(reader, operand)| match operand.base {
            Base::Stored(buffer) if buffer.meets(&result) => Some((reader, operand, buffer)),
            Base::Stored(_) | Base::Local(_) | Base::Labels(_) => None,
        })
    }

    /// Operations that an operation depends on, transitively.
    fn ancestors(&self, region: &Region, op: usize) -> HashSet<usize> {
        let mut found = HashSet::new();
        let mut pending = vec![op];
        while let Some(at) = pending.pop() {
            for operand in region.ops[at].op.operands() {
                if let Base::Local(local) = operand.base
                    && let Some(maker) = self.makers[local as usize]
                    && found.insert(maker)
                {
                    pending.push(maker);
                }
            }
        }
        found
    }
}

/// Positions in `arrays` that results of `ops` alias, each with the aliasing local; `None` if a result would
/// be written too early.
pub(super) fn replaced(
    region: &Region,
    uses: &Uses,
    ops: &[usize],
    arrays: &HashMap<Operand, usize>,
) -> Option<Vec<(usize, u32)>> {
    let mut changed = vec![];
    for &op in ops {
        let Some(result) = stored(region, op) else { continue };
        let mut wanted: Option<HashSet<usize>> = None;
        for (reader, operand, buffer) in uses.reads_of(result) {
            let width = region.locals[region.ops[op].out as usize].width;
            let own_row = buffer == result
                && operand.access == Access::Each
                && operand.width == width
                && region.ops[reader].level == Level::Row
                && region.ops[op].level == Level::Row;
            let before = wanted.get_or_insert_with(|| uses.ancestors(region, op)).contains(&reader);
            if !own_row || !(before || reader == op && region.ops[op].op.is_element_wise()) {
                return None;
            }
            changed.extend(arrays.get(&operand).map(|&array| (array, region.ops[op].out)));
        }
    }
    changed.sort_unstable();
    changed.dedup();
    Some(changed)
}

/// Range where an operation's result is stored after the step, if any.
fn stored(region: &Region, op: usize) -> Option<BufferRange> {
    if region.ops[op].op.is_total() {
        return None;
    }
    match region.locals[region.ops[op].out as usize].place {
        Place::Stored(buffer) => Some(buffer),
        Place::Scratch => None,
    }
}
