//! Orders kernels such that fewer values are alive at a time.
//!
//! ```text
//! Before:  gemm k3 : a = Paper.x @ w.cites          the projections of all relations come first,
//!          gemm k4 : b = Author.x @ w.writes        and all of them are stored at one time
//!          kernel k5 : rows Paper, in_edges of cites      reads a
//!          kernel k6 : rows Paper, in_edges of writes     reads b
//! After:   k3, k5, k4, k6                           each is read before the next is computed
//! ```
//!
//! The kernels compute the same values. Applies to forward programs where memory comes before time
//! ([`LoweringOptions::lean`](crate::LoweringOptions)), with the sizes of a dataset, if the arena becomes smaller. A kernel
//! comes right after the kernels that compute its operands, of which the one with the most to forget comes first: an order
//! of operands by `peak - result` is the best one for trees (Liu, ACM Trans. Math. Softw. 12(3), 1986). For programs, whose
//! values have several readers, the minimum is NP-hard.

use std::cmp::Reverse;

use hgnnc_analysis::memory::{arena_bytes, bytes_of};
use hgnnc_ir::{OutputKind, Phase};
use hgnnc_kernel_ir::kernel::{Buffer, Kernel, Launch, Program};
use rustc_hash::FxHashMap;

use crate::kernel_passes::{KernelCx, in_place};

/// Reorders the launches of a run, each of which has one kernel so far.
pub(crate) fn run(program: &mut Program, cx: &mut KernelCx) {
    let (true, Some(sizes)) = (cx.options.lean, cx.sizes.clone()) else { return };
    let forward = |launch: &Launch| launch.kernels.iter().all(|kernel| kernel.phase == Phase::Forward);
    let results = |kind: &OutputKind| matches!(kind, OutputKind::Result(_));
    if !(program.launches.iter().all(forward) && program.outputs.iter().all(|output| results(&output.kind))) {
        return;
    }
    let mut ordered = program.clone();
    ordered.launches = order(program, |buffer| bytes_of(program, buffer, &sizes));
    let bytes = |program: &Program, cx: &mut KernelCx| {
        let mut program = program.clone();
        in_place::run(&mut program, cx);
        arena_bytes(&program, &sizes)
    };
    let (before, after) = (bytes(program, cx), bytes(&ordered, cx));
    if after < before {
        *program = ordered;
    }
    let chosen = if after < before { "in an order that stores less" } else { "in the order of the program" };
    cx.explain.push(format!("kernels: {chosen} ({after} bytes, {before} in the order of the program)"));
}

/// The launches in an order that keeps few bytes alive.
fn order(program: &Program, bytes: impl Fn(Buffer) -> u64) -> Vec<Launch> {
    let launches = &program.launches;
    let mut producer: FxHashMap<Buffer, usize> = FxHashMap::default();
    // By launch: the launches that compute its operands, and bytes: of its results, and at the peak of computing them.
    let (mut operands, mut results, mut peaks): (Vec<Vec<usize>>, Vec<u64>, Vec<u64>) = Default::default();
    for (index, launch) in launches.iter().enumerate() {
        let mut own: Vec<usize> = vec![];
        for buffer in launch.kernels.iter().flat_map(Kernel::reads) {
            // Values of the prelude are there.
            if let Some(&made_by) = producer.get(&buffer)
                && !own.contains(&made_by)
            {
                own.push(made_by);
            }
        }
        own.sort_by_key(|&made_by| (Reverse(peaks[made_by] - results[made_by]), made_by));
        let writes: Vec<Buffer> = launch.kernels.iter().flat_map(Kernel::writes).collect();
        let result = writes.iter().map(|&buffer| bytes(buffer)).fold(0, u64::saturating_add);
        let (mut alive, mut peak) = (0u64, 0);
        for &made_by in &own {
            peak = peak.max(alive.saturating_add(peaks[made_by]));
            alive = alive.saturating_add(results[made_by]);
        }
        producer.extend(writes.into_iter().map(|buffer| (buffer, index)));
        operands.push(own);
        results.push(result);
        peaks.push(peak.max(alive.saturating_add(result)));
    }
    // Depth first, from the launches that nothing reads.
    let mut is_read = vec![false; launches.len()];
    operands.iter().flatten().for_each(|&made_by| is_read[made_by] = true);
    let mut done = vec![false; launches.len()];
    let mut ordered = vec![];
    for root in (0..launches.len()).filter(|&index| !is_read[index]) {
        let mut stack = vec![(root, 0)];
        while let Some((index, next)) = stack.pop() {
            match operands[index].get(next) {
                _ if done[index] => {}
                Some(&operand) => stack.extend([(index, next + 1), (operand, 0)]),
                None => {
                    done[index] = true;
                    ordered.push(launches[index].clone());
                }
            }
        }
    }
    ordered
}
