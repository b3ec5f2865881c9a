//! Checks a plan: the tasks of a launch run at the same time, and share memory without locks.
//!
//! Reads and writes of slabs ([`hgnnc_data::buffer`]) are unchecked. They are sound if, in each launch,
//!
//! - no step writes what another step reads or writes;
//! - the results of a step are disjoint;
//! - a result lies exactly over an operand, which it replaces, or over none; that of an exchange may lie around it.
//!
//! Debug builds check each plan, so all tests do, with the sizes of their data and of every mini-batch.

use std::collections::BTreeMap;

use hgnnc_data::buffer::BufferRange;

use super::{Base, ExchangeStep, Place, Plan, Split, Step, StepKind};
use crate::slabs::{Slab, SlabLayout};

/// The first rule that a plan breaks.
pub(super) fn conflict(plan: &Plan) -> Option<String> {
    let ranges = &plan.ranges[..];
    let launches = |steps| chunks(steps).find_map(|(first, launch)| of_launch(launch, first, ranges, plan.slabs));
    launches(&plan.prelude).or_else(|| launches(&plan.steps))
}

/// The launches of a list of steps, each with the index of its first step.
fn chunks(steps: &[Step]) -> impl Iterator<Item = (usize, &[Step])> {
    let mut first = 0;
    let starts_next = |_: &Step, next: &Step| next.together;
    steps.chunk_by(starts_next).map(move |launch| {
        first += launch.len();
        (first - launch.len(), launch)
    })
}

/// A slab, and the start and the end of a range of it.
type Range = (u32, usize, usize);

/// The steps that access a range.
#[derive(Default)]
struct Accesses {
    readers: Vec<usize>,
    writers: Vec<usize>,
}

fn of_launch(launch: &[Step], first: usize, ranges: &[BufferRange], slabs: SlabLayout) -> Option<String> {
    let shown = |&(slab, start, end): &Range| format!("elements {start}..{end} of slab `{}`", slabs.slab(slab));
    let mut accesses: BTreeMap<Range, Accesses> = BTreeMap::new();
    let key = |range: BufferRange| (range.slab, range.offset, range.offset + range.len);
    for (index, step) in launch.iter().enumerate() {
        for range in reads(step, ranges).into_iter().filter(|range| range.len > 0) {
            accesses.entry(key(range)).or_default().readers.push(first + index);
        }
        for range in writes(step, ranges, slabs).into_iter().filter(|range| range.len > 0) {
            accesses.entry(key(range)).or_default().writers.push(first + index);
        }
    }
    // Ranges of a slab by their start: those that have begun and not ended.
    let mut open: Vec<(&Range, &Accesses)> = vec![];
    for (range, own) in &accesses {
        if let [writer, other, ..] = own.writers[..] {
            return Some(format!("steps {writer} and {other} write the same {}", shown(range)));
        }
        if let (Some(writer), Some(reader)) =
            (own.writers.first(), own.readers.iter().find(|r| !own.writers.contains(r)))
        {
            return Some(format!(
                "step {writer} writes {}, which step {reader} reads in the same launch",
                shown(range)
            ));
        }
        open.retain(|(other, _)| other.0 == range.0 && other.2 > range.1);
        for (other, accesses) in &open {
            if !(own.writers.is_empty() && accesses.writers.is_empty()) {
                return Some(format!(
                    "{}, of steps {:?} and {:?}, and {}, of {:?} and {:?}, overlap (read and written)",
                    shown(range),
                    own.readers,
                    own.writers,
                    shown(other),
                    accesses.readers,
                    accesses.writers
                ));
            }
        }
        open.push((range, own));
    }
    None
}

/// Stored ranges that a step reads, other than its partial results.
pub fn reads(step: &Step, ranges: &[BufferRange]) -> Vec<BufferRange> {
    match &step.kind {
        StepKind::Region(region) => {
            let operands = region.ops.iter().flat_map(|op| op.op.operands());
            let stored = operands.filter_map(|operand| match operand.base {
                Base::Stored(stored) => Some(stored.range(ranges)),
                Base::Local(_) | Base::Labels(_) => None,
            });
            stored.collect()
        }
        StepKind::Product(product) => vec![product.x, product.y],
        StepKind::Grouped(product) => vec![product.x, product.y],
        StepKind::Factored(step) => {
            let summed = step.summed.iter().filter_map(|(of, _)| *of);
            let norms = step.sums.iter().filter_map(|sum| match sum.norm {
                super::Norm::Stored(range) => Some(range),
                super::Norm::None | super::Norm::Own(_) => None,
            });
            [step.own_score, step.other_score].into_iter().chain(step.other_norm).chain(summed).chain(norms).collect()
        }
        StepKind::Exchange(exchange) => vec![exchange.x],
        StepKind::RankSum(sum) => vec![sum.x],
        StepKind::Copy { from, .. } => vec![*from],
    }
}

/// Ranges that a step writes.
pub fn writes(step: &Step, ranges: &[BufferRange], slabs: SlabLayout) -> Vec<BufferRange> {
    match &step.kind {
        StepKind::Region(region) => {
            let stored = region.locals.iter().filter_map(|local| match local.place {
                Place::Stored(stored) => Some(stored.range(ranges)),
                Place::Scratch => None,
            });
            let parts = region.partials.iter().flat_map(|partial| {
                let (tasks, cut) = region.parts(partial);
                let len = (tasks + cut) * partial.width;
                [partial.out.range(ranges), slabs.range(Slab::Partials, partial.offset, len)]
            });
            stored.chain(parts).collect()
        }
        StepKind::Product(product) => {
            let parts = match product.split {
                Split::Parts(chunk) => {
                    product.rows.div_ceil(chunk).max(1) * product.of.batch * product.of.k * product.of.n
                }
                Split::Rows(_) | Split::Bands(_) => 0,
            };
            vec![product.out, slabs.range(Slab::Partials, product.partials, parts)]
        }
        StepKind::Grouped(product) => {
            let parts = product.num_partials() * product.of.batch * product.of.k * product.of.n;
            vec![product.out, slabs.range(Slab::Partials, product.partials, parts)]
        }
        StepKind::Factored(step) => step.sums.iter().map(|sum| sum.out).collect(),
        StepKind::Exchange(exchange) => {
            let ExchangeStep { x, out, in_place, .. } = *exchange;
            let (end, end_of_x) = (out.offset + out.len, x.offset + x.len);
            match in_place {
                true => {
                    let before = BufferRange { len: x.offset - out.offset, ..out };
                    vec![before, BufferRange { offset: end_of_x, len: end - end_of_x, ..out }]
                }
                false => vec![out],
            }
        }
        StepKind::RankSum(sum) => vec![sum.out],
        StepKind::Copy { to, .. } => vec![*to],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hgnnc_ir::{Phase, VertexType};

    fn copy(from: (usize, usize), to: (usize, usize), together: bool) -> Step {
        let range = |(offset, len)| SlabLayout::default().range(Slab::Run, offset, len);
        let kind = StepKind::Copy { from: range(from), to: range(to) };
        Step { kind, phase: Phase::Forward, shares: [0.0; 5], label: String::new(), together }
    }

    fn conflict_of(steps: Vec<Step>) -> Option<String> {
        conflict(&Plan { steps, ..Plan::default() })
    }

    #[test]
    fn steps_of_a_launch_share_no_memory_that_one_of_them_writes() {
        // Both read the same, and write to either side of it.
        assert_eq!(conflict_of(vec![copy((10, 5), (0, 10), false), copy((10, 5), (15, 5), true)]), None);
        let written_twice = conflict_of(vec![copy((10, 5), (0, 10), false), copy((10, 5), (0, 10), true)]);
        assert!(written_twice.is_some_and(|text| text == "steps 0 and 1 write the same elements 0..10 of slab `run`"));
        let read = conflict_of(vec![copy((10, 5), (20, 5), false), copy((20, 5), (30, 5), true)]);
        assert!(read.is_some_and(|text| text.contains("step 0 writes") && text.contains("which step 1 reads")));
        let partly = conflict_of(vec![copy((10, 5), (20, 5), false), copy((50, 5), (22, 1), true)]);
        assert!(partly.is_some_and(|text| text.contains("overlap")));
        // One after the other.
        assert_eq!(conflict_of(vec![copy((10, 5), (20, 5), false), copy((20, 5), (30, 5), false)]), None);
    }

    /// An exchange of the elements from 10 on to those from 5 to 20.
    fn exchange(len: usize, in_place: bool) -> Step {
        let range = |offset, len| SlabLayout::default().range(Slab::Run, offset, len);
        let (x, out, to) = (range(10, len), range(5, 15), VertexType(0));
        let kind = StepKind::Exchange(ExchangeStep { x, out, to, width: 1, in_place });
        Step { kind, ..copy((0, 1), (1, 1), false) }
    }

    #[test]
    fn an_exchange_may_store_rows_around_those_that_it_sends() {
        assert_eq!(conflict_of(vec![exchange(4, true)]), None);
        assert!(conflict_of(vec![exchange(4, false)]).is_some());
        // Others may read the rows that stay, and no other ones.
        assert_eq!(conflict_of(vec![exchange(4, true), copy((10, 4), (30, 4), true)]), None);
        assert!(conflict_of(vec![exchange(4, true), copy((9, 4), (30, 4), true)]).is_some());
        assert!(conflict_of(vec![exchange(4, true), copy((30, 4), (10, 4), true)]).is_some());
    }

    #[test]
    fn a_result_lies_over_a_whole_operand_or_none() {
        assert_eq!(conflict_of(vec![copy((10, 5), (10, 5), false)]), None);
        assert!(conflict_of(vec![copy((10, 5), (12, 5), false)]).is_some());
    }
}
