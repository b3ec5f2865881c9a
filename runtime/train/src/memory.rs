//! The memory of a run: what all of its sessions take together, compared with what there is before any is opened.

use hgnnc_data::stacks::num_own_params;
use hgnnc_data::tables::{collect_states, extent};
use hgnnc_data::{BoundData, ExecError, Result};
use hgnnc_executable::{Executable, Role};
use hgnnc_graph::show_bytes;
use hgnnc_ir::dataflow::{Dataflow, ParamDecl};
use hgnnc_ir::types::Param;
use hgnnc_session::{Backend, PlannedSession};

use crate::links;
use crate::trainer::{Arenas, INFER, head, roles};

/// The part of the free memory of a device that is left to the values of mini-batches.
const SHARE_OF_BATCHES: u64 = 4;

/// Memory that a run needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryNeeded {
    /// Planned memory for values of the full-graph session.
    pub arenas: Arenas,
    /// Bytes by purpose, over all sessions.
    pub parts: Vec<(&'static str, u64)>,
}

impl MemoryNeeded {
    /// Total bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.1).sum()
    }

    /// Bytes by purpose, for messages.
    pub fn detail(&self) -> String {
        let detail: Vec<String> =
            self.parts.iter().map(|&(what, bytes)| format!("{what} {}", show_bytes(bytes))).collect();
        detail.join(", ")
    }

    /// Errors if a limit is lower.
    fn check(&self, (limit, bytes): (&'static str, u64)) -> Result<()> {
        match self.bytes() {
            needed if needed > bytes => Err(ExecError::Memory { needed, detail: self.detail(), limit, budget: bytes }),
            _ => Ok(()),
        }
    }
}

/// Plans the full-graph session of a run, with the memory of all of its sessions. It has as much room as the others leave
/// of the budget.
///
/// # Errors
/// Data that does not fit the programs, or a program that the machine does not execute.
pub(crate) fn plan(
    executable: &Executable,
    backend: &mut dyn Backend,
    data: BoundData,
    budget: Option<u64>,
) -> Result<(Box<dyn PlannedSession>, MemoryNeeded)> {
    let mut others = vec![];
    if let Some(training) = &executable.training {
        if let Some(target) = training.links() {
            others.push(("scores of links", links::memory(executable, backend, target, &data)?));
        }
        if executable.head.is_some() {
            others.push(("outputs", head::memory(executable, backend, &data)?));
        }
    }
    if executable.batch.is_some() {
        others.push(("parameters and optimiser state of batches", of_batches(executable, backend, &data)));
    }
    // A session that trains on a device has the best parameters in its own memory.
    let keeps_best = executable.kernels.train.is_some() && backend.reads_host_memory();
    let best = if keeps_best { own_params(&executable.infer, &data) } else { 0 };
    let of_others = best + others.iter().map(|part| part.1).sum::<u64>();
    let planned = backend.plan(roles(executable), data, budget.map(|budget| budget.saturating_sub(of_others)))?;
    let whole = planned.memory();
    let mut parts = vec![
        ("intermediate values", whole.all.run + whole.all.fixed + whole.all.partials),
        ("scratch", whole.all.scratch),
        ("parameters and optimiser state", whole.params + best + whole.states),
        ("graphs and features", whole.data),
    ];
    parts.extend(others);
    parts.retain(|part| part.1 > 0);
    Ok((planned, MemoryNeeded { arenas: Arenas { all: whole.all, infer: whole.arenas[INFER] }, parts }))
}

/// [`plan`], refused if the run does not fit: the one check before anything is allocated.
///
/// # Errors
/// Those of [`plan`], or too little memory.
pub(crate) fn plan_within(
    executable: &Executable,
    backend: &mut dyn Backend,
    data: BoundData,
    budget: Option<u64>,
) -> Result<Box<dyn PlannedSession>> {
    let (planned, needed) = plan(executable, backend, data, budget)?;
    if let Some(budget) = budget {
        needed.check(("the budget", budget))?;
    }
    // The free memory of a machine is an estimate, which a budget replaces. A device has what it says.
    let in_host_memory = backend.reads_host_memory();
    if let Some((limit, free)) = backend.free_memory().filter(|_| budget.is_none() || !in_host_memory) {
        // Graphs and features are in host memory already.
        let resident = if in_host_memory { planned.memory().data } else { 0 };
        // The memory for values of a batch is known once it is sampled, so a part of a device's memory is left to it.
        let of_batches = if in_host_memory || executable.batch.is_none() { 0 } else { free / SHARE_OF_BATCHES };
        needed.check((limit, free + resident - of_batches))?;
    }
    Ok(planned)
}

/// Bytes of a model's parameters.
fn own_params(tables: &Dataflow, data: &BoundData) -> u64 {
    let len = |decl: &ParamDecl| decl.dims.iter().map(|&dim| extent(data, dim)).product::<usize>() as u64;
    4 * tables.params[..num_own_params(tables)].iter().map(len).sum::<u64>()
}

/// Bytes of parameters and states of mini-batches. Their values depend on what is sampled.
fn of_batches(executable: &Executable, backend: &dyn Backend, data: &BoundData) -> u64 {
    let (Some(kernels), Some(layout)) = (executable.kernels(Role::Train), &executable.batch) else { return 0 };
    let fixed = |param: Param| {
        let dims = &kernels.tables.params[param.index()].dims;
        dims.iter().filter_map(|dim| dim.fixed()).product::<usize>() as u64
    };
    let rows = |param: Param| {
        let (_, known) = layout.rows.iter().find(|(table, _)| *table == param)?;
        Some(data.num_vertices[known.vertex.index()] as u64)
    };
    let params = kernels.tables.params.iter().take_while(|decl| decl.entries.is_empty()).count();
    let dense = (0..params).map(Param::new).filter(|&param| rows(param).is_none());
    let mut elements: u64 = dense.map(fixed).sum();
    for (param, _) in collect_states(&[kernels]) {
        elements += match (rows(param), backend.reads_host_memory()) {
            // Tables and their states stay in host memory.
            (Some(rows), true) => rows * fixed(param),
            (Some(_), false) => 0,
            // Those of dense parameters are copied back when training pauses.
            (None, true) => 2 * fixed(param),
            (None, false) => fixed(param),
        };
    }
    4 * elements
}
