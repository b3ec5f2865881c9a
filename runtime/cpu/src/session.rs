//! The CPU as a back end of training: see [`hgnnc_session`].

use std::sync::Arc;

use hgnnc_data::buffer::{Alias, HostBuffer, SharedBuffer};
use hgnnc_data::stacks::ParamPlace;
use hgnnc_data::tables::check_given;
use hgnnc_data::{Arena, BoundData, ExecError, InputData, Result, StateId};
use hgnnc_dist::Comm;
use hgnnc_executable::cpu::{CpuProgram, CpuPrograms};
use hgnnc_executable::{Executable, Role};
use hgnnc_ir::Space;
use hgnnc_ir::dataflow::Dataflow;
use hgnnc_kernel_ir::loops::VerifiedLoops;
use hgnnc_kernels::simd::Dispatch;
use hgnnc_session::{
    Backend, Exchanged, MemoryNeeded, ParamStore, PlannedSession, RowStore, Rows, Session, StepKey, TableRows,
};
use hgnnc_trace::{Times, os};
use rayon::prelude::*;

use crate::engine::Engine;
use crate::exchange::Exchanger;
use crate::exec_plan::{EngineOptions, ExecPlan};
use crate::slabs::Slab;

/// Programs with machine code for this CPU, and the threads that run them.
#[derive(Debug)]
pub struct CpuBackend {
    model: String,
    programs: Option<CpuPrograms>,
    pool: Arc<rayon::ThreadPool>,
    options: EngineOptions,
    /// The other ranks, for programs of several.
    comm: Option<Arc<dyn Comm>>,
}

impl CpuBackend {
    /// A back end that runs the programs of an executable on the threads of a pool ([`crate::thread_pool`]).
    pub fn new(executable: &Executable, pool: Arc<rayon::ThreadPool>, options: EngineOptions) -> Self {
        Self { model: executable.model.clone(), programs: executable.cpu.clone(), pool, options, comm: None }
    }

    /// The back end of a rank of several, for programs that exchange rows ([`hgnnc_ir::ranks`]).
    pub fn with_ranks(self, comm: Arc<dyn Comm>) -> Self {
        Self { comm: Some(comm), ..self }
    }

    fn programs(&self, roles: &[Role]) -> Result<Vec<&CpuProgram>> {
        let no_code = || ExecError::Unsupported(format!("no code for a processor was generated for `{}`", self.model));
        let programs = self.programs.as_ref().ok_or_else(no_code)?;
        let missing = |role: Role| ExecError::Unsupported(format!("internal error: no program for {role:?}"));
        roles.iter().map(|&role| programs.program(role).ok_or_else(|| missing(role))).collect()
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> String {
        "cpu".into()
    }

    fn pool(&self) -> &Arc<rayon::ThreadPool> {
        &self.pool
    }

    fn takes_orders(&self) -> bool {
        true
    }

    fn free_memory(&self) -> Option<(&'static str, u64)> {
        Some(("the free memory of this machine", os::free_bytes()?))
    }

    fn plan(&mut self, roles: &[Role], mut data: BoundData, room: Option<u64>) -> Result<Box<dyn PlannedSession>> {
        let programs: Vec<CpuProgram> = self.programs(roles)?.into_iter().cloned().collect();
        let loops: Vec<&VerifiedLoops> = programs.iter().map(|program| &*program.loops).collect();
        let exec_plan = ExecPlan::new(&loops, &mut data, &self.pool, EngineOptions { room, ..self.options })?;
        let (pool, dispatch, comm) = (Arc::clone(&self.pool), self.options.dispatch, self.comm.clone());
        Ok(Box::new(PlannedEngine { programs, exec_plan, data, pool, comm, dispatch }))
    }
}

/// An engine before its memory is allocated.
struct PlannedEngine {
    programs: Vec<CpuProgram>,
    exec_plan: ExecPlan,
    data: BoundData,
    pool: Arc<rayon::ThreadPool>,
    comm: Option<Arc<dyn Comm>>,
    dispatch: Dispatch,
}

impl PlannedSession for PlannedEngine {
    fn memory(&self) -> MemoryNeeded {
        self.exec_plan.memory(&self.data)
    }

    fn data(&self) -> &BoundData {
        &self.data
    }

    fn into_data(self: Box<Self>) -> BoundData {
        self.data
    }

    fn open(self: Box<Self>) -> Result<Box<dyn Session>> {
        let Self { programs, exec_plan, data, pool, comm, dispatch } = *self;
        let programs: Vec<&CpuProgram> = programs.iter().collect();
        let engine = Engine::planned(&programs, exec_plan, data, (pool, comm), dispatch);
        engine.check_ranks()?;
        Ok(Box::new(engine))
    }
}

impl Session for Engine {
    fn data(&self) -> &BoundData {
        &self.data
    }

    fn load(&mut self, data: BoundData, inputs: &mut [HostBuffer]) -> Result<BoundData> {
        self.needs_prelude = true;
        self.rebind(data, inputs)
    }

    fn run(&mut self, program: usize, StepKey { seed, step, epoch }: StepKey, times: &mut Times) -> Result<()> {
        if std::mem::take(&mut self.needs_prelude) {
            for program in 0..self.plans.len() {
                self.run_prelude(program, times);
            }
        }
        self.run_until_update(program, seed, step, epoch, times);
        self.check_ranks()
    }

    fn update(&mut self, program: usize, key: StepKey, times: &mut Times) -> Result<()> {
        self.run_updates(program, key.seed, key.step, times);
        let nanos = self.commit(program);
        times.add_update(nanos);
        self.check_ranks()
    }

    fn gather_tables(&mut self, program: usize, tables: &[TableRows<'_>]) -> Result<()> {
        self.gather_tables_before_run(program, tables)
    }

    fn update_tables(
        &mut self,
        program: usize,
        key: StepKey,
        tables: &[TableRows<'_>],
        times: &mut Times,
    ) -> Result<()> {
        self.update_tables_in_blocks(program, key, tables, times)
    }

    fn results(&self, program: usize) -> Vec<&str> {
        Engine::results(self, program).iter().map(|named| &named.name[..]).collect()
    }

    fn fetch(&mut self, _program: usize, _name: &str) -> Result<()> {
        Ok(())
    }

    fn result(&self, program: usize, name: &str) -> Option<Rows<'_>> {
        let (named, numbers) = Engine::result(self, program, name)?;
        let vertex = match named.ty.space {
            Space::Vertices(vertex) => Some(vertex),
            Space::Unit | Space::Edges(_) | Space::Index(_) | Space::Endpoints(..) => None,
        };
        Some(Rows { width: named.width, vertex, numbers })
    }

    fn write_input(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        check_given(&self.data, index, numbers.len())?;
        let pool = Arc::clone(&self.pool);
        let into = self.slabs[Slab::Input(index)].elements();
        copy(numbers, into, &pool);
        Ok(())
    }

    fn input(&self, index: usize) -> Option<Vec<f32>> {
        match (self.frozen_input(index), self.data.inputs.get(index)?) {
            (Some(numbers), _) => Some(numbers.to_vec()),
            (None, InputData::Numbers(numbers)) => Some(numbers.to_vec()),
            (None, InputData::Classes(classes)) => Some(classes.iter().map(|&class| class as f32).collect()),
            (None, _) => None,
        }
    }

    fn shared_input(&self, index: usize) -> Option<SharedBuffer> {
        self.frozen_input(index)
    }

    fn params(&mut self) -> &mut dyn ParamStore {
        self
    }

    fn exchanged(&self) -> Exchanged {
        self.exchanged_so_far()
    }

    fn arena(&self, program: Option<usize>) -> Arena {
        Engine::arena(self, program)
    }
}

impl Engine {
    /// The error of an exchange with other ranks, if one has failed.
    fn check_ranks(&self) -> Result<()> {
        self.exchanger.as_ref().map_or(Ok(()), Exchanger::check)
    }

    /// The memory of a parameter, or of an optimizer state after all parameters.
    fn array(&mut self, array: usize) -> &mut HostBuffer {
        let slab = self.slab_of(array);
        &mut self.slabs[slab]
    }
}

impl ParamStore for Engine {
    fn num_params(&self) -> usize {
        self.num_params
    }

    fn len(&self, index: usize) -> usize {
        self.param_len(index)
    }

    fn read(&mut self, index: usize, into: &mut [f32]) -> Result<()> {
        self.read_param(index, into);
        Ok(())
    }

    fn write(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        self.set_param(index, numbers);
        Ok(())
    }

    fn write_own(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        self.set_own_param(index, numbers);
        Ok(())
    }

    fn states(&self) -> &[StateId] {
        &self.states
    }

    fn read_state(&mut self, index: usize) -> Result<Vec<f32>> {
        let mut numbers = vec![0.0; self.state_slab(index).len()];
        Engine::read_state(self, index, &mut numbers);
        Ok(numbers)
    }

    fn write_state(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        self.set_state(index, numbers);
        Ok(())
    }

    fn init(&mut self, tables: &Dataflow, seed: u64) -> Result<()> {
        self.init_params(tables, seed);
        Ok(())
    }

    fn are_finite(&mut self) -> Option<bool> {
        Some((0..self.num_params).all(|index| are_finite(self.param(index))))
    }

    fn share(&mut self, index: usize) -> Option<Alias> {
        let ParamPlace { home, offset, len } = self.places[index];
        let slab = &self.slabs[Slab::Param(home.index())];
        self.rows_are_in_order(index).then(|| slab.alias_part(offset..offset + len))
    }

    fn gather_rows(&mut self, array: usize, rows: &[u32], from: &dyn RowStore) -> Result<()> {
        let pool = Arc::clone(&self.pool);
        let into = &mut self.array(array).elements()[..rows.len() * from.width()];
        pool.install(|| from.gather(rows, into))
    }

    fn scatter_rows(&mut self, array: usize, rows: &[u32], to: &dyn RowStore) -> Result<()> {
        let pool = Arc::clone(&self.pool);
        let from = &self.array(array).view()[..rows.len() * to.width()];
        pool.install(|| to.scatter(rows, from))
    }
}

/// Copies elements, on the threads of a pool if there are many.
fn copy(from: &[f32], into: &mut [f32], pool: &rayon::ThreadPool) {
    const PART: usize = 1 << 18;
    if from.len() <= PART || pool.current_num_threads() == 1 {
        into.copy_from_slice(from);
        return;
    }
    let parts = into.par_chunks_mut(PART).zip(from.par_chunks(PART));
    pool.install(|| parts.for_each(|(into, from)| into.copy_from_slice(from)));
}

/// Whether all elements are finite. Reads all of them without branches, so that the loop vectorizes.
fn are_finite(numbers: &[f32]) -> bool {
    let magnitude = |x: &f32| x.to_bits() & (u32::MAX >> 1);
    numbers.chunks(1 << 12).all(|chunk| chunk.iter().map(magnitude).fold(0, u32::max) < f32::INFINITY.to_bits())
}
