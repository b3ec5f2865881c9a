//! Interleaves the thread blocks of compute-bound and memory-bound kernels within a launch.
//!
//! ```text
//! Before:  launch {                     blocks of one kernel after those of another: first the arithmetic units are
//!            gemm k4 : rows Paper       busy, then the memory
//!            kernel k5 : rows Author, in_edges of writes
//!          }
//! After:   launch interleave 1 {    blocks of both kernels at any time: both are busy
//!            ...
//! ```
//!
//! While blocks of both kinds are co-resident, the launch takes as long as the arithmetic of all kernels or the traffic
//! of all, whichever is longer, instead of the sum of the times of the kernels: `max(sum c, sum m)` instead of
//! `sum max(c, m)`. Applies to launches for which the roofline predicts a gain of at least [`LEAST_GAIN`], on machines
//! whose blocks run in no particular order. The kernels compute the same values.

use hgnnc_analysis::cost;
use hgnnc_kernel_ir::kernel::Program;
use hgnnc_machine::Prediction;

use crate::kernel_passes::KernelCx;

/// The least gain, as a fraction of the time without interleaving.
const LEAST_GAIN: f64 = 0.05;

/// Interleaves kernels where it pays. Explains each launch that has both kinds in a line with the predicted times.
pub(crate) fn run(program: &mut Program, cx: &mut KernelCx) {
    let (Some(sizes), Some(machine)) = (&cx.sizes, &cx.machine) else { return };
    if !machine.capabilities.thread_blocks {
        return;
    }
    let mut number = 0;
    for index in 0..program.launches.len() {
        let launch = &program.launches[index];
        let first = number + program.prelude.iter().map(|launch| launch.kernels.len()).sum::<usize>();
        number += launch.kernels.len();
        let predicted: Vec<Prediction> =
            launch.kernels.iter().map(|kernel| machine.predict(&cost::kernel_work(program, kernel, sizes))).collect();
        let is_compute = |it: &Prediction| it.compute_s >= it.memory_s;
        let num_compute = predicted.iter().filter(|it| is_compute(it)).count();
        if num_compute == 0 || num_compute == predicted.len() {
            continue;
        }
        let sum = |part: fn(&Prediction) -> f64| predicted.iter().map(part).sum::<f64>();
        let back_to_back = sum(|it| it.compute_s.max(it.memory_s)) + machine.launch_s;
        let interleaved = sum(|it| it.compute_s).max(sum(|it| it.memory_s)) + machine.launch_s;
        let gains = back_to_back - interleaved >= LEAST_GAIN * back_to_back;
        cx.explain.push(format!(
            "kernels: k{first} to k{}: {} ({:.1} us interleaved, {:.1} us back to back)",
            first + predicted.len() - 1,
            if gains { "compute-bound and memory-bound blocks interleaved" } else { "back to back" },
            1e6 * interleaved,
            1e6 * back_to_back,
        ));
        if gains {
            let launch = &mut program.launches[index];
            let kernels = std::mem::take(&mut launch.kernels).into_iter().zip(&predicted);
            let (compute, memory): (Vec<_>, Vec<_>) = kernels.partition(|(_, it)| is_compute(it));
            launch.kernels = compute.into_iter().chain(memory).map(|(kernel, _)| kernel).collect();
            launch.interleaved = num_compute;
        }
    }
}
