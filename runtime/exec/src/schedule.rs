//! How a region is executed: in chains of operations, a tile of edges or rows at a time.
//!
//! The plan says what a block computes. Executing it operation by operation would pass every edge value of a block
//! through the second-level cache between any two operations. Here operations of one level that need nothing but
//! their own edge (row) of each other form a chain, which is executed for a tile after another; what only the chain
//! uses exists for one tile and stays in the first-level cache. Sums over edges end a chain: they add to their rows
//! tile by tile.

use hgnnc_ir::kernel::place::{Lifetime, place, sum_alive};
use hgnnc_ir::ops::Reduce;

use crate::buffer::BufferRange;
use crate::data::BoundData;
use crate::edge_passes::edge_passes;
use crate::kernel_features::{KernelFeature, KernelFeatures};
use crate::native::{BodyStep, Chooser, LoopBody, NativeLoop, Uses, divide};
use crate::plan::operands;
use crate::plan::{Access, Base, BlockKind, BlockOp, Domain, Level, Place, Region, SplitRows, reduces_edges};

/// Elements of all values of a tile that are alive together: half of a first-level cache.
const TILE: usize = 6 * 1024;

/// Operations that are executed together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FusedLoop {
    /// What its operations have a row for.
    pub level: Level,
    /// Edges or rows of a tile; 0: the whole block at once.
    pub tile: usize,
    /// Positions in the operations of the region, in order.
    pub ops: Vec<usize>,
}

/// Where a local is while a chain runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalSlot {
    /// In scratch, with a row for each row or edge of the block.
    Block(usize),
    /// In scratch, with a row for each row or edge of a tile.
    Tile(usize),
    /// In its rows of a stored value.
    Stored(BufferRange),
    /// In the area of a cut row, from this element.
    Row(usize),
    /// With a part for each piece of cut rows, from this element of the slab of partial results.
    Piece(usize),
}

/// What a routine is executed for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pass {
    /// Blocks of rows.
    Blocks,
    /// Cut rows, at the beginning of a round.
    SplitRows(usize),
    /// The pieces of cut rows, in a round.
    Pieces(usize),
}

/// The routines of each step of a plan's prelude and of its steps; none for steps that are no regions.
pub type Schedules = [Vec<Vec<RegionSchedule>>; 2];

/// Operations of a region ready to be executed.
#[derive(Clone, PartialEq, Debug)]
pub struct RegionSchedule {
    /// What for.
    pub pass: Pass,
    /// In order.
    pub loops: Vec<FusedLoop>,
    /// For each chain what is executed for a tile, where some of it is machine code.
    pub bodies: Vec<Option<LoopBody>>,
    /// Positions of the region's partials that it computes.
    pub partials: Vec<usize>,
    /// Where the locals are.
    pub slots: Vec<LocalSlot>,
    /// Elements of scratch.
    pub scratch_len: usize,
}

impl RegionSchedule {
    /// The routines of a region, which may be executed in any order. Traversals of edges whose operations do not
    /// depend on each other have several: what one gathers from fits a cache better than what all do.
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

    /// The number of rounds of cut rows.
    pub fn rounds(schedules: &[Self]) -> usize {
        schedules.iter().filter(|schedule| matches!(schedule.pass, Pass::SplitRows(_))).count()
    }

    /// The reductions over edges among its operations.
    pub fn reductions<'r>(&self, region: &'r Region) -> impl Iterator<Item = &'r BlockOp> {
        let ops = self.loops.iter().flat_map(|fused| &fused.ops).map(|&op| &region.ops[op]);
        ops.filter(|op| reduces_edges(&op.kind))
    }

    /// Keeps values of rows in the areas of rows, and what is reduced with the parts of pieces.
    fn place_split_rows(&mut self, region: &Region, split: &SplitRows) {
        for (slot, &at) in self.slots.iter_mut().zip(&split.areas.in_row) {
            *slot = at.map_or(*slot, LocalSlot::Row);
        }
        // No piece reads what it reduces.
        let reduced: Vec<usize> = self.reductions(region).map(|op| op.out as usize).collect();
        for local in reduced {
            self.slots[local] = split.parts(local).map_or(self.slots[local], LocalSlot::Piece);
        }
    }

    /// The parts of its chains.
    pub fn parts(&mut self) -> impl Iterator<Item = &mut NativeLoop> {
        self.bodies.iter_mut().flatten().flat_map(|body| &mut body.steps).filter_map(|step| match step {
            BodyStep::Native(part) => Some(part),
            BodyStep::Op(_) => None,
        })
    }

    /// Divides operations of a region into chains, and places their locals.
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
        let Lives { lives, first, last } = Lives::of(region, ops, &loops, &bodies);
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
        let partials = ops.iter().map(|&op| &region.ops[op]).filter(|op| is_partial(&op.kind));
        let partials = partials.map(|op| op.out as usize).collect();
        Self { pass: Pass::Blocks, loops, bodies, partials, slots, scratch_len }
    }
}

/// When the locals of a region are needed.
struct Lives {
    /// Per local: is it used within one chain only, and from which to which moment is it needed? `None` for what is in
    /// registers, and what other operations make.
    lives: Vec<Option<(bool, usize, usize)>>,
    /// The first moment of each chain.
    first: Vec<usize>,
    /// The last moment of each chain.
    last: Vec<usize>,
}

impl Lives {
    fn of(region: &Region, ops: &[usize], loops: &[FusedLoop], bodies: &[Option<LoopBody>]) -> Self {
        let mut chain_of = vec![0; region.ops.len()];
        let mut position = vec![0; region.ops.len()];
        let (mut first, mut last) = (vec![], vec![]);
        let mut at = 0;
        for (index, fused) in loops.iter().enumerate() {
            first.push(at);
            // The operations of a part are one moment.
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
            if !is_partial(&block_op.kind) {
                let tiled = loops[chain_of[op]].tile != 0 && !reduces_edges(&block_op.kind);
                lives[block_op.out as usize] = Some((tiled, op, op));
            }
        }
        let parts = bodies.iter().flatten().flat_map(|body| &body.steps).filter_map(|step| match step {
            BodyStep::Native(part) => Some(part),
            BodyStep::Op(_) => None,
        });
        // What exists in registers needs no place.
        parts.flat_map(|part| part.internal(region)).for_each(|local| lives[local as usize] = None);
        let mut ends: Vec<Vec<usize>> = vec![vec![]; region.locals.len()];
        for (op, block_op) in ops.iter().map(|&op| (op, &region.ops[op])) {
            for operand in operands(&block_op.kind) {
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

/// Elements that a row and an edge of a block need at one time, where locals exist for more than a tile.
pub fn block_widths(region: &Region, features: KernelFeatures) -> [usize; 2] {
    let ops: Vec<usize> = (0..region.ops.len()).collect();
    let loops = loops(region, &dependencies(region), &ops, features);
    let bodies = vec![None; loops.len()];
    let Lives { lives, last, .. } = Lives::of(region, &ops, &loops, &bodies);
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

/// Operations of a chain that are executed together, in order.
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

/// The most rows and edges of a block.
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

/// Is its result one of all rows or edges, of which each task has a part?
pub fn is_partial(kind: &BlockKind) -> bool {
    matches!(kind, BlockKind::PartialReduce(..) | BlockKind::PartialOuter(..))
}

/// Can it be executed for one part of the rows or edges of a block after another?
fn streams(kind: &BlockKind) -> bool {
    match kind {
        BlockKind::Unary(..)
        | BlockKind::Binary(..)
        | BlockKind::Pair(..)
        | BlockKind::Choose { .. }
        | BlockKind::Copy(_)
        | BlockKind::Replace(..)
        | BlockKind::AddEnds(..)
        | BlockKind::Concat(..)
        | BlockKind::Slice { .. }
        | BlockKind::OneHot { .. }
        | BlockKind::Mask { .. }
        | BlockKind::ReduceTrailing(..)
        | BlockKind::Dot { .. }
        | BlockKind::WeightedSum { .. }
        | BlockKind::SoftmaxSum { .. }
        | BlockKind::SegmentArg { .. }
        | BlockKind::PartialReduce(..) => true,
        // Needs the largest of all edges first.
        BlockKind::Segment(reduce, _) => *reduce != Reduce::Lse,
        // Packs its operands: the more rows the better.
        BlockKind::MatMul(..) | BlockKind::MatMulT(..) | BlockKind::PartialOuter(..) => false,
        // Nothing of the block reads what lies there any more.
        BlockKind::Store(_) => false,
    }
}

/// An operation that computes an operand.
#[derive(Clone, Copy)]
pub struct Dependency {
    /// Its position.
    pub op: usize,
    /// Is its own row enough?
    pub own_row: bool,
}

fn dependencies(region: &Region) -> Vec<Vec<Dependency>> {
    let mut producer = vec![None; region.locals.len()];
    for (index, op) in region.ops.iter().enumerate() {
        if !is_partial(&op.kind) {
            producer[op.out as usize] = Some(index);
        }
    }
    let of = |op: &BlockOp| {
        let locals = operands(&op.kind).into_iter().filter_map(|operand| match operand.base {
            Base::Local(local) => producer[local as usize].map(|p| (p, operand.access == Access::Each)),
            Base::Stored(_) => None,
        });
        locals
            .map(|(p, each)| {
                let same_level = region.ops[p].level == op.level && !reduces_edges(&region.ops[p].kind);
                Dependency { op: p, own_row: each && same_level }
            })
            .collect()
    };
    let mut deps: Vec<Vec<Dependency>> = region.ops.iter().map(of).collect();
    let stores = region.ops.iter().enumerate().filter(|(_, op)| matches!(op.kind, BlockKind::Store(_)));
    for (index, op) in stores {
        let Place::Stored(to) = region.locals[op.out as usize].place else { continue };
        let reads = |op: &BlockOp| {
            operands(&op.kind).iter().any(|operand| matches!(operand.base, Base::Stored(from) if from.meets(&to)))
        };
        let readers = (0..index).filter(|&other| reads(&region.ops[other]));
        deps[index].extend(readers.map(|op| Dependency { op, own_row: false }));
    }
    deps
}

/// Operations that depend on each other, directly or not, in the order of the first of each.
fn components(deps: &[Vec<Dependency>]) -> Vec<Vec<usize>> {
    let pairs = deps.iter().enumerate().flat_map(|(op, deps)| deps.iter().map(move |dep| (op, dep.op)));
    connected(deps.len(), pairs)
}

/// Divides `count` things into those that pairs connect, directly or not, in the order of the first of each.
pub fn connected(count: usize, pairs: impl IntoIterator<Item = (usize, usize)>) -> Vec<Vec<usize>> {
    // The first of its component, over some steps.
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

/// All operations of a part in chains, in an order that respects their dependencies: what rows need first, so that the
/// chains of edges find as much as possible ready.
fn loops(region: &Region, deps: &[Vec<Dependency>], part: &[usize], features: KernelFeatures) -> Vec<FusedLoop> {
    let ops = &region.ops;
    // What is not of this part is left out.
    let mut done = vec![true; ops.len()];
    part.iter().for_each(|&op| done[op] = false);
    let mut loops: Vec<FusedLoop> = vec![];
    while done.contains(&false) {
        let single = |level: Level| {
            (0..ops.len()).find(|&i| {
                !done[i] && ops[i].level == level && !streams(&ops[i].kind) && deps[i].iter().all(|d| done[d.op])
            })
        };
        let fused = if let Some(op) = single(Level::Row) {
            FusedLoop { level: Level::Row, tile: 0, ops: vec![op] }
        } else if let rows = not_later(region, deps, &done, grow(region, deps, &done, Level::Row))
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

/// All operations of a level that can be executed tile by tile now.
fn grow(region: &Region, deps: &[Vec<Dependency>], done: &[bool], level: Level) -> Vec<usize> {
    let mut here = vec![false; region.ops.len()];
    for (index, op) in region.ops.iter().enumerate() {
        let ready = |d: &Dependency| done[d.op] || (here[d.op] && d.own_row);
        if !done[index] && op.level == level && streams(&op.kind) && deps[index].iter().all(ready) {
            here[index] = true;
        }
    }
    (0..here.len()).filter(|&i| here[i]).collect()
}

/// Leaves operations on rows to the last chain if all that needs them is there: what an optimiser makes of its states is
/// not kept while edges are gone through. Only then, because the chains of edges are to find everything ready.
fn not_later(region: &Region, deps: &[Vec<Dependency>], done: &[bool], fused: Vec<usize>) -> Vec<usize> {
    let mut wanted = vec![false; region.ops.len()];
    let mut any = false;
    for (index, op) in region.ops.iter().enumerate().rev().filter(|(index, _)| !done[*index]) {
        // What is stored last needs all others in any case.
        let other = op.level == Level::Edge || !(streams(&op.kind) || matches!(op.kind, BlockKind::Store(_)));
        any |= other;
        if other || wanted[index] {
            deps[index].iter().for_each(|d| wanted[d.op] = true);
        }
    }
    if any { fused.into_iter().filter(|&i| wanted[i]).collect() } else { fused }
}

/// Leaves operations to later chains that no reduction of this one and nothing between needs.
fn needed(region: &Region, deps: &[Vec<Dependency>], done: &[bool], fused: Vec<usize>) -> Vec<usize> {
    let ops = &region.ops;
    let mut here = vec![false; ops.len()];
    fused.iter().for_each(|&i| here[i] = true);
    let mut wanted = vec![false; ops.len()];
    for &i in &fused {
        let stored = || matches!(region.locals[ops[i].out as usize].place, Place::Stored(_));
        wanted[i] = reduces_edges(&ops[i].kind) || is_partial(&ops[i].kind) || stored();
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
    use crate::plan::{Local, Operand};

    fn on(op: usize) -> Dependency {
        Dependency { op, own_row: true }
    }

    /// A region over the edges of a graph; operation `i` makes local `i`.
    fn region(ops: Vec<(Level, BlockKind)>) -> Region {
        let local = |level| Local { level, width: 1, place: Place::Scratch };
        let level = |(level, kind): &(Level, BlockKind)| if reduces_edges(kind) { Level::Row } else { *level };
        Region {
            domain: Domain::Edges { topology: 0, direction: Direction::In, ends: false },
            locals: ops.iter().map(|op| local(level(op))).collect(),
            ops: (0..).zip(ops).map(|(out, (level, kind))| BlockOp { kind, level, out, pass: Stage::NA }).collect(),
            blocks: vec![],
            tasks: vec![],
            split: None,
            partials: vec![],
            uses_own: true,
            uses_own_end: false,
            full_columns: None,
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
                // A state that decays, what the edges add, and the new state.
                (Level::Row, BlockKind::Unary(UnaryOp::Neg, stored)),
                (Level::Edge, BlockKind::Unary(UnaryOp::Exp, edge)),
                (Level::Edge, BlockKind::Segment(Reduce::Sum, each(1))),
                (Level::Row, BlockKind::Binary(BinaryOp::Add, each(0), each(2))),
            ])
        };
        assert_eq!(loops_of(&ops(false)), [vec![1, 2], vec![0, 3]]);
        assert_eq!(loops_of(&ops(true)), [vec![0], vec![1, 2], vec![3]]);
    }

    #[test]
    fn operations_that_depend_on_each_other_stay_together() {
        // 3 joins what 0 and 1 began; 2 and 4 stand alone.
        let deps = [vec![], vec![], vec![], vec![on(0), on(1)], vec![], vec![on(3)]];
        assert_eq!(components(&deps), [vec![0, 1, 3, 5], vec![2], vec![4]]);
        assert_eq!(components(&[]), Vec::<Vec<usize>>::new());
    }
}
