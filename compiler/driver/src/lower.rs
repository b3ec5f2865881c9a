//! Lowers a checked model to the programs that the runtime executes.

use std::collections::BTreeSet;
use std::fmt;

use hgnnc_analysis::memory::arena_bytes;
use hgnnc_executable::Executable;
use hgnnc_executable::{GraphPlan, Kernels};
use hgnnc_fusion::{Groups, LoweringOptions, NotLowered};
use hgnnc_ir::dataflow::Cursor;
use hgnnc_ir::training::{Target, Trained};
use hgnnc_ir::{Dataflow, Graph, Op, OutputKind};
use hgnnc_machine::Machine;
use hgnnc_passes::{Disabled, PassCx, PassManager, SizeInfo, UnknownName};
use hgnnc_passes::{NotBatchable, NotDifferentiable, NotPlaced, score_links, split_head};

use crate::model::Analyzed;
use crate::pipeline::{Compilation, EVALUATE, TRAIN};
use crate::precompute::{explain, leave_precomputed};
use crate::ranking::rank_programs;

/// The options of [`lower`].
#[derive(Clone, Debug, Default)]
pub struct LowerOptions {
    /// Passes and fusions that are disabled.
    pub disabled: Disabled,
    /// Sizes of the dataset. Without them, passes that compare costs are skipped.
    pub sizes: Option<SizeInfo>,
    /// The machine to compile for. Together with sizes, explanations include predicted times.
    pub machine: Option<Machine>,
    /// The plan by which data was bound ([`plan_graphs`](crate::plan_graphs)): passes factor the metapaths that it names.
    /// Without one, they compare costs.
    pub graphs: Option<GraphPlan>,
    /// Memory budget of a training step's values, in bytes. Beyond it, values are rematerialized. Requires sizes.
    pub arena_budget: Option<u64>,
    /// Leaves the training program out: only outputs and metrics are computed. Evaluations are the same with and
    /// without it.
    pub evaluation_only: bool,
}

/// Memory of the values of a run in bytes, planned from sizes alone. Excludes partial results and scratch memory, which
/// depend on the runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaBytes {
    /// Memory of a training step; `None` without a train block.
    pub train: Option<u64>,
    /// Memory of one evaluation of the model.
    pub infer: u64,
}

/// A compiled model with its intermediate levels.
pub struct Lowered {
    /// The forward program before any pass.
    pub dataflow: Dataflow,
    /// Forward, backward and update program before the joint passes. `None` without a train block.
    pub joint: Option<Dataflow>,
    /// The executable programs and the training configuration.
    pub executable: Executable,
    /// Log of the rewrites that passes applied or rejected, with the costs compared.
    pub explanations: Vec<String>,
    /// Log of the rematerializations that meet the memory budget.
    pub notes: Vec<String>,
    /// The groups of the training program, or of the evaluation program without a train block.
    pub groups: Groups,
    /// Planned memory of values, if sizes are known.
    pub arena: Option<ArenaBytes>,
    /// Sizes that the training program was compiled for, if known: those of a batch for mini-batch training.
    pub train_sizes: Option<SizeInfo>,
}

/// The errors of [`lower`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LowerError {
    /// A disabled pass or fusion does not exist.
    Name(UnknownName),
    /// An operation has no kernel.
    Kernel(NotLowered),
    /// The loss depends on an operation without a derivative.
    Gradient(NotDifferentiable),
    /// The model cannot be trained on mini-batches.
    Batch(NotBatchable),
    /// The model cannot be computed by several processes.
    Place(NotPlaced),
}

impl fmt::Display for LowerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LowerError::Name(error) => error.fmt(f),
            LowerError::Kernel(error) => error.fmt(f),
            LowerError::Gradient(error) => error.fmt(f),
            LowerError::Batch(error) => error.fmt(f),
            LowerError::Place(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LowerError {}

impl From<UnknownName> for LowerError {
    fn from(error: UnknownName) -> Self {
        LowerError::Name(error)
    }
}

impl From<NotDifferentiable> for LowerError {
    fn from(error: NotDifferentiable) -> Self {
        LowerError::Gradient(error)
    }
}

impl From<NotBatchable> for LowerError {
    fn from(error: NotBatchable) -> Self {
        LowerError::Batch(error)
    }
}

impl From<NotPlaced> for LowerError {
    fn from(error: NotPlaced) -> Self {
        LowerError::Place(error)
    }
}

impl From<NotLowered> for LowerError {
    fn from(error: NotLowered) -> Self {
        LowerError::Kernel(error)
    }
}

/// Stack size of lowering threads in bytes, the usual size of a main thread's stack.
const STACK: usize = 8 << 20;

/// Runs the passes that change the tables of a model. Data is bound to the tables, so this comes first. Rows that are
/// computed before training become inputs ([`Analyzed::precomputed`]).
///
/// Programs of mini-batches have tables of their own: they are made of the program as it was.
///
/// # Errors
/// When a disabled pass or fusion does not exist.
pub fn prepare(model: &mut Analyzed, disabled: &Disabled) -> Result<(), UnknownName> {
    let passes = PassManager::new(disabled)?;
    leave_precomputed(model, disabled);
    let on_batches = model.train.as_ref().is_some_and(|spec| spec.training.batch.is_some());
    let before = on_batches.then(|| model.flow.clone());
    let mut cx = PassCx::default();
    if passes.run_model(&mut model.flow, &mut cx).0 {
        model.of_batches = before;
    }
    model.explanations.extend(cx.explain);
    Ok(())
}

/// Lowers a checked model to an executable.
///
/// # Errors
/// When a disabled pass or fusion does not exist, an operation has no kernel, or the loss no gradient.
pub fn lower(model: &Analyzed, options: &LowerOptions) -> Result<Lowered, LowerError> {
    let passes = PassManager::new(&options.disabled)?;
    let context = PassCx { machine: options.machine.clone(), ..PassCx::new(options.sizes.clone()) };
    let factored = |of: fn(&GraphPlan) -> &BTreeSet<Graph>| options.graphs.as_ref().map(|plan| of(plan).clone());
    let cx = PassCx { arena_budget: options.arena_budget, factored: factored(|plan| &plan.train), ..context.clone() };

    // The evaluation and training programs are compiled in parallel. Only the final training pass needs a result of the
    // evaluation program: its memory, which training should not exceed by much.
    let on_batches = model.train.as_ref().is_some_and(|spec| spec.training.batch.is_some());
    let preferred = passes.lowering_options(LoweringOptions::of(options.machine.as_ref()));
    // Evaluations beside mini-batches are rare, and all vertices at once take the most memory.
    let of_infer = if on_batches { passes.lowering_options(preferred.for_rare_runs()) } else { preferred };
    let lean_weight = if of_infer.lean { of_infer.row_weight } else { 0 };
    let infer_cx = PassCx { factored: factored(|plan| &plan.infer), lean_weight, ..context.clone() };
    let mut infer = Compilation::new(without_dropout(&model.flow), infer_cx, of_infer);
    let spec = model.train.as_ref().filter(|_| !options.evaluation_only);
    // With a training program, disabled fusions of single values refer to the training program.
    infer.named = spec.is_none();
    // Links are scored by a separate program. The runtime chooses the number of pairs per run, so it has no sizes.
    let on_rows = |flow| {
        let cx = PassCx { sizes: None, ..context.clone() };
        Compilation::new(flow, cx, preferred.with_hoisting(false))
    };
    let (mut score, mut rank) = (None, [None, None]);
    if let Some((first, second)) = score_links(&infer.flow) {
        let training = model.train.as_ref().map(|spec| &spec.training);
        rank = rank_programs(training, &infer.flow, options.sizes.as_ref()).map(|flow| flow.map(&on_rows));
        infer.flow = first;
        score = Some(on_rows(second));
    }
    // Where memory comes first, the outputs are computed for some vertices at a time, too.
    let mut head = None;
    let on_device = options.machine.as_ref().is_some_and(|machine| machine.capabilities.thread_blocks);
    if of_infer.lean
        && !on_device
        && let Some((first, second)) = head_of(model, &infer.flow)
    {
        infer.flow = first;
        head = Some(on_rows(second));
    }
    for part in [&mut score, &mut head].into_iter().chain(&mut rank).flatten() {
        part.run(EVALUATE, &passes, || None)?;
    }
    let mut lowered_infer = None;
    let mut train = std::thread::scope(|scope| {
        let mut lower_infer = || {
            infer.run(EVALUATE, &passes, || None)?;
            Ok::<_, LowerError>(options.sizes.as_ref().map(|sizes| arena_bytes(&infer.kernels, sizes)))
        };
        let Some(spec) = spec else {
            lowered_infer = Some(lower_infer());
            return Ok(None);
        };
        let other = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, lower_infer);
        let mut train = Compilation::new(forward_of_training(model), cx, LoweringOptions::of(options.machine.as_ref()))
            .training(spec);
        let evaluation_bytes = || {
            let lowered = other.ok()?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let bytes = lowered.as_ref().ok().copied().flatten();
            lowered_infer = Some(lowered);
            bytes
        };
        train.run(TRAIN, &passes, evaluation_bytes)?;
        Ok::<_, LowerError>(Some(train))
    })?;
    // Without a second thread, compile one after the other.
    match lowered_infer {
        Some(lowered) => drop(lowered?),
        None => infer.run(EVALUATE, &passes, || None)?,
    }
    let train_sizes = train.as_ref().map_or(options.sizes.clone(), |train| train.cx.sizes.clone());
    let arena = options.sizes.as_ref().zip(train_sizes.as_ref()).map(|(sizes, of_train)| ArenaBytes {
        train: train.as_ref().map(|train| arena_bytes(&train.kernels, of_train)),
        infer: arena_bytes(&infer.kernels, sizes),
    });
    let explained = train.as_ref().unwrap_or(&infer);
    let first = [model.explanations.clone(), explain(model, options.sizes.as_ref())].concat();
    let mut explanations = [first, explained.cx.explain.clone()].concat();
    let known = train_sizes.as_ref().zip(options.machine.as_ref());
    explanations.extend(hgnnc_fusion::explain(&explained.kernels, known));
    let notes = train.as_ref().map_or_else(Vec::new, |train| train.cx.notes.clone());
    let groups = train.as_mut().map_or(infer.groups, |train| std::mem::take(&mut train.groups));
    let mut executable = Executable {
        model: model.name.clone(),
        train: None,
        infer: infer.flow,
        score: None,
        rank: [None, None],
        head: None,
        kernels: Kernels { infer: infer.kernels, ..Kernels::default() },
        cpu: None,
        sampler: None,
        training: model.train.as_ref().map(|spec| spec.training.clone()),
        batch: None,
        graphs: options.graphs.clone(),
        families: model.families.clone(),
    };
    if let Some(score) = score {
        (executable.score, executable.kernels.score) = (Some(score.flow), Some(score.kernels));
    }
    for (end, rank) in rank.into_iter().enumerate() {
        let Some(rank) = rank else { continue };
        (executable.rank[end], executable.kernels.rank[end]) = (Some(rank.flow), Some(rank.kernels));
    }
    if let Some(head) = head {
        (executable.head, executable.kernels.head) = (Some(head.flow), Some(head.kernels));
    }
    let mut joint = None;
    if let Some(train) = train {
        (executable.train, executable.kernels.train) = (Some(train.flow), Some(train.kernels));
        executable.batch = train.batch;
        joint = train.joint;
    }
    Ok(Lowered { dataflow: model.flow.clone(), joint, executable, explanations, notes, groups, arena, train_sizes })
}

/// The evaluation program without its prediction head, and the head.
fn head_of(model: &Analyzed, infer: &Dataflow) -> Option<(Dataflow, Dataflow)> {
    match &model.train.as_ref()?.training.trained[..] {
        [Trained { target: Target::Vertices { vertex, label }, .. }] => split_head(infer, *vertex, label),
        // Several labels have no head in common.
        _ => None,
    }
}

/// The forward program of the loss.
pub(crate) fn forward_of_training(model: &Analyzed) -> Dataflow {
    let mut flow = model.of_batches.as_ref().unwrap_or(&model.flow).clone();
    flow.name = format!("{}.train", model.name);
    flow.outputs.retain(|output| is_loss(&output.kind));
    flow
}

/// The evaluation program: dropout masks become 1.
pub(crate) fn without_dropout(flow: &Dataflow) -> Dataflow {
    let mut infer = flow.with_tables_of(format!("{}.infer", flow.name));
    for value in &flow.values {
        infer.cursor = Cursor { stage: value.stage, phase: value.phase, origin: value.origin };
        let op = match &value.op {
            // A mask occurs only as a factor, so a scalar has the same effect.
            Op::RandomMask { .. } => Op::Const(1.0),
            other => other.clone(),
        };
        infer.add(op, &value.args);
    }
    infer.outputs = flow.outputs.iter().filter(|output| !is_loss(&output.kind)).cloned().collect();
    infer
}

fn is_loss(kind: &OutputKind) -> bool {
    matches!(kind, OutputKind::Result(name) if name == "loss")
}
