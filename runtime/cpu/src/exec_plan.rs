//! Execution plan: programs planned for the sizes of their data, before memory is allocated.

use std::sync::Arc;

use hgnnc_data::stacks::{ParamPlace, num_own_params, param_places};
use hgnnc_data::tables::{
    add_derived, check_materialized, check_tables, collect_states, extent, list_endpoints, ranks,
};
use hgnnc_data::{Arena, BoundData, ExecError, Result, StateId};
use hgnnc_graph::processors;
use hgnnc_kernel_ir::kernel;
use hgnnc_kernel_ir::loops::VerifiedLoops;
use hgnnc_kernels::simd::Dispatch;
use hgnnc_machine::KernelFeatures;
use hgnnc_session::MemoryNeeded;
use rayon::prelude::*;

use crate::block::Scratch;
use crate::facts::Facts;
use crate::plan::{Plan, Step, StepKind, plan};
use crate::schedule::{RegionSchedule, Schedules};
use crate::slabs::SlabLayout;
use hgnnc_kernels::subnormal::flush_to_zero;

/// Options of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct EngineOptions {
    /// Number of threads; 0: one per CPU.
    pub threads: usize,
    /// Bytes above which row blocks get smaller, where that takes less memory; `None`: they never do.
    pub room: Option<u64>,
    /// Instruction set and features of kernels.
    pub dispatch: Dispatch,
}

/// A pool for engines: pinned threads that flush subnormal numbers to zero. `threads` is 0 for one per CPU.
///
/// # Errors
/// When the threads cannot be started.
pub fn thread_pool(threads: usize) -> Result<Arc<rayon::ThreadPool>> {
    let threads = processors::threads(threads);
    let pool = processors::pool(threads, flush_to_zero).thread_name(|i| format!("hgnnc-{i}")).build();
    pool.map(Arc::new).map_err(|error| ExecError::Threads { threads, reason: error.to_string() })
}

/// Planned memory for the values of programs together.
pub(crate) fn arena_of(plans: &[Plan], schedules: &[Schedules], threads: usize) -> Arena {
    const COUNTERS: usize = 2;
    let most = |f: fn(&Plan) -> usize| plans.iter().map(f).max().unwrap_or(0);
    let fixed: usize = plans.iter().map(|plan| plan.persistent_len + plan.constants.len()).sum();
    let bytes = |elements: usize| 4 * elements as u64;
    Arena {
        run: bytes(most(|plan| plan.arena_len)),
        fixed: bytes(COUNTERS + fixed),
        partials: bytes(most(|plan| plan.partials_len)),
        scratch: threads as u64 * Scratch::bytes(plans, scratch_len(schedules)),
    }
}

/// Elements of a row block that stay in the L2 cache together with its inputs.
pub(crate) const BLOCK: usize = 80 * 1024;

/// Largest scratch of the schedules, in elements.
pub(crate) fn scratch_len(schedules: &[Schedules]) -> usize {
    schedules.iter().flatten().flatten().flatten().map(|schedule| schedule.scratch_len).max().unwrap_or(0)
}

/// Plans programs with shared tables, bound to their data.
fn plans_of(
    programs: &[&VerifiedLoops],
    data: &BoundData,
    (slabs, states): (SlabLayout, &[StateId]),
    block_len: usize,
    features: KernelFeatures,
) -> Result<Vec<Plan>> {
    let plan =
        |(index, program): (usize, &&VerifiedLoops)| plan(program, data, (slabs, index), states, block_len, features);
    programs.iter().enumerate().map(plan).collect()
}

/// Schedules of the regions of all plans.
fn schedules_of(plans: &[Plan], data: &BoundData) -> Vec<Schedules> {
    let facts = Facts::new(data);
    let of = |plan: &Plan, step: &Step| match &step.kind {
        StepKind::Region(region) => RegionSchedule::of(region, &plan.ranges, &facts, &[]),
        StepKind::Product(_)
        | StepKind::Grouped(_)
        | StepKind::Factored(_)
        | StepKind::Exchange(_)
        | StepKind::RankSum(_)
        | StepKind::Copy { .. } => vec![],
    };
    let of_plan = |plan: &Plan| {
        [&plan.prelude, &plan.steps].map(|steps| steps.par_iter().map(|step| of(plan, step)).collect::<Vec<_>>())
    };
    plans.iter().map(of_plan).collect()
}

/// Makes the schedules again that do not serve the data to which the plans are bound now. Returns whether there are any.
pub(crate) fn renew_schedules(schedules: &mut [Schedules], plans: &[Plan], data: &BoundData) -> bool {
    let facts = Facts::new(data);
    let renew = |plan: &Plan, step: &Step, schedules: &mut Vec<RegionSchedule>| match &step.kind {
        StepKind::Region(region) if !RegionSchedule::serve(schedules, region, &plan.ranges, &facts) => {
            *schedules = RegionSchedule::of(region, &plan.ranges, &facts, schedules);
            true
        }
        _ => false,
    };
    let mut renewed = false;
    for (plan, schedules) in plans.iter().zip(schedules) {
        for (steps, schedules) in [&plan.prelude, &plan.steps].into_iter().zip(schedules) {
            let pairs = steps.par_iter().zip(schedules.par_iter_mut());
            renewed |= pairs.map(|(step, schedules)| renew(plan, step, schedules)).reduce(|| false, |a, b| a || b);
        }
    }
    renewed
}

/// Plans, schedules and memory layout of programs, before memory is allocated.
pub struct ExecPlan {
    pub(crate) plans: Vec<Plan>,
    pub(crate) schedules: Vec<Schedules>,
    pub(crate) threads: usize,
    pub(crate) states: Vec<StateId>,
    /// The memory of each parameter, by index.
    pub(crate) places: Vec<ParamPlace>,
    /// Number of parameters of the model, without stacks of them.
    pub(crate) num_params: usize,
    pub(crate) slabs: SlabLayout,
    pub(crate) scratch_len: usize,
}

impl ExecPlan {
    /// Plans programs with shared tables; allocates no values. If they take more than there is room, retries
    /// with smaller row blocks.
    pub fn new(
        programs: &[&VerifiedLoops],
        data: &mut BoundData,
        pool: &rayon::ThreadPool,
        options: EngineOptions,
    ) -> Result<Self> {
        let mut exec_plan = Self::with_blocks(programs, data, (pool, options), BLOCK)?;
        for part in [2, 4, 8] {
            if options.room.is_none_or(|room| exec_plan.memory(data).bytes() <= room) {
                break;
            }
            let smaller = Self::with_blocks(programs, data, (pool, options), BLOCK / part)?;
            // Smaller blocks need more partial results.
            if smaller.arena(None).bytes() < exec_plan.arena(None).bytes() {
                exec_plan = smaller;
            }
        }
        Ok(exec_plan)
    }

    /// Plans programs with row blocks of at most `block_len` elements of intermediate values.
    fn with_blocks(
        programs: &[&VerifiedLoops],
        data: &mut BoundData,
        (pool, options): (&rayon::ThreadPool, EngineOptions),
        block_len: usize,
    ) -> Result<Self> {
        let first = programs.first().ok_or_else(|| ExecError::Unsupported("there is no program to run".into()))?;
        let tables = &first.kernels.tables;
        let kernels: Vec<&kernel::Program> = programs.iter().map(|program| &program.kernels).collect();
        check_tables(tables, data)?;
        check_materialized(&kernels, data)?;
        add_derived(&kernels, data, ranks)?;
        list_endpoints(&kernels, data);
        let states = collect_states(&kernels);
        let slabs = SlabLayout { programs: programs.len(), params: tables.params.len(), states: states.len() };
        let plans = plans_of(programs, data, (slabs, &states), block_len, options.dispatch.features())?;
        let bound: &BoundData = data;
        let schedules = pool.install(|| schedules_of(&plans, bound));
        let scratch_len = scratch_len(&schedules);
        let param_len = |i: usize| -> usize { tables.params[i].dims.iter().map(|&d| extent(data, d)).product() };
        let places = param_places(tables, |param| param_len(param.index()));
        let num_params = num_own_params(tables);
        let threads = pool.current_num_threads();
        Ok(Self { plans, schedules, threads, states, places, num_params, slabs, scratch_len })
    }

    /// Planned memory of one program, or of all.
    pub fn arena(&self, program: Option<usize>) -> Arena {
        let range = program.map_or(0..self.plans.len(), |program| program..program + 1);
        arena_of(&self.plans[range.clone()], &self.schedules[range], self.threads)
    }

    /// Memory of a session with these programs and data.
    pub fn memory(&self, data: &BoundData) -> MemoryNeeded {
        let bytes = |elements: usize| 4 * elements as u64;
        MemoryNeeded {
            arenas: (0..self.plans.len()).map(|program| self.arena(Some(program))).collect(),
            all: self.arena(None),
            params: bytes(self.places[..self.num_params].iter().map(|place| place.len).sum()),
            states: bytes(self.states.iter().map(|state| self.places[state.0.index()].len).sum()),
            data: data.bytes(),
        }
    }
}
