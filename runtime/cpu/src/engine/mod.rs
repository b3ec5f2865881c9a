//! CPU engine: programs bound to data and memory, ready to run.

mod params;
mod rebind;
mod row_tables;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use hgnnc_data::buffer::{HostBuffer, PerThread, SharedBuffer};
use hgnnc_data::stacks::ParamPlace;
use hgnnc_data::tables::drop_unused_edges;
use hgnnc_data::{Arena, BoundData, InputData, Result, StateId};
use hgnnc_dist::Comm;
use hgnnc_executable::cpu::{CpuProgram, MachineCode};
use hgnnc_ir::dataflow::ParamDecl;
use hgnnc_ir::types::{Dim, VertexType};
use hgnnc_ir::{EdgeShare, VertexRows};
use hgnnc_kernel_ir::kernel::Program;
use hgnnc_kernel_ir::loops::{self};
use hgnnc_kernels::simd::Dispatch;
use hgnnc_session::{Exchanged, StepKey};
use hgnnc_trace::{Counting, KernelSpan, Spans, Times, Trace};
use rayon::prelude::*;

use crate::block::{CacheResidentReplay, Context, Scratch};
use crate::exchange::Exchanger;
use crate::exec_plan::{EngineOptions, ExecPlan, arena_of, thread_pool};
use crate::launch::Runner;
use crate::plan::{Plan, ResultBuffer, Update};
use crate::schedule::Schedules;
use crate::slabs::{EngineSlabs, Slab};
use crate::step_times::{Clock, StepTime};
use row_tables::{UpdatedTable, block_tables};

/// Programs with shared tables, their parameters, optimizer states and data.
#[derive(Debug)]
pub struct Engine {
    pub(crate) plans: Vec<Plan>,
    /// Schedules of each plan's prelude and steps; empty for steps that are not regions.
    pub(crate) schedules: Vec<Schedules>,
    /// The programs, to be planned again for other data.
    programs: Vec<Arc<loops::VerifiedLoops>>,
    /// Machine code of each program.
    codes: Vec<Arc<MachineCode>>,
    pub(crate) dispatch: Dispatch,
    pub(crate) slabs: EngineSlabs,
    pub(crate) data: BoundData,
    pub(crate) states: Vec<StateId>,
    /// Number of parameters of the model; stacks of them follow.
    pub(crate) num_params: usize,
    /// The memory of each parameter.
    pub(crate) places: Vec<ParamPlace>,
    /// Per parameter, the vertex type of its rows if it is an embedding table.
    row_types: Vec<Option<VertexType>>,
    pub(crate) scratch: PerThread<Scratch>,
    pub(crate) pool: Arc<rayon::ThreadPool>,
    /// Whether the run-independent values are those of earlier data.
    pub(crate) needs_prelude: bool,
    /// Accumulated times of each program.
    clocks: Vec<Clock>,
    /// Active trace, if any.
    trace: Option<Trace>,
    /// Active cache-resident replay, if any.
    replay: Option<CacheResidentReplay>,
    /// Nanoseconds per step of the current launch.
    pub(crate) busy: Vec<AtomicU64>,
    /// The other ranks, if the programs are those of several.
    pub(crate) exchanger: Option<Exchanger>,
    /// Copies of [`Engine::commit`] after a run of each program.
    pub(crate) copies: Vec<Vec<(Update, Range<usize>)>>,
}

/// Part of a program to run.
enum Part {
    /// Steps that are independent of the run.
    Prelude,
    /// Steps of each run.
    Steps(Range<usize>),
}

impl Engine {
    /// Plans the programs, allocates their memory, and runs the prelude. Parameters and states are zero.
    ///
    /// # Errors
    /// Data that does not fit the programs, or an operation that cannot be executed.
    pub fn new(programs: &[&CpuProgram], mut data: BoundData, options: EngineOptions) -> Result<Self> {
        let pool = thread_pool(options.threads)?;
        let loops: Vec<&loops::VerifiedLoops> = programs.iter().map(|program| &*program.loops).collect();
        let exec_plan = ExecPlan::new(&loops, &mut data, &pool, options)?;
        Ok(Self::planned(programs, exec_plan, data, (pool, None), options.dispatch))
    }

    /// Allocates the memory of planned programs, and runs the prelude, on the threads of a pool ([`thread_pool`]), together
    /// with the other ranks, if there are any.
    pub(crate) fn planned(
        programs: &[&CpuProgram],
        exec_plan: ExecPlan,
        mut data: BoundData,
        (pool, comm): (Arc<rayon::ThreadPool>, Option<Arc<dyn Comm>>),
        dispatch: Dispatch,
    ) -> Self {
        let loops: Vec<&loops::VerifiedLoops> = programs.iter().map(|program| &*program.loops).collect();
        let kernels: Vec<&Program> = loops.iter().map(|program| &program.kernels).collect();
        drop_unused_edges(&kernels, &mut data);
        let ExecPlan { plans, schedules, states, places, num_params, slabs: layout, scratch_len, .. } = exec_plan;
        let most = |f: fn(&Plan) -> usize| plans.iter().map(f).max().unwrap_or(0);
        let (arena, partials) = (most(|p| p.arena_len), most(|p| p.partials_len));
        let own_len = |(i, place): (usize, &ParamPlace)| if place.home.index() == i { place.len } else { 0 };

        let mut slabs = vec![HostBuffer::zeros(arena), HostBuffer::zeros(partials), HostBuffer::zeros(2)];
        for plan in &plans {
            slabs.push(HostBuffer::zeros(plan.persistent_len));
            slabs.push(HostBuffer::of(&plan.constants));
        }
        let state_lens = states.iter().map(|s| places[s.0.index()].len);
        slabs.extend(HostBuffer::zeros_each(places.iter().enumerate().map(own_len).chain(state_lens)));
        let mut slabs = EngineSlabs::new(layout, slabs);
        for input in &mut data.inputs {
            slabs.push_input(match input {
                // The buffer replaces the vector, so the elements are not stored twice.
                InputData::Numbers(numbers) => {
                    let slab = HostBuffer::of(numbers);
                    numbers.release_pages();
                    *input = InputData::Held(slab.len());
                    slab
                }
                InputData::Held(_)
                | InputData::Rows(_)
                | InputData::Classes(_)
                | InputData::StepNumber
                | InputData::EpochNumber
                | InputData::Missing => HostBuffer::zeros(0),
            });
        }
        let most = plans.iter().flat_map(|plan| [&plan.prelude, &plan.steps]).map(Vec::len).max().unwrap_or(0);
        let copies = plans.iter().map(copies).collect();
        let scratch = PerThread::new(pool.current_num_threads(), || Scratch::new(&plans, &schedules, scratch_len));
        let mut engine = Self {
            plans,
            schedules,
            codes: programs.iter().map(|program| Arc::clone(&program.code)).collect(),
            programs: programs.iter().map(|program| Arc::clone(&program.loops)).collect(),
            dispatch,
            slabs,
            data,
            states,
            num_params,
            places,
            row_types: row_types(&loops),
            scratch,
            pool,
            exchanger: comm.map(Exchanger::new),
            copies,
            needs_prelude: false,
            clocks: vec![],
            trace: None,
            replay: None,
            busy: std::iter::repeat_with(AtomicU64::default).take(most).collect(),
        };
        engine.forget_times();
        for program in 0..engine.plans.len() {
            engine.run_prelude(program, &mut Times::default());
        }
        engine
    }

    /// Runs the prelude: values that are independent of the run.
    pub fn run_prelude(&mut self, program: usize, times: &mut Times) {
        self.execute(program, Part::Prelude, (0, 0), &[], times);
    }

    /// Runs a program. Dropout masks are functions of (seed, step); steps count from 1, epochs from 0. For a program
    /// that updates parameters, use [`Engine::run_until_update`] if its results are needed.
    pub fn run(&mut self, program: usize, seed: u64, step: u64, epoch: u64, times: &mut Times) {
        self.run_until_update(program, seed, step, epoch, times);
        self.run_updates(program, seed, step, times);
    }

    /// Runs a program up to the first step that may overwrite a parameter or a state. All results are available then,
    /// and no parameter has changed.
    pub fn run_until_update(&mut self, program: usize, seed: u64, step: u64, epoch: u64, times: &mut Times) {
        self.data.shuffle(seed, step);
        let counters = self.slabs[Slab::Counters].elements();
        counters[0] = step as f32;
        counters[1] = epoch as f32;
        self.clocks[program].runs += 1;
        if let Some(Trace::Counts(counting)) = &mut self.trace {
            counting.runs += 1;
        }
        let end = self.plans[program].first_update;
        self.execute(program, Part::Steps(0..end), (seed, step), &[], times);
    }

    /// Runs the rest of a program, for the same seed and step.
    pub fn run_updates(&mut self, program: usize, seed: u64, step: u64, times: &mut Times) {
        self.run_updates_of(program, StepKey { seed, step, epoch: 0 }, &[], times);
    }

    /// [`Engine::run_updates`], with tables that the blocks of their updates gather and scatter.
    fn run_updates_of(&mut self, program: usize, key: StepKey, tables: &[UpdatedTable<'_>], times: &mut Times) {
        let plan = &self.plans[program];
        let steps = plan.first_update..plan.steps.len();
        self.execute(program, Part::Steps(steps), (key.seed, key.step), tables, times);
    }

    fn execute(
        &mut self,
        program: usize,
        part: Part,
        (seed, step): (u64, u64),
        tables: &[UpdatedTable<'_>],
        times: &mut Times,
    ) {
        let plan = &self.plans[program];
        let layout = self.slabs.layout();
        let slabs = self.slabs.planned();
        let tables = block_tables(tables, &plan.steps, (slabs, layout));
        let [prelude, all] = &self.schedules[program];
        let (steps, schedules, first) = match &part {
            Part::Prelude => (&plan.prelude[..], &prelude[..], 0),
            Part::Steps(range) => (&plan.steps[range.clone()], &all[range.clone()], plan.prelude.len() + range.start),
        };
        let (Clock { nanos, waited, .. }, trace) = (&mut self.clocks[program], &mut self.trace);
        let runner = Runner {
            context: Context {
                slabs,
                ranges: &plan.ranges,
                data: &self.data,
                partials: layout.index(Slab::Partials),
                seed,
                step,
                dispatch: self.dispatch,
                code: &self.codes[program],
                tables: &tables,
                replay: self.replay.as_ref(),
            },
            scratch: &self.scratch,
            exchanger: self.exchanger.as_ref(),
        };
        self.pool.install(|| {
            let mut at = 0;
            while at < steps.len() {
                let launch = at..at + 1 + steps[at + 1..].iter().take_while(|step| step.together).count();
                let busy = &self.busy[..launch.len()];
                if let Some(Trace::Counts(counting)) = trace {
                    counting.begin();
                }
                let start = Instant::now();
                let spans = trace.as_ref().and_then(Trace::spans).map(|spans| (spans, first + at));
                let waits = runner.launch(&steps[launch.clone()], &schedules[launch.clone()], busy, spans);
                let end = Instant::now();
                // A wait for other ranks belongs to its step alone.
                let took = (end - start).as_nanos() as f64 - waits.iter().map(|wait| wait.1 as f64).sum::<f64>();
                // Steps that share a launch get the rest of its time in proportion to the time of their tasks.
                let total: u64 = busy.iter().map(|nanos| nanos.load(Relaxed)).sum();
                let share = |own: u64| if busy.len() == 1 { 1.0 } else { own as f64 / total.max(1) as f64 };
                match trace {
                    Some(Trace::Counts(counting)) => {
                        counting.end(busy.iter().zip(first + at..).map(|(own, step)| (step, share(own.load(Relaxed)))))
                    }
                    Some(Trace::Spans(spans)) => {
                        spans.launches.push(KernelSpan { first: first + at, steps: launch.len(), start, end });
                    }
                    None => {}
                }
                for (index, own) in launch.clone().zip(busy) {
                    let own = took * share(own.swap(0, Relaxed));
                    times.add(steps[index].phase, steps[index].shares, own);
                    nanos[first + index] += own;
                }
                for (index, wait) in waits {
                    let (step, wait) = (&steps[at + index], wait as f64);
                    times.add(step.phase, step.shares, wait);
                    nanos[first + at + index] += wait;
                    waited[first + at + index] += wait;
                }
                at = launch.end;
            }
        });
    }

    /// Runs programs on a cache-resident working set of about `bytes` from now on: each block accesses the first rows
    /// and edges of stored values, and gathers only as many rows as fit. It does the same work on other values, so
    /// results are garbage, but the time excludes memory stalls. Returns false and changes nothing with several
    /// threads, which would write the same rows.
    pub fn replay_in_cache(&mut self, bytes: usize) -> bool {
        let edges = self.plans.iter().map(|plan| plan.block_edges).max().unwrap_or(0);
        self.replay = (self.threads() == 1).then(|| CacheResidentReplay::new(bytes, edges));
        self.replay.is_some()
    }

    /// Resets all step times.
    pub fn forget_times(&mut self) {
        self.clocks = self.plans.iter().map(Clock::new).collect();
    }

    /// Time of each step of a run since [`Engine::forget_times`], in program order.
    pub fn step_times(&self, program: usize) -> Vec<StepTime<'_>> {
        self.all_step_times(program).split_off(self.plans[program].prelude.len())
    }

    /// [`Engine::step_times`] preceded by the steps of the prelude, which an engine that is rebound for each
    /// run executes each time.
    pub fn all_step_times(&self, program: usize) -> Vec<StepTime<'_>> {
        let (clock, plan) = (&self.clocks[program], &self.plans[program]);
        let steps = plan.prelude.iter().chain(&plan.steps).zip(clock.nanos.iter().zip(&clock.waited));
        let time = |(step, (&nanos, &waited))| StepTime { step, ms: clock.ms(nanos), waited_ms: clock.ms(waited) };
        steps.map(time).collect()
    }

    /// Mean milliseconds of [`Engine::commit`] per run.
    pub fn commit_ms(&self, program: usize) -> f64 {
        self.clocks[program].ms(self.clocks[program].commit)
    }

    /// Starts recording task and kernel spans.
    pub fn trace_spans(&mut self) {
        self.trace = Some(Trace::Spans(Spans::new(self.threads())));
    }

    /// Starts counting hardware events in the steps of a program.
    pub fn trace_counters(&mut self, program: usize) {
        let plan = &self.plans[program];
        self.trace = Some(Trace::Counts(Counting::new(&self.pool, plan.prelude.len() + plan.steps.len())));
    }

    /// Ends tracing and returns the trace.
    pub fn end_trace(&mut self) -> Option<Trace> {
        self.trace.take()
    }

    /// Makes the new parameters and states of the last run of a program current. Returns the nanoseconds that it took.
    pub fn commit(&mut self, program: usize) -> f64 {
        let start = Instant::now();
        // The buffers of an update are different, the vertices of its rows are distinct, and every range of every target
        // is written once.
        let (slabs, threads) = (self.slabs.planned(), self.pool.current_num_threads());
        let copy = |(Update { target, from, rows }, range): &(Update, Range<usize>)| {
            if let Some((topology, direction, width)) = *rows {
                // Rows of active vertices are scattered to the rows of their vertices.
                let ends = &self.data.topology(topology).endpoints(direction).vertices;
                for (row, &vertex) in ends.iter().enumerate().take(range.end / width).skip(range.start / width) {
                    let source = slabs.read(from.slab, from.offset + row * width, width);
                    slabs.write(*target, vertex as usize * width, width).copy_from_slice(source);
                }
                return;
            }
            let source = slabs.read(from.slab, from.offset + range.start, range.len());
            slabs.write(*target, range.start, range.len()).copy_from_slice(source);
        };
        let parts = &self.copies[program];
        if threads == 1 || parts.len() == self.plans[program].updates.len() {
            parts.iter().for_each(copy);
        } else {
            self.pool.install(|| parts.par_iter().for_each(copy));
        }
        let nanos = start.elapsed().as_nanos() as f64;
        self.clocks[program].commit += nanos;
        nanos
    }

    /// Results of a program by name.
    pub fn results(&self, program: usize) -> &[ResultBuffer] {
        &self.plans[program].results
    }

    /// A result of the last run of a program; invalid after another run.
    pub fn result(&self, program: usize, name: &str) -> Option<(&ResultBuffer, &[f32])> {
        let named = self.plans[program].results.iter().find(|r| r.name == name)?;
        Some((named, self.slabs.of(named.buffer)))
    }

    /// Execution plan of a program.
    pub fn plan(&self, program: usize) -> &Plan {
        &self.plans[program]
    }

    /// Data bound to the programs: graphs, labels and splits. Input elements have moved to the engine.
    pub fn data(&self) -> &BoundData {
        &self.data
    }

    /// Number and bytes of functions of machine code, if any.
    pub fn code(&self) -> Option<(usize, usize)> {
        let functions: usize = self.codes.iter().map(|code| code.entries.len()).sum();
        (functions > 0).then(|| (functions, self.codes.iter().map(|code| code.bytes).sum()))
    }

    /// Thread pool. Launches from inside the pool avoid a hand-off each.
    pub fn pool(&self) -> Arc<rayon::ThreadPool> {
        Arc::clone(&self.pool)
    }

    /// Number of worker threads.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Number of parameters of the programs.
    pub fn num_params(&self) -> usize {
        self.num_params
    }

    /// Bytes, exchanges and waiting times with other ranks so far.
    pub fn exchanged_so_far(&self) -> Exchanged {
        self.exchanger.as_ref().map_or_else(Exchanged::default, Exchanger::exchanged)
    }

    /// Elements of a parameter.
    pub fn param(&mut self, index: usize) -> &mut [f32] {
        let ParamPlace { home, offset, len } = self.places[index];
        &mut self.slabs[Slab::Param(home.index())].elements()[offset..offset + len]
    }

    /// Number of elements of a parameter.
    pub fn param_len(&self, index: usize) -> usize {
        self.places[index].len
    }

    /// Buffer of a parameter that is no entry of a stack.
    pub fn param_slab(&self, index: usize) -> &HostBuffer {
        &self.slabs[Slab::Param(index)]
    }

    /// The slab of a parameter, or of the optimizer state with this number after all parameters.
    pub(crate) fn slab_of(&self, array: usize) -> Slab {
        match array.checked_sub(self.num_params) {
            None => Slab::Param(array),
            Some(state) => Slab::State(state),
        }
    }

    /// Buffer of an optimizer state.
    pub fn state_slab(&self, index: usize) -> &HostBuffer {
        &self.slabs[Slab::State(index)]
    }

    /// Elements of an input, shared with other threads; `None` if it has none. Not for engines that are rebound, which
    /// overwrite their input buffers.
    pub fn frozen_input(&self, index: usize) -> Option<SharedBuffer> {
        let InputData::Held(_) = self.data.inputs.get(index)? else { return None };
        Some(self.slabs.frozen_input(index))
    }

    /// Parameter and slot of each optimizer state.
    pub fn states(&self) -> &[StateId] {
        &self.states
    }

    /// Elements of an optimizer state.
    pub fn state(&mut self, index: usize) -> &mut [f32] {
        self.slabs[Slab::State(index)].elements()
    }

    /// Planned memory of one program as if it ran alone, or of all.
    pub fn arena(&self, program: Option<usize>) -> Arena {
        let range = program.map_or(0..self.plans.len(), |program| program..program + 1);
        arena_of(&self.plans[range.clone()], &self.schedules[range], self.threads())
    }
}

/// Per parameter, the vertex type of its rows if it is an embedding table.
fn row_types(programs: &[&loops::VerifiedLoops]) -> Vec<Option<VertexType>> {
    let Some(tables) = programs.first().map(|program| &program.kernels.tables) else { return vec![] };
    let of = |decl: &ParamDecl| match decl.dims.first() {
        Some(Dim::Count(vertex)) => Some(*vertex),
        Some(Dim::Fixed(_)) | None => None,
    };
    let mut types: Vec<Option<VertexType>> = tables.params.iter().map(of).collect();
    // Of several ranks, those that the rank owns.
    let are_of_dataset = |decl: &&ParamDecl| match of(decl).map(|vertex| tables.vertex_types[vertex.index()].rows) {
        Some(VertexRows::Cells(stack, _)) => {
            let first = tables.stacks[stack.index()].members[0];
            tables.graphs[first.index()].share == EdgeShare::All
        }
        _ => true,
    };
    // The rows of a stack are those of the dataset.
    for entry in tables.params.iter().filter(are_of_dataset).flat_map(|decl| &decl.entries) {
        types[entry.index()] = None;
    }
    types
}

/// Updates of a plan that are not in place; large ones are divided for the threads.
pub(crate) fn copies(plan: &Plan) -> Vec<(Update, Range<usize>)> {
    const PART: usize = 1 << 16;
    let copied = plan.updates.iter().filter(|update| update.target != update.from.slab);
    let parts = copied.flat_map(|&update| {
        // Divides only between rows.
        let width = update.rows.map_or(1, |(_, _, width)| width.max(1));
        let part = (PART / width).max(1) * width;
        (0..update.from.len).step_by(part).map(move |at| (update, at..update.from.len.min(at + part)))
    });
    parts.collect()
}
