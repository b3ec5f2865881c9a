//! [`Layer`]: a model as a layer of a network of PyTorch. `hgnnc.torch` wraps it in a `torch.nn.Module`.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hgnnc::layer::{self, LayerJob, Mode, Pass, TensorInfo};
use hgnnc::{Device, Error, Observer};
use hgnnc_diag::{Diagnostics, SourceMap, render};
use numpy::{IntoPyArray, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn};
use pyo3::exceptions::{PyRuntimeError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use std::ffi::CString;

/// A model bound to the graphs of a dataset, with forward and backward pass. Parameters and given features are arrays of
/// the caller.
#[pyclass(module = "hgnnc._native", name = "Layer", frozen)]
#[derive(Debug)]
pub struct Layer {
    layer: Mutex<layer::Layer>,
}

/// A name and a shape.
type Named = (String, Vec<usize>);

/// Arrays of f32, as they are passed from Python.
type Arrays<'py> = Vec<PyReadonlyArrayDyn<'py, f32>>;

/// Gradients of the inputs and of the parameters that were asked for.
type Gradients<'py> = (Vec<Option<Bound<'py, PyArrayDyn<f32>>>>, Vec<Option<Bound<'py, PyArrayDyn<f32>>>>);

#[pymethods]
impl Layer {
    /// Compiles a model, `text`, for the dataset in the folder `data`. `name` is for messages. `inputs` are the features
    /// that each call gives, as `Paper.x`; `threads` is 0 for one for each processor.
    #[new]
    #[pyo3(signature = (name, text, data, inputs, *, threads = 0))]
    fn new(
        py: Python<'_>,
        name: String,
        text: String,
        data: PathBuf,
        inputs: Vec<String>,
        threads: usize,
    ) -> PyResult<Self> {
        let job = LayerJob { given: inputs, threads, device: Device::Cpu, ..LayerJob::new(name, text) };
        let mut heard = Notes::default();
        let layer = py.detach(|| layer::Layer::load(&job, &data, &mut heard));
        for note in heard.0 {
            let text = CString::new(note).unwrap_or_default();
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 1)?;
        }
        Ok(Self { layer: Mutex::new(layer.map_err(raised)?) })
    }

    /// Names and shapes of the given inputs.
    fn inputs(&self) -> Vec<Named> {
        named(self.lock().inputs())
    }

    /// Names and shapes of the outputs.
    fn outputs(&self) -> Vec<Named> {
        named(self.lock().outputs())
    }

    /// Names and shapes of the parameters.
    fn params(&self) -> Vec<Named> {
        named(self.lock().params())
    }

    /// Whether training draws dropout masks.
    fn has_dropout(&self) -> bool {
        self.lock().has_dropout()
    }

    /// Initial values of the parameters for a seed.
    fn initial_params<'py>(&self, py: Python<'py>, seed: u64) -> PyResult<Vec<Bound<'py, PyArrayDyn<f32>>>> {
        let mut layer = self.lock();
        let values = py.detach(|| layer.initial_params(seed)).map_err(raised)?;
        let shapes: Vec<Vec<usize>> = layer.params().map(|info| info.shape.clone()).collect();
        values.into_iter().zip(shapes).map(|(numbers, shape)| array(py, numbers, &shape)).collect()
    }

    /// Computes the outputs. Returns the number of the pass and the outputs. `seed` is the seed of the dropout masks;
    /// without one, nothing is dropped.
    #[pyo3(signature = (inputs, params, seed))]
    fn forward<'py>(
        &self,
        py: Python<'py>,
        inputs: Arrays<'py>,
        params: Arrays<'py>,
        seed: Option<u64>,
    ) -> PyResult<(u64, Vec<Bound<'py, PyArrayDyn<f32>>>)> {
        let (inputs, params) = (slices(&inputs)?, slices(&params)?);
        let mut layer = self.lock();
        let (pass, outputs) = py
            .detach(|| {
                let pass = layer.forward(&inputs, &params, mode(seed))?;
                let outputs: Vec<Vec<f32>> = (0..layer.outputs().len()).map(|at| layer.output(at).to_vec()).collect();
                Ok((pass, outputs))
            })
            .map_err(raised)?;
        let shapes: Vec<Vec<usize>> = layer.outputs().map(|info| info.shape.clone()).collect();
        let outputs = outputs.into_iter().zip(shapes).map(|(numbers, shape)| array(py, numbers, &shape));
        Ok((pass.number(), outputs.collect::<PyResult<_>>()?))
    }

    /// Computes the gradients of inputs and parameters from those of the outputs. If the values of the pass are no longer
    /// kept, its forward pass runs again, with the same arguments. `wanted` says for each input and then for each
    /// parameter whether its gradient is returned.
    #[pyo3(signature = (number, inputs, params, seed, gradients, wanted))]
    #[allow(clippy::too_many_arguments, reason = "one call under one lock, so that no other pass comes between")]
    fn backward<'py>(
        &self,
        py: Python<'py>,
        number: u64,
        inputs: Arrays<'py>,
        params: Arrays<'py>,
        seed: Option<u64>,
        gradients: Vec<Option<PyReadonlyArrayDyn<'py, f32>>>,
        wanted: Vec<bool>,
    ) -> PyResult<Gradients<'py>> {
        let (inputs, params) = (slices(&inputs)?, slices(&params)?);
        let gradients: Vec<Option<&[f32]>> =
            gradients.iter().map(|gradient| gradient.as_ref().map(slice).transpose()).collect::<PyResult<_>>()?;
        let mut layer = self.lock();
        let found = py
            .detach(|| {
                let mut pass = Pass::of_number(number);
                if !layer.keeps(pass) {
                    pass = layer.forward(&inputs, &params, mode(seed))?;
                }
                layer.backward(pass, &gradients)?;
                let wants = |at: usize| wanted.get(at).copied().unwrap_or(false);
                let copy = |gradient: Option<&[f32]>, info: &TensorInfo| {
                    gradient.map_or_else(|| vec![0.0; info.num_elements()], <[f32]>::to_vec)
                };
                let num_inputs = inputs.len();
                let of_inputs = layer.inputs().enumerate();
                let of_inputs = of_inputs.map(|(at, info)| wants(at).then(|| copy(layer.input_gradient(at), info)));
                let of_inputs: Vec<Option<Vec<f32>>> = of_inputs.collect();
                let of_params = layer.params().enumerate();
                let of_params = of_params
                    .map(|(at, info)| wants(num_inputs + at).then(|| copy(layer.param_gradient(at), info)));
                Ok((of_inputs, of_params.collect::<Vec<Option<Vec<f32>>>>()))
            })
            .map_err(raised)?;
        let arrays = |numbers: Vec<Option<Vec<f32>>>, shapes: Vec<Vec<usize>>| {
            let pairs = numbers.into_iter().zip(shapes);
            pairs.map(|(numbers, shape)| numbers.map(|numbers| array(py, numbers, &shape)).transpose()).collect()
        };
        let of_inputs: PyResult<_> = arrays(found.0, layer.inputs().map(|info| info.shape.clone()).collect());
        let of_params: PyResult<_> = arrays(found.1, layer.params().map(|info| info.shape.clone()).collect());
        Ok((of_inputs?, of_params?))
    }
}

impl Layer {
    /// A panic leaves the layer without a kept pass at worst.
    fn lock(&self) -> MutexGuard<'_, layer::Layer> {
        self.layer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn mode(seed: Option<u64>) -> Mode {
    seed.map_or(Mode::Evaluation, |seed| Mode::Training { seed, step: 1 })
}

fn named<'a>(all: impl Iterator<Item = &'a TensorInfo>) -> Vec<Named> {
    all.map(|info| (info.name.clone(), info.shape.clone())).collect()
}

fn slice<'a>(array: &'a PyReadonlyArrayDyn<'_, f32>) -> PyResult<&'a [f32]> {
    array.as_slice().map_err(|_| PyValueError::new_err("arrays of a layer are contiguous"))
}

fn slices<'a>(arrays: &'a Arrays<'_>) -> PyResult<Vec<&'a [f32]>> {
    arrays.iter().map(slice).collect()
}

/// An array that owns its elements.
fn array<'py>(py: Python<'py>, numbers: Vec<f32>, shape: &[usize]) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
    numbers.into_pyarray(py).reshape(shape)
}

/// Wrong input is a `ValueError`, a failure of the machine a `RuntimeError`.
fn raised(error: Error) -> PyErr {
    match error {
        Error::Model(_) | Error::Switch(_) | Error::Input(_) => PyValueError::new_err(error.to_string()),
        Error::Machine(_) => PyRuntimeError::new_err(error.to_string()),
    }
}

/// Notes for `warnings.warn`.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn note(&mut self, line: String) {
        self.0.push(line);
    }

    fn warnings(&mut self, sources: &SourceMap, found: &Diagnostics) {
        if found.iter().next().is_some() {
            self.0.push(render::plain(sources, found.iter()));
        }
    }
}
