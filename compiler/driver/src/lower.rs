//! From a checked model to the programs that the runtime executes.

use std::collections::BTreeSet;
use std::fmt;

use hgnnc_ir::artifact::{Bottom, Kernels};
use hgnnc_ir::batch::BatchLayout;
use hgnnc_ir::dataflow::Cursor;
use hgnnc_ir::kernel::Program;
use hgnnc_ir::{Artifact, Dataflow, Graph, Op, OutputKind, Param, Space};
use hgnnc_machine::Machine;
use hgnnc_passes::kernels::{self, FusionRule, LoweringOptions, NotLowered};
use hgnnc_passes::pipeline::{Disabled, PassCx, PassManager, SizeInfo, UnknownName};
use hgnnc_passes::rematerialize::predict::arena_bytes;
use hgnnc_passes::{
    MinibatchWithCache, NotBatchable, NotDifferentiable, batch_sizes, score_links, to_minibatch,
    to_minibatch_with_cache, try_differentiate, update,
};
use hgnnc_sema::{Analyzed, TrainSpec};

/// The options of [`lower`].
#[derive(Clone, Debug, Default)]
pub struct LowerOptions {
    /// Passes and fusions that are disabled.
    pub disabled: Disabled,
    /// Sizes of the dataset. Without them, passes that compare sizes change nothing.
    pub sizes: Option<SizeInfo>,
    /// The machine to compile for. With it and sizes, explanations tell predicted times.
    pub machine: Option<Machine>,
    /// Bytes that the values of a training step may take: above, more is recomputed. Needs sizes.
    pub arena_budget: Option<u64>,
}

/// Bytes of the values of a run, as planned from sizes alone: without partial results and scratch, which depend on the
/// runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaBytes {
    /// A training step; `None` without a train block.
    pub train: Option<u64>,
    /// An evaluation.
    pub infer: u64,
}

/// A compiled model with the levels that it went through.
pub struct Lowered {
    /// The forward program before any pass.
    pub dataflow: Dataflow,
    /// Forward, backward and update, before the passes over the whole. `None` without a train block.
    pub joint: Option<Dataflow>,
    /// What the runtime executes.
    pub artifact: Artifact,
    /// What the passes did and refused, with the numbers that they compared.
    pub explanations: Vec<String>,
    /// What was done to meet the budget.
    pub notes: Vec<String>,
    /// Memory for values, where sizes are known.
    pub arena: Option<ArenaBytes>,
    /// Sizes that the training program is compiled for, where sizes are known: of a batch, if it is trained on batches.
    pub train_sizes: Option<SizeInfo>,
}

/// What [`lower`] cannot do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LowerError {
    /// A disabled pass or fusion does not exist.
    Name(UnknownName),
    /// There is no kernel for an operation.
    Kernel(NotLowered),
    /// The loss has a gradient that no operation computes.
    Gradient(NotDifferentiable),
    /// The model is to be trained on batches, and cannot be.
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

/// Bytes of the stack of a thread that lowers: as much as a first thread usually has.
const STACK: usize = 8 << 20;

/// Lowers a model.
///
/// # Errors
/// When a disabled pass or fusion does not exist, an operation has no kernel, or the loss no gradient.
pub fn lower(model: &Analyzed, options: &LowerOptions) -> Result<Lowered, LowerError> {
    let passes = PassManager::new(&options.disabled)?;
    let context = PassCx { machine: options.machine.clone(), ..PassCx::new(options.sizes.clone()) };
    let mut cx = PassCx { arena_budget: options.arena_budget, ..context.clone() };

    // The programs of evaluation and of training are independent of each other, until the one of training is to take not
    // much more memory.
    let on_batches = model.train.as_ref().is_some_and(|spec| spec.training.batch.is_some());
    let lowering_options =
        passes.lowering_options(LoweringOptions::of(options.machine.as_ref()).with_hoisting(!on_batches));
    let (mut infer, mut quiet) = (without_dropout(&model.flow), context);
    // Pairs are scored by a program of its own. How many at a time is the runtime's matter.
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
        passes.run_forward(&mut infer, &mut quiet);
        passes.run_joint(&mut infer, &mut quiet, || None);
        // Single decisions are those of training, if there is any.
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
    // Where there is no other thread, one after the other.
    let infer_kernels = infer_kernels.unwrap_or_else(lower_infer);
    let training = training?;
    // A program for batches has tables and sizes of its own.
    let train_sizes = training.as_ref().map_or(options.sizes.clone(), |training| training.sizes.clone());
    let (joint, train, train_kernels, batch, bottom) = match training {
        Some(Training { joint, flow, kernels, batch, bottom, .. }) => {
            (Some(joint), Some(flow), Some(kernels), batch, bottom)
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
        bottom,
    };
    let mut explanations = if artifact.train.is_some() { cx.explain } else { quiet.explain };
    explanations.extend(interleaved);
    let known = train_sizes.as_ref().zip(options.machine.as_ref());
    explanations.extend(kernels::explain(artifact.kernels.train.as_ref().unwrap_or(&artifact.kernels.infer), known));
    Ok(Lowered { dataflow: model.flow.clone(), joint, artifact, explanations, notes: cx.notes, arena, train_sizes })
}

/// The graphs whose edges the programs of a model need, once the passes before differentiation have run, where all of them
/// could be there.
///
/// # Errors
/// When a disabled pass or fusion does not exist.
pub fn graphs_with_edges(model: &Analyzed, options: &LowerOptions) -> Result<BTreeSet<Graph>, UnknownName> {
    let passes = PassManager::new(&options.disabled)?;
    let on_batches = model.train.as_ref().is_some_and(|spec| spec.training.batch.is_some());
    let mut graphs = BTreeSet::new();
    // The same programs as `lower` has: what a pass decides depends on all of one.
    let infer = without_dropout(&model.flow);
    let (infer, score) = match score_links(&infer) {
        Some((first, second)) => (first, Some(second)),
        None => (infer, None),
    };
    let training = model.train.as_ref().map(|_| forward_of_training(model));
    let sizes = options.sizes.clone().map(|sizes| SizeInfo { unlisted: vec![], ..sizes });
    for mut flow in [Some(infer), score, training].into_iter().flatten() {
        if !on_batches {
            let mut cx = PassCx { machine: options.machine.clone(), ..PassCx::new(sizes.clone()) };
            passes.run_forward(&mut flow, &mut cx);
        }
        for value in &flow.values {
            match (&value.op, value.ty.space) {
                (Op::Paths(sum), _) => graphs.extend([sum.first, sum.second]),
                (_, Space::Edges(graph) | Space::Ends(graph, _)) => graphs.extend([graph]),
                (_, Space::Unit | Space::Vertices(_) | Space::Index(_)) => {}
            }
        }
    }
    Ok(graphs)
}

/// The program of the loss.
fn forward_of_training(model: &Analyzed) -> Dataflow {
    let mut flow = model.flow.clone();
    flow.name = format!("{}.train", model.name);
    flow.outputs.retain(|output| is_loss(&output.kind));
    flow
}

/// The program of training.
struct Training {
    /// Before the passes over the whole.
    joint: Dataflow,
    /// After them.
    flow: Dataflow,
    /// Its kernels.
    kernels: Program,
    /// How it belongs to the whole graph, if it is trained on batches.
    batch: Option<BatchLayout>,
    /// What computes values that batches reuse.
    bottom: Option<Bottom>,
    /// What it was compiled for.
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
    let (mut batch, mut bottom) = (None, None);
    if let Some(spec_of_batch) = &spec.training.batch {
        let (of_batch, layout) = match spec_of_batch.reuse {
            None => to_minibatch(&flow)?,
            Some(_) => {
                let MinibatchWithCache { flow, layout, bottom: values, bottom_layout } =
                    to_minibatch_with_cache(&flow)?;
                bottom = Some(lower_bottom(values, bottom_layout, passes, cx)?);
                (flow, layout)
            }
        };
        cx.sizes = cx.sizes.as_ref().map(|sizes| batch_sizes(&flow, &layout, &spec.training, spec_of_batch, sizes));
        (flow, batch) = (of_batch, Some(layout));
    }
    passes.run_forward(&mut flow, cx);
    let loss = flow.result("loss").expect("a trained model has a loss");
    let params: Vec<Param> = (0..flow.params.len()).map(Param::new).collect();
    let gradients = try_differentiate(&mut flow, loss, &params)?;
    update(&mut flow, &gradients, &spec.optimizer);
    let joint = flow.clone();
    passes.run_joint(&mut flow, cx, evaluation_bytes);
    // Of batches as well: sums of features that stand by themselves are faster than within the kernels that use them.
    let kernels = passes.lower(&flow, LoweringOptions::of(cx.machine.as_ref()))??;
    Ok(Training { joint, flow, kernels, batch, bottom, sizes: cx.sizes.clone() })
}

/// The program of values that batches reuse. How many there will be at a time is the runtime's matter.
fn lower_bottom(
    mut flow: Dataflow,
    layout: BatchLayout,
    passes: &PassManager,
    cx: &PassCx,
) -> Result<Bottom, LowerError> {
    let mut quiet = PassCx { machine: cx.machine.clone(), ..PassCx::new(None) };
    passes.run_forward(&mut flow, &mut quiet);
    passes.run_joint(&mut flow, &mut quiet, || None);
    let kernels = kernels::lower_with(
        &flow,
        passes.lowering_options(LoweringOptions::of(cx.machine.as_ref()).with_hoisting(false)),
    )?;
    Ok(Bottom { flow, kernels, layout })
}

/// The program of evaluation: dropout's masks are 1.
fn without_dropout(flow: &Dataflow) -> Dataflow {
    let mut infer = flow.with_tables_of(format!("{}.infer", flow.name));
    for value in &flow.values {
        infer.cursor = Cursor { stage: value.stage, phase: value.phase, origin: value.origin };
        let op = match &value.op {
            // A mask only ever multiplies what it masks, and a scalar multiplies anything.
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
