//! Schedules of a region: the loops of a nest with the places of local values.
//!
//! The compiler fixes the loops and their tiles. Where a value lives depends on them and on the sizes of blocks: values
//! used within one loop exist for one tile and stay in the L1 cache, others for a block.

use hgnnc_ir::kernel::place::{Lifetime, place, sum_alive};

use crate::buffer::BufferRange;
use crate::data::BoundData;
use crate::native::{Facts, NativeLoop};
use crate::plan::{Base, BlockOp, Domain, Level, Place, Region, SplitRows};

/// A loop over the rows or edges of a block.
#[derive(Clone, PartialEq, Debug)]
pub struct FusedLoop {
    /// Iteration space: rows or edges.
    pub level: Level,
    /// Edges or rows per tile; `None`: the entire block at once.
    pub tile: Option<usize>,
    /// The steps of each tile, in order.
    pub steps: Vec<Step>,
}

/// A step of a loop.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// An operation of the region, by index, executed by a micro-kernel.
    Op(usize),
    /// A call of machine code.
    Native(NativeLoop),
}

impl Step {
    /// The operations of the region that it executes, by index.
    pub fn ops(&self) -> &[usize] {
        match self {
            Step::Op(op) => std::slice::from_ref(op),
            Step::Native(part) => &part.ops,
        }
    }
}

impl FusedLoop {
    /// The operations of the region that it executes, by index.
    pub fn ops(&self) -> impl Iterator<Item = usize> + '_ {
        self.steps.iter().flat_map(Step::ops).copied()
    }

    /// The loop with calls replaced by their operations, where the data does not meet their requirements.
    fn checked(&self, region: &Region, facts: &Facts<'_>) -> Self {
        let steps = self.steps.iter().flat_map(|step| match step {
            Step::Native(part) if !part.is_sound(region, facts) => part.ops.iter().copied().map(Step::Op).collect(),
            step => vec![step.clone()],
        });
        Self { steps: steps.collect(), ..*self }
    }

    /// Calls of machine code.
    pub fn calls(&self) -> impl Iterator<Item = &NativeLoop> {
        self.steps.iter().filter_map(|step| match step {
            Step::Native(part) => Some(part),
            Step::Op(_) => None,
        })
    }
}

/// Location of a local value while a loop runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalSlot {
    /// In scratch, with a row for each row or edge of the block.
    Block(usize),
    /// In scratch, with a row for each row or edge of a tile.
    Tile(usize),
    /// In the corresponding rows of a stored value.
    Stored(BufferRange),
    /// In the area of a split row, from this element.
    Row(usize),
    /// One partial result per piece of split rows, from this element of the partials slab.
    Piece(usize),
}

/// Pass that a schedule implements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pass {
    /// All blocks of rows.
    Blocks,
    /// Row operations of split rows in an edge pass.
    SplitRows(usize),
    /// Pieces of split rows in an edge pass.
    Pieces(usize),
}

/// Schedules of each step of a plan's prelude and of its steps; empty for steps that are not regions.
pub type Schedules = [Vec<Vec<RegionSchedule>>; 2];

/// Schedule of the operations of a region for one pass.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct RegionSchedule {
    pub pass: Pass,
    /// Loops in execution order.
    pub loops: Vec<FusedLoop>,
    /// Indices of the region's partial results that it computes.
    pub partials: Vec<usize>,
    /// Location of each local.
    pub slots: Vec<LocalSlot>,
    /// Scratch size in elements.
    pub scratch_len: usize,
}

impl RegionSchedule {
    /// Schedules of a region, which may be executed in any order: one for each group of loops, and for split rows two
    /// for each edge pass. Calls whose requirements the data does not meet are executed by micro-kernels instead.
    pub fn of(region: &Region, data: &BoundData, facts: &Facts<'_>) -> Vec<Self> {
        let extents = block_extents(region, data);
        let checked = |loops: &[FusedLoop]| loops.iter().map(|fused| fused.checked(region, facts)).collect();
        let groups = region.groups.iter();
        let mut schedules: Vec<Self> = groups.map(|group| Self::new(region, extents, checked(group))).collect();
        if let Some(split) = &region.split {
            for (round, [rows, edges]) in region.passes.iter().enumerate() {
                for (pass, loops) in [(Pass::SplitRows(round), rows), (Pass::Pieces(round), edges)] {
                    let mut schedule = Self::new(region, (1, split.piece), checked(loops));
                    schedule.pass = pass;
                    schedule.place_split_rows(region, split);
                    schedules.push(schedule);
                }
            }
        }
        schedules
    }

    /// Number of edge passes over split rows.
    pub fn rounds(schedules: &[Self]) -> usize {
        schedules.iter().filter(|schedule| matches!(schedule.pass, Pass::SplitRows(_))).count()
    }

    /// Its reductions over edges.
    pub fn reductions<'r>(&self, region: &'r Region) -> impl Iterator<Item = &'r BlockOp> {
        let ops = self.loops.iter().flat_map(FusedLoop::ops).map(|op| &region.ops[op]);
        ops.filter(|op| op.op.reduces_edges())
    }

    /// Places row values in the areas of split rows, and reductions with the partial results of pieces.
    fn place_split_rows(&mut self, region: &Region, split: &SplitRows) {
        for (slot, &at) in self.slots.iter_mut().zip(&split.areas.in_row) {
            *slot = at.map_or(*slot, LocalSlot::Row);
        }
        // A piece never reads its own reductions.
        let reduced: Vec<usize> = self.reductions(region).map(|op| op.out as usize).collect();
        for local in reduced {
            self.slots[local] = split.parts(local).map_or(self.slots[local], LocalSlot::Piece);
        }
    }

    /// Places the locals of loops.
    fn new(region: &Region, (most_rows, most_edges): (usize, usize), loops: Vec<FusedLoop>) -> Self {
        let Liveness { lives, last } = Liveness::of(region, &loops);
        let mut slots: Vec<LocalSlot> = region
            .locals
            .iter()
            .map(|local| match local.place {
                Place::Stored(buffer) => LocalSlot::Stored(buffer),
                Place::Scratch => LocalSlot::Block(0),
            })
            .collect();
        let (mut which, mut lifetimes) = (vec![], vec![]);
        for (index, (live, local)) in lives.iter().zip(&region.locals).enumerate() {
            let (Some((tiled, start, end)), Place::Scratch) = (*live, local.place) else { continue };
            let most = match local.level {
                Level::Row => most_rows,
                Level::Edge => most_edges,
            };
            let fused = loops.iter().zip(&last).find(|(_, last)| start <= **last);
            let tile = fused.and_then(|(fused, _)| fused.tile).filter(|_| tiled);
            let count = tile.map_or(most, |tile| tile.min(most));
            which.push((index, tiled));
            lifetimes.push(Lifetime { start, end, len: count * local.width });
        }
        let (offsets, scratch_len) = place(&lifetimes);
        for ((local, tiled), offset) in which.into_iter().zip(offsets) {
            slots[local] = if tiled { LocalSlot::Tile(offset) } else { LocalSlot::Block(offset) };
        }
        let partials = loops.iter().flat_map(FusedLoop::ops).map(|op| &region.ops[op]).filter(|op| op.op.is_total());
        let partials = partials.map(|op| op.out as usize).collect();
        Self { pass: Pass::Blocks, loops, partials, slots, scratch_len }
    }
}

/// Liveness of the locals of a region.
struct Liveness {
    /// Per local: whether it is used within one loop only, and its first and last moment. `None` for locals in
    /// registers and those of other schedules.
    lives: Vec<Option<(bool, usize, usize)>>,
    /// Last moment of each loop.
    last: Vec<usize>,
}

impl Liveness {
    fn of(region: &Region, loops: &[FusedLoop]) -> Self {
        let mut loop_of = vec![0; region.ops.len()];
        let mut position = vec![0; region.ops.len()];
        let (mut first, mut last) = (vec![], vec![]);
        let mut at = 0;
        for (index, fused) in loops.iter().enumerate() {
            first.push(at);
            // The operations of a call share one moment.
            for step in &fused.steps {
                for &op in step.ops() {
                    loop_of[op] = index;
                    position[op] = at;
                }
                at += 1;
            }
            last.push(at - 1);
        }
        let mut ops: Vec<usize> = loops.iter().flat_map(FusedLoop::ops).collect();
        ops.sort_unstable();
        let mut lives: Vec<Option<(bool, usize, usize)>> = vec![None; region.locals.len()];
        for (op, block_op) in ops.iter().map(|&op| (op, &region.ops[op])) {
            if !block_op.op.is_total() {
                let tiled = loops[loop_of[op]].tile.is_some() && !block_op.op.reduces_edges();
                lives[block_op.out as usize] = Some((tiled, op, op));
            }
        }
        // Values in registers need no slot.
        let calls = loops.iter().flat_map(FusedLoop::calls);
        calls.flat_map(|part| part.internal(region)).for_each(|local| lives[local as usize] = None);
        let mut ends: Vec<Vec<usize>> = vec![vec![]; region.locals.len()];
        for (op, block_op) in ops.iter().map(|&op| (op, &region.ops[op])) {
            for operand in block_op.op.operands() {
                if let Base::Local(local) = operand.base {
                    ends[local as usize].push(op);
                }
            }
        }
        for (live, users) in lives.iter_mut().zip(&ends) {
            let Some((tiled, producer, end)) = live else { continue };
            *tiled &= users.iter().all(|&user| loop_of[user] == loop_of[*producer]);
            if *tiled {
                *end = users.iter().map(|&u| position[u]).max().unwrap_or(0).max(position[*producer]);
                *producer = position[*producer];
            } else {
                let fused = users.iter().map(|&u| loop_of[u]).max().unwrap_or(0).max(loop_of[*producer]);
                *end = last[fused];
                *producer = first[loop_of[*producer]];
            }
        }
        Self { lives, last }
    }
}

/// Peak live elements per row and per edge of a block, for locals that outlive a tile, when all groups of loops run
/// without machine code.
pub fn block_widths(region: &Region) -> [usize; 2] {
    // Values of calls are in registers, or exist for a tile.
    let plain = |fused: &FusedLoop| FusedLoop {
        level: fused.level,
        tile: fused.tile.or(fused.calls().next().map(|_| 1)),
        steps: fused.ops().map(Step::Op).collect(),
    };
    let of_group = |group: &Vec<FusedLoop>| {
        let Liveness { lives, last, .. } = Liveness::of(region, &group.iter().map(plain).collect::<Vec<_>>());
        let moments = last.last().map_or(0, |last| last + 1);
        [Level::Row, Level::Edge].map(|level| {
            let of_blocks = lives.iter().zip(&region.locals).filter_map(|(live, local)| match (live, local.place) {
                (Some((false, start, end)), Place::Scratch) if local.level == level => {
                    Some(Lifetime { start: *start, end: *end, len: local.width })
                }
                _ => None,
            });
            sum_alive(of_blocks, moments).into_iter().max().unwrap_or(0)
        })
    };
    let each = region.groups.iter().map(of_group);
    each.fold([0, 0], |[rows, edges], [r, e]| [rows.max(r), edges.max(e)])
}

/// Maximum rows and edges of a block.
pub fn block_extents(region: &Region, data: &BoundData) -> (usize, usize) {
    let rows = region.unsplit_blocks().map(|rows| rows.len()).max().unwrap_or(0);
    let edges = match region.domain {
        Domain::Rows(_) => 0,
        Domain::Edges { topology, direction, ends } => {
            let indptr = data.topology(topology).indptr(direction, ends);
            region.unsplit_blocks().map(|rows| (indptr[rows.end] - indptr[rows.start]) as usize).max().unwrap_or(0)
        }
    };
    (rows, edges)
}
