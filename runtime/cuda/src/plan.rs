//! Programs compiled for a device, with their memory needs, before memory is allocated.

use std::collections::{HashMap, HashSet};

use hgnnc_data::stacks::{ParamPlace, param_places};
use hgnnc_data::tables::{
    add_derived, check_materialized, check_tables, collect_states, extent, list_endpoints, ranks,
};
use hgnnc_data::{Arena, BoundData, ExecError, InputData, Result, StateId};
use hgnnc_executable::gpu::{Blocks, Entry, GpuCompiler, Module, Sizes, Slot, Target};
use hgnnc_ir::width::Width;
use hgnnc_ir::{Layout, Type};
use hgnnc_kernel_ir::kernel::place::{self, ALIGN};
use hgnnc_kernel_ir::kernel::{Body, KernelOp, Program};

use crate::graph_arrays::{DataSizes, edges, index_array};
use crate::{F32, counts};

/// Device bytes by purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct DeviceMemory {
    /// Values of a run; programs share the memory.
    pub run: u64,
    /// Run-independent values, computed once.
    pub fixed: u64,
    pub partials: u64,
    /// Parameters, and those of the best epoch.
    pub params: u64,
    /// Optimizer states.
    pub states: u64,
    pub data: u64,
}

impl DeviceMemory {
    /// Total bytes over all purposes.
    pub fn bytes(&self) -> u64 {
        self.run + self.fixed + self.partials + self.params + self.states + self.data
    }
}

/// The memory of a program's values.
#[derive(Clone, Debug)]
pub(super) struct Needs {
    pub values: place::Memory,
    /// Elements of partial results.
    pub partials: usize,
}

/// Programs as PTX, with their memory needs.
pub(super) struct Compiled {
    pub(super) modules: Vec<Module>,
    pub(super) needs: Vec<Needs>,
    pub(super) states: Vec<StateId>,
    /// The memory of each parameter, by index.
    pub(super) param_places: Vec<ParamPlace>,
    pub(super) memory: DeviceMemory,
}

impl Compiled {
    /// Has programs with shared tables compiled for data; allocates no values.
    ///
    /// # Errors
    /// Data that does not fit the programs, or a kernel without PTX.
    pub fn new(
        programs: &[&Program],
        data: &mut BoundData,
        (compiler, target): (&'static dyn GpuCompiler, Target),
    ) -> Result<Self> {
        let first = programs.first().ok_or_else(|| ExecError::Unsupported("there is no program to run".into()))?;
        let tables = &first.tables;
        check_tables(tables, data)?;
        check_materialized(programs, data)?;
        add_derived(programs, data, ranks)?;
        list_endpoints(programs, data);
        // Data for mini-batches is not known yet.
        let edges = if data.num_vertices.iter().all(|&count| count == 0) { vec![] } else { edges(programs, data) };
        let compiled = |program: &&Program| {
            compiler.compile(program, target, &edges).map_err(|error| ExecError::Unsupported(error.to_string()))
        };
        let modules: Vec<Module> = programs.iter().map(compiled).collect::<Result<_>>()?;
        let states = collect_states(programs);
        let param_len =
            |index: usize| -> usize { tables.params[index].dims.iter().map(|&d| extent(data, d)).product() };
        let param_places = param_places(tables, |param| param_len(param.index()));
        let needs: Vec<Needs> =
            programs.iter().zip(&modules).map(|(program, module)| needs(program, module, data)).collect();
        let memory = memory(&needs, &param_places, &states, bytes_of_data(data, &modules));
        Ok(Self { modules, needs, states, param_places, memory })
    }

    /// Planned memory of one program as if it ran alone, or of all.
    pub fn arena(&self, program: Option<usize>) -> Arena {
        arena(&self.needs, program)
    }
}

/// Planned memory of one program as if it ran alone, or of all.
pub(super) fn arena(needs: &[Needs], program: Option<usize>) -> Arena {
    let needs = program.map_or(needs, |program| &needs[program..program + 1]);
    let most = |f: fn(&Needs) -> usize| (F32 * needs.iter().map(f).max().unwrap_or(0)) as u64;
    let fixed = (F32 * needs.iter().map(|needs| needs.values.fixed.len).sum::<usize>()) as u64;
    Arena { run: most(|needs| needs.values.run.len), fixed, partials: most(|needs| needs.partials), scratch: 0 }
}

/// Memory that a program needs for its values on this data.
pub(super) fn needs(program: &Program, module: &Module, data: &BoundData) -> Needs {
    let len = |ty: &Type| rows(data, ty) * width(data, ty);
    let values = place::memory(program, |buffer| len(&program.buffer(buffer).ty));
    let entries = module.prelude.iter().chain(&module.launches);
    let partials = entries.map(|entry| partials(entry, data).1).max().unwrap_or(0);
    Needs { values, partials }
}

/// Whether the parameters of the best epoch get device memory: only if one of several programs trains.
pub(super) fn keeps_best(programs: usize) -> bool {
    programs > 1
}

/// Bytes of inputs, graphs and labels.
fn bytes_of_data(data: &BoundData, modules: &[Module]) -> u64 {
    let mut arrays: Vec<&Slot> = modules.iter().flat_map(|module| &module.table).collect();
    let mut seen = HashSet::new();
    arrays.retain(|&slot| seen.insert(slot.clone()));
    let indices: usize = arrays.iter().filter_map(|slot| index_array(data, slot)).map(|array| array.len()).sum();
    let inputs: usize = data
        .inputs
        .iter()
        .map(|input| match input {
            InputData::Numbers(numbers) => numbers.len(),
            InputData::Held(len) => *len,
            InputData::Rows(numbers) => numbers.len(),
            InputData::Classes(classes) => classes.len(),
            InputData::StepNumber | InputData::EpochNumber | InputData::Missing => 0,
        })
        .sum();
    (F32 * (indices + inputs)) as u64 + counts::bytes(data)
}

/// Device memory of programs by purpose, with `data` bytes of data.
pub(super) fn memory(needs: &[Needs], params: &[ParamPlace], states: &[StateId], data: u64) -> DeviceMemory {
    let bytes = |elements: usize| (F32 * elements) as u64;
    let states = states.iter().map(|state| params[state.0.index()].len).sum::<usize>();
    let own = params.iter().enumerate().filter(|(index, place)| place.home.index() == *index);
    let own: usize = own.map(|(_, place)| place.len).sum();
    let Arena { run, fixed, partials, .. } = arena(needs, None);
    let copies = if keeps_best(needs.len()) { 2 } else { 1 };
    DeviceMemory { run, fixed, partials, params: bytes(own * copies), states: bytes(states), data }
}

/// Stored rows of a value of this type.
pub(super) fn rows(data: &BoundData, ty: &Type) -> usize {
    match ty.layout {
        Layout::Sparse(pattern) => data.patterns[pattern.index()].num_edges(),
        Layout::Dense => DataSizes(data).space(ty.space),
    }
}

/// Elements per row. Sparse values have one per stored element.
pub(super) fn width(data: &BoundData, ty: &Type) -> usize {
    if ty.is_sparse() { 1 } else { DataSizes(data).width(&Width::of(&ty.dims)) }
}

/// Offsets of the partial results of an entry's kernels by table slot, and their total elements.
pub(super) fn partials(entry: &Entry, data: &BoundData) -> (HashMap<Slot, usize>, usize) {
    let (mut places, mut len) = (HashMap::new(), 0);
    let sizes = DataSizes(data);
    for kernel in &entry.kernels {
        for (index, total) in kernel.totals.iter().enumerate() {
            places.insert(Slot::Partials(kernel.number, index), len);
            len += (kernel.blocks.parts(&sizes) * sizes.width(&total.width)).next_multiple_of(ALIGN);
        }
        if kernel.row_memory > 0 {
            places.insert(Slot::RowMemory(kernel.number), len);
            len += (kernel.blocks.count(&sizes) * kernel.row_memory).next_multiple_of(ALIGN);
        }
        if let Blocks::Bands { rows, long: Some(long), .. } = &kernel.blocks {
            let pieces = sizes.pieces(rows, long.cut);
            for (pass, elements) in long.parts.iter().enumerate() {
                places.insert(Slot::PieceParts(kernel.number, pass), len);
                len += (pieces * elements).next_multiple_of(ALIGN);
            }
        }
    }
    (places, len)
}

/// Number of dropout streams.
pub(super) fn streams(program: &Program) -> u32 {
    let traversals = program.kernels().filter_map(|kernel| match &kernel.body {
        Body::Traversal(traversal) => Some(traversal),
        Body::Gemm(_) | Body::FactoredMetapath(_) | Body::Exchange(_) => None,
    });
    let streams = traversals.flat_map(|traversal| &traversal.instrs).filter_map(|instr| match instr.op {
        KernelOp::Mask { stream, .. } => Some(stream + 1),
        _ => None,
    });
    streams.max().unwrap_or(0)
}
