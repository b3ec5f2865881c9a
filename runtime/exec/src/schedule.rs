//! Schedule of a fused region: loops over operations, tile by tile of edges or rows.
//!
//! The plan fixes the operations of a block. Executing them one by one would stream every edge value of a block through
//! the L2 cache between any two operations. Instead, operations of one level that depend on each other element by
//! element (the same edge or row) are fused into a loop that runs tile by tile; values used only within the loop exist
//! for one tile and stay in the L1 cache. Reductions over edges end a loop: they accumulate into their rows tile by
//! tile.

use hgnnc_ir::kernel::KernelOp;
use hgnnc_ir::kernel::place::{Lifetime, place, sum_alive};
use hgnnc_ir::ops::Reduce;

use crate::buffer::BufferRange;
use crate::data::BoundData;
use crate::edge_passes::edge_passes;
use crate::kernel_features::{KernelFeature, KernelFeatures};
use crate::native::{BodyStep, Chooser, LoopBody, NativeLoop, Uses, divide};
use crate::plan::{Access, Base, BlockOp, Domain, Level, Place, Region, SplitRows};

/// Live elements of a tile at its peak: half of an L1 cache.
const TILE: usize = 6 * 1024;

/// Operations fused into one loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FusedLoop {
    /// Iteration space: rows or edges.
    pub level: Level,
    /// Edges or rows per tile; 0: the entire block at once.
    pub tile: usize,
    /// Indices into the operations of the region, in order.
    pub ops: Vec<usize>,
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
    /// Fused loops in execution order.
    pub loops: Vec<FusedLoop>,
    /// Per loop, its native and interpreted steps if parts of it are machine code.
    pub bodies: Vec<Option<LoopBody>>,
    /// Indices of the region's partial results that it computes.
    pub partials: Vec<usize>,
    /// Location of each local.
    pub slots: Vec<LocalSlot>,
    /// Scratch size in elements.
    pub scratch_len: usize,
}

impl RegionSchedule {
    /// Schedules of a region, which may be executed in any order. Independent groups of operations in an edge traversal
    /// get schedules of their own: the gathered rows of one group fit a cache better than those of all.
    pub fn of(region: &Region, data: &BoundData, chooser: &Chooser<'_>) -> Vec<Self> {
        let deps = dependencies(region);
        let parts = match region.domain {
            Domain::Rows(_) => vec![(0..region.ops.len()).collect()],
            Domain::Edges { .. } if chooser.features.has(KernelFeature::SplitParts) => components(&deps),
            Domain::Edges { .. } => vec![(0..region.ops.len()).collect()],
        };
        let extents = block_extents(region, data);
        let uses = Uses::of(region);
        let new = |ops: &Vec<usize>| Self::new(region, extents, (&deps, &uses), ops, chooser);
        let mut schedules: Vec<Self> = parts.iter().map(new).collect();
        if let Some(split) = &region.split {
            for (round, pass) in edge_passes(region, &deps).into_iter().enumerate() {
                for (pass, ops) in [(Pass::SplitRows(round), pass.rows), (Pass::Pieces(round), pass.edges)] {
                    let uses = Uses::of_round(region, &ops);
                    let mut schedule = Self::new(region, (1, split.piece), (&deps, &uses), &ops, chooser);
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
        let ops = self.loops.iter().flat_map(|fused| &fused.ops).map(|&op| &region.ops[op]);
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

    /// Native loops of the schedule.
    pub fn parts(&mut self) -> impl Iterator<Item = &mut NativeLoop> {
        self.bodies.iter_mut().flatten().flat_map(|body| &mut body.steps).filter_map(|step| match step {
            BodyStep::Native(part) => Some(part),
            BodyStep::Op(_) => None,
        })
    }

    /// Divides operations of a region into loops and places their locals.
    fn new(
        region: &Region,
        (most_rows, most_edges): (usize, usize),
        (deps, uses): (&[Vec<Dependency>], &Uses),
        ops: &[usize],
        chooser: &Chooser<'_>,
    ) -> Self {
        let mut loops = loops(region, deps, ops, chooser.features);
        let bodies: Vec<Option<LoopBody>> = loops
            .iter()
            .map(|fused| match fused.tile {
                0 => None,
                _ => divide(region, uses, fused.level, &fused.ops, chooser),
            })
            .collect();
        let Liveness { lives, first, last } = Liveness::of(region, ops, &loops, &bodies);
        let tiled = lives.iter().zip(&region.locals).filter_map(|(live, local)| match live {
            Some((true, start, end)) => Some(Lifetime { start: *start, end: *end, len: local.width }),
            _ => None,
        });
        let alive = sum_alive(tiled, last.last().map_or(0, |last| last + 1));
        for (index, fused) in loops.iter_mut().enumerate().filter(|(_, c)| c.tile != 0) {
            let peak = alive[first[index]..=last[index]].iter().copied().max().unwrap_or(1).max(1);
            fused.tile = (TILE / peak).clamp(32, 1024) / 16 * 16;
        }
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
            let fused = loops.iter().zip(&last).find(|(_, last)| start <= **last).map_or(0, |(c, _)| c.tile);
            let count = if tiled { fused.min(most) } else { most };
            which.push((index, tiled));
            lifetimes.push(Lifetime { start, end, len: count * local.width });
        }
        let (offsets, scratch_len) = place(&lifetimes);
        for ((local, tiled), offset) in which.into_iter().zip(offsets) {
            slots[local] = if tiled { LocalSlot::Tile(offset) } else { LocalSlot::Block(offset) };
        }
        let partials = ops.iter().map(|&op| &region.ops[op]).filter(|op| op.op.is_total());
        let partials = partials.map(|op| op.out as usize).collect();
        Self { pass: Pass::Blocks, loops, bodies, partials, slots, scratch_len }
    }
}

/// Liveness of the locals of a region.
struct Liveness {
    /// Per local: whether it is used within one loop only, and its first and last moment. `None` for locals in
    /// registers and those of other schedules.
    lives: Vec<Option<(bool, usize, usize)>>,
    /// First moment of each fused loop.
    first: Vec<usize>,
    /// Last moment of each fused loop.
    last: Vec<usize>,
}

impl Liveness {
    fn of(region: &Region, ops: &[usize], loops: &[FusedLoop], bodies: &[Option<LoopBody>]) -> Self {
        let mut chain_of = vec![0; region.ops.len()];
        let mut position = vec![0; region.ops.len()];
        let (mut first, mut last) = (vec![], vec![]);
        let mut at = 0;
        for (index, fused) in loops.iter().enumerate() {
            first.push(at);
            // The operations of a native loop share one moment.
            for moment in moments(fused, bodies[index].as_ref()) {
                for op in moment {
                    chain_of[op] = index;
                    position[op] = at;
                }
                at += 1;
            }
            last.push(at - 1);
        }
        let mut lives: Vec<Option<(bool, usize, usize)>> = vec![None; region.locals.len()];
        for (op, block_op) in ops.iter().map(|&op| (op, &region.ops[op])) {
            if !block_op.op.is_total() {
                let tiled = loops[chain_of[op]].tile != 0 && !block_op.op.reduces_edges();
                lives[block_op.out as usize] = Some((tiled, op, op));
            }
        }
        let parts = bodies.iter().flatten().flat_map(|body| &body.steps).filter_map(|step| match step {
            BodyStep::Native(part) => Some(part),
            BodyStep::Op(_) => None,
        });
        // Values in registers need no slot.
        parts.flat_map(|part| part.internal(region)).for_each(|local| lives[local as usize] = None);
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
            *tiled &= users.iter().all(|&user| chain_of[user] == chain_of[*producer]);
            if *tiled {
                *end = users.iter().map(|&u| position[u]).max().unwrap_or(0).max(position[*producer]);
                *producer = position[*producer];
            } else {
                let fused = users.iter().map(|&u| chain_of[u]).max().unwrap_or(0).max(chain_of[*producer]);
                *end = last[fused];
                *producer = first[chain_of[*producer]];
            }
        }
        Self { lives, first, last }
    }
}

/// Peak live elements per row and per edge of a block, for locals that outlive a tile.
pub fn block_widths(region: &Region, features: KernelFeatures) -> [usize; 2] {
    let ops: Vec<usize> = (0..region.ops.len()).collect();
    let loops = loops(region, &dependencies(region), &ops, features);
    let bodies = vec![None; loops.len()];
    let Liveness { lives, last, .. } = Liveness::of(region, &ops, &loops, &bodies);
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
}

/// Operations of a loop grouped by moment: a native loop is one moment.
fn moments(fused: &FusedLoop, body: Option<&LoopBody>) -> Vec<Vec<usize>> {
    match body {
        None => fused.ops.iter().map(|&op| vec![op]).collect(),
        Some(body) => body
            .steps
            .iter()
            .map(|step| match step {
                BodyStep::Op(op) => vec![*op],
                BodyStep::Native(part) => part.ops.clone(),
            })
            .collect(),
    }
}

/// Maximum rows and edges of a block.
pub fn block_extents(region: &Region, data: &BoundData) -> (usize, usize) {
    let rows = region.whole_blocks().map(|rows| rows.len()).max().unwrap_or(0);
    let edges = match region.domain {
        Domain::Rows(_) => 0,
        Domain::Edges { topology, direction, ends } => {
            let indptr = data.topology(topology).indptr(direction, ends);
            region.whole_blocks().map(|rows| (indptr[rows.end] - indptr[rows.start]) as usize).max().unwrap_or(0)
        }
    };
    (rows, edges)
}

/// Whether the operation can run tile by tile.
fn streams(op: &BlockOp) -> bool {
    match &op.op {
        // The block does not read the overwritten value any more.
        _ if op.deferred => false,
        // Log-sum-exp needs the maximum over all edges first.
        KernelOp::Segment(reduce, _) => *reduce != Reduce::Lse,
        // Packs its operands, so it profits from many rows.
        KernelOp::MatMul(..) | KernelOp::MatMulT(..) | KernelOp::OuterAll(..) => false,
        _ => true,
    }
}

/// Producer of an operand.
#[derive(Clone, Copy)]
pub struct Dependency {
    /// Index of the producing operation.
    pub op: usize,
    /// Whether the operand is read at the same row only.
    pub own_row: bool,
}

fn dependencies(region: &Region) -> Vec<Vec<Dependency>> {
    let mut producer = vec![None; region.locals.len()];
    for (index, op) in region.ops.iter().enumerate() {
        if !op.op.is_total() {
            producer[op.out as usize] = Some(index);
        }
    }
    let of = |op: &BlockOp| {
        let locals = op.op.operands().into_iter().filter_map(|operand| match operand.base {
            Base::Local(local) => producer[local as usize].map(|p| (p, operand.access == Access::Each)),
            Base::Stored(_) | Base::Labels(_) => None,
        });
        locals
            .map(|(p, each)| {
                let same_level = region.ops[p].level == op.level && !region.ops[p].op.reduces_edges();
                Dependency { op: p, own_row: each && same_level }
            })
            .collect()
    };
    let mut deps: Vec<Vec<Dependency>> = region.ops.iter().map(of).collect();
    let stores = region.ops.iter().enumerate().filter(|(_, op)| op.deferred);
    for (index, op) in stores {
        let Place::Stored(to) = region.locals[op.out as usize].place else { continue };
        let reads = |op: &BlockOp| {
            op.op.operands().iter().any(|operand| matches!(operand.base, Base::Stored(from) if from.meets(&to)))
        };
        let readers = (0..index).filter(|&other| reads(&region.ops[other]));
        deps[index].extend(readers.map(|op| Dependency { op, own_row: false }));
    }
    deps
}

/// Connected components of the dependence graph, ordered by their first operation.
fn components(deps: &[Vec<Dependency>]) -> Vec<Vec<usize>> {
    let pairs = deps.iter().enumerate().flat_map(|(op, deps)| deps.iter().map(move |dep| (op, dep.op)));
    connected(deps.len(), pairs)
}

/// Connected components of `count` items under `pairs`, ordered by their first item.
pub fn connected(count: usize, pairs: impl IntoIterator<Item = (usize, usize)>) -> Vec<Vec<usize>> {
    // First item of its component, possibly through several links.
    let mut first: Vec<usize> = (0..count).collect();
    let find = |first: &mut Vec<usize>, mut at: usize| {
        while first[at] != at {
            first[at] = first[first[at]];
            at = first[at];
        }
        at
    };
    for (a, b) in pairs {
        let (a, b) = (find(&mut first, a), find(&mut first, b));
        first[a.max(b)] = a.min(b);
    }
    let mut parts: Vec<Vec<usize>> = vec![vec![]; count];
    for at in 0..count {
        parts[find(&mut first, at)].push(at);
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Fuses all operations of a part into loops in dependence order. Row operations go first, so that edge loops find as
/// many operands ready as possible.
fn loops(region: &Region, deps: &[Vec<Dependency>], part: &[usize], features: KernelFeatures) -> Vec<FusedLoop> {
    let ops = &region.ops;
    // Operations of other parts count as done.
    let mut done = vec![true; ops.len()];
    part.iter().for_each(|&op| done[op] = false);
    let mut loops: Vec<FusedLoop> = vec![];
    while done.contains(&false) {
        let single = |level: Level| {
            (0..ops.len())
                .find(|&i| !done[i] && ops[i].level == level && !streams(&ops[i]) && deps[i].iter().all(|d| done[d.op]))
        };
        let fused = if let Some(op) = single(Level::Row) {
            FusedLoop { level: Level::Row, tile: 0, ops: vec![op] }
        } else if let rows = delay_to_last(region, deps, &done, grow(region, deps, &done, Level::Row))
            && !rows.is_empty()
        {
            FusedLoop { level: Level::Row, tile: 1, ops: rows }
        } else if let Some(op) = single(Level::Edge) {
            FusedLoop { level: Level::Edge, tile: 0, ops: vec![op] }
        } else {
            let edges = grow(region, deps, &done, Level::Edge);
            assert!(!edges.is_empty(), "operations of a block are in an order that can be executed");
            FusedLoop { level: Level::Edge, tile: 1, ops: needed(region, deps, &done, edges) }
        };
        fused.ops.iter().for_each(|&op| done[op] = true);
        match features.has(KernelFeature::FusedChains) {
            true => loops.push(fused),
            false => loops.extend(fused.ops.iter().map(|&op| FusedLoop { tile: 0, ops: vec![op], ..fused })),
        }
    }
    loops
}

/// All operations of a level that are ready and can run tile by tile.
fn grow(region: &Region, deps: &[Vec<Dependency>], done: &[bool], level: Level) -> Vec<usize> {
    let mut here = vec![false; region.ops.len()];
    for (index, op) in region.ops.iter().enumerate() {
        let ready = |d: &Dependency| done[d.op] || (here[d.op] && d.own_row);
        if !done[index] && op.level == level && streams(op) && deps[index].iter().all(ready) {
            here[index] = true;
        }
    }
    (0..here.len()).filter(|&i| here[i]).collect()
}

/// Delays row operations to the last loop if all their users are there, so that e.g. optimizer states are not kept live
/// across the edge loops. Other row operations stay early, because edge loops need their operands.
fn delay_to_last(region: &Region, deps: &[Vec<Dependency>], done: &[bool], fused: Vec<usize>) -> Vec<usize> {
    let mut wanted = vec![false; region.ops.len()];
    let mut any = false;
    for (index, op) in region.ops.iter().enumerate().rev().filter(|(index, _)| !done[*index]) {
        // Final stores depend on all others in any case.
        let other = op.level == Level::Edge || !(streams(op) || op.deferred);
        any |= other;
        if other || wanted[index] {
            deps[index].iter().for_each(|d| wanted[d.op] = true);
        }
    }
    if any { fused.into_iter().filter(|&i| wanted[i]).collect() } else { fused }
}

/// Delays operations that neither a reduction of this loop nor anything in between needs.
fn needed(region: &Region, deps: &[Vec<Dependency>], done: &[bool], fused: Vec<usize>) -> Vec<usize> {
    let ops = &region.ops;
    let mut here = vec![false; ops.len()];
    fused.iter().for_each(|&i| here[i] = true);
    let mut wanted = vec![false; ops.len()];
    for &i in &fused {
        let stored = || matches!(region.locals[ops[i].out as usize].place, Place::Stored(_));
        wanted[i] = ops[i].op.reduces_edges() || ops[i].op.is_total() || stored();
    }
    for (index, deps) in deps.iter().enumerate() {
        if !done[index] && !here[index] && deps.iter().all(|d| done[d.op] || here[d.op]) {
            deps.iter().filter(|d| here[d.op]).for_each(|d| wanted[d.op] = true);
        }
    }
    for &i in fused.iter().rev() {
        if wanted[i] {
            deps[i].iter().filter(|d| here[d.op]).for_each(|d| wanted[d.op] = true);
        }
    }
    let some: Vec<usize> = fused.iter().copied().filter(|&i| wanted[i]).collect();
    if some.is_empty() { fused } else { some }
}

#[cfg(test)]
mod tests {
    use hgnnc_ir::ops::{BinaryOp, Direction, UnaryOp};
    use hgnnc_ir::types::Stage;

    use super::*;
    use crate::plan::{Local, MaskRows, Operand};

    fn on(op: usize) -> Dependency {
        Dependency { op, own_row: true }
    }

    /// A region over the edges of a graph; operation `i` computes local `i`.
    fn region(ops: Vec<(Level, KernelOp<Operand, usize>)>) -> Region {
        let local = |level| Local { level, width: 1, place: Place::Scratch };
        let level = |(level, op): &(Level, KernelOp<_, _>)| if op.reduces_edges() { Level::Row } else { *level };
        let block_op = |(out, (level, op))| BlockOp { op, level, out, deferred: false, stage: Stage::NA };
        Region {
            domain: Domain::Edges { topology: 0, direction: Direction::In, ends: false },
            locals: ops.iter().map(|op| local(level(op))).collect(),
            ops: (0..).zip(ops).map(block_op).collect(),
            blocks: vec![],
            tasks: vec![],
            split: None,
            partials: vec![],
            uses_own: true,
            uses_own_end: false,
            full_columns: None,
            pattern_columns: None,
            mask_rows: [MaskRows::Rows; 2],
        }
    }

    fn loops_of(region: &Region) -> Vec<Vec<usize>> {
        let all: Vec<usize> = (0..region.ops.len()).collect();
        loops(region, &dependencies(region), &all, KernelFeatures::ALL).into_iter().map(|fused| fused.ops).collect()
    }

    #[test]
    fn what_only_rows_need_waits_for_the_edges() {
        let of = |base, access| Operand { base, access, width: 1 };
        let stored = of(Base::Stored(BufferRange { slab: 0, offset: 0, len: 9 }), Access::Each);
        let each = |local| of(Base::Local(local), Access::Each);
        let ops = |read_by_edges: bool| {
            let edge = if read_by_edges { of(Base::Local(0), Access::Owner) } else { stored };
            region(vec![
                // A decayed state, the contribution of the edges, and the new state.
                (Level::Row, KernelOp::Unary(UnaryOp::Neg, stored)),
                (Level::Edge, KernelOp::Unary(UnaryOp::Exp, edge)),
                (Level::Edge, KernelOp::Segment(Reduce::Sum, each(1))),
                (Level::Row, KernelOp::Binary(BinaryOp::Add, each(0), each(2))),
            ])
        };
        assert_eq!(loops_of(&ops(false)), [vec![1, 2], vec![0, 3]]);
        assert_eq!(loops_of(&ops(true)), [vec![0], vec![1, 2], vec![3]]);
    }

    #[test]
    fn operations_that_depend_on_each_other_stay_together() {
        // Operation 3 joins the components of 0 and 1; 2 and 4 are separate.
        let deps = [vec![], vec![], vec![], vec![on(0), on(1)], vec![], vec![on(3)]];
        assert_eq!(components(&deps), [vec![0, 1, 3, 5], vec![2], vec![4]]);
        assert_eq!(components(&[]), Vec::<Vec<usize>>::new());
    }
}
