//! Interpreter of [`crate::plan::BlockOp`]: executes a region block of rows by block of rows.
//!
//! `run` iterates over blocks and tiles of edges, `Block` locates the operands of an operation in scratch or stored
//! values, and `execute` calls a kernel for all rows or edges of the tile. All decisions are in the plan.

mod cache_resident_replay;
mod execute;
mod native;
mod row_tables;
mod run;

pub use cache_resident_replay::CacheResidentReplay;
pub use row_tables::BlockTable;
pub use run::{SplitRowRunner, combine, run_task};
pub(crate) use run::{begin, partial_of};

use hgnnc_data::BoundData;
use hgnnc_data::buffer::{BufferRange, HostBuffer, PlannedSlabs};
use hgnnc_executable::cpu::MachineCode;
use hgnnc_kernels::Rows;
use hgnnc_kernels::simd::Dispatch;

use crate::plan::{Access, Base, Level, Operand, Plan, Region, Stored};
use crate::schedule::{LocalSlot, RegionSchedule, Schedules};
use native::Tables;

/// State shared by the tasks of a step.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Context<'a> {
    /// Memory of all values, by slab index.
    pub slabs: PlannedSlabs<'a>,
    /// Location of each stored value.
    pub ranges: &'a [BufferRange],
    /// Graphs, patterns and labels.
    pub data: &'a BoundData,
    /// Slab index of partial results.
    pub partials: u32,
    /// Seed of dropout masks.
    pub seed: u64,
    /// Training step, for dropout masks.
    pub step: u64,
    /// Instruction set and features of kernels.
    pub dispatch: Dispatch,
    /// Machine code of the program's functions.
    pub code: &'a MachineCode,
    /// Tables that blocks update where their rows are.
    pub tables: &'a [BlockTable<'a>],
    /// Redirects accesses to a cache-resident working set; single-threaded only.
    pub replay: Option<&'a CacheResidentReplay>,
}

/// Scratch of one thread, sized by the plan.
#[derive(Debug)]
pub struct Scratch {
    floats: HostBuffer,
    tiles: [Vec<f32>; 2],
    own: Vec<u32>,
    own_end: Vec<u32>,
    full: Vec<u32>,
    offsets: Vec<u32>,
    clip: Vec<u32>,
    tables: Tables,
}

impl Scratch {
    /// Scratch for all regions of the plans, with `len` elements of local values.
    pub(crate) fn new(plans: &[Plan], schedules: &[Schedules], len: usize) -> Self {
        Self::with_room(plans, schedules, len, 0)
    }

    /// [`Scratch::new`] with an extra `1 / slack` of room, for plans that vary a little; 0: none.
    pub(crate) fn with_room(plans: &[Plan], schedules: &[Schedules], len: usize, slack: usize) -> Self {
        let room = |len: usize| len + len.checked_div(slack).unwrap_or(0);
        let most = |f: fn(&Plan) -> usize| room(plans.iter().map(f).max().unwrap_or(0));
        let tile = most(|p| p.tile_len);
        let edges = most(|p| p.block_edges);
        Self {
            floats: HostBuffer::zeros(room(len)),
            tiles: [vec![0.0; tile], vec![0.0; tile]],
            own: vec![0; edges],
            own_end: vec![0; edges],
            full: vec![0; edges],
            offsets: vec![0; most(|p| p.block_rows) + 1],
            clip: vec![0; most(|p| p.block_rows) + 1],
            tables: Tables::new(schedules),
        }
    }

    /// Whether the scratch suffices for all regions of the plans, with `len` elements of local values.
    pub(crate) fn holds(&self, plans: &[Plan], len: usize) -> bool {
        plans.iter().all(|plan| {
            plan.tile_len <= self.tiles[0].len()
                && plan.block_edges <= self.own.len()
                && plan.block_rows < self.offsets.len()
        }) && len <= self.floats.len()
    }

    /// Prepares the argument tables of the native loops of these schedules.
    pub(crate) fn prepare(&mut self, schedules: &[Schedules]) {
        self.tables = Tables::new(schedules);
    }

    /// Bytes of a scratch without extra room.
    pub fn bytes(plans: &[Plan], len: usize) -> u64 {
        let most = |f: fn(&Plan) -> usize| plans.iter().map(f).max().unwrap_or(0) as u64;
        4 * (len as u64 + 2 * (most(|p| p.tile_len) + most(|p| p.block_rows)) + 3 * most(|p| p.block_edges))
    }
}

/// A block of rows of a region.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    pub context: Context<'a>,
    pub region: &'a Region,
    schedule: &'a RegionSchedule,
    /// Locals, in slab 0.
    floats: PlannedSlabs<'a>,
    pub first_row: usize,
    pub num_rows: usize,
    first_edge: usize,
    num_edges: usize,
    pub other: &'a [u32],
    pub position: &'a [u32],
    pub own: &'a [u32],
    /// Per edge: the vertex of its row (rows are active vertices), or the active vertex of its row
    /// (rows are all vertices).
    pub own_end: &'a [u32],
    /// Vertices of the rows, if rows are active vertices.
    pub vertices: &'a [u32],
    /// Neighbour of each edge, as an active vertex.
    pub other_end: &'a [u32],
    pub full: &'a [u32],
    pub offsets: &'a [u32],
    incoming: bool,
    /// Offset of the split row's area.
    row_area: usize,
    /// Index of the piece.
    piece: usize,
    /// First edge (row) of the current tile within the block.
    pub start: usize,
    /// Edges (rows) of the current tile.
    pub items: usize,
}

impl<'a> Block<'a> {
    pub fn count(&self, level: Level) -> usize {
        match level {
            Level::Row => self.num_rows,
            Level::Edge => self.num_edges,
        }
    }

    fn first(&self, level: Level) -> usize {
        match level {
            Level::Row => self.first_row,
            Level::Edge => self.first_edge,
        }
    }

    /// The place in its slab of the element of a stored value that is this far behind the first of the block.
    fn place(&self, buffer: BufferRange, level: Level, element: usize, width: usize) -> usize {
        let mut of_tables = self.context.tables.iter().filter_map(|table| table.place(self.region, buffer.slab));
        of_tables.next().unwrap_or(buffer.offset + self.first(level) * width) + element
    }

    /// The location of a stored value.
    fn range(&self, stored: Stored) -> BufferRange {
        stored.range(self.context.ranges)
    }

    /// Reads an operand at a level, for the current tile.
    pub fn operand(&self, operand: &Operand, level: Level) -> Rows<'a> {
        let Operand { base, access, width } = *operand;
        let tile = self.start..self.start + self.items;
        // All rows of the base.
        let all = || -> &'a [f32] {
            match base {
                Base::Local(local) => self.local(local, 0, self.num_rows * width, width),
                // Stored operands do not alias outputs of this step.
                Base::Stored(stored) => self.context.slabs.of(self.range(stored)),
                Base::Labels(_) => unreachable!("labels are no rows of numbers"),
            }
        };
        match access {
            Access::Each => Rows::Each(match base {
                Base::Local(local) => self.local(local, self.start, self.items * width, width),
                Base::Stored(stored) => {
                    let buffer = self.range(stored);
                    let start = self.place(buffer, level, self.start * width, width);
                    self.context.slabs.read(buffer.slab, start, self.items * width)
                }
                Base::Labels(_) => unreachable!("labels are no rows of numbers"),
            }),
            Access::Same => Rows::Same(all()),
            Access::Owner => {
                let rows = match base {
                    Base::Local(_) | Base::Labels(_) => all(),
                    Base::Stored(stored) => {
                        let buffer = self.range(stored);
                        let start = buffer.offset + self.first_row * width;
                        self.context.slabs.read(buffer.slab, start, self.num_rows * width)
                    }
                };
                let own = &self.own[tile];
                match own {
                    // All edges of the tile belong to one row.
                    [first, .., last] if first == last => {
                        let at = *first as usize * width;
                        Rows::Same(&rows[at..at + width])
                    }
                    _ => Rows::Picked(rows, own),
                }
            }
            Access::Neighbor => Rows::Picked(all(), &self.other[tile]),
            Access::Vertex => Rows::Picked(all(), &self.vertices[tile]),
            Access::OwnerVertex | Access::OwnerEnd => Rows::Picked(all(), &self.own_end[tile]),
            Access::NeighborEnd => Rows::Picked(all(), &self.other_end[tile]),
            Access::Eid => Rows::Picked(all(), &self.position[tile]),
            Access::DenseCell => Rows::Picked(all(), &self.full[tile]),
            Access::End(..) => unreachable!("rows of active vertices are visited by `at_ends`"),
        }
    }

    /// A local of this block from row (edge) `first` on.
    pub fn local(&self, index: u32, first: usize, len: usize, width: usize) -> &'a [f32] {
        match self.schedule.slots[index as usize] {
            // The scratch belongs to this thread, and live locals are disjoint.
            LocalSlot::Block(offset) => self.floats.read(0, offset + first * width, len),
            LocalSlot::Tile(offset) => self.floats.read(0, offset, len),
            // The row belongs to this task, or is only read, by all tasks of its pieces.
            LocalSlot::Row(at) => {
                self.context.slabs.read(self.context.partials, self.row_area + at + first * width, len)
            }
            // The piece belongs to this task.
            LocalSlot::Piece => {
                let start = self.parts(index) + (self.piece + first) * width;
                self.context.slabs.read(self.context.partials, start, len)
            }
            LocalSlot::Stored(stored) => {
                let buffer = self.range(stored);
                let local = &self.region.locals[index as usize];
                let start = self.place(buffer, local.level, first * width, local.width);
                // Rows of this block, written by an earlier operation.
                self.context.slabs.read(buffer.slab, start, len)
            }
        }
    }

    /// Start of the partial results of pieces, for a local that pieces reduce.
    fn parts(&self, index: u32) -> usize {
        let split = self.region.split.as_ref().and_then(|split| split.parts(index as usize));
        split.expect("a region with passes over pieces has split rows")
    }

    /// Output slice of `count` rows (edges) of a local from `first` on.
    pub fn output(&self, index: u32, first: usize, count: usize) -> &'a mut [f32] {
        let local = &self.region.locals[index as usize];
        let len = count * local.width;
        match self.schedule.slots[index as usize] {
            // The scratch belongs to this thread, and no operand aliases the result.
            LocalSlot::Block(offset) => self.floats.write(0, offset + first * local.width, len),
            LocalSlot::Tile(offset) => self.floats.write(0, offset, len),
            // Split rows are written between the passes over their pieces, each by one task.
            LocalSlot::Row(at) => {
                self.context.slabs.write(self.context.partials, self.row_area + at + first * local.width, len)
            }
            // The piece belongs to this task.
            LocalSlot::Piece => {
                let start = self.parts(index) + (self.piece + first) * local.width;
                self.context.slabs.write(self.context.partials, start, len)
            }
            LocalSlot::Stored(stored) => {
                let buffer = self.range(stored);
                let start = self.place(buffer, local.level, first * local.width, local.width);
                // The rows of a block belong to one task, and outputs of a step are disjoint.
                self.context.slabs.write(buffer.slab, start, len)
            }
        }
    }
}
