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
//! let mut layer = Layer::new(&job, &std::sync::Arc::new(dataset), &mut hgnnc::Silent)?;
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
//!
//! Given inputs of the first pass that are mostly zeros are read as sparse rows, by programs of their own, if no gradients
//! of inputs are asked for ([`Layer::explanations`] says so). A pass with other numbers reads dense rows.

mod programs;
mod sparse;

use std::path::Path;
use std::sync::Arc;

use hgnnc_cpu::thread_pool;
use hgnnc_dataset::Dataset;
use hgnnc_driver::Disabled;
use hgnnc_executable::gpu::Precision;
use hgnnc_graph::GraphCache;
use hgnnc_machine::{CodeMode, KernelFeatures};
use rayon::ThreadPool;

use self::programs::Programs;
use self::sparse::{Source, SparseInput};
use crate::device::Device;
use crate::{Error, Observer, Silent, dataset, source};

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

/// Programs for sparse rows go after this many passes in a row with other numbers.
const MOST_MISSES: u32 = 8;

/// A model bound to a dataset and a machine.
#[derive(Debug)]
pub struct Layer {
    pool: Arc<ThreadPool>,
    /// The programs that read all given inputs as dense rows.
    dense: Programs,
    sparse: Specialized,
    /// Whether the last forward pass read sparse rows.
    last_is_sparse: bool,
    passes: u64,
}

/// The programs for given inputs that are mostly zeros.
#[derive(Debug)]
enum Specialized {
    /// No forward pass had other inputs than zeros yet.
    Undecided(Box<Source>),
    /// The first inputs had few zeros, or there are no such programs.
    None,
    /// Programs for these inputs only.
    For(Box<ForInputs>),
}

/// The inputs that the first forward pass was given, and the programs that read them as sparse rows.
#[derive(Debug)]
struct ForInputs {
    inputs: Vec<SparseInput>,
    programs: Programs,
    /// Number of passes with other inputs since the last one with these.
    misses: u32,
}

impl Layer {
    /// Checks the model, binds it to a dataset in memory, compiles it, and allocates its memory.
    ///
    /// # Errors
    /// A model or dataset that is wrong or that do not fit together, an output of pairs of vertices, and a machine without
    /// the device or the memory.
    pub fn new(job: &LayerJob, dataset: &Arc<Dataset>, observer: &mut dyn Observer) -> Result<Self, Error> {
        let pool = thread_pool(job.threads)?;
        let analysis = source::analyze_text(Path::new(&job.name), &job.text, &[]);
        source::accept(&analysis, &analysis.diagnostics, observer)?;
        let sparse = match job.input_gradients || job.given.is_empty() {
            true => Specialized::None,
            false => Specialized::Undecided(Box::new(Source::new(job, &analysis, dataset))),
        };
        let dense = Programs::new(job, (analysis, &[]), dataset, &pool, observer)?;
        Ok(Self { pool, dense, sparse, last_is_sparse: false, passes: 0 })
    }

    /// [`Layer::new`] for a dataset on disk.
    ///
    /// # Errors
    /// Those of [`Layer::new`], and a folder that is no dataset.
    pub fn load(job: &LayerJob, folder: &Path, observer: &mut dyn Observer) -> Result<Self, Error> {
        let dataset = dataset::load(folder, &*thread_pool(job.threads)?)?;
        Self::new(job, &Arc::new(dataset), observer)
    }

    /// The given inputs, in the order of the job.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.dense.inputs.iter().map(|input| &input.info)
    }

    /// The outputs of the model, in the order of their names.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.dense.outputs.iter().map(|output| &output.info)
    }

    /// The parameters, named as in files of weights.
    pub fn params(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.dense.params.iter().map(|param| &param.info)
    }

    /// The actions of compiler passes for the programs of the last forward pass.
    pub fn explanations(&self) -> &[String] {
        &self.last().notes
    }

    /// Whether passes in [`Mode::Training`] draw dropout masks.
    pub fn has_dropout(&self) -> bool {
        self.dense.has_dropout()
    }

    /// Initial values of all parameters, as training starts with for this seed.
    ///
    /// # Errors
    /// When a device fails.
    pub fn initial_params(&mut self, seed: u64) -> Result<Vec<Vec<f32>>, Error> {
        self.dense.initial_params(seed)
    }

    /// Computes the outputs ([`Layer::output`]) from the given inputs and the parameters, each in the order of its list.
    ///
    /// # Errors
    /// Another number of arrays or elements, or a device that fails.
    pub fn forward(&mut self, inputs: &[&[f32]], params: &[&[f32]], mode: Mode) -> Result<Pass, Error> {
        count("inputs", inputs.len(), self.dense.inputs.len())?;
        count("parameters", params.len(), self.dense.params.len())?;
        for (input, numbers) in self.inputs().zip(inputs) {
            input.check("the input", numbers.len())?;
        }
        for (param, numbers) in self.params().zip(params) {
            param.check("the parameter", numbers.len())?;
        }
        self.last_mut().forget();
        self.last_is_sparse = self.reads_sparse_rows(inputs);
        self.passes += 1;
        let pass = Pass(self.passes);
        self.last_mut().forward(pass, inputs, params, mode)?;
        Ok(pass)
    }

    /// Whether there are programs for just these inputs. Compiles them if these are the first ones that are not all zeros.
    fn reads_sparse_rows(&mut self, inputs: &[&[f32]]) -> bool {
        let sparse = match std::mem::replace(&mut self.sparse, Specialized::None) {
            Specialized::Undecided(source) => self.specialize(source, inputs),
            decided => decided,
        };
        let Specialized::For(mut found) = sparse else {
            self.sparse = sparse;
            return false;
        };
        let are_same = self.pool.install(|| found.inputs.iter().all(|known| known.is(inputs)));
        found.misses = if are_same { 0 } else { found.misses + 1 };
        if found.misses < MOST_MISSES {
            self.sparse = Specialized::For(found);
        }
        are_same
    }

    /// Compiles programs for the inputs among these that are mostly zeros. Without them, the others compute the same.
    fn specialize(&self, source: Box<Source>, inputs: &[&[f32]]) -> Specialized {
        let infos: Vec<&TensorInfo> = self.inputs().collect();
        let mut found = self.pool.install(|| source.sparse_inputs(&infos, inputs));
        if found.iter().any(SparseInput::is_empty) {
            return Specialized::Undecided(source);
        }
        let Some(analysis) = source.analyze(&mut found) else { return Specialized::None };
        let programs = Programs::new(&source.job, (analysis, &found), &source.dataset, &self.pool, &mut Silent);
        match programs {
            Ok(programs) if programs.has_interface_of(&self.dense) => {
                Specialized::For(Box::new(ForInputs { inputs: found, programs, misses: 0 }))
            }
            Ok(_) | Err(_) => Specialized::None,
        }
    }

    /// The programs of the last forward pass.
    fn last(&self) -> &Programs {
        match &self.sparse {
            Specialized::For(found) if self.last_is_sparse => &found.programs,
            _ => &self.dense,
        }
    }

    fn last_mut(&mut self) -> &mut Programs {
        match &mut self.sparse {
            Specialized::For(found) if self.last_is_sparse => &mut found.programs,
            _ => &mut self.dense,
        }
    }

    /// Whether a pass can go backward: it is the last one, and has not gone backward yet.
    pub fn keeps(&self, pass: Pass) -> bool {
        self.last().keeps(pass)
    }

    /// An output of the last forward pass, row by row; empty before the first pass, and after a pass that failed.
    ///
    /// # Panics
    /// If there is no such output.
    pub fn output(&self, index: usize) -> &[f32] {
        self.last().output(index)
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
        count("gradients of outputs", gradients.len(), self.dense.outputs.len())?;
        for (output, gradient) in self.outputs().zip(gradients) {
            if let Some(gradient) = gradient {
                output.check("the gradient of the output", gradient.len())?;
            }
        }
        self.last_mut().backward(gradients)
    }

    /// The gradient of a given input after [`Layer::backward`]; `None` if no output depends on it, so that it is zero,
    /// or if [`LayerJob::input_gradients`] is off. Empty if the last pass did not go backward.
    pub fn input_gradient(&self, index: usize) -> Option<&[f32]> {
        self.last().input_gradient(index)
    }

    /// The gradient of a parameter, as [`Layer::input_gradient`].
    ///
    /// # Panics
    /// If there is no such parameter.
    pub fn param_gradient(&self, index: usize) -> Option<&[f32]> {
        self.last().param_gradient(index)
    }
}

fn count(what: &str, found: usize, expected: usize) -> Result<(), Error> {
    match found == expected {
        true => Ok(()),
        false => Err(Error::input(format!("the layer has {expected} {what}, not {found}"))),
    }
}
