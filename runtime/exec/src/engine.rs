//! Programs bound to data and memory, ready to run.

// Products read and write ranges of shared slabs; see `raw`.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use hgnnc_graph::order::Order;
use hgnnc_ir::dataflow::{Binding, Dataflow, OutputKind, ParamDecl};
use hgnnc_ir::kernel::{Body, Contents, Program, Rows};
use hgnnc_ir::ops::Direction;
use hgnnc_ir::types::{Dim, Graph, VertexType};
use rayon::prelude::*;

use crate::block::{Context, Fold, Scratch};
use crate::data::{BoundData, InputData};
use crate::error::{ExecError, Result};
use crate::init::Draw;
use crate::launch::Runner;
use crate::native::{self, CodeMode, Generator};
use crate::order::copy_rows;
use crate::plan::{Named, Plan, StateId, Update};
use crate::planned::{Arena, Planned};
use crate::raw::{Frozen, PerThread, Slab};
use crate::routine::Routines;
use crate::times::{Clock, StepTime, Times};
use crate::watch::{Counting, KernelSpan, Spans, Watch};

/// How to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineOptions {
    /// Number of threads; 0: one per processor.
    pub threads: usize,
    /// Refuse to start above this many bytes; `None`: the memory of the machine.
    pub memory_budget: Option<u64>,
    /// How chains of operations are executed.
    pub code: CodeMode,
}

/// Programs with the same tables, their parameters, optimiser states and data.
#[derive(Debug)]
pub struct Engine {
    pub(crate) plans: Vec<Plan>,
    /// Of each plan's prelude and steps; empty for steps that are no regions.
    pub(crate) routines: Vec<Routines>,
    /// Has made machine code of parts of chains.
    pub(crate) generator: Generator,
    pub(crate) slabs: Vec<Slab>,
    pub(crate) data: BoundData,
    pub(crate) states: Vec<StateId>,
    pub(crate) params: u32,
    pub(crate) num_params: usize,
    pub(crate) first_state: u32,
    /// The vertex type that a parameter has rows for.
    row_types: Vec<Option<VertexType>>,
    counters: u32,
    pub(crate) partials: u32,
    pub(crate) scratch: PerThread<Scratch>,
    pub(crate) pool: Arc<rayon::ThreadPool>,
    /// What each program took.
    clocks: Vec<Clock>,
    /// What is looked at while programs run, if anything.
    watch: Option<Watch>,
    /// Folds what programs touch, while that is measured.
    fold: Option<Fold>,
    /// Nanoseconds of the steps of one launch.
    pub(crate) busy: Vec<AtomicU64>,
    /// What [`Engine::commit`] copies after a run of each program.
    pub(crate) copies: Vec<Vec<(Update, Range<usize>)>>,
}

/// What of a program is run.
enum Part {
    /// What never changes.
    Prelude,
    /// Steps of each run.
    Steps(Range<usize>),
}

impl Engine {
    /// Plans the programs, checks that everything fits in memory, and computes what never changes.
    /// Parameters and states are zero.
    ///
    /// # Errors
    /// Data that does not fit the programs, an operation that cannot be executed, or too little memory.
    pub fn new(programs: &[&Program], mut data: BoundData, options: EngineOptions) -> Result<Self> {
        let planned = Planned::new(programs, &mut data, options)?;
        planned.check_memory(&data, options.memory_budget)?;
        let Planned { plans, routines, generator, pool, states, param_lens, params, first_state, scratch_len } =
            planned;
        let num_params = param_lens.len();
        let most = |f: fn(&Plan) -> usize| plans.iter().map(f).max().unwrap_or(0);
        let (arena, partials) = (most(|p| p.arena_len), most(|p| p.partials_len));
        let param_len = |i: usize| param_lens[i];

        let mut slabs = vec![Slab::zeros(arena), Slab::zeros(partials), Slab::zeros(2)];
        for plan in &plans {
            slabs.push(Slab::zeros(plan.persistent_len));
            slabs.push(Slab::of(&plan.constants));
        }
        let state_lens = states.iter().map(|s| param_len(s.0.index()));
        slabs.extend(Slab::zeros_each((0..num_params).map(param_len).chain(state_lens)));
        for input in &mut data.inputs {
            slabs.push(match input {
                // The slab replaces the numbers: they are not kept twice.
                InputData::Numbers(numbers) => {
                    let slab = Slab::of(numbers);
                    *input = InputData::Held(slab.len());
                    slab
                }
                InputData::Held(_)
                | InputData::Classes(_)
                | InputData::StepNumber
                | InputData::EpochNumber
                | InputData::Missing => Slab::zeros(0),
            });
        }
        let most = plans.iter().flat_map(|plan| [&plan.prelude, &plan.steps]).map(Vec::len).max().unwrap_or(0);
        let copies = plans.iter().map(copies).collect();
        let scratch = PerThread::new(pool.current_num_threads(), || Scratch::new(&plans, &routines, scratch_len));
        let mut engine = Self {
            plans,
            routines,
            generator,
            slabs,
            data,
            states,
            params,
            num_params,
            first_state,
            row_types: row_types(programs),
            counters: 2,
            partials: 1,
            scratch,
            pool: Arc::new(pool),
            copies,
            clocks: vec![],
            watch: None,
            fold: None,
            busy: std::iter::repeat_with(AtomicU64::default).take(most).collect(),
        };
        engine.forget_times();
        for program in 0..engine.plans.len() {
            engine.run_prelude(program, &mut Times::default());
        }
        Ok(engine)
    }

    /// Computes what never changes.
    pub(crate) fn run_prelude(&mut self, program: usize, times: &mut Times) {
        self.execute(program, Part::Prelude, 0, 0, times);
    }

    /// Runs a program. Masks are drawn for (seed, step); step numbers count from 1, epochs from 0. Of a program that
    /// updates parameters its results must be wanted: see [`Engine::run_until_update`].
    pub fn run(&mut self, program: usize, seed: u64, step: u64, epoch: u64, times: &mut Times) {
        self.run_until_update(program, seed, step, epoch, times);
        self.run_updates(program, seed, step, times);
    }

    /// Runs a program up to the first step that may write over a parameter or a state. All its results are there then,
    /// and nothing else has changed.
    pub fn run_until_update(&mut self, program: usize, seed: u64, step: u64, epoch: u64, times: &mut Times) {
        let counters = self.slabs[self.counters as usize].elements();
        counters[0] = step as f32;
        counters[1] = epoch as f32;
        self.clocks[program].runs += 1;
        if let Some(Watch::Counts(counting)) = &mut self.watch {
            counting.runs += 1;
        }
        let end = self.plans[program].first_update;
        self.execute(program, Part::Steps(0..end), seed, step, times);
    }

    /// Runs the rest of a program, for the same seed and step.
    pub fn run_updates(&mut self, program: usize, seed: u64, step: u64, times: &mut Times) {
        let plan = &self.plans[program];
        let steps = plan.first_update..plan.steps.len();
        self.execute(program, Part::Steps(steps), seed, step, times);
    }

    fn execute(&mut self, program: usize, part: Part, seed: u64, step: u64, times: &mut Times) {
        let plan = &self.plans[program];
        let [prelude, all] = &self.routines[program];
        let (steps, routines, first) = match &part {
            Part::Prelude => (&plan.prelude[..], &prelude[..], 0),
            Part::Steps(range) => (&plan.steps[range.clone()], &all[range.clone()], plan.prelude.len() + range.start),
        };
        let (nanos, watch) = (&mut self.clocks[program].nanos, &mut self.watch);
        let runner = Runner {
            context: Context {
                slabs: &self.slabs,
                data: &self.data,
                partials: self.partials,
                seed,
                step,
                code: self.generator.code(),
                fold: self.fold.as_ref(),
            },
            scratch: &self.scratch,
        };
        self.pool.install(|| {
            let mut at = 0;
            while at < steps.len() {
                let launch = at..at + 1 + steps[at + 1..].iter().take_while(|step| step.together).count();
                let busy = &self.busy[..launch.len()];
                if let Some(Watch::Counts(counting)) = watch {
                    counting.begin();
                }
                let start = Instant::now();
                let spans = watch.as_ref().and_then(Watch::spans).map(|spans| (spans, first + at));
                runner.launch(&steps[launch.clone()], &routines[launch.clone()], busy, spans);
                let end = Instant::now();
                let took = (end - start).as_nanos() as f64;
                // The steps of a launch share its time by what their tasks took.
                let total: u64 = busy.iter().map(|nanos| nanos.load(Relaxed)).sum();
                let share = |own: u64| if busy.len() == 1 { 1.0 } else { own as f64 / total.max(1) as f64 };
                match watch {
                    Some(Watch::Counts(counting)) => {
                        counting.end(busy.iter().zip(first + at..).map(|(own, step)| (step, share(own.load(Relaxed)))))
                    }
                    Some(Watch::Spans(spans)) => {
                        spans.launches.push(KernelSpan { first: first + at, steps: launch.len(), start, end });
                    }
                    None => {}
                }
                for (index, own) in launch.clone().zip(busy) {
                    let own = took * share(own.swap(0, Relaxed));
                    times.add(&steps[index], own);
                    nanos[first + index] += own;
                }
                at = launch.end;
            }
        });
    }

    /// From now on, runs programs with all that they touch folded into about `bytes`: each block works on the first rows and edges
    /// of what is stored, and reads through the ends of edges only as many rows as there is room for. It does the same work
    /// with other numbers, so results are worth nothing then, but the time says what programs take that wait for no memory.
    /// False, and nothing changes, where there are several threads, which would write the same rows.
    pub fn fold(&mut self, bytes: usize) -> bool {
        let edges = self.plans.iter().map(|plan| plan.block_edges).max().unwrap_or(0);
        self.fold = (self.threads() == 1).then(|| Fold::new(bytes, edges));
        self.fold.is_some()
    }

    /// Begins to measure steps anew.
    pub fn forget_times(&mut self) {
        self.clocks = self.plans.iter().map(Clock::new).collect();
    }

    /// What each step of a run of a program took since [`Engine::forget_times`], in the order of its launches' kernels.
    pub fn step_times(&self, program: usize) -> Vec<StepTime<'_>> {
        self.all_step_times(program).split_off(self.plans[program].prelude.len())
    }

    /// As [`Engine::step_times`], with the steps of the prelude before them: an engine that is bound anew for each run
    /// executes them for each as well.
    pub fn all_step_times(&self, program: usize) -> Vec<StepTime<'_>> {
        let (clock, plan) = (&self.clocks[program], &self.plans[program]);
        let steps = plan.prelude.iter().chain(&plan.steps).zip(&clock.nanos);
        steps.map(|(step, &nanos)| StepTime { step, ms: clock.ms(nanos) }).collect()
    }

    /// Mean milliseconds of [`Engine::commit`] after a run.
    pub(crate) fn commit_ms(&self, program: usize) -> f64 {
        self.clocks[program].ms(self.clocks[program].commit)
    }

    /// From now on notes who does what when.
    pub(crate) fn watch_spans(&mut self) {
        self.watch = Some(Watch::Spans(Spans::new(self.threads())));
    }

    /// From now on counts what the processor does in the steps of a program.
    pub(crate) fn watch_counters(&mut self, program: usize) {
        let plan = &self.plans[program];
        self.watch = Some(Watch::Counts(Counting::new(&self.pool, plan.prelude.len() + plan.steps.len())));
    }

    /// Ends it, and tells what was seen.
    pub(crate) fn end_watch(&mut self) -> Option<Watch> {
        self.watch.take()
    }

    /// Takes over the new parameters and states that the last run of a program computed.
    pub fn commit(&mut self, program: usize) {
        let start = Instant::now();
        let slabs = &self.slabs;
        let copy = |(Update { target, from, rows }, range): &(Update, Range<usize>)| {
            if let Some((topology, direction, width)) = *rows {
                // Whole rows, to those of their vertices.
                let ends = &self.data.topology(topology).ends(direction).vertices;
                for (row, &vertex) in ends.iter().enumerate().take(range.end / width).skip(range.start / width) {
                    // SAFETY: as below; vertices are distinct.
                    let source = unsafe { slabs[from.slab as usize].read(from.offset + row * width, width) };
                    // SAFETY: as above.
                    unsafe { slabs[*target as usize].write(vertex as usize * width, width) }.copy_from_slice(source);
                }
                return;
            }
            // SAFETY: nothing else runs, and the slabs are different.
            let source = unsafe { slabs[from.slab as usize].read(from.offset + range.start, range.len()) };
            // SAFETY: as above; every range of every target is written once.
            unsafe { slabs[*target as usize].write(range.start, range.len()) }.copy_from_slice(source);
        };
        let parts = &self.copies[program];
        if self.threads() == 1 || parts.len() == self.plans[program].updates.len() {
            parts.iter().for_each(copy);
        } else {
            self.pool.install(|| parts.par_iter().for_each(copy));
        }
        self.clocks[program].commit += start.elapsed().as_nanos() as f64;
    }

    /// The results of a program.
    pub fn results(&self, program: usize) -> &[Named] {
        &self.plans[program].results
    }

    /// A result of the last run of a program; invalid after another run.
    pub fn result(&self, program: usize, name: &str) -> Option<(&Named, &[f32])> {
        let named = self.plans[program].results.iter().find(|r| r.name == name)?;
        // SAFETY: nothing runs while the engine is borrowed.
        Some((named, unsafe { self.slabs[named.buffer.slab as usize].read(named.buffer.offset, named.buffer.len) }))
    }

    /// The plan of a program.
    pub fn plan(&self, program: usize) -> &Plan {
        &self.plans[program]
    }

    /// Graphs, labels and splits. The numbers of inputs are not here any more.
    pub fn data(&self) -> &BoundData {
        &self.data
    }

    /// Machine code that runs execute, if any: number of functions and their bytes.
    pub fn code(&self) -> Option<(usize, usize)> {
        let code = self.generator.code();
        (code.num_functions() > 0).then(|| (code.num_functions(), code.bytes()))
    }

    /// The Cranelift IR of that machine code. `names` are the names of the programs.
    ///
    /// # Errors
    /// A machine for which no code can be generated.
    pub fn clif(&self, names: &[&str]) -> Result<String> {
        let plans: Vec<_> = names
            .iter()
            .zip(&self.plans)
            .zip(&self.routines)
            .map(|((&name, plan), routines)| (name, plan, routines))
            .collect();
        native::text::listing(&plans)
    }

    /// The threads. What is installed there runs without being handed over each time.
    pub(crate) fn pool(&self) -> Arc<rayon::ThreadPool> {
        Arc::clone(&self.pool)
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Number of parameters.
    pub fn num_params(&self) -> usize {
        self.num_params
    }

    /// The elements of a parameter.
    pub fn param(&mut self, index: usize) -> &mut [f32] {
        self.slabs[self.params as usize + index].elements()
    }

    /// Number of elements of a parameter.
    pub(crate) fn param_len(&self, index: usize) -> usize {
        self.param_slab(index).len()
    }

    /// A parameter.
    pub(crate) fn param_slab(&self, index: usize) -> &Slab {
        &self.slabs[self.params as usize + index]
    }

    /// An optimiser state.
    pub(crate) fn state_slab(&self, index: usize) -> &Slab {
        &self.slabs[self.first_state as usize + index]
    }

    /// The numbers of an input, for other threads; `None` where it has none. Engines that are bound anew do not freeze
    /// theirs: their slabs are written again.
    pub(crate) fn frozen_input(&self, index: usize) -> Option<Frozen> {
        let InputData::Held(_) = self.data.inputs.get(index)? else { return None };
        let slab = &self.slabs[self.first_state as usize + self.states.len() + index];
        // SAFETY: runs write no inputs, and only `rebind` gives slabs of inputs away.
        Some(unsafe { slab.frozen() })
    }

    /// The optimiser states.
    pub fn states(&self) -> &[StateId] {
        &self.states
    }

    /// The elements of an optimiser state.
    pub fn state(&mut self, index: usize) -> &mut [f32] {
        self.slabs[self.first_state as usize + index].elements()
    }

    /// Planned memory for values of one program, as if it were the only one, or of all.
    pub fn arena(&self, program: Option<usize>) -> Arena {
        let range = program.map_or(0..self.plans.len(), |program| program..program + 1);
        Arena::of(&self.plans[range.clone()], &self.routines[range], self.threads())
    }

    /// The order of the rows of a parameter, where it has rows for vertices that are not in the order of the dataset.
    fn row_order(&self, param: usize) -> Option<&Order> {
        self.data.orders.of((*self.row_types.get(param)?)?)
    }

    /// Elements of a parameter, with rows of vertices in the order of the dataset.
    pub fn read_param(&self, index: usize, into: &mut [f32]) {
        self.read_rows(index, self.param_slab(index), into);
    }

    /// Elements of an optimiser state, as [`Engine::read_param`].
    pub fn read_state(&self, index: usize, into: &mut [f32]) {
        self.read_rows(self.states[index].0.index(), self.state_slab(index), into);
    }

    fn read_rows(&self, param: usize, slab: &Slab, into: &mut [f32]) {
        // SAFETY: nothing runs while the engine is borrowed.
        let from = unsafe { slab.read(0, slab.len()) };
        match self.row_order(param) {
            Some(order) => self.pool.install(|| copy_rows(from, &order.rank, into)),
            None => into.copy_from_slice(from),
        }
    }

    /// Sets a parameter: rows of vertices are in the order of the dataset.
    pub fn set_param(&mut self, index: usize, numbers: &[f32]) {
        self.set_rows(index, self.params as usize + index, numbers);
    }

    /// Sets an optimiser state, as [`Engine::set_param`].
    pub fn set_state(&mut self, index: usize, numbers: &[f32]) {
        self.set_rows(self.states[index].0.index(), self.first_state as usize + index, numbers);
    }

    fn set_rows(&mut self, param: usize, slab: usize, numbers: &[f32]) {
        let order = self.row_types.get(param).copied().flatten().and_then(|vertex| self.data.orders.of(vertex));
        let to = self.slabs[slab].elements();
        match order {
            Some(order) => self.pool.install(|| copy_rows(numbers, &order.original, to)),
            None => to.copy_from_slice(numbers),
        }
    }

    /// Fills all parameters with their initial values, which depend on the seed and their names only.
    pub fn init_params(&mut self, tables: &Dataflow, seed: u64) {
        for (index, decl) in tables.params.iter().enumerate() {
            let draw = Draw::of(decl, |dim| extent(&self.data, dim));
            if let Some(order) = self.row_order(index) {
                let order = order.clone();
                let slab = &mut self.slabs[self.params as usize + index];
                let width = (slab.len() / order.original.len().max(1)).max(1);
                let rows = slab.elements().par_chunks_exact_mut(width).zip(&order.original);
                let fill = |(numbers, &row): (&mut [f32], &u32)| draw.fill(seed, row as usize * width, numbers);
                self.pool.install(|| rows.for_each(fill));
                continue;
            }
            let slab = &mut self.slabs[self.params as usize + index];
            // Each number depends on its position only: threads share large parameters.
            const PART: usize = 1 << 14;
            let fill = |(part, numbers): (usize, &mut [f32])| draw.fill(seed, part * PART, numbers);
            if slab.len() <= PART {
                fill((0, slab.elements()));
            } else {
                self.pool.install(|| slab.elements().par_chunks_mut(PART).enumerate().for_each(fill));
            }
        }
    }
}

/// The vertex types that the parameters of programs with the same tables have rows for.
fn row_types(programs: &[&Program]) -> Vec<Option<VertexType>> {
    let params = programs.first().map_or(&[][..], |program| &program.tables.params);
    let of = |decl: &ParamDecl| match decl.dims.first() {
        Some(Dim::Count(vertex)) => Some(*vertex),
        Some(Dim::Fixed(_)) | None => None,
    };
    params.iter().map(of).collect()
}

/// The updates of a plan that are not made in place, large ones in parts, which threads share.
pub(crate) fn copies(plan: &Plan) -> Vec<(Update, Range<usize>)> {
    const PART: usize = 1 << 16;
    let copied = plan.updates.iter().filter(|update| update.target != update.from.slab);
    let parts = copied.flat_map(|&update| {
        // Parts of rows do not divide them.
        let width = update.rows.map_or(1, |(_, _, width)| width.max(1));
        let part = (PART / width).max(1) * width;
        (0..update.from.len).step_by(part).map(move |at| (update, at..update.from.len.min(at + part)))
    });
    parts.collect()
}

pub(crate) fn extent(data: &BoundData, dim: Dim) -> usize {
    match dim {
        Dim::Fixed(extent) => extent,
        Dim::Count(vertex) => data.num_vertices[vertex.index()],
    }
}

/// All optimiser states that a program reads or writes.
pub(crate) fn collect_states(programs: &[&Program]) -> Vec<StateId> {
    let mut states: Vec<StateId> = vec![];
    for program in programs {
        states.extend(program.outputs.iter().filter_map(|output| match output.kind {
            OutputKind::UpdateState(param, slot) => Some((param, slot)),
            OutputKind::Result(_) | OutputKind::UpdateParam(_) => None,
        }));
        states.extend(program.buffers.iter().filter_map(|buffer| match buffer.contents {
            Contents::State(param, slot) => Some((param, slot)),
            Contents::Input(_) | Contents::Param(_) | Contents::Computed => None,
        }));
    }
    states.sort_unstable();
    states.dedup();
    states
}

/// Do the graphs and patterns have the sizes that the tables say?
pub(crate) fn check_tables(flow: &Dataflow, data: &BoundData) -> Result<()> {
    let wrong = |what: String, found: String, expected: String| Err(ExecError::Shape { what, found, expected });
    for (what, found, expected) in [
        ("vertex types", data.num_vertices.len(), flow.vertex_types.len()),
        ("semantic graphs", data.graphs.len(), flow.graphs.len()),
        ("sparse feature matrices", data.patterns.len(), flow.patterns.len()),
    ] {
        if found != expected {
            return wrong("the data".into(), format!("{found} {what}"), expected.to_string());
        }
    }
    if let Some((v, &count)) = data.num_vertices.iter().enumerate().find(|&(_, &n)| u32::try_from(n).is_err()) {
        let what = format!("the vertex type `{}`", flow.vertex_types[v].name);
        return wrong(what, format!("{count} vertices"), "fewer than 2^32".into());
    }
    for (decl, graph) in flow.graphs.iter().zip(&data.graphs) {
        let expected = (data.num_vertices[decl.src.index()], data.num_vertices[decl.dst.index()]);
        if (graph.num_src, graph.num_dst) != expected {
            let show = |(src, dst): (usize, usize)| format!("{src} sources and {dst} destinations");
            let what = format!("the graph `{}`", decl.name);
            return wrong(what, show((graph.num_src, graph.num_dst)), show(expected));
        }
    }
    if let Some(bad) = data.graphs.iter().chain(&data.patterns).find(|it| it.incoming.indptr.len() != it.num_dst + 1) {
        let (found, expected) = (bad.incoming.indptr.len(), bad.num_dst + 1);
        return wrong(format!("the graph `{}`", bad.name), format!("{found} row positions"), expected.to_string());
    }
    for (decl, pattern) in flow.patterns.iter().zip(&data.patterns) {
        let expected = (data.num_vertices[decl.vertex.index()], decl.columns);
        if (pattern.num_dst, pattern.num_src) != expected {
            let what = format!("the features of `{}`", flow.vertex_types[decl.vertex.index()].name);
            let show = |(rows, columns): (usize, usize)| format!("{rows} rows and {columns} columns");
            return wrong(what, show((pattern.num_dst, pattern.num_src)), show(expected));
        }
    }
    Ok(())
}

/// Are the edges there that kernels go over?
pub(crate) fn check_listed(programs: &[&Program], data: &BoundData) -> Result<()> {
    let left_out = |graph: &Graph| data.graphs.get(graph.index()).is_some_and(|graph| graph.unlisted.is_some());
    for program in programs {
        let kernels = program.kernels().flat_map(|kernel| match &kernel.body {
            Body::Traversal(traversal) => match traversal.rows {
                Rows::Edges(graph, _) | Rows::Ends(graph, _) => vec![graph],
                Rows::Once | Rows::Each(_) | Rows::Vertices(_) | Rows::Elements(..) => vec![],
            },
            Body::Paths(paths) => vec![paths.first, paths.second],
            Body::Gemm(_) => vec![],
        });
        if let Some(graph) = kernels.chain(program.ends().into_iter().map(|ends| ends.0)).find(left_out) {
            return Err(ExecError::Unsupported(format!(
                "internal error: the edges of `{}` are left out, and a kernel goes over them; `--disable-pass \
                 sum_along_paths` lists them",
                data.graphs[graph.index()].name
            )));
        }
    }
    Ok(())
}

/// The inputs that an optimiser adds to a training program need no dataset: they count steps and epochs.
pub(crate) fn add_counters(programs: &[&Program], data: &mut BoundData) {
    for program in programs {
        for decl in program.tables.inputs.iter().skip(data.inputs.len()) {
            data.inputs.push(match decl.binding {
                Binding::StepNumber => InputData::StepNumber,
                Binding::EpochNumber => InputData::EpochNumber,
                Binding::Features(_)
                | Binding::Label(..)
                | Binding::TrainMask(_)
                | Binding::EdgeWeight(_)
                | Binding::EdgeCount(_)
                | Binding::EdgeFeatures(_)
                | Binding::IsLink(_)
                | Binding::Given(_) => InputData::Missing,
            });
        }
    }
}

/// Lists the ends of graphs that programs have rows for.
pub(crate) fn list_ends(programs: &[&Program], data: &mut BoundData) {
    let mut used = vec![[false; 2]; data.graphs.len()];
    for (graph, direction) in programs.iter().flat_map(|program| program.ends()) {
        used[graph.index()][usize::from(direction == Direction::Out)] = true;
    }
    data.graphs.par_iter_mut().zip(used).for_each(|(graph, [incoming, outgoing])| {
        if incoming {
            graph.list_ends(Direction::In);
        }
        if outgoing {
            graph.list_ends(Direction::Out);
        }
    });
}
