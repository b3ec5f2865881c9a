//! Schedules of a region: the loops of a nest with the places of local values.
//!
//! The compiler fixes the loops and their tiles. Where a value lives depends on them and on the sizes of blocks: values
//! used within one loop exist for one tile and stay in the L1 cache, others for a block.

use hgnnc_data::buffer::BufferRange;
use hgnnc_kernel_ir::kernel::place::{Lifetime, place};

use crate::facts::{Facts, is_sound};
use crate::plan::{BlockOp, FusedLoop, Level, Liveness, LoopStep, Place, Region, SplitRows, Stored, block_extents};

/// Location of a local value while a loop runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalSlot {
    /// In scratch, with a row for each row or edge of the block.
    Block(usize),
    /// In scratch, with a row for each row or edge of a tile.
    Tile(usize),
    /// In the corresponding rows of a stored value.
    Stored(Stored),
    /// In the area of a split row, from this element.
    Row(usize),
    /// One partial result per piece of split rows, in the partials slab.
    Piece,
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
    /// Most rows and edges of a block that the slots are for.
    extents: (usize, usize),
    /// Whether micro-kernels execute some call.
    without_calls: bool,
    /// Scratch size in elements.
    pub scratch_len: usize,
}

impl RegionSchedule {
    /// Schedules of a region, which may be executed in any order: one for each group of loops, and for split rows two
    /// for each edge pass. Calls whose requirements the data does not meet are executed by micro-kernels instead. Blocks
    /// as large as those of `earlier` schedules have room, too.
    pub fn of(region: &Region, ranges: &[BufferRange], facts: &Facts<'_>, earlier: &[Self]) -> Vec<Self> {
        let extents_of = |pass: fn(Pass) -> bool, (rows, edges): (usize, usize)| {
            let earlier = earlier.iter().filter(|schedule| pass(schedule.pass)).map(|schedule| schedule.extents);
            earlier.fold((rows, edges), |most, other| (most.0.max(other.0), most.1.max(other.1)))
        };
        let checked = |loops: &[FusedLoop]| {
            let calls = |loops: &[FusedLoop]| loops.iter().flat_map(FusedLoop::calls).count();
            let found: Vec<_> = loops.iter().map(|fused| checked(fused, region, ranges, facts)).collect();
            let without_calls = calls(&found) < calls(loops);
            (found, without_calls)
        };
        let extents = extents_of(|pass| pass == Pass::Blocks, block_extents(region, facts.data()));
        let groups = region.groups.iter();
        let mut schedules: Vec<Self> = groups.map(|group| Self::new(region, extents, checked(group))).collect();
        if let Some(split) = &region.split {
            let extents = extents_of(|pass| pass != Pass::Blocks, (1, split.piece));
            for (round, [rows, edges]) in region.passes.iter().enumerate() {
                for (pass, loops) in [(Pass::SplitRows(round), rows), (Pass::Pieces(round), edges)] {
                    let mut schedule = Self::new(region, extents, checked(loops));
                    schedule.pass = pass;
                    schedule.place_split_rows(region, split);
                    schedules.push(schedule);
                }
            }
        }
        schedules
    }

    /// Whether schedules that were made for other data serve this data: they have room for its blocks, and it meets the
    /// requirements of all calls.
    pub fn serve(schedules: &[Self], region: &Region, ranges: &[BufferRange], facts: &Facts<'_>) -> bool {
        let blocks = block_extents(region, facts.data());
        let split = region.split.as_ref().map(|split| (1, split.piece));
        let fits = |schedule: &Self| {
            let needed = if schedule.pass == Pass::Blocks { Some(blocks) } else { split };
            needed.is_some_and(|(rows, edges)| rows <= schedule.extents.0 && edges <= schedule.extents.1)
        };
        let sound = |schedule: &Self| {
            let mut calls = schedule.loops.iter().flat_map(FusedLoop::calls);
            !schedule.without_calls && calls.all(|call| is_sound(call, region, ranges, facts))
        };
        let passes = if split.is_some() { 2 * region.passes.len() } else { 0 };
        schedules.len() == region.groups.len() + passes && schedules.iter().all(|s| fits(s) && sound(s))
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
        for local in reduced.into_iter().filter(|&local| split.areas.in_piece[local].is_some()) {
            self.slots[local] = LocalSlot::Piece;
        }
    }

    /// Places the locals of loops.
    fn new(
        region: &Region,
        extents @ (most_rows, most_edges): (usize, usize),
        (loops, without_calls): (Vec<FusedLoop>, bool),
    ) -> Self {
        let Liveness { lives, last } = Liveness::of(region, &loops);
        let mut slots: Vec<LocalSlot> = region
            .locals
            .iter()
            .map(|local| match local.place {
                Place::Stored(stored) => LocalSlot::Stored(stored),
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
        Self { pass: Pass::Blocks, loops, partials, slots, extents, without_calls, scratch_len }
    }
}

/// The loop with calls replaced by their operations, where the data does not meet their requirements.
fn checked(fused: &FusedLoop, region: &Region, ranges: &[BufferRange], facts: &Facts<'_>) -> FusedLoop {
    let steps = fused.steps.iter().flat_map(|step| match step {
        LoopStep::Native(part) if !is_sound(part, region, ranges, facts) => {
            part.ops.iter().copied().map(LoopStep::Op).collect()
        }
        step => vec![step.clone()],
    });
    FusedLoop { steps: steps.collect(), ..*fused }
}
