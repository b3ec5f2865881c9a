//! Schedules of a region: the loops of a nest with the places of local values.
//!
//! The compiler fixes the loops and their tiles. Where a value lives depends on them and on the sizes of blocks: values
//! used within one loop exist for one tile and stay in the L1 cache, others for a block.

use hgnnc_data::BoundData;
use hgnnc_data::buffer::BufferRange;
use hgnnc_ir::kernel::place::{Lifetime, place};

use crate::facts::{Facts, is_sound};
use crate::plan::{BlockOp, FusedLoop, Level, Liveness, LoopStep, Place, Region, SplitRows, block_extents};

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
        let checked = |loops: &[FusedLoop]| loops.iter().map(|fused| checked(fused, region, facts)).collect();
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

/// The loop with calls replaced by their operations, where the data does not meet their requirements.
fn checked(fused: &FusedLoop, region: &Region, facts: &Facts<'_>) -> FusedLoop {
    let steps = fused.steps.iter().flat_map(|step| match step {
        LoopStep::Native(part) if !is_sound(part, region, facts) => {
            part.ops.iter().copied().map(LoopStep::Op).collect()
        }
        step => vec![step.clone()],
    });
    FusedLoop { steps: steps.collect(), ..*fused }
}
