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

use std::collections::HashSet;

use hgnnc_ir::kernel::{Buffer, Kernel, Launch, Program};
use hgnnc_ir::{Phase, Space};

/// See the module. With `early`, a kernel whose results take little memory runs with the first launch that it can run with,
/// past all that it does not depend on, others past a few: their results take memory for longer.
pub(super) fn join(program: &mut Program, early: bool) {
    for prelude in [true, false] {
        let list = if prelude { &mut program.prelude } else { &mut program.launches };
        let alone = std::mem::take(list);
        let mut joined: Vec<(Launch, Touched)> = vec![];
        for launch in alone {
            let here = Touched::by(program, &launch);
            // How many launches with large results it may pass.
            let mut left = match early {
                true if makes_little(program, &launch) => joined.len(),
                true => AHEAD,
                false => 1,
            };
            let mut target = joined.len();
            for (before, touched) in joined.iter().rev() {
                if left == 0 || !touched.is_independent_of(&here) {
                    break;
                }
                target -= 1;
                left -= usize::from(!early || !makes_little(program, before));
            }
            match joined.get_mut(target) {
                Some((before, touched)) => {
                    before.kernels.extend(launch.kernels);
                    touched.add(here);
                }
                None => joined.push((launch, here)),
            }
        }
        let joined = joined.into_iter().map(|(launch, _)| launch).collect();
        *(if prelude { &mut program.prelude } else { &mut program.launches }) = joined;
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

/// What the kernels of a launch have to do with memory.
#[derive(Default)]
struct Touched {
    phases: HashSet<Phase>,
    reads: HashSet<Buffer>,
    /// With what is written over.
    writes: HashSet<Buffer>,
    /// Is a parameter or state written over?
    updates: bool,
}

impl Touched {
    fn by(program: &Program, launch: &Launch) -> Self {
        let mut touched = Self::default();
        for kernel in &launch.kernels {
            let writes = kernel.writes();
            let over: Vec<Buffer> = writes.iter().filter_map(|&buffer| program.buffer(buffer).replaces).collect();
            touched.phases.insert(kernel.phase);
            touched.reads.extend(kernel.reads());
            touched.updates |= writes.iter().any(|&buffer| program.updated(buffer).is_some());
            touched.writes.extend(writes);
            touched.writes.extend(over);
        }
        touched
    }

    /// May the kernels of two successive launches run in any order?
    fn is_independent_of(&self, next: &Self) -> bool {
        self.phases.len() == 1
            && self.phases == next.phases
            && self.updates == next.updates
            && next.reads.iter().all(|read| !self.writes.contains(read))
            && next.writes.iter().all(|written| !self.reads.contains(written) && !self.writes.contains(written))
    }

    fn add(&mut self, other: Self) {
        self.phases.extend(other.phases);
        self.reads.extend(other.reads);
        self.writes.extend(other.writes);
        self.updates |= other.updates;
    }
}
