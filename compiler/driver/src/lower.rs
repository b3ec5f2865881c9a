//! Lowers a checked model to the programs that the runtime executes.

use std::collections::BTreeSet;
use std::fmt;

use hgnnc_ir::artifact::{EmbeddingProducer, GraphPlan, Kernels};
use hgnnc_ir::batch::BatchLayout;
use hgnnc_ir::dataflow::Cursor;
use hgnnc_ir::kernel::Program;
use hgnnc_ir::{Artifact, Dataflow, Graph, Op, OutputKind, Param};
use hgnnc_machine::Machine;
use hgnnc_passes::kernels::{self, FusionRule, LoweringOptions, NotLowered};
use hgnnc_passes::pipeline::{Disabled, PassCx, PassManager, SizeInfo, UnknownName};
use hgnnc_passes::rematerialize::predict::arena_bytes;
use hgnnc_passes::{
    MinibatchWithCache, NotBatchable, NotDifferentiable, batch_sizes, score_links, to_minibatch,
    to_minibatch_with_cache, try_differentiate, update,
};
use hgnnc_sema::TrainSpec;

use crate::model::Analyzed;

/// The options of [`lower`].
#[derive(Clone, Debug, Default)]
pub struct LowerOptions {
    /// Passes and fusions that are disabled.
    pub disabled: Disabled,
    /// Sizes of the dataset. Without them, passes that compare costs are skipped.
    pub sizes: Option<SizeInfo>,
    /// The machine to compile for. Together with sizes, explanations include predicted times.
    pub machine: Option<Machine>,
    /// Which graphs are materialized, if data was bound by a plan: see [`plan_graphs`](crate::plan_graphs).
    pub graphs: Option<GraphPlan>,
    /// Memory budget of a training step's values, in bytes. Beyond it, values are rematerialized. Requires sizes.
    pub arena_budget: Option<u64>,
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
    pub artifact: Artifact,
    /// Log of the rewrites that passes applied or rejected, with the costs compared.
    pub explanations: Vec<String>,
    /// Log of the rematerializations that meet the memory budget.
    pub notes: Vec<String>,
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
}

impl fmt::Display for LowerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LowerError::Name(error) => error.fmt(f),
            LowerError::Kernel(error) => error.fmt(f),
            LowerError::Gradient(error) => error.fmt(f),
            LowerError::Batch(error) => error.fmt(f),
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

impl From<NotLowered> for LowerError {
    fn from(error: NotLowered) -> Self {
        LowerError::Kernel(error)
    }
}

/// Stack size of lowering threads in bytes, the usual size of a main thread's stack.
const STACK: usize = 8 << 20;

/// Runs the passes that change the tables of a model. Data is bound to the tables, so this comes first.
///
/// Programs of mini-batches have tables of their own: they are made of the program as it was.
///
/// # Errors
/// When a disabled pass or fusion does not exist.
pub fn prepare(model: &mut Analyzed, disabled: &Disabled) -> Result<(), UnknownName> {
    let on_batches = model.train.as_ref().is_some_and(|spec| spec.training.batch.is_some());
    let before = on_batches.then(|| model.flow.clone());
    let mut cx = PassCx::default();
    if PassManager::new(disabled)?.run_model(&mut model.flow, &mut cx).0 {
        model.of_batches = before;
    }
    model.explanations.extend(cx.explain);
    Ok(())
}

/// Lowers a checked model to an artifact.
///
/// # Errors
/// When a disabled pass or fusion does not exist, an operation has no kernel, or the loss no gradient.
pub fn lower(model: &Analyzed, options: &LowerOptions) -> Result<Lowered, LowerError> {
    let passes = PassManager::new(&options.disabled)?;
    let context = PassCx { machine: options.machine.clone(), ..PassCx::new(options.sizes.clone()) };
    let factored = |of: fn(&GraphPlan) -> &BTreeSet<Graph>| options.graphs.as_ref().map(|plan| of(plan).clone());
    let mut cx =
        PassCx { arena_budget: options.arena_budget, factored: factored(|plan| &plan.train), ..context.clone() };

    // The evaluation and training programs are compiled in parallel. Only the final training pass needs a result of the
    // evaluation program: its memory, which training should not exceed by much.
    let on_batches = model.train.as_ref().is_some_and(|spec| spec.training.batch.is_some());
    let lowering_options =
        passes.lowering_options(LoweringOptions::of(options.machine.as_ref()).with_hoisting(!on_batches));
    let (mut infer, mut infer_cx) =
        (without_dropout(&model.flow), PassCx { factored: factored(|plan| &plan.infer), ..context });
    // Links are scored by a separate program. The runtime chooses the number of pairs per run.
    let mut score = None;
    if let Some((first, second)) = score_links(&infer) {
        (infer, score) = (first, Some(second));
    }
    let score_kernels = score.as_mut().map(|score| {
        let mut cx = PassCx { machine: options.machine.clone(), ..PassCx::new(None) };
        passes.run_forward(score, &mut cx);
        passes.run_joint(score, &mut cx, || None);
        kernels::lower_with(score, lowering_options.with_hoisting(false))
    });
    let trains = model.train.is_some();
    let mut lower_infer = || {
        passes.run_forward(&mut infer, &mut infer_cx);
        passes.run_joint(&mut infer, &mut infer_cx, || None);
        // With a train block, disabled fusions of single values refer to the training program.
        match trains {
            true => kernels::lower_with(&infer, lowering_options).map_err(LowerError::from),
            false => Ok(passes.lower(&infer, lowering_options)??),
        }
    };
    let mut infer_kernels = None;
    let training = std::thread::scope(|scope| {
        let other = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, &mut lower_infer);
        let evaluation_bytes = || {
            let kernels = other.ok()?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let bytes = kernels.as_ref().ok().zip(options.sizes.as_ref()).map(|(it, sizes)| arena_bytes(it, sizes));
            infer_kernels = Some(kernels);
            bytes
        };
        match &model.train {
            Some(spec) => lower_training(model, spec, &passes, &mut cx, evaluation_bytes).map(Some),
            None => {
                evaluation_bytes();
                Ok(None)
            }
        }
    });
    // Without a second thread, compile one after the other.
    let infer_kernels = infer_kernels.unwrap_or_else(lower_infer);
    let training = training?;
    // A mini-batch program has tables and sizes of its own.
    let train_sizes = training.as_ref().map_or(options.sizes.clone(), |training| training.sizes.clone());
    let (joint, train, train_kernels, batch, producer) = match training {
        Some(Training { joint, flow, kernels, batch, producer, .. }) => {
            (Some(joint), Some(flow), Some(kernels), batch, producer)
        }
        None => (None, None, None, None, None),
    };
    let mut kernels = Kernels { train: train_kernels, infer: infer_kernels?, score: score_kernels.transpose()? };
    let mut interleaved = vec![];
    let interleaving = options.machine.as_ref().filter(|_| !passes.disables(FusionRule::Interleave));
    if let (Some(sizes), Some(of_train), Some(machine)) = (&options.sizes, &train_sizes, interleaving) {
        let infer = kernels::interleave_kernels(&mut kernels.infer, sizes, machine);
        interleaved =
            kernels.train.as_mut().map_or(infer, |train| kernels::interleave_kernels(train, of_train, machine));
    }
    let arena = options.sizes.as_ref().zip(train_sizes.as_ref()).map(|(sizes, of_train)| ArenaBytes {
        train: kernels.train.as_ref().map(|program| arena_bytes(program, of_train)),
        infer: arena_bytes(&kernels.infer, sizes),
    });
    let artifact = Artifact {
        model: model.name.clone(),
        train,
        infer,
        score,
        kernels,
        training: model.train.as_ref().map(|spec| spec.training.clone()),
        batch,
        producer,
        graphs: options.graphs.clone(),
    };
    let own = if artifact.train.is_some() { cx.explain } else { infer_cx.explain };
    let mut explanations = [model.explanations.clone(), own].concat();
    explanations.extend(interleaved);
    let known = train_sizes.as_ref().zip(options.machine.as_ref());
    explanations.extend(kernels::explain(artifact.kernels.train.as_ref().unwrap_or(&artifact.kernels.infer), known));
    Ok(Lowered { dataflow: model.flow.clone(), joint, artifact, explanations, notes: cx.notes, arena, train_sizes })
}

/// The forward program of the loss.
pub(crate) fn forward_of_training(model: &Analyzed) -> Dataflow {
    let mut flow = model.of_batches.as_ref().unwrap_or(&model.flow).clone();
    flow.name = format!("{}.train", model.name);
    flow.outputs.retain(|output| is_loss(&output.kind));
    flow
}

/// The training program at its levels.
struct Training {
    /// Before the joint passes.
    joint: Dataflow,
    /// After the joint passes.
    flow: Dataflow,
    /// The kernels of `flow`.
    kernels: Program,
    /// The mini-batch layout, for mini-batch training.
    batch: Option<BatchLayout>,
    /// The producer of historical embeddings.
    producer: Option<EmbeddingProducer>,
    /// The sizes it was compiled for.
    sizes: Option<SizeInfo>,
}

fn lower_training(
    model: &Analyzed,
    spec: &TrainSpec,
    passes: &PassManager,
    cx: &mut PassCx,
    evaluation_bytes: impl FnOnce() -> Option<u64>,
) -> Result<Training, LowerError> {
    let mut flow = forward_of_training(model);
    let (mut batch, mut producer) = (None, None);
    if let Some(spec_of_batch) = &spec.training.batch {
        let (of_batch, layout) = match spec_of_batch.reuse {
            None => to_minibatch(&flow)?,
            Some(_) => {
                let MinibatchWithCache { flow, layout, producer: values, producer_layout } =
                    to_minibatch_with_cache(&flow)?;
                producer = Some(lower_producer(values, producer_layout, passes, cx)?);
                (flow, layout)
            }
        };
        cx.sizes = cx.sizes.as_ref().map(|sizes| batch_sizes(&flow, &layout, &spec.training, spec_of_batch, sizes));
        (flow, batch) = (of_batch, Some(layout));
        passes.run_model(&mut flow, cx);
        cx.sizes.iter_mut().for_each(|sizes| sizes.derive(&flow));
    }
    passes.run_forward(&mut flow, cx);
    let loss = flow.result("loss").expect("a trained model has a loss");
    let params: Vec<Param> = (0..flow.params.len()).map(Param::new).collect();
    let gradients = try_differentiate(&mut flow, loss, &params)?;
    update(&mut flow, &gradients, &spec.optimizer);
    let joint = flow.clone();
    passes.run_joint(&mut flow, cx, evaluation_bytes);
    // Also for mini-batches: separate sums of features are faster than sums fused into their users.
    let kernels = passes.lower(&flow, LoweringOptions::of(cx.machine.as_ref()))??;
    Ok(Training { joint, flow, kernels, batch, producer, sizes: cx.sizes.clone() })
}

/// The program of historical embeddings. The runtime chooses the number of vertices per run.
fn lower_producer(
    mut flow: Dataflow,
    layout: BatchLayout,
    passes: &PassManager,
    cx: &PassCx,
) -> Result<EmbeddingProducer, LowerError> {
    let mut producer_cx = PassCx { machine: cx.machine.clone(), ..PassCx::new(None) };
    passes.run_forward(&mut flow, &mut producer_cx);
    passes.run_joint(&mut flow, &mut producer_cx, || None);
    let kernels = kernels::lower_with(
        &flow,
        passes.lowering_options(LoweringOptions::of(cx.machine.as_ref()).with_hoisting(false)),
    )?;
    Ok(EmbeddingProducer { flow, kernels, layout })
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
