//! The programs of a layer, bound to a dataset and a machine.

use std::ops::Range;
use std::sync::Arc;

use hgnnc_cpu::{CpuBackend, EngineOptions};
use hgnnc_cuda::{DeviceBackend, SharedDevice};
use hgnnc_data::stacks::{num_own_params, param_places};
use hgnnc_data::tables::{add_given, extent};
use hgnnc_data::{BindOptions, BoundData};
use hgnnc_dataset::Dataset;
use hgnnc_driver::{
    Analysis, CpuOptions, Leaf, LeafGradient, LowerOptions, compile_cpu_layer, factor_path_sums, give_features,
    given_inputs, lower_layer, output_gradient, plan_layer_graphs,
};
use hgnnc_executable::{Executable, Role};
use hgnnc_graph::show_bytes;
use hgnnc_ir::dataflow::{Binding, Dataflow};
use hgnnc_ir::{Input, Param, Space, Type};
use hgnnc_kernels::simd::Dispatch;
use hgnnc_machine::Machine;
use hgnnc_ptx::PtxCompiler;
use hgnnc_session::{Backend, Session, StepKey};
use hgnnc_trace::Times;
use rayon::ThreadPool;

use super::sparse::{self, SparseInput};
use super::{LayerJob, Mode, Pass, TensorInfo};
use crate::bound_job::{Bound, bind_planned};
use crate::device::{self, Device};
use crate::{Error, Meeting, Observer, Purpose, dataset, source};

/// A given input, with its gradient.
#[derive(Debug)]
pub(super) struct Given {
    pub info: TensorInfo,
    /// Its position among the given inputs of the layer.
    pub position: usize,
    index: usize,
    /// The result that is its gradient, if an output depends on it.
    gradient: Option<String>,
}

/// An output, with the input that is its gradient.
#[derive(Debug)]
pub(super) struct Output {
    pub info: TensorInfo,
    gradient: usize,
}

/// A parameter, with its gradient.
#[derive(Debug)]
pub(super) struct OwnParam {
    pub info: TensorInfo,
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
pub(super) struct Programs {
    session: Box<dyn Session>,
    /// Tables of the programs, for initial values.
    tables: Dataflow,
    /// The inputs that a forward pass writes.
    pub inputs: Vec<Given>,
    pub outputs: Vec<Output>,
    pub params: Vec<OwnParam>,
    /// Number of the program with dropout masks, if there is one, and of the one without.
    programs: (Option<usize>, usize),
    kept: Option<Kept>,
    pub notes: Vec<String>,
}

impl Programs {
    /// Binds a model without errors to a dataset in memory, compiles it, and allocates its memory. The features of `sparse`
    /// are declared sparse, and have the rows that are given there.
    pub fn new(
        job: &LayerJob,
        (mut analysis, sparse): (Analysis, &[SparseInput]),
        dataset: &Dataset,
        pool: &Arc<ThreadPool>,
        observer: &mut dyn Observer,
    ) -> Result<Self, Error> {
        let device = match job.device {
            Device::Auto | Device::Cpu => None,
            asked => device::open(asked, observer)?,
        };
        let mut model = source::take(&mut analysis)?;
        let with_rows = sparse::with_rows(dataset, sparse);
        let dataset = with_rows.as_ref().unwrap_or(dataset);
        let mut summary = dataset::summary(dataset);
        let is_written = |position: usize| sparse.iter().all(|input| input.position != position);
        let written = (0..job.given.len()).filter(|&position| is_written(position));
        let names: Vec<String> = written.map(|position| job.given[position].clone()).collect();
        give_features(&mut model, &names, &mut summary).map_err(Error::Input)?;
        let mut model = source::fit((&analysis, model), (&summary, None), Purpose::Infer, observer)?;
        let with_paths;
        let mut dataset = dataset;
        if !model.flow.paths.is_empty() {
            factor_path_sums(&mut model);
            let mut extended = Arc::new(dataset.clone());
            source::list_paths(&model, &mut extended, Meeting::new(Purpose::Infer), observer, pool)?;
            with_paths = extended;
            dataset = &with_paths;
        }
        source::declare(&mut model, dataset, pool)?;
        if let Some(name) = model.keep_vertex_outputs() {
            return Err(Error::input(format!(
                "the output `{name}` has a row for each pair of vertices; the outputs of a layer have a row for each vertex"
            )));
        }
        model.forget_training();

        source::prepare(&mut model, &job.disabled, None)?;
        // Passes before binding may change the table of inputs.
        let given = given_inputs(&model.flow, &names);
        let machine = device.as_ref().and_then(|opened| Machine::sheet(opened.device.target().name()));
        let mut options = LowerOptions { disabled: job.disabled.clone(), machine, ..LowerOptions::default() };
        let bind_options = BindOptions { graph_cache: job.graph_cache, outputs_only: true, ..BindOptions::default() };
        let bound = bind_planned(&model, dataset, &bind_options, &options, (plan_layer_graphs, pool))?;
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
                Box::new(CpuBackend::new(&executable, Arc::clone(pool), options))
            }
            Some(opened) => {
                let target = opened.device.target().with_precision(job.precision);
                let device = SharedDevice::from(opened.device);
                Box::new(DeviceBackend::new(&executable, device, (&PtxCompiler, target), Arc::clone(pool)))
            }
        };
        let tables = executable.infer.with_tables_of(executable.model.clone());
        let shapes = Shapes { tables: &tables, data: &data };
        let inputs = given.iter().filter_map(|&input| shapes.given(input, &job.given, &lowered.gradients)).collect();
        let outputs = shapes.outputs(&model.outputs, &executable.infer)?;
        let params = shapes.params(&lowered.gradients);
        let (roles, programs) = match executable.train {
            Some(_) => (&[Role::Train, Role::Infer][..], (Some(0), 1)),
            None => (&[Role::Infer][..], (None, 0)),
        };
        let session = open(&mut *backend, roles, data, &executable)?;
        let notes = [sparse.iter().map(SparseInput::note).collect(), lowered.explanations].concat();
        Ok(Self { session, tables, inputs, outputs, params, programs, kept: None, notes })
    }

    /// Whether both have the same outputs and parameters, in the same order.
    pub fn has_interface_of(&self, other: &Self) -> bool {
        let outputs = |programs: &Self| programs.outputs.iter().map(|output| output.info.clone()).collect::<Vec<_>>();
        let params = |programs: &Self| programs.params.iter().map(|param| param.info.clone()).collect::<Vec<_>>();
        outputs(self) == outputs(other) && params(self) == params(other) && self.has_dropout() == other.has_dropout()
    }

    /// Whether there is a program with dropout masks.
    pub fn has_dropout(&self) -> bool {
        self.programs.0.is_some()
    }

    /// Initial values of all parameters, as training starts with for this seed.
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

    /// Computes the outputs from all given inputs of the layer, of which the sparse ones are known, and the parameters.
    pub fn forward(&mut self, pass: Pass, inputs: &[&[f32]], params: &[&[f32]], mode: Mode) -> Result<(), Error> {
        self.kept = None;
        for input in &self.inputs {
            self.session.write_input(input.index, inputs[input.position])?;
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
        self.kept = Some(Kept { pass, program, key, backward_done: false });
        Ok(())
    }

    pub fn forget(&mut self) {
        self.kept = None;
    }

    pub fn keeps(&self, pass: Pass) -> bool {
        self.kept.is_some_and(|kept| kept.pass == pass && !kept.backward_done)
    }

    pub fn output(&self, index: usize) -> &[f32] {
        self.result(&self.outputs[index].info.name)
    }

    /// Computes the gradients of inputs and parameters from those of the outputs.
    pub fn backward(&mut self, gradients: &[Option<&[f32]>]) -> Result<(), Error> {
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

    /// The gradient of the given input at a position.
    pub fn input_gradient(&self, position: usize) -> Option<&[f32]> {
        let input = self.inputs.iter().find(|input| input.position == position)?;
        input.gradient.as_deref().map(|name| self.gradient(name))
    }

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

    fn given(&self, input: Input, names: &[String], gradients: &[LeafGradient]) -> Option<Given> {
        let decl = &self.tables.inputs[input.index()];
        let position = names.iter().position(|name| *name == decl.name)?;
        let info = TensorInfo { name: decl.name.clone(), shape: self.rows_and_dims(&decl.ty) };
        Some(Given { info, position, index: input.index(), gradient: gradient_of(Leaf::Input(input), gradients) })
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
