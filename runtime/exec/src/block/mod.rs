//! Executes the program of a region for one block of rows after another.
//!
//! This is the interpreter of [`crate::plan::BlockOp`]: [`run`] goes through the blocks and the tiles of their edges,
//! [`Block`] finds the operands of an operation in scratch or in stored values, and [`execute`] calls a kernel for all
//! rows or edges of the tile. It decides nothing.

// Operands and results are ranges of shared slabs; see `raw`.
#![allow(unsafe_code)]

mod cache_resident_replay;
mod execute;
mod run;

pub use cache_resident_replay::CacheResidentReplay;
pub use run::{SplitRowRunner, combine, run_task};
pub(crate) use run::{begin, partial_of};

use hgnnc_native::Code;

use crate::buffer::HostBuffer;
use crate::data::BoundData;
use crate::kernel_features::KernelFeatures;
use crate::kernels::Rows;
use crate::native::Tables;
use crate::plan::{Access, Base, Level, Operand, Plan, Region};
use crate::schedule::{LocalSlot, RegionSchedule, Schedules};

/// What a task needs besides its region.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// All slabs.
    pub slabs: &'a [HostBuffer],
    /// Graphs, patterns and labels.
    pub data: &'a BoundData,
    /// Slab of partial results.
    pub partials: u32,
    /// Seed of the masks.
    pub seed: u64,
    /// Training step of the masks.
    pub step: u64,
    /// The kernels that operations may call.
    pub features: KernelFeatures,
    /// Machine code of parts.
    pub code: &'a Code,
    /// Folds what is touched into the caches of a core; for one thread only.
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
    /// Enough for all regions of the plans, whose programs need `len` elements.
    pub(crate) fn new(plans: &[Plan], schedules: &[Schedules], len: usize) -> Self {
        Self::with_room(plans, schedules, len, 0)
    }

    /// As [`Scratch::new`], with room for one part in `slack` more, for plans that differ a little; 0: for none.
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

    /// Is it enough for all regions of the plans, whose programs need `len` elements?
    pub(crate) fn holds(&self, plans: &[Plan], len: usize) -> bool {
        plans.iter().all(|plan| {
            plan.tile_len <= self.tiles[0].len()
                && plan.block_edges <= self.own.len()
                && plan.block_rows < self.offsets.len()
        }) && len <= self.floats.len()
    }

    /// Has room for the calls of these routines.
    pub(crate) fn prepare(&mut self, schedules: &[Schedules]) {
        self.tables = Tables::new(schedules);
    }

    /// Bytes that [`Scratch::new`] takes.
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
    floats: &'a HostBuffer,
    pub first_row: usize,
    pub num_rows: usize,
    first_edge: usize,
    num_edges: usize,
    pub other: &'a [u32],
    pub position: &'a [u32],
    pub own: &'a [u32],
    /// Per edge: the vertex of its row (rows of ends), or the end that its row is (rows of vertices).
    pub own_end: &'a [u32],
    /// The vertices of rows of ends.
    pub vertices: &'a [u32],
    /// The other end of each edge, counted among the ends of the graph.
    pub other_end: &'a [u32],
    pub full: &'a [u32],
    pub offsets: &'a [u32],
    incoming: bool,
    /// Where the area of a cut row begins.
    row_area: usize,
    /// The number of its piece.
    piece: usize,
    /// The first edge (row) of the tile at hand, counted within the block.
    pub start: usize,
    /// Edges (rows) of the tile.
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

    /// An operand of an operation at a level, for the tile at hand.
    pub fn operand(&self, operand: &Operand, level: Level) -> Rows<'a> {
        let Operand { base, access, width } = *operand;
        let tile = self.start..self.start + self.items;
        // All rows of what the base has a row for.
        let all = || -> &'a [f32] {
            match base {
                Base::Local(local) => self.local(local, 0, self.num_rows * width, width),
                // SAFETY: stored operands are no outputs of this step.
                Base::Stored(buffer) => unsafe {
                    self.context.slabs[buffer.slab as usize].read(buffer.offset, buffer.len)
                },
            }
        };
        match access {
            Access::Each => Rows::Each(match base {
                Base::Local(local) => self.local(local, self.start, self.items * width, width),
                Base::Stored(buffer) => {
                    let start = buffer.offset + (self.first(level) + self.start) * width;
                    // SAFETY: as above.
                    unsafe { self.context.slabs[buffer.slab as usize].read(start, self.items * width) }
                }
            }),
            Access::Same => Rows::Same(all()),
            Access::Owner => {
                let rows = match base {
                    Base::Local(_) => all(),
                    Base::Stored(buffer) => {
                        let start = buffer.offset + self.first_row * width;
                        // SAFETY: as above.
                        unsafe { self.context.slabs[buffer.slab as usize].read(start, self.num_rows * width) }
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
        }
    }

    /// An earlier result of this block, from its row (edge) `first` on.
    pub fn local(&self, index: u32, first: usize, len: usize, width: usize) -> &'a [f32] {
        match self.schedule.slots[index as usize] {
            // SAFETY: the scratch belongs to this thread, and locals alive together are disjoint.
            LocalSlot::Block(offset) => unsafe { self.floats.read(offset + first * width, len) },
            // SAFETY: as above.
            LocalSlot::Tile(offset) => unsafe { self.floats.read(offset, len) },
            // SAFETY: the row belongs to this task, or is read by all tasks of its pieces and written by none.
            LocalSlot::Row(at) => unsafe { self.partials().read(self.row_area + at + first * width, len) },
            // SAFETY: the piece belongs to this task.
            LocalSlot::Piece(at) => unsafe { self.partials().read(at + (self.piece + first) * width, len) },
            LocalSlot::Stored(buffer) => {
                let local = &self.region.locals[index as usize];
                let start = buffer.offset + self.first(local.level) * local.width + first * width;
                // SAFETY: rows of this block, written by an earlier operation of it.
                unsafe { self.context.slabs[buffer.slab as usize].read(start, len) }
            }
        }
    }

    /// The slab in which areas of cut rows are.
    fn partials(&self) -> &'a HostBuffer {
        &self.context.slabs[self.context.partials as usize]
    }

    /// Where `count` rows (edges) of a local from `first` on are written.
    pub fn output(&self, index: u32, first: usize, count: usize) -> &'a mut [f32] {
        let local = &self.region.locals[index as usize];
        let len = count * local.width;
        match self.schedule.slots[index as usize] {
            // SAFETY: the scratch belongs to this thread, and no operand is placed where the result goes.
            LocalSlot::Block(offset) => unsafe { self.floats.write(offset + first * local.width, len) },
            // SAFETY: as above.
            LocalSlot::Tile(offset) => unsafe { self.floats.write(offset, len) },
            // SAFETY: cut rows are written between the rounds of their pieces, each by one task.
            LocalSlot::Row(at) => unsafe { self.partials().write(self.row_area + at + first * local.width, len) },
            // SAFETY: the piece belongs to this task.
            LocalSlot::Piece(at) => unsafe { self.partials().write(at + (self.piece + first) * local.width, len) },
            LocalSlot::Stored(buffer) => {
                let start = buffer.offset + (self.first(local.level) + first) * local.width;
                // SAFETY: the rows of a block belong to one task, and outputs of a step are disjoint.
                unsafe { self.context.slabs[buffer.slab as usize].write(start, len) }
            }
        }
    }
}
