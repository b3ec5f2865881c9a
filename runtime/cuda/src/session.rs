//! A device as a back end of training: see [`hgnnc_session`].

use std::collections::HashMap;
use std::sync::Arc;

use hgnnc_data::buffer::{Alias, HostBuffer, SharedBuffer};
use hgnnc_data::metrics::Tally;
use hgnnc_data::{Arena, BoundData, ExecError, Result, StateId};
use hgnnc_executable::gpu::{GpuCompiler, Target};
use hgnnc_executable::{Executable, Role};
use hgnnc_ir::dataflow::Dataflow;
use hgnnc_ir::training::Task;
use hgnnc_kernel_ir::kernel::Program;
use hgnnc_session::{
    Backend, Clock, MemoryNeeded, ParamStore, PlannedSession, RowStore, Rows, Session, StepKey, TableRows,
};
use hgnnc_trace::Times;

use crate::plan::{Compiled, DeviceMemory};
use crate::rows::{DeviceRows, RowCopy};
use crate::{Device, DeviceEngine, F32, SharedDevice};

/// Matrices of rows for mini-batches take at most this part of the free memory together: the rest is for values of batches,
/// evaluations and scores.
const SHARE_OF_ROWS: u64 = 4;

/// A device, and the programs of an executable for it.
#[derive(Debug)]
pub struct DeviceBackend {
    device: SharedDevice,
    compiler: &'static dyn GpuCompiler,
    target: Target,
    programs: HashMap<Role, Program>,
    pool: Arc<rayon::ThreadPool>,
}

impl DeviceBackend {
    /// A back end on a device. `pool` are the threads of this process.
    pub fn new(
        executable: &Executable,
        device: impl Into<SharedDevice>,
        (compiler, target): (&'static dyn GpuCompiler, Target),
        pool: Arc<rayon::ThreadPool>,
    ) -> Self {
        let programs = Role::ALL.into_iter().filter_map(|role| Some((role, executable.kernels(role)?.clone())));
        Self { device: device.into(), compiler, target, programs: programs.collect(), pool }
    }

    fn programs(&self, roles: &[Role]) -> Result<Vec<&Program>> {
        let missing = |role: Role| ExecError::Unsupported(format!("internal error: no program for {role:?}"));
        roles.iter().map(|&role| self.programs.get(&role).ok_or_else(|| missing(role))).collect()
    }
}

impl Backend for DeviceBackend {
    fn name(&self) -> String {
        self.device.name()
    }

    fn pool(&self) -> &Arc<rayon::ThreadPool> {
        &self.pool
    }

    fn takes_orders(&self) -> bool {
        false
    }

    fn reads_host_memory(&self) -> bool {
        false
    }

    fn zero_rows(&mut self, sizes: &[(usize, usize)]) -> Result<Vec<Arc<dyn RowStore>>> {
        let bytes: usize = sizes.iter().map(|(rows, width)| F32 * rows * width).sum();
        if self.device.free_bytes().is_some_and(|free| bytes as u64 > free / SHARE_OF_ROWS) {
            return Ok(vec![]);
        }
        sizes.iter().map(|&size| Ok(Arc::new(DeviceRows::zeros(&self.device, size)?) as _)).collect()
    }

    fn free_memory(&self) -> Option<(&'static str, u64)> {
        Some(("the free memory of the device", self.device.free_bytes()?))
    }

    fn plan(&mut self, roles: &[Role], mut data: BoundData, _room: Option<u64>) -> Result<Box<dyn PlannedSession>> {
        let programs = self.programs(roles)?;
        let compile = || Compiled::new(&programs, &mut data, (self.compiler, self.target));
        let compiled = self.pool.install(compile)?;
        let programs = programs.into_iter().cloned().collect();
        let (device, pool) = (self.device.clone(), Arc::clone(&self.pool));
        Ok(Box::new(PlannedEngine { programs, compiled, data, device, compiler: self.compiler, pool }))
    }
}

/// An engine before its memory is allocated.
struct PlannedEngine {
    programs: Vec<Program>,
    compiled: Compiled,
    data: BoundData,
    device: SharedDevice,
    compiler: &'static dyn GpuCompiler,
    pool: Arc<rayon::ThreadPool>,
}

impl PlannedSession for PlannedEngine {
    fn memory(&self) -> MemoryNeeded {
        let DeviceMemory { params, states, data, .. } = self.compiled.memory;
        let arenas = (0..self.programs.len()).map(|program| self.compiled.arena(Some(program))).collect();
        MemoryNeeded { arenas, all: self.compiled.arena(None), params, states, data }
    }

    fn data(&self) -> &BoundData {
        &self.data
    }

    fn into_data(self: Box<Self>) -> BoundData {
        self.data
    }

    fn open(self: Box<Self>) -> Result<Box<dyn Session>> {
        let Self { programs, compiled, data, device, compiler, pool } = *self;
        Ok(Box::new(DeviceEngine::planned(programs, compiled, data, (device, compiler), pool)?))
    }
}

/// A result of a program, copied to host memory.
#[derive(Debug)]
pub(super) struct Fetched {
    program: usize,
    name: String,
    /// Whether the copy is of the last run of the program.
    fresh: bool,
    width: usize,
    numbers: Vec<f32>,
}

impl Session for DeviceEngine {
    fn data(&self) -> &BoundData {
        DeviceEngine::data(self)
    }

    fn load(&mut self, data: BoundData, inputs: &mut [HostBuffer]) -> Result<BoundData> {
        let pool = Arc::clone(&self.pool);
        pool.install(|| self.rebind(data, inputs))
    }

    fn run(&mut self, program: usize, StepKey { seed, step, epoch }: StepKey, times: &mut Times) -> Result<()> {
        for result in &mut self.fetched {
            result.fresh = false;
        }
        match self.timed {
            false => self.run_until_update(program, seed, step, epoch),
            true => self.time_until_update(program, (seed, step, epoch), times),
        }
    }

    fn update(&mut self, program: usize, _key: StepKey, times: &mut Times) -> Result<()> {
        if self.timed {
            return self.time_updates(program, times);
        }
        self.run_updates(program)?;
        self.commit(program)
    }

    fn gather_tables(&mut self, _program: usize, tables: &[TableRows<'_>]) -> Result<()> {
        self.copy_tables(RowCopy::Gather, tables)
    }

    fn update_tables(
        &mut self,
        program: usize,
        key: StepKey,
        tables: &[TableRows<'_>],
        times: &mut Times,
    ) -> Result<()> {
        Session::update(self, program, key, times)?;
        self.copy_tables(RowCopy::Scatter, tables)
    }

    fn results(&self, program: usize) -> Vec<&str> {
        DeviceEngine::results(self, program)
    }

    fn fetch(&mut self, program: usize, name: &str) -> Result<()> {
        let is_asked = |result: &Fetched| result.program == program && result.name == name;
        let known = self.fetched.iter().position(is_asked);
        let at = known.unwrap_or_else(|| {
            self.fetched.push(Fetched { program, name: name.into(), fresh: false, width: 0, numbers: vec![] });
            self.fetched.len() - 1
        });
        if self.fetched[at].fresh {
            return Ok(());
        }
        let mut numbers = std::mem::take(&mut self.fetched[at].numbers);
        let read = self.read_result(program, name, &mut numbers);
        let result = &mut self.fetched[at];
        result.numbers = numbers;
        if let Some((_, width)) = read? {
            (result.fresh, result.width) = (true, width);
        }
        Ok(())
    }

    fn result(&self, program: usize, name: &str) -> Option<Rows<'_>> {
        let wanted = |result: &&Fetched| result.fresh && result.program == program && result.name == name;
        // Vertices are in the order of the dataset.
        let found = self.fetched.iter().find(wanted)?;
        Some(Rows { width: found.width, vertex: None, numbers: &found.numbers })
    }

    fn write_input(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        DeviceEngine::write_input(self, index, numbers)
    }

    fn input(&self, _index: usize) -> Option<Vec<f32>> {
        None
    }

    fn shared_input(&self, _index: usize) -> Option<SharedBuffer> {
        None
    }

    fn rows_of_input(&mut self, index: usize) -> Option<Arc<dyn RowStore>> {
        DeviceEngine::rows_of_input(self, index).map(|rows| Arc::new(rows) as _)
    }

    fn take_rows_of(&mut self, index: usize, store: Arc<dyn RowStore>) {
        DeviceEngine::take_rows_of(self, index, store);
    }

    fn params(&mut self) -> &mut dyn ParamStore {
        self
    }

    fn arena(&self, program: Option<usize>) -> Arena {
        DeviceEngine::arena(self, program)
    }

    fn device_bytes(&self) -> u64 {
        self.memory().bytes()
    }

    fn clock(&self) -> Clock {
        Clock::Launches
    }

    fn time_launches(&mut self, timed: bool) {
        self.timed = timed;
    }

    fn elapsed_ms(&mut self) -> Result<Option<f64>> {
        DeviceEngine::elapsed_ms(self)
    }

    fn count_result(&mut self, program: usize, name: &str, task: Task) -> Result<()> {
        DeviceEngine::count_result(self, program, name, task)
    }

    fn count(&mut self, part: usize, tally: &mut Tally) -> Result<bool> {
        DeviceEngine::count(self, part, tally)
    }
}

impl ParamStore for DeviceEngine {
    fn num_params(&self) -> usize {
        DeviceEngine::num_params(self)
    }

    fn len(&self, index: usize) -> usize {
        self.param_len(index)
    }

    fn read(&mut self, index: usize, into: &mut [f32]) -> Result<()> {
        self.read_param(index, into)
    }

    fn write(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        self.set_param(index, numbers)
    }

    fn states(&self) -> &[StateId] {
        DeviceEngine::states(self)
    }

    fn read_state(&mut self, index: usize) -> Result<Vec<f32>> {
        self.state(index)
    }

    fn write_state(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        self.set_state(index, numbers)
    }

    fn init(&mut self, tables: &Dataflow, seed: u64) -> Result<()> {
        self.init_params(tables, seed)
    }

    fn are_finite(&mut self) -> Option<bool> {
        None
    }

    fn share(&mut self, _index: usize) -> Option<Alias> {
        None
    }

    fn rows_of_table(&mut self, index: usize, width: usize) -> Option<Arc<dyn RowStore>> {
        Some(Arc::new(self.rows_of_param(index, width)))
    }

    fn gather_rows(&mut self, array: usize, rows: &[u32], from: &dyn RowStore) -> Result<()> {
        self.copy_tables(RowCopy::Gather, &[TableRows { array, rows, store: from }])
    }

    fn scatter_rows(&mut self, array: usize, rows: &[u32], to: &dyn RowStore) -> Result<()> {
        self.copy_tables(RowCopy::Scatter, &[TableRows { array, rows, store: to }])
    }

    fn keep_best(&mut self) -> Result<bool> {
        DeviceEngine::keep_best(self)
    }

    fn restore_best(&mut self) -> Result<()> {
        DeviceEngine::restore_best(self)
    }

    fn read_best(&mut self, index: usize, into: &mut [f32]) -> Result<()> {
        DeviceEngine::read_best(self, index, into)
    }

    fn write_best(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        self.set_best(index, numbers)
    }
}
