//! Tables with rows in stores: mini-batch training updates them where their rows are.
//!
//! A batch takes rows of embedding tables and of their optimizer states. Copying all of them before a step and back
//! after it reads and writes each row twice more than its update. Where the update is a map over the rows of a table,
//! each of its blocks gathers its rows from the stores, computes, and scatters the new ones, all in a core's cache. What
//! is left is one read and one write of each row, at random places.

use std::ops::Range;

use hgnnc_data::Result;
use hgnnc_data::buffer::PlannedSlabs;
use hgnnc_session::{ParamStore, StepKey, TableRows};
use hgnnc_trace::Times;

use super::Engine;
use crate::block::BlockTable;
use crate::plan::{Access, Base, Domain, Place, Region, Step, StepKind, Update, check};
use crate::slabs::{Slab, SlabLayout};

/// Elements of a cache line.
const LINE: usize = 16;

/// A table that the blocks of a step update.
#[derive(Clone, Copy)]
pub(super) struct UpdatedTable<'a> {
    table: TableRows<'a>,
    slab: Slab,
    step: usize,
    /// Elements of a row of the step's region.
    width: usize,
}

/// The elements of the largest block of a region, in whole cache lines.
fn window(region: &Region, width: usize) -> usize {
    let largest = region.unsplit_blocks().map(|rows| rows.len()).max().unwrap_or(0);
    (largest * width).next_multiple_of(LINE)
}

/// The tables that the blocks of a run update.
pub(super) fn block_tables<'a>(
    tables: &[UpdatedTable<'a>],
    steps: &'a [Step],
    (slabs, layout): (PlannedSlabs<'a>, SlabLayout),
) -> Vec<BlockTable<'a>> {
    let bound = tables.iter().filter_map(|updated| match &steps[updated.step].kind {
        StepKind::Region(region) => {
            let (index, width) = (layout.index(updated.slab), updated.width);
            let window = window(region, width);
            Some(BlockTable { region, table: updated.table, index, slabs, width, window })
        }
        _ => None,
    });
    bound.collect()
}

impl Engine {
    fn is_state(&self, table: &TableRows<'_>) -> bool {
        table.array >= self.num_params
    }

    /// The index of the step whose blocks can update a table, and the elements of a row of its region.
    fn updating_step(&self, program: usize, table: &TableRows<'_>) -> Option<(usize, usize)> {
        let layout = self.slabs.layout();
        let home = self.slab_of(table.array);
        let slab = layout.index(home);
        let plan = &self.plans[program];
        // The run before the updates reads rows of parameters that were gathered for it; states must not be read there.
        let first = if self.is_state(table) { 0 } else { plan.first_update };
        let touches = |step: &Step| {
            let written = check::writes(step, &plan.ranges, layout);
            check::reads(step, &plan.ranges).into_iter().chain(written).any(|range| range.slab == slab)
        };
        let mut touching = (first..plan.steps.len()).filter(|&step| touches(&plan.steps[step]));
        let (step, None) = (touching.next()?, touching.next()) else { return None };
        let copied = |update: &Update| update.target == slab && update.from.slab != slab;
        let elsewhere = plan.prelude.iter().any(touches) || plan.updates.iter().any(copied);
        let StepKind::Region(region) = &plan.steps[step].kind else { return None };
        let Domain::Rows(count) = region.domain else { return None };
        if elsewhere || step < plan.first_update || region.split.is_some() || !table.store.is_host_memory() {
            return None;
        }
        let operands = region.ops.iter().flat_map(|op| op.op.operands()).filter_map(|operand| match operand.base {
            Base::Stored(stored) => Some((stored.range(&plan.ranges), operand.access, operand.width)),
            Base::Local(_) | Base::Labels(_) => None,
        });
        let results = region.locals.iter().filter_map(|local| match local.place {
            Place::Stored(stored) => Some((stored.range(&plan.ranges), Access::Each, local.width)),
            Place::Scratch => None,
        });
        let mut accesses = operands
            .chain(results)
            .filter_map(|(range, access, width)| (range.slab == slab).then_some((range.offset, access, width)));
        let first @ (0, Access::Each, width) = accesses.next()? else { return None };
        let of_table = table.store.width();
        let whole_rows = |rows: Range<usize>| (rows.end * width).is_multiple_of(of_table);
        let fits = accesses.all(|access| access == first)
            && count * width == table.rows.len() * of_table
            && region.unsplit_blocks().all(whole_rows)
            && self.threads() * window(region, width) <= self.slabs[home].len();
        fits.then_some((step, width))
    }

    /// Gathers what the next run reads before the blocks that update tables.
    pub(crate) fn gather_tables_before_run(&mut self, program: usize, tables: &[TableRows<'_>]) -> Result<()> {
        for table in tables {
            if !(self.is_state(table) && self.updating_step(program, table).is_some()) {
                self.gather_rows(table.array, table.rows, table.store)?;
            }
        }
        Ok(())
    }

    /// Runs the updates of a program, and scatters the rows of tables, which are distinct in each.
    pub(crate) fn update_tables_in_blocks<'a>(
        &mut self,
        program: usize,
        key: StepKey,
        tables: &[TableRows<'a>],
        times: &mut Times,
    ) -> Result<()> {
        let steps: Vec<_> = tables.iter().map(|table| self.updating_step(program, table)).collect();
        let updated = |(&table, step): (&TableRows<'a>, &Option<(usize, usize)>)| {
            let (step, width) = (*step)?;
            Some(UpdatedTable { table, slab: self.slab_of(table.array), step, width })
        };
        let in_blocks: Vec<UpdatedTable<'a>> = tables.iter().zip(&steps).filter_map(updated).collect();
        self.run_updates_of(program, key, &in_blocks, times);
        let nanos = self.commit(program);
        times.add_update(nanos);
        for (table, _) in tables.iter().zip(&steps).filter(|(_, step)| step.is_none()) {
            self.scatter_rows(table.array, table.rows, table.store)?;
        }
        Ok(())
    }
}
