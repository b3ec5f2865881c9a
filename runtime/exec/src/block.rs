//! Executes the program of a region for one block of rows after another.
//!
//! This is the interpreter of [`crate::plan::BlockOp`]: it finds the operands of an operation in scratch or
//! in stored values and calls a kernel for all rows or edges of the block. It decides nothing.

// Operands and results are ranges of shared slabs; see `raw`.
#![allow(unsafe_code)]

use hgnnc_ir::ops::{Direction, Reduce};
use hgnnc_native::Code;

use crate::data::{BoundData, InputData};
use crate::kernels::flat::{self, MaskDraw, Side, Two};
use crate::kernels::{Rows, product, rows, segment, softmax};
use crate::native::Tables;
use crate::plan::{
    Access, Base, BlockKind, BlockOp, Domain, Drawn, EndRows, Level, Long, Operand, Place, Plan, Region, reduces_edges,
};
use crate::raw::Slab;
use crate::routine::{Chain, Routine, Routines, Spot};

/// What a task needs besides its region.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// All slabs.
    pub slabs: &'a [Slab],
    /// Graphs, patterns and labels.
    pub data: &'a BoundData,
    /// Slab of partial results.
    pub partials: u32,
    /// Seed of the masks.
    pub seed: u64,
    /// Training step of the masks.
    pub step: u64,
    /// Machine code of parts.
    pub code: &'a Code,
}

/// Scratch of one thread, sized by the plan.
#[derive(Debug)]
pub struct Scratch {
    floats: Slab,
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
    pub(crate) fn new(plans: &[Plan], routines: &[Routines], len: usize) -> Self {
        Self::with_room(plans, routines, len, 0)
    }

    /// As [`Scratch::new`], with room for one part in `slack` more, for plans that differ a little; 0: for none.
    pub(crate) fn with_room(plans: &[Plan], routines: &[Routines], len: usize, slack: usize) -> Self {
        let room = |len: usize| len + len.checked_div(slack).unwrap_or(0);
        let most = |f: fn(&Plan) -> usize| room(plans.iter().map(f).max().unwrap_or(0));
        let tile = most(|p| p.tile_len);
        let edges = most(|p| p.block_edges);
        Self {
            floats: Slab::zeros(room(len)),
            tiles: [vec![0.0; tile], vec![0.0; tile]],
            own: vec![0; edges],
            own_end: vec![0; edges],
            full: vec![0; edges],
            offsets: vec![0; most(|p| p.block_rows) + 1],
            clip: vec![0; most(|p| p.block_rows) + 1],
            tables: Tables::new(routines),
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
    pub(crate) fn prepare(&mut self, routines: &[Routines]) {
        self.tables = Tables::new(routines);
    }

    /// Bytes that [`Scratch::new`] takes.
    pub fn bytes(plans: &[Plan], len: usize) -> u64 {
        let most = |f: fn(&Plan) -> usize| plans.iter().map(f).max().unwrap_or(0) as u64;
        4 * (len as u64 + 2 * (most(|p| p.tile_len) + most(|p| p.block_rows)) + 3 * most(|p| p.block_edges))
    }
}

/// Runs the blocks of task `task` of a region.
pub fn run_task(context: Context<'_>, region: &Region, routine: &Routine, task: usize, scratch: &mut Scratch) {
    begin_parts(context, region, routine, task);
    for block in region.tasks[task] as usize..region.tasks[task + 1] as usize {
        if let Some(rows) = region.block(block) {
            run_block(context, region, routine, task, Share::of(rows), scratch);
        }
    }
}

/// The cut rows of a region.
#[derive(Clone, Copy)]
pub struct Cut<'a> {
    /// Memory, data, and the place in training.
    pub context: Context<'a>,
    /// The region.
    pub region: &'a Region,
    /// Which rows they are.
    pub long: &'a Long,
}

impl Cut<'_> {
    /// Computes what the cut rows of a task have at the beginning of a round.
    pub fn rows(self, routine: &Routine, task: usize, scratch: &mut Scratch) {
        let Self { context, region, long } = self;
        let part = region.tasks.len() - 1 + task;
        begin_parts(context, region, routine, part);
        for at in long.row_tasks[task].clone() {
            let row = long.rows[at] as usize;
            let share = Share { edges: Some(0..0), row_area: long.row_area(at), ..Share::of(row..row + 1) };
            run_block(context, region, routine, part, share, scratch);
        }
    }

    /// Computes what a round makes of the pieces of a task.
    pub fn pieces(self, routine: &Routine, task: usize, scratch: &mut Scratch) {
        let Self { context, region, long } = self;
        let Domain::Edges { topology, direction, ends } = region.domain else { return };
        let indptr = context.data.topology(topology).indptr(direction, ends);
        let part = region.tasks.len() - 1 + task;
        begin_parts(context, region, routine, part);
        for piece in long.piece_tasks[task].clone() {
            let (at, edges) = long.edges_of(piece, indptr);
            let row = long.rows[at] as usize;
            let share = Share { rows: row..row + 1, edges: Some(edges), row_area: long.row_area(at), piece };
            run_block(context, region, routine, part, share, scratch);
        }
    }

    /// Reduces what a round made of the pieces of a task's rows, in their order. `routine` is that of the pieces.
    pub fn combine(self, routine: &Routine, task: usize) {
        let Self { context, region, long } = self;
        for at in long.row_tasks[task].clone() {
            for op in routine.reductions(region) {
                let local = op.out as usize;
                let width = region.locals[local].width;
                let (slab, start) = match (region.locals[local].place, long.areas.in_row[local]) {
                    (Place::Stored(buffer), _) => (buffer.slab, buffer.offset + long.rows[at] as usize * width),
                    (Place::Scratch, in_row) => (context.partials, long.row_area(at) + in_row.unwrap_or(0)),
                };
                // SAFETY: the row belongs to this task, and all pieces are done.
                let out = unsafe { context.slabs[slab as usize].write(start, width) };
                begin(op, out);
                if out.is_empty() {
                    continue;
                }
                let Some(parts) = long.parts(local) else { continue };
                let pieces = long.pieces_of(at);
                let (start, len) = (parts + pieces.start * width, pieces.len() * width);
                // SAFETY: as above; areas are disjoint.
                merge(op, unsafe { context.slabs[context.partials as usize].read(start, len) }, out);
            }
        }
    }
}

/// What a reduction over edges begins with.
pub(crate) fn begin(op: &BlockOp, out: &mut [f32]) {
    match op.kind {
        BlockKind::Segment(reduce, _) => out.fill(reduce.identity() as f32),
        BlockKind::SoftmaxSum { score, x, .. } => softmax::begin(score.width, x.width, out),
        _ => out.fill(0.0),
    }
}

/// Takes the results of a reduction over the edges of some pieces along.
fn merge(op: &BlockOp, parts: &[f32], out: &mut [f32]) {
    match op.kind {
        BlockKind::Segment(reduce, _) => accumulate(reduce, parts, out),
        BlockKind::SoftmaxSum { score, x, .. } => softmax::merge(score.width, x.width, parts, out),
        _ => accumulate(Reduce::Sum, parts, out),
    }
}

/// Clears the parts of a task.
fn begin_parts(context: Context<'_>, region: &Region, routine: &Routine, part: usize) {
    for partial in routine.partials.iter().map(|&p| &region.partials[p]) {
        partial_of(context, partial.offset + part * partial.width, partial.width)
            .fill(partial.reduce.identity() as f32);
    }
}

/// Adds up the parts of the tasks of a region, in their order.
pub fn combine(context: Context<'_>, region: &Region) {
    for partial in &region.partials {
        // SAFETY: the tasks of the region are done, and nothing else runs.
        let out = unsafe { context.slabs[partial.out.slab as usize].write(partial.out.offset, partial.width) };
        out.fill(partial.reduce.identity() as f32);
        if partial.width == 0 {
            continue;
        }
        let (of_tasks, of_cut_rows) = region.parts(partial);
        for part in 0..of_tasks + of_cut_rows {
            let part = partial_of(context, partial.offset + part * partial.width, partial.width);
            accumulate(partial.reduce, part, out);
        }
    }
}

fn accumulate(reduce: Reduce, part: &[f32], out: &mut [f32]) {
    rows::accumulate_rows(reduce, part, out.len(), out);
}

pub(crate) fn partial_of(context: Context<'_>, offset: usize, width: usize) -> &mut [f32] {
    // SAFETY: the ranges of tasks and of the partials of a step are disjoint, and a task is run once.
    unsafe { context.slabs[context.partials as usize].write(offset, width) }
}

/// Rows that are executed together, or a part of one.
struct Share {
    rows: std::ops::Range<usize>,
    /// Of its edges these, where it is a row that is cut.
    edges: Option<std::ops::Range<u64>>,
    /// Where the area of the cut row begins.
    row_area: usize,
    /// The number of the piece.
    piece: usize,
}

impl Share {
    /// All of some rows.
    fn of(rows: std::ops::Range<usize>) -> Self {
        Self { rows, edges: None, row_area: 0, piece: 0 }
    }
}

fn run_block(
    context: Context<'_>,
    region: &Region,
    routine: &Routine,
    task: usize,
    share: Share,
    scratch: &mut Scratch,
) {
    let Share { rows: range, edges: cut, row_area, piece } = share;
    let Scratch { floats, tiles, own, own_end, full, offsets, clip, tables } = scratch;
    let num_rows = range.len();
    let mut block = Block {
        context,
        region,
        routine,
        floats,
        first_row: range.start,
        num_rows,
        first_edge: 0,
        num_edges: 0,
        other: &[],
        position: &[],
        own: &[],
        own_end: &[],
        vertices: &[],
        other_end: &[],
        full: &[],
        offsets: &[],
        incoming: true,
        row_area,
        piece,
        start: 0,
        items: 0,
    };
    if let Domain::Edges { topology, direction, ends } = region.domain {
        let topology = context.data.topology(topology);
        let incidence = topology.incidence(direction);
        let indptr = topology.indptr(direction, ends);
        block.incoming = direction == Direction::In;
        let (first, last) = match &cut {
            Some(edges) => (edges.start, edges.end),
            None => (indptr[range.start], indptr[range.end]),
        };
        block.first_edge = first as usize;
        block.num_edges = (last - first) as usize;
        let edges = first as usize..last as usize;
        block.other = &incidence.other[edges.clone()];
        if !incidence.position.is_empty() {
            block.position = &incidence.position[edges];
        }
        if let Some(others) = topology.listed_ends(opposite(direction)) {
            block.other_end = &others.of_edge[first as usize..last as usize];
        }
        if ends {
            block.vertices = &topology.ends(direction).vertices[range.clone()];
        }
        match cut {
            Some(_) => offsets[..=1].copy_from_slice(&[0, block.num_edges as u32]),
            None => fill_offsets(indptr, &range, &mut offsets[..=num_rows]),
        }
        if region.uses_own {
            segment::owners(&offsets[..=num_rows], &mut own[..block.num_edges]);
            block.own = &own[..block.num_edges];
        }
        if region.uses_own_end {
            // Rows of ends read vertices, rows of vertices read ends: a vertex without edges is none.
            let mut end = if ends { 0 } else { topology.ends(direction).within(0, range.start).end as u32 };
            for row in 0..num_rows {
                let edges = offsets[row] as usize..offsets[row + 1] as usize;
                if ends {
                    own_end[edges].fill(block.vertices[row]);
                } else if !edges.is_empty() {
                    own_end[edges].fill(end);
                    end += 1;
                }
            }
            block.own_end = &own_end[..block.num_edges];
        }
        if let Some(columns) = region.full_columns {
            let element = |own: u32, other: u32| {
                let own = own as usize + range.start;
                let (row, column) = if block.incoming { (own, other as usize) } else { (other as usize, own) };
                (row * columns + column) as u32
            };
            for ((slot, &own), &other) in full.iter_mut().zip(block.own).zip(block.other) {
                *slot = element(own, other);
            }
            block.full = &full[..block.num_edges];
        }
        block.offsets = &offsets[..=num_rows];
    }
    for (chain, units) in routine.chains.iter().zip(&routine.units) {
        match units {
            Some(units) => block.run_units(chain, units, task, tiles, clip, tables),
            None => block.run_chain(chain, task, tiles, clip),
        }
    }
}

fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::In => Direction::Out,
        Direction::Out => Direction::In,
    }
}

/// First edge of each row, counted from the block's first edge.
fn fill_offsets(indptr: &[u64], rows: &std::ops::Range<usize>, offsets: &mut [u32]) {
    let first = indptr[rows.start];
    for (offset, &at) in offsets.iter_mut().zip(&indptr[rows.start..=rows.end]) {
        *offset = (at - first) as u32;
    }
}

/// A block of rows of a region.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    pub context: Context<'a>,
    pub region: &'a Region,
    routine: &'a Routine,
    floats: &'a Slab,
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
    /// Runs a chain for all tiles of the block.
    fn run_chain(mut self, chain: &Chain, task: usize, tiles: &mut [Vec<f32>; 2], clip: &mut [u32]) {
        let all = self.count(chain.level);
        if chain.tile == 0 || all <= chain.tile {
            // One tile: reductions over edges write their rows.
            self.items = all;
            for &op in &chain.ops {
                self.execute(&self.region.ops[op], task, tiles);
            }
            return;
        }
        let reductions = || chain.ops.iter().map(|&op| &self.region.ops[op]).filter(|op| reduces_edges(&op.kind));
        for op in reductions() {
            begin(op, self.output(op.out, 0, self.num_rows));
        }
        let mut first_row = 0;
        for start in (0..all).step_by(chain.tile) {
            self.start = start;
            self.items = chain.tile.min(all - start);
            let rows = self.owners(chain.level, &mut first_row, clip);
            for &op in &chain.ops {
                let op = &self.region.ops[op];
                if reduces_edges(&op.kind) {
                    self.reduce_tile(op, rows.clone(), &clip[..=rows.len()]);
                } else {
                    self.execute(op, task, tiles);
                }
            }
        }
    }

    /// The rows that own the edges of the tile, from `first_row` on, and their edges in it.
    pub fn owners(&self, level: Level, first_row: &mut usize, clip: &mut [u32]) -> std::ops::Range<usize> {
        if level == Level::Row {
            return *first_row..*first_row;
        }
        let (start, end) = (self.start, self.start + self.items);
        while (self.offsets[*first_row + 1] as usize) <= start {
            *first_row += 1;
        }
        let mut last = *first_row;
        clip[0] = 0;
        while (self.offsets[last] as usize) < end {
            last += 1;
            clip[last - *first_row] = (self.offsets[last].min(end as u32)) - start as u32;
        }
        *first_row..last
    }

    /// Adds the edges of the tile to the results of their rows.
    pub fn reduce_tile(&self, op: &BlockOp, rows: std::ops::Range<usize>, offsets: &[u32]) {
        let width = self.region.locals[op.out as usize].width;
        let out = self.output(op.out, rows.start, rows.len());
        if out.is_empty() {
            return;
        }
        match &op.kind {
            BlockKind::Segment(reduce, a) => {
                segment::segment(*reduce, self.operand(a, op.level), width, offsets, out, true);
            }
            BlockKind::WeightedSum { a, x, inner } => {
                let (weights, from) = (self.operand(a, op.level), self.operand(x, op.level));
                segment::weighted_sum(weights, from, a.width, *inner, offsets, out, true);
            }
            BlockKind::SoftmaxSum { score, x, times } => self.softmax_sum([score, x], times.as_ref(), offsets, out),
            _ => {}
        }
    }

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
            Access::Own => {
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
            Access::Other => Rows::Picked(all(), &self.other[tile]),
            Access::Vertex => Rows::Picked(all(), &self.vertices[tile]),
            Access::OwnVertex | Access::OwnEnd => Rows::Picked(all(), &self.own_end[tile]),
            Access::OtherEnd => Rows::Picked(all(), &self.other_end[tile]),
            Access::Position => Rows::Picked(all(), &self.position[tile]),
            Access::Full => Rows::Picked(all(), &self.full[tile]),
        }
    }

    /// An earlier result of this block, from its row (edge) `first` on.
    pub fn local(&self, index: u32, first: usize, len: usize, width: usize) -> &'a [f32] {
        match self.routine.spots[index as usize] {
            // SAFETY: the scratch belongs to this thread, and locals alive together are disjoint.
            Spot::Block(offset) => unsafe { self.floats.read(offset + first * width, len) },
            // SAFETY: as above.
            Spot::Tile(offset) => unsafe { self.floats.read(offset, len) },
            // SAFETY: the row belongs to this task, or is read by all tasks of its pieces and written by none.
            Spot::Row(at) => unsafe { self.partials().read(self.row_area + at + first * width, len) },
            // SAFETY: the piece belongs to this task.
            Spot::Piece(at) => unsafe { self.partials().read(at + (self.piece + first) * width, len) },
            Spot::Stored(buffer) => {
                let local = &self.region.locals[index as usize];
                let start = buffer.offset + self.first(local.level) * local.width + first * width;
                // SAFETY: rows of this block, written by an earlier operation of it.
                unsafe { self.context.slabs[buffer.slab as usize].read(start, len) }
            }
        }
    }

    /// The slab in which areas of cut rows are.
    fn partials(&self) -> &'a Slab {
        &self.context.slabs[self.context.partials as usize]
    }

    /// Where `count` rows (edges) of a local from `first` on are written.
    pub fn output(&self, index: u32, first: usize, count: usize) -> &'a mut [f32] {
        let local = &self.region.locals[index as usize];
        let len = count * local.width;
        match self.routine.spots[index as usize] {
            // SAFETY: the scratch belongs to this thread, and no operand is placed where the result goes.
            Spot::Block(offset) => unsafe { self.floats.write(offset + first * local.width, len) },
            // SAFETY: as above.
            Spot::Tile(offset) => unsafe { self.floats.write(offset, len) },
            // SAFETY: cut rows are written between the rounds of their pieces, each by one task.
            Spot::Row(at) => unsafe { self.partials().write(self.row_area + at + first * local.width, len) },
            // SAFETY: the piece belongs to this task.
            Spot::Piece(at) => unsafe { self.partials().write(at + (self.piece + first) * local.width, len) },
            Spot::Stored(buffer) => {
                let start = buffer.offset + (self.first(local.level) + first) * local.width;
                // SAFETY: the rows of a block belong to one task, and outputs of a step are disjoint.
                unsafe { self.context.slabs[buffer.slab as usize].write(start, len) }
            }
        }
    }

    pub fn execute(&self, op: &BlockOp, task: usize, tiles: &mut [Vec<f32>; 2]) {
        match &op.kind {
            BlockKind::PartialReduce(reduce, a) => {
                let partial = self.region.partials[op.out as usize];
                if let (Rows::Each(x), 1..) = (self.operand(a, op.level), partial.width) {
                    let out = partial_of(self.context, partial.offset + task * partial.width, partial.width);
                    rows::accumulate_rows(*reduce, x, partial.width, out);
                }
                return;
            }
            BlockKind::PartialOuter(of, x, y) => {
                let partial = self.region.partials[op.out as usize];
                let out = partial_of(self.context, partial.offset + task * partial.width, partial.width);
                let (x, y) = (whole(self.operand(x, op.level)), whole(self.operand(y, op.level)));
                product::outer(*of, self.items, 0..of.k, x, y, out, true);
                return;
            }
            _ => {}
        }
        let out = if reduces_edges(&op.kind) {
            self.output(op.out, 0, self.num_rows)
        } else {
            self.output(op.out, self.start, self.items)
        };
        if out.is_empty() {
            return;
        }
        let width = self.region.locals[op.out as usize].width;
        match &op.kind {
            BlockKind::Unary(f, a) => {
                self.elements(a, op.level, width, out, &mut tiles[0], |x, out| flat::unary(*f, x, out));
            }
            BlockKind::Binary(f, a, b) => self.binary(Two::Plain(*f), [a, b], op.level, width, out, tiles),
            BlockKind::Pair(f, a, b) => self.binary(Two::Pair(*f), [a, b], op.level, width, out, tiles),
            BlockKind::Choose { a, positive, otherwise } => {
                self.elements(a, op.level, width, out, &mut tiles[0], |x, out| {
                    flat::choose(x, *positive, *otherwise, out);
                });
            }
            BlockKind::Copy(a) | BlockKind::Store(a) => {
                rows::fetch(self.operand(a, op.level), a.width, width / a.width.max(1), 0, out)
            }
            BlockKind::Replace(a, with) => {
                rows::fetch(self.operand(a, op.level), a.width, width / a.width.max(1), 0, out);
                self.at_ends(with, width, out, |row, from| row.copy_from_slice(from));
            }
            BlockKind::AddEnds(a, parts) => {
                rows::fetch(self.operand(a, op.level), a.width, width / a.width.max(1), 0, out);
                for part in parts {
                    self.at_ends(part, width, out, |row, from| {
                        row.iter_mut().zip(from).for_each(|(sum, &x)| *sum += x);
                    });
                }
            }
            BlockKind::Concat(parts, lead) => {
                let last_all = width / lead;
                let mut start = 0;
                for (part, last) in parts {
                    let from = self.operand(part, op.level);
                    for (i, row) in out.chunks_exact_mut(width).enumerate() {
                        let from = from.row(i, part.width);
                        for outer in 0..*lead {
                            let to = outer * last_all + start;
                            row[to..to + last].copy_from_slice(&from[outer * last..(outer + 1) * last]);
                        }
                    }
                    start += last;
                }
            }
            BlockKind::Slice { a, last, start, len } => {
                let from = self.operand(a, op.level);
                for (i, row) in out.chunks_exact_mut(width).enumerate() {
                    let from = from.row(i, a.width);
                    for (outer, to) in row.chunks_exact_mut(*len).enumerate() {
                        to.copy_from_slice(&from[outer * last + start..outer * last + start + len]);
                    }
                }
            }
            BlockKind::OneHot { input, classes } => {
                out.fill(0.0);
                if let Some(InputData::Classes(labels)) = self.context.data.inputs.get(*input) {
                    let labels = &labels[self.first_row + self.start..][..self.items];
                    for (row, &label) in out.chunks_exact_mut(*classes).zip(labels) {
                        if let Some(slot) = usize::try_from(label).ok().and_then(|l| row.get_mut(l)) {
                            *slot = 1.0;
                        }
                    }
                }
            }
            BlockKind::Mask { stream, rate, columns, of } => {
                let draw = MaskDraw::new(self.context.seed, self.context.step, *stream, *rate);
                self.mask(draw, (*columns, *of), op.level, width, out);
            }
            BlockKind::MatMul(of, x, w) => {
                let (x, w) = (whole(self.operand(x, op.level)), whole(self.operand(w, op.level)));
                product::mat_mul(*of, self.items, x, w, out);
            }
            BlockKind::MatMulT(of, y, w) => {
                let (y, w) = (whole(self.operand(y, op.level)), whole(self.operand(w, op.level)));
                product::mat_mul_t(*of, self.items, y, w, out);
            }
            BlockKind::ReduceTrailing(reduce, a, inner) => {
                let from = self.operand(a, op.level);
                if let Rows::Each(x) = from {
                    rows::reduce_trailing(*reduce, x, *inner, out);
                } else {
                    let tile = &mut tiles[0];
                    let per_tile = (tile.len() / a.width.max(1)).max(1);
                    for (t, out) in out.chunks_mut(per_tile * width).enumerate() {
                        let x = &mut tile[..out.len() / width * a.width];
                        if a.width > 0 {
                            rows::fetch(from, a.width, 1, t * per_tile, x);
                        }
                        rows::reduce_trailing(*reduce, x, *inner, out);
                    }
                }
            }
            BlockKind::Dot { a, b, inner } => {
                rows::dot(self.operand(a, op.level), self.operand(b, op.level), width, *inner, out);
            }
            BlockKind::Segment(reduce, a) => {
                segment::segment(*reduce, self.operand(a, op.level), width, self.offsets, out, false);
            }
            BlockKind::WeightedSum { a, x, inner } => {
                let (weights, from) = (self.operand(a, op.level), self.operand(x, op.level));
                segment::weighted_sum(weights, from, a.width, *inner, self.offsets, out, false);
            }
            BlockKind::SoftmaxSum { score, x, times } => {
                begin(op, out);
                self.softmax_sum([score, x], times.as_ref(), self.offsets, out);
            }
            BlockKind::PartialReduce(..) | BlockKind::PartialOuter(..) => {}
        }
    }

    /// Takes the edges of the tile along, which `offsets` give to the rows of `out`.
    fn softmax_sum(&self, [score, x]: [&Operand; 2], times: Option<&Operand>, offsets: &[u32], out: &mut [f32]) {
        let extents = (score.width, x.width / score.width.max(1));
        let times = times.map(|times| self.operand(times, Level::Edge));
        let (score, x) = (self.operand(score, Level::Edge), self.operand(x, Level::Edge));
        softmax::softmax_sum(score, x, times, extents, offsets, out);
    }

    /// Visits the rows of the tile whose vertices are ends, each with its row of the value of ends.
    fn at_ends(&self, with: &EndRows, width: usize, out: &mut [f32], visit: impl Fn(&mut [f32], &[f32])) {
        let ends = self.context.data.topology(with.topology).ends(with.direction);
        let first = self.first_row + self.start;
        let here = ends.within(first, self.items);
        // SAFETY: stored operands are no outputs of this step.
        let from = unsafe {
            let start = with.buffer.offset + here.start * width;
            self.context.slabs[with.buffer.slab as usize].read(start, here.len() * width)
        };
        for (&vertex, from) in ends.vertices[here].iter().zip(from.chunks_exact(width)) {
            let row = vertex as usize - first;
            visit(&mut out[row * width..(row + 1) * width], from);
        }
    }

    /// Calls `f` with the elements of an operand and those of the result, in tiles where they are gathered.
    fn elements(
        &self,
        a: &Operand,
        level: Level,
        width: usize,
        out: &mut [f32],
        tile: &mut [f32],
        f: impl Fn(&[f32], &mut [f32]),
    ) {
        let from = self.operand(a, level);
        if let Rows::Each(x) = from {
            return f(x, out);
        }
        let per_tile = (tile.len() / width).max(1);
        for (t, out) in out.chunks_mut(per_tile * width).enumerate() {
            let x = &mut tile[..out.len()];
            rows::fetch(from, width, 1, t * per_tile, x);
            f(x, out);
        }
    }

    fn binary(
        &self,
        f: Two,
        [a, b]: [&Operand; 2],
        level: Level,
        width: usize,
        out: &mut [f32],
        [tile_a, tile_b]: &mut [Vec<f32>; 2],
    ) {
        let (from_a, from_b) = (self.operand(a, level), self.operand(b, level));
        if a.width == width && b.width == width && flat::gathered(f, from_a, from_b, width, out) {
            return;
        }
        let (read_a, read_b) = (Reading::of(from_a, a.width, width), Reading::of(from_b, b.width, width));
        let fetches = read_a == Reading::Fetch || read_b == Reading::Fetch;
        let per_tile = if fetches { (tile_a.len() / width).max(1) } else { out.len() / width };
        for (t, out) in out.chunks_mut(per_tile * width).enumerate() {
            let start = t * per_tile;
            let a = side(from_a, read_a, a.width, start, width, out.len(), tile_a);
            let b = side(from_b, read_b, b.width, start, width, out.len(), tile_b);
            flat::two(f, a, b, out);
        }
    }

    fn mask(&self, draw: MaskDraw, (columns, of): (Option<usize>, Drawn), level: Level, width: usize, out: &mut [f32]) {
        let orders = &self.context.data.orders;
        let order = match of {
            Drawn::Vertices(vertex) => orders.of(vertex),
            Drawn::Rows | Drawn::Edges(_) => None,
        };
        let moved = match of {
            Drawn::Edges(graph) => orders.moved(graph),
            Drawn::Rows | Drawn::Vertices(_) => None,
        };
        let tile = self.start..self.start + self.items;
        match (columns, order, moved) {
            (Some(columns), None, _) => {
                let own = (&self.own[tile.clone()], self.first_row as u64);
                let other = (&self.other[tile], 0);
                let (row, column) = if self.incoming { (own, other) } else { (other, own) };
                flat::mask_sparse(draw, row.0, row.1, column.0, column.1, columns as u64, out);
            }
            (Some(columns), Some(order), _) => self.tiles(1, out, |at, numbers, out| {
                let here = at..at + numbers.len();
                let (own, other) = (&self.own[here.clone()], &self.other[here]);
                let (row, first) = if self.incoming { (own, self.first_row) } else { (other, 0) };
                numbers.iter_mut().zip(row).for_each(|(to, &row)| *to = order.original[first + row as usize]);
                let (column, first) = if self.incoming { (other, 0) } else { (own, self.first_row as u64) };
                flat::mask_sparse(draw, numbers, 0, column, first, columns as u64, out);
            }),
            (None, Some(order), _) => {
                let first = self.first_row + self.start;
                flat::mask_rows(draw, &order.original[first..first + self.items], width, out);
            }
            (None, None, Some(moved)) => self.tiles(width, out, |at, positions, out| {
                for (edge, to) in (at..).zip(positions.iter_mut()) {
                    let vertex = match (self.incoming, self.vertices) {
                        (false, _) => self.other[edge] as usize,
                        (true, []) => self.first_row + self.own[edge] as usize,
                        (true, vertices) => vertices[self.own[edge] as usize] as usize,
                    };
                    let position = self.position.get(edge).copied().unwrap_or((self.first_edge + edge) as u32);
                    *to = position.wrapping_add(moved[vertex]);
                }
                flat::mask_rows(draw, positions, width, out);
            }),
            (None, None, None) if level == Level::Edge && !self.position.is_empty() => {
                flat::mask_rows(draw, &self.position[tile], width, out);
            }
            (None, None, None) => {
                flat::mask(draw, (self.first(level) + self.start) as u64 * width as u64, out);
            }
        }
    }

    /// Visits the rows (edges) of the tile at hand some at a time, with the first of them, counted within the block, room
    /// for a number each, and their elements of `out`.
    fn tiles(&self, width: usize, out: &mut [f32], mut visit: impl FnMut(usize, &mut [u32], &mut [f32])) {
        let mut numbers = [0; 256];
        for (part, out) in out.chunks_mut(numbers.len() * width.max(1)).enumerate() {
            let count = out.len() / width.max(1);
            visit(self.start + part * numbers.len(), &mut numbers[..count], out);
        }
    }
}

/// How an element-wise operation reads an operand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Element by element.
    Elements,
    /// One number.
    Scalar,
    /// One row, again and again.
    Cycle,
    /// Through a copy.
    Fetch,
}

impl Reading {
    fn of(from: Rows<'_>, width: usize, result: usize) -> Self {
        match from {
            Rows::Each(_) if width == result => Reading::Elements,
            Rows::Same(_) if width == 1 => Reading::Scalar,
            Rows::Same(_) if width == result && flat::CYCLE.is_multiple_of(width) => Reading::Cycle,
            Rows::Each(_) | Rows::Same(_) | Rows::Picked(..) => Reading::Fetch,
        }
    }
}

/// One side of an element-wise operation for `len` elements of rows from `start`, in the tile where it is copied.
fn side<'t>(
    from: Rows<'t>,
    reading: Reading,
    own: usize,
    start: usize,
    width: usize,
    len: usize,
    tile: &'t mut [f32],
) -> Side<'t> {
    match (from, reading) {
        (Rows::Each(data), Reading::Elements) => Side::Elements(&data[start * width..start * width + len]),
        (Rows::Same(data), Reading::Scalar) => Side::Scalar(data[0]),
        (Rows::Same(data), Reading::Cycle) => {
            let cycle = &mut tile[..flat::CYCLE];
            cycle[..own].copy_from_slice(&data[..own]);
            let mut filled = own;
            while filled < flat::CYCLE.min(len) {
                let (from, to) = cycle.split_at_mut(filled);
                let more = filled.min(to.len());
                to[..more].copy_from_slice(&from[..more]);
                filled += more;
            }
            Side::Cycle(cycle)
        }
        _ => {
            let tile = &mut tile[..len];
            rows::fetch(from, own, width / own.max(1), start, tile);
            Side::Elements(tile)
        }
    }
}

/// The elements of an operand that lies row after row.
fn whole(from: Rows<'_>) -> &[f32] {
    match from {
        Rows::Each(data) | Rows::Same(data) | Rows::Picked(data, _) => data,
    }
}
