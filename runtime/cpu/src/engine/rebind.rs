//! Rebinding of an engine's programs to other data, once per mini-batch.
//!
//! Operations, loops, machine code and the order of launches are independent of sizes: nothing is planned. Rows are
//! divided into blocks and tasks, at about the cost of one scan of `indptr`. Memory and the places of values are kept,
//! and are made anew only if a batch needs more than all before it.

use std::sync::Arc;

use hgnnc_data::buffer::{HostBuffer, PerThread, SLACK};
use hgnnc_data::tables::{add_derived, check_tables, extent, list_endpoints};
use hgnnc_data::{BoundData, InputData, Result};
use hgnnc_ir::types::Param;
use hgnnc_kernel_ir::kernel;
use hgnnc_kernel_ir::loops::VerifiedLoops;

use super::{Engine, copies};
use crate::block::Scratch;
use crate::exec_plan::{renew_schedules, scratch_len};
use crate::plan::rebind;
use crate::slabs::Slab;

impl Engine {
    /// Binds the programs of the engine to other data with the same tables. [`Engine::run_prelude`] must then compute
    /// the run-independent values before any run. Parameters and states keep their values, except those with a row per
    /// vertex: they get as many rows as there are vertices, with unspecified values. Returns the previously bound data
    /// for reuse of its memory. `inputs` holds the elements of each [`InputData::Held`] input, and those of
    /// the old data afterwards.
    ///
    /// # Errors
    /// Data that does not fit the programs. The engine cannot run then.
    ///
    /// # Panics
    /// When a buffer is smaller than its input.
    pub fn rebind(&mut self, data: BoundData, inputs: &mut [HostBuffer]) -> Result<BoundData> {
        let programs = std::mem::take(&mut self.programs);
        let rebound = self.rebind_programs(&programs, data, inputs);
        self.programs = programs;
        rebound
    }

    fn rebind_programs(
        &mut self,
        programs: &[Arc<VerifiedLoops>],
        mut data: BoundData,
        inputs: &mut [HostBuffer],
    ) -> Result<BoundData> {
        let Some(first) = programs.first() else { return Ok(data) };
        let programs: Vec<&VerifiedLoops> = programs.iter().map(|program| &**program).collect();
        let kernels: Vec<&kernel::Program> = programs.iter().map(|program| &program.kernels).collect();
        check_tables(&first.kernels.tables, &data)?;
        for (input, slab) in data.inputs.iter().zip(&*inputs) {
            assert!(!matches!(input, InputData::Held(len) if *len > slab.len()), "the numbers of an input are there");
        }
        add_derived(&kernels, &mut data, |input, graph, direction| {
            let (slab, len) = (&mut self.slabs[Slab::Input(input)], graph.num_edges());
            slab.grow(len);
            graph.write_ranks(direction, &mut slab.elements()[..len])?;
            Ok(InputData::Held(len))
        })?;
        self.pool.install(|| list_endpoints(&kernels, &mut data));
        let bound = std::mem::take(&mut self.plans).into_iter().zip(&programs);
        self.plans = bound.map(|(plan, loops)| rebind(plan, loops, &data, &self.states)).collect::<Result<_>>()?;
        let (plans, schedules, pool) = (&self.plans, &mut self.schedules, &self.pool);
        let renewed = pool.install(|| renew_schedules(schedules, plans, &data));

        let most = |f: fn(&crate::plan::Plan) -> usize| self.plans.iter().map(f).max().unwrap_or(0);
        self.slabs[Slab::Run].grow(most(|plan| plan.arena_len));
        self.slabs[Slab::Partials].grow(most(|plan| plan.partials_len));
        for (index, plan) in self.plans.iter().enumerate() {
            self.slabs[Slab::Fixed(index)].grow(plan.persistent_len);
            let constants = &mut self.slabs[Slab::Constants(index)];
            constants.grow(plan.constants.len());
            constants.elements()[..plan.constants.len()].copy_from_slice(&plan.constants);
        }
        let len = |param: Param| {
            let dims = &first.kernels.tables.params[param.index()].dims;
            dims.iter().map(|&dim| extent(&data, dim)).product::<usize>()
        };
        let homes = (0..self.places.len()).filter(|&param| self.places[param].home.index() == param);
        for param in homes {
            self.slabs[Slab::Param(param)].grow(len(Param::new(param)));
        }
        for (index, state) in self.states.iter().enumerate() {
            self.slabs[Slab::State(index)].grow(len(state.0));
        }
        for (index, slab) in inputs.iter_mut().enumerate() {
            std::mem::swap(&mut self.slabs[Slab::Input(index)], slab);
        }
        self.copies = self.plans.iter().map(copies).collect();
        let scratch = (scratch_len(&self.schedules), &self.plans, &self.schedules);
        if self.scratch.all().any(|one| !one.holds(scratch.1, scratch.0)) {
            self.scratch = PerThread::new(self.pool.current_num_threads(), || {
                Scratch::with_room(scratch.1, scratch.2, scratch.0, SLACK)
            });
        } else if renewed {
            self.scratch.all().for_each(|one| one.prepare(scratch.2));
        }
        let steps = self.plans.iter().flat_map(|plan| [&plan.prelude, &plan.steps]).map(Vec::len).max().unwrap_or(0);
        self.busy.resize_with(steps.max(self.busy.len()), Default::default);
        Ok(std::mem::replace(&mut self.data, data))
    }
}
