//! The stages from a forward program to kernels, in one list for each kind of program. Loops and machine code follow
//! (`schedule`, `codegen-cpu`, `ptx`), which need a target and no more passes.

use hgnnc_fusion::{Groups, KERNEL_PASSES, KernelCx, LoweringOptions, kernel_passes};
use hgnnc_ir::batch::BatchLayout;
use hgnnc_ir::infer::TypeError;
use hgnnc_ir::training::Negatives;
use hgnnc_ir::{Dataflow, Param, Value};
use hgnnc_kernel_ir::kernel::Program;
use hgnnc_passes::{Leaf, LeafGradient, PassCx, PassManager};
use hgnnc_passes::{
    NotBatchable, batch_sizes, expand_link_loss, share_samples, to_minibatch, to_minibatch_with_cache,
    try_differentiate, update, vjp,
};
use hgnnc_sema::TrainSpec;

use crate::lower::LowerError;

/// A stage of the compiler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Whole graph to mini-batch, for models that are trained on batches. Writes out the losses of links that share their
    /// negative samples.
    Minibatch,
    /// [`hgnnc_passes::pipeline::MODEL`], for mini-batches: those of the whole graph ran before data was bound. Then the
    /// losses of links that need the pairs of a batch are written out.
    Model,
    /// [`hgnnc_passes::pipeline::FORWARD`].
    Forward,
    /// Appends the gradients of the loss.
    Differentiate,
    /// Appends the gradients of a layer's parameters and inputs, given those of its outputs.
    Vjp,
    /// Appends the optimizer's updates.
    Update,
    /// [`hgnnc_passes::pipeline::JOINT`] and [`hgnnc_passes::pipeline::MEMORY`].
    Joint,
    /// Divides the operations into groups, one for each kernel ([`hgnnc_fusion::group()`]).
    Group,
    /// Marks the values that groups pass on through memory ([`hgnnc_fusion::store()`]).
    Store,
    /// Makes a kernel of each group ([`hgnnc_fusion::emit()`]).
    Emit,
    /// [`hgnnc_fusion::KERNEL_PASSES`].
    Kernels,
}

/// A training step.
pub(crate) const TRAIN: &[Stage] = &[
    Stage::Minibatch,
    Stage::Model,
    Stage::Forward,
    Stage::Differentiate,
    Stage::Update,
    Stage::Joint,
    Stage::Group,
    Stage::Store,
    Stage::Emit,
    Stage::Kernels,
];

/// The evaluation of a model, its head, and the scores of links.
pub(crate) const EVALUATE: &[Stage] =
    &[Stage::Forward, Stage::Joint, Stage::Group, Stage::Store, Stage::Emit, Stage::Kernels];

/// A layer: its forward pass, and its vector-Jacobian product.
pub(crate) const LAYER: &[Stage] =
    &[Stage::Forward, Stage::Vjp, Stage::Joint, Stage::Group, Stage::Store, Stage::Emit, Stage::Kernels];

/// A program on its way through the stages, with what they leave behind.
pub(crate) struct Compilation<'a> {
    /// The program, at the level of dataflow.
    pub flow: Dataflow,
    pub cx: PassCx,
    /// The preferences of the back end.
    pub options: LoweringOptions,
    /// For a training step: how the model is trained.
    pub spec: Option<&'a TrainSpec>,
    /// For a layer: the parameters and inputs by which it is differentiated.
    pub leaves: Vec<Leaf>,
    /// Whether disabled fusions of single values refer to this program.
    pub named: bool,
    /// The program before [`Stage::Joint`], if it was differentiated.
    pub joint: Option<Dataflow>,
    /// After [`Stage::Minibatch`]: the layout of batches.
    pub batch: Option<BatchLayout>,
    /// After [`Stage::Differentiate`]: the gradient of each parameter that the loss depends on.
    gradients: Vec<(Param, Value)>,
    /// After [`Stage::Vjp`]: the results that are gradients.
    pub leaf_gradients: Vec<LeafGradient>,
    /// After [`Stage::Group`]; complete after [`Stage::Store`].
    pub groups: Groups,
    /// After [`Stage::Emit`].
    pub kernels: Program,
}

impl<'a> Compilation<'a> {
    pub fn new(flow: Dataflow, cx: PassCx, options: LoweringOptions) -> Self {
        Self {
            flow,
            cx,
            options,
            spec: None,
            leaves: vec![],
            named: false,
            joint: None,
            batch: None,
            gradients: vec![],
            leaf_gradients: vec![],
            groups: Groups::default(),
            kernels: Program::default(),
        }
    }

    /// For a training step.
    pub fn training(self, spec: &'a TrainSpec) -> Self {
        Self { spec: Some(spec), named: true, ..self }
    }

    /// For a layer.
    pub fn layer(self, leaves: Vec<Leaf>) -> Self {
        Self { leaves, named: true, ..self }
    }

    /// Runs stages in order. `evaluation_bytes` is asked for the memory of an evaluation before the passes that compare
    /// it with that of a training step.
    ///
    /// # Errors
    /// An operation without a kernel or a derivative, a model that has no mini-batches, or a disabled fusion that does
    /// not exist.
    pub fn run(
        &mut self,
        stages: &[Stage],
        passes: &PassManager,
        evaluation_bytes: impl FnOnce() -> Option<u64>,
    ) -> Result<(), LowerError> {
        let mut evaluation_bytes = Some(evaluation_bytes);
        for stage in stages {
            match stage {
                Stage::Minibatch => self.make_minibatch()?,
                Stage::Model if self.batch.is_some() => {
                    passes.run_model(&mut self.flow, &mut self.cx);
                    self.expand_link_loss()?;
                    self.cx.sizes.iter_mut().for_each(|sizes| sizes.derive(&self.flow));
                }
                Stage::Model => {}
                Stage::Forward => _ = passes.run_forward(&mut self.flow, &mut self.cx),
                Stage::Differentiate => self.differentiate()?,
                Stage::Vjp => self.leaf_gradients = vjp(&mut self.flow, &self.leaves)?,
                Stage::Update => self.update(),
                Stage::Joint => {
                    let evaluation_bytes = || evaluation_bytes.take().and_then(|bytes| bytes());
                    passes.run_joint(&mut self.flow, &mut self.cx, evaluation_bytes);
                }
                Stage::Group => self.group(passes)?,
                Stage::Store => hgnnc_fusion::store(&self.flow, &mut self.groups),
                Stage::Emit => self.kernels = hgnnc_fusion::emit(&self.flow, &self.groups)?,
                Stage::Kernels => self.run_kernel_passes(),
            }
        }
        Ok(())
    }

    fn make_minibatch(&mut self) -> Result<(), LowerError> {
        let Some(training) = self.spec.map(|spec| &spec.training) else { return Ok(()) };
        let Some(batch) = &training.batch else { return Ok(()) };
        let (flow, layout) = match batch.reuse {
            None => to_minibatch(&self.flow)?,
            Some(_) => to_minibatch_with_cache(&self.flow)?,
        };
        let mut flow = flow;
        if let Some(Negatives { count, by, .. }) = training.links().map(|links| links.negatives)
            && !by.shared().is_empty()
        {
            share_samples(&mut flow, count, by.shared())?;
        }
        let sizes = self.cx.sizes.take();
        self.cx.sizes = sizes.map(|sizes| batch_sizes(&self.flow, &layout, training, batch, &sizes));
        self.cx.batch = Some(layout.clone());
        (self.flow, self.batch) = (flow, Some(layout));
        Ok(())
    }

    fn expand_link_loss(&mut self) -> Result<(), LowerError> {
        let Some(links) = self.spec.and_then(|spec| spec.training.links()) else { return Ok(()) };
        expand_link_loss(&mut self.flow, links.negatives.count)
            .map_err(|TypeError(why)| LowerError::Batch(NotBatchable { why, origin: None }))
    }

    fn differentiate(&mut self) -> Result<(), LowerError> {
        let loss = self.flow.result("loss").expect("a trained model has a loss");
        let params: Vec<Param> = (0..self.flow.params.len()).map(Param::new).collect();
        self.gradients = try_differentiate(&mut self.flow, loss, &params)?;
        Ok(())
    }

    fn update(&mut self) {
        if let Some(spec) = self.spec {
            update(&mut self.flow, &self.gradients, &spec.optimizer);
        }
        self.joint = Some(self.flow.clone());
    }

    fn group(&mut self, passes: &PassManager) -> Result<(), LowerError> {
        self.options = passes.lowering_options(self.options);
        let unfused = match self.named {
            true => passes.unfused(&self.flow, self.options)?,
            false => Default::default(),
        };
        self.groups = hgnnc_fusion::group(&self.flow, self.options, &unfused);
        Ok(())
    }

    fn run_kernel_passes(&mut self) {
        let (sizes, machine) = (self.cx.sizes.clone(), self.cx.machine.clone());
        let mut cx = KernelCx { sizes, machine, ..KernelCx::new(self.options) };
        kernel_passes::run(KERNEL_PASSES, &mut self.kernels, &mut cx);
        self.cx.explain.extend(cx.explain);
    }
}
