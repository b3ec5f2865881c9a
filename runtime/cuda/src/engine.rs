//! Programs bound to data in device memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use hgnnc_data::buffer::HostBuffer;
use hgnnc_data::metrics::Tally;
use hgnnc_data::stacks::{ParamPlace, num_own_params, param_places};
use hgnnc_data::tables::{add_derived, check_tables, drop_unused_edges, extent, list_endpoints, ranks};
use hgnnc_data::{Arena, BoundData, ExecError, Initializer, InputData, Result, StateId};
use hgnnc_dataset::FloatArray;
use hgnnc_executable::gpu::{Entry, GpuCompiler, Module, Target};
use hgnnc_ir::dataflow::Dataflow;
use hgnnc_ir::random;
use hgnnc_ir::training::Task;
use hgnnc_kernel_ir::kernel::Program;
use hgnnc_session::{RowStore, TableRows};
use hgnnc_trace::Times;

use crate::bind::{Binder, Bound, Found, From, Places, Uploaded};
use crate::counts::Counter;
use crate::plan::{Compiled, DeviceMemory, Needs, arena, keeps_best, needs, rows, streams, width};
use crate::room::Room;
use crate::rows::{DeviceRows, RowCopies, RowCopy};
use crate::session::Fetched;
use crate::time_attribution::{self, shares};
use crate::{ALIGN_BYTES, Device, F32, KernelCounters, SharedDevice};

/// Programs with shared tables, their parameters, states and data, on a device.
#[derive(Debug)]
pub struct DeviceEngine {
    device: SharedDevice,
    /// Threads of this process, which prepare data and copy rows.
    pub(super) pool: Arc<rayon::ThreadPool>,
    compiler: &'static dyn GpuCompiler,
    data: BoundData,
    kernels: Vec<Program>,
    modules: Vec<Module>,
    /// Handle of each module on the device.
    loaded: Vec<usize>,
    programs: Vec<Bound>,
    /// Memory of values: those of a run, partial results, and run-independent ones of each program.
    arena: Room,
    partials: Room,
    fixed: Vec<Room>,
    uploaded: Uploaded,
    /// Memory of each parameter that is no entry of a stack, and of each state.
    homes: Vec<Room>,
    state_homes: Vec<Room>,
    /// Address and elements of each parameter.
    params: Vec<(u64, usize)>,
    /// Whether a parameter has memory of its own, and is no entry of a stack.
    is_home: Vec<bool>,
    /// Number of parameters of the model; stacks of them follow.
    num_params: usize,
    states: Vec<StateId>,
    state_places: Vec<(u64, usize)>,
    /// Addresses of the parameters of the best epoch, if there is training.
    best: Vec<u64>,
    /// Counts metrics of one output.
    counter: Option<Counter>,
    /// Address of step and epoch numbers, followed by the dropout keys.
    counters: u64,
    dropout_streams: u32,
    memory: DeviceMemory,
    needs: Vec<Needs>,
    /// Last uploaded step and epoch numbers and dropout keys, and a buffer for the next.
    counter_bytes: Vec<u8>,
    /// Whether each launch is timed separately.
    pub(super) timed: bool,
    /// Results that were read.
    pub(super) fetched: Vec<Fetched>,
}

impl DeviceEngine {
    /// Compiles the programs, allocates their memory, uploads data, and runs the prelude. Parameters and states are zero.
    ///
    /// # Errors
    /// Data that does not fit the programs, a kernel without PTX, too little memory, or a device failure.
    pub fn new(
        programs: &[&Program],
        mut data: BoundData,
        device: impl Into<SharedDevice>,
        (compiler, target): (&'static dyn GpuCompiler, Target),
        pool: Arc<rayon::ThreadPool>,
    ) -> Result<Self> {
        let compiled = pool.install(|| Compiled::new(programs, &mut data, (compiler, target)))?;
        let programs = programs.iter().map(|&program| program.clone()).collect();
        let (device, of_engine) = (device.into(), Arc::clone(&pool));
        pool.install(|| Self::planned(programs, compiled, data, (device, compiler), of_engine))
    }

    /// [`DeviceEngine::new`] with compiled programs.
    ///
    /// # Errors
    /// Too little memory, or a device failure.
    pub(crate) fn planned(
        kernels: Vec<Program>,
        compiled: Compiled,
        mut data: BoundData,
        (mut device, compiler): (SharedDevice, &'static dyn GpuCompiler),
        pool: Arc<rayon::ThreadPool>,
    ) -> Result<Self> {
        let Compiled { modules, needs, states, param_places, memory } = compiled;
        let programs: Vec<&Program> = kernels.iter().collect();
        drop_unused_edges(&programs, &mut data);
        let num_params = num_own_params(&programs[0].tables);
        let loaded = modules.iter().map(|module| device.load(module)).collect::<Result<_>>()?;
        let dropout_streams = programs.iter().map(|program| streams(program)).max().unwrap_or(0);
        let counters = device.alloc("counters", ALIGN_BYTES + 8 * dropout_streams as usize)?;
        let mut engine = Self {
            device,
            pool,
            compiler,
            data,
            programs: vec![],
            arena: Room::default(),
            partials: Room::default(),
            fixed: vec![Room::default(); kernels.len()],
            kernels,
            modules,
            loaded,
            uploaded: Uploaded::default(),
            homes: vec![Room::default(); param_places.len()],
            state_homes: vec![Room::default(); states.len()],
            params: vec![],
            is_home: vec![],
            num_params,
            states,
            state_places: vec![],
            best: vec![],
            counter: None,
            counters,
            dropout_streams,
            memory,
            needs,
            counter_bytes: vec![],
            timed: false,
            fetched: vec![],
        };
        engine.place_params(&param_places)?;
        for (index, &(at, len)) in engine.params.iter().enumerate() {
            if engine.is_home[index] {
                engine.device.clear(at, F32 * len)?;
            }
        }
        for &(at, len) in &engine.state_places {
            engine.device.clear(at, F32 * len)?;
        }
        if keeps_best(engine.kernels.len()) {
            engine.place_best(&param_places)?;
        }
        engine.bind(&mut [])?;
        // The device holds them; drops the host copy.
        for input in &mut engine.data.inputs {
            if let InputData::Numbers(numbers) = input {
                numbers.release_pages();
                *numbers = FloatArray::default();
            }
        }
        engine.run_preludes()?;
        Ok(engine)
    }

    /// Allocates parameters and states; those that have memory enough keep their values.
    fn place_params(&mut self, places: &[ParamPlace]) -> Result<()> {
        let tables = &self.kernels[0].tables;
        let device = &mut self.device;
        for (index, (decl, place)) in tables.params.iter().zip(places).enumerate() {
            if place.home.index() == index {
                self.homes[index].grow(device, &decl.name, F32 * place.len)?;
            }
        }
        // Entries of a stack are parts of its memory.
        let at = |place: &ParamPlace| (self.homes[place.home.index()].at + (F32 * place.offset) as u64, place.len);
        self.params = places.iter().map(at).collect();
        self.is_home = places.iter().enumerate().map(|(index, place)| place.home.index() == index).collect();
        self.state_places.clear();
        for ((param, slot), home) in self.states.iter().zip(&mut self.state_homes) {
            let len = places[param.index()].len;
            let name = format!("{}.state{slot}", tables.params[param.index()].name);
            self.state_places.push((home.grow(device, &name, F32 * len)?, len));
        }
        Ok(())
    }

    /// Allocates memory for the parameters of the best epoch.
    fn place_best(&mut self, places: &[ParamPlace]) -> Result<()> {
        let mut homes = vec![0; places.len()];
        for (index, (decl, place)) in self.kernels[0].tables.params.iter().zip(places).enumerate() {
            if place.home.index() == index {
                let what = format!("{} of the best epoch", decl.name);
                homes[index] = self.device.alloc(&what, (F32 * place.len).max(ALIGN_BYTES))?;
            }
        }
        self.best = places.iter().map(|place| homes[place.home.index()] + (F32 * place.offset) as u64).collect();
        Ok(())
    }

    /// Uploads the data, and fills the tables of the programs. `held` has the elements of inputs that `data` only counts.
    fn bind(&mut self, held: &mut [HostBuffer]) -> Result<()> {
        let room = arena(&self.needs, None);
        let device = &mut self.device;
        let arena = self.arena.grow(device, "intermediate values", room.run as usize)?;
        let partials = self.partials.grow(device, "partial results", room.partials as usize)?;
        for (fixed, needs) in self.fixed.iter_mut().zip(&self.needs) {
            fixed.grow(device, "values of the dataset", F32 * needs.values.fixed.len)?;
        }
        let mut bound = vec![];
        let mut binder = Binder::new((device, self.compiler), &self.data, held, &mut self.uploaded);
        for (index, (program, module)) in self.kernels.iter().zip(&self.modules).enumerate() {
            let places = Places {
                arena,
                fixed: self.fixed[index].at,
                partials,
                counters: self.counters,
                params: &self.params,
                states: &self.states,
                state_places: &self.state_places,
            };
            let known = self.programs.get(index);
            let values = &self.needs[index].values;
            bound.push(binder.program((program, values), (module, self.loaded[index]), &places, known)?);
        }
        self.programs = bound;
        Ok(())
    }

    /// Computes the values that do not depend on the run.
    fn run_preludes(&mut self) -> Result<()> {
        for index in 0..self.programs.len() {
            self.set_counters(0, 0, 0)?;
            self.device.run(self.programs[index].prelude)?;
        }
        // Preludes belong to no epoch.
        self.device.restart_clock();
        Ok(())
    }

    /// Binds the programs to other data with the same tables, as [`hgnnc_session::Session::load`] demands.
    pub(super) fn rebind(&mut self, mut data: BoundData, held: &mut [HostBuffer]) -> Result<BoundData> {
        let programs: Vec<&Program> = self.kernels.iter().collect();
        check_tables(&programs[0].tables, &data)?;
        add_derived(&programs, &mut data, ranks)?;
        list_endpoints(&programs, &mut data);
        self.needs = self.kernels.iter().zip(&self.modules).map(|(p, module)| needs(p, module, &data)).collect();
        let tables = &self.kernels[0].tables;
        let len = |index: usize| tables.params[index].dims.iter().map(|&dim| extent(&data, dim)).product::<usize>();
        let places = param_places(tables, |param| len(param.index()));
        let old = std::mem::replace(&mut self.data, data);
        self.place_params(&places)?;
        self.bind(held)?;
        self.memory = self.allocated();
        self.run_preludes()?;
        Ok(old)
    }

    /// Device memory by purpose, which only grows with the data of batches.
    fn allocated(&self) -> DeviceMemory {
        let bytes = |rooms: &[Room]| rooms.iter().map(|room| room.bytes() as u64).sum::<u64>();
        DeviceMemory {
            run: bytes(&[self.arena]),
            fixed: bytes(&self.fixed),
            partials: bytes(&[self.partials]),
            params: bytes(&self.homes),
            states: bytes(&self.state_homes),
            data: self.uploaded.bytes(),
        }
    }

    fn set_counters(&mut self, seed: u64, step: u64, epoch: u64) -> Result<()> {
        let mut bytes = std::mem::take(&mut self.counter_bytes);
        bytes.clear();
        bytes.extend((step as f32).to_le_bytes());
        bytes.extend((epoch as f32).to_le_bytes());
        bytes.resize(ALIGN_BYTES, 0);
        for stream in 0..self.dropout_streams {
            bytes.extend(random::mask_key(seed, step, stream).to_le_bytes());
        }
        let done = self.device.upload(self.counters, &bytes);
        self.counter_bytes = bytes;
        done?;
        if self.data.shuffle(seed, step) {
            self.uploaded.renew_arrays(&mut self.device, &self.data)?;
        }
        Ok(())
    }

    /// Runs a program up to the first launch that may overwrite a parameter or a state.
    ///
    /// # Errors
    /// When the device fails.
    pub fn run_until_update(&mut self, program: usize, seed: u64, step: u64, epoch: u64) -> Result<()> {
        self.set_counters(seed, step, epoch)?;
        self.device.run(self.programs[program].parts[0])
    }

    /// Runs the rest of a program.
    ///
    /// # Errors
    /// When the device fails.
    pub fn run_updates(&mut self, program: usize) -> Result<()> {
        self.device.run(self.programs[program].parts[1])
    }

    /// Makes the new parameters and states current.
    ///
    /// # Errors
    /// When the device fails.
    pub fn commit(&mut self, program: usize) -> Result<()> {
        self.device.run(self.programs[program].parts[2])
    }

    /// Waits until the device is idle.
    ///
    /// # Errors
    /// When a previous operation failed.
    pub fn wait(&mut self) -> Result<()> {
        self.device.wait()
    }

    /// Milliseconds by the device clock from the start of the first sequence since the last call to the end of the last
    /// one; synchronizes. `None` for a device without a clock.
    ///
    /// # Errors
    /// When a previous operation failed.
    pub fn elapsed_ms(&mut self) -> Result<Option<f64>> {
        self.device.elapsed_ms()
    }

    /// Runs a program launch by launch and returns the milliseconds of each entry of [`DeviceEngine::entries`]. `None`
    /// for a device without a clock. Slower than [`DeviceEngine::run_until_update`] and the calls after it.
    ///
    /// # Errors
    /// When the device fails.
    pub fn run_timed(&mut self, program: usize, seed: u64, step: u64, epoch: u64) -> Result<Option<Vec<f64>>> {
        self.set_counters(seed, step, epoch)?;
        let mut all = Some(vec![]);
        for part in self.programs[program].parts {
            let times = self.device.run_timed(part)?;
            all = all.zip(times).map(|(all, times)| [all, times].concat());
        }
        Ok(all)
    }

    /// [`DeviceEngine::run_until_update`] launch by launch, adding the nanoseconds to `times`. Same results, but
    /// slower. Adds nothing for a device without a clock.
    pub fn time_until_update(
        &mut self,
        program: usize,
        (seed, step, epoch): (u64, u64, u64),
        times: &mut Times,
    ) -> Result<()> {
        self.set_counters(seed, step, epoch)?;
        self.time(program, 0, times)
    }

    /// [`DeviceEngine::run_updates`] and [`DeviceEngine::commit`] launch by launch, adding the nanoseconds to `times`.
    pub fn time_updates(&mut self, program: usize, times: &mut Times) -> Result<()> {
        self.time(program, 1, times)?;
        self.time(program, 2, times)
    }

    fn time(&mut self, program: usize, part: usize, times: &mut Times) -> Result<()> {
        let bound = &mut self.programs[program];
        let launches = self.device.run_timed(bound.parts[part])?.unwrap_or_default();
        let entries = self.modules[program].parts();
        let shares = bound.shares.get_or_insert_with(|| shares(&self.kernels[program], &self.data, entries));
        for (ms, shares) in launches.into_iter().zip(&shares[part]) {
            time_attribution::add(times, shares, ms * 1e6);
        }
        Ok(())
    }

    /// Entries of a run of a program in order, over all its parts.
    pub fn entries(&self, program: usize) -> Vec<&Entry> {
        self.modules[program].parts().into_iter().flatten().collect()
    }

    /// Counters of each entry of a program so far, by name. `None` for a device without counters.
    pub fn counters(&self, program: usize) -> Option<BTreeMap<String, KernelCounters>> {
        let module = self.programs[program].module;
        let all = self.device.counters()?;
        Some(all.into_iter().filter(|((of, _), _)| *of == module).map(|((_, name), found)| (name, found)).collect())
    }

    /// A result of the last run of a program, with rows and elements per row; invalid after another run.
    ///
    /// # Errors
    /// When the device fails.
    pub fn result(&mut self, program: usize, name: &str) -> Result<Option<(usize, usize, Vec<f32>)>> {
        let mut numbers = vec![];
        Ok(self.read_result(program, name, &mut numbers)?.map(|(rows, width)| (rows, width, numbers)))
    }

    /// [`DeviceEngine::result`] into an existing buffer.
    pub fn read_result(&mut self, program: usize, name: &str, into: &mut Vec<f32>) -> Result<Option<(usize, usize)>> {
        let Some(found) = self.programs[program].results.iter().find(|found| found.name == name) else {
            return Ok(None);
        };
        let shape = (found.rows, found.width);
        into.resize(shape.0 * shape.1, 0.0);
        match found.from {
            From::Number(number) => into.fill(number),
            From::Device(at) => self.device.download(at, bytemuck::cast_slice_mut(into))?,
        }
        Ok(Some(shape))
    }

    /// Names of the results of a program.
    pub fn results(&self, program: usize) -> Vec<&str> {
        self.programs[program].results.iter().map(|found| found.name.as_str()).collect()
    }

    /// Overwrites an input that the caller gives; nothing happens if no program reads it.
    ///
    /// # Errors
    /// Another number of elements than the input has, or a device failure.
    pub fn write_input(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        let decl = self.kernels[0].tables.inputs.get(index);
        let expected = decl.map_or(0, |decl| rows(&self.data, &decl.ty) * width(&self.data, &decl.ty));
        if numbers.len() != expected {
            return Err(ExecError::Shape {
                what: format!("given input {index}"),
                found: format!("{} elements", numbers.len()),
                expected: format!("{expected} elements"),
            });
        }
        match self.uploaded.input(index) {
            Some(at) => self.device.upload(at, bytemuck::cast_slice(numbers)),
            None => Ok(()),
        }
    }

    /// Number of parameters of the programs.
    pub fn num_params(&self) -> usize {
        self.num_params
    }

    /// Downloads a parameter to host memory.
    ///
    /// # Errors
    /// When the device fails.
    pub fn param(&mut self, index: usize) -> Result<Vec<f32>> {
        let mut numbers = vec![0.0; self.params[index].1];
        self.read_param(index, &mut numbers)?;
        Ok(numbers)
    }

    /// Number of elements of a parameter.
    pub fn param_len(&self, index: usize) -> usize {
        self.params[index].1
    }

    /// [`DeviceEngine::param`] into a buffer of its length.
    pub fn read_param(&mut self, index: usize, into: &mut [f32]) -> Result<()> {
        self.device.download(self.params[index].0, bytemuck::cast_slice_mut(into))
    }

    /// Saves the parameters on the device as those of the best epoch. False if there is no memory for them.
    pub fn keep_best(&mut self) -> Result<bool> {
        let all = self.best.iter().zip(&self.params).zip(&self.is_home).filter(|(_, is_home)| **is_home);
        all.into_iter().try_for_each(|((&best, &(at, len)), _)| self.device.copy(best, at, F32 * len))?;
        Ok(!self.best.is_empty() || self.num_params == 0)
    }

    /// Restores the parameters of the best epoch.
    pub fn restore_best(&mut self) -> Result<()> {
        let all = self.best.iter().zip(&self.params).zip(&self.is_home).filter(|(_, is_home)| **is_home);
        all.into_iter().try_for_each(|((&best, &(at, len)), _)| self.device.copy(at, best, F32 * len))
    }

    /// Downloads a parameter of the best epoch into a buffer of its length. Does nothing if none is saved.
    pub fn read_best(&mut self, index: usize, into: &mut [f32]) -> Result<()> {
        match self.best.get(index) {
            Some(&at) => self.device.download(at, bytemuck::cast_slice_mut(into)),
            None => Ok(()),
        }
    }

    /// Uploads a parameter of the best epoch.
    pub fn set_best(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        match self.best.get(index) {
            Some(&at) => self.device.upload(at, bytemuck::cast_slice(numbers)),
            None => Ok(()),
        }
    }

    /// The rows of an input as a matrix that other engines of the device read.
    pub(super) fn rows_of_input(&self, index: usize) -> Option<DeviceRows> {
        let decl = self.kernels[0].tables.inputs.get(index).filter(|decl| !decl.ty.is_sparse())?;
        let InputData::Numbers(_) = self.data.inputs.get(index)? else { return None };
        let size = (rows(&self.data, &decl.ty), width(&self.data, &decl.ty));
        Some(DeviceRows::at(&self.device, self.uploaded.input(index)?, size))
    }

    /// The elements of a table as a matrix that other engines of the device read and write.
    pub(super) fn rows_of_param(&self, index: usize, width: usize) -> DeviceRows {
        let (at, len) = self.params[index];
        DeviceRows::at(&self.device, at, (len / width.max(1), width))
    }

    /// Has rows of an input copied from a matrix of the device.
    pub(super) fn take_rows_of(&mut self, index: usize, matrix: Arc<dyn RowStore>) {
        self.uploaded.take_rows_of(index, matrix);
    }

    /// Copies rows of tables to the first ones of parameters and states, or back. Numbers of rows that several tables
    /// share are uploaded once.
    pub(super) fn copy_tables(&mut self, copy: RowCopy, tables: &[TableRows<'_>]) -> Result<()> {
        let mut uploaded: Vec<(&[u32], u64)> = vec![];
        for table in tables {
            let Some((matrix, width)) = DeviceRows::of(table.store, &self.device).map(DeviceRows::place) else {
                match copy {
                    RowCopy::Gather => self.gather_from_host(table)?,
                    RowCopy::Scatter => self.scatter_to_host(table)?,
                }
                continue;
            };
            let (packed, len) = self.array(table.array);
            assert!(table.rows.len() * width <= len, "rows of an array fit into it");
            let device = &mut self.device;
            let copies = match &mut self.uploaded.copies {
                Some(copies) => copies,
                none => none.insert(RowCopies::new(device, self.compiler)?),
            };
            let known = uploaded.iter().find(|(rows, _)| std::ptr::eq(*rows, table.rows));
            let numbers = match known {
                Some(&(_, at)) => at,
                None => {
                    // After the memory of inputs.
                    let memory = self.kernels[0].tables.inputs.len() + uploaded.len();
                    let at = copies.upload(device, memory, table.rows)?;
                    uploaded.push((table.rows, at));
                    at
                }
            };
            copies.copy(device, copy, (matrix, packed, numbers), (table.rows.len(), width))?;
        }
        Ok(())
    }

    fn gather_from_host(&mut self, table: &TableRows<'_>) -> Result<()> {
        let mut numbers = vec![0.0; table.rows.len() * table.store.width()];
        self.pool.install(|| table.store.gather(table.rows, &mut numbers))?;
        self.write_first(table.array, &numbers)
    }

    fn scatter_to_host(&mut self, table: &TableRows<'_>) -> Result<()> {
        let mut numbers = vec![0.0; table.rows.len() * table.store.width()];
        self.read_first(table.array, &mut numbers)?;
        self.pool.install(|| table.store.scatter(table.rows, &numbers))
    }

    /// Makes [`DeviceEngine::count`] compare this result of a program with the labels. Does nothing
    /// for tasks without counts.
    pub fn count_result(&mut self, program: usize, name: &str, task: Task) -> Result<()> {
        let found = self.programs[program].results.iter().find(|found| found.name == name);
        if let Some(Found { width, from: From::Device(at), .. }) = found {
            self.counter = Counter::new((&mut self.device, self.compiler), &self.data, (*at, *width), task)?;
        }
        Ok(())
    }

    /// Counts over the vertices of a split part in the last run of the program. Returns false if nothing is counted.
    pub fn count(&mut self, part: usize, tally: &mut Tally) -> Result<bool> {
        let Some(counter) = &mut self.counter else { return Ok(false) };
        counter.count(&mut self.device, part, tally)?;
        // Counting belongs to no epoch, so the clock is reset.
        self.device.elapsed_ms()?;
        Ok(true)
    }

    /// The memory of a parameter, or of an optimizer state after all parameters.
    fn array(&self, array: usize) -> (u64, usize) {
        match array.checked_sub(self.num_params) {
            None => self.params[array],
            Some(state) => self.state_places[state],
        }
    }

    /// Overwrites the first elements of a parameter, or of an optimizer state after all parameters.
    fn write_first(&mut self, array: usize, numbers: &[f32]) -> Result<()> {
        let (at, len) = self.array(array);
        assert!(numbers.len() <= len, "rows of an array fit into it");
        self.device.upload(at, bytemuck::cast_slice(numbers))
    }

    /// Reads the first elements of a parameter, or of an optimizer state after all parameters.
    fn read_first(&mut self, array: usize, into: &mut [f32]) -> Result<()> {
        let (at, len) = self.array(array);
        assert!(into.len() <= len, "rows of an array fit into it");
        self.device.download(at, bytemuck::cast_slice_mut(into))
    }

    /// Uploads a parameter from host memory.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Panics
    /// When `numbers` has another length.
    pub fn set_param(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        let (at, len) = self.params[index];
        assert_eq!(numbers.len(), len, "a parameter keeps its length");
        self.device.upload(at, bytemuck::cast_slice(numbers))
    }

    /// Parameter and slot of each optimizer state.
    pub fn states(&self) -> &[StateId] {
        &self.states
    }

    /// Downloads an optimizer state.
    ///
    /// # Errors
    /// When the device fails.
    pub fn state(&mut self, index: usize) -> Result<Vec<f32>> {
        let (at, len) = self.state_places[index];
        let mut numbers = vec![0.0; len];
        self.device.download(at, bytemuck::cast_slice_mut(&mut numbers))?;
        Ok(numbers)
    }

    /// Uploads an optimizer state.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Panics
    /// When `numbers` has another length.
    pub fn set_state(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        let (at, len) = self.state_places[index];
        assert_eq!(numbers.len(), len, "a state keeps its length");
        self.device.upload(at, bytemuck::cast_slice(numbers))
    }

    /// Initializes parameters; values depend only on the seed and their names.
    ///
    /// # Errors
    /// When the device fails.
    pub fn init_params(&mut self, tables: &Dataflow, seed: u64) -> Result<()> {
        for (index, decl) in tables.params.iter().enumerate().take(self.num_params) {
            let draw = Initializer::of(decl, |dim| extent(&self.data, dim));
            let mut numbers = vec![0.0; self.params[index].1];
            self.pool.install(|| draw.fill_all(seed, &mut numbers));
            self.set_param(index, &numbers)?;
        }
        Ok(())
    }

    /// Data bound to the programs: graphs, labels and splits.
    pub fn data(&self) -> &BoundData {
        &self.data
    }

    /// Allocated device memory by purpose.
    pub fn memory(&self) -> DeviceMemory {
        self.memory
    }

    /// Planned memory of one program as if it ran alone, or of all.
    pub fn arena(&self, program: Option<usize>) -> Arena {
        arena(&self.needs, program)
    }

    /// Device that runs the programs.
    pub fn device(&self) -> &dyn Device {
        &self.device
    }
}
