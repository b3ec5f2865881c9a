//! Fills the tables of PTX modules: device addresses of buffers, data and graphs, and sizes.

use std::collections::HashMap;
use std::sync::Arc;

use hgnnc_data::buffer::HostBuffer;
use hgnnc_data::{BoundData, ExecError, InputData, Result, StateId};
use hgnnc_executable::gpu::{Blocks, Entry, GpuCompiler, KernelInfo, Module, Sizes, Slot, Topology};
use hgnnc_ir::dataflow::{Dataflow, OutputKind};
use hgnnc_ir::types::Graph;
use hgnnc_kernel_ir::kernel::place;
use hgnnc_kernel_ir::kernel::print::print_rows;
use hgnnc_kernel_ir::kernel::{Buffer, Contents, Program, Source};
use hgnnc_session::RowStore;

use crate::graph_arrays::{DataSizes, index_array};
use crate::plan::{partials, rows, width};
use crate::room::Room;
use crate::rows::{DeviceRows, RowCopies, RowCopy};
use crate::time_attribution::Shares;
use crate::{ALIGN_BYTES, Device, F32, Launch, Sequence, SharedDevice};

/// Maximum number of kernels listed in a message about an entry.
const MOST_DESCRIBED: usize = 4;

/// A result of a program on the device.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Found {
    pub name: String,
    pub rows: usize,
    pub width: usize,
    pub from: From,
}

/// Location of a result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum From {
    Device(u64),
    Number(f32),
}

/// A program loaded on the device.
#[derive(Debug)]
pub(super) struct Bound {
    pub prelude: usize,
    /// Sequences: up to the first launch that may change parameters, the updates, and the commit.
    pub parts: [usize; 3],
    /// Phase and stage shares of the entries of each part, once they were needed.
    pub shares: Option<[Vec<Shares>; 3]>,
    /// Module handle on the device.
    pub module: usize,
    pub results: Vec<Found>,
}

/// Device addresses of the buffers of a program.
pub(super) struct Places<'a> {
    pub arena: u64,
    pub fixed: u64,
    pub partials: u64,
    pub counters: u64,
    pub params: &'a [(u64, usize)],
    pub states: &'a [StateId],
    pub state_places: &'a [(u64, usize)],
}

/// Copies of bound data in device memory.
#[derive(Default)]
pub(super) struct Uploaded {
    inputs: HashMap<usize, Room>,
    arrays: HashMap<Slot, Room>,
    /// Inputs of which data tells the numbers of rows: the matrix that has them.
    matrices: HashMap<usize, Arc<dyn RowStore>>,
    /// The kernels that copy rows, once a batch needed them.
    pub copies: Option<RowCopies>,
}

impl std::fmt::Debug for Uploaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Uploaded({} inputs, {} arrays)", self.inputs.len(), self.arrays.len())
    }
}

impl Uploaded {
    /// Has rows of an input copied from a matrix.
    pub fn take_rows_of(&mut self, index: usize, matrix: Arc<dyn RowStore>) {
        self.matrices.insert(index, matrix);
    }

    /// Copies the edges of shuffled vertices anew: as many numbers as before, at the same addresses.
    pub fn renew_arrays(&mut self, device: &mut SharedDevice, data: &BoundData) -> Result<()> {
        let shuffled = |graph: &Graph| data.graphs[graph.index()].shuffle.is_some();
        for (slot, room) in &self.arrays {
            let drawn = match slot {
                Slot::Others(Topology::Graph(graph), _)
                | Slot::Positions(Topology::Graph(graph))
                | Slot::EndOfEdges(graph, _) => shuffled(graph),
                _ => false,
            };
            if let Some(array) = index_array(data, slot).filter(|_| drawn) {
                device.upload(room.at, bytemuck::cast_slice(&array))?;
            }
        }
        Ok(())
    }

    /// Bytes of all copies.
    pub fn bytes(&self) -> u64 {
        let numbers = self.copies.iter().flat_map(RowCopies::numbers);
        self.inputs.values().chain(self.arrays.values()).chain(numbers).map(|room| room.bytes() as u64).sum()
    }

    /// Address of an input, if a program reads it.
    pub fn input(&self, index: usize) -> Option<u64> {
        self.inputs.get(&index).map(|room| room.at)
    }
}

/// State of binding programs.
pub(super) struct Binder<'a> {
    device: &'a mut SharedDevice,
    compiler: &'static dyn GpuCompiler,
    data: &'a BoundData,
    /// Elements of each [`InputData::Held`] input.
    held: &'a mut [HostBuffer],
    uploaded: &'a mut Uploaded,
    /// Addresses of inputs and arrays of this data.
    inputs: HashMap<usize, u64>,
    arrays: HashMap<Slot, u64>,
}

impl<'a> Binder<'a> {
    /// Binds programs to data whose arrays replace those in `uploaded`.
    pub fn new(
        (device, compiler): (&'a mut SharedDevice, &'static dyn GpuCompiler),
        data: &'a BoundData,
        held: &'a mut [HostBuffer],
        uploaded: &'a mut Uploaded,
    ) -> Self {
        Self { device, compiler, data, held, uploaded, inputs: HashMap::new(), arrays: HashMap::new() }
    }
}

impl Binder<'_> {
    /// Fills the table of a program's loaded module, and prepares its sequences: those of `known`, if it was bound to
    /// other data.
    pub fn program(
        &mut self,
        (program, values): (&Program, &place::Memory),
        (module, number): (&Module, usize),
        places: &Places<'_>,
        known: Option<&Bound>,
    ) -> Result<Bound> {
        let addresses = self.addresses((program, values), places)?;
        let entries = || module.prelude.iter().chain(&module.launches).chain(&module.commit);
        let kernels: HashMap<usize, &KernelInfo> =
            entries().flat_map(|entry| &entry.kernels).map(|kernel| (kernel.number, kernel)).collect();
        let mut parts = HashMap::new();
        for entry in entries() {
            parts.extend(partials(entry, self.data).0);
        }
        let mut table = vec![];
        for slot in &module.table {
            let sizes = DataSizes(self.data);
            table.push(match slot {
                Slot::Buffer(buffer) => addresses[buffer.index()],
                Slot::Stored(contents) => self.stored(*contents, places)?,
                Slot::Rows(rows) => sizes.rows(rows) as u64,
                Slot::Count(space) => sizes.space(*space) as u64,
                Slot::CountF32(space) => u64::from((sizes.space(*space) as f32).to_bits()),
                Slot::Elements(width) => sizes.width(width) as u64,
                Slot::MaskKeys => places.counters + ALIGN_BYTES as u64,
                Slot::Blocks(kernel) => kernels[kernel].blocks.count(&sizes) as u64,
                Slot::AllBlocks(of) => of.iter().map(|kernel| kernels[kernel].blocks.count(&sizes) as u64).sum(),
                Slot::Parts(kernel) => kernels[kernel].blocks.parts(&sizes) as u64,
                Slot::PartRows(kernel) => kernels[kernel].blocks.part_rows(&sizes) as u64,
                Slot::Partials(..) | Slot::PieceParts(..) | Slot::RowMemory(_) => {
                    places.partials + (F32 * parts[slot]) as u64
                }
                Slot::FirstPart(kernel, following) => kernels[kernel].blocks.first_part(&sizes, *following) as u64,
                Slot::NumPieces(rows, cut) => sizes.pieces(rows, *cut) as u64,
                Slot::BandFirst(rows, band) => sizes.band(rows, *band).0 as u64,
                Slot::BandRows(rows, band) => sizes.band(rows, *band).1 as u64,
                Slot::BandBlocks(kernel, band) => kernels[kernel].blocks.band(&sizes, *band) as u64,
                Slot::FirstEdges { .. }
                | Slot::RowOrder { .. }
                | Slot::PieceRows(..)
                | Slot::FirstPieces(..)
                | Slot::Others(..)
                | Slot::Positions(_)
                | Slot::EndVertices(..)
                | Slot::EndOf(..)
                | Slot::EndOfEdges(..) => self.array(slot)?,
            });
        }
        self.device.set_table(number, &table)?;
        let sizes = DataSizes(self.data);
        let blocks = |entry: &Entry| entry.kernels.iter().map(|kernel| kernel.blocks.count(&sizes)).sum();
        let [before, updates, commit] = module.parts();
        let sequences = [&module.prelude[..], before, updates, commit];
        let numbers = match known {
            Some(known) => {
                let numbers = [known.prelude, known.parts[0], known.parts[1], known.parts[2]];
                for (entries, sequence) in sequences.into_iter().zip(numbers) {
                    self.device.resize(sequence, &entries.iter().map(blocks).collect::<Vec<_>>())?;
                }
                numbers
            }
            None => {
                let launch = |entry: &Entry| Launch {
                    name: entry.name.clone(),
                    what: self.describe(program, entry),
                    blocks: blocks(entry),
                    shared: entry.shared(),
                };
                let sequences = sequences
                    .map(|entries| Sequence { module: number, launches: entries.iter().map(launch).collect() });
                let [prelude, before, updates, commit] = sequences.map(|sequence| self.device.prepare(sequence));
                [prelude?, before?, updates?, commit?]
            }
        };
        let found = |output: &hgnnc_kernel_ir::kernel::Output| {
            let OutputKind::Result(name) = &output.kind else { return None };
            let (rows, width) = (rows(self.data, &output.ty), width(self.data, &output.ty));
            let from = match output.source {
                Source::Buffer(buffer) => From::Device(addresses[buffer.index()]),
                Source::Const(number) => From::Number(number as f32),
                Source::Count(space) => From::Number(DataSizes(self.data).space(space) as f32),
                Source::Local(_) => return None,
            };
            Some(Found { name: name.clone(), rows, width, from })
        };
        let results = program.outputs.iter().filter_map(found).collect();
        let [prelude, parts @ ..] = numbers;
        Ok(Bound { prelude, parts, shares: None, module: number, results })
    }

    /// Describes the work of an entry's kernels, for messages.
    fn describe(&self, program: &Program, entry: &Entry) -> String {
        let sizes = DataSizes(self.data);
        let describe = |kernel: &KernelInfo| match &kernel.blocks {
            Blocks::One => "once".to_owned(),
            Blocks::Rows { rows, .. } | Blocks::Bands { rows, .. } => {
                format!("{}: {} rows", print_rows(program, rows), sizes.rows(rows))
            }
            Blocks::Gemm { form, rows, members, of } => {
                let (k, n) = (sizes.width(&of.left()), sizes.width(&of.n));
                let members =
                    members.map_or_else(String::new, |members| format!(" of {} members", sizes.space(members.space)));
                format!("{}: {} rows{members}, {k} by {n}", form.name(), sizes.space(*rows))
            }
            Blocks::Members { rows, width } => {
                format!("parts of {} rows, {} elements", sizes.space(*rows), sizes.width(width))
            }
            Blocks::Elements { width, .. } => format!("{} elements", sizes.width(width)),
            Blocks::Copy { space, width } => {
                format!("copy: {} rows of {}", sizes.space(*space), sizes.width(width))
            }
        };
        let mut all: Vec<String> = entry.kernels.iter().take(MOST_DESCRIBED).map(describe).collect();
        if entry.kernels.len() > MOST_DESCRIBED {
            all.push(format!("and {} more kernels", entry.kernels.len() - MOST_DESCRIBED));
        }
        all.join("; ")
    }

    fn stored(&self, contents: Contents, places: &Places<'_>) -> Result<u64> {
        let missing = || ExecError::Unsupported("internal error: an update of what is not stored".into());
        match contents {
            Contents::Param(param) => Ok(places.params[param.index()].0),
            Contents::State(param, slot) => {
                let position = places.states.iter().position(|&known| known == (param, slot));
                Ok(places.state_places[position.ok_or_else(missing)?].0)
            }
            Contents::Input(_) | Contents::Computed => Err(missing()),
        }
    }

    /// Address of each buffer of a program.
    fn addresses(&mut self, (program, values): (&Program, &place::Memory), places: &Places<'_>) -> Result<Vec<u64>> {
        let mut addresses = vec![];
        for index in 0..program.buffers.len() {
            let decl = program.buffer(program.home(Buffer::new(index)));
            addresses.push(match decl.contents {
                contents @ (Contents::Param(_) | Contents::State(..)) => self.stored(contents, places)?,
                Contents::Input(input) => {
                    let expected = rows(self.data, &decl.ty) * width(self.data, &decl.ty);
                    self.input(input.index(), expected, &program.tables, places)?
                }
                Contents::Computed => places.arena,
            });
        }
        for (area, base) in [(&values.fixed, places.fixed), (&values.run, places.arena)] {
            for slot in &area.slots {
                addresses[slot.buffer.index()] = base + (F32 * slot.offset) as u64;
            }
        }
        Ok(addresses)
    }

    fn input(&mut self, index: usize, len: usize, tables: &Dataflow, places: &Places<'_>) -> Result<u64> {
        if let Some(&known) = self.inputs.get(&index) {
            return Ok(known);
        }
        let name = &tables.inputs[index].name;
        let wrong = |found: String| ExecError::Shape {
            what: format!("the input `{name}`"),
            found,
            expected: format!("{len} elements"),
        };
        let bytes: &[u8] = match self.data.inputs.get(index) {
            // A session that waits for its first batch.
            Some(InputData::Held(0)) if len == 0 => &[],
            Some(InputData::Rows(numbers)) if numbers.is_empty() && len == 0 => &[],
            Some(InputData::Held(held)) if *held == len && index < self.held.len() => {
                bytemuck::cast_slice(&self.held[index].view()[..len])
            }
            None | Some(InputData::Missing | InputData::Held(_)) => return Err(wrong("no data".into())),
            Some(InputData::StepNumber) => return Ok(places.counters),
            Some(InputData::EpochNumber) => return Ok(places.counters + F32 as u64),
            Some(InputData::Rows(numbers)) => {
                let at = self.rows_of_input((index, name), numbers, len)?;
                return at.ok_or_else(|| wrong("no rows".into()));
            }
            Some(InputData::Numbers(numbers)) if numbers.len() == len => bytemuck::cast_slice(numbers),
            Some(InputData::Classes(classes)) if classes.len() == len => bytemuck::cast_slice(classes),
            Some(InputData::Numbers(numbers)) => return Err(wrong(format!("{} elements", numbers.len()))),
            Some(InputData::Classes(classes)) => return Err(wrong(format!("{} labels", classes.len()))),
        };
        let at = self.uploaded.inputs.entry(index).or_default().grow(self.device, name, bytes.len())?;
        self.device.upload(at, bytes)?;
        self.inputs.insert(index, at);
        Ok(at)
    }

    /// Copies the rows of an input with these numbers from the matrix that has them. `None` if there is no such matrix.
    fn rows_of_input(&mut self, (index, name): (usize, &str), numbers: &[u32], len: usize) -> Result<Option<u64>> {
        let Uploaded { inputs, matrices, copies, .. } = &mut *self.uploaded;
        let matrix = matrices.get(&index).and_then(|store| DeviceRows::of(store, self.device));
        let Some((matrix, width)) = matrix.map(DeviceRows::place).filter(|(_, width)| width * numbers.len() == len)
        else {
            return Ok(None);
        };
        let packed = inputs.entry(index).or_default().grow(self.device, name, F32 * len)?;
        if copies.is_none() {
            *copies = Some(RowCopies::new(self.device, self.compiler)?);
        }
        if let Some(copies) = copies {
            let numbers_at = copies.upload(self.device, index, numbers)?;
            copies.copy(self.device, RowCopy::Gather, (matrix, packed, numbers_at), (numbers.len(), width))?;
        }
        self.inputs.insert(index, packed);
        Ok(Some(packed))
    }

    fn array(&mut self, slot: &Slot) -> Result<u64> {
        if let Some(&known) = self.arrays.get(slot) {
            return Ok(known);
        }
        let array = index_array(self.data, slot).unwrap_or_default();
        let room = self.uploaded.arrays.entry(slot.clone()).or_default();
        let at = room.grow(self.device, "graph", F32 * array.len())?;
        self.device.upload(at, bytemuck::cast_slice(&array))?;
        self.arrays.insert(slot.clone(), at);
        Ok(at)
    }
}
