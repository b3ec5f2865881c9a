//! Consecutive kernels that do not need each other run in one launch: the horizontal kind of fusion.
//!
//! ```text
//! Before:  kernel k8 : rows Paper, elements of p0      three launches, each waited for
//!          kernel k9 : rows Author, elements of p1
//!          kernel k10 : rows Subject, elements of p2
//! After:   launch { k8, k9, k10 }                      one: small kernels fill the gaps that large ones leave
//! ```
//!
//! What a kernel computes does not change. Applies to a kernel and the launch before it where
//!
//! - both are of one phase, so that times can be told apart;
//! - the kernel reads nothing that the launch writes, and writes nothing over what the launch reads;
//! - nothing of the launch is written over a parameter or state unless the kernel does so too: results must be
//!   complete before the first update.

use std::collections::{BTreeSet, HashMap, HashSet};

use hgnnc_ir::kernel::{Buffer, Kernel, Launch, Program};
use hgnnc_ir::{Phase, Space};

/// See the module. With `early`, a kernel whose results take little memory runs with the first launch that it can run with,
/// past all that it does not depend on, others past a few: their results take memory for longer.
pub(super) fn join(program: &mut Program, early: bool) {
    for prelude in [true, false] {
        let list = if prelude { &mut program.prelude } else { &mut program.launches };
        let alone = std::mem::take(list);
        let mut joined = Joined::default();
        for launch in alone {
            joined.add(program, launch, early);
        }
        *(if prelude { &mut program.prelude } else { &mut program.launches }) = joined.launches;
    }
}

/// Launches with large results that kernels with large results may pass.
const AHEAD: usize = 2;

/// Are all results of a launch single rows of known length, or rows of those vertices only that have edges in a graph?
fn makes_little(program: &Program, launch: &Launch) -> bool {
    let is_little = |buffer: Buffer| match program.buffer(buffer).ty.space {
        Space::Unit => program.volume(buffer).is_some_and(|volume| volume.as_fixed().is_some()),
        Space::Ends(..) => true,
        Space::Vertices(_) | Space::Edges(_) | Space::Index(_) => false,
    };
    launch.kernels.iter().flat_map(Kernel::writes).all(is_little)
}

/// Launches so far, and the last of them that have to do with what another one does.
#[derive(Default)]
struct Joined {
    launches: Vec<Launch>,
    /// The last launches that read and write each buffer, or write over it.
    reads: HashMap<Buffer, usize>,
    writes: HashMap<Buffer, usize>,
    /// The last launch of each class.
    classes: HashMap<Class, usize>,
    /// Launches that others pass only a few of.
    large: BTreeSet<usize>,
}

/// Only launches of one class may run in any order: the phase, and whether parameters or states are written over. `None`:
/// several phases, so that nothing passes it.
type Class = Option<(Phase, bool)>;

impl Joined {
    /// Adds the kernels of a launch to the first one that they can run with.
    fn add(&mut self, program: &Program, launch: Launch, early: bool) {
        let touched = Touched::by(program, &launch);
        let little = makes_little(program, &launch);
        // How many launches with large results it may pass.
        let passes = match early {
            true if little => None,
            true => Some(AHEAD),
            false => Some(1),
        };
        let target = match self.last_dependence(&touched) {
            dependence if touched.class.is_some() => {
                let first = passes.and_then(|passes| self.large.iter().rev().nth(passes - 1));
                dependence.map_or(0, |last| last + 1).max(first.copied().unwrap_or(0))
            }
            _ => self.launches.len(),
        };
        if !early || !little {
            self.large.insert(target);
        }
        let last = |of: &mut HashMap<Buffer, usize>, buffer: Buffer| {
            let known = of.entry(buffer).or_insert(target);
            *known = target.max(*known);
        };
        touched.reads.into_iter().for_each(|buffer| last(&mut self.reads, buffer));
        touched.writes.into_iter().for_each(|buffer| last(&mut self.writes, buffer));
        let class = self.classes.entry(touched.class).or_insert(target);
        *class = target.max(*class);
        match self.launches.get_mut(target) {
            Some(before) => before.kernels.extend(launch.kernels),
            None => self.launches.push(launch),
        }
    }

    /// The last launch that must come before another one.
    fn last_dependence(&self, next: &Touched) -> Option<usize> {
        let read = next.reads.iter().filter_map(|buffer| self.writes.get(buffer));
        let written = next.writes.iter().flat_map(|buffer| [self.reads.get(buffer), self.writes.get(buffer)]).flatten();
        let others = self.classes.iter().filter(|(class, _)| **class != next.class).map(|(_, last)| last);
        read.chain(written).chain(others).max().copied()
    }
}

/// What the kernels of a launch have to do with memory.
struct Touched {
    class: Class,
    reads: Vec<Buffer>,
    /// With what is written over.
    writes: Vec<Buffer>,
}

impl Touched {
    fn by(program: &Program, launch: &Launch) -> Self {
        let phases: HashSet<Phase> = launch.kernels.iter().map(|kernel| kernel.phase).collect();
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
