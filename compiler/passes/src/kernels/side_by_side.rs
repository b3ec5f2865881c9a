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

use hgnnc_ir::kernel::{Buffer, Kernel, Launch, Program};

/// See the module.
pub(super) fn join(program: &mut Program) {
    for prelude in [true, false] {
        let list = if prelude { &mut program.prelude } else { &mut program.launches };
        let alone = std::mem::take(list);
        let mut joined: Vec<Launch> = vec![];
        for launch in alone {
            match joined.last_mut() {
                Some(last) if independent(program, last, &launch) => last.kernels.extend(launch.kernels),
                _ => joined.push(launch),
            }
        }
        *(if prelude { &mut program.prelude } else { &mut program.launches }) = joined;
    }
}

/// May the kernels of two successive launches run in any order?
fn independent(program: &Program, first: &Launch, second: &Launch) -> bool {
    let replaced = |kernel: &Kernel| -> Vec<Buffer> {
        kernel.writes().iter().filter_map(|&buffer| program.buffer(buffer).replaces).collect()
    };
    let updates = |launch: &Launch| launch.kernels.iter().any(|kernel| !replaced(kernel).is_empty());
    let apart = |a: &Kernel, b: &Kernel| {
        let (reads, writes, over) = (b.reads(), a.writes(), replaced(a));
        !reads.iter().any(|read| writes.contains(read) || over.contains(read))
    };
    updates(first) == updates(second)
        && first.kernels.iter().all(|a| second.kernels.iter().all(|b| a.phase == b.phase && apart(a, b) && apart(b, a)))
}
