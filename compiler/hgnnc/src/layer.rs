//! A model as a layer of a larger network, which the caller trains.
//!
//! A [`Layer`] is a model that is bound to the graphs of a dataset. Some of its features are given at each call, such as
//! the output of a text encoder in front of it; all others are the dataset's. [`Layer::forward`] computes the outputs,
//! and [`Layer::backward`] the gradients of the given inputs and of the parameters from those of the outputs (a
//! vector-Jacobian product). Parameters belong to the caller, who passes them to each call and updates them as it likes.
//! There is no loss and no optimizer: a `train` block of the model is ignored.
//!
//! ```
//! # use hgnnc::layer::{Layer, LayerJob, Mode};
//! # let mut dataset = hgnnc_dataset::Dataset { name: "three".into(), ..Default::default() };
//! # dataset.vertex_types.push(hgnnc_dataset::VertexTypeData { name: "paper".into(), count: 3, ..Default::default() });
//! # dataset.relations.push(hgnnc_dataset::RelationData {
//! #     name: "cites".into(),
//! #     src_ids: vec![0, 1],
//! #     dst_ids: vec![1, 2],
//! #     ..Default::default()
//! # });
//! let text = "
//!     use std::gcn::GcnConv
//!     schema Papers {
//!         vertex Paper from \"paper\" { x: f32[4] }
//!         relation cites: Paper -> Paper
//!     }
//!     model Net(schema: Papers) {
//!         output z: Paper = GcnConv(hidden: 2) over self_loops(cites) of Paper.x
//!     }
//! ";
//! let job = LayerJob { given: vec!["Paper.x".into()], ..LayerJob::new("net.hgnn", text) };
//! let mut layer = Layer::new(&job, &dataset, &mut hgnnc::Silent)?;
//! let params = layer.initial_params(0)?;
//! let params: Vec<&[f32]> = params.iter().map(Vec::as_slice).collect();
//! let pass = layer.forward(&[&[0.5; 12]], &params, Mode::Training { seed: 0, step: 1 })?;
//! assert_eq!(layer.output(0).len(), 6);
//! layer.backward(pass, &[Some(&[1.0; 6])])?;
//! assert_eq!(layer.input_gradient(0).map(<[f32]>::len), Some(12));
//! # Ok::<(), hgnnc::Error>(())
//! ```
//!
//! A layer keeps the values of one forward pass: those of the last one, until its backward pass or the next forward pass.
//! [`Layer::keeps`] says whether a pass can go backward; if not, the same forward pass with the same inputs, parameters
//! and [`Mode`] computes the same values again.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hgnnc_cpu::{CpuBackend, EngineOptions, thread_pool};
use hgnnc_cuda::{DeviceBackend, SharedDevice};
use hgnnc_data::stacks::{num_own_params, param_places};
use hgnnc_data::tables::{add_given, extent};
use hgnnc_data::{BindOptions, BoundData};
use hgnnc_dataset::Dataset;
use hgnnc_driver::{
    CpuOptions, Disabled, Leaf, LeafGradient, LowerOptions, compile_cpu_layer, factor_path_sums, give_features,
    given_inputs, lower_layer, output_gradient, plan_layer_graphs,
};
use hgnnc_executable::gpu::Precision;
use hgnnc_executable::{Executable, Role};
use hgnnc_graph::{GraphCache, show_bytes};
use hgnnc_ir::dataflow::{Binding, Dataflow};
use hgnnc_ir::{Input, Param, Space, Type};
use hgnnc_kernels::simd::Dispatch;
use hgnnc_machine::{CodeMode, KernelFeatures, Machine};
use hgnnc_ptx::PtxCompiler;
use hgnnc_session::{Backend, Session, StepKey};
use hgnnc_trace::Times;

use crate::bound_job::{Bound, bind_planned};
use crate::device::{self, Device};
use crate::{Error, Meeting, Observer, Purpose, dataset, source};

/// Model and options that a [`Layer`] is compiled from.
#[derive(Clone, Debug)]
pub struct LayerJob {
    /// Path of the model's text, which messages name, and from whose folder it imports; there need be no such file.
    pub name: String,
    /// The text of the model.
    pub text: String,
    /// The features that the caller gives at each call (`Paper.x`). They are dense.
    pub given: Vec<String>,
    /// Whether backward passes compute the gradients of given features.
    pub input_gradients: bool,
    /// Most bytes of the cache of metapath graphs beside the dataset; `None` for no cache.
    pub graph_cache: Option<u64>,
    /// Where to run; [`Device::Auto`] is the processor, which has the tensors of the caller.
    pub device: Device,
    /// Precision of dense products on a device; the processor always uses f32.
    pub precision: Precision,
    /// Number of threads; 0: one for each processor.
    pub threads: usize,
    /// Where programs are machine code.
    pub code: CodeMode,
    /// Enabled features of kernels.
    pub features: KernelFeatures,
    /// Disabled passes and fusions.
    pub disabled: Disabled,
}

impl LayerJob {
    /// A job with the default of everything else: all features are the dataset's.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
            given: vec![],
            input_gradients: true,
            graph_cache: Some(GraphCache::DEFAULT_LIMIT),
            device: Device::Auto,
            precision: Precision::default(),
            threads: 0,
            code: CodeMode::default(),
            features: KernelFeatures::ALL,
            disabled: Disabled::default(),
        }
    }
}

/// Name and shape of an input, output or parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorInfo {
    /// Name in the model.
    pub name: String,
    /// Shape in row-major order. Inputs and outputs have a row for each vertex, in the order of the dataset.
    pub shape: Vec<usize>,
}

impl TensorInfo {
    /// Number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    fn check(&self, kind: &str, len: usize) -> Result<(), Error> {
        if len == self.num_elements() {
            return Ok(());
        }
        Err(Error::input(format!("{kind} `{}` has {len} elements; its shape is {:?}", self.name, self.shape)))
    }
}

/// How a forward pass treats dropout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Masks are functions of seed and step.
    Training {
        /// Of the run.
        seed: u64,
        /// Another one for each pass of a run that should draw other masks.
        step: u64,
    },
    /// Nothing is dropped.
    Evaluation,
}

/// A forward pass of one layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pass(u64);

impl Pass {
    /// Its number, among the passes of its layer.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The pass with a number.
    pub fn of_number(number: u64) -> Self {
        Self(number)
    }
}

/// A given input, with its gradient.
#[derive(Debug)]
struct Given {
    info: TensorInfo,
    index: usize,
    /// The result that is its gradient, if an output depends on it.
    gradient: Option<String>,
}

/// An output, with the input that is its gradient.
#[derive(Debug)]
struct Output {
    info: TensorInfo,
    gradient: usize,
}

/// A parameter, with its gradient.
#[derive(Debug)]
struct OwnParam {
    info: TensorInfo,
    /// The result that has its gradient, and its elements there: those of a stack are one after the other.
    gradient: Option<(String, Range<usize>)>,
}

/// The pass whose values are kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    pass: Pass,
    program: usize,
    key: StepKey,
    /// Whether its gradients are there, and its forward values no more.
    backward_done: bool,
}

/// A model bound to a dataset and a machine.
#[derive(Debug)]
pub struct Layer {
    session: Box<dyn Session>,
    /// Tables of the programs, for initial values.
    tables: Dataflow,
    inputs: Vec<Given>,
    outputs: Vec<Output>,
    params: Vec<OwnParam>,
    /// Number of the program with dropout masks, if there is one, and of the one without.
    programs: (Option<usize>, usize),
    kept: Option<Kept>,
    passes: u64,
    notes: Vec<String>,
}

impl Layer {
    /// Checks the model, binds it to a dataset in memory, compiles it, and allocates its memory.
    ///
    /// # Errors
    /// A model or dataset that is wrong or that do not fit together, an output of pairs of vertices, and a machine without
    /// the device or the memory.
    pub fn new(job: &LayerJob, dataset: &Dataset, observer: &mut dyn Observer) -> Result<Self, Error> {
        let device = match job.device {
            Device::Auto | Device::Cpu => None,
            asked => device::open(asked, observer)?,
        };
        let mut analysis = source::analyze_text(Path::new(&job.name), &job.text, &[]);
        source::accept(&analysis, &analysis.diagnostics, observer)?;
        let pool = thread_pool(job.threads)?;
        let mut summary = dataset::summary(dataset);
        let mut model = source::take(&mut analysis)?;
        give_features(&mut model, &job.given, &mut summary).map_err(Error::Input)?;
        let mut model = source::fit((&analysis, model), (&summary, None), Purpose::Infer, observer)?;
        let with_paths;
        let mut dataset = dataset;
        if !model.flow.paths.is_empty() {
            factor_path_sums(&mut model);
            let mut extended = Arc::new(dataset.clone());
            source::list_paths(&model, &mut extended, Meeting::new(Purpose::Infer), observer, &pool)?;
            with_paths = extended;
            dataset = &with_paths;
        }
        source::declare(&mut model, dataset, &pool)?;
        if let Some(name) = model.keep_vertex_outputs() {
            return Err(Error::input(format!(
                "the output `{name}` has a row for each pair of vertices; the outputs of a layer have a row for each vertex"
            )));
        }
        model.forget_training();

        source::prepare(&mut model, &job.disabled, None)?;
        // Passes before binding may change the table of inputs.
        let given = given_inputs(&model.flow, &job.given);
        let machine = device.as_ref().and_then(|opened| Machine::sheet(opened.device.target().name()));
        let mut options = LowerOptions { disabled: job.disabled.clone(), machine, ..LowerOptions::default() };
        let bind_options = BindOptions { graph_cache: job.graph_cache, outputs_only: true, ..BindOptions::default() };
        let bound = bind_planned(&model, dataset, &bind_options, &options, (plan_layer_graphs, &pool))?;
        let Bound { mut data, sizes, graphs } = bound;
        (options.sizes, options.graphs) = (Some(sizes.clone()), graphs);
        let leaves = if job.input_gradients { &given[..] } else { &[] };
        let lowered = lower_layer(&model, leaves, &options).map_err(Error::from)?;
        let mut executable = lowered.executable;
        add_given(&executable.infer, &mut data);

        let mut backend: Box<dyn Backend> = match device {
            None => {
                let dispatch = Dispatch::new(job.features);
                let cpu = CpuOptions::new(job.code, job.features, dispatch.level());
                pool.install(|| compile_cpu_layer(&mut executable, Some(&sizes), &cpu));
                let options = EngineOptions { threads: job.threads, dispatch, room: None };
                Box::new(CpuBackend::new(&executable, Arc::clone(&pool), options))
            }
            Some(opened) => {
                let target = opened.device.target().with_precision(job.precision);
                let device = SharedDevice::from(opened.device);
                Box::new(DeviceBackend::new(&executable, device, (&PtxCompiler, target), Arc::clone(&pool)))
            }
        };
        let tables = executable.infer.with_tables_of(executable.model.clone());
        let shapes = Shapes { tables: &tables, data: &data };
        let inputs = given.iter().map(|&input| shapes.given(input, &lowered.gradients)).collect();
        let outputs = shapes.outputs(&model.outputs, &executable.infer)?;
        let params = shapes.params(&lowered.gradients);
        let (roles, programs) = match executable.train {
            Some(_) => (&[Role::Train, Role::Infer][..], (Some(0), 1)),
            None => (&[Role::Infer][..], (None, 0)),
        };
        let session = open(&mut *backend, roles, data, &executable)?;
        let notes = lowered.explanations;
        Ok(Self { session, tables, inputs, outputs, params, programs, kept: None, passes: 0, notes })
    }

    /// [`Layer::new`] for a dataset on disk.
    ///
    /// # Errors
    /// Those of [`Layer::new`], and a folder that is no dataset.
    pub fn load(job: &LayerJob, folder: &Path, observer: &mut dyn Observer) -> Result<Self, Error> {
        let dataset = dataset::load(folder, &*thread_pool(job.threads)?)?;
        Self::new(job, &dataset, observer)
    }

    /// The given inputs, in the order of the job.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.inputs.iter().map(|input| &input.info)
    }

    /// The outputs of the model, in the order of their names.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.outputs.iter().map(|output| &output.info)
    }

    /// The parameters, named as in files of weights.
    pub fn params(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.params.iter().map(|param| &param.info)
    }

    /// The actions of compiler passes.
    pub fn explanations(&self) -> &[String] {
        &self.notes
    }

    /// Whether passes in [`Mode::Training`] draw dropout masks.
    pub fn has_dropout(&self) -> bool {
        self.programs.0.is_some()
    }

    /// Initial values of all parameters, as training starts with for this seed.
    ///
    /// # Errors
    /// When a device fails.
    pub fn initial_params(&mut self, seed: u64) -> Result<Vec<Vec<f32>>, Error> {
        self.kept = None;
        let store = self.session.params();
        store.init(&self.tables, seed)?;
        let mut all = vec![];
        for index in 0..self.params.len() {
            let mut numbers = vec![0.0; store.len(index)];
            store.read(index, &mut numbers)?;
            all.push(numbers);
        }
        Ok(all)
    }

    /// Computes the outputs ([`Layer::output`]) from the given inputs and the parameters, each in the order of its list.
    ///
    /// # Errors
    /// Another number of arrays or elements, or a device that fails.
    pub fn forward(&mut self, inputs: &[&[f32]], params: &[&[f32]], mode: Mode) -> Result<Pass, Error> {
        count("inputs", inputs.len(), self.inputs.len())?;
        count("parameters", params.len(), self.params.len())?;
        for (input, numbers) in self.inputs.iter().zip(inputs) {
            input.info.check("the input", numbers.len())?;
        }
        for (param, numbers) in self.params.iter().zip(params) {
            param.info.check("the parameter", numbers.len())?;
        }
        self.kept = None;
        for (input, numbers) in self.inputs.iter().zip(inputs) {
            self.session.write_input(input.index, numbers)?;
        }
        for (index, numbers) in params.iter().enumerate() {
            self.session.params().write(index, numbers)?;
        }
        let (program, seed, step) = match (mode, self.programs) {
            (Mode::Training { seed, step }, (Some(train), _)) => (train, seed, step),
            (Mode::Training { seed, step }, (None, infer)) => (infer, seed, step),
            (Mode::Evaluation, (_, infer)) => (infer, 0, 1),
        };
        let key = StepKey { seed, step, epoch: 0 };
        self.session.run(program, key, &mut Times::default())?;
        for output in &self.outputs {
            self.session.fetch(program, &output.info.name)?;
        }
        self.passes += 1;
        let pass = Pass(self.passes);
        self.kept = Some(Kept { pass, program, key, backward_done: false });
        Ok(pass)
    }

    /// Whether a pass can go backward: it is the last one, and has not gone backward yet.
    pub fn keeps(&self, pass: Pass) -> bool {
        self.kept.is_some_and(|kept| kept.pass == pass && !kept.backward_done)
    }

    /// An output of the last forward pass, row by row; empty before the first pass, and after a pass that failed.
    ///
    /// # Panics
    /// If there is no such output.
    pub fn output(&self, index: usize) -> &[f32] {
        self.result(&self.outputs[index].info.name)
    }

    /// Computes the gradients of all inputs and parameters ([`Layer::input_gradient`], [`Layer::param_gradient`]) from
    /// those of the outputs. An output without a gradient has no influence.
    ///
    /// # Errors
    /// A pass whose values are not kept ([`Layer::keeps`]), another number of arrays or elements, or a device that fails.
    pub fn backward(&mut self, pass: Pass, gradients: &[Option<&[f32]>]) -> Result<(), Error> {
        if !self.keeps(pass) {
            return Err(Error::input(
                "the values of this forward pass are no longer kept: it went backward already, or another pass followed it",
            ));
        }
        count("gradients of outputs", gradients.len(), self.outputs.len())?;
        for (output, gradient) in self.outputs.iter().zip(gradients) {
            if let Some(gradient) = gradient {
                output.info.check("the gradient of the output", gradient.len())?;
            }
        }
        let Some(mut kept) = self.kept.take() else { return Ok(()) };
        for (output, gradient) in self.outputs.iter().zip(gradients) {
            match gradient {
                Some(gradient) => self.session.write_input(output.gradient, gradient)?,
                None => self.session.write_input(output.gradient, &vec![0.0; output.info.num_elements()])?,
            }
        }
        self.session.update(kept.program, kept.key, &mut Times::default())?;
        let of_inputs = self.inputs.iter().filter_map(|input| input.gradient.as_deref());
        let of_params = self.params.iter().filter_map(|param| Some(param.gradient.as_ref()?.0.as_str()));
        for name in of_inputs.chain(of_params) {
            self.session.fetch(kept.program, name)?;
        }
        kept.backward_done = true;
        self.kept = Some(kept);
        Ok(())
    }

    /// The gradient of a given input after [`Layer::backward`]; `None` if no output depends on it, so that it is zero,
    /// or if [`LayerJob::input_gradients`] is off. Empty if the last pass did not go backward.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn input_gradient(&self, index: usize) -> Option<&[f32]> {
        self.inputs[index].gradient.as_deref().map(|name| self.gradient(name))
    }

    /// The gradient of a parameter, as [`Layer::input_gradient`].
    ///
    /// # Panics
    /// If there is no such parameter.
    pub fn param_gradient(&self, index: usize) -> Option<&[f32]> {
        let (name, range) = self.params[index].gradient.as_ref()?;
        Some(self.gradient(name).get(range.clone()).unwrap_or_default())
    }

    fn gradient(&self, name: &str) -> &[f32] {
        if self.kept.is_some_and(|kept| kept.backward_done) { self.result(name) } else { &[] }
    }

    fn result(&self, name: &str) -> &[f32] {
        let Some(kept) = self.kept else { return &[] };
        self.session.result(kept.program, name).map_or(&[], |rows| rows.numbers)
    }
}

fn count(what: &str, found: usize, expected: usize) -> Result<(), Error> {
    match found == expected {
        true => Ok(()),
        false => Err(Error::input(format!("the layer has {expected} {what}, not {found}"))),
    }
}

/// Plans the programs and allocates their memory.
fn open(
    backend: &mut dyn Backend,
    roles: &[Role],
    data: BoundData,
    executable: &Executable,
) -> Result<Box<dyn Session>, Error> {
    let planned = backend.plan(roles, data, None)?;
    let bytes = planned.memory().bytes();
    if let Some((name, free)) = backend.free_memory()
        && bytes > free
    {
        return Err(Error::Machine(format!(
            "the layer `{}` takes {}, more than {name} ({})",
            executable.model,
            show_bytes(bytes),
            show_bytes(free)
        )));
    }
    Ok(planned.open()?)
}

/// The tables of a layer with the data that says how large everything is.
struct Shapes<'a> {
    tables: &'a Dataflow,
    data: &'a BoundData,
}

impl Shapes<'_> {
    fn rows_and_dims(&self, ty: &Type) -> Vec<usize> {
        let rows = match ty.space {
            Space::Vertices(vertex) => Some(self.data.num_vertices[vertex.index()]),
            Space::Unit | Space::Edges(_) | Space::Index(_) | Space::Endpoints(..) => None,
        };
        rows.into_iter().chain(ty.dims.iter().map(|&dim| extent(self.data, dim))).collect()
    }

    fn given(&self, input: Input, gradients: &[LeafGradient]) -> Given {
        let decl = &self.tables.inputs[input.index()];
        let info = TensorInfo { name: decl.name.clone(), shape: self.rows_and_dims(&decl.ty) };
        Given { info, index: input.index(), gradient: gradient_of(Leaf::Input(input), gradients) }
    }

    fn outputs(&self, names: &[String], flow: &Dataflow) -> Result<Vec<Output>, Error> {
        let output = |name: &String| {
            let binding = Binding::Given(output_gradient(name));
            let gradient = self.tables.inputs.iter().position(|decl| decl.binding == binding);
            let (gradient, value) = gradient.zip(flow.result(name))?;
            let info = TensorInfo { name: name.clone(), shape: self.rows_and_dims(flow.ty(value)) };
            Some(Output { info, gradient })
        };
        let internal = |name: &String| Error::input(format!("internal error: no output `{name}` in the program"));
        names.iter().map(|name| output(name).ok_or_else(|| internal(name))).collect()
    }

    fn params(&self, gradients: &[LeafGradient]) -> Vec<OwnParam> {
        let shape = |param: Param| -> Vec<usize> {
            self.tables.params[param.index()].dims.iter().map(|&dim| extent(self.data, dim)).collect()
        };
        let places = param_places(self.tables, |param| shape(param).iter().product());
        let own = (0..num_own_params(self.tables)).map(Param::new);
        own.map(|param| {
            let place = &places[param.index()];
            let found = gradient_of(Leaf::Param(place.home), gradients);
            let name = self.tables.params[param.index()].name.clone();
            let gradient = found.map(|result| (result, place.offset..place.offset + place.len));
            OwnParam { info: TensorInfo { name, shape: shape(param) }, gradient }
        })
        .collect()
    }
}

fn gradient_of(leaf: Leaf, gradients: &[LeafGradient]) -> Option<String> {
    gradients.iter().find(|gradient| gradient.leaf == leaf).map(|gradient| gradient.result.clone())
}
