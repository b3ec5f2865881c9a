//! Back ends of a trainer: the CPU engine, a device, or mini-batch training on the CPU.

use hgnnc_cpu::Engine;
use hgnnc_cuda::DeviceEngine;
use hgnnc_data::metrics::Tally;
use hgnnc_data::{Arena, BoundData, InputData, Result, StateId, copy_rows};
use hgnnc_ir::Dataflow;
use hgnnc_ir::training::{Part, Task};
use hgnnc_ir::types::Space;
use hgnnc_trace::Times;

use crate::batches::Batches;

/// Runs programs and holds their parameters and optimizer states.
#[derive(Debug)]
pub(crate) enum Backend {
    Cpu(Box<Engine>),
    Device(Box<DeviceBackend>),
    /// CPU engines for mini-batch training.
    Batches(Box<Batches>),
}

/// A device with the results fetched from it.
#[derive(Debug)]
pub(crate) struct DeviceBackend {
    pub engine: DeviceEngine,
    /// Whether each launch is timed separately.
    timed: bool,
    results: Vec<Fetched>,
}

/// A result of a program, copied to host memory.
#[derive(Debug)]
struct Fetched {
    program: usize,
    name: String,
    /// Whether the copy is of the last run of the program.
    fresh: bool,
    width: usize,
    numbers: Vec<f32>,
}

/// A result: its width (elements per row) and its elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    pub width: usize,
    pub numbers: &'a [f32],
}

/// Index of a split part in [`BoundData::parts`].
pub(crate) fn part_index(part: Part) -> usize {
    match part {
        Part::Train => 0,
        Part::Val => 1,
        Part::Test => 2,
    }
}

impl From<Engine> for Backend {
    fn from(engine: Engine) -> Self {
        Backend::Cpu(Box::new(engine))
    }
}

impl From<DeviceEngine> for Backend {
    fn from(engine: DeviceEngine) -> Self {
        Backend::Device(Box::new(DeviceBackend { engine, timed: false, results: vec![] }))
    }
}

impl From<Batches> for Backend {
    fn from(batches: Batches) -> Self {
        Backend::Batches(Box::new(batches))
    }
}

impl Backend {
    /// Back end name for the report.
    pub fn name(&self) -> String {
        match self {
            Backend::Cpu(_) | Backend::Batches(_) => "cpu".into(),
            Backend::Device(it) => it.engine.device().name(),
        }
    }

    /// Data that the programs are bound to: graphs, labels and splits.
    pub fn data(&self) -> &BoundData {
        match self {
            Backend::Cpu(engine) => engine.data(),
            Backend::Batches(it) => it.whole.data(),
            Backend::Device(it) => it.engine.data(),
        }
    }

    /// Number of CPU threads.
    pub fn threads(&self) -> usize {
        match self {
            Backend::Cpu(engine) => engine.threads(),
            Backend::Batches(it) => it.whole.threads(),
            Backend::Device(_) => rayon::current_num_threads(),
        }
    }

    /// Runs a program up to the first step that may change parameters.
    pub fn run_until_update(
        &mut self,
        program: usize,
        (seed, step, epoch): (u64, u64, u64),
        times: &mut Times,
    ) -> Result<()> {
        match self {
            Backend::Cpu(engine) => engine.run_until_update(program, seed, step, epoch, times),
            Backend::Batches(it) => {
                it.store_dense_params();
                it.whole.run_until_update(program, seed, step, epoch, times);
            }
            Backend::Device(it) => {
                for result in it.results.iter_mut() {
                    result.fresh = false;
                }
                match it.timed {
                    false => it.engine.run_until_update(program, seed, step, epoch)?,
                    true => it.engine.time_until_update(program, (seed, step, epoch), times)?,
                }
            }
        }
        Ok(())
    }

    /// Turns separate timing of each launch on a device on or off; timed launches are slower. The CPU
    /// always times its steps.
    pub fn time_launches(&mut self, timed: bool) {
        if let Backend::Device(it) = self {
            it.timed = timed;
        }
    }

    /// Runs the rest of a program, for the same seed and step.
    pub fn run_updates(&mut self, program: usize, seed: u64, step: u64, times: &mut Times) -> Result<()> {
        match self {
            Backend::Cpu(engine) => engine.run_updates(program, seed, step, times),
            Backend::Batches(it) => it.whole.run_updates(program, seed, step, times),
            Backend::Device(it) if it.timed => it.engine.time_updates(program, times)?,
            Backend::Device(it) => {
                it.engine.run_updates(program)?;
                it.engine.commit(program)?;
            }
        }
        Ok(())
    }

    /// Makes the new parameters and states of a training step current. A device has
    /// done so in [`Backend::run_updates`].
    pub fn commit(&mut self, program: usize) {
        if let Backend::Cpu(engine) = self {
            engine.commit(program);
        }
    }

    /// Synchronizes with a device and returns the milliseconds it was busy since the last call, if it has a clock.
    pub fn elapsed_ms(&mut self) -> Result<Option<f64>> {
        match self {
            Backend::Cpu(_) | Backend::Batches(_) => Ok(None),
            Backend::Device(it) => it.engine.elapsed_ms(),
        }
    }

    /// Copies a result from the device for [`Backend::result`]. Does nothing if there is no such result.
    pub fn fetch(&mut self, program: usize, name: &str) -> Result<()> {
        let Backend::Device(it) = self else { return Ok(()) };
        let DeviceBackend { engine, results, .. } = &mut **it;
        let known = results.iter().position(|result| result.program == program && result.name == name);
        let at = known.unwrap_or_else(|| {
            results.push(Fetched { program, name: name.into(), fresh: false, width: 0, numbers: vec![] });
            results.len() - 1
        });
        let Fetched { fresh, width, numbers, .. } = &mut results[at];
        if *fresh {
            return Ok(());
        }
        if let Some((_, columns)) = engine.read_result(program, name, numbers)? {
            (*fresh, *width) = (true, columns);
        }
        Ok(())
    }

    /// A result of the last run of a program; on a device, the last fetched one. Vertex rows are in
    /// the order of [`Backend::data`].
    pub fn result(&self, program: usize, name: &str) -> Option<Rows<'_>> {
        match self {
            Backend::Cpu(engine) => {
                engine.result(program, name).map(|(named, numbers)| Rows { width: named.width, numbers })
            }
            Backend::Batches(it) => {
                it.whole.result(program, name).map(|(named, numbers)| Rows { width: named.width, numbers })
            }
            Backend::Device(it) => {
                let wanted = |result: &&Fetched| result.fresh && result.program == program && result.name == name;
                it.results.iter().find(wanted).map(|result| Rows { width: result.width, numbers: &result.numbers })
            }
        }
    }

    /// [`Backend::result`] with vertex rows in the order of the dataset.
    pub fn result_of_dataset(&self, program: usize, name: &str) -> Option<(usize, Vec<f32>)> {
        let Rows { width, numbers } = self.result(program, name)?;
        let order = match self {
            Backend::Cpu(engine) => match engine.result(program, name)?.0.ty.space {
                Space::Vertices(vertex) => engine.data().orders.of(vertex),
                Space::Unit | Space::Edges(_) | Space::Index(_) | Space::Endpoints(..) => None,
            },
            Backend::Batches(_) | Backend::Device(_) => None,
        };
        let mut rows = numbers.to_vec();
        if let Some(order) = order {
            copy_rows(numbers, &order.rank, &mut rows);
        }
        Some((width, rows))
    }

    /// Makes a device count how a result of a program compares with the labels (per class).
    pub fn count_result(&mut self, program: usize, name: &str, task: Task) -> Result<()> {
        match self {
            Backend::Cpu(_) | Backend::Batches(_) => Ok(()),
            Backend::Device(it) => it.engine.count_result(program, name, task),
        }
    }

    /// Counts on the device in the last run of that program. Returns false if the caller has to
    /// read the results instead.
    pub fn count(&mut self, part: Part, tally: &mut Tally) -> Result<bool> {
        match self {
            Backend::Cpu(_) | Backend::Batches(_) => Ok(false),
            Backend::Device(it) => it.engine.count(part_index(part), tally),
        }
    }

    /// Names of the results of a program.
    pub fn results(&self, program: usize) -> Vec<&str> {
        match self {
            Backend::Cpu(engine) => engine.results(program).iter().map(|named| &named.name[..]).collect(),
            Backend::Batches(it) => it.whole.results(program).iter().map(|named| &named.name[..]).collect(),
            Backend::Device(it) => it.engine.results(program),
        }
    }

    /// Number of elements of a parameter.
    pub fn param_len(&self, index: usize) -> usize {
        match self {
            Backend::Cpu(engine) => engine.param_len(index),
            Backend::Batches(it) => it.whole.param_len(index),
            Backend::Device(it) => it.engine.param_len(index),
        }
    }

    /// Reads a parameter. Vertex rows are in the order of the dataset, here and below.
    pub fn read_param(&mut self, index: usize, into: &mut [f32]) -> Result<()> {
        match self {
            Backend::Cpu(engine) => engine.read_param(index, into),
            Backend::Batches(it) => into.copy_from_slice(it.param(index)),
            Backend::Device(it) => it.engine.read_param(index, into)?,
        }
        Ok(())
    }

    /// Elements of an input of the full graph; `None` if it has no elements.
    pub fn input(&self, index: usize) -> Option<Vec<f32>> {
        let frozen = match self {
            Backend::Cpu(engine) => engine.frozen_input(index),
            Backend::Batches(it) => it.whole.frozen_input(index),
            Backend::Device(_) => None,
        };
        match (frozen, self.data().inputs.get(index)?) {
            (Some(numbers), _) => Some(numbers.to_vec()),
            (None, InputData::Numbers(numbers)) => Some(numbers.clone()),
            (None, InputData::Classes(classes)) => Some(classes.iter().map(|&class| class as f32).collect()),
            (None, InputData::Held(_) | InputData::StepNumber | InputData::EpochNumber | InputData::Missing) => None,
        }
    }

    /// Whether all elements of all parameters are finite. Parameters on a device are not checked.
    pub fn has_finite_params(&mut self) -> bool {
        match self {
            Backend::Cpu(engine) => (0..engine.num_params()).all(|index| are_finite(engine.param(index))),
            Backend::Batches(it) => (0..it.whole.num_params()).all(|index| are_finite(it.param(index))),
            Backend::Device(_) => true,
        }
    }

    /// Overwrites a parameter with `numbers`, in the order of the dataset.
    pub fn set_param(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        match self {
            Backend::Cpu(engine) => engine.set_param(index, numbers),
            Backend::Batches(it) => it.param(index).copy_from_slice(numbers),
            Backend::Device(it) => it.engine.set_param(index, numbers)?,
        }
        Ok(())
    }

    /// Parameter and slot of each optimizer state.
    pub fn states(&self) -> &[StateId] {
        match self {
            Backend::Cpu(engine) => engine.states(),
            Backend::Batches(it) => it.states(),
            Backend::Device(it) => it.engine.states(),
        }
    }

    /// Reads an optimizer state, in the order of the dataset.
    pub fn state(&mut self, index: usize) -> Result<Vec<f32>> {
        match self {
            Backend::Cpu(engine) => {
                let mut numbers = vec![0.0; engine.state_slab(index).len()];
                engine.read_state(index, &mut numbers);
                Ok(numbers)
            }
            Backend::Batches(it) => Ok(it.state(index).to_vec()),
            Backend::Device(it) => it.engine.state(index),
        }
    }

    /// Overwrites an optimizer state with `numbers`, in the order of the dataset.
    pub fn set_state(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        match self {
            Backend::Cpu(engine) => engine.set_state(index, numbers),
            Backend::Batches(it) => it.state(index).copy_from_slice(numbers),
            Backend::Device(it) => it.engine.set_state(index, numbers)?,
        }
        Ok(())
    }

    /// Initializes all parameters from `seed`.
    pub fn init_params(&mut self, tables: &Dataflow, seed: u64) -> Result<()> {
        match self {
            Backend::Cpu(engine) => engine.init_params(tables, seed),
            Backend::Batches(it) => it.whole.init_params(tables, seed),
            Backend::Device(it) => it.engine.init_params(tables, seed)?,
        }
        Ok(())
    }

    /// Planned memory for the values of one program as if it ran alone, or of all programs.
    pub fn arena(&self, program: Option<usize>) -> Arena {
        match self {
            Backend::Cpu(engine) => engine.arena(program),
            Backend::Batches(it) => it.arena(program),
            Backend::Device(it) => it.engine.arena(program),
        }
    }

    /// Bytes allocated in device memory; 0 on the CPU.
    pub fn device_bytes(&self) -> u64 {
        match self {
            Backend::Cpu(_) | Backend::Batches(_) => 0,
            Backend::Device(it) => it.engine.memory().bytes(),
        }
    }
}

/// Whether all elements are finite. Reads all of them without branches, so that the loop vectorizes.
fn are_finite(numbers: &[f32]) -> bool {
    let magnitude = |x: &f32| x.to_bits() & (u32::MAX >> 1);
    numbers.chunks(1 << 12).all(|chunk| chunk.iter().map(magnitude).fold(0, u32::max) < f32::INFINITY.to_bits())
}
