//! Iterates over the blocks of a task, the pieces of split rows, and the tiles of a block.

use hgnnc_data::ActiveVertices;
use hgnnc_ir::ops::{Direction, Reduce};
use hgnnc_kernel_ir::kernel::KernelOp;
use hgnnc_kernels::simd::Dispatch;
use hgnnc_kernels::{extremes, rows, segment, softmax};

use super::{Block, Context, Scratch};
use crate::plan::{BlockOp, Domain, FusedLoop, Level, Place, Region, SplitRows};
use crate::schedule::RegionSchedule;
use crate::slabs;

/// Runs the blocks of one task of a region.
pub fn run_task(context: Context<'_>, region: &Region, schedule: &RegionSchedule, task: usize, scratch: &mut Scratch) {
    begin_parts(context, region, schedule, task);
    for block in region.tasks[task] as usize..region.tasks[task + 1] as usize {
        if let Some(rows) = region.block(block) {
            let tables = context.tables.iter().filter(|table| table.is_of(region));
            tables.clone().for_each(|table| table.gather(&rows));
            run_block(context, region, schedule, task, BlockPart::of(rows.clone()), scratch);
            tables.for_each(|table| table.scatter(&rows));
        }
    }
}

/// Split rows of a region.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct SplitRowRunner<'a> {
    /// Memory, data, and position in training.
    pub context: Context<'a>,
    pub region: &'a Region,
    pub split: &'a SplitRows,
}

impl SplitRowRunner<'_> {
    /// Runs the row operations of an edge pass for the split rows of a task.
    pub fn rows(self, schedule: &RegionSchedule, task: usize, scratch: &mut Scratch) {
        let Self { context, region, split } = self;
        let part = region.tasks.len() - 1 + task;
        begin_parts(context, region, schedule, part);
        for at in split.row_tasks[task].clone() {
            let row = split.rows[at] as usize;
            let part_of_block =
                BlockPart { edges: Some(0..0), row_area: split.row_area(at), ..BlockPart::of(row..row + 1) };
            run_block(context, region, schedule, part, part_of_block, scratch);
        }
    }

    /// Runs the edge operations of a pass for the pieces of a task.
    pub fn pieces(self, schedule: &RegionSchedule, task: usize, scratch: &mut Scratch) {
        let Self { context, region, split } = self;
        let Domain::Edges { topology, direction, ends } = region.domain else { return };
        let indptr = context.data.topology(topology).indptr(direction, ends);
        let part = region.tasks.len() - 1 + task;
        begin_parts(context, region, schedule, part);
        for piece in split.piece_tasks[task].clone() {
            let (at, edges) = split.edges_of(piece, indptr);
            let row = split.rows[at] as usize;
            let part_of_block =
                BlockPart { rows: row..row + 1, edges: Some(edges), row_area: split.row_area(at), piece };
            run_block(context, region, schedule, part, part_of_block, scratch);
        }
    }

    /// Combines the reductions of the pieces of a task's rows, in order. `schedule` is that of the pieces.
    pub fn combine(self, schedule: &RegionSchedule, task: usize) {
        let Self { context, region, split } = self;
        for at in split.row_tasks[task].clone() {
            for op in schedule.reductions(region) {
                let local = op.out as usize;
                let width = region.locals[local].width;
                let (slab, start) = match (region.locals[local].place, split.areas.in_row[local]) {
                    (Place::Stored(stored), _) => {
                        let buffer = stored.range(context.ranges);
                        (buffer.slab, buffer.offset + split.rows[at] as usize * width)
                    }
                    (Place::Scratch, in_row) => (context.partials, split.row_area(at) + in_row.unwrap_or(0)),
                };
                // The row belongs to this task, and all pieces are complete.
                let out = context.slabs.write(slab, start, width);
                begin(op, out);
                if out.is_empty() {
                    continue;
                }
                let Some(parts) = split.parts(local) else { continue };
                let pieces = split.pieces_of(at);
                let (start, len) = (parts + pieces.start * width, pieces.len() * width);
                // Areas are disjoint.
                merge(context.dispatch, op, context.slabs.read(context.partials, start, len), out);
            }
        }
    }
}

/// Initializes the result of a reduction over edges.
pub(crate) fn begin(op: &BlockOp, out: &mut [f32]) {
    match op.op {
        KernelOp::Segment(reduce, _) => out.fill(reduce.identity() as f32),
        KernelOp::SoftmaxSum { score, x, .. } => softmax::begin(score.width, x.width, out),
        KernelOp::SegmentArg { extreme, x, .. } => extremes::begin(extreme, x.width, out),
        _ => out.fill(0.0),
    }
}

/// Merges the partial reductions of some pieces of a row, in order.
fn merge(dispatch: Dispatch, op: &BlockOp, parts: &[f32], out: &mut [f32]) {
    match op.op {
        KernelOp::Segment(reduce, _) => accumulate(dispatch, reduce, parts, out),
        KernelOp::SoftmaxSum { score, x, .. } => softmax::merge(score.width, x.width, parts, out),
        KernelOp::SegmentArg { extreme, x, .. } => extremes::merge(extreme, x.width, parts, out),
        _ => accumulate(dispatch, Reduce::Sum, parts, out),
    }
}

/// Initializes the partial results of a task.
fn begin_parts(context: Context<'_>, region: &Region, schedule: &RegionSchedule, part: usize) {
    for partial in schedule.partials.iter().map(|&p| &region.partials[p]) {
        partial_of(context, partial.offset + part * partial.width, partial.width)
            .fill(partial.reduce.identity() as f32);
    }
}

/// Combines the partial results of the tasks of a region, in order.
pub fn combine(context: Context<'_>, region: &Region) {
    for partial in &region.partials {
        // The tasks of the region are complete, and nothing else runs.
        let out = partial.out.range(context.ranges);
        let out = context.slabs.write(out.slab, out.offset, partial.width);
        out.fill(partial.reduce.identity() as f32);
        if partial.width == 0 {
            continue;
        }
        let (of_tasks, place_split_rows) = region.parts(partial);
        for part in 0..of_tasks + place_split_rows {
            let part = partial_of(context, partial.offset + part * partial.width, partial.width);
            accumulate(context.dispatch, partial.reduce, part, out);
        }
    }
}

fn accumulate(dispatch: Dispatch, reduce: Reduce, part: &[f32], out: &mut [f32]) {
    rows::accumulate_rows(dispatch, reduce, part, out.len(), out);
}

pub(crate) fn partial_of(context: Context<'_>, offset: usize, width: usize) -> &mut [f32] {
    // The ranges of tasks and of the partial results of a step are disjoint, and a task runs once.
    context.slabs.write(context.partials, offset, width)
}

/// Rows that are executed together, or a piece of one.
struct BlockPart {
    rows: std::ops::Range<usize>,
    /// Edges of a piece of a split row.
    edges: Option<std::ops::Range<u64>>,
    /// Offset of the split row's area.
    row_area: usize,
    /// Index of the piece.
    piece: usize,
}

impl BlockPart {
    /// A block of unsplit rows.
    fn of(rows: std::ops::Range<usize>) -> Self {
        Self { rows, edges: None, row_area: 0, piece: 0 }
    }
}

fn run_block(
    context: Context<'_>,
    region: &Region,
    schedule: &RegionSchedule,
    task: usize,
    part_of_block: BlockPart,
    scratch: &mut Scratch,
) {
    let BlockPart { rows: range, edges: cut, row_area, piece } = part_of_block;
    let Scratch { floats, tiles, own, own_end, full, offsets, clip, tables } = scratch;
    let num_rows = range.len();
    let mut block = Block {
        context,
        region,
        schedule,
        floats: slabs::scratch(floats),
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
        block.other = &incidence.indices[edges.clone()];
        if !incidence.eids.is_empty() {
            block.position = &incidence.eids[edges];
        }
        if let Some(others) = topology.listed_endpoints(direction.opposite()) {
            block.other_end = &others.of_edge[first as usize..last as usize];
        }
        if ends {
            block.vertices = &topology.endpoints(direction).vertices[range.clone()];
        }
        if let Some(replay) = context.replay {
            replay.apply(&mut block);
        }
        match cut {
            Some(_) => offsets[..=1].copy_from_slice(&[0, block.num_edges as u32]),
            None => fill_offsets(indptr, &range, &mut offsets[..=num_rows]),
        }
        if region.uses_own {
            segment::owners(context.dispatch, &offsets[..=num_rows], &mut own[..block.num_edges]);
            block.own = &own[..block.num_edges];
        }
        if region.uses_own_end {
            let listed = (!ends).then(|| topology.endpoints(direction));
            fill_own_end(&block, listed, &offsets[..=num_rows], own_end);
            block.own_end = &own_end[..block.num_edges];
        }
        if let Some(columns) = region.full_columns {
            fill_full(&block, columns, full);
            block.full = &full[..block.num_edges];
        }
        block.offsets = &offsets[..=num_rows];
    } else if let Some(replay) = context.replay {
        replay.apply(&mut block);
    }
    for fused in &schedule.loops {
        match fused.calls().next() {
            Some(_) => block.run_calls(fused, task, tiles, clip, tables),
            None => block.run_loop(fused, task, tiles, clip),
        }
    }
}

/// Edge offsets of each row relative to the block's first edge.
fn fill_offsets(indptr: &[u64], rows: &std::ops::Range<usize>, offsets: &mut [u32]) {
    let first = indptr[rows.start];
    for (offset, &at) in offsets.iter_mut().zip(&indptr[rows.start..=rows.end]) {
        *offset = (at - first) as u32;
    }
}

/// Per edge the vertex of its row, or the active vertex of its row.
fn fill_own_end(block: &Block<'_>, listed: Option<&ActiveVertices>, offsets: &[u32], own_end: &mut [u32]) {
    let mut end = listed.map_or(0, |ends| ends.within(0, block.first_row).end as u32);
    for (row, edges) in offsets.windows(2).enumerate() {
        let edges = edges[0] as usize..edges[1] as usize;
        if listed.is_none() {
            own_end[edges].fill(block.vertices[row]);
        } else if !edges.is_empty() {
            own_end[edges].fill(end);
            end += 1;
        }
    }
}

/// Per edge the element index in a dense matrix with `columns` columns.
fn fill_full(block: &Block<'_>, columns: usize, full: &mut [u32]) {
    for ((slot, &own), &other) in full.iter_mut().zip(block.own).zip(block.other) {
        let (own, other) = (own as usize + block.first_row, other as usize);
        let (row, column) = if block.incoming { (own, other) } else { (other, own) };
        *slot = (row * columns + column) as u32;
    }
}

impl Block<'_> {
    /// Runs a loop over all tiles of the block.
    fn run_loop(mut self, fused: &FusedLoop, task: usize, tiles: &mut [Vec<f32>; 2], clip: &mut [u32]) {
        let all = self.count(fused.level);
        let Some(tile) = fused.tile.filter(|&tile| all > tile) else {
            // A single tile: reductions over edges write their rows directly.
            self.items = all;
            for op in fused.ops() {
                self.execute(&self.region.ops[op], task, tiles);
            }
            return;
        };
        let reductions = || fused.ops().map(|op| &self.region.ops[op]).filter(|op| op.op.reduces_edges());
        for op in reductions() {
            begin(op, self.output(op.out, 0, self.num_rows));
        }
        let mut first_row = 0;
        for start in (0..all).step_by(tile) {
            self.start = start;
            self.items = tile.min(all - start);
            let rows = self.owners(fused.level, &mut first_row, clip);
            for op in fused.ops() {
                let op = &self.region.ops[op];
                if op.op.reduces_edges() {
                    self.reduce_tile(op, rows.clone(), &clip[..=rows.len()]);
                } else {
                    self.execute(op, task, tiles);
                }
            }
        }
    }

    /// Rows that own the edges of the tile, starting the search at `first_row`, and their edge offsets in the tile.
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

    /// Merges the reduction of the tile's edges into the results of their rows.
    pub fn reduce_tile(&self, op: &BlockOp, rows: std::ops::Range<usize>, offsets: &[u32]) {
        let width = self.region.locals[op.out as usize].width;
        let out = self.output(op.out, rows.start, rows.len());
        if out.is_empty() {
            return;
        }
        match &op.op {
            KernelOp::Segment(reduce, a) => {
                segment::segment(self.context.dispatch, *reduce, self.operand(a, op.level), width, offsets, out, true);
            }
            KernelOp::WeightedSum { a, x } => {
                let (weights, from) = (self.operand(a, op.level), self.operand(x, op.level));
                segment::weighted_sum(
                    self.context.dispatch,
                    weights,
                    from,
                    a.width,
                    x.width / a.width.max(1),
                    offsets,
                    out,
                    true,
                );
            }
            KernelOp::SoftmaxSum { score, x, times } => self.softmax_sum([score, x], times.as_ref(), offsets, out),
            KernelOp::SegmentArg { extreme, x, rank } => {
                extremes::segment_arg(
                    self.context.dispatch,
                    *extreme,
                    self.operand(x, op.level),
                    self.operand(rank, op.level),
                    x.width,
                    offsets,
                    out,
                );
            }
            _ => {}
        }
    }
}
