//! Binds a traversal to the block program of a region.
//!
//! The computation is fixed by the kernel. This pass resolves operand addresses, inserts copies for operations that
//! need contiguous operands, and divides rows into blocks by cache size and edges, and blocks into tasks.

use std::collections::HashMap;
use std::ops::Range;

use hgnnc_ir::kernel::place::{Lifetime, sum_alive};
use hgnnc_ir::kernel::{self, Dest, Extent, Index, Instr, KernelOp, Rows, Source, Traversal, Width};
use hgnnc_ir::{DType, Direction, Reduce, Space};

use super::bind::{Binder, stage_index};
use super::fuse::{Form, forms};
use super::{Access, Base, BlockOp, Domain, Level, Local, MaskRows, Operand, Partial, Place, Region, SplitRows};
use crate::buffer::BufferRange;
use crate::data::InputData;
use crate::error::{ExecError, Result};
use crate::schedule::{block_extents, block_widths};

/// Elements of a tile of gathered operands: two fit in the L1 cache.
const TILE: usize = 2048;
/// Maximum number of tasks of a region.
const TASKS: usize = 256;
/// Maximum number of tasks of a region with partial results, which are combined sequentially.
const PARTIAL_TASKS: usize = 32;
/// Maximum total elements of the partial results of one value, except for few tasks.
const PARTS: usize = 64 * 1024;

/// Binds a traversal; also returns the share of each stage in its cost.
pub(super) fn bind_region(binder: &mut Binder<'_>, traversal: &Traversal) -> Result<(Region, [f32; 5])> {
    if let Rows::Each(volume) = &traversal.rows {
        // Vertex and edge counts are checked with the data.
        let elements = binder.eval(volume);
        if u32::try_from(elements).is_err() {
            return Err(ExecError::Unsupported(format!("a parameter of {elements} elements; 2^32 - 1 are the most")));
        }
    }
    let forms = forms(&traversal.instrs, binder.features);
    let mut region = RegionBinder {
        binder,
        traversal,
        widths: kernel::Program::local_widths(traversal),
        made: vec![],
        written: HashMap::new(),
        ops: vec![],
        locals: vec![],
        partials: vec![],
        uses_own: false,
        uses_own_end: false,
        full_columns: None,
    };
    for (instr, form) in traversal.instrs.iter().zip(forms) {
        region.instr(instr, form)?;
    }
    traversal.instrs.iter().for_each(|instr| region.store_last(instr));
    Ok(region.finish())
}

struct RegionBinder<'b, 'a> {
    binder: &'b mut Binder<'a>,
    traversal: &'b Traversal,
    /// Width of each local of the kernel.
    widths: Vec<Width>,
    /// Block local of each kernel local.
    made: Vec<u32>,
    /// Block local with the rows of a stored buffer.
    written: HashMap<kernel::Buffer, u32>,
    ops: Vec<BlockOp>,
    locals: Vec<Local>,
    partials: Vec<(BufferRange, Reduce, Level, usize)>,
    uses_own: bool,
    uses_own_end: bool,
    full_columns: Option<usize>,
}

impl RegionBinder<'_, '_> {
    /// Topology whose edges the rows own: a graph, or, after all graphs, a pattern.
    fn edges(&self) -> Option<(usize, Direction)> {
        match self.traversal.rows {
            Rows::Once | Rows::Each(_) | Rows::Vertices(_) => None,
            Rows::Edges(graph, direction) | Rows::Ends(graph, direction) => Some((graph.index(), direction)),
            Rows::Elements(pattern, direction) => Some((self.binder.data.graphs.len() + pattern.index(), direction)),
        }
    }

    /// Rows for which a dropout mask at a level is drawn.
    fn drawn(&self, at: Level) -> MaskRows {
        let tables = &self.binder.program.tables;
        match (&self.traversal.rows, at) {
            (Rows::Vertices(vertex), _) => MaskRows::Vertices(*vertex),
            (Rows::Edges(graph, _) | Rows::Ends(graph, _), Level::Edge) => MaskRows::Edges(graph.index()),
            (Rows::Edges(graph, Direction::In), Level::Row) => MaskRows::Vertices(tables.graphs[graph.index()].dst),
            (Rows::Edges(graph, Direction::Out), Level::Row) => MaskRows::Vertices(tables.graphs[graph.index()].src),
            (Rows::Elements(pattern, _), Level::Edge) | (Rows::Elements(pattern, Direction::In), _) => {
                MaskRows::Vertices(tables.patterns[pattern.index()].vertex)
            }
            // With renumbered vertices there are no masks over active vertices.
            (Rows::Once | Rows::Each(_) | Rows::Ends(..) | Rows::Elements(_, Direction::Out), _) => MaskRows::Rows,
        }
    }

    /// Columns of the sparse matrix whose elements the rows own.
    fn columns(&self) -> Option<usize> {
        match self.traversal.rows {
            Rows::Once | Rows::Each(_) | Rows::Vertices(_) | Rows::Edges(..) | Rows::Ends(..) => None,
            Rows::Elements(pattern, _) => Some(self.binder.program.tables.patterns[pattern.index()].columns),
        }
    }

    fn width_of(&self, operand: kernel::Operand) -> Width {
        let width = self.binder.program.operand_width(&self.traversal.rows, &self.widths, operand);
        width.expect("in a verified program every operand has a width")
    }

    /// Appends an operation with a local for its result.
    fn push(&mut self, instr: &Instr, out: Local, op: KernelOp<Operand, usize>) -> u32 {
        self.locals.push(out);
        let out = self.locals.len() as u32 - 1;
        self.ops.push(BlockOp { op, level: instr.level, out, deferred: false, stage: instr.stage });
        out
    }

    /// Binds an operand. A stored operand that the result aliases is read before it is overwritten.
    fn operand(&mut self, instr: &Instr, operand: kernel::Operand) -> Result<Operand> {
        let replaced = match instr.dest {
            Dest::Buffer(new) => self.binder.program.buffer(new).replaces.map(Source::Buffer),
            Dest::Local(_) => None,
        };
        if replaced == Some(operand.source) { self.copied(instr, operand) } else { self.in_place(instr, operand) }
    }

    fn in_place(&mut self, instr: &Instr, operand: kernel::Operand) -> Result<Operand> {
        let width = self.width_of(operand);
        let width = self.binder.eval(&width);
        let local = match operand.source {
            Source::Local(local) => Some(self.made[local.index()]),
            Source::Buffer(buffer) => self.written.get(&buffer).copied(),
            Source::Const(_) | Source::Count(_) => None,
        };
        let at_edge = instr.level == Level::Edge;
        let of_ends = matches!(self.space_of(operand.source), Space::Ends(..));
        // Rows of active vertices read vertex values at their vertices; rows of all vertices read values of active
        // vertices at theirs.
        let crossed = local.is_none() && self.rows_are_ends() != of_ends;
        let access = match operand.index {
            Index::End => match self.space_of(operand.source) {
                Space::Ends(graph, direction) => Access::End(graph.0, direction),
                _ => unreachable!("in a verified program only values of ends are read at ends"),
            },
            Index::Row if crossed && at_edge && of_ends => Access::OwnerEnd,
            Index::Row if crossed && at_edge && self.rows_are_ends() => Access::OwnerVertex,
            Index::Row if crossed && self.rows_are_ends() => Access::Vertex,
            Index::Other if of_ends => Access::NeighborEnd,
            Index::Whole if self.traversal.rows == Rows::Once => Access::Each,
            Index::Whole => Access::Same,
            Index::Row if at_edge => Access::Owner,
            Index::Row => Access::Each,
            Index::Other => Access::Neighbor,
            Index::Edge if self.same_elements(operand.source).is_some() => Access::Same,
            Index::Edge => {
                // Stored edge values are in CSC order.
                let outgoing = self.edges().is_some_and(|(_, direction)| direction == Direction::Out);
                if local.is_none() && outgoing { Access::Eid } else { Access::Each }
            }
            Index::Cell => {
                self.cells(instr)?;
                Access::DenseCell
            }
        };
        self.uses_own |= matches!(access, Access::Owner | Access::DenseCell);
        self.uses_own_end |= matches!(access, Access::OwnerVertex | Access::OwnerEnd);
        let base = match (local, operand.index) {
            (Some(local), _) => Base::Local(local),
            (None, Index::Edge) if let Some(number) = self.same_elements(operand.source) => {
                Base::Stored(self.binder.source(Source::Const(number.into())))
            }
            (None, _) if let Some(input) = self.labels(operand.source) => Base::Labels(input),
            (None, _) => Base::Stored(self.binder.source(operand.source)),
        };
        Ok(Operand { base, access, width })
    }

    /// Space of a stored value; [`Space::Unit`] for others.
    fn space_of(&self, source: Source) -> Space {
        match source {
            Source::Buffer(buffer) => self.binder.program.buffer(buffer).ty.space,
            Source::Local(_) | Source::Const(_) | Source::Count(_) => Space::Unit,
        }
    }

    /// Index of an input of class labels.
    fn labels(&self, source: Source) -> Option<u32> {
        let Source::Buffer(buffer) = source else { return None };
        let decl = self.binder.program.buffer(buffer);
        match decl.contents {
            kernel::Contents::Input(input) if decl.ty.dtype == DType::I32 => Some(input.0),
            _ => None,
        }
    }

    /// The common value of all elements of a sparse input, such as the 1 of bags of words: it is read as a scalar
    /// instead of being gathered in column order.
    fn same_elements(&self, source: Source) -> Option<f32> {
        let Source::Buffer(buffer) = source else { return None };
        let kernel::Contents::Input(input) = self.binder.program.buffer(buffer).contents else { return None };
        if !self.binder.program.tables.inputs[input.index()].ty.is_sparse() {
            return None;
        }
        let Some(InputData::Numbers(numbers)) = self.binder.data.inputs.get(input.index()) else { return None };
        let (&first, rest) = numbers.split_first()?;
        rest.iter().all(|x| x.to_bits() == first.to_bits()).then_some(first)
    }

    /// Checks that the cells of a dense matrix have 32-bit indices.
    fn cells(&mut self, instr: &Instr) -> Result<()> {
        let columns = self.columns().unwrap_or(0);
        let (tables, rows) = (&self.binder.program.tables, &self.traversal.rows);
        let other = rows.other_count(tables).unwrap_or_else(Width::one);
        let cells = self.binder.eval(&rows.count(tables).times(&other));
        if u32::try_from(cells).is_err() {
            return Err(ExecError::Operation {
                program: tables.name.clone(),
                stage: instr.stage.name(),
                op: instr.op.name().into(),
                shapes: format!("{} x {columns} elements", cells / columns.max(1)),
                reason: "a dense operand of a sparse one may have at most 2^32 elements".into(),
            });
        }
        self.full_columns = Some(columns);
        Ok(())
    }

    fn rows_are_ends(&self) -> bool {
        matches!(self.traversal.rows, Rows::Ends(..))
    }

    /// An operand with contiguous rows, copied if needed.
    fn contiguous(&mut self, instr: &Instr, operand: kernel::Operand) -> Result<Operand> {
        let operand = self.operand(instr, operand)?;
        if operand.access == Access::Each { Ok(operand) } else { self.copy(instr, operand) }
    }

    fn copied(&mut self, instr: &Instr, operand: kernel::Operand) -> Result<Operand> {
        let operand = self.in_place(instr, operand)?;
        self.copy(instr, operand)
    }

    fn copy(&mut self, instr: &Instr, operand: Operand) -> Result<Operand> {
        let width = operand.width;
        let out = Local { level: instr.level, width, place: Place::Scratch };
        let local = self.push(instr, out, KernelOp::Copy(operand));
        Ok(Operand { base: Base::Local(local), access: Access::Each, width })
    }

    /// An operation with its operands bound.
    fn bind(&mut self, instr: &Instr, op: &KernelOp) -> Result<KernelOp<Operand, usize>> {
        if let KernelOp::Mask { .. } = op {
            let moved = match self.drawn(instr.level) {
                MaskRows::Edges(graph) => self.binder.data.orders.moved(graph).is_some(),
                MaskRows::Rows | MaskRows::Vertices(_) => false,
            };
            let sparse = instr.level == Level::Edge && self.columns().is_some();
            self.uses_own |= sparse || moved;
        }
        let num_vertices = &self.binder.data.num_vertices;
        op.try_map(
            |position, operand| match reads_contiguous_rows(op, position) {
                true => self.contiguous(instr, *operand),
                false => self.operand(instr, *operand),
            },
            |width| width.eval(num_vertices),
        )
    }

    /// Whether a buffer aliases a value that edges read, or that has other readers. Its rows then stay in scratch until
    /// all readers of the old value are done.
    fn comes_last(&self, buffer: kernel::Buffer) -> bool {
        let Some(old) = self.binder.program.taken_over(buffer) else { return false };
        let mut edges = self.traversal.instrs.iter().filter(|instr| instr.level == Level::Edge);
        edges.any(|instr| instr.op.operands().iter().any(|operand| operand.source == Source::Buffer(old)))
            || !kernel::reads_on_the_way(self.traversal, buffer, old)
    }

    /// Appends the delayed store of an aliasing result.
    fn store_last(&mut self, instr: &Instr) {
        let Dest::Buffer(buffer) = instr.dest else { return };
        if !self.comes_last(buffer) {
            return;
        }
        let local = self.written[&buffer];
        let (level, width) = (Level::Row, self.locals[local as usize].width);
        let place = Place::Stored(self.binder.buffer(buffer));
        self.locals.push(Local { level, width, place });
        let out = self.locals.len() as u32 - 1;
        let from = Operand { base: Base::Local(local), access: Access::Each, width };
        self.ops.push(BlockOp { op: KernelOp::Copy(from), level, out, deferred: true, stage: instr.stage });
    }

    fn instr(&mut self, instr: &Instr, form: Form) -> Result<()> {
        let op = match form {
            Form::Plain => self.bind(instr, &instr.op)?,
            Form::Fused(op) => self.bind(instr, &op)?,
            Form::Gone => {
                // The result is never read.
                self.made.push(u32::MAX);
                return Ok(());
            }
        };
        let width = self.binder.eval(&instr.width);
        let level = match instr.extent() {
            Extent::Row => Level::Row,
            Extent::Edge => Level::Edge,
            Extent::Total => {
                let reduce = if let KernelOp::ReduceAll(reduce, _) = instr.op { reduce } else { Reduce::Sum };
                let Dest::Buffer(buffer) = instr.dest else { unreachable!("totals are stored") };
                let out = self.partials.len() as u32;
                self.partials.push((self.binder.buffer(buffer), reduce, instr.level, width));
                self.ops.push(BlockOp { op, level: instr.level, out, deferred: false, stage: instr.stage });
                return Ok(());
            }
        };
        match instr.dest {
            Dest::Local(_) => {
                let local = self.push(instr, Local { level, width, place: Place::Scratch }, op);
                self.made.push(local);
            }
            Dest::Buffer(buffer) => {
                let stored = Place::Stored(self.binder.buffer(buffer));
                let place = if self.comes_last(buffer) { Place::Scratch } else { stored };
                let local = self.push(instr, Local { level, width, place }, op);
                self.written.insert(buffer, local);
            }
        }
        Ok(())
    }

    /// Divides the region into blocks and tasks.
    fn finish(self) -> (Region, [f32; 5]) {
        let peaks = [Level::Row, Level::Edge].map(|level| self.peak(level));
        let written_over = self.reads_what_it_replaces();
        let (pattern_columns, mask_rows) = (self.columns(), [Level::Row, Level::Edge].map(|level| self.drawn(level)));
        let Self { binder, traversal, ops, locals, partials, uses_own, uses_own_end, full_columns, .. } = self;
        let mut region = Region {
            domain: domain(binder, traversal),
            pattern_columns,
            mask_rows,
            ops,
            locals,
            blocks: vec![],
            tasks: vec![],
            split: None,
            partials: vec![],
            uses_own,
            uses_own_end,
            full_columns,
        };
        // Partial results of wide values take memory and time to combine.
        let widest = partials.iter().map(|partial| partial.3).max();
        let most_tasks = widest.map_or(TASKS, |widest| (PARTS / widest.max(1)).clamp(8, PARTIAL_TASKS));
        if let (Domain::Edges { topology, direction, ends }, false) = (region.domain, written_over) {
            let topology = binder.data.topology(topology);
            let (indptr, edges) = (topology.indptr(direction, ends), topology.num_edges());
            let piece = traversal.pieces.map(|pieces| pieces.len(edges));
            // No row has more edges than the graph, so small graphs need no degree classes.
            region.split = piece.filter(|&piece| piece < edges).and_then(|piece| {
                let rows = topology.degree_classes(direction, ends).may_exceed(piece as u64);
                SplitRows::of(piece, rows, indptr, most_tasks, (&region.ops, &region.locals)).map(Box::new)
            });
        }
        divide(&mut region, binder, &traversal.rows, peaks, most_tasks);
        let num_tasks = region.tasks.len() - 1;
        let cut_tasks = region.split.as_ref().map_or(0, |split| split.row_tasks.len().max(split.piece_tasks.len()));
        for (out, reduce, level, width) in partials {
            let offset = binder.partial(num_tasks + cut_tasks, width);
            region.partials.push(Partial { out, reduce, level, width, offset });
        }
        if let Some(split) = &mut region.split {
            let (of_row, of_piece) = split.areas.lens;
            let (rows, pieces) = (split.rows.len(), split.num_pieces());
            split.areas.starts = (binder.partial(rows, of_row), binder.partial(pieces, of_piece));
        }
        let shares = shares(&region, binder);
        (region, shares)
    }

    /// Whether an edge operation reads a value that another one overwrites: a later edge pass would read the new value.
    /// Delayed stores run after all passes.
    fn reads_what_it_replaces(&self) -> bool {
        let writes = |op: &&BlockOp| !op.op.is_total() && !op.deferred;
        let written: Vec<BufferRange> = self.ops.iter().filter(writes).filter_map(|op| self.stored(op.out)).collect();
        let read = self.ops.iter().filter(|op| op.level == Level::Edge).flat_map(|op| op.op.operands());
        let mut read = read.filter_map(|operand| match operand.base {
            Base::Stored(buffer) => Some(buffer),
            Base::Local(_) | Base::Labels(_) => None,
        });
        read.any(|buffer| written.contains(&buffer))
    }

    fn stored(&self, local: u32) -> Option<BufferRange> {
        match self.locals[local as usize].place {
            Place::Stored(buffer) => Some(buffer),
            Place::Scratch => None,
        }
    }

    /// Peak live elements of locals in scratch, per row or edge.
    fn peak(&self, level: Level) -> usize {
        let mut ends: Vec<Option<usize>> = vec![None; self.locals.len()];
        for (index, op) in self.ops.iter().enumerate() {
            for operand in op.op.operands() {
                if let Base::Local(local) = operand.base {
                    ends[local as usize] = Some(index);
                }
            }
        }
        let lives = self.ops.iter().enumerate().filter(|(_, op)| !op.op.is_total()).filter_map(|(start, op)| {
            let local = &self.locals[op.out as usize];
            let life = Lifetime { start, end: ends[op.out as usize].unwrap_or(start), len: local.width };
            (local.level == level && local.place == Place::Scratch).then_some(life)
        });
        sum_alive(lives, self.ops.len()).into_iter().max().unwrap_or(0)
    }
}

fn domain(binder: &Binder<'_>, traversal: &Traversal) -> Domain {
    match traversal.rows {
        Rows::Once => Domain::Rows(1),
        Rows::Each(_) | Rows::Vertices(_) => Domain::Rows(binder.eval(&traversal.rows.count(&binder.program.tables))),
        Rows::Edges(graph, direction) => Domain::Edges { topology: graph.index(), direction, ends: false },
        Rows::Ends(graph, direction) => Domain::Edges { topology: graph.index(), direction, ends: true },
        Rows::Elements(pattern, direction) => {
            let topology = binder.data.graphs.len() + pattern.index();
            Domain::Edges { topology, direction, ends: false }
        }
    }
}

/// Divides the rows of a region into blocks and at most `most` tasks. `peaks` are the live elements per row and per
/// edge when operations run one by one.
fn divide(region: &mut Region, binder: &mut Binder<'_>, rows: &Rows, peaks: [usize; 2], most_tasks: usize) {
    let scratch = binder.block_len;
    let [row_width, edge_width] = block_widths(region, binder.features);
    let (row_peak, edge_peak) = (peaks[0].max(row_width).max(1), peaks[1].max(1));
    let data = binder.data;
    region.blocks = match region.domain {
        Domain::Edges { topology, direction, ends } => {
            // Without edge values nothing has to stay in a cache.
            let most = if peaks[1].max(edge_width) > 0 { 1024 } else { 8192 };
            let indptr = data.topology(topology).indptr(direction, ends);
            let rows = (scratch / 2 / row_peak).clamp(16, 1024);
            let cut: &[u32] = region.split.as_ref().map_or(&[], |split| &split.rows);
            edge_blocks(indptr, rows, (scratch / edge_peak).clamp(64, most), cut)
        }
        Domain::Rows(count) => {
            let most = match rows {
                Rows::Each(_) => 8192,
                // Small graphs, too, are divided among threads.
                _ => (count / 8).clamp(128, 1024),
            };
            row_blocks(count, (scratch / row_peak).clamp(16, most))
        }
    };
    let (mut most_rows, mut most_edges) = block_extents(region, data);
    if let Some(split) = &region.split {
        (most_rows, most_edges) = (most_rows.max(1), most_edges.max(split.piece));
    }
    let plan = &mut binder.plan;
    plan.block_edges = plan.block_edges.max(most_edges);
    plan.block_rows = plan.block_rows.max(most_rows);
    // Reduced rows may be fetched first.
    let reduced = region.ops.iter().filter_map(|op| match op.op {
        KernelOp::ReduceTrailing(_, a) => Some(a.width),
        _ => None,
    });
    let widest = region.locals.iter().map(|local| local.width).chain(reduced).max().unwrap_or(1);
    plan.tile_len = plan.tile_len.max(TILE).max(widest.next_multiple_of(16));

    let [of_row, of_edge] = [Level::Row, Level::Edge].map(|level| cost(region, level));
    let edges_of = |rows: &Range<usize>| match region.domain {
        Domain::Rows(_) => 0,
        Domain::Edges { topology, direction, ends } => {
            let indptr = data.topology(topology).indptr(direction, ends);
            indptr[rows.end] - indptr[rows.start]
        }
    };
    let costs = (0..region.blocks.len() - 1).map(|block| match region.block(block) {
        Some(rows) => rows.len() as f64 * of_row + edges_of(&rows) as f64 * of_edge,
        // The tasks of its pieces do the work.
        None => 0.0,
    });
    region.tasks = divide_by_cost(&costs.collect::<Vec<_>>(), most_tasks);
}

/// Estimated cost of a row without its edges, or of an edge.
fn cost(region: &Region, level: Level) -> f64 {
    let costs = region.ops.iter().filter(|op| op.level == level).map(|op| {
        let width = match op.op.is_total() {
            true => op.op.operands().iter().map(|operand| operand.width).max().unwrap_or(1),
            false => region.locals[op.out as usize].width,
        };
        op_cost(&op.op, width.max(1))
    });
    // Every row and every edge is visited.
    1.0 + costs.sum::<f64>()
}

/// Share of each stage in the time of a region, by estimated cost.
fn shares(region: &Region, binder: &Binder<'_>) -> [f32; 5] {
    let total_edges = match region.domain {
        Domain::Rows(_) => 0,
        Domain::Edges { topology, .. } => binder.data.topology(topology).num_edges(),
    };
    let total_rows = region.blocks.last().copied().unwrap_or(0) as usize;
    let mut costs = [0.0f64; 5];
    for op in &region.ops {
        let count = match op.level {
            Level::Row => total_rows,
            Level::Edge => total_edges,
        };
        let width = if op.op.is_total() {
            region.partials[op.out as usize].width
        } else {
            region.locals[op.out as usize].width
        };
        costs[stage_index(op.stage)] += 1.0 + count as f64 * op_cost(&op.op, width.max(1));
    }
    let sum: f64 = costs.iter().sum();
    costs.map(|c| (c / sum.max(1.0)) as f32)
}

/// Whether the kernel of an operation takes an operand, by position, as contiguous rows only.
fn reads_contiguous_rows(op: &KernelOp, position: usize) -> bool {
    match op {
        KernelOp::Segment(Reduce::Lse, _) | KernelOp::ReduceAll(..) | KernelOp::OuterAll(..) => true,
        KernelOp::MatMul(..) | KernelOp::MatMulT(..) => position == 0,
        _ => false,
    }
}

/// Estimated cost of an operation per row or edge, to divide the time of a region among stages.
fn op_cost(op: &KernelOp<Operand, usize>, width: usize) -> f64 {
    let width = width as f64;
    match op {
        KernelOp::Unary(..) | KernelOp::Compose { .. } => 3.0 * width,
        KernelOp::MatMul(of, ..) | KernelOp::MatMulT(of, ..) | KernelOp::OuterAll(of, ..) => {
            (of.batch * of.k * of.n) as f64 / 8.0
        }
        KernelOp::Dot(a, _) | KernelOp::ReduceTrailing(_, a) => a.width as f64,
        KernelOp::Mask { .. } => 2.0 * width,
        KernelOp::WeightedSum { x, .. } => x.width as f64,
        KernelOp::SoftmaxSum { score, x, .. } => (4 * score.width + x.width) as f64,
        KernelOp::SegmentArg { x, .. } => 2.0 * x.width as f64,
        // Most vertices are active in few graphs.
        KernelOp::AddEnds(parts) => width * (1.0 + 0.2 * (parts.len() - 1) as f64),
        _ => width,
    }
}

fn row_blocks(rows: usize, per_block: usize) -> Vec<u32> {
    let mut blocks: Vec<u32> = (0..rows).step_by(per_block).map(|r| r as u32).collect();
    blocks.push(rows as u32);
    blocks
}

/// Divides blocks into at most `most` tasks of similar cost, each at most one block over its share. Returns the first
/// block of each task, and the number of blocks.
fn divide_by_cost(costs: &[f64], most: usize) -> Vec<u32> {
    // The margin keeps rounding errors from creating an extra task.
    let share = costs.iter().sum::<f64>() / most as f64 * (1.0 - 1e-9);
    let (mut tasks, mut sum) = (vec![0u32], 0.0);
    for (next, cost) in (1u32..).zip(costs) {
        sum += cost;
        if sum >= share && (next as usize) < costs.len() && tasks.len() < most {
            tasks.push(next);
            sum = 0.0;
        }
    }
    if !costs.is_empty() {
        tasks.push(costs.len() as u32);
    }
    tasks
}

/// Blocks of at most `rows` rows and, unless a single row has more, `edges` edges. Split rows (`cut`) are
/// blocks of their own.
fn edge_blocks(indptr: &[u64], rows: usize, edges: usize, mut cut: &[u32]) -> Vec<u32> {
    let num_rows = indptr.len() - 1;
    let mut blocks = vec![0u32];
    let mut start = 0;
    while start < num_rows {
        let mut end = start + 1;
        match cut.split_first() {
            Some((&first, rest)) if first as usize == start => cut = rest,
            next => {
                let limit = next.map_or(num_rows, |(&first, _)| first as usize).min(start + rows);
                while end < limit && indptr[end + 1] - indptr[start] <= edges as u64 {
                    end += 1;
                }
            }
        }
        blocks.push(end as u32);
        start = end;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_cost_about_the_same() {
        // One task per block, or equal numbers of equal blocks.
        assert_eq!(divide_by_cost(&[1.0; 3], 256), [0, 1, 2, 3]);
        assert_eq!(divide_by_cost(&[1.0; 6], 3), [0, 2, 4, 6]);
        assert_eq!(divide_by_cost(&[1.0; 7], 3), [0, 3, 6, 7]);
        // Skewed blocks: the first three cost as much as all others.
        let skewed: Vec<f64> = [8.0; 3].into_iter().chain([1.0; 24]).collect();
        assert_eq!(divide_by_cost(&skewed, 6), [0, 1, 2, 3, 11, 19, 27]);
        // Blocks without cost (split rows), and no blocks.
        assert_eq!(divide_by_cost(&[0.0, 5.0, 0.0, 5.0, 0.0], 2), [0, 2, 5]);
        assert_eq!(divide_by_cost(&[0.0; 2], 4), [0, 1, 2]);
        assert_eq!(divide_by_cost(&[], 4), [0]);
    }
}
