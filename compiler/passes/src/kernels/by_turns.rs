//! Kernels of a launch that arithmetic limits go by turns with those that memory limits.
//!
//! ```text
//! Before:  launch {                     the blocks of one kernel after those of another: first the arithmetic units are
//!            gemm k4 : rows Paper       at work, then the memory
//!            kernel k5 : rows Author, in_edges of writes
//!          }
//! After:   launch first 1 by turns {    blocks of both at any time: both are at work
//!            ...
//! ```
//!
//! Where blocks of both kinds share the processors, the launch takes as long as the arithmetic of all kernels or the traffic
//! of all, whichever is longer, instead of the sum of what each kernel takes: `max(sum c, sum m)` instead of
//! `sum max(c, m)`. Applies to launches for which a machine's figures predict at least [`LEAST_GAIN`], on machines whose
//! blocks run in no particular order. What kernels compute does not change.

use hgnnc_ir::kernel::Program;
use hgnnc_ir::sizes::SizeInfo;
use hgnnc_machine::{Machine, Prediction};

use crate::bounds;

/// The part of the time that must be gained.
const LEAST_GAIN: f64 = 0.05;

/// See the module. Returns what was compared for launches with both kinds of kernels, one line each.
pub fn take_turns(program: &mut Program, sizes: &SizeInfo, machine: &Machine) -> Vec<String> {
    let mut lines = vec![];
    if !machine.target.starts_with("sm_") {
        return lines;
    }
    let mut number = 0;
    for index in 0..program.launches.len() {
        let launch = &program.launches[index];
        let first = number + program.prelude.iter().map(|launch| launch.kernels.len()).sum::<usize>();
        number += launch.kernels.len();
        let predicted: Vec<Prediction> =
            launch.kernels.iter().map(|kernel| machine.predict(&bounds::kernel_work(program, kernel, sizes))).collect();
        let is_compute = |it: &Prediction| it.compute_s >= it.memory_s;
        let leading = predicted.iter().filter(|it| is_compute(it)).count();
        if leading == 0 || leading == predicted.len() {
            continue;
        }
        let sum = |part: fn(&Prediction) -> f64| predicted.iter().map(part).sum::<f64>();
        let apart = sum(|it| it.compute_s.max(it.memory_s)) + machine.launch_s;
        let together = sum(|it| it.compute_s).max(sum(|it| it.memory_s)) + machine.launch_s;
        let gains = apart - together >= LEAST_GAIN * apart;
        lines.push(format!(
            "kernels: k{first} to k{}: {} ({:.1} us by turns, {:.1} us one after another)",
            first + predicted.len() - 1,
            if gains { "arithmetic and memory by turns" } else { "one after another" },
            1e6 * together,
            1e6 * apart,
        ));
        if gains {
            let launch = &mut program.launches[index];
            let kernels = std::mem::take(&mut launch.kernels).into_iter().zip(&predicted);
            let (compute, memory): (Vec<_>, Vec<_>) = kernels.partition(|(_, it)| is_compute(it));
            launch.kernels = compute.into_iter().chain(memory).map(|(kernel, _)| kernel).collect();
            launch.leading = leading;
        }
    }
    lines
}
