//! [`Layer`]: a model as a layer of a network of PyTorch. `hgnnc.torch` wraps it in a `torch.nn.Module`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hgnnc::layer::{self, LayerJob, Mode, Pass, TensorInfo};
use hgnnc::{Device, Error, Observer};
use hgnnc_diag::{Diagnostics, SourceMap, render};
use numpy::{IntoPyArray, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn};
use pyo3::prelude::*;

use crate::arrays::slice;
use crate::dataset::Dataset;
use crate::errors::exception;

/// A model bound to the graphs of a dataset, with forward and backward pass. Parameters and given features are arrays of
/// the caller.
#[pyclass(frozen, module = "hgnnc._native")]
#[derive(Debug)]
pub struct Layer {
    layer: Mutex<layer::Layer>,
}

/// A name and a shape.
type Named = (String, Vec<usize>);

/// Arrays of f32, as they are passed from Python.
type Arrays<'py> = Vec<PyReadonlyArrayDyn<'py, f32>>;

/// The shape and the elements of an array.
type Shaped = (Vec<usize>, Vec<f32>);

#[pymethods]
impl Layer {
    /// Compiles a model, `text`, for a dataset. `name` is for messages. `inputs` are the features that each call gives, as
    /// `Paper.x`; `gradients` whether they get gradients; `threads` is 0 for one for each processor. Returns the layer
    /// and the warnings of the compiler.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        name: String,
        text: String,
        data: &Dataset,
        inputs: Vec<String>,
        gradients: bool,
        threads: usize,
    ) -> PyResult<(Self, Vec<String>)> {
        let (given, input_gradients) = (inputs, gradients);
        let job = LayerJob { given, input_gradients, threads, device: Device::Cpu, ..LayerJob::new(name, text) };
        let (dataset, mut heard) = (Arc::clone(&data.0), Notes::default());
        let layer = py.detach(|| layer::Layer::new(&job, &dataset, &mut heard));
        let layer = layer.map_err(|error| exception(py, &error))?;
        Ok((Self { layer: Mutex::new(layer) }, heard.0))
    }

    /// The text of a model in a file.
    #[staticmethod]
    fn source(py: Python<'_>, path: PathBuf) -> PyResult<String> {
        hgnnc::text(&path).map_err(|error| exception(py, &error))
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
        let work = || -> Result<Vec<Shaped>, Error> {
            let mut layer = self.lock();
            let values = layer.initial_params(seed)?;
            Ok(layer.params().map(|info| info.shape.clone()).zip(values).collect())
        };
        let values = py.detach(work).map_err(|error| exception(py, &error))?;
        values.into_iter().map(|value| array(py, value)).collect()
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
        let work = || -> Result<(u64, Vec<Shaped>), Error> {
            let mut layer = self.lock();
            let pass = layer.forward(&inputs, &params, mode(seed))?;
            let outputs = layer.outputs().enumerate();
            let outputs = outputs.map(|(at, info)| (info.shape.clone(), layer.output(at).to_vec()));
            Ok((pass.number(), outputs.collect()))
        };
        let (pass, outputs) = py.detach(work).map_err(|error| exception(py, &error))?;
        Ok((pass, outputs.into_iter().map(|output| array(py, output)).collect::<PyResult<_>>()?))
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
    ) -> PyResult<Vec<Option<Bound<'py, PyArrayDyn<f32>>>>> {
        let (inputs, params) = (slices(&inputs)?, slices(&params)?);
        let gradients: Vec<Option<&[f32]>> =
            gradients.iter().map(|gradient| gradient.as_ref().map(slice).transpose()).collect::<PyResult<_>>()?;
        let work = || -> Result<Vec<Option<Shaped>>, Error> {
            let mut layer = self.lock();
            let mut pass = Pass::of_number(number);
            if !layer.keeps(pass) {
                pass = layer.forward(&inputs, &params, mode(seed))?;
            }
            layer.backward(pass, &gradients)?;
            let of_inputs = layer.inputs().enumerate().map(|(at, info)| (info, layer.input_gradient(at)));
            let of_params = layer.params().enumerate().map(|(at, info)| (info, layer.param_gradient(at)));
            let copy = |(info, gradient): (&TensorInfo, Option<&[f32]>)| {
                let zeros = || vec![0.0; info.num_elements()];
                (info.shape.clone(), gradient.map_or_else(zeros, <[f32]>::to_vec))
            };
            let all = of_inputs.chain(of_params).zip(wanted);
            Ok(all.map(|(gradient, wanted)| wanted.then(|| copy(gradient))).collect())
        };
        let found = py.detach(work).map_err(|error| exception(py, &error))?;
        found.into_iter().map(|gradient| gradient.map(|gradient| array(py, gradient)).transpose()).collect()
    }
}

impl Layer {
    /// The layer, for long work without the interpreter's lock: who waits for one of the two locks then does not hold the
    /// other. A panic leaves the layer without a kept pass at worst.
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

fn slices<'a>(arrays: &'a Arrays<'_>) -> PyResult<Vec<&'a [f32]>> {
    arrays.iter().map(slice).collect()
}

/// An array that owns its elements.
fn array<'py>(py: Python<'py>, (shape, numbers): Shaped) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
    numbers.into_pyarray(py).reshape(shape)
}

/// Warnings, in the order in which they were found.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn note(&mut self, line: String) {
        if let Some(warning) = line.strip_prefix("warning: ") {
            self.0.push(warning.to_owned());
        }
    }

    fn warnings(&mut self, sources: &SourceMap, found: &Diagnostics) {
        let text = render::plain(sources, found.iter());
        if !text.is_empty() {
            self.0.push(text.trim_end().to_owned());
        }
    }
}
