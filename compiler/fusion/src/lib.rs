//! Lowers the dataflow IR to the kernel IR: which operations share a kernel, and which values are stored.
//!
//! The steps, each from the program alone:
//!
//! 1. [`group()`] groups operations by the rows that they have, one traversal per (graph, direction) dependency
//!    level, so that edge values need no memory: every traversal recomputes those that it reads.
//! 2. [`store()`]: a value is stored where another kernel reads it, where it is a reduction over all rows or a
//!    large dense product, or where it is an output. With it, [`Groups`] are complete and obey their rules.
//! 3. [`emit()`]: each group becomes a kernel; gathers, reshapes and broadcasts become addressing modes of operands.
//!
//! Then the passes of [`KERNEL_PASSES`] go from kernels to kernels: `online_softmax` computes edge softmaxes in one pass,
//! `shared_softmax` with one exponential per edge, `multiply_reduce` fuses multiplications into the sums that read them,
//! `split_rows` decides how high-degree rows are split, `memory_order` orders the kernels of rare runs, `in_place` updates
//! parameters and optimizer state in place, reuses the buffers of dead operands and stores owned rows among their mirrors,
//! `co_schedule` joins independent consecutive kernels to one launch, and `interleave` mixes the thread blocks of
//! compute-bound and memory-bound ones.
//!
//! Only `interleave` reads sizes of a dataset. [`LoweringOptions`] has the preferences of a back end.

#![forbid(unsafe_code)]

mod emit;
mod explain;
mod grouping;
pub mod groups;
pub mod kernel_passes;
mod options;
mod rules;
mod store;

use std::fmt;

use hgnnc_analysis::aliases::AliasAnalysis;
use hgnnc_ir::infer::show;
use hgnnc_ir::{Dataflow, Value};
use hgnnc_kernel_ir::kernel::Program;
use rustc_hash::FxHashSet;

pub use explain::explain;
pub use groups::Groups;
pub use kernel_passes::{KERNEL_PASSES, KernelCx, KernelPass};
pub use options::{LoweringOptions, SoftmaxForm};
pub use rules::{DisabledFusions, FusionRule, VALUE_PREFIX};

/// An operation for which there is no kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotLowered {
    /// Name of the program.
    pub program: String,
    /// Stage of the operation.
    pub stage: &'static str,
    /// The mnemonic of the operation.
    pub op: &'static str,
    /// The types of its operands and of its result.
    pub types: String,
    /// The reason, for a message.
    pub reason: String,
}

impl fmt::Display for NotLowered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, stage, op, types, reason } = self;
        write!(f, "there is no kernel for `{op}` ({types}) of stage {stage} in `{program}`: {reason}")
    }
}

impl std::error::Error for NotLowered {}

/// An error at an operation.
pub(crate) fn error(aliases: &AliasAnalysis<'_>, value: Value, reason: impl Into<String>) -> NotLowered {
    let flow = aliases.flow;
    let node = flow.value(value);
    let types: Vec<String> =
        node.args.iter().map(|&arg| flow.ty(arg)).chain([&node.ty]).map(|ty| show(flow, ty)).collect();
    NotLowered {
        program: flow.name.clone(),
        stage: node.stage.name(),
        op: node.op.name(),
        types: types.join(", "),
        reason: reason.into(),
    }
}

/// Lowers a verified program to kernels for a CPU.
///
/// # Errors
/// [`NotLowered`] at an operation or output for which there is no kernel.
///
/// # Panics
/// In debug builds, when the result breaks a rule of the kernel IR: an internal error with the rules and the text.
pub fn lower(flow: &Dataflow) -> Result<Program, NotLowered> {
    lower_with(flow, LoweringOptions::CPU)
}

/// As [`lower`], with the options of a back end.
///
/// # Errors
/// As [`lower`].
pub fn lower_with(flow: &Dataflow, options: LoweringOptions) -> Result<Program, NotLowered> {
    lower_unfused(flow, &FxHashSet::default(), &mut KernelCx::new(options))
}

/// As [`lower_with`], for a choice that a pass measures: debug builds do not verify the kernels, as they do with those of the
/// choice that is made.
///
/// # Errors
/// An operation or output for which there is no kernel: the choice cannot be made.
pub fn lower_trial(flow: &Dataflow, options: LoweringOptions) -> Result<Program, NotLowered> {
    let aliases = AliasAnalysis::new(flow);
    let mut groups = grouping::group(&aliases, options, &FxHashSet::default());
    store::store(&aliases, &mut groups);
    let mut program = emit::emit(&aliases, &groups)?;
    let mut cx = KernelCx::new(options);
    for pass in kernel_passes::enabled(KERNEL_PASSES, options) {
        (pass.run)(&mut program, &mut cx);
    }
    Ok(program)
}

/// As [`lower_with`], with a kernel of its own for each of the values `unfused`, which [`Groups::fused`] lists, and with
/// a context of [`KERNEL_PASSES`].
///
/// # Errors
/// As [`lower_with`].
///
/// # Panics
/// As [`lower`].
pub fn lower_unfused(flow: &Dataflow, unfused: &FxHashSet<Value>, cx: &mut KernelCx) -> Result<Program, NotLowered> {
    let aliases = AliasAnalysis::new(flow);
    let mut groups = grouping::group(&aliases, cx.options, unfused);
    store::store(&aliases, &mut groups);
    check(flow, &groups);
    let mut program = emit::emit(&aliases, &groups)?;
    kernel_passes::run(KERNEL_PASSES, &mut program, cx);
    Ok(program)
}

/// The first step of [`lower_unfused`]: which operations share a kernel. Each value of `unfused` has a group of its own.
pub fn group(flow: &Dataflow, options: LoweringOptions, unfused: &FxHashSet<Value>) -> Groups {
    grouping::group(&AliasAnalysis::new(flow), options, unfused)
}

/// The second step of [`lower_unfused`]: which values are stored.
///
/// # Panics
/// In debug builds, when groups break a rule: an internal error with the rules and the text.
pub fn store(flow: &Dataflow, groups: &mut Groups) {
    store::store(&AliasAnalysis::new(flow), groups);
    check(flow, groups);
}

/// The third step of [`lower_unfused`]: groups as kernels, before [`KERNEL_PASSES`].
///
/// # Errors
/// [`NotLowered`] at an operation or output for which there is no kernel.
pub fn emit(flow: &Dataflow, groups: &Groups) -> Result<Program, NotLowered> {
    emit::emit(&AliasAnalysis::new(flow), groups)
}

fn check(flow: &Dataflow, groups: &Groups) {
    if cfg!(debug_assertions)
        && let Err(broken) = groups.verify(flow)
    {
        panic!("internal error: groups break their rules:\n{}\n{}", broken.join("\n"), groups.print(flow));
    }
}
