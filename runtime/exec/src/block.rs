//! Executes the program of a region for one block of rows after another.
//!
//! This is the interpreter of [`crate::plan::BlockOp`]: it finds the operands of an operation in scratch or
//! in stored values and calls a kernel for all rows or edges of the block. It decides nothing.

// Operands and results are ranges of shared slabs; see `raw`.
#![allow(unsafe_code)]

use hgnnc_ir::ops::{BinaryOp, Direction, Reduce, UnaryOp};

use crate::data::{BoundData, Incidence, InputData};
use crate::kernels::flat::{self, MaskDraw, Side};
use crate::kernels::{Rows, product, rows, segment};
use crate::plan::{Access, Base, BlockKind, BlockOp, Domain, Level, Operand, Place, Plan, Region};
use crate::raw::Slab;

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
}

/// Scratch of one thread, sized by the plan.
#[derive(Debug)]
pub struct Scratch {
    floats: Slab,
    tiles: [Vec<f32>; 2],
    own: Vec<u32>,
    full: Vec<u32>,
    offsets: Vec<u32>,
}

impl Scratch {
    /// Enough for all regions of the plans.
    pub fn new(plans: &[Plan]) -> Self {
        let most = |f: fn(&Plan) -> usize| plans.iter().map(f).max().unwrap_or(0);
        let tile = most(|p| p.tile_len);
        let edges = most(|p| p.block_edges);
        Self {
            floats: Slab::zeros(most(|p| p.scratch_len)),
            tiles: [vec![0.0; tile], vec![0.0; tile]],
            own: vec![0; edges],
            full: vec![0; edges],
            offsets: vec![0; most(|p| p.block_rows) + 1],
        }
    }

    /// Bytes that [`Scratch::new`] takes.
    pub fn bytes(plans: &[Plan]) -> u64 {
        let most = |f: fn(&Plan) -> usize| plans.iter().map(f).max().unwrap_or(0) as u64;
        4 * (most(|p| p.scratch_len) + 2 * most(|p| p.tile_len) + 2 * most(|p| p.block_edges) + most(|p| p.block_rows))
    }
}

/// Runs the blocks of task `task` of a region.
pub fn run_task(context: Context<'_>, region: &Region, task: usize, scratch: &mut Scratch) {
    for partial in &region.partials {
        partial_of(context, partial.offset + task * partial.width, partial.width)
            .fill(partial.reduce.identity() as f32);
    }
    for block in region.tasks[task] as usize..region.tasks[task + 1] as usize {
        let rows = region.blocks[block] as usize..region.blocks[block + 1] as usize;
        run_block(context, region, task, rows, scratch);
    }
}

/// Adds up the parts of the tasks of a region, in their order.
pub fn combine(context: Context<'_>, region: &Region) {
    for partial in &region.partials {
        let tasks = region.tasks.len() - 1;
        // SAFETY: the tasks of the region are done, and nothing else runs.
        let out = unsafe { context.slabs[partial.out.slab as usize].write(partial.out.offset, partial.width) };
        out.fill(partial.reduce.identity() as f32);
        if partial.width == 0 {
            continue;
        }
        for task in 0..tasks {
            let part = partial_of(context, partial.offset + task * partial.width, partial.width);
            flat_accumulate(partial.reduce, part, out);
        }
    }
}

fn flat_accumulate(reduce: Reduce, part: &[f32], out: &mut [f32]) {
    rows::accumulate_rows(reduce, part, out.len(), out);
}

fn partial_of(context: Context<'_>, offset: usize, width: usize) -> &mut [f32] {
    // SAFETY: the ranges of tasks and of the partials of a step are disjoint, and a task is run once.
    unsafe { context.slabs[context.partials as usize].write(offset, width) }
}

fn run_block(context: Context<'_>, region: &Region, task: usize, range: std::ops::Range<usize>, scratch: &mut Scratch) {
    let Scratch { floats, tiles, own, full, offsets } = scratch;
    let num_rows = range.len();
    let mut block = Block {
        context,
        region,
        floats,
        first_row: range.start,
        num_rows,
        first_edge: 0,
        num_edges: 0,
        other: &[],
        position: &[],
        own: &[],
        full: &[],
        offsets: &[],
        incoming: true,
    };
    if let Domain::Edges { topology, direction } = region.domain {
        let incidence = context.data.topology(topology).incidence(direction);
        block.incoming = direction == Direction::In;
        let first = incidence.indptr[range.start];
        let last = incidence.indptr[range.end];
        block.first_edge = first as usize;
        block.num_edges = (last - first) as usize;
        let edges = first as usize..last as usize;
        block.other = &incidence.other[edges.clone()];
        if !incidence.position.is_empty() {
            block.position = &incidence.position[edges];
        }
        fill_offsets(incidence, &range, &mut offsets[..=num_rows]);
        if region.uses_own {
            for row in 0..num_rows {
                own[offsets[row] as usize..offsets[row + 1] as usize].fill(row as u32);
            }
            block.own = &own[..block.num_edges];
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
    for op in &region.ops {
        block.execute(op, task, tiles);
    }
}

/// First edge of each row, counted from the block's first edge.
fn fill_offsets(incidence: &Incidence, rows: &std::ops::Range<usize>, offsets: &mut [u32]) {
    let first = incidence.indptr[rows.start];
    for (offset, &at) in offsets.iter_mut().zip(&incidence.indptr[rows.start..=rows.end]) {
        *offset = (at - first) as u32;
    }
}

/// A block of rows of a region.
#[derive(Clone, Copy)]
struct Block<'a> {
    context: Context<'a>,
    region: &'a Region,
    floats: &'a Slab,
    first_row: usize,
    num_rows: usize,
    first_edge: usize,
    num_edges: usize,
    other: &'a [u32],
    position: &'a [u32],
    own: &'a [u32],
    full: &'a [u32],
    offsets: &'a [u32],
    incoming: bool,
}

impl<'a> Block<'a> {
    fn count(&self, level: Level) -> usize {
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

    /// An operand of an operation at a level.
    fn operand(&self, operand: &Operand, level: Level) -> Rows<'a> {
        let Operand { base, access, width } = *operand;
        // What the base has a row for.
        let base_level = if access == Access::Own { Level::Row } else { level };
        let near = |count: usize| -> &'a [f32] {
            match base {
                Base::Local(local) => self.local(local, count * width),
                Base::Stored(buffer) => {
                    let start = buffer.offset + self.first(base_level) * width;
                    // SAFETY: stored operands are no outputs of this step.
                    unsafe { self.context.slabs[buffer.slab as usize].read(start, count * width) }
                }
            }
        };
        let all = || -> &'a [f32] {
            match base {
                Base::Local(local) => self.local(local, self.num_rows * width),
                // SAFETY: as above.
                Base::Stored(buffer) => unsafe {
                    self.context.slabs[buffer.slab as usize].read(buffer.offset, buffer.len)
                },
            }
        };
        match access {
            Access::Each => Rows::Each(near(self.count(level))),
            Access::Same => Rows::Same(all()),
            Access::Own => Rows::Picked(near(self.num_rows), self.own),
            Access::Other => Rows::Picked(all(), self.other),
            Access::Position => Rows::Picked(all(), self.position),
            Access::Full => Rows::Picked(all(), self.full),
        }
    }

    /// An earlier result of this block.
    fn local(&self, local: u32, len: usize) -> &'a [f32] {
        let local = &self.region.locals[local as usize];
        match local.place {
            // SAFETY: the scratch belongs to this thread, and locals alive together are disjoint.
            Place::Scratch(offset) => unsafe { self.floats.read(offset, len) },
            Place::Stored(buffer) => {
                let start = buffer.offset + self.first(local.level) * local.width;
                // SAFETY: rows of this block, written by an earlier operation of it.
                unsafe { self.context.slabs[buffer.slab as usize].read(start, len) }
            }
        }
    }

    /// Where a local is written.
    fn output(&self, local: u32) -> &'a mut [f32] {
        let local = &self.region.locals[local as usize];
        let len = self.count(local.level) * local.width;
        match local.place {
            // SAFETY: the scratch belongs to this thread, and no operand is placed where the result goes.
            Place::Scratch(offset) => unsafe { self.floats.write(offset, len) },
            Place::Stored(buffer) => {
                let start = buffer.offset + self.first(local.level) * local.width;
                // SAFETY: the rows of a block belong to one task, and outputs of a step are disjoint.
                unsafe { self.context.slabs[buffer.slab as usize].write(start, len) }
            }
        }
    }

    fn execute(&self, op: &BlockOp, task: usize, tiles: &mut [Vec<f32>; 2]) {
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
                product::outer(*of, self.count(op.level), 0..of.k, x, y, out, true);
                return;
            }
            _ => {}
        }
        let out = self.output(op.out);
        if out.is_empty() {
            return;
        }
        let width = self.region.locals[op.out as usize].width;
        match &op.kind {
            BlockKind::Unary(f, a) => self.unary(*f, a, op.level, width, out, &mut tiles[0]),
            BlockKind::Binary(f, a, b) => self.binary(*f, [a, b], op.level, width, out, tiles),
            BlockKind::Copy(a) => rows::fetch(self.operand(a, op.level), a.width, width / a.width.max(1), 0, out),
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
                    let labels = &labels[self.first_row..self.first_row + self.num_rows];
                    for (row, &label) in out.chunks_exact_mut(*classes).zip(labels) {
                        if let Some(slot) = usize::try_from(label).ok().and_then(|l| row.get_mut(l)) {
                            *slot = 1.0;
                        }
                    }
                }
            }
            BlockKind::Mask { stream, rate, columns } => {
                let draw = MaskDraw::new(self.context.seed, self.context.step, *stream, *rate);
                self.mask(draw, *columns, op.level, width, out);
            }
            BlockKind::MatMul(of, x, w) => {
                let (x, w) = (whole(self.operand(x, op.level)), whole(self.operand(w, op.level)));
                product::mat_mul(*of, self.count(op.level), x, w, out);
            }
            BlockKind::MatMulT(of, y, w) => {
                let (y, w) = (whole(self.operand(y, op.level)), whole(self.operand(w, op.level)));
                product::mat_mul_t(*of, self.count(op.level), y, w, out);
            }
            BlockKind::ReduceTrailing(reduce, a, inner) => {
                let from = self.operand(a, op.level);
                if let Rows::Each(x) = from {
                    rows::reduce_trailing(*reduce, x, *inner, out);
                } else {
                    let tile = &mut tiles[0];
                    let per_tile = (tile.len() / a.width.max(1)).max(1);
                    if tile.len() < a.width {
                        tile.resize(a.width, 0.0);
                    }
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
                segment::segment(*reduce, self.operand(a, op.level), width, self.offsets, out);
            }
            BlockKind::WeightedSum { a, x, inner } => {
                let (weights, from) = (self.operand(a, op.level), self.operand(x, op.level));
                segment::weighted_sum(weights, from, a.width, *inner, self.offsets, out);
            }
            BlockKind::PartialReduce(..) | BlockKind::PartialOuter(..) => {}
        }
    }

    fn unary(&self, f: UnaryOp, a: &Operand, level: Level, width: usize, out: &mut [f32], tile: &mut [f32]) {
        let from = self.operand(a, level);
        if let Rows::Each(x) = from {
            flat::unary(f, x, out);
            return;
        }
        let per_tile = (tile.len() / width).max(1);
        for (t, out) in out.chunks_mut(per_tile * width).enumerate() {
            let x = &mut tile[..out.len()];
            rows::fetch(from, width, 1, t * per_tile, x);
            flat::unary(f, x, out);
        }
    }

    fn binary(
        &self,
        f: BinaryOp,
        [a, b]: [&Operand; 2],
        level: Level,
        width: usize,
        out: &mut [f32],
        [tile_a, tile_b]: &mut [Vec<f32>; 2],
    ) {
        let (from_a, from_b) = (self.operand(a, level), self.operand(b, level));
        let direct = |from: Rows<'_>, operand: &Operand| match from {
            Rows::Each(_) => operand.width == width,
            Rows::Same(_) => operand.width == 1,
            Rows::Picked(..) => false,
        };
        if direct(from_a, a) && direct(from_b, b) {
            flat::binary(f, side(from_a, 0, out.len()), side(from_b, 0, out.len()), out);
            return;
        }
        let per_tile = (tile_a.len() / width).max(1);
        for (t, out) in out.chunks_mut(per_tile * width).enumerate() {
            let start = t * per_tile;
            let a = fetched(from_a, a, direct(from_a, a), start, width, out.len(), tile_a);
            let b = fetched(from_b, b, direct(from_b, b), start, width, out.len(), tile_b);
            flat::binary(f, a, b, out);
        }
    }

    fn mask(&self, draw: MaskDraw, columns: Option<usize>, level: Level, width: usize, out: &mut [f32]) {
        match columns {
            None if level == Level::Edge && !self.position.is_empty() => {
                flat::mask_rows(draw, self.position, width, out);
            }
            None => flat::mask(draw, self.first(level) as u64 * width as u64, out),
            Some(columns) => {
                let own = (self.own, self.first_row as u64);
                let other = (self.other, 0);
                let (row, column) = if self.incoming { (own, other) } else { (other, own) };
                flat::mask_sparse(draw, row.0, row.1, column.0, column.1, columns as u64, out);
            }
        }
    }
}

/// One side of an element-wise operation that needs no copy.
fn side(from: Rows<'_>, start: usize, len: usize) -> Side<'_> {
    match from {
        Rows::Each(data) => Side::Elements(&data[start..start + len]),
        Rows::Same(data) | Rows::Picked(data, _) => Side::Scalar(data[0]),
    }
}

/// One side for a tile of rows from `start`, copied into the tile unless it lies there already.
fn fetched<'t>(
    from: Rows<'t>,
    operand: &Operand,
    direct: bool,
    start: usize,
    width: usize,
    len: usize,
    tile: &'t mut [f32],
) -> Side<'t> {
    if direct {
        return side(from, start * width, len);
    }
    let tile = &mut tile[..len];
    rows::fetch(from, operand.width, width / operand.width.max(1), start, tile);
    Side::Elements(tile)
}

/// The elements of an operand that lies row after row.
fn whole(from: Rows<'_>) -> &[f32] {
    match from {
        Rows::Each(data) | Rows::Same(data) | Rows::Picked(data, _) => data,
    }
}
