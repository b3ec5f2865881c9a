//! Co-schedules independent consecutive kernels in one launch (horizontal fusion).
//!
//! ```text
//! Before:  kernel k8 : rows Paper, elements of p0      three launches with a barrier after each
//!          kernel k9 : rows Author, elements of p1
//!          kernel k10 : rows Subject, elements of p2
//! After:   launch { k8, k9, k10 }                      one: small kernels fill the gaps that large ones leave
//! ```
//!
//! The kernels compute the same values. Applies to a kernel and the launch before it where
//!
//! - both belong to one phase, so that times can be attributed;
//! - the kernel reads nothing that the launch writes, and writes nothing over what the launch reads;
//! - nothing of the launch is written over a parameter or state unless the kernel does so too: results must be
//!   complete before the first update.

use std::collections::BTreeSet;

use hgnnc_ir::{Phase, Space};
use hgnnc_kernel_ir::kernel::{Body, Buffer, Kernel, Launch, Program};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::kernel_passes::KernelCx;

/// Joins launches. With [`LoweringOptions::early_launch`](crate::LoweringOptions), a kernel with small results moves to
/// the earliest launch that has its operands; a kernel with large results moves past [`AHEAD`] launches only, since its
/// results are live for longer. Where memory comes before time, nothing is joined.
pub(crate) fn run(program: &mut Program, cx: &mut KernelCx) {
    if cx.options.lean {
        return;
    }
    let early = cx.options.early_launch;
    for prelude in [true, false] {
        let list = if prelude { &mut program.prelude } else { &mut program.launches };
        let alone = std::mem::take(list);
        let alone = join_sums(program, alone);
        let mut joined = Joined::default();
        for launch in alone {
            joined.add(program, launch, early);
        }
        *(if prelude { &mut program.prelude } else { &mut program.launches }) = joined.launches;
    }
}

/// Delays sums over ranks until one of them is needed, and takes them together then: their elements share a message.
fn join_sums(program: &Program, launches: Vec<Launch>) -> Vec<Launch> {
    let is_sum = |kernel: &Kernel| matches!(&kernel.body, Body::Exchange(exchange) if exchange.to.is_none());
    let mut joined: Vec<Launch> = vec![];
    let mut delayed: Option<Launch> = None;
    for launch in launches {
        let next = Accesses::by(program, &launch);
        let waits = delayed.as_ref().is_some_and(|delayed| Accesses::by(program, delayed).precede(&next));
        if waits {
            joined.extend(delayed.take());
        }
        if !launch.kernels.iter().all(is_sum) {
            joined.push(launch);
            continue;
        }
        match &mut delayed {
            Some(delayed) => delayed.kernels.extend(launch.kernels),
            None => delayed = Some(launch),
        }
    }
    joined.extend(delayed);
    joined
}

/// Most launches with large results that a kernel with large results may pass.
const AHEAD: usize = 2;

/// Are all results of a launch small: single rows of known length, or rows of endpoints only?
fn has_small_results(program: &Program, launch: &Launch) -> bool {
    let is_small = |buffer: Buffer| match program.buffer(buffer).ty.space {
        Space::Unit => program.volume(buffer).is_some_and(|volume| volume.as_fixed().is_some()),
        Space::Endpoints(..) => true,
        Space::Vertices(_) | Space::Edges(_) | Space::Index(_) => false,
    };
    launch.kernels.iter().flat_map(Kernel::writes).all(is_small)
}

/// The launches so far, with the last accesses to each buffer.
#[derive(Default)]
struct Joined {
    launches: Vec<Launch>,
    /// The last launch that reads each buffer.
    reads: FxHashMap<Buffer, usize>,
    /// The last launch that writes each buffer, or replaces it.
    writes: FxHashMap<Buffer, usize>,
    /// The last launch of each class.
    classes: FxHashMap<Class, usize>,
    /// Launches with large results.
    large: BTreeSet<usize>,
}

/// The class of launches that may be reordered: the phase, and whether parameters or states are updated in place.
/// `None` for a launch of several phases, which is a barrier.
type Class = Option<(Phase, bool)>;

impl Joined {
    /// Adds the kernels of a launch to the earliest launch that they can run with.
    fn add(&mut self, program: &Program, launch: Launch, early: bool) {
        let accesses = Accesses::by(program, &launch);
        let small = has_small_results(program, &launch);
        // Number of launches with large results that it may pass.
        let passes = match early {
            true if small => None,
            true => Some(AHEAD),
            false => Some(1),
        };
        let target = match self.last_dependence(&accesses) {
            dependence if accesses.class.is_some() => {
                let first = passes.and_then(|passes| self.large.iter().rev().nth(passes - 1));
                dependence.map_or(0, |last| last + 1).max(first.copied().unwrap_or(0))
            }
            _ => self.launches.len(),
        };
        if !early || !small {
            self.large.insert(target);
        }
        let last = |of: &mut FxHashMap<Buffer, usize>, buffer: Buffer| {
            let known = of.entry(buffer).or_insert(target);
            *known = target.max(*known);
        };
        accesses.reads.into_iter().for_each(|buffer| last(&mut self.reads, buffer));
        accesses.writes.into_iter().for_each(|buffer| last(&mut self.writes, buffer));
        let class = self.classes.entry(accesses.class).or_insert(target);
        *class = target.max(*class);
        match self.launches.get_mut(target) {
            Some(before) => before.kernels.extend(launch.kernels),
            None => self.launches.push(launch),
        }
    }

    /// The last launch that a launch depends on.
    fn last_dependence(&self, next: &Accesses) -> Option<usize> {
        let read = next.reads.iter().filter_map(|buffer| self.writes.get(buffer));
        let written = next.writes.iter().flat_map(|buffer| [self.reads.get(buffer), self.writes.get(buffer)]).flatten();
        let others = self.classes.iter().filter(|(class, _)| **class != next.class).map(|(_, last)| last);
        read.chain(written).chain(others).max().copied()
    }
}

/// The reads and writes of the kernels of a launch.
struct Accesses {
    class: Class,
    reads: Vec<Buffer>,
    /// Written buffers, and the buffers that they replace.
    writes: Vec<Buffer>,
}

impl Accesses {
    /// Whether a launch with these accesses comes before the next one, in any order of launches.
    fn precede(&self, next: &Accesses) -> bool {
        let touches = |buffers: &[Buffer], others: &[Buffer]| buffers.iter().any(|buffer| others.contains(buffer));
        self.class != next.class
            || touches(&self.writes, &next.reads)
            || touches(&self.writes, &next.writes)
            || touches(&self.reads, &next.writes)
    }

    fn by(program: &Program, launch: &Launch) -> Self {
        let phases: FxHashSet<Phase> = launch.kernels.iter().map(|kernel| kernel.phase).collect();
        let mut writes: Vec<Buffer> = launch.kernels.iter().flat_map(Kernel::writes).collect();
        let updates = writes.iter().any(|&buffer| program.updated(buffer).is_some());
        let over: Vec<Buffer> = writes.iter().filter_map(|&buffer| program.buffer(buffer).replaces).collect();
        writes.extend(over);
        let class = match phases.len() {
            1 => phases.into_iter().next().map(|phase| (phase, updates)),
            _ => None,
        };
        Self { class, reads: launch.kernels.iter().flat_map(Kernel::reads).collect(), writes }
    }
}
