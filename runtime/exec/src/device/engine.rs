//! Programs bound to data in the memory of a device.

use std::collections::HashMap;

use hgnnc_graph::show_bytes;
use hgnnc_ir::dataflow::{Dataflow, OutputKind};
use hgnnc_ir::kernel::place::{self, ALIGN};
use hgnnc_ir::kernel::{Body, Buffer, Contents, KernelOp, Program, Source, Width};
use hgnnc_ir::{Layout, Type, random};
use rayon::prelude::*;

use hgnnc_ptx::{Entry, Hints, KernelInfo, Module, Sizes, Slot, Target};

use super::arrays::{DataSizes, edges, index_array};
use super::{Device, Launch, Sequence};
use crate::data::{BoundData, InputData};
use crate::engine::{add_counters, check_tables, collect_states, extent, list_ends};
use crate::error::{ExecError, Result};
use crate::init::Draw;
use crate::plan::StateId;

/// Bytes of an f32.
const F32: usize = 4;
/// What allocations begin at a multiple of.
const ALIGN_BYTES: usize = 256;

/// Bytes on a device, by what they are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceMemory {
    /// What each run computes; programs share it.
    pub run: u64,
    /// What is computed once.
    pub fixed: u64,
    /// Partial results.
    pub partials: u64,
    /// Parameters and optimiser states.
    pub params: u64,
    /// Graphs and features.
    pub data: u64,
}

impl DeviceMemory {
    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.run + self.fixed + self.partials + self.params + self.data
    }
}

/// A result of a program.
#[derive(Clone, PartialEq, Debug)]
struct Found {
    name: String,
    rows: usize,
    width: usize,
    from: From,
}

/// Where a result is.
#[derive(Clone, Copy, PartialEq, Debug)]
enum From {
    Device(u64),
    Number(f32),
}

/// A program on the device.
#[derive(Debug)]
struct Bound {
    prelude: usize,
    /// Up to the first that may change parameters, from there on, and what takes updates over.
    parts: [usize; 3],
    results: Vec<Found>,
}

/// Programs with the same tables, their parameters, states and data, on a device.
#[derive(Debug)]
pub struct DeviceEngine {
    device: Box<dyn Device>,
    data: BoundData,
    programs: Vec<Bound>,
    params: Vec<(u64, usize)>,
    states: Vec<StateId>,
    state_places: Vec<(u64, usize)>,
    /// Step and epoch numbers, then the keys of masks.
    counters: u64,
    streams: u32,
    memory: DeviceMemory,
}

impl DeviceEngine {
    /// Compiles the programs, checks that everything fits on the device, copies data there, and computes what never
    /// changes. Parameters and states are zero.
    ///
    /// # Errors
    /// Data that does not fit the programs, a kernel without PTX, too little memory, or a device that fails.
    pub fn new(
        programs: &[&Program],
        mut data: BoundData,
        mut device: Box<dyn Device>,
        target: Target,
        budget: Option<u64>,
    ) -> Result<Self> {
        let first = programs.first().ok_or_else(|| ExecError::Unsupported("there is no program to run".into()))?;
        let tables = &first.tables;
        check_tables(tables, &data)?;
        add_counters(programs, &mut data);
        list_ends(programs, &mut data);
        let edges = edges(programs, &data);
        let hints = Hints { edges: &edges, source: None };
        let compiled = |program: &&Program| {
            hgnnc_ptx::compile(program, target, hints).map_err(|error| ExecError::Unsupported(error.to_string()))
        };
        let modules: Vec<Module> = programs.iter().map(compiled).collect::<Result<_>>()?;
        let states = collect_states(programs);
        let param_len =
            |index: usize| -> usize { tables.params[index].dims.iter().map(|&d| extent(&data, d)).product() };
        let param_lens: Vec<usize> = (0..tables.params.len()).map(param_len).collect();

        let plan = Plan::new(programs, &modules, &data);
        let memory = plan.memory(&param_lens, &states, &data, &modules);
        check_memory(&memory, device.free_bytes(), budget)?;

        let alloc = |device: &mut Box<dyn Device>, what: &str, len: usize| -> Result<(u64, usize)> {
            let at = device.alloc(what, (F32 * len).max(ALIGN_BYTES))?;
            device.upload(at, &vec![0; F32 * len])?;
            Ok((at, len))
        };
        let mut params = vec![];
        for (decl, &len) in tables.params.iter().zip(&param_lens) {
            params.push(alloc(&mut device, &decl.name, len)?);
        }
        let mut state_places = vec![];
        for (param, slot) in &states {
            let name = format!("{}.state{slot}", tables.params[param.index()].name);
            state_places.push(alloc(&mut device, &name, param_lens[param.index()])?);
        }
        let streams = programs.iter().map(|program| streams(program)).max().unwrap_or(0);
        let counters = device.alloc("counters", ALIGN_BYTES + 8 * streams as usize)?;
        let arena = device.alloc("intermediate values", (F32 * plan.run).max(ALIGN_BYTES))?;
        let partials = device.alloc("partial results", (F32 * plan.partials).max(ALIGN_BYTES))?;
        let mut binder = Binder { device, data: &mut data, inputs: HashMap::new(), arrays: HashMap::new() };
        let mut bound = vec![];
        for (index, (program, module)) in programs.iter().zip(&modules).enumerate() {
            let fixed = binder.device.alloc("values of the dataset", (F32 * plan.fixed[index]).max(ALIGN_BYTES))?;
            let places = Places {
                arena,
                fixed,
                partials,
                counters,
                params: &params,
                states: &states,
                state_places: &state_places,
            };
            bound.push(binder.program(program, module, &places)?);
        }
        let device = binder.device;
        let mut engine =
            Self { device, data, programs: bound, params, states, state_places, counters, streams, memory };
        for index in 0..engine.programs.len() {
            engine.set_counters(0, 0, 0)?;
            engine.device.run(engine.programs[index].prelude)?;
        }
        engine.device.wait()?;
        Ok(engine)
    }

    fn set_counters(&mut self, seed: u64, step: u64, epoch: u64) -> Result<()> {
        let mut bytes = vec![];
        bytes.extend((step as f32).to_le_bytes());
        bytes.extend((epoch as f32).to_le_bytes());
        bytes.resize(ALIGN_BYTES, 0);
        for stream in 0..self.streams {
            bytes.extend(random::mask_key(seed, step, stream).to_le_bytes());
        }
        self.device.upload(self.counters, &bytes)
    }

    /// As [`crate::Engine::run_until_update`].
    ///
    /// # Errors
    /// When the device fails.
    pub fn run_until_update(&mut self, program: usize, seed: u64, step: u64, epoch: u64) -> Result<()> {
        self.set_counters(seed, step, epoch)?;
        self.device.run(self.programs[program].parts[0])
    }

    /// As [`crate::Engine::run_updates`].
    ///
    /// # Errors
    /// When the device fails.
    pub fn run_updates(&mut self, program: usize) -> Result<()> {
        self.device.run(self.programs[program].parts[1])
    }

    /// As [`crate::Engine::commit`].
    ///
    /// # Errors
    /// When the device fails.
    pub fn commit(&mut self, program: usize) -> Result<()> {
        self.device.run(self.programs[program].parts[2])
    }

    /// Waits until the device is done.
    ///
    /// # Errors
    /// When something failed.
    pub fn wait(&mut self) -> Result<()> {
        self.device.wait()
    }

    /// A result of the last run of a program, with rows and elements per row; invalid after another run.
    ///
    /// # Errors
    /// When the device fails.
    pub fn result(&mut self, program: usize, name: &str) -> Result<Option<(usize, usize, Vec<f32>)>> {
        let Some(found) = self.programs[program].results.iter().find(|r| r.name == name).cloned() else {
            return Ok(None);
        };
        let numbers = match found.from {
            From::Number(number) => vec![number; found.rows * found.width],
            From::Device(at) => download(&mut *self.device, at, found.rows * found.width)?,
        };
        Ok(Some((found.rows, found.width, numbers)))
    }

    /// Names of the results of a program.
    pub fn results(&self, program: usize) -> Vec<&str> {
        self.programs[program].results.iter().map(|found| found.name.as_str()).collect()
    }

    /// Number of parameters.
    pub fn num_params(&self) -> usize {
        self.params.len()
    }

    /// A parameter.
    ///
    /// # Errors
    /// When the device fails.
    pub fn param(&mut self, index: usize) -> Result<Vec<f32>> {
        let (at, len) = self.params[index];
        download(&mut *self.device, at, len)
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Panics
    /// When it has another length.
    pub fn set_param(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        let (at, len) = self.params[index];
        assert_eq!(numbers.len(), len, "a parameter keeps its length");
        self.device.upload(at, bytemuck::cast_slice(numbers))
    }

    /// The optimiser states.
    pub fn states(&self) -> &[StateId] {
        &self.states
    }

    /// An optimiser state.
    ///
    /// # Errors
    /// When the device fails.
    pub fn state(&mut self, index: usize) -> Result<Vec<f32>> {
        let (at, len) = self.state_places[index];
        download(&mut *self.device, at, len)
    }

    /// Sets an optimiser state.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Panics
    /// When it has another length.
    pub fn set_state(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        let (at, len) = self.state_places[index];
        assert_eq!(numbers.len(), len, "a state keeps its length");
        self.device.upload(at, bytemuck::cast_slice(numbers))
    }

    /// Draws parameters, the same as [`crate::Engine::init_params`].
    ///
    /// # Errors
    /// When the device fails.
    pub fn init_params(&mut self, tables: &Dataflow, seed: u64) -> Result<()> {
        // Each number depends on its position only: threads share large parameters.
        const PART: usize = 1 << 14;
        for (index, decl) in tables.params.iter().enumerate() {
            let draw = Draw::of(decl, |dim| extent(&self.data, dim));
            let mut numbers = vec![0.0; self.params[index].1];
            numbers.par_chunks_mut(PART).enumerate().for_each(|(part, numbers)| draw.fill(seed, part * PART, numbers));
            self.set_param(index, &numbers)?;
        }
        Ok(())
    }

    /// Graphs, labels and splits.
    pub fn data(&self) -> &BoundData {
        &self.data
    }

    /// Bytes on the device.
    pub fn memory(&self) -> DeviceMemory {
        self.memory
    }

    /// The device.
    pub fn device(&mut self) -> &mut dyn Device {
        &mut *self.device
    }
}

fn download(device: &mut dyn Device, at: u64, len: usize) -> Result<Vec<f32>> {
    let mut numbers = vec![0.0f32; len];
    device.download(at, bytemuck::cast_slice_mut(&mut numbers))?;
    Ok(numbers)
}

/// Number of streams of masks.
fn streams(program: &Program) -> u32 {
    let traversals = program.kernels().filter_map(|kernel| match &kernel.body {
        Body::Traversal(traversal) => Some(traversal),
        Body::Gemm(_) => None,
    });
    let streams = traversals.flat_map(|traversal| &traversal.instrs).filter_map(|instr| match instr.op {
        KernelOp::Mask { stream, .. } => Some(stream + 1),
        _ => None,
    });
    streams.max().unwrap_or(0)
}

fn check_memory(memory: &DeviceMemory, free: Option<u64>, budget: Option<u64>) -> Result<()> {
    let limits = [("the free memory of the device", free), ("the budget", budget)];
    for (limit, bytes) in limits {
        let Some(bytes) = bytes.filter(|&bytes| memory.bytes() > bytes) else { continue };
        let parts = [
            ("intermediate values", memory.run + memory.fixed),
            ("partial results", memory.partials),
            ("parameters and optimiser state", memory.params),
            ("graphs and features", memory.data),
        ];
        let detail: Vec<String> = parts.iter().map(|(what, bytes)| format!("{what} {}", show_bytes(*bytes))).collect();
        return Err(ExecError::Memory { needed: memory.bytes(), detail: detail.join(", "), limit, budget: bytes });
    }
    Ok(())
}

/// Rows that are stored of a type.
fn rows(data: &BoundData, ty: &Type) -> usize {
    match ty.layout {
        Layout::Sparse(pattern) => data.patterns[pattern.index()].num_edges(),
        Layout::Dense => DataSizes(data).space(ty.space),
    }
}

/// Elements of each. Sparse values have one per stored element.
fn width(data: &BoundData, ty: &Type) -> usize {
    if ty.is_sparse() { 1 } else { DataSizes(data).width(&Width::of(&ty.dims)) }
}

/// Sizes of what programs need, in elements.
struct Plan {
    run: usize,
    fixed: Vec<usize>,
    partials: usize,
}

impl Plan {
    fn new(programs: &[&Program], modules: &[Module], data: &BoundData) -> Self {
        let memory = |program: &&Program| place::memory(program, |ty| rows(data, ty) * width(data, ty));
        let memories: Vec<place::Memory> = programs.iter().map(memory).collect();
        let entries = modules.iter().flat_map(|module| module.prelude.iter().chain(&module.launches));
        Self {
            run: memories.iter().map(|memory| memory.run.len).max().unwrap_or(0),
            fixed: memories.iter().map(|memory| memory.fixed.len).collect(),
            partials: entries.map(|entry| partials(entry, data).1).max().unwrap_or(0),
        }
    }

    fn memory(&self, params: &[usize], states: &[StateId], data: &BoundData, modules: &[Module]) -> DeviceMemory {
        let bytes = |elements: usize| (F32 * elements) as u64;
        let states = states.iter().map(|state| params[state.0.index()]).sum::<usize>();
        let mut arrays: Vec<&Slot> = modules.iter().flat_map(|module| &module.table).collect();
        let mut seen = std::collections::HashSet::new();
        arrays.retain(|&slot| seen.insert(slot.clone()));
        let indices: usize = arrays.iter().filter_map(|slot| index_array(data, slot)).map(|array| array.len()).sum();
        let inputs: usize = data
            .inputs
            .iter()
            .map(|input| match input {
                InputData::Numbers(numbers) => numbers.len(),
                InputData::Classes(classes) => classes.len(),
                InputData::StepNumber | InputData::EpochNumber | InputData::Missing => 0,
            })
            .sum();
        DeviceMemory {
            run: bytes(self.run),
            fixed: bytes(self.fixed.iter().sum()),
            partials: bytes(self.partials),
            params: bytes(params.iter().sum::<usize>() + states),
            data: bytes(indices + inputs),
        }
    }
}

/// Where the partial results of the kernels of an entry begin, by kernel number and total, and their elements in all.
fn partials(entry: &Entry, data: &BoundData) -> (HashMap<(usize, usize), usize>, usize) {
    let (mut places, mut len) = (HashMap::new(), 0);
    let sizes = DataSizes(data);
    for kernel in &entry.kernels {
        for (index, total) in kernel.totals.iter().enumerate() {
            places.insert((kernel.number, index), len);
            len += (kernel.blocks.parts(&sizes) * sizes.width(&total.width)).next_multiple_of(ALIGN);
        }
    }
    (places, len)
}

/// Where things of a program are on the device.
struct Places<'a> {
    arena: u64,
    fixed: u64,
    partials: u64,
    counters: u64,
    params: &'a [(u64, usize)],
    states: &'a [StateId],
    state_places: &'a [(u64, usize)],
}

/// State of binding programs.
struct Binder<'a> {
    device: Box<dyn Device>,
    data: &'a mut BoundData,
    inputs: HashMap<usize, u64>,
    arrays: HashMap<Slot, u64>,
}

impl Binder<'_> {
    fn program(&mut self, program: &Program, module: &Module, places: &Places<'_>) -> Result<Bound> {
        let number = self.device.load(module)?;
        let addresses = self.addresses(program, places)?;
        let entries = || module.prelude.iter().chain(&module.launches).chain(&module.commit);
        let kernels: HashMap<usize, &KernelInfo> =
            entries().flat_map(|entry| &entry.kernels).map(|kernel| (kernel.number, kernel)).collect();
        let mut parts = HashMap::new();
        for entry in entries() {
            parts.extend(partials(entry, self.data).0);
        }
        let mut table = vec![];
        for slot in &module.table {
            let sizes = DataSizes(self.data);
            table.push(match slot {
                Slot::Buffer(buffer) => addresses[buffer.index()],
                Slot::Stored(contents) => self.stored(*contents, places)?,
                Slot::Rows(rows) => sizes.rows(rows) as u64,
                Slot::Count(space) => sizes.space(*space) as u64,
                Slot::CountF32(space) => u64::from((sizes.space(*space) as f32).to_bits()),
                Slot::Elements(width) => sizes.width(width) as u64,
                Slot::MaskKeys => places.counters + ALIGN_BYTES as u64,
                Slot::Blocks(kernel) => kernels[kernel].blocks.count(&sizes) as u64,
                Slot::Parts(kernel) => kernels[kernel].blocks.parts(&sizes) as u64,
                Slot::PartRows(kernel) => kernels[kernel].blocks.part_rows(&sizes) as u64,
                Slot::Partials(kernel, total) => places.partials + (F32 * parts[&(*kernel, *total)]) as u64,
                Slot::BandFirst(rows, band) => sizes.band(rows, *band).0 as u64,
                Slot::BandRows(rows, band) => sizes.band(rows, *band).1 as u64,
                Slot::BandBlocks(kernel, band) => kernels[kernel].blocks.band(&sizes, *band) as u64,
                Slot::FirstEdges { .. }
                | Slot::RowOrder { .. }
                | Slot::Others(..)
                | Slot::Positions(_)
                | Slot::EndVertices(..)
                | Slot::EndOf(..)
                | Slot::EndOfEdges(..) => self.array(slot)?,
            });
        }
        self.device.set_table(number, &table)?;
        let sizes = DataSizes(self.data);
        let launch = |entry: &Entry| Launch {
            name: entry.name.clone(),
            blocks: entry.kernels.iter().map(|kernel| kernel.blocks.count(&sizes)).sum(),
        };
        let sequence = |entries: &[Entry]| Sequence { module: number, launches: entries.iter().map(launch).collect() };
        let (before, updates) = module.launches.split_at(module.first_update);
        let sequences =
            [sequence(&module.prelude), sequence(before), sequence(updates), sequence(module.commit.as_slice())];
        let mut numbers = vec![];
        for sequence in sequences {
            numbers.push(self.device.prepare(sequence)?);
        }
        let found = |output: &hgnnc_ir::kernel::Output| {
            let OutputKind::Result(name) = &output.kind else { return None };
            let (rows, width) = (rows(self.data, &output.ty), width(self.data, &output.ty));
            let from = match output.source {
                Source::Buffer(buffer) => From::Device(addresses[buffer.index()]),
                Source::Const(number) => From::Number(number as f32),
                Source::Count(space) => From::Number(DataSizes(self.data).space(space) as f32),
                Source::Local(_) => return None,
            };
            Some(Found { name: name.clone(), rows, width, from })
        };
        let results = program.outputs.iter().filter_map(found).collect();
        Ok(Bound { prelude: numbers[0], parts: [numbers[1], numbers[2], numbers[3]], results })
    }

    fn stored(&self, contents: Contents, places: &Places<'_>) -> Result<u64> {
        let missing = || ExecError::Unsupported("internal error: an update of what is not stored".into());
        match contents {
            Contents::Param(param) => Ok(places.params[param.index()].0),
            Contents::State(param, slot) => {
                let position = places.states.iter().position(|&known| known == (param, slot));
                Ok(places.state_places[position.ok_or_else(missing)?].0)
            }
            Contents::Input(_) | Contents::Computed => Err(missing()),
        }
    }

    /// The address of each buffer.
    fn addresses(&mut self, program: &Program, places: &Places<'_>) -> Result<Vec<u64>> {
        let memory = place::memory(program, |ty| rows(self.data, ty) * width(self.data, ty));
        let mut addresses = vec![];
        for index in 0..program.buffers.len() {
            let decl = program.buffer(program.home(Buffer::new(index)));
            addresses.push(match decl.contents {
                contents @ (Contents::Param(_) | Contents::State(..)) => self.stored(contents, places)?,
                Contents::Input(input) => {
                    let expected = rows(self.data, &decl.ty) * width(self.data, &decl.ty);
                    self.input(input.index(), expected, &program.tables, places)?
                }
                Contents::Computed => places.arena,
            });
        }
        for (area, base) in [(&memory.fixed, places.fixed), (&memory.run, places.arena)] {
            for slot in &area.slots {
                addresses[slot.buffer.index()] = base + (F32 * slot.offset) as u64;
            }
        }
        Ok(addresses)
    }

    fn input(&mut self, index: usize, len: usize, tables: &Dataflow, places: &Places<'_>) -> Result<u64> {
        if let Some(&known) = self.inputs.get(&index) {
            return Ok(known);
        }
        let name = &tables.inputs[index].name;
        let wrong = |found: String| ExecError::Shape {
            what: format!("the input `{name}`"),
            found,
            expected: format!("{len} elements"),
        };
        let bytes: &[u8] = match self.data.inputs.get(index) {
            None | Some(InputData::Missing) => return Err(wrong("no data".into())),
            Some(InputData::StepNumber) => return Ok(places.counters),
            Some(InputData::EpochNumber) => return Ok(places.counters + F32 as u64),
            Some(InputData::Numbers(numbers)) if numbers.len() == len => bytemuck::cast_slice(numbers),
            Some(InputData::Classes(classes)) if classes.len() == len => bytemuck::cast_slice(classes),
            Some(InputData::Numbers(numbers)) => return Err(wrong(format!("{} elements", numbers.len()))),
            Some(InputData::Classes(classes)) => return Err(wrong(format!("{} labels", classes.len()))),
        };
        let at = self.device.alloc(name, bytes.len().max(ALIGN_BYTES))?;
        self.device.upload(at, bytes)?;
        self.inputs.insert(index, at);
        Ok(at)
    }

    fn array(&mut self, slot: &Slot) -> Result<u64> {
        if let Some(&known) = self.arrays.get(slot) {
            return Ok(known);
        }
        let array = index_array(self.data, slot).unwrap_or_default();
        let at = self.device.alloc("graph", (F32 * array.len()).max(ALIGN_BYTES))?;
        self.device.upload(at, bytemuck::cast_slice(&array))?;
        self.arrays.insert(slot.clone(), at);
        Ok(at)
    }
}
