//! Passes from kernels to kernels: which run, and in which order.

mod co_schedule;
mod in_place;
mod instrs;
mod interleave;
mod memory_order;
mod multiply_reduce;
mod online_softmax;
mod shared_softmax;
mod split_rows;

use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::violation::lines;
use hgnnc_kernel_ir::kernel::{Program, verify};
use hgnnc_machine::Machine;

use crate::options::LoweringOptions;
use crate::rules::FusionRule;

/// A pass over the kernels of a program. They compute the same values after it.
pub struct KernelPass {
    /// The rule that disables it.
    pub rule: FusionRule,
    /// The function that changes a program.
    pub run: fn(&mut Program, &mut KernelCx),
}

/// After operations have been grouped to kernels.
pub const KERNEL_PASSES: &[KernelPass] = &[
    // Both look for softmaxes as they are written; the form of one pass needs more.
    KernelPass { rule: FusionRule::OnlineSoftmax, run: online_softmax::run },
    KernelPass { rule: FusionRule::SharedSoftmax, run: shared_softmax::run },
    KernelPass { rule: FusionRule::MultiplyReduce, run: multiply_reduce::run },
    // The widths of edge values are final.
    KernelPass { rule: FusionRule::SplitRows, run: split_rows::run },
    // Lifetimes depend on the order, and so does which buffers can be reused.
    KernelPass { rule: FusionRule::MemoryOrder, run: memory_order::run },
    // While each kernel has a launch of its own, so that a buffer is free as soon as its last reader has run.
    KernelPass { rule: FusionRule::InPlace, run: in_place::run },
    KernelPass { rule: FusionRule::CoSchedule, run: co_schedule::run },
    // Launches are final.
    KernelPass { rule: FusionRule::Interleave, run: interleave::run },
];

/// The context of passes over kernels.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct KernelCx {
    /// The preferences of the back end.
    pub options: LoweringOptions,
    /// Sizes of the dataset. Without them, or without a machine, passes that compare times change nothing.
    pub sizes: Option<SizeInfo>,
    /// The machine to compile for.
    pub machine: Option<Machine>,
    /// The choices of passes, with the numbers that they compared.
    pub explain: Vec<String>,
}

impl KernelCx {
    /// A context without sizes.
    pub fn new(options: LoweringOptions) -> Self {
        Self { options, ..Self::default() }
    }
}

/// Runs the passes of a list that are not disabled. Debug builds verify the program before and after each.
///
/// # Panics
/// In debug builds, when a program breaks a rule of the kernel IR: an internal error with the rules and the text.
pub fn run(passes: &[KernelPass], program: &mut Program, cx: &mut KernelCx) {
    check(program, "grouping");
    for pass in enabled(passes, cx.options) {
        (pass.run)(program, cx);
        check(program, pass.rule.name());
    }
}

/// The passes of a list that are not disabled.
pub(crate) fn enabled(passes: &[KernelPass], options: LoweringOptions) -> impl Iterator<Item = &KernelPass> {
    passes.iter().filter(move |pass| !options.disabled.contains(pass.rule))
}

fn check(program: &Program, after: &str) {
    if cfg!(debug_assertions)
        && let Err(broken) = verify(program)
    {
        panic!("internal error: `{after}` broke the rules of kernels:\n{}\n{program}", lines(&broken));
    }
}
